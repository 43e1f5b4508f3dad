"""Start: seconds from a new process to the first step, with an empty cache of compiled kernels and with a full one."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cupydrive.errors import CupydriveError

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
made.batch.executor.synchronise()
mark()
names = ("import torch", "CUDA context", "import cupydrive", "make", "first step")
print(json.dumps(dict(zip(names, (b - a for a, b in zip(marks, marks[1:]))))))
"""


def start_times(env: str, params: dict, device: str) -> dict[str, dict[str, float]]:
    """Return seconds of each part of a start: ``{"cold": {part: seconds}, "warm": ...}``, by an empty and a full cache.

    Raises:
        CupydriveError: If the process that is timed fails.
    """
    package = str(Path(__file__).resolve().parents[2])  # where it is not installed, too
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    found = {}
    with tempfile.TemporaryDirectory(prefix="cupydrive-bench-") as cache:
        own = {"CUPYDRIVE_CACHE": cache, "CUPY_CACHE_DIR": cache, "CUDA_CACHE_DISABLE": "1", "PYTHONPATH": path}
        for name in ("cold", "warm"):
            command = [sys.executable, "-c", PROGRAM, env, json.dumps(params), device]
            done = subprocess.run(command, env=os.environ | own, capture_output=True, encoding="utf-8")
            if done.returncode != 0:
                raise CupydriveError(f"starting {env} in a process of its own failed:\n{done.stderr.strip()[-2000:]}")
            found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def own_seconds(parts: dict[str, float]) -> float:
    """Return the seconds of a start without importing torch and creating the CUDA context."""
    return sum(seconds for name, seconds in parts.items() if name not in NOT_OURS)
