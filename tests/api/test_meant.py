"""Players, folders and counts of the wrong kind, in calls a newcomer would try: the error names what was meant."""

import sys
import traceback

import pytest
import torch

import cupydrive as cd
from cupydrive.checks.checker import usable
from cupydrive.errors import CupydriveError
from cupydrive.playing.game import Game

pytestmark = pytest.mark.full

QUIET = {"device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def run():
    policies = {"tagger": cd.PPO(num_steps=4), "runner": cd.Heuristic()}
    return cd.train("tag_grid", policies=policies, steps=1, num_envs=4, **QUIET)


def said(call):
    """Return what a call refuses."""
    with pytest.raises(CupydriveError) as caught:
        call()
    return str(caught.value)


def test_a_run_plays_as_what_its_error_says(run):
    words = said(lambda: cd.train("tag_grid", policies={"tagger": cd.PPO(), "runner": run}, **QUIET))
    assert words.endswith("or run.frozen(GROUP)")
    policies = {"tagger": run.frozen("tagger"), "runner": cd.PPO(num_steps=4)}
    assert cd.train("tag_grid", policies=policies, steps=1, num_envs=4, **QUIET).step == 16


def test_one_algorithm_in_the_place_of_policies_is_told_where_it_goes():
    assert said(lambda: cd.train("cartpole", policies=cd.DDPG(), **QUIET)).endswith("for all groups is algorithm=")


def test_a_rollout_takes_no_policy():
    env = cd.make("cartpole", 2, device="cpu")
    obs, _ = env.reset(seed=0)

    def policy(seen):
        return (seen[:, 2] > 0).int()

    assert "is a function; it must be True or False" in said(lambda: env.rollout(16, policy))
    obs, *_ = env.step(policy(obs))


@pytest.mark.parametrize("call", [cd.render, cd.evaluate])
def test_an_unknown_environment_or_player_is_named(call):
    assert "there is no environment 'runs/nope'" in said(lambda: call("runs/nope"))
    assert "players = 'rnadom'; it must be 'random' or 'heuristic'" in said(lambda: call("cartpole", players="rnadom"))


@pytest.mark.parametrize("number", ["Auto", "many", ""])
def test_a_word_for_a_number_of_copies_names_auto(number):
    assert said(lambda: cd.make("cartpole", number)) == f"make: num_envs = {number!r}; it must be an int or 'auto'"


def test_a_seed_counts_once():
    assert "at most 10,000 different seeds" in said(lambda: cd.train("cartpole", seeds=[0, 1, 0], **QUIET))


def test_a_file_in_a_folder_that_there_is_not_is_told(run, tmp_path):
    env, gone = cd.make("cartpole", 2, device="cpu"), tmp_path / "gone"
    env.reset(seed=0)
    writers = [(env.snapshot().save, "a.npz"), (run.evaluate(2).recording.save, "a.npz")]
    for write, name in [*writers, (lambda path: run.export(path, group="tagger"), "a.onnx")]:
        assert f"cannot be written: there is no folder {str(gone)!r}" in said(lambda w=write, n=name: w(gone / n))
    assert not gone.exists()


@pytest.mark.parametrize("under", ["", "run"])
def test_a_folder_that_cannot_be_is_told_before_anything_runs(under, tmp_path):
    file = tmp_path / "afile.txt"
    file.write_text("mine")
    for call in (cd.train, cd.sweep):
        words = said(lambda call=call: call("cartpole", out=file / under))
        assert "nothing can be written there" in words and str(file) in words
    if sys.platform == "linux":
        assert "nothing can be written there" in said(lambda: cd.train("cartpole", out="/proc/run"))


TAKES_A_DEVICE = {
    "make": lambda device: cd.make("cartpole", device=device).device,
    "evaluate": lambda device: cd.evaluate("cartpole", "random", episodes=2, device=device).length.device.type,
    "train": lambda device: cd.train("cartpole", device=device, steps=1, num_envs=4, progress=False).device,
    "train of a run": lambda device: cd.train(short_run(), device=device, steps=1, progress=False).device,
    "play": lambda device: Game("cartpole", device=device)._batch.executor.name,
    "check": lambda device: next(iter(usable(device, cd.make("cartpole", device="cpu").spec)[0])),
}


def short_run():
    return cd.train("cartpole", steps=1, num_envs=4, **QUIET)


@pytest.mark.parametrize("call", TAKES_A_DEVICE.values(), ids=TAKES_A_DEVICE)
def test_a_device_of_torch_is_the_device_of_its_name(call):
    assert call(torch.device("cpu")) == call(torch.device("cpu", 0)) == "cpu"
    for given in ("cuda:0", torch.device("cuda:0")):
        assert "device = 'cuda:0'; it must be 'auto', 'cuda' or 'cpu'. 'cuda' is torch's" in said(
            lambda g=given: call(g)
        )
    assert said(lambda: call(torch.device("meta"))).endswith("device = 'meta'; it must be 'auto', 'cuda' or 'cpu'.")
    assert said(lambda: call(0)).endswith("device = 0; it must be 'auto', 'cuda' or 'cpu'.")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: it is used")
def test_cuda_of_torch_is_cuda():
    assert said(lambda: cd.make("cartpole", device=torch.device("cuda"))).startswith("device = 'cuda', but ")


def test_names_of_numbers_are_listed_as_they_are_printed(run):
    found = cd.evaluate("cartpole", "random", episodes=2, device="cpu")
    assert "must be 'return', 'cart' or 'length'" in said(lambda: found.mean("foo"))
    assert found.mean("return") == found.mean("cart")
    assert "must be 'tagger', 'runner', 'length'" in said(lambda: run.evaluate(2).mean("foo"))


def test_settings_of_the_wrong_kind_are_refused(tmp_path):
    assert said(lambda: cd.train("cartpole", policies={"x": 1}, **QUIET)).endswith("or run.frozen(GROUP)")
    cd.train("cartpole", steps=1, num_envs=4, out=tmp_path, **QUIET)
    assert said(lambda: cd.load(tmp_path, policies={"x": 1})).endswith("has no policy 'x'; it has: cart")
    assert said(lambda: cd.load(tmp_path, policies={"cart": 1})).endswith("or run.frozen(GROUP)")


class Linear(torch.nn.Module):
    """No value: not what a policy returns."""

    def __init__(self, obs_dim, size):
        super().__init__()
        self.layer = torch.nn.Linear(obs_dim, size)

    def forward(self, obs):
        return self.layer(obs)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda out: cd.train("cartpole", members=[{"gamma": 2.0}], **QUIET),
            "members[0]: PPO: gamma = 2.0; it must be from 0 to 1",
        ),
        (
            lambda out: cd.sweep("cartpole", space={"learning_rate": (-1.0, 1e-2)}, trials=1, out=out, **QUIET),
            "sweep: space['learning_rate'] holds -1.0: PPO: learning_rate = -1.0; it must be finite and at least 0",
        ),
        (
            lambda out: cd.train("cartpole", cd.PPO(policy=Linear), **QUIET),
            "the policy of 'cart', Linear, returned a Tensor",
        ),
    ],
)
def test_a_slip_is_told_with_its_place_and_a_short_traceback(call, words, tmp_path):
    with pytest.raises(CupydriveError) as caught:
        call(tmp_path)
    assert str(caught.value).startswith(words)
    shown = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(shown) <= 30, "\n".join(shown)
