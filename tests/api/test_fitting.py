"""What does not fit together is named while nothing has been trained: of every member of a
population, of a sweep's values.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import CupydriveError, MemoryLimitError, ParameterError, TrainingError
from cupydrive.training.config import check_players, resolve

SMALL = {"num_envs": 8, "steps": 64, "device": "cpu", "progress": False}
GOOD = cd.PPO(num_steps=8, hidden=(8,), num_minibatches=2)


class Net(torch.nn.Module):
    """A policy for CartPole whose values have one axis too many if it is wrong."""

    def __init__(self, wrong=False, state_size=0):
        super().__init__()
        self.actor, self.critic, self.wrong = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1), wrong
        self.state_size = state_size

    def forward(self, obs):
        value = self.critic(obs)
        return self.actor(obs), value if self.wrong else value[:, 0]


def untrained(*arguments, out, error=ParameterError, match, **given):
    """Assert that training is refused with an error that says so, and that no folder is made and
    nothing trained.
    """
    with pytest.raises(error, match=match):
        cd.train(*arguments, out=out, callback=lambda *_: pytest.fail("trained"), **SMALL | given)
    assert not out.exists()


# ---- members -------------------------------------------------------------------------------------

LATER = {
    "minibatches": (
        {"num_minibatches": 3},
        r"PPO: 64 rows .* 3 minibatches. Change num_minibatches",
    ),
    "actions": (
        {"algorithm": "ddpg"},
        r"DDPG needs a Box of actions, but group 'cart' has Discrete\(2\). Use PPO or A2C",
    ),
    "distribution": ({"distribution": "gaussian"}, "can be categorical, not 'gaussian'"),
    "precision": ({"precision": "tf32"}, "precision = 'tf32'"),
    "nobody plays": ({"policies": {"cart": cd.HeuristicPolicy()}}, "cartpole has no heuristic"),
    "parameter": ({"tau": -1.0}, "tau = -1.0 is out of range"),
    "memory": (
        {"policy": Net(state_size=3), "num_minibatches": 16},
        r"PPO: 8 sequences .* 16 minibatches",
    ),
    "network": ({"policy": Net(wrong=True)}, r"returned shape \(3, 1\)"),
}


@pytest.mark.parametrize("case", LATER)
def test_a_later_member_that_does_not_fit_is_named_before_the_first_is_trained(case, tmp_path):
    change, words = LATER[case]
    match = rf"members\[2\].*{words}"
    untrained(
        "cartpole", GOOD, members=[{}, {"num_steps": 16}, change], out=tmp_path / "new", match=match
    )


@pytest.mark.parametrize(
    ("settings", "what"),
    [(cd.PPO(distribution="squashed"), "distribution='squashed'"), (cd.DDPG(), "DDPG")],
)
@pytest.mark.parametrize(("high", "span"), [(0.5, "0"), (3e38, "inf")])
def test_actions_are_scaled_by_a_finite_range_above_0(settings, what, high, span, tmp_path):
    def groups(p):
        low, up = np.array([-1, 0.5 if span == "0" else -3e38]), np.array([1, high])
        box = spaces.Box(low.astype(np.float32), up.astype(np.float32))
        return (cd.Group("pole", 1, 3, box),)

    match = rf"{what} scales actions by high - low, which is {span} in entry 1 .*'pole'"
    spec = replace(envs.get("pendulum"), groups=groups, display=cd.Display())
    untrained(spec, settings, out=tmp_path / "new", match=match)


def test_a_later_member_that_does_not_fit_into_memory_is_named(tmp_path):
    members = [{}, {"hidden": (65_536, 65_536, 65_536)}]
    untrained(
        "cartpole",
        GOOD,
        members=members,
        out=tmp_path / "new",
        error=MemoryLimitError,
        match=r"members\[1\]: PPO: the network Network\(.*hidden=\(65536, ",
    )


def test_a_buffer_that_is_too_small_and_a_frozen_policy_that_is_not_there_are_named(tmp_path):
    ddpg = cd.DDPG(num_steps=4, hidden=(8,), batch_size=8, learning_starts=8)
    match = r"members\[1\]: buffer_size = 10 holds less than one iteration of 32"
    untrained(
        "pendulum", ddpg, members=[{}, {"buffer_size": 10}], out=tmp_path / "new", match=match
    )
    frozen = {"policies": {"tagger": GOOD, "runner": cd.FrozenPolicy(tmp_path / "none")}}
    untrained(
        "tag_grid",
        GOOD,
        members=[{}, frozen],
        out=tmp_path / "new",
        error=TrainingError,
        match=r"members\[1\]: .*none",
    )


def test_a_capture_without_a_gpu_makes_no_folder(tmp_path):
    untrained(
        "cartpole",
        GOOD,
        seeds=2,
        cuda_graph=True,
        out=tmp_path / "new",
        match="cuda_graph=True needs device='cuda'",
    )


def test_a_members_folder_that_holds_another_run_is_named_before_the_first_is_trained(tmp_path):
    cd.train("cartpole", GOOD, out=tmp_path / "001", **SMALL)
    with pytest.raises(TrainingError, match=r"members\[1\]: .*001.* holds a run of"):
        cd.train("cartpole", GOOD, members=[{}, {"gamma": 0.5}], out=tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["001"]


def test_settings_that_members_override_are_not_judged():
    minibatches = replace(GOOD, num_minibatches=3)
    for algorithm, members, given in (
        (minibatches, [{"num_minibatches": 2}, {"num_minibatches": 4}], {}),
        (minibatches, [{"num_steps": 6}, {"num_envs": 9}], {}),
        ("ddpg", [{"algorithm": GOOD}], {}),
        (GOOD, [{"num_envs": 4}], {"num_envs": 0}),
        (GOOD, [{"tau": 0.02}], {"tau": -1.0}),
    ):
        assert [
            run.step >= 64
            for run in cd.train("cartpole", algorithm, members=members, **SMALL | given)
        ]
    untrained_base = {"members": [{"num_minibatches": 2}, {}], **SMALL}
    with pytest.raises(ParameterError, match=r"members\[1\]: PPO: 64 rows"):
        cd.train("cartpole", minibatches, **untrained_base)
    with pytest.raises(ParameterError, match=r"^PPO: 64 rows"):  # no member is to blame
        cd.train("cartpole", minibatches, seeds=2, **SMALL)


def test_a_run_and_its_plan_ask_the_same(monkeypatch):
    """A run that is made directly, or from a folder that was changed by hand, is asked what a plan
    is.
    """
    for settings, words in (
        (replace(GOOD, num_minibatches=3), "3 minibatches"),
        (cd.DDPG(), "needs a Box"),
    ):
        with pytest.raises(ParameterError, match=words) as planned:
            check_players(resolve("cartpole", settings, num_envs=8, device="cpu"))
        with pytest.raises(ParameterError, match=words) as made:
            cd.Run(resolve("cartpole", settings, num_envs=8, device="cpu"))
        assert str(planned.value) == str(made.value)


def test_a_plan_leaves_random_numbers_as_they_are(tmp_path):
    cd.train("cartpole", GOOD, **SMALL).save(tmp_path)
    before = torch.get_rng_state()
    check_players(
        resolve("cartpole", policies={"cart": cd.FrozenPolicy(tmp_path)}, num_envs=8, device="cpu")
    )
    assert torch.equal(torch.get_rng_state(), before)


# ---- sweeps --------------------------------------------------------------------------------------


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna")


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (
            {"num_minibatches": [3, 5]},
            r"none of 100 draws from space can be trained\. .*'num_minibatches': .* 64 rows",
        ),
        ({"gamma": (0.5, 1.5)}, r"PPO: gamma = 1.5: it must be from 0 to 1"),
        ({"gravity": (5.0, 1e6)}, r"cartpole: gravity = 1000000.0 is out of range"),
    ],
)
def test_a_value_that_fits_with_nothing_is_named_before_the_first_trial(
    space, words, optuna, tmp_path
):
    with pytest.raises(CupydriveError, match=words):
        cd.sweep("cartpole", GOOD, trials=2, space=space, out=tmp_path / "new", **SMALL)
    assert not (tmp_path / "new").exists()


def test_values_that_do_not_fit_together_are_drawn_anew(optuna, tmp_path):
    """Of 8 x 8 rows neither 3 nor 5 minibatches can be made, of 10 x 8 rows 5, and of 12 x 8 rows
    3.
    """
    space = {"num_steps": [8, 10, 12], "num_minibatches": [2, 3, 5]}
    found = cd.sweep("cartpole", GOOD, trials=8, batch=4, space=space, out=tmp_path, **SMALL)
    assert {(t.params["num_steps"], t.params["num_minibatches"]) for t in found.trials} <= {
        (8, 2), (10, 2), (10, 5), (12, 2), (12, 3),
    }  # fmt: skip
    assert len(found.trials) == 8
    assert len(cd.sweep("cartpole", GOOD, trials=9, space=space, out=tmp_path, **SMALL).trials) == 9


def test_settings_that_a_sweep_draws_are_not_judged(optuna, tmp_path):
    wrong = replace(GOOD, num_minibatches=3)
    found = cd.sweep(
        "cartpole", wrong, trials=1, space={"num_minibatches": [2]}, out=tmp_path, **SMALL
    )
    assert [trial.params for trial in found.trials] == [{"num_minibatches": 2}]
