"""Tables: read-only arrays of an environment's kernel, their validation, test data and hashes."""

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cupydrive.errors import SpecError
from cupydrive.inputs.arguments import (
    FLOAT32,
    INT32,
    checked_array,
    checked_bool,
    checked_choice,
    checked_float,
    checked_mapping,
    checked_member,
    checked_str,
    errors_as,
    shown,
)
from cupydrive.inputs.descriptions import SMALLEST, check_shape

if TYPE_CHECKING:
    import torch

TableArrays = dict[str, np.ndarray]  # tables by name
# Range of finite values by type.
RANGES = {"f4": (-FLOAT32, FLOAT32), "i4": (-INT32 - 1, INT32), "u1": (0, 255)}


@dataclass(frozen=True)
class Table:
    """Declaration of a read-only array that all environments share.

    A kernel reads its entries as ``env.table.NAME[i]`` or ``env.table.NAME(i, j)``.

    Args:
        name: Name of the table.
        shape: Shape of the array, a compile-time constant. A new shape needs a new program, but new
            values do not.
        dtype: ``"f4"``, ``"i4"`` or ``"u1"``. Defaults to ``"f4"``.
        low: Smallest value of the random data that tests use without the real data.
        high: Largest value of this random data.
        unit: SI unit, or the counted quantity.
        finite: Whether infinities and NaN are errors. Defaults to True.

    Examples:
        >>> import cupydrive as cd
        >>> height = cd.Table("height", (64, 64), low=0.0, high=3000.0, unit="m")
        >>> height.shape
        (64, 64)
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f4"
    low: float = 0.0
    high: float = 1.0
    unit: str = ""
    finite: bool = True

    @errors_as(SpecError)
    def __post_init__(self) -> None:
        where = f"Table({checked_member('Table', 'name', self.name)!r})"
        least, most = RANGES[checked_choice(where, "dtype", self.dtype, tuple(RANGES))]
        object.__setattr__(self, "shape", check_shape(where, self.shape))
        checked_float(where, "low", self.low, least, most)
        checked_float(where, "high", self.high, self.low, most)
        checked_str(where, "unit", self.unit)
        checked_bool(where, "finite", self.finite)


@errors_as(SpecError)
def checked_tables(
    where: str, declared: Sequence[Table], given: Mapping[str, ArrayLike]
) -> TableArrays:
    """Return read-only, C-contiguous copies of the ``declared`` tables by name, in their order.

    Args:
        where: The environment's name, for messages.
        declared: The declared ``Table``s.
        given: Result of ``tables(params)``: arrays by name.

    Raises:
        SpecError: If a table is missing or not declared, or its shape, type or values differ from
            the declaration.
    """
    arrays, names = checked_mapping(where, "tables", given), [t.name for t in declared]
    if set(arrays) != set(names):
        raise SpecError(
            f"{where}: tables returns {shown(sorted(arrays))}, expected the names that "
            f"table_fields declares: {', '.join(names)}"
        )
    return {
        t.name: checked_table(f"{where}: table {t.name!r}", t, arrays[t.name]) for t in declared
    }


def checked_table(where: str, t: Table, value: ArrayLike) -> np.ndarray:
    """Return a read-only copy of one table in its declared type."""
    array = checked_array(where, "tables", value)
    kinds = "biuf" if t.dtype == "f4" else "biu"
    if array.shape != t.shape or array.dtype.kind not in kinds:
        raise SpecError(
            f"{where} has dtype {array.dtype} and shape {array.shape}, expected {t.dtype!r} and "
            f"{t.shape} as declared in table_fields"
        )
    with np.errstate(over="ignore"):
        kept = np.array(array, t.dtype, order="C")
    wild = ~np.isfinite(kept) & t.finite if t.dtype == "f4" else kept != array
    if wild.any():
        at = np.unravel_index(int(np.argmax(wild)), wild.shape)
        raise SpecError(
            f"{where} holds {array[at]} at {list(map(int, at))}, one of {int(wild.sum())} values "
            f"that are not finite in {kept.dtype}. Correct "
            f"them{', or declare Table(..., finite=False)' * (t.dtype == 'f4')}"
        )
    if t.dtype == "f4":
        kept[np.abs(kept) < np.float32(SMALLEST)] = 0  # kernels flush denormal numbers to 0
    kept.flags.writeable = False
    return kept


@errors_as(SpecError)
def derived_tables(where: str, given: Mapping[str, ArrayLike]) -> tuple[Table, ...]:
    """Derive the declarations of tables from their arrays."""
    declared = []
    for name, value in checked_mapping(where, "tables", given).items():
        array = checked_array(f"{where}: table {name!r}", "tables", value)
        integers = "u1" if array.dtype == np.uint8 else "i4"
        dtype, finite = "f4" if array.dtype.kind == "f" else integers, array[np.isfinite(array)]
        low, high = (
            np.clip([finite.min(), finite.max()], *RANGES[dtype]).tolist()
            if finite.size
            else (0.0, 1.0)
        )
        declared.append(Table(name, array.shape, dtype, low, high))
    return tuple(declared)


def made_up_tables(declared: Sequence[Table], seed: int = 0) -> TableArrays:
    """Return random arrays for ``declared`` tables, uniform in [low, high], for tests without data.

    They depend only on seed, name and shape, and are equal in all versions of NumPy.
    """
    made: TableArrays = {}
    for t in declared:
        words = hashlib.shake_256(f"{t.name} {seed}".encode()).digest(4 * math.prod(t.shape))
        share = np.frombuffer(words, "<u4").reshape(t.shape) * 2.0**-32  # in [0, 1)
        if t.dtype != "f4":
            low, high = math.ceil(t.low), math.floor(t.high)
            made[t.name] = np.floor(low + share * (high + 1 - low)).astype(np.int64)
        else:
            made[t.name] = t.low + share * (t.high - t.low)
    return made


def table_digest(name: str, array: np.ndarray) -> str:
    """Return the SHA-256 of a table's name, type, shape and bytes."""
    about = f"{name} {array.dtype.str} {array.shape} "
    return hashlib.sha256(about.encode() + array.tobytes()).hexdigest()


class WithTable:
    """Wrapper of an author's function that passes the tables as its last argument ``table``.

    ``table.NAME`` is the kernel's read-only array, or a tensor on the same device if an argument is
    a tensor.

    Args:
        function: The author's function.
        arrays: ``arrays(params)`` returns the arrays by name.
        place: Index of the argument ``params``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arrays: Callable[[Any], Mapping[str, np.ndarray]],
        place: int,
    ) -> None:
        self.of_author, self.arrays, self.place = function, arrays, place
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        self._tensors: dict[tuple[Any, str], dict[str, torch.Tensor]] = {}

    def __call__(self, *given: Any) -> Any:
        """Call the author's function with the tables of these parameters."""
        params = given[self.place]
        like = next((x for x in given if hasattr(x, "new_tensor")), None)
        table = self.arrays(params) if like is None else self._beside(like, params)
        return self.of_author(*given, SimpleNamespace(**table))

    def _beside(self, like: "torch.Tensor", params: Hashable) -> dict[str, "torch.Tensor"]:
        """Return the tables as tensors on the device of the tensor ``like``.

        Every call returns the same tensors, because CUDA graphs record addresses.
        """
        key = params, str(like.device)
        if key not in self._tensors:
            import torch  # already imported, since `like` is a tensor

            with torch.inference_mode(False):  # the tensors outlive the caller's mode
                self._tensors[key] = {
                    name: torch.tensor(array, device=like.device)
                    for name, array in self.arrays(params).items()
                }
        return self._tensors[key]
