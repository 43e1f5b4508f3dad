"""train(): policies learn in thousands of environments; on a GPU whole iterations replay as one CUDA graph.

The host writes schedules, launches, and reads numbers that are one interval old: it never waits for the iteration that it
has just launched.
"""

import json
import math
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from tqdm.auto import tqdm

from cupydrive import envs
from cupydrive.algorithms import ALGORITHMS
from cupydrive.errors import MemoryLimitError, ParameterError, TrainingError, did_you_mean
from cupydrive.executors import choose
from cupydrive.interop import capture as capture_graph
from cupydrive.run import Run
from cupydrive.runfolder import checkpoints, read_config, write_atomically
from cupydrive.spec import checked_int

ROWS = 1000  # of metrics that a run of its default length keeps
QUEUED = 2  # intervals that may be launched before the oldest has been read
DEFAULTS = {"algorithm": "ppo", "num_envs": 1024, "steps": 1_000_000}


def train(
    env,
    algorithm=None,
    *,
    policies=None,
    steps=None,
    num_envs=None,
    seed=0,
    device="auto",
    out=None,
    progress=True,
    capture=None,
    callback=None,
    checkpoint_minutes=5.0,
    keep=3,
    **params,
):
    """Train policies and return the ``Run``; an interrupt (Ctrl-C) ends it early and keeps the result.

    Args:
        env: Name of an environment, path of its Python file, ``EnvSpec``; or a ``Run`` that is to go on.
        algorithm: ``PPO(...)``, ``A2C(...)``, their names, or None: what the environment suggests. Each group gets a policy
            of its own.
        policies: Settings by group name instead, such as ``{"tagger": PPO(), "runner": Heuristic()}``; groups joined by
            ``+``, such as ``"tagger+runner"``, share one policy.
        steps: Env-steps in all, rounded up to whole iterations; for a ``Run``: more of them, default up to its total.
        num_envs: N.
        seed: Of everything random.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        out: Folder for configuration, metrics and checkpoints; None: nothing is written.
        progress: Show one progress line.
        capture: Replay iterations as a CUDA graph; None: on a GPU. False runs the same code with the same numbers.
        callback: ``callback(step, metrics)`` after each logged interval.
        checkpoint_minutes: Time between checkpoints, if ``out`` is given; one is always written at the end.
        keep: Checkpoints to keep.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If settings do not fit each other or the environment.
        TrainingError: If a loss, reward or observation is not finite, or a folder cannot be used.
        MemoryLimitError: If it does not fit into memory.
    """
    with memory_errors():
        return _train(
            env, algorithm, policies, steps, num_envs, seed, device, out, progress, capture, callback,
            checkpoint_minutes, keep, params,
        )  # fmt: skip


def _train(
    env, algorithm, policies, steps, num_envs, seed, device, out, progress, capture, callback, minutes, keep, params
):
    if isinstance(env, Run):
        run = env
        goal = run.step + checked_int("train", "steps", whole(steps)) if steps else run.total
        if run.step >= goal:
            raise ParameterError(f"the run has done its {run.total:,} env-steps; pass steps= for more")
    else:
        goal = checked_int("train", "steps", whole(steps if steps is not None else suggestions(env)["steps"]))
        run = make_run(env, algorithm, policies=policies, num_envs=num_envs, seed=seed, device=device, **params)
    if out is not None:
        check_folder(run, out)
    run.total = max(goal, run.total or 0)
    if capture is None:
        capture = run.device == "cuda"
    if capture and run.device != "cuda":
        raise ParameterError("capture=True needs device='cuda'; leave it out")
    Loop(run, goal, out, progress, capture, callback, minutes * 60, keep).go()
    return run


def whole(number):
    """Return floats such as 1e6 as ints."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def suggestions(env):
    """Return how the environment suggests to train it, defaults where it says nothing."""
    return {**DEFAULTS, **envs.get(env).training}


def suggested_algorithm(env, name=None, **changed):
    """Return the settings that the environment suggests for the algorithm called ``name``, by default the one it suggests.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        name: ``"ppo"``, ``"a2c"``, ``"ddpg"`` or None.
        **changed: Settings that differ.
    """
    suggested = suggestions(env)
    name = (name or suggested["algorithm"]).lower()
    if name not in ALGORITHMS:
        raise ParameterError(
            f"there is no algorithm {name!r}.{did_you_mean(name, ALGORITHMS)} There are: {', '.join(ALGORITHMS)}"
        )
    kind = ALGORITHMS[name]
    known = [f.name for f in fields(kind)]
    for key in changed:
        if key not in known:
            raise ParameterError(f"{name} has no setting {key!r}.{did_you_mean(key, known)} It has: {', '.join(known)}")
    return kind(**{**suggested.get(name, {}), **changed})


def make_run(env, algorithm=None, *, policies=None, num_envs=None, seed=0, device="auto", **params):
    """Return the ``Run`` that ``train`` would train, before its first step; arguments as there."""
    spec, suggested = envs.get(env), suggestions(env)
    made = spec.make_params(**params)
    seed = checked_int("train", "seed", seed, 0, 2**63 - 1)
    groups = [g.name for g in spec.groups(made)]
    if policies is not None and algorithm is not None:
        raise ParameterError("pass algorithm, or policies by group, not both")
    if policies is None:
        if algorithm is None or isinstance(algorithm, str):
            algorithm = suggested_algorithm(env, algorithm)
        policies = dict.fromkeys(groups, algorithm)
    for name, settings in policies.items():
        if not hasattr(settings, "learner") and not hasattr(settings, "player"):
            raise ParameterError(
                f"policies[{name!r}] = {settings!r}; it must be PPO(...), A2C(...), Heuristic(), Random() or Frozen(path)"
            )
    where, _ = choose(device)
    return Run(spec, made, policies, num_envs if num_envs is not None else suggested["num_envs"], seed, where)


def check_folder(run, out):
    """Raise ``TrainingError`` if ``out`` holds another run than this one."""
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise TrainingError(f"out = {str(out)!r} is a file; pass a folder")
    if checkpoints(out) and run.folder != out:
        about = read_config(out)
        raise TrainingError(
            f"{out} holds a run of {about.get('env')!r} already; go on with it (--resume, or cupydrive.load(folder)), "
            "or pass another folder"
        )


@dataclass
class Interval:
    """Numbers of some iterations, on their way from the device."""

    step: int
    numbers: list  # of tensors on the host: sums, and where numbers were not finite
    ready: object  # CUDA event, or None
    seconds: float
    rates: dict  # learning rate by policy

    def arrived(self):
        """Return whether the host may read the numbers."""
        return self.ready is None or self.ready.query()


class Loop:
    """The host's side of training: launches, reads, logs, saves."""

    def __init__(self, run, goal, out, progress, capture, callback, checkpoint_seconds, keep):
        self.run, self.goal, self.callback, self.keep = run, goal, callback, keep
        self.out = None if out is None else Path(out)
        self.capture, self.checkpoint_seconds = capture, checkpoint_seconds
        iterations = math.ceil((goal - run.step) / run.steps_per_iteration)
        self.every = max(1, math.ceil(run.total / run.steps_per_iteration) // ROWS)
        self.bar = tqdm(
            total=iterations * run.steps_per_iteration,
            desc=f"train {run.spec.name}",
            unit="step",
            unit_scale=True,
            disable=not progress,
        )
        self.waiting = deque()
        self.file = None

    def go(self):
        """Train until the goal, an interrupt, or a number that is not finite."""
        run = self.run
        try:
            with precision(run), self.bar, self._metrics_file():
                iterate = self._prepare()
                self.started = self.saved = time.perf_counter()
                self.first_step = run.step
                iterations = 0
                while run.step < self.goal:
                    for learner in run.learners.values():
                        learner.scheduled.set(run.step)
                    iterate()
                    run.step += run.steps_per_iteration
                    iterations += 1
                    if iterations % self.every == 0 or run.step >= self.goal:
                        self._send()
                    self._receive(QUEUED)
                    if self.out is not None and time.perf_counter() - self.saved > self.checkpoint_seconds:
                        self._receive(0)
                        run.save(self.out, self.keep)
                        self.saved = time.perf_counter()
                self._receive(0)
                run.seconds += time.perf_counter() - self.started
        except KeyboardInterrupt:
            self._finish_interrupted()
        if self.out is not None:
            run.save(self.out, self.keep)

    def _prepare(self):
        """Return what runs one iteration: the run's own method, or the replay of its CUDA graph."""
        run = self.run
        if self.out is not None and not checkpoints(self.out):
            run.save(self.out, self.keep)  # a kill in the first minutes leaves something to load
        if not self.capture:
            return run.iterate
        kept = run.snapshot()
        graph = capture_graph(run.iterate, lambda: run.restore(kept))
        self.graph = graph
        return graph.replay

    @contextmanager
    def _metrics_file(self):
        """Open the run's metrics for appending; rows after the current step are dropped first."""
        if self.out is None:
            yield
            return
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / "metrics.jsonl"
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in self.run.metrics).encode())
        with open(path, "a", buffering=1) as self.file:
            yield

    def _send(self):
        """Queue the copy of all sums to the host and set them to 0."""
        run = self.run
        with torch.no_grad():
            parts = [run.sums.sums]
            for learner in run.learners.values():
                parts += [learner.metric_sums.double(), learner.bad.double()[None]]
            numbers = torch.cat(parts)
            found = run.rollout.nonfinite
            ready = None
            if run.device == "cuda":
                copies = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in (numbers, found)]
                for copy, x in zip(copies, (numbers, found), strict=True):
                    copy.copy_(x, non_blocking=True)
                ready = torch.cuda.Event()
                ready.record()
            else:
                copies = [numbers, found.clone()]
            run.sums.sums.zero_()
            for learner in run.learners.values():
                learner.metric_sums.zero_()
        rates = {name: learner.scheduled.now("learning_rate") for name, learner in run.learners.items()}
        self.waiting.append(Interval(run.step, copies, ready, time.perf_counter(), rates))

    def _receive(self, allowed):
        """Log intervals that have arrived; wait for the oldest while more than ``allowed`` are on their way."""
        while self.waiting and (len(self.waiting) > allowed or self.waiting[0].arrived()):
            interval = self.waiting.popleft()
            if interval.ready is not None:
                interval.ready.synchronize()
            self._log(interval)

    def _log(self, interval):
        run = self.run
        numbers, found = (x.tolist() for x in interval.numbers)
        row, bad = self._row(interval, numbers)
        where = run.rollout.describe_nonfinite(found)
        if where is not None or bad:
            what = where or f"the loss of policy {bad[0]!r}"
            raise TrainingError(
                f"{run.spec.name}: {what} is not finite, by env-step {interval.step:,}. Training has stopped; the weights are "
                f"those before it{', the last checkpoint is kept' if self.out is not None else ''}"
            )
        run.metrics.append(row)
        if self.file is not None:
            self.file.write(json.dumps(row) + "\n")
        self.bar.update(interval.step - self.first_step - self.bar.n)
        shown = {key.split("/", 1)[1]: value for key, value in row.items() if "episodic_return" in key}
        shown |= {key.split("/", 1)[1]: value for key, value in row.items() if key.endswith(("value_loss", "entropy"))}
        self.bar.set_postfix({key: f"{value:.3g}" for key, value in shown.items()}, refresh=False)
        if self.callback is not None:
            self.callback(interval.step, row)

    def _row(self, interval, numbers):
        """Return the metrics of an interval, with CleanRL's names, and the policies whose loss was not finite."""
        run, bad = self.run, []
        sums = dict(zip(run.sums.names, numbers, strict=False))
        numbers = numbers[len(run.sums.names) :]
        seconds = max(interval.seconds - self.started, 1e-9)
        row = {
            "charts/global_step": interval.step,
            "charts/SPS": (interval.step - self.first_step) / seconds,
            "charts/episodes": int(sums["episodes"]),
        }
        single = len(run.spec.groups(run.params)) == 1
        if episodes := sums["episodes"]:
            row["charts/episodic_length"] = sums["length"] / episodes
            for name, value in sums.items():
                if name.startswith("return."):
                    group = "" if single else "/" + name.removeprefix("return.")
                    row[f"charts/episodic_return{group}"] = value / episodes
                elif name not in ("episodes", "length"):
                    row[f"env/{name}"] = value / episodes
        for name, learner in run.learners.items():
            under = "" if len(run.learners) == 1 else f"{name}/"
            count = len(learner.metric_sums)
            if numbers[count]:
                bad.append(name)
            row |= {f"losses/{under}{key}": value for key, value in learner.losses(numbers[:count]).items()}
            numbers = numbers[count + 1 :]
            row[f"charts/{under}learning_rate"] = interval.rates[name]
        return row, bad

    def _finish_interrupted(self):
        """Keep what is there: the step that was last launched, and all numbers."""
        if self.run.device == "cuda":
            torch.cuda.synchronize()
        with self._metrics_file():
            self._receive(0)
        self.bar.close()
        tqdm.write(f"interrupted after {self.run.step:,} env-steps; the result is kept")


@contextmanager
def memory_errors():
    """Turn what CuPy and torch raise when memory is short into ``MemoryLimitError``, which says what to lower."""
    try:
        yield
    except MemoryLimitError:
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MemoryLimitError(
            f"training does not fit into memory ({str(error).splitlines()[0]}); lower num_envs, num_steps, or the sizes of "
            "networks and replay buffers"
        ) from None


@contextmanager
def precision(run):
    """Allow TF32 in matrix products while a run trains, if its settings ask for it."""
    wanted = {getattr(settings, "precision", "float32") for settings in run.settings.values()}
    before = torch.get_float32_matmul_precision()
    if "tf32" in wanted:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
