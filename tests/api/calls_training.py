"""Right calls of training, of runs, of settings and of files, for `test_arguments.py`; see
`calls.py`.

They are as small as they can be: four environments, four steps, networks of four neurons.
"""

import tempfile
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import torch
from calls import FUNCTIONS, SMALL_VIDEO, Row, played, tag

import cupydrive as cd
from cupydrive.algorithms import ALGORITHMS
from cupydrive.training.config import resolve
from cupydrive.training.explain import Failure

SMALL = {"steps": 16, "num_envs": 4, "device": "cpu", "progress": False}
PAIR = {"grid_length": 5, "max_episode_steps": 4}


def ppo() -> cd.PPO:
    """Return the settings of a small network that learns from four steps."""
    return cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)


def population() -> cd.Population:
    """Return two runs of CartPole after one iteration, as if that had taken no time."""
    made = cd.train("cartpole", ppo(), seeds=2, **SMALL)
    for run in made:
        run.seconds = 0.0
    return made


def trained(**options: object) -> cd.Run:
    """Return a run of CartPole after one iteration."""
    return cd.train("cartpole", ppo(), **SMALL | options)


def failed() -> cd.Run:
    """Return a run that met a NaN, not explained yet."""
    run = cd.train("cartpole", cd.PPO(num_steps=4, hidden=(8,)), **SMALL | {"steps": 1})
    run.failed = Failure(run.step, run.seconds)
    return run


def pair(**players: object) -> cd.Run:
    """Return a run of Tag; unless told otherwise its taggers learn and its runners play at
    random.
    """
    return cd.train(
        "tag_grid",
        policies={"tagger": ppo(), "runner": cd.RandomPolicy(), **players},
        **SMALL,
        **PAIR,
    )


def folder() -> Path:
    """Return an empty folder."""
    return Path(tempfile.mkdtemp())


def saved(what: object, name: str) -> Path:
    """Return the path of what was saved in a folder of its own."""
    path = folder() / name
    what.save(path)
    return path


def run_folder() -> Path:
    """Return the folder of a run."""
    return saved(trained(), "run")


def settings(kind: type) -> Row:
    """Return the row of an algorithm's settings: every one of them is passed."""
    arguments = {f.name: getattr(kind(), f.name) for f in fields(kind)}
    return Row(
        kind, arguments, takes={"policy": FUNCTIONS, "target_kl": ("0.5",), "epsilon": ("0.5",)}
    )


def plotted(it: object, keys: str, levels: dict) -> bytes:
    """Return the beginning of a figure."""
    return it.plot(keys, levels=levels).png()[:8]


def fastest(**given: object) -> object:
    """Return what ``best_num_envs`` finds when it tries one number of environments, once."""
    with patch.multiple("cupydrive.profiling.tuner", SIZES=(64,), ITERATIONS=1):
        return type(cd.best_num_envs(**given))


ROWS = {kind.__name__: settings(kind) for kind in (cd.PPO, cd.A2C, cd.PQN, cd.DDPG, cd.OnPolicy)}
assert len(ROWS) == len(ALGORITHMS) + 1
UNITS = {"size": "count", "layers": "count"}
ROWS |= {kind.__name__: Row(kind, {"size": 8}, kinds=UNITS) for kind in (cd.GRU, cd.LSTM)}
ROWS["MinGRU"] = Row(cd.MinGRU, {"size": 8, "layers": 2}, kinds=UNITS)
ROWS["Conv"] = Row(cd.Conv, {"channels": (8,), "kernel": 3, "stride": 1})
ROWS["Network"] = Row(
    cd.Network,
    {"hidden": (8,), "core": cd.GRU(8), "activation": "relu", "shared": True, "layer_norm": False},
)
OUT = {"out": ("out", "cannot be locked")}
TRAINING = {
    "env": "cartpole", "algorithm": ppo(), "policies": None, "cuda_graph": None, "seed": 0,
    "resume": False, "overwrite": False,
    "checkpoint_minutes": 5.0, "keep": 3, "backend": "auto", "gravity": 9.8, **SMALL,
}  # fmt: skip
PLOT = {"keys": "losses/entropy", "levels": {"before": {"losses/entropy": 0.5}}}
KEYS = {"keys": ("keys", "metric")}
OBS = {"obs": ("obs", "observation")}
ROWS |= {
    "best_num_envs": Row(fastest, {"env": "cartpole", "device": "cpu", "gravity": 9.8}),
    "train": Row(cd.train, lambda it: {**TRAINING, "out": folder() / "run", "callback": lambda *_: None}, words=OUT),
    "check_policy": Row(
        lambda **given: cd.check_policy(**given).to_dict(),
        {"env": "cartpole", "algorithm": ppo(), "num_envs": 4, "seed": 0, "device": "cpu", "backend": "torch", "gravity": 9.8},
    ),
    "check_policy of policies": Row(
        lambda **given: cd.check_policy("tag_grid", num_envs=4, device="cpu", **given, **PAIR).to_dict(),
        {"policies": {"tagger": ppo(), "runner": cd.RandomPolicy()}},
    ),
    "train of policies": Row(
        lambda **given: cd.train("tag_grid", **given, **SMALL, **PAIR),
        {"policies": {"tagger": ppo(), "runner": cd.RandomPolicy()}},
    ),
    "train of one policy": Row(pair, {"tagger": ppo()}),
    "train of a pool": Row(pair, {"runner": cd.OpponentPool(ppo(), size=2, every=1)}),
    "train into a folder": Row(
        trained,
        lambda it: {"out": folder() / "run", "resume": True, "overwrite": False, "keep": 1,
        "checkpoint_minutes": 0.0},
        words=OUT,
    ),
    "train of a run": Row(
        lambda run, **given: cd.train(run, **given, progress=False),
        lambda it: {"steps": 16, "device": "cpu", "out": folder() / "run"}, trained, words=OUT,
    ),
    "train of a population": Row(cd.train,
    {**TRAINING, "seeds": 2, "members": [{"gamma": 0.9}], "callback": lambda *_: None}),
    "OpponentPool": Row(cd.OpponentPool, {"settings": ppo(), "size": 2, "every": 1, "share": 0.5}),
    "Population.scores": Row("scores", {"key": "losses/entropy"}, population),
    "Population.best": Row("best", {"key": "losses/entropy"}, population),
    "Population.table": Row("table", {"key": "losses/entropy"}, population),
    "Population.evaluate": Row("evaluate",
    {"episodes": 4, "seed": 3, "greedy": True, "device": "cpu"}, population),
    "Population.plot": Row(plotted, PLOT, population, words=KEYS),
    "tournament": Row(
        cd.tournament,
        {
            "policies": {"a": cd.RandomPolicy()}, "env": "tag_grid", "key": "length", "episodes": 4,
            "seed": 3, "device": "cpu",
            "progress": False, **PAIR,
        },
    ),
    "interquartile_mean": Row(cd.interquartile_mean, {"values": [1.0, 2.0, 4.0], "seed": 1}),
    "Run": Row(cd.Run, {"config": resolve("cartpole", ppo(), num_envs=4, seed=1, device="cpu")}),
    "Run.act": Row(
        "act", {"obs": torch.zeros(3, 4), "greedy": True, "state": None, "mask": None, "generator": None}, trained, words=OBS),
    "Run.act of groups": Row(
        "act",
        lambda it: {
            "obs": {"tagger": torch.zeros(3, 4, it.batch.groups[0].obs_dim)}, "greedy": False,
            "generator": torch.Generator().manual_seed(3),
        },
        pair, words={"obs": ("obs", "group")},
    ),
    "Run.policy": Row("policy", {"group": "cart"}, trained),
    "Run.frozen": Row("frozen", {"group": "cart", "greedy": False}, trained),
    "Run.explain": Row("explain", {"progress": False}, failed),
    "Run.evaluate": Row(
        "evaluate",
        {"episodes": 4, "policies": {"runner": cd.RandomPolicy()}, "seed": 3, "greedy": True,
        "device": "cpu"},
        pair,
    ),
    "Run.render": Row("render", {"path": "a.gif", "episodes": 1, "seed": 1, "greedy": True, **SMALL_VIDEO}, pair),
    "Run.plot": Row(plotted, PLOT, trained, words=KEYS),
    "Run.save": Row(
        "save", lambda it: {"folder": folder() / "run", "keep": 3}, trained,
        words={"folder": ("folder", "cannot be written")},
    ),
    "Run.restore": Row("restore", lambda it: {"kept": it.snapshot()}, trained,
    words={"kept": ("kept", "checkpoint")}),
    "Run.load": Row(cd.Run.load, lambda it: {"folder": run_folder(), "device": "cpu"}),
    "load": Row(
        cd.load, lambda it: {"folder": run_folder(), "device": "cpu", "policies": {"cart": ppo()}, "env": "cartpole"},
    ),
    "FrozenPolicy": Row(
        lambda **given: cd.evaluate("cartpole", {"cart": cd.FrozenPolicy(**given)}, episodes=2,
        seed=1, device="cpu").returns,
        lambda it: {"path": run_folder(), "policy": "cart", "greedy": True},
        words={"path": ("path", "run folder")},
    ),
    "Recording.__getitem__": Row(
        "__getitem__", {"which": slice(0, 1)}, lambda: played(1).recording,
        takes={"which": ("0", "slice(0, 3)")},
        words={"which": ("which", "recording[")},
    ),
    "Recording.moments": Row(
        lambda it, device: list(it.moments(device)), {"device": "cpu"}, lambda: played(1).recording,
    ),
    "Recording.save": Row("save", {"path": "a.npz"}, lambda: played(1).recording),
    "Recording.load": Row(
        cd.Recording.load, lambda it: {"path": saved(played(1).recording, "a.npz"), "env": "tag_grid"},
    ),
    "Snapshot.save": Row("save", {"path": "a.npz"}, lambda: tag().snapshot()),
    "Snapshot.load": Row(cd.Snapshot.load, lambda it: {"path": saved(tag().snapshot(), "a.npz")}),
}  # fmt: skip
if find_spec("onnx") and find_spec("onnxscript"):
    ROWS["Run.export"] = Row("export", {"path": "a.onnx", "group": "cart"}, trained)
if find_spec("optuna"):
    ROWS["sweep"] = Row(
        lambda **given: len(cd.sweep(**given).trials),
        lambda it: {
            "env": "cartpole", "algorithm": ppo(), "trials": 1, "out": folder() / "sweep",
            "space": {"gamma": [0.5, 0.9]},
            "reward_threshold": 9.0, "key": "charts/episodic_return", "prune": True, "batch": 1, "seed": 1,
            **SMALL, "gravity": 9.8,
        },
    )  # fmt: skip
