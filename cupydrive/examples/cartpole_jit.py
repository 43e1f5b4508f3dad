"""CartPole with kernels of ``cupyx.jit``: Python functions compiled for the GPU, one thread for
each environment.

Rules, parameters and reference are those of ``cupydrive.envs.cartpole``; bits may differ, since
this compiler fuses multiplications with additions. Importing it needs CuPy, running it a GPU.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cupy
import numpy as np
from cupyx import jit

from cupydrive.envs import cartpole
from cupydrive.executors.python_kernels import Arrays, PythonKernels

FIELDS = ("x", "x_dot", "theta", "theta_dot")
BLOCK = 128


@jit.rawkernel()
def reset_kernel(x, x_dot, theta, theta_dot, uniform, mask, start, n):  # type: ignore[no-untyped-def]
    """Write four uniform draws where ``mask``."""
    e = jit.grid(1)  # [0, blocks * BLOCK)
    if e < n and mask[e]:
        x[e] = 2 * start * uniform[e, 0, 0, 0] - start
        x_dot[e] = 2 * start * uniform[e, 0, 0, 1] - start
        theta[e] = 2 * start * uniform[e, 0, 0, 2] - start
        theta_dot[e] = 2 * start * uniform[e, 0, 0, 3] - start


@jit.rawkernel()
def step_kernel(  # type: ignore[no-untyped-def]
    x, x_dot, theta, theta_dot, action, reward, terminated,
    gravity, mass_cart, mass_pole, half_length, force_mag, tau, x_limit, theta_limit, n,
):  # fmt: skip
    """Step one environment by explicit Euler, with the velocities from before."""
    e = jit.grid(1)
    if e < n:
        mass = mass_cart + mass_pole
        pole_moment = mass_pole * half_length
        force = force_mag if action[e, 0] == 1 else -force_mag
        sine = cupy.sin(theta[e])
        cosine = cupy.cos(theta[e])
        push = (force + pole_moment * theta_dot[e] * theta_dot[e] * sine) / mass
        slope = half_length * (
            np.float32(4.0) / np.float32(3.0) - mass_pole * cosine * cosine / mass
        )
        theta_acc = (gravity * sine - cosine * push) / slope
        x_acc = push - pole_moment * theta_acc * cosine / mass
        x[e] += tau * x_dot[e]
        x_dot[e] += tau * x_acc
        theta[e] += tau * theta_dot[e]
        theta_dot[e] += tau * theta_acc
        reward[e, 0] = np.float32(1.0)
        terminated[e] = cupy.absolute(x[e]) > x_limit or cupy.absolute(theta[e]) > theta_limit


@jit.rawkernel()
def observe_kernel(x, x_dot, theta, theta_dot, obs, size, n):  # type: ignore[no-untyped-def]
    """Write the observed fields of the state: all ``size`` = 4, or the two positions."""
    e = jit.grid(1)
    if e < n:
        obs[e, 0, 0] = x[e]
        if size == 2:
            obs[e, 0, 1] = theta[e]
        else:
            obs[e, 0, 1] = x_dot[e]
            obs[e, 0, 2] = theta[e]
            obs[e, 0, 3] = theta_dot[e]


def launch(kernel: Callable[..., None], env: Arrays, *arguments: Any) -> None:
    """Launch ``kernel`` on the state and ``arguments`` with one thread for each environment."""
    state = [env.state[name] for name in FIELDS]
    n = len(state[0])
    kernel((-(-n // BLOCK),), (BLOCK,), (*state, *arguments, np.int32(n)))


def reset(env: Arrays) -> None:
    """Begin new episodes where ``env.mask``."""
    params = env.params
    launch(reset_kernel, env, env.uniform, env.mask, np.float32(params.start_range))


def step(env: Arrays) -> None:
    """Step all environments."""
    p = env.params
    names = (
        "gravity",
        "mass_cart",
        "mass_pole",
        "half_length",
        "force_mag",
        "tau",
        "x_limit",
        "theta_limit",
    )
    constants = [np.float32(getattr(p, name)) for name in names]
    launch(step_kernel, env, env.action["cart"], env.reward["cart"], env.terminated, *constants)


def observe(env: Arrays) -> None:
    """Write the observations."""
    obs: Any = env.obs["cart"]
    launch(observe_kernel, env, obs, np.int32(obs.shape[2]))


SPEC = replace(
    cartpole.SPEC,
    name="cartpole_jit",
    kernel=PythonKernels(reset, step, observe, arrays="cupy"),
    summary="CartPole with kernels of cupyx.jit.",
    title="CartPoleJit",
)
