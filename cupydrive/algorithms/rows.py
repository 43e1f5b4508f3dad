"""Rows of a rollout: minibatches, weighted means, and validation of their number.

Letters: T steps, N environments, C agents of a group, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cupydrive.algorithms.settings import RolloutSettings
from cupydrive.codegen.source import assemble_file, column_words
from cupydrive.errors import ParameterError
from cupydrive.executors.interop import make_call
from cupydrive.executors.ranks import Ranks
from cupydrive.playing.policy import make_distribution
from cupydrive.protocols import Executor, Program
from cupydrive.spec import Group


def weighted_mean(
    values: torch.Tensor, weight: torch.Tensor | None, counted: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of ``values`` (B,) over rows with ``weight`` 1.

    Args:
        values: (B,).
        weight: (B,), 0 or 1. None means all rows.
        counted: (B,) weights whose sum is the divisor. Defaults to ``weight``.
    """
    if weight is None:
        return values.mean()
    return (values * weight).sum() / (weight if counted is None else counted).sum().clamp(min=1.0)


def mean_of_ranks(values: torch.Tensor, weight: torch.Tensor | None, ranks: Ranks) -> torch.Tensor:
    """Return the mean of ``values`` (B,) over the rows of all ``Ranks`` with ``weight`` 1.

    If ``weight`` is None, all rows count.
    """
    if ranks.alone:
        return weighted_mean(values, weight)
    weight = torch.ones_like(values) if weight is None else weight
    sums = torch.stack([(values * weight).sum(), weight.sum()])
    ranks.add(sums)
    return sums[0] / sums[1].clamp(min=1.0)


def share_of_rows(values: torch.Tensor, weight: torch.Tensor | None, ranks: Ranks) -> torch.Tensor:
    """Return the fraction of the rows of all ranks with ``weight`` 1 that this rank has.

    It is the weight of this rank's means. If ``weight`` is None, all rows count.
    """
    own = values.new_full((), float(len(values))) if weight is None else weight.sum()
    total = own.clone()
    ranks.add(total)
    return own / total.clamp(min=1.0)


def normalized_advantage(
    advantage: torch.Tensor, weight: torch.Tensor | None, ranks: Ranks
) -> torch.Tensor:
    """Normalize ``advantage`` (B,) to mean 0 and standard deviation 1.

    The statistics are those of rows with ``weight`` 1 of all ``Ranks``.
    """
    mean = mean_of_ranks(advantage, weight, ranks)
    variance = mean_of_ranks((advantage - mean) ** 2, weight, ranks)
    return (advantage - mean) / (variance.sqrt() + 1e-8)


def check_rows(
    config: RolloutSettings, groups: Sequence[Group], num_envs: int, network: object
) -> None:
    """Raise ``ParameterError`` if the distribution or the number of minibatches does not fit.

    Minibatches consist of rows or, if the policy has a hidden state, of whole agents' sequences.

    Args:
        config: Settings of the algorithm. Without ``num_minibatches`` there is one minibatch.
        groups: ``Group``s that learn together.
        num_envs: N, number of environments of all processes.
        network: Network of the policy, or its class. A hidden state is detected by the attribute
            ``state_size``.
    """
    for g in groups:
        make_distribution(g, config.distribution)
        if config.central and not g.critic_obs_dim:
            raise ParameterError(
                f"{type(config).__name__}: critic = 'central' needs observations of a critic: got "
                f"critic_obs_dim = 0 of group {g.name!r}, expected at least 1. Leave critic out"
            )
        if config.central and g.critic_obs_dim != groups[0].critic_obs_dim:
            raise ParameterError(
                f"{type(config).__name__}: groups with one centralized critic need equal "
                f"critic_obs_dim: got {groups[0].critic_obs_dim} of {groups[0].name!r} and "
                f"{g.critic_obs_dim} of {g.name!r}. Give each group its own policy"
            )
        if config.normalize_obs and g.obs_dtype != "float32":
            raise ParameterError(
                f"{type(config).__name__}: normalize_obs = True, but observations of group "
                f"{g.name!r} are {g.obs_dtype}, which networks see as 0 to 1. Leave it out"
            )
    size, agents = (getattr(network, name, 0) for name in ("state_size", "agents_per_row"))
    whole, together = (isinstance(n, int) and n > 0 for n in (size, agents))
    for g in groups if together else ():
        if g.count != agents:
            raise ParameterError(
                f"{type(config).__name__}: the policy takes whole environments: got {g.count} "
                f"agents of group {g.name!r}, expected agents_per_row = {agents}"
            )
    each = len(groups) if together else sum(g.count for g in groups)
    pieces = num_envs * each * (1 if whole else config.num_steps)
    minibatches = getattr(config, "num_minibatches", 1)
    if pieces % minibatches:
        factors = ["steps"] * (not whole) + ["environments"] + ["agents"] * (not together)
        what = f"{'sequences' if whole else 'rows'} ({' x '.join(factors)})"
        raise ParameterError(
            f"{type(config).__name__}: {pieces:,} {what} do not divide into {minibatches} "
            f"minibatches. Change num_minibatches"
        )


class RowGather:
    """Gathers the rows of a minibatch from several tensors in one launch.

    Tensors of bytes take additional launches.

    Args:
        executor: ``Executor`` of the tensors' device.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._programs: dict[tuple[int, ...], Program] = {}

    def __call__(
        self, columns: dict[str, torch.Tensor], index: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the rows of ``index``, (M,) int64, of each tensor (B, ...) of ``columns``."""
        masks = {
            name: column.index_select(0, index)
            for name, column in columns.items()
            if column.element_size() == 1
        }
        columns = {name: column for name, column in columns.items() if name not in masks}
        words = tuple(column[0].numel() * column.element_size() // 4 for column in columns.values())
        if words not in self._programs:
            team = min(self.executor.max_team, 32, 1 << max(0, (max(words) // 4 - 1)).bit_length())
            unit = assemble_file(
                "train/gather", (("COLUMNS", len(words)),), column_words(words), team
            )
            self._programs[words] = self.executor.build(unit)
        taken = {
            name: column.new_empty((len(index), *column.shape[1:]))
            for name, column in columns.items()
        }
        pointers = {"index": index, **{f"from.{name}": column for name, column in columns.items()}}
        pointers |= {f"to.{name}": column for name, column in taken.items()}
        call = make_call({"rows": len(index)}, pointers)
        self._programs[words].launch("gather", call, len(index), len(index) * sum(words))
        return taken | masks
