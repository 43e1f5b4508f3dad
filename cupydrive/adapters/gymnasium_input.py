"""What the adapter to Gymnasium takes: environments, seeds, options and actions, and the errors
that its users expect.

Letters: N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import gymnasium
import torch
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from cupydrive import envs
from cupydrive.drawing.frames import check_drawable
from cupydrive.errors import ActionError, OrderError, ParameterError, did_you_mean
from cupydrive.executors.interop import as_numpy
from cupydrive.inputs.arguments import (
    INT32,
    checked_choice,
    checked_int,
    checked_mapping,
    errors_as,
    kind_of,
    shown,
)
from cupydrive.simulation.snapshots import checked_values
from cupydrive.simulation.vector import VectorEnv
from cupydrive.spec import EnvSpec, Group

# of one agent
SingleResults: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict]
RENDER_MODES = ("rgb_array",)


class InvalidAction(ActionError, error.InvalidAction):
    """An action is not of the action space."""


class ResetNeeded(OrderError, error.ResetNeeded):
    """``step`` came before ``reset``, or after an episode's end."""


class Closed(OrderError, error.ClosedEnvironmentError):
    """A call came after ``close``."""


class InvalidReset(ParameterError, error.Error):
    """A seed or an option of ``reset`` is wrong."""


def one_agent(
    env: str | Path | EnvSpec,
    params: Mapping[str, object],
    render_mode: str | None,
    call: Callable | None = None,
) -> EnvSpec:
    """Return the ``EnvSpec`` of ``env`` if it has one agent and can be rendered as asked; ``call``
    takes ``params``.
    """
    spec = envs.get(env)
    spec.require_known(params, call)
    groups = spec.groups(spec.make_params(**params))
    if (agents := sum(g.count for g in groups)) != 1:
        raise ParameterError(
            f"{spec.name} has {agents} agents, Gymnasium's environments have one; use "
            "cupydrive.pettingzoo.ParallelEnv, or cupydrive.make for tensors of all agents"
        )
    check_rendering(spec, render_mode)
    return spec


def asked_limit(env: gymnasium.Env, caller: FrameType | None, params: dict) -> dict:
    """Return ``params`` with the time limit that ``gymnasium.make`` was asked for, if ``caller`` is
    that call or within it.

    It keeps ``max_episode_steps`` for its ``TimeLimit``, which can only end an episode early: the
    kernel must know the limit to go on longer, to set ``env.last_step`` and to write metrics at the
    end. ``env`` is the environment that is being made.
    """
    while caller is not None:
        owner = caller.f_locals.get("self")
        if isinstance(owner, gymnasium.Env) and owner is not env:  # a part of another environment
            break
        if caller.f_code is gymnasium.make.__code__:
            asked = caller.f_locals["max_episode_steps"]
            known = getattr(caller.f_locals.get("env_spec"), "max_episode_steps", None)
            if asked is None or (asked == -1 and known is None):
                return params if known is None else {"max_episode_steps": known} | params
            # -1: without a TimeLimit
            return params | {"max_episode_steps": INT32 if asked == -1 else asked}
        caller = caller.f_back
    return params


def checked_seed(seed: int | None) -> int | None:
    """Return a seed as an int, or None; raise ``InvalidReset`` for what is neither."""
    with errors_as(InvalidReset):
        return None if seed is None else checked_int("reset", "seed", seed, 0, 2**64 - 1)


def check_rendering(spec: EnvSpec, mode: str | None) -> None:
    """Raise if ``mode`` is neither None nor one in which an environment can be drawn."""
    if mode is not None:
        checked_choice("cupydrive", "render_mode", mode, RENDER_MODES)
        check_drawable(spec)


def metadata(spec: EnvSpec) -> dict:
    """Return what an environment says of its rendering."""
    return {
        "render_modes": list(RENDER_MODES if spec.display.draw else ()),
        "render_fps": spec.display.fps,
    }


def checked_options(options: dict | None, known: Sequence[str]) -> dict:
    """Return ``options`` as a dictionary, or raise ``InvalidReset`` for those that are unknown."""
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise InvalidReset(f"options is {kind_of(options)}; it must be a dict or None")
    for name in options:
        if name not in known:
            raise InvalidReset(
                f"options: unknown option {shown(name)}.{did_you_mean(name, known)} There are: "
                f"{', '.join(known)}"
            )
    return options


def begin_episodes(
    env: VectorEnv,
    seed: int | None,
    state: dict[str, ArrayLike] | None = None,
    mask: ArrayLike | None = None,
) -> None:
    """Reset a ``cupydrive.VectorEnv`` and start from ``state``; raise ``InvalidReset`` before
    anything has changed.
    """
    try:
        fields = {} if state is None else checked_mapping("reset", "options['state']", state)
        checked_values(env, **fields)
        if mask is not None and state is not None:
            raise InvalidReset(
                "options: got 'reset_mask' and 'state', expected one of them; call reset() twice"
            )
        env.reset(seed=seed, mask=mask)
        if state is not None:
            env.set_state(**fields)
    except OrderError as wrong:
        raise (Closed if env._closed else ResetNeeded)(str(wrong)) from None
    except ParameterError as wrong:
        raise InvalidReset(str(wrong)) from None


def by_parts(group: Group, action: object) -> bool:
    """Return whether an action is the tuple of parts of a ``Tuple``."""
    return isinstance(group.action_space, spaces.Tuple) and isinstance(action, tuple | list)


def as_tuple(group: Group, action: Any) -> tuple:
    """Return the parts of an action, of which one that is not by parts has itself alone."""
    return tuple(action) if by_parts(group, action) else (action,)


def in_one_row(group: Group, parts: Sequence[torch.Tensor], num_envs: int) -> torch.Tensor:
    """Return the parts of actions as kernels have them, (N, H): all choices, then all numbers.

    Args:
        group: The ``Group``.
        parts: (N, *shape of the part) tensors.
        num_envs: N.

    Raises:
        ActionError: If one is missing or has another shape.
    """
    found = [tuple(part.shape) for part in parts]
    wanted = [(num_envs, *part.shape) for part in group.action_parts]
    if found != wanted:
        raise ActionError(
            f"the action of {group.name!r}: got parts of shapes {found}, expected {wanted}"
        )
    order = sorted(range(len(parts)), key=lambda k: isinstance(group.action_parts[k], spaces.Box))
    return torch.cat([parts[k].reshape(len(parts[k]), -1) for k in order], dim=1)


def stepped(
    env: VectorEnv, actions: ArrayLike | torch.Tensor, validate: bool, autoreset: bool = True
) -> SingleResults:
    """Step a ``cupydrive.VectorEnv`` with any array of actions, or a tuple of those of a ``Tuple``;
    raise ``InvalidAction``, ``ResetNeeded`` or ``Closed``.
    """
    group = env.groups[0]

    def tensor_of(given: ArrayLike | torch.Tensor) -> torch.Tensor:
        if isinstance(given, torch.Tensor) and given.device.type != "meta":
            return given.to(env.device)
        return torch.from_numpy(as_numpy(env.spec.name, "the action", given)).to(env.device)

    try:
        if by_parts(group, actions):
            parts = [tensor_of(part) for part in as_tuple(group, actions)]
            tensor = in_one_row(group, parts, env.num_envs)
            tensor = tensor.reshape(-1, *group.action_shape[1:])
        else:
            tensor = tensor_of(actions)
        if group.continuous and tensor.dtype == torch.float64:
            tensor = tensor.float()  # NumPy makes float64 of Python's floats
        if validate and group.continuous and bool(tensor.isnan().any()):
            raise InvalidAction(
                f"the action of environment {tensor.isnan().nonzero()[0, 0].item()} is NaN"
            )
        return env.step(tensor, autoreset=autoreset)
    except OrderError as wrong:
        raise (Closed if env._closed else ResetNeeded)(str(wrong)) from None
    except (ActionError, ParameterError, TypeError) as wrong:
        raise InvalidAction(f"{wrong}. The space is {group.action_space}") from None


def at_limit(
    env: VectorEnv, terminated: torch.Tensor, truncated: torch.Tensor, info: dict
) -> torch.Tensor:
    """Return where the time limit was reached, (N,) bool: also where the task ended in the same
    step, as Gymnasium has it.
    """
    if env.spec.time_limit == "terminates":
        return truncated
    return truncated | (terminated & (info["episode"]["length"] >= env.params.max_episode_steps))


def check_render(env: VectorEnv, mode: str | None) -> None:
    """Raise ``gymnasium.error.Error`` if an environment was made without a mode of rendering, or is
    closed.
    """
    if mode is None:
        raise error.Error("render() needs render_mode='rgb_array' when the environment is made")
    if env._closed:
        raise Closed("render() after close(); make a new environment")


def checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return Gymnasium's ``AutoresetMode`` of a member or its name, such as ``"same_step"``."""
    modes = {known.name.lower(): known for known in AutoresetMode}
    name = mode.name.lower() if isinstance(mode, AutoresetMode) else mode
    return modes[checked_choice("cupydrive", "autoreset_mode", name, modes)]
