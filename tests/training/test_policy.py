"""The default policies' layers: padding changes neither numbers nor what is saved, only the widths
that are multiplied.
"""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from cupydrive.algorithms.architecture import Network
from cupydrive.playing.policy import ActorCritic, PaddedLinear


class Products(TorchDispatchMode):
    """Keeps the shapes of all matrices that are multiplied."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.shapes += [tuple(x.shape) for x in args if x.ndim == 2]
        return function(*args, **(kwargs or {}))


def pair(inputs, outputs):
    """Return a padded and a plain layer of equal weights."""
    torch.manual_seed(3)
    padded, plain = PaddedLinear(inputs, outputs), nn.Linear(inputs, outputs)
    padded.load_state_dict(plain.state_dict())
    return padded, plain


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 64), (64, 3), (7, 21), (64, 64), (1, 1)])
def test_a_padded_layer_is_a_linear_layer(inputs, outputs, half):
    layers, x = pair(inputs, outputs), torch.randn(96, inputs)
    outs, gradients = [], []
    for layer in layers:
        given = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = layer(given)
        outs.append(out.float())
        gradients.append(
            torch.autograd.grad((out.float() ** 2).mean(), [given, layer.weight, layer.bias])
        )
    tolerance = (
        dict(rtol=2**-7, atol=2**-7) if half else dict(rtol=0, atol=0)
    )  # bfloat16 has 8 bits, summed in any order
    torch.testing.assert_close(outs[0], outs[1], **tolerance)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def test_all_widths_are_multiples_of_eight_in_half_precision_and_forwards_and_backwards():
    policy, x = ActorCritic((4,), 2, Network(shared=True)), torch.randn(128, 4)
    with Products() as seen:
        with torch.autocast("cpu", torch.bfloat16):
            parameters, value = policy(x)
        (parameters.sum() + value.sum()).backward()
    assert parameters.shape == (128, 2) and value.shape == (128,)
    assert len(seen.shapes) >= 16
    assert all(width % 8 == 0 for shape in seen.shapes for width in shape), seen.shapes
