"""Keys of interactive play: their names, and the validation of an environment's ``keys``.

Letters: H action heads.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cupydrive.errors import SpecError
from cupydrive.inputs.arguments import checked_choice, checked_mapping, errors_as, shown

if TYPE_CHECKING:
    from cupydrive.spec import Group

ARROWS = {"ArrowLeft": "\u2190", "ArrowRight": "\u2192", "ArrowUp": "\u2191", "ArrowDown": "\u2193"}
NONE = ""  # no key is pressed
PAUSE, RESTART, QUIT = " ", "r", "q"  # reserved keys of every game
ALLOWED = (
    f"an arrow ({', '.join(ARROWS)}), a letter from a to z except {QUIT} and {RESTART}, a digit, "
    f'or "" for no key'
)


@errors_as(SpecError)
def check_keys(where: str, groups: Sequence["Group"], keys: object) -> None:
    """Raise ``SpecError`` unless ``keys`` maps groups to keys and actions, including ``""``.

    Args:
        where: Name of the environment, for the message.
        groups: ``Group``s of the environment.
        keys: Result of ``Display.keys``.
    """
    by_name = {g.name: g for g in groups}
    for name, actions in checked_mapping(where, "keys", keys).items():
        group, here = (
            by_name[checked_choice(where, "a group of keys", name, by_name)],
            f"keys[{name!r}]",
        )
        for key, action in checked_mapping(where, here, actions).items():
            if key != NONE and key not in ARROWS and not re.fullmatch("[0-9a-ps-z]", key):
                raise SpecError(f"{where}: {here} has a key {shown(key)}, expected {ALLOWED}")
            action_by_head(f"{where}: {here}", key, action, group)
        if NONE not in actions:
            raise SpecError(
                f'{where}: {here} = {shown(actions)} lacks the key "", the action while no key is '
                f"pressed"
            )


def action_by_head(
    where: str, key: str, action: object, group: "Group"
) -> tuple[float | None, ...]:
    """Return the action of a key as a tuple of H numbers. None keeps a head's previous choice.

    Args:
        where: Name of the dictionary, for the message.
        key: Name of the key, for the message.
        action: A number, None, or a tuple with one of these for each head.
        group: The ``Group`` that takes the action.

    Raises:
        SpecError: If the action is not in the group's action space.
    """
    heads: tuple = tuple(action) if isinstance(action, tuple | list) else (action,) * group.heads
    fits = [x is None or x in range(size) for x, size in zip(heads, group.sizes, strict=False)]
    limits = zip(heads[len(group.sizes) :], group.box.low, group.box.high, strict=False)
    fits += [
        x is None or (isinstance(x, int | float) and low <= np.float32(x) <= high)
        for x, low, high in limits
    ]
    if len(heads) != group.heads or not all(fits):
        such = (
            "a number or None" if group.heads == 1 else f"a tuple of {group.heads} numbers or Nones"
        )
        raise SpecError(
            f"{where}[{key!r}] = {shown(action)}, expected an action of {group.action_space}: "
            f"{such}"
        )
    return heads
