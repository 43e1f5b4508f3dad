"""Speed of fused random rollouts, of compilation and of creation, beside the memory's limit. Medians after warm-up."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cupydrive import __version__, envs
from cupydrive.batch import Batch
from cupydrive.executors import choose, executor

RUNS = 7
LAUNCHES = 20  # per run on a GPU: one launch alone would time Python's call as well
TAG_105 = {"num_taggers": 5, "num_runners": 100, "tagging_distance": 0.02}


@dataclass(frozen=True)
class Row:
    """One rollout to time."""

    env: str
    num_envs: int
    steps: int
    params: dict


CPU_ROWS = (
    Row("cartpole", 4096, 32, {}),
    Row("tag_grid", 2000, 32, {}),
    Row("tag_continuous", 64, 32, TAG_105),
)
CUDA_ROWS = (
    Row("cartpole", 1_048_576, 32, {}),
    Row("cartpole", 10_000, 128, {}),
    Row("tag_grid", 2000, 128, {}),
    Row("tag_grid", 200_000, 32, {}),
    Row("tag_grid", 2000, 32, {"num_taggers": 999}),
    Row("tag_continuous", 2000, 64, TAG_105),
    Row("tag_continuous", 20_000, 16, TAG_105),
)


def seconds(device, work, launches):
    """Return the median time of ``work`` over RUNS runs of ``launches`` calls each, after two calls to warm up."""
    work()
    work()
    device.synchronise()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(launches):
            work()
        device.synchronise()
        times.append((time.perf_counter() - start) / launches)
    return statistics.median(times)


def time_rollout(device, row):
    """Return env-steps/s and bytes/s of one fused random rollout that writes full trajectories (without final_obs)."""
    spec = envs.get(row.env)
    params = spec.make_params(**row.params)
    batch = Batch(spec, row.num_envs, params, device)
    batch.reset(0)
    for _ in range(max(1, params.max_episode_steps // row.steps)):
        batch.rollout(row.steps, final_obs=False)  # until episodes begin and end at all times
    launches = LAUNCHES if device.name == "cuda" else 1
    duration = seconds(device, lambda: batch.rollout(row.steps, final_obs=False), launches)
    written = sum(g.count * 4 * (g.obs_dim + g.heads + 1) for g in batch.groups) + 2
    done = row.num_envs * row.steps
    return {
        "env": row.env,
        "agents": sum(g.count for g in batch.groups),
        "num_envs": row.num_envs,
        "steps": row.steps,
        "env_steps_per_s": done / duration,
        "bytes_per_s": done * written / duration,
    }


def write_limit(device):
    """Return the bytes/s that filling 2 GiB (CPU: 256 MiB) reaches, 16 bytes a thread on a GPU."""
    if device.name == "cpu":
        array = np.zeros(2**26, np.float32)
        return array.nbytes / seconds(device, lambda: array.fill(1.0), 1)
    cupy = device.xp
    array = cupy.zeros(2**29, cupy.float32)
    fill = cupy.RawKernel(
        'extern "C" __global__ void fill(float4* to, long long n) {'
        " for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)"
        " to[i] = make_float4(1, 2, 3, 4); }",
        "fill",
    )
    grid, block = (device.processors * 16,), (512,)
    return array.nbytes / seconds(device, lambda: fill(grid, block, (array, array.size // 4)), LAUNCHES)


def time_first_use(device_name):
    """Return seconds to load each environment in a fresh process: with an empty cache, then with a filled one."""
    program = (
        "import sys, time\n"
        "from cupydrive import envs\n"
        "from cupydrive.executors import executor\n"
        "device, spec = executor(sys.argv[1]), envs.get(sys.argv[2])\n"
        "params = spec.make_params()\n"
        "start = time.perf_counter(); device.load(spec, params); print(time.perf_counter() - start)"
    )
    times = {}
    with tempfile.TemporaryDirectory() as cache:
        paths = {"CUPYDRIVE_CACHE": cache, "CUPY_CACHE_DIR": cache, "CUDA_CACHE_DISABLE": "1"}
        for name in envs.names():
            command = [sys.executable, "-c", program, device_name, name]
            runs = [
                subprocess.run(command, capture_output=True, text=True, check=True, env={**_environ(), **paths})
                for _ in range(2)
            ]
            times[name] = [float(done.stdout) for done in runs]
    return times


def _environ():
    import os

    root = str(Path(__file__).resolve().parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


def time_creation(device):
    """Return how many copies of continuous Tag with 105 agents were made, and the seconds to make and reset them."""
    spec = envs.get("tag_continuous")
    params, num_envs = spec.make_params(**TAG_105), 100_000 if device.name == "cuda" else 10_000
    device.load(spec, params, device.layout(spec, params, num_envs))  # compiled before
    start = time.perf_counter()
    batch = Batch(spec, num_envs, params, device)
    batch.reset(0)
    device.synchronise()
    return num_envs, time.perf_counter() - start


def rollouts(device, rows=None, show=print):
    """Time ``rows`` and return their results; ``show`` gets each line as it is measured."""
    show(f"{'environment':<16}{'agents':>7}{'envs':>11}{'steps':>6}{'M env-steps/s':>15}{'TB/s written':>14}")
    results = []
    for row in rows or (CUDA_ROWS if device.name == "cuda" else CPU_ROWS):
        r = time_rollout(device, row)
        results.append(r)
        show(
            f"{r['env']:<16}{r['agents']:>7,}{r['num_envs']:>11,}{r['steps']:>6}{r['env_steps_per_s'] / 1e6:>15,.2f}"
            f"{r['bytes_per_s'] / 1e12:>14.3f}"
        )
    return results


def bench(device="auto", json_path=None):
    """Time everything on one device, print it, and return it; also as JSON to ``json_path``."""
    name, reason = choose(device)
    where = executor(name)
    print(
        f"cupydrive {__version__} bench, {reason}; {where.describe()}; median of {RUNS} runs; full trajectories written"
    )
    result = {"device": where.describe(), "version": __version__, "rollouts": rollouts(where)}
    result["write_limit_bytes_per_s"] = write_limit(where)
    print(f"write limit of this memory: {result['write_limit_bytes_per_s'] / 1e12:.3f} TB/s")
    result["first_use_s"] = time_first_use(name)
    for env, (cold, warm) in result["first_use_s"].items():
        print(f"first use of {env}: {cold:.2f} s to compile, {warm:.3f} s from the cache")
    made, duration = time_creation(where)
    result["creation"] = {"num_envs": made, "seconds": duration}
    print(f"making and resetting {made:,} x tag_continuous (105 agents): {duration:.3f} s")
    if json_path is not None:
        Path(json_path).write_text(json.dumps(result, indent=1))
    return result
