"""A person as a player: pressed keys become the action of one agent; another player controls the rest of its group.

Letters: N environments, C agents of a group, H action heads.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import checked_choice, checked_str, shown
from cupydrive.inputs.keys import ARROWS, NONE, action_by_head
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Player
from cupydrive.spec import EnvSpec, Group


class KeyboardPlayer:
    """Plays one agent of a group by keys, and the others by another player.

    Args:
        group: The ``Group``.
        agent: Index of the agent in it.
        keys: The group's keys, as ``Display.keys`` returns them.
        others: ``Player`` of the other agents. None if there are none.

    Attributes:
        actions: By key, the H choices that it makes. None keeps a head's previous choice.
        action: (H,) action that the agent takes next.
    """

    def __init__(self, group: Group, agent: int, keys: dict[str, Any], others: Player | None) -> None:
        self.group, self.agent, self.others = group, agent, others
        self.actions = {key: action_by_head("keys", key, action, group) for key, action in keys.items()}
        self.reset()

    def reset(self) -> None:
        """Forget the action of the step before, as an episode begins."""
        space = self.group.action_space
        first = np.clip(0, space.low, space.high) if self.group.continuous else np.zeros(self.group.heads)
        self.action = first.astype(self.group.action_dtype)

    def choose(self, down: Sequence[str]) -> None:
        """Set the next action to that of the keys that are down.

        Args:
            down: In the order of pressing. The last one decides about a head. Unknown keys have no effect.
        """
        for key in (NONE, *(key for key in down if key in self.actions)):
            for head, value in enumerate(self.actions[key]):
                if value is not None:
                    self.action[head] = value

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``."""
        if self.others is not None:
            self.others.begin(rollout, group)

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of row t. Where a mask forbids the person's choice, take the first one that it allows."""
        if self.others is not None:
            self.others.act(rollout, t)
        action, mask = rollout.action[self.group.name][t], rollout.mask(self.group, t)
        if mask is not None:
            mine = mask[0, self.agent].cpu().numpy()
            for head, allowed in enumerate(np.split(mine, self.group.first_choices[1:])):
                if allowed.any() and not allowed[self.action[head]]:
                    self.action[head] = allowed.argmax()
        action[:, self.agent] = torch.from_numpy(self.action).to(action.device)

    def module(self, rollout: Rollout, group: Group) -> NoReturn:
        """Raise ``ParameterError``: a person is no function of observations."""
        raise ParameterError(f"group {group.name!r} is played by a person")

    def __str__(self) -> str:
        """Return what the keys do, in one line."""
        keys = [f"{ARROWS.get(key, key) or 'no key'} {in_words(action)}" for key, action in self.actions.items()]
        return f"actions: {', '.join(keys)}"


def in_words(action: tuple[float | None, ...]) -> str:
    """Return an action as text: a number for each head."""
    heads = ["as before" if value is None else f"{value:.4g}" for value in action]
    return heads[0] if len(heads) == 1 else f"({', '.join(heads)})"


def find_agent(spec: EnvSpec, params: Any, agent: str | None) -> tuple[str, int, dict[str, Any]]:
    """Return (group, index, keys) of the agent that a person plays.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        agent: ``"runner"``, the first one of the group, or ``"tagger 2"``. None is the first group with keys.

    Raises:
        ParameterError: If there is no such agent, or no keys for it.
    """
    keys = {} if spec.display.keys is None else spec.display.keys(params)
    groups = {g.name: g for g in spec.groups(params) if len(keys.get(g.name, ())) > 1}
    if not groups:
        raise ParameterError(
            f"play: {spec.name} has no keys for a person to play by; give its EnvSpec display=Display(keys=...)"
        )
    agent = next(iter(groups)) if agent is None else checked_str("play", "agent", agent)
    name = checked_choice("play", "agent", agent.partition(" ")[0], groups)
    agents = [f"{name} {k}" for k in range(groups[name].count)]
    if agent not in (name, *agents):
        raise ParameterError(f"play: agent = {shown(agent)}; it must be {name!r}, or {agents[0]!r} to {agents[-1]!r}")
    return name, 0 if agent == name else agents.index(agent), keys[name]
