"""Read-only arrays of kernels, with one copy per device that all environments and batches share."""

from collections.abc import Hashable
from weakref import WeakValueDictionary

import numpy as np

from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.protocols import Array, Executor

_copies: WeakValueDictionary = WeakValueDictionary()  # by device and hash


def device_copy(executor: Executor, array: np.ndarray, key: Hashable) -> Array:
    """Return the shared copy of a NumPy array on the device of ``executor``.

    Args:
        executor: Executor that owns the memory.
        array: Array to copy.
        key: Device and hash of the array's content.
    """
    key = executor.name, key
    with EXCLUSIVE:  # `synchronize` takes this lock on a GPU
        copy = _copies.get(key)
        if copy is None:
            copy = executor.allocate(array.shape, array.dtype)
            executor.put(copy, array)
            executor.synchronize()  # afterwards, launches of any stream may read it
            _copies[key] = copy
        return copy
