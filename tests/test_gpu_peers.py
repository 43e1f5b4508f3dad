"""Peer memory between processes that use one GPU, in turns: the protocol, graphs and training are those of several GPUs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from learner_weights import recorded
from mailboxes import TRAINED, said, start

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("size", [2, 3])
def test_processes_find_what_each_alone_computes(size, tmp_path):
    """Eagerly, and in a replayed graph of two streams; a tensor that is too large goes by the library."""
    for one in said(start(size, tmp_path, "cuda", "exchanges"), tmp_path):
        assert one["how"].startswith("sums between processes: peer memory; by ")
        assert one["done"] == 4 * (16 + 8 + 1) + 2 and one["wrong"] == one["replayed"] == []


def test_captured_runs_have_the_weights_of_one_process(tmp_path):
    """The exact ones those that are committed; by matrix units all processes have the same."""
    first, second = said(start(2, tmp_path, "cuda", "trains"), tmp_path)
    assert first == second and first["choice"].startswith("sums between processes: peer memory")
    assert {name: first["weights"][name] for name in TRAINED} == {name: recorded()[name] for name in TRAINED}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_run_ends_with_an_error_when_another_process_is_killed(rank, tmp_path):
    children = start(2, tmp_path, "cuda", "endless")
    try:
        assert children[0].stdout.readline() == "begun\n"
        children[rank].kill()
        assert children[1 - rank].wait() == 0, children[1 - rank].communicate()[1]
        words = (tmp_path / f"{1 - rank}.json").read_text()
    finally:
        for child in children:
            child.kill()
            child.communicate()
    assert "another process of this run has ended" in words
