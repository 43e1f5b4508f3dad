"""Compiles kernels for a GPU on machines that have none: NVRTC needs neither a GPU nor a driver."""

from cupydrive.codegen.diagnostics import NVRTC_WARNINGS, explain
from cupydrive.codegen.source import Unit

OPTIONS = ("-std=c++17", "--fmad=false", *NVRTC_WARNINGS)  # contraction would give other bits than the CPU
ADDED = ("-ftz=true", "--device-as-default-execution-space")  # what CuPy adds


def compile_for_gpu(unit: Unit) -> bool:
    """Compile ``unit`` and drop the result; return False where cuda.bindings has no NVRTC that works.

    Raises:
        CompileError: If the kernel has mistakes.
    """
    options = [option.encode() for option in (*OPTIONS, *ADDED, "-arch=sm_80")]
    try:
        from cuda.bindings import nvrtc

        _, program = nvrtc.nvrtcCreateProgram(unit.text.encode(), b"unit.cu", 0, [], [])
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(program)
    except Exception:  # many types where a library is missing
        return False
    if int(code) and (error := explain(unit, log.decode(errors="replace"))):
        raise error
    return not int(code)  # with a log that names no line, NVRTC itself has failed: a library of its own is missing, say
