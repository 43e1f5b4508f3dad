"""PPO as one JAX program on gymnax's CartPole: rollout, advantages, shuffled minibatches and Adam
in one jitted function.

Alike: task, network (two layers of 64 shared by policy and value, tanh), steps of an iteration,
epochs, minibatches, losses, advantages normalised, gradients clipped. Not alike: JAX's own random
numbers and precision of matrix products (its default on the device), an advantage that ends at a
time limit as at a failure, no statistics of episodes.
"""

import time
from functools import partial
from importlib.metadata import version

from protocol import arguments, jax_and, tell

from cupydrive.algorithms import PPO
from cupydrive.bench.timing import make_row

SIZES = {"cuda": (256, 1_024, 4_096, 16_384, 65_536), "cpu": (256, 1_024)}
ITERATIONS = {"cuda": 10, "cpu": 2}  # of one timed run
SETTINGS = PPO()
LEARNING_RATE, BETAS, EPSILON = 2.5e-4, (0.9, 0.999), 1e-5  # of Adam
GAMMA, LAMBDA = 0.99, 0.95


def network(jax, key, obs_dim, choices):
    """Return parameters: pairs (weight, bias) of two hidden layers, the policy and the value."""
    init, sizes = (
        jax.nn.initializers.orthogonal,
        [(obs_dim, 64, 2**0.5), (64, 64, 2**0.5), (64, choices, 0.01), (64, 1, 1.0)],
    )
    keys = jax.random.split(key, len(sizes))
    return [
        (init(gain)(k, (a, b)), jax.numpy.zeros(b))
        for k, (a, b, gain) in zip(keys, sizes, strict=True)
    ]


def forward(jax, params, obs):
    """Return log-probabilities and value of observations (..., D)."""
    hidden = obs
    for weight, bias in params[:2]:
        hidden = jax.numpy.tanh(hidden @ weight + bias)
    logits, value = (hidden @ weight + bias for weight, bias in params[2:])
    return jax.nn.log_softmax(logits), value[..., 0]


def make_training(jax, gymnax, n):
    """Return functions: the beginning of a run of ``n`` environments from a key, and one iteration
    of it.
    """
    jnp, tree = jax.numpy, jax.tree_util
    env, env_params = gymnax.make("CartPole-v1")
    run = partial(forward, jax)
    part = n * SETTINGS.num_steps // SETTINGS.num_minibatches

    def begin(key):
        key, first, made = jax.random.split(key, 3)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(first, n), env_params)
        params = network(jax, made, obs.shape[-1], 2)
        zeros = tree.tree_map(jnp.zeros_like, params)
        return key, state, obs, params, (zeros, zeros, 0)

    def step(carry, _):
        key, state, obs, params = carry
        key, choose, move = jax.random.split(key, 3)
        log_probs, value = run(params, obs)
        action = jax.random.categorical(choose, log_probs)
        seen, state, reward, *ends, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            jax.random.split(move, n), state, action, env_params
        )
        done = sum(ends) > 0  # terminated, truncated
        log_prob = jnp.take_along_axis(log_probs, action[:, None], axis=1)[:, 0]
        return (key, state, seen, params), (obs, action, log_prob, value, reward, done)

    def advantage_before(after, row):
        advantage, next_value = after
        value, reward, done = row
        error = reward + GAMMA * next_value * (1 - done) - value
        advantage = error + GAMMA * LAMBDA * (1 - done) * advantage
        return (advantage, value), advantage

    def loss(params, rows):
        obs, action, old, advantage, returns = rows
        log_probs, value = run(params, obs)
        log_prob = jnp.take_along_axis(log_probs, action[:, None], axis=1)[:, 0]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = jnp.exp(log_prob - old)
        policy = -jnp.minimum(advantage * ratio, advantage * jnp.clip(ratio, 0.8, 1.2)).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        return policy - 0.01 * entropy + 0.5 * 0.5 * ((value - returns) ** 2).mean()

    def descend(carry, rows):
        params, (first, second, count) = carry
        gradient = jax.grad(loss)(params, rows)
        norm = jnp.sqrt(sum((g**2).sum() for g in tree.tree_leaves(gradient)))
        gradient = tree.tree_map(lambda g: g * jnp.minimum(1.0, 0.5 / (norm + 1e-6)), gradient)
        count += 1
        first = tree.tree_map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, first, gradient)
        second = tree.tree_map(lambda m, g: BETAS[1] * m + (1 - BETAS[1]) * g * g, second, gradient)
        scales = 1 - BETAS[0] ** count, 1 - BETAS[1] ** count
        params = tree.tree_map(
            lambda p, m, v: (
                p - LEARNING_RATE * (m / scales[0]) / (jnp.sqrt(v / scales[1]) + EPSILON)
            ),
            params,
            first,
            second,
        )
        return (params, (first, second, count)), None

    def iterate(run_state, _):
        key, state, obs, params, adam = run_state
        (key, state, obs, _), rows = jax.lax.scan(
            step, (key, state, obs, params), None, SETTINGS.num_steps
        )
        seen, action, log_prob, value, reward, done = rows
        last = run(params, obs)[1]
        _, advantage = jax.lax.scan(
            advantage_before,
            (jnp.zeros_like(last), last),
            (value, reward, done.astype(jnp.float32)),
            reverse=True,
        )
        rows = (seen, action, log_prob, advantage, advantage + value)
        rows = tree.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

        def epoch(carry, key):
            order = jax.random.permutation(key, part * SETTINGS.num_minibatches)
            parts = tree.tree_map(
                lambda x: x[order].reshape(SETTINGS.num_minibatches, part, *x.shape[1:]), rows
            )
            return jax.lax.scan(descend, carry, parts)

        key, shuffle = jax.random.split(key)
        (params, adam), _ = jax.lax.scan(
            epoch, (params, adam), jax.random.split(shuffle, SETTINGS.update_epochs)
        )
        return (key, state, obs, params, adam), reward.sum() / jnp.maximum(1, done.sum())

    return jax.jit(begin), jax.jit(
        lambda run_state, count: jax.lax.scan(iterate, run_state, None, count), static_argnums=1
    )


def main():
    """Tell each size."""
    given = arguments(__doc__, "training", ("cartpole",))
    jax, gymnax = jax_and("gymnax", given)
    for n in SIZES[given.device]:
        begin, iterate = make_training(jax, gymnax, n)
        started, count = time.perf_counter(), ITERATIONS[given.device]
        state, lengths = iterate(begin(jax.random.key(0)), count)
        lengths.block_until_ready()
        compiled, seconds = time.perf_counter() - started, []
        for _ in range(given.runs):
            started = time.perf_counter()
            state, lengths = iterate(state, count)
            lengths.block_until_ready()
            seconds.append((time.perf_counter() - started) / count)
        note = f"ppo, hidden layers (64, 64), {SETTINGS.update_epochs} epochs x {SETTINGS.num_minibatches} minibatches"
        note += f"; {compiled:.1f} s to compile (not counted); its episodes last {float(lengths[-1]):.0f} steps at the end"
        who = f"JAX {version('jax')} on gymnax {version('gymnax')}"
        tell(
            make_row("training", "cartpole", n, 1, SETTINGS.num_steps, seconds, who=who, note=note)
        )


if __name__ == "__main__":
    main()
