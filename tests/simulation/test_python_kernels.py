"""Kernels written in Python pass the same check as those in C, and their mistakes are found like
those.
"""

from dataclasses import dataclass, replace

import archers
import masked
import numpy as np
import point
import pytest
import torch
from equal_runs import assert_same_bits
from gymnasium import spaces

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.bits import fetch, flatten
from cupydrive.errors import DeviceError, SpecError
from cupydrive.examples import cartpole_torch
from cupydrive.executors.python_kernels import PythonKernels
from cupydrive.random import below
from cupydrive.spec import EnvSpec, Field, Group, Observation, Reference, StepResult, param

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


# ---- two test environments again, in torch and in NumPy ------------------------------------------


def point_reset(env):
    for name, fresh in (
        ("x", 2 * env.uniform[:, 0, 0, 0] - 1),
        ("v", torch.zeros_like(env.state["v"])),
    ):
        env.state[name].copy_(torch.where(env.mask, fresh, env.state[name]))


def point_step(env):
    push = env.action["point"][:, 0, 0].clamp(-1, 1)
    x, v = env.state["x"], env.state["v"]
    v.copy_(v * env.params.drag + env.params.strength * push)
    x += v
    env.reward["point"][:, 0] = -(x**2) - 0.01 * push**2


def point_observe(env):
    env.obs["point"][:, 0, 0] = env.state["x"]
    env.obs["point"][:, 0, 1] = env.state["v"]


def walker_reset(env):
    fresh = (env.bits[:, :, 0, 0].astype(np.uint64) * np.uint64(5) >> np.uint64(32)).astype(
        np.int32
    )
    env.state["place"][...] = np.where(env.mask[:, None], fresh, env.state["place"])


def walker_step(env):
    place, action = env.state["place"], env.action["walker"]
    move, jump = action[..., 0], action[..., 1]
    for forbidden in (
        (move == 0) & (place == 0),
        (move == 1) & (place == 4),
        (jump == 0) & (place == 0),
        (jump == 1) & (place == 4),
    ):
        env.metrics["forbidden"] += forbidden.sum(1)
    after = np.clip(place + (move == 1) - (move == 0), 0, 4)
    place[...] = np.where(move == 2, np.where(jump == 0, 0, 4), after)
    env.reward["walker"][...] = place == 2


def walker_observe(env):
    place, mask = env.state["place"], env.action_mask["walker"]
    env.obs["walker"][..., 0] = place * np.float32(0.25)
    mask[...] = True
    for head in (0, 3):
        mask[..., head], mask[..., head + 1] = place != 0, place != 4


def archer_place(env, where):
    for k, name in enumerate("xy"):
        np.copyto(env.state[name], 2 * env.uniform[:, :, 0, k] - 1, where=where)
    colour = env.bits[:, :, 0, 2].astype(np.uint64) * np.uint64(3) >> np.uint64(32)
    np.copyto(env.state["colour"], colour, where=where, casting="unsafe")


def archer_step(env):
    action, s = env.action["archer"], env.state
    hit, gear = action[..., 0] == s["colour"], action[..., 2]
    dx = np.clip(action[..., 3], -1, 1) - s["x"]
    dy = np.clip(action[..., 4], -1, 1) - s["y"]
    cost = np.float32(env.params.cost) * action[..., 1] * gear * np.clip(action[..., 5], 0, 3)
    env.reward["archer"][...] = hit - dx**2 - dy**2 - cost
    env.metrics["hits"] += hit.sum(1)
    env.metrics["gear_3"] += (gear == 3).sum(1)
    archer_place(env, np.ones_like(s["x"], bool))


def archer_observe(env):
    obs, colours = env.obs["archer"], np.stack([env.state["colour"] == k for k in range(3)], -1)
    obs[..., 0], obs[..., 1], obs[..., 2:] = env.state["x"], env.state["y"], colours
    for mask in env.action_mask.values():
        mask[..., :3], mask[..., 3:], mask[..., 5:8] = np.roll(~colours, 1, -1), False, True


# ---- and one whose agents leave ------------------------------------------------------------------


@dataclass(frozen=True)
class LeaverParams:
    leavers: int = param(3, "Agents.", low=1)
    max_episode_steps: int = param(8, "Time limit.", low=1)


def leaver_reset(p, random):
    states = np.zeros(len(np.atleast_1d(random.env)), [("goes", "i4", (p.leavers,))])
    states["goes"] = below(random.bits(p.leavers)[..., 0], 10) + 1
    return states


def leaver_outcome(p, states, action, elapsed, random):
    goes = states["goes"]
    active, left = goes >= elapsed[:, None], goes == elapsed[:, None]
    gone = (goes <= elapsed[:, None]).all(1)
    return StepResult(
        {"goes": goes},
        {"leaver": active * 1.0},
        gone,
        {"leaver": active},
        {"leaver": left},
        events={"all left": gone},
    )


def leaver_step(env):
    goes, elapsed = env.state["goes"], env.elapsed[:, None]
    env.active["leaver"].copy_(goes >= elapsed)
    env.left["leaver"].copy_(goes == elapsed)
    env.reward["leaver"].copy_(goes >= elapsed)
    env.terminated.copy_((goes <= elapsed).all(1))


def leaver_start(env):
    fresh = ((env.bits[:, :, 0, 0].view(torch.int32).long() & 0xFFFFFFFF) * 10 >> 32) + 1
    env.state["goes"].copy_(torch.where(env.mask[:, None], fresh.int(), env.state["goes"]))


def leaver_observe(env):
    env.obs["leaver"][..., 0] = env.state["goes"]


LEAVERS = EnvSpec(
    "leavers",
    LeaverParams,
    lambda p: (Field("goes", "i4", (p.leavers,)),),
    lambda p: (Group("leaver", p.leavers, 1, spaces.Discrete(2), obs_scale=10.0, leaves=True),),
    "terminates",
    Reference(
        leaver_reset,
        leaver_outcome,
        lambda p, states, elapsed: Observation(
            {"leaver": states["goes"][..., None].astype(np.float64)}
        ),
        lambda p, rng, n: np.array(
            [(row,) for row in rng.integers(1, 11, (n, p.leavers))], [("goes", "i4", (p.leavers,))]
        ),
    ),
    kernel=PythonKernels(leaver_start, leaver_step, leaver_observe),
)


def specs():
    """Return environments by name: their references with kernels in Python."""
    in_torch = PythonKernels(point_reset, point_step, point_observe)
    in_numpy = PythonKernels(walker_reset, walker_step, walker_observe, arrays="numpy")
    of_archers = PythonKernels(
        lambda env: archer_place(env, env.mask[:, None]),
        archer_step,
        archer_observe,
        arrays="numpy",
        step_draws=1,
    )
    return {
        "cartpole": cartpole_torch.SPEC,
        "archers": replace(
            cd.register(archers.PYTHON, archers.KERNEL), name="archers_numpy", kernel=of_archers
        ),
        "point": replace(
            cd.register(point.PYTHON, point.KERNEL), name="point_torch", kernel=in_torch
        ),
        "masked": replace(
            cd.register(masked.PYTHON, masked.KERNEL), name="masked_numpy", kernel=in_numpy
        ),
        "leavers": LEAVERS,
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["cartpole", "point", "masked", "leavers", "archers"])
def test_kernels_in_python_pass_the_check(name, device):
    spec = specs()[name]
    if device == "cuda" and name in ("masked", "archers"):
        # CuPy has NumPy's functions
        spec = replace(spec, kernel=replace(spec.kernel, arrays="cupy"))
    report = cd.check(spec, device=device, agent_steps=30_000, progress=False)
    assert report.passed, report
    assert all(report.events.values())


@pytest.mark.full
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:cupyx.jit.rawkernel is experimental:FutureWarning")
def test_kernels_of_cupyx_jit_pass_the_check():
    from cupydrive.examples import cartpole_jit

    report = cd.check(cartpole_jit.SPEC, device="cuda", progress=False)
    assert report.passed and all(report.events.values()), report


def test_whole_numbers_are_those_of_the_kernel_in_c():
    """No rounding, so that 60 random steps have the same bits: actions, masks, resets,
    statistics.
    """
    one, other = (
        cd.make(spec, 50, device="cpu") for spec in (specs()["masked"], envs.get("masked"))
    )
    for env in (one, other):
        env.reset(seed=4)
    got, want = (
        flatten(fetch(env.batch, env.batch.rollout(60)), env.batch) for env in (one, other)
    )
    assert_same_bits(got, want)


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_they_train(device):
    run = cd.train(
        cartpole_torch.SPEC,
        cd.PPO(num_steps=32),
        num_envs=64,
        steps=60_000,
        seed=1,
        device=device,
        progress=False,
    )
    returns = [
        row["charts/episodic_return"] for row in run.metrics if "charts/episodic_return" in row
    ]
    assert returns[-1] > 2 * returns[0]


def planted(part, function):
    return replace(
        cartpole_torch.SPEC, kernel=replace(cartpole_torch.SPEC.kernel, **{part: function})
    )


def reset_everything(env):
    for k, name in enumerate(cartpole_torch.FIELDS):
        env.state[name].copy_(0.1 * env.uniform[:, 0, 0, k] - 0.05)


def forget_the_angle(env):
    cartpole_torch.step(env)
    env.terminated.copy_(env.state["x"].abs() > env.params.x_limit)


def late_velocity(env):
    before = env.state["x"].clone()
    cartpole_torch.step(env)
    env.state["x"].copy_(before + env.params.tau * env.state["x_dot"])


def swapped(env):
    cartpole_torch.observe(env)
    env.obs["cart"][:, 0, 1:3] = env.obs["cart"][:, 0, 1:3].flip(-1).clone()


MISTAKES = {
    "reset everything": ("reset", reset_everything, "unmasked state.x"),
    "forget the angle": ("step", forget_the_angle, "terminated"),
    "late velocity": ("step", late_velocity, "state.x"),
    "swapped": ("observe", swapped, "obs.cart"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(mistake):
    part, function, where = MISTAKES[mistake]
    report = cd.check(planted(part, function), device="cpu", agent_steps=3000, progress=False)
    assert not report.passed
    assert any(t.name == where and t.failure for t in report.tallies.values()), report


def test_observations_of_a_critic_pass_the_check():
    def observe(env):
        cartpole_torch.observe(env)
        env.critic_obs["cart"].copy_(2 * env.obs["cart"])

    def reference_observe(params, states, elapsed):
        seen = cartpole_torch.SPEC.reference.observe(params, states, elapsed)
        return replace(seen, critic_obs={"cart": 2 * seen.obs["cart"]})

    spec = cartpole_torch.SPEC
    spec = replace(
        spec,
        groups=lambda p: tuple(replace(g, critic_obs_dim=4) for g in cartpole_torch.SPEC.groups(p)),
        kernel=replace(spec.kernel, observe=observe),
        reference=replace(spec.reference, observe=reference_observe),
        cases=({},),
    )
    report = cd.check(spec, device="cpu", agent_steps=3000, progress=False)
    assert report.passed, report
    assert any(field == "final_critic_obs.cart" for _, field in report.tallies)


def test_what_cannot_be_is_said():
    with pytest.raises(SpecError, match="'jax'"):
        PythonKernels(None, None, None, arrays="jax")
    on_gpu = replace(cartpole_torch.SPEC, kernel=replace(cartpole_torch.SPEC.kernel, arrays="cupy"))
    with pytest.raises(
        DeviceError, match=r"cupy arrays, which do not support 'cpu'. Use device='cuda'"
    ):
        cd.make(on_gpu, 4, device="cpu")
    with pytest.raises(DeviceError, match="these kernels run on cuda"):
        cd.check(on_gpu, device="cpu")


# Their rows of floats would overwrite the memory behind rows of bytes.
@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_observations_of_bytes_are_an_error(dtype):
    def groups(p):
        return (Group("cart", 1, 4, spaces.Discrete(2), obs_dtype=dtype),)

    with pytest.raises(SpecError, match=f"group 'cart' has obs_dtype = '{dtype}'"):
        cd.make(replace(cartpole_torch.SPEC, groups=groups), 4, device="cpu")


def test_a_file_with_kernels_in_python_is_an_environment(tmp_path):
    text = "from cupydrive.examples.cartpole_torch import SPEC\n"
    (tmp_path / "mine.py").write_text(text)
    env = cd.make(tmp_path / "mine.py", 3, device="cpu")
    env.reset(seed=0)
    obs, *_ = env.step(torch.zeros(3, dtype=torch.int32))
    assert env.spec.name == "cartpole_torch" and obs.shape == (3, 4)
