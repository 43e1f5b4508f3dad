"""Common parts of MinAtar's games: parameters, sticky actions, cells and their drawing.

Source: MinAtar 1.0.15 (Young & Tian 2019, arXiv 1903.03176). Rules that the paper and the README
leave open are inferred from recorded games, and from gymnax 1.0's ports.

``rules="original"`` repeats the last action with probability 0.1 and ramps the difficulty up.
MinAtar has no time limit, except in Freeway. Here the limit is 100,000 steps, so that every
evaluation ends. ``rules="gymnax"`` has neither sticky actions nor ramping, and a limit of 1,000
steps. The first action of an episode may repeat "none", whereas MinAtar repeats the last action of
the previous episode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.random import RandomStream, unit

if TYPE_CHECKING:
    from cupydrive.drawing.canvas import Canvas

SIDE = 10  # rows and columns
RULES = ("original", "gymnax")
KEYS = {
    "none": "",
    "left": "ArrowLeft",
    "up": "ArrowUp",
    "right": "ArrowRight",
    "down": "ArrowDown",
    "fire": "f",
}
LAST_ACTION = cd.Field("last_action", "i4", unit="action, 0 before the first")


@dataclass(frozen=True)
class Params:
    """Rules of a game whose difficulty is constant."""

    LIMITS: ClassVar[tuple[int, int]] = (100_000, 1000)  # steps, by RULES

    rules: str = cd.param("original", "Rules that set the other parameters.", choices=RULES)
    sticky_action_prob: float = cd.param(
        -1.0,
        "Probability that the last action is repeated. A negative value takes that of the rules: "
        "0.1 or 0.",
        low=-1.0,
        high=1.0,
        vary=(0.0, 0.5),
    )
    max_episode_steps: int = cd.param(
        0, "Time limit. 0 takes that of the rules.", unit="steps", low=0
    )

    def __post_init__(self) -> None:
        """Set the parameters that ``rules`` determines."""
        k = RULES.index(self.rules)
        object.__setattr__(self, "max_episode_steps", self.max_episode_steps or self.LIMITS[k])
        if self.sticky_action_prob < 0:
            object.__setattr__(self, "sticky_action_prob", (0.1, 0.0)[k])


@dataclass(frozen=True)
class RampingParams(Params):
    """Rules of a game that becomes faster."""

    difficulty_ramping: str = cd.param(
        "rules",
        'Whether the game becomes faster. "rules" is on for the original rules, off for gymnax.',
        choices=("rules", "on", "off"),
    )

    def __post_init__(self) -> None:
        """Set the parameters that ``rules`` determines."""
        super().__post_init__()
        if self.difficulty_ramping == "rules":
            chosen = ("on", "off")[RULES.index(self.rules)]
            object.__setattr__(self, "difficulty_ramping", chosen)


@dataclass(frozen=True)
class Game:
    """Observations and actions of a game. Its methods are functions of an ``EnvSpec``.

    Args:
        channels: Names of the channels, the player's own first.
        actions: Names of the actions, keys of ``KEYS``.
        cells: ``cells(states)`` returns (N, 10, 10, channels) bool: row from the top, column.
    """

    channels: tuple[str, ...]
    actions: tuple[str, ...]
    cells: Callable[[np.ndarray], np.ndarray]

    def constants(self, p: Params) -> dict[str, int]:
        """Return the compile-time constants of the kernel."""
        return {"CHANNELS": len(self.channels)}

    def groups(self, p: Params) -> tuple[cd.Group, ...]:
        """Return the one group: the player."""
        shape = SIDE, SIDE, len(self.channels)
        actions = spaces.Discrete(len(self.actions))
        return (cd.Group("player", 1, action_space=actions, obs_shape=shape, obs_dtype="bool"),)

    def observe(self, p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
        """Return the channels of all cells, (N, 1, 10, 10, channels)."""
        return cd.Observation({"player": self.cells(states)[:, None]})

    def keys(self, p: Params) -> dict[str, dict[str, int]]:
        """Return the keys of the actions. No key is the action "none"."""
        return {"player": {KEYS[name]: k for k, name in enumerate(self.actions)}}

    def draw(self, canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
        """Draw the cells, one color for each channel, and the channels' names beside them.

        Several channels of one cell are drawn inside each other, the player's own on top.
        """
        canvas.view(-0.1, SIDE + 4.1, -0.1, SIDE + 0.1)
        bright = (*canvas.CURVES[:5], canvas.INK)
        colors = bright + tuple(canvas.mix(color, canvas.STAGE, 0.55) for color in bright)
        cells = self.cells(states[-1:])[0]
        for y, x in np.ndindex(SIDE, SIDE):
            squares = [colors[k] for k in np.flatnonzero(cells[y, x])[::-1]]
            for depth, color in enumerate([canvas.FLOOR, *squares]):
                low = 0.04 + 0.12 * max(0, depth - 1)
                canvas.rectangle(x + low, 9 + low - y, x + 1 - low, 10 - low - y, color)
        for k, name in enumerate(self.channels):
            y = SIDE - 0.5 - k
            canvas.rectangle(SIDE + 0.3, y - 0.2, SIDE + 0.7, y + 0.2, colors[k])
            canvas.text((SIDE + 0.95, y), name.replace("_", " "), 0.5, canvas.SOFT, "lm")
        y, x = np.argwhere(cells[..., 0])[0]
        canvas.agents("player", [(x + 0.5, 9.5 - y)])


def effective_action(
    p: Params, states: np.ndarray, action: cd.Actions, random: RandomStream
) -> np.ndarray:
    """Return the actions (N,) that take effect: the last one again with the sticky probability.

    Draw 0 of the random stream decides. A game takes its own random numbers from draw 1 on.
    """
    repeated = unit(random.bits()[:, 0, 0]) < np.float32(p.sticky_action_prob)
    return np.where(repeated, states["last_action"], action["player"][:, 0])


def suggested(steps: int) -> dict[str, Any]:
    """Return training settings for this number of environment steps, as
    ``EnvSpec(training=...)``.
    """
    return {
        "num_envs": 64,
        "steps": steps,
        "ppo": {
            "hidden": (64, 64),
            "activation": "relu",
            "learning_rate": ((0, 5e-3), (steps, 5e-4)),
            "num_steps": 128,
            "num_minibatches": 8,
            "ent_coef": 0.01,
        },
    }


def no_cells(n: int, channels: tuple[str, ...]) -> np.ndarray:
    """Return (n, 10, 10, channels) bool, all False."""
    return np.zeros((n, SIDE, SIDE, len(channels)), bool)


def nibbles(words: np.ndarray) -> np.ndarray:
    """Return (N, 8) ints of 4 bits each from words (N,), the lowest bits first."""
    return (words[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).astype(int)


def of_nibbles(values: np.ndarray) -> np.ndarray:
    """Return words (N,) of (N, 8) ints. The inverse of ``nibbles``."""
    return (values << np.arange(0, 32, 4)).sum(axis=1).astype(np.uint32)
