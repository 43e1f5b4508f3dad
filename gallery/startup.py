"""Start: seconds from a new process to the first step, with an empty cache of compiled kernels and
with a full one.

python gallery/startup.py [--device cuda] [--out gallery/startup.json]
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cupydrive.bench.cases import LARGE_TAG
from cupydrive.executors import choose, executor

TIMED: dict[str, dict] = {"cartpole": {}, "tag_grid": {}, "tag_continuous": LARGE_TAG}
NOT_OURS = ("import torch", "CUDA context")  # any program that uses them pays for them
PROGRAM = """
import json, sys, time
marks = [time.perf_counter()]
def mark():
    marks.append(time.perf_counter())
import torch
mark()
env, params, device = sys.argv[1:]
if device == "cuda":
    torch.zeros(1, device="cuda")
mark()
import cupydrive
from cupydrive.simulation import make as making
mark()
made = cupydrive.make(env, 100, device=device, **json.loads(params))
mark()
made.reset(seed=0)
made.rollout(1)
made.batch.executor.synchronize()
mark()
names = ("import torch", "CUDA context", "import cupydrive", "make", "first step")
print(json.dumps(dict(zip(names, (b - a for a, b in zip(marks, marks[1:]))))))
"""


def start_times(env: str, params: dict, device: str) -> dict[str, dict[str, float]]:
    """Return seconds of each part of a start: ``{"cold": {part: seconds}, "warm": ...}``, by an
    empty and a full cache.
    """
    package = str(Path(__file__).resolve().parents[1])  # where it is not installed, too
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    found = {}
    with tempfile.TemporaryDirectory(prefix="cupydrive-bench-") as cache:
        own = {
            "CUPYDRIVE_CACHE": cache,
            "CUPY_CACHE_DIR": cache,
            "CUDA_CACHE_DISABLE": "1",
            "PYTHONPATH": path,
        }
        for name in ("cold", "warm"):
            command = [sys.executable, "-c", PROGRAM, env, json.dumps(params), device]
            done = subprocess.run(
                command, env=os.environ | own, stdout=subprocess.PIPE, encoding="utf-8", check=True
            )
            found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def own_seconds(parts: dict[str, float]) -> float:
    """Return the seconds of a start without importing torch and creating the CUDA context."""
    return sum(seconds for name, seconds in parts.items() if name not in NOT_OURS)


def main() -> None:
    """Time the starts, and write them to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    device, _ = choose(given.device)
    result = {
        "command": f"python gallery/startup.py --device {device}",
        "machine": executor(device).describe(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "startup": {env: start_times(env, params, device) for env, params in TIMED.items()},
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
