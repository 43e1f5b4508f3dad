"""State of a run that several ranks train: equal settings and weights, and sharded snapshots.

Ranks are processes, as in ``torch.distributed``. ``executors/ranks.py`` implements the collectives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import nn

from cupydrive.errors import ParameterError, TrainingError
from cupydrive.training.runfolder import config_hash

if TYPE_CHECKING:
    from cupydrive.executors.ranks import Ranks, Shard
    from cupydrive.training.config import TrainConfig
    from cupydrive.training.run import Run


# ---- tensors of all environments, and shards of them ----


NamedTensors = dict[str, torch.Tensor]
LEARNERS_ROWS = ("discounted.", "held.", "memory.")  # tensors with a row for each environment


def shared_out(run: Run) -> dict[str, int]:
    """Return the environment dimension of each tensor of ``Run.snapshot`` that has one, by name."""
    names = ["env/state", "env/clock", "env/metrics"]
    names += [f"env/returns.{g.name}" for g in run.batch.groups]
    names += [f"obs.{name}" for name in run.rollout.obs]
    names += [f"critic_obs.{name}" for name in run.rollout.critic_obs]
    names += [f"action_mask.{name}" for name in run.rollout.action_mask]
    names += run.memories()
    for name, learner in run.learners.items():
        names += [f"{name}/{key}" for key in learner.tensors() if key.startswith(LEARNERS_ROWS)]
    return dict.fromkeys(names, 0) | run.episodes.shared_out()


def of_all_ranks(
    kept: NamedTensors, along: dict[str, int], summed: Sequence[str], shard: Shard
) -> NamedTensors:
    """All-gather the tensors of all environments. All ranks must call it.

    Args:
        kept: Tensors of this rank on the CPU, by name.
        along: Environment dimension by name. Tensors without an entry are equal on all ranks.
        summed: Names of tensors that are summed over ranks instead.
        shard: ``Shard`` of this rank.
    """
    if shard.ranks.alone:
        return kept
    rows = {name: kept[name].movedim(along.get(name, 0), 0) for name in kept if name in along}
    rows |= {name: kept[name][None] for name in summed}
    gathered = shard.ranks.gather_bytes(b"".join(bytes_of(tensor) for tensor in rows.values()))
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in rows}
    for rank, content in enumerate(gathered):
        begin, envs = 0, len(shard.envs_of(rank))
        for name, tensor in rows.items():
            count = len(tensor) // shard.num_envs * envs if name in along else 1
            size = count * tensor[0].numel() * tensor.element_size()
            flat = torch.frombuffer(bytearray(content[begin : begin + size]), dtype=tensor.dtype)
            parts[name].append(flat.view(count, *tensor.shape[1:]))
            begin += size
    joined = {name: torch.cat(found) for name, found in parts.items()}
    joined |= {name: joined[name].sum(0) for name in summed}
    return kept | {name: tensor.movedim(0, along.get(name, 0)) for name, tensor in joined.items()}


def part(
    kept: NamedTensors, along: dict[str, int], summed: Sequence[str], shard: Shard
) -> NamedTensors:
    """Return one rank's shard of the tensors of all environments, as views.

    A tensor of an unexpected shape is returned unchanged.

    Args:
        kept: Result of ``of_all_ranks``, or the content of a file.
        along: Environment dimension by name, as for ``of_all_ranks``.
        summed: Names of tensors that rank 0 takes completely. The other ranks get zeros.
        shard: ``Shard`` of the rank.
    """
    if shard.ranks.alone or not isinstance(kept, dict):
        return kept
    found = dict(kept)
    for name, dim in along.items():
        tensor = kept.get(name)
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.dim() > dim
            and tensor.shape[dim] % shard.all_envs == 0
        ):
            each = tensor.shape[dim] // shard.all_envs
            found[name] = tensor.narrow(dim, shard.envs.start * each, shard.num_envs * each)
    if shard.ranks.rank > 0:
        found |= {name: torch.zeros_like(kept[name]) for name in summed if name in kept}
    return found


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor on the CPU."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


# ---- agreement ----


def require_equal(run: Run, config: TrainConfig) -> None:
    """Raise ``ParameterError`` on all ranks if their configurations differ. All must call it.

    The comparison ignores callback, progress, folder, and the index of the device.

    Args:
        run: ``Run`` to train.
        config: Options of the training.
    """
    if run.shard.ranks.alone:
        return
    options = {"steps": config.steps, "cuda_graph": config.cuda_graph, "keep": config.keep}
    here = {"torch": torch.__version__, "device": run.device, "step": run.step}
    here["backends"] = run.backends
    if others := different(run.shard.ranks, config_hash(run.as_json() | options | here).encode()):
        raise ParameterError(
            f"processes that train one run need the same arguments and versions, but they "
            f"differ on rank {others}"
        )


def different(ranks: Ranks, content: bytes) -> str:
    """Return the ranks whose content differs from rank 0, as text. All ranks must call it."""
    found = ranks.gather_bytes(content)
    return ", ".join(str(rank) for rank, other in enumerate(found) if other != found[0])


def require_equal_weights(ranks: Ranks, policies: Mapping[str, nn.Module], step: int) -> None:
    """Raise ``TrainingError`` on all ranks if their weights differ. All ranks must call it.

    Args:
        ranks: ``Ranks``.
        policies: Modules by name.
        step: Environment steps done.
    """
    digest = hashlib.sha256()
    for policy in policies.values():
        for tensor in policy.state_dict().values():
            digest.update(bytes_of(tensor.cpu()))
    if others := different(ranks, digest.digest()):
        raise TrainingError(
            f"after {step:,} env-steps the weights on rank {others} differ from those of rank 0: "
            "a device or its driver computes wrong results. Training has stopped. Continue from "
            "the last checkpoint with resume=True"
        )


# ---- control flags of each interval ----


@dataclass(frozen=True)
class Wishes:
    """Control flags of a rank, exchanged at the end of an interval and acted on by all ranks.

    Args:
        stop: End the training, after an interrupt.
        save: Compare the weights and write a checkpoint.
        seconds: Duration of an iteration on this rank.
    """

    stop: bool = False
    save: bool = False
    seconds: float = 0.0

    @classmethod
    def of_all(cls, told: torch.Tensor) -> Wishes:
        """Combine the flags of all ranks, (W, 3) float64.

        Any rank may stop the training. The other values are those of rank 0.
        """
        first = told[0].tolist()
        return cls(bool(told[:, 0].any()), bool(first[1]), first[2])

    def tell(self, ranks: Ranks, numbers: torch.Tensor) -> torch.Tensor:
        """All-gather ``numbers`` (L,) followed by the flags: (W, L + 3) float64 on their device."""
        wanted = torch.tensor(astuple(self), dtype=torch.float64, device="cpu")
        return ranks.gather(torch.cat([numbers, wanted.to(numbers.device)]))


WISHES = len(fields(Wishes))
