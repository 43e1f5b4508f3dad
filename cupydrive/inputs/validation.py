"""Validation of dataclasses. One error reports all invalid values."""

from dataclasses import fields
from functools import cache
from typing import Annotated, get_type_hints

import numpy as np
from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from cupydrive.errors import ParameterError
from cupydrive.inputs.arguments import INT32, T, shown
from cupydrive.protocols import ParamValue

Count = Annotated[int, Ge(1), Le(INT32)]


def validated(where: str, kind: type, values: dict[str, object]) -> dict[str, object]:
    """Validate and convert values for the fields of a dataclass.

    Types are strict: a string, a bool or 4096.0 is not accepted as an integer. NumPy scalars are
    accepted as Python numbers.

    Args:
        where: Function or class that was called, for the message.
        kind: Dataclass with annotations for pydantic, such as ``Annotated[int, Field(ge=1)]``.
        values: Values by name of a field. Fields may be omitted.

    Raises:
        ParameterError: If any value is invalid. The message lists all of them.
    """
    try:
        found = model(kind).model_validate({name: plain(value) for name, value in values.items()})
    except ValidationError as error:
        raise ParameterError(describe(where, error)) from None
    return {name: getattr(found, name) for name in values}


def plain(value: T) -> "T | ParamValue":
    """Convert NumPy scalars to Python numbers, including those in a tuple or list."""
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(each.item() if isinstance(each, np.generic) else each for each in value)
    return value.item() if isinstance(value, np.generic) else value


@cache
def model(kind: type) -> type[BaseModel]:
    """Return a pydantic model of a dataclass in which no field is required."""
    hints = get_type_hints(kind, include_extras=True)
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    return create_model(
        kind.__name__, __config__=config, **{f.name: (hints[f.name], None) for f in fields(kind)}
    )  # type: ignore[call-overload]


def describe(where: str, error: ValidationError) -> str:
    """Return a message with one line for each invalid value."""
    lines: list[str] = []
    values: dict[str, list[str]] = {}
    for each in error.errors():
        cause = each.get("ctx", {}).get("error")
        if isinstance(cause, ParameterError):
            lines.append(str(cause))
            continue
        name = "".join(f"[{part}]" if isinstance(part, int) else "" for part in each["loc"][1:])
        message = str(cause) if cause is not None else each["msg"][0].lower() + each["msg"][1:]
        # A union type gives several messages.
        values.setdefault(f"{each['loc'][0]}{name} = {shown(each['input'])}", []).append(message)
    return "\n".join(
        [
            *lines,
            *(f"{where}: {value}: {' or '.join(messages)}" for value, messages in values.items()),
        ]
    )
