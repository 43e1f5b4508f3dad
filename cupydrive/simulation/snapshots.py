"""Snapshots: the complete state of a ``VectorEnv`` as NumPy arrays, for any device."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cupydrive import envs
from cupydrive.errors import ParameterError, SnapshotError, UnknownFieldError, did_you_mean
from cupydrive.executors import executor
from cupydrive.executors.interop import Views, as_numpy
from cupydrive.inputs.arguments import checked_path, require_folder, shown
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.spec import kept_params

if TYPE_CHECKING:
    import torch

    from cupydrive.inputs.formats import Origin
    from cupydrive.simulation.batch import Batch
    from cupydrive.simulation.vector import VectorEnv

SAVED_BY_GROUP = ("returns", "obs", "action_mask")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """State of N environments. ``env.restore`` continues from it bit for bit, on the CPU or a GPU.

    Args:
        env: Name of the environment.
        params: Parameters of the environment by name. Arrays are lists. Parameters with default
            values are left out if the user did not pass them.
        num_envs: Number of environments, N.
        first_env: Global id of environment 0. Random streams are keyed by global ids.
        seed: Random seed of the environments.
        state: (N,) ``struct State``.
        clock: (N,) episode, elapsed and time.
        metrics: (N,) metrics since the episodes began.
        returns: Sums of rewards since the episodes began by group, (N, C) float32.
        obs: Observations by group, (N, C, D) float32.
        action_mask: Allowed choices by group with masks, (N, C, choices) bool.
        origin: Files of a custom environment, with their SHA-256.
        tables: SHA-256 of the environment's tables by name, or None if it has none.

    Examples:
        >>> import cupydrive as cd
        >>> env = cd.make("cartpole", num_envs=8, device="cpu")
        >>> obs, info = env.reset(seed=0)
        >>> snapshot = env.snapshot()
        >>> first = env.rollout(10).obs.clone()
        >>> obs, info = env.restore(snapshot)
        >>> bool((env.rollout(10).obs == first).all())
        True
    """

    env: str
    params: dict
    num_envs: int
    first_env: int
    seed: int
    state: np.ndarray
    clock: np.ndarray
    metrics: np.ndarray
    returns: dict[str, np.ndarray]
    obs: dict[str, np.ndarray]
    action_mask: dict[str, np.ndarray]
    origin: Origin | None = None
    tables: dict | None = None

    @classmethod
    def of(cls, batch: Batch) -> Snapshot:
        """Return the snapshot of a ``Batch``. This synchronizes."""
        kept = batch.get_state()
        obs, mask = batch.get_observations()
        return cls(
            batch.spec.name,
            kept_params(batch.params),
            batch.num_envs,
            batch.first_env,
            int(kept["seed"][0]),
            kept["state"],
            kept["clock"],
            kept["metrics"],
            kept["returns"],
            obs=obs,
            action_mask=mask,
            origin=envs.origin(batch.spec),
            **batch.spec.about_tables(batch.params),
        )

    def restore(self, batch: Batch) -> None:
        """Write the snapshot into ``batch``.

        Warns:
            CupydriveWarning: If the files of a custom environment have changed since.

        Raises:
            ParameterError: If ``batch`` is of another environment, a parameter, table or size
                differs, or an episode is beyond the time limit. Nothing has changed then.
        """
        now = Snapshot.of(batch)
        own, kept = now.fixed(), self.fixed()
        for name in {**own, **kept}:
            if own.get(name) != kept.get(name):
                raise ParameterError(
                    f"the snapshot has {name} = {shown(kept.get(name))}, but this environment has "
                    f"{shown(own.get(name))}. They must be equal"
                )
        batch.spec.require_tables("the snapshot", batch.params, self.tables)
        elapsed, limit = self.clock["elapsed"], batch.params.max_episode_steps
        if elapsed.min() < 0 or elapsed.max() >= limit:
            raise ParameterError(
                f"the snapshot's environments are at steps {elapsed.min()} to {elapsed.max()} of "
                f"their episodes, expected steps 0 to {limit - 1}: max_episode_steps is {limit}"
            )
        envs.compare_origin("the snapshot", batch.spec, self.origin)
        seed = np.array([self.seed], np.uint64)
        batch.set_state(
            {
                "seed": seed,
                "state": self.state,
                "clock": self.clock,
                "metrics": self.metrics,
                "returns": self.returns,
            }
        )
        batch.set_observations(self.obs, self.action_mask)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name. Those of groups have names ``NAME.GROUP``."""
        flat = {name: getattr(self, name) for name in ("state", "clock", "metrics")}
        return flat | {
            f"{name}.{key}": array
            for name in SAVED_BY_GROUP
            for key, array in getattr(self, name).items()
        }

    def fixed(self) -> dict[str, object]:
        """Return values that ``restore`` compares: parameters, sizes, dtypes and shapes."""
        shapes = {name: f"{array.dtype} {array.shape}" for name, array in self.arrays().items()}
        return {
            "env": self.env,
            "num_envs": self.num_envs,
            "first_env": self.first_env,
            **self.params,
            **shapes,
        }

    def save(self, path: str | os.PathLike) -> None:
        """Write the snapshot as a NumPy archive (.npz)."""
        # imported here, since importing pydantic takes as long as making an environment
        from cupydrive.inputs.archive import pack_npz
        from cupydrive.inputs.formats import FORMAT

        path = checked_path("save", "path", path)
        require_folder("path", path)
        about = {
            key: getattr(self, key)
            for key in ("env", "origin", "params", "num_envs", "first_env", "seed")
        }
        about |= {"tables": self.tables} if self.tables else {}
        content = pack_npz({"format": FORMAT, **about}, self.arrays())
        with file_errors(SnapshotError, f"the snapshot cannot be written to path = {str(path)!r}"):
            write_atomically(path, content)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Snapshot:
        """Load a snapshot from a file. Code from the file is never executed.

        Its environment is not looked up before ``restore``.

        Raises:
            SnapshotError: If the file is not a snapshot, or is damaged.
        """
        from cupydrive.inputs.archive import read_npz
        from cupydrive.inputs.formats import SNAPSHOT, FormatError, explained

        path = checked_path("load", "path", path)
        with file_errors(SnapshotError, f"path = {str(path)!r} cannot be read"):
            try:
                about, arrays = read_npz(path, SNAPSHOT, executor("cpu").free_bytes())
                del about["format"]
                found: dict[str, Any] = about | {name: {} for name in SAVED_BY_GROUP}
                for name, array in arrays.items():
                    kind, dot, group = name.partition(".")
                    if kind not in (SAVED_BY_GROUP if dot else ("state", "clock", "metrics")):
                        raise FormatError(f"it has an unknown array {shown(name)}")
                    if dot:
                        found[kind][group] = array
                    else:
                        found[name] = array
                return cls(**found)
            except (FormatError, KeyError, TypeError) as error:
                raise SnapshotError(
                    explained(path, "snapshot", error, "Take the snapshot again")
                ) from None

    def __repr__(self) -> str:
        size = sum(array.nbytes for array in self.arrays().values())
        return (
            f"<Snapshot {self.env}: {self.num_envs:,} environments (seed {self.seed}), {size:,} "
            f"bytes>"
        )


class StateViews(Views):
    """Views of ``struct State`` by field.

    Args:
        env: Name of the environment, for messages.
    """

    __slots__ = ("env",)

    def __init__(self, env: str) -> None:
        super().__init__("env.state", {})
        self.env = env

    def renew(self, views: dict[str, torch.Tensor]) -> None:
        """Replace the views of the same fields."""
        dict.update(self, views)

    def __missing__(self, name: str) -> torch.Tensor:
        raise unknown_field(self.env, name, self)


def unknown_field(env: str, name: str, known: Iterable[str]) -> UnknownFieldError:
    """Return the error for an unknown field of the state of ``env``."""
    return UnknownFieldError(
        f"{env} has no state {shown(name)}.{did_you_mean(name, known)} It has: {', '.join(known)}"
    )


def checked_values(
    env: VectorEnv,
    elapsed: ArrayLike | torch.Tensor | None = None,
    **fields: ArrayLike | torch.Tensor,
) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Validate the arguments of ``set_state``.

    Args:
        env: ``VectorEnv``.
        elapsed: One int or (N,) ints from 0 to ``max_episode_steps`` - 1, or None.
        **fields: Array-like values by member of ``struct State``, which broadcast to
            (N, *shape of the member).

    Returns:
        Members of ``struct State`` by name, and ``elapsed``, as NumPy arrays.

    Raises:
        ParameterError: If a name is unknown, a shape or type is wrong, or a number is non-finite or
            out of range.
    """
    known, checked = {f.name: f for f in env.spec.state(env.params)}, {}
    for name, value in fields.items():
        if name not in known:
            raise unknown_field(env.spec.name, name, known)
        f, given = known[name], as_numpy(env.spec.name, f"state {name!r}", value)
        shape, dtype = (env.num_envs, *f.shape), np.dtype(f.dtype)
        if given.dtype.kind not in ("iuf" if dtype.kind == "f" else "iu"):
            raise ParameterError(f"state {name!r} is {given.dtype}, expected {dtype.name}")
        try:
            given = np.broadcast_to(given, shape)
        except ValueError:
            raise ParameterError(
                f"state {name!r} has shape {given.shape}, expected {shape}"
            ) from None
        with np.errstate(over="ignore"):
            checked[name] = given.astype(dtype)
        fits = np.isfinite(checked[name]) if dtype.kind == "f" else checked[name] == given
        if not fits.all():
            raise ParameterError(
                f"state {name!r} holds {given[~fits].flat[0]}, expected a finite {dtype.name}"
            )
    if elapsed is None:
        return checked, None
    given, last = as_numpy(env.spec.name, "elapsed", elapsed), env.params.max_episode_steps - 1
    if given.dtype.kind not in "iu" or given.shape not in ((), (env.num_envs,)):
        raise ParameterError(
            f"elapsed is {given.dtype} {given.shape}, expected ints ({env.num_envs},)"
        )
    if given.min() < 0 or given.max() > last:
        raise ParameterError(
            f"elapsed is {given.min()} to {given.max()}, expected values from 0 to {last}"
        )
    return checked, given
