"""Snapshots: everything that the future of a ``VectorEnv`` depends on, as NumPy arrays that any device takes back."""

import io
import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cupydrive.errors import ParameterError, SnapshotError, did_you_mean
from cupydrive.files import write_atomically

FORMAT = 1
BY_GROUP = ("returns", "obs", "action_mask")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A moment of N environments: ``env.restore`` goes on from it bit for bit, on the CPU or a GPU.

    Args:
        env: Name of the environment.
        params: Its parameters by name.
        num_envs: N.
        first_env: Global id of environment 0, which random streams are keyed by.
        seed: What the environment was seeded with.
        state: (N,) ``struct State``.
        clock: (N,) episode, elapsed and time.
        log: (N,) metrics since the episodes began.
        returns: By group: (N, C) float32 rewards since the episodes began.
        obs: By group: (N, C, D) float32.
        action_mask: By group that has one: (N, C, choices) bool.
    """

    env: str
    params: dict
    num_envs: int
    first_env: int
    seed: int
    state: np.ndarray
    clock: np.ndarray
    log: np.ndarray
    returns: dict[str, np.ndarray]
    obs: dict[str, np.ndarray]
    action_mask: dict[str, np.ndarray]

    @classmethod
    def of(cls, batch):
        """Return the snapshot of a ``Batch``; waits for the device."""
        kept = batch.get_state()
        obs, mask = batch.get_observations()
        seed = int(kept.pop("seed")[0])
        return cls(
            batch.spec.name,
            asdict(batch.params),
            batch.num_envs,
            batch.first_env,
            seed,
            **kept,
            obs=obs,
            action_mask=mask,
        )

    def restore(self, batch):
        """Write this moment into ``batch``.

        Raises:
            ParameterError: If ``batch`` is another environment, or differs in a parameter or size; nothing has changed then.
        """
        own = {"env": batch.spec.name, "num_envs": batch.num_envs, "first_env": batch.first_env, **asdict(batch.params)}
        kept = {"env": self.env, "num_envs": self.num_envs, "first_env": self.first_env, **self.params}
        for name in {**own, **kept}:
            if own.get(name) != kept.get(name):
                raise ParameterError(
                    f"the snapshot has {name} = {kept.get(name)!r}, this environment {own.get(name)!r}; they must be equal"
                )
        wanted = Snapshot.of(batch)
        for name, array in self.arrays().items():
            fits = wanted.arrays().get(name)
            if fits is None or fits.dtype != array.dtype or fits.shape != array.shape:
                raise ParameterError(
                    f"the snapshot's {name} is {array.dtype} {array.shape}, which does not fit: {self.env} has changed since"
                )
        state = {name: getattr(self, name) for name in ("state", "clock", "log", "returns")}
        batch.set_state({"seed": np.array([self.seed], np.uint64), **state})
        batch.set_observations(self.obs, self.action_mask)

    def arrays(self):
        """Return all arrays by name, those of groups as ``NAME.GROUP``."""
        flat = {name: getattr(self, name) for name in ("state", "clock", "log")}
        return flat | {f"{name}.{key}": array for name in BY_GROUP for key, array in getattr(self, name).items()}

    def save(self, path):
        """Write the snapshot as a NumPy archive (.npz)."""
        about = {key: getattr(self, key) for key in ("env", "params", "num_envs", "first_env", "seed")}
        text = np.frombuffer(json.dumps({"format": FORMAT, **about}).encode(), np.uint8)
        content = io.BytesIO()
        np.savez_compressed(content, about=text, **self.arrays())
        try:
            write_atomically(Path(path), content.getvalue())
        except OSError as error:
            raise SnapshotError(f"the snapshot cannot be written to {path}: {error.strerror}") from None

    @classmethod
    def load(cls, path):
        """Return the snapshot of a file; no code in it can run.

        Raises:
            SnapshotError: If it is none, or from a newer version.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(file["about"].tobytes())
                arrays = {name: file[name] for name in file.files if name != "about"}
                version = about.pop("format")
        except OSError as error:
            raise SnapshotError(f"{path} cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise SnapshotError(f"{path} is no snapshot, or damaged: {error}") from None
        if version > FORMAT:
            raise SnapshotError(
                f"{path} has format {version}, this cupydrive reads up to {FORMAT}; install the newer one"
            )
        groups = {name: {} for name in BY_GROUP}
        for name in [name for name in arrays if "." in name]:
            kind, group = name.split(".", 1)
            groups[kind][group] = arrays.pop(name)
        return cls(**about, **arrays, **groups)

    def __repr__(self):
        size = sum(array.nbytes for array in self.arrays().values())
        return f"<Snapshot {self.env}: {self.num_envs:,} environments (seed {self.seed}); {size:,} bytes>"


def checked_moment(env, elapsed=None, **fields):
    """Return NumPy arrays of members of ``struct State`` by name and ``elapsed``: the arguments of ``set_state``."""
    return checked_states(env, fields), None if elapsed is None else checked_elapsed(env, elapsed)


def checked_states(env, values):
    """Return ``values`` as NumPy arrays that fit the members of ``struct State``.

    Args:
        env: ``VectorEnv``.
        values: By member: what NumPy takes, of shape (N, *shape of the member) or broadcast to it.

    Raises:
        ParameterError: If a name is unknown, the shape or type is another, or a number is not finite or does not fit.
    """
    known, checked = {f.name: f for f in env.spec.state(env.params)}, {}
    for name, value in values.items():
        if name not in known:
            raise ParameterError(
                f"{env.spec.name} has no state {name!r}.{did_you_mean(name, known)} It has: {', '.join(known)}"
            )
        f, given = known[name], np.asarray(value)
        shape, dtype = (env.num_envs, *f.shape), np.dtype(f.dtype)
        if given.dtype.kind not in ("iuf" if dtype.kind == "f" else "iu"):
            raise ParameterError(f"state {name!r} is {given.dtype}; it must be {dtype.name}")
        try:
            given = np.broadcast_to(given, shape)
        except ValueError:
            raise ParameterError(f"state {name!r} has shape {given.shape}; it must be {shape}") from None
        with np.errstate(over="ignore"):
            checked[name] = given.astype(dtype)
        fits = np.isfinite(checked[name]) if dtype.kind == "f" else checked[name] == given
        if not fits.all():
            raise ParameterError(f"state {name!r} holds {given[~fits].flat[0]}, which is no finite {dtype.name}")
    return checked


def checked_elapsed(env, elapsed):
    """Return (N,) ints from 0 to ``max_episode_steps`` - 1, or raise ``ParameterError``."""
    given, last = np.asarray(elapsed), env.params.max_episode_steps - 1
    if given.dtype.kind not in "iu" or given.shape not in ((), (env.num_envs,)):
        raise ParameterError(f"elapsed is {given.dtype} {given.shape}; it must be ints ({env.num_envs},)")
    if given.min() < 0 or given.max() > last:
        raise ParameterError(f"elapsed is {given.min()} to {given.max()}; it must be from 0 to {last}")
    return given
