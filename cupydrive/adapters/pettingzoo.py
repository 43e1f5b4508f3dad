"""Adapter to PettingZoo: a ``ParallelEnv`` over any environment.

Agents are named ``GROUP_INDEX``, such as ``tagger_0``, in the order of the groups.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike

import cupydrive
from cupydrive import envs
from cupydrive.adapters.gymnasium_input import (
    as_tuple,
    begin_episodes,
    check_rendering,
    checked_options,
    checked_seed,
    in_one_row,
    metadata,
)
from cupydrive.drawing.frames import picture
from cupydrive.errors import ActionError, OrderError, RenderError, did_you_mean
from cupydrive.executors.interop import as_numpy
from cupydrive.inputs.arguments import checked_choice, checked_mapping, errors_as, shown
from cupydrive.inputs.names import NotCopied
from cupydrive.protocols import Array
from cupydrive.spec import EnvSpec, Group

try:
    import pettingzoo
except ImportError as missing:
    raise ImportError("cupydrive.pettingzoo needs PettingZoo: pip install pettingzoo") from missing


class ParallelEnv(NotCopied, pettingzoo.ParallelEnv):
    """One environment as a ``pettingzoo.ParallelEnv``.

    An agent that leaves the game is terminated in that step, and ``agents`` does not contain it
    afterwards. If a group has masks, ``infos`` has the ``action_mask`` of its agents, int8. For
    several heads it is a tuple. The last step of an episode adds the environment's metrics.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        render_mode: ``"rgb_array"`` or None.
        device: Same as in ``cupydrive.make``. A single environment is faster on the CPU.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If an argument is wrong.

    Examples:
        >>> from cupydrive.pettingzoo import ParallelEnv
        >>> env = ParallelEnv("tag_grid", num_taggers=2)
        >>> observations, infos = env.reset(seed=0)
        >>> env.agents
        ['tagger_0', 'tagger_1', 'runner_0']
        >>> actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        >>> observations, rewards, terminations, truncations, infos = env.step(actions)
    """

    def __init__(
        self,
        env: str | Path | EnvSpec,
        render_mode: str | None = None,
        *,
        device: str = "cpu",
        **params: Any,
    ) -> None:
        spec = envs.get(env)
        spec.require_known(params, ParallelEnv)
        check_rendering(spec, render_mode)
        self.env = cupydrive.make(spec, 1, device=device, validate=False, **params)
        self.render_mode = render_mode
        self.agents: list[str] = []
        self.metadata = metadata(spec) | {"name": f"{spec.name}_v0", "is_parallelizable": True}
        self._place = {f"{g.name}_{i}": (g, i) for g in self.env.groups for i in range(g.count)}
        self.possible_agents = list(self._place)
        self.observation_spaces = {
            agent: g.observation_space for agent, (g, _) in self._place.items()
        }
        # copies, since each agent's space has its own seed
        self.action_spaces = {
            agent: deepcopy(g.action_space) for agent, (g, _) in self._place.items()
        }
        self._actions = {
            g.name: np.zeros((1, g.count, g.heads), g.action_dtype) for g in self.env.groups
        }
        self._past: deque[np.ndarray] = deque(maxlen=spec.display.trail + 1)
        size = sum(math.prod(f.shape) for f in spec.state(self.env.params))
        self.state_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def observation_space(self, agent: str) -> spaces.Space:
        """Return the agent's observation space, always the same object."""
        return self.observation_spaces[
            checked_choice("cupydrive", "agent", agent, self.observation_spaces)
        ]

    def action_space(self, agent: str) -> spaces.Space:
        """Return the agent's action space, always the same object."""
        return self.action_spaces[checked_choice("cupydrive", "agent", agent, self.action_spaces)]

    def reset(
        self, seed: int | None = None, options: dict | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict]]:
        """Begin a new episode and return ``(observations, infos)`` by agent.

        Args:
            seed: Random seed in [0, 2**64). Restarts the random streams.
            options: ``{"state": {field: value}}`` sets the initial state, as in
                ``cupydrive.VectorEnv.set_state``.

        Returns:
            Observations of ``obs_shape`` and dictionaries, by agent.

        Raises:
            InvalidReset: If the seed, an option or the state is wrong. It is a ``ParameterError``.
                Nothing has changed then.
        """
        # the example of PettingZoo's parallel_api_test
        if isinstance(options, dict) and list(options) == ["options"]:
            options = None
        begin_episodes(
            self.env, checked_seed(seed), checked_options(options, ("state",)).get("state")
        )
        self.agents = list(self.possible_agents)
        self._past.clear()
        return self._obs(self.env.batch.current_obs), self._infos(self.env.step_results[4])

    def step(
        self, actions: Mapping[str, ArrayLike | torch.Tensor]
    ) -> tuple[dict, dict, dict, dict, dict]:
        """Step the environment.

        Args:
            actions: Action of each live agent, in its action space.

        Returns:
            ``(observations, rewards, terminations, truncations, infos)`` of the agents that were in
            the game before the step.

        Raises:
            ActionError: If an action is missing or outside its space, or an agent is unknown. The
                environment is unchanged then.
            OrderError: Before ``reset``, or after the episode's end.
        """
        if not self.agents:
            raise OrderError("step() without agents in the game. Call reset() first")
        live = self.agents
        _, _, terminated, truncated, info = self.env.step(self._tensors(actions), autoreset=False)
        ended, cut = bool(terminated[0]), bool(truncated[0])
        left = {name: array[0].cpu().numpy() for name, array in info.get("left", {}).items()}
        gone = {
            agent: ended or (g.name in left and bool(left[g.name][i]))
            for agent, (g, i) in self._of(live)
        }
        truncations = {agent: cut and not gone[agent] for agent in live}
        written = self.env.batch.step_buffers[self.env.batch.now]
        observations, rewards = self._obs(written.obs), self._rows(written.reward)
        infos = self._infos(info)
        if ended or cut:
            log = {name: info["episode"][name][0].item() for name in self.env.spec.metrics}
            infos = {agent: given | log for agent, given in infos.items()}
        self.agents = [agent for agent in live if not (gone[agent] or truncations[agent])]
        return (
            observations,
            {agent: float(value) for agent, value in rewards.items()},
            gone,
            truncations,
            infos,
        )

    def _of(self, agents: Iterable[str]) -> Iterator[tuple[str, tuple[Group, int]]]:
        return ((agent, self._place[agent]) for agent in agents)

    def _tensors(
        self, actions: Mapping[str, ArrayLike | torch.Tensor]
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """Convert actions by agent to the environment's tensors."""
        with errors_as(ActionError):
            actions = checked_mapping(self.env.spec.name, "actions", actions)
        for agent in actions:
            if agent not in self.agents:
                why = "has left the game" if agent in self._place else "is unknown"
                raise ActionError(
                    f"actions: agent {shown(agent)} {why}.{did_you_mean(agent, self.agents)} In "
                    f"the game: {self.agents}"
                )
        for agent, (g, i) in self._of(self.agents):
            if agent not in actions:
                raise ActionError(
                    f"no action for agent {agent!r}. Pass one for each of {self.agents}"
                )
            where, parts = f"the action of {agent!r}", as_tuple(g, actions[agent])
            with errors_as(ActionError):
                parts = tuple(as_numpy(self.env.spec.name, where, part) for part in parts)
            boxes = [isinstance(space, spaces.Box) for space in g.action_parts]
            parts = tuple(
                part.astype(np.float32) if box and part.dtype.kind != "b" else part
                for part, box in zip(parts, boxes, strict=False)
            )
            space = self.action_spaces[agent]
            if len(parts) != len(boxes) or not space.contains(
                parts if isinstance(space, spaces.Tuple) else parts[0]
            ):
                raise ActionError(
                    f"{where} is {shown(actions[agent])}, but its space is {g.action_space}"
                )
            rows = [torch.from_numpy(part[None].astype(g.action_dtype)) for part in parts]
            self._actions[g.name][0, i] = in_one_row(g, rows, 1)[0].numpy()
        tensors = {}
        for g in self.env.groups:
            array = torch.from_numpy(self._actions[g.name])
            tensors[g.name] = array.reshape(self.env._read.shapes[g.name]).to(self.env.device)
        return tensors if len(tensors) > 1 else next(iter(tensors.values()))

    def _rows(self, arrays: Mapping[str, Array]) -> dict[str, np.ndarray]:
        """Return NumPy rows of the live agents from arrays (1, C, ...) by group."""
        arrays = {name: self.env.batch.executor.get(array)[0] for name, array in arrays.items()}
        return {agent: arrays[g.name][i] for agent, (g, i) in self._of(self.agents)}

    def _obs(self, arrays: Mapping[str, Array]) -> dict[str, np.ndarray]:
        """Return the live agents' observations, each of shape ``obs_shape``."""
        rows = self._rows(arrays)
        return {agent: rows[agent].reshape(g.obs_shape) for agent, (g, _) in self._of(list(rows))}

    def _infos(self, info: dict) -> dict[str, dict]:
        """Return each live agent's dictionary."""
        masks = {
            name: array[0].cpu().numpy().astype(np.int8)
            for name, array in info.get("action_mask", {}).items()
        }
        infos: dict[str, dict] = {}
        for agent, (g, i) in self._of(self.agents):
            if not g.mask:
                infos[agent] = {}
                continue
            heads = tuple(
                masks[g.name][i, first : first + size]
                for first, size in zip(g.first_choices, g.sizes, strict=True)
            )
            infos[agent] = {"action_mask": heads[0] if len(heads) == 1 else heads}
        return infos

    def state(self) -> np.ndarray:
        """Return ``struct State`` of the environment as float32 numbers in one row, of
        ``state_space``.
        """
        kept = self.env.batch.first_states(1)["states"]
        return np.concatenate(
            [kept[name].ravel().astype(np.float32) for name in kept.dtype.names or ()]
        )

    def render(self) -> np.ndarray:
        """Render a frame, (height, width, 3) uint8. Trails begin with the episode.

        Raises:
            RenderError: If the environment was made without ``render_mode``.
        """
        if self.render_mode is None:
            raise RenderError("render() needs render_mode='rgb_array' when the environment is made")
        shown = self.env.batch.first_states(1)
        self._past.append(shown["states"][0])
        return picture(
            self.env.spec, self.env.params, np.stack(self._past), int(shown["elapsed"][0])
        )

    def close(self) -> None:
        """Free the memory. Further calls do nothing."""
        self.env.close()
