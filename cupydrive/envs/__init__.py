"""Finds environments: every module of this folder that defines ``SPEC``, and those that users register.

A user's environment is two files anywhere (``my_env.py`` and ``my_env.cu`` beside it), two strings, or an ``EnvSpec``.
"""

import importlib
import importlib.util
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from cupydrive.errors import SpecError, UnknownEnvironmentError, did_you_mean
from cupydrive.spec import EnvSpec

_registered = {}
_files = {}  # what `register` was given, by name, for environments from files


def names():
    """Return the names of all environments, sorted."""
    return sorted({module.name for module in iter_modules(__path__)} | set(_registered))


def get(name):
    """Return the ``EnvSpec`` called ``name``; a path that ends in ``.py`` is registered first.

    Raises:
        UnknownEnvironmentError: If there is none; the message suggests the nearest name.
    """
    if isinstance(name, EnvSpec):
        return name
    if str(name).endswith(".py"):
        return register(name)
    if name in _registered:
        return _registered[name]
    if name not in names():
        known = names()
        raise UnknownEnvironmentError(
            f"there is no environment {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}"
        )
    return import_module(f"{__name__}.{name}").SPEC


def reload(spec):
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


def register(spec, kernel=None):
    """Make an environment known by its name and return its ``EnvSpec``; registering again replaces it.

    Args:
        spec: An ``EnvSpec``; or the path of a Python file that defines ``SPEC``; or such a file's text.
        kernel: Path of the kernel file, or its text. Without it: ``spec.kernel``, else for a file ``NAME.cu`` beside it.

    Raises:
        SpecError: If there is no ``SPEC``, no kernel, or the name belongs to an environment of the package.
    """
    given = (spec, kernel)
    if not isinstance(spec, EnvSpec):
        spec, beside = _load(spec)
        if kernel is None and spec.kernel is None and beside is not None:
            kernel = beside / f"{spec.name}.cu"
    if kernel is not None:
        is_text = isinstance(kernel, str) and "\n" in kernel
        spec = replace(spec, kernel=kernel if is_text else Path(kernel))
    if spec.kernel is None:
        raise SpecError(f"{spec.name}: pass kernel=, the kernel's path or text")
    if isinstance(spec.kernel, Path) and not spec.kernel.is_file():
        raise SpecError(f"{spec.name}: there is no kernel file {spec.kernel}; write it, or pass kernel=")
    if spec.name in {module.name for module in iter_modules(__path__)}:
        raise SpecError(f"{spec.name!r} is an environment of the package; give yours another name")
    _registered[spec.name] = spec
    _files.pop(spec.name, None)
    if not isinstance(given[0], EnvSpec) and "\n" not in str(given[0]):
        _files[spec.name] = given
    return spec


def _load(source):
    """Run a Python file or text; return its ``SPEC`` and the file's folder."""
    text = str(source)
    if "\n" in text:
        namespace = {"__name__": "<environment>"}
        exec(compile(text, "<environment>", "exec"), namespace)
        spec, shown, folder = namespace.get("SPEC"), "the text", None
    else:
        path = Path(source).resolve()
        if not path.is_file():
            raise SpecError(f"there is no file {path}")
        loader = importlib.util.spec_from_file_location(f"cupydrive_user_{path.stem}", path)
        module = importlib.util.module_from_spec(loader)
        sys.modules[module.__name__] = module
        loader.loader.exec_module(module)
        spec, shown, folder = getattr(module, "SPEC", None), str(path), path.parent
    if not isinstance(spec, EnvSpec):
        raise SpecError(f"{shown} defines no SPEC = EnvSpec(...)")
    return spec, folder
