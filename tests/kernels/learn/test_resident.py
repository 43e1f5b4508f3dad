"""All minibatches of an iteration by one block: what the launches of gradients and steps, one after
the other, give.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from learner_kernels import problem

import cupydrive as cd
from cupydrive.algorithms import A2C, PPO
from cupydrive.algorithms.kernels.arithmetic import TENSOR
from cupydrive.algorithms.kernels.gradients import Task
from cupydrive.algorithms.kernels.layout import NetworkLayout
from cupydrive.algorithms.kernels.resident import GROUP_RESIDENT, ResidentGradients, resident_way
from cupydrive.algorithms.kernels.tensor import (
    GROUPS,
    TENSOR_THREADS,
    WARP_GROUPS,
    TensorGradients,
    Way,
)
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.ranks import Shard

BY_LAUNCHES = replace(TENSOR, gradients=TensorGradients)
BY_ONE_BLOCK = replace(
    TENSOR, gradients=partial(ResidentGradients, way=Way("mma/resident", 64, TENSOR_THREADS))
)
BY_GROUPS = replace(TENSOR, gradients=partial(TensorGradients, way=GROUPS))
BY_ONE_GROUP = replace(TENSOR, gradients=partial(ResidentGradients, way=GROUP_RESIDENT))
EQUAL = {"num_steps": 12, "num_minibatches": 2, "update_epochs": 3}  # chunks of equally many rows
SMALL = {"num_steps": 11, "num_minibatches": 2, "update_epochs": 3}
TWO_GROUPS = {
    "envs": 9,
    "actions": "several",
    "agents": (2, 1),
    "masks": True,
    "leaving": True,
    "obs_dim": 13,
}
CASES = {
    "one tower": (PPO(**SMALL, hidden=(40, 34), shared_layers=True), TWO_GROUPS),
    "two towers": (PPO(**SMALL, hidden=(24, 20)), TWO_GROUPS | {"normalised": True}),
    "A2C, ReLU": (
        A2C(num_steps=8, activation="relu", hidden=(16,), shared_layers=True),
        {"envs": 3},
    ),
    "Gaussian": (PPO(**SMALL, hidden=(32,), clip_vloss=True), {"envs": 4, "actions": "box"}),
    "mixed": (PPO(**SMALL, hidden=(16,)), TWO_GROUPS | {"actions": "mixed"}),
    "tiles and a row": (PPO(num_steps=43, num_minibatches=1, hidden=(16,)), {"envs": 3}),
    "too far": (PPO(**SMALL, hidden=(16,), target_kl=1e-4), {"envs": 5}),
    "equal chunks": (PPO(**EQUAL, hidden=(16,)), {"envs": 13}),
}
ONE_TOWER = {"shared_layers": True}
GROUPED = {  # networks of one tower, as wide as a warp group wants them
    "one tower": CASES["one tower"],
    "A2C, ReLU": (
        A2C(num_steps=8, activation="relu", hidden=(33, 64, 50), **ONE_TOWER),
        {"envs": 3},
    ),
    "Gaussian": (
        PPO(**SMALL, hidden=(64,), clip_vloss=True, **ONE_TOWER),
        {"envs": 4, "actions": "box"},
    ),
    "tiles and a row": (
        PPO(num_steps=43, num_minibatches=1, hidden=(64, 64), **ONE_TOWER),
        {"envs": 3, "obs_dim": 4},
    ),
    "too far": (PPO(**SMALL, hidden=(40,), target_kl=1e-4, **ONE_TOWER), {"envs": 5}),
    "equal chunks": (PPO(**EQUAL, hidden=(40,), **ONE_TOWER), {"envs": 13}),
    "wide": (
        PPO(**SMALL, hidden=(64, 64), **ONE_TOWER),
        {"envs": 5, "obs_dim": 63, "normalised": True},
    ),
}
WAYS = [(BY_ONE_BLOCK, CASES, name) for name in CASES] + [
    (BY_ONE_GROUP, GROUPED, name) for name in GROUPED
]
each_way = pytest.mark.parametrize(
    ("way", "cases", "name"),
    WAYS,
    ids=[f"{name}, {'groups' if way is BY_ONE_GROUP else 'blocks'}" for way, _, name in WAYS],
)
CPU = {
    "one thread": lambda: HostExecutor(threads=1, flags=("-O1",)),
    "team": lambda: HostExecutor(team_threads=32),
}


def learnt(case, iterations=2):
    """Return by name what some iterations of one rollout leave of a learner."""
    for _ in range(iterations):
        case.steps.pack()
        case.gradients.arrange()
        case.gradients.learn(case.steps)
    return kept(case)


def kept(case):
    steps = case.steps
    state = {"weights": steps.weights, "first": steps.first, "second": steps.second}
    found = {
        f"{name}.{k}": tensor for name, tensors in state.items() for k, tensor in enumerate(tensors)
    }
    found |= {"steps": steps.steps, "corrections": steps.corrections}
    found |= {name: case.shared[name] for name in ("metric_sums", "skip", "bad", "iteration")}
    return {name: tensor.detach().cpu().clone() for name, tensor in found.items()}


def assert_alike(one, other):
    """The squares of a gradient are added in another order, which moves its norm by some roundings,
    and roots are near ones.
    """
    for name, tensor in one.items():
        assert torch.allclose(tensor.double(), other[name].double(), rtol=1e-4, atol=2e-6), name


def launches(way):
    """Return the launches whose gradients those of a block are."""
    return BY_GROUPS if way is BY_ONE_GROUP else BY_LAUNCHES


def both(about, way, executors, change=lambda case: None):
    """Return what launches leave, and what one block does; ``about``: of a case."""
    config, about = about
    found = []
    for arithmetic, executor in zip((launches(way), way), executors, strict=True):
        case = problem(config, executor=executor, arithmetic=arithmetic, **about)
        change(case)
        found.append(learnt(case))
    return found


# A team of threads does in another order what one thread does; `make test-all` has both.
@pytest.mark.full
@pytest.mark.parametrize("how", [pytest.param("one thread", marks=pytest.mark.slow), "team"])
@each_way
def test_one_block_learns_what_launches_do(way, cases, name, how):
    one, other = both(cases[name], way, (CPU["one thread"](), CPU[how]()))
    assert_alike(one, other)
    if name == "too far":  # each iteration ends with its first epoch
        assert (
            one["steps"][0] == 2 * SMALL["num_minibatches"]
            and one["skip"] == 0
            and one["iteration"] == 5
        )


@pytest.mark.quick(2)
@pytest.mark.gpu
@each_way
def test_one_block_of_a_gpu_learns_what_launches_do(way, cases, name):
    from cupydrive.executors.cuda import CudaExecutor

    executor = CudaExecutor()
    if way is BY_ONE_GROUP and int(executor.device.compute_capability) != WARP_GROUPS:
        pytest.skip("this GPU has no wgmma")
    assert_alike(*both(cases[name], way, (executor, executor)))


one_way = pytest.mark.parametrize("way", [BY_ONE_BLOCK, BY_ONE_GROUP], ids=["blocks", "groups"])


@pytest.mark.full
@one_way
def test_steps_of_a_checkpoint_go_on_with_their_corrections(way):
    def read(case):
        case.steps.steps.fill_(1000.0)

    one, other = both(CASES["one tower"], way, (CPU["one thread"](), CPU["one thread"]()), read)
    assert_alike(one, other)
    assert one["steps"][0] == 1000 + 2 * SMALL["num_minibatches"] * SMALL["update_epochs"]


@each_way
def test_a_number_that_is_not_finite_stops_all_steps_behind_it(way, cases, name):
    def spoil(case):
        case.gradients.arrange()
        row = int(case.gradients.memory["order"][0, -1])  # the last one of the first epoch
        case.columns["returns"][0].view(-1)[row] = float("nan")

    one, other = both(cases[name], way, (CPU["one thread"](), CPU["one thread"]()), spoil)
    assert_alike(one, other)
    assert other["bad"] == 1 and other["steps"][0] <= 2 * SMALL["num_minibatches"]


@pytest.mark.full
@pytest.mark.parametrize("alone", ["loss", "norm"])
def test_either_the_loss_or_the_norm_may_overflow_alone(alone):
    """No step is taken, nor one with sound numbers afterwards."""
    config = PPO(num_steps=4, hidden=(), num_minibatches=1, update_epochs=1)
    case = problem(config, envs=4, executor=CPU["one thread"](), arithmetic=BY_ONE_BLOCK)
    for p in case.steps.weights:
        p.zero_()
    spoilt = case.columns["returns" if alone == "loss" else "obs"][0].view(-1)
    spoilt[3] = 3e19 if alone == "loss" else 1e25  # its square is infinite; times weights of 0
    assert learnt(case, 1)["bad"] == 1
    spoilt[3] = 0.5
    after = learnt(case, 1)
    assert after["steps"].sum() == 0 and not any(
        after[f"weights.{k}"].any() for k in range(len(case.steps.weights))
    )


TOWER = (PPO(shared_layers=True), 4)
# settings and entries of an observation; what the GPU has otherwise than an H200 of which each run
# has a processor
CHOSEN = {
    "one tower": (TOWER, {}, GROUP_RESIDENT),
    "two towers": ((PPO(), 4), {}, Way("mma/resident", 64, TENSOR_THREADS)),
    "narrow": (
        (PPO(hidden=(32, 32), shared_layers=True), 4),
        {},
        Way("mma/resident", 128, TENSOR_THREADS),
    ),
    "no wgmma": (TOWER, {"capability": "80"}, Way("mma/resident", 64, TENSOR_THREADS)),
    "no room for two warp groups": (
        TOWER,
        {"team_bytes": 2 * 104_448},
        Way("mma/resident", 32, TENSOR_THREADS),
    ),
    "a processor more": (TOWER, {"processors": 2}, None),
    "a CPU": (TOWER, {"name": "cpu"}, None),
    "more rows": (TOWER, {"envs": 33}, None),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_who_learns_by_one_block_and_how(name):
    """By warp groups where two have room and wgmma is there, else by the other blocks, else by
    launches: never by chance.
    """
    (config, entries), other, way = CHOSEN[name]
    about = {
        "name": "cuda",
        "processors": 1,
        "team_bytes": 227 * 1024,
        "capability": "90",
        "envs": 16,
    } | other
    executor = SimpleNamespace(
        **about, device=SimpleNamespace(compute_capability=about["capability"])
    )
    layout = NetworkLayout.of(config, entries, 2)
    assert resident_way(Task(executor, layout, None, config, Shard(about["envs"]), 32, [1])) == way


@pytest.mark.full
@pytest.mark.gpu
def test_members_that_have_a_processor_each_learn_by_one_block_as_alone():
    """As many as a GPU has processors; a run alone learns by launches, to other bits and the same
    numbers.
    """
    from cupydrive.executors.cuda import CudaExecutor

    given = {
        "algorithm": PPO(shared_layers=True),
        "num_envs": 16,
        "steps": 16 * 32 * 2,
        "device": "cuda",
        "progress": False,
    }
    together = cd.train("cartpole", seeds=CudaExecutor().processors, **given)
    kinds = {type(run.learners["cart"].gradients) for run in together.runs}
    alone = cd.train("cartpole", seed=3, **given)
    assert kinds == {ResidentGradients} and isinstance(
        alone.learners["cart"].gradients, TensorGradients
    )
    pairs = zip(
        together.runs[3].policies["cart"].parameters(),
        alone.policies["cart"].parameters(),
        strict=True,
    )
    assert all(torch.allclose(one, other, atol=1e-3) for one, other in pairs)
