"""Concentration of POPGym, the card game: turn over two hidden cards, and find all pairs.

Source: Concentration in POPGym 1.0.7 (Morad, Kortvelesy, Bettini, Liwicki & Prorok, ICLR 2023). 52
cards (easy) or 104 (medium) match by color, 52 (hard) by rank. Two matching cards stay face up,
and the rewards of all pairs sum to 1. A failed turn costs 1 / (2 cards) for each card turned over.
A turn fails with two cards that do not match, with the same card twice, or with a card that is face
up already, which ends the turn immediately. There are two steps for each card.

The observation has one-hot entries: for each card its kind, or that it is face down. It shows which
card was turned over, so the previous action, which POPGym requires, would add no information.

For interactive play use ``fps=1``, and press the key shown on a card. While no key is pressed, the
last card is turned over again. Only the first 34 cards have keys.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.envs.repeat_previous import NETWORK, pack, unpack
from cupydrive.random import RandomStream, below

if TYPE_CHECKING:
    from cupydrive.drawing.canvas import Canvas

DECKS = {"easy": (52, 2), "medium": (104, 2), "hard": (52, 13)}  # cards, kinds
RANKS = "A23456789TJQK"
KEYS = "1234567890abcdefghijklmnopstuvwxyz"


@dataclass(frozen=True)
class Params:
    """The deck."""

    difficulty: str = cd.param(
        "easy", "52 or 104 cards that match by color, or 52 by rank.", choices=tuple(DECKS)
    )
    max_episode_steps: int = cd.param(
        0, "Time limit. 0 is two for each card: 104, 208 or 104.", unit="steps", low=0
    )

    def __post_init__(self) -> None:
        """Fill in twice the number of cards as the time limit."""
        limit = self.max_episode_steps or 2 * DECKS[self.difficulty][0]
        object.__setattr__(self, "max_episode_steps", limit)


def constants(p: Params) -> dict[str, int]:
    """Return the compile-time constants of the kernel."""
    cards, kinds = DECKS[p.difficulty]
    bits = 1 if kinds == 2 else 4
    words, up = (-(-cards * each // 32) for each in (bits, 1))
    return {"CARDS": cards, "KINDS": kinds, "BITS": bits, "WORDS": words, "UP_WORDS": up}


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    sizes = constants(p)
    return (
        cd.Field("deck", "u4", (sizes["WORDS"],), unit="kinds of cards, packed"),
        cd.Field("up", "u4", (sizes["UP_WORDS"],), unit="bits of cards"),
        cd.Field("first", "i4", unit="card, -1 if none"),
        cd.Field("second", "i4", unit="card, -1 if none"),
        cd.Field("held", "i4", unit="whether the first waits for the second"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the player."""
    cards, kinds = DECKS[p.difficulty]
    size, card = cards * (kinds + 1), spaces.Discrete(cards)
    return (cd.Group("player", 1, size, card, 1.0, 2 / cards, obs_low=0.0, obs_high=1.0),)


def opened(p: Params, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return kinds, and whether cards are matched, each (N, cards)."""
    cards, bits = DECKS[p.difficulty][0], constants(p)["BITS"]
    return unpack(states["deck"], bits)[:, :cards], unpack(states["up"], 1)[:, :cards] == 1


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) shuffled decks, exact. Each card is drawn from the remaining ones."""
    cards, kinds = DECKS[p.difficulty]
    words = random.bits(cards // 4).reshape(-1, cards)
    n = len(words)
    left, deck = np.full((n, kinds), cards // kinds), np.empty((n, cards), int)
    for card in range(cards):
        drawn = below(words[:, card], cards - card)
        deck[:, card] = (drawn[:, None] >= left.cumsum(axis=1)).sum(axis=1)
        left[np.arange(n), deck[:, card]] -= 1
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["deck"] = pack(deck, constants(p)["BITS"])
    states["first"] = states["second"] = -1
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    cards, each, card = DECKS[p.difficulty][0], np.arange(len(states)), action["player"][:, 0]
    (deck, up), held = opened(p, states), states["held"] == 1
    first = np.where(held, states["first"], card)
    seen = up[each, card]
    twice = held & (card == first)
    match = held & ~seen & ~twice & (deck[each, card] == deck[each, first])
    waits = ~held & ~seen
    up[each[match], first[match]] = up[each[match], card[match]] = True
    failure = -np.where(held, 2, 1) / (2 * cards)
    reward = np.where(match, 2 / cards, np.where(waits, 0.0, failure))
    solved = match & up.all(axis=1)
    after = {"first": first, "second": np.where(held, card, -1), "held": waits}
    return cd.StepResult(
        state={"deck": states["deck"], "up": pack(up, 1), **after},
        reward={"player": reward[:, None]},
        terminated=solved,
        metrics={"pairs": match},
        events={
            "match": match,
            "no match": held & ~seen & ~twice & ~match,
            "same card twice": twice,
            "first card is face up": ~held & seen,
            "second card is face up": held & seen,
            "all matched": solved,
        },
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return the one-hot kind of each card, or that it is hidden, (N, 1, cards * (kinds + 1))."""
    (cards, kinds), (deck, seen) = DECKS[p.difficulty], opened(p, states)
    for name in ("first", "second"):
        seen |= states[name][:, None] == np.arange(cards)
    shown = np.where(seen, deck, kinds)[..., None] == np.arange(kinds + 1)
    return cd.Observation({"player": shown.reshape(len(states), 1, -1).astype(np.float64)})


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw decks with any fraction of matched pairs, often all but one, within a turn."""
    cards, each = DECKS[p.difficulty][0], np.arange(n)
    states = reset(p, RandomStream(int(rng.integers(2**32)), each, 0))
    deck, up = opened(p, states)
    by_kind = np.argsort(deck + rng.random(deck.shape), axis=1)  # neighbors make pairs
    matched = rng.random((n, cards // 2)) < 1.4 * rng.random((n, 1))
    left = rng.integers(0, cards // 2, n)
    matched[each, left] = False
    np.put_along_axis(up, by_kind, matched.repeat(2, axis=1), axis=1)
    states["up"] = pack(up, 1)
    held = states["held"] = rng.random(n) < 0.5
    # A waiting card is hidden. A finished turn may have had any cards.
    states["first"] = np.where(held, by_kind[each, 2 * left], rng.integers(-1, cards, n))
    over = ~held & (states["first"] >= 0)
    states["second"] = np.where(over, rng.integers(-1, cards, n), -1)
    return states


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw rows of 13 cards: hidden ones dim, with their keys, and those of this turn framed."""
    cards, kinds = DECKS[p.difficulty]
    canvas.view(-0.1, 13.1, -0.1, top=1.25 * (cards // 13) + 0.1)
    (deck,), (up,) = opened(p, states[-1:])
    turned = states["first"][-1], states["second"][-1]
    for card, kind in enumerate(deck):
        x, y = card % 13, 1.25 * ((cards - 1 - card) // 13)
        color = canvas.INK if kinds == 13 else (canvas.BLUE, canvas.ORANGE)[kind]
        if card in turned:
            canvas.rectangle(x, y, x + 1, y + 1.25, canvas.YELLOW)
        elif not up[card]:
            color = canvas.mix(canvas.FLOOR, color, 0.3)
        canvas.rectangle(x + 0.06, y + 0.06, x + 0.94, y + 1.19, canvas.FLOOR)
        if kinds == 13:
            canvas.text((x + 0.5, y + 0.75), RANKS[kind], 0.7, color)
        else:
            canvas.rectangle(x + 0.2, y + 0.5, x + 0.8, y + 1.05, color)
        if card < len(KEYS) and not up[card]:
            canvas.text((x + 0.5, y + 0.26), KEYS[card], 0.3, canvas.SOFT)
    pairs = int(up.sum()) // 2
    canvas.key((canvas.INK, "pairs found", pairs), (canvas.YELLOW, "turned over"))


SPEC = cd.EnvSpec(
    name="concentration",
    params=Params,
    state=state,
    groups=groups,
    time_limit="truncates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    metrics={"pairs": "int"},
    cases=({}, {"difficulty": "medium"}, {"difficulty": "hard"}),
    display=cd.Display(
        draw=draw,
        keys=lambda p: {"player": {"": None, **{key: k for k, key in enumerate(KEYS)}}},
        size=(960, 480),
        fps=8,
        # About ten minutes of training on two CPU cores.
        showcase={
            "num_envs": 64,
            "steps": 15_000_000,
            "ppo": {
                "network": NETWORK,
                "learning_rate": ((0, 3e-3), (15_000_000, 1e-4)),
                "ent_coef": ((0, 0.005), (15_000_000, 0.001)),
            },
        },
    ),
    # The reward of a card comes in the next step at the latest, hence the small gamma. In 1.5
    # million steps a GRU of 128 units improves from -0.20 to 0.31 with sampled actions, and to
    # -0.24 with greedy ones.
    training={
        "num_envs": 512,
        "steps": 60_000_000,
        "ppo": {
            "network": {**NETWORK, "hidden": (256,)},
            "learning_rate": ((0, 2e-3), (60_000_000, 1e-4)),
            "num_steps": 104,
            "num_minibatches": 8,
            "gamma": 0.5,
            "gae_lambda": 0.9,
            "ent_coef": ((0, 0.01), (60_000_000, 0.001)),
            "normalize_reward": True,
        },
    },
    # More than turning over hidden cards at random, 0.45. A perfect memory gives 0.81.
    reward_threshold=0.5,
    summary="Find pairs among hidden cards (POPGym's Concentration).",
)
