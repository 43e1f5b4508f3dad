"""Odd values: what a caller may hand over by mistake. Each is made anew, since some of them can be used up or changed."""

import array
import decimal
import fractions
import math
import pathlib
import sys
import tempfile

import numpy as np
import torch

_folder = tempfile.TemporaryDirectory()
MISSING = (
    pathlib.Path(_folder.name) / "missing"
)  # of this process, which may make it: the next one finds it missing again


class Hostile:
    """An object that nobody can look at: its ``repr``, its truth and its length raise."""

    def __repr__(self):
        raise RuntimeError("no repr")

    __bool__ = __len__ = __repr__


def nested(depth):
    """Return a list within a list within a list ..."""
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


def itself():
    """Return a list that holds itself."""
    found = []
    found.append(found)
    return found


ODD = {
    # ---- numbers ----
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "3": lambda: 3,
    "2**31-1": lambda: 2**31 - 1,
    "2**31": lambda: 2**31,
    "2**62": lambda: 2**62,
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "-2**63": lambda: -(2**63),
    "10**5000": lambda: 10**5000,
    "0.0": lambda: 0.0,
    "-0.0": lambda: -0.0,
    "0.5": lambda: 0.5,
    "2.0": lambda: 2.0,
    "4096.0": lambda: 4096.0,
    "1e300": lambda: 1e300,
    "5e-324": lambda: 5e-324,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "True": lambda: True,
    "False": lambda: False,
    "complex": lambda: 1j,
    "Decimal": lambda: decimal.Decimal("1.5"),
    "Decimal nan": lambda: decimal.Decimal("NaN"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "np.int8": lambda: np.int8(-1),
    "np.int64": lambda: np.int64(2),
    "np.uint64": lambda: np.uint64(2**64 - 1),
    "np.float32": lambda: np.float32(2.0),
    "np.float16 nan": lambda: np.float16(np.nan),
    "np.bool": lambda: np.bool_(True),
    "np.timedelta64": lambda: np.timedelta64(3, "s"),
    # ---- texts and paths ----
    "empty": lambda: "",
    "space": lambda: " ",
    "x": lambda: "x",
    "NUL": lambda: "a\0b",
    "unicode": lambda: "é漢字🙂",
    "surrogate": lambda: "\ud800",
    "lines": lambda: "a = 1\nb = 2\n",
    "long": lambda: "a" * 100_000,
    "braces": lambda: "{0} %s {x}",
    "x.py": lambda: "x.py",
    "NUL.py": lambda: "a\0.py",
    "surrogate.py": lambda: "\ud800.py",
    "long.py": lambda: "a" * 5000 + ".py",
    "x.mp4": lambda: "missing/x.mp4",
    "bytes": lambda: b"cartpole",
    "bytearray": lambda: bytearray(b"x"),
    "np.str": lambda: np.str_("x"),
    "Path": lambda: MISSING / "x",
    "Path .py": lambda: MISSING / "x.py",
    "folder": lambda: pathlib.Path("."),
    "folder text": lambda: "/proc",
    # ---- nothing, containers, functions ----
    "None": lambda: None,
    "Ellipsis": lambda: ...,
    "list": lambda: [],
    "tuple": lambda: (),
    "dict": lambda: {},
    "set": lambda: {1, 2},
    "ints": lambda: [1, 2],
    "pair of nan": lambda: (math.nan, math.inf),
    "texts": lambda: ("a", "b"),
    "dict of None": lambda: {None: 1},
    "dict of texts": lambda: {"\ud800": "x"},
    "dict of dicts": lambda: {"cart": {}},
    "nested": lambda: nested(10_000),
    "itself": itself,
    "range": lambda: range(3),
    "generator": lambda: (k for k in range(3)),
    "object": object,
    "hostile": Hostile,
    "class": lambda: int,
    "function": lambda: lambda *_: None,
    "module": lambda: sys,
    "error": lambda: ValueError("x"),
    "slice": lambda: slice(0, 3),
    # ---- arrays ----
    "array.array": lambda: array.array("i", [1, 2]),
    "np empty": lambda: np.zeros(0),
    "np scalar": lambda: np.array(2),
    "np floats": lambda: np.zeros(3),
    "np 3-d": lambda: np.zeros((2, 2, 2), np.int32),
    "np strided": lambda: np.zeros((4, 2), np.int32)[::2, 0],
    "np big-endian": lambda: np.zeros(2, ">i4"),
    "np object": lambda: np.array([None, "x"], object),
    "np texts": lambda: np.array(["a", "b"]),
    "np nan": lambda: np.full(2, np.nan, np.float32),
    "np struct": lambda: np.zeros(2, [("a", "i4")]),
    "torch empty": lambda: torch.zeros(0),
    "torch scalar": lambda: torch.tensor(2),
    "torch ints": lambda: torch.zeros(2, dtype=torch.int32),
    "torch strided": lambda: torch.zeros(4, dtype=torch.int64)[::2],
    "torch meta": lambda: torch.zeros(2, dtype=torch.int32, device="meta"),
    "torch meta bool": lambda: torch.zeros(2, dtype=torch.bool, device="meta"),
    "torch gradient": lambda: torch.zeros(2, requires_grad=True),
    "torch nan": lambda: torch.full((2,), math.nan),
    "torch complex": lambda: torch.zeros(2, dtype=torch.complex64),
    "torch bool": lambda: torch.zeros(2, dtype=torch.bool),
    "torch half": lambda: torch.zeros(2, dtype=torch.bfloat16),
    "torch sparse": lambda: torch.zeros(2).to_sparse(),
    "torch int64": lambda: torch.full((2,), 2**40),
}
