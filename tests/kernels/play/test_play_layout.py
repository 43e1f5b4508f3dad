"""How ``env_play`` shares out threads and a GPU's memory, without a GPU."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_nvrtc import compile_to

import cupydrive as cd
from cupydrive.algorithms.kernels.play import (
    gpu_layout,
    play_unit,
    policies_of,
    policy_weight_bytes,
    tile_bytes,
)
from cupydrive.codegen.layout import PlayLayout
from cupydrive.training.begin import make_run

PADDING = 64  # bytes of a warp set's or a block's memory that are between its parts
H200 = SimpleNamespace(name="cuda", processors=132, shared_bytes=227 * 1024)
NETWORKS = [  # environment, settings, threads and environments of a warp set
    ("cartpole", cd.PPO(hidden=(64, 64)), 1, 32),
    ("cartpole", cd.PPO(hidden=(96, 17, 70)), 1, 8),
    ("cartpole", cd.PPO(hidden=(33, 17, 5), shared_layers=True), 1, 8),
    ("cartpole", cd.PPO(hidden=()), 1, 1),
    ("pendulum", cd.PPO(hidden=(130,), normalize_obs=True), 1, 16),
    ("cartpole", cd.PPO(network=cd.Network(hidden=(80,), core=cd.MinGRU(80), shared=True)), 1, 8),
    ("cartpole", cd.PPO(network=cd.Network(hidden=(17,), core=cd.GRU(48))), 1, 16),
]


def playing(env, settings, tensor, **params):
    """Return a batch and the policies that play in it."""
    run = make_run(
        env,
        replace(settings, precision="float32"),
        num_envs=4,
        device="cpu",
        backend="kernels",
        **params,
    )
    return run.batch, [
        replace(policy, tensor=tensor) for policy in policies_of(run.batch, run.rollout.player_of)
    ]


def on_h200(batch, num_envs):
    """Return what ``gpu_layout`` reads of a batch of ``num_envs`` environments there, one thread
    each.
    """
    parts = {name: getattr(batch, name) for name in ("spec", "params", "groups")}
    return SimpleNamespace(
        **parts, num_envs=num_envs, executor=H200, layout=SimpleNamespace(team=1)
    )


def block_bytes(batch, policies, layout):
    """Return the bytes that a block asks for, as the compiler counts them."""
    ptx = compile_to(play_unit(batch, policies, layout), "compute_90")[2]
    return int(re.search(r"block_bytes = (\d+)", ptx)[1])


@pytest.mark.full
@pytest.mark.parametrize("tensor", [False, True], ids=["exact", "tensor"])
@pytest.mark.parametrize(("env", "settings", "team", "envs"), NETWORKS)
def test_a_block_has_the_bytes_that_its_layout_was_chosen_by(env, settings, team, envs, tensor):
    batch, policies = playing(env, settings, tensor)
    one, two = (
        block_bytes(batch, policies, PlayLayout(team, envs, warp_sets=warp_sets))
        for warp_sets in (1, 2)
    )
    tiles, weights = (
        sum(of(policy) for policy in policies)
        for of in (lambda p: tile_bytes(p, envs), policy_weight_bytes)
    )
    assert abs(two - one - tiles) <= PADDING
    assert abs(2 * one - two - weights) <= PADDING


@pytest.mark.full
@pytest.mark.parametrize("tensor", [False, True], ids=["exact", "tensor"])
def test_agents_of_few_environments_have_a_thread_each(tensor):
    batch, policies = playing("tag_grid", cd.A2C(), tensor, num_taggers=4)
    assert gpu_layout(on_h200(batch, 2_000), policies).team == 8  # five agents
    assert gpu_layout(on_h200(batch, 65_536), policies).team == 1


@pytest.mark.parametrize("num_envs", [256, 1_024, 4_096, 16_384, 65_536])
@pytest.mark.parametrize("shared", [False, True])
def test_blocks_reach_all_processors_and_are_there_at_once(num_envs, shared):
    batch, policies = playing("cartpole", cd.PPO(shared_layers=shared), True)
    layout = gpu_layout(on_h200(batch, num_envs), policies)
    blocks = -(-num_envs // layout.block_envs)
    assert H200.processors * 0.9 < blocks <= H200.processors
