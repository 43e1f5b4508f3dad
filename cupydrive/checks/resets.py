"""Resets, of all and by mask, and the random actions of rollouts, against the NumPy reference."""

from dataclasses import replace

import numpy as np

from cupydrive.checks.answers import answer, require_states
from cupydrive.checks.bits import axes_of, fetch, named
from cupydrive.checks.report import RESETS
from cupydrive.codegen.source import sample_action
from cupydrive.random import RandomStream, random_actions
from cupydrive.simulation.batch import CLOCK, Batch

RESET_ENVS = 67


def compare_masks(report, part, groups, got, seen, where, step):
    """Compare the action masks of groups that have them with a reference's ``Observed``, exactly."""
    for g in groups:
        if g.mask:
            axes = ("environment", "agent", "choice")
            report.compare(part, f"mask.{g.name}", got[g.name], seen.mask[g.name], where=where, step=step, axes=axes)


def compare_obs(report, part, name, groups, got, seen, where, step, factor=1.0):
    """Compare observations by group with a reference's ``Observed``."""
    for g in groups:
        margin = seen.margin.get(g.name)
        report.compare(
            part, f"{name}.{g.name}", got[g.name], seen.obs[g.name],
            scale=g.obs_scale, margin=margin, where=where, step=step, factor=factor,
        )  # fmt: skip


def reset_scale(spec, f):
    """Return None, which compares exactly, or the scale of a float that a kernel written in Python has rounded."""
    return None if spec.own_program is None or np.dtype(f.dtype).kind != "f" else f.scale


def compare_fresh(report, spec, params, name, groups, states, obs, masks, fresh, where):
    """Compare states, observations and masks of environments that were reset with ``fresh``, the reference's states."""
    part, zero = f"{name}: {RESETS}", np.zeros(len(states), np.int64)
    require_states(spec, params, "reset", fresh, len(states))
    seen = answer(spec, "observe", params, fresh, zero) if spec.observe is not None else None
    for f in spec.state(params):
        if seen is None or f.name not in seen.state:
            field, agents = f"state.{f.name}", sum(g.count for g in groups)
            axes, scale = axes_of(field, states[f.name].shape, agents), reset_scale(spec, f)
            report.compare(part, field, states[f.name], fresh[f.name], scale=scale, where=where, axes=axes)
    if seen is not None:
        compare_obs(report, part, "obs", groups, obs, seen, where, zero)
        compare_masks(report, part, groups, masks, seen, where, zero)


def compare_resets(report, spec, params, device, name, rng, n=RESET_ENVS):
    """Compare resets of all and by mask, and the random actions of rollouts between them, with the reference, exactly.

    Whatever the batch keeps is compared: of environments that a reset begins anew with what is fresh, of the others with what
    it was before.
    """
    first, seed = int(rng.integers(0, 2**20)), int(rng.integers(0, 2**63))
    batch = Batch(
        spec, n, replace(params, max_episode_steps=min(params.max_episode_steps, 12)), device, first_env=first
    )
    ids, time = first + np.arange(n), 0
    some, others = rng.random(n) < 0.5, rng.random(n) < 0.5
    for mask, steps in ((None, 9), (some, 6), (np.zeros(n, bool), 0), (others, 0), (~others, 2), (None, 0)):
        before, looked = batch.get_state(), batch.get_observations()
        batch.reset(None if time else seed, None if mask is None else device.xp.asarray(mask))
        device.synchronise()
        chosen = np.ones(n, bool) if mask is None else mask
        if time == 0:  # the seed restarts the clocks
            before["clock"] = np.zeros(n, CLOCK)
        compare_reset(report, name, spec, batch, seed, ids, chosen, before, looked)
        if steps:
            rolled = fetch(batch, batch.rollout(steps))
            compare_random_actions(report, f"{name}: {RESETS}", batch, rolled, seed, ids, time)
            time += steps


def compare_reset(report, name, spec, batch, seed, ids, chosen, before, looked):
    """Compare what one reset has left behind; ``before`` and ``looked`` are the batch's state and observations before it."""
    part, kept, groups = f"{name}: {RESETS}", batch.get_state(), batch.groups
    obs, masks = batch.get_observations()
    if spec.reset is not None:
        fresh = answer(spec, "reset", batch.params, RandomStream(seed, ids, before["clock"]["episode"]))
        compare_fresh(report, spec, batch.params, name, groups, kept["state"], obs, masks, fresh, chosen)
    now = named({**kept, "obs": obs, "mask": masks})
    then = named({**before, "obs": looked[0], "mask": looked[1]})
    then["clock.episode"] += chosen
    report.compare(part, "clock.episode", now["clock.episode"], then["clock.episode"])
    report.compare(part, "clock.time", now["clock.time"], then["clock.time"])
    for name, array in now.items():
        if name == "clock.elapsed" or name.startswith(("log.", "returns.")):
            report.compare(part, name, array, np.zeros_like(array), where=chosen)
        if name != "seed":
            axes = [axis for axis in axes_of(name, array.shape, sum(g.count for g in groups)) if axis != "step"]
            sides = ("after the reset", "before")
            report.identical(part, f"unmasked {name}", array, then[name], where=~chosen, axes=axes, sides=sides)


def compare_random_actions(report, part, batch, rolled, seed, ids, time):
    """Compare the actions of a rollout that began ``time`` steps after the seed with the reference's random stream."""
    first_agent = 0
    for g in batch.groups:
        for t in range(len(rolled["terminated"])):
            mask = rolled["action_mask"][g.name][t] if g.mask else None
            drawn = random_actions(
                seed, ids, time + t, g.count, lambda w, h, g=g, m=mask: sample_action(g, w, h, m), g.heads, first_agent
            )
            axes = ("environment", "agent", "head")
            report.compare(part, f"action.{g.name}", rolled["action"][g.name][t], drawn, step=time + t, axes=axes)
        first_agent += g.count
