"""Functions of rows: means over those that count, and whether an algorithm can learn from so many.

Letters: T steps, N environments, C agents of a group; B rows.
"""

import math

import torch

from cupydrive.errors import ParameterError
from cupydrive.playing.policy import make_distribution


def weighted_mean(values, weight, counted=None):
    """Return the mean of ``values`` (B,) over rows of ``weight`` 1, or over all rows if it is None.

    ``counted`` are the weights whose sum divides, by default ``weight``.
    """
    if weight is None:
        return values.mean()
    return (values * weight).sum() / (weight if counted is None else counted).sum().clamp(min=1.0)


def mean_of_ranks(values, weight, ranks):
    """Return the mean of ``values`` (B,) over rows of ``weight`` 1, or None: all, of all ``Ranks``."""
    if ranks.alone:
        return weighted_mean(values, weight)
    weight = torch.ones_like(values) if weight is None else weight
    sums = torch.stack([(values * weight).sum(), weight.sum()])
    ranks.add(sums)
    return sums[0] / sums[1].clamp(min=1.0)


def share_of_rows(values, weight, ranks):
    """Return the share of this rank in the rows of ``weight`` 1 (None: in all), which its means count for in those of all."""
    own = values.new_full((), float(len(values))) if weight is None else weight.sum()
    total = own.clone()
    ranks.add(total)
    return own / total.clamp(min=1.0)


def normalized_advantage(advantage, weight, ranks):
    """Return ``advantage`` (B,) with mean 0 and deviation 1 over rows of ``weight`` 1 of all ``Ranks``."""
    mean = mean_of_ranks(advantage, weight, ranks)
    variance = mean_of_ranks((advantage - mean) ** 2, weight, ranks)
    return (advantage - mean) / (variance.sqrt() + 1e-8)


def check_rows(config, groups, num_envs, network):
    """Raise ``ParameterError`` unless rows have the distribution that is asked for, and what is shuffled divides.

    Minibatches are drawn from all rows or, if the policy has a memory, from the sequences of whole agents.

    Args:
        config: Settings of the algorithm; those without ``num_minibatches`` have one.
        groups: ``Group``s that learn together.
        num_envs: N, of all processes; None: not known yet, and only the distribution is looked at.
        network: The policy's, or what makes it; that it has a memory is known if it says its ``memory_size``.
    """
    for g in groups:
        make_distribution(g, config.distribution)
    size = getattr(network, "memory_size", 0)
    whole = isinstance(size, int) and size > 0
    pieces = (num_envs or 0) * sum(g.count for g in groups) * (1 if whole else config.num_steps)
    minibatches = getattr(config, "num_minibatches", 1)
    if pieces % minibatches:
        fitting = [n for n in range(1, min(pieces, 4 * minibatches) + 1) if pieces % n == 0]
        near = sorted(sorted(fitting, key=lambda n: abs(math.log(n / minibatches)))[:4])
        what = "sequences (environments x agents)" if whole else "rows (steps x environments x agents)"
        raise ParameterError(
            f"{type(config).__name__}: {pieces:,} {what} do not divide into {minibatches} minibatches; num_minibatches = "
            f"{', '.join(map(str, near))} would"
        )
