"""Forward passes: near torch's, the same bits for many rows as for few, and actions as by a launch
of their own.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from gymnasium import spaces
from learner_kernels import ACTIONS, problem
from walled import walled

from cupydrive import envs
from cupydrive.algorithms import A2C, PPO
from cupydrive.algorithms.kernels import tensor
from cupydrive.algorithms.kernels.arithmetic import EXACT, TENSOR, WIDE
from cupydrive.algorithms.kernels.layout import NetworkLayout
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call
from cupydrive.playing.policy import Sampler, make_distribution
from cupydrive.simulation.batch import Batch
from cupydrive.spec import Group

# Settings, entries of an observation, parameters of the distribution, whether observations are
# normalised.
NETWORKS = {
    "shared": (A2C(shared_layers=True), 6, 5, False),
    "separate, uneven": (PPO(hidden=(48, 33), activation="relu"), 21, 7, True),
    "linear": (PPO(hidden=()), 19, 40, False),
    "three layers": (PPO(hidden=(64, 8, 40)), 30, 2, False),
}


def passed(unit, tile, executor, layout, weights, given):
    """Return the parameters and values that one unit gives for rows named by (slots, N) steps, or
    for all of one step.
    """
    obs, at, normal = given
    n, agents = obs.shape[1:3]
    rows = n * agents * (1 if at is None else len(at))
    found = [walled(torch.zeros(rows, *more, device=obs.device)) for more in ((layout.size,), ())]
    # So that a team has several tiles, and some have fewer; or one team has all.
    teams = max(1, -(-rows // tile) // 3) if at is None else 1
    pointers = {
        "obs": obs,
        "at": at,
        "center": normal and normal[0],
        "scale": normal and normal[1],
        "packed": None,
    }
    pointers |= {"parameters": found[0], "value": found[1]} | tensor.weight_pointers(weights)
    ints = {"rows": rows, "num_envs": n, "agents": agents, "teams": teams}
    call = make_call(ints, pointers, structs={"sample": distribution_of(layout.size).call()})
    executor.build(unit).launch("forward_rows", call, teams, rows)
    return found


def distribution_of(size):
    return make_distribution(Group("g", 1, 4, spaces.Discrete(size)))


def by_torch(layout, weights, obs, normal):
    """Return the parameters and values of rows (R, OBS) in float64."""
    weights = [w.double() for w in weights]
    obs, outputs = obs.double(), []
    if normal:
        obs = ((obs - normal[0]) * normal[1]).clamp(-10, 10)
    activation = torch.relu if layout.relu else torch.tanh
    for tower in layout.towers:
        x = obs
        for layer in range(len(tower) - 1):
            x = torch.nn.functional.linear(
                activation(x) if layer else x, weights.pop(0), weights.pop(0)
            )
        outputs.append(x)
    together = torch.cat(outputs, 1)
    return together[:, : layout.size], together[:, layout.size]


def random_case(name, device, n):
    """Return the layout and weights of a network, observations (4, N, 3, OBS), named steps (2, N),
    and what normalises them.
    """
    config, obs_dim, size, normalised = NETWORKS[name]
    layout, generator = NetworkLayout.of(config, obs_dim, size), torch.Generator().manual_seed(1)

    def normal(*shape, scale=1.0):
        return walled((scale * torch.randn(*shape, generator=generator)).to(device))

    weights = [normal(*shape, scale=0.4) for i, o in layout.layers for shape in ((o, i), (o,))]
    obs, scale = (
        normal(4, n, 3, obs_dim),
        (normal(obs_dim), walled(normal(obs_dim).abs())) if normalised else None,
    )
    return (
        layout,
        weights,
        obs,
        walled(torch.randint(4, (2, n), generator=generator).to(device)),
        scale,
    )


def unit_for(layout, processors, executor, rows):
    """Return the rows of a tile and the unit that ``executor`` would take if it had so many
    processors.
    """
    machine = SimpleNamespace(
        processors=processors, max_team=executor.max_team, team_bytes=99 * 1024
    )
    return tensor.tensor_forward_unit(layout, distribution_of(layout.size), machine, rows)


def assert_alike(name, executor, n):
    """Passes of a block and of warps have the same bits, near torch's, of rows of one step and of
    steps that are named.
    """
    layout, weights, obs, at, scale = random_case(name, executor.name, n)
    units = [unit_for(layout, processors, executor, 3 * n) for processors in (2**20, 1)]
    assert ["warp_forward" in unit.text for _, unit in units] == [False, True]
    for named in (None, at):
        one, other = (
            passed(unit, tile, executor, layout, weights, (obs, named, scale))
            for tile, unit in units
        )
        seen = obs[0] if named is None else obs[at, torch.arange(n, device=at.device)]
        wanted = by_torch(layout, weights, seen.reshape(-1, layout.towers[0][0]), scale)
        for a, b, exact in zip(one, other, wanted, strict=True):
            assert torch.equal(a, b)
            assert (a - exact).norm() <= 0.02 * exact.norm()


@pytest.mark.full
@pytest.mark.parametrize("name", NETWORKS)
def test_a_warps_own_rows_have_the_bits_of_rows_that_a_block_shares(name):
    assert_alike(name, HostExecutor(flags=("-O1",)), 200)


@pytest.mark.full
@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS)
def test_so_they_have_on_a_gpu(name):
    from cupydrive.executors.cuda import CudaExecutor

    assert_alike(name, CudaExecutor(), 5_003)


@pytest.mark.full
def test_a_team_of_threads_gives_the_bits_of_one_thread():
    """A sync that is missing shows each time: threads of a team take turns in an order that is
    shuffled at every sync.
    """
    layout, weights, obs, at, scale = random_case("separate, uneven", "cpu", 9)
    found = []
    for executor in (HostExecutor(flags=("-O1",)), HostExecutor(team_threads=4)):
        tile, unit = unit_for(layout, 2**20, executor, 27)
        assert unit.layout.team == executor.max_team and "tensor_forward" in unit.text
        found.append(passed(unit, tile, executor, layout, weights, (obs, at, scale)))
    for one, of_team in zip(*found, strict=True):
        assert torch.equal(one, of_team)


def test_layers_that_are_too_wide_for_a_warp_are_shared_by_a_block():
    for width, file in ((64, "warp_forward"), (65, "tensor_forward")):
        layout = NetworkLayout.of(PPO(hidden=(width,)), 4, 2)
        assert (
            file
            in tensor.tensor_forward_unit(layout, distribution_of(2), HostExecutor(), 2**20)[1].text
        )


def assert_drawn(way, actions, n, executor):
    """Actions, their log-probabilities and what they were drawn as are those of a launch after the
    pass, from what it left.
    """
    squashed = actions in ("box", "mixed")
    config = A2C(num_steps=1, distribution="squashed" if squashed else "auto")
    case = problem(
        config,
        actions,
        n,
        agents=(3,),
        masks=actions in ("several", "mixed"),
        executor=executor,
        arithmetic=way,
    )
    case.steps.pack()
    obs, mask = (walled(case.columns[name][0]) for name in ("obs", "mask"))
    batch = Batch(envs.get("cartpole"), n, executor=executor)
    batch.reset(5)
    sampler = Sampler(
        case.distribution, batch, replace(batch.groups[0], action_space=ACTIONS[actions], count=3)
    )
    rows, shape, heads = 3 * n, (n, 3), case.distribution.heads
    tile, unit = way.forward_unit(case.layout, case.distribution, executor, rows)
    program = executor.build(unit)

    def empty(*more, dtype=torch.float32):
        return walled(torch.zeros((*shape, *more), dtype=dtype, device=executor.name))

    def drawn():
        return empty(heads, dtype=case.distribution.action_dtype), empty(), empty(heads)

    def run(sample, parameters):
        pointers = {
            "obs": obs,
            "at": None,
            "center": None,
            "scale": None,
            "packed": case.steps.packed,
        }
        pointers |= {"parameters": parameters, "value": empty()} | way.pointers(case.steps)
        ints = {"rows": rows, "num_envs": n, "agents": 3, "teams": -(-rows // tile)}
        call = make_call(ints, pointers, structs={"sample": sample})
        program.launch("forward_rows", call, ints["teams"], rows)
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
    for title, way, sizes in (
        ("exact", EXACT, (30,)),
        ("tensor", TENSOR, (30, 400)),
        ("wide", WIDE, (30,)),
    )
    for actions in ("several", "box", "mixed")
    for n in sizes
]


@pytest.mark.full
@pytest.mark.parametrize(("way", "actions", "n"), DRAWS)
def test_actions_are_those_of_a_launch_of_their_own(way, actions, n):
    assert_drawn(way, actions, n, HostExecutor(flags=("-O1",)))


@pytest.mark.quick(2)
@pytest.mark.gpu
@pytest.mark.parametrize(("way", "actions", "n"), DRAWS)
def test_so_they_are_on_a_gpu(way, actions, n):
    from cupydrive.executors.cuda import CudaExecutor

    assert_drawn(way, actions, 100 * n, CudaExecutor())
