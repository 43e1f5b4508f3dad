"""Finds environments: every module of this folder but ``NAME_data``, which reads what NAME is made of, and users' own.

A user's environment is two files anywhere (``my_env.py`` and ``my_env.cu`` beside it), two strings, or an ``EnvSpec``.
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

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

OF_DATA = "_data"  # end of the name of a module that reads an environment's published data
USER_MODULE = "cupydrive_user_"  # and the file's name: what the module of a user's file is called
_registered: dict[str, EnvSpec] = {}
_given: dict[
    str, object
] = {}  # the ``EnvSpec`` that `register` was given, by name: what is registered has the kernel, too
_files: dict[str, tuple[Any, Any]] = {}  # what `register` was given, by name, for environments from files
_pythons: dict[
    str, tuple[str | None, str]
] = {}  # (path or None, SHA-256) of the Python text that a registered environment came from, by name


def names() -> list[str]:
    """Return the names of all environments, sorted."""
    return sorted(packaged() | set(_registered))


def packaged() -> set[str]:
    """Return the set of names of the package's own environments."""
    return {module.name for module in iter_modules(__path__) if not module.name.endswith(OF_DATA)}


def installed(name: str) -> bool:
    """Return whether ``import NAME`` finds a package, but for one of the current folder, which is a file of the user's own."""
    found = importlib.util.find_spec(name)
    folders = [*(found.submodule_search_locations or ()), *([found.origin] if found.origin else [])] if found else []
    return any(os.path.dirname(os.path.abspath(place)) != os.getcwd() for place in folders)


def free_name(text: str) -> str:
    """Return a name near ``text`` that a new environment can have: `cupydrive new` takes it."""
    near = re.sub(r"[^0-9a-z]+", "_", text[: MOST_LETTERS - len("my_")].lower()).strip("_") or "env"
    wrong = not near.isidentifier() or keyword.iskeyword(near) or near in packaged() | sys.stdlib_module_names
    return f"my_{near}" if wrong or installed(near) else near


def get(name: EnvSpec | str | os.PathLike[str]) -> EnvSpec:
    """Return the ``EnvSpec`` called ``name``; a path that ends in ``.py`` is registered first.

    Raises:
        UnknownEnvironmentError: If there is none; the message suggests the nearest name.
    """
    if isinstance(name, EnvSpec):
        return _registered.get(name.name, name) if _given.get(name.name) is name else name
    if isinstance(name, os.PathLike) or (isinstance(name, str) and name.endswith(".py")):
        return register(checked_path("cupydrive", "env", name))
    if not isinstance(name, str):
        own = getattr(name, "spec", None)
        raise ParameterError(
            f"env = {shown(name)} is {kind_of(name)}; it must be an environment's name, the path of its Python file, or an "
            f"EnvSpec{f', here {own.name!r}' if isinstance(own, EnvSpec) else ''}"
        )
    checked_str("cupydrive", "env", name)
    if name in _registered:
        return _registered[name]
    if name not in names():
        known = names()
        file = f"{name.removesuffix('.cu')}.py"
        own = name.endswith(".cu") or (len(name) < 200 and Path(file).is_file())
        meant = f" Name its Python file: {file}." if own else did_you_mean(name, known)
        if "\0" not in name and os.path.isdir(name):
            meant = f" A run folder is read by: cupydrive.load({name!r})."
        raise UnknownEnvironmentError(f"there is no environment {shown(name)}.{meant} There are: {', '.join(known)}")
    return import_module(f"{__name__}.{name}").SPEC


def with_data(say: Callable[[str], object], of: Iterable[str] | None = None) -> list[EnvSpec]:
    """Return all environments whose tables are on this machine, or could be fetched; say in a line which are left out.

    Args:
        say: Called with that line.
        of: Names; None: all.

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
        words = "left out, since data is not here and could not be fetched (`cupydrive data` says how to get it)"
        say(f"{words}: {', '.join(left)}")
    return found


def reload(spec: EnvSpec) -> EnvSpec:
    """Return the newest ``EnvSpec`` of that name: a package module or a registered file is read again.

    Raises:
        SpecError: As ``register`` does.
    """
    if spec.name in _files:
        return register(*_files[spec.name])
    if spec.name in _registered:
        return replace(
            _registered[spec.name]
        )  # a new object: nothing that was compiled from the old one is taken for it
    module = sys.modules.get(f"{__name__}.{spec.name}")
    return importlib.reload(module).SPEC if module is not None else replace(spec)


def register(spec: EnvSpec | str | os.PathLike[str], kernel: str | os.PathLike[str] | None = None) -> EnvSpec:
    """Make an environment known by its name and return its ``EnvSpec``; registering again replaces it.

    Args:
        spec: An ``EnvSpec``; or the path of a Python file that defines ``SPEC``; or such a file's text.
        kernel: Path of the kernel file, or its text. Without it: ``spec.kernel``, else for a file ``NAME.cu`` beside it.

    Raises:
        SpecError: If there is no ``SPEC``, no kernel, or the name belongs to an environment of the package.
    """
    given, python, beside = (spec, kernel), None, None
    if not isinstance(spec, EnvSpec):
        if not isinstance(spec, str | os.PathLike):
            raise SpecError(
                f"register: spec = {shown(spec)} is {kind_of(spec)}; it must be an EnvSpec, or a Python file that defines SPEC"
            )
        if not (isinstance(spec, str) and "\n" in spec):
            spec = checked_path("register", "spec", spec)
        spec, beside, python = _load(spec)
    if spec.name in packaged():
        raise SpecError(
            f"{spec.name!r} is an environment of the package; give yours another name: EnvSpec('my_{spec.name}', ...), whose "
            f"kernel is my_{spec.name}.cu beside the Python file, or kernel="
        )
    if beside is not None and kernel is None and spec.kernel is None:
        kernel = beside / f"{spec.name}.cu"
        if not kernel.is_file():
            raise SpecError(
                f"{spec.name}: there is no kernel file {kernel}: it is called after EnvSpec({spec.name!r}, ...); write it, or "
                "pass kernel="
            )
    if kernel is not None:
        is_text = isinstance(kernel, str) and "\n" in kernel
        spec = replace(spec, kernel=kernel if is_text else checked_path("register", "kernel", kernel))
    if spec.kernel is None:
        raise SpecError(f"{spec.name}: there is no kernel; pass kernel=, its path or text")
    if isinstance(spec.kernel, Path) and not spec.kernel.expanduser().is_file():
        raise SpecError(f"{spec.name}: there is no kernel file {spec.kernel}; write it, or pass kernel=")
    _registered[spec.name], _given[spec.name] = spec, given[0]
    _files.pop(spec.name, None)
    _pythons.pop(spec.name, None)
    if python is not None:
        _pythons[spec.name] = python
    if beside is not None:
        _files[spec.name] = given
    return spec


def _load(source: str | Path) -> tuple[EnvSpec, Path | None, tuple[str | None, str]]:
    """Run a Python file or text; return its ``SPEC``, the file's folder, and (path, SHA-256) of the text."""
    folder: Path | None
    python: tuple[str | None, str]
    if isinstance(source, str):
        namespace: dict[str, Any] = {"__name__": "<environment>"}
        exec(compile(source, "<environment>", "exec"), namespace)
        spec, whose, folder, python = namespace.get("SPEC"), "spec: the text", None, (None, _digest(source.encode()))
    else:
        path = source.resolve()
        if not path.is_file():
            near = did_you_mean(path.name, [file.name for file in path.parent.glob("*.py")])
            own = f" The package's environment is called {path.stem!r}." if path.stem in packaged() else ""
            raise SpecError(
                f"there is no file {path} that could define an environment.{own}{near} `cupydrive new {free_name(path.stem)}` "
                "writes one"
            )
        loader = importlib.machinery.SourceFileLoader(USER_MODULE + path.stem, str(path))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
        sys.modules[module.__name__] = module
        loader.exec_module(module)
        spec, whose, folder = getattr(module, "SPEC", None), str(path), path.parent
        python = (printable(path), _digest(path.read_bytes()))
    if not isinstance(spec, EnvSpec):
        raise SpecError(f"{whose} defines no SPEC = EnvSpec(...)")
    return spec, folder, python


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# ---- environments that data files name -------------------------------------------------------------------------------


def known(name: object) -> EnvSpec:
    """Return the ``EnvSpec`` of the package, or registered already, that is called ``name``.

    This is the look-up for names that come from data files: unlike ``get`` it takes neither a path nor text, so that
    nothing that a file says is executed.

    Raises:
        UnknownEnvironmentError: If there is none.
    """
    if type(name) is not str or name not in names():
        raise UnknownEnvironmentError(f"there is no environment {name!r} in the package, and none is registered")
    return get(name)


def origin(spec: EnvSpec) -> dict[str, str | None] | None:
    """Return which files an environment of a user's own came from, as information for data files; None for the package's.

    Returns:
        ``python`` and ``kernel``, absolute paths or None where it was text, and ``python_sha256`` and ``kernel_sha256``, of
        what they hold now; None where that is not known, as for kernels written in Python.
    """
    if spec.kernel is None:
        return None
    path, digest = _pythons.get(spec.name, (None, None))
    kernel, kernel_digest = None, None
    if isinstance(spec.kernel, str):
        kernel_digest = _digest(spec.kernel.encode())
    elif isinstance(spec.kernel, os.PathLike):
        file = Path(spec.kernel).expanduser().resolve()
        kernel_digest = _digest(b"".join(read_kernel(file).values())) if file.is_file() else None
        kernel = printable(file)
    return {"python": path, "python_sha256": digest, "kernel": kernel, "kernel_sha256": kernel_digest}


def of_data(
    what: str,
    call: str,
    name: str,
    made_from: Mapping[str, str | None] | None,
    given: EnvSpec | str | os.PathLike[str] | None = None,
) -> EnvSpec:
    """Return the ``EnvSpec`` that a data file belongs to.

    Args:
        what: The file, for messages.
        call: The call that reads it, for messages, in which ``{}`` stands for the environment.
        name: The environment's name in the file.
        made_from: Its ``origin`` in the file, or None.
        given: What the user passed as ``env=``: name, path, text or ``EnvSpec``; None: nothing.

    Raises:
        UnregisteredEnvironmentError: If nothing was given and the name is not known here.
        ParameterError: If another environment was given.
    """
    if given is not None:
        spec = get(given)
        if spec.name != name:
            raise ParameterError(f"env= gives environment {spec.name!r}, but {what} belongs to {name!r}")
    elif name in names():
        spec = known(name)
    else:
        file = (made_from or {}).get("python")
        if file is None:
            says = (
                f"{what} belongs to environment {name!r}, which is not registered here and came from no file. Register it "
                "first (cupydrive.register, or run its %%cuda_env cell), or pass"
            )
        else:
            file = os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else file
            says = f"{what} belongs to environment {name!r}, which is not registered here. If you trust {file}, pass"
        example = file or f"{name}.py"
        raise UnregisteredEnvironmentError(says, call.format(repr(example)), example)
    compare_origin(what, spec, made_from)
    return spec


def compare_origin(what: str, spec: EnvSpec, made_from: Mapping[str, str | None] | None) -> None:
    """Warn if ``spec`` has other files than those that ``what`` was made from, an ``origin``; None says nothing."""
    if made_from is None:
        return
    now = origin(spec) or {"python_sha256": None, "kernel_sha256": None}
    for part in ("python", "kernel"):
        before, after = made_from[f"{part}_sha256"], now[f"{part}_sha256"]
        # A spec that was registered as an object has no Python file to compare with.
        if before is not None and before != after and (part == "kernel" or after is not None):
            file = made_from[part] or f"the text of its {part}"
            warnings.warn(
                f"{what} was made with another version of {file}, so results may differ (SHA-256 {before[:12]}... then, "
                f"{after[:12] + '...' if after else 'unknown'} now)",
                CupydriveWarning,
                stacklevel=4,
            )
