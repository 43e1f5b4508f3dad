"""Explanation: what the first number was that is not finite, what led there, and whether the NumPy reference does the same."""

import math
from dataclasses import dataclass, field

import numpy as np

from cupydrive.spec import kept_params
from cupydrive.training.gradient_steps import largest

EXPLANATION_FILE = "explanation.txt"  # beside the checkpoints of a run folder
SHOWN_STEPS = 8  # of an environment, and gradient steps
SHOWN_ROWS = 5  # of metrics
SHOWN_TENSORS = 16  # of networks
SHOWN_NUMBERS = 8  # of one member of the state, or of one group's actions
LOSSES = "losses/"  # how names of metrics of learning begin
FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why a run's training failed; ``print`` shows all of it, ``line`` is the shortest.

    Of what does not apply an attribute is None or empty.

    Args:
        env: Name of the environment.
        params: Its parameters by name.
        env_steps: Of the run, when the iteration began in which the number was met.
        field: The first number that is not finite: ``"state.NAME"`` of a member of ``struct State``, ``"reward.GROUP"``,
            ``"obs.GROUP"``, ``"final_obs.GROUP"``, ``"action.GROUP"``, ``"value.GROUP"``, ``"log_prob.GROUP"``,
            ``"advantage.GROUP"``, ``"returns.GROUP"``, ``"weight.NAME"`` and ``"gradient.NAME"`` of a network's tensor,
            ``"loss"`` or ``"grad_norm"``. None: the replay met none.
        words: The same in words.
        value: That number.
        environment: Its number among all environments.
        agent: Of its group, or of all where the state has a row for each agent.
        index: Where the number is: indices of a member of ``State``, of a group agent and entry.
        step: Steps of the environment since the run began, after which the number was there.
        episode_step: Steps of its episode.
        policy: Which one learnt.
        gradient_step: In which gradient step of the iteration, from 1 on.
        reference: The number that the NumPy reference has in that place after a step from the same state with the same actions.
        same: Whether that is not finite either, in float32. None: there is no such number.
        no_reference: Why, in words.
        followed: What else was not finite in that environment, in words.
        trace: ``Step``s of the environment from the iteration's beginning on.
        gradient_steps: ``GradientStep``s of that policy, of the iteration and the one before it.
        metrics: Rows of metrics logged before.
        notes: Further lines.
    """

    env: str
    params: dict
    env_steps: int
    field: str | None
    words: str
    value: float | None = None
    environment: int | None = None
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
    notes: tuple = field(default=())

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
        agents = sum(g.count for g in run.batch.groups)
        first, begun = numbers[0], env_steps // run.num_envs
        value, why_not = trace.reference(first)
        clock = trace.steps[first.row - 1].clock if first.row else trace.clock
        followed = [f"after step {begun + n.row:,}: {n.words(agents)} is {n.value}" for n in numbers[1:]]
        notes = [f"weight {weight} of policy {name!r} is not finite" for name, weight in unsound_weights.items()]
        per_agent = first.kind != "state" or run_has_rows(run, first.name, agents)
        return cls(
            **about(run, env_steps),
            field=f"{first.kind}.{first.name}",
            words=first.words(agents),
            value=first.value,
            environment=run.batch.first_env + trace.env,
            agent=first.index[0] if per_agent and first.index else None,
            index=first.index,
            step=begun + first.row,
            episode_step=int(clock["elapsed"][0]) + (first.row > 0),
            reference=value,
            same=None if value is None else not abs(value) <= FLOAT32,
            no_reference=why_not,
            followed=tuple(followed),
            trace=tuple(trace.steps[: first.row]),
            notes=tuple(notes),
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
            place: ``Place`` of a policy's row.
            number: Of the gradient step.
        """
        words, where = learnt_words(field, policy), {"notes": (f"Policy {policy!r} is {run.settings[policy]}",)}
        if place is not None:
            group, env = place.name, place.env
            row = run.rollout.obs[group][place.step][env, place.agent]
            where = {"environment": run.batch.first_env + env, "agent": place.agent, "index": (place.agent,)}
            where |= {"step": env_steps // run.num_envs + place.step}
            seen = f"The observation there is finite; the largest of its entries is {float(row.abs().max()):.4g}"
            where["notes"] += (seen,)
        return cls(
            **about(run, env_steps),
            field=field,
            words=words,
            value=value,
            policy=policy,
            gradient_step=number,
            gradient_steps=tuple(gradient_steps),
            **where,
        )

    @classmethod
    def of_nothing(cls, run, failed):
        """Return that of a failure which did not come again."""
        note = (
            "Replayed from before it, the run meets no such number. So it depends on what no copy of a run holds: a policy or "
            "an environment in Python with a memory of its own, or operations of torch that give other bits each time"
        )
        return cls(**about(run, failed.until), field=None, words=failed.words, notes=(note,))

    # ---- how it reads ----

    @property
    def line(self):
        """The shortest: what was first, where, and whether the reference does the same."""
        if self.field is None:
            return self.notes[0]
        line = f"First of all, {self.words}{self._place()} is {self.value:.6g}"
        if self.same is not None:
            return f"{line}; {self._compared()}"
        return line + self._growth()

    def _growth(self):
        """Return how the largest weight changed in the gradient step before the number was met, in words."""
        steps = self.shown_gradient_steps()
        if len(steps) < 2:
            return ""
        before, after = (largest(step.weights) for step in steps[-2:])
        return f"; the gradient step before has taken the largest weight from {before:.4g} to {after:.4g}"

    def _place(self):
        found = "" if self.environment is None else f" in environment {self.environment}"
        if self.step is not None:
            found += (
                f" after its step {self.step:,}" if self.trace or not self.gradient_steps else f" in step {self.step:,}"
            )
        if self.gradient_step is not None:
            when = "before" if self.field.startswith("weight.") else "in"
            found += f" {when} gradient step {self.gradient_step} of the iteration after env-step {self.env_steps:,}"
        return found

    def _compared(self):
        if not self.same:
            return f"the NumPy reference gives {self.reference:.6g} there"
        if math.isfinite(self.reference):
            return f"the NumPy reference gives {self.reference:.6g}, too large for float32"
        return "the NumPy reference does the same"

    def __str__(self):
        """Return all of it, as lines."""
        lines = [f"{self.env}: {self.line}."]
        if self.episode_step is not None:
            lines.append(f"That is step {self.episode_step:,} of the episode.")
        lines += [f"Then, {words}." for words in self.followed]
        lines += [f"{note}." for note in self.notes if note != self.line]
        if self.trace:
            lines += ["", "What led there, and then one step of the NumPy reference:"]
            lines += self._traced()
        if self.no_reference:
            lines.append(f"No comparison with the NumPy reference: {self.no_reference}.")
        if self.gradient_steps:
            shown = self.shown_gradient_steps()
            lines += ["", "Gradient steps: the largest numbers of gradients and, before the step, of weights:"]
            lines += gradient_table(shown)
            lines += ["Tensors in the last of these, gradient and weight:"]
            lines += [
                f"  {name}: {size:.4g}, {shown[-1].weights[name]:.4g}" for name, size in shown[-1].gradients.items()
            ]
        logged = [metrics_line(row) for row in self.metrics if any(name.startswith(LOSSES) for name in row)]
        if logged and not self.trace:
            lines += ["", "Logged before:", *logged]
        params = ", ".join(f"{name} = {short(value)}" for name, value in self.params.items())
        return "\n".join([*lines, "", f"Parameters: {params}."])

    __repr__ = __str__

    def shown_gradient_steps(self):
        """Return the last gradient steps up to the first number that is not finite, or the last of all."""
        steps = list(self.gradient_steps)
        bad = [k for k, step in enumerate(steps) if step.first() is not None]
        end = bad[0] + 1 if bad else len(steps)
        return steps[max(0, end - SHOWN_STEPS) : end]

    def _traced(self):
        """Return lines about the last steps of the environment."""
        first, lines = self.step - len(self.trace), []
        for number, step in list(enumerate(self.trace, first + 1))[-SHOWN_STEPS:]:
            lines.append(f"  before step {number:,}: {members(step.state)}")
            lines.append(f"  step {number:,}: actions {groups(step.action)}; rewards {groups(step.reward)}")
        last = self.trace[-1]
        ended = " (the episode has ended: the next one's)" if last.over else ""
        lines.append(f"  after it{ended}: {members(last.after)}")
        if self.same is not None:
            lines.append(f"  {self._compared()}.")
        return lines


def about(run, env_steps):
    """Return what every explanation says of a run."""
    rows = tuple(row for row in run.metrics if row["charts/global_step"] <= env_steps)[-SHOWN_ROWS:]
    return {"env": run.spec.name, "params": kept_params(run.params), "env_steps": env_steps, "metrics": rows}


def run_has_rows(run, name, agents):
    """Return whether a member of ``State`` has a row for each agent."""
    return run.batch.state_dtype[name].shape[:1] == (agents,)


def learnt_words(field, policy):
    """Return what a number in learning is."""
    kind, _, name = field.partition(".")
    if kind in ("weight", "gradient"):
        return f"{'weight' if kind == 'weight' else 'the gradient of'} {name} of policy {policy!r}"
    if kind == "grad_norm":
        return f"the norm of the gradients of policy {policy!r}"
    return f"the {kind.replace('_', ' ')} of {name!r}" if name else f"the {kind} of policy {policy!r}"


# ---- numbers in words ----


def short(value):
    """Return a value as few words."""
    if isinstance(value, list | tuple):
        return f"{len(value)} numbers" if len(value) > SHOWN_NUMBERS else str(list(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def array(values):
    """Return the first numbers of an array."""
    flat = np.asarray(values).reshape(-1)
    words = ", ".join(f"{number:.6g}" for number in flat[:SHOWN_NUMBERS].tolist())
    if flat.size == 1:
        return words
    return f"[{words}{f', ... {flat.size - SHOWN_NUMBERS} more' * (flat.size > SHOWN_NUMBERS)}]"


def members(state):
    """Return the members of (1,) ``struct State``."""
    return ", ".join(f"{name} {array(state[name][0])}" for name in state.dtype.names)


def groups(arrays):
    """Return arrays by group."""
    return (
        array(next(iter(arrays.values())))
        if len(arrays) == 1
        else ", ".join(f"{g} {array(a)}" for g, a in arrays.items())
    )


def gradient_table(steps):
    """Return lines about ``GradientStep``s, one below the other."""
    names = ["after env-step", "step", "learning_rate", "loss", *steps[-1].reported, "gradient", "weight"]
    rows = [names]
    for step in steps:
        largest_ones = largest(step.gradients), largest(step.weights)
        numbers = step.learning_rate, step.loss, *step.reported.values(), *largest_ones
        rows.append([f"{step.env_steps:,}", str(step.number), *(f"{number:.4g}" for number in numbers)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True)) for row in rows]


def tensor_lines(step):
    """Return a line about each tensor of a ``GradientStep``; of many, about those whose gradient is the largest."""
    order = sorted(
        step.gradients, key=lambda name: -step.gradients[name] if math.isfinite(step.gradients[name]) else -math.inf
    )
    shown = [name for name in step.gradients if name in order[:SHOWN_TENSORS]]
    lines = [f"  {name}: {step.gradients[name]:.4g}, {step.weights.get(name, math.nan):.4g}" for name in shown]
    return [*lines, f"  and {len(order) - len(shown)} more"] if len(shown) < len(order) else lines


def metrics_line(row):
    """Return a line about a row of metrics."""
    words = ", ".join(
        f"{name.removeprefix(LOSSES)} {value:.4g}" for name, value in row.items() if name.startswith(LOSSES)
    )
    return f"  {row['charts/global_step']:,} env-steps: {words}"
