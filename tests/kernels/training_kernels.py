"""Runs the kernels of kernels/train on NumPy arrays, for the tests of those kernels; no tests of
its own.
"""

import numpy as np
import torch
from walled import walled

from cupydrive.codegen.source import assemble_file, box_bounds, head_sizes
from cupydrive.executors import executor
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call
from cupydrive.playing.policy import Categorical, sample_call
from cupydrive.simulation.batch import CLOCK

FIRST_ENV, FIRST_AGENT, SEED = 1000, 7, 0x0123456789ABCDEF


def clocks(rng, n):
    """Return (N,) clocks of environments that are all at other episodes and steps; two stand at
    step 0.
    """
    clock = np.zeros(n, CLOCK)
    clock["episode"], clock["elapsed"] = rng.integers(1, 50, n), rng.integers(0, 90, n)
    clock["time"] = rng.integers(0, 10_000, n)
    clock["elapsed"][:2] = 0
    return clock


def build(path, constants=(), spaces="", device="cpu"):
    """Return the program of ``kernels/PATH.cu``; device "debug": the CPU, with arrays whose bounds
    are checked.
    """
    where = HostExecutor(debug=True) if device == "debug" else executor(device)
    return where.build(assemble_file(path, constants, spaces))


def on_device(array, device):
    """Return a copy of ``array`` as a tensor there."""
    return walled(torch.from_numpy(np.array(array)).to("cpu" if device == "debug" else device))


def launch(program, kernel, count, ints, arrays, device="cpu", longs=None):
    """Run one kernel for ``count`` elements; return its arrays as NumPy, after it.

    Args:
        ints: The int32 members of its argument by name, in order.
        arrays: Its pointers by name, in order: NumPy arrays, or None.
        longs: int64 members, after the int32 ones.
    """
    tensors = {k: None if a is None else on_device(a, device) for k, a in arrays.items()}
    program.launch(kernel, make_call(ints, tensors, longs), count, count)
    return {k: None if t is None else t.cpu().numpy() for k, t in tensors.items()}


def bytes_of(clock):
    """Return (N, 3) int32: the words of clocks, which torch can hold."""
    return clock.view(np.int32).reshape(-1, 3)


def sample(
    program,
    count,
    parameters,
    clock,
    outputs,
    device="cpu",
    mask=None,
    value=None,
    kind=Categorical,
    **ints,
):
    """Run ``sample_actions`` of a file in kernels/train; return what it wrote, by name.

    Args:
        count: (N, C).
        parameters: (N * C, at least as many as the distribution has) float32; what is more is
            passed over.
        clock: (N,) clocks.
        outputs: Arrays that it writes, by name; those not given are null.
        mask: (N, C, choices) or None.
        value: (N * C, any number) float32, whose first column is copied, or None.
        kind: Class of the distribution, which names the pointers.
        ints: ``greedy``, or other ids than FIRST_ENV and FIRST_AGENT.
    """
    n, agents = count
    defaults = dict(num_envs=n, agents=agents, first_env=FIRST_ENV, first_agent=FIRST_AGENT)
    given = dict(
        seed=np.array([SEED], np.uint64).view(np.int64),
        clock=bytes_of(clock),
        parameters=parameters,
        value=value,
    )
    given = {**given, "mask": mask, **outputs}
    tensors = {k: on_device(a, device) for k, a in given.items() if a is not None}
    call = sample_call(*kind.pointers)
    for name, number in {**defaults, **ints}.items():
        call[name] = number
    call["stride"], call["value_stride"] = (
        parameters.shape[1],
        0 if value is None else value.shape[1],
    )
    for name, tensor in tensors.items():
        call[name] = tensor.data_ptr()
    program.launch("sample_actions", call, n * agents, n * agents)
    return {name: tensors[name].cpu().numpy() for name in outputs}


def categorical(sizes, device="cpu"):
    """Return the program that samples heads of these sizes."""
    constants = (("HEADS", len(sizes)), ("CHOICES", sum(sizes)), ("LARGEST", max(sizes)))
    return build("train/categorical", constants, head_sizes(sizes), device)


def epsilon_greedy(choices, device="cpu"):
    """Return the program that samples epsilon-greedy actions from their values."""
    return build("train/epsilon_greedy", (("CHOICES", choices),), "", device)


def gaussian(box, squashed, device="cpu"):
    """Return the program that samples and explores in ``box``."""
    return build(
        "train/gaussian", (("HEADS", len(box.low)), ("SQUASHED", squashed)), box_bounds(box), device
    )


def mixed(sizes, box, squashed, device="cpu"):
    """Return the program that samples heads of these sizes and ``box`` together."""
    heads = len(sizes) + len(box.low)
    constants = dict(HEADS=heads, DISCRETE=len(sizes), CHOICES=sum(sizes), LARGEST=max(sizes))
    constants["SQUASHED"] = squashed
    generated = f"{head_sizes(sizes)}\n{box_bounds(box)}"
    return build("train/mixed", tuple(constants.items()), generated, device)


def words_with_extremes(purpose, first=0):
    """Return (env, episode, step, agent) whose random words of draw 0 have 0 at place ``first``,
    and 2**32 - 1, by the word.

    Philox is a permutation of its counters for each key. Its inverse finds the counter of given
    words; of those counters one in 65,536 has this purpose and draw 0.
    """
    rng = np.random.default_rng(purpose)
    found = {}
    for wanted in (0, 0xFFFFFFFF):
        while wanted not in found:
            words = rng.integers(0, 2**32, (4, 1 << 18), dtype=np.uint64)
            words[first] = wanted
            counter = inverse_philox(words, SEED)
            fits = np.flatnonzero(counter[3] >> np.uint64(16) == purpose)
            if len(fits):
                found[wanted] = [int(c[fits[0]]) for c in counter[:3]] + [
                    int(counter[3][fits[0]]) & 0xFFFF
                ]
    return found


def inverse_philox(words, seed):
    """Return the four counter words (K,) uint64 that Philox4x32-10 turns into ``words``."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    inverses = [np.uint64(pow(m, -1, 1 << 32)) for m in (0xD2511F53, 0xCD9E8D57)]
    c0, c1, c2, c3 = (w.astype(np.uint64) for w in words)
    for k in reversed(range(10)):
        k0 = np.uint64(((seed & 0xFFFFFFFF) + k * 0x9E3779B9) & 0xFFFFFFFF)
        k1 = np.uint64(((seed >> 32) + k * 0xBB67AE85) & 0xFFFFFFFF)
        before2, before0 = c1 * inverses[1] & low, c3 * inverses[0] & low
        before1 = c0 ^ (before2 * np.uint64(0xCD9E8D57) >> shift) ^ k0
        before3 = c2 ^ (before0 * np.uint64(0xD2511F53) >> shift) ^ k1
        c0, c1, c2, c3 = before0, before1, before2, before3
    return np.stack([c0, c1, c2, c3])
