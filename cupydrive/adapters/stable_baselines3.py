"""Adapter to Stable-Baselines3: a ``VecEnv`` over ``cupydrive.gymnasium.VectorEnv``.

SB3's algorithms work in NumPy on the host and limit the speed of training.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from cupydrive.adapters.gymnasium import PER_ENV_METHODS, VectorEnv
from cupydrive.adapters.gymnasium_input import InvalidReset, checked_seed
from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.names import NotCopied
from cupydrive.spec import EnvSpec

try:
    from stable_baselines3.common.vec_env import VecEnv as BaseVecEnv
except ImportError as missing:
    raise ImportError(
        "cupydrive.stable_baselines3 needs Stable-Baselines3: pip install stable-baselines3"
    ) from missing

Indices: TypeAlias = int | Iterable[int] | None  # SB3's type


class VecEnv(NotCopied, BaseVecEnv):
    """N single-agent environments as a Stable-Baselines3 ``VecEnv``.

    Where an episode has ended, ``infos`` has ``terminal_observation``, ``TimeLimit.truncated`` and
    ``episode`` (return, length, seconds), so that no monitor is needed. If actions have masks,
    ``infos`` has ``action_mask``, and ``env_method("action_masks")`` returns the masks for
    MaskablePPO of sb3-contrib.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        num_envs: Number of environments, N.
        **options: Options of ``cupydrive.gymnasium.VectorEnv``. SB3 needs the default ``arrays``
            and ``autoreset_mode``.

    Raises:
        ParameterError: If an argument is wrong, or the action space is a ``Tuple``.

    Examples:
        >>> from cupydrive.stable_baselines3 import VecEnv
        >>> from stable_baselines3 import PPO
        >>> env = VecEnv("cartpole", num_envs=8, device="cpu")
        >>> model = PPO("MlpPolicy", env, n_steps=32, device="cpu").learn(256)
        >>> model.num_timesteps
        256
    """

    instead = NotCopied.instead.replace("unwrapped.env", "unwrapped.env.env")

    def __init__(self, env: str | Path | EnvSpec, num_envs: int | str = 1, **options: Any) -> None:
        for name in {"arrays", "autoreset_mode"} & options.keys():
            raise ParameterError(
                f"VecEnv: got {name} = {shown(options[name])}, expected SB3's own. Leave {name} out"
            )
        self.env = VectorEnv(env, num_envs, **options)
        if isinstance(space := self.env.single_action_space, spaces.Tuple):
            self.env.close()
            raise ParameterError(
                f"VecEnv supports the action spaces Discrete, MultiDiscrete and Box: got {space}. "
                f"Use cupydrive.gymnasium.VectorEnv"
            )
        self._actions: np.ndarray | None = None
        self._start = time.perf_counter()
        super().__init__(
            self.env.num_envs, self.env.single_observation_space, self.env.single_action_space
        )

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Keep the seed for the next ``reset``. Each environment has its own random stream."""
        self._seeds = [checked_seed(seed)] * self.num_envs
        return self._seeds

    def reset(self) -> np.ndarray:
        """Begin new episodes and return observations (N, D).

        ``set_options`` takes ``{"state": {field: values}}``, one dictionary with the initial states
        of all environments. Options apply to one reset.

        Raises:
            InvalidReset: If the seed, an option or a state is wrong.
        """
        asked = self._options
        self._reset_options()
        if any(each is not asked[0] for each in asked if each or asked[0]):
            raise InvalidReset(
                "set_options: got a list, expected one dict for all environments, such as "
                "{'state': {'x': [0.0, 0.5]}}"
            )
        obs, info = self.env.reset(seed=self._seeds[0], options=asked[0] or None)
        self.reset_infos = self._infos(info)
        self._reset_seeds()
        return obs

    def _infos(self, info: Mapping) -> list[dict]:
        """Return a dictionary for each environment, with its action mask if there is one."""
        masks = info.get("action_mask", ())
        return [{"action_mask": mask} for mask in masks] or [{} for _ in range(self.num_envs)]

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for ``step_wait``."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        """Step the environments.

        Returns:
            ``(observations, rewards, dones, infos)``. ``infos`` is a list of N dictionaries.
        """
        info: dict
        obs, reward, terminated, truncated, info = self.env.step(self._actions)  # type: ignore[assignment]
        done, infos = terminated | truncated, self._infos(info)
        if done.any():
            log = self.env.env.step_results[4]["episode"]
            returns, lengths = log["return"].cpu().numpy(), log["length"].cpu().numpy()
            seconds = round(time.perf_counter() - self._start, 6)
            for i in np.nonzero(done)[0]:
                infos[i] |= {
                    "terminal_observation": info["final_obs"][i],
                    "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                    "episode": {"r": float(returns[i]), "l": int(lengths[i]), "t": seconds},
                }
        return obs, reward.astype(np.float32), done, infos

    def get_images(self) -> tuple[np.ndarray, ...]:
        """Return N frames (height, width, 3) uint8."""
        return self.env.render()

    def close(self) -> None:
        """Free the memory."""
        self.env.close()

    # Methods that SB3 calls for single environments. Here all environments are one object.

    def get_attr(self, attr_name: str, indices: Indices = None) -> list:
        """Return an attribute of the vector environment once for each index.

        Args:
            attr_name: Name of the attribute.
            indices: Indices of environments. Defaults to all.
        """
        return [getattr(self.env, attr_name)] * len(self._get_indices(indices))

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the vector environment, which all environments share.

        Args:
            attr_name: Name of an existing attribute.
            value: Value of the attribute.
            indices: Indices of all environments. Defaults to all.

        Raises:
            ParameterError: If there is no such attribute. Parameters of the environment are not
                attributes.
            NotImplementedError: If ``indices`` selects only some environments.
        """
        self._check_all("set_attr()", indices)
        self.env.set_attr(attr_name, [value] * self.num_envs)

    def env_method(
        self,
        method_name: str,
        *method_args: object,
        indices: Indices = None,
        **method_kwargs: object,
    ) -> list:
        """Call a method of the vector environment.

        Args:
            method_name: Name of the method.
            *method_args: Positional arguments of the method.
            indices: Indices of environments. Defaults to all.
            **method_kwargs: Keyword arguments of the method.

        Returns:
            One result per environment. If the method returns one result for all, it is repeated.
        """
        if method_name not in PER_ENV_METHODS:
            self._check_all("env_method()", indices)
        results = self.env.call(method_name, *method_args, **method_kwargs)
        return [results[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """Return False for each index, since wrappers of single environments do not apply.

        Args:
            wrapper_class: Class of a wrapper. It is ignored.
            indices: Indices of environments. Defaults to all.
        """
        return [False] * len(self._get_indices(indices))

    def _check_all(self, call: str, indices: Indices) -> None:
        if indices is not None and len(set(self._get_indices(indices))) != self.num_envs:
            raise NotImplementedError(
                f"{call}: got only some environments, which are one object. Leave indices out"
            )
