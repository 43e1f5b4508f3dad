"""Results of a benchmark, as a table for terminals and as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any

from cupydrive.bench.limits import Ceilings
from cupydrive.bench.timing import Row, short

TABLE_HEAD = (
    f"{'case':<9}{'env':<24}{'agents':>7}{'envs':>11}{'T':>5}{'per second':>12}{'spread':>8}"
    f"{'bytes':>8}{'written':>12}"
    f"{'of limit':>9}{'operations':>12}{'of limit':>9}  who"
)


@dataclass
class Bench:
    """Result of ``bench``. Times are in seconds.

    Args:
        device: ``"cuda"`` or ``"cpu"``.
        machine: Name of the device.
        versions: Versions by package.
        date: Date and time in ISO 8601.
        command: Command that reproduces the results.
        ceilings: ``Ceilings`` of the device.
        rows: ``Row``s.
        skipped: Skipped cases with their reasons.
        interrupted: Whether the benchmark was interrupted.
    """

    device: str
    machine: str
    versions: dict[str, str]
    date: str
    command: str
    ceilings: Ceilings
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    interrupted: bool = False

    def __str__(self) -> str:
        return "\n".join([*self.head(), *map(self.line, self.rows), *self.tail()])

    __repr__ = __str__

    def head(self) -> list[str]:
        """Return the lines above the rows."""
        c = self.ceilings
        return [
            f"{self.machine} ({self.device}), {self.date}",
            ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            f"command: {self.command}",
            f"limits of this device: writes {short(c.write)}B/s, copies {short(c.copy)}B/s (read "
            f"and written), {short(c.arithmetic)}FLOP/s in float32"
            + (f", {short(c.products)}FLOP/s in bfloat16" if c.products else ""),
            "",
            TABLE_HEAD,
        ]

    def line(self, row: Row) -> str:
        """Return the line of one row."""
        size, written, share, operations, of_them = "", "", "", "", ""
        if row.bytes_per_second is not None:
            size, written = f"{row.bytes_per_step:,}", f"{short(row.bytes_per_second)}B/s"
            share = f"{row.bytes_per_second / self.ceilings.write:.0%}"
        if row.operations_per_step is not None and row.operations_per_second is not None:
            operations = short(row.operations_per_step)
            of_them = f"{row.operations_per_second / self.ceilings.operations(row.factors):.0%}"
        return (
            f"{row.case:<9}{row.env:<24}{row.agents:>7,}{row.num_envs:>11,}{row.steps:>5}{short(row.rate):>12}"
            f"{row.spread:>8.1%}{size:>8}{written:>12}{share:>9}{operations:>12}{of_them:>9}  "
            f"{row.who}{f' ({row.note})' if row.note else ''}"
        )

    def tail(self) -> list[str]:
        """Return the lines below the rows."""
        return [f"not done: {text}" for text in self.skipped]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary of JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> "Bench":
        """Create a ``Bench`` from the result of ``to_dict``."""
        return cls(
            **{
                **kept,
                "ceilings": Ceilings(**kept["ceilings"]),
                "rows": [Row(**row) for row in kept["rows"]],
            }
        )
