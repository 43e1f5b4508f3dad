"""What matrix units without an error of their own would give: float64 products of bfloat16
operands; no tests of its own.

Weights, observations, hidden layers' outputs and derivatives by layers' outputs are rounded where
the kernels of ``kernels/learn`` round them; sums, biases, activations and the loss are not.
"""

import numpy as np
import torch
from torch import nn
from torch.autograd import Function

BY_HARDWARE = """
extern "C" __global__ void approximate(const float* x, float* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) asm("tanh.approx.f32 %0, %1;" : "=f"(y[i]) : "f"(x[i]));
}
"""


def rounded(x):
    """Return ``x`` with each number rounded to float32, as a register has it, and then to bfloat16;
    in the dtype of ``x``.
    """
    return x.float().bfloat16().to(x.dtype)


class Layer(Function):
    """A layer (B, IN) -> (B, OUT): three products, each of them of rounded operands."""

    @staticmethod
    def forward(ctx, x, weights, biases):
        ctx.save_for_backward(rounded(x), rounded(weights))
        return rounded(x) @ rounded(weights).T + biases

    @staticmethod
    def backward(ctx, slopes):
        x, weights = ctx.saved_tensors
        slopes = rounded(slopes)
        return slopes @ weights, slopes.T @ x, slopes.sum(0)


class Normalization(Function):
    """A layer normalization (B, OUT) of rounded products. Its gradients are those of rounded
    normalised rows.
    """

    @staticmethod
    def forward(ctx, x, gains, biases, epsilon):
        x = rounded(x)
        scale = (x.var(1, correction=0, keepdim=True) + epsilon).rsqrt()
        rows = (x - x.mean(1, keepdim=True)) * scale
        ctx.save_for_backward(rounded(rows), scale, gains)
        return rows * gains + biases

    @staticmethod
    def backward(ctx, slopes):
        rows, scale, gains = ctx.saved_tensors
        slopes = rounded(slopes)
        own = slopes * gains
        by_x = own - own.mean(1, keepdim=True) - rows * (own * rows).mean(1, keepdim=True)
        return scale * by_x, (slopes * rows).sum(0), slopes.sum(0), None


class Activation(Function):
    """An activation whose derivative follows from its rounded result, as all that the kernels keep
    of it.

    ``in_halves``: the derivative and what it is multiplied by are rounded, too, as
    ``group_gradient.cu`` has them.
    """

    @staticmethod
    def forward(ctx, x, function, in_halves):
        y = function(x)
        ctx.save_for_backward(rounded(y))
        ctx.relu, ctx.in_halves = function is torch.relu, in_halves
        return y

    @staticmethod
    def backward(ctx, slopes):
        (y,) = ctx.saved_tensors
        own = (y > 0).to(y.dtype) if ctx.relu else 1 - y * y
        product = rounded(slopes) * rounded(own) if ctx.in_halves else slopes * own
        return product, None, None


def rounded_network(policy, tanh=torch.tanh, in_halves=False):
    """Return what gives ``(parameters, value)`` of observations (B, D) in float64, by an
    ``ActorCritic``'s rounded weights.
    """

    def through(layers, x):
        for layer in layers:
            if isinstance(layer, nn.Linear):
                x = Layer.apply(x, layer.weight, layer.bias)
            elif isinstance(layer, nn.LayerNorm):
                x = Normalization.apply(x, layer.weight, layer.bias, layer.eps)
            else:
                x = Activation.apply(
                    x, torch.relu if isinstance(layer, nn.ReLU) else tanh, in_halves
                )
        return x

    def network(obs):
        if policy.shared:
            out = through(policy.body, obs)
            return out[:, : policy.size], out[:, -1]
        return through(policy.actor, obs), through(policy.critic, obs)[:, 0]

    return network


def tanh_by_hardware(x):
    """Return a GPU's approximate tangents of ``x`` (float64, on the CPU), which are off by up to
    2^-11 of the result.
    """
    import cupy

    given = cupy.asarray(x.detach().numpy().astype(np.float32))
    found = cupy.empty_like(given)
    kernel = cupy.RawModule(code=BY_HARDWARE).get_function("approximate")
    kernel((-(-given.size // 256),), (256,), (given, found, np.int32(given.size)))
    return torch.from_numpy(cupy.asnumpy(found)).to(x.dtype)
