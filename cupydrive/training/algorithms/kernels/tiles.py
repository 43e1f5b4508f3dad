"""How many rows a team of the learner's kernels computes at once, and what it keeps near meanwhile: no bit depends on it.

A CPU's thread has few rows, whose numbers stay in its cache. A GPU's block has more, so that each weight that it reads serves
many, but no more than it will ever get; and the weights and a chunk's gradient where its shared memory has room for them.
"""

from dataclasses import dataclass

ONE_MEMBER_ROWS = 32
TEAM_ROWS = 128
FEWEST_ROWS = 4  # of a forward pass: fewer would leave a GPU's warps half empty
ROOM = 64  # bytes of a block that alignment takes
NEAR_ROWS = 32  # at least, for which weights and gradient give up their place
PAD = 16  # rows of matrices begin at multiples of it
# Threads of one block on a GPU, by the file that they run.
TEAMS = {"exact/forward": 256, "exact/gradient": 256, "update": 128}


def padded(n):
    """Return ``n`` rounded up to whole vectors."""
    return -(-n // PAD) * PAD


@dataclass(frozen=True)
class Tiles:
    """What is compiled into a forward pass or a gradient.

    Args:
        rows: A power of two; 0 if not even one row fits.
        copies_near: Whether the weights are kept in shared memory.
        chunk_near: Whether the sums of a chunk's gradients are.
    """

    rows: int
    copies_near: bool = False
    chunk_near: bool = False

    @property
    def constants(self):
        """Pairs (name, int) of the constants of ``kernels/learn``."""
        return ("TILE", self.rows), ("NEAR_COPIES", self.copies_near), ("NEAR_CHUNK", self.chunk_near)


def forward_tiles(layout, executor, rows):
    """Return the ``Tiles`` of a forward pass of ``rows`` rows."""
    if executor.max_team == 1:
        return widest(layout.tile_bytes, executor.team_bytes, ONE_MEMBER_ROWS)
    each = min(TEAM_ROWS, max(FEWEST_ROWS, -(-rows // executor.processors)))
    for near in (True, False):
        found = widest(layout.tile_bytes, executor.team_bytes - near * 4 * layout.forward_copied - ROOM, each)
        if found.rows >= min(each, NEAR_ROWS):
            return Tiles(found.rows, near)
    return found


def gradient_tiles(layout, executor, rows):
    """Return the ``Tiles`` of gradients of chunks of ``rows`` rows."""
    about = 4 * (1 + PAD)  # of a row: where it is, what is reported of it
    if executor.max_team == 1:
        return widest(layout.tile_bytes + about, executor.team_bytes, ONE_MEMBER_ROWS)
    each = min(TEAM_ROWS, rows)
    for copies, chunk in ((True, True), (True, False), (False, False)):
        taken = 4 * (copies * layout.copied + chunk * layout.gradient) + ROOM
        found = widest(layout.tile_bytes + layout.spare_bytes + about, executor.team_bytes - taken, each)
        if found.rows >= min(each, NEAR_ROWS):
            return Tiles(found.rows, copies, chunk)
    return found


def widest(row_bytes, team_bytes, wanted):
    """Return the ``Tiles`` of the least power of two that is ``wanted`` or more, or of the largest that fits."""
    rows = 1 << (wanted - 1).bit_length()
    while rows > 0 and rows * row_bytes > team_bytes:
        rows //= 2
    return Tiles(rows)
