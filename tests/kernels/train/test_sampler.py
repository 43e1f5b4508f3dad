"""The sampling kernels' densities equal torch's, and so do those of the distributions in Python.

Which action a random word becomes is in test_training_kernels.py, and the words are in
tests/kernels/drive/test_random.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from cupydrive import envs
from cupydrive.playing.policy import Categorical, Gaussian, Mixed, Sampler
from cupydrive.simulation.batch import CLOCK, Batch

pytestmark = pytest.mark.optimised

BOX = spaces.Box(np.float32([-1, 0, -3]), np.float32([1, 4, 5]))


def sampler(space, n, kind=Categorical, count=1, **options):
    """Return a sampler for ``n`` environments of ``count`` agents with actions of ``space``."""
    batch = Batch(envs.get("cartpole"), n)
    batch.reset(77)
    group = replace(batch.groups[0], action_space=space, count=count)
    return Sampler(kind(group, **options), batch, group)


def draw(sample, parameters, step=0, mask=None, **options):
    """Return the (N, C, H) actions, log-probabilities (N, C) and whatever else of one launch, all
    environments at ``step``.
    """
    batch, group = sample.batch, sample.group
    clock = np.zeros(batch.num_envs, CLOCK)
    clock["episode"], clock["elapsed"] = 1, step
    batch.executor.put(batch.clock, clock)
    rows = (batch.num_envs, group.count)
    kind = torch.float32 if group.continuous else torch.int32
    action, log_prob = torch.empty((*rows, group.heads), dtype=kind), torch.empty(rows)
    sample(
        parameters.float().expand(rows[0] * rows[1], -1).contiguous(),
        action,
        log_prob,
        mask=mask,
        **options,
    )
    return action, log_prob


def test_greedy_is_the_first_of_the_likeliest():
    logits = torch.tensor([0.0, 2.0, 2.0, 1.0, 5.0, 6.0])
    action, _ = draw(sampler(spaces.MultiDiscrete([4, 2]), 10), logits, greedy=True)
    assert (action == torch.tensor([1, 1])).all()


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
def test_gaussian_densities_equal_torchs(squashed):
    n, generator = 1_000_000, torch.Generator().manual_seed(2)
    sample = sampler(BOX, n, Gaussian, squashed=squashed)
    mean, log_deviation = (
        torch.randn(3, generator=generator),
        torch.randn(3, generator=generator) * 0.3,
    )
    parameters, raw = torch.cat([mean, log_deviation]), torch.empty(n, 1, 3)
    action, log_prob = draw(sample, parameters, 5, raw=raw)
    base = torch.distributions.Normal(mean.double(), log_deviation.double().exp())
    if squashed:
        low, high = (torch.from_numpy(x).double() for x in (BOX.low, BOX.high))
        into_box = torch.distributions.AffineTransform((low + high) / 2, (high - low) / 2)
        steps = [torch.distributions.TanhTransform(cache_size=1), into_box]
        wanted = torch.distributions.TransformedDistribution(base, steps)
        assert ((action[:, 0] >= low) & (action[:, 0] <= high)).all()
        # beyond, a float32 action does not determine the density
        inside = (raw[:, 0].abs() < 3).all(1)
        want = wanted.log_prob(steps[1](steps[0](raw[:, 0].double())))
        torch.testing.assert_close(
            action[:, 0].double(), steps[1](torch.tanh(raw[:, 0].double())), rtol=0, atol=3e-6
        )
    else:
        inside, want = slice(None), base.log_prob(raw[:, 0].double())
        assert torch.equal(raw, action)
    torch.testing.assert_close(
        log_prob[:, 0].double()[inside], want.sum(1)[inside], rtol=1e-6, atol=1e-5
    )
    ours, entropy = sample.distribution.log_prob_and_entropy(parameters.expand(n, -1), raw[:, 0])
    torch.testing.assert_close(ours.double()[inside], want.sum(1)[inside], rtol=1e-6, atol=1e-5)
    # The entropy is the mean of -log density, for a squashed Gaussian in expectation.
    assert abs(entropy.mean().item() + ours.mean().item()) < 0.02


MIXED = spaces.Tuple((BOX, spaces.MultiDiscrete([3, 7, 2, 4]), spaces.Discrete(5)))


@pytest.mark.parametrize("squashed", [False, True])
def test_joint_densities_are_sums_of_torchs(squashed):
    n, choices, generator = 5000, 21, torch.Generator().manual_seed(3)
    sample = sampler(MIXED, n, Mixed, squashed=squashed)
    parameters = torch.randn(n, choices + 6, generator=generator)
    mask = torch.rand(n, 1, choices, generator=generator) < 0.7
    raw = torch.empty(n, 1, 8)
    action, log_prob = draw(sample, parameters, 3, mask, raw=raw)
    assert torch.equal(action[..., :5], raw[..., :5])
    logits, mean, log_deviation = parameters.double().split([choices, 3, 3], dim=1)
    density = spread = 0
    parts = zip(*(x.split([3, 7, 2, 4, 5], 1) for x in (logits, mask[:, 0])), strict=True)
    for head, (part, allowed) in enumerate(parts):
        allowed = allowed | ~allowed.any(1, keepdim=True)
        chosen = action[:, 0, head].long()
        assert allowed.gather(1, chosen[:, None]).all()
        torchs = torch.distributions.Categorical(logits=part.masked_fill(~allowed, -1e9))
        density, spread = density + torchs.log_prob(chosen), spread + torchs.entropy()
    base, numbers = torch.distributions.Normal(mean, log_deviation.exp()), raw[:, 0, 5:].double()
    density, spread = density + base.log_prob(numbers).sum(1), spread + base.entropy().sum(1)
    if squashed:
        half = torch.from_numpy(BOX.high - BOX.low).double() / 2
        tanh = torch.distributions.TanhTransform().log_abs_det_jacobian(numbers, numbers.tanh())
        stretch = (tanh + half.log()).sum(1)
        density, spread = density - stretch, spread + stretch
        inside = torch.from_numpy(BOX.low) + half * (numbers.tanh() + 1)
        torch.testing.assert_close(action[:, 0, 5:].double(), inside, rtol=0, atol=3e-6)
    else:
        assert torch.equal(action, raw)
    ours = sample.distribution.log_prob_and_entropy(parameters, raw[:, 0], mask[:, 0])
    for mine, want in ((log_prob[:, 0], density), (ours[0], density), (ours[1], spread)):
        torch.testing.assert_close(mine.double(), want, rtol=2e-6, atol=2e-5)
