"""The sampling kernels: frequencies, independence, and densities that equal torch's."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from cupydrive import envs
from cupydrive.playing.policy import Categorical, Gaussian, Sampler
from cupydrive.simulation.batch import CLOCK, Batch

pytestmark = pytest.mark.optimised

DRAWS = 4_000_000
BOX = spaces.Box(np.float32([-1, 0, -3]), np.float32([1, 4, 5]))


def sampler(space, n, kind=Categorical, count=1, **options):
    """Return a sampler for ``n`` environments of ``count`` agents with actions of ``space``."""
    batch = Batch(envs.get("cartpole"), n)
    batch.reset(77)
    group = replace(batch.groups[0], action_space=space, count=count)
    return Sampler(kind(group, **options), batch, group)


def draw(sample, parameters, step=0, mask=None, **options):
    """Return the (N, C, H) actions, log-probabilities (N, C) and whatever else of one launch, all environments at ``step``."""
    batch, group = sample.batch, sample.group
    clock = np.zeros(batch.num_envs, CLOCK)
    clock["episode"], clock["elapsed"] = 1, step
    batch.executor.put(batch.clock, clock)
    rows = (batch.num_envs, group.count)
    kind = torch.float32 if group.continuous else torch.int32
    action, log_prob = torch.empty((*rows, group.heads), dtype=kind), torch.empty(rows)
    sample(parameters.float().expand(rows[0] * rows[1], -1).contiguous(), action, log_prob, mask=mask, **options)
    return action, log_prob


def chi_square(counts, probabilities):
    """Return Pearson's statistic in standard deviations from its mean."""
    expected = counts.sum() * probabilities
    statistic = float((((counts - expected) ** 2) / expected)[probabilities > 0].sum())
    freedom = int((probabilities > 0).sum()) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


@pytest.mark.full
@pytest.mark.parametrize("sizes", [[2], [5], [3, 7], [21, 21], [2, 1, 4, 9, 3]])
def test_frequencies_are_the_probabilities(sizes):
    n = DRAWS // 10
    sample = sampler(spaces.MultiDiscrete(sizes), n)
    logits = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(len(sizes))) * 1.5
    counts = [torch.zeros(size, dtype=torch.int64) for size in sizes]
    for step in range(10):
        action, _ = draw(sample, logits, step)
        for head, size in enumerate(sizes):
            counts[head] += torch.bincount(action[:, 0, head].long(), minlength=size)
    for count, part in zip(counts, logits.split(sizes), strict=True):
        assert count.sum() == DRAWS
        if len(part) > 1:
            assert abs(chi_square(count.double(), torch.softmax(part.double(), 0))) < 5


@pytest.mark.full
def test_masked_and_impossible_choices_are_never_drawn():
    """10^7 draws here, 10^9 on a GPU; the impossible one's neighbours are all but certain or all but impossible."""
    n = 200_000
    sample = sampler(spaces.MultiDiscrete([4, 3]), n)
    logits = torch.tensor([0.0, -torch.inf, -40.0, 3.0, 100.0, 0.0, 0.0]).expand(n, 7).contiguous()
    mask = torch.tensor([1, 1, 1, 1, 0, 1, 1], dtype=torch.bool).expand(n, 1, 7).contiguous()
    for step in range(50):
        action, log_prob = draw(sample, logits, step, mask)
        assert not ((action[..., 0] == 1) | (action[..., 1] == 0)).any()
        assert torch.isfinite(log_prob).all()


def test_a_head_that_allows_nothing_is_not_masked():
    sample = sampler(spaces.Discrete(3), 1000)
    action, log_prob = draw(sample, torch.tensor([0.0, 0.0, 0.0]), 0, torch.zeros(1000, 1, 3, dtype=torch.bool))
    assert set(action.flatten().tolist()) == {0, 1, 2}
    torch.testing.assert_close(log_prob, torch.full_like(log_prob, -math.log(3)))


def test_numbers_that_are_none_give_a_valid_action():
    for logits in ([torch.nan] * 4, [torch.inf] * 4, [-torch.inf] * 4, [1.0, torch.nan, torch.inf, 0.0]):
        action, _ = draw(sampler(spaces.Discrete(4), 100), torch.tensor(logits))
        assert ((action >= 0) & (action < 4)).all()


def test_greedy_is_the_first_of_the_likeliest():
    logits = torch.tensor([0.0, 2.0, 2.0, 1.0, 5.0, 6.0])
    action, _ = draw(sampler(spaces.MultiDiscrete([4, 2]), 10), logits, greedy=True)
    assert (action == torch.tensor([1, 1])).all()


@pytest.mark.full
def test_draws_are_independent_over_heads_agents_environments_and_steps():
    n = 200_000
    sample = sampler(spaces.MultiDiscrete([2, 2, 2, 2, 2]), n, count=3)
    first, second = (draw(sample, torch.zeros(10), step)[0].double() * 2 - 1 for step in (0, 1))
    pairs = {
        "heads": first[..., 0] * first[..., 1],
        "far heads": first[..., 0] * first[..., 4],
        "agents": first[:, 0] * first[:, 1],
        "environments": first[:-1] * first[1:],
        "steps": first * second,
    }
    for name, product in pairs.items():
        assert abs(product.mean().item()) < 5 / math.sqrt(product.numel()), name
    assert not torch.equal(first, second)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sizes", [[2], [3, 7, 2], [4, 4], [2] * 138])
def test_log_probability_and_entropy_equal_torchs(sizes, masked):
    n, generator = 2000, torch.Generator().manual_seed(1)
    sample = sampler(spaces.MultiDiscrete(sizes), n)
    logits = torch.randn(n, sum(sizes), generator=generator) * 3
    mask = torch.rand(n, 1, sum(sizes), generator=generator) < 0.7 if masked else None
    entropy = torch.empty(n, 1)
    action, log_prob = draw(sample, logits, 3, mask, entropy=entropy)
    flat = None if mask is None else mask[:, 0]
    want_log_prob = want_entropy = 0
    all_allowed = flat if masked else torch.ones_like(logits, dtype=torch.bool)
    parts = zip(logits.double().split(sizes, 1), all_allowed.split(sizes, 1), strict=True)
    for head, (part, allowed) in enumerate(parts):
        allowed = allowed | ~allowed.any(1, keepdim=True)
        torchs = torch.distributions.Categorical(logits=part.masked_fill(~allowed, -1e9))
        want_log_prob = want_log_prob + torchs.log_prob(action[:, 0, head].long())
        want_entropy = want_entropy + torchs.entropy()
    scale = max(1.0, want_log_prob.abs().max().item())
    torch.testing.assert_close(log_prob[:, 0].double(), want_log_prob, rtol=1e-6, atol=1e-6 * scale)
    torch.testing.assert_close(entropy[:, 0].double(), want_entropy, rtol=1e-6, atol=1e-5)
    ours = sample.distribution.log_prob_and_entropy(logits, action[:, 0], flat)
    torch.testing.assert_close(ours[0].double(), want_log_prob, rtol=1e-6, atol=1e-6 * scale)
    torch.testing.assert_close(ours[1].double(), want_entropy, rtol=1e-6, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("squashed", [False, True])
def test_gaussian_draws_and_densities(squashed):
    n, generator = 1_000_000, torch.Generator().manual_seed(2)
    sample = sampler(BOX, n, Gaussian, squashed=squashed)
    mean, log_deviation = torch.randn(3, generator=generator), torch.randn(3, generator=generator) * 0.3
    parameters, raw = torch.cat([mean, log_deviation]), torch.empty(n, 1, 3)
    action, log_prob = draw(sample, parameters, 5, raw=raw)
    normal = ((raw[:, 0] - mean) * torch.exp(-log_deviation)).double()
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        spread = math.sqrt({1: 1, 2: 2, 3: 15, 4: 96}[power] / n)
        assert (normal.pow(power).mean(0) - moment).abs().max() < 5 * spread
    assert (torch.corrcoef(normal.T) - torch.eye(3)).abs().max() < 5 / math.sqrt(n)
    base = torch.distributions.Normal(mean.double(), log_deviation.double().exp())
    if squashed:
        low, high = (torch.from_numpy(x).double() for x in (BOX.low, BOX.high))
        into_box = torch.distributions.AffineTransform((low + high) / 2, (high - low) / 2)
        steps = [torch.distributions.TanhTransform(cache_size=1), into_box]
        wanted = torch.distributions.TransformedDistribution(base, steps)
        assert ((action[:, 0] >= low) & (action[:, 0] <= high)).all()
        inside = (raw[:, 0].abs() < 3).all(1)  # beyond, a float32 action does not determine the density
        want = wanted.log_prob(steps[1](steps[0](raw[:, 0].double())))
        torch.testing.assert_close(action[:, 0].double(), steps[1](torch.tanh(raw[:, 0].double())), rtol=0, atol=3e-6)
    else:
        inside, want = slice(None), base.log_prob(raw[:, 0].double())
        assert torch.equal(raw, action)
    torch.testing.assert_close(log_prob[:, 0].double()[inside], want.sum(1)[inside], rtol=1e-6, atol=1e-5)
    ours, entropy = sample.distribution.log_prob_and_entropy(parameters.expand(n, -1), raw[:, 0])
    torch.testing.assert_close(ours.double()[inside], want.sum(1)[inside], rtol=1e-6, atol=1e-5)
    # The entropy is the mean of -log density, for a squashed Gaussian in expectation.
    assert abs(entropy.mean().item() + ours.mean().item()) < 0.02
