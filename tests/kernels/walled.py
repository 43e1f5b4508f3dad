"""Memory that ends at a page nobody may touch: who reads or writes behind an array ends the
process, and with it the test.

No tests of its own. Elsewhere what lies behind an array is there by luck, and what a kernel reads
of it seldom shows.
"""

import ctypes
import mmap

import torch

NO_ACCESS = 0
_library = ctypes.CDLL(None, use_errno=True)


def walled(tensor):
    """Return a copy of a CPU's tensor whose last byte is the last before such a page; None, and a
    GPU's tensor, as they are.
    """
    if tensor is None or tensor.device.type != "cpu":
        return tensor
    size, page = tensor.numel() * tensor.element_size(), mmap.PAGESIZE
    wall = -(-size // page) * page
    # holds the map for as long as it lives
    memory = torch.frombuffer(mmap.mmap(-1, wall + page), dtype=torch.uint8)
    if _library.mprotect(
        ctypes.c_void_p(memory.data_ptr() + wall), ctypes.c_size_t(page), NO_ACCESS
    ):
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory[wall - size : wall].view(tensor.dtype).view(tensor.shape).copy_(tensor)
