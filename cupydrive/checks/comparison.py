"""Comparison of steps, observations, statistics, resets and random actions with the reference."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cupydrive.checks.bits import axes_of, fetch, launch_step, named_arrays
from cupydrive.checks.reference import CheckedReference, final_states
from cupydrive.checks.report import REFERENCE, RESETS, STATISTICS, Report
from cupydrive.codegen.source import sample_action
from cupydrive.random import random_actions
from cupydrive.simulation.batch import Batch, BatchState
from cupydrive.spec import Group, Observation, StepResult


class Comparison:
    """Comparisons of one batch with the reference.

    Args:
        report: Report to which the comparisons are added.
        batch: The batch.
    """

    def __init__(self, report: Report, batch: Batch) -> None:
        device = batch.executor.name
        self.report, self.batch, self.spec, self.params = report, batch, batch.spec, batch.params
        self.reference = CheckedReference(batch.spec, batch.params)
        self.agents = sum(g.count for g in batch.groups)
        self.one_step, self.resets = f"{device} {REFERENCE}", f"{device}: {RESETS}"
        self.statistics = f"{device}: {STATISTICS}"

    def step(self, rng: np.random.Generator, before: BatchState) -> BatchState:
        """Compare all outputs of one launch of env_step with the reference.

        Args:
            rng: Random generator of the actions.
            before: State of the batch before the step. Pass the previous result to compare several
                steps, each with the tolerance of a single step.

        Returns:
            The batch's state after the step.
        """
        spec, batch, clock, reference = self.spec, self.batch, before["clock"], self.reference
        actions = draw_actions(batch.groups, rng, batch.num_envs)
        got = launch_step(batch, actions)
        kept = batch.get_state()
        got["after"], got["over"] = kept["state"], got["terminated"] | got["truncated"]

        seed, elapsed, goes_on = int(before["seed"][0]), clock["elapsed"] + 1, ~got["over"]
        ids = batch.first_env + np.arange(batch.num_envs)
        seen = None if spec.reference.observe is None else reference.observe(got["after"], elapsed)
        want = (
            None
            if spec.reference.step is None
            else reference.step(seed, ids, clock, before["state"], actions, seen)
        )
        if want is not None:
            self._outcome(got, want, seen, elapsed)
        if seen is not None:  # compared after the state, because wrong states cause wrong obs
            self._observed(self.one_step, got, seen, goes_on, elapsed)
        if want is not None and seen is not None:
            self._final_obs(got, want, elapsed)
        self._statistics(before, got, kept, want)
        if spec.reference.reset is not None:
            fresh = reference.reset(seed, ids, clock["episode"])
            self._fresh(got["after"], got, fresh, got["over"])
        self.report.count(
            {
                "time limit reached": elapsed >= self.params.max_episode_steps,
                "autoreset": got["over"],
            }
        )
        return kept

    def _outcome(
        self, got: dict[str, Any], want: StepResult, seen: Observation | None, elapsed: np.ndarray
    ) -> None:
        """Compare states, rewards, ends and events of a step."""
        compare = partial(self.report.compare, self.one_step, step=elapsed)
        self.report.count(want.events)
        for f in self.spec.state(self.params):
            of: Observation | StepResult = (
                want if seen is None or f.name not in seen.state else seen
            )
            if f.name not in of.state:
                continue  # the reference's `observe`, which is missing, would compute it
            field, value, margin = f"state.{f.name}", got["after"][f.name], of.margin.get(f.name)
            scale = f.scale if np.dtype(f.dtype).kind == "f" else None
            axes = axes_of(field, value.shape, self.agents)
            compare(
                field,
                value,
                of.state[f.name],
                scale=scale,
                margin=margin,
                where=~got["over"],
                axes=axes,
            )
        for g in self.batch.groups:
            name, reward, margin = g.name, f"reward.{g.name}", want.margin.get(f"reward.{g.name}")
            compare(
                reward, got["reward"][name], want.reward[name], scale=g.reward_scale, margin=margin
            )
            if g.leaves:
                compare(f"active.{name}", got["active"][name], want.active[name])
                compare(
                    f"left.{name}",
                    got["left"][name],
                    want.left[name],
                    margin=want.margin.get(f"left.{name}"),
                )
        last = elapsed >= self.params.max_episode_steps
        ends_task = last & (self.spec.time_limit == "terminates")
        ends = want.terminated | ends_task
        margin = want.margin.get("terminated")
        margin = None if margin is None else np.where(ends_task, np.inf, margin)
        compare("terminated", got["terminated"], ends, margin=margin)
        compare("truncated", got["truncated"], last & ~ends, margin=margin)

    def _observed(
        self,
        part: str,
        got: Mapping[str, Any],
        seen: Observation,
        where: np.ndarray,
        elapsed: np.ndarray,
        final: str = "",
    ) -> None:
        """Compare observations and masks by group.

        ``final`` is ``"final_"`` to compare those before an autoreset.
        """
        compare = partial(self.report.compare, part, where=where, step=elapsed)
        for g in self.batch.groups:
            margin, factor = seen.margin.get(g.name), 5.0 if final else 1.0
            for name, scale in (("obs", g.obs_scale), ("critic_obs", g.critic_obs_scale)):
                if g.name in got[final + name]:
                    compare(
                        f"{final}{name}.{g.name}",
                        got[final + name][g.name],
                        getattr(seen, name)[g.name],
                        scale=scale,
                        margin=margin,
                        factor=factor,
                    )
            if g.mask and not final:
                mask = got["action_mask"][g.name], seen.mask[g.name]
                compare(f"mask.{g.name}", *mask, axes=("environment", "agent", "choice"))

    def _final_obs(self, got: dict[str, Any], want: StepResult, elapsed: np.ndarray) -> None:
        """Compare final observations with those of the reference's own final states.

        The kernel's final states have already been overwritten. Rows in which a decision of the
        reference is within the tolerance are skipped.
        """
        certain = got["over"].copy()
        for margin in want.margin.values():
            certain &= np.asarray(margin).reshape(len(certain), -1).min(axis=1) >= 1e-5
        seen = self.reference.observe(final_states(self.reference, want, got["after"]), elapsed)
        self._observed(self.one_step, got, seen, certain, elapsed, "final_")

    def _statistics(
        self, before: BatchState, got: dict[str, Any], kept: BatchState, want: StepResult | None
    ) -> None:
        """Compare clocks, returns, lengths and metrics after one step, exactly."""
        compare, over, clock = (
            partial(self.report.compare, self.statistics),
            got["over"],
            before["clock"],
        )
        compare("episode", kept["clock"]["episode"], clock["episode"] + over)
        compare("elapsed", kept["clock"]["elapsed"], np.where(over, 0, clock["elapsed"] + 1))
        compare("time", kept["clock"]["time"], clock["time"] + 1)
        compare("episode_length", got["episode_length"], clock["elapsed"] + 1, where=over)
        for g in self.batch.groups:
            total = before["returns"][g.name] + got["reward"][g.name]
            compare(
                f"returns.{g.name}",
                kept["returns"][g.name],
                np.where(over[:, None], np.float32(0), total),
            )
            compare(f"episode_return.{g.name}", got["episode_return"][g.name], total, where=over)
        if want is None:
            return
        for metric, kind in self.spec.metrics.items():
            total = before["metrics"][metric] + want.metrics[metric]
            scale = max(1.0, np.abs(total).max()) if kind == "float" else None
            near = partial(compare, scale=scale, margin=want.margin.get(f"metric.{metric}"))
            near(f"metric.{metric}", kept["metrics"][metric], np.where(over, 0, total))
            near(f"episode metric.{metric}", got["episode_metrics"][metric], total, where=over)

    def _fresh(
        self,
        states: np.ndarray,
        got: Mapping[str, Any],
        fresh: np.ndarray,
        where: np.ndarray,
    ) -> None:
        """Compare environments that were reset with ``fresh``, the reference's initial states.

        States are compared exactly, except for floats of kernels written in Python, which round
        differently. Observations and masks are compared too.
        """
        zero = np.zeros(len(states), np.int64)
        seen = None if self.spec.reference.observe is None else self.reference.observe(fresh, zero)
        for f in self.spec.state(self.params):
            if seen is None or f.name not in seen.state:
                field, rounded = (
                    f"state.{f.name}",
                    self.spec.own_program is not None and f.dtype == "f4",
                )
                axes, scale = (
                    axes_of(field, states[f.name].shape, self.agents),
                    f.scale if rounded else None,
                )
                compare = partial(
                    self.report.compare, self.resets, scale=scale, where=where, axes=axes
                )
                compare(field, states[f.name], fresh[f.name])
        if seen is not None:
            self._observed(self.resets, got, seen, where, zero)

    def reset(
        self,
        seed: int,
        ids: np.ndarray,
        chosen: np.ndarray,
        before: BatchState,
        looked: tuple[dict[str, np.ndarray], dict[str, np.ndarray]],
    ) -> None:
        """Compare the complete state of the batch after a reset of the environments ``chosen``.

        Args:
            seed: Seed of the batch.
            ids: (N,) global ids of the environments.
            chosen: (N,) bool, environments that were reset.
            before: State of the batch before the reset.
            looked: Observations and masks of the batch before the reset.
        """
        compare, kept = partial(self.report.compare, self.resets), self.batch.get_state()
        obs, masks = self.batch.get_observations()
        if self.spec.reference.reset is not None:
            fresh = self.reference.reset(seed, ids, before["clock"]["episode"])
            got = fetch(self.batch, self.batch.step_buffers[self.batch.now])
            self._fresh(kept["state"], got, fresh, chosen)
        now = named_arrays({**kept, "obs": obs, "mask": masks})
        then = named_arrays({**before, "obs": looked[0], "mask": looked[1]})
        compare("clock.episode", now["clock.episode"], then["clock.episode"] + chosen)
        compare("clock.time", now["clock.time"], then["clock.time"])
        for name, array in now.items():
            if name == "clock.elapsed" or name.startswith(("metrics.", "returns.")):
                compare(name, array, np.zeros_like(array), where=chosen)
            if name != "seed":
                axes = [axis for axis in axes_of(name, array.shape, self.agents) if axis != "step"]
                unmasked = partial(
                    compare,
                    bits=True,
                    where=~chosen,
                    axes=axes,
                    sides=("after the reset", "before"),
                )
                unmasked(f"unmasked {name}", array, then[name])

    def random_actions(self, rolled: dict[str, Any], seed: int, ids: np.ndarray, time: int) -> None:
        """Compare the random actions of a rollout with the reference's random stream.

        The rollout began ``time`` steps after the seed was set.
        """
        first_agent = 0
        for g in self.batch.groups:
            for t in range(len(rolled["terminated"])):
                mask = rolled["action_mask"][g.name][t] if g.mask else None
                sample = partial(sample_action, g, mask=mask)
                drawn = random_actions(seed, ids, time + t, g.count, sample, g.heads, first_agent)
                compare = partial(
                    self.report.compare,
                    self.resets,
                    step=time + t,
                    axes=("environment", "agent", "head"),
                )
                compare(f"action.{g.name}", rolled["action"][g.name][t], drawn)
            first_agent += g.count


def draw_actions(
    groups: Sequence[Group], rng: np.random.Generator, n: int
) -> dict[str, np.ndarray]:
    """Return uniformly random actions by group, (N, C, H).

    A fifth of the actions of a Box are drawn from a box of twice its width.
    """
    actions = {}
    for g in groups:
        space, lead = g.box, (n, g.count)
        parts = [rng.integers(0, g.sizes, (*lead, len(g.sizes)))] if g.sizes else []
        if g.continuous:
            middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
            shape = (*lead, *space.shape)
            reach = np.where(rng.random(shape) < 0.2, 2.0, 1.0)
            parts.append(middle + half * reach * rng.uniform(-1, 1, shape))
        actions[g.name] = np.concatenate(parts, axis=-1).astype(g.action_dtype)
    return actions
