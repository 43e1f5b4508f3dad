"""CartPole with kernels made of torch operations: on the CPU and on a GPU, in one source.

Rules, parameters and reference are those of ``cupydrive.envs.cartpole``; bits may differ, since
torch rounds in its own order.
"""

from dataclasses import replace
from typing import Any

import torch

from cupydrive.envs import cartpole
from cupydrive.executors.python_kernels import Arrays, PythonKernels

FIELDS = ("x", "x_dot", "theta", "theta_dot")


def reset(env: Arrays) -> None:
    """Write four uniform draws where ``env.mask``."""
    params = env.params
    uniform: Any = env.uniform
    start = params.start_range
    for k, name in enumerate(FIELDS):
        state = env.state[name]
        state.copy_(torch.where(env.mask, -start + 2 * start * uniform[:, 0, 0, k], state))


def step(env: Arrays) -> None:
    """Step all environments by explicit Euler, with the velocities from before."""
    p = env.params
    terminated: Any = env.terminated
    state = env.state
    x, x_dot, theta, theta_dot = (state[name] for name in FIELDS)
    mass, pole_moment = p.mass_cart + p.mass_pole, p.mass_pole * p.half_length
    force = (2 * env.action["cart"][:, 0].float() - 1) * p.force_mag
    sine, cosine = theta.sin(), theta.cos()
    push = (force + pole_moment * theta_dot * theta_dot * sine) / mass
    theta_acc = (p.gravity * sine - cosine * push) / (
        p.half_length * (4 / 3 - p.mass_pole * cosine * cosine / mass)
    )
    x_acc = push - pole_moment * theta_acc * cosine / mass
    x += p.tau * x_dot
    x_dot += p.tau * x_acc
    theta += p.tau * theta_dot
    theta_dot += p.tau * theta_acc
    env.reward["cart"].fill_(1)
    terminated.copy_((x.abs() > p.x_limit) | (theta.abs() > p.theta_limit))


def observe(env: Arrays) -> None:
    """Write the observed fields of the state."""
    for k, f in enumerate(cartpole.observed(env.params)):
        env.obs["cart"][:, 0, k] = env.state[f.name]


SPEC = replace(
    cartpole.SPEC,
    name="cartpole_torch",
    kernel=PythonKernels(reset, step, observe),
    summary="CartPole with kernels made of torch operations.",
    title="CartPoleTorch",
)
