"""check_policy(): whether a policy gives the same while it learns as while it acts.

PPO and A2C compare the log-probability of an action now with that of the draw. If the two differ
although no weight has changed, they learn from something else than what was done. A policy acts one
step at a time and learns from rows in random order, or from sequences of T steps. So a rollout is
stored and goes through the learning path with unchanged weights.

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
# After a reset, errors may be so many times those before one, or reach this share of the tolerance.
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
    """Check that policies give the same log-probabilities and values while they learn as while they
    act, and return a ``Report``, as of ``check``.

    A rollout of ``num_steps`` steps, in which episodes end at random steps, goes through the
    learning path with unchanged weights. Kernels in float32 must give equal bits. Kernels in
    bfloat16 may differ by 2^-7, torch by 1e-4 in float32 and by 2e-2 in bfloat16. Differences are
    relative where a number exceeds 1. Steps after a reset are reported apart, and may differ no
    more than the others. What was seen before a reset must not change what comes after it.

    The weights are initial ones plus random numbers up to 0.05, since weights of 0 would hide
    differences. A module that training would refuse is a failed check. It takes some seconds.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        algorithm: Settings of PPO or A2C, as of ``train``.
        policies: Settings by group name instead, as of ``train``.
        num_envs: N. On a GPU, kernels are chosen by the number of rows: pass what you train with.
        seed: Random seed. Defaults to 0.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        backend: As of ``train``.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If settings do not fit each other or the environment, or no policy learns
            by PPO or A2C.
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
    report.compared_with = "acted and learnt again"
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
    """Compare all policies of a run that learn by PPO, A2C or the like; this spoils the run.

    Raises:
        ParameterError: If there is none.
    """
    learners = {k: each for k, each in run.learners.items() if isinstance(each, OnPolicyLearner)}
    if not learners:
        raise ParameterError(
            f"check_policy: no policy of {report.env} learns from rollouts: got "
            f"{', '.join(map(str, run.settings.values()))}, expected PPO(...) or A2C(...)"
        )
    words = []
    for name, learner in learners.items():
        limit = learner.tolerance
        agree = f"within {limit:.2g}" if limit else "bit for bit"
        words.append(f"{run.backends[name]}, {agree}")
        Trial("", learner.policy).put_back(SPREAD)
    report.compared_with = f"acted and learnt again; {'; '.join(words)}"
    others = run.learners.keys() - learners.keys()
    report.skipped += [f"policy {name!r}: it does not learn from rollouts" for name in others]
    rollout = run.rollout
    rollout.collect()  # hidden states and running statistics move away from their first values
    for learner in learners.values():
        learner.finish(rollout)
    # Episodes are about to end by their time limit, each at a random step.
    kept, limit = run.batch.get_state(), run.params.max_episode_steps
    first, n = max(0, limit - rollout.steps), run.batch.num_envs
    kept["clock"]["elapsed"] = np.random.default_rng(run.seed).integers(first, limit, n)
    run.batch.set_state(kept)
    rollout.collect()
    resets = torch.stack([rollout.starts(t) for t in range(rollout.steps)])
    resets[0] = False  # of the rollout before
    report.count({RESETS_INSIDE: resets.cpu().numpy()})
    for name, learner in learners.items():
        compare_policy(report, name, learner, rollout, resets)


def compare_policy(
    report: Report, name: str, learner: OnPolicyLearner, rollout: Rollout, resets: torch.Tensor
) -> None:
    """Compare one policy; ``resets``: (T, N) bool, steps before which an episode has ended inside
    the rollout.
    """
    with torch.no_grad(), rollout.stream():
        for g in learner.groups:
            learner.estimate(rollout, g)  # decides which rows are learnt from
    acted = {}
    for g in learner.groups:
        stored = learner.stored[g.name]
        acted[g.name] = torch.stack([stored["log_prob"], stored["value"][: rollout.steps]])
        report.agent_steps += stored["log_prob"].numel()
    learnt, after = learner.replayed(rollout), resets.cumsum(0) > 0
    compare = partial(compare_rows, report, learner)
    sides = ("acting", "learning")
    before = compare(f"{name}: {BEFORE_RESET}", acted, learnt, ~after, sides)
    compare(f"{name}: {AFTER_RESET}", acted, learnt, after, sides, before)
    for g in learner.groups:
        obs, memory = rollout.obs[g.name][:-1], learner.stored[g.name]["memory"]
        obs[~after] = obs.roll(1, 1)[~after]  # of the environment before
        if memory is not None:
            memory[0] += 1.0
    other, sides = learner.replayed(rollout), ("learning", "with another past")
    part = f"{name}: {OTHER_PAST}"
    compare(part, learnt, other, resets, sides, before, ", first step")
    compare(part, learnt, other, after & ~resets, sides, before, ", later steps")


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
    """Compare rows that are learnt from, and return the largest error.

    Args:
        report: ``Report``.
        learner: The policy's.
        part: What is compared with what.
        one: (2, T, N, C) by group, log-probabilities and values.
        other: Likewise.
        where: (T, N) bool, steps that count.
        sides: Names of ``one`` and ``other``.
        before: Largest error before resets. Larger ones afterwards are the resets', even within
            the tolerance.
        words: About the steps.
    """
    worst = 0.0
    for g in learner.groups:
        weight = learner.stored[g.name].get("weight")  # 1; or 2: the critic alone learns
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
