"""Checks of single arguments: each function returns the value as it is used, or says what is wrong
with it.

Public functions call these where an argument enters, before anything is changed. Messages name the
function or environment, the argument, its value and what it must be. NumPy's scalars count as the
Python numbers they stand for.
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
MOST_LETTERS = 100  # of a name
# of an argument that lists them: one for each agent of the largest environments
MOST_NUMBERS = 65_536
MOST_SIDE = 16_382  # pixels of a picture: WebP's widest, H.264 takes 2 more
# Names of devices that people write, and what they mean here.
MEANT = {"gpu": "cuda", "CUDA": "cuda", "CPU": "cpu", "host": "cpu"}


# Words of C++ (2017 and 2020, and its other spellings of operators) that can name nothing in a
# kernel.
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


class _Short(reprlib.Repr):
    """One short line for any value: long texts are cut, deep ones too, and a ``repr`` that fails is
    replaced.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 6


_SHORT = _Short()


@contextlib.contextmanager
def errors_as(kind: type[Exception]) -> Iterator[None]:
    """Raise ``kind``, a class of errors, in place of each ``ParameterError``."""
    try:
        yield
    except ParameterError as error:
        raise kind(str(error)) from None


def shown(value: Any) -> str:
    """Return a value as one short line for a message; a path in full."""
    text = repr(str(value)) if isinstance(value, Path) else _SHORT.repr(value)
    return " ".join(text.split()) if "\n" in text else text  # arrays take several lines


def kind_of(value: Any) -> str:
    """Return the name of a value's type with its article, for a message."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' or name == 'ndarray' else 'a'} {name}"


def wrong_type(where: str, name: str, value: object, words: str) -> ParameterError:
    """Return the error for a value of a wrong type; ``words`` state what it must be."""
    return ParameterError(
        f"{where}: {name} = {shown(value)} is {kind_of(value)}; it must be {words}"
    )


def is_number(value: Any, kinds: type | UnionType) -> bool:
    """Return whether ``value`` is one of ``kinds`` of numbers; bools and NumPy's time spans only
    look as if they were.
    """
    return isinstance(value, kinds) and not isinstance(value, bool | np.timedelta64)


def _within(low: float, high: float, unit: str) -> str:
    """Return the limits of a number in words."""
    if low <= -FLOAT32 and high >= FLOAT32:
        return "finite and within float32's range" if high == FLOAT32 else "finite"
    return f"from {low} to {high}{f' {unit}' * bool(unit)}"


def checked_int(
    where: str,
    name: str,
    value: Any,
    low: float = 1,
    high: float = INT32,
    unit: str = "",
) -> int:
    """Return ``value`` as an int in [low, high]; a bool or a float is none, not even 4096.0.

    Args:
        where: The function or environment, for the message.
        name: The argument.
        value: What the caller gave.
        low: Smallest value allowed.
        high: Largest value allowed.
        unit: Of the limits, for the message.

    Raises:
        ParameterError: If it is none.
    """
    if not is_number(value, int | np.integer):
        such = f", such as {int(value)}" if isinstance(value, float) and value.is_integer() else ""
        raise wrong_type(where, name, value, f"an int{such}")
    number = int(value)
    if not low <= number <= high:
        raise ParameterError(
            f"{where}: {name} = {shown(value)} is out of range; it must be "
            f"{_within(low, high, unit)}"
        )
    return number


def checked_count(where: str, name: str, value: Any, low: float = 1, high: float = 2**53) -> int:
    """Return a number of env-steps as an int; they are many, so that a whole float such as 2e6 is
    welcome too.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return checked_int(where, name, value, low, high)


def checked_float(
    where: str,
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    unit: str = "",
) -> float:
    """Return ``value`` as a finite float in [low, high]; ints are welcome, bools are not."""
    if not is_number(value, int | float | np.integer | np.floating):
        raise wrong_type(where, name, value, "a number")
    number = float(value)
    if not math.isfinite(number) or not low <= number <= high:
        raise ParameterError(
            f"{where}: {name} = {shown(value)} is out of range; it must be "
            f"{_within(low, high, unit)}"
        )
    return number


def checked_bool(where: str, name: str, value: Any) -> bool:
    """Return ``value`` as a bool; numbers are none."""
    if not isinstance(value, bool | np.bool_):
        raise wrong_type(where, name, value, "True or False")
    return bool(value)


def checked_choice(where: str, name: str, value: Any, choices: Collection[str]) -> str:
    """Return ``value`` if it is one of ``choices``, which are strings."""
    if isinstance(value, str) and value in choices:
        return str(value)
    near = did_you_mean(MEANT.get(value, value) if isinstance(value, str) else "", choices)
    *others, last = map(repr, choices)
    listed = f"{', '.join(others)} or {last}" if others else last
    raise ParameterError(f"{where}: {name} = {shown(value)}; it must be {listed}.{near}")


def checked_str(where: str, name: str, value: Any) -> str:
    """Return ``value`` as a str."""
    if not isinstance(value, str):
        raise wrong_type(where, name, value, "a str")
    return str(value)


def checked_path(where: str, name: str, value: Any) -> Path:
    """Return ``value``, a str or ``os.PathLike``, as a ``pathlib.Path``; ``~`` is expanded."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise wrong_type(where, name, value, "a path: a str or a Path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ParameterError(
            f"{where}: {name} = {shown(value)}; no such home folder is known. Write the whole path"
        ) from None


def require_folder(name: str, path: Path) -> None:
    """Raise an error unless there is a folder for the file ``path``, a ``Path``."""
    folder = path.absolute().parent
    if not os.path.isdir(folder):
        raise ParameterError(
            f"{name} = {shown(str(path))} cannot be written: there is no folder "
            f"{shown(str(folder))}"
        )


def checked_target(name: str, path: Path) -> Path:
    """Return ``path``, a ``Path`` that shall be written, if that looks possible: before minutes of
    work, not after them.
    """
    folder = path.absolute().parent
    require_folder(name, path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ParameterError(
            f"{name} = {shown(str(path))} cannot be written: it is a folder, a device or a link "
            f"to nothing"
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as reason:
        raise ParameterError(
            f"{name} = {shown(str(path))} cannot be written: {reason.strerror}; name a file in a "
            f"folder that can be written"
        ) from None


def checked_callable(
    where: str, name: str, value: Any, takes: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return ``value`` if it can be called, as far as its signature is known with arguments like
    those named ``takes``.
    """
    if not callable(value):
        raise wrong_type(where, name, value, "a function")
    signature = None
    with contextlib.suppress(Exception):  # of what is written in C there may be none
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
    """Return ``value`` as a dict whose keys are strings."""
    if not isinstance(value, Mapping):
        raise wrong_type(where, name, value, "a dict")
    for key in value:
        checked_str(where, f"a key of {name}", key)
    return dict(value)


def checked_sequence(where: str, name: str, value: Any) -> tuple[Any, ...]:
    """Return ``value``, a list or a tuple, as a tuple."""
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
    """Return numbers as a tuple of Python's own: from a sequence, an array, or a tensor on any
    device.

    Args:
        where: The function or environment, for the message.
        name: The argument.
        value: What the caller gave; None: no numbers.
        check: ``checked_float`` or ``checked_int``, for each number, which a message calls
            ``NAME[k]``.
        low: Smallest value allowed.
        high: Largest value allowed.
        unit: Of the limits, for the message.
    """
    numbers: Any = () if value is None else value
    # what has no values, such as a tensor of no device, is refused below
    with contextlib.suppress(Exception):
        numbers = numbers.tolist()
    if not isinstance(numbers, Sequence) or isinstance(numbers, str | bytes | bytearray):
        raise wrong_type(where, name, value, "numbers, such as [0, 1, 2]")
    if len(numbers) > MOST_NUMBERS:
        raise ParameterError(
            f"{where}: {name} has {len(numbers):,} numbers; at most {MOST_NUMBERS:,} fit"
        )
    # Equal tuples must be equal bits, since results are kept by them: -0.0 becomes 0.0.
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
    """Raise ``ParameterError`` unless each of some arrays is left out, or has ``count`` numbers
    from low to high.

    Args:
        where: The environment, for the message.
        params: Its parameters.
        names: Of those that are arrays.
        count: How many numbers each must have.
        low: Smallest number allowed.
        high: Largest number allowed.
        unit: Of the limits, for the message.
        of_what: What there are ``count`` of.
    """
    for name in names:
        numbers = getattr(params, name)
        if numbers and len(numbers) != count:
            raise ParameterError(
                f"{where}: {name} has {len(numbers)} numbers, but there are {count} {of_what}; "
                f"pass one for each, or none"
            )
        for k, number in enumerate(numbers):
            checked_float(where, f"{name}[{k}]", number, low, high, unit=unit)


def checked_instance(
    where: str, name: str, value: Any, kind: type[T] | tuple[type[T], ...], words: str
) -> T:
    """Return ``value`` if it is a ``kind``; ``words`` say what it must be."""
    if not isinstance(value, kind):
        raise wrong_type(where, name, value, words)
    return value


def checked_name(where: str, name: str, value: Any) -> str:
    """Return ``value`` if it can name something in Python and in C++ alike."""
    if (
        not isinstance(value, str)
        or not value.isidentifier()
        or not value.isascii()
        or len(value) > MOST_LETTERS
    ):
        raise ParameterError(
            f"{where}: {name} = {shown(value)}; it must be an identifier of ASCII letters, digits "
            f"and _, such as 'my_name'"
        )
    return str(value)


def checked_member(where: str, name: str, value: Any) -> str:
    """Return ``value`` if it can name a member of a kernel's struct, whether the kernel is C++ or
    Python.
    """
    checked_name(where, name, value)
    reserved = value.startswith("__") or (
        value[0] == "_" and value[1:2].isupper()
    )  # compilers keep these to themselves
    if reserved or value in WORDS_OF_CPP.split() or keyword.iskeyword(value):
        raise ParameterError(
            f"{where}: {name} = {value!r} is a word of C++ or Python, or reserved for compilers, "
            "and cannot name a member of a kernel's struct; choose another, such as 'my_name'"
        )
    return str(value)


def checked_array(where: str, name: str, value: Any) -> np.ndarray:
    """Return ``value``, an array, a number, or numbers in lists and tuples, as a NumPy array of
    bools, ints or floats.
    """
    array = np.array(None)
    if isinstance(value, np.ndarray | np.number | np.bool_ | int | float | list | tuple):
        # Lists may be ragged, too deep, or hold what is no number.
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise wrong_type(where, name, value, "an array of numbers")
    # of this machine's byte order, and by a name that torch knows
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
    """Return ``value``, a number or an array of ``shape``, as float64; its entries lie in [low,
    high] and are not NaN.
    """
    numbers = checked_array(where, name, value)
    if numbers.dtype.kind == "b" or numbers.shape not in ((), shape):
        raise ParameterError(
            f"{where}: {name} = {shown(value)}; it must be a number, or numbers of shape {shape}"
        )
    numbers = numbers.astype(np.float64)
    if not ((numbers >= low) & (numbers <= high)).all():
        raise ParameterError(
            f"{where}: {name} = {shown(value)} is out of range; it must be {_within(low, high, '')}"
        )
    return numbers


def checked_size(where: str, name: str, value: Any) -> tuple[int, int]:
    """Return ``value`` as (width, height) of a picture in pixels: even, since codecs halve the
    colour's resolution.
    """
    if (
        not isinstance(value, tuple | list | np.ndarray)
        or not np.iterable(value)
        or len(value) != 2
    ):
        raise ParameterError(
            f"{where}: {name} = {shown(value)}; it must be (width, height) in pixels, such as "
            f"(960, 640)"
        )
    width, height = (checked_int(where, name, side, 2, MOST_SIDE) for side in value)
    if width % 2 or height % 2:
        near = max(2, width // 2 * 2), max(2, height // 2 * 2)
        raise ParameterError(f"{where}: {name} = {shown(value)}; both must be even, such as {near}")
    return width, height
