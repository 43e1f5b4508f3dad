"""Explanation of a non-finite number in training: the first one, its place, and what led there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cupydrive.inputs.arguments import shown
from cupydrive.spec import kept_params
from cupydrive.training.gradient_steps import GradientStep, gradient_table
from cupydrive.training.trace import Number, Step, Trace

if TYPE_CHECKING:
    from cupydrive.playing.rollout import Place
    from cupydrive.training.run import Run

SHOWN_STEPS = 8  # of an environment
SHOWN_NUMBERS = 8  # of an array; of a longer one, the agent's row
FIRST = "First non-finite number:"
NOT_REPEATED = (
    "A replay met no non-finite number: the failure depends on more than the settings and the seed of the run"
)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why training failed. ``print`` shows all of it. Attributes that do not apply are None or empty.

    Args:
        line: The first non-finite number and its place, in one line.
        text: All lines.
        env_steps: Env-steps of the run when the iteration began that met the number.
        field: ``"state.NAME"`` of a member of ``struct State``; ``"reward.GROUP"``, ``"obs.GROUP"``, ``"final_obs.GROUP"``,
            ``"action.GROUP"``, ``"value.GROUP"``, ``"log_prob.GROUP"``, ``"advantage.GROUP"``, ``"returns.GROUP"``;
            ``"weight.NAME"`` and ``"gradient.NAME"`` of a network's tensor; ``"loss"`` or ``"grad_norm"``. None: the replay met
            no such number.
        value: The number; None if a learner reports only that there was one.
        environment: Index of the environment among all.
        agent: Index of the agent in its group, except for members of ``State``.
        index: Indices of a member of ``State``; of a group, agent and entry.
        step: Steps of the environment since the run began, after which the number was there.
        policy: Name of the policy that learnt.
        gradient_step: Number of the gradient step in the iteration, from 1 on.
        reference: Number that the NumPy reference computes from the same state and actions. None if there is none.
        trace: ``Step``s of the environment up to there, from the iteration before on; only in the process that steps it.
        gradient_steps: ``GradientStep``s of the policy, of the iteration and the one before.
    """

    line: str
    text: str
    env_steps: int
    field: str | None = None
    value: float | None = None
    environment: int | None = None
    agent: int | None = None
    index: Sequence[int] = ()
    step: int | None = None
    policy: str | None = None
    gradient_step: int | None = None
    reference: float | None = None
    trace: Sequence[Step] = ()
    gradient_steps: Sequence[GradientStep] = ()

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def environment_explanation(run: Run, env_steps: int, trace: Trace) -> Explanation:
    """Explain a number that an environment computed or was given.

    Args:
        run: ``Run`` that repeats the failed one.
        env_steps: Env-steps when the iteration began.
        trace: Steps of the environment up to the number.
    """
    if (first := trace.first()) is None:
        return no_explanation(run, env_steps)
    reference, reason = trace.reference(first)
    environment, step = run.batch.first_env + trace.env, trace.begun + first.row
    field, index = f"{first.kind}.{first.name}", "".join(f"[{i}]" for i in first.index)
    line = f"{FIRST} {field}{index} = {first.value:.6g} in environment {environment} after step {step:,}"
    compared = f"No NumPy reference: {reason}"
    if reference is not None:
        compared = f"The NumPy reference gives {reference:.6g}"
    agent, steps = None if first.kind == "state" else first.index[0], trace.steps[: first.row]
    about: dict[str, Any] = {"environment": environment, "step": step, "agent": agent}
    about |= {"index": first.index, "reference": reference, "trace": steps}
    text = text_of(run, line, [f"{compared}.", *step_lines(trace, first)])
    return Explanation(f"{line}. {compared}", text, env_steps, field, first.value, **about)


def learning_explanation(
    run: Run,
    env_steps: int,
    policy: str,
    gradient_steps: Sequence[GradientStep],
    field: str,
    value: float | None,
    place: Place | None = None,
    number: int | None = None,
) -> Explanation:
    """Explain a number that learning computed, or a policy.

    Args:
        run: ``Run`` that repeats the failed one.
        env_steps: Env-steps when the iteration began.
        policy: Name of the policy.
        gradient_steps: Its gradient steps in that iteration and the one before.
        field: Field of ``Explanation``.
        value: The number.
        place: Place of a row that the policy computed; its step counts from the beginning of the iteration.
        number: Number of the gradient step.
    """
    label = field if value is None else f"{field} = {value:.6g}"
    line = f"{FIRST} {label} of policy {policy!r} in "
    about: dict[str, Any] = {"gradient_step": number, "gradient_steps": gradient_steps}
    if place is not None:
        env, step = run.batch.first_env + place.env, env_steps // run.num_envs + place.step
        about |= {"environment": env, "agent": place.agent, "index": (place.agent,), "step": step}
        line += f"environment {env}, agent {place.agent}, after step {step:,}"
    else:
        line += "" if number is None else f"gradient step {number} of "
        line += f"the iteration after env-step {env_steps:,}"
    details = [f"Policy {policy!r} is {run.settings[policy]}.", *gradient_table(gradient_steps)]
    text = text_of(run, line, details)
    return Explanation(line, text, env_steps, field, value, policy=policy, **about)


def no_explanation(run: Run, env_steps: int) -> Explanation:
    """Explain that the replay of a run that failed by ``env_steps`` met no non-finite number."""
    return Explanation(NOT_REPEATED, text_of(run, NOT_REPEATED, []), env_steps)


# ---- text ----


def text_of(run: Run, line: str, details: Sequence[str]) -> str:
    """Return all lines: the first non-finite number, what led there, and the environment's parameters."""
    own = kept_params(run.params)
    params = ", ".join(f"{name} = {shown(own[name])}" for name in own)
    return "\n".join([f"{run.spec.name}: {line}.", *details, f"Parameters: {params}."])


def step_lines(trace: Trace, first: Number) -> list[str]:
    """Return lines about the last steps of an environment up to a number; of long arrays, the agent's row."""
    steps = trace.steps[: first.row]
    if not steps:
        return []
    row = first.index[0] if first.index else None

    def members(state: np.ndarray) -> str:
        names = state.dtype.names or ()
        return ", ".join(f"{name}{numbers(state[name][0], row)}" for name in names)

    def by_group(arrays: Mapping[str, np.ndarray]) -> str:
        return ", ".join(f"{name}{numbers(values, row)}" for name, values in arrays.items())

    lines = ["Steps before it:"]
    for number, step in list(enumerate(steps, trace.begun + 1))[-SHOWN_STEPS:]:
        lines.append(f"  state: {members(step.state)}")
        actions, rewards = by_group(step.action), by_group(step.reward)
        lines.append(f"  step {number:,}: actions {actions}; rewards {rewards}")
    ended = " of the next episode" if steps[-1].over else ""
    return [*lines, f"  state{ended}: {members(steps[-1].after)}"]


def numbers(values: np.ndarray, row: int | None = None) -> str:
    """Return `` = ...``, the numbers of an array; of a long one, those of one row, or the outer ones."""
    values, place = np.asarray(values), ""
    if values.size > SHOWN_NUMBERS and row is not None and row < len(values):
        values, place = values[row], f"[{row}]"
    with np.printoptions(precision=6, threshold=SHOWN_NUMBERS, linewidth=10_000):
        return f"{place} = {np.array2string(values, separator=', ')}"
