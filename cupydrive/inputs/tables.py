"""Tables, the read-only arrays that an environment's kernel reads: declared, checked, made up, known by hash."""

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cupydrive.errors import ParameterError, SpecError
from cupydrive.inputs.arguments import (
    FLOAT32,
    INT32,
    checked_array,
    checked_bool,
    checked_choice,
    checked_float,
    checked_instance,
    checked_mapping,
    checked_member,
    checked_sequence,
    checked_str,
    shown,
)
from cupydrive.inputs.descriptions import SMALLEST, check_shape

if TYPE_CHECKING:
    import torch

Arrays = dict[str, np.ndarray]  # tables by name
RANGES = {"f4": (-FLOAT32, FLOAT32), "i4": (-INT32 - 1, INT32)}  # finite values of the types
MOST_TABLES = 32  # a kernel's arguments are at most 4 kB, and each table is a pointer
# Functions that may take tables: which of their arguments is `params`, and how many they have besides.
WITH_TABLES = {
    "reset": (0, 2),
    "step": (0, 5),
    "observe": (0, 3),
    "sample": (0, 3),
    "heuristic": (0, 3),
    "draw": (1, 4),
    "yardsticks": (0, 1),
}


@dataclass(frozen=True)
class Table:
    """One read-only array that all environments share; a kernel reads ``env.table.NAME[i]`` or ``env.table.NAME(i, j)``.

    Args:
        name: The member's name.
        shape: Known to the compiler: another shape is another program, other values are not.
        dtype: ``"f4"`` or ``"i4"``.
        low: Smallest of the values that tests make up where there is no data.
        high: Their largest.
        unit: SI unit, or what is counted.
        finite: Whether infinities and NaN are mistakes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f4"
    low: float = 0.0
    high: float = 1.0
    unit: str = ""
    finite: bool = True

    def __post_init__(self) -> None:
        where = f"Table({checked_member('Table', 'name', self.name, SpecError)!r})"
        checked_choice(where, "dtype", self.dtype, tuple(RANGES), SpecError)
        object.__setattr__(self, "shape", check_shape(where, self.shape))
        least, most = RANGES[self.dtype]
        low, high = (
            checked_float(where, name, getattr(self, name), least, most, SpecError) for name in ("low", "high")
        )
        if low > high:
            raise SpecError(f"{where}: low = {low} is above high = {high}")
        if self.dtype == "i4" and math.ceil(low) > math.floor(high):
            raise SpecError(f"{where}: no whole number lies between low = {low} and high = {high}")
        checked_str(where, "unit", self.unit, SpecError)
        checked_bool(where, "finite", self.finite, SpecError)


class HasTables:
    """What an ``EnvSpec`` does with its ``table_fields`` and ``tables``."""

    name: str
    table_fields: Callable[[Any], tuple[Table, ...]] | None
    tables: Callable[[Any], Mapping[str, np.typing.ArrayLike]] | None

    def bind_tables(self) -> None:
        """Let the functions that take ``table`` be called without it, as those of environments without tables."""
        for name, (place, count) in WITH_TABLES.items():
            function = getattr(self, name)
            if isinstance(function, WithTable):  # `replace` passes on what it finds
                function = function.function
            if self.has_tables and function is not None and takes_table(function, count):
                function = WithTable(function, self.table_arrays, place)
            object.__setattr__(self, name, function)

    @property
    def has_tables(self) -> bool:
        """Whether the kernel reads tables, with some parameters at least."""
        return self.tables is not None

    def declared_tables(self, params: object) -> tuple[Table, ...]:
        """Return the tuple of ``Table``; without ``table_fields`` it is read off the arrays."""
        return _declared(self, params) if self.has_tables else ()

    def table_arrays(self, params: object) -> Arrays:
        """Return the read-only arrays by name, of the shapes and types declared; empty without tables.

        Raises:
            SpecError: If an array is not what was declared.
            MissingDataError: If the data is not here.
        """
        return _arrays(self, params) if self.has_tables else {}

    def table_digests(self, params: object) -> dict[str, str]:
        """Return the SHA-256 of each table by name: of its name, type, shape and bytes."""
        return _digests(self, params) if self.has_tables else {}

    def about_tables(self, params: object) -> dict[str, dict[str, str]]:
        """Return what a file says of the tables: ``{"tables": table_digests}``, or nothing without tables."""
        digests = self.table_digests(params)
        return {"tables": digests} if digests else {}

    def require_tables(self, what: str, params: object, kept: Mapping[str, str] | None) -> None:
        """Raise ``ParameterError`` if a file was made with other tables than there are here.

        Args:
            what: The file, for the message.
            params: Parameters of the environment.
            kept: What the file says, ``table_digests`` when it was made; None: there were no tables.
        """
        kept, now = kept or {}, self.table_digests(params)
        for name in (*now, *kept):
            if kept.get(name) != now.get(name):
                then, here = (f"SHA-256 {of[name][:12]}..." if name in of else "none" for of in (kept, now))
                raise ParameterError(
                    f"{what} was made with another table {name!r} of {self.name} ({then}; here {here}); it needs the same data"
                )

    def with_made_up_tables(self, seed: int = 0) -> Self:
        """Return this environment with made-up values in its tables, for tests without data.

        It is itself if it has no tables, or if ``tables`` alone says which there are: then they come from no data.
        """
        if self.table_fields is None:
            return self
        return replace(self, tables=lambda params: made_up_tables(self, params, seed))  # type: ignore[type-var]


@lru_cache(maxsize=64)
def _declared(spec: Any, params: object) -> tuple[Table, ...]:
    if spec.table_fields is None:
        declared = _derived(spec.name, spec.tables(params))
    else:
        declared = checked_sequence(spec.name, "table_fields", spec.table_fields(params), SpecError)
    for t in declared:
        checked_instance(spec.name, "table_fields", t, Table, "a tuple of cupydrive.Table", SpecError)
    names = [t.name for t in declared]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(
                f"{spec.name}: {names.count(name)} tables are called {name!r}; each needs a name of its own"
            )
    if len(names) > MOST_TABLES:
        raise SpecError(
            f"{spec.name}: {len(names)} tables; at most {MOST_TABLES} fit, so put some together into one array"
        )
    if "table" in [g.name for g in spec.groups(params)]:
        raise SpecError(f"{spec.name}: a group is called 'table', as kernels call the tables; choose another name")
    return declared


@lru_cache(maxsize=16)  # a check draws parameters often, and a table may have megabytes
def _arrays(spec: Any, params: object) -> Arrays:
    return checked_tables(spec.name, spec.declared_tables(params), spec.tables(params))


@lru_cache(maxsize=64)
def _digests(spec: Any, params: object) -> dict[str, str]:
    return {name: _digest(name, array) for name, array in spec.table_arrays(params).items()}


def _digest(name: str, array: np.ndarray) -> str:
    about = f"{name} {array.dtype.str} {array.shape} "
    return hashlib.sha256(about.encode() + array.tobytes()).hexdigest()


def checked_tables(where: str, declared: Sequence[Table], given: object) -> Arrays:
    """Return the arrays of ``declared`` tables, a dictionary by name in their order: C-contiguous copies, read-only.

    Args:
        where: The environment's name, for messages.
        declared: The ``Table`` of each.
        given: What ``tables(params)`` has returned: arrays by name.

    Raises:
        SpecError: If a table is missing or not declared, or its shape, type or values are not those declared.
    """
    given, names = checked_mapping(where, "tables", given, SpecError), [t.name for t in declared]
    if set(given) != set(names):
        raise SpecError(
            f"{where}: tables returns {shown(sorted(given))}, and table_fields declares {', '.join(names)}; they must be equal"
        )
    return {t.name: _checked(f"{where}: table {t.name!r}", t, given[t.name]) for t in declared}


def _checked(where: str, t: Table, value: object) -> np.ndarray:
    array = checked_array(where, "tables", value, SpecError)
    if array.shape != t.shape:
        raise SpecError(
            f"{where} has the shape {array.shape}, and table_fields declares {t.shape}; return that shape, or declare this one"
        )
    if t.dtype == "i4":
        return _kept(_whole(where, array))
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32)
    wild = ~np.isfinite(rounded)
    if t.finite and wild.any():
        at = _first(wild)
        raise SpecError(
            f"{where} holds {array[at]} at {list(map(int, at))}, one of {int(wild.sum())} values that are no finite float32; "
            "mend them, or declare Table(..., finite=False)"
        )
    rounded[np.abs(rounded) < np.float32(SMALLEST)] = 0  # as kernels read such numbers
    return _kept(rounded)


def _whole(where: str, array: np.ndarray) -> np.ndarray:
    """Return an array of whole numbers as int32."""
    if array.dtype.kind == "f":
        raise SpecError(
            f"{where} is of {array.dtype}, and table_fields declares whole numbers; declare dtype='f4', or round"
        )
    rounded = array.astype(np.int32)
    if (wild := rounded != array).any():
        at = _first(wild)
        raise SpecError(
            f"{where} holds {array[at]} at {list(map(int, at))}, which no int32 can; keep within +-{INT32:,}"
        )
    return rounded


def _first(where: np.ndarray) -> tuple[np.intp, ...]:
    return np.unravel_index(int(np.argmax(where)), where.shape)


def _kept(array: np.ndarray) -> np.ndarray:
    array = np.array(array, order="C")
    array.flags.writeable = False
    return array


def _derived(where: str, given: object) -> tuple[Table, ...]:
    """Return what ``table_fields`` would have declared for these arrays."""
    declared = []
    for name, value in checked_mapping(where, "tables", given, SpecError).items():
        checked_member(where, "tables", name, SpecError)
        array = checked_array(f"{where}: table {name!r}", "tables", value, SpecError)
        dtype, finite = "f4" if array.dtype.kind == "f" else "i4", array[np.isfinite(array)]
        low, high = np.clip([finite.min(), finite.max()], *RANGES[dtype]).tolist() if finite.size else (0.0, 1.0)
        declared.append(Table(name, array.shape, dtype, low, high))
    return tuple(declared)


def made_up_tables(spec: Any, params: object, seed: int = 0) -> Arrays:
    """Return arrays by name for the tables of ``spec``, uniform from ``low`` to ``high``: for tests without data.

    They depend on seed, name and shape alone, and are the same in all versions of NumPy.
    """
    made = {}
    for t in spec.declared_tables(params):
        words = hashlib.shake_256(f"{t.name} {seed}".encode()).digest(4 * math.prod(t.shape))
        share = np.frombuffer(words, "<u4").reshape(t.shape) * 2.0**-32  # in [0, 1)
        if t.dtype == "i4":
            low, high = math.ceil(t.low), math.floor(t.high)
            made[t.name] = np.floor(low + share * (high + 1 - low)).astype(np.int64)
        else:
            made[t.name] = t.low + share * (t.high - t.low)
    return made


def takes_table(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function takes ``table`` after ``count`` other arguments."""
    try:
        signature = inspect.signature(function)
        signature.bind(*range(count))
        return "table" in signature.parameters
    except (TypeError, ValueError):  # it takes more; or it is a builtin, of which nothing is known
        return True


class WithTable:
    """A function whose author gave it a last argument ``table``, called like that of an environment without tables.

    ``table.NAME`` are the read-only arrays that the kernel has; tensors on the same device where an argument is a tensor.

    Args:
        function: The author's.
        arrays: ``arrays(params)`` returns the arrays by name.
        place: Which argument is ``params``.
    """

    def __init__(self, function: Callable[..., Any], arrays: Callable[[Any], Arrays], place: int) -> None:
        self.function, self.arrays, self.place = function, arrays, place
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        self._tensors: dict[tuple[Any, str], dict[str, torch.Tensor]] = {}

    def __call__(self, *given: Any) -> object:
        """Call the author's function with the tables of these parameters."""
        params = given[self.place]
        arrays = self.arrays(params)
        like = next((x for x in given if hasattr(x, "new_tensor")), None)
        if like is not None:
            arrays = self._beside(like, params, arrays)
        return self.function(*given, SimpleNamespace(**arrays))

    def _beside(self, like: "torch.Tensor", params: object, arrays: Arrays) -> dict[str, "torch.Tensor"]:
        """Return tensors on the device of the tensor ``like``: the same at each call, since CUDA graphs keep addresses."""
        key = params, str(like.device)
        if key not in self._tensors:
            import torch  # which `like` has brought

            with torch.inference_mode(False):  # they outlive the caller's mode
                self._tensors[key] = {name: torch.tensor(array, device=like.device) for name, array in arrays.items()}
        return self._tensors[key]
