"""The machine's C++ compiler: its detection, and the compilation of a unit."""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cupydrive.codegen.diagnostics import explain_compile_error
from cupydrive.codegen.source import Unit
from cupydrive.errors import DeviceError

COMPILER_NAMES = ("c++", "g++", "clang++")
FIX = "unset CXX, or set it to the command of a C++ compiler, such as CXX=g++"
ENGLISH = {"LC_ALL": "C"}  # locale of the messages that `explain` parses
# Sanitizers whose handlers are in kernels/drive/backend/cpu_faults.cuh.
HANDLED = ("-fsanitize=bounds", "-fsanitize=integer-divide-by-zero")


def compiler() -> tuple[tuple[str, ...], str]:
    """Return the command of the C++ compiler and its version text.

    It is $CXX, or the first known compiler on the PATH.

    Raises:
        DeviceError: If no compiler is found, or $CXX is not a program.
    """
    return _compiler(os.environ.get("CXX", ""), os.environ.get("PATH"))


@lru_cache(maxsize=8)
def _compiler(named: str, path: str | None) -> tuple[tuple[str, ...], str]:
    if named:
        try:
            command = tuple(shlex.split(named))
        except ValueError:  # an unterminated quotation
            command = ()
        if not command or not shutil.which(command[0], path=path):
            raise DeviceError(f"CXX = {named!r}: no such program on the PATH. Fix: {FIX}")
        return command, _version(command)
    for name in COMPILER_NAMES:
        if shutil.which(name, path=path):
            return (name,), _version((name,))
    if importlib.util.find_spec("ziglang"):
        zig = (sys.executable, "-m", "ziglang")
        return (*zig, "c++", "-nostdlib++"), _version(zig, "version")
    raise DeviceError(
        "device = 'cpu' needs a C++ compiler and found none ($CXX, c++, g++, clang++, ziglang). "
        "Fix: pip install ziglang, or install g++ or clang"
    )


def _version(command: Sequence[str], option: str = "--version") -> str:
    done = _run([*command, option])
    return (done.stdout or done.stderr).strip()


def _run(command: Sequence[str]) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, **ENGLISH},
        )
    except OSError as error:
        raise DeviceError(
            f"the C++ compiler {shlex.join(command[:1])!r} cannot be run: {error.strerror}. Fix: "
            f"{FIX}"
        ) from None


def compile_unit(unit: Unit, command: Sequence[str], flags: Sequence[str], library: Path) -> None:
    """Compile ``unit`` to the shared library ``library``.

    Intermediate files are written to the same folder.

    Raises:
        CompileError: If the kernel has errors.
        DeviceError: If the compiler fails for another reason.
    """
    native = (
        () if platform.machine() not in ("x86_64", "AMD64", "aarch64") else _native_flag(command)
    )
    strict = _strict_bounds(command) if "-fsanitize=bounds" in flags else ()
    text, objects = library.with_suffix(".cpp"), library.with_suffix(".o")
    text.write_text(unit.text, encoding="utf-8")
    done = _run([*command, *native, *flags, *strict, "-c", "-o", str(objects), str(text)])
    log = done.stderr + done.stdout
    if done.returncode == 0:  # link without the sanitizer flags, which add a library of handlers
        linked = [flag for flag in flags if flag not in HANDLED]
        done = _run([*command, *linked, "-o", str(library), str(objects), "-lm"])
        log += done.stderr + done.stdout
    if (found := explain_compile_error(unit, log)) is not None:
        raise found
    if done.returncode != 0 or not library.is_file():
        said = log.strip()[-2000:] or "no output"
        raise DeviceError(
            f"{shlex.join(command)!r} ended with exit code {done.returncode} and wrote no library, "
            f"without an error in a kernel: {said}\nIs it a C++ compiler for this machine? "
            f"{FIX[0].upper()}{FIX[1:]}"
        )


def _native_flag(command: Sequence[str]) -> tuple[str, ...]:
    return (
        ("-mcpu=native",)
        if "ziglang" in command and platform.machine() == "aarch64"
        else ("-march=native",)
    )


def _strict_bounds(command: Sequence[str]) -> tuple[str, ...]:
    """Return the flag that also checks an array at the end of a struct.

    By default, compilers treat such an array as a flexible array member.
    """
    is_clang = "clang" in _version(command).lower() or "ziglang" in command
    return ("-fstrict-flex-arrays=3",) if is_clang else ("-fsanitize=bounds-strict",)
