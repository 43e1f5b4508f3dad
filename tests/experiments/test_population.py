"""Populations: members are the runs that they would be alone, and what is said of them together is
what statistics says.
"""

import json

import numpy as np
import pytest
from equal_runs import rows, same

import cupydrive as cd
from cupydrive.drawing.curves import curves
from cupydrive.errors import ParameterError, TrainingError

RETURN = "charts/episodic_return"
SMALL = {"num_envs": 8, "steps": 3 * 8 * 8, "device": "cpu", "progress": False}


def ppo(**settings):
    return cd.PPO(num_steps=8, hidden=(16,), num_minibatches=2, **settings)


def test_a_member_is_the_run_that_it_would_be_alone():
    members = [{"learning_rate": 1e-2}, {"gamma": 0.5, "gravity": 5.0}]
    population = cd.train("cartpole", ppo(), seed=4, seeds=2, members=members, **SMALL)
    alone = [
        cd.train("cartpole", ppo(**settings), seed=seed, **params, **SMALL)
        for settings, params in (({"learning_rate": 1e-2}, {}), ({"gamma": 0.5}, {"gravity": 5.0}))
        for seed in (4, 5)
    ]
    assert [run.seed for run in population] == [4, 5, 4, 5] and len(population) == 4
    assert all(
        same(one, other) and rows(one) == rows(other)
        for one, other in zip(population, alone, strict=True)
    )
    assert not same(*population.runs[:2])


@pytest.mark.parametrize("seeds", [[2, 3], (2, 3), range(2, 4), np.array([2, 3])])
def test_seeds_may_be_listed_by_any_sequence_of_ints(seeds):
    population = cd.train("cartpole", ppo(), seeds=seeds, **SMALL | {"steps": 64})
    assert [run.seed for run in population] == [2, 3] and all(
        type(run.seed) is int for run in population
    )


def test_members_may_name_an_algorithm_as_text():
    first, second = cd.train(
        "cartpole", members=[{"algorithm": "a2c", "num_steps": 8}, {"num_envs": 4}], **SMALL
    )
    assert (first.settings["cart"].name, first.settings["cart"].num_steps, second.num_envs) == (
        "a2c",
        8,
        4,
    )
    with pytest.raises(ParameterError, match="algorithm name = 'a2d'"):
        cd.train("cartpole", members=[{"algorithm": "a2d"}], **SMALL)


def test_members_change_policies_of_groups():
    policies = {"tagger": ppo(), "runner": cd.RandomPolicy()}
    members = [
        {"gamma": 0.5},
        {"policies": {"tagger": cd.A2C(num_steps=8), "runner": cd.HeuristicPolicy()}},
    ]
    population = cd.train("tag_grid", policies=policies, members=members, **SMALL)
    first, second = population
    assert (first.settings["tagger"].gamma, first.settings["runner"]) == (0.5, cd.RandomPolicy())
    assert (second.settings["tagger"].name, second.settings["runner"]) == (
        "a2c",
        cd.HeuristicPolicy(),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"members": [{"learning_rte": 1e-3}]},
            r"a name in members\[0\] = 'learning_rte'.*Did you mean 'learning_rate'",
        ),
        ({"members": []}, "at least one member"),
        ({"seeds": [1, -1]}, r"seeds\[1\] = -1"),
        ({"seeds": range(10_001)}, "1 to 10,000 different seeds"),
        ({"seeds": [0, 1], "seed": 3}, r"seeds: got \[0, 1\], .* without seed="),
        ({"members": [{}, {"seed": 2}]}, r"a name in members\[1\] = 'seed', expected "),
        ({"seeds": 2, "resume": True}, "resume=True needs out="),
    ],
)
def test_bad_input_is_named_before_anything_is_trained(given, message, tmp_path):
    with pytest.raises(ParameterError, match=message):
        cd.train("cartpole", ppo(), callback=lambda *_: pytest.fail("trained"), **SMALL, **given)


def test_a_name_that_means_two_things_is_refused():
    with pytest.raises(
        ParameterError, match="'gamma', which is both a setting of ppo and a parameter of rice_n"
    ):
        cd.train("rice_n", members=[{"gamma": 0.3}], **SMALL)


# ---- folders -------------------------------------------------------------------------------------


def test_a_population_goes_on_from_its_folder(tmp_path):
    short = SMALL | {"steps": SMALL["steps"] // 3}
    whole = cd.train("cartpole", ppo(), seeds=2, **SMALL)
    cd.train("cartpole", ppo(), seeds=2, out=tmp_path, **short)
    for resumed in (
        cd.train("cartpole", ppo(), seeds=2, out=tmp_path, resume=True, **SMALL),
        cd.load(tmp_path),
    ):
        assert all(same(one, other) for one, other in zip(whole, resumed, strict=True))
    with pytest.raises(TrainingError, match="already holds a population of 2 runs"):
        cd.train("cartpole", ppo(), seeds=2, out=tmp_path, **SMALL)
    with pytest.raises(TrainingError, match=r"found \[.*\], expected \[.*'seed': 2, .*\]"):
        cd.train("cartpole", ppo(), seeds=3, out=tmp_path, resume=True, **SMALL)
    with pytest.raises(TrainingError, match="holds a population"):
        cd.train("cartpole", ppo(), out=tmp_path, **SMALL)
    assert (
        len(cd.train("cartpole", ppo(), seeds=1, out=tmp_path, overwrite=True, **short))
        == len(cd.load(tmp_path))
        == 1
    )


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 3}', '{"format": 2, "members": []}', "{}"]
)
def test_a_damaged_file_is_named(content, tmp_path):
    (tmp_path / "population.json").write_text(content)
    with pytest.raises(TrainingError, match=r"population\.json"):
        cd.load(tmp_path)


def test_a_population_that_was_not_begun_says_so(tmp_path):
    (tmp_path / "population.json").write_text(
        json.dumps({"format": 3, "members": [{"setting": "", "seed": 0}]})
    )
    with pytest.raises(TrainingError, match="holds a population without a run"):
        cd.load(tmp_path)


# ---- what they say together ----------------------------------------------------------------------


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert cd.interquartile_mean([8, 1, 7, 2, 6, 3, 5, 100])[0] == (3 + 5 + 6 + 7) / 4
    assert cd.interquartile_mean([1.0, 2.0, 6.0])[0] == 3.0  # of three none is left out
    assert cd.interquartile_mean([2.5] * 7) == (2.5, 2.5, 2.5)
    with pytest.raises(ParameterError, match="values is empty"):
        cd.interquartile_mean([])


def test_its_interval_holds_the_truth_as_often_as_it_says():
    """Of 400 sets of 20 normal numbers: a percentile bootstrap of so few is somewhat narrow, 0.92
    instead of 0.95.
    """
    rng = np.random.default_rng(0)
    held = [
        low <= 0 <= high for _, low, high in map(cd.interquartile_mean, rng.normal(size=(400, 20)))
    ]
    assert 0.92 - 4 * (0.92 * 0.08 / 400) ** 0.5 < np.mean(held) <= 0.98


def test_curves_are_medians_with_quartiles():
    runs = [
        [{"charts/global_step": step, "x/y": slope * step} for step in (10, 20, 40)]
        for slope in (1, 2, 3, 10)
    ]
    runs[3] = runs[3][1:]  # begins later
    axes = curves({"": runs}, ["x/y"]).axes[0]
    steps, middle = axes.lines[0].get_data()
    assert steps.tolist() == [10, 20, 40] and middle.tolist() == [20, 50, 100]
    band = axes.collections[0].get_paths()[0].vertices
    # 25 and 75 % of 40, 80, 120, 400
    assert {(40.0, 70.0), (40.0, 190.0)} <= {tuple(point) for point in band}


@pytest.mark.full
def test_a_population_tells_the_best_run_and_the_table():
    population = cd.train(
        "cartpole",
        ppo(),
        members=[{"gamma": 0.9}, {"gamma": 0.5}],
        seeds=2,
        **SMALL | {"steps": 4000},
    )
    scores = population.scores()
    assert scores.shape == (4,) and population.best() is population.runs[int(scores.argmax())]
    table = population.table()
    assert population.by_setting() == {"gamma 0.9": [0, 1], "gamma 0.5": [2, 3]}
    assert (
        f"{np.median(scores[2:]):.5g} (quartiles" in table
        and table.count("interquartile mean") == 2
    )
    assert (
        repr(population).startswith("<Population cartpole: 4 runs")
        and population._repr_html_().count("<img") == 1
    )
    assert [len(found.length) for found in population.evaluate(3)] == [3] * 4
    with pytest.raises(ParameterError, match="Did you mean 'losses/entropy'"):
        population.best("losses/entrpy")
