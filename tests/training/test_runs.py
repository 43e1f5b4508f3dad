"""Runs: resuming gives the bits of a run that was never stopped, files survive anything, bad input
changes nothing.
"""

import itertools
import json
import math
import re
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import streaks
import torch
from equal_runs import rows, same
from gymnasium import spaces
from point import KERNEL, PYTHON

import cupydrive as cd
from cupydrive.errors import (
    CupydriveWarning,
    DeviceError,
    NotFiniteError,
    ParameterError,
    TrainingError,
)
from cupydrive.training.begin import make_run
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints

QUIET = {"device": "cpu", "progress": False}
SMALL_PPO = {"num_steps": 8, "hidden": (16,)}
KINDS = {
    "ppo": ("cartpole", lambda: cd.PPO(learning_rate=((0, 1e-2), (2000, 1e-4)), **SMALL_PPO)),
    "ppo, normalised": (
        "cartpole",
        lambda: cd.PPO(normalize_obs=True, normalize_reward=True, **SMALL_PPO),
    ),
    "a2c": ("tag_grid", lambda: cd.A2C(num_steps=8, hidden=(16,))),
    "ppo, GRU": (
        "cartpole",
        lambda: cd.PPO(num_steps=8, network=cd.Network(hidden=(16,), core=cd.GRU(16))),
    ),
    "a2c, MinGRU": (
        "tag_grid",
        lambda: cd.A2C(num_steps=8, network=cd.Network(hidden=(16,), core=cd.MinGRU(16))),
    ),
    "ddpg": (
        "point",
        lambda: cd.DDPG(
            batch_size=32, buffer_size=1000, learning_starts=100, hidden=(16,), noise_damping=0.2
        ),
    ),
}


@pytest.fixture(autouse=True)
def point():
    cd.register(PYTHON, KERNEL)


def train(kind, iterations, **options):
    name, settings = KINDS[kind]
    settings = settings()
    options = {"seed": 5, **QUIET, **options}
    return cd.train(
        name, settings, num_envs=16, steps=iterations * 16 * settings.num_steps, **options
    )


@pytest.mark.quick(4)
@pytest.mark.parametrize("kind", KINDS)
def test_resuming_gives_the_bits_of_a_run_that_was_never_stopped(kind, tmp_path):
    whole = train(kind, 9)
    half = train(kind, 4)
    half.total = whole.total  # what a run that was killed on its way has
    half.save(tmp_path)
    resumed = Run.load(tmp_path)
    assert same(half, resumed) and resumed.step == half.step
    cd.train(resumed, progress=False)
    assert resumed.step == whole.step and same(whole, resumed)
    assert rows(resumed) == rows(whole)[4:]


@pytest.mark.quick(4)
@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_run_and_another_another(kind):
    assert same(train(kind, 3), train(kind, 3))
    assert not same(train(kind, 3), train(kind, 3, seed=6))


def test_a_run_folder_holds_configuration_metrics_and_checkpoints(tmp_path):
    seen = []
    run = train(
        "ppo", 6, out=tmp_path, callback=lambda step, metrics: seen.append((step, metrics)), keep=1
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert (
        config["env"] == "cartpole"
        and config["policies"]["cart"]["kind"] == "ppo"
        and config["total"] == run.step
    )
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == run.metrics == [metrics for _, metrics in seen]
    assert {
        "charts/SPS",
        "charts/episodic_return",
        "losses/value_loss",
        "losses/approx_kl",
        "charts/learning_rate",
    } <= set(rows[-1])
    assert [p.name for p in checkpoints(tmp_path)] == [f"{run.step:015d}.pt"]
    assert same(run, cd.load(tmp_path)) and Run.load(tmp_path).metrics == rows
    with pytest.raises(DeviceError, match="device = 'gpu', expected 'auto', 'cuda' or 'cpu'"):
        cd.load(tmp_path, device="gpu")


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "file.npz").write_bytes(b"")
    for load, name in itertools.product((cd.load, Run.load), ("nothing", "file.npz")):
        with pytest.raises(
            TrainingError, match=rf"{name} is not a run folder: .*{name}/config\.json is missing"
        ):
            load(tmp_path / name)
    train("ppo", 1, out=tmp_path)
    with pytest.raises(TrainingError, match="holds a run of 128 env-steps"):
        train("a2c", 1, out=tmp_path)


def test_a_loss_that_is_no_number_stops_training_and_leaves_the_weights():
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.logits, self.calls = torch.nn.Parameter(torch.zeros(2)), 0

        def forward(self, obs):
            self.calls += 1
            value = (
                torch.full((len(obs),), math.nan if self.calls > 60 else 0.0) + self.logits.sum()
            )
            return self.logits.expand(len(obs), -1), value

    made = []
    settings = cd.PPO(num_steps=8, policy=lambda obs_dim, size: made.append(Broken()) or made[-1])
    with pytest.raises(TrainingError, match=r"the loss of policy 'cart' is not finite"):
        cd.train("cartpole", settings, num_envs=16, steps=100 * 16 * 8, **QUIET)
    assert torch.isfinite(made[0].logits).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(algorithm=cd.PPO), r"or their names$"),
        (
            dict(algorithm="pp0"),
            r"algorithm name = 'pp0', expected 'ppo', 'a2c', 'pqn' or 'ddpg'. Did you mean 'ppo'",
        ),
        (dict(policies={"carr": cd.PPO()}), r"no group 'carr'\. Did you mean 'cart'"),
        (dict(policies={"cart": cd.PPO()}, algorithm=cd.PPO()), r"not both"),
    ],
)
def test_settings_that_do_not_fit(options, words):
    with pytest.raises(ParameterError, match=words):
        cd.train("cartpole", **{"steps": 1000, "num_envs": 16, **QUIET, **options})


@pytest.mark.parametrize(
    ("settings", "options", "words"),
    [
        (
            {"learning_starts": 10**7},
            {},
            "10,000,000 transitions are never reached: 320 env-steps make 320, and the buffer keeps 1,000,000",
        ),
        (
            {"learning_starts": 321},
            {"seeds": 2},
            "321 transitions .*: 320 env-steps make 320",
        ),
        (
            {"learning_starts": 200, "buffer_size": 160},
            {},
            "200 .* the buffer keeps 160. Lower it, or raise",
        ),
        ({"learning_starts": 320}, {"seeds": 2}, None),
    ],
)
def test_ddpg_says_before_it_trains_that_it_would_never_begin_to_learn(settings, options, words):
    """300 env-steps are 5 iterations of 4 steps of 16 environments: the last of them learns, if
    there is enough then.
    """
    settings = cd.DDPG(batch_size=8, hidden=(8,), **settings)
    with pytest.warns(CupydriveWarning) if words else nullcontext() as told:
        found = cd.train("point", settings, num_envs=16, steps=300, **QUIET, **options)
    for run in found if options else [found]:
        assert bool(run.learners["point"].started) == (words is None)
    if words:
        (said,) = told
        assert re.search(
            f"policy 'point' would not learn in point: DDPG.learning_starts = {words}",
            str(said.message),
        )


@pytest.mark.full
def test_a_resumed_ddpg_counts_what_it_has_collected(tmp_path):
    plan = {"num_envs": 16, "out": tmp_path, "resume": True, **QUIET}
    settings = cd.DDPG(batch_size=8, hidden=(8,), learning_starts=100)
    with pytest.warns(CupydriveWarning, match="64 env-steps make 64"):
        cd.train("point", settings, steps=64, **plan)
    assert bool(cd.train("point", settings, steps=128, **plan).learners["point"].started)


@pytest.mark.full
def test_policies_by_group_and_shared_policies():
    common = dict(steps=2 * 8 * 8, num_envs=8, grid_length=6, max_episode_steps=8, **QUIET)
    run = cd.train(
        "tag_grid",
        policies={"tagger": cd.A2C(num_steps=8), "runner": cd.HeuristicPolicy()},
        **common,
    )
    assert list(run.policies) == ["tagger"] and "losses/value_loss" in run.metrics[-1]
    run = cd.train("tag_grid", policies={"tagger+runner": cd.PPO(num_steps=8)}, **common)
    assert list(run.policies) == ["tagger+runner"]
    run = cd.train(
        "tag_grid",
        policies={"tagger": cd.A2C(num_steps=8), "runner": cd.PPO(num_steps=8)},
        **common,
    )
    assert {
        "losses/tagger/value_loss",
        "losses/runner/approx_kl",
        "charts/episodic_return/runner",
    } <= set(run.metrics[-1])
    with pytest.raises(ParameterError, match="different num_steps: got tagger 8, runner 4"):
        cd.train(
            "tag_grid",
            policies={"tagger": cd.A2C(num_steps=8), "runner": cd.PPO(num_steps=4)},
            **common,
        )


TWINS = """
struct Params {};
struct State { int number; };
#include "drive/env.cuh"
DEVICE void reset(Env& env) { if (env.team.leader()) env.state.number = Random::below(env.random.bits(0).x, 3); }
DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  env.one.reward(0) = env.one.action(0) == env.state.number;
  env.other.reward(0) = env.other.action(0) == env.state.number;
  return false;
}
DEVICE void observe(Env& env) {
  if (!env.team.leader()) return;
  env.one.obs(0)[0] = env.other.obs(0)[0] = (float)env.state.number;
  for (int k = 0; k < 3; ++k) env.one.mask(0, k) = k != (env.state.number + 1) % 3;
  if (env.one.critic_obs(0)) env.one.critic_obs(0)[0] = 0.0f;
  if (env.other.critic_obs(0)) env.other.critic_obs(0)[0] = env.other.critic_obs(0)[1] = 0.0f;
}
"""


@dataclass(frozen=True)
class TwinParams:
    max_episode_steps: int = cd.param(4, "Time limit.", low=1)


@pytest.fixture
def twins():
    """Two groups with equal spaces, only one of which has masks."""
    about = {"obs_dim": 1, "action_space": spaces.Discrete(3)}
    groups = (
        cd.Group("one", 1, **about, mask=True, critic_obs_dim=1),
        cd.Group("other", 1, **about, critic_obs_dim=2),
    )
    fields = (cd.Field("number", "i4"),)
    return cd.EnvSpec(
        "twins", TwinParams, lambda p: fields, lambda p: groups, "truncates", kernel=TWINS
    )


TWIN = {"num_steps": 8, "num_minibatches": 1, "hidden": (8,)}


@pytest.mark.full
@pytest.mark.parametrize("settings", [cd.PPO(**TWIN), cd.PQN(**TWIN)])
def test_a_group_without_masks_shares_a_policy_with_one_that_has_them(settings, twins):
    """All its choices are allowed, while acting and learning, with both backends."""
    runs = []
    for backend in ("kernels", "torch"):
        how = {"policies": {"one+other": settings}, "num_envs": 8, "backend": backend}
        assert cd.check_policy(twins, device="cpu", **how).passed
        runs.append(make_run(twins, device="cpu", **how))
    runs[1].restore(runs[0].snapshot())
    first, second = (
        cd.train(run, steps=run.steps_per_iteration, progress=False).metrics[-1] for run in runs
    )
    for name in (name for name in first if name.startswith("losses/")):
        assert first[name] == pytest.approx(second[name], rel=1e-4, abs=1e-5), name


def test_groups_with_other_critic_obs_cannot_share_a_centralized_critic(twins):
    settings = cd.PPO(num_steps=8, critic="central")
    with pytest.raises(ParameterError, match="got 1 of 'one' and 2 of 'other'"):
        cd.train(twins, policies={"one+other": settings}, steps=64, num_envs=8, **QUIET)


@pytest.mark.parametrize("options", [{}, {"seeds": 2}])
def test_training_in_which_nobody_learns_says_so_once(options):
    policies = {"tagger": cd.RandomPolicy(), "runner": cd.HeuristicPolicy()}
    with pytest.warns(
        cd.CupydriveWarning,
        match=r"no policy learns in tag_grid .*RandomPolicy\(\).*HeuristicPolicy\(\).*evaluate",
    ) as said:
        cd.train(
            "tag_grid", policies=policies, steps=64, num_envs=8, grid_length=6, **options, **QUIET
        )
    assert len(said) == 1


def test_a_trained_policy_plays_on_in_another_run(tmp_path):
    common = dict(steps=2 * 8 * 8, num_envs=8, grid_length=6, **QUIET)
    first = cd.train("tag_grid", cd.PPO(num_steps=8), out=tmp_path, **common)
    second = cd.train(
        "tag_grid",
        policies={"tagger": cd.PPO(num_steps=8), "runner": cd.FrozenPolicy(tmp_path)},
        **common,
    )
    assert list(second.policies) == ["tagger"]
    second.save(tmp_path / "second")
    assert list(Run.load(tmp_path / "second").policies) == ["tagger"]
    with pytest.raises(TrainingError, match="belongs to environment 'tag_grid'"):
        cd.train(
            "cartpole", policies={"cart": cd.FrozenPolicy(tmp_path)}, steps=100, num_envs=4, **QUIET
        )
    assert first.step == 2 * 8 * 8


PUT_BACK = {
    "learning": (
        "cartpole",
        cd.PPO(learning_rate=1e30, num_minibatches=2, update_epochs=2, **SMALL_PPO),
    ),
    "an environment": (
        streaks.spec(streaks.kernel(total=streaks.NONE)),
        cd.A2C(learning_rate=1e-3, **SMALL_PPO),
    ),
}


@pytest.mark.parametrize("backend", ["kernels", "torch"])
@pytest.mark.parametrize("broken", PUT_BACK)
def test_a_run_put_back_to_before_its_failure_has_not_failed(broken, backend):
    """As the warm-up of a graph's capture leaves it, in which a number may not be finite
    already.
    """
    env, settings = PUT_BACK[broken]
    run = make_run(env, settings, num_envs=6, backend=backend, device="cpu")
    before, found = run.snapshot(), []
    for _ in range(2):
        with pytest.raises(NotFiniteError):
            cd.train(run, steps=1920, progress=False)
        found.append(run.explain())
        run.restore(before)
        run.step = 0
        with pytest.raises(TrainingError, match="nothing to explain"):
            run.explain()
    assert found[0] is not found[1] and found[0].line == found[1].line


def test_a_policy_in_memory_is_refused_before_a_folder_is_made(tmp_path):
    given = {"num_envs": 4, "steps": 64, "device": "cpu", "progress": False}
    run = cd.train("tag_grid", cd.PPO(num_steps=4, hidden=(8,)), **given)
    policies = {"tagger": cd.PPO(num_steps=4, hidden=(8,)), "runner": run.frozen("runner")}
    assert cd.train("tag_grid", policies=policies, **given).step == 64
    with pytest.raises(ParameterError, match=r"policy 'runner': .* cannot be saved\. Omit out= "):
        cd.train("tag_grid", policies=policies, out=tmp_path / "run", **given)
    assert not list(tmp_path.iterdir())
