"""Forward passes by matrix units: those of many rows have the bits of those of few."""

from types import SimpleNamespace

import pytest
import torch

from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call
from cupydrive.training.algorithms import A2C, PPO
from cupydrive.training.algorithms.kernels import tensor
from cupydrive.training.algorithms.kernels.layout import NetworkLayout

# Settings, entries of an observation, parameters of the distribution, whether observations are normalised.
NETWORKS = {
    "shared": (A2C(shared_layers=True), 6, 5, False),
    "separate, uneven": (PPO(hidden=(48, 33), activation="relu"), 21, 7, True),
    "linear": (PPO(hidden=()), 19, 40, False),
    "three layers": (PPO(hidden=(64, 8, 40)), 30, 2, False),
}


def passed(unit, tile, executor, layout, weights, given):
    """Return the parameters and values that one unit gives for rows named by (slots, N) steps, or for all of one step."""
    obs, at, normal = given
    envs, agents = obs.shape[1:3]
    rows = envs * agents * (1 if at is None else len(at))
    found = torch.zeros(rows, layout.size, device=obs.device), torch.zeros(rows, device=obs.device)
    shares = max(1, -(-rows // tile) // 3)  # so that a team has several tiles, and some have fewer
    pointers = {"obs": obs, "at": at, "center": normal and normal[0], "scale": normal and normal[1], "copies": None}
    pointers |= {"parameters": found[0], "value": found[1]} | tensor.weight_pointers(weights)
    ints = {"rows": rows, "num_envs": envs, "agents": agents, "shares": shares}
    executor.build(unit).launch("forward_rows", make_call(ints, pointers), shares, rows)
    return found


def assert_alike(name, executor, envs):
    """Passes of a block and of warps have the same bits, of rows of one step and of steps that are named."""
    config, obs_dim, size, normalised = NETWORKS[name]
    layout, generator = NetworkLayout.of(config, obs_dim, size), torch.Generator().manual_seed(1)

    def normal(*shape, scale=1.0):
        return (scale * torch.randn(*shape, generator=generator)).to(executor.name)

    weights = [normal(*shape, scale=0.4) for i, o in layout.layers for shape in ((o, i), (o,))]
    obs, scale = normal(4, envs, 3, obs_dim), (normal(obs_dim), normal(obs_dim).abs()) if normalised else None
    at = torch.randint(4, (2, envs), generator=generator).to(executor.name)
    units = [
        tensor.forward_unit(
            layout, SimpleNamespace(processors=n, max_team=executor.max_team, team_bytes=99 * 1024), 3 * envs
        )
        for n in (2**20, 1)
    ]
    assert ["warp_forward" in unit.text for _, unit in units] == [False, True]
    for named in (None, at):
        one, other = (passed(unit, tile, executor, layout, weights, (obs, named, scale)) for tile, unit in units)
        for a, b in zip(one, other, strict=True):
            assert a.isfinite().all()
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_warps_own_rows_have_the_bits_of_rows_that_a_block_shares(name):
    assert_alike(name, HostExecutor(flags=("-O1",)), 201)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_so_they_have_on_a_gpu(name):
    from cupydrive.executors.cuda import CudaExecutor

    assert_alike(name, CudaExecutor(), 5_003)


def test_layers_that_are_too_wide_for_a_warp_are_shared_by_a_block():
    for width, file in ((64, "warp_forward"), (65, "tensor_forward")):
        assert file in tensor.forward_unit(NetworkLayout.of(PPO(hidden=(width,)), 4, 2), HostExecutor(), 2**20)[1].text
