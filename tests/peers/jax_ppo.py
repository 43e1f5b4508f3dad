"""PPO as one JAX program on gymnax: rollout, advantages, shuffled minibatches and Adam in one jitted
function, with the networks of ``TASKS``.

Alike: task, network (shared by policy and value), steps of an iteration, epochs, minibatches, losses,
advantages normalised, gradients clipped, whole sequences and their resets with hidden state. Not
alike: JAX's own random numbers and precision of matrix products (its default on the device), an
advantage that ends at a time limit as at a failure, no statistics of episodes.
"""

from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from protocol import IDS, arguments, convolved, jax_and, label, tell, timed_iterations

from cupydrive.algorithms import PPO
from cupydrive.bench.timing import make_row

ITERATIONS = {"cuda": 10, "cpu": 2}  # of one timed run
SETTINGS = PPO()
LEARNING_RATE, BETAS, EPSILON = 2.5e-4, (0.9, 0.999), 1e-5  # of Adam
GAMMA, LAMBDA = 0.99, 0.95
KERNEL = 3  # height and width of a convolution


@dataclass(frozen=True)
class Task:
    """An environment, a network, and numbers of environments by device.

    ``channels`` and ``units`` are those of a convolution and of a GRU, or 0.
    """

    env: str
    hidden: tuple[int, ...]
    steps: int
    sizes: dict[str, tuple[int, ...]]
    activation: str = "tanh"
    channels: int = 0
    units: int = 0


IMAGES = {"cuda": (1_024, 8_192), "cpu": (64,)}
TASKS = (
    Task("cartpole", (64, 64), 32, {"cuda": (256, 1_024, 4_096, 16_384, 65_536), "cpu": (256, 1_024)}),
    Task("cartpole", (128,), 64, {"cuda": (1_024, 8_192)}, "relu", units=128),
    Task("cartpole", (64,), 64, {"cpu": (64,)}, "relu", units=64),
    Task("minatar_breakout", (128,), 32, IMAGES, "relu", channels=16),
    Task("minatar_breakout", (128, 128), 32, IMAGES),
)  # fmt: skip
IDS = IDS | {"minatar_breakout": "Breakout-MinAtar"}


def layer(jax, key, *shape, gain=2**0.5):
    """Return an orthogonal weight and a zero bias."""
    return jax.nn.initializers.orthogonal(gain)(key, shape), jax.numpy.zeros(shape[-1])


def network(jax, key, task, shape, choices):
    """Return parameters: pairs (weight, bias) of each layer by name, in the order of computing."""
    keys, layers, inputs = iter(jax.random.split(key, 8)), {}, shape[-1]
    if task.channels:
        layers["conv"] = layer(jax, next(keys), KERNEL, KERNEL, inputs, task.channels)
        inputs = (shape[0] - KERNEL + 1) * (shape[1] - KERNEL + 1) * task.channels
    elif len(shape) == 3:
        inputs = shape[0] * shape[1] * shape[2]
    for k, width in enumerate(task.hidden):
        layers[f"hidden {k}"] = layer(jax, next(keys), inputs, width)
        inputs = width
    if task.units:
        layers["inputs"] = layer(jax, next(keys), inputs, 3 * task.units, gain=1.0)
        layers["state"] = layer(jax, next(keys), task.units, 3 * task.units, gain=1.0)
        inputs = task.units
    layers["policy"] = layer(jax, next(keys), inputs, choices, gain=0.01)
    layers["value"] = layer(jax, next(keys), inputs, 1, gain=1.0)
    return layers


def linear(params, name, x):
    """Return a layer's products with rows, plus its bias."""
    weight, bias = params[name]
    return x @ weight + bias


def encoded(jax, task, params, obs):
    """Return the last hidden layer of observations (..., D) or (..., H, W, C)."""
    act = getattr(jax.nn, task.activation)
    x = obs.astype("float32")
    if task.channels:
        weight, bias = params["conv"]
        maps = convolved(jax.numpy, x.reshape(-1, *x.shape[-3:]), weight)
        x = act(maps + bias).reshape(*x.shape[:-3], -1)
    elif task.env.startswith("minatar"):
        x = x.reshape(*x.shape[:-3], -1)
    for k in range(len(task.hidden)):
        x = act(linear(params, f"hidden {k}", x))
    return x


def gru(jax, params, state, inputs, start):
    """Return the next hidden state of a GRU, in PyTorch's convention. Reset rows begin with 0.

    Args:
        jax: The module.
        params: Parameters by name.
        state: (N, units).
        inputs: (N, 3 units), products of the inputs.
        start: (N,), whether an episode begins.
    """
    state = jax.numpy.where(start[:, None], 0.0, state)
    of_state, split = linear(params, "state", state), jax.numpy.split
    (r, z, n), (of_r, of_z, of_n) = split(inputs, 3, -1), split(of_state, 3, -1)
    r, z = jax.nn.sigmoid(r + of_r), jax.nn.sigmoid(z + of_z)
    return (1 - z) * jax.numpy.tanh(n + r * of_n) + z * state


def forward(jax, task, params, state, obs, start):
    """Return log-probabilities and values of sequences of T observations, and the last state.

    Args:
        jax: The module.
        task: ``Task``.
        params: Parameters by name.
        state: (N, units) before the first step.
        obs: (T, N, ...).
        start: (T, N), whether an episode begins.
    """
    x = encoded(jax, task, params, obs)
    if task.units:

        def step(state, row):
            state = gru(jax, params, state, *row)
            return state, state

        state, x = jax.lax.scan(step, state, (linear(params, "inputs", x), start))
    log_probs = jax.nn.log_softmax(linear(params, "policy", x))
    return log_probs, linear(params, "value", x)[..., 0], state


def make_training(jax, gymnax, task, n):
    """Return functions: the beginning of a run of ``n`` environments from a key, and some iterations
    of it.
    """
    jnp, tree = jax.numpy, jax.tree_util
    env, env_params = gymnax.make(IDS[task.env])
    choices, run = env.action_space(env_params).n, partial(forward, jax, task)
    parts = SETTINGS.num_minibatches

    def begin(key):
        key, first, made = jax.random.split(key, 3)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(first, n), env_params)
        params = network(jax, made, task, obs.shape[1:], choices)
        zeros = tree.tree_map(jnp.zeros_like, params)
        played = state, obs, jnp.zeros((n, task.units)), jnp.ones(n, bool)
        return key, played, params, (zeros, zeros, jnp.zeros((), "int32"))

    def play(params, carry, _):
        key, (state, obs, hidden, start) = carry
        key, choose, move = jax.random.split(key, 3)
        log_probs, value, hidden = run(params, hidden, obs[None], start[None])
        action = jax.random.categorical(choose, log_probs[0])
        seen, state, reward, *ends, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            jax.random.split(move, n), state, action, env_params
        )
        done = sum(ends) > 0  # terminated, truncated
        log_prob = jnp.take_along_axis(log_probs[0], action[:, None], axis=1)[:, 0]
        row = obs, start, action, log_prob, value[0], reward, done
        return (key, (state, seen, hidden, done)), row

    def advantage_before(after, row):
        advantage, next_value = after
        value, reward, done = row
        error = reward + GAMMA * next_value * (1 - done) - value
        advantage = error + GAMMA * LAMBDA * (1 - done) * advantage
        return (advantage, value), advantage

    def loss(params, rows):
        hidden, (obs, start, action, old, advantage, returns) = rows
        log_probs, value, _ = run(params, hidden, obs, start)
        log_prob = jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]
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
        key, played, params, adam = run_state
        before = played[2]
        (key, played), rows = jax.lax.scan(partial(play, params), (key, played), None, task.steps)
        seen, start, action, log_prob, value, reward, done = rows
        _, obs, hidden, starts = played
        last = run(params, hidden, obs[None], starts[None])[1][0]
        _, advantage = jax.lax.scan(
            advantage_before,
            (jnp.zeros_like(last), last),
            (value, reward, done.astype(jnp.float32)),
            reverse=True,
        )
        rows = (seen, start, action, log_prob, advantage, advantage + value)
        # Without hidden state rows are shuffled, as sequences of one step.
        length = task.steps if task.units else 1
        count = task.steps * n // length
        rows = tree.tree_map(lambda x: x.reshape(length, count, *x.shape[2:]), rows)
        if not task.units:
            before = jnp.zeros((count, 0))

        def epoch(carry, key):
            order = jax.random.permutation(key, count).reshape(parts, -1)
            of_part = tree.tree_map(lambda x: jnp.moveaxis(x[:, order], 1, 0), rows)
            return jax.lax.scan(descend, carry, (before[order], of_part))

        key, shuffle = jax.random.split(key)
        (params, adam), _ = jax.lax.scan(
            epoch, (params, adam), jax.random.split(shuffle, SETTINGS.update_epochs)
        )
        return (key, played, params, adam), reward.sum() / jnp.maximum(1, done.sum())

    return jax.jit(begin), jax.jit(
        lambda run_state, count: jax.lax.scan(iterate, run_state, None, count), static_argnums=1
    )


def time_task(given, jax, gymnax, task, n):
    """Print the row of a task with ``n`` environments."""
    begin, iterate = make_training(jax, gymnax, task, n)
    env, env_params = gymnax.make(IDS[task.env])
    shape, choices = env.observation_space(env_params).shape, env.action_space(env_params).n
    count, state = ITERATIONS[given.device], begin(jax.random.key(0))
    compiled, seconds, returns = timed_iterations(iterate, state, count, given.runs)
    convolution = [f"{task.channels}@{KERNEL}x{KERNEL}"] * bool(task.channels)
    core = [f"GRU{task.units}"] * bool(task.units)
    name = label(shape, *convolution, *task.hidden, *core, choices + 1)
    note = f"ppo, network {name}, {SETTINGS.update_epochs} epochs x {SETTINGS.num_minibatches} minibatches"
    note += f"; {compiled:.1f} s to compile (not counted); {float(returns[-1]):.3g} reward per episode at the end"
    who = f"JAX {version('jax')} on gymnax {version('gymnax')}"
    tell(make_row("training", task.env, n, 1, task.steps, seconds, who=who, note=note))


def main():
    """Time each task in each size."""
    given = arguments(__doc__, "training", tuple(dict.fromkeys(task.env for task in TASKS)))
    jax, gymnax = jax_and("gymnax", given)
    for task in TASKS:
        for n in task.sizes.get(given.device, ()) if task.env in given.envs else ():
            time_task(given, jax, gymnax, task, n)


if __name__ == "__main__":
    main()
