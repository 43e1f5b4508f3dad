"""Described networks with hidden state, as users have them: equal bits however they are trained, and
all that a run is for.
"""

import json
import re

import numpy as np
import pytest
import torch
from conftest import command
from equal_runs import rows, same

import cupydrive as cd
from cupydrive.errors import ParameterError

QUIET = {"device": "cpu", "progress": False}
CORES = {
    "gru": cd.Network(hidden=(16,), core=cd.GRU(16)),
    "mingru": cd.Network(hidden=(20, 16), core=cd.MinGRU(16), shared=True),
    "lstm": cd.Network(hidden=(16,), core=cd.LSTM(16), layer_norm=True),
}
TAG = {"grid_length": 6, "num_taggers": 2, "max_episode_steps": 20}
# Sizes that fill no tile: one and two towers, no hidden layer, a Box, agents that leave, two groups.
EXACT = {
    "gru": (
        "cartpole",
        cd.PPO(
            network=cd.Network(hidden=(24,), core=cd.GRU(20), activation="relu"), num_steps=12,
            normalize_obs=True, normalize_reward=True, target_kl=0.02, precision="float32",
        ),
        {"num_envs": 140, "steps": 140 * 12 * 3},
    ),
    "mingru, Box": (
        "pendulum",
        cd.PPO(
            network=cd.Network(hidden=(24, 17), core=cd.MinGRU(17, layers=3), shared=True),
            num_steps=9, distribution="squashed", precision="float32",
        ),
        {"num_envs": 36, "steps": 36 * 9 * 3},
    ),
    "gru of observations, agents leave": (
        "tag_continuous",
        cd.A2C(network=cd.Network(hidden=(), core=cd.GRU(16)), num_steps=6, precision="float32"),
        {"num_envs": 9, "steps": 9 * 6 * 3},
    ),
    "mingru, two groups": (
        "tag_grid",
        cd.PPO(network=cd.Network(core=cd.MinGRU(64)), num_steps=6, num_minibatches=3, precision="float32"),
        {"num_envs": 30, "steps": 30 * 6 * 3, "one": "tagger+runner"},
    ),
}  # fmt: skip


def exact(name, device="cpu"):
    env, settings, options = EXACT[name]
    options = dict(options)
    one = options.pop("one", None)
    learns = {"policies": {one: settings}} if one else {"algorithm": settings}
    run = cd.train(env, seed=3, device=device, progress=False, **learns, **options)
    assert all("learns by kernels, float32" in run.backends[name] for name in run.policies)
    return run


def small(kind, iterations=3, num_envs=8, env="cartpole", **options):
    """Return a run whose episodes last longer than the 8 steps of an iteration."""
    settings = cd.PPO(network=CORES[kind], num_steps=8, num_minibatches=2, learning_rate=1e-2)
    options = {"seed": 3, **QUIET, **options}
    return cd.train(env, settings, num_envs=num_envs, steps=64 * iterations, **options)


def weights(run):
    return torch.cat([p.flatten() for net in run.policies.values() for p in net.parameters()]).cpu()


# ---- bits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
def test_threads_change_no_bit(name, monkeypatch):
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("CUPYDRIVE_THREADS", threads)
        found.append(exact(name))
    assert same(*found) and rows(found[0]) == rows(found[1])
    assert weights(found[0]).isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXACT)
def test_a_gpu_has_the_bits_of_a_cpu(name):
    assert torch.equal(weights(exact(name)), weights(exact(name, "cuda")))


@pytest.mark.parametrize("kind", CORES)
def test_resuming_inside_an_episode_gives_the_bits_of_a_run_that_was_never_stopped(kind, tmp_path):
    whole, half = small(kind, 7), small(kind, 3)
    states = half.learners["cart"].stored["cart"]["memory"][0]
    assert (states.abs().sum(1) > 0).any(), "every episode ended with the last step"
    half.total = whole.total
    half.save(tmp_path)
    resumed = cd.load(tmp_path, device="cpu")
    assert same(half, resumed)
    cd.train(resumed, progress=False)
    assert same(whole, resumed) and rows(resumed) == rows(whole)[3:]


@pytest.mark.parametrize("limit", [20, 12], ids=["inside an episode", "at its end"])
def test_a_run_against_a_frozen_policy_with_hidden_state_goes_on_bit_for_bit(limit, tmp_path):
    params, quick = TAG | {"max_episode_steps": limit}, {"num_envs": 8, "seed": 3, **QUIET}
    frozen = cd.train(
        "tag_grid", cd.PPO(network=CORES["gru"], num_steps=8), steps=64, **quick, **params
    )
    with torch.no_grad():
        for p in frozen.policies["runner"].parameters():
            p.mul_(10.0)  # so that actions follow the state
    frozen.save(tmp_path / "frozen")
    policies = {"tagger": cd.PPO(num_steps=8), "runner": cd.FrozenPolicy(str(tmp_path / "frozen"))}
    options = {"policies": policies, **quick, **params}
    whole, half = (cd.train("tag_grid", steps=64 * k, **options) for k in (7, 3))
    half.total = whole.total
    half.save(tmp_path / "half")
    resumed = cd.load(tmp_path / "half", device="cpu")
    cd.train(resumed, progress=False)
    assert same(whole, resumed) and rows(resumed) == rows(whole)[3:]


def test_a_member_of_a_population_is_the_run_that_it_would_be_alone():
    members = [{"network": network} for network in CORES.values()]
    population = small("gru", seeds=[3], seed=None, members=members)
    for member, kind in zip(population, CORES, strict=True):
        alone = small(kind)
        assert same(member, alone) and rows(member) == rows(alone)


# ---- what a run is for ---------------------------------------------------------------------------


@pytest.fixture(scope="module", params=CORES)
def saved(request, tmp_path_factory):
    """A run of Pendulum, whose actions are real numbers, its folder, and greedy episodes."""
    run, folder = small(request.param, env="pendulum"), tmp_path_factory.mktemp(request.param)
    with torch.no_grad():
        for name, p in run.policies["pole"].named_parameters():
            p *= 20.0 if "head.weight" in name else 1.0
    run.save(folder)
    return run, folder, run.evaluate(episodes=6, seed=1)


def test_a_frozen_policy_and_act_take_the_actions_of_evaluate(saved):
    run, folder, found = saved
    actions = found.recording.action["pole"]
    players = {"pole": cd.FrozenPolicy(folder, greedy=True)}
    frozen = cd.evaluate("pendulum", players, episodes=6, seed=1, device="cpu")
    assert np.array_equal(frozen.recording.action["pole"], actions)
    env = cd.make("pendulum", 6, device="cpu")
    obs, state, differ = env.reset(seed=1)[0], None, 0.0
    for t in range(int(found.recording.length.max())):
        without, (action, state) = run.act(obs)[0], run.act(obs, state)
        differ = max(differ, float((without - action).abs().max()))
        taken = torch.from_numpy(actions[t, :, 0]).clamp(-2.0, 2.0)
        torch.testing.assert_close(action, taken, rtol=1e-4, atol=1e-4)
        obs = env.step(taken)[0]
    assert differ > 0.01


def test_a_run_is_drawn_as_its_episodes_are(saved, tmp_path):
    run, _, found = saved
    drawn, again = tmp_path / "run.gif", tmp_path / "again.gif"
    run.render(drawn, episodes=6, seed=1, greedy=True, size=(120, 100))
    cd.render(found.recording, again, size=(120, 100))
    assert drawn.read_bytes() == again.read_bytes()


def test_a_configuration_holds_the_description(saved):
    run, folder, _ = saved
    network = run.settings["pole"].network
    about = json.loads((folder / "config.json").read_text())["policies"]["pole"]["network"]
    assert about["core"]["kind"] in CORES and about["core"]["size"] == 16
    assert cd.load(folder, device="cpu").settings["pole"] == run.settings["pole"]
    assert cd.PPO(network=about).network == network


@pytest.mark.parametrize("kind", CORES)
def test_snapshots_of_a_pool_and_pairs_of_a_tournament_have_hidden_state(kind, tmp_path):
    settings = cd.PPO(network=CORES[kind], num_steps=8, num_minibatches=2)
    policies = {"tagger": cd.OpponentPool(settings, size=2, every=1), "runner": settings}
    options = {"policies": policies, "num_envs": 8, **QUIET, **TAG}
    whole = cd.train("tag_grid", steps=64 * 5, **options)
    half = cd.train("tag_grid", steps=64 * 3, **options)
    half.total = whole.total
    half.save(tmp_path)
    resumed = cd.load(tmp_path, device="cpu")
    cd.train(resumed, progress=False)
    assert same(whole, resumed)
    assert ("by kernels" in whole.backends["tagger"]) == (kind != "lstm")

    players = {"run": whole, "chance": cd.RandomPolicy()}
    found = cd.tournament(players, key="length", episodes=10, device="cpu", progress=False)
    pair = {"tagger": whole.frozen("tagger"), "runner": cd.RandomPolicy()}
    alone = cd.evaluate("tag_grid", pair, episodes=10, device="cpu", **TAG)
    assert (found.mean[0, 1], found.half[0, 1]) == alone.mean("length")


def test_a_command_line_describes_a_network(tmp_path, capsys):
    about = '{"hidden": [16], "core": {"kind": "gru", "size": 16}}'
    sizes = f"--steps 64 --num-envs 8 --device cpu --out {tmp_path / 'run'}"
    assert command(f"train cartpole {sizes} --set num_steps=8 'network={about}'") == 0
    assert "core=GRU(size=16)" in capsys.readouterr().out
    assert cd.load(tmp_path / "run", device="cpu").settings["cart"].network == CORES["gru"]
    for wrong, words in (
        ('{"core": {"kind": "gruu", "size": 8}}', "kind = 'gruu', expected one of gru, lstm"),
        ('{"core": {"kind": "gru"}}', "GRU needs size, such as GRU(128)"),
        ('{"core": "gru"}', "core = 'gru', expected "),
        ('{"layers": 2}', "Network has no 'layers'"),
    ):
        assert command(f"train cartpole --device cpu --set 'network={wrong}'") == 2
        said = capsys.readouterr().err.strip()
        assert words in said and "\n" not in said


# ---- what does not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: cd.Network(hidden=(32,), core=cd.MinGRU(16)),
            r"hidden = \(32,\), expected a last width of 16",
        ),
        (lambda: cd.Network(hidden=(), core=cd.MinGRU(16)), r"expected a last width of 16"),
        (
            lambda: cd.PPO(hidden=(32,), network=CORES["gru"]),
            r"PPO: network describes the whole policy\. Leave hidden = \(32,\) out",
        ),
        (lambda: cd.A2C(activation="relu", network=CORES["gru"]), r"Leave activation = 'relu' out"),
        (lambda: cd.PPO(policy=torch.nn.Linear, network=CORES["gru"]), r"Leave policy = .* out"),
        (lambda: cd.DDPG(network=CORES["gru"]), r"DDPG has no setting 'network'"),
        (lambda: cd.GRU(0), r"GRU: size = 0"),
        (lambda: cd.MinGRU(8, layers=0), r"MinGRU: layers = 0"),
        (lambda: cd.Network(core=cd.GRU), r"Network: core = .*expected "),
        (
            lambda: small("gru", num_envs=7),
            r"PPO: 7 sequences \(environments x agents\) do not divide into 2 minibatches",
        ),
        (
            lambda: small("lstm", backend="kernels"),
            r"'cart': backend='kernels', but kernels do not apply: LSTM\(size=16\) has no kernels",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_one_line(call, words):
    with pytest.raises(ParameterError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value) and not re.search("pydantic", str(caught.value))
