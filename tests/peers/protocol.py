"""What the programs of this folder share: their arguments, and how they tell what they have
found.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from importlib import import_module
from itertools import pairwise
from math import prod

SECONDS = 0.2  # of one run of `stepping`
ABSENT = 3  # as in compare.py
# Our names of the tasks that Gymnasium, EnvPool and gymnax have under these.
IDS = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountain_car": "MountainCar-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
    "pendulum": "Pendulum-v1",
}


def arguments(about, case, envs, backends=()):
    """Return what the command line says; leave if the case that this program times, or all of its
    ``envs``, is not asked for.

    Of ``envs``, cupydrive's names, a program times all, or those that ``--envs`` names; of several
    ``backends`` likewise all of them, or those that ``--backends`` names.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cases", nargs="+", default=["rollout", "stepping", "training"])
    parser.add_argument("--envs", nargs="+", default=tuple(envs))
    if backends:
        parser.add_argument("--backends", nargs="+", choices=backends, default=backends)
    given = parser.parse_args()
    given.envs = [name for name in envs if name in given.envs]
    if case not in given.cases or not given.envs:
        sys.exit()
    return given


def stepping(step, runs):
    """Return the seconds of one call of ``step`` in each of ``runs`` runs, after a warm-up."""
    step()
    seconds = []
    for _ in range(runs):
        calls, begin = 0, time.perf_counter()
        while (now := time.perf_counter()) - begin < SECONDS:
            step()
            calls += 1
        seconds.append((now - begin) / calls)
    return seconds


def timed(run, runs):
    """Return the seconds of the first call of ``run(0)``, which compiles, and of each of ``runs``
    more: ``run(k)``.
    """
    seconds = []
    for k in (0, *range(runs)):
        begin = time.perf_counter()
        run(k)
        seconds.append(time.perf_counter() - begin)
    return seconds[0], seconds[1:]


def timed_iterations(iterate, state, count, runs):
    """Time ``iterate(state, count)``, which returns a state and a JAX array of results.

    The second call compiles again, since gymnax's first states are weakly typed.

    Returns:
        The seconds of both calls that compile, those of an iteration in each run, and the results
        of the last run.
    """
    ends = [time.perf_counter()]
    for _ in range(2 + runs):
        state, results = iterate(state, count)
        results.block_until_ready()
        ends.append(time.perf_counter())
    seconds = [(b - a) / count for a, b in pairwise(ends[2:])]
    return ends[2] - ends[0], seconds, results


def label(shape, *layers):
    """Return a network as our rows write it, such as ``4-64-64-3``, from the observations' shape."""
    return "-".join(map(str, (prod(shape), *layers)))


def jax_and(name, given):
    """Return the modules jax and ``name`` if JAX runs on the device asked for; else leave."""
    try:
        jax, module = import_module("jax"), import_module(name)
    except ImportError as missing:
        absent(f"not installed: {missing}")
    backend = jax.default_backend()
    if (backend == "gpu") != (given.device == "cuda"):
        absent(f"JAX runs on {backend} here")
    return jax, module


def convolved(jnp, images, kernels):
    """Return the convolution of images (B, H, W, C) with kernels (K, K, C, OUT), without padding.

    It is a product of patches, on an H200 1.2 times as fast as ``lax.conv_general_dilated`` for
    1,024 Breakouts, and as fast for 8,192.
    """
    span = len(kernels)
    high, wide = (n - span + 1 for n in images.shape[1:3])
    seen = [images[:, i : i + high, j : j + wide] for i in range(span) for j in range(span)]
    return jnp.concatenate(seen, -1) @ kernels.reshape(-1, kernels.shape[-1])


def tell(row):
    """Print a ``Row`` as JSON."""
    print(json.dumps(asdict(row)), flush=True)


def absent(reason):
    """Say why there is nothing to time here, and leave."""
    print(reason, file=sys.stderr)
    sys.exit(ABSENT)
