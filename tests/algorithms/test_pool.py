"""Pools: past snapshots play as they were, where and when they should, and nobody learns from what
they did.
"""

import copy
import json
from dataclasses import replace

import everything
import numpy as np
import pytest
import torch
from torch import nn

import cupydrive as cd
from cupydrive import envs
from cupydrive.algorithms.kernels import choice
from cupydrive.algorithms.kernels.layerwise_tensor import LAYERWISE_TENSOR
from cupydrive.algorithms.pool import OpponentPool as Pool
from cupydrive.errors import ParameterError, TrainingError
from cupydrive.playing.players import PolicyPlayer
from cupydrive.playing.policy import make_distribution
from cupydrive.random import RandomStream, below
from cupydrive.training.begin import make_run
from cupydrive.training.runfolder import read_config

SMALL = {"grid_length": 6, "num_taggers": 2, "max_episode_steps": 20}
TINY = {"num_steps": 8, "hidden": (8,)}
PPO = cd.PPO(**TINY, num_minibatches=2, update_epochs=2, learning_rate=0.01, clip_vloss=True)
A2C = cd.A2C(**TINY, learning_rate=0.01)
CNN = replace(
    PPO,
    hidden=(64, 64),
    network=cd.Network(conv=cd.Conv((4,)), hidden=(8,), activation="relu", shared=True),
)
OPPONENT = 6  # the purpose, of kernels/drive/random.cuh
LEARNERS = ("kernels", "torch")


class Recurrent(nn.Module):
    """The smallest policy with a memory."""

    state_size = 3

    def __init__(self, obs_dim, size):
        super().__init__()
        self.look, self.act, self.value = (
            nn.Linear(obs_dim + 3, 3),
            nn.Linear(3, size),
            nn.Linear(3, 1),
        )
        nn.init.normal_(self.look.weight, std=2.0)  # what it remembers matters

    def forward(self, obs, memory, start):
        rows = []
        starts = torch.zeros(len(obs), 1) if start is None else start[:, None]
        for seen, begins in zip(obs.split(len(memory)), starts.split(len(memory)), strict=True):
            memory = torch.tanh(
                self.look(torch.cat([seen, memory.masked_fill(begins > 0, 0.0)], 1))
            )
            rows.append(memory)
        rows = torch.cat(rows)
        return 20.0 * self.act(rows), self.value(rows)[:, 0], memory


def pooled(settings=PPO, num_envs=16, tagger=None, backend="auto", params=SMALL, **options):
    """Return a run of Tag whose runners have a pool, before its first iteration."""
    policies = {
        "tagger": tagger or settings,
        "runner": Pool(settings, **{"size": 2, "every": 1, **options}),
    }
    return begun(
        make_run(
            "tag_grid",
            policies=policies,
            num_envs=num_envs,
            device="cpu",
            backend=backend,
            **params,
        )
    )


def both(settings, env="tag_grid", backend="auto"):
    """Return a run of two groups that have pools, or share one."""
    params = SMALL
    if env == "connect_four":
        return self_play(settings, backend)
    # walkers who may leave and not do everything, and drivers whose actions are a Box
    if env == "everything":
        env, params = (
            envs.register(everything.PYTHON.replace("TIME_LIMIT", "truncates"), everything.KERNEL),
            {},
        )
    pool = Pool(settings, size=2, every=1, share=0.4)
    return begun(make_run(env, pool, num_envs=20, device="cpu", backend=backend, **params))


def self_play(settings=PPO, backend="auto", num_envs=20, **options):
    """Return a run of one policy against its own past, before its first iteration."""
    pool = Pool(settings, **{"size": 2, "every": 1, "share": 0.8, **options})
    policies, params = {"first+second": pool}, {"random_plies": 6}
    given = {"num_envs": num_envs, "device": "cpu", "backend": backend}
    return begun(make_run("connect_four", policies=policies, **given, **params))


def begun(run):
    """Write the rates of the first iteration."""
    for learner in run.learners.values():
        learner.schedule(0)
    return run


def same(one, other):
    """Return whether two runs have equal weights, states and all else that the second one has."""
    first, second = one.snapshot(), other.snapshot()
    return all(torch.equal(first[name], tensor) for name, tensor in second.items())


def pool_of(run, group):
    """Return the learner of a group."""
    return next(pool for name, pool in run.learners.items() if group in name.split("+"))


def played(run, group="runner"):
    """Return who plays each row of a group, (T, N) int, -1: the policy as it is."""
    pool = pool_of(run, group)
    rows = torch.full((run.rollout.steps, run.num_envs), -1)
    slots = pool.plays[:-1] // pool.sides
    if pool.sides > 1:
        names = [g.name for g in pool.groups]
        slots[pool.plays[:-1] % pool.sides == names.index(group)] = -1
    rows[:, pool.envs.start : pool.envs.stop] = slots
    return rows


@pytest.mark.full
@pytest.mark.parametrize("backend", LEARNERS)
@pytest.mark.parametrize("options", [{"share": 0.0}, {"every": 100}])
@pytest.mark.parametrize("settings", [PPO, A2C])
def test_a_pool_in_which_nobody_plays_changes_no_bit(settings, options, backend):
    run = pooled(settings, backend=backend, **options)
    plain = begun(
        make_run("tag_grid", settings, num_envs=16, device="cpu", backend=backend, **SMALL)
    )
    for _ in range(4):
        run.iterate()
        plain.iterate()
    assert same(run, plain)


def test_opponents_change_where_an_episode_begins_and_are_drawn_by_philox():
    """From the newest three, by what ``random.cuh`` says, and nowhere else; runners' are
    environments 16 to 31 here.
    """
    run, seen = pooled(num_envs=32, size=3, tagger=Pool(PPO)), set()
    pool, ids = run.learners["runner"], np.arange(16, 32)
    for _ in range(12):
        taken, clock, first = (
            int(pool.taken),
            run.batch.get_state()["clock"][16:],
            pool.plays[0].numpy().copy(),
        )
        run.iterate()
        over = (run.rollout.terminated | run.rollout.truncated)[:, 16:].numpy()
        rows = np.concatenate([first[None], pool.plays[1:].numpy()])
        assert np.array_equal(rows[1:][~over], rows[:-1][~over])
        assert np.array_equal(pool.plays[0].numpy(), rows[-1])
        for t in range(1, run.rollout.steps + 1):
            known = taken if t < run.rollout.steps else int(pool.taken)
            episode = clock["episode"].astype(np.int64) + over[:t].sum(0) - 1
            words = RandomStream(run.seed, ids, episode, 0, OPPONENT).bits(1, 0, 2)[:, 0, 0]
            drawn = (known - 1 - below(words, min(known, 3))) % 4 if known else np.full(16, -1)
            assert np.array_equal(rows[t][over[t - 1]], drawn[over[t - 1]])
        seen |= set(rows[1:][over])
    assert seen == {-1, 0, 1, 2, 3} and int(pool.taken) > 4


def test_in_self_play_the_side_of_the_policy_is_drawn_with_each_opponent():
    """By the second word of the same draw. Both sides come equally often, within 4 deviations, and
    in each environment of the pool the policy plays one side only.
    """
    run = self_play(num_envs=40, size=3, share=1.0)
    pool, ids, sides, words = run.learners["first+second"], np.arange(40), [], []
    for _ in range(30):
        clock = run.batch.get_state()["clock"]
        run.iterate()
        over = (run.rollout.terminated | run.rollout.truncated).numpy()
        for t in range(1, 8):
            episode = clock["episode"].astype(np.int64) + over[:t].sum(0) - 1
            drawn = RandomStream(run.seed, ids, episode, 0, OPPONENT).bits()[:, 0, 1]
            rows = over[t - 1] & (pool.plays[t].numpy() >= 0)
            sides.append(pool.plays[t].numpy()[rows] % 2)
            words.append(below(drawn[rows], 2))
        both = torch.stack([played(run, name) >= 0 for name in ("first", "second")])
        assert torch.equal(both.sum(0), (pool.plays[:-1] >= 0).long())
    sides, words = np.concatenate(sides), np.concatenate(words)
    assert np.array_equal(sides, words) and pool.envs == range(40)
    assert abs(sides.mean() - 0.5) < 4 * 0.5 / len(sides) ** 0.5 and len(sides) > 400


def test_slots_that_there_are_not_play_nothing():
    """As a damaged checkpoint may name them."""
    run = pooled()
    pool, wrong = run.learners["runner"], torch.tensor([3, 4, -2, 2**31 - 1, -(2**31), 3, 3, 3])
    run.iterate()
    pool.plays[0].copy_(wrong)
    run.rollout.collect()
    assert torch.equal(run.rollout.action["runner"][0], pool.rollout.action["runner"][0])
    run = self_play()
    pool, wrong = run.learners["first+second"], torch.tensor([6, 7, -1, -2, 2**31 - 1, -(2**31)])
    run.iterate()
    pool.plays[0, :6].copy_(wrong)
    run.rollout.collect()
    for name in ("first", "second"):
        actions = (rollout.action[name][0, :6] for rollout in (run.rollout, pool.rollout))
        assert torch.equal(*actions)


def test_snapshots_are_kept_in_a_ring_and_none_is_overwritten_while_it_plays():
    """One is taken as soon as two iterations have passed and nobody plays what it overwrites."""
    run, past = pooled(params=SMALL | {"max_episode_steps": 50}, every=2), []
    pool = run.learners["runner"]
    weight, kept, late, waits = (
        pool.policy.actor[0].weight,
        pool.bank["policy.actor.0.weight"],
        0,
        0,
    )
    for _ in range(40):
        run.iterate()
        waits += 1
        over = run.rollout.starts(run.rollout.steps)[:8]
        busy = bool(((pool.plays[-2] == len(past) % 3) & ~over).any())
        if waits >= 2 and not busy:
            past.append(weight.detach().clone())
            waits = 0
        late += waits > 2
        assert int(pool.taken) == len(past)
        for number in range(max(0, len(past) - 3), len(past)):
            assert torch.equal(kept[number % 3], past[number])
    assert len(past) > 4 and late > 0


@pytest.mark.full
@pytest.mark.parametrize("backend", LEARNERS)
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("tag_grid", replace(A2C, normalize_obs=True)),
        ("everything", PPO),
        ("connect_four", PPO),
        ("connect_four", CNN),
    ],
)
def test_a_snapshot_acts_as_a_frozen_policy_of_its_weights_would(env, settings, backend):
    check_actions(both(settings, env, backend))


@pytest.mark.full
@pytest.mark.parametrize(
    "own", [{"policy": Recurrent}, {"network": {"hidden": (16,), "core": cd.GRU(16)}}]
)
def test_a_snapshot_with_a_memory_remembers_its_own_episode(own):
    check_actions(both(replace(A2C, num_steps=4, hidden=(64, 64), **own)))


@pytest.mark.full
@pytest.mark.parametrize("network", [CNN.network, cd.Network(hidden=(16,), core=cd.GRU(16))])
def test_a_snapshot_in_bfloat16_acts_as_in_float32_but_for_rounding(network, monkeypatch):
    """Weights are rounded by 2^-9 at most, which changes fewer than 2 % of drawn actions."""
    monkeypatch.setattr(choice, "LAYERWISE", LAYERWISE_TENSOR)
    settings = replace(PPO, hidden=(64, 64), network=network)
    run = both(settings, "tag_grid" if network.core else "connect_four")
    assert all("kernels, bfloat16" in run.backends[name] for name in run.learners)
    check_actions(run, allowed=0.02)


def check_actions(run, allowed=0.0):
    """Compare each action of an environment in which a snapshot plays with that of
    ``PolicyPlayer``, step by step. A share of ``allowed`` may differ.
    """
    rollout, frozen = run.rollout, {}
    differs = {name: [] for name in rollout.player_of}
    other = copy.copy(rollout)
    other.action = {name: torch.zeros_like(action) for name, action in rollout.action.items()}
    for _ in range(12):
        for carried in (*rollout.obs.values(), *rollout.action_mask.values()):
            carried[0].copy_(carried[-1])
        for t, call in enumerate(rollout._calls):
            with torch.no_grad():
                for player in rollout.players:
                    player.act(rollout, t)
                for (name, slot), player in frozen.items():
                    player.act(other, t)
                    rows = played(run, name)[t] == slot
                    found, wanted = (
                        actions[name][t][rows] for actions in (rollout.action, other.action)
                    )
                    differs[name].append(~torch.isclose(found, wanted, rtol=0, atol=1e-5).all(-1))
            run.batch.step_row(call)
        for pool in run.learners.values():
            taken = int(pool.taken)
            pool.update(rollout)
            for group in pool.groups if int(pool.taken) > taken else ():
                frozen[group.name, taken % 3] = player_of(pool, taken % 3, make_distribution(group))
                frozen[group.name, taken % 3].begin(other, group)
    for rows in map(torch.cat, differs.values()):
        assert len(rows) > 100 and rows.float().mean() <= allowed


def player_of(pool, slot, distribution):
    """Return a player of the weights and statistics in one slot, which knows nothing of pools."""
    policy, moments = copy.deepcopy(pool.policy), copy.deepcopy(pool.inner.obs_rms)
    policy.load_state_dict(
        {name: pool.bank[f"policy.{name}"][slot] for name in policy.state_dict()}
    )
    if moments is not None:
        for name, tensor in moments.tensors().items():
            tensor.copy_(pool.bank[f"obs_moments.{name}"][slot])
    return PolicyPlayer(policy, distribution, False, moments)


@pytest.mark.parametrize("backend", LEARNERS)
@pytest.mark.parametrize(
    ("env", "settings"), [("tag_grid", A2C), ("everything", PPO), ("connect_four", PPO)]
)
def test_nobody_learns_from_what_a_snapshot_did(env, settings, backend):
    """Rewards and observations of its rows may be anything; those of rows that the policy itself
    played may not.
    """
    for group in both(settings, env).rollout.player_of:
        weights = []
        for spoilt in ("nothing", "snapshots", "policy"):
            run = both(settings, env, backend)
            run.iterate()
            run.iterate()
            run.rollout.collect()
            rows = played(run, group) >= 0
            assert rows.any() and not rows.all()
            chosen = {"nothing": rows & False, "snapshots": rows, "policy": ~rows}[spoilt]
            run.rollout.reward[group][chosen] = 1000.0
            run.rollout.obs[group][:-1][chosen] = -3.0
            pool = pool_of(run, group)
            pool.update(run.rollout)
            weights.append(torch.cat([p.detach().reshape(-1) for p in pool.policy.parameters()]))
        assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("backend", LEARNERS)
@pytest.mark.parametrize(
    "settings",
    [replace(PPO, normalize_obs=True, normalize_reward=True), replace(A2C, policy=Recurrent)],
)
def test_a_run_with_pools_goes_on_bit_for_bit(settings, backend, tmp_path):
    if settings.policy is not None and backend == "kernels":
        backend = "auto"
    pool = Pool(settings, size=2, every=2, share=0.25)
    policies = {"tagger": pool, "runner": replace(pool, share=0.5)}
    given = {
        "policies": policies,
        "num_envs": 16,
        "device": "cpu",
        "progress": False,
        "backend": backend,
        **SMALL,
    }
    whole = cd.train("tag_grid", steps=16 * 8 * 12, **given)
    cd.train("tag_grid", steps=16 * 8 * 7, out=tmp_path, **given)
    halved = cd.train("tag_grid", steps=16 * 8 * 12, out=tmp_path, resume=True, **given)
    assert int(whole.learners["runner"].taken) > 3 and same(halved, whole)
    tagger, runner = (whole.learners[name].envs for name in ("tagger", "runner"))
    assert (tagger, runner) == (range(4), range(4, 12))
    loaded = cd.load(tmp_path, policies=policies if settings.policy else None)
    assert (
        same(loaded, whole)
        and loaded.settings["runner"].share == 0.5
        and "OpponentPool(settings=" in repr(loaded)
    )


@pytest.mark.parametrize("settings", [PPO, CNN])
def test_self_play_has_one_result_with_any_threads_and_goes_on_bit_for_bit(
    settings, tmp_path, monkeypatch
):
    policies = {"first+second": Pool(settings, size=2, every=2, share=0.9)}
    given = {"policies": policies, "num_envs": 64, "device": "cpu", "progress": False}
    monkeypatch.setenv("CUPYDRIVE_THREADS", "1")
    whole = cd.train("connect_four", steps=64 * 8 * 14, **given)
    monkeypatch.setenv("CUPYDRIVE_THREADS", "2")
    cd.train("connect_four", steps=64 * 8 * 9, out=tmp_path, **given)
    halved = cd.train("connect_four", steps=64 * 8 * 14, out=tmp_path, resume=True, **given)
    assert int(whole.learners["first+second"].taken) > 3 and same(halved, whole)
    assert "learns by kernels, float32" in whole.backends["first+second"]
    assert same(cd.load(tmp_path), whole)
    frozen = {"one": whole, "other": cd.FrozenPolicy(str(tmp_path), greedy=True)}
    found = cd.tournament(frozen, episodes=32, progress=False)
    assert found.score[0, 0] == found.score[1, 1] and found.elo["one"] == pytest.approx(0, abs=1e-9)


def test_others_see_the_policy_as_it_is(tmp_path):
    run = pooled()
    for _ in range(4):
        run.iterate()
    run.save(tmp_path)
    plain = PolicyPlayer(run.policies["runner"], make_distribution(run.batch.groups[1]))
    assert torch.equal(
        run.frozen("runner").player(None, None).policy.actor[0].weight, plain.policy.actor[0].weight
    )
    mine = run.evaluate(32)
    frozen = {name: cd.FrozenPolicy(str(tmp_path), greedy=True) for name in ("tagger", "runner")}
    theirs = cd.evaluate("tag_grid", frozen, episodes=32, device="cpu", **SMALL)
    assert mine.mean("length") == theirs.mean("length")
    assert "past snapshots of it play 0.5" in run.backends["runner"]
    assert "past snapshots play runner" in run.backends["all rollouts"]


def test_members_change_a_pool_and_what_it_is_of():
    members = [{"learning_rate": 0.02, "size": 3}, {"settings": A2C}]
    small = {"num_envs": 4, "device": "cpu", "progress": False, **SMALL}
    first, second = cd.train("tag_grid", Pool(PPO, share=0.25), members=members, steps=32, **small)
    assert first.settings["runner"] == Pool(replace(PPO, learning_rate=0.02), size=3, share=0.25)
    assert second.settings["tagger"] == Pool(A2C, share=0.25)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"settings": cd.HeuristicPolicy()},
            r"OpponentPool.settings = HeuristicPolicy\(\), expected PPO\(...\) or A2C\(...\)",
        ),
        ({"settings": cd.DDPG()}, "OpponentPool.settings = DDPG"),
        ({"settings": Pool(PPO)}, r"OpponentPool.settings = OpponentPool\("),
        ({"share": 2}, "share = 2: input should be less than or equal to 1"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ParameterError, match=message):
        Pool(**{"settings": PPO, **settings})


@pytest.mark.parametrize(
    ("env", "policies", "message"),
    [
        ("cartpole", {"cart": Pool(PPO)}, r"no other policy learns .* Pass PPO\(...\)"),
        ("connect_four", {"first": Pool(PPO), "second": cd.HeuristicPolicy()},
        "Expected another group that learns, or several groups that share the pool"),
        ("connect_four", {"first+second": Pool(PPO, share=0.01)}, "is 0, expected 1 to 16"),
        ("tag_grid", {"runner": Pool(PPO, share=1.0), "tagger": PPO}, "is 16, expected 1 to 15"),
        ("tag_grid", {"runner": Pool(PPO), "tagger": cd.RandomPolicy()},
        "no other policy learns against"),
        ("tag_grid", {"runner": Pool(PPO), "tagger": Pool(PPO, share=0.6)},
        "0.6 of 'tagger' and 0.5 of .* 1.1 together"),
        ("tag_grid", {"runner": Pool(PPO, share=0.01), "tagger": PPO},
        "share of 0.01 of 16 environments is 0"),
        ("tag_grid", {"runner": Pool(PPO, share=0.99), "tagger": PPO},
        "share of 0.99 of 16 environments is 16"),
        ("tag_grid", {"runner": Pool(A2C), "tagger": replace(PPO, num_steps=4)},
        "different num_steps: got runner 8, tagger 4"),
    ],
)  # fmt: skip
def test_pools_without_opponents_are_refused(env, policies, message):
    with pytest.raises(ParameterError, match=message):
        make_run(env, policies=policies, num_envs=16, device="cpu")


@pytest.mark.parametrize("several", [{}, {"seeds": 1}])
def test_a_run_that_goes_on_has_the_environments_of_its_folder(several, tmp_path):
    """Of the 1,024 that are suggested a share of 0.0004 is none; of the folder's 4,096 it
    is two.
    """
    given = {
        "steps": 4096 * 8,
        "out": tmp_path,
        "device": "cpu",
        "progress": False,
        **several,
        **SMALL,
    }
    pool = Pool(PPO, share=0.0004)
    with pytest.raises(ParameterError, match=r"share of 0\.0004 of 1024 environments is 0"):
        cd.train("tag_grid", pool, **given)
    cd.train("tag_grid", pool, num_envs=4096, **given)
    done = cd.train("tag_grid", pool, resume=True, **given)
    for run in done if several else [done]:
        assert (run.num_envs, run.step) == (4096, 4096 * 8) and len(
            run.learners["tagger"].envs
        ) == 2


@pytest.mark.parametrize("name", ["settings", "size", "share"])
def test_a_damaged_pool_is_seen(name, tmp_path):
    pooled().save(tmp_path)
    config = read_config(tmp_path)
    about = config["policies"]["runner"]
    about[name] = {"settings": about | {"size": 3}, "size": "8", "share": 2.0}[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(TrainingError, match=r"config\.json"):
        cd.load(tmp_path)


def test_pools_of_a_folder_are_compared_as_those_of_a_new_run(tmp_path):
    both(PPO).save(tmp_path)
    config = read_config(tmp_path)
    config["policies"]["runner"]["share"] = 0.7
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        TrainingError, match=r"config\.json does not fit .* 0\.4 of 'tagger' and 0\.7 of 'runner'"
    ):
        cd.load(tmp_path)
