"""Processes with GPUs: one rank of NCCL exchanges with itself, in captured graphs too; several have
the weights of one.
"""

from dataclasses import replace

import pytest
from learner_weights import WEIGHTS, digest, recorded
from ranks import TOGETHER, start
from torch import distributed

import cupydrive as cd
from cupydrive.executors.ranks import DistributedRanks
from cupydrive.experiments import train as train_module
from cupydrive.training import run as run_module

pytestmark = pytest.mark.gpu
QUIET = {"device": "cuda", "progress": False}


@pytest.fixture
def one_rank(tmp_path, monkeypatch):
    """A group of one process that exchanges as several would."""
    distributed.init_process_group(
        "nccl", init_method=(tmp_path / "meeting").as_uri(), rank=0, world_size=1
    )
    for module in (run_module, train_module):
        monkeypatch.setattr(module, "current_ranks", DistributedRanks)
    yield
    distributed.destroy_process_group()


@pytest.mark.quick(3)
@pytest.mark.parametrize("cuda_graph", [True, False])
@pytest.mark.parametrize("name", WEIGHTS)
def test_exact_weights_are_those_of_a_cpu(name, cuda_graph, one_rank):
    env, settings, options = WEIGHTS[name]
    run = cd.train(
        env, replace(settings, precision="float32"), **options, **QUIET, cuda_graph=cuda_graph
    )
    assert not run.shard.ranks.alone and sum(run.shard.ranks.added.values()) > 0
    assert digest(run) == recorded()[name]


@pytest.mark.full
@pytest.mark.parametrize("name", TOGETHER)
def test_a_captured_run_is_the_eager_one(name, one_rank):
    env, settings, options = TOGETHER[name]
    captured, eager = (
        cd.train(env, settings, **options, **QUIET, cuda_graph=cuda_graph)
        for cuda_graph in (True, False)
    )
    assert digest(captured) == digest(eager)


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_processes_has_the_exact_weights_that_are_committed(size, tmp_path):
    """By NCCL in captured graphs, if each has a GPU; otherwise they share one, by gloo and without
    graphs.
    """
    assert [one["weights"] for one in start(size, tmp_path, "cuda")] == [recorded()] * size
