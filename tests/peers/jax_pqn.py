"""PQN as one JAX program on gymnax: rollout, Q(lambda) targets, shuffled minibatches and RAdam in one
jitted function.

Written from Gallici et al. 2024 and the published settings of purejaxql: LayerNorm after each layer,
convolutions included, He's normal weights, MinAtar's observations divided by 255, an episode that
ends at a time limit as at a failure. Alike: task, environments, steps, sizes of layers, epochs,
minibatches. Not alike: JAX's own random numbers and precision of matrix products.
gymnax's Asterix becomes faster over time, ours with ``rules="gymnax"`` only if
``difficulty_ramping="on"``.

``--cases training`` times iterations. ``--cases curves`` trains ten seeds side by side for each of
``--envs`` and prints their mean episode returns as JSON.
"""

import json
import sys
from importlib.metadata import version

from protocol import IDS, arguments, convolved, jax_and, label, tell, timed_iterations

from cupydrive.bench.timing import make_row
from cupydrive.bench.training import PQN_SETTINGS

MINATAR = ("asterix", "breakout", "freeway", "space_invaders")
TASKS = {f"minatar_{name}": f"{name.title().replace('_', '')}-MinAtar" for name in MINATAR}
TASKS = {"cartpole": IDS["cartpole"], **TASKS}
ENVS, ITERATIONS, SEEDS = 128, {"cuda": 50, "cpu": 2}, 10
STEPS = {"cartpole": 500_000, **dict.fromkeys(list(TASKS)[1:], 10_000_000)}  # of a curve
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of RAdam
CHANNELS, KERNEL, DENSE = 16, 3, 128  # of MinAtar's network


def normal(jax, key, *shape, gain=2.0):
    """Return normal weights with variance ``gain`` over the number of inputs, and zero biases."""
    inputs = 1
    for n in shape[:-1]:
        inputs *= n
    weight = jax.random.normal(key, shape) * (gain / inputs) ** 0.5
    return {"weight": weight, "bias": jax.numpy.zeros(shape[-1])}


def normalised(jnp, x, gains):
    """Return rows with mean 0 and deviation 1, then gains and biases."""
    scaled = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return scaled * gains["weight"] + gains["bias"]


def network(jax, key, shape, choices, hidden):
    """Return parameters: layers, each with its normalisation, and the action values."""
    keys, layers, inputs = jax.random.split(key, len(hidden) + 2), [], shape[-1]
    if len(shape) == 3:
        layers.append(normal(jax, keys[-1], KERNEL, KERNEL, inputs, CHANNELS))
        inputs = (shape[0] - KERNEL + 1) * (shape[1] - KERNEL + 1) * CHANNELS
    for width, own in zip(hidden, keys, strict=False):
        layers.append(normal(jax, own, inputs, width))
        inputs = width
    ones = [{"weight": jax.numpy.ones_like(x["bias"]), "bias": 0 * x["bias"]} for x in layers]
    return layers, ones, normal(jax, keys[-2], inputs, choices, gain=1.0)


def forward(jax, params, obs):
    """Return the action values of observations (B, ...)."""
    layers, norms, last = params
    x = obs.astype("float32") / (255.0 if obs.ndim == 4 else 1.0)
    for layer, norm in zip(layers, norms, strict=True):
        if layer["weight"].ndim == 4:
            x = convolved(jax.numpy, x, layer["weight"])
        else:
            x = x.reshape(len(x), -1) @ layer["weight"]
        x = jax.nn.relu(normalised(jax.numpy, x + layer["bias"], norm))
    return x @ last["weight"] + last["bias"]


def make_training(jax, gymnax, task, settings, iterations):
    """Return functions: the beginning of a run from a key, and some iterations of it; epsilon and
    the learning rate follow their schedules of a run of ``iterations``.
    """
    jnp, tree = jax.numpy, jax.tree_util
    env, env_params = gymnax.make(task)
    choices, hidden = env.action_space(env_params).n, settings["hidden"]
    minibatches, gamma, weight = (settings[k] for k in ("minibatches", "gamma", "q_lambda"))

    def begin(key):
        key, first, made = jax.random.split(key, 3)
        obs, state = jax.vmap(env.reset, in_axes=(0, None))(
            jax.random.split(first, ENVS), env_params
        )
        params = network(jax, made, obs.shape[1:], choices, hidden)
        zeros = tree.tree_map(jnp.zeros_like, params)
        totals = jnp.zeros(ENVS), jnp.zeros(ENVS)  # returns so far, of the latest episodes
        return key, state, obs, params, (zeros, zeros, 0.0), totals, 0

    def play(epsilon, params, carry, _):
        key, state, obs, (sums, latest) = carry
        key, explore, choose, move = jax.random.split(key, 4)
        q = forward(jax, params, obs)
        random = jax.random.randint(choose, (ENVS,), 0, choices)
        action = jnp.where(jax.random.uniform(explore, (ENVS,)) < epsilon, random, q.argmax(-1))
        seen, state, reward, *ends, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            jax.random.split(move, ENVS), state, action, env_params
        )
        done = sum(ends) > 0  # terminated, truncated
        sums = sums + reward
        totals = jnp.where(done, 0.0, sums), jnp.where(done, sums, latest)
        row = obs, action, reward * settings["reward_scale"], done.astype("float32"), q.max(-1)
        return (key, state, seen, totals), row

    def target_before(after, row):
        later, next_value = after
        reward, done, value = row
        mixed = (1 - weight) * next_value + weight * later
        target = reward + gamma * (1 - done) * mixed
        return (target, value), target

    def loss(params, rows):
        obs, action, target = rows
        q = jnp.take_along_axis(forward(jax, params, obs), action[:, None], 1)[:, 0]
        return 0.5 * ((q - target) ** 2).mean()

    def descend(rate, carry, rows):
        params, (first, second, count) = carry
        gradient = jax.grad(loss)(params, rows)
        norm = jnp.sqrt(sum((g**2).sum() for g in tree.tree_leaves(gradient)))
        clip = jnp.minimum(1.0, settings["max_grad_norm"] / (norm + 1e-6))
        gradient = tree.tree_map(lambda g: g * clip, gradient)
        count += 1
        first = tree.tree_map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, first, gradient)
        second = tree.tree_map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, second, gradient)
        most, power = 2 / (1 - BETAS[1]) - 1, BETAS[1] ** count
        length = most - 2 * count * power / (1 - power)
        factor = ((length - 4) * (length - 2) * most) / ((most - 4) * (most - 2) * length)
        rectified, scales = count > 5, (1 - BETAS[0] ** count, 1 - power)
        factor = jnp.sqrt(jnp.where(rectified, factor, 1.0))

        def moved(p, m, v):
            deviation = jnp.sqrt(v / scales[1]) + EPSILON
            return p - rate * m / scales[0] * jnp.where(rectified, factor / deviation, 1.0)

        return (tree.tree_map(moved, params, first, second), (first, second, count)), None

    def iterate(run, _):
        key, state, obs, params, adam, totals, done_before = run
        share = done_before / iterations
        start, end, decay = settings["epsilon"]
        epsilon = start + (end - start) * jnp.minimum(1.0, share / decay)
        rate = settings["learning_rate"] * (1 - share)
        (key, state, obs, totals), rows = jax.lax.scan(
            lambda carry, x: play(epsilon, params, carry, x),
            (key, state, obs, totals),
            None,
            settings["steps"],
        )
        seen, action, reward, done, value = rows
        last = forward(jax, params, obs).max(-1)
        _, target = jax.lax.scan(target_before, (last, last), (reward, done, value), reverse=True)
        rows = tree.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), (seen, action, target))

        def epoch(carry, key):
            order = jax.random.permutation(key, ENVS * settings["steps"])
            parts = tree.tree_map(lambda x: x[order].reshape(minibatches, -1, *x.shape[1:]), rows)
            return jax.lax.scan(lambda carry, rows: descend(rate, carry, rows), carry, parts)

        key, shuffle = jax.random.split(key)
        keys = jax.random.split(shuffle, settings["epochs"])
        (params, adam), _ = jax.lax.scan(epoch, (params, adam), keys)
        return (key, state, obs, params, adam, totals, done_before + 1), totals[1].mean()

    def train(run, count):
        return jax.lax.scan(iterate, run, None, count)

    return begin, train


def settings_of(env):
    """Return the numbers of ``PQN_SETTINGS`` and those that purejaxql adds."""
    own, cartpole = (
        PQN_SETTINGS[env if env == "cartpole" else "minatar_breakout"],
        env == "cartpole",
    )
    return {
        "hidden": own.hidden if cartpole else (DENSE,),
        "steps": own.num_steps,
        "minibatches": own.num_minibatches,
        "epochs": own.update_epochs,
        "gamma": own.gamma,
        "q_lambda": own.q_lambda,
        "max_grad_norm": own.max_grad_norm,
        "learning_rate": 1e-4 if cartpole else 5e-4,  # decays to 0
        "epsilon": (1.0, 0.2, 0.2) if cartpole else (1.0, 0.05, 0.1),  # first, last, share of a run
        "reward_scale": 0.1 if cartpole else 1.0,
    }


def time_training(given, jax, gymnax):
    """Print the seconds of an iteration for each environment."""
    for env in given.envs:
        settings, count = settings_of(env), ITERATIONS[given.device]
        begin, train = make_training(jax, gymnax, TASKS[env], settings, 1_000)
        iterate, run = jax.jit(train, static_argnums=1), jax.jit(begin)(jax.random.key(0))
        compiled, seconds, _ = timed_iterations(iterate, run, count, given.runs)
        made, env_params = gymnax.make(TASKS[env])
        shape, choices = made.observation_space(env_params).shape, made.action_space(env_params).n
        convolution = [f"{CHANNELS}@{KERNEL}x{KERNEL}"] * (len(shape) == 3)
        network = label(shape, *convolution, *settings["hidden"], choices)
        note = f"pqn, network {network}, {settings['epochs']} epochs x {settings['minibatches']} minibatches"
        note += f"; {compiled:.1f} s to compile (not counted)"
        who = f"JAX {version('jax')} on gymnax {version('gymnax')}"
        steps = settings["steps"]
        tell(make_row("training", env, ENVS, 1, steps, seconds, who=who, note=note))


def curves(jax, gymnax, env, settings, iterations):
    """Return the mean returns of each seed after each iteration, (seeds, iterations)."""
    begin, train = make_training(jax, gymnax, TASKS[env], settings, iterations)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    return jax.jit(jax.vmap(lambda key: train(begin(key), iterations)[1]))(keys).tolist()


def print_curves(given, jax, gymnax):
    """Print for each environment and seed the mean return of its environments' latest episodes at
    100 moments of the run.
    """
    for env in given.envs:
        settings = settings_of(env)
        each = ENVS * settings["steps"]
        iterations = STEPS[env] // each
        shown = [(k + 1) * iterations // 100 - 1 for k in range(100)]
        for seed, returns in enumerate(curves(jax, gymnax, env, settings, iterations)):
            about = {"env": env, "seed": seed, "steps": [(k + 1) * each for k in shown]}
            print(json.dumps(about | {"return": [returns[k] for k in shown]}), flush=True)


def main():
    """Print times or curves."""
    case = "curves" if "curves" in sys.argv else "training"
    given = arguments(
        __doc__, case, ("cartpole", "minatar_breakout") if case == "training" else TASKS
    )
    {"curves": print_curves, "training": time_training}[case](given, *jax_and("gymnax", given))


if __name__ == "__main__":
    main()
