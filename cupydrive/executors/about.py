"""info(): versions, GPUs, compiler, cache, and the device that ``"auto"`` selects."""

import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata

from cupydrive import __version__
from cupydrive.errors import DeviceError
from cupydrive.executors import choose, cuda_problem
from cupydrive.executors.ahead import usable_cores
from cupydrive.executors.cache import cache_folder
from cupydrive.executors.compiler import compiler
from cupydrive.executors.host import processor_name
from cupydrive.inputs.files import from_home

# Distributions that may contain a library. The first installed one is reported.
DISTRIBUTIONS = {
    "NumPy": ("numpy",),
    "torch": ("torch",),
    "CuPy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "NVRTC": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "gymnasium": ("gymnasium",),
}


@dataclass(frozen=True)
class Info:
    """Result of ``info``. It prints as a table with a reason for each missing part.

    Args:
        versions: Version by library, or "not installed".
        gpus: Names of the usable GPUs.
        processor: Model of the CPU.
        device: Device that ``device="auto"`` selects, and the reason.
        parts: Rows of the table below the versions.
    """

    versions: dict[str, str]
    gpus: tuple[str, ...]
    processor: str
    device: str
    parts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "\n".join(
            f"{name:<10} {value}" for name, value in (*self.versions.items(), *self.parts)
        )

    __repr__ = __str__

    @property
    def line(self) -> str:
        """Versions and device in one line, for the head of a notebook or a log."""
        named = ("cupydrive", "Python", "torch", "CuPy")
        versions = [
            f"{name} {self.versions[name]}"
            for name in named
            if self.versions[name] != "not installed"
        ]
        where = "" if self.gpus else f" ({self.processor}, {usable_cores()} cores)"
        return f"{', '.join(versions)}; {self.device}{where}"


def info() -> Info:
    """Return versions, GPUs, compiler, cache folder and default device of this machine.

    A missing part is reported and never raises an error.

    Examples:
        >>> import cupydrive as cd
        >>> cd.info().versions["cupydrive"] == cd.__version__
        True
    """
    problem, processor = cuda_problem(), processor_name()
    gpus = [] if problem else _gpus()
    parts = [("GPU", f"{name}, {about}") for name, about in gpus]
    parts += [("CUDA", f"cannot be used: {problem}")] if problem else []
    parts += [("CPU", processor), ("compiler", _compiler()), ("cache", _cache())]
    device = choose("auto")[1]
    parts.append(("device", device.removeprefix("device: ")))
    return Info(_versions(), tuple(name for name, _ in gpus), processor, device, tuple(parts))


def _versions() -> dict[str, str]:
    found = {"cupydrive": __version__, "Python": platform.python_version()}
    for library, distributions in DISTRIBUTIONS.items():
        found[library] = "not installed"
        for distribution in distributions:
            with suppress(metadata.PackageNotFoundError):
                # This only reads a file. Importing torch for its version would take seconds.
                found[library] = metadata.version(distribution)
                break
    return found


def _gpus() -> list[tuple[str, str]]:
    import cupy

    runtime, found = cupy.cuda.runtime, []
    cuda = runtime.driverGetVersion()
    for number in range(runtime.getDeviceCount()):
        about = runtime.getDeviceProperties(number)
        size = (
            f"{about['totalGlobalMem'] / 2**30:.0f} GiB, compute capability "
            f"{about['major']}.{about['minor']}"
        )
        found.append(
            (about["name"].decode(), f"{size}, driver for CUDA {cuda // 1000}.{cuda % 1000 // 10}")
        )
    return found


def _compiler() -> str:
    try:
        command, version = compiler()
    except DeviceError as error:
        return f"none: {error}"
    return f"{' '.join(command)} ({version.splitlines()[0] if version else 'version unknown'})"


def _cache() -> str:
    """Describe the cache folder: path, number and size of compiled kernels."""
    try:
        folder = cache_folder()
        sizes = [path.stat().st_size for path in folder.glob("*.so")]
    except (DeviceError, OSError) as error:
        return f"none: {error}"
    return f"{from_home(folder)}: {len(sizes)} kernels, {sum(sizes) / 1e6:.1f} MB"
