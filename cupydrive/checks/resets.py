"""Resets, of all and by mask, and the random actions of rollouts, against the NumPy reference."""

from dataclasses import replace

import numpy as np

from cupydrive.checks.answers import answer, require_states
from cupydrive.checks.bits import axes_of, fetch, named
from cupydrive.checks.report import RESETS, Report
from cupydrive.codegen.source import sample_action
from cupydrive.protocols import Executor
from cupydrive.random import RandomStream, random_actions
from cupydrive.simulation.batch import CLOCK, Batch
from cupydrive.spec import EnvSpec, Field, Observed

RESET_ENVS = 67


def compare_obs(
    report: Report, part: str, batch: Batch, name: str, obs: dict, seen: Observed,
    where: np.ndarray, step: np.ndarray, factor: float = 1.0,
) -> None:  # fmt: skip
    """Compare observations by group with a reference's ``Observed``."""
    for g in batch.groups:
        near = dict(scale=g.obs_scale, margin=seen.margin.get(g.name), factor=factor)
        report.compare(part, f"{name}.{g.name}", obs[g.name], seen.obs[g.name], where=where, step=step, **near)


def compare_masks(
    report: Report, part: str, batch: Batch, masks: dict, seen: Observed, where: np.ndarray, step: np.ndarray
) -> None:
    """Compare action masks by group with a reference's ``Observed``, exactly."""
    axes = ("environment", "agent", "choice")
    for name, mask in masks.items():
        report.compare(part, f"mask.{name}", mask, seen.mask[name], where=where, step=step, axes=axes)


def reset_scale(spec: EnvSpec, f: Field) -> float | None:
    """Return None, which compares exactly, or the scale of a float that a kernel written in Python has rounded."""
    return None if spec.own_program is None or np.dtype(f.dtype).kind != "f" else f.scale


def compare_fresh(
    report: Report, batch: Batch, states: np.ndarray, obs: dict, masks: dict, fresh: np.ndarray, where: np.ndarray
) -> None:
    """Compare states, observations and masks of environments that were reset with ``fresh``, the reference's states."""
    spec, part, zero = batch.spec, f"{batch.executor.name}: {RESETS}", np.zeros(len(states), np.int64)
    require_states(spec, batch.params, "reset", fresh, len(states))
    seen = answer(spec, "observe", batch.params, fresh, zero) if spec.observe is not None else None
    for f in spec.state(batch.params):
        if seen is None or f.name not in seen.state:
            field, agents = f"state.{f.name}", sum(g.count for g in batch.groups)
            axes, scale = axes_of(field, states[f.name].shape, agents), reset_scale(spec, f)
            report.compare(part, field, states[f.name], fresh[f.name], scale=scale, where=where, axes=axes)
    if seen is not None:
        compare_obs(report, part, batch, "obs", obs, seen, where, zero)
        compare_masks(report, part, batch, masks, seen, where, zero)


def compare_resets(report: Report, spec: EnvSpec, params: object, device: Executor, rng: np.random.Generator) -> None:
    """Compare resets of all and by mask, and the random actions of rollouts between them, with the reference, exactly.

    Everything that the batch keeps is compared: of environments that are reset with the reference's first states, of the
    others with what it was before.
    """
    n, first, seed = RESET_ENVS, int(rng.integers(0, 2**20)), int(rng.integers(0, 2**63))
    params = replace(params, max_episode_steps=min(params.max_episode_steps, 12))
    batch = Batch(spec, n, params, device, first_env=first)
    ids, time = first + np.arange(n), 0
    some, others = rng.random(n) < 0.5, rng.random(n) < 0.5
    for mask, steps in ((None, 9), (some, 6), (np.zeros(n, bool), 0), (others, 0), (~others, 2), (None, 0)):
        before, looked = batch.get_state(), batch.get_observations()
        batch.reset(None if time else seed, None if mask is None else device.xp.asarray(mask))
        device.synchronise()
        chosen = np.ones(n, bool) if mask is None else mask
        if time == 0:  # the seed restarts the clocks
            before["clock"] = np.zeros(n, CLOCK)
        compare_reset(report, batch, seed, ids, chosen, before, looked)
        if steps:
            rolled = fetch(batch, batch.rollout(steps))
            compare_random_actions(report, batch, rolled, seed, ids, time)
            time += steps


def compare_reset(
    report: Report,
    batch: Batch,
    seed: int,
    ids: np.ndarray,
    chosen: np.ndarray,
    before: dict,
    looked: tuple[dict, dict],
) -> None:
    """Compare what one reset has left behind; ``before`` and ``looked`` are the batch's state and observations before it."""
    part, kept, agents = f"{batch.executor.name}: {RESETS}", batch.get_state(), sum(g.count for g in batch.groups)
    obs, masks = batch.get_observations()
    if batch.spec.reset is not None:
        fresh = answer(batch.spec, "reset", batch.params, RandomStream(seed, ids, before["clock"]["episode"]))
        compare_fresh(report, batch, kept["state"], obs, masks, fresh, chosen)
    now = named({**kept, "obs": obs, "mask": masks})
    then = named({**before, "obs": looked[0], "mask": looked[1]})
    report.compare(part, "clock.episode", now["clock.episode"], then["clock.episode"] + chosen)
    report.compare(part, "clock.time", now["clock.time"], then["clock.time"])
    for name, array in now.items():
        if name == "clock.elapsed" or name.startswith(("log.", "returns.")):
            report.compare(part, name, array, np.zeros_like(array), where=chosen)
        if name != "seed":
            axes = [axis for axis in axes_of(name, array.shape, agents) if axis != "step"]
            sides = ("after the reset", "before")
            report.identical(part, f"unmasked {name}", array, then[name], where=~chosen, axes=axes, sides=sides)


def compare_random_actions(report: Report, batch: Batch, rolled: dict, seed: int, ids: np.ndarray, time: int) -> None:
    """Compare the actions of a rollout that began ``time`` steps after the seed with the reference's random stream."""
    part, first_agent = f"{batch.executor.name}: {RESETS}", 0
    for g in batch.groups:
        for t in range(len(rolled["terminated"])):
            mask = rolled["action_mask"][g.name][t] if g.mask else None
            drawn = random_actions(
                seed, ids, time + t, g.count, lambda w, h, g=g, m=mask: sample_action(g, w, h, m), g.heads, first_agent
            )
            axes = ("environment", "agent", "head")
            report.compare(part, f"action.{g.name}", rolled["action"][g.name][t], drawn, step=time + t, axes=axes)
        first_agent += g.count
