"""What torch and CuPy do together: launches of both that are captured as one CUDA graph."""

import gc
import weakref
from threading import Event, Thread

import pytest

from cupydrive.executors.interop import capture, side_by_side

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

    replay = capture(call, lambda: None, warm_up=0)
    replay()
    assert found == [7] and x.tolist() == [1.0] * 4


@pytest.mark.gpu
def test_another_thread_may_replay_a_graph_while_one_is_captured():
    import torch

    x, y, ready = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda"), Event()
    replay = capture(lambda: x.add_(1), lambda: None, warm_up=0)
    replayed = []

    def other():
        ready.set()
        replay()
        replayed.append(True)

    thread = Thread(target=other)

    def call():
        thread.start()
        ready.wait()
        for _ in range(2000):
            y.add_(1)

    again = capture(call, lambda: None, warm_up=0)
    thread.join()
    again()
    torch.cuda.synchronize()
    assert replayed and x.tolist() == [1.0] * 4 and y.tolist() == [2000.0] * 4


@pytest.mark.gpu
@pytest.mark.parametrize("streams_of_graph", [1, 2])
def test_a_graph_has_no_work_of_another_thread(streams_of_graph):
    """Which queues some in each of the streams that torch gives to all threads."""
    import torch

    streams = [torch.cuda.Stream() for _ in range(64)]
    x, y = torch.zeros(len(streams), device="cuda"), torch.zeros(4, device="cuda")

    def other():
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                x[k : k + 1].add_(1)

    def interrupted():
        thread = Thread(target=other)
        thread.start()
        thread.join()
        y[0].add_(1)

    calls = [lambda k=k: y[k].add_(1) for k in range(1, streams_of_graph)] + [interrupted]
    replay = capture(lambda: side_by_side(calls), lambda: None, warm_up=0)
    for _ in range(2):
        replay()
    torch.cuda.synchronize()
    assert x.tolist() == [1.0] * len(streams)
    assert y.tolist() == [2.0] * streams_of_graph + [0.0] * (4 - streams_of_graph)


@pytest.mark.gpu
def test_a_replay_keeps_the_memory_of_its_graph():
    import torch

    def counter():
        count = torch.zeros(4, device="cuda")
        return capture(lambda: count.add_(1), lambda: None, warm_up=0), weakref.ref(count)

    replay, count = counter()
    gc.collect()
    assert count() is not None
    replay()
    assert count().tolist() == [1.0] * 4
