"""JaxMARL (Rutherford et al. 2024) in JAX: simple_tag of its particle environments, random rollouts
as one jitted scan.

Alike: a chase on a plane by a few agents, random actions, autoreset. Not alike: its rules are those
of the particle world (three pursuers, one prey, forces, collisions, fixed obstacles), its scan
keeps no trajectory. Our row beside it is continuous Tag with as many agents, which writes every
step.
"""

from importlib.metadata import version

from protocol import arguments, jax_and, tell, timed

from cupydrive.bench.cases import Work, measure
from cupydrive.bench.timing import make_row
from cupydrive.executors import executor

SIZES = {"cuda": (10_000, 100_000), "cpu": (100, 1_000)}
STEPS = 25


def rollout(jax, env, n):
    """Return a jitted function of a key: a checksum of ``STEPS`` random steps of ``n``
    environments.
    """

    def act(key):
        keys = jax.random.split(key, len(env.agents))
        return {
            agent: env.action_space(agent).sample(k)
            for agent, k in zip(env.agents, keys, strict=True)
        }

    def step(carry, key):
        state, total = carry
        choose, move = jax.random.split(key)
        actions = jax.vmap(act)(jax.random.split(choose, n))
        obs, state, reward, *_ = jax.vmap(env.step)(jax.random.split(move, n), state, actions)
        total += sum(o.sum() for o in obs.values()) + sum(
            reward[agent].sum() for agent in env.agents
        )
        return (state, total), None

    @jax.jit
    def run(key):
        first, rest = jax.random.split(key)
        _, state = jax.vmap(env.reset)(jax.random.split(first, n))
        (_, total), _ = jax.lax.scan(step, (state, 0.0), jax.random.split(rest, STEPS))
        return total

    return run


def main():
    """Tell the fastest size, and our own environment with as many agents."""
    given = arguments(__doc__, "rollout", ("tag_continuous",))
    jax, jaxmarl = jax_and("jaxmarl", given)
    env = jaxmarl.make("MPE_simple_tag_v3")
    found = []
    for n in SIZES[given.device]:
        run = rollout(jax, env, n)
        compiled, seconds = timed(
            lambda k, run=run: run(jax.random.key(k)).block_until_ready(), given.runs
        )
        note = f"a similar game, `simple_tag`; stores no trajectory; {compiled:.1f} s to compile (not counted)"
        who = f"JaxMARL {version('jaxmarl')}"
        found.append(
            make_row(
                "rollout", "tag_continuous", n, len(env.agents), STEPS, seconds, who=who, note=note
            )
        )
    tell(max(found, key=lambda row: row.rate))
    tag = {
        "num_taggers": len(env.agents) - 1,
        "num_runners": 1,
        "num_other_agents_observed": len(env.agents) - 1,
    }
    where = executor(given.device)
    ours = [
        measure(Work("tag_continuous", n, STEPS, tag), where, given.runs)
        for n in SIZES[given.device]
    ]
    tell(max(ours, key=lambda row: row.rate))


if __name__ == "__main__":
    main()
