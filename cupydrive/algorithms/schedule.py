"""Schedules: numbers, or piecewise-linear functions of the number of environment steps."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, get_args, get_type_hints

import numpy as np
import torch
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from cupydrive.executors.interop import zeros
from cupydrive.inputs.arguments import is_number

NUMBERS = int | float | np.integer | np.floating
LARGEST = float(np.finfo(np.float32).max)  # the device holds settings as float32
# a value, or pairs (environment steps, value) with ascending environment steps
Schedule = float | tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Range:
    """Annotation of a field with a ``Schedule`` of finite values in [low, high].

    Args:
        low: Lowest value.
        high: Highest value.
        positive: Whether at least one value must be above 0. A decaying rate may end at 0.
    """

    low: float = -LARGEST
    high: float = LARGEST
    positive: bool = False

    def __get_pydantic_core_schema__(
        self, source: type, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def validate(self, value: object) -> Schedule:
        """Convert a number to a float, or pairs to a tuple of pairs of floats.

        Raises:
            ValueError: If it is neither, a value is out of range, or environment steps do not
                ascend.
        """
        pairs = [(0, value)] if is_number(value, NUMBERS) else value
        if not isinstance(pairs, tuple | list) or not pairs or not all(map(is_pair, pairs)):
            raise ValueError("it must be a number, or pairs (env-steps, value)")
        steps, numbers = zip(*pairs, strict=True)
        if not all(self.low <= number <= self.high for number in numbers):
            limit = (
                f"from {self.low:g} to {self.high:g}"
                if self.high < LARGEST
                else f"finite and at least {self.low:g}"
            )
            raise ValueError(f"it must be {limit}")
        if self.positive and max(numbers) <= 0:
            raise ValueError("it must be above 0")
        if not all(0 <= step <= LARGEST for step in steps) or any(
            b <= a for a, b in pairwise(steps)
        ):
            raise ValueError("the env-steps of a schedule must be from 0 on and ascend")
        return (
            tuple((float(step), float(number)) for step, number in pairs)
            if len(pairs) > 1
            else float(numbers[0])
        )


def is_pair(value: object) -> bool:
    """Return whether a value is a pair of numbers."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(is_number(each, NUMBERS) for each in value)
    )


def schedules(kind: type) -> list[str]:
    """Return the names of a dataclass's fields that are a ``Schedule``."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        f.name
        for f in fields(kind)
        if any(isinstance(each, Range) for each in get_args(hints[f.name]))
    ]


def value_at(schedule: Schedule, step: float) -> float:
    """Return the value of a schedule after ``step`` environment steps.

    It is constant before the first pair and after the last.
    """
    if isinstance(schedule, float):
        return schedule
    return float(np.interp(step, [at for at, _ in schedule], [value for _, value in schedule]))


class Scheduled:
    """Scheduled values of one algorithm in device memory, as attributes.

    The attributes are 0-dimensional tensors.

    Args:
        config: Dataclass of the algorithm. All fields with a ``Schedule`` are included.
        device: Device of the tensors.

    Attributes:
        schedules: Schedules by name, as ``Range.validate`` returns them.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> torch.Tensor:
            """Return the value of this name as a 0-dimensional tensor."""

    def __init__(self, config: object, device: torch.device | str) -> None:
        self.schedules = {name: getattr(config, name) for name in schedules(type(config))}
        self._tensors = zeros(device, len(self.schedules))
        self._now: dict[str, float] = {}
        for k, name in enumerate(self.schedules):
            setattr(self, name, self._tensors[k])
        self.set(0)

    def set(self, step: float) -> None:
        """Write the values after ``step`` environment steps. Queues one fill for each changed
        value.
        """
        for name, schedule in self.schedules.items():
            value = value_at(schedule, step)
            if self._now.get(name) != value:
                self._now[name] = value
                getattr(self, name).fill_(value)

    def forget(self) -> None:
        """Make the next ``set`` write all values, because another launch may change them."""
        self._now.clear()
