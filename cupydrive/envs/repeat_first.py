"""RepeatFirst: name the suit of the first card in every step, while cards are dealt one by one.

Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym: Benchmarking Partially
Observable Reinforcement Learning", RepeatFirst. One deck of 52 cards is dealt with
``difficulty="easy"``, 8 decks with ``"medium"`` and 16 with ``"hard"``.

The observation is the suit shown, one-hot. The first card is not marked. A right answer earns 1 / n
and a wrong one -1 / n, where n is the number of steps. Returns are in [-1, 1], and random answers
earn -0.5 on average. Cards and their drawing are those of ``repeat_previous``.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs.repeat_previous import SPEC as PREVIOUS
from cupydrive.envs.repeat_previous import (
    TRAINING,
    deal,
    draw_card,
    draw_cards,
    draw_table,
    one_hot,
    pack,
    player,
    unpack,
)
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    from cupydrive.drawing.canvas import Canvas

DECKS = {"easy": 1, "medium": 8, "hard": 16}


@dataclass(frozen=True)
class Params:
    """Size of the task."""

    difficulty: str = cd.param("easy", "Number of decks: 1, 8 or 16.", choices=tuple(DECKS))
    max_episode_steps: int = cd.param(
        831, "Time limit, after the end of a deal.", unit="steps", low=1
    )


def constants(p: Params) -> dict[str, int]:
    """Return the compile-time constants of the kernel."""
    return {"NUM_CARDS": 52 * DECKS[p.difficulty]}


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("deck", "u4", unit="cards left of each suit, a byte each"),
        cd.Field("first", "i4"),
        cd.Field("card", "i4"),
        cd.Field("answer", "i4"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the player."""
    return player(4, 1 / (constants(p)["NUM_CARDS"] - 1))


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) initial states with the first card dealt."""
    n = len(random.bits())
    suit, deck = draw_card(np.full((n, 4), constants(p)["NUM_CARDS"] // 4), random)
    states = np.zeros(n, [(f.name, f.dtype) for f in state(p)])
    states["deck"] = pack(deck, 8)[:, 0]
    states["first"] = states["card"] = suit
    states["answer"] = -1
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    answer = action["player"][:, 0]
    right = answer == states["first"]
    suit, deck = draw_card(unpack(states["deck"][:, None], 8), random)
    over = deck.sum(axis=1) == 0
    reward = np.where(right, 1.0, -1.0) / (constants(p)["NUM_CARDS"] - 1)
    return cd.StepResult(
        state={
            "deck": pack(deck, 8)[:, 0],
            "first": states["first"],
            "card": suit,
            "answer": answer,
        },
        reward={"player": reward[:, None]},
        terminated=over,
        events={"right": right, "wrong": ~right, "last card": over},
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return the suit shown, one-hot, (N, 1, 4)."""
    return cd.Observation({"player": one_hot(states["card"])[:, None]})


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw deals at any card, often near the last."""
    cards = constants(p)["NUM_CARDS"]
    dealt = np.where(rng.random(n) < 0.3, cards - rng.integers(1, 4, n), rng.integers(1, cards, n))
    deck, pile = deal(cards, rng, dealt, cards)
    states = np.zeros(n, [(f.name, f.dtype) for f in state(p)])
    states["deck"] = pack(deck, 8)[:, 0]
    states["first"], states["card"] = pile[np.arange(n), dealt - 1], pile[:, 0]
    states["answer"] = rng.integers(-1, 4, n)
    return states


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw the card shown, the last answer, and the first card.

    The first card is face down during interactive play.
    """
    canvas.last_step = constants(p)["NUM_CARDS"] - 1
    first, card, answer = (int(states[name][-1]) for name in ("first", "card", "answer"))
    draw_table(canvas, card, answer if answer >= 0 else None, answer == first)
    hidden = canvas.played and elapsed > 0
    draw_cards(canvas, [-1 if hidden else first], (6, 0.3, 10, 4.2), 0, canvas.YELLOW)
    canvas.text((8, 4.5), "first card", 0.6, canvas.SOFT)


SPEC = cd.EnvSpec(
    name="repeat_first",
    params=Params,
    state=state,
    groups=groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    cases=({}, {"difficulty": "medium"}, {"difficulty": "hard"}),
    display=replace(PREVIOUS.display, draw=draw, trail=0),
    # With a constant learning rate, two of ten seeds forget the task at the end.
    training=TRAINING | {"ppo": TRAINING["ppo"] | {"learning_rate": ((0, 2e-3), (200_000, 1e-4))}},
    reward_threshold=0.9,
    summary="Name the suit of the first card again and again (POPGym's RepeatFirst).",
)
