"""Validation of single arguments: each function returns the converted value or raises an error.

Public functions call these first, before anything is changed. Messages name the function or
environment, the argument, its value and the expected value. NumPy scalars are accepted as Python
numbers.
"""

import contextlib
import inspect
import keyword
import math
import os
import reprlib
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

import numpy as np

from cupydrive.errors import ParameterError, did_you_mean

T = TypeVar("T")

INT32 = 2**31 - 1
FLOAT32 = 3.4028234663852886e38  # the largest float32
MOST_LETTERS = 100  # maximum length of a name
# Maximum length of a list of numbers: one for each agent of the largest environments.
MOST_NUMBERS = 65_536
MOST_SIDE = 16_382  # maximum side of a picture in pixels: WebP's limit, which is below H.264's
# Common names of devices, and the corresponding names in this package.
MEANT = {"gpu": "cuda", "CUDA": "cuda", "CPU": "cpu", "host": "cpu"}


# Reserved words of C++17 and C++20, including alternative spellings of operators.
WORDS_OF_CPP = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
    return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq
"""


_SHORT = reprlib.Repr()  # truncates long and deep values and never raises
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 6


@contextlib.contextmanager
def errors_as(kind: type[Exception]) -> Iterator[None]:
    """Convert each ``ParameterError`` to the error class ``kind``."""
    try:
        yield
    except ParameterError as error:
        raise kind(str(error)) from None


def shown(value: Any) -> str:
    """Format a value as one short line for a message. Paths are not truncated."""
    text = repr(str(value)) if isinstance(value, Path) else _SHORT.repr(value)
    return (
        " ".join(text.split()) if "\n" in text else text
    )  # the repr of an array has several lines


def kind_of(value: Any) -> str:
    """Return the name of a value's type with its article, for a message."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' or name == 'ndarray' else 'a'} {name}"


def wrong_type(where: str, name: str, value: object, words: str) -> ParameterError:
    """Return the error for a value of a wrong type. ``words`` describe the expected type."""
    return ParameterError(f"{where}: {name} = {shown(value)} is {kind_of(value)}, expected {words}")


def is_number(value: Any, kinds: type | UnionType) -> bool:
    """Return whether ``value`` is a number of one of ``kinds``, but no bool and no timedelta64."""
    return isinstance(value, kinds) and not isinstance(value, bool | np.timedelta64)


def _within(low: float, high: float, unit: str) -> str:
    """Format the limits of a number."""
    if low <= -FLOAT32 and high >= FLOAT32:
        return "a finite float32" if high == FLOAT32 else "a finite number"
    return f"{low} to {high}{f' {unit}' * bool(unit)}"


def checked_int(
    where: str,
    name: str,
    value: Any,
    low: float = 1,
    high: float = INT32,
    unit: str = "",
) -> int:
    """Validate an integer in [low, high]. Bools and floats (even 4096.0) are rejected.

    Args:
        where: The function or environment, for the message.
        name: The argument.
        value: The caller's value.
        low: Smallest allowed value.
        high: Largest allowed value.
        unit: Unit of the limits, for the message.

    Raises:
        ParameterError: If the value is not an integer or out of range.
    """
    if not is_number(value, int | np.integer):
        such = f", such as {int(value)}" if isinstance(value, float) and value.is_integer() else ""
        raise wrong_type(where, name, value, f"an int{such}")
    number = int(value)
    if not low <= number <= high:
        raise ParameterError(
            f"{where}: {name} = {shown(value)} is out of range, expected {_within(low, high, unit)}"
        )
    return number


def checked_float(
    where: str,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    unit: str = "",
) -> float:
    """Validate a finite float in [low, high]. Ints are accepted, and bools are rejected."""
    if not is_number(value, int | float | np.integer | np.floating):
        raise wrong_type(where, name, value, "a number")
    number = float(value)
    if not math.isfinite(number) or not low <= number <= high:
        raise ParameterError(
            f"{where}: {name} = {shown(value)} is out of range, expected {_within(low, high, unit)}"
        )
    return number


def checked_bool(where: str, name: str, value: Any) -> bool:
    """Validate a bool. Numbers are rejected."""
    if not isinstance(value, bool | np.bool_):
        raise wrong_type(where, name, value, "True or False")
    return bool(value)


def checked_choice(where: str, name: str, value: Any, choices: Collection[str]) -> str:
    """Validate that ``value`` is one of the strings ``choices``."""
    if isinstance(value, str) and value in choices:
        return str(value)
    near = did_you_mean(MEANT.get(value, value) if isinstance(value, str) else "", choices)
    *others, last = map(repr, choices)
    listed = f"{', '.join(others)} or {last}" if others else last
    raise ParameterError(f"{where}: {name} = {shown(value)}, expected {listed}.{near}")


def checked_str(where: str, name: str, value: Any) -> str:
    """Validate a str."""
    if not isinstance(value, str):
        raise wrong_type(where, name, value, "a str")
    return str(value)


def checked_path(where: str, name: str, value: Any) -> Path:
    """Convert a str or ``os.PathLike`` to a ``pathlib.Path``. ``~`` is expanded."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise wrong_type(where, name, value, "a path: a str or a Path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ParameterError(
            f"{where}: {name} = {shown(value)}: unknown home folder. Pass the full path"
        ) from None


def require_folder(name: str, path: Path) -> None:
    """Raise ``ParameterError`` unless the parent folder of the file ``path`` exists."""
    folder = path.absolute().parent
    if not os.path.isdir(folder):
        raise ParameterError(
            f"{name} = {shown(str(path))} cannot be written: the folder {shown(str(folder))} does "
            f"not exist"
        )


def checked_target(name: str, path: Path) -> Path:
    """Check that ``path`` can be written, so that an error is raised before minutes of work."""
    folder = path.absolute().parent
    require_folder(name, path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ParameterError(
            f"{name} = {shown(str(path))} cannot be written: it is a folder, a device or a broken "
            f"link"
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as reason:
        raise ParameterError(
            f"{name} = {shown(str(path))} cannot be written: {reason.strerror}. Pass a file in a "
            f"writable folder"
        ) from None


def checked_callable(
    where: str, name: str, value: Any, takes: Sequence[str] = ()
) -> Callable[..., Any]:
    """Validate that ``value`` is callable with the arguments ``takes``.

    Arguments are not checked if the signature is unknown.
    """
    if not callable(value):
        raise wrong_type(where, name, value, "a function")
    signature = None
    with contextlib.suppress(Exception):  # functions written in C may have no signature
        signature = inspect.signature(value)
    try:
        if takes and signature is not None:
            signature.bind(*takes)
    except TypeError as reason:
        raise ParameterError(
            f"{where}: {name} = {shown(value)} must be a function of ({', '.join(takes)}): {reason}"
        ) from None
    return value


def checked_mapping(where: str, name: str, value: Any) -> dict[str, Any]:
    """Validate a mapping with string keys and return it as a dict."""
    if not isinstance(value, Mapping):
        raise wrong_type(where, name, value, "a dict")
    for key in value:
        checked_str(where, f"a key of {name}", key)
    return dict(value)


def checked_sequence(where: str, name: str, value: Any) -> tuple[Any, ...]:
    """Validate a list or a tuple and return it as a tuple."""
    if not isinstance(value, list | tuple):
        raise wrong_type(where, name, value, "a tuple or a list")
    return tuple(value)


def checked_list(
    where: str,
    name: str,
    value: Any,
    check: Callable[..., Any],
    low: float,
    high: float,
    unit: str = "",
) -> tuple[Any, ...]:
    """Convert a sequence, an array or a tensor on any device to a tuple of Python numbers.

    Args:
        where: The function or environment, for the message.
        name: The argument.
        value: The caller's value. None gives an empty tuple.
        check: ``checked_float`` or ``checked_int``, called for each number. Messages name the
            number ``NAME[k]``.
        low: Smallest allowed value.
        high: Largest allowed value.
        unit: Unit of the limits, for the message.
    """
    numbers: Any = () if value is None else value
    # Objects without values, such as a meta tensor, are rejected below.
    with contextlib.suppress(Exception):
        numbers = numbers.tolist()
    if not isinstance(numbers, Sequence) or isinstance(numbers, str | bytes | bytearray):
        raise wrong_type(where, name, value, "numbers, such as [0, 1, 2]")
    if len(numbers) > MOST_NUMBERS:
        raise ParameterError(
            f"{where}: {name} has {len(numbers):,} numbers, expected at most {MOST_NUMBERS:,}"
        )
    # Convert -0.0 to 0.0: tuples are cache keys, and equal keys must be bitwise identical.
    return tuple(
        check(where, f"{name}[{k}]", x, low, high, unit) + 0 for k, x in enumerate(numbers)
    )


def check_each(
    where: str,
    params: Hashable,
    names: Sequence[str],
    count: int,
    low: float = -math.inf,
    high: float = math.inf,
    unit: str = "",
    of_what: str = "agents",
) -> None:
    """Raise ``ParameterError`` unless each array is empty or has ``count`` numbers in [low, high].

    Args:
        where: The environment, for the message.
        params: Parameters of the environment.
        names: Names of the arrays.
        count: Required length of each array.
        low: Smallest allowed number.
        high: Largest allowed number.
        unit: Unit of the limits, for the message.
        of_what: Plural noun for the ``count`` objects, for the message.
    """
    for name in names:
        numbers = getattr(params, name)
        if numbers and len(numbers) != count:
            raise ParameterError(
                f"{where}: {name} has {len(numbers)} numbers, but there are {count} {of_what}. "
                f"Pass one for each, or none"
            )
        for k, number in enumerate(numbers):
            checked_float(where, f"{name}[{k}]", number, low, high, unit=unit)


def checked_instance(
    where: str, name: str, value: Any, kind: type[T] | tuple[type[T], ...], words: str
) -> T:
    """Validate that ``value`` is an instance of ``kind``. ``words`` describe it in the message."""
    if not isinstance(value, kind):
        raise wrong_type(where, name, value, words)
    return value


def checked_name(where: str, name: str, value: Any) -> str:
    """Validate an identifier of both Python and C++."""
    if (
        not isinstance(value, str)
        or not value.isidentifier()
        or not value.isascii()
        or len(value) > MOST_LETTERS
    ):
        raise ParameterError(
            f"{where}: {name} = {shown(value)}, expected an identifier of ASCII letters, digits "
            f"and _, such as 'my_name'"
        )
    return str(value)


def checked_member(where: str, name: str, value: Any) -> str:
    """Validate the name of a struct member in kernels written in C++ or Python."""
    checked_name(where, name, value)
    reserved = value.startswith("__") or (
        value[0] == "_" and value[1:2].isupper()
    )  # reserved for compilers
    if reserved or value in WORDS_OF_CPP.split() or keyword.iskeyword(value):
        raise ParameterError(
            f"{where}: {name} = {value!r} is a word of C++ or Python, or reserved for compilers, "
            "and cannot name a member of a kernel's struct. Choose another, such as 'my_name'"
        )
    return str(value)


def checked_array(where: str, name: str, value: Any) -> np.ndarray:
    """Convert an array, a number, or nested lists of numbers to a NumPy array of a numeric type."""
    array = np.array(None)
    if isinstance(value, np.ndarray | np.number | np.bool_ | int | float | list | tuple):
        # Lists may be ragged, too deep, or contain other objects than numbers.
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise wrong_type(where, name, value, "an array of numbers")
    # Convert to native byte order, and to a dtype name that torch accepts.
    native = np.dtype(array.dtype.str[1:])
    return array.astype(native, copy=False).view(native)


def checked_numbers(
    where: str,
    name: str,
    value: Any,
    shape: tuple[int, ...],
    low: float = -math.inf,
    high: float = math.inf,
) -> np.ndarray:
    """Convert a number or an array of ``shape`` to float64, with entries in [low, high]."""
    numbers = checked_array(where, name, value)
    if numbers.dtype.kind == "b" or numbers.shape not in ((), shape):
        raise ParameterError(
            f"{where}: {name} = {shown(value)}, expected a number, or numbers of shape {shape}"
        )
    numbers = numbers.astype(np.float64)
    if not ((numbers >= low) & (numbers <= high)).all():
        raise ParameterError(
            f"{where}: {name} = {shown(value)} is out of range, expected {_within(low, high, '')}"
        )
    return numbers


def checked_size(where: str, name: str, value: Any) -> tuple[int, int]:
    """Validate the (width, height) of a picture in pixels.

    Both must be even, because video codecs halve the resolution of colors.
    """
    if (
        not isinstance(value, tuple | list | np.ndarray)
        or not np.iterable(value)
        or len(value) != 2
    ):
        raise ParameterError(
            f"{where}: {name} = {shown(value)}, expected (width, height) in pixels, such as "
            f"(960, 640)"
        )
    width, height = (checked_int(where, name, side, 2, MOST_SIDE) for side in value)
    if width % 2 or height % 2:
        near = max(2, width // 2 * 2), max(2, height // 2 * 2)
        raise ParameterError(
            f"{where}: {name} = {shown(value)}, expected even numbers, such as {near}"
        )
    return width, height
