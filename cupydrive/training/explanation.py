"""Explanation: what the first number was that is not finite, what led there, and whether the NumPy reference does the same."""

import math
from dataclasses import dataclass

import numpy as np

from cupydrive.spec import kept_params
from cupydrive.training.gradient_steps import gradient_table, largest, last_steps, tensor_lines

EXPLANATION_FILE = "explanation.txt"  # beside the checkpoints of a run folder
SHOWN_STEPS = 8  # of an environment
SHOWN_ROWS = 5  # of metrics
SHOWN_NUMBERS = 8  # of one member of the state, or of one group's actions
TOLD = (  # to other processes
    "field", "words", "value", "environment", "group", "agent", "step", "episode_step", "policy", "gradient_step", "reference",
    "same", "no_reference",
)  # fmt: skip
LOSSES = "losses/"  # how names of metrics of learning begin
FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why a run's training failed: ``print`` shows all of it, ``line`` is the shortest.

    What does not apply is None or empty.

    Args:
        env: Name of the environment.
        params: Its parameters by name.
        env_steps: Of the run, when the iteration began in which the number was met.
        field: The first number that is not finite: ``"state.NAME"`` of a member of ``struct State``, ``"reward.GROUP"``,
            ``"obs.GROUP"``, ``"final_obs.GROUP"``, ``"action.GROUP"``, ``"value.GROUP"``, ``"log_prob.GROUP"``,
            ``"advantage.GROUP"``, ``"returns.GROUP"``, ``"weight.NAME"`` and ``"gradient.NAME"`` of a network's tensor,
            ``"loss"`` or ``"grad_norm"``. None: the replay met none.
        words: The same in words.
        value: That number; None where a learner says only that there was one.
        environment: Its number among all environments.
        group: Name of the agent's group.
        agent: Of its group.
        index: Where the number is: indices of a member of ``State``, of a group agent and entry.
        step: Steps of the environment since the run began, after which the number was there.
        episode_step: Steps of its episode.
        policy: Which one learnt.
        gradient_step: In which gradient step of the iteration, from 1 on.
        reference: The number that the NumPy reference has in that place after a step from the same state with the same actions.
        same: Whether that is not finite either, in float32. None: there is no such number.
        no_reference: Why, in words.
        followed: What else was not finite in that environment, in words.
        trace: ``Step``s of the environment up to there, from the beginning of the iteration before on.
        gradient_steps: ``GradientStep``s of that policy, of the iteration and the one before it.
        metrics: Rows of metrics logged before.
        notes: Further lines.
        told: Where another process has found it: its line and its text. What it has as arrays, ``trace`` and
            ``gradient_steps``, is there alone.
    """

    env: str
    params: dict
    env_steps: int
    field: str | None
    words: str
    value: float | None = None
    environment: int | None = None
    group: str | None = None
    agent: int | None = None
    index: tuple = ()
    step: int | None = None
    episode_step: int | None = None
    policy: str | None = None
    gradient_step: int | None = None
    reference: float | None = None
    same: bool | None = None
    no_reference: str | None = None
    followed: tuple = ()
    trace: tuple = ()
    gradient_steps: tuple = ()
    metrics: tuple = ()
    notes: tuple = ()
    told: tuple = ()

    # ---- how it is made ----

    @classmethod
    def of_environment(cls, run, env_steps, trace, unsound_weights):
        """Return that of a number in an environment, or of what an environment was given.

        Args:
            run: ``Run``.
            env_steps: When the iteration began.
            trace: ``Trace``.
            unsound_weights: By policy the name of a weight that was not finite then.
        """
        numbers = trace.numbers()
        if not numbers:
            return cls.of_nothing(run, run.failed)
        agents, begun = sum(g.count for g in run.batch.groups), trace.begun
        first, *others = numbers
        value, why_not = trace.reference(first)
        clock = trace.steps[first.row - 1].clock if first.row else trace.clock
        group, agent = agent_of(run, first, agents)
        return cls(
            **about(run, env_steps),
            field=f"{first.kind}.{first.name}",
            words=first.words(agents),
            value=first.value,
            environment=run.batch.first_env + trace.env,
            group=group,
            agent=agent,
            index=first.index,
            step=begun + first.row,
            episode_step=int(clock["elapsed"][0]) + (first.row > 0),
            reference=value,
            same=None if value is None else not abs(value) <= FLOAT32,
            no_reference=why_not,
            followed=tuple(f"after step {begun + n.row:,} {n.words(agents)} is {n.value}" for n in others),
            trace=tuple(trace.steps[: first.row]),
            notes=tuple(
                f"weight {weight} of policy {name!r} was not finite" for name, weight in unsound_weights.items()
            ),
        )

    @classmethod
    def of_learning(cls, run, env_steps, policy, gradient_steps, field, value, place=None, number=None):
        """Return that of a number in learning, or of what a policy gave.

        Args:
            run: ``Run``.
            env_steps: When the iteration began.
            policy: Name of the policy.
            gradient_steps: ``GradientStep``s.
            field: As above.
            value: The number.
            place: ``Place`` of a policy's row; its step is of this iteration.
            number: Of the gradient step.
        """
        notes, where = [f"policy {policy!r} is {run.settings[policy]}"], {}
        if place is not None:
            row = run.rollout.obs[place.name][place.step][place.env, place.agent]
            where = {"environment": run.batch.first_env + place.env, "group": place.name, "agent": place.agent}
            where |= {"index": (place.agent,), "step": env_steps // run.num_envs + place.step}
            notes.append(f"the observation there is finite; the largest of its entries is {float(row.abs().max()):.4g}")
        return cls(
            **about(run, env_steps),
            field=field,
            words=learnt_words(field, policy),
            value=value,
            policy=policy,
            gradient_step=number,
            gradient_steps=tuple(gradient_steps),
            notes=tuple(notes),
            **where,
        )

    @classmethod
    def of_nothing(cls, run, failed):
        """Return that of a failure which did not come again."""
        note = (
            "replayed from before it, the run meets no such number; so it depends on what no copy of a run holds: a policy or "
            "an environment in Python with a memory of its own, or operations of torch that give other bits each time"
        )
        return cls(**about(run, failed.until), field=None, words=failed.words, notes=(note,))

    @classmethod
    def of_another(cls, run, env_steps, said):
        """Return that of another process, from what its ``told_to_others`` returned."""
        return cls(**about(run, env_steps), **{k: tuple(v) if isinstance(v, list) else v for k, v in said.items()})

    def told_to_others(self):
        """Return it for JSON, without arrays."""
        told = {name: getattr(self, name) for name in TOLD}
        return {**told, "index": [int(i) for i in self.index], "told": [self.line, str(self)]}

    # ---- how it reads ----

    @property
    def line(self):
        """The shortest: what was first, where, and whether the reference does the same."""
        if self.told:
            return self.told[0]
        if self.field is None:
            return capital(self.notes[0])
        if self.value is None:
            return (
                f"The rollout after env-step {self.env_steps:,} was finite, and what policy {self.policy!r} learnt from it was "
                "not; its learner takes gradient steps of its own, which nobody sees"
            )
        line = f"First of all, {self.words}{self._place()} is {self.value:.6g}"
        return f"{line}; {self._compared()}" if self.same is not None else line + self._growth()

    def _place(self):
        found = "" if self.environment is None else f" in environment {self.environment}"
        found += "" if self.step is None else f" after its step {self.step:,}"
        if self.gradient_step is None:
            return found
        when = "before" if self.field.startswith("weight.") else "in"
        return f"{found} {when} gradient step {self.gradient_step} of the iteration after env-step {self.env_steps:,}"

    def _growth(self):
        """Return how the largest weight changed in the gradient step before the number was met, in words."""
        steps = last_steps(self.gradient_steps)
        if len(steps) < 2:
            return ""
        before, after = (largest(step.weights) for step in steps[-2:])
        return f"; the gradient step before has taken the largest weight from {before:.4g} to {after:.4g}"

    def _compared(self):
        if not self.same:
            return f"the NumPy reference gives {self.reference:.6g} there"
        if math.isfinite(self.reference):
            return f"the NumPy reference gives {self.reference:.6g}, too large for float32"
        return "the NumPy reference does the same"

    def __str__(self):
        """Return all of it, as lines: first where, by which action, what the reference has and what to do; then details."""
        if self.told:
            return self.told[1]
        head = [f"{self.env}: {self.line}.", *self._acted(), *self._reference(), *self._to_do()]
        lines = [f"Then, {words}." for words in self.followed]
        lines += [f"{capital(note)}." for note in self.notes if self.field is not None]
        if self.trace:
            lines += ["", "What led there:", *self._traced()]
        if self.gradient_steps:
            shown = last_steps(self.gradient_steps)
            lines += ["", "Gradient steps, with the largest numbers of gradients and, before the step, of weights:"]
            lines += [
                *gradient_table(shown),
                "Each tensor in the last of them, with the largest of gradient and weight:",
            ]
            lines += tensor_lines(shown[-1])
        logged = [metrics_line(row) for row in self.metrics if any(name.startswith(LOSSES) for name in row)]
        if logged and not self.trace:
            lines += ["", "Logged before:", *logged]
        params = ", ".join(f"{name} = {short(value)}" for name, value in self.params.items())
        details = "\n".join([*lines, "", f"Parameters: {params}."]).lstrip("\n")
        return "\n".join([*head, "", details])

    __repr__ = __str__

    def _acted(self):
        """Return the line about the actions that led there, of an environment."""
        if self.episode_step is None:
            return []
        if not self.trace:
            return ["Actions: none; it was there after the reset."]
        return [f"Actions: {self._groups(self.trace[-1].action)}, in step {self.episode_step:,} of the episode."]

    def _reference(self):
        """Return the line about the reference, of an environment."""
        if self.same is not None:
            return [f"Reference: from the same state with the same actions, {self._compared()}."]
        return [f"Reference: not compared; {self.no_reference}."] if self.no_reference else []

    def _to_do(self):
        """Return the line that says what to do."""
        kind, _, name = (self.field or "").partition(".")
        if self.field is None or self.value is None:
            return []
        if kind in ("state", "reward", "obs", "final_obs"):
            if self.same:
                advice = f"the rule itself gives this number: guard what writes {self.field}, in kernel and reference"
            elif self.same is False:
                advice = (
                    f"kernel and reference differ: compare what writes {self.field} in both; `cupydrive check` does so"
                )
            else:
                advice = (
                    f"look at what the kernel writes into {self.field}: a root or logarithm of what may be negative, a "
                    "division by what may be 0; guard it"
                )
        elif kind in ("value", "log_prob", "action"):
            advice = f"look at the network of {name!r}: what it was given is finite, unless a line below says otherwise"
        else:
            steps = last_steps(self.gradient_steps)
            rate = f" (it was {steps[-1].learning_rate:.3g})" if steps else ""
            advice = f"lower learning_rate{rate}; where rewards or observations are large, "
            advice += "normalize_reward=True, normalize_obs=True"
        return [f"What to do: {advice}."]

    def _traced(self):
        """Return lines about the last steps of the environment."""
        first, lines = self.step - len(self.trace), []
        for number, step in list(enumerate(self.trace, first + 1))[-SHOWN_STEPS:]:
            lines.append(f"  before step {number:,}: {self._members(step.state)}")
            lines.append(f"  step {number:,}: actions {self._groups(step.action)}; rewards {self._groups(step.reward)}")
        last = self.trace[-1]
        ended = " (the episode has ended: of the next one)" if last.over else ""
        return [*lines, f"  after it{ended}: {self._members(last.after)}"]

    def _members(self, state):
        """Return the members of (1,) ``struct State`` in words; of long ones, the row of the agent."""
        row = self.index[0] if self.field.startswith("state.") and self.index else None
        return ", ".join(f"{name}{array(state[name][0], row)}" for name in state.dtype.names)

    def _groups(self, arrays):
        """Return arrays by group in words; of long ones, the row of the agent."""
        rows = {name: self.agent if name == self.group else None for name in arrays}
        words = {name: array(values, rows[name]) for name, values in arrays.items()}
        return ", ".join(f"of {name}{words}" for name, words in words.items())


def about(run, env_steps):
    """Return what every explanation says of a run."""
    rows = tuple(row for row in run.metrics if row["charts/global_step"] <= env_steps)[-SHOWN_ROWS:]
    return {"env": run.spec.name, "params": kept_params(run.params), "env_steps": env_steps, "metrics": rows}


def agent_of(run, number, agents):
    """Return the group's name and the agent in it that a ``Number`` belongs to; None and None if to none.

    Args:
        run: ``Run``.
        number: ``Number``.
        agents: Of all groups.
    """
    if number.kind != "state":
        return number.name, number.index[0]
    if not number.index or run.batch.state_dtype[number.name].shape[0] != agents:
        return (run.batch.groups[0].name, 0) if agents == 1 else (None, None)
    agent = number.index[0]
    for g in run.batch.groups:
        if agent < g.count:
            return g.name, agent
        agent -= g.count
    return None, None


def learnt_words(field, policy):
    """Return what a number in learning is."""
    kind, _, name = field.partition(".")
    if kind in ("weight", "gradient"):
        return f"{'weight' if kind == 'weight' else 'the gradient of'} {name} of policy {policy!r}"
    if kind == "grad_norm":
        return f"the norm of the gradients of policy {policy!r}"
    return f"the {kind} of {name!r}" if name else f"the {kind} of policy {policy!r}"


# ---- numbers in words ----


def capital(words):
    """Return words with a capital."""
    return words[:1].upper() + words[1:]


def short(value):
    """Return a value as few words."""
    if isinstance(value, list | tuple):
        return f"{len(value)} numbers" if len(value) > SHOWN_NUMBERS else str(list(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def array(values, row=None):
    """Return `` = ...``, the numbers of an array; of a long one those of one row, or the first."""
    values, place = np.asarray(values), ""
    if values.size > SHOWN_NUMBERS and row is not None and row < len(values):
        values, place = values[row], f"[{row}]"
    numbers = [f"{number:.6g}" for number in values.reshape(-1)[:SHOWN_NUMBERS].tolist()]
    more = [f"... {values.size - SHOWN_NUMBERS} more"] * (values.size > SHOWN_NUMBERS)
    return f"{place} {numbers[0]}" if values.size == 1 else f"{place} [{', '.join([*numbers, *more])}]"


def metrics_line(row):
    """Return a line about the losses in a row of metrics."""
    losses = [(name.removeprefix(LOSSES), value) for name, value in row.items() if name.startswith(LOSSES)]
    return f"  {row['charts/global_step']:,} env-steps: {', '.join(f'{name} {value:.4g}' for name, value in losses)}"
