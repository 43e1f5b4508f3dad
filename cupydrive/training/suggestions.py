"""How an environment suggests to be trained: by which algorithm, with which settings, how many copies, how many env-steps."""

from dataclasses import dataclass

from cupydrive import envs
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_str, shown
from cupydrive.protocols import LearnerSettings

DEFAULTS = {"algorithm": "ppo", "num_envs": 1024, "steps": 1_000_000}


@dataclass(frozen=True)
class Suggestion:
    """What an environment suggests for one algorithm, or defaults where it says nothing.

    Args:
        algorithm: Its name.
        num_envs: N.
        steps: Env-steps.
        settings: By name, those that differ from the algorithm's own.
    """

    algorithm: str
    num_envs: int
    steps: int
    settings: dict


def suggestion(env, name=None):
    """Return the ``Suggestion`` of an environment for the algorithm called ``name``, by default the one that it suggests.

    One of which it says nothing gets the numbers that it says of all, and no settings.
    """
    said = {**DEFAULTS, **envs.get(env).training}
    name = said["algorithm"] if name is None else name
    own = dict(said[name]) if isinstance(said.get(name), dict) else {}
    sizes = {size: own.pop(size, said[size]) for size in ("num_envs", "steps")}
    return Suggestion(name, settings=own, **sizes)


def all_suggestions(env):
    """Return the ``Suggestion`` for each algorithm of which the environment says something, that of its own choice first."""
    said = envs.get(env).training
    first = suggestion(env)
    others = [name for name, own in said.items() if isinstance(own, dict) and name != first.algorithm]
    return [first, *(suggestion(env, name) for name in others)]


def suggested_algorithm(env, name=None, /, **changed):
    """Return the settings that an environment suggests, to train with all of them but those that you change.

    ``cd.PPO(gamma=0.9)`` takes nothing from the environment: what it does not name are the algorithm's own defaults.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        name: ``"ppo"``, ``"a2c"``, ``"ddpg"``, or None: the algorithm that the environment suggests.
        **changed: Settings that differ.

    Returns:
        ``PPO``, ``A2C`` or ``DDPG``.

    Raises:
        ParameterError: If there is no such environment, algorithm or setting, or a value does not fit.
    """
    from cupydrive.training.algorithms import ALGORITHMS  # torch: who only asks for numbers does without

    name = None if name is None else checked_str("suggested_algorithm", "name", name).lower()
    about = suggestion(env, name)
    if about.algorithm not in ALGORITHMS:
        raise ParameterError(f"there is no algorithm {shown(name)}. There are: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[about.algorithm](**{**about.settings, **changed})


def suggested_sizes(env, policies):
    """Return the ``Suggestion`` whose copies and env-steps are meant for policies that learn together.

    Of several algorithms it is that of the one with most env-steps: the others have learnt by then, too.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        policies: Settings by policy name; where nobody learns, what the environment suggests counts.
    """
    learning = [settings.name for settings in policies.values() if isinstance(settings, LearnerSettings)]
    return max((suggestion(env, name) for name in learning or [None]), key=lambda each: each.steps)
