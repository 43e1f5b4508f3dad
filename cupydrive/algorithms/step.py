"""One optimizer step on the device, with Adam or RAdam, and the decision to skip a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from cupydrive.executors.interop import zeros
from cupydrive.executors.ranks import Ranks


class RAdam(torch.optim.RAdam):
    """Rectified Adam (Liu et al. 2020) with the skip flag ``found_inf`` of fused Adam."""

    found_inf: torch.Tensor

    def step(self, closure: None = None) -> None:
        """Take a step, and undo it if ``found_inf`` is 1."""
        states = [tensor for state in self.state.values() for tensor in state.values()]
        changed = [*self.param_groups[0]["params"], *states]
        before = [tensor.detach().clone() for tensor in changed]
        super().step()
        with torch.no_grad():
            for tensor, old in zip(changed, before, strict=True):
                tensor.copy_(torch.where(self.found_inf > 0, old, tensor))


def adam(
    parameters: Iterable[nn.Parameter], learning_rate: torch.Tensor, rectified: bool = False
) -> tuple[Any, torch.Tensor]:
    """Create fused Adam, or ``RAdam`` if ``rectified``, and its skip flag.

    The flag is a 0-dimensional tensor. If it is 1, a step does nothing.

    The optimizer state is allocated before the first step, so that it can be saved, restored in
    place and captured in a CUDA graph.

    Args:
        parameters: Parameters on one device. Those without gradient are ignored.
        learning_rate: 0-dimensional tensor on that device.
        rectified: Use RAdam instead of Adam.
    """
    parameters = [p for p in parameters if p.requires_grad]
    device = parameters[0].device
    cuda = device.type == "cuda"
    optimizer: Any  # torch has no fused RAdam
    if rectified:
        optimizer = RAdam(parameters, lr=learning_rate, eps=1e-8, foreach=cuda, capturable=cuda)
    else:
        how = {"eps": 1e-5, "fused": True, "capturable": cuda}
        optimizer = torch.optim.Adam(parameters, lr=learning_rate, **how)
    for p in parameters:
        averages = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        optimizer.state[p] = {"step": zeros(device), **averages}
    skip_update = zeros(device)
    # the mechanism of torch's own gradient scaler
    optimizer.found_inf, optimizer.grad_scale = skip_update, None
    return optimizer, skip_update


def adam_tensors(optimizer: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of the state of ``adam`` by name, not copies."""
    kept: dict[str, torch.Tensor] = {}
    for k, p in enumerate(optimizer.param_groups[0]["params"]):
        kept |= {f"{k}.{key}": value for key, value in optimizer.state[p].items()}
    return kept


def means_of_ranks(
    tensors: Sequence[torch.Tensor], share: torch.Tensor, ranks: Ranks
) -> list[torch.Tensor]:
    """Average tensors over the rows of all ``Ranks`` with one collective.

    Args:
        tensors: Means over the rows of this rank.
        share: () float32, fraction of all rows that this rank has.
        ranks: ``Ranks``.
    """
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors]) * share
    ranks.add(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


def take_step(
    optimizer: Any,
    loss: torch.Tensor,
    reported: list[torch.Tensor | None],
    settle: Callable,
    max_norm: torch.Tensor,
    bad: torch.Tensor,
    sums: torch.Tensor,
    ranks: Ranks | None = None,
    share: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Take a gradient step, unless a number is non-finite or the step must be skipped.

    Args:
        optimizer: Optimizer from ``adam``.
        loss: 0-dimensional tensor.
        reported: 0-dimensional tensors to add to ``sums``. None stands for the gradient norm.
        settle: The function ``settle``, possibly compiled.
        max_norm: Maximum gradient norm for clipping, a tensor.
        bad: Set to 1 by the first non-finite loss or gradient. No further steps are taken then.
        sums: Sums of the reported values, followed by their count.
        ranks: ``Ranks`` that take this step together, or None.
        share: () float32, fraction of all ranks' rows that this rank has.

    Returns:
        The values added to ``sums``, which are means over the rows of all ranks.
    """
    parameters = optimizer.param_groups[0]["params"]
    # gradient 0 of weights that the loss does not use
    found, loss = torch.autograd.grad(loss, parameters, materialize_grads=True), loss.detach()
    # Fused Adam requires the strides of the weights. cuDNN's gradients have those of the images.
    gradients = [
        g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
        for p, g in zip(parameters, found, strict=True)
    ]
    reported = [value if value is None else value.detach() for value in reported]
    if ranks is not None:
        known = [value for value in reported if value is not None]
        means = iter(means_of_ranks([loss, *known, *gradients], share, ranks))
        loss = next(means)
        reported = [value if value is None else next(means) for value in reported]
        gradients = list(means)
    norm = nn.utils.get_total_norm(gradients, foreach=True)
    reported = [norm if value is None else value for value in reported]
    scale, bad[...], optimizer.found_inf[...], sums[...] = settle(
        loss, norm, reported, max_norm, bad, optimizer.found_inf, sums
    )
    torch._foreach_mul_(gradients, scale)
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = gradient
    optimizer.step()
    return reported


def settle(
    loss: torch.Tensor,
    norm: torch.Tensor,
    reported: list[torch.Tensor],
    max_norm: torch.Tensor,
    bad: torch.Tensor,
    skip_update: torch.Tensor,
    sums: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the factor of the gradients, and the new ``bad``, ``skip_update`` and ``sums``.

    See ``take_step``. ``torch.nn.utils.clip_grad_norm_`` would synchronize to read its limit.
    """
    finite = torch.isfinite(norm) & torch.isfinite(loss)
    bad = torch.maximum(bad, 1.0 - finite.float())
    skip_update = torch.maximum(skip_update, bad)
    added = torch.stack([*(value.float() for value in reported), torch.ones_like(norm)])
    sums = torch.where(skip_update > 0, sums, sums + added)
    return torch.clamp(max_norm / (norm + 1e-6), max=1.0), bad, skip_update, sums


def compiled(function: Callable, how: bool | str) -> Callable:
    """Compile ``function`` according to ``how``, separately for each shape."""
    if not how:
        return function
    mode = "max-autotune-no-cudagraphs" if how == "max-autotune" else None
    return torch.compile(function, mode=mode, dynamic=False)
