"""Settings of an algorithm that were given to ``train`` as if they were parameters: what is said of them."""

import warnings
from dataclasses import fields

from cupydrive import envs
from cupydrive.errors import CupydriveWarning
from cupydrive.inputs.arguments import shown
from cupydrive.training.algorithms import ALGORITHMS
from cupydrive.training.algorithms.pool import unpooled
from cupydrive.training.algorithms.settings import NAMES_ELSEWHERE, unknown_setting
from cupydrive.training.suggestions import suggested_algorithm, suggestion


def setting_hints(env, names, algorithm=None, policies=None):
    """Return by name what to say of settings of an algorithm that were given to ``train`` as if they were parameters.

    The algorithm that was asked for counts: a name that it has is its setting, also where another library means something else
    by it, and what is told to be passed is never another algorithm.

    Args:
        env: The environment, as ``train`` got it.
        names: What was given, settings or not; also by other libraries' names.
        algorithm: As ``train`` got it, not looked at yet: settings, a name or None.
        policies: As ``train`` got it, not looked at yet.
    """
    asked = asked_kinds(algorithm, policies)
    kinds = [*asked, *([] if asked else [ALGORITHMS[suggestion(env).algorithm]]), *ALGORITHMS.values()]
    hints = {}
    for name in names:
        kind, ours = next(((kind, ours) for kind in kinds if (ours := meant(name, kind))), (None, None))
        if kind is None or ours == "policy":  # whose policy is meant is an argument of train
            continue
        about = f"{ours} is a setting of {kind.__name__}"
        if asked and kind not in asked:
            hints[name] = f"{about}. {unknown_setting(next(iter(asked)), name)}"
        else:
            place, end = asked.get(kind) or called(env, kind), "" if asked.get(kind) else KEEPS
            hints[name] = f"{about}; pass {place}, {ours}=...){end}"
    return hints


KEEPS = ", which keeps the others that the environment suggests"


def called(env, kind):
    """Return the beginning of an argument of ``train``: what the environment suggests for an algorithm."""
    chosen = "" if kind.name == suggestion(env).algorithm else f", {kind.name!r}"
    return f"algorithm=cupydrive.suggested_algorithm({envs.get(env).name!r}{chosen}"


def asked_kinds(algorithm, policies):
    """Return, by class of the settings that ``train`` was asked to learn by, the beginning of what gives them.

    That is empty where an algorithm was asked for by its name. Algorithms that do not ship are left out.
    """
    if isinstance(algorithm, str):
        return {kind: "" for name, kind in ALGORITHMS.items() if name == algorithm.lower()}
    given = {group: unpooled(settings) for group, settings in policies.items()} if isinstance(policies, dict) else {}
    found = {type(each): f"policies={{{group!r}: {type(each).__name__}(..." for group, each in given.items()}
    found |= {type(algorithm): f"algorithm={type(algorithm).__name__}(..."}
    return {kind: words for kind, words in found.items() if kind in ALGORITHMS.values()}


def meant(name, kind):
    """Return the setting of an algorithm that is called ``name``, here or else in another library; None: there is none."""
    known = [f.name for f in fields(kind)]
    return next((ours for ours in (name, NAMES_ELSEWHERE.get(name)) if ours in known), None)


def warn_of_two_meanings(env, params, algorithm=None, policies=None, who="train"):
    """Warn, on behalf of ``who`` called this, of parameters whose names are settings of the algorithm, too.

    Who gives the settings by themselves, as ``DDPG(...)``, means the environment by a name beside them: nothing is said.
    """
    named = isinstance(algorithm, str) and algorithm.lower() in ALGORITHMS  # else members may name others
    if policies is not None or not (algorithm is None or named):
        return
    settings = suggested_algorithm(env, algorithm)
    known, call = [f.name for f in fields(settings)], called(env, type(settings))
    for name in [name for name in params if name in known]:
        warnings.warn(
            f"{who}: {name} = {shown(params[name])} is taken for the parameter of {envs.get(env).name}; "
            f"{type(settings).__name__} has a setting {name}, too. For the setting pass {call}, {name}=...); for the "
            f"parameter, without this warning, {call}), {name}=...",
            CupydriveWarning,
            stacklevel=3,
        )
