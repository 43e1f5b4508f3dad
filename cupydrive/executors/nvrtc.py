"""NVRTC, CUDA's runtime compiler. Its machine code is stored in the cache folder.

NVRTC needs neither a GPU nor a driver.
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
    "--fmad=false",  # contraction would give different bits from the CPU
    "-ftz=true",
    "--device-as-default-execution-space",
    *NVRTC_WARNINGS,
)


def load_module(unit: Unit, capability: str) -> cupy.RawModule:
    """Load or compile ``unit`` for GPUs of a compute capability, such as ``"90"``.

    Raises:
        CompileException: CuPy's error with the log of NVRTC.
    """
    import cupy
    from cupy.cuda import nvrtc

    # The suffix enables instructions of a single architecture, such as wgmma in sm_90a.
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
    """Compile ``unit`` without CuPy and discard the result.

    Returns:
        False if cuda.bindings has no working NVRTC, otherwise True.

    Raises:
        CompileError: If the kernel has errors.
    """
    options = [option.encode() for option in (*OPTIONS, "-arch=sm_80")]
    try:
        from cuda.bindings import nvrtc

        _, program = nvrtc.nvrtcCreateProgram(unit.text.encode(), b"unit.cu", 0, [], [])
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(program)
    except Exception:  # a missing library can raise many types
        return False
    if int(code) and (error := explain_compile_error(unit, log.decode(errors="replace"))):
        raise error
    # If the log names no line, NVRTC itself has failed, for example because a library is missing.
    return not int(code)
