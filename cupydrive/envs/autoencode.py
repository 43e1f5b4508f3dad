"""Autoencode: recall the suits of all dealt cards in reverse order.

Cards are dealt one by one. Then the player names the suits of all of them, the last one first.

Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym: Benchmarking Partially
Observable Reinforcement Learning", Autoencode. One deck of 52 cards is dealt with
``difficulty="easy"``, two with ``"medium"`` and three with ``"hard"``.

The observation has five entries: 1.0 while cards are dealt and 0.0 while they are named, then the
suit shown, one-hot. The last card is still shown in the first answering step. After that, spades
stand for no card. Actions have no effect while cards are dealt. A right answer earns 1 / n and a
wrong one -1 / n, where n is the number of cards. Returns are in [-1, 1], and random answers earn
-0.5 on average. Cards and their drawing are those of ``repeat_previous``.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cupydrive import spec as cd
from cupydrive.envs.repeat_previous import (
    DECKS,
    TRAINING,
    deal,
    draw_card,
    draw_cards,
    draw_table,
    one_hot,
    pack,
    player,
    push,
    unpack,
    words,
)
from cupydrive.envs.repeat_previous import SPEC as PREVIOUS
from cupydrive.random import RandomStream

if TYPE_CHECKING:
    from cupydrive.drawing.canvas import Canvas


@dataclass(frozen=True)
class Params:
    """Size of the task."""

    difficulty: str = cd.param("easy", "Number of decks: 1, 2 or 3.", choices=tuple(DECKS))
    max_episode_steps: int = cd.param(
        311, "Time limit, after the last possible step of a game.", unit="steps", low=1
    )


def constants(p: Params) -> dict[str, int]:
    """Return the sizes that the kernel is compiled with."""
    cards = 52 * DECKS[p.difficulty]
    return {"NUM_CARDS": cards, "WORDS": words(cards)}


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("deck", "u4", unit="cards left of each suit, a byte each"),
        cd.Field("held", "i4", unit="cards"),
        cd.Field("pile", "u4", (constants(p)["WORDS"],), unit="suits, two bits each"),
        cd.Field("answer", "i4"),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the player."""
    return player(5, 1 / constants(p)["NUM_CARDS"])


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) initial states with one dealt card."""
    (cards, kept), n = constants(p).values(), len(random.bits())
    suit, deck = draw_card(np.full((n, 4), cards // 4), random)
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["deck"], states["held"], states["answer"] = pack(deck, 8)[:, 0], 1, -1
    states["pile"] = pack(push(np.zeros((n, 16 * kept), int), suit), 2)
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    answer, watching = action["player"][:, 0], states["deck"] != 0
    deck, pile = unpack(states["deck"][:, None], 8), unpack(states["pile"], 2)
    right = ~watching & (answer == pile[:, 0])
    wrong = ~watching & ~right
    suit, dealt = draw_card(np.where(watching[:, None], deck, 1), random)
    rest = np.pad(pile[:, 1:], ((0, 0), (0, 1)))
    held = states["held"] + np.where(watching, 1, -1)
    over = ~watching & (held == 0)
    return cd.StepResult(
        state={
            "deck": pack(dealt * watching[:, None], 8)[:, 0],
            "held": held,
            "pile": pack(np.where(watching[:, None], push(pile, suit), rest), 2),
            "answer": answer,
        },
        reward={"player": (right * 1.0 - wrong)[:, None] / constants(p)["NUM_CARDS"]},
        terminated=over,
        events={
            "watched": watching,
            "last card dealt": watching & (dealt.sum(axis=1) == 0),
            "right": right,
            "wrong": wrong,
            "all named": over,
        },
    )


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return whether cards are dealt, and the suit shown, one-hot, (N, 1, 5)."""
    watching = states["deck"] != 0
    shown = watching | (states["held"] == constants(p)["NUM_CARDS"])
    suit = np.where(shown, states["pile"][:, 0] & 3, 0)
    return cd.Observation({"player": np.column_stack([watching, one_hot(suit)])[:, None]})


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw games at any card, half of them while cards are dealt, often near the start or end."""
    cards, kept = constants(p).values()
    near = np.where(rng.random(n) < 0.5, rng.integers(1, 4, n), cards - rng.integers(0, 3, n))
    held = np.where(rng.random(n) < 0.5, near, rng.integers(1, cards, n))
    deck, pile = deal(cards, rng, held, 16 * kept)
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["deck"] = pack(deck * (rng.random((n, 1)) < 0.5), 8)[:, 0]
    states["held"], states["pile"] = held, pack(pile, 2)
    states["answer"] = rng.integers(-1, 4, n)
    return states


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw the card shown, the last answer, and the cards still to be named, in dealing order.

    The latter are face down during interactive play.
    """
    cards = constants(p)["NUM_CARDS"]
    canvas.last_step = 2 * cards - 1
    held, piles = int(states["held"][-1]), unpack(states["pile"], 2)
    watching = states["deck"][-1] != 0
    shown = watching or held == cards
    asked = len(states) > 1 and states["deck"][-2] == 0
    answer = int(states["answer"][-1])
    draw_table(
        canvas,
        int(piles[-1, 0]) if shown else -1,
        answer if asked else None,
        asked and answer == piles[-2, 0],
    )
    row = np.full(cards, -1)
    if not canvas.played:
        row[:held] = piles[-1, :held][::-1]
    framed = -1 if watching else held - 1
    draw_cards(canvas, row, (0.3, 0.3, 15.7, 4.6), framed, canvas.YELLOW, 13 if cards == 52 else 26)


SPEC = cd.EnvSpec(
    name="autoencode",
    params=Params,
    state=state,
    groups=groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    cases=PREVIOUS.cases,
    display=replace(
        PREVIOUS.display,
        draw=draw,
        showcase={
            "still": 0.6,  # some cards have been named
            # about six minutes of training on two CPU cores
            "steps": 10_000_000,
            "ppo": {"learning_rate": ((0, 3e-3), (10_000_000, 1e-4))},
        },
    ),
    # The cards named last are hardly learned. After 10 million environment steps a GRU has a return
    # of -0.02 and mostly recalls the last ten cards dealt. Therefore there is no reward threshold.
    training=TRAINING
    | {
        "num_envs": 256,
        "steps": 40_000_000,
        "ppo": TRAINING["ppo"]
        | {
            "learning_rate": ((0, 3e-3), (40_000_000, 1e-4)),
            "num_steps": 104,
            "gamma": 0.0,  # answers do not affect later steps
            "gae_lambda": 0.0,
            "ent_coef": 0.001,
        },
    },
    summary="Name the suits of all cards dealt, the last one first (POPGym's Autoencode).",
)
