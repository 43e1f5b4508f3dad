"""Sweeps: what is drawn is what was asked for, what is kept is gone on with, and the best line trains the best trial."""

import math

import masked
import pytest
from conftest import optional

import cupydrive as cd
from cupydrive.cli.main import main
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.training.sweep import SPACE, objective

COMMON = {"num_envs": 8, "steps": 1000, "device": "cpu", "progress": False}
SMALL = cd.PPO(num_steps=8, hidden=(16,), num_minibatches=2)
ROWS = [{"charts/global_step": 10 * k, "r": float(k)} for k in range(5)] + [{"charts/global_step": 50}]


@pytest.fixture(autouse=True)
def optuna():
    return optional("optuna")


def test_what_is_drawn_is_what_was_asked_for(tmp_path):
    space = {"learning_rate": (1e-3, 1e-2, "log"), "gamma": [0.9, 0.99], "update_epochs": (1, 3), "gravity": (5.0, 9.8)}
    found = cd.sweep("cartpole", SMALL, trials=5, batch=2, space=space, out=tmp_path, **COMMON)
    assert len(found.trials) == 5
    for trial in found.trials:
        assert trial.params.keys() == space.keys() and trial.params["gamma"] in (0.9, 0.99)
        assert 1e-3 <= trial.params["learning_rate"] <= 1e-2 and 5.0 <= trial.params["gravity"] <= 9.8
        assert trial.params["update_epochs"] in (1, 2, 3)
    assert found.best.value == max(trial.value for trial in found.trials)


def test_the_line_to_paste_trains_the_best_trial(tmp_path):
    space = {"learning_rate": (1e-3, 1e-2, "log"), "gravity": (5.0, 9.8)}
    found = cd.sweep("cartpole", SMALL, trials=3, space=space, out=tmp_path, **COMMON)
    call = found.line().removesuffix(")") + ', device="cpu", progress=False)'
    run = eval(call, {"cd": cd})  # as a person does who pastes it
    assert run.metrics[-1]["charts/episodic_return"] == found.best.value and found.line() in repr(found)


def test_choices_may_be_texts_and_a_name_that_is_both_is_the_setting(tmp_path):
    """An environment whose parameter has the name of a setting can be swept with nothing named, too: rice_n has gamma."""
    python, kernel = (text.replace("unused", "gamma") for text in (masked.PYTHON, masked.KERNEL))
    space = {"gamma": [0.5, 0.6], "activation": ["tanh", "relu"]}
    found = cd.sweep(cd.register(python, kernel), SMALL, trials=2, space=space, out=tmp_path, **COMMON)
    assert f"gamma={found.best.params['gamma']}" in found.line().split("num_envs")[0]
    assert f"activation {found.best.params['activation']}" in repr(found)


def test_a_sweep_goes_on_from_its_folder(tmp_path):
    first = cd.sweep("cartpole", SMALL, trials=2, out=tmp_path, **COMMON)
    more = cd.sweep("cartpole", SMALL, trials=4, out=tmp_path, resume=True, **COMMON)
    params = [trial.params for trial in more.trials]
    assert params[:2] == [trial.params for trial in first.trials] and len({str(each) for each in params}) == 4
    assert len(cd.sweep("cartpole", SMALL, trials=3, out=tmp_path, resume=True, **COMMON).trials) == 4  # they are done
    kept = (tmp_path / "sweep.jsonl").read_bytes()
    for given, message in (
        ({}, "holds a sweep already"),
        ({"resume": True, "mark": 50.0}, "another sweep: mark is None there, and 50.0"),
        ({"resume": True, "num_envs": 16}, "another sweep: num_envs is 8"),
    ):
        with pytest.raises(TrainingError, match=message):
            cd.sweep("cartpole", SMALL, trials=5, out=tmp_path, **COMMON | given)
    assert (tmp_path / "sweep.jsonl").read_bytes() == kept


@pytest.mark.parametrize(
    "content", ["", "garbage\n", "{}\n", '{"op_code": 0}\n', '{"op_code": 99, "worker_id": "a"}\n']
)
def test_a_file_of_no_sweep_is_named(content, tmp_path):
    (tmp_path / "sweep.jsonl").write_text(content)
    with pytest.raises(TrainingError, match=r"sweep\.jsonl is damaged, or no file of a sweep"):
        cd.sweep("cartpole", SMALL, out=tmp_path, resume=True, **COMMON)


def test_an_interrupt_keeps_the_trials_that_are_done(tmp_path, monkeypatch):
    from cupydrive.training import sweep

    trained = sweep.train

    def interrupted(*arguments, members, steps, **options):
        population = trained(*arguments, members=members, steps=steps, **options)
        population.runs[-1].step = steps - 1  # as a Ctrl-C in the last run leaves it
        return population

    monkeypatch.setattr(sweep, "train", interrupted)
    assert len(cd.sweep("cartpole", SMALL, trials=6, batch=3, out=tmp_path, **COMMON).trials) == 2
    monkeypatch.undo()
    assert len(cd.sweep("cartpole", SMALL, trials=6, batch=3, out=tmp_path, resume=True, **COMMON).trials) == 6


def test_what_counts_is_the_return_at_the_end_or_the_way_to_the_mark():
    assert objective(ROWS, "r", None, 50) == 4.0 and objective(ROWS, "s", None, 50) == -math.inf
    assert objective(ROWS, "r", 2.5, 50) == 30.0 and objective(ROWS, "r", 4.5, 50) == 100.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"space": {"learning_rte": [1]}}, "Did you mean 'learning_rate'"),
        ({"space": {"gamma": (0.9, 0.5)}}, r"space\['gamma'\] = \(0.9, 0.5\)"),
        ({"space": {"gamma": (0.0, 0.5, "log")}}, r"space\['gamma'\]"),
        ({"space": {"gamma": []}}, r"space\['gamma'\]"),
        ({"space": {}}, "space is empty"),
        ({"trials": 0}, "trials = 0"),
        ({"seed": 2**32}, "seed = "),
        ({"gravity": -1.0}, "gravity = -1"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(given, message, tmp_path):
    with pytest.raises(ParameterError, match=message):
        cd.sweep("cartpole", SMALL, out=tmp_path / "new", **COMMON | given)
    assert not (tmp_path / "new").exists()


def test_the_return_of_several_groups_is_named(tmp_path):
    with pytest.raises(ParameterError, match="pass key= as one of charts/episodic_return/tagger"):
        cd.sweep("tag_grid", SMALL, out=tmp_path / "new", **COMMON)


def test_settings_that_are_tried_by_default_exist():
    known = {name for kind in (cd.PPO, cd.A2C, cd.DDPG) for name in kind.__dataclass_fields__}
    assert known >= SPACE.keys()


def test_the_command_line(tmp_path, capsys):
    command = [
        "sweep",
        "cartpole",
        "--out",
        str(tmp_path),
        "--trials",
        "2",
        "--steps",
        "2e3",
        "--num-envs",
        "8",
        "--device",
        "cpu",
    ]
    assert main(command) == 0
    words = capsys.readouterr().out
    assert "2 trials, best return" in words and "cd.train('cartpole', cd.PPO(" in words
    assert (tmp_path / "sweep.png").stat().st_size > 1000
    assert main(command) == 2 and main([*command, "--resume"]) == 0
