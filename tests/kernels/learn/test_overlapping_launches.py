"""Kernels that begin before the previous launch has ended give the same bits as kernels in order.

On a CPU, each element of a launch has a thread here, and one thread runs at a time. An element
begins as early as a GPU may start it: a kernel defined by KERNEL_AHEAD once every element of the
previous launch has ended or called release_next(), any other kernel when the previous launch has
ended. In await_previous() an element pauses until the previous launch has ended. Of the elements
that can run, one of the latest launch does.
"""

import ctypes
import threading
from dataclasses import replace
from functools import partial

import learner_kernels
import pytest
import test_layerwise_kernels
from test_layerwise_kernels import HALVES
from test_learner_kernels import CASES
from test_tensor_gradients import BY_GROUPS, NORMED
from torch.utils._python_dispatch import TorchDispatchMode

from cupydrive.algorithms.kernels.arithmetic import EXACT, TENSOR
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.noted import written_down

NO_HOOKS = "DEVICE void await_previous() {}\nDEVICE void release_next() {}\n"
WITH_HOOKS = """extern "C" { void (*await_hook)(), (*release_hook)(); }
DEVICE void await_previous() { if (await_hook) await_hook(); }
DEVICE void release_next() { if (release_hook) release_hook(); }
"""


def run_elements(launch, begin, end):
    function = launch.program.functions[launch.kernel]
    return function(ctypes.c_void_p(launch.call.ctypes.data), begin, end)


class Element(threading.Thread):
    """One element of a launch, which runs from ``resume()`` until it pauses or ends."""

    def __init__(self, launch, e):
        super().__init__(daemon=True)
        self.launch, self.e, self.code = launch, e, None
        self.ahead = f"KERNEL_AHEAD({launch.kernel}," in launch.program.unit.text
        self.may_run, self.stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.waits, self.released = not self.ahead, False

    def run(self):
        self.may_run.acquire()
        self.code = run_elements(self.launch, self.e, self.e + 1)
        self.stopped.release()

    def resume(self):
        if self.ident is None:
            self.start()
        self.waits = False
        self.may_run.release()
        self.stopped.acquire()

    def pause(self):
        self.stopped.release()
        self.may_run.acquire()

    @property
    def ended(self):
        return self.code is not None


def pausing(mark):
    """Return a C function that marks the element that calls it and pauses it."""

    @ctypes.CFUNCTYPE(None)
    def hook():
        element = threading.current_thread()
        if isinstance(element, Element):
            setattr(element, mark, True)
            element.pause()

    return hook


HOOKS = {"await_hook": pausing("waits"), "release_hook": pausing("released")}


class Hooked(HostExecutor):
    """Executor whose kernels call the hooks."""

    def build(self, unit):
        assert unit.text.count(NO_HOOKS) == 1
        program = super().build(replace(unit, text=unit.text.replace(NO_HOOKS, WITH_HOOKS)))
        for name, hook in HOOKS.items():
            address = ctypes.c_void_p.in_dll(program.library, name)
            address.value = ctypes.cast(hook, ctypes.c_void_p).value
        return program


def run_in_order(launches):
    for launch in launches:
        assert run_elements(launch, 0, launch.count) == 0
    return set()


def run_overlapped(launches):
    """Return the names of the kernels that began before the previous launch had ended."""
    all_elements = [[Element(launch, e) for e in range(launch.count)] for launch in launches]
    early, first = set(), 0
    while True:
        while first < len(launches) and all(x.ended for x in all_elements[first]):
            first += 1
        if first == len(launches):
            return early
        # The previous launch of `first` has ended.
        left = [x for x in all_elements[first] if not x.ended]
        chosen = min(left, key=lambda x: x.released)
        for before, elements in zip(all_elements[first:], all_elements[first + 1 :], strict=False):
            if not all(x.ended or x.released for x in before):
                break
            able = [x for x in elements if not x.ended and not x.waits]
            chosen = able[0] if able else chosen
        if chosen not in all_elements[first]:
            early.add(chosen.launch.kernel)
        chosen.resume()
        assert chosen.code in (None, 0)


class TorchOperators(TorchDispatchMode):
    """Run the recorded launches before an operator of torch, which overlaps with no launch."""

    def __init__(self, launches, run):
        super().__init__()
        self.launches, self.run_launches, self.early = launches, run, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view:
            self.early |= self.run_launches(self.launches)
            self.launches.clear()
        return func(*args, **kwargs or {})


def layerwise(name):
    config, about = HALVES[name]
    return test_layerwise_kernels.problem(config, **about, tensor=True, executor=Hooked(1))


def fused(name, arithmetic=TENSOR):
    config, about = (CASES | NORMED)[name]
    return learner_kernels.problem(config, **about, arithmetic=arithmetic, executor=Hooked(1))


# Networks, and their kernels that begin while the step before still runs.
NETWORKS = {
    "conv": (partial(layerwise, "conv"), {"observe_sequences"}),
    "conv, two towers": (partial(layerwise, "conv, two towers"), {"observe_sequences"}),
    "PQN, conv": (partial(layerwise, "PQN, conv"), {"observe_sequences"}),
    "norm, shared": (partial(layerwise, "norm, shared"), set()),
    "gru": (partial(layerwise, "gru"), set()),
    "float32": (partial(fused, "groups, leaving", EXACT), set()),
    "bfloat16": (partial(fused, "groups, leaving"), {"tensor_gradient"}),
    "PQN": (partial(fused, "action values"), {"tensor_gradient"}),
    "warp groups": (partial(fused, "groups, leaving", BY_GROUPS), {"group_gradient"}),
}


def bits(case):
    steps = case.steps
    tensors = *steps.weights, *steps.first, *steps.second, *case.shared.values()
    return b"".join(x.numpy().tobytes() for x in tensors if x is not None)


@pytest.mark.full
@pytest.mark.parametrize("name", NETWORKS)
def test_launches_that_overlap_give_the_bits_of_launches_in_order(name):
    make, ahead = NETWORKS[name]
    found = []
    for run in (run_in_order, run_overlapped):
        case, launches = make(), []
        with written_down(launches), TorchOperators(launches, run) as operators:
            case.steps.pack()
            case.gradients.arrange()
            for epoch in range(case.gradients.epochs):
                for minibatch in range(case.gradients.minibatches):
                    case.gradients.compute(epoch, minibatch)
                    case.steps.descend(epoch, minibatch)
        early = operators.early | run(launches)
        found.append(bits(case))
    assert early == {"update"} | ahead
    assert found[0] == found[1]
