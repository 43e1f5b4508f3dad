"""Profiles as text and as data."""

from dataclasses import asdict, dataclass
from typing import Any

from cupydrive.bench.limits import Ceilings
from cupydrive.bench.timing import short
from cupydrive.codegen.layout import WARP
from cupydrive.terminal.progress import preformatted

# Fractions from which a resource is the limit. Kernels that only write their rows reach 0.6 to 0.9 of the limit.
LATENCY, LAUNCHES, WRITES, ARITHMETIC, OBSERVING, RESETS = 0.75, 0.25, 0.6, 0.5, 0.5, 0.3
BINDS = {  # by limit: an explanation, and what to try
    "latency": ("the environments do not fill the device", "more environments"),
    "launches": ("beginning and ending a launch takes as long as its steps", "more steps a launch"),
    "writes": ("results leave nearly as fast as this device writes", 'obs_dtype="bfloat16", or smaller observations'),
    "arithmetic": ("float operations run nearly as fast as this device can", "fewer operations, such as math::Divisor"),
    "observations": ("observations take most of a step", "rows of struct Shared for what each pair of agents reads"),
    "resets": ("a warp waits while one of its environments resets", "a cheaper reset, or longer episodes"),
    "instructions": ("neither writes nor arithmetic are near their limit", "selections instead of branches"),
}


@dataclass(frozen=True)
class Use:
    """Resources of a GPU that a kernel uses.

    Args:
        registers: Registers of a thread.
        local_bytes: Local memory of a thread: spilled registers, and arrays with an index that the compiler does not know.
        shared_bytes: Shared memory of a block.
        threads: Threads of a block.
        blocks: Blocks of the launch.
        resident: Blocks that one multiprocessor holds at once.
        bound: Resource that allows no more of them.
        processors: Multiprocessors of the GPU.
        most_threads: Maximum number of threads that one multiprocessor holds.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    threads: int
    blocks: int
    resident: int
    bound: str
    processors: int
    most_threads: int

    @property
    def occupancy(self) -> float:
        """Fraction of a multiprocessor's threads that it holds of this kernel, if there are enough blocks."""
        return self.resident * self.threads / self.most_threads

    @property
    def filled(self) -> float:
        """The same fraction in this launch, on average over the multiprocessors."""
        return min(self.resident, self.blocks / self.processors) * self.threads / self.most_threads


@dataclass(frozen=True)
class Profile:
    """Costs of random rollouts of an environment on a device, and what limits them.

    Args:
        env: Name of the environment.
        params: Parameters that are not the defaults.
        num_envs: Number of environments.
        agents: Number of agents of one environment.
        steps: T, steps of a launch.
        device: ``"cuda"`` or ``"cpu"``.
        machine: Description of the device.
        seconds: Medians by name: ``rollout`` of T steps in one launch; ``half``, the same with half as many environments;
            ``one_step`` in a launch; ``observe`` and ``reset`` of all environments alone; and ``least_observe`` and
            ``least_reset`` of a single environment.
        episode_ends: Fraction of env-steps that end an episode.
        state_bytes: Size of one environment's state.
        bytes_per_step: Bytes written in one env-step.
        observed_bytes: Bytes of observations among them.
        half_obs: Whether observations are bfloat16.
        operations_per_step: Float operations of one env-step, or None if they were not counted.
        ceilings: Limits of the device.
        use: ``Use``, or None on a CPU.
    """

    env: str
    params: dict
    num_envs: int
    agents: int
    steps: int
    device: str
    machine: str
    seconds: dict[str, float]
    episode_ends: float
    state_bytes: int
    bytes_per_step: int
    observed_bytes: int
    half_obs: bool
    operations_per_step: float | None
    ceilings: Ceilings
    use: Use | None

    # ---- rates and shares ----

    @property
    def rate(self) -> float:
        """Env-steps per second."""
        return self.num_envs * self.steps / self.seconds["rollout"]

    @property
    def write_share(self) -> float:
        """Fraction of the device's write bandwidth."""
        return self.rate * self.bytes_per_step / self.ceilings.write

    @property
    def arithmetic_share(self) -> float | None:
        """Fraction of the device's float32 operations, or None if they were not counted."""
        if self.operations_per_step is None:
            return None
        return self.rate * self.operations_per_step / self.ceilings.arithmetic

    @property
    def half_share(self) -> float:
        """Time of half of the environments over that of all: 0.5 on a full device, 1 if environments cost nothing."""
        return self.seconds["half"] / self.seconds["rollout"]

    @property
    def launch_share(self) -> float:
        """Fraction of a launch in which it begins and ends."""
        s = self.seconds
        return min(1.0, max(0.0, (s["one_step"] - s["rollout"] / self.steps) / s["rollout"]))

    @property
    def observe_share(self) -> float:
        """Fraction of a step in which observations are made, measured alone. A rollout may overlap them with other work."""
        return self._alone("observe")

    @property
    def reset_share(self) -> float:
        """Upper bound of the fraction of a step in which environments reset, since all threads of a warp wait for one."""
        lanes = 1 if self.use is None else max(1.0, WARP * self.num_envs / (self.use.threads * self.use.blocks))
        return (1 - (1 - self.episode_ends) ** lanes) * self._alone("reset")

    def _alone(self, part: str) -> float:
        """Return the fraction of a step that one part takes.

        The time of a single environment, and that of moving states and observations, which a rollout keeps in registers, are
        subtracted from that of a launch that does nothing else.
        """
        more = self.seconds[part] - self.seconds[f"least_{part}"]
        moved = self.num_envs * (self.state_bytes + self.observed_bytes) / self.ceilings.copy
        return min(1.0, max(0.0, more - moved) * self.steps / self.seconds["rollout"])

    @property
    def binds(self) -> str:
        """What limits the rollouts, as far as times show it: a key of ``BINDS``."""
        if self.half_share >= LATENCY:
            return "latency"
        if self.launch_share >= LAUNCHES:
            return "launches"
        if self.write_share >= WRITES:
            return "writes"
        if (self.arithmetic_share or 0.0) >= ARITHMETIC:
            return "arithmetic"
        if self.observe_share >= OBSERVING and self.observe_share >= self.reset_share:
            return "observations"
        return "resets" if self.reset_share >= RESETS else "instructions"

    @property
    def hint(self) -> str:
        """What to try against that which binds."""
        if self.binds == "writes" and 2 * self.observed_bytes < self.bytes_per_step:
            return "nothing: most of what is written are actions, rewards and flags"
        if self.binds == "writes" and self.half_obs:
            return "smaller observations"
        return BINDS[self.binds][1]

    # ---- shown ----

    def __str__(self) -> str:
        given = "".join(f", {name} = {value}" for name, value in self.params.items())
        agents = f" of {self.agents:,} agents" if self.agents > 1 else ""
        lines = [
            f"{self.env}{given}: {self.num_envs:,} environments{agents} x {self.steps} steps in one launch, {self.machine}",
            f"  time         {short(self.rate)} env-steps/s, {in_time(1 / self.rate)} each; a launch takes "
            f"{in_time(self.seconds['rollout'])}",
            *self._of_a_gpu(),
            f"  writes       {self.bytes_per_step:,} bytes a step, {self.observed_bytes:,} of them observations: "
            f"{self.write_share:.0%} of the {short(self.ceilings.write)}B/s that this device writes",
            f"  arithmetic   {self._operations()}",
            f"  parts        {self._parts()}; half of the environments take {self.half_share:.0%}",
            f"  what binds   {self.binds}: {BINDS[self.binds][0]}",
            f"  to try       {self.hint}",
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _of_a_gpu(self) -> list[str]:
        """Return the lines of registers, memory and occupancy, none on a CPU."""
        u = self.use
        if u is None:
            return []
        local = f"{u.local_bytes} bytes of local memory (spills)" if u.local_bytes else "no spills"
        return [
            f"  kernel       {u.registers} registers and {local} a thread, {u.shared_bytes:,} bytes of shared memory a "
            f"block of {u.threads} threads",
            f"  occupancy    {u.occupancy:.0%} of a processor's {u.most_threads:,} threads, bound by {u.bound}; this launch "
            f"fills {u.filled:.0%}",
        ]

    def _parts(self) -> str:
        launch = f"beginning and ending a launch {self.launch_share:.0%}"
        if self.binds == "latency":  # parts that wait alone show nothing about a full device
            return f"{launch} of the time"
        return f"observing {self.observe_share:.0%}, resets at most {self.reset_share:.0%}, {launch} of the time"

    def _operations(self) -> str:
        if self.operations_per_step is None:
            return "not counted: that takes a C++ compiler, and a kernel in C++"
        return (
            f"{self.operations_per_step:,.4g} float operations a step: {self.arithmetic_share:.0%} of the "
            f"{short(self.ceilings.arithmetic)}FLOP/s that this device makes"
        )

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Return all measurements and the fractions above, as JSON can hold them."""
        return asdict(self) | {
            "rate": self.rate,
            "write_share": self.write_share,
            "arithmetic_share": self.arithmetic_share,
            "half_share": self.half_share,
            "launch_share": self.launch_share,
            "observe_share": self.observe_share,
            "reset_share": self.reset_share,
            "binds": self.binds,
        }


def in_time(seconds: float) -> str:
    """Return a time as text, in a unit from s to ps."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= limit:
            return f"{seconds / limit:.3g} {unit}"
    return f"{seconds * 1e12:.3g} ps"
