"""Names of arguments that nothing has: which one may have been meant, also where another library calls it otherwise."""

import inspect

from cupydrive.errors import ParameterError, did_you_mean
from cupydrive.inputs.arguments import shown

# What Gymnasium, Stable-Baselines3 and others call arguments of ours, where spelling alone would not lead to our name. Of
# several the one counts that the call has.
ELSEWHERE = {
    **dict.fromkeys(("total_timesteps", "timesteps", "num_timesteps", "total_steps", "env_steps"), ("steps",)),
    **dict.fromkeys(("n_eval_episodes", "num_episodes"), ("episodes",)),
    **dict.fromkeys(("policy", "agent", "model"), ("policies", "players")),
    **dict.fromkeys(("agents", "settings", "policies"), ("policies", "players")),
    **dict.fromkeys(("save_path", "log_dir", "logdir", "tensorboard_log"), ("out",)),
    "deterministic": ("greedy",),
    **dict.fromkeys(("sample", "stochastic"), ("greedy=False",)),
    "verbose": ("progress",),
    "n_envs": ("num_envs",),
}
# What is no argument, and where it goes instead.
INSTEAD = {
    **dict.fromkeys(
        ("render_mode", "render"), "env.view() shows episodes, and cupydrive.render(env, 'FILE.mp4') writes a video"
    ),
    "gpus": "on the command line there is `cupydrive train ... --gpus`; in Python start the processes by torchrun",
}


def unknown_parameter(env, name, known, call=None, hint=""):
    """Return what to say of a name in ``**params`` that is no parameter.

    Args:
        env: Name of the environment.
        name: What was given.
        known: Names of its parameters.
        call: The function whose ``**params`` they are; one of its own arguments may have been meant.
        hint: What the caller knows of that name, instead of a guess.
    """
    arguments, meant = arguments_of(call), argument_elsewhere(name, call)
    hint = hint or (INSTEAD.get(name, "") if call else "")
    if hint:
        said = f": {hint}."
    else:
        said = f".{f' Did you mean {meant!r}?' if meant else did_you_mean(name, [*known, *arguments])}"
    return f"{env} has no parameter {shown(name)}{said} It has: {', '.join(known)}"


def no_attribute(thing, name):
    """Return the ``AttributeError`` of an attribute that an object does not have, with what there is instead of it."""
    said = f"{type(thing).__name__!r} object has no attribute {name!r}"
    return AttributeError(f"{said}: {INSTEAD[name]}" if name in INSTEAD else said, name=name, obj=thing)


class NotCopied:
    """Base class of objects that own memory which kernels write: ``copy`` and ``pickle`` raise ``ParameterError``."""

    instead = (  # why, and what to do
        "it owns memory that kernels write. Keep a state with env.snapshot() (of an adapter: env.unwrapped.env.snapshot()) and "
        "call restore(snapshot) on this environment or on another from cupydrive.make(...). Keep a run with run.save(folder) "
        "and cupydrive.load(folder)"
    )

    def __reduce_ex__(self, protocol: int):
        """Raise ``ParameterError``, from ``copy.copy``, ``copy.deepcopy`` and ``pickle``."""
        raise ParameterError(f"{type(self).__name__} cannot be copied or pickled: {self.instead}")


def argument_elsewhere(name, call):
    """Return the argument of a function that another library calls ``name``, as one writes it; None: there is none."""
    arguments = arguments_of(call)
    return next((ours for ours in ELSEWHERE.get(name, ()) if ours.partition("=")[0] in arguments), None)


def arguments_of(call):
    """Return the names of a function's own arguments, without those of ``**params``; of None there are none."""
    parameters = inspect.signature(call).parameters if call else {}
    return [name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD]
