"""Wrong values by kind of argument. Each is an expression: `make` evaluates it anew, since some
values can be used up.
"""

import decimal  # noqa: F401 (expressions name it)
import math  # noqa: F401
import sys  # noqa: F401
from collections.abc import Callable, Mapping

import numpy as np
import torch


class Hostile:
    """An object whose ``repr``, truth and length raise."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __bool__ = __len__ = __repr__


def nested(depth: int = 10_000) -> list:
    """Return a list within a list within a list ..."""
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


def itself() -> list:
    """Return a list that holds itself."""
    found = []
    found.append(found)
    return found


# Right for no argument, whatever its kind.
NEVER = (
    "object()", "Hostile()", "...", "1j", "decimal.Decimal('NaN')", "math.nan",
    "b'cartpole'", "sys", "ValueError('x')", "slice(0, 3)", "(k for k in range(3))", "itself()",
    "nested()",
    "np.timedelta64(3, 's')", "np.array([None, 'x'], object)", "np.array(['a', 'b'])",
    "np.zeros(2, [('a', 'i4')])",
    "np.full(2, np.nan, np.float32)",
    "torch.zeros(2, dtype=torch.complex64)", "torch.zeros(2).to_sparse()",
    "torch.zeros(2, 9, device='meta')",
)  # fmt: skip
NO_NUMBER = ("'1'", "''", "True", "[1, 2]", "{'a': 1}", "int", "math.inf", "np.float16(np.nan)")
NO_TEXT = ("0", "0.5", "True", "[1, 2]", "{'a': 1}", "int", "lambda *_: None", "np.zeros(3)")
INTEGER = (*NO_NUMBER, "0.5", "2.0", "-2**63", "2**64")
NUMBER = (*NO_NUMBER, "-math.inf")
KINDS = {
    "integer": INTEGER,
    "seed": (*INTEGER, "-1"),
    "count": (*INTEGER, "0", "-1"),
    "steps": (*NO_NUMBER, "0", "-1", "0.5", "2**64"),
    "number": NUMBER,
    "probability": (*NUMBER, "-0.1", "1.5"),
    "flag": ("0", "1", "'True'", "''", "0.5", "[1, 2]", "{'a': 1}", "np.zeros(3)", "int"),
    "text": NO_TEXT,
    "infinite": NO_NUMBER[:-2],
    "name": (*NO_TEXT, "''", "' '", "'no such'", "'é漢字🙂'", "'{0} %s {x}'", "'a' * 100_000"),
    "path": (*NO_TEXT, "''"),
    "mapping": ("0", "'x'", "True", "(1, 2)", "{None: 1}", "np.zeros(3)", "int"),
    "function": ("0", "0.5", "'x'", "True", "[1, 2]", "{'a': 1}", "np.zeros(3)"),
    "sequence": ("0.5", "'x'", "True", "{'a': 1}", "int", "[None]", "[[1, 2], 3]"),
    "object": (
        "0",
        "0.5",
        "'x'",
        "True",
        "[1, 2]",
        "{'a': 1}",
        "int",
        "lambda *_: None",
        "np.zeros(3)",
    ),
    "array": (
        "'x'",
        "{'a': 1}",
        "int",
        "np.zeros((2, 2, 2, 2))",
        "np.zeros(0)",
        "torch.zeros(0)",
        "[[1, 2], 3]",
    ),
}
# By type of a right value. Arguments whose kind is another are named below, or in their row.
OF_TYPE = {
    bool: "flag", int: "integer", float: "number", str: "name", Mapping: "mapping",
    Callable: "function",
    tuple | list: "sequence", np.ndarray | torch.Tensor: "array",
}  # fmt: skip
NAMES = {
    "path": "path out folder",
    "text": "title help unit summary",
    "steps": "steps agent_steps",
    "seed": "seed",
    "count": "num_envs num_steps num_minibatches update_epochs batch_size buffer_size episodes fps every trials batch keep "
    "seeds max_episode_steps count obs_dim threads",
    "probability": "gamma gae_lambda share tau",
}
OF_NAME = {name: kind for kind, names in NAMES.items() for name in names.split()}


def kind_of(argument: str, right: object) -> str:
    """Return the kind of an argument."""
    of_type = (kind for one, kind in OF_TYPE.items() if isinstance(right, one))
    return (
        next(of_type, "object")
        if right is None
        else OF_NAME.get(argument) or next(of_type, "object")
    )


def make(expression: str) -> object:
    """Return a wrong value, made anew."""
    return eval(expression)
