"""How threads and near memory are shared out among environments: what a program is compiled for,
besides the environment.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from cupydrive.codegen.agreement import FEW_OWN
from cupydrive.errors import SpecError
from cupydrive.protocols import EnvParams
from cupydrive.spec import EnvSpec, Group


class Observations(StrEnum):
    """The ways in which observations are made and leave; each is a file of
    ``kernels/drive/storage``.
    """

    DIRECT = "direct"  # made in global memory, where they stay
    SHARED = "shared"  # made near, copied out in wide accesses
    # likewise, by all threads of a warp together for its environments, of one thread each
    WARP_COPY = "warp_copy"
    # as direct, but rows of one member each pass shared memory 128 bytes at a time (drive/rows.cuh)
    STAGED = "staged"


NEAR = (Observations.SHARED, Observations.WARP_COPY)
WARP = 32  # threads


@dataclass(frozen=True)
class Layout:
    """How threads and near memory are shared out; any layout gives the same numbers.

    Args:
        team: Threads that own one environment, a power of two from 1 to 1024.
        envs_per_block: Environments of one block, a power of two; 1 for teams above 32.
        state_near: Keep the state near (registers, stack or shared memory) during a launch.
        rows_near: Likewise rewards and actions.
        observations: How observations leave. On a CPU the first two of these ways are all there
            are.
        half_obs: Keep observations as bfloat16, rounded from the same numbers.
    """

    team: int = 1
    envs_per_block: int = 1
    state_near: bool = True
    rows_near: bool = True
    observations: Observations = Observations.SHARED
    half_obs: bool = False

    def __post_init__(self) -> None:
        powers = {2**k for k in range(11)}
        most = 1024 // self.team if self.team in powers and self.team <= WARP else 1
        # Powers of two, or a block's last warp would wait for lanes that do not exist.
        if (
            self.team not in powers
            or self.envs_per_block not in powers
            or self.envs_per_block > most
        ):
            given = f"team = {self.team}, envs_per_block = {self.envs_per_block}"
            raise SpecError(
                f"{given}: expected powers of two with at most 1024 threads, and 1 for teams "
                f"above {WARP}"
            )

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.team * self.envs_per_block

    @property
    def block_envs(self) -> int:
        """Environments of a block."""
        return self.envs_per_block

    def near_bytes(self, spec: EnvSpec, params: EnvParams) -> int:
        """Return the bytes that one environment keeps in a block's memory, ``struct Shared`` and
        padding not counted.

        A team of one has its state and rows in registers, or on the stack.
        """
        groups = spec.groups(params)
        obs = sum(
            g.count * self._near_obs_bytes(g) for g in groups if self.observations in NEAR or g.bits
        )
        if self.team == 1:
            return obs
        rows = sum(g.count * (4 + 4 * g.heads + self._kept_bytes(g)) for g in groups)
        return spec.state_dtype(params).itemsize * self.state_near + rows * self.rows_near + obs

    def _near_obs_bytes(self, g: Group) -> int:
        """Return the bytes of an agent's observation where it is made: one thread makes bits."""
        if g.bits and self.team == 1:
            return 4 * g.words
        return g.obs_bytes(2 if self.half_obs else 4)

    def _kept_bytes(self, g: Group) -> int:
        """Return the bytes of an agent's return and of what its next actions are drawn from, if not
        in registers.
        """
        own = fits_bytes(g) and max(g.heads, -(-g.count // self.team)) <= FEW_OWN
        return 0 if own else 4 + (4 if fits_bytes(g) else 16) * g.heads

    def fit(self, spec: EnvSpec, params: EnvParams, limit: int) -> Self:
        """Return this layout with as much near as ``limit`` bytes hold: observation goes first,
        state last.

        Near observations of several agents, or of bits, of one thread, leave by their warp if there
        is a whole one.
        """
        near = self
        whole_warps = self.team == 1 and self.envs_per_block % 32 == 0
        long = not spec.one_agent(params) or any(g.bits for g in spec.groups(params))
        if self.observations is Observations.SHARED and whole_warps and long:
            near = replace(self, observations=Observations.WARP_COPY)
        far = replace(
            self, observations=Observations.STAGED if self.team > 1 else Observations.DIRECT
        )
        options = (near, far, replace(far, rows_near=False))
        nothing = replace(far, rows_near=False, state_near=False)
        return next(
            (o for o in options if o.near_bytes(spec, params) * o.envs_per_block <= limit), nothing
        )


@dataclass(frozen=True)
class PlayLayout(Layout):
    """How ``env_play`` (kernels/play/play.cuh) shares them out: here ``envs_per_block`` is what one
    crew has.

    Args:
        crews: Of a block, each with environments of at most 32 threads in all; or a single larger
            team.
        warps: Of a crew, if its teams are no larger than one; the first of them steps the
            environments.
        hidden_near: Hidden states of policies are in a crew's shared memory. Otherwise they are
            where learners store them, of policies on tensor cores that play one group each.
    """

    crews: int = 1
    warps: int = 1
    hidden_near: bool = True

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.crews * max(WARP * self.warps, self.team)

    @property
    def block_envs(self) -> int:
        """Environments of a block."""
        return self.crews * self.envs_per_block


def fits_bytes(g: Group) -> bool:
    """Return whether an action of ``g`` is known when it is drawn, and fits in a byte."""
    return not g.continuous and not g.mask and max(g.sizes) <= 256
