"""Right calls of the adapters to other libraries, for `test_arguments.py`; see `calls.py`.

Where an adapter raises its library's own error, as that library's users expect, the row says so.
"""

import importlib
from importlib.util import find_spec

import numpy as np
from calls import Row

import cupydrive as cd
import cupydrive.gymnasium

# Libraries that a machine may lack: without one, the calls of its adapter are left out.
MISSING = [
    name for name in ("pettingzoo", "stable_baselines3", "lightning") if find_spec(name) is None
]
for name in {"pettingzoo", "stable_baselines3"} - set(MISSING):
    importlib.import_module(f"cupydrive.{name}")

BASIC = {"env": "cartpole", "device": "cpu"}


def begun(env: object) -> object:
    """Return an environment after its reset."""
    env.reset(seed=1)
    return env


def vector() -> object:
    """Return three CartPoles for Gymnasium, begun."""
    return begun(cupydrive.gymnasium.VectorEnv("cartpole", 3, device="cpu"))


def single() -> object:
    """Return one CartPole for Gymnasium, begun."""
    return begun(cupydrive.gymnasium.Env("cartpole", device="cpu"))


def parallel() -> object:
    """Return one small grid of Tag for PettingZoo, begun."""
    return begun(cupydrive.pettingzoo.ParallelEnv("tag_grid", grid_length=5, max_episode_steps=9))


def many() -> object:
    """Return three CartPoles for Stable-Baselines3, begun."""
    env = cupydrive.stable_baselines3.VecEnv("cartpole", 3, device="cpu")
    env.seed(1)
    env.reset()
    return env


def rl_module(**given: object) -> object:
    """Return what a module of Lightning's has planned; Lightning takes seconds to import."""
    module = importlib.import_module("cupydrive.lightning").RLModule(**given)
    return module.goal, module.config.num_envs, module.config.seed, repr(module.config.policies)


SMALL = cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)
STATE = {"seed": 3, "options": {"state": {"x": 0.5}}}
ACTIONS = {"actions": ("action",)}
ROWS = {
    "gymnasium.VectorEnv": Row(
        lambda **given: cupydrive.gymnasium.VectorEnv(**given),
        {
            **BASIC, "num_envs": 2, "arrays": "numpy", "copy": True, "render_mode": "rgb_array",
            "validate": True,
            "autoreset_mode": "same_step", "gravity": 9.8,
        },
    ),
    "gymnasium.VectorEnv.reset": Row("reset", STATE, vector),
    "gymnasium.VectorEnv.reset of some": Row(
        lambda it, mask: it.reset(options={"reset_mask": mask}),
        {"mask": np.array([True, False, True])}, vector,
    ),
    "gymnasium.VectorEnv.step": Row("step", {"actions": np.ones(3, np.int64)}, vector,
    words=ACTIONS),
    "gymnasium.Env": Row(
        lambda **given: cupydrive.gymnasium.Env(**given),
        {**BASIC, "render_mode": "rgb_array", "validate": True, "gravity": 9.8},
    ),
    "gymnasium.Env.reset": Row("reset", STATE, single),
    "gymnasium.Env.step": Row("step", {"action": 1}, single),
    "gymnasium.register": Row(lambda **given: cupydrive.gymnasium.register(**given),
    {"env": "cartpole"}),
    "pettingzoo.ParallelEnv": Row(
        lambda **given: cupydrive.pettingzoo.ParallelEnv(**given),
        {"env": "tag_grid", "device": "cpu", "render_mode": "rgb_array", "grid_length": 5},
    ),
    "pettingzoo.ParallelEnv.reset": Row("reset", {"seed": 3, "options": {"state": {"x": 1}}},
    parallel),
    "pettingzoo.ParallelEnv.step": Row(
        "step", lambda it: {"actions": dict.fromkeys(it.agents, 1)}, parallel, words=ACTIONS,
    ),
    "pettingzoo.ParallelEnv.observation_space": Row("observation_space", {"agent": "runner_0"},
    parallel),
    "pettingzoo.ParallelEnv.action_space": Row("action_space", {"agent": "runner_0"}, parallel),
    "stable_baselines3.VecEnv": Row(
        lambda **given: cupydrive.stable_baselines3.VecEnv(**given),
        {**BASIC, "num_envs": 2, "gravity": 9.8},
    ),
    "stable_baselines3.VecEnv.seed": Row("seed", {"seed": 3}, many),
    "stable_baselines3.VecEnv.step": Row("step", {"actions": np.ones(3, np.int64)}, many,
    words=ACTIONS),
    "lightning.RLModule": Row(
        rl_module,
        {
            "env": "cartpole", "algorithm": SMALL, "policies": None, "steps": 16, "num_envs": 4,
            "seed": 1, "backend": "auto",
            "gravity": 9.8,
        },
    ),
}  # fmt: skip
ROWS = {name: row for name, row in ROWS.items() if name.split(".")[0] not in MISSING}
