"""Compiles kernels with instructions that one architecture of GPUs has alone, as sm_90a has those of warp groups.

CuPy names the architecture for NVRTC without the letter that allows them, and NVRTC before CUDA 13 wants it named once. So they
are compiled here, by CuPy's NVRTC, and kept beside the CPU's libraries.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import cupy
from cupy.cuda import nvrtc

from cupydrive.codegen.source import Unit
from cupydrive.executors.ahead import alone
from cupydrive.executors.cache import cache_folder, find_library, keep_library
from cupydrive.executors.nvrtc import ADDED


def load(unit: Unit, options: tuple[str, ...], capability: str) -> cupy.RawModule:
    """Return the ``cupy.RawModule`` of ``unit`` for GPUs of a compute capability, such as ``"90"``, from the cache or compiled.

    Raises:
        CompileException: CuPy's, with what NVRTC says.
    """
    options = (*options, *ADDED, f"-arch=sm_{capability}a")
    key = "\0".join((unit.text, *options, str(nvrtc.getVersion()))).encode()
    with alone(cache_folder(), key.decode()):
        path = find_library(unit.name, key) or _keep(unit, key, compiled(unit, options))
    return cupy.RawModule(path=str(path))


def compiled(unit: Unit, options: tuple[str, ...]) -> bytes:
    """Return the machine code of ``unit`` by NVRTC."""
    program = nvrtc.createProgram(unit.text, f"{unit.name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError:
        log = nvrtc.getProgramLog(program)
        raise cupy.cuda.compiler.CompileException(log, unit.text, unit.name, options, "nvrtc") from None
    finally:
        nvrtc.destroyProgram(program)


def _keep(unit: Unit, key: bytes, code: bytes) -> Path:
    """Return the path of machine code in the cache: written in a folder of its own first, so that readers see all of it."""
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="build-") as folder:
        library = Path(folder, "unit.so")
        library.write_bytes(code)
        return keep_library(unit.name, key, library)
