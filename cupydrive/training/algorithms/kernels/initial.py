"""Initial weights that are the same to the bit on every machine: ``kernels/learn/initial.cu``, on the CPU.

torch's orthogonal weights go through LAPACK, whose last bits differ from machine to machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from cupydrive.codegen.source import Unit, assemble_file
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call
from cupydrive.playing.policy import ActorCritic
from cupydrive.protocols import Program
from cupydrive.training.algorithms.kernels.layout import padded, tensors_of

HIDDEN, ACTIONS, VALUE = (
    math.sqrt(2),
    0.01,
    1.0,
)  # gains of hidden layers, of the distribution's parameters, of the value


def initial_unit() -> Unit:
    """Return the ``Unit`` of ``kernels/learn/initial.cu``, which the CPU runs wherever a policy learns."""
    return assemble_file("learn/initial")


def fill_initial(policy: ActorCritic, seed: int, agent: int) -> None:
    """Give an ``ActorCritic`` the initial weights of one seed: orthogonal, with biases of 0, as ``policy.mlp`` makes them.

    Args:
        policy: The module; its weights are written in place.
        seed: int in [0, 2**63).
        agent: Number of the first agent that it plays: policies of one run differ.
    """
    program = HostExecutor().build(initial_unit())
    layers = tensors_of(policy)
    last = len(layers) // 2 - 1
    with torch.no_grad():
        for k, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            bias.zero_()
            if policy.shared and k == last:
                parts = [(weight[: policy.size], ACTIONS), (weight[policy.size :], VALUE)]
            elif policy.shared or k not in (last // 2, last):
                parts = [(weight, HIDDEN)]
            else:
                parts = [(weight, VALUE if k == last else ACTIONS)]
            for part, (rows, gain) in enumerate(parts):
                rows.copy_(orthogonal(program, rows.shape, gain, seed, (agent, k, part)))


def orthogonal(
    program: Program, shape: Sequence[int], gain: float, seed: int, whose: tuple[int, int, int]
) -> torch.Tensor:
    """Return (OUT, IN) float32 on the CPU: orthonormal rows or columns times ``gain``.

    Args:
        program: Of ``learn/initial``.
        shape: (OUT, IN).
        gain: Factor.
        seed: int.
        whose: (agent, layer, part of the layer): of which random numbers.
    """
    vectors, length = sorted(shape)
    made, memory = (torch.zeros(s, dtype=torch.float32, device="cpu") for s in (shape, (vectors, padded(length))))
    ints = {"vectors": vectors, "length": length, "by_columns": shape[0] > shape[1]}
    ints |= dict(zip(("agent", "layer", "part"), whose, strict=True))
    pointers = {"seed": torch.tensor([seed], dtype=torch.int64, device="cpu"), "memory": memory, "weights": made}
    program.launch("make_initial", make_call(ints, pointers, floats={"gain": gain}), 1)
    return made
