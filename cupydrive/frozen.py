"""Policies as files know them: settings as JSON can hold them, and the policy of a run folder played as it is."""

from dataclasses import dataclass, fields

import torch

from cupydrive.algorithms import ALGORITHMS
from cupydrive.errors import TrainingError
from cupydrive.players import Heuristic, Random
from cupydrive.runfolder import read_checkpoint, read_config


@dataclass(frozen=True)
class Frozen:
    """The policy of a run folder's last checkpoint, kept as it is.

    Args:
        path: The run folder.
        policy: Name of its policy; None: the one that plays the same group there.
        greedy: The likeliest action instead of a random one.
    """

    path: str
    policy: str | None = None
    greedy: bool = False

    brief = "frozen"  # what frames call it

    def __post_init__(self):
        object.__setattr__(self, "path", str(self.path))

    def player(self, spec, group):
        """Return the player of one group.

        Raises:
            TrainingError: If there is no such run, or it belongs to another environment.
        """
        config = read_config(self.path)
        if config["env"] != spec.name:
            raise TrainingError(f"{self.path} belongs to environment {config['env']!r}, not {spec.name!r}")
        names = [
            n for n in config["policies"] if n == self.policy or (self.policy is None and group.name in n.split("+"))
        ]
        if not names:
            known = ", ".join(config["policies"])
            raise TrainingError(f"{self.path} has no policy {self.policy or group.name!r}; it has: {known}")
        settings = rebuild(names[0], config["policies"][names[0]], None)
        if not hasattr(settings, "learner"):
            return settings.player(spec, group)
        saved, start = read_checkpoint(self.path, spec.name)["tensors"], f"{names[0]}/"
        tensors = {key.removeprefix(start): value for key, value in saved.items() if key.startswith(start)}
        return FrozenPlayer(settings.learner(), tensors, self)


class FrozenPlayer:
    """Plays what a checkpoint holds."""

    def __init__(self, learner, tensors, settings):
        self.learner, self.tensors, self.settings, self.acting = learner, tensors, settings, None

    def begin(self, rollout, group):
        """Prepare to play ``group``: make the network and fill it."""
        if self.acting is None:
            self.learner.make(group, rollout)
            for name, tensor in self.learner.tensors().items():
                if name.startswith(("policy.", "obs_moments.")):
                    saved = self.tensors[name]
                    if saved.shape != tensor.shape:
                        raise TrainingError(
                            f"{self.settings.path}: its {name} is {tuple(saved.shape)}, here {tuple(tensor.shape)} is needed; "
                            "the environment's parameters differ"
                        )
                    with torch.no_grad():
                        tensor.copy_(saved)
            self.acting = self.learner.acting(self.settings.greedy)
        self.acting.begin(rollout, group)

    def act(self, rollout, t):
        """Write the actions of row t."""
        self.acting.act(rollout, t)

    def module(self, rollout, group):
        """Return the policy as a module from raw observations to actions."""
        return self.learner.module(rollout, group)


FIXED = {"heuristic": Heuristic, "random": Random, "frozen": Frozen}


def describe(settings):
    """Return a policy's settings as JSON can hold them."""
    values = {f.name: getattr(settings, f.name) for f in fields(settings)}
    if callable(values.get("policy")):
        values["policy"] = "custom"
    kind = getattr(settings, "name", type(settings).__name__.lower())
    return {"kind": kind, **values}


def rebuild(name, about, given):
    """Return settings from ``describe``'s dictionary."""
    if given and name in given:
        return given[name]
    about = dict(about)
    kind = about.pop("kind")
    if about.get("policy") == "custom":
        raise TrainingError(f"policy {name!r} is a module of your own; pass policies={{{name!r}: ...}} with it")
    makers = {**ALGORITHMS, **FIXED}
    if kind not in makers:
        raise TrainingError(f"policy {name!r} is of an unknown kind {kind!r}; the run may be from a newer version")
    tuples = {
        k: tuple(map(tuple, v)) if v and isinstance(v[0], list) else tuple(v)
        for k, v in about.items()
        if isinstance(v, list)
    }
    return makers[kind](**about | tuples)
