"""Settings of algorithms: dataclass fields that check themselves."""

from dataclasses import dataclass, field, fields

import numpy as np

from cupydrive.arguments import checked_int
from cupydrive.errors import ParameterError
from cupydrive.policy import ACTIVATIONS
from cupydrive.schedule import checked_schedule


def scheduled(default, low=-np.inf, high=np.inf):
    """Return a dataclass field that holds a ``Schedule`` with values in [low, high]."""
    return field(default=default, metadata={"schedule": True, "low": low, "high": high})


def counted(default):
    """Return a dataclass field that holds a positive int."""
    return field(default=default, metadata={"count": True})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all algorithms' settings share: every field is checked when they are made."""

    def __post_init__(self):
        kind = type(self).__name__
        for f in fields(self):
            value, where = getattr(self, f.name), f"{kind}.{f.name}"
            if f.metadata.get("schedule"):
                value = checked_schedule(where, value, f.metadata["low"], f.metadata["high"])
                object.__setattr__(self, f.name, value)
            elif f.metadata.get("count"):
                checked_int(kind, f.name, value)
            elif f.type is bool and not isinstance(value, bool):
                raise ParameterError(f"{where} = {value!r}; it must be True or False")
        if isinstance(self.hidden, int):
            raise ParameterError(f"hidden = {self.hidden!r}; it must be a tuple of widths, such as (64, 64)")
        object.__setattr__(self, "hidden", tuple(checked_int(kind, "hidden", n) for n in self.hidden))
        if self.activation not in ACTIVATIONS:
            raise ParameterError(f"activation = {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}")
