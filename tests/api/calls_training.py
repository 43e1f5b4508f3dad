"""Correct calls of training, of runs, of settings and of files, for `test_arguments.py`; see `calls.py`.

They are as small as they can be: four environments, four steps, networks of four neurons.
"""

import tempfile
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import torch
from calls import Row, played, tag

import cupydrive as cd
from cupydrive.training.algorithms import ALGORITHMS
from cupydrive.training.config import resolve
from cupydrive.training.explain import Failure

# Right numbers of env-steps that take for ever; None is as many as the environment suggests.
LONG = ("2**31-1", "2**31", "None", "np.uint64")
PAIR = {"grid_length": 5, "max_episode_steps": 4}


def ppo():
    """Return the settings of a small network that learns from four steps."""
    return cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)


def population():
    return cd.train("cartpole", ppo(), seeds=2, steps=16, num_envs=4, device="cpu", progress=False)


def trained(**options):
    """Return a run of CartPole after one iteration."""
    return cd.train("cartpole", ppo(), steps=16, num_envs=4, device="cpu", progress=False, **options)


def failed():
    """Return a run that met a NaN, not explained yet."""
    run = cd.train("cartpole", cd.PPO(num_steps=4, hidden=(8,)), num_envs=4, steps=1, device="cpu", progress=False)
    run.failed = Failure(run.step, run.seconds, "made up")
    return run


def trained_pair():
    """Return a run of Tag whose taggers learn and whose runners play at random."""
    policies = {"tagger": ppo(), "runner": cd.Heuristic()}
    return cd.train("tag_grid", policies=policies, steps=16, num_envs=4, device="cpu", progress=False, **PAIR)


def now(run):
    """Return everything that a run's future depends on."""
    return run.step, run.snapshot()


def going_on(run, result=None):
    """Return what a run is now, and after one more iteration."""
    before = now(run)
    return before, now(cd.train(run, steps=16, progress=False))


def folder():
    """Return an empty folder."""
    return Path(tempfile.mkdtemp())


def run_folder():
    """Return the folder of a run."""
    path = folder() / "run"
    trained().save(path)
    return path


def settings(name):
    """Return the row of an algorithm's settings: every one of them is given."""
    kind = getattr(cd, name)
    return Row(
        lambda it, **given: kind(**given),
        lambda it: {f.name: getattr(kind(), f.name) for f in fields(kind)},
        after=lambda it, made: (repr(made), [getattr(made, f.name) for f in fields(kind)]),
    )


def fastest(**given):
    """Return what ``best_num_envs`` finds when it tries one number of copies, once."""
    with patch.multiple("cupydrive.training.num_envs", SIZES=(64,), ITERATIONS=1):
        return cd.best_num_envs(**given)


ROWS = {name: settings(name) for name in ("PPO", "A2C", "DDPG", "OnPolicy")}
assert len(ROWS) == len(ALGORITHMS) + 1
TRAINING = {
    "env": "cartpole", "algorithm": None, "policies": None, "steps": 16, "num_envs": 4, "seed": 0, "device": "cpu",
    "out": None, "resume": False, "overwrite": False, "progress": False, "capture": None, "callback": None,
    "checkpoint_minutes": 5.0, "keep": 3, "learner": "auto", "gravity": 9.8,
}  # fmt: skip
ROWS |= {
    "best_num_envs": Row(
        lambda it, **given: fastest(**given),
        lambda it: {"env": "cartpole", "device": "cpu", "remember": False, "progress": str, "gravity": 9.8},
        right={"progress": ("class",)}, slow=True,
    ),
    "train": Row(
        lambda it, **given: cd.train(**given), lambda it: {**TRAINING, "algorithm": ppo()},
        after=lambda it, run: now(run), slow=True, words={"out": ("out", "cannot be locked")},
        right={"steps": LONG, "callback": ("class",)},  # a user's own function may raise what it likes
    ),
    "train of policies": Row(
        lambda it, **given: cd.train("tag_grid", **given, steps=16, num_envs=4, device="cpu", progress=False, **PAIR),
        lambda it: {"policies": {"tagger": ppo(), "runner": cd.Random()}},
        after=lambda it, run: now(run), slow=True,
    ),
    "Pool": Row(
        lambda it, **given: cd.Pool(**given), lambda it: {"settings": ppo(), "size": 2, "every": 1, "share": 0.5},
        after=lambda it, pool: repr(pool),
    ),
    "train of a pool": Row(
        lambda it, runner: cd.train(
            "tag_grid", policies={"tagger": ppo(), "runner": runner}, steps=16, num_envs=4, device="cpu", progress=False,
            **PAIR
        ),
        lambda it: {"runner": cd.Pool(ppo(), size=2, every=1)}, after=lambda it, run: now(run),
    ),
    "train of one policy": Row(
        lambda it, tagger: cd.train(
            "tag_grid", policies={"tagger": tagger, "runner": cd.Random()}, steps=16, num_envs=4, device="cpu",
            progress=False, **PAIR
        ),
        lambda it: {"tagger": ppo()}, after=lambda it, run: now(run),
    ),
    "train into a folder": Row(
        lambda it, **given: trained(**given),
        lambda it: {"out": it / "run", "resume": True, "overwrite": False, "keep": 1, "checkpoint_minutes": 0.0},
        folder, lambda it, run: now(run), slow=True, words={"out": ("out", "cannot be locked")},
    ),
    "train of a run": Row(
        lambda it, **given: cd.train(it, **given, progress=False), lambda it: {"steps": 16, "device": "cpu", "out": None},
        trained, going_on, right={"steps": LONG}, slow=True, words={"out": ("out", "cannot be locked")},
    ),
    "train of a population": Row(
        lambda it, **given: cd.train(**given), lambda it: {**TRAINING, "seeds": 2, "members": [{"gamma": 0.9}]},
        after=lambda it, population: now(population.runs[-1]), slow=True, words={"out": ("out", "cannot be locked")},
        right={"steps": LONG, "callback": ("class",)}, takes={"seeds": ("None",), "members": ("None",)},
    ),
    "Population.scores": Row(
        lambda it, **given: it.scores(**given), lambda it: {"key": "losses/entropy"}, population,
    ),
    "Population.best": Row(
        lambda it, **given: now(it.best(**given)), lambda it: {"key": "losses/entropy"}, population,
    ),
    "Population.table": Row(
        lambda it, **given: it.table(**given), lambda it: {"key": "losses/entropy"}, population,
        lambda it, words: len(words),
    ),
    "Population.evaluate": Row(
        lambda it, **given: it.evaluate(**given), lambda it: {"episodes": 4, "seed": 3, "greedy": True, "device": "cpu"},
        population,
    ),
    "Population.plot": Row(
        lambda it, keys, levels: it.plot(keys, levels=levels),
        lambda it: {"keys": "losses/entropy", "levels": {"before": {"losses/entropy": 0.5}}},
        population, lambda it, figure: figure.png()[:8], words={"keys": ("keys", "metric")},
    ),
    "tournament": Row(
        lambda it, **given: cd.tournament(**given),
        lambda it: {
            "players": {"a": cd.Random()}, "env": "tag_grid", "key": "length", "episodes": 4, "seed": 3, "device": "cpu",
            "progress": False, **PAIR,
        },
        after=lambda it, found: found.mean, slow=True,
    ),
    "interquartile_mean": Row(
        lambda it, **given: cd.interquartile_mean(**given), lambda it: {"values": [1.0, 2.0, 4.0], "seed": 1},
    ),
    "Run": Row(
        lambda it, **given: cd.Run(**given),
        lambda it: {"config": resolve("cartpole", ppo(), num_envs=4, seed=1, device="cpu")},
        after=lambda it, run: now(run),
    ),
    "Run.act": Row(
        lambda it, **given: it.act(**given),
        lambda it: {"obs": torch.zeros(3, 4), "state": None, "greedy": True, "mask": None, "generator": None},
        trained, lambda run, action: (action, going_on(run)), words={"obs": ("obs", "observation")},
    ),
    "Run.act of groups": Row(
        lambda it, **given: it.act(**given),
        lambda it: {
            "obs": {g.name: torch.zeros(3, g.obs_dim) for g in it.batch.groups}, "state": None, "mask": None, "greedy": False,
            "generator": torch.Generator().manual_seed(3),
        },
        trained_pair, lambda run, action: going_on(run), words={"obs": ("obs", "observation")},
    ),
    "Run.policy": Row(
        lambda it, **given: it.policy(**given), lambda it: {"group": "cart"}, trained,
        lambda run, policy: (policy(torch.zeros(2, 4)), now(run)),
    ),
    "Run.frozen": Row(
        lambda it, **given: it.frozen(**given), lambda it: {"group": "cart", "greedy": False}, trained,
        lambda run, player: (str(player), now(run)),
    ),
    "Run.explain": Row(
        lambda it, **given: it.explain(**given), lambda it: {"progress": False}, failed, lambda run, found: str(found),
    ),
    "Run.evaluate": Row(
        lambda it, **given: it.evaluate(**given),
        lambda it: {"episodes": 4, "players": {"runner": cd.Random()}, "seed": 3, "greedy": True, "device": "cpu"},
        trained_pair, lambda run, played: (played, now(run)),
    ),
    "Run.render": Row(
        lambda it, **given: it.render(**given),
        lambda it: {
            "path": None, "players": None, "episodes": 1, "seed": 1, "greedy": True, "size": (64, 48), "fps": 30,
            "hold": 0.0, "title": "x", "progress": False,
        },
        trained_pair, lambda run, video: (list(video.frames()), now(run)),
    ),
    "Run.plot": Row(
        lambda it, keys, levels: it.plot(keys, levels=levels),
        lambda it: {"keys": "losses/entropy", "levels": {"before": {"losses/entropy": 0.5}}},
        trained, lambda run, figure: (now(run), figure.png()[:8]), words={"keys": ("keys", "metric")},
    ),
    "Run.save": Row(
        lambda it, **given: it.save(**given), lambda it: {"folder": folder() / "run", "keep": 3}, trained,
        lambda run, nothing: now(run), words={"folder": ("folder", "cannot be written")},
    ),
    "Run.restore": Row(
        lambda it, kept: it.restore(kept), lambda it: {"kept": it.snapshot()}, trained, going_on,
        words={"kept": ("kept", "checkpoint")},
    ),
    "Run.load": Row(
        lambda it, **given: cd.Run.load(**given),
        lambda it: {"folder": it, "device": "cpu", "policies": None, "env": None}, run_folder, lambda it, run: now(run),
    ),
    "load": Row(
        lambda it, **given: cd.load(**given),
        lambda it: {"folder": it, "device": "cpu", "policies": {"cart": ppo()}, "env": "cartpole"}, run_folder,
        lambda it, run: now(run), slow=True,
    ),
    "Frozen": Row(
        lambda it, **given: playing(cd.Frozen(**given)),
        lambda it: {"path": it, "policy": "cart", "greedy": True, "env": "cartpole"}, run_folder,
        words={"path": ("path", "run folder")},
    ),
    "Recording.__getitem__": Row(
        lambda it, which: it[which], lambda it: {"which": slice(0, 1)}, lambda: played(1).recording,
        lambda it, part: (list(part.moments()), list(it.moments())), takes={"which": ("slice",)},
        words={"which": ("which", "recording[")},
    ),
    "Recording.moments": Row(
        lambda it, **given: list(it.moments(**given)), lambda it: {"device": "cpu"}, lambda: played(1).recording,
    ),
    "Recording.save": Row(
        lambda it, **given: it.save(**given), lambda it: {"path": "a.npz"}, lambda: played(1).recording,
        lambda it, nothing: list(it.moments()),
    ),
    "Recording.load": Row(
        lambda it, **given: cd.Recording.load(**given), lambda it: {"path": it, "env": "tag_grid"}, lambda: recorded(),
        lambda it, recording: list(recording.moments()),
    ),
    "Snapshot.save": Row(
        lambda it, **given: it.save(**given), lambda it: {"path": "a.npz"}, lambda: tag().snapshot(), lambda it, nothing: it,
    ),
    "Snapshot.load": Row(lambda it, **given: cd.Snapshot.load(**given), lambda it: {"path": it}, lambda: kept()),
}  # fmt: skip
if find_spec("onnx") and find_spec("onnxscript"):
    ROWS["Run.export"] = Row(
        lambda it, **given: it.export(**given), lambda it: {"path": "a.onnx", "group": "cart"}, trained,
        lambda run, path: now(run), slow=True,
    )  # fmt: skip


def playing(player):
    """Return what a policy kept as it is plays."""
    return cd.evaluate("cartpole", {"cart": player}, episodes=2, seed=1, device="cpu", max_episode_steps=5).returns


def recorded():
    """Return the file of a recording."""
    path = folder() / "a.npz"
    played(1).recording.save(path)
    return path


def kept():
    """Return the file of a snapshot."""
    path = folder() / "a.npz"
    tag().snapshot().save(path)
    return path


if find_spec("optuna"):
    ROWS["sweep"] = Row(
        lambda it, **given: cd.sweep(**given),
        lambda it: {
            "env": "cartpole", "algorithm": ppo(), "trials": 1, "out": folder() / "sweep", "space": {"gamma": [0.5, 0.9]},
            "mark": 9.0, "key": "charts/episodic_return", "prune": True, "batch": 1, "steps": 16, "num_envs": 4, "seed": 1,
            "device": "cpu", "progress": False, "gravity": 9.8,
        },
        after=lambda it, found: len(found.trials), slow=True, right={"trials": LONG, "steps": LONG}, words={"out": ("out",)},
    )  # fmt: skip
