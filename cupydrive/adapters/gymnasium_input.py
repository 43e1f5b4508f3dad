"""Validation of environments, seeds, options and actions for the adapter to Gymnasium.

The errors are also those that users of Gymnasium expect. Letters: N environments.
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

# results of a step with a single agent
SingleResults: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict]
RENDER_MODES = ("rgb_array",)


class InvalidAction(ActionError, error.InvalidAction):
    """An action is outside the action space."""


class ResetNeeded(OrderError, error.ResetNeeded):
    """``step`` was called before ``reset``, or after the end of an episode."""


class Closed(OrderError, error.ClosedEnvironmentError):
    """A method was called after ``close``."""


class InvalidReset(ParameterError, error.Error):
    """A seed or an option of ``reset`` is wrong."""


def one_agent(
    env: str | Path | EnvSpec,
    params: Mapping[str, object],
    render_mode: str | None,
    call: Callable | None = None,
) -> EnvSpec:
    """Return the ``EnvSpec`` of a single-agent environment.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        params: Parameters of the environment.
        render_mode: ``"rgb_array"`` or None.
        call: Function that takes ``params``, for messages.

    Raises:
        ParameterError: If it has several agents, or cannot be rendered in this mode.
    """
    spec = envs.get(env)
    spec.require_known(params, call)
    groups = spec.groups(spec.make_params(**params))
    if (agents := sum(g.count for g in groups)) != 1:
        raise ParameterError(
            f"number of agents of {spec.name}: got {agents}, expected 1. Use "
            "cupydrive.pettingzoo.ParallelEnv, or cupydrive.make for tensors of all agents"
        )
    check_rendering(spec, render_mode)
    return spec


def asked_limit(env: gymnasium.Env, caller: FrameType | None, params: dict) -> dict:
    """Return ``params`` with the time limit that the user passed to ``gymnasium.make``.

    ``gymnasium.make`` keeps ``max_episode_steps`` for its ``TimeLimit`` wrapper, which can only
    shorten an episode. The kernel needs the limit to run longer episodes, to set ``env.last_step``
    and to write metrics at the end.

    Args:
        env: Environment under construction.
        caller: Frame of its caller. ``params`` are unchanged if it is not within
            ``gymnasium.make``.
        params: Parameters of the environment.
    """
    while caller is not None:
        owner = caller.f_locals.get("self")
        if isinstance(owner, gymnasium.Env) and owner is not env:  # part of another environment
            break
        if caller.f_code is gymnasium.make.__code__:
            asked = caller.f_locals["max_episode_steps"]
            known = getattr(caller.f_locals.get("env_spec"), "max_episode_steps", None)
            if asked is None or (asked == -1 and known is None):
                return params if known is None else {"max_episode_steps": known} | params
            # -1 means no TimeLimit
            return params | {"max_episode_steps": INT32 if asked == -1 else asked}
        caller = caller.f_back
    return params


def checked_seed(seed: int | None) -> int | None:
    """Validate a seed, which is an int or None, or raise ``InvalidReset``."""
    with errors_as(InvalidReset):
        return None if seed is None else checked_int("reset", "seed", seed, 0, 2**64 - 1)


def check_rendering(spec: EnvSpec, mode: str | None) -> None:
    """Raise an error if an environment cannot be drawn in ``mode``. None is always valid."""
    if mode is not None:
        checked_choice("cupydrive", "render_mode", mode, RENDER_MODES)
        check_drawable(spec)


def metadata(spec: EnvSpec) -> dict:
    """Return the render modes and the frame rate of an environment."""
    return {
        "render_modes": list(RENDER_MODES if spec.display.draw else ()),
        "render_fps": spec.display.fps,
    }


def checked_options(options: dict | None, known: Sequence[str]) -> dict:
    """Return ``options`` as a dictionary, or raise ``InvalidReset`` for unknown options."""
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise InvalidReset(f"options: got {kind_of(options)}, expected a dict or None")
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
    """Reset a ``cupydrive.VectorEnv``, from the states ``state`` if they are given.

    An ``InvalidReset`` is raised before anything changes.
    """
    try:
        fields = {} if state is None else checked_mapping("reset", "options['state']", state)
        checked_values(env, **fields)
        if mask is not None and state is not None:
            raise InvalidReset(
                "options: got 'reset_mask' and 'state', expected one of them. Call reset() twice"
            )
        env.reset(seed=seed, mask=mask)
        if state is not None:
            env.set_state(**fields)
    except OrderError as wrong:
        raise (Closed if env._closed else ResetNeeded)(str(wrong)) from None
    except ParameterError as wrong:
        raise InvalidReset(str(wrong)) from None


def by_parts(group: Group, action: object) -> bool:
    """Return whether an action is a tuple of the parts of a ``Tuple`` space."""
    return isinstance(group.action_space, spaces.Tuple) and isinstance(action, tuple | list)


def as_tuple(group: Group, action: Any) -> tuple:
    """Return the parts of an action as a tuple. An action without parts is its only part."""
    return tuple(action) if by_parts(group, action) else (action,)


def in_one_row(group: Group, parts: Sequence[torch.Tensor], num_envs: int) -> torch.Tensor:
    """Concatenate the parts of actions in the kernels' order, (N, H): all choices, then all floats.

    Args:
        group: The ``Group``.
        parts: (N, *shape of the part) tensors.
        num_envs: Number of environments, N.

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
    """Step a ``cupydrive.VectorEnv``.

    Args:
        env: The ``VectorEnv`` of ``cupydrive.make`` inside an adapter. It validates discrete
            actions and masks.
        actions: Any array of actions, or a tuple with an array for each subspace of a ``Tuple``.
        validate: Also raise an error for NaN in continuous actions.
        autoreset: Reset environments in the step that ends their episode.

    Raises:
        InvalidAction: If actions are outside the action space.
        ResetNeeded: Before ``reset``.
        Closed: After ``close``.
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
            tensor = tensor.float()  # NumPy converts Python floats to float64
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
    """Return the environments that have reached the time limit, (N,) bool.

    As in Gymnasium, this includes environments whose task ended in the same step.
    """
    if env.spec.time_limit == "terminates":
        return truncated
    return truncated | (terminated & (info["episode"]["length"] >= env.params.max_episode_steps))


def check_render(env: VectorEnv, mode: str | None) -> None:
    """Raise ``gymnasium.error.Error`` if an environment is closed or has no render mode."""
    if mode is None:
        raise error.Error("render() needs render_mode='rgb_array' when the environment is made")
    if env._closed:
        raise Closed("render() after close(). Make a new environment")


def checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Convert a member of Gymnasium's ``AutoresetMode``, or its name, such as ``"same_step"``."""
    modes = {known.name.lower(): known for known in AutoresetMode}
    name = mode.name.lower() if isinstance(mode, AutoresetMode) else mode
    return modes[checked_choice("cupydrive", "autoreset_mode", name, modes)]
