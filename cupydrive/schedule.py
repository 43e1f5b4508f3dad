"""Schedules: any float of an algorithm may be a number or a piecewise-linear function of the env-steps done."""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import torch

from cupydrive.errors import ParameterError

Schedule = float | tuple[tuple[float, float], ...]  # a value, or pairs (env-steps, value) with ascending env-steps


def checked_schedule(where, value, low=-np.inf, high=np.inf):
    """Return ``value`` as a float or a tuple of float pairs.

    Raises:
        ParameterError: If it is neither, a value lies outside of [low, high], or env-steps do not ascend.
    """
    pairs = [(0, value)] if isinstance(value, int | float | np.number) and not isinstance(value, bool) else value
    try:
        pairs = tuple((float(step), float(number)) for step, number in pairs)
    except (TypeError, ValueError):
        raise ParameterError(f"{where} = {value!r}; it must be a number, or pairs (env-steps, value)") from None
    if not pairs or any(b[0] <= a[0] for a, b in pairwise(pairs)):
        raise ParameterError(f"{where} = {value!r}: the env-steps of a schedule must ascend")
    for _, number in pairs:
        if not low <= number <= high:
            raise ParameterError(f"{where} = {value!r} is out of range; it must be from {low} to {high}")
    return pairs if len(pairs) > 1 else pairs[0][1]


def value_at(schedule, step):
    """Return the value of a schedule after ``step`` env-steps; constant before the first pair and after the last."""
    if isinstance(schedule, float):
        return schedule
    return float(np.interp(step, *zip(*schedule, strict=True)))


class Scheduled:
    """The scheduled numbers of one algorithm in device memory: attributes are 0-dimensional tensors.

    Args:
        config: The algorithm's dataclass; fields of metadata ``schedule`` are taken.
        device: Where.
    """

    def __init__(self, config, device):
        self._schedules = {f.name: getattr(config, f.name) for f in fields(config) if f.metadata.get("schedule")}
        self._tensors = torch.zeros(len(self._schedules), device=device)
        self._now = {}
        for k, name in enumerate(self._schedules):
            setattr(self, name, self._tensors[k])
        self.set(0)

    def set(self, step):
        """Write the values after ``step`` env-steps; queues a fill for each that changed."""
        for name, schedule in self._schedules.items():
            value = value_at(schedule, step)
            if self._now.get(name) != value:
                self._now[name] = value
                getattr(self, name).fill_(value)

    def now(self, name):
        """Return the value that was last written."""
        return self._now[name]
