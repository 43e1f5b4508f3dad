"""A person as a player: keys become the action of one agent; its fellows play on as they would.

Letters: N environments, C agents of a group, H action heads.
"""

import re

import numpy as np
import torch

from cupydrive import envs
from cupydrive.errors import ParameterError, did_you_mean
from cupydrive.inputs.arguments import checked_str, shown
from cupydrive.inputs.keys import NONE, by_head, in_words


class Keyboard:
    """What the keys of one group do.

    Args:
        group: ``Group``.
        keys: Of it, as ``EnvSpec.keys`` returns them.
    """

    def __init__(self, group, keys):
        self.actions = {key: by_head("keys", key, action, group) for key, action in keys.items()}
        space = group.action_space
        nothing = np.clip(0, space.low, space.high) if group.continuous else np.zeros(group.heads)
        self.first = nothing.astype(group.action_dtype)  # what heads begin with that no key has decided about

    def action(self, pressed, before):
        """Return the action, (H,), of the keys that are down.

        Args:
            pressed: Keys in the order in which they went down: the last one decides about a head. Others than this group's
                count as none.
            before: The action of the step before, (H,).
        """
        chosen = before.copy()
        for key in (NONE, *(key for key in pressed if key in self.actions)):
            for head, value in enumerate(self.actions[key]):
                if value is not None:
                    chosen[head] = value
        return chosen

    def __str__(self):
        """What the keys do, in one line."""
        actions = dict(self.actions)
        nothing = actions.pop(NONE)
        what = ", ".join(f"{in_words(key)} {taken(action)}" for key, action in actions.items())
        idle = "the action before" if all(value is None for value in nothing) else taken(nothing)
        return f"actions: {what}; no key {idle}"


def taken(action):
    """Return what a key does as text: a number for each head."""
    heads = ["as it is" if value is None else f"{value:.4g}" for value in action]
    return heads[0] if len(heads) == 1 else f"({', '.join(heads)})"


class KeyboardPlayer:
    """Plays one agent of a group by ``chosen``, and its fellows by another player.

    Args:
        agent: Number of the agent in its group.
        keyboard: ``Keyboard``.
        fellows: ``Player`` of the rest of the group; None: there is no rest.

    Attributes:
        chosen: (H,) action that the agent takes next.
    """

    def __init__(self, agent, keyboard, fellows=None):
        self.agent, self.fellows, self.chosen = agent, fellows, keyboard.first

    def begin(self, rollout, group):
        """Prepare to play ``group``."""
        self.group = group
        if self.fellows is not None:
            self.fellows.begin(rollout, group)

    def act(self, rollout, t):
        """Write the actions of row t."""
        if self.fellows is not None:
            self.fellows.act(rollout, t)
        action, mask = rollout.action[self.group.name][t], rollout.mask(self.group, t)
        if mask is not None:
            self.chosen = allowed(self.group, self.chosen, mask[0, self.agent].cpu().numpy())
        action[:, self.agent] = torch.from_numpy(self.chosen).to(action.device)

    def module(self, rollout, group):
        """Refuse: a person is no function of observations."""
        raise ParameterError(f"group {group.name!r} is played by a person; leave it out")


def allowed(group, action, mask):
    """Return ``action``, (H,), with the first choice that ``mask``, (choices,) bool, allows for each head that it forbids."""
    found = action.copy()
    for head, (first, size) in enumerate(zip(group.first_choices, group.sizes, strict=True)):
        may = mask[first : first + size]
        if may.any() and not may[found[head]]:
            found[head] = int(may.argmax())
    return found


def keys_of(spec, params):
    """Return what keys do, by group, of an environment that a person can play.

    Raises:
        ParameterError: If nobody can; it names environments that can be played.
    """
    keys = {} if spec.keys is None else spec.keys(params)
    keys = {name: actions for name, actions in keys.items() if len(actions) > 1}
    if not keys:
        playable = [name for name in envs.names() if envs.get(name).keys is not None]
        raise ParameterError(
            f"{spec.name} has no keys for a person to play by; give its EnvSpec keys=, or play one of: {', '.join(playable)}"
        )
    return keys


def seat(spec, params, agent=None):
    """Return (group's name, number of the agent in it) of the agent that ``agent`` means.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        agent: ``"runner"``, whose first one is meant, or ``"tagger 2"``; None: the first of the first group with keys.

    Raises:
        ParameterError: If there is no such agent, or no keys for it.
    """
    keys, groups = keys_of(spec, params), {g.name: g for g in spec.groups(params)}
    if agent is None:
        return next(name for name in groups if name in keys), 0
    name, number = re.fullmatch(r"(.*?)(?: ([0-9]{1,9}))?", checked_str("play", "agent", agent), re.DOTALL).groups()
    if name not in groups:
        raise ParameterError(
            f"play: agent = {shown(agent)}; {spec.name} has no group of that name.{did_you_mean(name, groups)} It has: "
            f"{', '.join(groups)}"
        )
    if name not in keys:
        raise ParameterError(f"play: agent = {shown(agent)}; {spec.name} has keys for {', '.join(keys)} alone")
    if int(number or 0) >= groups[name].count:
        last = groups[name].count - 1
        raise ParameterError(
            f"play: agent = {shown(agent)}; {name!r} has {last + 1} agent{'s' * (last > 0)}: pass {name!r}"
            + f" to '{name} {last}'" * (last > 0)
        )
    return name, int(number or 0)
