"""What is here: versions, GPUs, compiler, cache. Never fails because something is missing."""

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from cupydrive import __version__
from cupydrive.errors import DeviceError
from cupydrive.executors import choose, cuda_problem
from cupydrive.executors.host import cache_folder, compiler, processor_name

PACKAGES = ("numpy", "torch", "cupy-cuda13x", "cupy-cuda12x", "cupy", "gymnasium", "nvidia-cuda-nvrtc", "ziglang")


@dataclass(frozen=True)
class Info:
    """The parts of this machine that matter here, each a line or a list of lines."""

    versions: dict[str, str]
    gpus: list[str]
    processor: str
    compiler: str
    cache: str
    device: str

    def __str__(self):
        rows = [("versions", ", ".join(f"{name} {number}" for name, number in self.versions.items()))]
        rows += [("GPU", gpu) for gpu in self.gpus]
        rows += [("CPU", self.processor), ("compiler", self.compiler), ("cache", self.cache), ("auto", self.device)]
        return "\n".join(f"{name:<10}{text}" for name, text in rows)

    __repr__ = __str__


def info():
    """Return what is here as an ``Info``, which prints well."""
    versions = {"cupydrive": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return Info(versions, _gpus(), processor_name(), _compiler(), _cache(), choose("auto")[1])


def _gpus():
    problem = cuda_problem()
    if problem is not None:
        return [f"none: {problem}"]
    import cupy

    runtime = cupy.cuda.runtime
    major, minor = divmod(runtime.driverGetVersion() // 10, 100)
    lines = []
    for i in range(runtime.getDeviceCount()):
        p = runtime.getDeviceProperties(i)
        memory = p["totalGlobalMem"] / 2**30
        lines.append(
            f"{p['name'].decode()}, {memory:.0f} GiB, sm_{p['major']}{p['minor']}, driver for CUDA {major}.{minor}"
        )
    nvrtc = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    return [*lines, f"NVRTC {nvrtc}"]


def _compiler():
    try:
        command, text = compiler()
    except DeviceError as error:
        return f"none: {error}"
    return f"{' '.join(command)}: {text.splitlines()[0] if text else 'unknown version'}"


def _cache():
    folder = cache_folder()
    files = list(folder.glob("*.so"))
    return f"{folder}: {len(files)} kernels, {sum(f.stat().st_size for f in files) / 2**20:.1f} MiB (GPU kernels: CuPy's cache)"
