"""evaluate(): one whole episode from each of many fresh starts, the same starts for whoever plays."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from cupydrive import envs
from cupydrive.errors import (
    DeviceError,
    MemoryLimitError,
    ParameterError,
    SpecError,
)
from cupydrive.executors import checked_device, choose, executor
from cupydrive.executors.modes import ordinary_modes
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_choice,
    checked_instance,
    checked_int,
)
from cupydrive.playing.players import Heuristic, players_by_group
from cupydrive.playing.recording import Recording, action_dtype
from cupydrive.playing.rollout import Rollout
from cupydrive.playing.threads import acting_threads
from cupydrive.protocols import Policies
from cupydrive.simulation.batch import Batch

CHUNK = 32  # steps of one rollout
RECORD_BYTES = 64 * 2**20  # of the actions that an evaluation keeps


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
        recording: ``Recording`` of the first episodes, as many as its actions fit into 64 MiB.
        yardsticks: What the environment holds these numbers against, such as the exact optimum: by its name, numbers by the
            names of ``summary``.
    """

    env: str
    players: dict[str, str]
    seed: int
    returns: dict[str, torch.Tensor]
    length: torch.Tensor
    metrics: dict[str, torch.Tensor]
    recording: Recording | None = None
    yardsticks: dict[str, dict[str, float]] = field(default_factory=dict)

    def mean(self, name):
        """Return (mean, half of its 95 % confidence interval) of a group's return, ``"length"`` or a metric.

        ``"return"``, as it is printed, is that of the only group.
        """
        values = self.numbers(name).double()
        spread = values.std().item() if len(values) > 1 else math.nan
        return values.mean().item(), 1.96 * spread / math.sqrt(len(values))

    def numbers(self, name):
        """Return (episodes,) of a group's return, ``"length"`` or a metric; raise ``ParameterError`` if it has no such name."""
        known = {**self.returns, "length": self.length, **self.metrics}
        if len(self.returns) == 1:
            known = {"return": next(iter(self.returns.values())), **known}
        elif isinstance(name, str) and name == "return" and name not in known:
            groups = " or ".join(map(repr, self.returns))
            raise ParameterError(f"{self.env}: name = 'return', and each of several groups has one; pass {groups}")
        return known[checked_choice(self.env, "name", name, known)]

    def summary(self):
        """Return (mean, half of its 95 % confidence interval) by name: returns by group, length, metrics."""
        names = {f"return {name}" if len(self.returns) > 1 else "return": name for name in self.returns}
        names |= {"length": "length", **{name: name for name in self.metrics}}
        return {shown: self.mean(name) for shown, name in names.items()}

    def __str__(self):
        who = ", ".join(f"{group}: {player}" for group, player in self.players.items())
        lines = [f"{self.env}, {len(self.length):,} episodes (seed {self.seed}), {who}"]
        for name, (mean, half) in self.summary().items():
            beside = [f"{of} {numbers[name]:.6g}" for of, numbers in self.yardsticks.items() if name in numbers]
            digits = 6 if beside else 4
            lines.append(f"  {name:<20} {mean:12.{digits}g} +- {half:.2g}" + "".join(f"   {text}" for text in beside))
        return "\n".join(lines)

    __repr__ = __str__


class Difference(tuple):
    """What ``difference`` found: ``mean, half = ...``, and a sentence when printed.

    Attributes:
        mean: Mean difference of the pairs.
        half: Half of its 95 % confidence interval; NaN for a single pair.
    """

    def __new__(cls, mean, half, words, pairs):
        """Return the pair (mean, half) with what the sentence needs: of what, between whom, and how many pairs."""
        found = super().__new__(cls, (mean, half))
        found.mean, found.half, found._words, found._pairs = mean, half, words, pairs
        return found

    def __float__(self):
        return self.mean

    @property
    def verdict(self):
        """``"greater"``, ``"less"``, or ``"no difference shown"`` if the interval holds 0 or nothing is known of it."""
        if abs(self.mean) > self.half:
            return "greater" if self.mean > 0 else "less"
        return "no difference shown"

    def __str__(self):
        low, high = self.mean - self.half, self.mean + self.half
        pairs = f"{self._pairs:,} episode{'s' * (self._pairs > 1)} paired by their start"
        return (
            f"{self._words}: {self.mean:+.4g} +- {self.half:.2g} (95 % interval {low:+.4g} to {high:+.4g}, {pairs}): "
            f"{self.verdict}"
        )

    __repr__ = __str__


def difference(one, other, name):
    """Return the ``Difference`` of ``one`` minus ``other``, episodes paired by their start: ``mean, half``, or a sentence.

    Args:
        one: ``Evaluation``.
        other: ``Evaluation`` of as many episodes with the same seed.
        name: A group, ``"length"`` or a metric; ``"return"`` is that of the only group.

    Raises:
        ParameterError: If the two do not have the same starts, or no number of that name.
    """
    checked_instance("difference", "one", one, Evaluation, "an Evaluation, as evaluate() returns it")
    checked_instance("difference", "other", other, Evaluation, "an Evaluation, as evaluate() returns it")
    a, b = one.numbers(name).double(), other.numbers(name).double()
    if one.seed != other.seed or len(one.length) != len(other.length) or one.env != other.env:
        raise ParameterError(
            "the two evaluations have different starts; evaluate both with one seed and number of episodes"
        )
    spread = (a - b).std().item() if len(a) > 1 else math.nan
    what = f"return of {name!r}" if name in one.returns else name
    changed = [group for group in one.players if one.players[group] != other.players.get(group)]
    first, second = (", ".join(e.players[group] for group in changed) for e in (one, other))
    between = f"{first} minus {second}" if changed else "the first minus the second"
    return Difference((a - b).mean().item(), 1.96 * spread / math.sqrt(len(a)), f"{what}, {between}", len(a))


def evaluate(env, players=None, *, episodes=1000, seed=10_000, greedy=True, device="auto", **params):
    """Play one episode from each of ``episodes`` fresh starts and return an ``Evaluation``.

    Args:
        env: Name, path of a Python file, ``EnvSpec``, ``VectorEnv`` (another copy of it is played); or a ``Run``, whose own
            policies play then.
        players: By group: ``Heuristic()``, ``Random()`` or ``Frozen(...)``; groups that are left out play as the run does,
            or by the heuristic. ``"random"`` or ``"heuristic"``: all groups.
        episodes: Number of starts.
        seed: Of starts and actions.
        greedy: A run's policies take the likeliest action.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``; of a run its own one.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If an argument is wrong, or nobody is there to play a group.
        DeviceError: If the device cannot be used, or a run is on another.
        MemoryLimitError: If so many episodes do not fit into memory.
    """
    episodes = checked_int("evaluate", "episodes", episodes)
    seed = checked_int("evaluate", "seed", seed, 0, 2**64 - 1)
    greedy = checked_bool("evaluate", "greedy", greedy)
    device = checked_device(device, "evaluate")
    env, device, params = made_like(env, device, params)
    run = env if isinstance(env, Policies) else None
    if run is None:
        spec = envs.get(env)
        spec.require_known(params, evaluate)
        made, where = spec.make_params(**params), choose(device)[0]
    else:
        env.spec.require_known(params, evaluate)
        if params:
            raise ParameterError(f"evaluate: a run brings its own parameters; leave out {', '.join(params)}")
        spec, made, where = run.spec, run.params, run.device
        if device not in ("auto", where):
            raise DeviceError(
                f"evaluate: device = {device!r}, but the run is on {where!r}; leave device out, or load the run's folder on "
                f"the other: cupydrive.load(folder, device={device!r})"
            )
    groups = spec.groups(made)
    given = {} if players is None else players_by_group("evaluate", groups, players)
    names, brief, playing = {}, {}, {}
    for g in groups:
        settings = given.get(g.name)
        if settings is None and run is not None:
            settings = run.frozen(g.name, greedy)
        if settings is None and spec.heuristic is None:
            raise ParameterError(
                f"evaluate: {spec.name} has no heuristic, so say who plays {g.name!r}: players='random' (--players random), "
                "settings by group, or a run instead of an environment"
            )
        settings = Heuristic() if settings is None else settings
        playing[g.name], names[g.name] = settings.player(spec, g), str(settings)
        brief[g.name] = getattr(settings, "brief", names[g.name])
    try:
        batch = Batch(spec, episodes, made, executor(where))
        batch.reset(seed)
        rollout = Rollout(batch, playing, min(CHUNK, made.max_episode_steps), final_obs=False)
    except MemoryLimitError as error:
        raise MemoryLimitError(f"evaluate: episodes = {episodes:,} do not fit into memory: {error}") from None
    recorder = Recorder(rollout)
    with ordinary_modes(where, tf32=False), acting_threads(rollout):
        found = first_episodes(rollout, recorder)
    recording = recorder.recording(seed, brief, found["length"])
    yardsticks = {} if spec.yardsticks is None else spec.yardsticks(made)
    evaluation = Evaluation(spec.name, names, seed, **found, recording=recording, yardsticks=yardsticks)
    for of, numbers in yardsticks.items():
        for name in numbers:
            checked_choice(spec.name, f"yardsticks[{of!r}]", name, tuple(evaluation.summary()), SpecError)
    return evaluation


def made_like(env: Any, device: str, params: dict[str, Any]) -> tuple[Any, str, dict[str, Any]]:
    """Return arguments that make an environment like ``env`` if it is a ``VectorEnv``, and otherwise the arguments."""
    if hasattr(env, "batch") and not isinstance(env, Policies):
        return env.spec, env.device, {**asdict(env.params), **params}
    return env, device, params


class Recorder:
    """Keeps the actions of the first environments of a rollout, on the host."""

    def __init__(self, rollout):
        self.rollout, batch = rollout, rollout.batch
        self.origin = envs.origin(batch.spec)
        self.dtypes = {g.name: action_dtype(g) for g in batch.groups}
        each = batch.params.max_episode_steps * sum(
            g.count * g.heads * self.dtypes[g.name].itemsize for g in batch.groups
        )
        self.envs = min(batch.num_envs, RECORD_BYTES // each)
        self.parts = {name: [] for name in self.dtypes}

    def keep(self):
        """Keep the actions of the rollout just collected."""
        for name, parts in self.parts.items():
            parts.append(self.rollout.action[name][:, : self.envs].cpu().numpy().astype(self.dtypes[name]))

    def recording(self, seed, players, length):
        """Return the ``Recording``, or None if not even one episode fits."""
        if not self.envs:
            return None
        batch, length = self.rollout.batch, length[: self.envs].numpy().astype(np.int32)
        most = int(length.max())
        action = {name: np.concatenate(parts)[:most] for name, parts in self.parts.items()}
        over = np.arange(most)[:, None] >= length
        for array in action.values():
            array[over] = 0
        about = {"origin": self.origin, **batch.spec.about_tables(batch.params)}
        return Recording(batch.spec, batch.params, seed, players, length, action, **about)


def first_episodes(rollout, recorder):
    """Return ``returns``, ``length`` and ``metrics`` of each environment's first episode, and record it."""
    most = rollout.batch.params.max_episode_steps
    found = {("length", ""): rollout.episode_length}
    found |= {("returns", name): array for name, array in rollout.episode_return.items()}
    found |= {("metrics", name): array for name, array in rollout.metrics.items()}
    kept = {key: torch.zeros(array.shape[1], dtype=torch.float64, device=array.device) for key, array in found.items()}
    ended = torch.zeros(rollout.batch.num_envs, dtype=torch.int64, device=rollout.device)
    for _ in range(-(-most // rollout.steps)):
        rollout.collect()
        recorder.keep()
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
