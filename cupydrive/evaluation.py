"""evaluate(): one whole episode from each of many fresh starts, the same starts for whoever plays."""

import math
from dataclasses import dataclass

import torch

from cupydrive import envs
from cupydrive.batch import Batch
from cupydrive.errors import ParameterError
from cupydrive.executors import choose, executor
from cupydrive.players import Heuristic
from cupydrive.rollout import Rollout
from cupydrive.spec import checked_int

CHUNK = 32  # steps of one rollout


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` found: one number per episode, in the order of the starts.

    Args:
        env: Name.
        players: Who played each group, in words.
        seed: Of the starts.
        returns: By group: (episodes,) mean over the group's agents of their episode return, float64.
        length: (episodes,) steps.
        metrics: By name: (episodes,).
    """

    env: str
    players: dict[str, str]
    seed: int
    returns: dict[str, torch.Tensor]
    length: torch.Tensor
    metrics: dict[str, torch.Tensor]

    def mean(self, name):
        """Return (mean, half of its 95 % confidence interval) of a group's return, ``"length"`` or a metric."""
        values = {**self.returns, "length": self.length, **self.metrics}[name].double()
        spread = values.std().item() if len(values) > 1 else math.nan
        return values.mean().item(), 1.96 * spread / math.sqrt(len(values))

    def summary(self):
        """Return (mean, half of its 95 % confidence interval) by name: returns by group, length, metrics."""
        names = {f"return {name}" if len(self.returns) > 1 else "return": name for name in self.returns}
        names |= {"length": "length", **{name: name for name in self.metrics}}
        return {shown: self.mean(name) for shown, name in names.items()}

    def __str__(self):
        who = ", ".join(f"{group}: {player}" for group, player in self.players.items())
        lines = [f"{self.env}, {len(self.length):,} episodes (seed {self.seed}), {who}"]
        lines += [f"  {name:<20} {mean:12.4g} +- {half:.2g}" for name, (mean, half) in self.summary().items()]
        return "\n".join(lines)

    __repr__ = __str__


def difference(one, other, name):
    """Return (mean, half of its 95 % confidence interval) of ``one`` minus ``other``, episodes paired by their start.

    Args:
        one: ``Evaluation``.
        other: ``Evaluation`` of as many episodes with the same seed.
        name: A group, ``"length"`` or a metric.

    Raises:
        ParameterError: If the two do not have the same starts.
    """
    if one.seed != other.seed or len(one.length) != len(other.length) or one.env != other.env:
        raise ParameterError(
            "the two evaluations have different starts; evaluate both with one seed and number of episodes"
        )
    a, b = ({**e.returns, "length": e.length, **e.metrics}[name].double() for e in (one, other))
    return (a - b).mean().item(), 1.96 * (a - b).std().item() / math.sqrt(len(a))


def evaluate(env, players=None, *, episodes=1000, seed=10_000, greedy=True, device="auto", **params):
    """Play one episode from each of ``episodes`` fresh starts and return an ``Evaluation``.

    Args:
        env: Name, path of a Python file, ``EnvSpec``; or a ``Run``, whose own policies play then.
        players: By group: ``Heuristic()``, ``Random()`` or ``Frozen(...)``; groups that are left out play as the run does,
            or by the heuristic.
        episodes: Number of starts.
        seed: Of starts and actions.
        greedy: A run's policies take the likeliest action.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``; a run's own device.
        **params: Parameters of the environment.
    """
    episodes = checked_int("evaluate", "episodes", episodes)
    seed = checked_int("evaluate", "seed", seed, 0, 2**64 - 1)
    run = env if hasattr(env, "learners") else None
    if run is None:
        spec = envs.get(env)
        made, where = spec.make_params(**params), choose(device)[0]
    else:
        if params:
            raise ParameterError("a run brings its own parameters; leave them out")
        spec, made, where = run.spec, run.params, run.device
    batch = Batch(spec, episodes, made, executor(where))
    batch.reset(seed)
    given, names, playing = players or {}, {}, {}
    for g in batch.groups:
        settings = given.get(g.name)
        if settings is None and run is not None:
            settings = run.frozen(g.name, greedy)
        settings = settings or Heuristic()
        playing[g.name], names[g.name] = settings.player(spec, g), str(settings)
    for name in given:
        if name not in names:
            raise ParameterError(f"{spec.name} has no group {name!r}; it has: {', '.join(names)}")
    rollout = Rollout(batch, playing, min(CHUNK, made.max_episode_steps), final_obs=False)
    return Evaluation(spec.name, names, seed, **first_episodes(rollout, made.max_episode_steps))


def first_episodes(rollout, most):
    """Return ``returns``, ``length`` and ``metrics`` of each environment's first episode, at most ``most`` steps long."""
    found = {("length", ""): rollout.episode_length}
    found |= {("returns", name): array for name, array in rollout.episode_return.items()}
    found |= {("metrics", name): array for name, array in rollout.metrics.items()}
    kept = {key: torch.zeros(array.shape[1], dtype=torch.float64, device=array.device) for key, array in found.items()}
    ended = torch.zeros(rollout.batch.num_envs, dtype=torch.int64, device=rollout.device)
    for _ in range(-(-most // rollout.steps)):
        rollout.collect()
        over = rollout.terminated | rollout.truncated
        first = over & (over.cumsum(0) + ended == 1)
        for key, array in found.items():
            values = array.double().mean(-1) if array.dim() == 3 else array.double()
            kept[key] += values.where(first, 0.0).sum(0)
        ended += over.sum(0)
        if bool((ended > 0).all()):
            break
    results = {"returns": {}, "metrics": {}}
    for (kind, name), values in kept.items():
        if kind == "length":
            results["length"] = values.cpu()
        else:
            results[kind][name] = values.cpu()
    return results
