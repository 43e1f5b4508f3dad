"""Sweeps: what is drawn is what was asked for, what is kept is gone on with, and the best line trains the best trial."""

import math
from dataclasses import replace

import masked
import numpy as np
import pytest
from conftest import optional

import cupydrive as cd
from cupydrive.cli.main import main
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.terminal.curves import best_so_far
from cupydrive.training.space import SPACE
from cupydrive.training.study import PRUNERS, rungs
from cupydrive.training.sweep import Sweep
from cupydrive.training.trials import objective

COMMON = {"num_envs": 8, "steps": 1000, "device": "cpu", "progress": False, "objective": "return", "time_best": False}
SMALL = cd.PPO(num_steps=8, hidden=(16,), num_minibatches=2)
RATES = {"learning_rate": (1e-5, 1e-1, "log")}
RETURN = "charts/episodic_return"
ROWS = [{"charts/global_step": 10 * k, "r": float(k)} for k in range(5)] + [{"charts/global_step": 50}]


@pytest.fixture(autouse=True)
def optuna():
    return optional("optuna")


@pytest.mark.full
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


@pytest.mark.full
def test_choices_may_be_texts_and_a_name_that_is_both_is_the_setting(tmp_path):
    """An environment whose parameter has the name of a setting can be swept with nothing named, too: rice_n has gamma."""
    python, kernel = (text.replace("unused", "gamma") for text in (masked.PYTHON, masked.KERNEL))
    space = {"gamma": [0.5, 0.6], "activation": ["tanh", "relu"]}
    found = cd.sweep(cd.register(python, kernel), SMALL, trials=2, space=space, out=tmp_path, **COMMON)
    assert f"gamma={found.best.params['gamma']}" in found.line().split("num_envs")[0]
    assert f"activation {found.best.params['activation']}" in repr(found)


@pytest.mark.full
def test_a_sweep_goes_on_from_its_folder(tmp_path):
    first = cd.sweep("cartpole", SMALL, trials=2, out=tmp_path, **COMMON)
    more = cd.sweep("cartpole", SMALL, trials=4, out=tmp_path, resume=True, **COMMON)
    params = [trial.params for trial in more.trials]
    assert params[:2] == [trial.params for trial in first.trials] and len({str(each) for each in params}) == 4
    assert len(cd.sweep("cartpole", SMALL, trials=3, out=tmp_path, resume=True, **COMMON).trials) == 4  # they are done
    kept = (tmp_path / "sweep.jsonl").read_bytes()
    for given, message in (
        ({}, "holds a sweep already"),
        ({"resume": True, "mark": 50.0, "objective": "mark"}, "another sweep: mark is None there, and 50.0"),
        ({"resume": True, "num_envs": 16}, "another sweep: num_envs is 8"),
        ({"resume": True, "pruner": "median"}, "another sweep: pruner is None there, and 'median'"),
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


@pytest.mark.full
def test_an_interrupt_keeps_the_trials_that_are_done(tmp_path, monkeypatch):
    from cupydrive.training import trials

    trained = trials.train

    def interrupted(*arguments, members, steps, **options):
        population = trained(*arguments, members=members, steps=steps, **options)
        population.runs[-1].step = steps - 1  # as a Ctrl-C in the last run leaves it
        return population

    monkeypatch.setattr(trials, "train", interrupted)
    found = cd.sweep("cartpole", SMALL, trials=6, batch=3, out=tmp_path, **COMMON)
    assert len(found.trials) == 2 and found.interrupted
    monkeypatch.undo()
    assert len(cd.sweep("cartpole", SMALL, trials=6, batch=3, out=tmp_path, resume=True, **COMMON).trials) == 6


BY_TORCH = replace(SMALL, activation="silu")  # kernels would not number as many rows
LARGE = 2**30  # steps of a rollout: with 64 copies no machine keeps them
NEVER_FITS = {"num_steps": [8, LARGE], "learning_rate": (1e-4, 1e-2, "log")}


@pytest.mark.full
@pytest.mark.parametrize("batch", [1, 4])
def test_a_trial_that_does_not_fit_into_memory_fails_and_the_others_are_trained(batch, tmp_path):
    options = COMMON | {"num_envs": 64, "steps": 5000}
    words = rf"trial \d+, .*{LARGE}.*, has failed: cartpole: num_steps = {LARGE} needs .* are free"
    with pytest.warns(cd.CupydriveWarning, match=words):
        found = cd.sweep("cartpole", BY_TORCH, trials=6, batch=batch, space=NEVER_FITS, out=tmp_path, **options)
    assert found.done and {trial.params["num_steps"] for trial in found.trials} == {8}
    assert len(found.trials) < 6 and not found.interrupted
    run = eval(found.line().removesuffix(")") + ', device="cpu", progress=False)', {"cd": cd})
    assert run.metrics[-1][RETURN] == found.best.value  # also of one that was trained alone after its batch


@pytest.mark.full
@pytest.mark.parametrize(
    "space, fails",
    [({"num_steps": [LARGE]}, "needs .* are free"), ({"learning_rate": [1e30]}, "is not finite|infinite")],
)
def test_a_sweep_whose_trials_have_all_failed_says_why(space, fails, tmp_path):
    with (
        pytest.warns(cd.CupydriveWarning, match="has failed"),
        pytest.raises(TrainingError, match=rf"all trials have failed, at last .*{fails}.*; pass another space="),
    ):
        cd.sweep("cartpole", BY_TORCH, trials=2, space=space, out=tmp_path, **COMMON | {"num_envs": 64})


def test_a_mistake_in_a_callers_network_still_ends_a_sweep(tmp_path):
    def network(obs_dim, size):
        raise RuntimeError("no memory of how to do this")

    with pytest.raises(RuntimeError, match="no memory of how"):
        cd.sweep("cartpole", cd.PPO(num_steps=8, policy=network), trials=2, space=RATES, out=tmp_path, **COMMON)


# ---- pruners ---------------------------------------------------------------------------------------------------------

LONGER = COMMON | {"steps": 4000}


def whole(trial, mark=None, device="cpu"):
    """Return what a trial counts if its settings are trained from beginning to end at once, and its return at each rung."""
    settings = cd.PPO(num_steps=8, hidden=(16,), num_minibatches=2, **trial.params)
    rows = cd.train("cartpole", settings, num_envs=8, steps=4000, device=device, progress=False).metrics
    levels = {}
    for rung in (500, 1000, 2000):
        known = [
            row[RETURN] for row in rows if row["charts/global_step"] <= math.ceil(rung / 64) * 64 and RETURN in row
        ]
        levels |= {rung: known[-1]} if known else {}
    return objective(rows, RETURN, mark, 4000), levels


@pytest.mark.full
@pytest.mark.parametrize("pruner", PRUNERS)
def test_what_is_not_pruned_is_trained_as_if_there_were_no_pruner(pruner, tmp_path):
    found = cd.sweep("cartpole", SMALL, trials=12, batch=6, space=RATES, pruner=pruner, out=tmp_path, **LONGER)
    assert len(found.trials) == 12 and 0 < len(found.done) < 12 and "12 trials (" in repr(found)
    for trial in found.trials:
        value, levels = whole(trial)
        assert {rung: levels[rung] for rung in trial.intermediate_values} == trial.intermediate_values
        assert trial.state.name == "PRUNED" or (trial.value == value and trial.intermediate_values == levels)
    assert found.best.state.name == "COMPLETE" and found.best.value == max(trial.value for trial in found.done)


@pytest.mark.full
@pytest.mark.gpu
def test_a_gpu_prunes_and_times_the_winner(tmp_path):
    options = LONGER | {"device": "cuda", "time_best": True, "pruner": "median"}
    found = cd.sweep("cartpole", SMALL, trials=15, batch=5, space=RATES, out=tmp_path, **options)
    assert len(found.done) < len(found.trials) == 15
    assert [trial.value for trial in found.done] == [whole(trial, device="cuda")[0] for trial in found.done]
    assert found.alone["trial"] == found.best.number and found.alone["seconds"] > 0


@pytest.mark.full
def test_the_median_prunes_what_is_worse_than_half_of_those_that_were_done_before_its_batch(tmp_path):
    found = cd.sweep("cartpole", SMALL, trials=15, batch=5, space=RATES, pruner="median", out=tmp_path, **LONGER)
    done = []
    for first in (0, 5, 10):
        known = [levels for _, levels in done]
        for trial in (batch := found.trials[first : first + 5]):
            levels, ended = whole(trial)[1], None
            for rung in levels:
                best = max(each for at, each in levels.items() if at <= rung)
                others = [each[rung] for each in known if rung in each]
                if others and best < np.median(others):
                    ended = rung
                    break
            assert (trial.state.name == "PRUNED") == (ended is not None)
            assert ended is None or max(trial.intermediate_values) == ended
        done += [(trial, trial.intermediate_values) for trial in batch if trial.state.name == "COMPLETE"]
    assert 5 <= len(done) < 15


@pytest.mark.full
def test_a_trial_that_is_at_the_mark_at_a_rung_is_done_there(tmp_path, monkeypatch):
    from cupydrive.training import trials

    trained, gone_on, longest = trials.train, trials.go_on, {}

    def noted(what, *arguments, **options):
        runs = trained(what, *arguments, **options)
        longest.update({id(run): (run.step, run) for run in runs})
        return runs

    def noted_on(runs, rung):
        found = gone_on(runs, rung)
        longest.update({id(run): (run.step, run) for run in runs})
        return found

    monkeypatch.setattr(trials, "train", noted)
    monkeypatch.setattr(trials, "go_on", noted_on)
    options = LONGER | {"objective": "mark", "mark": 40.0}
    found = cd.sweep("cartpole", SMALL, trials=8, space=RATES, pruner="median", out=tmp_path, **options)
    assert [trial.value for trial in found.done] == [whole(trial, 40.0)[0] for trial in found.done]
    soon = [trial for trial in found.done if trial.value <= 2048]
    assert soon and all(trial.intermediate_values[2000] <= -40.0 for trial in soon)
    ends = sorted(step for step, _ in longest.values())
    assert ends == sorted(next((r for r in (512, 1024, 2048) if t.value <= r), 4032) for t in found.trials)
    assert found.best.value == min(trial.value for trial in found.done) and found.reached


@pytest.mark.full
def test_an_interrupt_between_rungs_keeps_what_was_done_or_pruned_before(tmp_path, monkeypatch):
    from cupydrive.training import trials

    trained, gone_on, batches = trials.train, trials.go_on, []

    def noted(*arguments, **options):
        batches.append(options)
        return trained(*arguments, **options)

    def interrupted(runs, rung):
        if len(batches) == 2 and runs:  # in the second batch, behind the first rung
            raise KeyboardInterrupt
        return gone_on(runs, rung)

    monkeypatch.setattr(trials, "train", noted)
    monkeypatch.setattr(trials, "go_on", interrupted)
    options = LONGER | {"space": RATES, "pruner": "median", "batch": 5}
    found = cd.sweep("cartpole", SMALL, trials=10, out=tmp_path, **options | {"time_best": True})
    assert 5 <= len(found.trials) < 10 and len(found.done) == 5 and found.alone is None
    monkeypatch.undo()
    more = cd.sweep("cartpole", SMALL, trials=10, out=tmp_path, resume=True, **options)
    kept = [trial.number for trial in found.trials]
    assert len(more.trials) == 10 and [trial.number for trial in more.trials][: len(kept)] == kept


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 1000])
def test_rungs_ascend_and_end_with_the_whole(steps):
    assert rungs(steps, None) == [steps]
    found = rungs(steps, "median")
    assert found[-1] == steps and found == sorted(set(found)) and found[0] == math.ceil(steps / 8)


def test_pruned_trials_are_crosses_and_leave_the_best_alone():
    axes = best_so_far([3.0, None, 2.0, 5.0, None], "trial", "return").axes[0]
    dots, best, crosses = (line.get_xydata() for line in axes.lines)
    assert best[:, 1].tolist() == [3.0, 3.0, 3.0, 5.0, 5.0] and crosses[:, 0].tolist() == [2.0, 5.0]
    assert np.isnan(dots[[1, 4], 1]).all()


# ---- the winner's time, the mark -------------------------------------------------------------------------------------


def test_the_winner_is_timed_alone_once(tmp_path, monkeypatch):
    options = COMMON | {"objective": "mark", "mark": 20.0, "time_best": True}
    found = cd.sweep("cartpole", SMALL, trials=2, out=tmp_path, space=RATES, **options)
    about = found.alone
    assert about["trial"] == found.best.number and about["env_steps"] == 1024
    assert 0 < about["seconds_to_mark"] <= about["seconds"] and "env-steps/s on" in repr(found)
    with monkeypatch.context() as patch:
        patch.setattr("cupydrive.training.trials.Trials.alone", None)  # what is kept is not measured again
        assert cd.sweep("cartpole", SMALL, trials=2, out=tmp_path, space=RATES, resume=True, **options).alone == about
    more = cd.sweep("cartpole", SMALL, trials=6, out=tmp_path, space=RATES, resume=True, **options)
    assert more.alone["trial"] == more.best.number
    again = cd.sweep(
        "cartpole", SMALL, trials=6, out=tmp_path, space=RATES, resume=True, **options | {"time_best": False}
    )
    assert again.alone is None and again.best.number == more.best.number


def test_the_mark_is_the_environments_own_with_its_default_parameters(tmp_path):
    spaces = iter(range(9))

    def mark(**given):
        options = COMMON | {"steps": 64, "objective": "auto"} | given
        return cd.sweep("cartpole", SMALL, trials=1, space=RATES, out=tmp_path / str(next(spaces)), **options).mark

    assert mark() == mark(gravity=9.8) == mark(objective="mark") == 475.0 and mark(mark=30.0) == 30.0
    assert mark(max_episode_steps=100) is mark(objective="return") is mark(key="charts/episodic_length") is None
    with pytest.raises(ParameterError, match="tag_grid says no mark; pass mark="):
        options = COMMON | {"objective": "mark", "key": f"{RETURN}/tagger"}
        cd.sweep("tag_grid", SMALL, out=tmp_path / "tag", **options)
    assert not (tmp_path / "tag").exists()


def test_a_sweep_in_which_nothing_is_done_says_so():
    found = Sweep("cartpole", SMALL, {}, (), None)
    assert "no trial is done" in repr(found) and not found.reached
    with pytest.raises(ParameterError, match="no trial of the sweep is done yet"):
        found.line()


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
        ({"pruner": "meridian"}, "pruner = 'meridian'"),
        ({"objective": "returns"}, "objective = 'returns'"),
        ({"mark": 100.0}, "objective = 'return' does not know mark = 100.0"),
        ({"objective": "mark", "gravity": 9.0}, "cartpole says a mark for its default parameters"),
        ({"time_best": 1}, "time_best = 1"),
        ({"n_trials": 3}, "no parameter 'n_trials'. Did you mean 'trials'"),
        ({"space": {"lr": [1e-3]}}, "space has 'lr'. Did you mean 'learning_rate'"),
        ({"key": "nope"}, r"key = 'nope' is no metric\. There are: charts/episodic_length, charts/episodic_return, "),
        ({"key": "episodic_return"}, "Did you mean 'charts/episodic_return'"),
        ({"key": f"{RETURN}/cart", "objective": "auto"}, "Did you mean 'charts/episodic_return'"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(given, message, tmp_path):
    with pytest.raises(ParameterError, match=message):
        cd.sweep("cartpole", SMALL, out=tmp_path / "new", **COMMON | given)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("given", [{}, {"objective": "mark", "mark": 1.0}])
def test_a_loss_that_there_is_not_is_told_once_the_first_trials_were_trained(given, tmp_path):
    options = COMMON | {"steps": 64, "trials": 3, "batch": 1, "space": RATES} | given
    with pytest.raises(ParameterError, match=r"'losses/entrpy' is no metric\. Did you mean 'losses/entropy'\?"):
        cd.sweep("cartpole", SMALL, out=tmp_path, key="losses/entrpy", **options)
    study = (tmp_path / "sweep.jsonl").read_text()
    assert '"trial_id":0' in study and '"trial_id":1' not in study  # the others were not trained


def test_a_sweep_without_any_return_names_no_best(tmp_path):
    """So few steps that no environment can have ended an episode."""
    found = cd.sweep(
        "cartpole", SMALL, trials=2, out=tmp_path, space=RATES, **COMMON | {"steps": 64, "time_best": True}
    )
    assert repr(found) == "<Sweep cartpole: 2 trials, none has a return yet: pass more steps=>"
    assert not found.reached and found.alone is None and found.plot().png()
    with pytest.raises(ParameterError, match="no trial of the sweep has a return yet; pass more steps="):
        found.line()


def test_a_trial_with_a_return_is_better_than_one_without():
    assert objective([{"r": 1.0}, {"r": math.nan}], "r", None, 50) == -math.inf
    trials = tuple(trial(value) for value in (-math.inf, 3.0, -math.inf))
    found = Sweep("cartpole", SMALL, {"steps": 10}, trials, None)
    assert found.reached and found.best.value == 3.0 and found.plot().png()


def trial(value):
    """Return one of Optuna's trials that is done."""
    from optuna.trial import create_trial

    return create_trial(value=value)


def test_the_return_of_several_groups_is_named(tmp_path, capsys):
    assert main(["sweep", "tag_grid", "--out", str(tmp_path / "new"), "--device", "cpu"]) == 2
    assert "several returns; pass --key as one of charts/episodic_return/tagger, " in capsys.readouterr().err
    with pytest.raises(ParameterError, match="pass key= as one of charts/episodic_return/tagger"):
        cd.sweep("tag_grid", SMALL, out=tmp_path / "new", **COMMON)


def test_settings_that_are_tried_by_default_exist():
    known = {name for kind in (cd.PPO, cd.A2C, cd.DDPG) for name in kind.__dataclass_fields__}
    assert known >= SPACE.keys()


@pytest.mark.full
def test_the_command_line(tmp_path, capsys):
    command = f"sweep cartpole --out {tmp_path} --trials 2 --steps 2e3 --num-envs 8 --device cpu".split()
    assert main(command) == 0
    words = capsys.readouterr().out
    assert "2 trials, none reached a return of 475: pass more steps=, or objective='return'" in words
    assert (tmp_path / "sweep.png").stat().st_size > 1000
    assert main(command) == 2
    assert "holds a sweep already. Go on with it: --resume; or pass another --out\n" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
