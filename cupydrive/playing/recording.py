"""Recordings: episodes that can be replayed exactly.

A recording has the seed of the initial states and the actions, which take a few bytes per step. The
states are recomputed from them, bit for bit, on any device. The policy is not needed. The last bits
of its outputs depend on batch size and device, so that it could play another episode.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

from cupydrive import envs
from cupydrive.errors import ParameterError, RenderError, UnknownEpisodeError
from cupydrive.executors import choose, executor
from cupydrive.inputs.archive import pack_npz, read_npz
from cupydrive.inputs.arguments import checked_path, is_number, require_folder, shown
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.inputs.formats import FORMAT, RECORDING, FormatError, Origin, explained
from cupydrive.protocols import EnvParams
from cupydrive.simulation.batch import Batch
from cupydrive.simulation.buffers import Buffers
from cupydrive.spec import EnvSpec, Group, kept_params

ArraysByName = dict[str, np.ndarray]  # by name


@dataclass(frozen=True)
class Moment:
    """State of all episodes of a recording after a step. Finished episodes keep their last state.

    Args:
        step: Number of steps so far.
        states: (N,) ``struct State``.
        elapsed: (N,) int, steps of each episode.
        over: (N,) bool, whether an episode is over.
        returns: Sums of rewards so far by group, (N, C) float32.
        action: Latest actions by group, (N, C, H). Empty at the start.
        reward: Latest rewards by group, (N, C) float32. Empty at the start.
        present: Agents that were present before the step, (N, C) bool, by group whose agents may
            leave. Empty at the start.
        metrics: Metrics of the environment in the episode so far by name, (N,).
    """

    step: int
    states: np.ndarray
    elapsed: np.ndarray
    over: np.ndarray
    returns: dict[str, np.ndarray]
    action: dict[str, np.ndarray] = field(default_factory=dict)
    reward: dict[str, np.ndarray] = field(default_factory=dict)
    present: dict[str, np.ndarray] = field(default_factory=dict)
    metrics: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Recording:
    """The first episodes of N environments.

    Args:
        spec: ``EnvSpec`` of the environment.
        params: Parameters of the environment.
        seed: Random seed of the initial states and of the environment.
        players: Description of each group's player, by group.
        length: (N,) int32, steps of each episode.
        action: Actions by group, (T, N, C, H), 0 after an episode's end. T is the longest length.
        first_env: Global id of the first environment.
        checksum: Checksum of the last states, for the validation of recomputed states, or None.
        origin: Files of a custom environment when the episodes were played, with their SHA-256.
        tables: SHA-256 of the environment's tables by name, or None if it has none.

    Examples:
        >>> import cupydrive as cd
        >>> result = cd.evaluate("cartpole", "random", episodes=10, device="cpu")
        >>> recording = result.recording[0]
        >>> recording.num_envs
        1
        >>> video = cd.render(recording, "episode.gif", progress=False)
    """

    spec: EnvSpec
    params: EnvParams
    seed: int
    players: dict[str, str]
    length: np.ndarray
    action: dict[str, np.ndarray]
    first_env: int = 0
    checksum: int | None = field(default=None)
    origin: Origin | None = None
    tables: dict | None = None

    @property
    def num_envs(self) -> int:
        """Number of episodes, N."""
        return len(self.length)

    @property
    def steps(self) -> int:
        """Number of steps of the longest episode, T."""
        return int(self.length.max())

    def __getitem__(self, which: int | slice) -> "Recording":
        """Return the recording of one episode, or of a range of them."""
        if not isinstance(which, slice) and is_number(which, int | np.integer):
            if not -self.num_envs <= which < self.num_envs:
                raise UnknownEpisodeError(
                    f"recording[{shown(which)}]: it has {self.num_envs} episodes"
                )
            which = slice(which, which + 1 or None)
        start, stop, step = which.indices(self.num_envs) if isinstance(which, slice) else (0, 0, 1)
        if stop <= start or step != 1:
            words = "must be the number of an episode, or adjacent episodes, such as recording[0:4]"
            raise ParameterError(f"recording[{shown(which)}] {words}")
        part = slice(start, stop)
        length = self.length[part]
        action = {name: array[: int(length.max()), part] for name, array in self.action.items()}
        return replace(
            self, length=length, action=action, first_env=self.first_env + start, checksum=None
        )

    def moments(self, device: str = "cpu") -> Iterator[Moment]:
        """Recompute the episodes, and yield a ``Moment`` before the first and after each step.

        Raises:
            RenderError: At the end, if the states differ from the recorded ones.
        """
        n, where = self.num_envs, executor(choose(device)[0])
        batch = Batch(self.spec, n, self.params, where, first_env=self.first_env)
        if any(self.action[g.name].shape[2:] != (g.count, g.heads) for g in batch.groups):
            raise RenderError(
                f"the recording does not fit {self.spec.name}: agents or actions differ"
            )
        batch.reset(self.seed)
        buffers = [where.allocate((n, g.count, g.heads), g.action_dtype) for g in batch.groups]
        pointers = [batch.executor.pointer(b) for b in buffers]
        kept = batch.get_state()
        states, totals = kept["state"], kept["metrics"]
        returns = {g.name: np.zeros((self.num_envs, g.count), np.float32) for g in batch.groups}
        last: dict[str, dict[str, np.ndarray]] = {}  # results of each episode's latest step
        for t in range(self.steps + 1):
            elapsed = np.minimum(t, self.length)
            over = t >= self.length
            sums = {name: array.copy() for name, array in returns.items()}
            metrics = {name: totals[name].copy() for name in self.spec.metrics}
            yield Moment(t, states.copy(), elapsed, over, sums, metrics=metrics, **last)
            if t == self.steps:
                break
            for g, buffer in zip(batch.groups, buffers, strict=True):
                row = np.ascontiguousarray(self.action[g.name][t], dtype=g.action_dtype)
                batch.executor.put(buffer, row)
            written = batch.step(pointers, autoreset=False)
            kept = batch.get_state()
            states = np.where(over, states, kept["state"])
            totals = np.where(over, totals, kept["metrics"])
            action = {name: array[t] for name, array in self.action.items()}
            now = {"action": action, **outcome(batch, written)}
            for name, rewards in now["reward"].items():
                returns[name] += np.where(over[:, None], np.float32(0), rewards)
            last = {
                kind: kept_where(over, last.get(kind, {}), arrays) for kind, arrays in now.items()
            }
        if self.checksum not in (None, zlib.crc32(states.tobytes())):
            words = "its kernel or its parameters have changed since"
            raise RenderError(f"the recording was made with another {self.spec.name}: {words}")

    def save(self, path: str | PathLike) -> None:
        """Write the recording as a NumPy archive (.npz).

        Raises:
            RenderError: If the file cannot be written.
        """
        path = checked_path("save", "path", path)
        require_folder("path", path)
        for moment in self.moments():
            last = moment.states
        about = {
            "format": FORMAT,
            "env": self.spec.name,
            "origin": self.origin,
            "params": kept_params(self.params),
            "seed": self.seed,
            "players": self.players,
            "first_env": self.first_env,
            "checksum": zlib.crc32(last.tobytes()),
        }
        about |= {"tables": self.tables} if self.tables else {}
        arrays = {f"action.{name}": array for name, array in self.action.items()}
        content = pack_npz(about, {"length": self.length, **arrays})
        with file_errors(RenderError, f"the recording cannot be written to path = {str(path)!r}"):
            write_atomically(path, content)

    @classmethod
    def load(
        cls, path: str | PathLike, env: "str | PathLike | EnvSpec | None" = None
    ) -> "Recording":
        """Load a recording from a file. Code from the file is never executed.

        Args:
            path: File that ``save`` wrote.
            env: Path of the Python file, or ``EnvSpec``, of your own environment if it is not
                registered.

        Warns:
            CupydriveWarning: If the environment's files have changed since.

        Raises:
            UnregisteredEnvironmentError: If ``env`` is needed. The message shows the correct call.
            RenderError: If the file is not a recording, is damaged, or does not fit the
                environment.
        """
        path = checked_path("load", "path", path)
        with file_errors(RenderError, f"path = {str(path)!r} cannot be read"):
            try:
                about, arrays = read_npz(path, RECORDING, executor("cpu").free_bytes())
            except FormatError as error:
                raise RenderError(
                    explained(path, "recording", error, "Record the episodes again")
                ) from None
        call = f"cupydrive.Recording.load({str(path)!r}, env={{}})"
        spec = envs.of_data(str(path), call, about["env"], about.get("origin"), env)
        try:
            params = spec.make_params(**about["params"])
            action = checked_arrays(spec, params, arrays)
            length = arrays["length"]
            spec.require_tables("it", params, about.get("tables"))
        except (FormatError, ParameterError) as error:
            raise RenderError(
                f"{path} does not fit the present version of {spec.name!r}: {error}. Record "
                f"the episodes again"
            ) from None
        keys = ("seed", "players", "first_env", "checksum", "origin", "tables")
        kept: dict[str, Any] = {key: about.get(key) for key in keys}
        return cls(spec, params, length=length, action=action, **kept)

    def __repr__(self) -> str:
        who = ", ".join(f"{group}: {player}" for group, player in self.players.items())
        size = sum(array.nbytes for array in self.action.values())
        return (
            f"<Recording {self.spec.name}: {self.num_envs} episodes of up to {self.steps} steps "
            f"(seed {self.seed}), {who}, {size:,} bytes of actions>"
        )


def record(
    batch: Batch, seed: int, players: dict[str, str], length: np.ndarray, action: ArraysByName
) -> Recording:
    """Return the ``Recording`` of episodes that a ``Batch`` has played.

    Args:
        batch: The ``Batch``.
        seed: Random seed of the initial states.
        players: Description of each group's player, by group.
        length: (N,) int32, steps of each episode.
        action: Actions by group, (T, N, C, H).
    """
    kept: Any = {"tables": batch.spec.about_tables(batch.params).get("tables")}
    kept["origin"] = envs.origin(batch.spec)
    return Recording(batch.spec, batch.params, seed, players, length, action, **kept)


def outcome(batch: Batch, written: Buffers) -> dict[str, dict[str, np.ndarray]]:
    """Return ``reward`` and ``present`` of a ``Moment`` by group, from the results of a step."""
    get = batch.executor.get
    arrays = {"reward": written.reward, "present": written.active}
    return {kind: {name: get(array) for name, array in of.items()} for kind, of in arrays.items()}


def kept_where(over: np.ndarray, before: ArraysByName, now: ArraysByName) -> ArraysByName:
    """Return the arrays ``now``, with the rows of ``before`` for finished episodes.

    If ``before`` is empty, ``now`` is returned unchanged.
    """
    found = dict(now)
    for name, array in before.items():
        found[name] = np.where(over.reshape(-1, *[1] * (array.ndim - 1)), array, now[name])
    return found


def action_dtype(group: Group) -> np.dtype:
    """Return the smallest NumPy dtype that holds a group's actions."""
    if group.continuous:
        return np.dtype(np.float32)
    return np.min_scalar_type(max(group.sizes) - 1)


def checked_arrays(spec: EnvSpec, params: EnvParams, arrays: ArraysByName) -> ArraysByName:
    """Validate the arrays of a recording's file, and return the actions by group.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        arrays: Arrays of the file: ``length`` and ``action.GROUP``.

    Raises:
        FormatError: If a name, type, shape or value is wrong.
    """
    groups = {f"action.{g.name}": g for g in spec.groups(params)}
    if set(arrays) != {"length", *groups}:
        raise FormatError(f"got {', '.join(sorted(arrays))}, expected length, {', '.join(groups)}")
    length = arrays["length"]
    if length.dtype != np.int32 or length.ndim != 1 or not len(length):
        raise FormatError(f"length is {length.dtype} {length.shape}, expected int32 (N,)")
    if length.min() < 1 or length.max() > params.max_episode_steps:
        raise FormatError(
            f"episodes of {length.min()} to {length.max()} steps, expected 1 to "
            f"{params.max_episode_steps}"
        )
    for name, g in groups.items():
        array, shape = arrays[name], (int(length.max()), len(length), g.count, g.heads)
        if array.dtype != action_dtype(g) or array.shape != shape:
            raise FormatError(
                f"{name} is {array.dtype} {array.shape}, expected {action_dtype(g)} {shape}"
            )
        choices = array[..., : len(g.sizes)]
        wrong = (choices != np.trunc(choices)) | (choices < 0) | (choices >= np.array(g.sizes))
        if wrong.any():
            raise FormatError(
                f"{name} holds a choice of {choices[wrong].max()}, but the heads have {g.sizes}"
            )
    return {g.name: arrays[name] for name, g in groups.items()}
