"""What torch keeps for a thread or the whole process: its modes, and locks for changing what all
threads share.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

# Held to draw from torch's global generators, to capture a CUDA graph, and to wait for a whole GPU,
# which CUDA forbids in any thread while another one captures.
EXCLUSIVE = threading.RLock()
# held to change torch's default dtype and the precision of float32 products
SETTINGS_LOCK = threading.RLock()
_found: list[
    list
    # both, as each context of ``ordinary_modes`` has found them: the last one to leave puts the
    # first ones back
] = []


def default_device(device: str) -> AbstractContextManager:
    """Return a context in which torch's default device is ``device``, unless the caller's default
    is that or the CPU.
    """
    import torch

    return (
        nullcontext()
        if torch.get_default_device().type in ("cpu", device)
        else torch.device(device)
    )


def product_settings() -> tuple[str, bool | None, bool, bool]:
    """Return how a GPU computes products: the precision of float32 matrix products, whether
    convolutions may use TF32 (None: the caller has set ``fp32_precision``), whether their
    algorithms are deterministic, and whether cuDNN chooses these by measuring them.
    """
    import torch

    matrices, cudnn, tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn, None
    with suppress(RuntimeError):
        tf32 = cudnn.allow_tf32
    return matrices, tf32, cudnn.deterministic, cudnn.benchmark


def set_products(matrices: str, tf32: bool | None, deterministic: bool, benchmark: bool) -> None:
    """Set what ``product_settings`` returns."""
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
    """Compute as if the caller had changed nothing: autocast, inference mode, gradients, default
    device, dtype, precision.

    The last two are of the whole process.

    Args:
        device: Where tensors are made that name no device: ``"cuda"`` or ``"cpu"``. Defaults to the
            caller's default device.
        tf32: Whether float32 products may use TF32 on a GPU, where convolutions then give the same
            bits each time. Defaults to the caller's choice.
        benchmark: With ``tf32`` given: whether cuDNN measures its algorithms of convolutions and
            takes the fastest one, which may be another in another process.
    """
    import torch

    # Until the outermost autocast ends, also one that is off, torch keeps cast weights, which
    # learning changes.
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
            # a caller who sets torch.backends...fp32_precision keeps it
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
            # it goes on, and puts back what this one has found
            if later := _found[place : place + 1]:
                later[0][:] = dtype, products or later[0][1]
            else:
                torch.set_default_dtype(dtype)
                if products is not None:
                    set_products(*products)
