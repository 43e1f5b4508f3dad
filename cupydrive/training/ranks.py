"""What several processes that train one run together agree on, and what each keeps of it: settings,
snapshots, weights.

They are called ranks, as in ``torch.distributed``; what carries tensors from one to another is
``executors/ranks.py``.
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


# ---- tensors of all environments, and of those of one rank ----


NamedTensors = dict[str, torch.Tensor]
LEARNERS_ROWS = ("discounted.", "held.", "memory.")  # tensors with a row for each environment


def shared_out(run: Run) -> dict[str, int]:
    """Return by name, of what ``Run.snapshot`` returns, the dimension along which environments lie;
    others have none.
    """
    names = ["env/state", "env/clock", "env/metrics"]
    names += [f"env/returns.{g.name}" for g in run.batch.groups]
    names += [f"obs.{name}" for name in run.rollout.obs]
    names += [f"critic_obs.{name}" for name in run.rollout.critic_obs]
    names += [f"action_mask.{name}" for name in run.rollout.action_mask]
    for name, learner in run.learners.items():
        names += [f"{name}/{key}" for key in learner.tensors() if key.startswith(LEARNERS_ROWS)]
    return dict.fromkeys(names, 0) | run.episodes.shared_out()


def of_all_ranks(
    kept: NamedTensors, along: dict[str, int], summed: Sequence[str], shard: Shard
) -> NamedTensors:
    """Return tensors of all environments, from those of each rank's own; all ranks must call it.

    Args:
        kept: Tensors on the CPU, by name.
        along: By name the dimension along which environments lie, of those that have one; others
            are equal on all ranks.
        summed: Names of those that are added instead.
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
    """Return of the tensors of all environments those of one rank: views; what does not fit stays
    as it is.

    Args:
        kept: What ``whole`` has returned, or a file's content.
        along: As of ``whole``.
        summed: Names of those of which the first rank takes all, and the others 0.
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
    """Raise ``ParameterError`` on all ranks if hashes of what they train differ; all must call it.

    Not part of the hash: callback, progress, folder, and the index of the device.

    Args:
        run: ``Run`` that is to be trained.
        config: How it is to be trained.
    """
    if run.shard.ranks.alone:
        return
    options = {"steps": config.steps, "cuda_graph": config.cuda_graph, "keep": config.keep}
    here = {"torch": torch.__version__, "device": run.device, "step": run.step}
    here["backends"] = run.backends
    if others := different(run.shard.ranks, config_hash(run.as_json() | options | here).encode()):
        raise ParameterError(
            f"processes that train one run need the same arguments and versions; they differ on "
            f"rank {others} from rank 0"
        )


def different(ranks: Ranks, content: bytes) -> str:
    """Return the ranks whose content is not that of rank 0, as text; all must call it."""
    found = ranks.gather_bytes(content)
    return ", ".join(str(rank) for rank, other in enumerate(found) if other != found[0])


def require_equal_weights(ranks: Ranks, policies: Mapping[str, nn.Module], step: int) -> None:
    """Raise ``TrainingError`` on all ranks if their weights differ; all must call it.

    Args:
        ranks: ``Ranks``.
        policies: Modules by name.
        step: Env-steps done.
    """
    digest = hashlib.sha256()
    for policy in policies.values():
        for tensor in policy.state_dict().values():
            digest.update(bytes_of(tensor.cpu()))
    if others := different(ranks, digest.digest()):
        raise TrainingError(
            f"after {step:,} env-steps the weights on rank {others} are not those of rank 0, as "
            "they must be: a device or its driver computes wrongly. Training has stopped; go on "
            "from the last checkpoint with resume=True"
        )


# ---- what is said in each interval ----


@dataclass(frozen=True)
class Wishes:
    """What a rank wants to happen at the end of an interval, which all do together.

    Args:
        stop: End the training: an interrupt.
        save: Compare the weights and write a checkpoint.
        seconds: That an iteration takes here.
    """

    stop: bool = False
    save: bool = False
    seconds: float = 0.0

    @classmethod
    def of_all(cls, told: torch.Tensor) -> Wishes:
        """Return what all do together, of each rank's wishes, (W, 3) float64: any may stop, the
        first decides else.
        """
        first = told[0].tolist()
        return cls(bool(told[:, 0].any()), bool(first[1]), first[2])

    def tell(self, ranks: Ranks, numbers: torch.Tensor) -> torch.Tensor:
        """Return (W, L + 3) float64 on the device of ``numbers`` (L,): those of each rank, and its
        wishes behind them.
        """
        wanted = torch.tensor(astuple(self), dtype=torch.float64, device="cpu")
        return ranks.gather(torch.cat([numbers, wanted.to(numbers.device)]))


WISHES = len(fields(Wishes))
