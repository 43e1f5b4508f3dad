"""What a check has compared and found: prints in a terminal, in a notebook and as JSON."""

import html
import json
from dataclasses import asdict, dataclass, field

import numpy as np

from cupydrive.errors import CupydriveError
from cupydrive.files import file_errors, write_atomically

TOLERANCE = 1e-6  # of a field's scale: about ten units in the last place
MAX_EXCUSED = 0.005  # of the rows: decisions so near that either outcome is right


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
        failure: The first mismatch in words, or an empty string.
    """

    part: str
    name: str
    compared: int = 0
    rows: int = 0
    worst: float = 0.0
    excused: int = 0
    failure: str = ""

    @property
    def too_many_excused(self):
        """Whether more rows were excused than near decisions explain; a handful is allowed in small samples."""
        return self.excused > max(MAX_EXCUSED * self.rows, 3)


@dataclass
class Report:
    """The result of ``check``."""

    env: str
    devices: list[str]
    cases: list[dict]
    seed: int
    agent_steps: int = 0
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def tally(self, part, name):
        """Return the tally of ``name`` in ``part``, made on first use."""
        return self.tallies.setdefault((part, name), Tally(part, name))

    def count(self, events):
        """Add the true entries of ``events``, bool arrays by name."""
        for name, happened in events.items():
            self.events[name] = self.events.get(name, 0) + int(np.count_nonzero(happened))

    def number_of_cases(self):
        """Return "1 case", "2 cases", ..."""
        return f"{len(self.cases)} case{'s' * (len(self.cases) != 1)}"

    def compare(self, part, name, got, want, *, scale=None, margin=None, factor=1.0, where=None, step=None):
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
            step: (N,) elapsed steps, for the message.
        """
        got, want = np.asarray(got), np.asarray(want)
        if got.shape != want.shape:
            raise ValueError(f"{name}: the kernel gives shape {got.shape}, the reference {want.shape}")
        ids = np.arange(len(got)) if where is None else np.flatnonzero(where)
        got, want = got[ids], want[ids]
        tally = self.tally(part, name)
        if got.size == 0:
            return
        if scale is None:
            equal = got == want
            error = np.where(equal, 0.0, np.inf)
        else:
            error = np.abs(got.astype(np.float64) - want) / scale
            equal = error <= TOLERANCE * factor  # False for NaN
        axes = 1 if margin is None else np.ndim(margin)
        by_row = equal.reshape(*got.shape[:axes], -1).all(axis=-1)
        near = np.zeros(by_row.shape, bool)
        if margin is not None:
            near = margin[ids] < TOLERANCE * factor
        wrong = ~by_row & ~near
        tally.compared += got.size
        tally.rows += by_row.size
        tally.excused += int(np.count_nonzero(~by_row & near))
        counted = error[by_row | wrong]
        counted = counted[np.isfinite(counted)]
        if counted.size:
            tally.worst = max(tally.worst, float(counted.max()))
        if wrong.any() and not tally.failure:
            row = tuple(np.argwhere(wrong)[0])
            inner = np.argwhere(~equal[row])[0] if equal[row].ndim else ()
            at = (*row, *inner)
            names = ["environment", "agent", "entry", "entry"]
            place = [f"{n} {i}" for n, i in zip(names, (ids[at[0]], *at[1:]), strict=False)]
            if step is not None:
                place.append(f"step {int(step[ids[at[0]]])}")
            tally.failure = (
                f"{name}: {', '.join(place)}: {got[at]} instead of {want[at]} ({wrong.sum()} rows of {wrong.size})"
            )

    def identical(self, part, name, got, want):
        """Compare bit for bit; NaN equals NaN."""
        got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
        if got.dtype == np.float32:
            both_nan = np.isnan(got) & np.isnan(want)
            bits = (
                np.where(both_nan, np.uint32(0), got.view(np.uint32)),
                np.where(both_nan, np.uint32(0), want.view(np.uint32)),
            )
            tally_before = self.tally(part, name).failure
            self.compare(part, name, *bits)
            tally = self.tally(part, name)
            if tally.failure and not tally_before:
                at = tuple(np.argwhere(bits[0] != bits[1])[0])
                tally.failure = f"{name}: at {tuple(map(int, at))}: {got[at]} instead of {want[at]}"
        else:
            self.compare(part, name, got, want)

    @property
    def mismatched(self):
        """Whether a comparison has failed so far."""
        return any(t.failure for t in self.tallies.values())

    def stop(self):
        """Note that the rest is left out: an event that was not seen so far says nothing."""
        self.events = {name: times for name, times in self.events.items() if times}
        self.skipped.append("what comes after the first failure")

    def failures(self):
        """Return what went wrong, in words."""
        found = [f"{t.part}: {t.failure}" for t in self.tallies.values() if t.failure]
        for t in self.tallies.values():
            if t.too_many_excused:
                found.append(
                    f"{t.part}: {t.name}: {t.excused} of {t.rows} rows differ at a near decision, more than {MAX_EXCUSED:.1%}"
                )
        found += [f"event never seen: {name}" for name, times in self.events.items() if times == 0]
        return found

    @property
    def passed(self):
        """Whether nothing failed."""
        return not self.failures()

    def __bool__(self):
        return self.passed

    def parts(self):
        """Return one row per part: (part, fields, numbers compared, worst error or None if exact, excused rows)."""
        rows = {}
        for t in self.tallies.values():
            row = rows.setdefault(t.part, [0, 0, 0.0, 0])
            row[0], row[1], row[2], row[3] = (
                row[0] + 1,
                row[1] + t.compared,
                max(row[2], t.worst),
                row[3] + t.excused,
            )
        return [(part, *row) for part, row in rows.items()]

    def __str__(self):
        verdict = "PASS" if self.passed else "FAIL"
        lines = [
            f"{verdict}  {self.env}: {self.number_of_cases()} on {', '.join(self.devices)}, {self.agent_steps:,} agent-steps "
            f"against the reference (seed {self.seed})",
            f"  {'what was compared':<58}{'fields':>7}{'numbers':>13}{'worst error':>13}{'excused':>9}",
        ]
        for part, number, compared, worst, excused in self.parts():
            lines.append(f"  {part:<58}{number:>7}{compared:>13,}{worst:>13.1e}{excused:>9,}")
        shown = ", ".join(f"{name} {times:,}" for name, times in self.events.items())
        lines.append(f"  events: {shown or 'none declared'}")
        lines += [f"  not done: {text}" for text in self.skipped]
        lines += [f"  FAILED {text}" for text in self.failures()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self):
        color = "#2a7d2a" if self.passed else "#b00020"
        verdict = "PASS" if self.passed else "FAIL"
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(part)}</td><td>{number}</td><td>{compared:,}</td>"
            f"<td>{worst:.1e}</td><td>{excused:,}</td></tr>"
            for part, number, compared, worst, excused in self.parts()
        )
        notes = [*self.failures(), *(f"not done: {text}" for text in self.skipped)]
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in notes)
        events = ", ".join(f"{html.escape(name)} {times:,}" for name, times in self.events.items())
        return (
            f"<b style='color:{color}'>{verdict}</b> {html.escape(self.env)}: {self.number_of_cases()} on "
            f"{html.escape(', '.join(self.devices))}, {self.agent_steps:,} agent-steps against the reference"
            f"<table><tr><th style='text-align:left'>what was compared</th><th>fields</th><th>numbers</th>"
            f"<th>worst error</th><th>excused</th></tr>{rows}</table><p>events: {events}</p><ul>{notes}</ul>"
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


def write_json(path, reports):
    """Write ``reports`` to ``path`` as JSON, atomically."""
    with file_errors(CupydriveError, f"the reports cannot be written to {path}"):
        write_atomically(path, json.dumps([r.to_dict() for r in reports], indent=1).encode())
