"""Times other libraries beside cupydrive and adds their rows to the JSON of a benchmark.

    python tests/peers/compare.py FILE.json

Each other program of this folder runs in a process of its own. It takes `--device`, `--runs`,
`--cases` and `--envs` and prints a ``Row`` as JSON on each line, none if its case or its
environments are not among them. With exit code 3 the last line of its errors says why there is
nothing to time here.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cupydrive.bench import Bench, Row
from cupydrive.inputs.files import write_atomically

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
SHARED = ("compare", "protocol", "warpdrive_backends")  # no programs that time a library
ABSENT = 3  # exit code
SECONDS = 900  # of one program, at most


def programs() -> list[Path]:
    """Return the paths of the programs."""
    return sorted(path for path in FOLDER.glob("*.py") if path.stem not in SHARED)


def run_peers(
    device: str, cases: Sequence[str], runs: int, envs: Sequence[str]
) -> Iterator[tuple[list[Row], list[str]]]:
    """Yield the ``Row``s of each program, and what it could not do."""
    own = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    }
    for program in programs():
        options = ["--device", device, "--runs", str(runs), "--cases", *cases, "--envs", *envs]
        try:
            done = subprocess.run(
                [sys.executable, str(program), *options],
                capture_output=True,
                encoding="utf-8",
                timeout=SECONDS,
                env=own,
            )
        except subprocess.TimeoutExpired:
            yield [], [f"{program.stem}: still running after {SECONDS} s"]
            continue
        rows = [
            Row(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")
        ]
        failed = "" if done.returncode == ABSENT else " failed"
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        yield rows, [f"{program.stem}{failed}: {reason}"] if done.returncode else []


def compare(file: Path, runs: int) -> None:
    """Add the rows of other libraries to a benchmark's JSON, of its cases and environments."""
    result = Bench.from_dict(json.loads(file.read_text(encoding="utf-8")))
    cases, envs = (
        list(dict.fromkeys(getattr(row, name) for row in result.rows)) for name in ("case", "env")
    )
    for rows, skipped in run_peers(result.device, cases, runs, envs):
        result.rows += rows
        result.skipped += skipped
        print(*map(result.line, rows), *skipped, sep="\n", flush=True)
        write_atomically(file, json.dumps(result.to_dict(), indent=1).encode() + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument("--runs", type=int, default=9)
    given = parser.parse_args()
    compare(given.file, given.runs)
