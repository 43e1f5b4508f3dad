"""RepeatPrevious: name the suit of an earlier card, while cards are dealt one by one.

Source: Morad, Kortvelesy, Bettini, Liwicki & Prorok (2023), "POPGym: Benchmarking Partially
Observable Reinforcement Learning", RepeatPrevious. With ``difficulty="easy"`` one deck of 52 cards
is dealt, and the answer is the suit of the third card before the one shown. With ``"medium"`` there
are two decks, and it is the 31st card before. With ``"hard"`` there are three decks, and it is the
63rd card before.

The observation is the suit shown, one-hot. A right answer earns 1 / n and a wrong one -1 / n, where
n is the number of questions. Returns are in [-1, 1], and random answers earn -0.5 on average.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cupydrive import spec as cd
from cupydrive.random import RandomStream, below

if TYPE_CHECKING:
    from cupydrive.drawing.canvas import Canvas

SUITS = ("spades", "diamonds", "clubs", "hearts")
KEYS = {"": None, "s": 0, "d": 1, "c": 2, "h": 3}
DECKS = {"easy": 1, "medium": 2, "hard": 3}
AGO = {"easy": 4, "medium": 32, "hard": 64}  # 1 is the card shown


@dataclass(frozen=True)
class Params:
    """Size of the task."""

    difficulty: str = cd.param(
        "easy", "Number of decks, and how long to remember.", choices=tuple(DECKS)
    )
    max_episode_steps: int = cd.param(
        155, "Time limit, after the end of a deal.", unit="steps", low=1
    )


def constants(p: Params) -> dict[str, int]:
    """Return the compile-time constants of the kernel."""
    k = AGO[p.difficulty]
    return {"NUM_CARDS": 52 * DECKS[p.difficulty], "K": k, "WORDS": words(k)}


def words(cards: int) -> int:
    """Return the number of 32-bit words for the suits of ``cards``."""
    return -(-cards // 16)


def state(p: Params) -> tuple[cd.Field, ...]:
    """Return the fields of ``struct State``."""
    return (
        cd.Field("deck", "u4", unit="cards left of each suit, a byte each"),
        cd.Field("seen", "u4", (words(AGO[p.difficulty]),), unit="suits, two bits each"),
        cd.Field("answer", "i4"),
    )


def player(obs_dim: int, reward: float) -> tuple[cd.Group, ...]:
    """Return the one group of a game of suits: the player."""
    return (
        cd.Group(
            "player", 1, obs_dim, spaces.Discrete(4), reward_scale=reward, obs_low=0.0, obs_high=1.0
        ),
    )


def groups(p: Params) -> tuple[cd.Group, ...]:
    """Return the one group: the player."""
    sizes = constants(p)
    return player(4, 1 / (sizes["NUM_CARDS"] - sizes["K"]))


def unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unpack (N, W) words to (N, W * 32 / bits) integers, lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    numbers = packed[..., None] >> shifts & np.uint32(2**bits - 1)
    return numbers.reshape(len(packed), -1).astype(np.int64)


def pack(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Pack (N, up to W * 32 / bits) integers into (N, W) words, lowest bits first."""
    shifts = np.arange(0, 32, bits)
    padded = np.pad(numbers.astype(np.int64), ((0, 0), (0, -numbers.shape[1] % len(shifts))))
    return (padded.reshape(len(padded), -1, len(shifts)) << shifts).sum(axis=-1).astype(np.uint32)


def draw_card(deck: np.ndarray, random: RandomStream) -> tuple[np.ndarray, np.ndarray]:
    """Draw a card from decks of (N, 4) cards of each suit. Return suits (N,) and the new decks."""
    cards = below(random.bits()[:, 0, 0], deck.sum(axis=1))
    suit = (cards[:, None] >= deck.cumsum(axis=1)).sum(axis=1)
    return suit, deck - np.eye(4, dtype=int)[suit]


def push(pile: np.ndarray, suit: np.ndarray) -> np.ndarray:
    """Push a suit onto piles (N, M), the newest first. The oldest suit is dropped."""
    return np.concatenate([suit[:, None], pile[:, :-1]], axis=1)


def reset(p: Params, random: RandomStream) -> np.ndarray:
    """Return (N,) initial states with one dealt card."""
    sizes, n = constants(p), len(random.bits())
    suit, deck = draw_card(np.full((n, 4), sizes["NUM_CARDS"] // 4), random)
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["deck"] = pack(deck, 8)[:, 0]
    states["seen"] = pack(push(np.zeros((n, 16 * sizes["WORDS"]), int), suit), 2)
    states["answer"] = -1
    return states


def step(
    p: Params, states: np.ndarray, action: cd.Actions, elapsed: np.ndarray, random: RandomStream
) -> cd.StepResult:
    """Step (N,) states. action["player"] is (N, 1)."""
    sizes, answer = constants(p), action["player"][:, 0]
    deck, seen = unpack(states["deck"][:, None], 8), unpack(states["seen"], 2)
    asked = sizes["NUM_CARDS"] - deck.sum(axis=1) >= sizes["K"]
    right = answer == seen[:, sizes["K"] - 1]
    suit, deck = draw_card(deck, random)
    over = deck.sum(axis=1) == 0
    reward = asked * np.where(right, 1.0, -1.0) / (sizes["NUM_CARDS"] - sizes["K"])
    return cd.StepResult(
        state={
            "deck": pack(deck, 8)[:, 0],
            "seen": pack(push(seen, suit), 2),
            "answer": answer,
        },
        reward={"player": reward[:, None]},
        terminated=over,
        events={
            "too early to be asked": ~asked,
            "right": asked & right,
            "wrong": asked & ~right,
            "last card": over,
            **{f"{name} dealt": suit == k for k, name in enumerate(SUITS)},
        },
    )


def one_hot(suit: npt.ArrayLike) -> np.ndarray:
    """Return suits (N,) as one-hot floats (N, 4)."""
    return np.eye(4)[np.asarray(suit)]


def observe(p: Params, states: np.ndarray, elapsed: np.ndarray) -> cd.Observation:
    """Return the suit shown, one-hot, (N, 1, 4)."""
    return cd.Observation({"player": one_hot(states["seen"][:, 0] & 3)[:, None]})


def deal(
    cards: int, rng: np.random.Generator, dealt: np.ndarray, kept: int
) -> tuple[np.ndarray, np.ndarray]:
    """Deal ``dealt`` (N,) cards of shuffled decks of ``cards``.

    Returns:
        (N, 4) cards left of each suit, and (N, kept) suits dealt, the newest first, then zeros.
    """
    order = rng.permuted(np.tile(np.arange(cards) % 4, (len(dealt), 1)), axis=1)
    left = np.arange(cards) >= dealt[:, None]
    deck = np.stack([((order == suit) & left).sum(axis=1) for suit in range(4)], axis=1)
    place = dealt[:, None] - 1 - np.arange(kept)
    pile = np.take_along_axis(order, np.maximum(place, 0), axis=1)
    return deck, np.where(place >= 0, pile, 0)


def sample_states(p: Params, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw deals at any card, often near the first question and the last card."""
    cards, k, kept = constants(p).values()
    near = np.where(rng.random(n) < 0.5, k, cards) - rng.integers(1, 4, n)
    dealt = np.where(rng.random(n) < 0.5, near, rng.integers(1, cards, n))
    deck, pile = deal(cards, rng, dealt, 16 * kept)
    states = np.zeros(n, [(f.name, f.dtype, f.shape) for f in state(p)])
    states["deck"], states["seen"] = pack(deck, 8)[:, 0], pack(pile, 2)
    states["answer"] = rng.integers(-1, 4, n)
    return states


def draw_suit(canvas: "Canvas", suit: int, x: float, y: float, size: float) -> None:
    """Draw the symbol of a suit with height ``size``, centered at (x, y)."""
    color = (canvas.INK, canvas.BLUE, canvas.GREEN, canvas.ORANGE)[suit]

    def polygon(*points: tuple[float, float]) -> None:
        canvas.polygon([(x + size * a, y + size * b) for a, b in points], color)

    def circles(radius: float, *centers: tuple[float, float]) -> None:
        for a, b in centers:
            canvas.circle((x + size * a, y + size * b), size * radius, color)

    if suit == 1:
        polygon((0, 0.5), (0.36, 0), (0, -0.5), (-0.36, 0))
    elif suit == 3:
        circles(0.22, (-0.2, 0.2), (0.2, 0.2))
        polygon((-0.36, 0.06), (0, -0.45), (0.36, 0.06), (0, 0.2))
    else:
        polygon((0, 0), (0.16, -0.48), (-0.16, -0.48))  # the stem
        if suit == 0:
            circles(0.2, (-0.2, -0.1), (0.2, -0.1))
            polygon((-0.37, 0), (0, 0.5), (0.37, 0), (0, -0.1))
        else:
            circles(0.2, (-0.22, -0.08), (0.22, -0.08), (0, 0.27))


def draw_cards(
    canvas: "Canvas",
    suits: npt.ArrayLike,
    box: tuple[float, float, float, float],
    framed: int = -1,
    color: str = "",
    columns: int = 16,
) -> None:
    """Draw cards into a box (left, bottom, right, top), the first at the upper left.

    Args:
        canvas: The picture.
        suits: Suits of the cards. -1 is a card that is face down.
        box: (left, bottom, right, top) of the cards.
        framed: Index of the card with a frame.
        color: Color of the frame.
        columns: Maximum number of cards of a row.
    """
    suits, (left, bottom, right, top) = np.asarray(suits), box
    columns = min(len(suits), columns)
    side = min((right - left) / columns, (top - bottom) / (1.4 * -(-len(suits) // columns)))
    left = (left + right - columns * side) / 2
    for i, suit in enumerate(suits):
        x, y = left + side * (i % columns + 0.5), top - 1.4 * side * (i // columns + 0.5)

        def rectangle(half: float, color: str, x: float = x, y: float = y) -> None:
            dx, dy = half * side, (half + 0.2) * side
            canvas.rectangle(x - dx, y - dy, x + dx, y + dy, color)

        if i == framed:
            rectangle(0.48, color)
        rectangle(0.42, canvas.FLOOR if suit >= 0 else canvas.GRID)
        if suit >= 0:
            draw_suit(canvas, int(suit), x, y, 0.62 * side)


def draw_table(canvas: "Canvas", card: int, answer: int | None, right: bool) -> None:
    """Draw the card shown, the last answer if there is one, and the legend.

    The picture has x from 0 to 16. The space below y = 4.8 is free for the caller.
    """
    canvas.view(0, 16, 0, top=9.6)
    draw_cards(canvas, [card], (3, 5.2, 7, 8.8))
    canvas.text((5, 9.1), "card", 0.6, canvas.SOFT)
    if answer is not None:
        color = canvas.GREEN if right else canvas.PINK
        draw_cards(canvas, [answer], (9, 5.2, 13, 8.8), 0, color)
        canvas.text((11, 9.1), "answer", 0.6, canvas.SOFT)
    canvas.key((canvas.YELLOW, "asked for"), (canvas.GREEN, "right"), (canvas.PINK, "wrong"))


def draw(canvas: "Canvas", p: Params, states: np.ndarray, elapsed: int) -> None:
    """Draw the card shown, the last answer, and the cards back to the one to name.

    The latter are face down during interactive play.
    """
    cards, k, _ = constants(p).values()
    canvas.last_step = cards - 1
    piles = unpack(states["seen"], 2)
    dealt = cards - unpack(states["deck"][:, None], 8).sum(axis=1)
    asked = len(states) > 1 and dealt[-2] >= k
    answer = states["answer"][-1]
    draw_table(
        canvas, piles[-1, 0], answer if asked else None, asked and answer == piles[-2, k - 1]
    )
    shown = 1 if canvas.played else dealt[-1]
    row = np.where(np.arange(k) < shown, piles[-1, :k], -1)
    draw_cards(canvas, row, (0.3, 0.3, 15.7, 4.6), k - 1 if dealt[-1] >= k else -1, canvas.YELLOW)


NETWORK = {  # the network of POPGym's games
    "hidden": (128,),
    "core": {"kind": "gru", "size": 128},
    "activation": "relu",
    "shared": True,
}
TRAINING: dict[str, Any] = {
    "num_envs": 64,
    "steps": 250_000,
    # Answers do not affect later steps.
    "ppo": {
        "network": NETWORK,
        "learning_rate": 2e-3,
        "num_steps": 64,
        "num_minibatches": 8,
        "gamma": 0.5,
        "gae_lambda": 0.9,
        "ent_coef": 0.0,
    },
}
SPEC = cd.EnvSpec(
    name="repeat_previous",
    params=Params,
    state=state,
    groups=groups,
    time_limit="terminates",
    reference=cd.Reference(reset, step, observe, sample_states),
    constants=constants,
    cases=({}, {"difficulty": "medium"}, {"difficulty": "hard"}),
    display=cd.Display(draw=draw, keys=lambda p: {"player": KEYS}, size=(900, 640), fps=4, trail=1),
    training=TRAINING,
    reward_threshold=0.9,
    summary="Name the suit of a card that was shown before (POPGym's RepeatPrevious).",
)
