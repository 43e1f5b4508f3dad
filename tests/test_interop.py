"""What torch and CuPy do together: launches of both that are captured as one CUDA graph."""

import gc
import weakref

import pytest

from cupydrive.executors.interop import capture, garbage_kept


class Thing:
    """Something that only garbage collection frees: it refers to itself."""

    def __init__(self, held=None):
        self.held, self.itself = held, self


@pytest.fixture
def eager_collection():
    """Let Python collect whenever an object is made; put back what was."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_kept_and_afterwards_collected_as_before(eager_collection, enabled):
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyError), garbage_kept():
            seen = weakref.ref(Thing())
            made = [[] for _ in range(1000)]
            assert seen() is not None
            raise KeyError
        assert gc.isenabled() == enabled
        made += [[] for _ in range(1000)]
        assert (seen() is None) == enabled
    finally:
        gc.enable()


@pytest.mark.gpu
def test_a_module_that_is_garbage_does_not_end_a_capture(eager_collection):
    """A module is unloaded when it is freed, which a stream that captures does not survive."""
    import cupy
    import torch

    module = cupy.RawModule(code='extern "C" __global__ void one_more(float* x) { x[threadIdx.x] += 1.0f; }')
    kernel = module.get_function("one_more")
    x = torch.zeros(4, device="cuda")
    kernel((1,), (4,), (x.data_ptr(),))
    kept = [(module, kernel)]
    del module, kernel

    def call():
        Thing(kept.pop())
        made = [[] for _ in range(1000)]
        x.add_(len(made))

    graph = capture(call, lambda: None, warm_up=0)
    graph.replay()
    assert x.tolist() == [1001.0] * 4
