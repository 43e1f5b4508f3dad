"""What torch and CuPy do together: launches of both that are captured as one CUDA graph."""

from threading import Thread

import pytest

from cupydrive.executors.interop import capture

pytestmark = pytest.mark.full


@pytest.mark.gpu
def test_another_thread_may_load_a_kernel_while_a_graph_is_captured():
    """As those do that build ahead: a module's memory is taken then, and a number is read back."""
    import cupy
    import torch

    code = 'extern "C" { __device__ int number = 7; __global__ void nothing() {} }'
    module, found = cupy.RawModule(code=code), []

    def load():
        module.get_function("nothing")
        found.append(int(cupy.ndarray((), cupy.int32, module.get_global("number")).get()))

    x = torch.zeros(4, device="cuda")

    def call():
        loading = Thread(target=load)
        loading.start()
        loading.join()
        x.add_(1)

    graph = capture(call, lambda: None, warm_up=0)
    graph.replay()
    assert found == [7] and x.tolist() == [1.0] * 4
