"""What a check has compared and found: prints as a table, and can be saved as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cupydrive.errors import SpecError
from cupydrive.inputs.arguments import shown

TOLERANCE = 1e-6  # of a field's scale: about ten units in the last place
MAX_EXCUSED = 0.005  # of the rows: decisions so near that either outcome is right
AXES = ("environment", "agent", "entry", "entry")  # of an array, by default
SHOWN_FAILURES = 8  # failures that a printed report lists

# Parts of a check: what is compared with what. The device's name stands before them.
BOUNDS = "a bounds-checked build against the fast one, bit for bit"
TEAM_RULES = "equally many team.sync() for every member, one writer of an entry between two"
THREAD_CASE = "1 thread against 3, bit for bit"
TEAM_CASE = "a team of threads against one, bit for bit"
GPU_TEAMS = "team sizes 1, 4, 32, 128 against the default, bit for bit"
RESETS = "resets and random streams"
REFERENCE = "against the NumPy reference, one step"
STATISTICS = "autoreset, time limit, statistics"
PATHS = "fused rollout against single steps, bit for bit"
DEVICE_CASE = "cpu against cuda"
# Of `check_policy`. The policy's name stands before them.
TRIAL = "the trial before training"
BEFORE_RESET = "acting against learning, before a reset"
AFTER_RESET = "acting against learning, after a reset"
OTHER_PAST = "after a reset, learning with another past"

_TEAM_ADVICE = (
    "guard what belongs to no agent by `if (env.team.leader())`, loop over agents by `for (int i "
    ": env.team.each(n))`, and let all threads call env.team.sync() before one reads what another "
    "wrote (docs/dialect.md)"
)
ADVICE = {
    **dict.fromkeys((TEAM_RULES, TEAM_CASE, GPU_TEAMS), _TEAM_ADVICE),
    **dict.fromkeys((THREAD_CASE, BOUNDS), "something is read before it is written"),
    PATHS: "only State outlives a step, and observe must write every entry of a mask",
    DEVICE_CASE: "use the functions of math::, and add floats up in one order",
    BEFORE_RESET: "a call of more rows, or of L steps, must give what calls of one step give",
    AFTER_RESET: "in a call of L steps, set the state to 0 before each step where `start` is true",
    OTHER_PAST: "set the state to 0 before the step where `start` is true: state.masked_fill("
    "start[:, None], 0.0) (docs/how/hidden_state.md)",
}


@dataclass
class Tally:
    """One kind of comparison: how much was compared and how well it agreed.

    Args:
        part: What was compared with what.
        name: The field.
        compared: Numbers compared.
        rows: Rows compared (an environment, or an agent of one).
        worst: Largest error, in units of the field's scale; 0 for exact comparisons that agreed.
        excused: Rows that differ where a decision lay within the tolerance.
        failure: Field, place and values of the first mismatch, or an empty string.
        fault: Whether the failure is no mismatch, but a kernel that breaks a rule: it may cause all
            mismatches.
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
        """Whether more rows were excused than near decisions explain; a handful is allowed in small
        samples.
        """
        return self.excused > max(MAX_EXCUSED * self.rows, 3)


@dataclass(repr=False)
class Report:
    """The result of ``check``.

    It prints as a table with one row for each part, and is true if everything passed.
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
    case: dict[str, Any] | None = None  # the one of ``cases`` that is being compared
    remedy: str = "Add parameters to `cases` or states to `sample_states` that lead to it"

    def tally(self, part: str, name: str) -> Tally:
        """Return the tally of ``name`` in ``part``, made on first use."""
        return self.tallies.setdefault((part, name), Tally(part, name))

    @property
    def with_case(self) -> str:
        """The parameters of the current case, if there are several cases."""
        if self.case is None or (len(self.cases) == 1 and not self.case):
            return ""
        changed = ", ".join(f"{name}={shown(value)}" for name, value in self.case.items())
        return f", with {changed or 'default parameters'}"

    def fault(self, part: str, name: str, fault: Exception | str, rule: bool = False) -> None:
        """Record the first exception that ``name`` raised in ``part``; ``rule``: the kernel breaks
        one, so it comes first.
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
            part: What is compared with what.
            name: The field.
            got: The kernel's values.
            want: The expected values, same shape.
            scale: Magnitude that the tolerance refers to. By default the comparison is exact.
            margin: How near the decisions behind a row were, of a leading part of the shape of
                ``got``.
            factor: Multiplies the tolerance, where roundings add up.
            bits: Compare bit for bit; NaN equals NaN.
            where: (N,) bool, rows that count; also of more leading axes of ``got``.
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
            with np.errstate(invalid="ignore"):  # inf less inf is NaN, which is not equal
                error = np.abs(got.astype(np.float64) - want) / scale
            equal = error <= TOLERANCE * factor  # False for NaN
        near = np.zeros(len(got), bool) if margin is None else margin[ids] < TOLERANCE * factor
        if near.any():  # no rounding makes a NaN
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
        """Note that the rest is left out; events that would have happened there are not missed."""
        self.events = {name: times for name, times in self.events.items() if times}
        self.skipped.append("what comes after the first failure")

    def _failed(self) -> list[Tally]:
        """Return the tallies that failed, faults first, in the order of the check."""
        return sorted((t for t in self.tallies.values() if t.failure), key=lambda t: not t.fault)

    def failures(self) -> list[str]:
        """Return one sentence for each failure, the most likely cause first."""
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
        """The first line of the report: PASS and what was compared, or FAIL and the first
        failure.
        """
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
            f"  {'what was compared':<58}{'fields':>7}{'numbers':>13}{'worst error':>13}"
            f"{'excused':>9}"
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
        """Return everything as plain values."""
        names = ("env", "passed", "devices", "cases", "seed", "agent_steps", "events", "skipped")
        tallies = [asdict(t) for t in self.tallies.values()]
        return {name: getattr(self, name) for name in names} | {
            "comparisons": tallies,
            "failures": self.failures(),
        }


def _short(value: np.generic) -> str:
    """Return a value as text; nine digits tell any two float32 apart."""
    return f"{value:.9g}" if isinstance(value, np.floating) else str(value)
