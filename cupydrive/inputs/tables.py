"""Tables, the read-only arrays that an environment's kernel reads: what their author gives, checked; made up; known by hash."""

import hashlib
from types import SimpleNamespace

import numpy as np

from cupydrive.errors import SpecError
from cupydrive.inputs.arguments import INT32, checked_array, checked_mapping, checked_name, shown

DTYPES = {"f4": np.float32, "i4": np.int32}
MOST_TABLES = 32  # a kernel's arguments are at most 4 kB, and each table is a pointer


def checked_tables(where, declared, given):
    """Return the arrays of ``declared`` tables, a dictionary by name in their order: C-contiguous copies, read-only.

    Args:
        where: The environment's name, for messages.
        declared: The ``Table`` of each.
        given: What ``tables(params)`` has returned: arrays by name.

    Raises:
        SpecError: If a table is missing or not declared, or its shape, type or values are not those declared.
    """
    given, names = checked_mapping(where, "tables", given, SpecError), [t.name for t in declared]
    for name in given:
        if name not in names:
            raise SpecError(
                f"{where}: tables has {shown(name)}, which table_fields does not declare; it declares {', '.join(names)}"
            )
    for name in names:
        if name not in given:
            raise SpecError(
                f"{where}: tables lacks {name!r}, which table_fields declares; return it, or declare it no more"
            )
    return {t.name: _checked(f"{where}: table {t.name!r}", t, given[t.name]) for t in declared}


def _checked(where, t, value):
    array = checked_array(where, "tables", value, SpecError)
    if array.shape != t.shape:
        raise SpecError(
            f"{where} has the shape {array.shape}, and table_fields declares {t.shape}; return that shape, or declare this one"
        )
    if t.dtype == "i4":
        if array.dtype.kind == "f":
            raise SpecError(
                f"{where} has {array.dtype} values, and table_fields declares int32 ones; declare dtype='f4'"
            )
        wild = (array < -INT32 - 1) | (array > INT32)
        if wild.any():
            raise SpecError(f"{where} holds {array[wild].flat[0]}, which no int32 can; keep within +-{INT32:,}")
        return _kept(array.astype(np.int32))
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32)
    wild = ~np.isfinite(rounded)
    if t.finite and wild.any():
        at, number = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wild))), np.atleast_1d(array)
        raise SpecError(
            f"{where} holds {number[at]} at {at}, {int(wild.sum())} values in all that are no finite float32; mend them, or "
            "declare Table(..., finite=False)"
        )
    rounded[np.abs(rounded) < np.finfo(np.float32).smallest_normal] = 0  # as kernels read such numbers
    return _kept(rounded)


def _kept(array):
    array = np.array(array, order="C")
    array.flags.writeable = False
    return array


def derived_tables(where, given, table):
    """Return what ``table_fields`` would have declared for the arrays ``given``; ``table`` is the class ``Table``."""
    declared = []
    for name, value in checked_mapping(where, "tables", given, SpecError).items():
        checked_name(where, "tables", name, SpecError)
        array = checked_array(f"{where}: table {name!r}", "tables", value, SpecError)
        finite = array[np.isfinite(array)] if array.size else array
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        declared.append(table(name, array.shape, "f4" if array.dtype.kind == "f" else "i4", low, high))
    return tuple(declared)


def made_up_tables(declared, seed=0):
    """Return arrays by name for ``declared`` tables, uniform between ``low`` and ``high``: for tests without any data."""
    made = {}
    for number, t in enumerate(declared):
        rng = np.random.default_rng([seed, number])
        if t.dtype == "i4":
            made[t.name] = rng.integers(int(t.low), int(t.high), t.shape, endpoint=True)
        else:
            made[t.name] = rng.uniform(t.low, t.high, t.shape)
    return made


def table_digest(name, array):
    """Return the SHA-256 of a table: of its name, type, shape and bytes."""
    about = f"{name} {array.dtype.str} {array.shape} "
    return hashlib.sha256(about.encode() + array.tobytes()).hexdigest()


class WithTable:
    """A function of an environment's reference whose author gave it a last argument ``table``; whoever calls it does not.

    It is called like the same function of an environment without tables. ``table.NAME`` are the read-only arrays that the
    kernel has; torch tensors of the same device where observations are tensors.

    Args:
        function: The author's.
        arrays: ``arrays(params)`` returns the arrays by name.
        place: Which argument is ``params``.
    """

    def __init__(self, function, arrays, place):
        self.function, self.arrays, self.place = function, arrays, place
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        self._tensors = {}

    def __call__(self, *given):
        """Call the author's function with the tables of these parameters."""
        params = given[self.place]
        arrays = self.arrays(params)
        like = next((x for x in given if hasattr(x, "new_tensor")), None)
        if like is not None:
            arrays = self._on_device(params, arrays, like)
        return self.function(*given, SimpleNamespace(**arrays))

    def _on_device(self, params, arrays, like):
        """Return tensors beside the tensor ``like``; the same ones at each call, since a CUDA graph keeps their addresses."""
        key = params, str(like.device)
        if key not in self._tensors:
            import torch  # it is loaded: `like` is of it

            self._tensors[key] = {name: torch.tensor(array, device=like.device) for name, array in arrays.items()}
        return self._tensors[key]
