"""Layout: the threads, registers and shared memory of a program's environments."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from cupydrive.codegen.agreement import FEW_OWN
from cupydrive.errors import SpecError
from cupydrive.protocols import EnvParams
from cupydrive.spec import EnvSpec, Group


class Observations(StrEnum):
    """How observations are stored. Each way is a file of ``kernels/drive/storage``."""

    # Threads write observations directly to global memory.
    DIRECT = "direct"
    # Threads compute observations in shared memory or registers, and copy them with wide stores.
    SHARED = "shared"
    # As SHARED, for environments of one thread each. A warp copies their observations together.
    WARP_COPY = "warp_copy"
    # Threads stage rows through 128 bytes of shared memory (drive/rows.cuh).
    STAGED = "staged"


ON_CHIP = (Observations.SHARED, Observations.WARP_COPY)
WARP = 32  # threads per warp


@dataclass(frozen=True)
class Layout:
    """Assignment of threads and memory to environments. Results do not depend on it.

    Args:
        team: Number of threads of one environment, a power of two from 1 to 1024.
        envs_per_block: Number of environments per block, a power of two. It is 1 for teams above
            32.
        state_on_chip: Keep the state in registers, on the stack or in shared memory during a
            launch.
        rows_on_chip: Keep rewards and actions there, too.
        observations: How observations are stored. A CPU supports only the first two ways.
        half_obs: Store observations as bfloat16, rounded from the same numbers.
    """

    team: int = 1
    envs_per_block: int = 1
    state_on_chip: bool = True
    rows_on_chip: bool = True
    observations: Observations = Observations.SHARED
    half_obs: bool = False

    def __post_init__(self) -> None:
        powers = {2**k for k in range(11)}
        most = 1024 // self.team if self.team in powers and self.team <= WARP else 1
        # With other sizes, the last warp of a block would wait for lanes that do not exist.
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

    def shared_bytes(self, spec: EnvSpec, params: EnvParams) -> int:
        """Return the shared memory of one environment in bytes, without ``struct Shared``.

        Padding is not included. A team of one has its state and rows in registers or on the stack.
        """
        groups = spec.groups(params)
        obs = sum(
            g.count * self._shared_obs_bytes(g)
            for g in groups
            if self.observations in ON_CHIP or g.bits
        )
        if self.team == 1:
            return obs
        rows = sum(g.count * (4 + 4 * g.heads + self._kept_bytes(g)) for g in groups)
        return (
            spec.state_dtype(params).itemsize * self.state_on_chip + rows * self.rows_on_chip + obs
        )

    def _shared_obs_bytes(self, g: Group) -> int:
        """Return the shared memory of an agent's observation in bytes. One thread packs bits."""
        if g.bits and self.team == 1:
            return 4 * g.words
        return g.obs_bytes(2 if self.half_obs else 4)

    def _kept_bytes(self, g: Group) -> int:
        """Return the shared memory of an agent's return and next 32-bit random integers, in bytes.

        It is 0 if they are in registers.
        """
        own = fits_bytes(g) and max(g.heads, -(-g.count // self.team)) <= FEW_OWN
        return 0 if own else 4 + (4 if fits_bytes(g) else 16) * g.heads

    def fit(self, spec: EnvSpec, params: EnvParams, limit: int) -> Self:
        """Return this layout with as much data in shared memory as ``limit`` bytes hold.

        Observations are moved to global memory first, and the state last. If a thread has
        observations of several agents or packed bits, and blocks consist of whole warps, the warp
        copies them.
        """
        on_chip = self
        whole_warps = self.team == 1 and self.envs_per_block % 32 == 0
        long = not spec.one_agent(params) or any(g.bits for g in spec.groups(params))
        if self.observations is Observations.SHARED and whole_warps and long:
            on_chip = replace(self, observations=Observations.WARP_COPY)
        off_chip = replace(
            self, observations=Observations.STAGED if self.team > 1 else Observations.DIRECT
        )
        options = (on_chip, off_chip, replace(off_chip, rows_on_chip=False))
        nothing = replace(off_chip, rows_on_chip=False, state_on_chip=False)
        return next(
            (o for o in options if o.shared_bytes(spec, params) * o.envs_per_block <= limit),
            nothing,
        )


@dataclass(frozen=True)
class PlayLayout(Layout):
    """Layout of ``env_play`` (kernels/play/play.cuh).

    A block consists of warp sets. A warp set is the warps that step their own environments and
    compute the policies for them. ``envs_per_block`` is the number of environments of a warp
    set.

    Args:
        warp_sets: Number of warp sets of a block. The environments of a warp set have at most 32
            threads in total, or the warp set is a single larger team.
        warps: Number of warps of a warp set, if its teams are not larger than a warp. The first
            warp steps the environments.
        hidden_in_shared: Keep hidden states of policies in shared memory. Otherwise they are in the
            learners' memory, which requires policies on tensor cores that play one group each.
    """

    warp_sets: int = 1
    warps: int = 1
    hidden_in_shared: bool = True

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warp_sets * max(WARP * self.warps, self.team)

    @property
    def block_envs(self) -> int:
        """Environments of a block."""
        return self.warp_sets * self.envs_per_block


def fits_bytes(g: Group) -> bool:
    """Return whether an action of ``g`` fits in a byte and does not depend on a mask."""
    return not g.continuous and not g.mask and max(g.sizes) <= 256
