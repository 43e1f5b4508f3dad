"""Peer memory: sums have one order, joins every bit, nothing waits for ever, and all processes take the same way.

Kernels are those of a GPU, built for the CPU: threads and processes there share memory, too.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from learner_weights import recorded
from mailboxes import DTYPES, TRAINED, group_of_threads, said, same_bits, start, sum_of, to_join, values_of

from cupydrive.errors import DeviceError
from cupydrive.executors.peers import SWITCH, first_of, open_peers, said_of, watch, why_not

MAILS = 4096


def framed(tensor, rank):
    """Return a copy of a tensor, and the memory behind it, in which nobody has anything to write: 77 + the rank."""
    memory = torch.full((tensor.numel() + 600,), 77 + rank, dtype=tensor.dtype)
    memory[: tensor.numel()] = tensor.flatten()
    return memory[: tensor.numel()].view(tensor.shape), memory[tensor.numel() :]


def together(call, made):
    """Return what a call returns for each ``PeerMemory``, each in a thread of its own."""
    with ThreadPoolExecutor(len(made)) as pool:
        return list(pool.map(call, made))


@pytest.mark.parametrize("size", [2, 3, 9])
def test_sums_are_added_in_the_order_of_ranks(size):
    made, _ = group_of_threads(size, MAILS)
    cases = [(n, dtype) for n in (1, 31, 200, MAILS // size // 2) for dtype in DTYPES]

    def add(peers):
        found = [framed(torch.from_numpy(values_of(peers.rank, k, *case)), peers.rank) for k, case in enumerate(cases)]
        for tensor, _ in found:
            assert peers.adds(tensor)
            peers.add(tensor)
        return found

    for rank, found in enumerate(together(add, made)):
        for k, (tensor, behind) in enumerate(found):
            assert same_bits(tensor, sum_of(size, k, *cases[k])) and (behind == 77 + rank).all()


@pytest.mark.parametrize("size", [2, 3])
def test_joins_keep_every_bit(size):
    """Along any dimension, mixed with sums, by shares of any length: no rounding, no -0 that becomes 0, no other NaN."""
    made, _ = group_of_threads(size, MAILS)
    cases = [((size, 1), 0), ((4, 5), 0), ((3, 4, 7), 1), ((2, 3, 50), 2), ((601, 3), 0)]

    def join(peers):
        found = []
        for number, (shape, dim) in enumerate(cases * 2):
            tensor, shares, whole = to_join(peers.rank, size, number, shape, dim, ("float32", "int64")[number % 2])
            tensor, behind = framed(tensor, peers.rank)
            assert peers.joins(tensor, shares, dim)
            peers.join(tensor, shares, dim)
            ones = torch.ones(40)
            peers.add(ones)
            found.append((tensor, whole, ones, behind))
        return found

    for rank, found in enumerate(together(join, made)):
        for tensor, whole, ones, behind in found:
            assert same_bits(tensor, whole) and (ones == size).all() and (behind == 77 + rank).all()


def test_a_tensor_that_fills_the_slot_is_added_and_one_entry_more_is_not():
    made, _ = group_of_threads(2, MAILS)
    for dtype, words in ((torch.float32, 1), (torch.int64, 2)):
        most = MAILS // 2 // words
        assert made[0].adds(torch.zeros(most, dtype=dtype)) and not made[0].adds(torch.zeros(most + 1, dtype=dtype))
    halves = [range(0, 1), range(1, 2)]
    assert made[0].joins(torch.zeros(2, MAILS // 2), halves, 0)
    assert not made[0].joins(torch.zeros(2, MAILS // 2 + 1), halves, 0)


@pytest.mark.parametrize("tensor", [
    torch.zeros(0), torch.zeros(4, dtype=torch.bfloat16), torch.zeros(4, dtype=torch.bool), torch.zeros(4, 2)[:, 0],
])  # fmt: skip
def test_other_tensors_are_left_to_the_library(tensor):
    made, _ = group_of_threads(2, MAILS)
    assert not made[0].adds(tensor)


@pytest.mark.parametrize(
    ("tensor", "shares"),
    [
        (torch.zeros(4), [range(0, 4), range(4, 4)]),  # of a rank that sends nothing nobody would know how far it is
        (torch.zeros(4, dtype=torch.bool), [range(0, 2), range(2, 4)]),
        (torch.zeros(4, 2).T, [range(0, 1), range(1, 2)]),
    ],
)
def test_joins_that_are_no_whole_words_of_all_are_left_to_the_library(tensor, shares):
    made, _ = group_of_threads(2, MAILS)
    assert not made[0].joins(tensor, shares, 0)


def test_numbers_of_exchanges_come_round():
    """After the last one comes the first, in the other slot: 0 is what a new mailbox holds."""
    made, states = group_of_threads(2, MAILS)
    for state in states:
        state[0] = -3  # 2^32 - 3

    def add(peers):
        found = [torch.from_numpy(values_of(peers.rank, k, 7, "float32")) for k in range(8)]
        for tensor in found:
            peers.add(tensor)
        return found

    for found in together(add, made):
        assert all(same_bits(tensor, sum_of(2, k, 7, "float32")) for k, tensor in enumerate(found))
    assert all(state[0] == 2 + 5 for state in states)


def test_a_wait_ends_when_its_time_is_over_and_no_other_begins():
    made, states = group_of_threads(2, MAILS, seconds=0.05)
    assert made[0].lost() == ""
    made[0].add(torch.ones(500))
    assert "for 0.05 s its part of a sum has not come" in made[0].lost()
    made[0].seconds = 1e6
    made[0].add(torch.ones(500))
    made[0].join(torch.ones(2, 5), [range(0, 1), range(1, 2)])
    assert states[0][2] == 1


def test_a_wait_ends_with_the_process_that_it_is_for():
    made, _ = group_of_threads(2, MAILS, seconds=1e6)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        watch([os.pidfd_open(child.pid)], made[0].stop)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(made[0].add, torch.ones(5))
            child.kill()
            waiting.result()
    finally:
        child.kill()
        child.wait()
    assert made[0].lost() == "its process has ended"


# ---- whether it is taken ----

HERE = {"problem": "", "machine": "a b", "pid": 1, "handle": "", "device": "0"}


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([HERE], ""),
        ([HERE | {"problem": "no memory"}], "rank 1: no memory"),
        ([HERE, HERE | {"machine": "a c"}], "several machines, or in containers"),
        ([HERE | {"machine": ""}], "does not tell which processes"),
    ],
)
def test_all_know_by_what_each_says_why_it_is_not_taken(others, words):
    assert words in why_not([HERE, *others]) and bool(words) == bool(why_not([HERE, *others]))


def test_the_first_problem_of_a_rank_is_that_of_all():
    def fail():
        raise DeviceError("GPU 0 has no access\nat all")

    assert said_of(lambda: None) == "" and said_of(fail) == "GPU 0 has no access"
    assert first_of([b"", b"one", b"two"]) == "rank 1: one" and first_of([b"", b""]) == ""


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    told = []
    found = open_peers(0, 2, lambda content: [told.append(content) or content] * 2, 1.0)
    assert found == (None, "rank 0: CUPYDRIVE_PEER_MEMORY is 0") and len(told) == 1


def test_a_switch_that_says_neither_yes_nor_no_is_refused(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    with pytest.raises(DeviceError, match="CUPYDRIVE_PEER_MEMORY = 'off'; it must be 0, 1, or not set"):
        open_peers(0, 2, None, 1.0)


# ---- several processes ----


def test_processes_find_what_each_alone_computes(tmp_path):
    for one in said(start(2, tmp_path, "cpu", "exchanges"), tmp_path):
        assert one["done"] == 4 * (16 + 8 + 1) + 2 and one["wrong"] == []


def test_runs_have_the_weights_that_are_committed(tmp_path):
    """Every sum, join and row of wishes goes by mailboxes."""
    first, second = said(start(2, tmp_path, "cpu", "trains"), tmp_path)
    assert first == second and first["choice"] == "sums between processes: peer memory of a test"
    assert {name: first["weights"][name] for name in TRAINED} == {name: recorded()[name] for name in TRAINED}


def test_a_run_ends_with_an_error_when_another_process_is_killed(tmp_path):
    first, second = start(2, tmp_path, "cpu", "endless")
    try:
        assert first.stdout.readline() == "begun\n"
        second.kill()
        (one,) = said([first], tmp_path)
    finally:
        first.kill(), second.kill()
        first.communicate(), second.communicate()
    assert "another process of this run has ended" in one["error"] and "resume=True" in one["error"]


def test_one_process_imports_nothing_of_it():
    program = (
        "import sys, cupydrive as cd; cd.train('cartpole', steps=64, num_envs=2, device='cpu', progress=False); "
        "sys.exit('cupydrive.executors.peers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent.parent).returncode == 0
