"""Profiles as text and as data."""

from dataclasses import asdict, dataclass
from typing import Any

from cupydrive.bench.limits import Ceilings
from cupydrive.bench.timing import short
from cupydrive.profiling.occupancy import Use
from cupydrive.terminal.progress import preformatted

# Fractions above which a resource is the bottleneck. Kernels that only write their rows reach 0.6
# to 0.9 of the limit.
LATENCY, LAUNCHES, WRITES, ARITHMETIC = 0.75, 0.25, 0.6, 0.5
BINDS = {  # explanation and suggestion by bottleneck
    "latency": ("the environments do not fill the device", "more environments"),
    "launches": ("the overhead of a launch is as long as its steps", "more steps per launch"),
    "writes": (
        "results are written at nearly the bandwidth of this device",
        'smaller observations, or obs_dtype="bfloat16"',
    ),
    "arithmetic": (
        "float operations run at nearly the peak rate of this device",
        "fewer operations, such as math::Divisor",
    ),
    "instructions": (
        "neither writes nor arithmetic are near their limit",
        "selections instead of branches",
    ),
}


@dataclass(frozen=True)
class Profile:
    """Costs of random rollouts of an environment on a device, and their bottleneck.

    Args:
        env: Name of the environment.
        params: Parameters that differ from the defaults.
        num_envs: Number of environments.
        agents: Number of agents of one environment.
        steps: T, number of steps per launch.
        device: ``"cuda"`` or ``"cpu"``.
        machine: Description of the device.
        seconds: Median time of a launch of T steps.
        half_seconds: Median time with half as many environments.
        step_seconds: Median time of a launch of one step.
        bytes_per_step: Bytes written in one environment step.
        operations_per_step: Float operations of one environment step, or None if they were not
            counted.
        ceilings: Limits of the device.
        use: ``Use``, or None on a CPU.
    """

    env: str
    params: dict[str, Any]
    num_envs: int
    agents: int
    steps: int
    device: str
    machine: str
    seconds: float
    half_seconds: float
    step_seconds: float
    bytes_per_step: int
    operations_per_step: float | None
    ceilings: Ceilings
    use: Use | None

    @property
    def rate(self) -> float:
        """Environment steps per second."""
        return self.num_envs * self.steps / self.seconds

    @property
    def write_share(self) -> float:
        """Fraction of the device's write bandwidth."""
        return self.rate * self.bytes_per_step / self.ceilings.write

    @property
    def arithmetic_share(self) -> float:
        """Fraction of the device's float32 peak rate, or NaN if operations were not counted."""
        counted = float("nan") if self.operations_per_step is None else self.operations_per_step
        return self.rate * counted / self.ceilings.arithmetic

    @property
    def half_share(self) -> float:
        """Time of half of the environments relative to all.

        It is 0.5 on a full device, and 1 if further environments take no time.
        """
        return self.half_seconds / self.seconds

    @property
    def launch_share(self) -> float:
        """Fraction of a launch's time that is overhead."""
        return min(1.0, max(0.0, (self.step_seconds - self.seconds / self.steps) / self.seconds))

    @property
    def binds(self) -> str:
        """Bottleneck of the rollouts, a key of ``BINDS``."""
        if self.half_share >= LATENCY:
            return "latency"
        if self.launch_share >= LAUNCHES:
            return "launches"
        if self.write_share >= WRITES:
            return "writes"
        return "arithmetic" if self.arithmetic_share >= ARITHMETIC else "instructions"

    def __str__(self) -> str:
        given = "".join(f", {name} = {value}" for name, value in self.params.items())
        agents = f" of {self.agents:,} agents" if self.agents > 1 else ""
        operations = "not counted: this needs a C++ compiler and a kernel in C++"
        if self.operations_per_step is not None:
            operations = (
                f"{self.operations_per_step:,.4g} float operations a step: "
                f"{self.arithmetic_share:.0%} of this device's "
                f"{short(self.ceilings.arithmetic)}FLOP/s"
            )
        explanation, hint = BINDS[self.binds]
        lines = [
            f"{self.env}{given}: {self.num_envs:,} environments{agents} x {self.steps} steps in "
            f"one launch, {self.machine}",
            f"  time         {short(self.rate)} env-steps/s, {1e3 * self.seconds:.3g} ms per "
            f"launch",
            *self._of_a_gpu(),
            f"  writes       {self.bytes_per_step:,} bytes a step: {self.write_share:.0%} of this "
            f"device's {short(self.ceilings.write)}B/s",
            f"  arithmetic   {operations}",
            f"  parts        launch overhead {self.launch_share:.0%} of the time, half of the "
            f"environments take {self.half_share:.0%}",
            f"  bottleneck   {self.binds}: {explanation}",
            f"  suggestion   {hint}",
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _of_a_gpu(self) -> list[str]:
        """Return the lines about registers, memory and occupancy, or no lines on a CPU."""
        u = self.use
        if u is None:
            return []
        local = f"{u.local_bytes} bytes of local memory (spills)" if u.local_bytes else "no spills"
        return [
            f"  kernel       {u.registers} registers and {local} per thread, {u.shared_bytes:,} "
            f"bytes of shared memory per block of {u.threads} threads",
            f"  occupancy    {u.occupancy:.0%} of a multiprocessor's {u.most_threads:,} threads, "
            f"bound by {u.bound}, {u.filled:.0%} in this launch",
        ]

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Return all measurements and the fractions above as JSON-compatible values."""
        shares = ("rate", "write_share", "half_share", "launch_share", "binds")
        arithmetic = None if self.operations_per_step is None else self.arithmetic_share
        return (
            asdict(self)
            | {name: getattr(self, name) for name in shares}
            | {"arithmetic_share": arithmetic}
        )
