"""Validation of actions: shape, dtype and device of tensors, and optionally their values.

Letters: N environments, C agents of a group, H action heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from cupydrive.errors import ActionError
from cupydrive.executors.interop import as_torch
from cupydrive.inputs.arguments import kind_of
from cupydrive.simulation.trajectory import Tensors
from cupydrive.spec import Group

if TYPE_CHECKING:
    from cupydrive.simulation.batch import Batch

# Kernels read the actions of an environment in vectors of this many bytes. On a GPU, a misaligned
# read of 16 bytes ends the process's use of the device.
ALIGNMENT = 16


class ActionReader:
    """Converts the argument of ``step`` to tensors that a kernel reads in place.

    Args:
        batch: The ``Batch`` that will step.
        single: Actions are one tensor instead of a dictionary by group.
        squeeze: A single agent has no agent axis.
    """

    def __init__(self, batch: Batch, single: bool, squeeze: bool) -> None:
        self.batch, self.single = batch, single
        self.spec, self.groups, self.num_envs = batch.spec, batch.groups, batch.num_envs
        self.device = batch.executor.name
        self.shapes = {g.name: (self.num_envs, *g.action_shape[squeeze:]) for g in self.groups}
        self.dtypes = {g.name: torch.float32 if g.continuous else torch.int32 for g in self.groups}
        self._converted: dict[str, torch.Tensor] = {}
        self.check_masks = True  # False accepts choices that a mask forbids
        self.check_boxes = True  # False accepts values outside a Box

    def __call__(self, action: Tensors, validate: bool) -> list[torch.Tensor]:
        """Return one tensor per group.

        Raises:
            ActionError: If a shape, dtype or device is wrong, or with ``validate`` a value.
        """
        if self.single:
            action = {self.groups[0].name: action}
        if not isinstance(action, dict) or action.keys() != self.dtypes.keys():
            given = list(action) if isinstance(action, dict) else kind_of(action)
            raise ActionError(
                f"the action: got {given}, expected a dict with {', '.join(self.dtypes)}"
            )
        tensors = [self._checked(g, action[g.name], validate) for g in self.groups]
        if validate:
            for g, tensor in zip(self.groups, tensors, strict=True):
                self._check_values(g, tensor)
        return tensors

    def _checked(self, g: Group, action: torch.Tensor | np.ndarray, validate: bool) -> torch.Tensor:
        shape, dtype = self.shapes[g.name], self.dtypes[g.name]
        if isinstance(action, np.ndarray) and self.device == "cpu" and action.dtype.kind in "iufb":
            action = torch.from_numpy(np.ascontiguousarray(action, action.dtype.newbyteorder("=")))
        if not isinstance(action, torch.Tensor) or not self._fits(g, action):
            raise ActionError(
                f"the action of {g.name!r}: got {_described(action)}, expected a torch tensor "
                f"{shape} of {dtype} on {self.device}"
            )
        if action.dtype == dtype and action.is_contiguous() and action.data_ptr() % ALIGNMENT == 0:
            return action
        if g.name not in self._converted:
            with torch.inference_mode(False):  # the tensor is used after the caller's mode ends
                self._converted[g.name] = torch.empty(shape, dtype=dtype, device=action.device)
        if validate and action.dtype == torch.int64:
            self._check_values(g, action)  # before the conversion wraps large values
        return self._converted[g.name].copy_(action)

    def _fits(self, g: Group, action: torch.Tensor) -> bool:
        """Return whether a tensor has the shape, device and kind of a group's actions."""
        here = action.device.type == self.device and action.layout == torch.strided
        if not here or action.shape != self.shapes[g.name]:
            return False
        if action.dtype == self.dtypes[g.name]:
            return True
        numbers = action.dtype != torch.bool and not action.is_complex()
        return numbers and action.is_floating_point() == g.continuous

    def _check_values(self, g: Group, tensor: torch.Tensor) -> None:
        """Raise ``ActionError`` for the first action outside the space. This synchronizes."""
        bounds = g.action_bounds
        low, high = (torch.from_numpy(x).to(tensor.device) for x in bounds)
        values, discrete = tensor.reshape(self.num_envs, g.count, g.heads), len(g.sizes)
        good = (values >= low) & (values <= high)
        if not self.check_boxes:
            good[..., discrete:] = True
        if g.continuous and discrete:
            choices = values[..., :discrete]
            good[..., :discrete] &= choices == choices.trunc()
        if bool(good.all()):
            if g.mask and self.check_masks:
                self._check_allowed(g, values)
            return
        env, agent, head = (~good).nonzero()[0].tolist()
        value = values[env, agent, head].item()
        low, high = (bound[head] for bound in bounds)
        limit = f"{low:.0f} to {high:.0f}" if head < discrete else f"from {low} to {high}"
        read = "the nearest valid one (NaN as 0)"
        if g.continuous and head < discrete:
            limit, read = f"a whole number from {limit}", f"{read}, without its fraction"
        raise ActionError(
            f"{_place(g, env, agent, head)} is {value}, expected {limit}. "
            f"With validate=False it would be read as {read}"
        )

    def _check_allowed(self, g: Group, values: torch.Tensor) -> None:
        """Raise ``ActionError`` for the first action that its mask forbids."""
        mask = as_torch(self.batch.current_mask[g.name])
        for head, (first, size) in enumerate(zip(g.first_choices, g.sizes, strict=True)):
            allowed = mask[..., first : first + size]
            allowed = allowed | ~allowed.any(-1, keepdim=True)
            good = allowed.gather(-1, values[..., head : head + 1].long())[..., 0]
            if not bool(good.all()):
                env, agent = (~good).nonzero()[0].tolist()
                choices = ", ".join(
                    str(k) for k in allowed[env, agent].nonzero().flatten().tolist()
                )
                raise ActionError(
                    f"{_place(g, env, agent, head)} is {values[env, agent, head].item()}, which "
                    f"its mask forbids. Allowed: {choices}"
                )


def _described(action: torch.Tensor | np.ndarray) -> str:
    if not isinstance(action, torch.Tensor):
        return kind_of(action)
    return f"a {action.layout} tensor {tuple(action.shape)} of {action.dtype} on {action.device}"


def _place(g: Group, env: int, agent: int, head: int) -> str:
    """Describe the position of an action. Agent and entry are included if there are several."""
    of_agent, of_head = f", agent {agent}" * (g.count > 1), f", entry {head}" * (g.heads > 1)
    return f"the action of {g.name!r} in environment {env}{of_agent}{of_head}"
