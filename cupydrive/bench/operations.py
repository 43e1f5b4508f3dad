"""How many float operations a step takes: counted, by running the kernel with a float that counts."""

from functools import lru_cache

from cupydrive import envs
from cupydrive.errors import CompileError, DeviceError
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

AGENT_STEPS = 100_000  # about as many are counted
MOST_STEPS = 100  # of an episode


def count_operations(env, params):
    """Return the float32 operations of an env-step of random rollouts, or None if they cannot be counted.

    Additions, multiplications, divisions and square roots count as one, a multiplication with addition as two; not
    comparisons, conversions or integers. The kernel is run on the CPU, the way one thread runs it on a GPU: searches that
    a team shares may take a few more.

    Args:
        env: Name of an environment.
        params: Its parameters, a dictionary.
    """
    return _count(env, tuple(sorted(params.items())))


@lru_cache(maxsize=64)
def _count(env, params):
    spec = envs.get(env)
    if spec.own_program is not None:
        return None
    made = spec.make_params(**dict(params))
    agents, steps = sum(g.count for g in spec.groups(made)), min(MOST_STEPS, made.max_episode_steps)
    try:
        batch = Batch(spec, max(2, AGENT_STEPS // (agents * steps)), made, HostExecutor(count=True))
    except (CompileError, DeviceError):  # a kernel that asks for the compiler's own float; no compiler
        return None
    batch.reset(0)
    before = batch.program.operations
    batch.rollout(steps, final_obs=False)
    return (batch.program.operations - before) / (batch.num_envs * steps)
