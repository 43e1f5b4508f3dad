"""Battleship and Concentration are POPGym's own games: its boards, step by step, and its random
policy's mean.
"""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from conftest import optional

import cupydrive as cd
import cupydrive.gymnasium

LEVELS = ("easy", "medium", "hard")
EPISODES = 60  # compared step by step: of random actions, and of actions that finish the game
PLAYED = 300  # by a random policy


def theirs(name, difficulty):
    """Return a new environment of POPGym."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optional("popgym")
        from popgym import envs
    return getattr(envs, name.capitalize() + difficulty.capitalize())()


def words(entries, bits):
    """Return uint32 words with so many bits of each entry, the first ones lowest."""
    per_word = 32 // bits
    padded = np.pad(entries.astype(np.uint32), (0, -len(entries) % per_word))
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (padded.reshape(-1, per_word) << shifts).sum(axis=1, dtype=np.uint32)


def sweep(env, rng):
    """Return actions that shoot at each cell once, in random order."""
    cells = rng.permutation(env.board_size**2)
    return np.stack(np.divmod(cells, env.board_size), axis=-1)


def board(env):
    """Return the state of ours with the ships of theirs."""
    return {"ships": words(env.board.reshape(-1), 1)}


def outcome(env, seen, obs, action):
    """Compare an observation with what theirs shows, and with the action that ours adds."""
    size, last = env.board_size, np.zeros((2, env.board_size))
    if action is not None:
        last[[0, 1], action] = 1
    np.testing.assert_array_equal(obs, [1 - seen, seen, *last.reshape(2 * size)])


def matches(env, rng):
    """Return actions that turn over all pairs of the deck, in random order."""
    cards = np.argsort(env.state + rng.random(len(env.state)))  # neighbours match
    return rng.permutation(cards.reshape(-1, 2)).reshape(-1)


def deck(env):
    """Return the state of ours with the cards of theirs."""
    bits = 1 if env.facedown_card == 2 else 4
    return {"deck": words(env.state, bits)}


def cards(env, seen, obs, action):
    """Compare the kinds of cards that are seen."""
    kinds = env.facedown_card + 1
    np.testing.assert_array_equal(obs.reshape(-1, kinds), np.eye(kinds)[seen])


GAMES = {"battleship": (sweep, board, outcome), "concentration": (matches, deck, cards)}


@pytest.mark.parametrize("difficulty", LEVELS)
@pytest.mark.parametrize("name", GAMES)
def test_episodes_are_popgyms_step_by_step(name, difficulty):
    solution, start, same = GAMES[name]
    rng = np.random.default_rng(5)
    games = [theirs(name, difficulty) for _ in range(EPISODES)]
    shown = [game.reset(seed=k)[0] for k, game in enumerate(games)]
    ours = cd.make(name, difficulty=difficulty, num_envs=EPISODES, device="cpu")
    ours.reset(seed=3)
    starts = [start(game) for game in games]
    obs, _ = ours.set_state(**{key: np.stack([s[key] for s in starts]) for key in starts[0]})
    for k, game in enumerate(games):
        same(game, shown[k], obs[k].numpy(), None)
        game.action_space.seed(k)
    solved = [solution(game, rng) for game in games[: EPISODES // 2]]
    playing, ends = set(range(EPISODES)), []
    for t in range(ours.params.max_episode_steps):
        actions = np.array(
            [
                solved[k][t % len(solved[k])] if k < len(solved) else game.action_space.sample()
                for k, game in enumerate(games)
            ],
            np.int32,
        )
        obs, reward, terminated, truncated, _ = ours.step(
            torch.from_numpy(actions), autoreset=False
        )
        for k in sorted(playing):
            seen, gain, done, cut, _ = games[k].step(actions[k])
            same(games[k], seen, obs[k].numpy(), actions[k])
            np.testing.assert_allclose(reward[k], gain, rtol=1e-6)
            assert terminated[k] == done and truncated[k] == (cut and not done)
            if done or cut:
                playing.remove(k)
                ends.append(bool(done))
        if not playing:
            break
    assert not playing and 0 < sum(ends) < len(ends)  # some won, some ran out of steps


@pytest.mark.parametrize("difficulty", LEVELS)
@pytest.mark.parametrize("name", GAMES)
def test_a_random_policy_gets_popgyms_mean(name, difficulty):
    """Within three standard errors."""
    game, returns = theirs(name, difficulty), np.zeros(PLAYED)
    game.action_space.seed(0)
    for k in range(PLAYED):
        game.reset(seed=k)
        over = False
        while not over:
            _, reward, done, cut, _ = game.step(game.action_space.sample())
            returns[k] += reward
            over = done or cut
    ours = cd.evaluate(name, "random", episodes=20_000, device="cpu", difficulty=difficulty)
    mean, half = ours.mean("player")  # half of the 95 % interval
    error = np.hypot(half / 1.96, returns.std() / np.sqrt(PLAYED))
    assert abs(mean - returns.mean()) < 3 * error


@pytest.mark.parametrize(
    "name, limits", [("battleship", (64, 100, 144)), ("concentration", (104, 208, 104))]
)
def test_difficulty_sets_the_time_limit_unless_it_is_given(name, limits):
    for difficulty, limit in zip(LEVELS, limits, strict=True):
        assert cd.make(name, difficulty=difficulty, device="cpu").params.max_episode_steps == limit
        env = gymnasium.make(f"cupydrive/{name.capitalize()}-v0", difficulty=difficulty)
        env.reset(seed=0)
        steps = 1
        while not any(env.step(np.zeros_like(env.action_space.sample()))[2:4]):
            steps += 1
        assert steps == limit
        env.close()
    assert cd.make(name, max_episode_steps=7, device="cpu").params.max_episode_steps == 7
