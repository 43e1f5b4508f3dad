"""The report of a check, which prints as a table and can be saved as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cupydrive.errors import SpecError
from cupydrive.inputs.arguments import shown

TOLERANCE = 1e-6  # relative to a field's scale: about ten units in the last place
MAX_EXCUSED = 0.005  # maximum fraction of rows with a decision within the tolerance
AXES = ("environment", "agent", "entry", "entry")  # default names of an array's axes
SHOWN_FAILURES = 8  # failures that a printed report lists

# Names of the comparisons of a check. The device's name is prepended.
BOUNDS = "a bounds-checked build against the fast one, bit for bit"
TEAM_RULES = "equal numbers of team.sync() in all threads, one writer per entry between two"
THREAD_CASE = "1 thread against 3, bit for bit"
TEAM_CASE = "a team of threads against one, bit for bit"
GPU_TEAMS = "team sizes 1, 4, 32, 128 against the default, bit for bit"
RESETS = "resets and random streams"
REFERENCE = "against the NumPy reference, one step"
STATISTICS = "autoreset, time limit, statistics"
PATHS = "fused rollout against single steps, bit for bit"
DEVICE_CASE = "cpu against cuda"
# Comparisons of `check_policy`. The policy's name is prepended.
TRIAL = "the trial before training"
BEFORE_RESET = "acting against learning, before a reset"
AFTER_RESET = "acting against learning, after a reset"
OTHER_PAST = "after a reset, learning with another past"

_TEAM_ADVICE = (
    "guard code that belongs to no agent with `if (env.team.leader())`, loop over agents with `for "
    "(int i : env.team.each(n))`, and let all threads call env.team.sync() before one reads data "
    "that another wrote (docs/dialect.md)"
)
ADVICE = {
    **dict.fromkeys((TEAM_RULES, TEAM_CASE, GPU_TEAMS), _TEAM_ADVICE),
    **dict.fromkeys(
        (THREAD_CASE, BOUNDS),
        "initialize all memory before reading it, and let observe write every entry of a row",
    ),
    PATHS: "only State persists between steps, and a kernel must write all of active, left and "
    "each mask",
    DEVICE_CASE: "use the functions of math::, and sum floats in a fixed order",
    BEFORE_RESET: "a call of more rows, or of L steps, must equal calls of one step",
    AFTER_RESET: "in a call of L steps, set the state to 0 before each step where `start` is true",
    OTHER_PAST: "set the state to 0 before the step where `start` is true: state.masked_fill("
    "start[:, None], 0.0) (docs/how/hidden_state.md)",
}


@dataclass
class Tally:
    """Statistics of the comparisons of one field.

    Args:
        part: Name of the comparison.
        name: The field.
        compared: Number of values compared.
        rows: Number of rows compared. A row is an environment, or an agent of one.
        worst: Largest error, in units of the field's scale. 0 for exact comparisons that agree.
        excused: Number of rows that differ where a decision is within the tolerance.
        failure: Field, place and values of the first mismatch, or an empty string.
        fault: Whether the kernel breaks a rule. Such a fault may cause all mismatches.
    """

    part: str
    name: str
    compared: int = 0
    rows: int = 0
    worst: float = 0.0
    excused: int = 0
    failure: str = ""
    fault: bool = False

    @property
    def too_many_excused(self) -> bool:
        """Whether too many rows were excused. Up to 3 are allowed in small samples."""
        return self.excused > max(MAX_EXCUSED * self.rows, 3)


@dataclass(repr=False)
class Report:
    """Result of ``check`` and ``check_policy``.

    It prints as a table with one row for each comparison, and is true if everything passed.
    """

    env: str
    devices: list[str]
    cases: list[dict[str, Any]]
    seed: int
    agent_steps: int = 0
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    compared_with: str = "against the reference"
    case: dict[str, Any] | None = None  # entry of ``cases`` that is being compared
    remedy: str = "Add parameters to `cases` or states to `sample_states` that lead to it"

    def tally(self, part: str, name: str) -> Tally:
        """Return the tally of ``name`` in ``part``, which is created on first use."""
        return self.tallies.setdefault((part, name), Tally(part, name))

    @property
    def with_case(self) -> str:
        """The parameters of the current case, if there are several cases."""
        if self.case is None or (len(self.cases) == 1 and not self.case):
            return ""
        changed = ", ".join(f"{name}={shown(value)}" for name, value in self.case.items())
        return f", with {changed or 'default parameters'}"

    def fault(self, part: str, name: str, fault: Exception | str, rule: bool = False) -> None:
        """Record the first exception that ``name`` raised in ``part``.

        Args:
            part: Name of the comparison.
            name: The field or function.
            fault: The exception or its message.
            rule: Whether the kernel breaks a rule. Such failures are listed first.
        """
        tally = self.tally(part, name)
        if not tally.failure:
            tally.failure, tally.fault = f"{fault}{self.with_case}", rule

    def count(self, events: Mapping[str, np.ndarray]) -> None:
        """Add the true entries of ``events``, bool arrays by name."""
        for name, happened in events.items():
            self.events[name] = self.events.get(name, 0) + int(np.count_nonzero(happened))

    def compare(
        self,
        part: str,
        name: str,
        got: np.ndarray,
        want: np.ndarray,
        *,
        scale: float | np.ndarray | None = None,
        margin: np.ndarray | None = None,
        factor: float = 1.0,
        bits: bool = False,
        where: np.ndarray | None = None,
        step: np.ndarray | int | None = None,
        axes: Sequence[str] = AXES,
        sides: tuple[str, str] = ("kernel", "reference"),
    ) -> None:
        """Compare two arrays (N, ...) and record the outcome.

        Args:
            part: Name of the comparison.
            name: The field.
            got: The kernel's values.
            want: The expected values, of the same shape.
            scale: Magnitude to which the tolerance is relative. If None, the comparison is exact.
            margin: Distance of each row's decisions from their thresholds. Its shape is a prefix of
                the shape of ``got``.
            factor: Factor of the tolerance, for values in which rounding errors accumulate.
            bits: Compare bit for bit, with NaN equal to NaN.
            where: (N,) bool, or a mask of more leading axes of ``got``. Rows to compare.
            step: (N,) elapsed steps, or one for all, for the message.
            axes: Names of the axes, for the message.
            sides: Names of ``got`` and ``want``, for the message.

        Raises:
            SpecError: If the shapes differ.
        """
        got, want, tally = np.asarray(got), np.asarray(want), self.tally(part, name)
        if got.shape != want.shape:
            raise SpecError(
                f"{self.env}: {name} has the shape {want.shape} in the {sides[1]}, expected "
                f"{got.shape}: {', '.join(axes[: max(got.ndim, want.ndim)])}{self.with_case}"
            )
        leading = got.shape[:1] if where is None else where.shape
        ids = np.arange(len(got)) if where is None else np.flatnonzero(where)
        if where is not None:
            got, want = got[where], want[where]
        if got.size == 0:
            return
        equal = got == want
        if bits and got.dtype == np.float32:
            words = (np.ascontiguousarray(array).view(np.uint32) for array in (got, want))
            equal = np.equal(*words) | (np.isnan(got) & np.isnan(want))
        error = np.where(equal, 0.0, np.inf)
        if scale is not None:
            with np.errstate(invalid="ignore"):  # inf - inf is NaN, which counts as different
                error = np.abs(got.astype(np.float64) - want) / scale
            equal = error <= TOLERANCE * factor  # False for NaN
        near = np.zeros(len(got), bool) if margin is None else margin[ids] < TOLERANCE * factor
        if near.any():  # rounding never produces a NaN, so these rows are not excused
            near = near & np.isfinite(got).reshape(*near.shape, -1).all(axis=-1)

        by_row = equal.reshape(*near.shape, -1).all(axis=-1)
        wrong = ~by_row & ~near
        tally.compared += got.size
        tally.rows += by_row.size
        tally.excused += int(np.count_nonzero(~by_row & near))
        counted = error[by_row | wrong]
        tally.worst = max(tally.worst, float(counted.max(initial=0.0, where=np.isfinite(counted))))
        if tally.failure or not wrong.any():
            return
        at = tuple(
            np.argwhere(~equal & wrong.reshape(*wrong.shape, *(1,) * (equal.ndim - wrong.ndim)))[0]
        )
        first = np.unravel_index(ids[at[0]], leading)
        place = [f"{axis} {i}" for axis, i in zip(axes, (*first, *at[1:]), strict=False)]
        if step is not None:
            steps = np.asarray(step)
            place.append(f"step {int(steps[first] if steps.ndim else steps)}")
        rows = f"({wrong.sum():,} of {wrong.size:,} rows)"
        values = f"{sides[0]} {_short(got[at])}, {sides[1]} {_short(want[at])}"
        tally.failure = f"{name}: {', '.join(place)}{self.with_case}: {values} {rows}"

    @property
    def mismatched(self) -> bool:
        """Whether a comparison has failed so far."""
        return any(t.failure for t in self.tallies.values())

    def stop(self) -> None:
        """Record that the remaining comparisons are skipped, and ignore events not seen so far."""
        self.events = {name: times for name, times in self.events.items() if times}
        self.skipped.append("all comparisons after the first failure")

    def _failed(self) -> list[Tally]:
        """Return the tallies that failed, faults first, in the order of the check."""
        return sorted((t for t in self.tallies.values() if t.failure), key=lambda t: not t.fault)

    def failures(self) -> list[str]:
        """Return one sentence for each failure, with the most likely cause first."""
        found = [f"{t.failure}; {t.part}" for t in self._failed()]
        found += [
            f"{t.name}: {t.excused} of {t.rows} rows differ at a near decision, more than "
            f"{MAX_EXCUSED:.1%}; {t.part}"
            for t in self.tallies.values()
            if t.too_many_excused
        ]
        found += [
            f"event never seen: {name}. {self.remedy}"
            for name, times in self.events.items()
            if times == 0
        ]
        return found

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures()

    def __bool__(self) -> bool:
        return self.passed

    @property
    def _done(self) -> str:
        cases = f"{len(self.cases)} case{'s' * (len(self.cases) != 1)}"
        return (
            f"{cases} on {', '.join(self.devices)}, {self.agent_steps:,} agent-steps "
            f"{self.compared_with} (seed {self.seed})"
        )

    @property
    def summary(self) -> str:
        """The first line of the report: PASS and its extent, or FAIL and the first failure."""
        failures = self.failures()
        return f"FAIL  {self.env}: {failures[0]}" if failures else f"PASS  {self.env}: {self._done}"

    def __repr__(self) -> str:
        failures = self.failures()
        lines = [self.summary, *([f"  {self._done}"] if failures else [])]
        lines += [
            f"  fix: {text}"
            for t in self._failed()[:1]
            for part, text in ADVICE.items()
            if part in t.part
        ]
        lines.append(
            f"  {'comparison':<58}{'fields':>7}{'numbers':>13}{'worst error':>13}{'excused':>9}"
        )
        for part in dict.fromkeys(t.part for t in self.tallies.values()):
            of = [t for t in self.tallies.values() if t.part == part]
            compared, worst, excused = (
                sum(t.compared for t in of),
                max(t.worst for t in of),
                sum(t.excused for t in of),
            )
            mark = "  FAILED" if any(t.failure or t.too_many_excused for t in of) else ""
            lines.append(
                f"  {part:<58}{len(of):>7}{compared:>13,}{worst:>13.1e}{excused:>9,}{mark}"
            )
        events = ", ".join(f"{name} {times:,}" for name, times in self.events.items())
        lines += [
            f"  events: {events or 'none'}",
            *(f"  not done: {text}" for text in self.skipped),
        ]
        lines += [f"  also: {text}" for text in failures[1:SHOWN_FAILURES]]
        if len(failures) > SHOWN_FAILURES:
            lines.append(f"  also: {len(failures) - SHOWN_FAILURES} more, see report.failures()")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary of JSON-compatible values."""
        names = ("env", "passed", "devices", "cases", "seed", "agent_steps", "events", "skipped")
        tallies = [asdict(t) for t in self.tallies.values()]
        return {name: getattr(self, name) for name in names} | {
            "comparisons": tallies,
            "failures": self.failures(),
        }


def _short(value: np.generic) -> str:
    """Format a value. Nine digits distinguish any two float32 numbers."""
    return f"{value:.9g}" if isinstance(value, np.floating) else str(value)
