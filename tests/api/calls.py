"""A right call of every public function and method, for `test_arguments.py` to spoil one argument
of.

`ROWS` names each as users do: "make", "VectorEnv.step", "gymnasium.VectorEnv". Calls are as small
as they can be.
"""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces

import cupydrive as cd
from cupydrive import envs
from cupydrive.playing.config import resolve_eval
from cupydrive.playing.game import Game, GameConfig


@dataclass
class Row:
    """One right call.

    Args:
        function: What is called, or the name of a method of ``it()``.
        right: Arguments that are right, or a function that makes them from ``it()``.
        it: Makes the object that the method belongs to; a function gets it first.
        kinds: Kinds of arguments, of `odd.KINDS`, where `odd.kind_of` does not find it.
        takes: By argument: values of its kind that are right here.
        words: By argument: what a message calls it, where that is not the argument's own name.
        errors: Other libraries' errors that a class documents, besides `CupydriveError`.
    """

    function: Callable | str
    right: dict | Callable
    it: Callable | None = None
    kinds: dict = field(default_factory=dict)
    takes: dict = field(default_factory=dict)
    words: dict = field(default_factory=dict)
    errors: tuple = ()

    def __call__(self, it: object, **arguments: object) -> object:
        """Call it."""
        if isinstance(self.function, str):
            return getattr(it, self.function)(**arguments)
        return self.function(**arguments) if self.it is None else self.function(it, **arguments)

    def arguments(self, it: object) -> dict:
        """Return right arguments."""
        return self.right(it) if callable(self.right) else dict(self.right)

    def made(self) -> object:
        """Return a new object that the method belongs to."""
        return self.it and self.it()


def game(what: object, policies: object = None, device: object = "auto", **given: object) -> Game:
    """Return the game that ``play`` makes before it asks for a terminal."""
    options = {
        name: given.pop(name)
        for name in ("agent", "seed", "greedy", "fps", "episodes")
        if name in given
    }
    return Game(
        resolve_eval(cd.play, what, policies, given, device=device, kind=GameConfig, **options)
    )


def contents(x: object) -> object:
    """Return what an object of the package does from now on, as numbers, texts, arrays and
    containers of them.
    """
    if isinstance(getattr(x, "env", None), cd.VectorEnv):
        return contents(x.env)
    if isinstance(x, cd.VectorEnv):
        return x.reset(seed=5), x.rollout(3), x.snapshot()
    if isinstance(x, cd.Run):
        return x.step, x.snapshot()
    if isinstance(x, cd.Population):
        return x.runs
    if isinstance(x, cd.Video):
        return list(x.frames())
    if isinstance(x, cd.Recording):
        return list(x.moments())
    if isinstance(x, cd.EnvSpec):
        return x.name, x.kernel, x.make_params()
    if is_dataclass(x) and not isinstance(x, type):
        return {
            f.name: getattr(x, f.name)
            for f in fields(x)
            if f.name not in ("spec", "params", "kernel")
        }
    return x


def digest(what: object) -> str:
    """Return a hash of results."""
    found = hashlib.sha256()

    def add(x: object) -> None:
        x = contents(x)
        if isinstance(x, torch.Tensor):
            x = x.detach().cpu().contiguous()
            x = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()
        if isinstance(x, np.ndarray) and x.dtype != object:
            found.update(f"{x.dtype} {x.shape}".encode() + np.ascontiguousarray(x).tobytes())
        elif isinstance(x, dict):
            add(list(x.items()))
        elif isinstance(x, tuple | list | np.ndarray):
            for value in x:
                add(value)
        elif isinstance(x, str | bytes | int | float | complex | np.generic | None):
            found.update(repr(x).encode())
        else:
            found.update(type(x).__name__.encode())

    add(what)
    return found.hexdigest()


# ---- environments --------------------------------------------------------------------------------


def tag(**options: object) -> cd.VectorEnv:
    """Return three small grids of Tag, begun."""
    env = cd.make("tag_grid", 3, device="cpu", grid_length=5, max_episode_steps=9, **options)
    env.reset(seed=1)
    env.rollout(2)
    return env


def pole() -> cd.VectorEnv:
    """Return three CartPoles, begun."""
    env = cd.make("cartpole", 3, device="cpu")
    env.reset(seed=1)
    return env


def played(seed: int) -> object:
    """Return an evaluation of one short episode."""
    return cd.evaluate(
        "tag_grid",
        {"tagger": cd.RandomPolicy()},
        episodes=1,
        seed=seed,
        device="cpu",
        max_episode_steps=2,
    )


def film() -> cd.Video:
    """Return a short video."""
    return cd.Video(played(1).recording, (64, 48), progress=False, hold=0.0)


MOON = Path(cd.__file__).parent / "cli" / "templates" / "env.cu.txt"


def moon() -> cd.EnvSpec:
    """Return the `EnvSpec` of the template."""
    text = MOON.with_name("env.py.txt").read_text().replace("ENV_NAME", "moon")
    namespace = {"__name__": "moon"}
    exec(compile(text, "moon.py", "exec"), namespace)
    return namespace["SPEC"]


SMALL_VIDEO = {"size": (64, 48), "fps": 30, "hold": 0.0, "title": "x", "progress": False}
FUNCTIONS = ("int", "lambda *_: None")
TAG = envs.get("tag_grid")
ROWS = {
    "make": Row(
        cd.make,
        {
            "env": "cartpole", "num_envs": 2, "device": "cpu", "validate": True, "debug": False,
            "threads": 1, "first_env": 0,
            "layout": None, "obs_dtype": "float32", "gravity": 9.8, "max_episode_steps": 7,
        },
    ),
    "VectorEnv.reset": Row("reset", {"seed": 3}, tag),
    "VectorEnv.reset of some": Row("reset", {"mask": torch.tensor([True, False, True])}, tag),
    "VectorEnv.step": Row(
        "step",
        lambda it: {
            "action": {"tagger": torch.ones(3, 4, dtype=torch.int32),
            "runner": torch.zeros(3, 1, dtype=torch.int32)},
            "autoreset": True,
        },
        tag,
    ),
    "VectorEnv.step of one group": Row("step", {"action": torch.ones(3, dtype=torch.int32)}, pole),
    "VectorEnv.rollout": Row("rollout", {"steps": 3, "final_obs": True}, tag),
    "VectorEnv.set_state": Row("set_state", {"elapsed": 2, "x": 0.5, "theta": torch.zeros(3)},
    pole),
    "VectorEnv.restore": Row("restore", lambda it: {"snapshot": it.snapshot()}, tag),
    "VectorEnv.view": Row("view", {"policies": "random", "episodes": 2, "steps": 3, "seed": 1, "size": (200, 160)}, tag),
    "check": Row(
        cd.check, {"env": "mountain_car", "agent_steps": 1, "device": "cpu", "seed": 0, "fail_fast": False, "progress": False},
    ),
    "tune": Row(
        lambda **given: cd.tune(**given).layout,  # its rates are measured
        {"env": "cartpole", "num_envs": 4, "device": "cpu", "gravity": 9.8},
    ),
    "profile": Row(
        lambda **given: type(cd.profile(**given)),  # its figures are measured
        {"env": "cartpole", "num_envs": 4, "steps": 1, "device": "cpu", "gravity": 9.8},
    ),
    "evaluate": Row(
        cd.evaluate,
        lambda it: {
            "env": "tag_grid", "policies": {"tagger": cd.RandomPolicy()}, "episodes": 4, "seed": 3,
            "greedy": True,
            "device": "cpu", "max_episode_steps": 5,
        },
    ),
    "suggested_algorithm": Row(
        lambda env, name, **settings: cd.suggested_algorithm(env, name, **settings),
        {"env": "cartpole", "name": "ppo", "params": {"gravity": 9.0}, "gamma": 0.9}, words={"name": ("algorithm", "name")},
    ),
    "difference": Row(cd.difference,
    lambda it: {"one": played(1), "other": played(1), "name": "runner"}),
    "render": Row(
        cd.render,
        {
            "what": "tag_grid", "path": "a.gif", "policies": "random", "episodes": 1, "seed": 1,
            "greedy": True,
            "device": "cpu", **SMALL_VIDEO, "max_episode_steps": 2,
        },
        words={"what": ("what", "env")},
    ),
    "Video": Row(cd.Video, lambda it: {"recording": played(1).recording, **SMALL_VIDEO, "every": 1, "seconds": 1.0}),
    "Video.save": Row("save", {"path": "a.gif"}, film),
    "view": Row(
        cd.view,
        {
            "what": "tag_grid", "policies": "random", "episodes": 2, "steps": 3, "env": 0,
            "size": (200, 160), "device": "cpu",
            "max_episode_steps": 3,
        },
        words={"what": ("what", "env")},
    ),
    "play": Row(
        game,
        {
            "what": "tag_grid", "policies": "random", "agent": "tagger 1", "seed": 1,
            "greedy": True, "device": "cpu",
            "fps": 20, "episodes": 2, "max_episode_steps": 3,
        },
        words={"what": ("what", "env")},
    ),
    "EnvSpec": Row(
        cd.EnvSpec, lambda it: {f.name: getattr(TAG, f.name) for f in fields(TAG)},
        takes={"reward_threshold": ("0", "0.5"), "yardsticks": FUNCTIONS,
        "table_fields": FUNCTIONS, "training": FUNCTIONS},
    ),
    "Reference": Row(cd.Reference,
    lambda it: {f.name: getattr(TAG.reference, f.name) for f in fields(TAG.reference)}),
    "Display": Row(cd.Display, lambda it: {f.name: getattr(TAG.display, f.name) for f in fields(TAG.display)}),
    "EnvSpec.make_params": Row(
        "make_params", {"grid_length": 5, "wall_hit_penalty": 0.1, "starting_location_x": [0, 1, 0, 1, 0]}, lambda: TAG,
    ),
    "Field": Row(cd.Field, {"name": "x", "dtype": "f4", "shape": (3,), "scale": 1.0, "unit": "m"}),
    "Table": Row(
        cd.Table, {"name": "x", "shape": (3, 2), "dtype": "f4", "low": 0.0, "high": 2.0, "unit": "m", "finite": True},
    ),
    "Group": Row(
        cd.Group,
        {
            "name": "cart", "count": 1, "obs_dim": 4, "action_space": spaces.Discrete(2),
            "obs_scale": 1.0,
            "reward_scale": 1.0, "leaves": False, "mask": False, "obs_low": -1.0, "obs_high": 1.0,
        },
        kinds={"obs_low": "infinite", "obs_high": "infinite"},
    ),
    "param": Row(
        lambda **given: cd.param(**given).metadata,
        {
            "default": 1.0, "help": "A number.", "unit": "m", "low": 0.0, "high": 2.0,
            "vary": (0.5, 1.5), "choices": None,
            "of": None,
        },
        kinds={"low": "infinite", "high": "infinite"}, takes={"default": ("True",)},
    ),
    "nearest_decision": Row(
        lambda distances, axis: cd.nearest_decision(np.ones(3), distances, axis=axis),
        {"distances": np.zeros(3), "axis": 0},
        takes={"distances": ("math.nan",)},
    ),
    "new": Row(
        lambda **given: [path.read_text() for path in cd.new(**given)],
        lambda it: {"name": "moon", "folder": tempfile.mkdtemp()},
        words={"folder": ("folder", "cannot be written")},
    ),
    "register": Row(
        cd.register, lambda it: {"spec": moon(), "kernel": MOON.read_text()},
        words={"spec": ("spec", "does not exist")},
    ),
}  # fmt: skip
