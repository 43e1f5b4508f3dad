"""Tournaments: each cell is the evaluation of its pair, and whoever cannot play is named."""

import numpy as np
import pytest

import cupydrive as cd
from cupydrive.errors import ParameterError
from cupydrive.examples.self_play import self_play
from cupydrive.experiments.tournament import elo_ratings

SMALL = {"grid_length": 6, "num_taggers": 2, "max_episode_steps": 20}
COMMON = {"episodes": 40, "progress": False}


@pytest.fixture(scope="module")
def run():
    settings = cd.PPO(num_steps=8, hidden=(16,))
    return cd.train(
        "tag_grid", settings, num_envs=16, steps=2000, device="cpu", progress=False, **SMALL
    )


@pytest.mark.full
def test_each_cell_is_the_evaluation_of_its_pair(run):
    policies = {"ppo": run, "rule": cd.HeuristicPolicy(), "chance": cd.RandomPolicy()}
    found = cd.tournament(policies, key="length", **COMMON)
    assert (found.groups, found.policies, found.mean.shape) == (
        ("tagger", "runner"),
        tuple(policies),
        (3, 3),
    )
    for i, tagger in enumerate((run.frozen("tagger"), cd.HeuristicPolicy(), cd.RandomPolicy())):
        for j, runner in enumerate((run.frozen("runner"), cd.HeuristicPolicy(), cd.RandomPolicy())):
            pair = cd.evaluate(
                "tag_grid", {"tagger": tagger, "runner": runner}, episodes=40, device="cpu", **SMALL
            )
            assert (found.mean[i, j], found.half[i, j]) == pair.mean("length")
    table = found.table().splitlines()
    assert table[0].split() == ["tagger", "\\", "runner", "ppo", "rule", "chance", "mean"]
    assert f"{found.mean[1].mean():.4g}" == table[2].split()[-1]
    assert table[4].split()[-1] == f"{found.mean.mean():.4g}" and "40 episodes a pair" in repr(
        found
    )


def test_policies_without_a_run_need_an_environment():
    found = cd.tournament(
        {"rule": cd.HeuristicPolicy(), "chance": cd.RandomPolicy()},
        "tag_grid",
        device="cpu",
        **COMMON,
        **SMALL,
    )
    assert found.key == "tagger" and np.isfinite(found.mean).all()
    # taggers by rule earn more of runners by chance than taggers by chance
    assert found.mean[0, 1] > found.mean[1, 1]
    assert found.score[0, 1] >= found.score[1, 1] and found.elo["rule"] >= found.elo["chance"]


def test_ratings_of_two_are_the_odds_of_their_games():
    """With equal shares on both sides: 3 wins to 1, and no advantage of a side."""
    score = np.array([[0.5, 0.75], [0.25, 0.5]])
    one, other = elo_ratings(score, 10**9)
    assert one - other == pytest.approx(400 * np.log10(3), abs=1e-3)
    assert one + other == pytest.approx(0.0, abs=1e-9)


def test_ratings_are_found_from_games_with_an_advantage():
    """Within four deviations of the estimate, which 3 * 20,000 games a pair leave about 1."""
    ratings, advantage = np.array([250.0, 0.0, -50.0, -200.0]), 80.0
    odds = 10 ** ((ratings[:, None] - ratings + advantage) / 400)
    wins = np.random.default_rng(0).binomial(20_000, odds / (1 + odds))
    assert np.abs(elo_ratings(wins / 20_000, 20_000) - ratings).max() < 8


def test_who_wins_each_game_has_a_rating():
    score = np.array([[0.5, 1.0], [0.0, 0.5]])
    one, other = elo_ratings(score, 99)
    assert one - other == pytest.approx(400 * np.log10(99.5 / 0.5), abs=1e-6)


@pytest.mark.full
def test_each_stage_of_the_example_of_self_play_is_rated_above_the_one_before(tmp_path):
    """With 50,000 env-steps, all are rated above random moves."""
    rated = self_play(tmp_path, steps=50_000, stages=2, device="cpu")
    assert len(rated.policies) == 4 and rated.groups == ("first", "second")
    *stages, chance, _ = rated.elo.values()
    assert stages == sorted(stages) and stages[0] > chance


@pytest.mark.parametrize(
    ("policies", "given", "message"),
    [
        ({"a": cd.HeuristicPolicy()}, {}, "env is missing"),
        (
            {"a": cd.RandomPolicy()},
            {"env": "cartpole"},
            "cartpole has the groups cart, expected two",
        ),
        ({"a": cd.HeuristicPolicy}, {"env": "tag_grid"}, r"policies\['a'\] = "),
        ({}, {"env": "tag_grid"}, "expected at least one"),
        (
            {"a": cd.RandomPolicy()},
            {"env": "tag_grid", "grid_lengt": 5},
            "Did you mean 'grid_length'",
        ),
        (
            {"a": cd.RandomPolicy()},
            {"env": "tag_grid", "key": "lenth", "device": "cpu"},
            "Did you mean 'length'",
        ),
    ],
)
def test_wrong_input_is_named(policies, given, message):
    with pytest.raises(ParameterError, match=message):
        cd.tournament(policies, **COMMON | given)


@pytest.mark.full
def test_runs_must_have_one_environment(run):
    settings = cd.A2C(num_steps=4, hidden=(8,))
    other = cd.train(
        "tag_grid",
        settings,
        num_envs=4,
        steps=16,
        device="cpu",
        progress=False,
        **SMALL | {"grid_length": 7},
    )
    with pytest.raises(ParameterError, match="runs must have the same environment and parameters"):
        cd.tournament({"a": run, "b": other}, **COMMON)
    with pytest.raises(ParameterError, match="env = 'cartpole', but a run was trained in tag_grid"):
        cd.tournament({"a": run}, "cartpole", **COMMON)
    with pytest.raises(ParameterError, match="Leave out grid_length"):
        cd.tournament({"a": run}, **COMMON, grid_length=6)
