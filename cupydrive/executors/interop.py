"""Bridges between CuPy, NumPy and torch: shared memory through DLPack, and shared streams."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike

from cupydrive.errors import ParameterError, SpecError
from cupydrive.executors.modes import EXCLUSIVE
from cupydrive.inputs.arguments import checked_array, shown
from cupydrive.protocols import Array, EnvParams
from cupydrive.spec import Group

if TYPE_CHECKING:
    import cupy


def as_torch(array: Array, moved: list | None = None) -> torch.Tensor:
    """Return a torch tensor that shares the memory of a NumPy or CuPy array.

    Args:
        array: The array.
        moved: On a CPU, True is appended when torch releases the memory. torch moves a tensor's
            storage in ``share_memory_()`` and when a tensor is sent to another process. Views of
            the tensor move with it.
    """
    if torch.is_inference_mode_enabled():  # the view may outlive the mode
        with torch.inference_mode(False):
            return as_torch(array, moved)
    if isinstance(array, np.ndarray):
        if moved is not None:
            array = array.view()  # only torch references this view
            weakref.finalize(array, moved.append, True).atexit = False
    elif isinstance(owner := getattr(array.data.mem, "_owner", None), torch.Tensor):
        size = array.itemsize
        begin, strides = (
            array.data.ptr - owner.data_ptr(),
            [stride // size for stride in array.strides],
        )
        return owner.view(torch_dtype(array.dtype)).as_strided(array.shape, strides, begin // size)
    return torch.from_dlpack(array)


@lru_cache
def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """Return the torch dtype of a NumPy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def as_numpy(where: str, name: str, value: ArrayLike | torch.Tensor) -> np.ndarray:
    """Convert a tensor on any device, or an argument of ``checked_array``, to a NumPy array.

    Args:
        where: The function or environment, for the message.
        name: The argument.
        value: The caller's value.

    Raises:
        ParameterError: If the value is not an array of bools, ints or floats.
    """
    if (
        isinstance(value, torch.Tensor)
        and value.device.type != "meta"
        and value.layout == torch.strided
    ):
        tensor = value.detach().cpu()
        value = (
            tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
        ).numpy()
    return checked_array(where, name, value)


def heuristic_heads(
    heuristic: Callable, params: EnvParams, obs: torch.Tensor, group: Group
) -> list[torch.Tensor]:
    """Call a heuristic on observations (..., *obs_shape), and return actions (...) of each head.

    Raises:
        SpecError: If the result is not a tuple of H numeric arrays of this shape on this device.
    """
    found, floats = heuristic(params, obs, group.name), group.continuous
    heads = list(found) if isinstance(found, tuple | list) else []
    kinds = {**dict.fromkeys("biu", np.int32), "f": np.float32}
    for k, x in enumerate(heads):
        # Copy, because torch supports neither negative strides nor big-endian numbers.
        if isinstance(x, np.ndarray) and x.dtype.kind in kinds:
            heads[k] = torch.from_numpy(np.array(x, kinds[x.dtype.kind], order="C"))
    wanted = obs.shape[: -len(group.obs_shape)], obs.device, torch.strided
    good = [isinstance(x, torch.Tensor) and (x.shape, x.device, x.layout) == wanted for x in heads]
    if good != [True] * group.heads or any(
        x.is_complex() or x.is_floating_point() > floats for x in heads
    ):
        raise SpecError(
            f"the heuristic of group {group.name!r}: got {shown(found)}, expected a tuple with "
            f"{'floats' if floats else 'integers'} {tuple(obs.shape[:-1])} on {obs.device} for "
            f"each of {group.heads} action heads. Compute them from the observations"
        )
    return [x.to(torch.float32 if floats else torch.int32) for x in heads]


class Views(dict):
    """Fixed dictionary of views of kernel memory by name.

    Write into the views to change the memory. Replacing a view would not affect the kernel, so it
    raises ``ParameterError``. A copy is a plain dictionary.

    Args:
        called: Name of the dictionary in messages.
        views: Arrays by name.
    """

    __slots__ = ("called",)

    def __init__(self, called: str, views: dict) -> None:
        super().__init__(views)
        self.called = called

    def __setitem__(self, name: str, value: object) -> None:
        if self[name] is not value:  # `views[name] += 1` assigns the same view again
            self._refuse()

    def _refuse(self, *_: object, **__: object) -> None:
        raise ParameterError(
            f"{self.called}: views cannot be replaced. Write into them, as in "
            f"{self.called}[NAME][:] = ..."
        )

    __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type, tuple]:
        return dict, (dict(self),)


def member(records: Array, dtype: np.dtype, name: str) -> Array:
    """Return a strided view of one member of an array of structs.

    Args:
        records: (N,) structs in NumPy, or their bytes (N, itemsize) in CuPy, which does not support
            structs.
        dtype: The struct's NumPy dtype.
        name: The member.

    Returns:
        (N, *shape of the member), strided, in the library of ``records``.
    """
    if isinstance(records, np.ndarray):
        return records[name]
    import cupy

    inner, offset = dtype[name], dtype.fields[name][1]  # type: ignore[index]
    base, shape = inner.subdtype if inner.subdtype else (inner, ())
    strides = [
        dtype.itemsize,
        *(base.itemsize * int(np.prod(shape[k + 1 :])) for k in range(len(shape))),
    ]
    return cupy.ndarray(
        (records.shape[0], *shape), base, records.data + offset, strides=tuple(strides)
    )


def zeros(
    device: torch.device | str, *shape: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Allocate zeros on a device, independent of torch's default device and dtype."""
    return torch.zeros(shape, dtype=dtype, device=device)


def make_call(
    ints: Mapping[str, int],
    tensors: Mapping[str, torch.Tensor | None],
    longs: Mapping[str, int] | None = None,
    floats: Mapping[str, float] | None = None,
    structs: Mapping[str, np.ndarray] | None = None,
) -> np.ndarray:
    """Create a kernel's argument, a structured scalar.

    Its members are, in this order: other structured scalars, int32, float32, int64, and pointers. A
    tensor that is None becomes a null pointer.
    """
    kinds = (("i4", ints), ("f4", floats or {}), ("i8", longs or {}), ("u8", tensors))
    dtype: list[tuple[str, np.dtype | str]] = [
        (name, struct.dtype) for name, struct in (structs or {}).items()
    ]
    dtype += [(name, kind) for kind, members in kinds for name in members]
    numbers = [value for _, members in kinds[:3] for value in members.values()]
    values = [
        *(structs or {}).values(),
        *numbers,
        *(0 if t is None else t.data_ptr() for t in tensors.values()),
    ]
    return np.array(tuple(values), np.dtype(dtype, align=True))


def capture(
    call: Callable[[], object], restore: Callable[[], object], warm_up: int = 2
) -> Callable[[], None]:
    """Capture a CUDA graph of ``call()`` with kernels of torch and CuPy, and return its replay.

    Args:
        call: Function that queues work on torch's current stream. It must allocate only through
            torch and must not synchronize.
        restore: Function that restores the state after the warm-up calls.
        warm_up: Number of calls before the capture, in which libraries initialize themselves.
    """
    with EXCLUSIVE:
        own, stream = private_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(warm_up):
                call()
        torch.cuda.synchronize()
        restore()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Capture only this thread. Other threads may still load kernels, which would invalidate a
        # global capture.
        captured = torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")
        # The outer context restores torch's stream even if the capture fails.
        with torch.cuda.stream(stream), captured, own:
            call()
    # The graph reads memory of the objects that `call` refers to, so they must stay alive with it.
    kept = call, own, graph

    def replay() -> None:
        with EXCLUSIVE:  # torch replays no graph while another thread captures
            kept[-1].replay()

    return replay


def private_stream() -> tuple[cupy.cuda.Stream, torch.cuda.ExternalStream]:
    """Create a CUDA stream, and return it with torch's view of it. The first must be kept alive.

    Torch's own 32 streams are shared by all threads. Work that another thread queues in a stream
    that is being captured would become part of the graph.
    """
    import cupy

    own = cupy.cuda.Stream(non_blocking=True)
    return own, torch.cuda.ExternalStream(own.ptr)


_streams: dict[tuple[int, int], cupy.cuda.Stream] = {}


def torch_stream() -> cupy.cuda.Stream:
    """Return torch's current CUDA stream as a CuPy stream, so that both libraries stay in order."""
    import cupy

    stream = torch.cuda.current_stream()
    key = (stream.device_index, stream.cuda_stream)
    if key not in _streams:
        _streams[key] = cupy.cuda.Stream.from_external(stream)
    return _streams[key]


_sides = threading.local()  # a stream that another thread captures is unusable


def side_by_side(calls: Sequence[Callable[[], object]]) -> None:
    """Call each of ``calls`` in its own CUDA stream, so that the GPU may run them concurrently.

    All of them begin after the work in torch's current stream, which then waits for all of them.
    """
    current, sides = torch.cuda.current_stream(), _sides.__dict__.setdefault("streams", [])
    while len(sides) < len(calls) - 1:
        sides.append(private_stream())
    sides = [side for _, side in sides[: len(calls) - 1]]
    for side in sides:
        side.wait_stream(current)
    for stream, call in zip((current, *sides), calls, strict=True):
        with torch.cuda.stream(stream), torch_stream():
            call()
    for side in sides:
        current.wait_stream(side)


# ---- memory at an address ------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def native_at(device: str, address: int, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return a NumPy or CuPy view of memory at an address. The caller must keep it allocated."""
    size = max(1, int(np.prod(shape)) * dtype.itemsize)
    if device == "cpu":
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        return raw[: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
    import cupy

    pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, None), 0)
    return cupy.ndarray(shape, dtype, pointer)


@lru_cache(maxsize=4096)
def torch_at(device: str, address: int, shape: tuple[int, ...], dtype: np.dtype) -> torch.Tensor:
    """Return a torch view of memory at an address."""
    return as_torch(native_at(device, address, shape, dtype))


@lru_cache(maxsize=256)
def members_at(device: str, address: int, count: int, dtype: np.dtype) -> dict[str, torch.Tensor]:
    """Return torch views of the members of ``count`` structs at an address."""
    if device == "cpu":
        records = native_at(device, address, (count,), dtype)
    else:
        records = native_at(device, address, (count, dtype.itemsize), np.dtype(np.uint8))
    return {name: as_torch(member(records, dtype, name)) for name in dtype.names or ()}
