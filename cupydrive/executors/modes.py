"""torch's modes of a thread or process, and locks for changing global state."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

# Held to draw from torch's global generators, to capture a CUDA graph, and to synchronize a GPU.
# CUDA forbids a synchronization in any thread while another one captures.
EXCLUSIVE = threading.RLock()
# Held to change torch's default dtype and the precision of float32 products.
SETTINGS_LOCK = threading.RLock()
_found: list[
    list
    # The settings that each context of ``ordinary_modes`` has found. The last context to exit
    # restores the first settings.
] = []


def default_device(device: str) -> AbstractContextManager:
    """Return a context that sets torch's default device to ``device``.

    Nothing changes if the caller's default is ``device`` or the CPU.
    """
    import torch

    return (
        nullcontext()
        if torch.get_default_device().type in ("cpu", device)
        else torch.device(device)
    )


def product_settings() -> tuple[str, bool | None, bool, bool]:
    """Return torch's settings of matrix products and convolutions on a GPU.

    Returns:
        The precision of float32 matrix products, whether convolutions may use TF32, whether their
        algorithms are deterministic, and whether cuDNN benchmarks them. The second value is None if
        the caller has set ``fp32_precision``.
    """
    import torch

    matrices, cudnn, tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn, None
    with suppress(RuntimeError):
        tf32 = cudnn.allow_tf32
    return matrices, tf32, cudnn.deterministic, cudnn.benchmark


def set_products(matrices: str, tf32: bool | None, deterministic: bool, benchmark: bool) -> None:
    """Restore the settings that ``product_settings`` returns."""
    import torch

    torch.set_float32_matmul_precision(matrices)
    if tf32 is not None:
        torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = benchmark


@contextmanager
def ordinary_modes(
    device: str | None = None, tf32: bool | None = None, benchmark: bool = False
) -> Iterator[None]:
    """Reset torch's modes to their defaults for the duration of the context.

    These are autocast, inference mode, gradients, default device, default dtype and precision. The
    last two are settings of the whole process.

    Args:
        device: Default device of new tensors, ``"cuda"`` or ``"cpu"``. Defaults to the caller's
            default device.
        tf32: Whether float32 products may use TF32 on a GPU. If given, convolutions are also
            deterministic. Defaults to the caller's setting.
        benchmark: Whether cuDNN benchmarks its convolution algorithms and uses the fastest one,
            which may differ between processes. Only used if ``tf32`` is given.
    """
    import torch

    # torch caches cast weights until the outermost autocast ends, even a disabled one. Learning
    # changes the weights, so the cache must be cleared.
    nested = torch.autocast_increment_nesting() > 1
    torch.autocast_decrement_nesting()
    kinds = [
        kind
        for kind in ("cpu", "cuda")
        if torch.is_autocast_enabled(kind) or (nested and kind == "cpu")
    ]
    casts = [torch.autocast(kind, enabled=False, cache_enabled=False) for kind in kinds]
    cpu, cuda = [*casts, nullcontext(), nullcontext()][:2]
    with SETTINGS_LOCK:
        dtype, products = torch.get_default_dtype(), None
        torch.set_default_dtype(torch.float32)
        if tf32 is not None:
            # Settings of torch.backends...fp32_precision by the caller are kept.
            with suppress(RuntimeError):
                products = product_settings()
                convolutions = None if products[1] is None else tf32
                set_products("high" if tf32 else "highest", convolutions, True, benchmark)
        _found.append(found := [dtype, products])
    try:
        with (
            torch.inference_mode(False),
            cpu,
            cuda,
            default_device(device) if device else nullcontext(),
        ):
            yield
    finally:
        with SETTINGS_LOCK:
            place = [*map(id, _found)].index(id(found))
            dtype, products = _found.pop(place)
            # A later context is still active. It restores the settings that this one has found.
            if later := _found[place : place + 1]:
                later[0][:] = dtype, products or later[0][1]
            else:
                torch.set_default_dtype(dtype)
                if products is not None:
                    set_products(*products)
