"""Observations of bool and uint8: the same numbers by every path, bits in rollouts, bytes in steps."""

from dataclasses import replace
from functools import partial

import lamps
import numpy as np
import pytest
import torch
from conftest import optional
from gymnasium import spaces

import cupydrive as cd
from cupydrive.algorithms.kernels import choice
from cupydrive.algorithms.kernels.arithmetic import TENSOR, WIDE
from cupydrive.algorithms.kernels.layerwise_tensor import LAYERWISE_TENSOR
from cupydrive.algorithms.kernels.tensor import GROUPS, TensorGradients
from cupydrive.checks.bits import trajectory
from cupydrive.codegen.layout import Layout
from cupydrive.errors import KernelFault
from cupydrive.executors.bits import pack_bits, unpack_bits
from cupydrive.executors.host import HostExecutor

KINDS = [(1, "bool"), (3, "bool"), (3, "uint8")]
# Four bools at a time, where their number allows it.
IMAGES = [(*kind, lamps.SHAPE) for kind in KINDS] + [(k, "bool", lamps.FOURS) for k in (1, 3)]
SMALL = {"num_envs": 8, "steps": 512, "seed": 3, "device": "cpu", "progress": False}
PPO = cd.PPO(num_steps=8, num_minibatches=2)


@pytest.mark.parametrize("count, dtype, shape", IMAGES)
def test_kernel_agrees_with_the_reference_by_every_path(count, dtype, shape):
    report = cd.check(
        lamps.lamps(count, dtype, image=shape), agent_steps=3000, device="cpu", progress=False
    )
    assert report.passed, report


@pytest.mark.gpu
@pytest.mark.parametrize("count, dtype, shape", IMAGES)
def test_gpu_has_the_same_bits(count, dtype, shape):
    report = cd.check(lamps.lamps(count, dtype, image=shape), agent_steps=3000, progress=False)
    assert report.passed, report


@pytest.mark.parametrize("count, dtype, shape", IMAGES)
def test_rollout_holds_what_steps_return(count, dtype, shape):
    """Of two rollouts; the second begins with what the first has stored as bits."""
    spec = lamps.lamps(count, dtype, image=shape)
    rolled, stepped = (cd.make(spec, num_envs=5, device="cpu") for _ in range(2))
    rolled.reset(seed=1)
    obs, _ = stepped.reset(seed=1)
    for steps in (9, 4):
        trajectory = rolled.rollout(steps)
        for t in range(steps):
            assert torch.equal(trajectory.obs[t], obs)
            obs, *_, info = stepped.step(trajectory.action[t])
            over = trajectory.truncated[t]
            assert torch.equal(trajectory.final_obs[t][over], info["final_obs"][over])
        assert torch.equal(trajectory.obs[steps], obs)
        if dtype == "bool":
            rows = trajectory.obs.flatten(-3)
            assert torch.equal(unpack_bits(trajectory.obs_bits, rows.shape[-1]), rows)
            assert torch.equal(pack_bits(rows), trajectory.obs_bits)
    lead = (5,) if count == 1 else (5, count)
    assert obs.shape == (*lead, *shape)
    assert obs.dtype == getattr(torch, dtype)
    if dtype == "bool":
        assert trajectory.obs_bits.shape == (5, *lead, -(-rows.shape[-1] // 32))


def test_a_trajectory_that_was_read_does_not_keep_the_next_one_from_being_read():
    env = cd.make(lamps.lamps(), num_envs=4, device="cpu")
    env.reset(seed=1)
    last = env.rollout(3).obs[-1].clone()
    assert torch.equal(env.rollout(3).obs[0], last)


def test_a_reset_of_some_keeps_the_bits_of_the_others():
    env = cd.make(lamps.lamps(), num_envs=4, device="cpu")
    env.reset(seed=1)
    before = env.rollout(3).obs[-1].clone()
    obs, _ = env.reset(mask=np.array([True, False, True, False]))
    assert torch.equal(obs[1::2], before[1::2])
    assert not torch.equal(obs[::2], before[::2])


def test_members_that_write_one_entry_race():
    spec = lamps.lamps(3, write="env.eye.obs(0)[7] = (env.team.rank & 1) != 0;")
    executor = HostExecutor(team_threads=4)
    with pytest.raises(KernelFault, match=r"write `eye\.obs\(0\)\[7\]`"):
        trajectory(spec, spec.make_params(), executor, 1, 4, 3, Layout(4))


def test_an_index_out_of_range_is_found():
    spec = lamps.lamps(write="env.eye.obs(i)[45 + k] = true;")
    with pytest.raises(KernelFault, match="observation entry"):
        trajectory(spec, spec.make_params(), HostExecutor(debug=True), 1, 4, 3)


class Own(torch.nn.Module):
    """A convolution of one's own, which sees (B, H, W, C) from 0 to 1."""

    def __init__(self, obs_dim, size):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.out = torch.nn.Linear(4 * 15, size + 1)

    def forward(self, obs):
        assert obs.shape[1:] == lamps.SHAPE
        assert 0 <= obs.min() <= obs.max() <= 1.4  # a trial adds up to 0.4
        out = self.out(self.conv(obs.permute(0, 3, 1, 2)).relu().flatten(1))
        return out[:, :-1], out[:, -1]


@pytest.mark.parametrize("policy", [None, Own])
@pytest.mark.parametrize("count, dtype", KINDS)
def test_policies_learn_from_them_and_act(tmp_path, count, dtype, policy):
    spec, settings = (
        lamps.lamps(count, dtype),
        cd.PPO(num_steps=8, num_minibatches=2, policy=policy),
    )
    assert cd.check_policy(spec, settings, num_envs=8, device="cpu").passed
    whole = cd.train(spec, settings, **SMALL)
    half = cd.train(spec, settings, **SMALL | {"steps": 256}, out=tmp_path / "run")
    half = cd.load(tmp_path / "run", env=spec, policies={"eye": settings})
    cd.train(half, steps=256, progress=False)
    for name, weight in half.policy().state_dict().items():
        assert torch.equal(weight, whole.policy().state_dict()[name])
    obs, _ = cd.make(spec, num_envs=4, device="cpu").reset(seed=1)
    assert torch.equal(whole.act(obs), whole.act(obs.float()))
    assert whole.act(obs).shape == obs.shape[:-3]
    rows = obs.reshape(-1, *lamps.SHAPE)
    network = whole.policy().network
    seen = rows.float() / (255 if dtype == "uint8" else 1)
    assert torch.equal(whole.act(rows), network(seen)[0].argmax(1).int())


@pytest.mark.parametrize("network", [cd.Network(), cd.Network(hidden=(16,), core=cd.GRU(16))])
@pytest.mark.parametrize(
    "count, dtype, shape",
    # Rows of a whole word, and of one bit more.
    [(*kind, lamps.SHAPE) for kind in KINDS] + [(1, "bool", (4, 4, 2)), (1, "bool", (1, 11, 3))],
)
def test_kernels_learn_the_same_bits_as_from_floats(count, dtype, shape, network):
    settings = cd.PPO(num_steps=8, num_minibatches=2, network=network)
    floats = lamps.lamps(count, "float32", lamps.FLOATS[dtype], shape)
    one, other = (
        cd.train(spec, settings, **SMALL, backend="kernels").policy().network.state_dict()
        for spec in (lamps.lamps(count, dtype, image=shape), floats)
    )
    for name, weight in one.items():
        assert torch.equal(weight, other[name])


def learnt(dtype, network, device, num_envs=8, shape=lamps.SHAPE):
    """Return weights that kernels have learnt from rows of ``dtype`` and from equal floats."""
    settings = cd.PPO(num_steps=8, num_minibatches=2, network=network)
    specs = (
        lamps.lamps(1, dtype, image=shape),
        lamps.lamps(1, "float32", lamps.FLOATS[dtype], shape),
    )
    options = SMALL | {"device": device, "num_envs": num_envs, "steps": 64 * num_envs}
    runs = [cd.train(spec, settings, **options, backend="kernels") for spec in specs]
    assert all("by kernels, bfloat16" in run.backends["eye"] for run in runs)
    return [run.policies["eye"].state_dict() for run in runs]


BY_GROUPS = replace(TENSOR, gradients=partial(TensorGradients, way=GROUPS))
WAYS = {"block": TENSOR, "groups": BY_GROUPS, "wide": WIDE, "parts": LAYERWISE_TENSOR}


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
@pytest.mark.parametrize("way", WAYS)
def test_tensor_cores_learn_the_same_bits_as_from_floats(dtype, way, monkeypatch):
    monkeypatch.setattr(choice, "EXACT", WAYS[way])  # a CPU has these kernels for tests alone
    one, other = learnt(dtype, cd.Network(), "cpu")
    for name, weight in one.items():
        assert torch.equal(weight, other[name])


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["bool", "uint8"])
@pytest.mark.parametrize("shape", [(10, 10, 3), (9, 11, 2)])  # in parts that begin inside words
def test_so_do_layers_that_are_cut_into_parts(dtype, shape, monkeypatch):
    monkeypatch.setattr(choice, "EXACT", WIDE)
    one, other = learnt(dtype, cd.Network(hidden=(144, 16)), "cpu", shape=shape)
    for name, weight in one.items():
        assert torch.equal(weight, other[name])


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
@pytest.mark.parametrize("kernel", [2, 3])  # 6 and 9 entries of a row of the image
def test_so_do_convolutions(dtype, kernel, monkeypatch):
    monkeypatch.setattr(choice, "LAYERWISE", LAYERWISE_TENSOR)
    network = cd.Network(conv=cd.Conv((5,), kernel), hidden=(16,))
    one, other = learnt(dtype, network, "cpu")
    for name, weight in one.items():
        assert torch.equal(weight, other[name])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bool", "uint8"])
@pytest.mark.parametrize("hidden, num_envs", [((64, 64), 8), ((64, 64), 8192), ((256, 256), 64)])
def test_so_they_do_on_a_gpu(dtype, hidden, num_envs):
    one, other = learnt(dtype, cd.Network(hidden=hidden), "cuda", num_envs)
    for name, weight in one.items():
        assert torch.equal(weight, other[name])


@pytest.mark.gpu
def test_members_learn_on_a_gpu_as_alone():
    """By one launch for all, whose arguments lie in the GPU's memory."""
    settings = cd.PPO(num_steps=8, num_minibatches=2, network=cd.Network(hidden=(256, 256)))
    spec, options = lamps.lamps(1, "bool"), SMALL | {"device": "cuda"}
    population = cd.train(
        spec, settings, **{k: v for k, v in options.items() if k != "seed"}, seeds=2
    )
    for run in population:
        alone = cd.train(spec, settings, **options | {"seed": run.seed})
        for name, weight in alone.policies["eye"].state_dict().items():
            assert torch.equal(weight, run.policies["eye"].state_dict()[name])


def pausing(spec):
    """Return lamps whose agents are inactive in some steps."""
    begin = "DEVICE bool step(Env& env) {"
    pauses = """
  for (int i : env.team.each(NUM_AGENTS)) {
    env.eye.active(i) = (env.state.word >> (3 + i) & 3u) != 0;
    env.eye.left(i) = 0;
  }"""
    return replace(
        spec,
        kernel=spec.kernel.replace(begin, begin + pauses),
        groups=lambda p: tuple(replace(g, leaves=True) for g in spec.groups(p)),
    )


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_steps_before_a_pause_are_learnt_from_the_same_bits(dtype):
    """Such a step is held with its observation until the agent is active again."""
    floats = lamps.lamps(3, "float32", lamps.FLOATS[dtype], lamps.FOURS)
    settings = replace(PPO, network=cd.Network())
    one, other = (
        cd.train(pausing(spec), settings, **SMALL, backend="kernels").policies["eye"].state_dict()
        for spec in (lamps.lamps(3, dtype, image=lamps.FOURS), floats)
    )
    for name, weight in one.items():
        assert torch.equal(weight, other[name])


def test_adapters_show_shape_and_dtype():
    optional("pettingzoo")
    from cupydrive.adapters.gymnasium import Env
    from cupydrive.adapters.pettingzoo import ParallelEnv

    env = Env(lamps.lamps(), device="cpu")
    obs, _ = env.reset(seed=1)
    assert env.observation_space == spaces.Box(0, 1, lamps.SHAPE, np.bool_)
    assert env.observation_space.contains(obs)
    several = ParallelEnv(lamps.lamps(3, "uint8"), device="cpu")
    observations, _ = several.reset(seed=1)
    for agent, obs in observations.items():
        assert several.observation_space(agent) == spaces.Box(0, 255, lamps.SHAPE, np.uint8)
        assert several.observation_space(agent).contains(obs)


def test_export_takes_images(tmp_path):
    onnxruntime = optional("onnxruntime")
    run = cd.train(lamps.lamps(), PPO, **SMALL)
    obs, _ = cd.make(lamps.lamps(), num_envs=6, device="cpu").reset(seed=1)
    session = onnxruntime.InferenceSession(run.export(tmp_path / "lamps.onnx"))
    (action,) = session.run(None, {"obs": obs.float().numpy()})
    assert np.array_equal(action, run.act(obs))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"obs_shape": (3, 3), "obs_dim": 5}, "obs_dim = 5 does not fit obs_shape"),
        ({"obs_shape": (3, 0)}, "obs_shape = 0"),
        ({"obs_dim": 4, "obs_dtype": "int8"}, "obs_dtype"),
        ({"obs_dim": 4, "obs_dtype": "uint8", "obs_high": 300.0}, "obs_high = 300"),
        ({}, "obs_dim = 0"),
    ],
)
def test_wrong_descriptions_are_one_line(given, message):
    with pytest.raises(cd.SpecError, match=message) as caught:
        cd.Group("eye", 1, action_space=spaces.Discrete(2), **given)
    assert "\n" not in str(caught.value)


def test_bools_are_not_normalised():
    with pytest.raises(cd.ParameterError, match="normalize_obs = True, but observations"):
        cd.train(lamps.lamps(), cd.PPO(normalize_obs=True), **SMALL)
