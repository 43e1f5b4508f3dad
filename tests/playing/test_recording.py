"""Recordings: states computed anew are those of the episode that was played, from a few bytes a
step.
"""

from dataclasses import replace

import archers
import masked
import numpy as np
import point
import pytest

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import CupydriveWarning, ParameterError, RenderError, SpecError
from cupydrive.inputs.formats import FormatError
from cupydrive.playing.recording import Recording, checked_arrays
from cupydrive.simulation.batch import Batch

KINDS = {
    "cartpole": ({"cart": cd.RandomPolicy()}, {}),
    "tag_grid": (None, {"grid_length": 10}),
    "tag_continuous": (
        {"tagger": cd.HeuristicPolicy(), "runner": cd.RandomPolicy()},
        {"num_taggers": 3, "num_runners": 9},
    ),
    "point": ({"point": cd.RandomPolicy()}, {}),
    "masked": ({"walker": cd.RandomPolicy()}, {}),
    "archers": ({"archer": cd.RandomPolicy()}, {"masked": True}),
}


@pytest.fixture(autouse=True)
def registered():
    cd.register(archers.PYTHON, archers.KERNEL)
    cd.register(point.PYTHON, point.KERNEL)
    cd.register(masked.PYTHON, masked.KERNEL)


def played(name, episodes=20):
    players, params = KINDS[name]
    if name == "masked":
        players = dict.fromkeys(
            (g.name for g in envs.get(name).groups(envs.get(name).make_params())), cd.RandomPolicy()
        )
    return cd.evaluate(name, players, episodes=episodes, seed=3, device="cpu", **params)


@pytest.mark.parametrize("name", KINDS)
def test_returns_and_lengths_are_those_of_the_evaluation(name):
    found = played(name)
    last = None
    for moment in found.recording.moments():
        assert (moment.over == (moment.elapsed >= found.recording.length)).all()
        if last is not None:  # what is over stays as it was
            for key in moment.states.dtype.names:
                np.testing.assert_array_equal(
                    moment.states[key][last.over], last.states[key][last.over]
                )
        last = moment
    assert last.over.all() and last.step == found.length.max()
    np.testing.assert_array_equal(last.elapsed, found.length)
    for group, returns in found.returns.items():
        np.testing.assert_allclose(
            last.returns[group].astype(np.float64).mean(axis=1), returns, rtol=1e-12
        )


@pytest.mark.parametrize("name", KINDS)
def test_states_are_those_of_a_batch_that_resets_itself(name):
    """Up to each episode's end, the states are bit for bit those of ordinary stepping with the same
    actions.
    """
    recording = played(name).recording
    batch = Batch(recording.spec, recording.num_envs, recording.params)
    batch.reset(recording.seed)
    for moment in recording.moments():
        going = ~moment.over
        state = batch.get_state()["state"]
        for key in state.dtype.names:
            np.testing.assert_array_equal(state[key][going], moment.states[key][going])
        if moment.step < recording.steps:
            rows = [
                np.ascontiguousarray(recording.action[g.name][moment.step], g.action_dtype)
                for g in batch.groups
            ]
            batch.step([batch.executor.pointer(row) for row in rows])


@pytest.mark.full
def test_one_episode_of_many_is_the_same_alone():
    recording = played("tag_continuous").recording
    whole = list(recording.moments())
    alone = list(recording[7].moments())
    assert len(alone) == recording.length[7] + 1
    for one, all_of_them in zip(alone, whole, strict=False):
        assert one.states[0].tobytes() == all_of_them.states[7].tobytes()
    assert recording[-2:].num_envs == 2 and recording[-2:].first_env == 18
    for wrong in (slice(0, 6, 2), slice(3, 3)):
        with pytest.raises(ParameterError, match="adjacent episodes"):
            recording[wrong]
    with pytest.raises(IndexError):
        recording[20]


@pytest.mark.parametrize("name", KINDS)
def test_a_file_gives_the_same_episodes(name, tmp_path):
    recording = played(name).recording
    recording.save(tmp_path / "episodes.npz")
    loaded = Recording.load(tmp_path / "episodes.npz")
    assert loaded.players == recording.players and loaded.seed == 3
    for one, other in zip(recording.moments(), loaded.moments(), strict=True):
        assert one.states.tobytes() == other.states.tobytes()
    steps = recording.num_envs * recording.steps
    agents = sum(g.count * g.heads for g in recording.spec.groups(recording.params))
    each = 4 if name in ("point", "archers") else 1
    assert (tmp_path / "episodes.npz").stat().st_size < each * agents * steps + 4000


@pytest.mark.full
def test_a_changed_kernel_is_noticed(tmp_path):
    played("point").recording.save(tmp_path / "episodes.npz")
    cd.register(
        point.PYTHON,
        point.KERNEL.replace("s.v * env.params.drag", "0.999f * s.v * env.params.drag"),
    )
    with pytest.warns(
        CupydriveWarning, match=r"made with another version of the text of its kernel.*SHA-256"
    ):
        recording = Recording.load(tmp_path / "episodes.npz")
    with pytest.raises(
        RenderError, match="another point: its kernel or its parameters have changed"
    ):
        list(recording.moments())


def test_only_as_many_episodes_are_kept_as_fit(monkeypatch):
    monkeypatch.setattr("cupydrive.playing.evaluation.RECORD_BYTES", 500 * 3 + 499)
    assert (
        cd.evaluate(
            "cartpole", {"cart": cd.RandomPolicy()}, episodes=8, device="cpu"
        ).recording.num_envs
        == 3
    )
    monkeypatch.setattr("cupydrive.playing.evaluation.RECORD_BYTES", 499)
    assert (
        cd.evaluate("cartpole", {"cart": cd.RandomPolicy()}, episodes=8, device="cpu").recording
        is None
    )


def test_an_evaluation_is_printed_beside_its_environments_yardsticks():
    spec = replace(
        envs.get("tag_grid"),
        yardsticks=lambda p: {"cost": {"return runner": 100 * p.step_cost_for_tagger}},
    )
    found = cd.evaluate(spec, episodes=5, device="cpu", step_cost_for_tagger=0.02)
    assert found.yardsticks == {"cost": {"return runner": 2.0}}
    lines = {line.split("  ")[1].strip(): line for line in str(found).splitlines()[1:]}
    assert lines["return runner"].endswith("cost 2") and "cost" not in lines["return tagger"]
    wrong = replace(spec, yardsticks=lambda p: {"cost": {"return": 1.0}})
    with pytest.raises(SpecError, match=r"yardsticks\['cost'\] = 'return'"):
        cd.evaluate(wrong, episodes=1, device="cpu")


@pytest.mark.parametrize("value", [0.5, -1.0, 3.0, np.nan])
def test_choices_beside_numbers_are_whole_and_within_their_range(value):
    recording = played("archers", episodes=3).recording
    action = recording.action["archer"].copy()
    arrays = {"length": recording.length, "action.archer": action}
    checked_arrays(recording.spec, recording.params, arrays)
    action[1, 2, 0, 0] = value
    with pytest.raises(FormatError, match=f"choice of {value}, but the heads have"):
        checked_arrays(recording.spec, recording.params, arrays)
