"""Registry of environments: the modules of this folder, and users' own.

Modules ``NAME_data``, which read published data, and modules shared by several environments are not
environments. A user's environment consists of two files in the same folder (``my_env.py`` and
``my_env.cu``), two strings, or an ``EnvSpec``.
"""

import hashlib
import importlib
import importlib.machinery
import importlib.util
import keyword
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cupydrive.errors import (
    CupydriveWarning,
    MissingDataError,
    ParameterError,
    SpecError,
    UnknownEnvironmentError,
    UnregisteredEnvironmentError,
    did_you_mean,
)
from cupydrive.inputs.arguments import MOST_LETTERS, checked_path, checked_str, kind_of, shown
from cupydrive.inputs.kernels import printable, read_kernel
from cupydrive.spec import EnvSpec

if TYPE_CHECKING:
    from cupydrive.inputs.formats import Origin  # imports pydantic, so only for type checking

OF_DATA = "_data"  # suffix of modules that read an environment's published data
SHARED = {"minatar"}  # modules that several environments share
USER_MODULE = "cupydrive_user_"  # prefix of the module name of a user's file


@dataclass(frozen=True)
class Registration:
    """A user's registered environment.

    Args:
        spec: The ``EnvSpec``, with its kernel.
        given: Arguments of ``register``.
        folder: Folder of the Python file that ``given`` names, or None.
        python: Path of the Python file, or None if it was text or an ``EnvSpec``.
        python_sha256: SHA-256 of the Python text, or None if it was an ``EnvSpec``.
    """

    spec: EnvSpec
    given: tuple[EnvSpec | str | os.PathLike[str], str | os.PathLike[str] | None]
    folder: Path | None = None
    python: str | None = None
    python_sha256: str | None = None


_registered: dict[str, Registration] = {}


def names() -> list[str]:
    """Return the names of all environments, sorted.

    Examples:
        >>> import cupydrive as cd
        >>> "cartpole" in cd.names()
        True
    """
    return sorted(packaged() | set(_registered))


def packaged() -> set[str]:
    """Return the set of names of the package's own environments."""
    found = {module.name for module in iter_modules(__path__)}
    return {name for name in found - SHARED if not name.endswith(OF_DATA)}


def installed(name: str) -> bool:
    """Return whether ``import NAME`` finds a module outside the current folder.

    A module in the current folder is the user's own file.
    """
    found = importlib.util.find_spec(name)
    folders = (
        [*(found.submodule_search_locations or ()), *([found.origin] if found.origin else [])]
        if found
        else []
    )
    return any(os.path.dirname(os.path.abspath(place)) != os.getcwd() for place in folders)


def free_name(text: str) -> str:
    """Return a valid name for a new environment, similar to ``text``."""
    near = re.sub(r"[^0-9a-z]+", "_", text[: MOST_LETTERS - len("my_")].lower()).strip("_") or "env"
    wrong = (
        not near.isidentifier()
        or keyword.iskeyword(near)
        or near in packaged() | sys.stdlib_module_names
    )
    return f"my_{near}" if wrong or installed(near) else near


def get(name: EnvSpec | str | os.PathLike[str]) -> EnvSpec:
    """Return the ``EnvSpec`` with this name. A path that ends in ``.py`` is registered first.

    Raises:
        UnknownEnvironmentError: If there is no such environment. The message suggests the nearest
            name.
    """
    if isinstance(name, EnvSpec):
        registration = _registered.get(name.name)
        return (
            registration.spec
            if registration is not None and registration.given[0] is name
            else name
        )
    if isinstance(name, os.PathLike) or (isinstance(name, str) and name.endswith(".py")):
        return register(checked_path("cupydrive", "env", name))
    if not isinstance(name, str):
        raise ParameterError(
            f"env = {shown(name)} is {kind_of(name)}, expected a name, the path of a Python file "
            f"or an EnvSpec"
        )
    checked_str("cupydrive", "env", name)
    if name in _registered:
        return _registered[name].spec
    if name not in packaged():
        known, file = names(), f"{name.removesuffix('.cu')}.py"
        near = (
            f" Name its Python file: {file}." if os.path.isfile(file) else did_you_mean(name, known)
        )
        raise UnknownEnvironmentError(
            f"unknown environment {shown(name)}.{near} Environments: {', '.join(known)}"
        )
    return import_module(f"{__name__}.{name}").SPEC


def with_data(say: Callable[[str], object], of: Iterable[str] | None = None) -> list[EnvSpec]:
    """Return all environments whose data is on this machine or could be downloaded.

    Args:
        say: Function that is called with a line about skipped environments.
        of: Names to consider. Defaults to all.

    Returns:
        A list of ``EnvSpec``.
    """
    found, left = [], []
    for spec in map(get, names() if of is None else of):
        try:
            for case in spec.cases:
                spec.table_arrays(spec.make_params(**case))
            found.append(spec)
        except MissingDataError:
            left.append(spec.name)
    if left:
        words = (
            "omitted, because their data is missing and could not be downloaded (see `cupydrive "
            "data`)"
        )
        say(f"{words}: {', '.join(left)}")
    return found


def reload(spec: EnvSpec) -> EnvSpec:
    """Reload the package module or registered file of an ``EnvSpec``, and return the new one.

    Raises:
        SpecError: As in ``register``.
    """
    registration = _registered.get(spec.name)
    if registration is not None:
        # Create a new object, so that programs compiled from the old one are not reused.
        return register(*registration.given) if registration.folder else replace(registration.spec)
    module = sys.modules.get(f"{__name__}.{spec.name}")
    return importlib.reload(module).SPEC if module is not None else replace(spec)


def register(
    spec: EnvSpec | str | os.PathLike[str], kernel: str | os.PathLike[str] | None = None
) -> EnvSpec:
    """Register an environment under its name and return its ``EnvSpec``.

    Registering the name again replaces the environment.

    Args:
        spec: An ``EnvSpec``, the path of a Python file that defines ``SPEC``, or the text of such a
            file.
        kernel: Path of the kernel file, or its text. Defaults to ``spec.kernel``, or to ``NAME.cu``
            in the folder of a Python file.

    Raises:
        SpecError: If ``SPEC`` or the kernel is missing, or the name belongs to an environment of
            the package.
    """
    made = Registration(spec, (spec, kernel)) if isinstance(spec, EnvSpec) else _load(spec, kernel)
    found = made.spec
    if found.name in packaged():
        raise SpecError(
            f"{found.name!r} is an environment of the package. Choose another name, such as "
            f"EnvSpec('my_{found.name}', ...)"
        )
    if kernel is not None:
        is_text = isinstance(kernel, str) and "\n" in kernel
        found = replace(
            found, kernel=kernel if is_text else checked_path("register", "kernel", kernel)
        )
    elif found.kernel is None and made.folder is not None:
        found = replace(found, kernel=made.folder / f"{found.name}.cu")
    if found.kernel is None:
        raise SpecError(f"{found.name}: the kernel is missing. Pass kernel=, its path or text")
    if isinstance(found.kernel, Path) and not os.path.isfile(found.kernel.expanduser()):
        raise SpecError(
            f"{found.name}: kernel file {shown(str(found.kernel))} does not exist. Write it, or "
            "pass kernel="
        )
    _registered[found.name] = replace(made, spec=found)
    return found


def _load(
    source: str | os.PathLike[str], kernel: str | os.PathLike[str] | None = None
) -> Registration:
    """Run a Python file or text that defines ``SPEC``."""
    if isinstance(source, str) and "\n" in source:
        namespace: dict[str, Any] = {"__name__": "<environment>"}
        exec(compile(source, "<environment>", "exec"), namespace)
        spec, where = namespace.get("SPEC"), "spec: the text"
        about: dict[str, Any] = {"python_sha256": _digest(source.encode())}
    else:
        path = checked_path("register", "spec", source).resolve()
        if not os.path.isfile(path):
            near = did_you_mean(path.name, [file.name for file in path.parent.glob("*.py")])
            raise SpecError(
                f"file {path} does not exist.{near} `cupydrive new {free_name(path.stem)}` writes "
                f"the files of a new environment"
            )
        loader = importlib.machinery.SourceFileLoader(USER_MODULE + path.stem, str(path))
        module = ModuleType(loader.name)
        module.__file__ = str(path)
        sys.modules[module.__name__] = module
        loader.exec_module(module)
        spec, where = getattr(module, "SPEC", None), str(path)
        about = {
            "folder": path.parent,
            "python": printable(path),
            "python_sha256": _digest(path.read_bytes()),
        }
    if not isinstance(spec, EnvSpec):
        raise SpecError(f"{where} defines no SPEC = EnvSpec(...)")
    return Registration(spec, (source, kernel), **about)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# ---- environments that data files name -----------------------------------------------------------


def origin(spec: EnvSpec) -> "Origin | None":
    """Return the paths and SHA-256 of an environment's source files, which data files store.

    The result is None for an environment of the package. A hash is None if it is unknown, as for
    kernels written in Python.
    """
    if spec.kernel is None:
        return None
    made = _registered.get(spec.name)
    kernel, kernel_sha256 = None, None
    if isinstance(spec.kernel, str):
        kernel_sha256 = _digest(spec.kernel.encode())
    elif isinstance(spec.kernel, os.PathLike):
        file = Path(spec.kernel).expanduser().resolve()
        kernel_sha256 = _digest(b"".join(read_kernel(file).values())) if file.is_file() else None
        kernel = printable(file)
    return {
        "python": made.python if made else None,
        "python_sha256": made.python_sha256 if made else None,
        "kernel": kernel,
        "kernel_sha256": kernel_sha256,
    }


def of_data(
    what: str,
    call: str,
    name: str,
    made_from: "Origin | None",
    given: EnvSpec | str | os.PathLike[str] | None = None,
) -> EnvSpec:
    """Return the ``EnvSpec`` of a data file. Code that the file names is never executed.

    Args:
        what: The file, for messages.
        call: The call that reads it, for messages, with ``{}`` in place of the environment.
        name: Name of the environment in the file.
        made_from: The ``origin`` of the environment in the file, or None.
        given: The user's argument ``env=``: name, path, text, ``EnvSpec``, or None.

    Raises:
        UnregisteredEnvironmentError: If ``given`` is None and the name is not registered.
        ParameterError: If ``given`` is another environment.
    """
    if given is None and name not in names():
        file = made_from["python"] if made_from else None
        here = os.path.relpath(file) if file and Path(file).is_relative_to(Path.cwd()) else file
        trust = (
            f"If you trust {here}, pass"
            if here
            else "It was not loaded from a file. Register it first, or pass"
        )
        example = here or f"{name}.py"
        raise UnregisteredEnvironmentError(
            f"{what} belongs to environment {name!r}, which is not registered here. {trust}",
            call.format(repr(example)),
            example,
        )
    spec = get(name if given is None else given)
    if spec.name != name:
        raise ParameterError(f"env= is environment {spec.name!r}, but {what} belongs to {name!r}")
    compare_origin(what, spec, made_from)
    return spec


def compare_origin(what: str, spec: EnvSpec, made_from: "Origin | None") -> None:
    """Warn if the files of an environment have changed since a file was made.

    Args:
        what: Name of the file, for the message.
        spec: ``EnvSpec`` of the environment.
        made_from: Origin that the file stores, or None to compare nothing.
    """
    now = origin(spec)
    if made_from is None:
        return
    for part in ("python", "kernel"):
        before, after = made_from[f"{part}_sha256"], now and now[f"{part}_sha256"]  # type: ignore[literal-required]
        # A spec that was registered as an object has no Python file to compare with.
        if before not in (None, after) and (part == "kernel" or after is not None):
            file = made_from[part] or f"the text of its {part}"
            warnings.warn(
                f"{what} was made with another version of {file}, so results may differ "
                f"(SHA-256 {before[:12]}... then, {after[:12] + '...' if after else 'unknown'} "
                f"now)",
                CupydriveWarning,
                stacklevel=4,
            )
