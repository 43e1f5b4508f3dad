"""Executors, which run kernels on the CPU or a CUDA GPU. ``executor(name)`` returns one.

``protocols.Executor`` is their interface. This package also contains kernels written in Python, and
cached measurements of devices.
"""

import ctypes
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from cupydrive.errors import DeviceError
from cupydrive.inputs.arguments import checked_choice, errors_as
from cupydrive.protocols import Executor

if TYPE_CHECKING:
    import torch

Device = Literal["cuda", "cpu"]
DEVICES = ("auto", "cuda", "cpu")


@lru_cache(maxsize=1)
def cuda_problem() -> str | None:
    """Return the reason why CUDA is unavailable, or None if it is available."""
    try:
        import cupy
    except ModuleNotFoundError:
        try:
            ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            return "no NVIDIA driver is installed"
        return (
            'CuPy is not installed: pip install "cupy-cuda13x[ctk]>=14.1", or cupy-cuda12x for a '
            "driver of CUDA 12"
        )
    except Exception as error:  # a broken installation must not hide the CPU
        return f"CuPy does not load: {error}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if cupy.cuda.runtime.driverGetVersion() == 0:
            return "no NVIDIA driver is installed"
        return f"no usable GPU: {error}"
    return None if count else "no GPU"


def checked_device(device: "str | torch.device", where: str = "cupydrive") -> str:
    """Validate the name of a device, whether or not the device is available.

    Args:
        device: One of ``DEVICES``, or a ``torch.device``.
        where: Function that was called, for the message.

    Raises:
        DeviceError: If the name is unknown.
    """
    torch = sys.modules.get("torch")  # avoids importing torch only for this check
    if torch is not None and isinstance(device, torch.device):
        device = "cpu" if device.type == "cpu" else str(device)
    if isinstance(device, str) and device.startswith("cuda:"):  # torch's name of one GPU
        raise DeviceError(
            f"{where}: device = {device!r}, expected 'auto', 'cuda' or 'cpu'. 'cuda' is torch's "
            "current GPU. Select it with torch.cuda.set_device, or with CUDA_VISIBLE_DEVICES on "
            "the command line"
        )
    with errors_as(DeviceError):
        return checked_choice(where, "device", device, DEVICES)


def choose(device: "str | torch.device" = "auto") -> tuple[Device, str]:
    """Choose a device. Return ``"cuda"`` or ``"cpu"``, and the reason in one line.

    Raises:
        DeviceError: If ``device`` is unknown or cannot be used here.
    """
    device = checked_device(device)
    if device == "cpu":
        return "cpu", "device: cpu, as requested"
    problem = cuda_problem()
    if problem is None:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
        return "cuda", f"device: cuda ({name})"
    if device == "cuda":
        raise DeviceError(f"device = 'cuda', but {problem}. Fix the problem, or use device='cpu'")
    return "cpu", f"device: cpu, because {problem}"


def executor(device: str, **options: Any) -> Executor:
    """Return the executor of ``"cuda"`` or ``"cpu"``."""
    if device == "cuda":
        from cupydrive.executors.cuda import CudaExecutor

        return CudaExecutor(**options)  # type: ignore[return-value]
    from cupydrive.executors.host import HostExecutor

    return HostExecutor(**options)
