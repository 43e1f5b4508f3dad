"""``draw`` and ``heuristic`` of an environment, tried once: a misspelt name shows before a video is made."""

import traceback

import numpy as np

from cupydrive.checks.answers import require_states
from cupydrive.checks.places import own_place
from cupydrive.checks.report import Report
from cupydrive.checks.resets import RESET_ENVS
from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import clock
from cupydrive.errors import CupydriveError, SpecError
from cupydrive.protocols import Executor
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec

PART = "draw, on a small picture"
HEURISTIC = "heuristic, on observations of a reset"
WIDTH = 480  # pixels: with fewer, letters are left out and would not be tried
PLAYED_STEPS = 3


def try_drawing(report, spec, params, device, rng):
    """Draw a state of ``sample``, where there is one, and one that random play has reached; an exception is a failure."""
    canvas = Canvas(WIDTH, round(WIDTH * spec.render_size[1] / spec.render_size[0]) // 2 * 2, labels=True)
    if spec.sample is not None:
        given = require_states(spec, params, "sample", spec.sample(params, rng, 1), 1)
        draw_one(report, spec, params, canvas, "a state of `sample`", given.astype(spec.state_dtype(params)), 0)
    draw_one(report, spec, params, canvas, "a played state", *played(spec, params, device, int(rng.integers(0, 2**63))))


def played(spec, params, device, seed):
    """Return the states of one episode up to now, (K,) structs as a drawing gets them, and the steps that it has taken."""
    batch = Batch(spec, RESET_ENVS, params, device)  # as many as a comparison has: on a GPU others are another program
    batch.reset(seed)
    past = []
    for step in range(PLAYED_STEPS + 1):
        if step:
            batch.rollout(1, final_obs=False)
        batch.executor.synchronise()
        kept = batch.get_state()
        elapsed = int(kept["clock"]["elapsed"][0])
        past = [*(past if elapsed else ()), kept["state"][0]]
    return np.stack(past[-spec.trail - 1 :]), elapsed


def try_heuristic(report: Report, spec: EnvSpec, params: object, device: Executor, seed: int) -> None:
    """Ask the heuristic of each group for actions once; an exception is a failure."""
    from cupydrive.executors.interop import as_torch, heuristic_heads  # torch, which other checks do not need

    batch = Batch(spec, RESET_ENVS, params, device)
    batch.reset(seed)
    batch.executor.synchronise()
    for g in batch.groups:
        report.tally(HEURISTIC, g.name).compared += 1
        try:
            heads = heuristic_heads(spec.heuristic, params, as_torch(batch.current_obs[g.name]), g)
            for x, count in () if g.continuous else zip(heads, g.sizes, strict=True):
                if x.min() < 0 or x.max() >= count:
                    raise SpecError(f"got choices from {x.min()} to {x.max()}, expected 0 to {count - 1}. Correct them")
        except Exception as error:  # the function is the user's
            report.fault(HEURISTIC, g.name, f"`heuristic` gives {g.name!r} no actions: {in_words(error)}")


def draw_one(report, spec, params, canvas, what, states, elapsed):
    """Draw the last of (K,) states of one episode, and count it or what went wrong."""
    tally = report.tally(PART, what)
    tally.compared += 1
    canvas.clear()
    try:
        spec.draw(canvas, params, states, elapsed)
        canvas.caption(clock(params, elapsed, canvas.last_step), spec.title)
        canvas.frame()
    except Exception as error:  # the function is the user's
        if not tally.failure:
            report.fault(PART, what, f"`draw` cannot show {what}: {in_words(error)}")


def in_words(error):
    """Return what an exception is, and where in a user's own file it came from, in a line."""
    ours = isinstance(error, CupydriveError)
    said = str(error) if ours else "".join(traceback.format_exception_only(error)).strip()
    place = own_place(error)
    return f"{place.file}:{place.line}: {said} (`{place.text}`)" if place else said
