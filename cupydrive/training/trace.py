"""Record one environment of a rollout step by step: states, actions and results, on the host."""

from dataclasses import dataclass

import numpy as np
import torch

from cupydrive.checks.reference import TakenStep, after_reset, reference_number
from cupydrive.simulation.batch import CLOCK

POLICY_ROWS = ("value", "log_prob")  # that on-policy learners store for each row
ORDER = ("value", "log_prob", "action", "state", "reward", "final_obs", "obs")  # in which one step computes them


@dataclass(frozen=True)
class Number:
    """A non-finite number and its place.

    Args:
        kind: One of ``ORDER``.
        name: Member of ``struct State``, or group.
        row: Steps of the trace after which it was there; of a policy's output, the step that it is for.
        index: Indices of a member of ``State``; of a group, agent and entry.
        value: The number.
    """

    kind: str
    name: str
    row: int
    index: tuple
    value: float

    def describe(self, agents: int) -> str:
        """Return a phrase such as "the reward of 'cart'"; ``agents`` is the number of all agents."""
        if self.kind == "state":
            return f"state {self.name!r}" + "".join(f"[{i}]" for i in self.index)
        agent, *entry = self.index
        phrase = f"the {self.kind} of {self.name!r}" + (f", agent {agent}" if agents > 1 else "")
        return phrase + "".join(f", entry {k}" for k in entry)


@dataclass(frozen=True, eq=False)
class Step:
    """One step of one environment. Arrays by group have no axis of environments.

    Args:
        state: (1,) ``struct State`` before it.
        clock: (1,) episode, elapsed and time before it.
        action: (C, H) by group.
        policy: (C,) ``value`` and ``log_prob`` by group, of learners that store them.
        after: (1,) state after it; if the episode ended, that of the next one.
        reward: (C,) by group.
        obs: (C, D) by group, after it.
        final_obs: (C, D) by group, if the episode ended.
        over: Whether it ended.
    """

    state: np.ndarray
    clock: np.ndarray
    action: dict
    policy: dict
    after: np.ndarray
    reward: dict
    obs: dict
    final_obs: dict
    over: bool


class Trace:
    """The steps of one environment from a rollout on.

    Args:
        run: ``Run`` between two iterations.
        env: Index of the environment in this process.

    Attributes:
        begun: Steps of the environment before the trace.
        state: (1,) ``struct State`` before the first step.
        clock: (1,) episode, elapsed and time before it.
        obs: (C, D) by group before it.
        steps: ``Step``s.
    """

    def __init__(self, run, env: int):
        self.run, self.env, self.steps = run, env, []
        self.begun = run.step // run.num_envs
        self.state, self.clock = self.state_now, self.clock_now = self._now()
        self.obs = {g: host(rows[-1][env]) for g, rows in run.rollout.obs.items()}

    def _now(self) -> tuple[np.ndarray, np.ndarray]:
        batch, env = self.run.batch, self.env
        pairs = (batch.state, batch.state_dtype), (batch.clock, CLOCK)
        return tuple(batch.as_records(batch.executor.get(array[env : env + 1]), dtype) for array, dtype in pairs)

    def add(self, t: int) -> None:
        """Record the step of row t of the rollout, which has just been taken."""
        rollout, env = self.run.rollout, self.env
        over = bool(rollout.terminated[t][env] | rollout.truncated[t][env])
        before, clock = self.state_now, self.clock_now
        self.state_now, self.clock_now = self._now()
        step = Step(
            before,
            clock,
            {name: host(rows[t][env]) for name, rows in rollout.action.items()},
            {name: self._policy_rows(name, t) for name in rollout.action},
            self.state_now,
            {name: host(rows[t][env]) for name, rows in rollout.reward.items()},
            {name: host(rows[t + 1][env]) for name, rows in rollout.obs.items()},
            {name: host(rows[t][env]) for name, rows in rollout.final_obs.items()} if over else {},
            over,
        )
        self.steps.append(step)

    def _policy_rows(self, name: str, t: int) -> dict:
        learner = self.run.rollout.player_of[name]
        stored = getattr(getattr(learner, "inner", learner), "stored", {}).get(name, {})
        return {kind: host(stored[kind][t][self.env]) for kind in POLICY_ROWS if kind in stored}

    def up_to(self, step: int) -> "Trace":
        """Drop the steps after ``step`` steps of the environment since the run began, and return the trace."""
        del self.steps[step - self.begun :]
        return self

    def numbers(self) -> list[Number]:
        """Return the non-finite numbers, in the order in which they were computed.

        Members of ``State`` may hold infinity on purpose. Of those that are not finite at the end, the moment counts from which
        on they were not. One that was not finite when an episode or the trace began counts only if an observation was not
        either, or if nothing else is found.
        """
        found = []
        for name, obs in self.obs.items():
            found += nonfinite("obs", name, 0, obs)
        for row, step in enumerate(self.steps, 1):
            for name, rows in step.policy.items():
                for kind in rows:
                    found += nonfinite(kind, name, row, rows[kind])
            for kind in ("action", "reward", "final_obs", "obs"):
                for name, values in getattr(step, kind).items():
                    found += nonfinite(kind, name, row, values)
        begins = {0, *(row for row, step in enumerate(self.steps, 1) if step.over)} - {
            n.row for n in found if n.kind == "obs"
        }
        states = self._state_numbers()
        found += [number for number in states if number.row not in begins]
        return sorted(found or states, key=lambda number: (number.row, ORDER.index(number.kind)))

    def _state_numbers(self) -> list[Number]:
        states, found = [self.state, *(step.after for step in self.steps)], []
        if self.steps and self.steps[-1].over and all(is_finite(states[-1][name]) for name in self.state.dtype.names):
            states.pop()  # of the next episode
        for name in self.state.dtype.names:
            row = len(states)
            while row > 0 and not is_finite(states[row - 1][name]):
                row -= 1
                if row > 0 and self.steps[row - 1].over:  # the episode began here
                    break
            if row < len(states):
                found += nonfinite("state", name, row, states[row][name][0])
        return found

    def reference(self, number: Number) -> tuple[float | None, str | None]:
        """Return what the NumPy reference computes for a number, or None and the reason why there is nothing."""
        if number.kind not in ("state", "reward", "obs", "final_obs"):
            return None, "the environment does not compute it"
        batch, spec = self.run.batch, self.run.spec
        seed, env = int(batch.executor.get(batch.seed)[0]), batch.first_env + self.env
        if number.row > 0:
            step = self.steps[number.row - 1]
            action = {name: values[None] for name, values in step.action.items()}
            taken = TakenStep(seed, env, step.state, step.clock, action, step.after, step.over)
        elif self.clock["elapsed"][0] == 0:
            taken = after_reset(seed, env, self.state, self.clock)
        else:
            return None, "it was there before the replay"
        return reference_number(spec, self.run.params, taken, number.kind, number.name, number.index)


def host(tensor: torch.Tensor) -> np.ndarray:
    """Return a NumPy copy of a tensor."""
    return tensor.detach().cpu().numpy().copy()


def is_finite(values: np.ndarray) -> bool:
    """Return whether an array holds finite numbers or integers."""
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def nonfinite(kind: str, name: str, row: int, values: np.ndarray) -> list[Number]:
    """Return the first ``Number`` of an array that is not finite in a list, or an empty list."""
    if is_finite(values):
        return []
    index = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
    return [Number(kind, name, row, index, float(np.asarray(values)[index]))]
