"""FLOPs per step, of environments (by a counting float type) and of learners."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cupydrive import envs
from cupydrive.errors import CompileError, DeviceError
from cupydrive.executors.host import HostExecutor, HostProgram
from cupydrive.protocols import EnvParams
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec

AGENT_STEPS = 100_000  # approximate number of counted single-agent steps
MOST_STEPS = 100  # maximum number of counted steps of an episode


def count_operations(env: str, params: Mapping[str, Any]) -> float | None:
    """Count the float32 FLOPs of an environment step, as the mean of random rollouts.

    Additions, multiplications, divisions and square roots count as one, and a multiply-add as two.
    Comparisons, conversions and integer operations are not counted. The kernel runs on the CPU with
    a team of one thread. Larger teams may execute a few more FLOPs in neighbor searches.

    Args:
        env: Name of an environment.
        params: Parameters of the environment, by name.

    Returns:
        FLOPs per environment step, or None if they cannot be counted.
    """
    spec = envs.get(env)
    return count_steps(spec, spec.make_params(**params))


def count_steps(spec: EnvSpec, params: EnvParams) -> float | None:
    """Count FLOPs like ``count_operations``, for an ``EnvSpec`` and its parameters."""
    agents, steps = (
        sum(g.count for g in spec.groups(params)),
        min(MOST_STEPS, params.max_episode_steps),
    )
    try:
        batch = Batch(
            spec, max(2, AGENT_STEPS // (agents * steps)), params, HostExecutor(count=True)
        )
    # The kernel requires the built-in float type, or there is no compiler.
    except (CompileError, DeviceError):
        return None
    program = batch.program
    if not isinstance(program, HostProgram):  # kernels in Python
        return None
    batch.reset(0)
    before = program.operations
    batch.rollout(steps, final_obs=False)
    return (program.operations - before) / (batch.num_envs * steps)


def learning_operations(towers: Sequence[Sequence[int]], epochs: int) -> int:
    """Return the FLOPs of a network's matrix products per sample of a rollout.

    Acting takes one forward pass, and each epoch one forward and one backward pass. The backward
    pass computes the weight gradient of each product, and its activation gradient unless the input
    is the observation. A multiply-add counts as two FLOPs. Activations, losses, the optimizer, and
    values after the last step are not counted.

    Args:
        towers: Widths of each tower, from the observation to its output.
        epochs: Number of epochs.
    """
    products = [[2 * inputs * outputs for inputs, outputs in pairwise(tower)] for tower in towers]
    forward = sum(map(sum, products))
    return forward + epochs * (3 * forward - sum(tower[0] for tower in products))
