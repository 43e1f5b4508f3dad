"""End-to-end speed of training: environment steps per second of complete iterations, including
learning.

Learners that are compared are timed alternately, so that other load on the machine affects both.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cupydrive.algorithms import A2C, PPO, PQN
from cupydrive.algorithms.architecture import GRU, MinGRU, Network
from cupydrive.algorithms.kernels.choice import is_layerwise
from cupydrive.algorithms.kernels.layerwise_layout import LayerwiseLayout
from cupydrive.algorithms.kernels.layout import NetworkLayout
from cupydrive.algorithms.kernels.learner import KernelLearner
from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.bench.cases import LARGE_TAG, SMALL_TAG
from cupydrive.bench.operations import learning_operations
from cupydrive.bench.timing import Row, make_row
from cupydrive.executors.interop import capture
from cupydrive.playing.torch_settings import memory_errors
from cupydrive.training.begin import begin
from cupydrive.training.config import resolve
from cupydrive.training.report import MetricReport
from cupydrive.training.run import Run
from cupydrive.training.together import Together

REPLAYS = {"cuda": 10, "cpu": 2}  # iterations per timed run
UNTIMED = 2  # warm-up runs
BY_TORCH, BY_KERNELS, BOTH = ("torch",), ("kernels",), ("kernels", "torch")


@dataclass(frozen=True)
class Lesson:
    """Benchmark task: an environment, its number of environments, settings, and backends.

    ``backends`` are timed alternately. ``members`` is the number of runs in parallel, each of
    which has ``num_envs`` environments.
    """

    env: str
    num_envs: int
    settings: A2C | PPO | PQN
    backends: tuple[str, ...] = BY_TORCH
    params: dict = field(default_factory=dict)
    members: int = 1


SHARED_LAYERS, SEPARATE = PPO(shared_layers=True), PPO()
FAST: dict[str, Any] = {"precision": "bfloat16", "shared_layers": True}  # with torch
TAG: dict[str, Any] = {"shared_layers": True, "num_steps": 16}
WIDE_NETWORK: dict[str, Any] = TAG | {"hidden": (256, 256)}
LARGE: dict[str, Any] = {k: v for k, v in LARGE_TAG.items() if k != "tagging_distance"}
DENSE = Network(hidden=(128, 128), shared=True)


# Sizes of purejaxql.
PQN_SETTINGS = {
    "cartpole": PQN(num_minibatches=16, update_epochs=4, q_lambda=0.95),
    "minatar_breakout": PQN(num_minibatches=32, update_epochs=2),
}


def recurrent(core: GRU | MinGRU, **settings: Any) -> PPO:
    """Return settings of a recurrent network with one hidden layer as wide as its core."""
    network = Network(hidden=(core.size,), core=core, activation="relu", shared=True)
    return PPO(network=network, num_steps=64, **settings)


LESSONS = {
    "cuda": (
        *(Lesson("cartpole", n, SHARED_LAYERS, BOTH) for n in (65_536, 16_384, 4_096, 1_024, 256)),
        *(Lesson("cartpole", n, SEPARATE, BOTH) for n in (65_536, 256)),
        *(
            Lesson("cartpole", n, PPO(shared_layers=True, precision="float32"), BY_KERNELS)
            for n in (65_536, 256)
        ),
        *(
            Lesson("cartpole", n, SHARED_LAYERS, BY_KERNELS, members=members)
            for members, n in ((10, 256), (2_048, 16))
        ),
        # The benchmarks of WarpDrive.
        *(
            Lesson("cartpole", n, A2C(**TAG | {"num_steps": 32}), BOTH)
            for n in (65_536, 4_096, 256)
        ),
        Lesson("tag_grid", 2_000, A2C(**TAG), BOTH, {"num_taggers": 4}),
        Lesson("tag_grid", 2_000, A2C(**TAG | {"num_steps": 4}), BOTH, {"num_taggers": 999}),
        Lesson("tag_continuous", 2_000, A2C(**WIDE_NETWORK), BOTH, SMALL_TAG),
        Lesson("tag_continuous", 2_000, A2C(**WIDE_NETWORK), BOTH, LARGE),
        Lesson("cartpole", 65_536, PPO(**FAST)),
        *(
            Lesson("tag_continuous", 2_000, A2C(**WIDE_NETWORK | FAST), params=params)
            for params in (SMALL_TAG, LARGE)
        ),
        *(
            Lesson("cartpole", n, recurrent(core, **given), BY_KERNELS)
            for core, n, given in (
                (GRU(128), 8_192, {}),
                (GRU(128), 1_024, {}),
                (GRU(128), 8_192, {"precision": "float32"}),
                (MinGRU(128), 8_192, {}),
                (MinGRU(64, layers=1), 65_536, {}),
            )
        ),
        # Images of bits, with and without convolutions.
        *(
            Lesson("minatar_breakout", n, PPO(network=network), BY_KERNELS)
            for network in (None, DENSE)
            for n in (8_192, 1_024)
        ),
        *(Lesson(env, 128, settings, BY_KERNELS) for env, settings in PQN_SETTINGS.items()),
    ),
    "cpu": (
        *(Lesson("cartpole", n, SHARED_LAYERS, BOTH) for n in (256, 1_024)),
        Lesson("cartpole", 256, SEPARATE, BOTH),
        Lesson("cartpole", 64, recurrent(GRU(64)), BY_KERNELS),
        Lesson("minatar_breakout", 64, PPO(network=DENSE), BY_KERNELS),
        Lesson("minatar_breakout", 64, PPO(), BY_KERNELS),
    ),
}


# Tasks for several processes. A single process trains the same tasks, among others.
SEVERAL = {
    "cuda": (
        Lesson("cartpole", 65_536, SHARED_LAYERS, BY_KERNELS),
        Lesson("tag_continuous", 2_000, A2C(**WIDE_NETWORK), BY_KERNELS, LARGE),
    ),
    "cpu": (Lesson("cartpole", 256, SHARED_LAYERS, BY_KERNELS),),
}


def measure_lesson(lesson: Lesson, device: str, runs: int) -> list[Row]:
    """Time one benchmark task, and return a ``Row`` for each of its backends.

    Raises:
        MemoryLimitError: If the task does not fit into memory.
    """
    with memory_errors():
        made = [start(lesson, backend, device) for backend in lesson.backends]
    times: list[list[float]] = [[] for _ in made]
    for _ in range(runs + UNTIMED):
        for (run, iterate), seconds in zip(made, times, strict=True):
            with run.computing():
                seconds.append(timed_iteration(iterate, REPLAYS[device], device))
    rows = []
    for backend, (run, _), seconds in zip(lesson.backends, made, times, strict=True):
        agents, found = sum(g.count for g in run.batch.groups), arithmetic(run, lesson.settings)
        rows.append(make_row(
            "training", lesson.env, lesson.num_envs * lesson.members, agents,
            lesson.settings.num_steps, seconds[UNTIMED:],
            operations_per_step=run_operations(run),
            factors="bfloat16" if found == "bfloat16" else "float32",
            params=lesson.params, note=note_of(run, backend, found, lesson),
        ))  # fmt: skip
    return rows


def measure_scaling(lesson: Lesson, device: str, runs: int) -> list[Row]:
    """Time one benchmark task in several processes, all of which must call it.

    In weak scaling, each process has the task's number of environments. In strong scaling, they
    have this number in total.
    """
    size, rows = torch.distributed.get_world_size(), []
    for kind, num_envs in (("weak", lesson.num_envs * size), ("strong", lesson.num_envs)):
        (row,) = measure_lesson(replace(lesson, num_envs=num_envs), device, runs)
        rows.append(replace(row, note=f"{size} processes, {kind} scaling, {row.note}"))
    return rows


def start(lesson: Lesson, backend: str, device: str) -> tuple[Run, Callable[[], object]]:
    """Create the runs of a task.

    Returns:
        The first run, and a function that executes one iteration, on a GPU as a graph replay.
    """
    given: dict[str, Any] = {
        "algorithm": lesson.settings,
        "num_envs": lesson.num_envs,
        "backend": backend,
        "params": lesson.params,
    }
    runs = [
        begin(resolve(lesson.env, **given, seed=k, device=device), lesson.members)
        for k in range(lesson.members)
    ]
    if lesson.members > 1:
        return runs[0], Together(runs).prepare(
            [MetricReport(run) for run in runs], device == "cuda"
        )
    return runs[0], iteration(runs[0])


def iteration(run: Run) -> Callable[[], object]:
    """Return a function that executes one iteration, on a GPU as a graph replay."""
    if run.device != "cuda":
        return run.iterate
    kept = run.snapshot()
    with run.computing():
        return capture(run.iterate, lambda: run.restore(kept))


def note_of(run: Run, backend: str, found: str, lesson: Lesson) -> str:
    """Describe the training of a row: runs, algorithm, backend, network, and update sizes."""
    settings = lesson.settings
    words = [f"{lesson.members:,} runs of {lesson.num_envs} copies side by side"] * (
        lesson.members > 1
    )
    widths = dict.fromkeys(tower for own in learners(run) for tower in tower_labels(own))
    words += [f"{settings.name} by {backend}", found, f"network {' and '.join(widths)}"]
    if isinstance(settings, PPO | PQN):
        words.append(f"{settings.update_epochs} epochs x {settings.num_minibatches} minibatches")
    words.append(f"{len(run.settings)} polic{'y' if len(run.settings) == 1 else 'ies'}")
    return ", ".join(words)


def arithmetic(run: Run, settings: A2C | PPO | PQN) -> str:
    """Return the precision of the learners, with ``auto`` resolved."""
    made = {own.arithmetic.name for own in run.learners.values() if isinstance(own, KernelLearner)}
    return " and ".join(sorted(made)) or settings.precision.replace("auto", "float32")


def learners(run: Run) -> list[OnPolicyLearner]:
    """Return the on-policy learners of a run."""
    return [own for own in run.learners.values() if isinstance(own, OnPolicyLearner)]


def tower_labels(learner: OnPolicyLearner) -> list[str]:
    """Return a label of each tower, such as ``"400-16@3x3-128-GRU128-4"``.

    It has the widths from the observation to the outputs, convolutions as CHANNELS@KERNEL, and the
    core's layers by name.
    """
    group = learner.groups[0]
    network = learner.config.network_for(group)
    inputs = network.tower_inputs(network.input_shape(group))
    labels = []
    for (tower, shape), outputs in zip(
        inputs, network.outputs(learner.distribution.size), strict=True
    ):
        core = tower.core
        parts: list[object] = [math.prod(shape)]
        parts += [f"{x.channels}@{x.kernel}x{x.kernel}" for x in tower.convolutions(shape)]
        parts += tower.hidden
        if core is not None:
            parts += [f"{type(core).__name__}{core.size}"] * getattr(core, "layers", 1)
        labels.append("-".join(map(str, [*parts, outputs])))
    return labels


def towers(learner: OnPolicyLearner) -> tuple[tuple[int, ...], ...]:
    """Return the widths of each tower of a network, from the observation to its output.

    For a network that kernels compute layer by layer, return the widths of each linear layer.
    """
    config, group, size = learner.config, learner.groups[0], learner.distribution.size
    network = config.network_for(group)
    shape = network.input_shape(group)
    if is_layerwise(network):
        return LayerwiseLayout.made(network, shape, size).towers
    return NetworkLayout.of(config, network.inputs(shape), size).towers


def run_operations(run: Run) -> float:
    """Return the operations of matrix products per environment step, summed over all learning
    agents.
    """
    return sum(sum(g.count for g in own.groups) * row_operations(own) for own in learners(run))


def row_operations(learner: OnPolicyLearner) -> int:
    """Return the operations of matrix products per row."""
    group, found = learner.groups[0], towers(learner)
    network, epochs = learner.config.network_for(group), getattr(learner.config, "update_epochs", 1)
    if not is_layerwise(network):
        return learning_operations(found, epochs)
    each = len(found) // network.towers
    positions = [layer.positions for layer in network.convolutions(network.input_shape(group))]
    positions += [1] * (each - len(positions))
    products = [
        2 * inputs * outputs * positions[k % each] for k, (inputs, outputs) in enumerate(found)
    ]
    # Only the first layers take observations as input.
    return sum(products) + epochs * (3 * sum(products) - sum(products[::each]))


def timed_iteration(iterate: Callable[[], object], times: int, device: str) -> float:
    """Return the seconds of one iteration, averaged over ``times`` consecutive iterations."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        iterate()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times
