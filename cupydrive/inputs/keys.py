"""Keys by which a person plays: their names, and what is right in an environment's ``keys``.

Letters: H action heads.
"""

import re

import numpy as np

from cupydrive.errors import SpecError, did_you_mean
from cupydrive.inputs.arguments import checked_float, checked_int, checked_mapping, shown

ARROWS = {"ArrowLeft": "\u2190", "ArrowRight": "\u2192", "ArrowUp": "\u2191", "ArrowDown": "\u2193"}
NONE = ""  # no key at all
PAUSE, END, AGAIN = " ", "q", "r"  # what all games have
RIGHT = f'an arrow ({", ".join(ARROWS)}), a letter from a to z but {END} and {AGAIN}, a digit, or "", which is no key'


def check_keys(where, groups, keys):
    """Raise ``SpecError`` unless ``keys`` says for some groups which keys take which actions, and what no key does."""
    names = [g.name for g in groups]
    for name, actions in checked_mapping(where, "keys", keys, SpecError).items():
        if name not in names:
            raise SpecError(
                f"{where}: keys name a group {shown(name)} that there is not.{did_you_mean(name, names)} Groups: "
                f"{', '.join(names)}"
            )
        group, here = groups[names.index(name)], f"keys[{name!r}]"
        for key, action in checked_mapping(where, here, actions, SpecError).items():
            if not (isinstance(key, str) and (key == NONE or key in ARROWS or re.fullmatch("[0-9a-ps-z]", key))):
                raise SpecError(f"{where}: {here} has a key {shown(key)}; it must be {RIGHT}")
            by_head(f"{where}: {here}", key, action, group)
        if NONE not in actions:
            raise SpecError(
                f'{where}: {here} = {shown(actions)}; it needs a key "": what happens while none is pressed'
            )


def by_head(where, key, action, group):
    """Return an action as a tuple of H numbers; None is a head that it leaves as it is.

    Args:
        where: For the message.
        key: Likewise.
        action: A number, None, or one of them for each head.
        group: The ``Group`` that takes it.

    Raises:
        SpecError: If it is none of the group's actions.
    """
    given = tuple(action) if isinstance(action, tuple | list) else (action,) * group.heads
    if len(given) != group.heads or (group.heads > 1 and not isinstance(action, tuple | list | None)):
        raise SpecError(
            f"{where}[{key!r}] = {shown(action)}; {group.action_space} needs a tuple of {group.heads}, or None"
        )
    for head, value in enumerate(given):
        if value is None:
            continue
        if group.continuous:
            low, high = (float(limit[head]) for limit in (group.action_space.low, group.action_space.high))
            number = checked_float(where, f"[{key!r}]", value, error=SpecError)
            checked_float(where, f"[{key!r}]", float(np.float32(number)), low, high, SpecError)  # bounds are float32
        else:
            checked_int(where, f"[{key!r}]", value, 0, group.sizes[head] - 1, SpecError)
    return given


def in_words(key):
    """Return what a key is called where it is shown."""
    return ARROWS.get(key, key)
