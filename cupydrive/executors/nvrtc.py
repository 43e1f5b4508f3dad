"""Compiles kernels for a GPU on machines that have none: NVRTC needs neither a GPU nor a driver."""

from cupydrive.codegen.diagnostics import NVRTC_WARNINGS, explain
from cupydrive.codegen.source import Unit

OPTIONS = ("-std=c++17", "--fmad=false", *NVRTC_WARNINGS)  # contraction would give other bits than the CPU
ADDED = ("-ftz=true", "--device-as-default-execution-space")  # what CuPy adds, as in architecture.py


def compile_for_gpu(unit: Unit) -> bool:
    """Compile ``unit`` and drop the result; return False where neither cuda.bindings nor CuPy has an NVRTC that works.

    Raises:
        CompileError: If the kernel has mistakes.
    """
    options = (*OPTIONS, *ADDED, "-arch=sm_80")
    try:
        log = _log_of_bindings(unit, options)
    except Exception:  # both raise many types where a library is missing
        try:
            log = _log_of_cupy(unit, options)
        except Exception:
            return False
    if log and (error := explain(unit, log)):
        raise error
    return not log  # with a log that names no line, NVRTC itself has failed: a library of its own is missing, say


def _log_of_bindings(unit, options):
    """Return what NVRTC says of a unit that does not compile, or an empty string."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(unit.text.encode(), b"unit.cu", 0, [], [])
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    return log.decode(errors="replace").strip("\0 \n") if int(code) else ""


def _log_of_cupy(unit, options):
    import cupy

    from cupydrive.executors.architecture import compiled

    try:
        compiled(unit, options)
    except cupy.cuda.compiler.CompileException as error:
        return str(error)
    return ""
