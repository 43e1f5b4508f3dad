"""POPGym's environments that deal suits, against the package `popgym` itself: whole episodes with
the same cards and answers, and what random answers earn.
"""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import optional

import cupydrive as cd

TITLES = {
    "repeat_previous": "RepeatPrevious",
    "repeat_first": "RepeatFirst",
    "autoencode": "Autoencode",
}
CASES = [(name, level) for name in TITLES for level in ("easy", "medium", "hard")]


def theirs(name, level):
    optional("popgym")
    module = import_module(f"popgym.envs.{name}")
    return getattr(module, TITLES[name] + level.capitalize())()


def stacked(deck, suits):
    """Return a random generator that shuffles ``deck`` so that these ``suits`` are dealt."""
    order = np.empty(deck.num_cards, int)
    for suit in range(4):
        order[suits == suit] = np.flatnonzero(deck.suits_idx == suit)

    def shuffle(cards):
        cards[:] = order[::-1]  # dealt from the end

    return SimpleNamespace(shuffle=shuffle)


def as_theirs(row):
    """Return an observation of ours as theirs: the number of the suit, behind the mode if there is
    one.
    """
    assert sorted(row[-4:]) == [0, 0, 0, 1]
    suit = int(row[-4:].argmax())
    return suit if len(row) == 4 else (int(row[0]), suit)


def play(name, level, episodes, steps, seed=0):
    """Return observations (T + 1, N, D), actions, rewards and ends (T, N) of whole episodes."""
    env = cd.make(name, episodes, device="cpu", difficulty=level)
    obs, _ = env.reset(seed=seed)
    seen, played = [obs.numpy().copy()], []
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        action = rng.integers(0, 4, episodes)
        obs, reward, terminated, truncated, _ = env.step(
            torch.as_tensor(action, dtype=torch.int32), autoreset=False
        )
        assert not truncated.any()
        seen.append(obs.numpy().copy())
        played.append((action, reward.numpy().copy(), terminated.numpy().copy()))
    return np.stack(seen), *map(np.stack, zip(*played, strict=True))


@pytest.mark.quick(3)
@pytest.mark.parametrize("name, level", CASES)
def test_episodes_with_the_same_cards_are_popgyms_step_by_step(name, level):
    env = theirs(name, level)
    seen, actions, rewards, ends = play(name, level, 8, env.max_episode_length)
    for e in range(8):
        suits = seen[: env.deck.num_cards, e, -4:].argmax(axis=-1)
        env.np_random = stacked(env.deck, suits)
        obs, _ = env.reset()
        assert obs == as_theirs(seen[0, e])
        for t, action in enumerate(actions[:, e]):
            obs, reward, terminated, truncated, _ = env.step(action)
            assert (obs, terminated, truncated) == (as_theirs(seen[t + 1, e]), ends[t, e], False)
            assert abs(reward - rewards[t, e]) < 1e-7
        assert terminated


@pytest.mark.parametrize("name, level", CASES)
def test_random_answers_earn_what_they_earn_with_popgym(name, level):
    env, rng = theirs(name, level), np.random.default_rng(1)
    returns = np.zeros(20_000 // env.max_episode_length)
    for k in range(len(returns)):
        env.reset(seed=k)
        for action in rng.integers(0, 4, env.max_episode_length):
            returns[k] += env.step(action)[1]
    ours = play(name, level, 1000, env.max_episode_length, seed=2)[2].sum(axis=0)
    error = np.sqrt(ours.var() / len(ours) + returns.var() / len(returns))
    assert abs(ours.mean() - returns.mean()) < 3 * error


@pytest.mark.parametrize("name", TITLES)
def test_every_card_is_dealt_once_and_in_any_order(name):
    """Of a card's place the variance is that of a uniform permutation, and neighbours are
    correlated by -1 / 51.
    """
    n = 20_000
    seen = play(name, "easy", n, 51)[0][..., -4:].argmax(axis=-1)  # (52, N)
    assert (np.sort(seen, axis=0) == np.repeat(np.arange(4), 13)[:, None]).all()
    spades = (seen == 0) - 0.25
    assert np.abs(spades.mean(axis=1)).max() < 5.2 * np.sqrt(0.1875 / n)
    for ago in (1, 2, 51):
        products = (spades[ago:] * spades[:-ago]).mean(axis=0)
        assert abs(products.mean() + 0.1875 / 51) < 5.2 * products.std() / np.sqrt(n)
