"""Described networks with convolutions, as users have them: equal bits however they are trained, and
all that a run is for.
"""

import json
import re
from dataclasses import replace

import lamps
import numpy as np
import pytest
import torch
from conftest import command, optional
from equal_runs import rows, same
from gymnasium import spaces

import cupydrive as cd
from cupydrive.algorithms.architecture import OF_IMAGES
from cupydrive.algorithms.kernels import choice
from cupydrive.algorithms.kernels.layerwise_tensor import LAYERWISE_TENSOR
from cupydrive.errors import ParameterError

QUIET = {"device": "cpu", "progress": False}
NETWORKS = {
    "two layers": cd.Network(
        conv=cd.Conv((6, 4), 2, (1, 2)), hidden=(16,), activation="relu", shared=True
    ),
    "norm": cd.Network(conv=cd.Conv((5,), 3), hidden=(20,), layer_norm=True),
    "gru": cd.Network(conv=cd.Conv((4,), (3,)), hidden=(), core=cd.GRU(16)),
    "mingru": cd.Network(conv=cd.Conv((4,)), hidden=(16,), core=cd.MinGRU(16), shared=True),
}

DENSE = cd.Network(hidden=(24, 16))


def small(kind, iterations=3, dtype="float32", **options):
    """Return a run of images of 3 x 5 entries with 3 channels."""
    network = NETWORKS.get(kind)
    settings = cd.PPO(network=network, num_steps=8, num_minibatches=2, learning_rate=1e-2)
    options = {"num_envs": 8, "seed": 3, **QUIET, **options}
    return cd.train(lamps.lamps(2, dtype), settings, steps=64 * iterations, **options)


def moved(run):
    """Return a run whose policy's outputs differ from one image to the next."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in run.policies["eye"].parameters():
            p.normal_(0.0, 0.0 if p.ndim == 1 else 0.5, generator=generator)
    return run


@pytest.mark.parametrize(
    ("shape", "given", "network"),
    [
        ((10, 10, 4), {}, OF_IMAGES),
        ((3, 3, 1), {}, OF_IMAGES),
        ((2, 10, 4), {}, cd.Network()),
        ((10, 10), {}, cd.Network()),
        ((400,), {}, cd.Network()),
        ((10, 10, 4), {"hidden": (32,)}, cd.Network(hidden=(32,))),
        ((10, 10, 4), {"network": cd.Network()}, cd.Network()),
        ((10, 10, 4), {"network": NETWORKS["norm"]}, NETWORKS["norm"]),
    ],
)
def test_images_get_convolutions_unless_a_network_is_described(shape, given, network):
    group = cd.Group("eye", 1, action_space=spaces.Discrete(2), obs_shape=shape)
    assert cd.PPO(**given).network_for(group) == network


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize(
    ("dtype", "backend", "most"),
    [("float32", "kernels", 0), ("bool", "kernels", 0), ("float32", "torch", 1e-4)],
)
def test_a_policy_gives_the_same_while_it_acts_and_learns(kind, dtype, backend, most):
    """By kernels the ratios of probabilities are exactly 1."""
    settings = cd.PPO(network=NETWORKS[kind], num_steps=8, num_minibatches=2)
    spec = lamps.lamps(1, dtype)
    report = cd.check_policy(spec, settings, num_envs=8, device="cpu", backend=backend)
    assert report.passed and max(tally.worst for tally in report.tallies.values()) <= most


# Sizes that fill no tile; patches of one image in several tiles, and several images in one.
EXACT = {
    "two towers": (
        cd.PPO(
            network=cd.Network(conv=cd.Conv((18, 5), (2, 1)), hidden=(24, 17)), num_steps=12,
            normalize_obs=True, normalize_reward=True, target_kl=0.02,
        ),
        {"dtype": "float32"},
    ),
    "bits": (cd.PPO(num_steps=9, num_minibatches=3), {"dtype": "bool"}),
    "strides": (
        cd.PPO(
            network=cd.Network(conv=cd.Conv((8, 20), (4, 3), (2, 1)), hidden=(), shared=True),
            num_steps=5, num_minibatches=3,
        ),
        {"dtype": "float32", "image": (12, 11, 3)},
    ),
    "bytes": (cd.A2C(network=NETWORKS["two layers"], num_steps=6), {"dtype": "uint8"}),
    "one-hot": (
        cd.PPO(network=replace(NETWORKS["two layers"], one_hot=True), num_steps=6, num_minibatches=3),
        {"dtype": "uint8", "write": "env.eye.obs(i)[k] = (env.state.word >> k % 25) % 5u;", "high": 3},
    ),
    "sequences": (cd.PPO(network=NETWORKS["gru"], num_steps=6, num_minibatches=3), {"dtype": "bool"}),
}  # fmt: skip


def exact(name, device="cpu"):
    settings, about = EXACT[name]
    settings, spec = replace(settings, precision="float32"), lamps.lamps(2, **about)
    options = {"num_envs": 60, "steps": 60 * settings.num_steps * 3, "seed": 3, "device": device}
    run = cd.train(spec, settings, progress=False, backend="kernels", **options)
    assert run.backends["eye"] == "policy 'eye' learns by kernels, float32"
    return run


@pytest.mark.parametrize("name", EXACT)
def test_threads_change_no_bit(name, monkeypatch):
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("CUPYDRIVE_THREADS", threads)
        found.append(exact(name))
    assert same(*found) and rows(found[0]) == rows(found[1])
    assert all(p.isfinite().all() for p in found[0].policies["eye"].parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("name", EXACT)
def test_a_gpu_has_the_bits_of_a_cpu(name):
    pairs = (
        exact(name, device).policies["eye"].state_dict().values() for device in ("cpu", "cuda")
    )
    for one, other in zip(*pairs, strict=True):
        assert torch.equal(one, other.cpu())


def checked_in_bfloat16(kind, dtype, device):
    settings = cd.PPO(network=NETWORKS.get(kind, DENSE), num_steps=8, num_minibatches=2)
    spec = lamps.lamps(1, dtype)
    report = cd.check_policy(spec, settings, num_envs=8, device=device, backend="kernels")
    assert "by kernels, bfloat16" in report.compared_with and report.passed, report


@pytest.mark.parametrize("kind", [*NETWORKS, "dense"])
@pytest.mark.parametrize("dtype", ["float32", "bool", "uint8"])
def test_bfloat16_gives_the_same_while_it_acts_and_learns(kind, dtype, monkeypatch):
    for name in ("LAYERWISE", "EXACT"):
        monkeypatch.setattr(choice, name, LAYERWISE_TENSOR)
    checked_in_bfloat16(kind, dtype, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [*NETWORKS, "dense"])
@pytest.mark.parametrize("dtype", ["float32", "bool", "uint8"])
def test_so_it_does_on_a_gpu(kind, dtype):
    checked_in_bfloat16(kind, dtype, "cuda")


class Own(torch.nn.Module):
    """Convolutions of one's own, whose gradients have the strides of images on a GPU."""

    def __init__(self, obs_dim, size):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3)
        self.out = torch.nn.Linear(24, size + 1)

    def forward(self, obs):
        x = self.second(self.first(obs.permute(0, 3, 1, 2)).relu()).relu()
        out = self.out(x.flatten(1))
        return out[:, :-1], out[:, -1]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_convolutions_of_ones_own_learn_on_a_gpu(precision):
    """As on a CPU, within the rounding of their products."""
    settings = cd.PPO(policy=Own, num_steps=8, num_minibatches=2, precision=precision)
    spec, options = lamps.lamps(1, "bool"), {"num_envs": 8, "steps": 256, "seed": 3}
    found = []
    for device in ("cpu", "cuda"):
        run = cd.train(spec, settings, device=device, progress=False, **options)
        weights = [p.cpu().flatten() for p in run.policies["eye"].parameters()]
        found.append(torch.cat(weights))
    most = {"float32": 1e-3, "bfloat16": 3e-2}[precision]
    assert (found[0] - found[1]).norm() <= most * found[0].norm()


@pytest.mark.parametrize("kind", NETWORKS)
def test_resuming_gives_the_bits_of_a_run_that_was_never_stopped(kind, tmp_path):
    whole, half = small(kind, 5), small(kind, 3)
    half.total = whole.total
    half.save(tmp_path)
    resumed = cd.load(tmp_path, env=lamps.lamps(2, "float32"), device="cpu")
    assert resumed.settings == half.settings and same(half, resumed)
    cd.train(resumed, progress=False)
    assert same(whole, resumed) and rows(resumed) == rows(whole)[3:]


@pytest.mark.full
def test_a_member_of_a_population_is_the_run_that_it_would_be_alone():
    members = [{"network": network} for network in NETWORKS.values()]
    population = small("norm", seeds=[3], seed=None, members=members)
    for member, kind in zip(population, NETWORKS, strict=True):
        alone = small(kind)
        assert same(member, alone) and rows(member) == rows(alone)


def test_torch_computes_convolutions_in_bfloat16():
    settings = cd.PPO(network=NETWORKS["two layers"], num_steps=8, precision="bfloat16")
    spec = lamps.lamps(1, "float32")
    assert cd.check_policy(spec, settings, num_envs=8, device="cpu", backend="torch").passed


# ---- what a run is for ---------------------------------------------------------------------------


def assert_equal_actions(spec, run, folder):
    """Compare the actions of a run, its frozen policy, ``act`` and its ONNX file with those of
    ``evaluate``.
    """
    run = moved(run)
    run.save(folder / "run")
    evaluated = {"episodes": 4, "seed": 1, "greedy": True}
    actions = run.evaluate(**evaluated).recording.action["eye"]
    assert 0 < actions.mean() < 1
    players = {"eye": cd.FrozenPolicy(folder / "run", greedy=True, env=spec)}
    frozen = cd.evaluate(spec, players, episodes=4, seed=1, device="cpu")
    assert np.array_equal(frozen.recording.action["eye"], actions)
    optional("onnxscript")
    session = optional("onnxruntime").InferenceSession(run.export(folder / "eye.onnx"))
    env = cd.make(spec, 4, device="cpu")
    obs, state = env.reset(seed=1)[0], None
    for t in range(7):
        found, given = run.act(obs, state), {"obs": obs.flatten(0, 1).float().numpy()}
        if isinstance(found, tuple):
            found, after = found
            before = torch.zeros_like(after) if state is None else state
            given |= {"state": before.flatten(0, 1).numpy(), "start": np.zeros(8, bool)}
            state = after
        assert np.array_equal(found, actions[t].reshape(found.shape)), t
        assert np.array_equal(session.run(None, given)[0], found.flatten())
        obs = env.step(found)[0]


@pytest.mark.parametrize("kind", ["two layers", "gru", None])
def test_a_frozen_policy_act_and_a_file_take_the_actions_of_evaluate(kind, tmp_path):
    assert_equal_actions(lamps.lamps(2, "float32"), small(kind), tmp_path)


def test_a_configuration_and_a_command_line_hold_the_description(tmp_path, capsys):
    network = NETWORKS["two layers"]
    small("two layers").save(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())["policies"]["eye"]["network"]
    assert about["conv"] == {"channels": [6, 4], "kernel": 2, "stride": [1, 2]}
    assert cd.PPO(network=about).network == network
    for wrong, words in (
        ('{"conv": {"kernel": 3}}', r"Conv needs channels, such as Conv\(\(16,\)\)"),
        ('{"conv": {"channels": [4], "size": 3}}', r"Conv has no 'size'"),
        ('{"conv": {"channels": [4]}}', r"needs images: got obs_shape = \(4,\)"),
    ):
        assert command(f"train cartpole --device cpu --set 'network={wrong}'") == 2
        assert re.search(words, capsys.readouterr().err.strip().splitlines()[-1])


def test_past_snapshots_have_convolutions(tmp_path):
    tag = cd.envs.get("tag_grid")  # whose rows are images of one row, here
    spec = replace(
        tag, groups=lambda p: [replace(g, obs_shape=(1, g.obs_dim, 1)) for g in tag.groups(p)]
    )
    settings = cd.PPO(network=cd.Network(conv=cd.Conv((4,), 1)), num_steps=8, num_minibatches=2)
    policies = {"tagger": cd.OpponentPool(settings, size=2, every=1), "runner": settings}
    options = {"policies": policies, "num_envs": 8, **QUIET}
    whole, half = (cd.train(spec, steps=64 * k, **options) for k in (5, 3))
    half.total = whole.total
    half.save(tmp_path)
    resumed = cd.load(tmp_path, env=spec, device="cpu")
    cd.train(resumed, progress=False)
    assert same(whole, resumed)
    players = {"tagger": whole.frozen("tagger"), "runner": whole.frozen("runner")}
    assert cd.evaluate(spec, players, episodes=4, device="cpu").mean("length")[0] > 0


# ---- what does not fit ---------------------------------------------------------------------------


def fitted(conv):
    settings = cd.PPO(network=cd.Network(conv=conv), num_steps=8)
    return cd.train(lamps.lamps(), settings, num_envs=8, steps=64, **QUIET)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cd.Conv(()), r"got 0 layers, channels = \(\), expected 1 to 3"),
        (lambda: cd.Conv((8, 8, 8, 8)), r"got 4 layers"),
        (lambda: cd.Conv((0,)), r"Conv: channels\[0\] = 0"),
        (lambda: cd.Conv((8,), 9), r"Conv: kernel = 9"),
        (lambda: cd.Conv((8,), 3, 5), r"Conv: stride = 5"),
        (lambda: cd.Conv((8, 4), (3,)), r"kernel = \(3,\) does not fit channels = \(8, 4\)"),
        (lambda: cd.Conv((8,), 3, (1, 2)), r"stride = \(1, 2\) does not fit channels = \(8,\)"),
        (lambda: cd.Network(conv=3), r"Network: conv = 3: input should be an instance of Conv"),
        (lambda: fitted(cd.Conv((8,), 4)), r"layer 0 sees 3 x 5, expected at least 4 x 4"),
        (lambda: fitted(cd.Conv((8, 8), (2, 3))), r"layer 1 sees 2 x 4, expected at least 3 x 3"),
        (
            lambda: cd.train("cartpole", cd.PPO(network=NETWORKS["norm"]), **QUIET),
            r"needs images: got obs_shape = \(4,\), expected \(height, width, channels\)",
        ),
        (
            lambda: cd.train(
                "cartpole", cd.PPO(network=NETWORKS["norm"]), backend="torch", **QUIET
            ),
            r"needs images: got obs_shape = \(4,\), expected \(height, width, channels\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_one_line(call, words):
    with pytest.raises(ParameterError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
