"""How many float operations a step takes: of an environment, counted by a float that counts; of a
learner, from its layers.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cupydrive import envs
from cupydrive.errors import CompileError, DeviceError
from cupydrive.executors.host import HostExecutor, HostProgram
from cupydrive.protocols import EnvParams
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec

AGENT_STEPS = 100_000  # about as many are counted
MOST_STEPS = 100  # of an episode


def count_operations(env: str, params: Mapping[str, Any]) -> float | None:
    """Return the float32 operations of an env-step of random rollouts, or None if they cannot be
    counted.

    Additions, multiplications, divisions and square roots count as one, a multiplication with
    addition as two; not comparisons, conversions or integers. The kernel is run on the CPU, the way
    one thread runs it on a GPU: searches that a team shares may take a few more.

    Args:
        env: Name of an environment.
        params: Its parameters, a dictionary.
    """
    spec = envs.get(env)
    return count_steps(spec, spec.make_params(**params))


def count_steps(spec: EnvSpec, params: EnvParams) -> float | None:
    """Return what ``count_operations`` does, of an ``EnvSpec`` and the parameters that it made."""
    agents, steps = (
        sum(g.count for g in spec.groups(params)),
        min(MOST_STEPS, params.max_episode_steps),
    )
    try:
        batch = Batch(
            spec, max(2, AGENT_STEPS // (agents * steps)), params, HostExecutor(count=True)
        )
    # a kernel that asks for the compiler's own float; no compiler
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
    """Return the operations that one row of a rollout costs in a network's matrix products, from
    acting to the last epoch.

    Acting is one forward pass, and so is each epoch. Backward, each product gives the gradient of
    its weights, and the gradient of its input unless that is the observation. A multiplication with
    addition counts as two. Left out are activations, losses, the optimiser, and values that no row
    learns from, those after the last step.

    Args:
        towers: Widths of each tower, from the observation to its output.
        epochs: Times that a row is learnt from.
    """
    products = [[2 * inputs * outputs for inputs, outputs in pairwise(tower)] for tower in towers]
    forward = sum(map(sum, products))
    return forward + epochs * (3 * forward - sum(tower[0] for tower in products))
