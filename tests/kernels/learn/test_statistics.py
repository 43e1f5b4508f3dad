"""Running means and discounted returns by kernels/learn/statistics.cu, against float64 and plain
loops.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from told import Keeping, Told

from cupydrive.algorithms.kernels.statistics import RunningMeanStd, Statistics
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.ranks import Ranks, Shard


# T, N, C, D
@pytest.mark.parametrize("sizes", [(1, 1, 1, 3), (3, 43, 2, 1), (20, 100, 2, 5), (9, 300, 1, 2)])
@pytest.mark.parametrize("pauses", [False, True])
def test_statistics_are_those_of_all_rows_so_far(sizes, pauses):
    """Rows of inactive agents do not count; the first ones count next to nothing: a mean of 0, a
    variance of 1.
    """
    rng, columns = np.random.default_rng(sizes), sizes[-1]
    rms, statistics, seen = (
        RunningMeanStd((columns,), "cpu"),
        Statistics(HostExecutor(threads=2), Shard(sizes[1])),
        [],
    )
    for k in range(3):
        values, active = (
            rng.normal(3 * k, 1 + k, sizes).astype(np.float32),
            rng.random(sizes[:-1]) < (0.0, 0.6, 0.3)[k],
        )
        given = (
            torch.from_numpy(np.where(active[..., None], values, np.nan))
            if pauses
            else torch.from_numpy(values)
        )
        statistics.update(rms, given, torch.from_numpy(active) if pauses else None)
        seen.append((values[active] if pauses else values).reshape(-1, columns))
    rows, prior = np.concatenate(seen).astype(np.float64), 1e-4
    total = len(rows) + prior
    mean = rows.sum(0) / total
    variance = (((rows - mean) ** 2).sum(0) + prior * (1 + mean**2)) / total
    for name, want in {"mean": mean, "variance": variance, "count": total}.items():
        np.testing.assert_allclose(rms.tensors()[name].numpy(), want, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("sizes", [(9, 300, 2, 3), (3, 7, 1, 2)])
def test_a_rank_sums_up_its_blocks_as_one_that_has_all(sizes):
    values = torch.from_numpy(np.random.default_rng(2).normal(3, 2, sizes).astype(np.float32))

    def taken_in(shard):
        rms = RunningMeanStd((sizes[-1],), "cpu")
        Statistics(HostExecutor(), shard).update(rms, values[:, shard.envs].contiguous())
        return rms.tensors()

    everything = Keeping()
    whole = taken_in(Shard(sizes[1], everything))
    for rank in range(3):
        shard = Shard(sizes[1], Told(rank, 3, everything.kept))
        assert all(torch.equal(tensor, whole[name]) for name, tensor in taken_in(shard).items())
        assert not shard.ranks.left


def test_a_block_of_very_many_environments_is_all_of_it():
    """Of more than there are 32 bits for, once their number is multiplied by that of blocks; of the
    other ranks' is nothing.
    """
    shard = Shard(2**26 + 5, Ranks(127, 128))
    rms, statistics = RunningMeanStd((1,), "cpu"), Statistics(HostExecutor(), shard)
    statistics.update(rms, torch.ones(1, shard.num_envs, 1, 1))
    assert statistics.sums_of(1, 1)[0].view(-1).tolist() == [0] * 127 + [shard.num_envs]


def test_scales_are_one_over_the_deviation():
    rms, (center, scale) = RunningMeanStd((3,), "cpu"), torch.full((2, 3), 5.0)
    rms.mean.copy_(torch.tensor([1.0, -2.0, 3.0]))
    rms.variance.copy_(torch.tensor([4.0, 0.25, 0.0]))
    statistics = Statistics(HostExecutor(), Shard(1))
    statistics.scale(rms, center, scale)
    expected = torch.tensor(
        [1 / (4 + 1e-8) ** 0.5, 1 / (0.25 + 1e-8) ** 0.5, 1e4], dtype=torch.float64
    ).float()
    assert torch.equal(scale, expected) and torch.equal(center, rms.mean.float())
    alone = torch.zeros(3)
    statistics.scale(rms, None, alone)  # of rewards, which have no center
    assert torch.equal(alone, expected)


def test_returns_are_discounted_until_their_episode_ends():
    over = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 1], [0, 0]], dtype=torch.bool)
    parts = dict(terminated=over.clone(), truncated=torch.zeros_like(over))
    parts["truncated"][3, 1], parts["terminated"][3, 1] = True, False
    reward = torch.arange(1.0, 21.0).view(5, 2, 2)
    running, gamma = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor(0.5)
    expected, now = [], running.clone()
    for t in range(5):
        now = now * 0.5 + reward[t]
        expected.append(now.clone())
        now[over[t]] = 0.0
    rollout = SimpleNamespace(reward={"g": reward}, active={}, **parts)
    found, counts = Statistics(HostExecutor(), Shard(2)).returns(rollout, "g", running, gamma)
    assert (
        counts is None
        and torch.equal(found.view(5, 2, 2), torch.stack(expected))
        and torch.equal(running, now)
    )


@pytest.mark.parametrize("held", [0, 1])
def test_returns_of_a_pause_are_those_of_the_step_before_it(held):
    """One agent, active in steps 1, 3 and 5; its episode ends with step 3. Rewards are 1, 2, 4, 8,
    16, 32.

    The first is of a step of the rollout before, if one is held, and the fifth of none.
    """
    reward = 2.0 ** torch.arange(6.0).view(6, 1, 1)
    flags = torch.zeros(6, 1, dtype=torch.bool)
    active = torch.tensor([0, 1, 0, 1, 0, 1], dtype=torch.bool).view(6, 1, 1)
    parts = dict(terminated=flags.clone(), truncated=flags.clone(), active={"g": active})
    parts["terminated"][3] = True
    rollout, running = (
        SimpleNamespace(reward={"g": reward}, **parts),
        torch.full((1, 1), 100.0 * held),
    )
    kind = torch.full((1, 1), held, dtype=torch.uint8)
    found, counts = Statistics(HostExecutor(), Shard(1)).returns(
        rollout, "g", running, torch.tensor(0.5), kind
    )
    first = 0.5 * (101 * held) + 2 + 4
    want = [*[101.0] * held, first, 0.5 * first + 8, 32]
    assert found.view(6)[counts.view(6) == 1].tolist() == want and running.item() == 32
