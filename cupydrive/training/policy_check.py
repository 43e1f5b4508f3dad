"""check_policy(): compare a policy's outputs while it acts with those while it learns.

PPO and A2C compare the current log-probability of an action with the one at sampling time. If the
two differ although no weight has changed, the policy learns from wrong ratios. A policy acts one
step at a time, but learns from rows in random order or from sequences of T steps. The check
therefore stores a rollout and passes it through the learning path with unchanged weights.

Letters: T steps, N environments, C agents of a group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
import torch

from cupydrive.algorithms.networks import SPREAD, Trial
from cupydrive.algorithms.on_policy import OnPolicyLearner
from cupydrive.algorithms.pool import OpponentPool
from cupydrive.checks.report import (
    AFTER_RESET,
    BEFORE_RESET,
    OTHER_PAST,
    TOLERANCE,
    TRIAL,
    Report,
)
from cupydrive.errors import ParameterError
from cupydrive.protocols import ParamValue
from cupydrive.training.begin import begin
from cupydrive.training.config import check_players, resolve

if TYPE_CHECKING:
    from cupydrive.playing.rollout import Rollout
    from cupydrive.protocols import LearnerSettings, PolicySettings
    from cupydrive.spec import EnvSpec
    from cupydrive.training.run import Run

RESETS_INSIDE = "resets inside the rollout"
# After a reset, errors may grow by this factor, or reach this fraction of the tolerance.
NO_WORSE, LEAST = 8.0, 0.125


def check_policy(
    env: str | PathLike[str] | EnvSpec,
    algorithm: LearnerSettings | str | None = None,
    *,
    policies: Mapping[str, PolicySettings] | None = None,
    num_envs: int = 64,
    seed: int | None = None,
    device: str = "auto",
    backend: str | None = None,
    **params: ParamValue,
) -> Report:
    """Check that policies compute the same log-probabilities and values while learning and acting.

    A rollout of ``num_steps`` steps, in which episodes end at random steps, passes through the
    learning path with unchanged weights. Kernels in float32 must give bitwise identical results.
    Kernels in bfloat16 may differ by 2^-7, torch by 1e-4 in float32 and by 2e-2 in bfloat16.
    Differences are relative where a number exceeds 1. Steps after a reset are reported separately,
    and may not differ more than the others. Observations before a reset must not affect results
    after it.

    The weights are the initial ones plus random numbers up to 0.05, because weights of 0 would hide
    differences. A module that training would reject is a failed check. The check takes some
    seconds.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        algorithm: Settings of PPO, A2C, PQN or an on-policy algorithm of your own, as in ``train``.
        policies: Settings by group name instead of ``algorithm``, as in ``train``.
        num_envs: Number of environments, N. Defaults to 64. On a GPU, the choice of kernels depends
            on the number of rows, so pass the number that you train with.
        seed: Random seed. Defaults to 0.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        backend: Backend of PPO, A2C and PQN, as in ``train``.
        **params: Parameters of the environment.

    Returns:
        ``Report``, as returned by ``check``. It is true if all comparisons pass.

    Raises:
        ParameterError: If settings do not fit each other or the environment, or no policy learns
            with PPO, A2C or PQN.

    Examples:
        >>> import cupydrive as cd
        >>> report = cd.check_policy("cartpole", cd.PPO(num_steps=32), num_envs=16)
        >>> report.passed
        True
    """
    config = resolve(
        env, algorithm, policies, params,
        call=check_policy, num_envs=num_envs, seed=seed, device=device, backend=backend,
    )  # fmt: skip
    pools = {k: each for k, each in config.policies.items() if isinstance(each, OpponentPool)}
    alone = {k: each.settings for k, each in pools.items()}
    config = replace(config, policies=config.policies | alone)
    check_players(config)
    remedy = "Raise num_envs, or num_steps of the algorithm"
    report = Report(config.spec.name, [config.device], [params], config.seed, remedy=remedy)
    report.compared_with = "acted and learned again"
    try:
        run = begin(config)
    except ParameterError as error:
        report.fault(TRIAL, "policy", error)
        report.skipped.append("acting against learning: training refuses the policy")
        return report
    with run.computing():
        compare_policies(report, run)
    return report


def compare_policies(report: Report, run: Run) -> None:
    """Compare all policies of a run that learn from rollouts. The run is unusable afterwards.

    Raises:
        ParameterError: If no policy learns from rollouts.
    """
    learners = {k: each for k, each in run.learners.items() if isinstance(each, OnPolicyLearner)}
    if not learners:
        raise ParameterError(
            f"check_policy: no policy of {report.env} learns from rollouts: got "
            f"{', '.join(map(str, run.settings.values()))}, expected PPO(...), A2C(...) or PQN(...)"
        )
    words = []
    for name, learner in learners.items():
        limit = learner.tolerance
        agree = f"within {limit:.2g}" if limit else "bit for bit"
        words.append(f"{run.backends[name]}, {agree}")
        Trial("", learner.policy).put_back(SPREAD)
    report.compared_with = f"acted and learned again: {', '.join(words)}"
    others = run.learners.keys() - learners.keys()
    report.skipped += [f"policy {name!r}: it does not learn from rollouts" for name in others]
    rollout = run.rollout
    rollout.collect()  # moves hidden states and running statistics away from their initial values
    for learner in learners.values():
        learner.finish(rollout)
    # Move the clocks so that each episode reaches its time limit at a random step.
    kept, limit = run.batch.get_state(), run.params.max_episode_steps
    first, n = max(0, limit - rollout.steps), run.batch.num_envs
    kept["clock"]["elapsed"] = np.random.default_rng(run.seed).integers(first, limit, n)
    run.batch.set_state(kept)
    rollout.collect()
    resets = torch.stack([rollout.starts(t) for t in range(rollout.steps)])
    resets[0] = False  # these episodes ended in the previous rollout
    report.count({RESETS_INSIDE: resets.cpu().numpy()})
    for name, learner in learners.items():
        compare_policy(report, name, learner, rollout, resets)


def compare_policy(
    report: Report, name: str, learner: OnPolicyLearner, rollout: Rollout, resets: torch.Tensor
) -> None:
    """Compare one policy.

    Args:
        report: ``Report`` that collects the comparisons.
        name: Name of the policy.
        learner: Learner of the policy.
        rollout: Rollout that the policy has acted in.
        resets: (T, N) bool, True at the first step of an episode that begins inside the rollout.
    """
    learner.estimate(rollout)  # determines the rows that the learner uses
    acted = {}
    for g in learner.groups:
        stored = learner.stored[g.name]
        acted[g.name] = torch.stack([stored["log_prob"], stored["value"][: rollout.steps]])
        report.agent_steps += stored["log_prob"].numel()
    learned, after = learner.replayed(rollout), resets.cumsum(0) > 0
    compare = partial(compare_rows, report, learner)
    sides = ("acting", "learning")
    before = compare(f"{name}: {BEFORE_RESET}", acted, learned, ~after, sides)
    compare(f"{name}: {AFTER_RESET}", acted, learned, after, sides, before)
    for g in learner.groups:
        memory = learner.stored[g.name]["memory"]
        for seen in (rollout.obs, rollout.critic_obs):
            if g.name in seen:
                rows = seen[g.name][:-1]
                rows[~after] = rows.roll(1, 1)[~after]  # rows of the neighboring environment
        if memory is not None:
            memory[0] += 1.0
    other, sides = learner.replayed(rollout), ("learning", "with another past")
    part = f"{name}: {OTHER_PAST}"
    compare(part, learned, other, resets, sides, before, ", first step")
    compare(part, learned, other, after & ~resets, sides, before, ", later steps")


def compare_rows(
    report: Report,
    learner: OnPolicyLearner,
    part: str,
    one: Mapping[str, torch.Tensor],
    other: Mapping[str, torch.Tensor],
    where: torch.Tensor,
    sides: tuple[str, str],
    before: float = math.inf,
    words: str = "",
) -> float:
    """Compare the rows that the learner uses, and return the largest error.

    Args:
        report: ``Report`` that collects the comparisons.
        learner: Learner of the policy.
        part: Name of the comparison.
        one: (2, T, N, C) by group, log-probabilities and values.
        other: Values to compare with, in the same layout as ``one``.
        where: (T, N) bool, steps to compare.
        sides: Names of ``one`` and ``other``.
        before: Largest error before resets. A much larger error after a reset fails, even within
            the tolerance.
        words: Description of the steps, appended to the names of the fields.
    """
    worst = 0.0
    for g in learner.groups:
        weight = learner.stored[g.name].get("weight")  # 1, or 2 if only the critic learns
        weight = torch.ones_like(one[g.name][0]) if weight is None else weight
        for k, counts in enumerate((weight == 1, weight > 0)):
            rows = (where[..., None] & counts).cpu().numpy()
            tolerance = learner.tolerance
            limit = min(tolerance, max(NO_WORSE * before, LEAST * tolerance))
            field = f"{('log_prob', 'value')[k]}.{g.name}{words}"
            a, b = (each[g.name][k].cpu().numpy() for each in (one, other))
            scale = np.maximum(np.abs(b), 1.0)[rows] if limit else None
            report.compare(
                part, field, a, b, scale=scale, factor=limit / TOLERANCE, bits=not limit,
                where=rows, axes=("step", "environment", "agent"), sides=sides,
            )  # fmt: skip
            worst = max(worst, report.tally(part, field).worst)
    return worst
