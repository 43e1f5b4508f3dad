"""How fast training is on this machine, end to end: env-steps per second of whole iterations, learning included."""

import statistics
import time
from dataclasses import asdict, dataclass, field

import torch

from cupydrive.about import info
from cupydrive.algorithms import A2C, PPO
from cupydrive.bench import LARGE_TAG, short
from cupydrive.executors import choose, executor
from cupydrive.interop import capture
from cupydrive.loop import precision
from cupydrive.spec import checked_int
from cupydrive.training import make_run

REPLAYS = {"cuda": 10, "cpu": 2}  # iterations of one timed run
FAST = {"precision": "bfloat16", "shared_layers": True}
TAG = A2C(hidden=(256, 256), activation="relu", num_steps=16, compile=True, **FAST)


@dataclass(frozen=True)
class Lesson:
    """What to train: an environment, its number of copies and settings for every group."""

    env: str
    num_envs: int
    settings: object
    params: dict = field(default_factory=dict)


LESSONS = {
    "cuda": (
        *(Lesson("cartpole", n, PPO(compile="max-autotune", **FAST)) for n in (65_536, 16_384, 4_096)),
        *(Lesson("cartpole", n, PPO(compile=True, **FAST)) for n in (65_536, 16_384, 4_096)),
        *(Lesson("cartpole", n, PPO(shared_layers=True, precision="tf32")) for n in (65_536, 4_096)),
        Lesson("tag_continuous", 2_000, TAG, {k: v for k, v in LARGE_TAG.items() if k != "tagging_distance"}),
    ),
    "cpu": (Lesson("cartpole", 256, PPO()), Lesson("cartpole", 1_024, PPO())),
}


@dataclass
class Rate:
    """What ``bench_training`` found for one lesson; medians over ``runs``."""

    env: str
    params: dict
    num_envs: int
    agents: int
    settings: str
    runs: int
    seconds: float  # of one iteration
    env_steps_per_second: float


def bench_training(*, device="auto", runs=9, progress=print):
    """Time whole training iterations and return a dictionary of plain values.

    Args:
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        runs: Timed runs of each lesson, after a warm-up; medians are reported.
        progress: Called with each line of the report as soon as it is known.
    """
    runs = checked_int("bench", "runs", runs)
    name, _ = choose(device)
    machine, versions = executor(name).describe(), info().versions
    progress(f"{machine} ({name})")
    progress(", ".join(f"{key} {value}" for key, value in versions.items()))
    progress(f"\n{'training':<16}{'agents':>7}{'envs':>9}{'T':>5}{'env-steps/s':>14}{'ms/iteration':>14}  settings")
    rates = []
    for lesson in LESSONS[name]:
        rates.append(measure(lesson, name, runs))
        rate = rates[-1]
        progress(
            f"{rate.env:<16}{rate.agents:>7}{rate.num_envs:>9,}{lesson.settings.num_steps:>5}"
            f"{short(rate.env_steps_per_second):>14}{1e3 * rate.seconds:>14.3f}  {rate.settings}"
        )
    return {"device": name, "machine": machine, "versions": versions, "rates": [asdict(rate) for rate in rates]}


def measure(lesson, device, runs):
    """Return the ``Rate`` of one lesson."""
    torch.compiler.reset()
    run = make_run(lesson.env, lesson.settings, num_envs=lesson.num_envs, device=device, **lesson.params)
    with precision(run):
        iterate = run.iterate
        if device == "cuda":
            kept = run.snapshot()
            iterate = capture(run.iterate, lambda: run.restore(kept)).replay
        times = [timed(iterate, REPLAYS[device], device) for _ in range(runs + 2)][2:]
    seconds = statistics.median(times)
    settings, s = lesson.settings, run.settings
    words = f"{settings.name}, {settings.precision}, hidden {settings.hidden}, compile={settings.compile}"
    words += (
        f", {settings.update_epochs} epochs x {settings.num_minibatches} minibatches" if settings.name == "ppo" else ""
    )
    return Rate(
        env=lesson.env,
        params=lesson.params,
        num_envs=lesson.num_envs,
        agents=sum(g.count for g in run.batch.groups),
        settings=f"{words}, {len(s)} polic{'y' if len(s) == 1 else 'ies'}",
        runs=runs,
        seconds=seconds,
        env_steps_per_second=run.steps_per_iteration / seconds,
    )


def timed(iterate, times, device):
    """Return the seconds of one iteration, averaged over ``times`` that are queued together."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        iterate()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / times
