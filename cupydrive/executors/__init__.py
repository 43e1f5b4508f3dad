"""Where kernels run: the CPU or a CUDA GPU. What an executor offers is ``protocols.Executor``; ``executor(name)`` returns one.

Also what they share with kernels written in Python, and what a device has been measured to do.
"""

import ctypes
import sys
from functools import lru_cache

from cupydrive.errors import DeviceError
from cupydrive.inputs.arguments import checked_choice, is_number, shown

DEVICES = ("auto", "cuda", "cpu")


def driver_cuda():
    """Return the newest CUDA version (major, minor) that the NVIDIA driver runs, or None where there is no driver."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def cupy_hint(cuda):
    """Return how to install CuPy beside a driver for the CUDA version ``cuda`` (major, minor), or why not to."""
    if cuda is None:
        return "there is no NVIDIA driver"
    if cuda < (12, 0):
        return (
            f"the NVIDIA driver runs CUDA {cuda[0]}.{cuda[1]} and CuPy needs 12.0 or newer: update the driver to version 525 "
            "or newer"
        )
    return f'CuPy is not installed: pip install "cupy-cuda{min(cuda[0], 13)}x[ctk]>=14.1"'


@lru_cache(maxsize=1)
def cuda_problem():
    """Return why CUDA cannot be used here, or None if it can."""
    try:
        import cupy
    except ModuleNotFoundError:
        return cupy_hint(driver_cuda())
    except Exception as error:  # a broken installation must not hide the CPU
        return f"CuPy does not load: {error}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if cupy.cuda.runtime.driverGetVersion() == 0:
            return "there is no NVIDIA driver"
        return f"no usable GPU: {error}"
    return None if count else "no GPU"


def checked_device(device, where="cupydrive"):
    """Return ``device`` if it is one of ``DEVICES``, whether or not it can be used here; else raise ``DeviceError``.

    A ``torch.device`` is what its text is; ``where`` is who asks, for the message.
    """
    torch = sys.modules.get("torch")  # not imported for it
    if torch is not None and isinstance(device, torch.device):
        device = "cpu" if device.type == "cpu" else str(device)
    kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind == "cuda" and number.isdecimal() and len(number) < 4:  # torch's name of one GPU
        raise DeviceError(
            f"{where}: device = {device!r}; it must be 'auto', 'cuda' or 'cpu'. 'cuda' is torch's current GPU: call "
            f"torch.cuda.set_device({number}) first, and pass device='cuda'; on the command line set CUDA_VISIBLE_DEVICES="
            f"{number}, and pass --device cuda"
        )
    if is_number(device, int) and device >= 0:  # torch's number of a GPU
        raise DeviceError(
            f"{where}: device = {shown(device)}; it must be 'auto', 'cuda' or 'cpu'. Did you mean 'cuda'?"
        )
    return checked_choice(where, "device", device, DEVICES, DeviceError)


def choose(device="auto"):
    """Return ``(device, reason)``: ``"cuda"`` or ``"cpu"`` and one line that says why.

    Raises:
        DeviceError: If ``device`` is unknown or cannot be used here.
    """
    device = checked_device(device)
    if device == "cpu":
        return "cpu", "device: cpu, as asked for"
    problem = cuda_problem()
    if problem is None:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
        return "cuda", f"device: cuda ({name})"
    if device == "cuda":
        raise DeviceError(f"device = 'cuda', but {problem}. Use device='cpu', or mend that")
    return "cpu", f"device: cpu, because {problem}"


def executor(device, **options):
    """Return the executor of ``"cuda"`` or ``"cpu"``."""
    if device == "cuda":
        from cupydrive.executors.cuda import CudaExecutor

        return CudaExecutor(**options)
    from cupydrive.executors.host import HostExecutor

    return HostExecutor(**options)
