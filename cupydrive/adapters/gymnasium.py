"""Adapter to Gymnasium: ``VectorEnv``, ``Env`` and the registry.

Importing this module registers every single-agent environment as ``cupydrive/NAME-v0``, for
``gymnasium.make`` and ``gymnasium.make_vec``. Letters: N environments, D observation entries, H
action heads.
"""

from __future__ import annotations

import sys
from collections import deque
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

import cupydrive
from cupydrive import envs
from cupydrive.adapters.gymnasium_input import (
    RENDER_MODES,
    InvalidAction,
    ResetNeeded,
    as_tuple,
    asked_limit,
    at_limit,
    begin_episodes,
    by_parts,
    check_render,
    checked_mode,
    checked_options,
    checked_seed,
    metadata,
    one_agent,
    stepped,
)
from cupydrive.drawing.frames import picture
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import as_numpy
from cupydrive.inputs.arguments import checked_bool, checked_choice, errors_as, shown
from cupydrive.inputs.names import NotCopied
from cupydrive.spec import EnvSpec

NAMESPACE = "cupydrive"
# methods of a VectorEnv whose results have one entry for each environment
PER_ENV_METHODS = ("action_masks", "render")


class VectorEnv(NotCopied, gymnasium.vector.VectorEnv):
    """N single-agent environments as a ``gymnasium.vector.VectorEnv``.

    By default an environment is reset in the step that ends its episode. If actions have masks,
    ``info["action_mask"]`` is (N, choices) int8, and ``action_masks()`` returns it as bool.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        num_envs: Number of environments, N.
        arrays: ``"numpy"``, or ``"torch"`` for tensors on the environment's device without
            synchronization. With ``"torch"``, ``info["final_obs"]`` is (N, D), and only the rows
            of ``info["_final_obs"]`` are valid.
        copy: Return copies. Otherwise NumPy or torch views of memory that later steps overwrite.
        device: Same as in ``cupydrive.make``.
        render_mode: ``"rgb_array"`` or None.
        validate: Raise an error for actions outside the action space, for NaN, and for actions that
            the action mask forbids. With ``arrays="torch"`` on a GPU this synchronizes in each
            step.
        autoreset_mode: ``"same_step"``, ``"next_step"`` or ``"disabled"``, as in Gymnasium's
            ``AutoresetMode``. The kernels implement ``"same_step"``. ``"next_step"`` costs an
            additional launch and an additional step.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If the environment has several agents, or an argument is wrong.

    Examples:
        >>> from cupydrive.gymnasium import VectorEnv
        >>> envs = VectorEnv("cartpole", num_envs=8, device="cpu")
        >>> obs, infos = envs.reset(seed=0)
        >>> obs, rewards, terminations, truncations, infos = envs.step([0] * 8)
        >>> obs.shape, rewards.shape
        ((8, 4), (8,))
    """

    # Gymnasium up to 1.2 calls `close` in `__del__` even if `__init__` has failed. True makes that
    # call do nothing.
    closed = True

    def __init__(
        self,
        env: str | Path | EnvSpec,
        num_envs: int | str = 1,
        *,
        arrays: str = "numpy",
        copy: bool = True,
        device: str = "auto",
        render_mode: str | None = None,
        validate: bool = True,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        **params: Any,
    ) -> None:
        checked_choice("cupydrive", "arrays", arrays, ("numpy", "torch"))
        copy, validate = (
            checked_bool("cupydrive", "copy", copy),
            checked_bool("cupydrive", "validate", validate),
        )
        self.autoreset_mode = checked_mode(autoreset_mode)
        spec = one_agent(env, params, render_mode, VectorEnv)
        looks = validate and bool(spec.groups(spec.make_params(**params))[0].sizes)
        self.env = cupydrive.make(spec, num_envs, device=device, validate=looks, **params)
        # Gymnasium's environments clip a Box. Only NaN is an error, which `stepped` raises.
        self.env._read.check_boxes = False
        self.closed = False
        num_envs = self.num_envs = self.env.num_envs
        self.render_mode = render_mode
        self._ended = torch.zeros(num_envs, dtype=torch.bool, device=self.env.device)
        self.group, self.arrays, self.copy, self.validate = (
            self.env.groups[0],
            arrays,
            copy,
            validate,
        )
        self.metadata = metadata(spec) | {"autoreset_mode": self.autoreset_mode}
        if self.group.mask:  # libraries test for the attribute, so it exists only with masks
            self.action_masks = lambda: self._give(current_mask(self.env)[:, 0])
        self.single_observation_space = self.group.observation_space
        self.single_action_space = deepcopy(self.group.action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray | torch.Tensor, dict]:
        """Begin new episodes and return ``(observations, infos)``.

        Args:
            seed: Random seed of all environments, in [0, 2**64). Each environment has its own
                random stream.
            options: ``{"reset_mask": (N,) bool}`` selects the environments to reset.
                ``{"state": {field: values}}`` sets the initial states, as in
                ``cupydrive.VectorEnv.set_state``.

        Returns:
            Observations (N, *obs_shape) and a dictionary, NumPy arrays or torch tensors.

        Raises:
            InvalidReset: If the seed, an option or a state is wrong. It is a
                ``gymnasium.error.Error`` and a ``ValueError``.
        """
        options, seed = checked_options(options, ("reset_mask", "state")), checked_seed(seed)
        mask = options.get("reset_mask")
        begin_episodes(self.env, seed, options.get("state"), mask)
        super().reset(seed=seed)
        begun = torch.as_tensor(True if mask is None else mask, device=self.env.device)
        self._ended = self._ended & ~begun
        obs, info = self.env._shown()
        return self._give(obs), self._masks(info)

    def step(self, actions: ArrayLike | torch.Tensor) -> tuple[np.ndarray | torch.Tensor, ...]:
        """Step all environments.

        Args:
            actions: NumPy array, torch tensor or sequence. (N,) ints for Discrete, (N, H) for
                other spaces, and a tuple of such arrays for Tuple. Values of a Box are clipped.

        Returns:
            ``(observations, rewards, terminations, truncations, infos)``.

        Raises:
            InvalidAction: If actions are outside the action space, or NaN in a Box. The
                environments are unchanged then.
            ResetNeeded: Before the first ``reset``. With ``"disabled"`` autoreset and
                ``validate=True`` also if an environment has ended.
        """
        waiting = self._ended
        if self.autoreset_mode == AutoresetMode.DISABLED and self.validate and bool(waiting.any()):
            first = waiting.nonzero()[0, 0].item()
            raise ResetNeeded(
                f"environment {first} has ended. Reset it with options={{'reset_mask': ...}} first"
            )
        same_step = self.autoreset_mode == AutoresetMode.SAME_STEP
        obs, reward, terminated, truncated, info = stepped(
            self.env, actions, self.validate, same_step
        )
        over, infos = terminated | truncated, {}
        truncated = at_limit(self.env, terminated, truncated, info)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP and (
            self.arrays == "torch" or bool(waiting.any())
        ):
            # environments that had ended are reset and do not step
            obs, info = self.env.reset(mask=waiting)
            reward, terminated, truncated = (
                reward.where(~waiting, 0),
                terminated & ~waiting,
                truncated & ~waiting,
            )
            over &= ~waiting
        if not same_step:
            self._ended = over
        if self.arrays == "torch" or bool(over.any()):
            infos = self._final(info, over) if same_step else self._log(info, over)
        reward = self._give(reward)
        if self.arrays == "numpy":
            reward = reward.astype(np.float64)  # the type of Gymnasium's own environments
        return (
            self._give(obs),
            reward,
            self._give(terminated),
            self._give(truncated),
            infos | self._masks(info),
        )

    def _give(self, tensor: torch.Tensor) -> np.ndarray | torch.Tensor:
        """Convert a tensor to the requested kind of array."""
        if self.arrays == "torch":
            return tensor.clone() if self.copy else tensor
        array = tensor.cpu().numpy()
        return array.copy() if self.copy and self.env.device == "cpu" else array

    def _log(self, info: dict, over: torch.Tensor) -> dict:
        """Return the metrics of ended episodes by name, with Gymnasium's masks."""
        log: dict = {}
        for name in self.env.spec.metrics:
            log |= {
                name: self._give(info["episode"][name].where(over, 0)),
                f"_{name}": self._give(over),
            }
        return log

    def _final(self, info: dict, over: torch.Tensor) -> dict:
        """Return final observations and metrics in the layout of Gymnasium's vector classes."""
        ended, rows = self._give(over), self._give(info["final_obs"])
        if self.arrays == "numpy":
            last = np.full(self.num_envs, None, object)
            # one array for each environment that has ended
            last[ended] = np.fromiter(rows[ended], object)
            rows = last
        inner = self._log(info, over)
        return {
            "final_obs": rows,
            "_final_obs": ended,
            "final_info": inner,
            "_final_info": self._give(over),
        }

    def _masks(self, info: dict) -> dict:
        """Return the action masks, (N, choices) int8, if the environment has them."""
        if not self.group.mask:
            return {}
        mask = info["action_mask"][self.group.name][:, 0].to(torch.int8)
        return {"action_mask": self._give(mask), "_action_mask": np.ones(self.num_envs, bool)}

    def call(self, name: str, *args: object, **kwargs: object) -> tuple:
        """Call a method of this object, or get an attribute.

        Args:
            name: Name of the method or attribute.
            *args: Positional arguments of the method.
            **kwargs: Keyword arguments of the method.

        Returns:
            N results. They are equal except for ``action_masks`` and ``render``, since this object
            is shared by all environments.
        """
        found = getattr(self, name)
        result = found(*args, **kwargs) if callable(found) else found
        return tuple(result) if name in PER_ENV_METHODS else (result,) * self.num_envs

    get_attr = call  # Gymnasium does the same

    def set_attr(self, name: str, values: object) -> None:
        """Set an attribute of this object, which all environments share.

        Args:
            name: Name of an existing attribute.
            values: One value, or a list of N equal values.

        Raises:
            ParameterError: If there is no such attribute, or the values differ.
        """
        given = values if isinstance(values, list | tuple) else [values] * self.num_envs
        if not hasattr(self, name) or not len(given) == self.num_envs == given.count(given[0]):
            raise ParameterError(
                f"set_attr: got {name} = {shown(values)}, expected an attribute, and one value or "
                f"{self.num_envs} equal ones. Pass parameters to the constructor: "
                f"VectorEnv(..., {name}=...)"
            )
        setattr(self, name, given[0])

    def render(self) -> tuple[np.ndarray, ...]:
        """Return a tuple of N frames (height, width, 3) uint8."""
        check_render(self.env, self.render_mode)
        shown = self.env.batch.first_states(self.num_envs)
        states, elapsed = shown["states"], shown["elapsed"]
        spec, params = self.env.spec, self.env.params
        return tuple(
            picture(spec, params, states[[i]], int(elapsed[i])) for i in range(self.num_envs)
        )

    def close_extras(self, **kwargs: object) -> None:
        """Free the memory."""
        self.env.close()


class Env(NotCopied, gymnasium.Env):
    """One environment of one agent as a ``gymnasium.Env``.

    If its actions have masks, ``info["action_mask"]`` is (choices,) int8, and ``action_masks()``
    returns the same as bool.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        render_mode: ``"rgb_array"`` or None.
        device: Same as in ``cupydrive.make``. A single environment is faster on the CPU.
        validate: Also raise an error for actions that the action mask forbids. By default the
            kernel receives them, as in Gymnasium's own environments. Actions outside the action
            space and NaN always raise an error.
        **params: Parameters of the environment. ``gymnasium.make(..., max_episode_steps=...)`` also
            sets the kernel's ``max_episode_steps``.

    Raises:
        ParameterError: If the environment has several agents, or an argument is wrong.

    Examples:
        >>> import gymnasium
        >>> import cupydrive.gymnasium  # registers the environments
        >>> env = gymnasium.make("cupydrive/CartPole-v0")
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step(1)
        >>> obs.shape, reward
        ((4,), 1.0)
    """

    metadata = {"render_modes": list(RENDER_MODES)}  # noqa: RUF012 - gymnasium.make looks here first

    def __init__(
        self,
        env: str | Path | EnvSpec,
        render_mode: str | None = None,
        *,
        device: str = "cpu",
        validate: bool = False,
        **params: Any,
    ) -> None:
        params = asked_limit(self, sys._getframe(1), params)
        spec = one_agent(env, params, render_mode, Env)
        looks = bool(spec.groups(spec.make_params(**params))[0].sizes)
        self.env = cupydrive.make(spec, 1, device=device, validate=looks, **params)
        self.env._read.check_boxes = False
        self.env._read.check_masks = checked_bool("cupydrive", "validate", validate)
        self.render_mode, self.metadata, self.group = (
            render_mode,
            metadata(spec),
            self.env.groups[0],
        )
        self.observation_space, self.action_space = (
            self.group.observation_space,
            deepcopy(self.group.action_space),
        )
        self._over = False
        self._past: deque[np.ndarray] = deque(maxlen=spec.display.trail + 1)
        if self.group.mask:
            self.action_masks = lambda: current_mask(self.env)[0, 0].cpu().numpy().copy()

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[np.ndarray, dict]:
        """Begin a new episode and return ``(observation, info)``.

        Args:
            seed: Random seed in [0, 2**64). Restarts the random streams.
            options: ``{"state": {field: value}}`` sets the initial state.

        Returns:
            The observation, ``obs_shape``, and a dictionary with the action mask, if there is one.

        Raises:
            InvalidReset: If the seed, an option or the state is wrong. It is a
                ``gymnasium.error.Error`` and a ``ValueError``.
        """
        options, seed = checked_options(options, ("state",)), checked_seed(seed)
        begin_episodes(self.env, seed, options.get("state"))
        super().reset(seed=seed)
        self._over = False
        self._past.clear()
        obs: torch.Tensor = self.env.step_results[0]  # a single agent has a tensor, not a dict
        return obs[0].cpu().numpy().copy(), self._info()

    def step(self, action: ArrayLike | torch.Tensor) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Step the environment.

        Args:
            action: Int for Discrete, (H,) ints or floats for other spaces, and a tuple of such
                arrays for Tuple. Values of a Box are clipped.

        Returns:
            ``(observation, reward, terminated, truncated, info)``.

        Raises:
            InvalidAction: If the action is outside the action space, or NaN in a Box. The
                environment is unchanged then.
            ResetNeeded: Before ``reset``, or after the episode's end.
        """
        if self._over:
            raise ResetNeeded("step() after the end of the episode. Call reset() first")
        with errors_as(InvalidAction):
            of_one = as_tuple(self.group, action)
            parts = tuple(as_numpy(self.env.spec.name, "the action", x)[None] for x in of_one)
        given = parts if by_parts(self.group, action) else parts[0]
        results = stepped(self.env, given, True, autoreset=False)
        obs, reward, terminated, truncated, info = results
        ended = bool(terminated[0]), bool(at_limit(self.env, terminated, truncated, info)[0])
        self._over = any(ended)
        log = {
            name: info["episode"][name][0].item() for name in self.env.spec.metrics if self._over
        }
        return obs[0].cpu().numpy().copy(), reward[0].item(), *ended, self._info() | log

    def _info(self) -> dict:
        return {"action_mask": self.action_masks().astype(np.int8)} if self.group.mask else {}

    def render(self) -> np.ndarray:
        """Render a frame, (height, width, 3) uint8. Trails begin with the episode."""
        check_render(self.env, self.render_mode)
        shown = self.env.batch.first_states(1)
        self._past.append(shown["states"][0])
        return picture(
            self.env.spec, self.env.params, np.stack(self._past), int(shown["elapsed"][0])
        )

    def close(self) -> None:
        """Free the memory. Further calls do nothing."""
        self.env.close()


def current_mask(env: cupydrive.VectorEnv) -> torch.Tensor:
    """Return a view of the currently allowed choices, (N, 1, choices) bool."""
    env._check_ready("action_masks()")
    return env.step_results[4]["action_mask"][env.groups[0].name]


# ---- registry ------------------------------------------------------------------------------------


def register(env: str | Path | EnvSpec) -> str:
    """Register a single-agent environment with Gymnasium.

    Returns:
        Its id, ``cupydrive/TITLE-v0``.
    """
    spec = one_agent(env, {}, None)
    name = f"{NAMESPACE}/{spec.title}-v0"
    given = spec.name if spec.name in envs.names() else spec
    defaults = {f.name: f.default for f in fields(spec.params)}
    gymnasium.register(
        name,
        entry_point="cupydrive.gymnasium:Env",
        vector_entry_point="cupydrive.gymnasium:VectorEnv",
        # Gymnasium's TimeLimit only truncates. It is therefore not set for tasks that terminate at
        # their limit, nor if the limit is 0, since other parameters then determine it.
        max_episode_steps=defaults["max_episode_steps"] or None
        if spec.time_limit == "truncates"
        else None,
        kwargs={"env": given},
    )
    return name


for _name in envs.names():
    if sum(g.count for g in envs.get(_name).groups(envs.get(_name).make_params())) == 1:
        register(_name)
