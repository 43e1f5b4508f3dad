"""NVRTC, the compiler of CUDA: machine code for a GPU, kept in the cache folder; it needs neither a
GPU nor a driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cupydrive.codegen.diagnostics import NVRTC_WARNINGS, explain_compile_error
from cupydrive.codegen.source import Unit
from cupydrive.executors.cache import cached_library

if TYPE_CHECKING:
    import cupy

OPTIONS = (
    "-std=c++17",
    "--fmad=false",  # contraction would give other bits than the CPU
    "-ftz=true",
    "--device-as-default-execution-space",
    *NVRTC_WARNINGS,
)


def load_module(unit: Unit, capability: str) -> cupy.RawModule:
    """Return ``unit`` for GPUs of a compute capability, such as ``"90"``, from the cache or
    compiled.

    Raises:
        CompileException: CuPy's, with the log of NVRTC.
    """
    import cupy
    from cupy.cuda import nvrtc

    # The letter allows instructions that one architecture has alone, as sm_90a has those of warp
    # groups.
    options = (*OPTIONS, f"-arch=sm_{capability}{'a' * unit.architecture_specific}")

    def compile_to(library: Path) -> None:
        program = nvrtc.createProgram(unit.text, f"{unit.name}.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            library.write_bytes(nvrtc.getCUBIN(program))
        except nvrtc.NVRTCError:
            log = nvrtc.getProgramLog(program)
            raise cupy.cuda.compiler.CompileException(
                log, unit.text, unit.name, options, "nvrtc"
            ) from None
        finally:
            nvrtc.destroyProgram(program)

    key = "\0".join((unit.text, *options, str(nvrtc.getVersion())))
    return cupy.RawModule(path=str(cached_library(unit.name, key, compile_to)))


def compile_for_gpu(unit: Unit) -> bool:
    """Compile ``unit`` without CuPy and drop the result; return False where cuda.bindings has no
    NVRTC that works.

    Raises:
        CompileError: If the kernel has mistakes.
    """
    options = [option.encode() for option in (*OPTIONS, "-arch=sm_80")]
    try:
        from cuda.bindings import nvrtc

        _, program = nvrtc.nvrtcCreateProgram(unit.text.encode(), b"unit.cu", 0, [], [])
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(program)
    except Exception:  # many types where a library is missing
        return False
    if int(code) and (error := explain_compile_error(unit, log.decode(errors="replace"))):
        raise error
    # with a log that names no line, NVRTC itself has failed: a library of its own is missing, say
    return not int(code)
