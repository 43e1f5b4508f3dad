"""How fast training is on this machine, end to end: env-steps per second of whole iterations, learning included."""

import time
from dataclasses import dataclass, field

import torch

from cupydrive.bench.cases import LARGE_TAG
from cupydrive.bench.timing import make_row
from cupydrive.executors.interop import capture
from cupydrive.training.algorithms import A2C, PPO
from cupydrive.training.loop import precision
from cupydrive.training.train import make_run

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
    "cpu": (*(Lesson("cartpole", n, PPO(shared_layers=True)) for n in (256, 1_024)),),
}


def measure_lessons(device, runs):
    """Yield the ``Row`` of each lesson: whole iterations, learning included."""
    for lesson in LESSONS[device]:
        yield measure(lesson, device, runs)


def measure(lesson, device, runs):
    """Return the ``Row`` of one lesson."""
    torch.compiler.reset()
    run = make_run(lesson.env, lesson.settings, num_envs=lesson.num_envs, device=device, **lesson.params)
    with precision(run):
        iterate = run.iterate
        if device == "cuda":
            kept = run.snapshot()
            iterate = capture(run.iterate, lambda: run.restore(kept)).replay
        times = [timed(iterate, REPLAYS[device], device) for _ in range(runs + 2)][2:]
    settings, s = lesson.settings, run.settings
    words = f"{settings.name}, {settings.precision}, hidden {settings.hidden}, compile={settings.compile}"
    words += (
        f", {settings.update_epochs} epochs x {settings.num_minibatches} minibatches" if settings.name == "ppo" else ""
    )
    agents = sum(g.count for g in run.batch.groups)
    return make_row(
        "training", lesson.env, lesson.num_envs, agents, lesson.settings.num_steps, times,
        params=lesson.params, note=f"{words}, {len(s)} polic{'y' if len(s) == 1 else 'ies'}",
    )  # fmt: skip


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
