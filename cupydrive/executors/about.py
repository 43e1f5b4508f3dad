"""What this machine offers to cupydrive: versions, GPUs, compiler, cache, and the device that ``"auto"`` picks."""

import platform
import subprocess
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cupydrive import __version__
from cupydrive.errors import CupydriveError, DeviceError
from cupydrive.executors import choose, cuda_problem
from cupydrive.executors.host import cache_folder, compiler, processor_name, usable_cores
from cupydrive.inputs.files import from_home

# Distributions that may hold a library, as wheels are named; the first that is installed counts.
_DISTRIBUTIONS = {
    "NumPy": ("numpy",),
    "torch": ("torch",),
    "CuPy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "NVRTC": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "gymnasium": ("gymnasium",),
}


@dataclass(frozen=True)
class Gpu:
    """One GPU: its name, bytes of memory, compute capability such as "9.0", and the driver's version."""

    name: str
    memory_bytes: int
    compute_capability: str
    driver: str

    def __str__(self):
        return (
            f"{self.name}, {self.memory_bytes / 2**30:.0f} GiB, compute capability {self.compute_capability}, "
            f"driver {self.driver}"
        )


@dataclass(frozen=True)
class Info:
    """What ``info`` found; a part that is missing says why.

    Args:
        versions: Version by library, "not installed" where it is missing.
        gpus: GPUs of this machine.
        gpu_problem: Why CUDA cannot be used, or None.
        processor: The CPU's model.
        compiler: Command and version of the C++ compiler, or why there is none.
        cache: Folder of compiled CPU kernels. CuPy keeps those of the GPU in a folder of its own.
        cache_kernels: Kernels in ``cache``.
        cache_bytes: Their size.
        cache_problem: Why the usual folder is not used, or an empty string.
        device: What ``device="auto"`` picks, and why.
    """

    versions: dict[str, str]
    gpus: tuple[Gpu, ...]
    gpu_problem: str | None
    processor: str
    compiler: str
    cache: Path | None
    cache_kernels: int
    cache_bytes: int
    cache_problem: str
    device: str

    def __str__(self):
        size = self.cache and f"{from_home(self.cache)}: {self.cache_kernels} kernels, {self.cache_bytes / 1e6:.1f} MB"
        rows = [*self.versions.items()]
        rows += [("GPU", gpu) for gpu in self.gpus]
        rows += [("CUDA", f"cannot be used: {self.gpu_problem}")] if self.gpu_problem else []
        rows += [("CPU", self.processor), ("compiler", self.compiler)]
        rows += [("cache", size or "none")]
        rows += [("", self.cache_problem)] if self.cache_problem else []
        rows.append(("device", self.device.removeprefix("device: ")))
        return "\n".join(f"{name:<10} {value}" for name, value in rows)

    __repr__ = __str__

    @property
    def line(self):
        """Versions and device in one line, for the head of a notebook or a log."""
        named = ("cupydrive", "Python", "torch", "CuPy")
        versions = [f"{name} {self.versions[name]}" for name in named if self.versions[name] != "not installed"]
        if self.gpus and self.gpu_problem is None:
            where = f", driver {self.gpus[0].driver}"
        else:
            where = f" ({self.processor}, {usable_cores()} cores)"
        return f"{', '.join(versions)}; {self.device}{where}"


def info():
    """Return what this machine offers, an ``Info``; never fails because a part is missing."""
    problem = cuda_problem()
    gpus = _gpus_of_driver() if problem else _gpus_of_cupy()
    try:
        command, version = compiler()
        said = f"{' '.join(command)} ({version.splitlines()[0] if version else 'version unknown'})"
    except (CupydriveError, OSError) as error:
        said = f"none: {error}"
    try:
        device = choose("auto")[1]
    except CupydriveError as error:
        device = f"none: {error}"
    return Info(_versions(), gpus, problem, processor_name(), said, *_cache(), device)


def _versions():
    found = {"cupydrive": __version__, "Python": platform.python_version()}
    for name, distributions in _DISTRIBUTIONS.items():
        found[name] = "not installed"
        for distribution in distributions:
            try:
                # Reads a file: importing torch for its version would take seconds.
                found[name] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    if found["NVRTC"] == "not installed" and found["CuPy"] != "not installed":
        try:  # of a CUDA toolkit
            from cupy.cuda import nvrtc

            found["NVRTC"] = "{}.{}".format(*nvrtc.getVersion())
        except Exception as error:  # CuPy raises many types where a library is missing
            found["NVRTC"] = f"does not load: {error}".splitlines()[0]
    return found


def _gpus_of_cupy():
    import cupy

    runtime, driver, found = cupy.cuda.runtime, _driver_version(), []
    for number in range(runtime.getDeviceCount()):
        about = runtime.getDeviceProperties(number)
        capability = f"{about['major']}.{about['minor']}"
        found.append(Gpu(about["name"].decode(), int(about["totalGlobalMem"]), capability, driver))
    return tuple(found)


def _driver_version():
    lines = _nvidia_smi("driver_version")
    if lines:
        return lines[0]
    import cupy

    version = cupy.cuda.runtime.driverGetVersion()
    return f"for CUDA {version // 1000}.{version % 1000 // 10}"


def _gpus_of_driver():
    """Return the GPUs that the driver names: those of a machine where CuPy is missing or broken."""
    found = []
    for line in _nvidia_smi("name,memory.total,compute_cap,driver_version"):
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[1].split()[0].isdigit():
            found.append(Gpu(parts[0], int(parts[1].split()[0]) * 2**20, parts[2], parts[3]))
    return tuple(found)


def _nvidia_smi(query):
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _cache():
    """Return the cache's folder, number of kernels, bytes, and why it is not the usual one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            folder = cache_folder()
        except OSError as error:
            return None, 0, 0, f"no folder can be written: {error}"
        except DeviceError as error:
            return None, 0, 0, str(error)
    sizes = []
    for path in folder.glob("*.so"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # another process has just removed it
            continue
    return folder, len(sizes), sum(sizes), "; ".join(str(w.message) for w in caught)
