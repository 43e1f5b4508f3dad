"""gymnax (Lange 2022) in JAX: the same tasks, random rollouts as one jitted scan.

Alike: tasks, random actions, autoreset. Not alike: the scan keeps no trajectory, only a sum of
observations and rewards, so that the compiler cannot leave the work out; cupydrive's rollouts write
every step.
"""

from importlib.metadata import version

from protocol import IDS, arguments, jax_and, tell, timed

from cupydrive.bench.timing import make_row

SIZES = {"cuda": (131_072, 1_048_576), "cpu": (1_000, 10_000)}
STEPS = 100


def rollout(jax, gymnax, task, n):
    """Return a jitted function of a key: a checksum of ``STEPS`` random steps of ``n``
    environments.
    """
    env, params = gymnax.make(task)

    def step(carry, key):
        state, total = carry
        choose, move = jax.random.split(key)
        action = jax.vmap(env.action_space(params).sample)(jax.random.split(choose, n))
        obs, state, reward, *_ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            jax.random.split(move, n), state, action, params
        )
        return (state, total + obs.sum() + reward.sum()), None

    @jax.jit
    def run(key):
        first, rest = jax.random.split(key)
        _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(first, n), params)
        (_, total), _ = jax.lax.scan(step, (state, 0.0), jax.random.split(rest, STEPS))
        return total

    return run


def main():
    """Tell the fastest size of each task."""
    given = arguments(__doc__, "rollout", IDS)
    jax, gymnax = jax_and("gymnax", given)
    for name in given.envs:
        found = []
        for n in SIZES[given.device]:
            run = rollout(jax, gymnax, IDS[name], n)
            compiled, seconds = timed(
                lambda k, run=run: run(jax.random.key(k)).block_until_ready(), given.runs
            )
            note, who = (
                f"stores no trajectory; {compiled:.1f} s to compile (not counted)",
                f"gymnax {version('gymnax')}",
            )
            found.append(make_row("rollout", name, n, 1, STEPS, seconds, who=who, note=note))
        tell(max(found, key=lambda row: row.rate))


if __name__ == "__main__":
    main()
