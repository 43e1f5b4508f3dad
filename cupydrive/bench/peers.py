"""Other libraries beside cupydrive: programs in ``tests/peers`` of a checkout, each run in a process of its own.

Such a program takes ``--device``, ``--runs``, ``--cases`` and ``--envs`` and prints a ``Row`` as JSON on each line, none if its
case or its environments are not among them; exit code 3 and its last line of errors say why there is nothing to time here.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cupydrive.bench.timing import Row
from cupydrive.errors import CupydriveError

FOLDER = Path(__file__).resolve().parent.parent.parent / "tests" / "peers"
SHARED = ("protocol", "warpdrive_backends")  # what programs import
ABSENT = 3  # exit code
SECONDS = 900  # of one program, at most


def programs() -> list[Path]:
    """Return the paths of the programs.

    Raises:
        CupydriveError: If this is no checkout.
    """
    found = sorted(p for p in FOLDER.glob("*.py") if p.stem not in SHARED)
    if not found:
        raise CupydriveError(f"there are no programs to compare with in {FOLDER}; run this from a checkout")
    return found


def run_peers(
    device: str, cases: Sequence[str], runs: int, envs: Sequence[str] | None = None
) -> Iterator[tuple[list[Row], list[str]]]:
    """Yield the ``Row``s of each program, and what it could not do.

    Args:
        device: ``"cuda"`` or ``"cpu"``.
        cases: Names.
        runs: Timed runs of each.
        envs: Names of the environments to time. Defaults to all that a program has.
    """
    path = os.pathsep.join(filter(None, (str(FOLDER.parent.parent), os.environ.get("PYTHONPATH"))))
    for program in programs():
        command = [sys.executable, str(program), "--device", device, "--runs", str(runs), "--cases", *cases]
        command += [] if envs is None else ["--envs", *envs]
        try:
            done = subprocess.run(
                command, capture_output=True, encoding="utf-8", timeout=SECONDS, env=os.environ | {"PYTHONPATH": path}
            )
        except subprocess.TimeoutExpired:
            yield [], [f"{program.stem}: still running after {SECONDS} s"]
            continue
        rows = [Row(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
        failed = "" if done.returncode == ABSENT else " failed"
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        yield rows, [f"{program.stem}{failed}: {reason}"] if done.returncode else []
