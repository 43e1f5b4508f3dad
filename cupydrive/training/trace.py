"""One environment's part of rollouts that are taken step by step: states, actions and what came of them, on the host."""

from dataclasses import dataclass, field

import numpy as np

from cupydrive.checks.single import TakenStep, after_reset, reference_number
from cupydrive.simulation.batch import CLOCK

POLICY_ROWS = ("value", "log_prob")  # that learners on policy store for each row
# Of numbers that come of one step, the order in which they are made.
ORDER = ("weight", "value", "log_prob", "action", "state", "reward", "final_obs", "obs")


@dataclass(frozen=True)
class Number:
    """A number that is not finite, and where it is.

    Args:
        kind: One of ``ORDER``.
        name: Of the member of ``State``, or of the group.
        row: Steps of the trace after which it was there; of what a policy gives, the step that it is for.
        index: Of a member of ``State`` its own indices; of a group agent, and entry of an observation or action.
        value: It.
    """

    kind: str
    name: str
    row: int
    index: tuple
    value: float

    def order(self):
        """Return a key that sorts numbers by when they were made."""
        return self.row, ORDER.index(self.kind)

    def words(self, agents):
        """Return what it is; ``agents`` is the number of all agents."""
        if self.kind == "state":
            return f"state {self.name!r}" + "".join(f"[{i}]" for i in self.index)
        agent, *entry = self.index
        words = f"the {self.kind} of {self.name!r}" + (f", agent {agent}" if agents > 1 else "")
        return words + "".join(f", entry {k}" for k in entry)


@dataclass(frozen=True, eq=False)
class Step:
    """One step of one environment; arrays by group have no axis of environments.

    Args:
        state: (1,) ``struct State`` before it.
        clock: (1,) episode, elapsed and time before it.
        action: By group: (C, H).
        policy: By group, of learners that store it: ``value`` and ``log_prob``, (C,) each.
        after: (1,) state after it; where the episode ended, of the next one.
        reward: By group: (C,).
        obs: By group: (C, D), after it.
        final_obs: By group: (C, D), where the episode ended.
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


@dataclass
class Trace:
    """What one environment did from the beginning of a rollout on.

    Args:
        run: ``Run``.
        env: Number of the environment in this process.
        begun: Its steps since the run began.
        state: (1,) ``struct State`` before the first step.
        clock: (1,) then.
        obs: By group: (C, D) then.
        steps: ``Step``s.
    """

    run: object
    env: int
    begun: int
    state: np.ndarray
    clock: np.ndarray
    obs: dict
    steps: list = field(default_factory=list)

    @classmethod
    def begin(cls, run, env, begun):
        """Return the trace of an environment as it is, where no step of the rollout has been taken yet."""
        obs = {g: host(rows[0][env]) for g, rows in run.rollout.obs.items()}
        return cls(run, env, begun, *now(run.batch, env), obs)

    def take(self, t):
        """Let all environments take step ``t`` of the rollout, and note what this one does."""
        rollout, env, batch = self.run.rollout, self.env, self.run.batch
        state, clock = now(batch, env)
        rollout.act(t)
        action = {name: host(rows[t][env]) for name, rows in rollout.action.items()}
        rollout.step(t)
        over = bool(rollout.terminated[t][env] | rollout.truncated[t][env])
        after, _ = now(batch, env)
        self.steps.append(
            Step(
                state,
                clock,
                action,
                {name: policy_rows(self.run, name, t, env) for name in action},
                after,
                {name: host(rows[t][env]) for name, rows in rollout.reward.items()},
                {name: host(rows[t + 1][env]) for name, rows in rollout.obs.items()},
                {name: host(rows[t][env]) for name, rows in rollout.final_obs.items()} if over else {},
                over,
            )
        )

    def numbers(self):
        """Return the ``Number``s that are not finite, as they were made.

        Members of ``State`` may hold infinity for reasons of their own: they count from where they last became so, of those
        that are not finite in the end.
        """
        found = self._state_numbers()
        for name, obs in self.obs.items():
            found += unsound("obs", name, 0, obs)
        for row, step in enumerate(self.steps, 1):
            for name, rows in step.policy.items():
                for kind in rows:
                    found += unsound(kind, name, row, rows[kind])
            for kind in ("action", "reward", "final_obs", "obs"):
                for name, values in getattr(step, kind).items():
                    found += unsound(kind, name, row, values)
        return sorted(found, key=Number.order)

    def _state_numbers(self):
        states, found = [self.state, *(step.after for step in self.steps)], []
        if (
            self.steps
            and self.steps[-1].over
            and not any(unsound_member(states[-1], k) for k in states[-1].dtype.names)
        ):
            states.pop()  # the next episode's
        for name in self.state.dtype.names:
            row = len(states)
            while row > 0 and unsound_member(states[row - 1], name):
                row -= 1
            if row < len(states):
                found += unsound("state", name, row, states[row][name][0])
        return found

    def reference(self, number):
        """Return what the NumPy reference has for a number, and None; or None and in words why there is nothing."""
        if number.kind not in ("state", "reward", "obs", "final_obs"):
            return None, "the environment has nothing to do with it"
        batch, spec = self.run.batch, self.run.spec
        seed, env = int(batch.executor.get(batch.seed)[0]), batch.first_env + self.env
        if number.row > 0:
            step = self.steps[number.row - 1]
            action = {name: values[None] for name, values in step.action.items()}
            taken = TakenStep(seed, env, step.state, step.clock, action, step.after, step.over)
        elif self.clock["elapsed"][0] == 0:
            taken = after_reset(seed, env, self.state, self.clock)
        else:
            return None, "it was there before what could be replayed"
        return reference_number(spec, self.run.params, taken, number.kind, number.name, number.index)


def now(batch, env):
    """Return (1,) state and (1,) clock of one environment."""
    get = batch.executor.get
    pairs = (batch.state, batch.state_dtype), (batch.clock, CLOCK)
    return tuple(batch.as_records(get(array[env : env + 1]), dtype) for array, dtype in pairs)


def host(tensor):
    """Return a NumPy copy of a tensor."""
    return tensor.detach().cpu().numpy().copy()


def policy_rows(run, name, t, env):
    """Return what a group's learner has stored of its policy's outputs for one row, by kind."""
    learner = run.rollout.player_of[name]
    stored = getattr(getattr(learner, "inner", learner), "stored", {}).get(name, {})
    return {kind: host(stored[kind][t][env]) for kind in POLICY_ROWS if kind in stored}


def unsound_member(state, name):
    """Return whether a member of (1,) ``struct State`` has a number that is not finite."""
    return state[name].dtype.kind == "f" and not np.isfinite(state[name]).all()


def unsound(kind, name, row, values):
    """Return the first ``Number`` of an array that is not finite, in a list; or an empty one."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return []
    index = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
    return [Number(kind, name, row, index, float(np.asarray(values)[index]))]
