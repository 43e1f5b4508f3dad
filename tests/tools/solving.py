"""How soon an environment is learnt: seconds of training until greedy episodes reach its mark,
evaluations not counted.
"""

import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from cupydrive import envs
from cupydrive.errors import ParameterError
from cupydrive.terminal.progress import Silent
from cupydrive.training.begin import make_run
from cupydrive.training.loop import Loop
from cupydrive.training.together import Alone

EPISODES = 1000  # whose mean has to reach the mark
FIRST_LOOK = 64  # episodes that are looked at first, so that most evaluations are short
SLACK = 0.05  # share of the mark by which their mean may miss it


def marks():
    """Return the mean return that counts as solved, by name of each environment that says one."""
    found = {name: envs.get(name).reward_threshold for name in envs.names()}
    return {name: mark for name, mark in found.items() if mark is not None}


@dataclass(frozen=True)
class Solved:
    """One training.

    Args:
        set_up: Seconds before the first iteration: environments, kernels, weights, on a GPU the
            capture.
        first_iteration: Seconds, of the first logged interval where several iterations are one; on
            a GPU with those that were queued behind it.
        seconds: From the beginning to the mark, set-up included; None: the env-steps ended before.
        env_steps: Until the mark, or all.
        mean: Return of the greedy episodes of the last evaluation.
    """

    set_up: float
    first_iteration: float
    seconds: float | None
    env_steps: int
    mean: float

    @property
    def training(self):
        """Seconds from the end of set-up to the mark, or None."""
        return None if self.seconds is None else self.seconds - self.set_up


class _Reached(Exception):
    """Ends training at the mark."""


def solve(env, mark=None, algorithm=None, *, steps=None, every=2, **options):
    """Train until greedy episodes of the policy reach a mark, and return how long that took as
    ``Solved``.

    Evaluations have environments of their own, and are not counted: what is trained is the run that
    ``train`` trains. A GPU finishes what is queued before each of them, so that no iteration runs
    meanwhile and is not counted either.

    Args:
        env: Name of an environment with one group.
        mark: Mean return to reach; None: the environment's own.
        algorithm: As of ``train``; None: what the environment suggests.
        steps: Env-steps at most; None: as many as the environment suggests for the algorithm.
        every: Logged intervals between evaluations.
        **options: Of ``train``: ``num_envs``, ``seed``, ``device``, ``backend``, parameters.
    """
    begun = time.perf_counter()
    mark = envs.get(env).reward_threshold if mark is None else mark
    if mark is None:
        raise ParameterError(
            f"{envs.get(env).name} says no mark; pass mark=, the mean return that counts as solved"
        )
    run = make_run(env, algorithm, **options)
    times, evaluating, mean, looks = {}, 0.0, math.nan, 0

    def reached():
        nonlocal mean
        for episodes, wanted in ((FIRST_LOOK, mark - SLACK * abs(mark)), (EPISODES, mark)):
            mean = run.evaluate(episodes).mean(run.batch.groups[0].name)[0]
            if mean < wanted:
                return False
        return True

    def look(step, metrics, number):
        nonlocal evaluating, looks
        run.batch.executor.synchronize()
        now = time.perf_counter()
        if not times:
            times["set_up"], times["first_iteration"] = loop.started - begun, now - loop.started
        looks += 1
        if looks % every == 0:
            if reached():
                times["seconds"] = now - begun - evaluating
                raise _Reached
            evaluating += time.perf_counter() - now

    run.total = steps or run.config.steps
    loop = Loop(Alone(run), [replace(run.config, steps=run.total)], Silent(), look)
    with suppress(_Reached):
        loop.go()
    return Solved(times["set_up"], times["first_iteration"], times.get("seconds"), run.step, mean)
