"""What a profile found, in words and as data."""

from dataclasses import asdict, dataclass

from cupydrive.bench.limits import Ceilings
from cupydrive.bench.timing import short
from cupydrive.codegen.layout import WARP
from cupydrive.terminal.progress import preformatted

# Shares from which a resource is named. Kernels that only write their rows reach 0.6 to 0.9 of the limit.
LATENCY, LAUNCHES, WRITES, ARITHMETIC, OBSERVING, RESETS = 0.75, 0.25, 0.6, 0.5, 0.5, 0.3
BINDS = {  # what binds: an explanation, and what to try
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
    """What a kernel takes of a GPU.

    Args:
        registers: Of a thread.
        local_bytes: Of a thread: spilled registers, and arrays with an index that the compiler does not know.
        shared_bytes: Of a block.
        threads: Of a block.
        blocks: Of a launch.
        resident: Blocks that one processor holds at once.
        bound: What does not allow more.
        processors: Of the GPU.
        most_threads: That one processor holds.
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
    def occupancy(self):
        """Share of its threads that a processor holds of this kernel, if there are blocks enough."""
        return self.resident * self.threads / self.most_threads

    @property
    def filled(self):
        """The same of this launch, on average over the processors."""
        return min(self.resident, self.blocks / self.processors) * self.threads / self.most_threads


@dataclass(frozen=True)
class Profile:
    """What random rollouts of an environment cost on a device, and what binds them.

    Args:
        env: Its name.
        params: Parameters that are not the defaults.
        num_envs: Copies.
        agents: Of one copy.
        steps: T, of a launch.
        device: ``"cuda"`` or ``"cpu"``.
        machine: Its name.
        seconds: Medians by what was timed: a ``rollout`` of T steps in one launch; the same of ``half`` as many copies;
            ``one_step`` in a launch; all copies ``observe`` alone, or ``reset``; and ``least_observe``, ``least_reset``:
            the same of a single copy.
        episode_ends: Share of env-steps that end an episode.
        state_bytes: Of one copy's state.
        bytes_per_step: Written for one env-step.
        observed_bytes: Of those, observations.
        half_obs: Whether these are bfloat16.
        operations_per_step: Float operations of one env-step; None: not counted.
        ceilings: What the device does at most.
        use: ``Use``; None on a CPU.
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
    def rate(self):
        """env-steps per second."""
        return self.num_envs * self.steps / self.seconds["rollout"]

    @property
    def write_share(self):
        """Of what the device can write."""
        return self.rate * self.bytes_per_step / self.ceilings.write

    @property
    def arithmetic_share(self):
        """Of the float32 operations that the device can make; None: they are not counted."""
        if self.operations_per_step is None:
            return None
        return self.rate * self.operations_per_step / self.ceilings.arithmetic

    @property
    def half_share(self):
        """Time that half of the copies take, of that of all: 0.5 where the device is full, 1 where copies cost nothing."""
        return self.seconds["half"] / self.seconds["rollout"]

    @property
    def launch_share(self):
        """Of a launch, beginning and ending it."""
        s = self.seconds
        return min(1.0, max(0.0, (s["one_step"] - s["rollout"] / self.steps) / s["rollout"]))

    @property
    def observe_share(self):
        """Of a step, making observations, as that takes alone; in a rollout a part of it fills the time of other waits."""
        return self._alone("observe")

    @property
    def reset_share(self):
        """Of a step, resets: at most, as all threads of a warp wait where one begins anew."""
        lanes = 1 if self.use is None else max(1.0, WARP * self.num_envs / (self.use.threads * self.use.blocks))
        return (1 - (1 - self.episode_ends) ** lanes) * self._alone("reset")

    def _alone(self, part):
        """Return what one part takes of a step's time.

        That is the time of a launch that does nothing else for all copies, beyond that for one, and beyond what memory takes to
        bring the states and observations, as rollouts keep states near.
        """
        more = self.seconds[part] - self.seconds[f"least_{part}"]
        moved = self.num_envs * (self.state_bytes + self.observed_bytes) / self.ceilings.copy
        return min(1.0, max(0.0, more - moved) * self.steps / self.seconds["rollout"])

    @property
    def binds(self):
        """What binds, as far as times show it: a key of ``BINDS``."""
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

    def __str__(self):
        given = "".join(f", {name} = {value}" for name, value in self.params.items())
        agents = f" of {self.agents:,} agents" if self.agents > 1 else ""
        lines = [
            f"{self.env}{given}: {self.num_envs:,} copies{agents} x {self.steps} steps in one launch, {self.machine}",
            f"  time         {short(self.rate)} env-steps/s, {in_time(1 / self.rate)} each; a launch takes "
            f"{in_time(self.seconds['rollout'])}",
            *self._of_a_gpu(),
            f"  writes       {self.bytes_per_step:,} bytes a step, {self.observed_bytes:,} of them observations: "
            f"{self.write_share:.0%} of the {short(self.ceilings.write)}B/s that this device writes",
            f"  arithmetic   {self._operations()}",
            f"  parts        {self._parts()}; half of the copies take {self.half_share:.0%}",
            f"  what binds   {self.binds}: {BINDS[self.binds][0]}",
            f"  to try       {self.hint}",
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _of_a_gpu(self):
        """Return the line of registers, memory and occupancy; none on a CPU."""
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

    def _parts(self):
        launch = f"beginning and ending a launch {self.launch_share:.0%}"
        if self.binds == "latency":  # what each copy waits for alone is not what it takes of a full device
            return f"{launch} of the time"
        return f"observing {self.observe_share:.0%}, resets at most {self.reset_share:.0%}, {launch} of the time"

    def _operations(self):
        if self.operations_per_step is None:
            return "not counted: that takes a C++ compiler, and a kernel in C++"
        return (
            f"{self.operations_per_step:,.4g} float operations a step: {self.arithmetic_share:.0%} of the "
            f"{short(self.ceilings.arithmetic)}FLOP/s that this device makes"
        )

    def _repr_html_(self):
        return preformatted(str(self))

    def to_dict(self):
        """Return all that was measured, and what follows, as JSON can hold it."""
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


def in_time(seconds):
    """Return seconds in words, in a unit that suits them."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= limit:
            return f"{seconds / limit:.3g} {unit}"
    return f"{seconds * 1e12:.3g} ps"
