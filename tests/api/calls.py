"""A correct call of every public function and method, for `test_arguments.py` to spoil one argument of.

`ROWS` names each as users do: "make", "VectorEnv.step", "gymnasium.VectorEnv". Calls are as small as they can be.
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
from cupydrive.playing.game import Game


@dataclass
class Row:
    """One correct call.

    Args:
        call: `call(it, **arguments)`.
        arguments: `arguments(it)` returns correct ones; those beyond the signature are for its `**params`.
        it: Makes the object that the method belongs to; None for a function.
        after: `after(it, result)` returns what a later correct call gives, as anything that `digest` reads.
        right: By argument: odd values that are right and would take for ever, or that run a user's own wrong program.
        takes: By argument: values that are right here and wrong nearly everywhere.
        words: By argument: what a message calls it, where that is not the argument's own name.
        errors: Other libraries' errors that a class documents, besides `CupydriveError`.
        slow: Whether the sample of `make test` leaves it out.
    """

    call: Callable
    arguments: Callable
    it: Callable = lambda: None
    after: Callable = lambda it, result: result
    right: dict = field(default_factory=dict)
    takes: dict = field(default_factory=dict)
    words: dict = field(default_factory=dict)
    errors: tuple = ()
    slow: bool = False


def digest(what):
    """Return a hash of results: numbers, texts, arrays, and dictionaries, sequences or dataclasses of them."""
    found = hashlib.sha256()

    def add(x):
        if isinstance(x, torch.Tensor):
            x = x.detach().cpu().contiguous()
            x = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()
        if isinstance(x, np.ndarray) and x.dtype != object:
            found.update(f"{x.dtype} {x.shape}".encode() + np.ascontiguousarray(x).tobytes())
        elif isinstance(x, dict):
            for key, value in x.items():
                found.update(repr(key).encode())
                add(value)
        elif isinstance(x, tuple | list | np.ndarray):
            for value in x:
                add(value)
        elif is_dataclass(x) and not isinstance(x, type):
            add({f.name: getattr(x, f.name) for f in fields(x) if f.name not in ("spec", "params", "kernel")})
        elif isinstance(x, str | bytes | int | float | complex | np.generic | None):
            found.update(repr(x).encode())
        else:
            found.update(type(x).__name__.encode())

    add(what)
    return found.hexdigest()


# ---- environments ----------------------------------------------------------------------------------------------------


def tag(**options):
    """Return three small grids of Tag, begun."""
    env = cd.make("tag_grid", 3, device="cpu", grid_length=5, max_episode_steps=9, **options)
    env.reset(seed=1)
    env.rollout(2)
    return env


def pole():
    """Return three CartPoles, begun."""
    env = cd.make("cartpole", 3, device="cpu")
    env.reset(seed=1)
    return env


def going_on(env, result=None):
    """Return what an environment does from now on, and after a reset."""
    kept = env.snapshot()
    return kept, env.rollout(3), env.reset(seed=5), env.rollout(3)


def actions(env):
    """Return valid actions of the small grids."""
    return {"tagger": torch.ones(3, 4, dtype=torch.int32), "runner": torch.zeros(3, 1, dtype=torch.int32)}


def state_fields(env):
    """Return a valid state of the CartPoles."""
    return {"elapsed": 2, "x": 0.5, "theta": torch.zeros(3)}


MAKE = Row(
    lambda it, **given: cd.make(**given),
    lambda it: {
        "env": "cartpole", "num_envs": 2, "device": "cpu", "validate": True, "debug": False, "threads": 1, "first_env": 0,
        "layout": None, "obs_dtype": "float32", "gravity": 9.8, "max_episode_steps": 7,
    },
    after=lambda it, env: (env.reset(seed=3), env.rollout(9)),
)  # fmt: skip
ROWS = {
    "make": MAKE,
    "VectorEnv.reset": Row(
        lambda it, **given: it.reset(**given), lambda it: {"seed": 3, "mask": None}, tag, going_on,
    ),
    "VectorEnv.reset of some": Row(
        lambda it, **given: it.reset(**given),
        lambda it: {"seed": None, "mask": torch.tensor([True, False, True])}, tag, going_on,
    ),
    "VectorEnv.step": Row(
        lambda it, **given: it.step(**given), lambda it: {"action": actions(it), "autoreset": True}, tag, going_on,
    ),
    "VectorEnv.step of one group": Row(
        lambda it, **given: it.step(**given), lambda it: {"action": torch.ones(3, dtype=torch.int32)}, pole, going_on,
    ),
    "VectorEnv.rollout": Row(
        lambda it, **given: it.rollout(**given), lambda it: {"steps": 3, "final_obs": True}, tag, going_on,
    ),
    "VectorEnv.set_state": Row(
        lambda it, **given: it.set_state(**given), state_fields, pole, going_on,
    ),
    "VectorEnv.restore": Row(
        lambda it, snapshot: it.restore(snapshot), lambda it: {"snapshot": it.snapshot()}, tag, going_on,
    ),
    "VectorEnv.view": Row(
        lambda it, **given: it.view(**given),
        lambda it: {"players": "random", "episodes": 2, "steps": 3, "seed": 1, "size": (200, 160)}, tag,
        lambda it, viewer: (viewer.words(), going_on(it)),
    ),
    "check": Row(
        lambda it, **given: cd.check(**given),
        lambda it: {"env": "mountain_car", "agent_steps": 1, "device": "cpu", "seed": 0, "fail_fast": False, "progress": False},
        right={"agent_steps": ("2**31-1",)},
        after=lambda it, report: str(report), slow=True,
    ),
    "tune": Row(
        lambda it, **given: cd.tune(**given),
        lambda it: {"env": "cartpole", "num_envs": 4, "device": "cpu", "remember": True, "gravity": 9.8},
        after=lambda it, tuned: tuned.layout, slow=True,
    ),
    "profile": Row(
        lambda it, **given: cd.profile(**given),
        lambda it: {"env": "cartpole", "num_envs": 4, "steps": 1, "device": "cpu", "gravity": 9.8},
        after=lambda it, found: [found.env, found.num_envs, found.steps], slow=True,  # the rest is measured, or told of it
    ),
    "evaluate": Row(
        lambda it, **given: cd.evaluate(**given),
        lambda it: {
            "env": "tag_grid", "players": {"tagger": cd.Random()}, "episodes": 4, "seed": 3, "greedy": True, "device": "cpu",
            "max_episode_steps": 5,
        },
        right={"max_episode_steps": ("2**31-1",)},
    ),
    "suggested_algorithm": Row(
        lambda it, **given: cd.suggested_algorithm(given.pop("env"), given.pop("name"), **given),
        lambda it: {"env": "cartpole", "name": "ppo", "gamma": 0.9},
        after=lambda it, settings: str(settings), words={"name": ("algorithm", "name")},
    ),
    "difference": Row(
        lambda it, **given: cd.difference(**given), lambda it: {"one": played(1), "other": played(1), "name": "runner"},
    ),
    "render": Row(
        lambda it, **given: cd.render(**given),
        lambda it: {
            "what": "tag_grid", "path": None, "players": "random", "episodes": 1, "seed": 1, "greedy": True, "device": "cpu",
            "size": (64, 48), "fps": 30, "hold": 0.0, "title": "x", "progress": False, "max_episode_steps": 2,
        },
        after=lambda it, video: list(video.frames()), words={"what": ("what", "env")},
    ),
    "Video": Row(
        lambda it, **given: cd.Video(**given),
        lambda it: {
            "recording": played(1).recording, "size": (64, 48), "fps": 30, "hold": 0.0, "title": "x", "progress": False,
            "every": 1, "seconds": 1.0,
        },
        after=lambda it, video: list(video.frames()),
    ),
    "Video.save": Row(
        lambda it, path: it.save(path), lambda it: {"path": "a.gif"}, lambda: film(),
        lambda it, path: it.save("b.gif").read_bytes(),
    ),
    "view": Row(
        lambda it, **given: cd.view(**given),
        lambda it: {
            "what": "tag_grid", "players": "random", "episodes": 2, "steps": 3, "env": 0, "size": (200, 160), "device": "cpu",
            "max_episode_steps": 3,
        },
        after=lambda it, viewer: viewer.words(), words={"what": ("what", "env")},
    ),
    "play": Row(
        lambda it, **given: Game(**given),  # which play() makes before it asks for a terminal
        lambda it: {
            "what": "tag_grid", "players": "random", "agent": "tagger 1", "seed": 1, "greedy": True, "device": "cpu", "fps": 20,
            "episodes": 2, "max_episode_steps": 3,
        },
        after=lambda it, game: [game.step(["ArrowUp"]).states, game.text], words={"what": ("what", "env")},
    ),
}  # fmt: skip


def played(seed):
    """Return an evaluation of one short episode."""
    return cd.evaluate("tag_grid", {"tagger": cd.Random()}, episodes=1, seed=seed, device="cpu", max_episode_steps=2)


def film():
    """Return a short video."""
    return cd.Video(played(1).recording, (64, 48), progress=False, hold=0.0)


# ---- descriptions ----------------------------------------------------------------------------------------------------


def spec_fields(it=None):
    """Return the arguments of an `EnvSpec` that is right."""
    spec = envs.get("tag_grid")
    return {f.name: getattr(spec, f.name) for f in fields(spec)}


ROWS |= {
    "EnvSpec": Row(lambda it, **given: cd.EnvSpec(**given), spec_fields, after=lambda it, spec: spec.make_params()),
    "EnvSpec.make_params": Row(
        lambda it, **given: it.make_params(**given),
        lambda it: {"grid_length": 5, "wall_hit_penalty": 0.1, "starting_location_x": [0, 1, 0, 1, 0]},
        lambda: envs.get("tag_grid"),
    ),
    "Field": Row(
        lambda it, **given: cd.Field(**given),
        lambda it: {"name": "x", "dtype": "f4", "shape": (3,), "scale": 1.0, "unit": "m"},
    ),
    "Table": Row(
        lambda it, **given: cd.Table(**given),
        lambda it: {
            "name": "x", "shape": (3, 2), "dtype": "f4", "low": 0.0, "high": 2.0, "unit": "m", "finite": True,
        },
    ),
    "Group": Row(
        lambda it, **given: cd.Group(**given),
        lambda it: {
            "name": "cart", "count": 1, "obs_dim": 4, "action_space": spaces.Discrete(2), "obs_scale": 1.0,
            "reward_scale": 1.0, "leaves": False, "mask": False, "obs_low": -1.0, "obs_high": 1.0,
        },
        after=lambda it, group: (group.sizes, repr(group.observation_space)),
    ),
    "param": Row(
        lambda it, **given: cd.param(**given),
        lambda it: {
            "default": 1.0, "help": "A number.", "unit": "m", "low": 0.0, "high": 2.0, "vary": (0.5, 1.5), "choices": None,
            "of": None,
        },
        after=lambda it, made: (made.default, dict(made.metadata)),
    ),
    "nearest_decision": Row(
        lambda it, distances, axis: cd.nearest_decision(np.ones(3), distances, axis=axis),
        lambda it: {"distances": np.zeros(3), "axis": 0}, takes={"distances": ("nan",)},
    ),
    "new": Row(
        lambda it, **given: cd.new(**given), lambda it: {"name": "moon", "folder": it}, tempfile.mkdtemp,
        after=lambda it, paths: [path.read_text() for path in paths], words={"folder": ("folder", "cannot be written")},
    ),
    "register": Row(
        lambda it, **given: cd.register(**given),
        lambda it: {"spec": moon(), "kernel": MOON.read_text()},
        after=lambda it, spec: (spec.name, spec.kernel), words={"spec": ("spec", "there is no file")},
    ),
}  # fmt: skip
MOON = Path(cd.__file__).parent / "cli" / "templates" / "env.cu.txt"


def moon():
    """Return the `EnvSpec` of the template."""
    text = MOON.with_name("env.py.txt").read_text().replace("ENV_NAME", "moon")
    namespace = {"__name__": "moon"}
    exec(compile(text, "moon.py", "exec"), namespace)
    return namespace["SPEC"]
