"""Start: from a new process to the first step, and to what training has to reach; and creating many environments.

Each with an empty cache of compiled kernels, and with a full one.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from cupydrive import envs
from cupydrive.bench.cases import LARGE_TAG
from cupydrive.errors import CupydriveError
from cupydrive.simulation.batch import Batch

STARTED = (("cartpole", {}), ("tag_grid", {}), ("tag_continuous", LARGE_TAG))
TRAINED = tuple(("cartpole", learner, envs.get("cartpole").mark) for learner in ("kernels", "torch"))
PROCESSES = 3  # of each start of training: with the seeds 0, 1, ...; the middle one counts
NOT_OURS = ("import torch", "CUDA context")  # parts of a start
CREATED_ENV = "tag_continuous"
CREATED = {"cpu": 2_000, "cuda": 100_000}  # environments of LARGE_TAG, 100 kB each

# Torch and the GPU's context have lines of their own: any program that uses them pays for them.
_START = """
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


_TRAIN = """
import json, sys, time
marks = [time.perf_counter()]
def mark():
    marks.append(time.perf_counter())
import torch
mark()
env, learner, level, seed, device = sys.argv[1:]
if device == "cuda":
    torch.zeros(1, device="cuda")
mark()
from cupydrive.training import train
mark()
from cupydrive.bench.solving import solve
found = solve(env, float(level), learner=learner, device=device, seed=int(seed))
names = ("import torch", "CUDA context", "import cupydrive")
parts = dict(zip(names, (b - a for a, b in zip(marks, marks[1:]))))
first = found.set_up + found.first_iteration
parts |= {"set up": found.set_up, "first iteration": found.first_iteration}
print(json.dumps(parts | {"until solved": None if found.seconds is None else found.seconds - first}))
"""


def start_times(env, params, device):
    """Return seconds of each part of a start: ``{"cold": {part: seconds}, "warm": ...}``, by an empty and a full cache.

    Raises:
        CupydriveError: If the process that is timed fails.
    """
    return _cold_and_warm(env, _START, env, json.dumps(params), device)


def train_start_times(env, learner, mark, device):
    """Return seconds of each part of training until it is solved, as ``start_times`` does: of the middle process of several.

    ``"until solved"`` is what follows the first iteration, without the evaluations that find the mark; None: it was not
    reached. The middle one is that of the total, and of those that are not solved in the end none is before another.

    Args:
        env: Name, trained as it suggests.
        learner: ``"kernels"`` or ``"torch"``.
        mark: Return that counts as solved.
        device: ``"cuda"`` or ``"cpu"``.

    Raises:
        CupydriveError: If the process that is timed fails.
    """
    found = [_cold_and_warm(env, _TRAIN, env, learner, str(mark), str(seed), device) for seed in range(PROCESSES)]
    return {cache: sorted((f[cache] for f in found), key=_total)[PROCESSES // 2] for cache in ("cold", "warm")}


def _cold_and_warm(env, program, *arguments):
    """Return what ``program`` prints as JSON on its last line, run twice with a cache of its own."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="cupydrive-bench-") as cache:
        own = {
            "CUPYDRIVE_CACHE": cache,
            "CUPY_CACHE_DIR": cache,
            "CUDA_CACHE_DISABLE": "1",
            "PYTHONPATH": _python_path(),
        }
        for name in ("cold", "warm"):
            command = [sys.executable, "-c", program, *arguments]
            done = subprocess.run(command, env=os.environ | own, capture_output=True, encoding="utf-8")
            if done.returncode != 0:
                raise CupydriveError(f"starting {env} in a process of its own failed:\n{done.stderr.strip()[-2000:]}")
            found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def _total(parts):
    """Return the seconds until solved, infinite where that did not come."""
    return math.inf if parts["until solved"] is None else own_seconds(parts)


def own_seconds(parts, until=None):
    """Return the seconds that are not torch's import nor the GPU's context, of the parts up to ``until``, by default all."""
    names = list(parts)
    counted = names if until is None else names[: names.index(until) + 1]
    return sum(parts[name] for name in counted if name not in NOT_OURS)


def _python_path():
    """Return PYTHONPATH with this package first: a process of its own finds it where it is not installed too."""
    mine = str(Path(__file__).resolve().parent.parent.parent)
    return os.pathsep.join(filter(None, (mine, os.environ.get("PYTHONPATH"))))


def creation_time(where, num_envs):
    """Return the time to create and reset ``num_envs`` environments of large continuous Tag, its kernel in the cache."""
    spec = envs.get(CREATED_ENV)
    params = spec.make_params(**LARGE_TAG)
    layout = where.layout(spec, params, num_envs)
    Batch(spec, 1, params, where, layout=layout).reset(0)  # compiles
    free(where)  # so that memory is asked for anew
    where.synchronise()
    start = time.perf_counter()
    Batch(spec, num_envs, params, where).reset(0)
    where.synchronise()
    seconds = time.perf_counter() - start
    agents = params.num_taggers + params.num_runners
    return {"env": spec.name, "params": LARGE_TAG, "agents": agents, "num_envs": num_envs, "seconds": seconds}


def free(where):
    """Give idle GPU memory back, so that one row does not change the next."""
    if where.name == "cuda":
        where.xp.get_default_memory_pool().free_all_blocks()
        torch.cuda.empty_cache()
