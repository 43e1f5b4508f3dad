"""Sweeps: draws stay in the space, the journal is continued and shared, and the best configuration
trains the best trial.
"""

import gc
import json
import math
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import masked
import numpy as np
import pytest
from conftest import optional
from networks import Joint

import cupydrive as cd
from cupydrive.cli.main import main
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.experiments.members import Training
from cupydrive.experiments.sweep import SPACE, Sweep

COMMON = {"num_envs": 8, "steps": 1000, "device": "cpu", "progress": False}
SMALL = cd.PPO(num_steps=8, hidden=(16,), num_minibatches=2)
RATES = {"learning_rate": (1e-5, 1e-1, "log")}
RETURN = "charts/episodic_return"


@pytest.fixture(autouse=True)
def optuna():
    return optional("optuna")


def returns(config, rung, device="cpu"):
    """Return the last return of a configuration that is trained alone, up to a number of env-steps;
    None if there is none.
    """
    rows = cd.train("cartpole", **config, device=device, progress=False).metrics
    known = [
        row[RETURN]
        for row in rows
        if row["charts/global_step"] <= math.ceil(rung / 64) * 64 and RETURN in row
    ]
    return known[-1] if known else None


def test_draws_stay_in_the_space_and_one_process_repeats_a_sweep(tmp_path):
    space = {
        "learning_rate": (1e-3, 1e-2, "log"),
        "gamma": [0.9, 0.99],
        "update_epochs": (1, 3),
        "gravity": (5.0, 9.8),
    }
    first, again = (
        cd.sweep("cartpole", SMALL, trials=12, batch=4, space=space, out=tmp_path / name, **COMMON)
        for name in "ab"
    )
    one, other = ([(t.number, t.params, t.value) for t in found.trials] for found in (first, again))
    assert one == other
    assert len({str(trial.params) for trial in first.trials}) == 12
    for trial in first.trials:
        assert trial.params.keys() == space.keys() and trial.params["gamma"] in (0.9, 0.99)
        assert (
            1e-3 <= trial.params["learning_rate"] <= 1e-2 and 5.0 <= trial.params["gravity"] <= 9.8
        )
        assert trial.params["update_epochs"] in (1, 2, 3)
    assert (
        first.best.value
        == max(trial.value for trial in first.trials)
        == returns(first.best_config, 1000)
    )
    assert f"{first.best.value:,.6g}" in first.table().splitlines()[1]


@pytest.mark.full
def test_a_table_has_a_column_for_each_name_however_long(optuna):
    drawn = {"force_mag": 5.5, "max_episode_steps": 174, "num_other_agents_observed": 3}
    ranges = {name: optuna.distributions.FloatDistribution(0, 200) for name in drawn}
    trial = optuna.trial.create_trial(params=drawn, distributions=ranges, value=9.0)
    found = Sweep("cartpole", optuna.create_study(), (trial,), SMALL, {})
    titles, row = (line.split() for line in found.table().splitlines())
    assert titles == ["trial", "return", *drawn] and len(row) == len(titles)


@pytest.mark.full
def test_choices_may_be_texts_and_a_name_that_is_both_is_the_setting(tmp_path):
    """An environment whose parameter has the name of a setting can be swept: rice_n has gamma."""
    python, kernel = (text.replace("unused", "gamma") for text in (masked.PYTHON, masked.KERNEL))
    space = {"gamma": [0.5, 0.6], "activation": ["tanh", "relu"]}
    config = cd.sweep(
        cd.register(python, kernel), SMALL, trials=2, space=space, out=tmp_path, **COMMON
    ).best_config
    assert config.keys() == {"algorithm", "num_envs", "steps", "seed"}
    assert (
        config["algorithm"].gamma in space["gamma"]
        and config["algorithm"].activation in space["activation"]
    )


def test_settings_that_are_tried_by_default_exist():
    assert SPACE.keys() <= {
        name for kind in (cd.PPO, cd.A2C, cd.DDPG) for name in kind.__dataclass_fields__
    }


# ---- the journal ---------------------------------------------------------------------------------


def test_the_same_call_continues_a_sweep_and_another_one_is_refused(tmp_path):
    first = cd.sweep("cartpole", SMALL, trials=2, space=RATES, out=tmp_path, **COMMON)
    first.study.ask()  # of a process that dies now
    more = cd.sweep("cartpole", SMALL, trials=4, space=RATES, out=tmp_path, **COMMON)
    assert {t.number for t in first.trials} == {0, 1} and {t.number for t in more.trials} == {
        0,
        1,
        3,
        4,
    }
    for given, message in (
        ({"reward_threshold": 50.0}, "another sweep: reward_threshold: found None, expected 50.0"),
        ({"num_envs": 16}, "another sweep: num_envs: found 8"),
        ({"space": {"gamma": [0.9]}}, "another sweep: space: found "),
        ({"gravity": 5.0}, "another sweep: gravity: found 9.8"),
        (
            {"algorithm": replace(SMALL, gamma=0.5)},
            "another sweep: gamma of policy 'cart': found 0.99, expected 0.5",
        ),
    ):
        with pytest.raises(TrainingError, match=message):
            cd.sweep(
                "cartpole",
                **COMMON
                | {"algorithm": SMALL, "trials": 5, "out": tmp_path, "space": RATES}
                | given,
            )
    assert (
        len(cd.sweep("cartpole", SMALL, trials=3, space=RATES, out=tmp_path, **COMMON).trials) == 4
    )


def test_equal_settings_continue_a_sweep_whatever_their_addresses(tmp_path):
    for trials in (1, 2):
        settings = cd.PPO(
            num_steps=8, num_minibatches=2, policy=lambda obs_dim, size: Joint(obs_dim, size)
        )
        found = cd.sweep("cartpole", settings, trials=trials, space=RATES, out=tmp_path, **COMMON)
    assert len(found.trials) == 2
    with pytest.raises(
        TrainingError, match=r"another sweep: network: found .*lambda.*, expected .*Joint"
    ):
        cd.sweep(
            "cartpole",
            replace(settings, policy=Joint),
            trials=3,
            space=RATES,
            out=tmp_path,
            **COMMON,
        )


def test_a_torn_last_line_is_dropped_and_the_sweep_goes_on(tmp_path):
    path = tmp_path / "sweep.jsonl"
    cd.sweep("cartpole", SMALL, trials=2, space=RATES, out=tmp_path, **COMMON)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole)[:-5])
    assert (
        len(cd.sweep("cartpole", SMALL, trials=3, space=RATES, out=tmp_path, **COMMON).trials) == 3
    )
    assert path.read_bytes().splitlines(keepends=True)[: len(whole) - 1] == whole[:-1]


def test_two_processes_share_a_study(tmp_path):
    call = f"cd.sweep('cartpole', cd.PPO(num_steps=8), trials=12, batch=2, space={RATES!r}, out='.', **{COMMON!r})"
    environ = os.environ | {"PYTHONPATH": str(Path(cd.__file__).parents[1])}
    command = [sys.executable, "-c", f"import cupydrive as cd; {call}"]
    for process in [subprocess.Popen(command, cwd=tmp_path, env=environ) for _ in range(2)]:
        assert process.wait(timeout=300) == 0
    operations = [json.loads(line) for line in (tmp_path / "sweep.jsonl").read_text().splitlines()]
    told = [(op["trial_id"], op["worker_id"]) for op in operations if op["op_code"] == 6]
    found = cd.sweep(
        "cartpole", cd.PPO(num_steps=8), trials=12, space=RATES, out=tmp_path, **COMMON
    )
    assert (
        sorted(number for number, _ in told) == list(range(len(found.trials)))
        and len({who for _, who in told}) == 2
    )
    assert 12 <= len(found.trials) <= 14 and len(
        {trial.params["learning_rate"] for trial in found.trials}
    ) == len(told)


@pytest.mark.parametrize(
    "damage", ["garbage", "{}", '{"op_code": 99, "worker_id": "a"}', "[" * 100_000]
)
def test_a_damaged_journal_is_one_error(damage, tmp_path):
    path = tmp_path / "sweep.jsonl"
    path.write_text(f"{damage}\n")
    kept = path.read_bytes()
    with pytest.raises(
        TrainingError, match=r"sweep\.jsonl cannot be used as the journal of a sweep"
    ):
        cd.sweep("cartpole", SMALL, trials=2, space=RATES, out=tmp_path, **COMMON)
    assert path.read_bytes() == kept


def test_the_learners_of_a_batch_are_gone_before_the_next_one(tmp_path, monkeypatch):
    train, learners, alive = Training.train, [], []

    def watched(self, *about):
        alive.append(sum(learner() is not None for learner in learners))
        learners.extend(
            weakref.ref(learner) for run in self.runs.values() for learner in run.learners.values()
        )
        return train(self, *about)

    monkeypatch.setattr(Training, "train", watched)
    by_torch = replace(SMALL, activation="silu")
    gc.disable()
    try:
        cd.sweep("cartpole", by_torch, trials=3, batch=1, space=RATES, out=tmp_path, **COMMON)
    finally:
        gc.enable()
    assert alive == [0, 0, 0]


@pytest.mark.parametrize(
    ("broken", "error"), [("journal", TrainingError), ("training", FileNotFoundError)]
)
def test_only_an_error_of_its_file_is_one_of_the_journal(broken, error, tmp_path, monkeypatch):
    def fail(*_):
        raise FileNotFoundError(2, "gone")

    target = "optuna.storages.journal.JournalFileBackend.append_logs"
    monkeypatch.setattr(
        target if broken == "journal" else "cupydrive.experiments.members.Training.train", fail
    )
    with pytest.raises(error, match="gone") as caught:
        cd.sweep("cartpole", SMALL, trials=1, space=RATES, out=tmp_path, **COMMON)
    assert ("journal of a sweep" in str(caught.value)) == (broken == "journal")


@pytest.mark.parametrize("prune", [False, True])
def test_an_interrupt_keeps_the_trials_that_are_done(prune, tmp_path, monkeypatch):
    train, calls = Training.train, []

    def interrupted(self, *about):
        calls.append(about)
        if len(calls) == 2 + 4 * prune:  # in the second batch, with pruning behind its first rung
            raise KeyboardInterrupt
        return train(self, *about)

    options = {"space": RATES, "trials": 6, "batch": 3, "prune": prune, "out": tmp_path, **COMMON}
    monkeypatch.setattr(Training, "train", interrupted)
    found = cd.sweep("cartpole", SMALL, **options)
    assert "(interrupted): 3 trials" in repr(found) and sorted(
        trial.number for trial in found.trials
    ) == [0, 1, 2]
    monkeypatch.undo()
    assert len(cd.sweep("cartpole", SMALL, **options).trials) == 6


# ---- failures ------------------------------------------------------------------------------------

LARGE = 2**30  # steps of a rollout that no machine can store


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 4])
def test_a_trial_that_does_not_fit_into_memory_fails_and_the_others_are_trained(batch, tmp_path):
    by_torch = replace(SMALL, activation="silu")  # kernels count rows in 32 bits
    options = {
        "space": {"num_steps": [8, LARGE], **RATES},
        "out": tmp_path,
        **COMMON,
        "num_envs": 64,
    }
    with pytest.warns(
        cd.CupydriveWarning, match=rf"trial \d+, .* failed: cartpole: num_steps = {LARGE} needs"
    ):
        found = cd.sweep("cartpole", by_torch, trials=6, batch=batch, **options)
    assert 0 < len(found.trials) < 6 and {trial.params["num_steps"] for trial in found.trials} == {
        8
    }


def test_a_sweep_whose_trials_have_all_failed_says_so(tmp_path):
    space = {"learning_rate": [1e30]}
    with (
        pytest.warns(cd.CupydriveWarning, match=r"trial \d, .* failed: .* not finite"),
        pytest.raises(TrainingError, match=r"all trials failed\. The warnings name the reasons"),
    ):
        cd.sweep("cartpole", SMALL, trials=2, space=space, out=tmp_path, **COMMON)


def test_a_mistake_in_a_callers_network_ends_a_sweep(tmp_path):
    def network(obs_dim, size):
        raise RuntimeError("no memory of how to do this")

    with pytest.raises(ParameterError, match="no memory of how"):
        cd.sweep(
            "cartpole",
            cd.PPO(num_steps=8, policy=network),
            trials=2,
            space=RATES,
            out=tmp_path,
            **COMMON,
        )


def test_a_sweep_without_any_return_has_no_best(tmp_path):
    found = cd.sweep(
        "cartpole", SMALL, trials=2, out=tmp_path, space=RATES, **COMMON | {"steps": 64}
    )
    assert "-inf" in found.table()
    for without in (found, Sweep("cartpole", None, (), SMALL, {})):
        with pytest.raises(
            ParameterError, match=r"no trial of the sweep has a value yet.*Pass more steps="
        ):
            _ = without.best_config


# ---- the objective, pruning ----------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_pruned_trials_are_worse_than_the_median_and_the_others_are_trained_as_without_pruning(
    device, tmp_path
):
    options = COMMON | {"steps": 4000, "space": RATES, "device": device, "out": tmp_path}
    found = cd.sweep("cartpole", SMALL, trials=15, batch=5, prune=True, **options)
    by_number = sorted(found.trials, key=lambda trial: trial.number)
    done = [trial for trial in by_number[:5] if trial.state.name == "COMPLETE"]
    assert len(done) == 5  # nothing to compare with
    for trial in by_number:
        config = {"algorithm": replace(SMALL, **trial.params), "num_envs": 8, "steps": 4000}
        assert trial.intermediate_values == {
            rung: returns(config, rung, device) for rung in trial.intermediate_values
        }
        assert trial.state.name == "PRUNED" or trial.value == returns(config, 4000, device)
    for trial in by_number[5:10]:
        ended = max(trial.intermediate_values, default=None)
        best = max(trial.intermediate_values.values(), default=0.0)
        others = [
            each.intermediate_values[ended] for each in done if ended in each.intermediate_values
        ]
        assert trial.state.name == "COMPLETE" or best < np.median(others)
    assert found.best.state.name == "COMPLETE" and any(
        trial.state.name == "PRUNED" for trial in by_number
    )


@pytest.mark.parametrize("prune", [False, True])
def test_the_fewest_env_steps_to_the_reward_threshold_win(prune, tmp_path):
    options = COMMON | {
        "steps": 4000,
        "space": RATES,
        "reward_threshold": 30.0,
        "prune": prune,
        "out": tmp_path,
    }
    found = cd.sweep("cartpole", SMALL, trials=8, **options)
    best, rows = (
        found.best,
        cd.train("cartpole", **found.best_config, device="cpu", progress=False).metrics,
    )
    reached = next(row["charts/global_step"] for row in rows if row.get(RETURN, 0) >= 30.0)
    assert (
        best.value
        == reached
        == min(trial.value for trial in found.trials if trial.state.name == "COMPLETE")
    )
    assert "env-steps to 30" in repr(found)


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"space": {"learning_rte": [1]}}, "Did you mean 'learning_rate'"),
        ({"space": {"gamma": (0.9, 0.5)}}, r"space\['gamma'\]: got \(0.9, 0.5\)"),
        ({"space": {"gamma": (0.0, 0.5, "log")}}, r"space\['gamma'\]"),
        ({"space": {"gamma": []}}, r"space\['gamma'\]"),
        ({"space": {}}, "space is empty"),
        ({"gravity": -1.0}, "gravity = -1"),
        ({"n_trials": 3}, "no parameter 'n_trials'. Did you mean 'trials'"),
        (
            {"key": "losses/entropy"},
            "expected 'charts/episodic_length' or 'charts/episodic_return'",
        ),
        ({"env": "tag_grid"}, r"key = None, expected .*'charts/episodic_return/tagger'"),
        ({"key": "episodic_return"}, "Did you mean 'charts/episodic_return'"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(given, message, tmp_path):
    with pytest.raises(ParameterError, match=message):
        cd.sweep(
            **{"env": "cartpole", "algorithm": SMALL, "out": tmp_path / "new", **COMMON, **given}
        )
    assert not (tmp_path / "new").exists()


@pytest.mark.full
def test_the_command_line(tmp_path, capsys):
    command = (
        f"sweep cartpole --out {tmp_path} --trials 2 --steps 2e3 --num-envs 8 --device cpu".split()
    )
    assert main(command) == 0
    words = capsys.readouterr().out
    assert "<Sweep cartpole: 2 trials" in words and "learning_rate" in words
    assert main(command) == 0 and capsys.readouterr().out == words
