"""Schedules: any float of an algorithm may be a number or a piecewise-linear function of the env-steps done."""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import torch

from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import is_number, kind_of, shown

LARGEST = float(np.finfo(np.float32).max)  # the device holds settings as float32
Schedule = float | tuple[tuple[float, float], ...]  # a value, or pairs (env-steps, value) with ascending env-steps


def checked_number(where, value, low=-np.inf, high=np.inf):
    """Return ``value`` as a finite float in [low, high], within what float32 can hold.

    Raises:
        ParameterError: If it is no number, not finite, or out of range.
    """
    if not is_number(value, int | float | np.integer | np.floating):
        raise ParameterError(f"{where} = {shown(value)} is {kind_of(value)}; it must be a number")
    low, high = max(low, -LARGEST), min(high, LARGEST)
    if not low <= value <= high:
        limit = f"from {low:g} to {high:g}" if high < LARGEST else f"finite and at least {low:g}"
        raise ParameterError(f"{where} = {shown(value)} is out of range; it must be {limit}")
    return float(value)


def checked_schedule(where, value, low=-np.inf, high=np.inf, positive=False):
    """Return ``value`` as a float or a tuple of float pairs.

    Args:
        where: What to call it.
        value: A number, or pairs (env-steps, value).
        low: The lowest value.
        high: The highest.
        positive: It must be above 0 at some time.

    Raises:
        ParameterError: If it is neither, a value is not finite or lies outside of [low, high], or env-steps do not ascend.
    """
    if isinstance(value, tuple | list):
        pairs = value
        if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise ParameterError(f"{where} = {shown(value)}; it must be a number, or pairs (env-steps, value)")
    elif is_number(value, int | float | np.integer | np.floating):
        pairs = [(0, value)]
    else:
        raise ParameterError(f"{where} = {shown(value)}; it must be a number, or pairs (env-steps, value)")
    steps = [checked_number(f"{where}: env-steps", step, 0.0) for step, _ in pairs]
    numbers = [checked_number(where, number, low, high) for _, number in pairs]
    if any(b <= a for a, b in pairwise(steps)):
        raise ParameterError(f"{where} = {shown(value)}: the env-steps of a schedule must ascend")
    if positive and max(numbers) <= 0:
        raise ParameterError(f"{where} = {shown(value)} is out of range; it must be above 0")
    return tuple(zip(steps, numbers, strict=True)) if len(steps) > 1 else numbers[0]


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

    Attributes:
        schedules: By name, as ``checked_schedule`` returns them.
    """

    def __init__(self, config, device):
        self.schedules = {f.name: getattr(config, f.name) for f in fields(config) if f.metadata.get("schedule")}
        self._tensors = torch.zeros(len(self.schedules), dtype=torch.float32, device=device)
        self._now = {}
        for k, name in enumerate(self.schedules):
            setattr(self, name, self._tensors[k])
        self.set(0)

    def set(self, step):
        """Write the values after ``step`` env-steps; queues a fill for each that changed."""
        for name, schedule in self.schedules.items():
            value = value_at(schedule, step)
            if self._now.get(name) != value:
                self._now[name] = value
                getattr(self, name).fill_(value)

    def written_elsewhere(self, names):
        """Take note that others write these numbers from now on: what they are is not known until ``set`` writes them again."""
        self._now |= dict.fromkeys(names)

    def now(self, name):
        """Return the value that was last written; None if that was elsewhere."""
        return self._now[name]
