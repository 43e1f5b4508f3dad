"""What a check has compared and found: prints in a terminal, in a notebook and as JSON."""

import html
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field

import numpy as np

from cupydrive.checks.causes import is_fault, meaning, rank
from cupydrive.errors import CupydriveError, SpecError
from cupydrive.inputs.arguments import shown as in_short
from cupydrive.inputs.descriptions import SMALLEST
from cupydrive.inputs.files import file_errors, write_atomically

TOLERANCE = 1e-6  # of a field's scale: about ten units in the last place
MAX_EXCUSED = 0.005  # of the rows: decisions so near that either outcome is right
AXES = ("environment", "agent", "entry", "entry")  # of an array, unless said otherwise
SHOWN = 8  # failures that a printed report lists
# What a comparison has found, from the least that its words can explain to the most.
AGREES, BOTH_NOT_FINITE, DIFFERS, NOT_FINITE = range(4)
# Who gives a number that is not finite, of what is found.
WHOSE = {BOTH_NOT_FINITE: "kernel and reference give", DIFFERS: "the reference gives", NOT_FINITE: "the kernel gives"}
# What says which shape an array of the kernel has.
DECLARED = {
    "state": "the Field's shape",
    "obs": "the Group's count and obs_dim",
    "final_obs": "the Group's count and obs_dim",
    "reward": "the Group's count",
    "mask": "the Group's count and action_space",
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
        failure: Place and values of the first mismatch in words, or an empty string.
        share: Of the rows of the comparison with the first mismatch, those that differ.
        of_agents: Whether there is a value for each agent.
        found: What ``failure`` is about: ``BOTH_NOT_FINITE``, ``DIFFERS``, or ``NOT_FINITE``, where the reference is finite.
        not_finite: The value of the kernel, or where that is finite of the reference, that is not: ``"NaN"`` or ``"inf"``.
    """

    part: str
    name: str
    compared: int = 0
    rows: int = 0
    worst: float = 0.0
    excused: int = 0
    failure: str = ""
    share: float = 0.0
    of_agents: bool = False
    found: int = AGREES
    not_finite: str = ""

    @property
    def too_many_excused(self):
        """Whether more rows were excused than near decisions explain; a handful is allowed in small samples."""
        return self.excused > max(MAX_EXCUSED * self.rows, 3)


@dataclass
class Report:
    """The result of ``check``: printed it is a table, one row for each comparison, and ``summary`` is its first line alone."""

    env: str
    devices: list[str]
    cases: list[dict]
    seed: int
    agent_steps: int = 0
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    calls_naming: Counter = field(default_factory=Counter)  # of the reference's ``step``, by event
    calls_of_step: int = 0
    skipped: list[str] = field(default_factory=list)
    compared_with: str = "against the reference"
    case: dict | None = None  # of ``cases``, which is compared now

    def tally(self, part, name):
        """Return the tally of ``name`` in ``part``, made on first use."""
        return self.tallies.setdefault((part, name), Tally(part, name))

    @property
    def with_case(self):
        """In words with which parameters the comparison is made, where there are several sets of them."""
        if self.case is None or (len(self.cases) == 1 and not self.case):
            return ""
        changed = ", ".join(f"{name}={in_short(value)}" for name, value in self.case.items())
        return f", with {changed or 'default parameters'}"

    def fault(self, part, name, fault):
        """Record that a kernel did what none may: ``fault`` is the ``KernelFault``."""
        self.tally(part, name).failure = f"{fault}{self.with_case}"

    def count(self, events):
        """Add the true entries of ``events``, bool arrays by name."""
        for name, happened in events.items():
            self.events[name] = self.events.get(name, 0) + int(np.count_nonzero(happened))

    def count_events_of_step(self, events):
        """Add what one call of the reference's ``step`` names, which is the same in every call."""
        self.calls_of_step += 1
        self.calls_naming.update(events.keys())
        self.count(events)

    def number_of_cases(self):
        """Return "1 case", "2 cases", ..."""
        return f"{len(self.cases)} case{'s' * (len(self.cases) != 1)}"

    def compare(
        self, part, name, got, want, *,
        scale=None, margin=None, factor=1.0, where=None, step=None, axes=AXES, sides=("kernel", "reference"),
    ):  # fmt: skip
        """Compare two arrays (N, ...) and record the outcome.

        Args:
            part: What is compared with what.
            name: The field.
            got: The kernel's values.
            want: The expected values, same shape.
            scale: Magnitude that the tolerance refers to; None compares exactly.
            margin: How near the decisions behind a row were, shape a leading part of ``got``'s; None: none.
            factor: On the tolerance, where roundings add up.
            where: (N,) bool, rows that count.
            step: (N,) elapsed steps, or one for all, for the message.
            axes: What the axes count, for the message.
            sides: What ``got`` and ``want`` are, for the message.

        Raises:
            SpecError: If the shapes differ.
        """
        got, want = np.asarray(got), np.asarray(want)
        self._same_shape(name, got, want, axes, sides)
        ids = np.arange(len(got)) if where is None else np.flatnonzero(where)
        got, want = got[ids], want[ids]
        if scale is None:
            equal = got == want
            error = np.where(equal, 0.0, np.inf)
        else:
            with np.errstate(invalid="ignore"):  # inf less inf is NaN, which is not equal
                error = np.abs(got.astype(np.float64) - want) / scale
            equal = error <= TOLERANCE * factor  # False for NaN
        near = np.zeros(len(got), bool) if margin is None else margin[ids] < TOLERANCE * factor
        lost = np.zeros_like(equal)
        if not equal.all():
            lost = ~equal & ~np.isfinite(got) & np.isfinite(want)
            near = near & ~lost.reshape(*near.shape, -1).any(axis=-1)  # no rounding makes NaN of a number
        self._record(part, name, got, want, equal, error, near, ids, step, axes, sides, lost)

    def identical(self, part, name, got, want, *, where=None, step=None, axes=AXES, sides=("kernel", "reference")):
        """Compare bit for bit; NaN equals NaN. Arguments are those of ``compare``."""
        got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
        self._same_shape(name, got, want, axes, sides)
        ids = np.arange(len(got)) if where is None else np.flatnonzero(where)
        if where is not None:
            got, want = got[ids], want[ids]
        equal = got == want
        if got.dtype == np.float32:
            equal = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
        near = np.zeros(len(got), bool)
        self._record(part, name, got, want, equal, np.where(equal, 0.0, np.inf), near, ids, step, axes, sides)

    def _same_shape(self, name, got, want, axes, sides):
        """Raise ``SpecError`` if two arrays cannot be compared."""
        if got.shape != want.shape:
            counts = ", ".join(axes[: max(got.ndim, want.ndim)])
            declared = DECLARED.get(name.partition(".")[0], "its description")
            raise SpecError(
                f"{self.env}: {name} has shape {got.shape} by {declared}, and the {sides[1]} gives {want.shape}; the axes are "
                f"{counts}{self.with_case}"
            )

    def _record(self, part, name, got, want, equal, error, near, ids, step, axes, sides, lost=None):
        """Count a comparison; keep place and values of its first mismatch in words.

        ``lost`` are entries where ``got`` alone is not finite: the first of them says more than any other.
        """
        tally = self.tally(part, name)
        tally.of_agents |= "agent" in axes[: got.ndim]
        if got.size == 0:
            return
        by_row = equal.reshape(*near.shape, -1).all(axis=-1)
        wrong = ~by_row & ~near
        tally.compared += got.size
        tally.rows += by_row.size
        tally.excused += int(np.count_nonzero(~by_row & near))
        counted = error[by_row | wrong]
        counted = counted[np.isfinite(counted)]
        if counted.size:
            tally.worst = max(tally.worst, float(counted.max()))
        if not wrong.any():
            return
        entries = ~equal & wrong.reshape(*wrong.shape, *(1,) * (equal.ndim - wrong.ndim))
        found, entries = telling(got, want, entries, lost)
        if found > tally.found:
            at = tuple(np.argwhere(entries)[0])
            tally.found = found
            odd = got[at] if found != DIFFERS else want[at] if sides[1] == "reference" else 0
            tally.not_finite = "" if np.isfinite(odd) else "NaN" if np.isnan(odd) else "inf"
            first = int(ids[at[0]])
            place = [f"{axis} {i}" for axis, i in zip(axes, (first, *at[1:]), strict=False)]
            if step is not None:
                place.append(f"step {int(step[first] if np.ndim(step) else step)}")
            values = [f"{side} {value}" for side, value in zip(sides, shown(got[at], want[at]), strict=True)]
            if found == BOTH_NOT_FINITE:
                values[-1] += f", and {values[-1].split()[-1]} agrees with nothing"
            counted = f"{wrong.sum():,} of {wrong.size:,} rows"
            tally.failure = f"{', '.join(place)}{self.with_case}: {', '.join(values)} ({counted})"
            if got.dtype == np.float32 and 0 < abs(got[at]) < SMALLEST:
                tally.failure += "; so small a number is perhaps memory that was never written"
            tally.share = float(wrong.mean())

    @property
    def mismatched(self):
        """Whether a comparison has failed so far."""
        return any(t.failure for t in self.tallies.values())

    def failed(self, part):
        """Whether a comparison of ``part`` has failed so far."""
        return any(t.failure for t in self.tallies.values() if t.part == part)

    def stop(self):
        """Note that the rest is left out: an event that was not seen so far says nothing."""
        self.events = {name: times for name, times in self.events.items() if times}
        self.skipped.append("what comes after the first failure")

    def failures(self):
        """Return what went wrong, in words: the cause first, then what may follow from it."""
        # Of several fields that one comparison found, the one that differs most often, or by most, is the root.
        failed = sorted(
            (t for t in self.tallies.values() if t.failure),
            key=lambda t: (
                t.found == BOTH_NOT_FINITE,
                *rank(t.part, t.name, t.found == NOT_FINITE),
                -t.share,
                -t.worst,
            ),
        )
        found = [f"{f'{t.name}: ' * bool(t.rows)}{t.failure}; {t.part}" for t in failed]
        if failed:
            t = failed[0]
            words = meaning(t.part, t.name, t.of_agents, t.not_finite, WHOSE.get(t.found, ""))
            if is_fault(t.part, t.name):
                found[0] = f"{t.failure}. {words[0].upper()}{words[1:]}"
            else:
                found[0] = "; ".join(filter(None, (words, found[0])))
        for t in self.tallies.values():
            if t.too_many_excused:
                found.append(
                    f"{t.part}: {t.name}: {t.excused} of {t.rows} rows differ at a near decision, more than {MAX_EXCUSED:.1%}"
                )
        found += [
            f"event never seen: {name}; parameters of `cases` or a state of `sample` must lead to it, or its condition is wrong"
            for name, times in self.events.items()
            if times == 0
        ]
        forgotten = [name for name, calls in self.calls_naming.items() if calls < self.calls_of_step]
        found += [f"event that `step` does not name in every call: {name}" for name in forgotten]
        return found

    @property
    def passed(self):
        """Whether nothing failed."""
        return not self.failures()

    def __bool__(self):
        return self.passed

    def parts(self):
        """Return one row per part: (part, fields, numbers compared, worst error, excused rows, whether it failed)."""
        rows = {}
        for t in self.tallies.values():
            row = rows.setdefault(t.part, [0, 0, 0.0, 0, False])
            row[0] += 1
            row[1] += t.compared
            row[2] = max(row[2], t.worst)
            row[3] += t.excused
            row[4] |= bool(t.failure) or t.too_many_excused
        return [(part, *row) for part, row in rows.items()]

    def _head(self):
        """Return what stands above the table: verdict, what it was given for, and what was done."""
        failures = self.failures()
        done = f"{self.number_of_cases()} on {', '.join(self.devices)}, {self.agent_steps:,} agent-steps"
        done += f" {self.compared_with} (seed {self.seed})"
        return ("FAIL", f"{self.env}: {failures[0]}", done) if failures else ("PASS", f"{self.env}: {done}", "")

    def _notes(self):
        """Return what stands below the table: events, what was not done, and the other failures."""
        shown = ", ".join(f"{name} {times:,}" for name, times in self.events.items())
        others = self.failures()[1:]
        lines = [f"events: {shown or 'none'}", *(f"not done: {text}" for text in self.skipped)]
        if any(t.excused for t in self.tallies.values()):
            lines.append("excused: rows in which a decision lay so near that rounding tips it; both answers are right")
        lines += [f"also: {text}" for text in others[:SHOWN]]
        if len(others) > SHOWN:
            lines.append(f"also: {len(others) - SHOWN} more, which report.failures() lists")
        return lines

    @property
    def summary(self):
        """One line: PASS, and what was compared; or FAIL, and the cause. It is the first line of the whole report."""
        verdict, first, _ = self._head()
        return f"{verdict}  {first}"

    def __str__(self):
        _, _, done = self._head()
        lines = [self.summary, *([f"  {done}"] if done else [])]
        lines.append(f"  {'what was compared':<58}{'fields':>7}{'numbers':>13}{'worst error':>13}{'excused':>9}")
        for part, number, compared, worst, excused, failed in self.parts():
            mark = "  FAILED" if failed else ""
            lines.append(f"  {part:<58}{number:>7}{compared:>13,}{worst:>13.1e}{excused:>9,}{mark}")
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        text = "\n".join([*lines, *(f"  {line}" for line in self._notes())])
        return text.encode(encoding, "backslashreplace").decode(encoding)  # it names files and quotes lines of a kernel

    __repr__ = __str__

    def _repr_html_(self):
        verdict, first, done = self._head()
        rows = "".join(
            f"<tr{' style=color:#b00020' if failed else ''}><td style='text-align:left'>{html.escape(part)}</td>"
            f"<td>{number}</td><td>{compared:,}</td><td>{worst:.1e}</td><td>{excused:,}</td>"
            f"<td>{'FAILED' if failed else ''}</td></tr>"
            for part, number, compared, worst, excused, failed in self.parts()
        )
        notes = "".join(f"<li>{html.escape(line)}</li>" for line in self._notes())
        return (
            f"<b style='color:{'#2a7d2a' if verdict == 'PASS' else '#b00020'}'>{verdict}</b> {html.escape(first)}"
            f"{f'<br>{html.escape(done)}' if done else ''}"
            f"<table><tr><th style='text-align:left'>what was compared</th><th>fields</th><th>numbers</th>"
            f"<th>worst error</th><th>excused</th><th></th></tr>{rows}</table><ul>{notes}</ul>"
        )

    def to_dict(self):
        """Return everything as plain values."""
        return {
            "env": self.env,
            "passed": self.passed,
            "devices": self.devices,
            "cases": self.cases,
            "seed": self.seed,
            "agent_steps": self.agent_steps,
            "comparisons": [asdict(t) for t in self.tallies.values()],
            "events": self.events,
            "skipped": self.skipped,
            "failures": self.failures(),
        }


def telling(got, want, wrong, lost=None):
    """Return what is found, and those of the ``wrong`` entries that tell most about it: not finite alone, then different."""
    if lost is not None and lost.any():
        return NOT_FINITE, lost
    if got.dtype.kind != "f" and want.dtype.kind != "f":
        return DIFFERS, wrong
    differs = wrong & (np.isfinite(got) | np.isfinite(want))
    return (DIFFERS, differs) if differs.any() else (BOTH_NOT_FINITE, wrong)


def shown(*values):
    """Return numbers in words, with as many digits as tell them apart."""
    for digits in (6, 9, 17):
        words = [f"{v:.{digits}g}" if isinstance(v, np.floating) else str(v) for v in values]
        if len(set(words)) == len(words):
            break
    return words


def write_json(path, reports):
    """Write ``reports`` to ``path`` as JSON, atomically."""
    with file_errors(CupydriveError, f"the reports cannot be written to {path}"):
        write_atomically(path, json.dumps([r.to_dict() for r in reports], indent=1).encode())
