"""Correct calls of the adapters to other libraries, for `test_arguments.py`; see `calls.py`.

Where an adapter raises its library's own error, as that library's users expect, the row says so.
"""

import importlib
from importlib.util import find_spec

import gymnasium
import numpy as np
from calls import Row

import cupydrive as cd
import cupydrive.gymnasium

# Libraries that a machine may lack: without one, the calls of its adapter are left out, as are its tests.
LIBRARIES = ("pettingzoo", "stable_baselines3")
MISSING = [name for name in LIBRARIES if find_spec(name) is None]
for name in set(LIBRARIES) - set(MISSING):
    importlib.import_module(f"cupydrive.{name}")

# Lightning takes seconds to import: its rows do so when they are called.
MISSING += ["lightning"] * (find_spec("lightning") is None)

BASIC = {"env": "cartpole", "device": "cpu"}


def vector(**options):
    """Return three CartPoles for Gymnasium, begun."""
    env = cupydrive.gymnasium.VectorEnv("cartpole", 3, device="cpu", **options)
    env.reset(seed=1)
    return env


def single(**options):
    """Return one CartPole for Gymnasium, begun."""
    env = cupydrive.gymnasium.Env("cartpole", device="cpu", **options)
    env.reset(seed=1)
    return env


def parallel(**options):
    """Return one small grid of Tag for PettingZoo, begun."""
    env = cupydrive.pettingzoo.ParallelEnv("tag_grid", grid_length=5, max_episode_steps=9, **options)
    env.reset(seed=1)
    return env


def many():
    """Return three CartPoles for Stable-Baselines3, begun."""
    env = cupydrive.stable_baselines3.VecEnv("cartpole", 3, device="cpu")
    env.seed(1)
    env.reset()
    return env


def rl_module(env, **given):
    """Return a module of Lightning's."""
    return importlib.import_module("cupydrive.lightning").RLModule(env, **given)


def small_run():
    """Return a run of CartPole after one iteration."""
    return cd.train("cartpole", SMALL, steps=16, num_envs=4, device="cpu", progress=False)


SMALL = cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)


def inner(it, result=None):
    """Return what the environment within does from now on, and after a reset by its own library."""
    return it.env.snapshot(), it.env.rollout(3), it.reset(seed=4), it.env.rollout(3)


def begun(it, env):
    """Return what a new environment does."""
    env.reset(seed=1)
    return inner(env)


def sb3_after(it, result=None):
    """Return what the environment within does from now on."""
    return it.env.env.snapshot(), it.env.env.rollout(3)


ROWS = {
    "gymnasium.VectorEnv": Row(
        lambda it, **given: cupydrive.gymnasium.VectorEnv(**given),
        lambda it: {
            **BASIC, "num_envs": 2, "arrays": "numpy", "copy": True, "render_mode": None, "validate": True,
            "autoreset_mode": "same_step", "gravity": 9.8,
        },
        after=begun,
    ),
    "gymnasium.VectorEnv.reset": Row(
        lambda it, **given: it.reset(**given), lambda it: {"seed": 3, "options": {"state": {"x": 0.5}}}, vector, inner,
    ),
    "gymnasium.VectorEnv.reset of some": Row(
        lambda it, seed, mask: it.reset(seed=seed, options={"reset_mask": mask}),
        lambda it: {"seed": None, "mask": np.array([True, False, True])}, vector, inner,
        errors=(TypeError,),  # as Gymnasium's own vector environments
    ),
    "gymnasium.VectorEnv.step": Row(
        lambda it, **given: it.step(**given), lambda it: {"actions": np.ones(3, np.int64)}, vector, inner,
        words={"actions": ("action",)},
    ),
    "gymnasium.Env": Row(
        lambda it, **given: cupydrive.gymnasium.Env(**given),
        lambda it: {**BASIC, "render_mode": None, "validate": True, "gravity": 9.8},
        after=begun,
    ),
    "gymnasium.Env.reset": Row(
        lambda it, **given: it.reset(**given), lambda it: {"seed": 3, "options": {"state": {"x": 0.5}}}, single, inner,
    ),
    "gymnasium.Env.step": Row(lambda it, **given: it.step(**given), lambda it: {"action": 1}, single, inner),
    "gymnasium.make_vec": Row(
        lambda it, **given: cupydrive.gymnasium.make_vec(**given), lambda it: {**BASIC, "num_envs": 2}, after=begun,
    ),
    "gymnasium.register": Row(
        lambda it, **given: cupydrive.gymnasium.register(**given), lambda it: {"env": "cartpole"},
        after=lambda it, name: (name, name in gymnasium.registry),
    ),
    "pettingzoo.ParallelEnv": Row(
        lambda it, **given: cupydrive.pettingzoo.ParallelEnv(**given),
        lambda it: {"env": "tag_grid", "device": "cpu", "render_mode": None, "grid_length": 5},
        after=begun,
    ),
    "pettingzoo.ParallelEnv.reset": Row(
        lambda it, **given: it.reset(**given), lambda it: {"seed": 3, "options": {"state": {"x": 1}}}, parallel, inner,
    ),
    "pettingzoo.ParallelEnv.step": Row(
        lambda it, **given: it.step(**given), lambda it: {"actions": dict.fromkeys(it.agents, 1)}, parallel, inner,
        words={"actions": ("action",)},
    ),
    "pettingzoo.ParallelEnv.step of one": Row(
        lambda it, action: it.step({**dict.fromkeys(it.agents, 1), "runner_0": action}), lambda it: {"action": 1},
        parallel, inner,
    ),
    "pettingzoo.ParallelEnv.observation_space": Row(
        lambda it, agent: it.observation_space(agent), lambda it: {"agent": "runner_0"}, parallel,
        lambda it, space: (repr(space), inner(it)),
    ),
    "pettingzoo.ParallelEnv.action_space": Row(
        lambda it, agent: it.action_space(agent), lambda it: {"agent": "runner_0"}, parallel,
        lambda it, space: (repr(space), inner(it)),
    ),
    "pettingzoo.parallel_env": Row(
        lambda it, **given: cupydrive.pettingzoo.parallel_env(**given), lambda it: {"env": "tag_grid"}, after=begun,
    ),
    "stable_baselines3.VecEnv": Row(
        lambda it, **given: cupydrive.stable_baselines3.VecEnv(**given), lambda it: {**BASIC, "num_envs": 2, "gravity": 9.8},
        after=lambda it, env: (env.seed(3), env.reset(), env.env.env.rollout(3)),
    ),
    "stable_baselines3.VecEnv.seed": Row(
        lambda it, seed: (it.seed(seed), it.reset()), lambda it: {"seed": 3}, many, sb3_after,
    ),
    "stable_baselines3.VecEnv.step": Row(
        lambda it, actions: it.step(actions), lambda it: {"actions": np.ones(3, np.int64)}, many, sb3_after,
        words={"actions": ("action",)},
    ),
    "lightning.RLModule": Row(
        lambda it, **given: rl_module(**given),
        lambda it: {
            "env": "cartpole", "algorithm": SMALL, "policies": None, "steps": 16, "num_envs": 4, "seed": 1, "learner": "auto",
            "gravity": 9.8,
        },
        after=lambda it, module: (module.goal, module.planned.num_envs, module.planned.seed, repr(module.planned.policies)),
        slow=True,
    ),
    "lightning.RLModule of a run": Row(
        lambda it, steps: rl_module(it, steps=steps), lambda it: {"steps": 16}, small_run,
        lambda run, module: (module.goal, run.step, run.snapshot()), slow=True, words={"steps": ("steps", "pass steps=")},
    ),
}  # fmt: skip
ROWS = {name: row for name, row in ROWS.items() if name.split(".")[0] not in MISSING}
