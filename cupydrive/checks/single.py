"""One number of one step of one environment, as the NumPy reference gives it."""

import warnings
from dataclasses import dataclass

import numpy as np

from cupydrive.checks.answers import answer
from cupydrive.checks.checker import for_reference
from cupydrive.errors import CupydriveError, SpecError
from cupydrive.random import DYNAMICS, RandomStream


@dataclass(frozen=True, eq=False)
class TakenStep:
    """What a kernel was given for one step of one environment, and what it made of it; arrays have a first axis of 1.

    Args:
        seed: Of all environments.
        env: Global id of this one.
        state: ``struct State`` before the step.
        clock: Episode, elapsed and time before it.
        action: By group: (1, C, H).
        after: ``struct State`` after it; where the episode ended, of the next one.
        over: Whether the episode ended.
    """

    seed: int
    env: int
    state: np.ndarray
    clock: np.ndarray
    action: dict
    after: np.ndarray
    over: bool


def reference_number(spec, params, taken, kind, name, index):
    """Return what the reference has for one number after a step, from the same state with the same actions.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        taken: ``TakenStep``.
        kind: ``"state"``, ``"reward"``, ``"obs"`` or ``"final_obs"``.
        name: Of the member of ``State``, or of the group.
        index: Where in it, as a tuple: of a member its own indices, of a group agent and entry.

    Returns:
        The number as a float, and None; or None, and in words why there is none.
    """
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = reference_values(spec, params, taken, kind, name)
            return float(np.asarray(values)[(0, *index)]), None
    except CupydriveError as error:
        return None, str(error)
    except Exception as error:  # the function is the user's, and has been given numbers that are none
        return None, f"the reference raises {type(error).__name__}: {error}"


def asked(spec, name, *given):
    """Return what a function of an environment's reference gives."""
    if getattr(spec, name) is None:
        raise SpecError(f"the environment has no reference `{name}`")
    return answer(spec, name, *given)


def reference_values(spec, params, taken, kind, name):
    """Return the array (1, ...) of which ``reference_number`` takes one number."""
    ids, episode, elapsed = np.array([taken.env]), taken.clock["episode"], taken.clock["elapsed"] + 1
    if kind == "state" and taken.over:
        return asked(spec, "reset", params, RandomStream(taken.seed, ids, episode))[name]
    if kind == "obs":  # of the kernel's own state
        seen = asked(spec, "observe", params, taken.after, np.zeros_like(elapsed) if taken.over else elapsed)
        return seen.obs[name]
    if kind == "state" and spec.observe is not None:
        seen = asked(spec, "observe", params, taken.after, elapsed)
        if name in seen.state:
            return seen.state[name]
    stream = RandomStream(taken.seed, ids, episode - 1, elapsed, DYNAMICS)
    action = for_reference(spec.groups(params), taken.action)
    want = asked(spec, "step", params, taken.state, action, elapsed, stream)
    if kind == "reward":
        return want.reward[name]
    if kind == "state":
        if name not in want.state:
            raise SpecError("the environment has no reference `observe`, which would compute it")
        return want.state[name]
    final = np.zeros(1, spec.state_dtype(params))
    for field in final.dtype.names:
        final[field] = want.state.get(field, taken.after[field])
    return asked(spec, "observe", params, final, elapsed).obs[name]


def after_reset(seed, env, state, clock):
    """Return the ``TakenStep`` that ended the episode before, of an environment that has just been reset."""
    before = clock.copy()
    before["episode"] -= 1
    return TakenStep(seed, env, None, before, {}, state, True)
