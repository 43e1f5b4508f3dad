"""Arrays that kernels only read: one copy on each device, however many environments and batches
share it.
"""

from collections.abc import Hashable
from weakref import WeakValueDictionary

import numpy as np

from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.protocols import Array, Executor

_copies: WeakValueDictionary = WeakValueDictionary()  # by device and hash


def device_copy(executor: Executor, array: np.ndarray, key: Hashable) -> Array:
    """Return the copy of a NumPy array on the device of ``executor``: the one that there is, or a
    new one.

    Args:
        executor: Whose memory it is in.
        array: What to copy.
        key: Device and hash of what the array holds.
    """
    key = executor.name, key
    with EXCLUSIVE:  # which `synchronise` takes on a GPU
        copy = _copies.get(key)
        if copy is None:
            copy = executor.allocate(array.shape, array.dtype)
            executor.put(copy, array)
            executor.synchronise()  # launches of any stream may read it
            _copies[key] = copy
        return copy
