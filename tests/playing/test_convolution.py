"""``Convolution``: rows of images whose channels come last, to rows."""

import numpy as np
import pytest
import torch

from cupydrive.algorithms.architecture import Conv
from cupydrive.playing.convolution import Convolution

SHAPES = {"3 x 3": ((5, 7, 3), 4, 3, 1), "8 x 8": ((20, 17, 2), 5, 8, 4), "1 x 1": ((2, 2, 1), 1, 1, 1)}  # fmt: skip


def made(shape, channels, kernel, stride):
    (layer,) = Conv((channels,), kernel, stride).layers(shape)
    return layer, Convolution(layer, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", SHAPES)
def test_each_output_is_a_kernel_times_what_lies_below_it(name):
    shape, _, kernel, stride = SHAPES[name]
    layer, module = made(*SHAPES[name])
    module.bias.data.normal_()
    images = np.random.default_rng(0).normal(0, 1, (6, *shape)).astype(np.float32)
    found = module(torch.from_numpy(images).flatten(1)).detach().numpy().reshape(6, *layer.out)
    weight, bias = (p.detach().numpy().astype(np.float64) for p in (module.weight, module.bias))
    for y, x in np.ndindex(*layer.out[:2]):
        below = images[:, y * stride : y * stride + kernel, x * stride : x * stride + kernel]
        expected = below.reshape(6, -1).astype(np.float64) @ weight.T + bias
        np.testing.assert_allclose(found[:, y, x], expected, rtol=1e-4, atol=1e-5)


def test_weights_are_orthogonal_and_rows_are_seen_without_a_copy():
    module = made((9, 9, 4), 16, 3, 1)[1]
    product = module.weight @ module.weight.T
    torch.testing.assert_close(product, 2 * torch.eye(16), rtol=1e-5, atol=1e-5)
    assert not module.bias.any()
    with torch.no_grad():
        out = module(torch.rand(5, 324))
    assert out.shape == (5, 16 * 49) and out.is_contiguous()
