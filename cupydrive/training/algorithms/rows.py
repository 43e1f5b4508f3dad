"""Pure functions of rows: means over those that count, and how many go into a minibatch.

Letters: T steps, N environments, C agents of a group; B rows.
"""

import math

import torch

from cupydrive.errors import ParameterError


def in_game(rollout, g):
    """Return (T * N * C,): 1 where an agent was in the game before the step, 0 where it was not."""
    if g.name in rollout.active:
        return rollout.active[g.name].view(-1).float()
    return torch.ones(rollout.reward[g.name].numel(), device=rollout.device)


def weighted_mean(values, weight):
    """Return the mean of ``values`` (B,) over rows of ``weight`` 1, or over all rows if it is None."""
    if weight is None:
        return values.mean()
    return (values * weight).sum() / weight.sum().clamp(min=1.0)


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
    own = values.new_tensor(float(len(values))) if weight is None else weight.sum()
    total = own.clone()
    ranks.add(total)
    return own / total.clamp(min=1.0)


def normalized_advantage(advantage, weight, ranks):
    """Return ``advantage`` (B,) with mean 0 and deviation 1 over rows of ``weight`` 1 of all ``Ranks``."""
    mean = mean_of_ranks(advantage, weight, ranks)
    variance = mean_of_ranks((advantage - mean) ** 2, weight, ranks)
    return (advantage - mean) / (variance.sqrt() + 1e-8)


def minibatch_size(rows, minibatches, where):
    """Return ``rows / minibatches``.

    Raises:
        ParameterError: If it is not a whole number; says which numbers are.
    """
    if rows % minibatches:
        fitting = [n for n in range(1, min(rows, 4 * minibatches) + 1) if rows % n == 0]
        near = sorted(sorted(fitting, key=lambda n: abs(math.log(n / minibatches)))[:4])
        raise ParameterError(
            f"{where}: {rows:,} rows (steps x environments x agents) do not divide into {minibatches} minibatches; "
            f"num_minibatches = {', '.join(map(str, near))} would"
        )
    return rows // minibatches
