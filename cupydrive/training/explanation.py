"""Explanation of a non-finite number in training: what came first, where, what led there, and the NumPy reference's result."""

import math
from dataclasses import dataclass

import numpy as np

from cupydrive.playing.rollout import Place
from cupydrive.spec import kept_params
from cupydrive.training.gradient_steps import GradientStep, gradient_table
from cupydrive.training.trace import Number, Trace

SHOWN_STEPS = 8  # of an environment
SHOWN_NUMBERS = 8  # of one member of the state, or of one group's actions
FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why training failed: ``print`` shows all of it, ``line`` is one sentence. What does not apply is None or empty.

    Args:
        line: The first non-finite number, and its place.
        text: All lines.
        env_steps: Env-steps of the run when the iteration began that met the number.
        field: ``"state.NAME"`` of a member of ``struct State``; ``"reward.GROUP"``, ``"obs.GROUP"``, ``"final_obs.GROUP"``,
            ``"action.GROUP"``, ``"value.GROUP"``, ``"log_prob.GROUP"``, ``"advantage.GROUP"``, ``"returns.GROUP"``;
            ``"weight.NAME"`` and ``"gradient.NAME"`` of a network's tensor; ``"loss"`` or ``"grad_norm"``. None: the replay met
            no such number.
        value: The number; None if a learner reports only that there was one.
        environment: Index of the environment among all.
        group: Name of the agent's group.
        agent: Index in the group.
        index: Indices of a member of ``State``; of a group, agent and entry.
        step: Steps of the environment since the run began, after which the number was there.
        episode_step: Steps of its episode.
        policy: Name of the policy that learnt.
        gradient_step: Number of the gradient step in the iteration, from 1 on.
        reference: The NumPy reference's result, after a step from the same state with the same actions.
        same: Whether that is not finite in float32 either. None: there is no such result.
        no_reference: The reason why.
        trace: ``Step``s of the environment up to there, from the iteration before on; only in the process that has it.
        gradient_steps: ``GradientStep``s of the policy, of the iteration and the one before; likewise.
    """

    line: str
    text: str
    env_steps: int
    field: str | None = None
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
    trace: tuple = ()
    gradient_steps: tuple = ()

    def as_json(self) -> dict:
        """Return all fields but the arrays, as JSON can hold them."""
        return {name: value for name, value in vars(self).items() if name not in ("trace", "gradient_steps")}

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def environment_explanation(run, env_steps: int, trace: Trace, weights: dict) -> Explanation:
    """Explain a number that an environment computed or was given.

    Args:
        run: ``Run`` that repeats the failed one.
        env_steps: Env-steps when the iteration began.
        trace: Steps of the environment up to the number.
        weights: Name of a non-finite weight, or None, by policy, when the iteration began.
    """
    agents = sum(g.count for g in run.batch.groups)
    if not (numbers := trace.numbers()):
        return no_explanation(run, env_steps)
    first, *others = numbers
    reference, no_reference = trace.reference(first)
    same = None if reference is None else not abs(reference) <= FLOAT32
    group, agent = agent_of(run, first, agents)
    environment, step = run.batch.first_env + trace.env, trace.begun + first.row
    elapsed = (trace.steps[first.row - 1].clock if first.row else trace.clock)["elapsed"]
    episode_step = int(elapsed[0]) + (first.row > 0)
    compared = comparison(reference, same)
    line = f"The first is {first.describe(agents)} in environment {environment} after step {step:,}: {first.value:.6g}"
    head = [f"{run.spec.name}: {line}."]
    if first.row:
        actions = by_group(trace.steps[first.row - 1].action, group, agent)
        head.append(f"Actions of step {episode_step:,} of the episode: {actions}.")
    else:
        head.append("It was there after the reset.")
    if same is None:
        head.append(f"NumPy reference: not compared, {no_reference}.")
    else:
        head.append(f"From the same state and actions {compared}.")
    head += [f"Then {number.describe(agents)} is {number.value}." for number in others if number.row == first.row]
    head += [f"Weight {weight} of policy {name!r} was not finite." for name, weight in weights.items() if weight]
    return Explanation(
        line if same is None else f"{line}; {compared}",
        "\n".join([*head, *state_lines(trace, first, group, agent), *parameters(run)]),
        env_steps,
        f"{first.kind}.{first.name}",
        first.value,
        environment,
        group,
        agent,
        first.index,
        step,
        episode_step,
        reference=reference,
        same=same,
        no_reference=no_reference,
        trace=tuple(trace.steps[: first.row]),
    )


def learning_explanation(
    run,
    env_steps: int,
    policy: str,
    gradient_steps: list[GradientStep],
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
    where, notes = {}, [f"Policy {policy!r} is {run.settings[policy]}."]
    kind, _, name = field.partition(".")
    owner = (
        f"{name!r}" if place is not None else f"{name} of policy {policy!r}".lstrip() if name else f"policy {policy!r}"
    )
    line = f"The first is the {kind.replace('grad_norm', 'gradient norm')} of {owner}"
    if value is None:
        line = f"The first is the loss of policy {policy!r}; its learner records no gradient steps"
    elif place is not None:
        obs = run.rollout.obs[place.name][place.step][place.env, place.agent]
        where = {"environment": run.batch.first_env + place.env, "group": place.name, "agent": place.agent}
        where |= {"index": (place.agent,), "step": env_steps // run.num_envs + place.step}
        notes.append(f"The observation there is finite. Its largest entry is {float(obs.abs().max()):.4g}.")
        line += f" in environment {where['environment']} after step {where['step']:,}: {value:.6g}"
    elif number is not None:
        line += f" in gradient step {number} of the iteration after env-step {env_steps:,}: {value:.6g}"
    else:
        line += f" after env-step {env_steps:,}: {value:.6g}"
    if gradient_steps:
        notes += ["", "Gradient steps, with the largest gradient and, before the step, the largest weight:"]
        notes += gradient_table(gradient_steps)
    return Explanation(
        line,
        "\n".join([f"{run.spec.name}: {line}.", *notes, *parameters(run)]),
        env_steps,
        field,
        value,
        policy=policy,
        gradient_step=number,
        gradient_steps=tuple(gradient_steps),
        **where,
    )


def no_explanation(run, env_steps: int) -> Explanation:
    """Explain that the replay of a run that failed by ``env_steps`` met no non-finite number."""
    line = (
        "A replay of the run met no non-finite number, so the failure depends on more than the run's settings: weights or "
        "states that were changed from outside, a policy or environment in Python with state of its own, or torch operations "
        "that are not deterministic"
    )
    return Explanation(line, "\n".join([f"{run.spec.name}: {line}.", *parameters(run)]), env_steps)


def agent_of(run, number: Number, agents: int) -> tuple[str | None, int | None]:
    """Return the group's name and the agent in it that a number belongs to, or None and None.

    Args:
        run: ``Run``.
        number: The number.
        agents: Number of all agents.
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


# ---- text ----


def comparison(reference: float | None, same: bool | None) -> str:
    """Return what the NumPy reference does."""
    if same is None:
        return ""
    if not same:
        return f"the NumPy reference gives {reference:.6g}"
    if math.isfinite(reference):
        return f"the NumPy reference gives {reference:.6g}, too large for float32"
    return "the NumPy reference gives the same"


def state_lines(trace: Trace, first: Number, group: str | None, agent: int | None) -> list[str]:
    """Return lines about the last steps of an environment up to a number."""
    steps = trace.steps[: first.row]
    if not steps:
        return []
    row = first.index[0] if first.kind == "state" and first.index else None

    def members(state: np.ndarray) -> str:
        return ", ".join(f"{name}{array(state[name][0], row)}" for name in state.dtype.names)

    lines = ["", "Steps before it:"]
    for number, step in list(enumerate(steps, trace.begun + 1))[-SHOWN_STEPS:]:
        lines.append(f"  state: {members(step.state)}")
        actions, rewards = by_group(step.action, group, agent), by_group(step.reward, group, agent)
        lines.append(f"  step {number:,}: actions {actions}; rewards {rewards}")
    ended = " of the next episode" if steps[-1].over else ""
    return [*lines, f"  state{ended}: {members(steps[-1].after)}"]


def by_group(arrays: dict, group: str | None, agent: int | None) -> str:
    """Return arrays by group as text; of long ones, the row of the agent."""
    return ", ".join(f"{name}{array(values, agent if name == group else None)}" for name, values in arrays.items())


def array(values: np.ndarray, row: int | None = None) -> str:
    """Return `` = ...``, the numbers of an array; of a long one, those of one row, or the first."""
    values, place = np.asarray(values), ""
    if values.size > SHOWN_NUMBERS and row is not None and row < len(values):
        values, place = values[row], f"[{row}]"
    numbers = [f"{number:.6g}" for number in values.reshape(-1)[:SHOWN_NUMBERS].tolist()]
    more = [f"... {values.size - SHOWN_NUMBERS} more"] * (values.size > SHOWN_NUMBERS)
    return f"{place} = {numbers[0]}" if values.size == 1 else f"{place} = [{', '.join([*numbers, *more])}]"


def parameters(run) -> list[str]:
    """Return lines about the environment's parameters."""
    shown = {
        name: f"{len(value)} numbers" if isinstance(value, list | tuple) and len(value) > SHOWN_NUMBERS else value
        for name, value in kept_params(run.params).items()
    }
    return ["", "Parameters: " + ", ".join(f"{name} = {value}" for name, value in shown.items()) + "."]
