"""Forward passes: those of many rows have the bits of those of few, and actions are those of a launch of their own."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces

sys.path.insert(0, str(Path(__file__).parent))
from learner_kernels import ACTIONS, problem

from cupydrive import envs
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call
from cupydrive.playing.policy import Sampler, make_distribution
from cupydrive.simulation.batch import Batch
from cupydrive.spec import Group
from cupydrive.training.algorithms import A2C, PPO
from cupydrive.training.algorithms.kernels import tensor
from cupydrive.training.algorithms.kernels.arithmetic import EXACT, TENSOR, WIDE
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
    n, agents = obs.shape[1:3]
    rows = n * agents * (1 if at is None else len(at))
    found = torch.zeros(rows, layout.size, device=obs.device), torch.zeros(rows, device=obs.device)
    shares = max(1, -(-rows // tile) // 3)  # so that a team has several tiles, and some have fewer
    pointers = {"obs": obs, "at": at, "center": normal and normal[0], "scale": normal and normal[1], "copies": None}
    pointers |= {"parameters": found[0], "value": found[1]} | tensor.weight_pointers(weights)
    ints = {"rows": rows, "num_envs": n, "agents": agents, "shares": shares}
    call = make_call(ints, pointers, structs={"sample": distribution_of(layout.size).call()})
    executor.build(unit).launch("forward_rows", call, shares, rows)
    return found


def distribution_of(size):
    return make_distribution(Group("g", 1, 4, spaces.Discrete(size)))


def assert_alike(name, executor, n):
    """Passes of a block and of warps have the same bits, of rows of one step and of steps that are named."""
    config, obs_dim, size, normalised = NETWORKS[name]
    layout, generator = NetworkLayout.of(config, obs_dim, size), torch.Generator().manual_seed(1)

    def normal(*shape, scale=1.0):
        return (scale * torch.randn(*shape, generator=generator)).to(executor.name)

    weights = [normal(*shape, scale=0.4) for i, o in layout.layers for shape in ((o, i), (o,))]
    obs, scale = normal(4, n, 3, obs_dim), (normal(obs_dim), normal(obs_dim).abs()) if normalised else None
    at = torch.randint(4, (2, n), generator=generator).to(executor.name)
    units = []
    for processors in (2**20, 1):
        machine = SimpleNamespace(processors=processors, max_team=executor.max_team, team_bytes=99 * 1024)
        units.append(tensor.forward_unit(layout, distribution_of(size), machine, 3 * n))
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
        layout = NetworkLayout.of(PPO(hidden=(width,)), 4, 2)
        assert file in tensor.forward_unit(layout, distribution_of(2), HostExecutor(), 2**20)[1].text


def assert_drawn(way, actions, n, executor):
    """Actions, their log-probabilities and what they were drawn as are those of a launch after the pass, from what it left."""
    config = A2C(num_steps=1, distribution="squashed" if actions == "box" else "auto")
    case = problem(config, actions, n, agents=(3,), masks=actions == "several", executor=executor, arithmetic=way)
    case.steps.lay_out()
    batch = Batch(envs.get("cartpole"), n, executor=executor)
    batch.reset(5)
    sampler = Sampler(case.distribution, batch, replace(batch.groups[0], action_space=ACTIONS[actions], count=3))
    rows, shape, heads = 3 * n, (n, 3), case.distribution.heads
    mask = case.columns["mask"][0]
    tile, unit = way.forward_unit(case.layout, case.distribution, executor, rows)
    program = executor.build(unit)

    def empty(*more, dtype=torch.float32):
        return torch.zeros((*shape, *more), dtype=dtype, device=executor.name)

    def drawn():
        return empty(heads, dtype=case.distribution.action_dtype), empty(), empty(heads)

    def run(sample, parameters):
        pointers = {
            "obs": case.columns["obs"][0],
            "at": None,
            "center": None,
            "scale": None,
            "copies": case.steps.copies,
        }
        pointers |= {"parameters": parameters, "value": empty()} | way.pointers(case.steps)
        ints = {"rows": rows, "num_envs": n, "agents": 3, "shares": -(-rows // tile)}
        call = make_call(ints, pointers, structs={"sample": sample})
        program.launch("forward_rows", call, ints["shares"], rows)
        return pointers["value"]

    together, apart, parameters = drawn(), drawn(), empty(case.layout.size)
    value = run(sampler.describe(*together, mask=mask), None)
    assert torch.equal(value, run(case.distribution.call(), parameters))
    sampler(parameters.view(rows, -1), *apart, mask=mask)
    assert len(apart[0].unique()) > 1
    for a, b in zip(together, apart, strict=True):
        assert torch.equal(a, b)


DRAWS = [
    pytest.param(way, actions, n, id=f"{title}, {actions}, {n}")
    for title, way, sizes in (("exact", EXACT, (30,)), ("tensor", TENSOR, (30, 400)), ("wide", WIDE, (30,)))
    for actions in ("several", "box")
    for n in sizes
]


@pytest.mark.parametrize(("way", "actions", "n"), DRAWS)
def test_actions_are_those_of_a_launch_of_their_own(way, actions, n):
    assert_drawn(way, actions, n, HostExecutor(flags=("-O1",)))


@pytest.mark.gpu
@pytest.mark.parametrize(("way", "actions", "n"), DRAWS)
def test_so_they_are_on_a_gpu(way, actions, n):
    from cupydrive.executors.cuda import CudaExecutor

    assert_drawn(way, actions, 100 * n, CudaExecutor())
