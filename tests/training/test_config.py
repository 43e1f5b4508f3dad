"""TrainConfig: arguments are validated once, together, and a run that goes on is compared with what
was asked for.
"""

import json
import threading
from dataclasses import replace

import pytest
import torch

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import ParameterError, TrainingError, UnknownParameterError
from cupydrive.playing.torch_settings import threads_worth
from cupydrive.training.config import resolve

SMALL = {"num_envs": 8, "device": "cpu", "progress": False}
EACH = 64  # env-steps of an iteration


def ppo(**changed):
    return cd.PPO(num_steps=8, hidden=(8,), num_minibatches=2, **changed)


def test_all_wrong_arguments_are_named_together(tmp_path):
    with pytest.raises(ParameterError) as caught:
        cd.train(
            "cartpole", ppo(), steps="4", keep=0, callback=3, out=tmp_path / "run", device="cpu"
        )
    words = ("steps = '4'", "keep = 0", "callback = 3")
    lines = str(caught.value).splitlines()
    assert len(lines) == len(words) and all(any(word in line for line in lines) for word in words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["where", "params", "spec", "made_of"])
def test_what_is_no_argument_is_taken_for_a_parameter(name):
    for more in ({}, {"seeds": 2}):
        with pytest.raises(UnknownParameterError, match=f"no parameter '{name}'"):
            cd.train("cartpole", ppo(), **SMALL, **more, **{name: 3})


def test_groups_may_depend_on_parameters():
    spec = replace(envs.get("tag_grid"), display=cd.Display())
    renamed = replace(
        spec, groups=lambda p: [replace(g, name=f"{g.name}{p.num_taggers}") for g in spec.groups(p)]
    )
    assert list(resolve(renamed, ppo(), None, {"num_taggers": 3}, device="cpu").policies) == [
        "tagger3",
        "runner3",
    ]


# ---- a run that goes on --------------------------------------------------------------------------


def edit(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    del config["sha256"]
    (folder / "config.json").write_text(json.dumps(config))


def test_a_run_goes_on_that_lacks_what_was_added_since(tmp_path):
    cd.train("cartpole", ppo(), steps=EACH, out=tmp_path, **SMALL)
    edit(
        tmp_path,
        lambda config: (
            config["params"].pop("gravity"),
            config["policies"]["cart"].pop("clip_vloss"),
        ),
    )
    assert (
        cd.train(
            "cartpole", steps=2 * EACH, out=tmp_path, resume=True, device="cpu", progress=False
        ).step
        == 2 * EACH
    )
    edit(tmp_path, lambda config: config["params"].pop("gravity"))
    with pytest.raises(TrainingError, match=r"gravity: found None, expected 5.0"):
        cd.train(
            "cartpole",
            steps=3 * EACH,
            out=tmp_path,
            resume=True,
            device="cpu",
            progress=False,
            gravity=5.0,
        )


def test_a_run_keeps_its_total(tmp_path):
    stop = {"callback": lambda step, metrics: step >= 2 * EACH}
    cd.train("cartpole", ppo(), steps=50 * EACH, out=tmp_path, **SMALL, **stop)
    few = cd.train("cartpole", steps=10 * EACH, out=tmp_path, resume=True, **SMALL)
    assert few.step == 10 * EACH and few.total == 50 * EACH
    assert cd.train("cartpole", out=tmp_path, resume=True, **SMALL).step == 50 * EACH


def test_the_order_of_policies_shows_in_no_bit(tmp_path):
    pair = {"tagger": ppo(), "runner": ppo(gamma=0.9)}
    cd.train("tag_grid", policies=pair, steps=EACH, out=tmp_path, **SMALL)
    again = dict(reversed(pair.items()))
    run = cd.train("tag_grid", policies=again, steps=2 * EACH, out=tmp_path, resume=True, **SMALL)
    whole = cd.train("tag_grid", policies=pair, steps=2 * EACH, **SMALL)
    weights = [each.policies["tagger"].state_dict() for each in (run, whole)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_population_goes_on_without_its_settings(tmp_path):
    cd.train("cartpole", ppo(), seeds=2, steps=EACH, out=tmp_path, **SMALL)
    again = cd.train(
        "cartpole", seeds=2, steps=2 * EACH, out=tmp_path, resume=True, device="cpu", progress=False
    )
    assert [run.step for run in again] == [2 * EACH] * 2 and again.runs[0].settings["cart"] == ppo()


def test_a_run_forgets_how_it_was_called(tmp_path):
    run = cd.train(
        "cartpole",
        ppo(),
        steps=EACH,
        out=tmp_path,
        overwrite=True,
        callback=lambda *_: None,
        **SMALL,
    )
    assert (run.config.out, run.config.overwrite, run.config.callback) == (None, False, None)


def test_overlapping_trainings_leave_the_number_of_threads(monkeypatch):
    before, entered, left = torch.get_num_threads(), threading.Event(), threading.Event()
    torch.set_num_threads(2)

    def other():
        with threads_worth(1):
            entered.set()
            left.wait(60)

    try:
        thread = threading.Thread(target=other)
        with threads_worth(1):
            thread.start()
            assert entered.wait(60)
        left.set()
        thread.join()
        found = []
        late = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        late.start()
        late.join()
        assert found == [2]
    finally:
        torch.set_num_threads(before)
