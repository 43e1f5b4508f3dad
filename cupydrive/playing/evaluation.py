"""evaluate(): play one episode from each of many initial states, equal for all policies."""

import math
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from cupydrive.errors import MemoryLimitError, ParameterError, SpecError
from cupydrive.executors import executor
from cupydrive.executors.interop import zeros
from cupydrive.executors.modes import ordinary_modes
from cupydrive.inputs.arguments import checked_choice, checked_instance, errors_as
from cupydrive.playing.config import EvalConfig, PoliciesByGroup, resolve_eval
from cupydrive.playing.recording import Recording, action_dtype, record
from cupydrive.playing.rollout import Rollout
from cupydrive.playing.torch_settings import acting_threads
from cupydrive.protocols import ParamValue, Policies
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec

if TYPE_CHECKING:
    from cupydrive.simulation.vector import VectorEnv

CHUNK = 32  # steps of one rollout
RECORD_BYTES = 64 * 2**20  # limit for the actions that an evaluation records


@dataclass(frozen=True)
class Evaluation:
    """Result of ``evaluate``: one number per episode, in the order of the initial states.

    Args:
        env: Name of the environment.
        players: Description of each group's player, by group.
        seed: Random seed of the initial states.
        returns: Episode returns by group, (episodes,) float64, means over the group's agents.
        length: Numbers of steps, (episodes,) float64.
        metrics: Metrics of the environment by name, (episodes,) float64.
        recording: ``Recording`` of the first episodes, as many as fit into 64 MiB of actions.
        yardsticks: Reference values of the environment by name, such as the exact optimum. Each is
            a dictionary of numbers by the names of ``summary``.
    """

    env: str
    players: dict[str, str]
    seed: int
    returns: dict[str, torch.Tensor]
    length: torch.Tensor
    metrics: dict[str, torch.Tensor]
    recording: Recording | None = None
    yardsticks: dict[str, dict[str, float]] = field(default_factory=dict)

    def mean(self, name: str) -> tuple[float, float]:
        """Return the mean of a group's return, ``"length"`` or a metric, with its uncertainty.

        Args:
            name: A group, ``"length"`` or a metric. If there is only one group, ``"return"`` is its
                return.

        Returns:
            (mean, half of its 95 % confidence interval).
        """
        return mean_and_half(self.numbers(name).double())

    def numbers(self, name: str) -> torch.Tensor:
        """Return (episodes,) numbers: a group's return, ``"length"`` or a metric.

        Raises:
            ParameterError: If the name is unknown.
        """
        known = {**self.returns, "length": self.length, **self.metrics}
        if len(self.returns) == 1:
            known = {"return": next(iter(self.returns.values())), **known}
        return known[checked_choice(self.env, "name", name, known)]

    def summary(self) -> dict[str, tuple[float, float]]:
        """Return (mean, half of its 95 % confidence interval) by name.

        The names are those of the returns by group, ``"length"`` and the metrics.
        """
        names = {
            f"return {name}" if len(self.returns) > 1 else "return": name for name in self.returns
        }
        names |= {"length": "length", **{name: name for name in self.metrics}}
        return {shown: self.mean(name) for shown, name in names.items()}

    def __str__(self) -> str:
        who = ", ".join(f"{group}: {player}" for group, player in self.players.items())
        lines = [f"{self.env}, {len(self.length):,} episodes (seed {self.seed}), {who}"]
        for name, (mean, half) in self.summary().items():
            beside = [
                f"{of} {numbers[name]:.6g}"
                for of, numbers in self.yardsticks.items()
                if name in numbers
            ]
            digits = 6 if beside else 4
            lines.append(
                f"  {name:<20} {mean:12.{digits}g} +- {half:.2g}"
                + "".join(f"   {text}" for text in beside)
            )
        return "\n".join(lines)

    __repr__ = __str__


def mean_and_half(values: torch.Tensor) -> tuple[float, float]:
    """Return the mean of numbers and half of its 95 % confidence interval.

    The latter is NaN for a single number.
    """
    spread = values.std().item() if len(values) > 1 else math.nan
    return values.mean().item(), 1.96 * spread / math.sqrt(len(values))


class Difference(NamedTuple):
    """Result of ``difference``.

    Attributes:
        mean: Mean difference of the pairs.
        half: Half of its 95 % confidence interval, NaN for a single pair.
    """

    mean: float
    half: float

    def __str__(self) -> str:
        low, high = self.mean - self.half, self.mean + self.half
        return f"{self.mean:+.4g} +- {self.half:.2g} (95 % interval {low:+.4g} to {high:+.4g})"

    def __repr__(self) -> str:
        return str(self)


def difference(one: Evaluation, other: Evaluation, name: str) -> Difference:
    """Return the ``Difference`` of ``one`` minus ``other``, paired by initial state.

    Args:
        one: ``Evaluation`` from which ``other`` is subtracted.
        other: ``Evaluation`` of the same number of episodes with the same seed. Its parameters may
            differ, but should leave the initial states as they are. Otherwise the episodes are
            independent rather than paired.
        name: A group, ``"length"`` or a metric. If there is only one group, ``"return"`` is its
            return.

    Returns:
        ``Difference``: the mean, and half of its 95 % confidence interval.

    Raises:
        ParameterError: If environment, seed or number of episodes differ, or the name is unknown.

    Examples:
        >>> import cupydrive as cd
        >>> scripted = cd.evaluate("mountain_car", "heuristic", episodes=100, device="cpu")
        >>> random = cd.evaluate("mountain_car", "random", episodes=100, device="cpu")
        >>> cd.difference(scripted, random, "return").mean > 0.0
        True
    """
    for argument, given in (("one", one), ("other", other)):
        words = "an Evaluation, as evaluate() returns it"
        checked_instance("difference", argument, given, Evaluation, words)
    a, b = one.numbers(name).double(), other.numbers(name).double()
    if one.seed != other.seed or len(one.length) != len(other.length) or one.env != other.env:
        raise ParameterError(
            f"difference: got {one.env} (seed {one.seed}, {len(one.length):,} episodes) and "
            f"{other.env} (seed {other.seed}, {len(other.length):,} episodes). Evaluate both with "
            f"the same environment, seed and number of episodes"
        )
    return Difference(*mean_and_half(a - b))


def evaluate(
    env: "str | PathLike[str] | EnvSpec | VectorEnv | Policies",
    policies: PoliciesByGroup = None,
    *,
    episodes: int = 1000,
    seed: int = 10_000,
    greedy: bool = True,
    device: str = "auto",
    **params: ParamValue,
) -> Evaluation:
    """Play one episode from each of ``episodes`` initial states and return an ``Evaluation``.

    Args:
        env: Name of an environment, path of its Python file, ``EnvSpec``, a ``VectorEnv``, from
            which a new one with equal parameters is made, or a ``Run``, whose own policies play by
            default.
        policies: ``HeuristicPolicy()``, ``RandomPolicy()`` or ``FrozenPolicy(...)`` by group.
            Groups joined by ``+`` share a policy. Other groups use the policies of the run, or the
            heuristic. ``"random"`` and ``"heuristic"`` apply to all groups.
        episodes: Number of initial states.
        seed: Random seed of initial states and actions.
        greedy: Whether a run's policies take the most likely action.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. A run is evaluated on its own device.
        **params: Parameters of the environment. A run has its own.

    Returns:
        ``Evaluation``: returns, lengths and metrics of the E episodes, and a recording of them.

    Raises:
        ParameterError: If an argument is wrong, or a group has no policy.
        DeviceError: If the device cannot be used, or a run is on another one.
        MemoryLimitError: If the episodes do not fit into memory.

    Examples:
        >>> import cupydrive as cd
        >>> result = cd.evaluate("mountain_car", "heuristic", episodes=100, device="cpu")
        >>> result.length.shape
        torch.Size([100])
    """
    options: dict[str, Any] = {"episodes": episodes, "seed": seed, "greedy": greedy}
    return play_episodes(
        resolve_eval(evaluate, env, policies, params, device=device, random=False, **options)
    )


def play_episodes(config: EvalConfig) -> Evaluation:
    """Play the episodes of a configuration.

    Raises:
        MemoryLimitError: If they do not fit into memory.
    """
    spec, params = config.spec, config.params
    playing = {g.name: config.policies[g.name].player(spec, g) for g in spec.groups(params)}
    try:
        batch = Batch(spec, config.episodes, params, executor(config.device))
        batch.reset(config.seed)
        rollout = Rollout(batch, playing, min(CHUNK, params.max_episode_steps), final_obs=False)
    except MemoryLimitError as error:
        raise MemoryLimitError(
            f"evaluate: episodes = {config.episodes:,} do not fit into memory: {error}"
        ) from None
    recorder = Recorder(rollout)
    with ordinary_modes(config.device, tf32=False), acting_threads(rollout):
        found = first_episodes(rollout, recorder)
    names = {group: str(settings) for group, settings in config.policies.items()}
    brief = {group: getattr(config.policies[group], "brief", name) for group, name in names.items()}
    recording = recorder.recording(config.seed, brief, found["length"])
    yardsticks = {} if spec.yardsticks is None else spec.yardsticks(params)
    evaluation = Evaluation(
        spec.name, names, config.seed, **found, recording=recording, yardsticks=yardsticks
    )
    for of, name in ((of, name) for of, numbers in yardsticks.items() for name in numbers):
        with errors_as(SpecError):
            checked_choice(spec.name, f"yardsticks[{of!r}]", name, tuple(evaluation.summary()))
    return evaluation


class Recorder:
    """Records the actions of the first environments of a rollout on the host."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout, batch = rollout, rollout.batch
        self.dtypes = {g.name: action_dtype(g) for g in batch.groups}
        step = sum(g.count * g.heads * self.dtypes[g.name].itemsize for g in batch.groups)
        self.envs = min(batch.num_envs, RECORD_BYTES // (batch.params.max_episode_steps * step))
        self.parts: dict[str, list[np.ndarray]] = {name: [] for name in self.dtypes}

    def keep(self) -> None:
        """Record the actions of the latest rollout."""
        for name, parts in self.parts.items():
            action = self.rollout.action[name][:, : self.envs]
            parts.append(action.cpu().numpy().astype(self.dtypes[name]))

    def recording(
        self, seed: int, players: dict[str, str], length: torch.Tensor
    ) -> Recording | None:
        """Return the ``Recording``, or None if not even one episode fits."""
        if not self.envs:
            return None
        batch, length = self.rollout.batch, length[: self.envs].numpy().astype(np.int32)
        most = int(length.max())
        action = {name: np.concatenate(parts)[:most] for name, parts in self.parts.items()}
        over = np.arange(most)[:, None] >= length
        for array in action.values():
            array[over] = 0
        return record(batch, seed, players, length, action)


def first_episodes(rollout: Rollout, recorder: Recorder) -> dict[str, Any]:
    """Play and record the first episode of each environment.

    Returns:
        ``returns``, ``length`` and ``metrics`` of the episodes.
    """
    most, n, device = rollout.batch.params.max_episode_steps, rollout.batch.num_envs, rollout.device
    columns = {"returns": rollout.episode_return, "metrics": rollout.metrics}
    columns["length"] = {"": rollout.episode_length}
    kept = {
        kind: {name: zeros(device, n, dtype=torch.float64) for name in of}
        for kind, of in columns.items()
    }
    ended = zeros(device, n, dtype=torch.int64)
    for _ in range(-(-most // rollout.steps)):
        rollout.collect()
        recorder.keep()
        over = rollout.terminated | rollout.truncated
        first = over & (over.cumsum(0) + ended == 1)
        for kind, of in columns.items():
            for name, array in of.items():
                values = array.double().mean(-1) if array.dim() == 3 else array.double()
                kept[kind][name] += values.where(first, 0.0).sum(0)
        ended += over.sum(0)
        if bool((ended > 0).all()):
            break
    found: dict[str, dict[str, torch.Tensor]] = {
        kind: {name: values.cpu() for name, values in of.items()} for kind, of in kept.items()
    }
    return found | {"length": found["length"][""]}
