"""Recurrent layers by our kernels against their own loops over time, in float64.

In bfloat16 a candidate of a MinGRU close to 0 falls on the other side, where its slope is 0.25
instead of 1. So its loop multiplies what the scan multiplies: numbers rounded to bfloat16.
"""

import copy

import pytest
import torch
from torch.nn import functional

from cupydrive import nn, scans
from cupydrive.errors import ParameterError
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import capture

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
KINDS = ["gru", "mingru in bfloat16", "mingru", "gru in float32"]
EXACT = ("mingru", "gru in float32")
SIZES = [48, 16, 128]
SHAPES = [(1, 1), (7, 5), (9, 70), (70, 33), (16, 16)]
MOST = {"gru": 0.01, "mingru in bfloat16": 0.01, "mingru": 1e-5}
MOST |= {"gru in float32": 1e-5}  # relative error of a tensor
LINEAR = functional.linear


def layer(kind, size, device, inputs=24):
    """Return a module with weights of some size, and the number of its inputs."""
    generator = torch.Generator().manual_seed(size)
    gru = kind.startswith("gru")
    inputs = inputs if gru else size
    made = nn.GRU(inputs, size, generator) if gru else nn.MinGRU(size, 2, generator)
    for parameter in made.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator)
    return made.to(device), inputs


def problem(kind, size, steps, count, device, starts=0.1):
    """Return a module, and its inputs, state and starts."""
    module, inputs = layer(kind, size, device)
    generator = torch.Generator().manual_seed(steps * count)
    x = torch.randn(steps * count, inputs, generator=generator).bfloat16().float()
    state = 0.5 * torch.randn(count, module.state_size, generator=generator)
    start = torch.rand(steps * count, generator=generator) < starts
    return module, x.to(device), state.to(device), start.to(device)


def scanned(kind, module, *given):
    """Return what the scan of ``module`` returns."""
    x = given[0]
    with torch.autocast(x.device.type, torch.bfloat16, enabled=kind not in EXACT):
        found = module(*given)
    assert found[0].dtype == (torch.float32 if kind in EXACT else torch.bfloat16)
    return found


def in_bfloat16(x):
    """Return ``x`` rounded; its gradient is not."""
    return x + (x.bfloat16().to(x.dtype) - x).detach()


def rounded_linear(x, weight, bias):
    """Return a linear layer of rounded factors."""
    return in_bfloat16(LINEAR(in_bfloat16(x), in_bfloat16(weight))) + bias


def weights_like(found):
    """Return random numbers of the shapes of ``found``."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(each.shape, generator=generator).to(each.device) for each in found]


def results(call, module, x, state, start, weights=None):
    """Return outputs, states and the gradients of a random sum of both."""
    module.zero_grad()
    x, state = x.clone().requires_grad_(), state.clone().requires_grad_()
    found = call(module, x, state, start)
    weights = weights or weights_like(found)
    sum((each * weight).sum() for each, weight in zip(found, weights, strict=True)).backward()
    gradients = [x.grad, state.grad, *(p.grad for p in module.parameters())]
    return [each.detach().clone() for each in (*found, *gradients)]


def assert_near(kind, module, x, state, start, monkeypatch):
    """The scan has the values and gradients of the loop."""
    found = results(lambda *given: scanned(kind, *given), module, x, state, start)
    if kind == "mingru in bfloat16":
        monkeypatch.setattr(functional, "linear", rounded_linear)
    exact = copy.deepcopy(module).double()
    wanted = results(lambda loop, *given: loop(*given), exact, x.double(), state.double(), start)
    for k, (mine, own) in enumerate(zip(found, wanted, strict=True)):
        assert (mine - own).norm() <= MOST[kind] * own.norm().clamp(min=1e-6), k


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("steps", "count"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_has_the_values_and_gradients_of_the_loop(
    kind, steps, count, size, device, monkeypatch
):
    assert_near(kind, *problem(kind, size, steps, count, device), monkeypatch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "size"),
    [("mingru", 7), ("mingru in bfloat16", 7), ("gru", 80), ("gru in float32", 19)],
)
def test_odd_sizes_and_no_starts(kind, size, device, monkeypatch):
    module, x, state, _ = problem(kind, size, 11, 3, device)
    assert_near(kind, module, x, state, None, monkeypatch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_passes_a_start(kind, device):
    module, x, state, start = problem(kind, 48, 12, 5, device, starts=0.0)
    start.view(12, 5)[4, 2] = True
    x.requires_grad_(), state.requires_grad_()
    out, last = scanned(kind, module, x, state, start)
    (out.view(12, 5, -1)[4:].sum() + last.sum()).backward()
    d_x = x.grad.view(12, 5, -1)
    assert not d_x[:4, 2].any() and not state.grad[2].any()
    others = [0, 1, 3, 4]
    assert (
        d_x[4:].any(-1).all() and d_x[:4, others].any(-1).all() and state.grad[others].any(1).all()
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_is_handed_over_goes_on(kind, device):
    module, x, state, start = problem(kind, 48, 13, 21, device)
    whole, last = scanned(kind, module, x, state, start)
    parts = []
    for rows in (slice(0, 5 * 21), slice(5 * 21, None)):
        out, state = scanned(kind, module, x[rows], state, start[rows])
        parts.append(out)
    tolerance = dict(rtol=1e-5, atol=1e-6) if kind in EXACT else dict(rtol=0.01, atol=0.004)
    torch.testing.assert_close(torch.cat(parts), whole, **tolerance)
    torch.testing.assert_close(state, last, **tolerance)


@pytest.mark.parametrize("team", [32, 4])
def test_a_team_of_threads_has_the_bits_of_one(team, monkeypatch):
    """No sync is missing, and no two members write the same."""
    given = problem("gru", 16, 5, 19, "cpu")
    found = []
    for where in (HostExecutor(), HostExecutor(team_threads=team)):
        monkeypatch.setattr(scans, "executor", lambda _, where=where: where)
        scans.gru_program.cache_clear()
        found.append(results(lambda *given: scanned("gru", *given), *given))
    scans.gru_program.cache_clear()
    for one, other in zip(*found, strict=True):
        if one.ndim == 2:
            assert torch.equal(one, other)
        else:  # biases, summed up in another order
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_any_layout_are_read(kind):
    """A slice begins anywhere, and the gradient of a sum has one number for all rows."""
    module, x, state, start = problem(kind, 16, 3, 5, "cpu")
    x.requires_grad_()
    gradients = []
    for shift in (0, 1):
        out, _ = scanned(kind, module, x, state, start)
        flat = torch.cat([out.new_zeros(shift), out.flatten()])
        gradients.append(torch.autograd.grad(flat.sum(), x)[0])
    out, _ = scanned(kind, module, x, state, start)
    gradients.append(torch.autograd.grad(out.sum(), x)[0])
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [
        lambda x, state, start: (x, state, start.float()),
        lambda x, state, start: (x, state, start.int()),
        lambda x, state, start: (x, state, start[:-3]),
        lambda x, state, start: (x[:-1], state, None),
        lambda x, state, start: (x.view(4, 3, -1), state, None),
        lambda x, state, start: (x, state[:, :-1], start),
        lambda x, state, start: (x[:0], state[:0], None),
    ],
    ids=["floats", "ints", "few starts", "few rows", "three axes", "small state", "no agents"],
)
def test_a_scan_refuses_what_it_would_read_wrongly(kind, change):
    module, *given = problem(kind, 16, 4, 3, "cpu")
    words = rf"GRU: got x \(.* state \(b, {module.state_size}\) and start \(L \* b,\) torch.bool"
    with pytest.raises(ParameterError, match=words):
        scanned(kind, module, *change(*given))


@pytest.mark.parametrize("kind", ["gru", "mingru"])
def test_what_has_no_scan_keeps_the_loop(kind, monkeypatch):
    """Other precisions, sizes without a tile, and programs that torch writes down."""

    def refuse(*_):
        raise AssertionError("a scan")

    monkeypatch.setattr(scans, "launch", refuse)
    module, x, state, start = problem(kind, 24, 3, 4, "cpu")
    wanted = copy.deepcopy(module).double()(x.double(), state.double(), start)
    program = torch.export.export(module, (x, state, start)).module()
    found = program(x, state, start)[0].double()
    torch.testing.assert_close(found, wanted[0], rtol=1e-4, atol=1e-5)
    if kind == "gru":
        module(x[:4], state)  # one step
        with torch.autocast("cpu", torch.bfloat16):
            module(x, state, start)  # 24 units


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_replays_a_scan(kind):
    module, x, state, start = problem(kind, 48, 20, 50, "cuda")
    found = []
    weights = weights_like(scanned(kind, module, x, state, start))

    def call():
        about = module, x, state, start, weights
        found[:] = results(lambda *given: scanned(kind, *given), *about)

    call()
    eager = [each.clone() for each in found]
    replay = capture(call, lambda: None)
    x.copy_(x.flip(0))
    replay()
    assert not torch.equal(found[0], eager[0])
    x.copy_(x.flip(0))
    replay()
    for mine, own in zip(found, eager, strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-2, atol=1e-4)
