"""Record one environment of a rollout step by step: states, actions and results, on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cupydrive.checks.reference import TakenStep, after_reset, reference_number
from cupydrive.simulation.batch import CLOCK, unpacked

if TYPE_CHECKING:
    from cupydrive.training.run import Run

ORDER = ("action", "state", "reward", "final_obs", "obs")  # order of computation within a step


@dataclass(frozen=True)
class Number:
    """A non-finite number and its place.

    Args:
        kind: One of ``ORDER``.
        name: Member of ``struct State``, or group.
        row: Number of traced steps after which it first appears.
        index: Indices into the member of ``State``, or agent and entry of a group's array.
        value: The number.
    """

    kind: str
    name: str
    row: int
    index: tuple[int, ...]
    value: float


@dataclass(frozen=True, eq=False)
class Step:
    """One step of one environment. Arrays by group have no environment axis.

    Args:
        state: (1,) ``struct State`` before the step.
        clock: (1,) ``CLOCK`` before the step: number of the episode, steps taken in it, and steps
            taken in total.
        action: (C, H) by group.
        after: (1,) state after the step. If the episode ended, the initial state of the next one.
        reward: (C,) by group.
        obs: (C, D) by group, after the step.
        final_obs: (C, D) by group, if the episode was truncated.
        over: Whether the episode is done.
    """

    state: np.ndarray
    clock: np.ndarray
    action: dict[str, np.ndarray]
    after: np.ndarray
    reward: dict[str, np.ndarray]
    obs: dict[str, np.ndarray]
    final_obs: dict[str, np.ndarray]
    over: bool


class Trace:
    """Recorded steps of one environment, from the start of a rollout on.

    Args:
        run: ``Run`` between two iterations.
        env: Index of the environment in this process.

    Attributes:
        begun: Number of environment steps before the trace.
        state: (1,) ``struct State`` before the first step.
        clock: (1,) ``CLOCK`` before the first step.
        obs: (C, D) by group before the first step.
        steps: The recorded ``Step``s.
    """

    def __init__(self, run: Run, env: int) -> None:
        self.run, self.env = run, env
        self.steps: list[Step] = []
        self.begun = run.step // run.num_envs
        self.state, self.clock = self.now = self._read()
        self.obs = self._obs(run.rollout.obs, -1)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the current state and clock."""
        batch, env = self.run.batch, slice(self.env, self.env + 1)
        state = batch.as_records(batch.executor.get(batch.state[env]), batch.state_dtype)
        return state, batch.as_records(batch.executor.get(batch.clock[env]), CLOCK)

    def _rows(self, arrays: Mapping[str, torch.Tensor], t: int) -> dict[str, np.ndarray]:
        """Return copies of the environment's entries of row t, by group."""
        own = {name: rows[t][self.env].detach().cpu() for name, rows in arrays.items()}
        return {name: row.numpy().copy() for name, row in own.items()}

    def _obs(self, arrays: Mapping[str, torch.Tensor], t: int) -> dict[str, np.ndarray]:
        """Return copies of the environment's observations by group, with packed bits as bools."""
        rows = self._rows(arrays, t)
        return {g.name: unpacked(g, rows[g.name]) for g in self.run.batch.groups}

    def add(self, t: int) -> None:
        """Record the step of row t, right after the rollout has taken it."""
        rollout = self.run.rollout
        over = bool(rollout.terminated[t][self.env] | rollout.truncated[t][self.env])
        before, self.now = self.now, self._read()
        action, reward = self._rows(rollout.action, t), self._rows(rollout.reward, t)
        obs = self._obs(rollout.obs, t + 1)
        final_obs = self._obs(rollout.final_obs, t) if bool(rollout.truncated[t][self.env]) else {}
        self.steps.append(Step(*before, action, self.now[0], reward, obs, final_obs, over))

    def up_to(self, step: int) -> Trace:
        """Drop all steps after environment step ``step`` of the run, and return the trace."""
        del self.steps[step - self.begun :]
        return self

    def first(self) -> Number | None:
        """Return the non-finite number that was computed first, or None.

        Members of ``State`` may be infinite on purpose. A member that is non-finite at the end
        counts from the step at which it last became non-finite. If it was already non-finite at the
        start of an episode or of the trace, it counts only if an observation was non-finite then,
        or if no other non-finite number is found.
        """
        found: list[Number] = []
        for name, obs in self.obs.items():
            found += nonfinite("obs", name, 0, obs)
        for row, step in enumerate(self.steps, 1):
            for kind in ("action", "reward", "final_obs", "obs"):
                for name, values in getattr(step, kind).items():
                    found += nonfinite(kind, name, row, values)
        begins = {0, *(row for row, step in enumerate(self.steps, 1) if step.over)}
        begins -= {number.row for number in found if number.kind == "obs"}
        states = list(self._state_numbers())
        found += [number for number in states if number.row not in begins]
        found = sorted(found or states, key=lambda each: (each.row, ORDER.index(each.kind)))
        return found[0] if found else None

    def _state_numbers(self) -> Iterator[Number]:
        """Yield the step at which each non-finite member of the final state became non-finite."""
        states, names = (
            [self.state, *(step.after for step in self.steps)],
            self.state.dtype.names or (),
        )
        sound = all(is_finite(states[-1][name]) for name in names)
        if sound and self.steps and self.steps[-1].over:
            states.pop()  # this state belongs to the next episode
        for name in names:
            row = len(states) - 1
            while row > 0 and not (is_finite(states[row - 1][name]) or self.steps[row - 1].over):
                row -= 1  # stops at the start of the episode
            if not is_finite(states[-1][name]):
                yield from nonfinite("state", name, row, states[row][name][0])

    def reference(self, number: Number) -> tuple[float | None, str | None]:
        """Return the NumPy reference's value for a number, or None and the reason."""
        if number.kind == "action":
            return None, "the environment does not compute it"
        batch = self.run.batch
        seed, env = int(batch.executor.get(batch.seed)[0]), batch.first_env + self.env
        if number.row > 0:
            step = self.steps[number.row - 1]
            action = {name: values[None] for name, values in step.action.items()}
            taken = TakenStep(seed, env, step.state, step.clock, action, step.after, step.over)
        elif self.clock["elapsed"][0] == 0:
            taken = after_reset(seed, env, self.state, self.clock)
        else:
            return None, "it existed before the replay"
        return reference_number(
            self.run.spec, self.run.params, taken, number.kind, number.name, number.index
        )


def is_finite(values: np.ndarray) -> bool:
    """Return whether an array contains only finite numbers or integers."""
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def nonfinite(kind: str, name: str, row: int, values: np.ndarray) -> list[Number]:
    """Return a list with the first non-finite ``Number`` of an array, or an empty list."""
    if is_finite(values):
        return []
    index = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
    return [Number(kind, name, row, index, float(np.asarray(values)[index]))]
