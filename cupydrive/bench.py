"""How fast random rollouts are on this machine: env-steps per second beside the device's own write ceiling.

An env-step is one step of one whole environment, whatever its number of agents. Every step writes observations,
actions, rewards and flags of all agents; the final observations of ended episodes are left out.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from cupydrive import envs
from cupydrive.about import info
from cupydrive.batch import Batch
from cupydrive.errors import CupydriveError, MemoryLimitError
from cupydrive.executors import choose, executor
from cupydrive.spec import checked_int

WARM_UP = 3  # runs before the timed ones
RUN_SECONDS = {"cpu": 0.1, "cuda": 0.02}  # of one timed run, at least: rollouts are repeated until it is filled
LARGE_TAG = {"num_taggers": 5, "num_runners": 100, "num_other_agents_observed": 10, "tagging_distance": 0.02}
CREATED = {"cpu": 2_000, "cuda": 100_000}  # environments of LARGE_TAG, 100 kB each


@dataclass(frozen=True)
class Work:
    """One rollout to time."""

    env: str
    num_envs: int
    steps: int
    params: dict = field(default_factory=dict)


WORK = {
    "cpu": (
        Work("cartpole", 4096, 32),
        Work("tag_grid", 2000, 32, {"num_taggers": 4}),
        Work("tag_continuous", 100, 8, LARGE_TAG),
    ),
    "cuda": (
        Work("cartpole", 1_048_576, 32),
        Work("cartpole", 10_000, 128),
        Work("tag_grid", 2000, 128, {"num_taggers": 4}),
        Work("tag_grid", 200_000, 32, {"num_taggers": 4}),
        Work("tag_grid", 2000, 32, {"num_taggers": 999}),
        Work("tag_continuous", 2000, 64, LARGE_TAG),
        Work("tag_continuous", 20_000, 16, LARGE_TAG),
    ),
}


@dataclass
class Rate:
    """What ``measure`` found: medians over ``runs``, each of ``repeats`` rollouts."""

    env: str
    params: dict
    num_envs: int
    agents: int
    steps: int
    runs: int
    repeats: int
    seconds: float  # of one rollout
    env_steps_per_second: float
    bytes_per_second: float


@dataclass
class Bench:
    """The result of ``bench``; times in seconds."""

    device: str
    machine: str
    versions: dict[str, str]
    command: str
    write_ceiling: float  # bytes per second
    rates: list[Rate] = field(default_factory=list)
    compile_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    creation: dict = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)  # what does not fit into memory

    def __str__(self):
        return "\n".join(self.lines())

    __repr__ = __str__

    def lines(self):
        """Yield the report line by line."""
        yield from self.head()
        yield from (self.row(rate) for rate in self.rates)
        yield from self.tail()

    def head(self):
        """Return the lines above the rates."""
        return [
            f"{self.machine} ({self.device})",
            ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            f"command: {self.command}",
            f"write ceiling: {self.write_ceiling / 1e9:,.1f} GB/s",
            "",
            f"{'random rollout':<16}{'agents':>7}{'envs':>11}{'T':>5}{'env-steps/s':>14}"
            f"{'written':>13}{'of ceiling':>12}",
        ]

    def row(self, rate):
        """Return the line of one rate."""
        share = rate.bytes_per_second / self.write_ceiling
        return (
            f"{rate.env:<16}{rate.agents:>7,}{rate.num_envs:>11,}{rate.steps:>5}{short(rate.env_steps_per_second):>14}"
            f"{rate.bytes_per_second / 1e9:>8,.1f} GB/s{share:>12.0%}"
        )

    def tail(self):
        """Return the lines below the rates."""
        found = [""] if self.compile_seconds or self.creation else []
        for name, seconds in self.compile_seconds.items():
            found.append(f"compile {name:<16} {seconds['cold']:.2f} s, from the cache {seconds['cached']:.3f} s")
        if self.creation:
            c = self.creation
            found.append(f"create {c['num_envs']:,} x {c['env']} of {c['agents']} agents: {c['seconds']:.2f} s")
        return found + [f"not done: {text}" for text in self.skipped]

    def to_dict(self):
        """Return everything as plain values."""
        return asdict(self)


def short(number):
    """Return a number with three digits and k, M or G, such as 75.0 M."""
    for limit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= limit:
            return f"{number / limit:.3g}{letter}"
    return f"{number:.3g}"


def bench(*, device="auto", runs=9, progress=print):
    """Time the rollouts of ``WORK``, compilation and creation on one device and return a ``Bench``.

    Args:
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        runs: Timed runs of each, after a warm-up; medians are reported.
        progress: Called with each line of the report as soon as it is known; None: nothing.

    Raises:
        DeviceError: If the device cannot be used here.
        ParameterError: If ``runs`` is not a positive int.
    """
    runs = checked_int("bench", "runs", runs)
    say = progress or (lambda line: None)
    name, _ = choose(device)
    where = executor(name)
    command = f"cupydrive bench --device {name} --runs {runs}"
    result = Bench(name, where.describe(), info().versions, command, write_ceiling(where, runs))
    for line in result.head():
        say(line)
    for work in WORK[name]:
        try:
            result.rates.append(measure(work, where, runs))
            say(result.row(result.rates[-1]))
        except MemoryLimitError as error:  # a small GPU: the other rows are worth having
            result.skipped.append(str(error))
        _free(where)
    for env, params in (("cartpole", {}), ("tag_grid", {}), ("tag_continuous", LARGE_TAG)):
        result.compile_seconds[env] = compile_times(env, params, name)
    try:
        result.creation = creation_time(where, CREATED[name])
    except MemoryLimitError as error:
        result.skipped.append(str(error))
    for line in result.tail():
        say(line)
    return result


def measure(work, where, runs=9):
    """Return the ``Rate`` of random rollouts of ``work`` on the executor ``where``."""
    spec = envs.get(work.env)
    params = spec.make_params(**work.params)
    batch = Batch(spec, work.num_envs, params, where)
    batch.reset(0)
    for _ in range(params.max_episode_steps // work.steps):  # until episodes begin and end at all times
        batch.rollout(work.steps, final_obs=False)
    seconds, repeats = timed(lambda: batch.rollout(work.steps, final_obs=False), where, runs)
    rows = work.num_envs * work.steps
    return Rate(
        env=spec.name,
        params=work.params,
        num_envs=work.num_envs,
        agents=sum(g.count for g in batch.groups),
        steps=work.steps,
        runs=runs,
        repeats=repeats,
        seconds=seconds,
        env_steps_per_second=rows / seconds,
        bytes_per_second=rows * written_bytes(batch.groups) / seconds,
    )


def written_bytes(groups):
    """Return the bytes that every step of one environment writes; what is written only at ends of episodes is not counted."""
    flags = 2
    return flags + sum(g.count * (4 * g.obs_dim + 4 * g.heads + 4 + 2 * g.leaves) for g in groups)


def timed(call, where, runs):
    """Return (median seconds of one call, calls per run), measured by events on a GPU, by the clock on the CPU."""
    for _ in range(WARM_UP):
        call()
    once = _run(call, where, 1)
    repeats = max(1, min(1000, int(RUN_SECONDS[where.name] / max(once, 1e-9)) + 1))
    _run(call, where, repeats)
    return statistics.median(_run(call, where, repeats) for _ in range(runs)) / repeats, repeats


def _run(call, where, repeats):
    """Return the seconds that ``repeats`` calls take."""
    where.synchronise()
    if where.name == "cuda":
        cupy = where.xp
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end) / 1e3
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return time.perf_counter() - start


def _free(where):
    """Give idle GPU memory back, so that one row does not change the next."""
    if where.name == "cuda":
        where.xp.get_default_memory_pool().free_all_blocks()


_FILL = """
extern "C" __global__ void fill(int4* to, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) to[i] = make_int4(1, 2, 3, 4);
}
"""


def write_ceiling(where, runs=9):
    """Return the bytes per second that the device writes at most: 16 bytes per GPU thread, or NumPy in all CPU threads."""
    if where.name == "cuda":
        cupy, vectors = where.xp, 2**26  # 1 GiB: far more than any cache
        array, fill = cupy.empty(4 * vectors, cupy.int32), cupy.RawKernel(_FILL, "fill")
        seconds, _ = timed(lambda: fill((vectors // 256,), (256,), (array, np.int64(vectors))), where, runs)
        return array.nbytes / seconds
    array = np.zeros(2**26, np.float32)  # 256 MiB
    edges = [array.size * i // where.threads for i in range(where.threads + 1)]
    with ThreadPoolExecutor(where.threads) as pool:

        def fill_part(part):
            array[part[0] : part[1]] = 1.0  # NumPy lets other threads run meanwhile

        seconds, _ = timed(lambda: list(pool.map(fill_part, pairwise(edges))), where, runs)
    return array.nbytes / seconds


def compile_times(env, params, device):
    """Return seconds to load the kernel of ``env`` in a new process: ``cold`` with an empty cache, then ``cached``."""
    with tempfile.TemporaryDirectory(prefix="cupydrive-bench-") as cache:
        own = {"CUPYDRIVE_CACHE": cache, "CUPY_CACHE_DIR": cache, "CUDA_CACHE_DISABLE": "1"}
        own["PYTHONPATH"] = _python_path()
        command = [sys.executable, "-c", _LOAD, env, json.dumps(params), device]
        found = {}
        for name in ("cold", "cached"):
            done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
            if done.returncode != 0:
                raise CupydriveError(f"compiling {env} in a process of its own failed:\n{done.stderr.strip()[-2000:]}")
            found[name] = float(done.stdout.split()[-1])
    return found


# The GPU's context exists before the clock starts; imports are not counted either.
_LOAD = """
import json, sys, time
from cupydrive import envs
from cupydrive.executors import executor
env, params, device = sys.argv[1:]
spec, where = envs.get(env), executor(device)
params = spec.make_params(**json.loads(params))
where.put(where.allocate((1,), "f4"), 1.0 if device == "cpu" else __import__("numpy").ones(1, "f4"))
start = time.perf_counter()
where.load(spec, params)
print(time.perf_counter() - start)
"""


def _python_path():
    """Return PYTHONPATH with this package first: a process of its own finds it where it is not installed too."""
    mine = str(Path(__file__).resolve().parent.parent)
    return os.pathsep.join(filter(None, (mine, os.environ.get("PYTHONPATH"))))


def creation_time(where, num_envs):
    """Return the time to create and reset ``num_envs`` environments of large continuous Tag, its kernel in the cache."""
    spec = envs.get("tag_continuous")
    params = spec.make_params(**LARGE_TAG)
    layout = where.layout(spec, params, num_envs)
    Batch(spec, 1, params, where, layout=layout).reset(0)  # compiles
    _free(where)  # so that memory is asked for anew
    where.synchronise()
    start = time.perf_counter()
    Batch(spec, num_envs, params, where).reset(0)
    where.synchronise()
    seconds = time.perf_counter() - start
    agents = params.num_taggers + params.num_runners
    return {"env": spec.name, "params": LARGE_TAG, "agents": agents, "num_envs": num_envs, "seconds": seconds}
