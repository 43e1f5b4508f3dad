"""Trial calls of ``draw`` and ``heuristic``, so that errors surface before a video is rendered."""

import numpy as np

from cupydrive.checks.bits import draw_states
from cupydrive.checks.mistakes import own_mistake
from cupydrive.checks.report import Report
from cupydrive.drawing.canvas import Canvas
from cupydrive.drawing.frames import clock
from cupydrive.errors import SpecError
from cupydrive.protocols import EnvParams, Executor
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec

DRAWING = "draw, on a small picture"
HEURISTIC = "heuristic, on observations of a reset"
ENVS = 67  # as in other comparisons. Another number could need another program on a GPU
PICTURE_WIDTH = 480  # pixels. Smaller pictures omit text, which would then not be tested.


def try_drawing(
    report: Report, spec: EnvSpec, params: EnvParams, device: Executor, rng: np.random.Generator
) -> None:
    """Draw a single state, and a state with its ``trail``. An exception is a failure."""
    if spec.display.draw is None:
        return
    canvas = Canvas(
        PICTURE_WIDTH,
        round(PICTURE_WIDTH * spec.display.size[1] / spec.display.size[0]) // 2 * 2,
        labels=True,
    )
    states = draw_states(spec, params, device, rng, ENVS)
    for count in {1, min(spec.display.trail + 1, ENVS)}:
        report.tally(DRAWING, "draw").compared += 1
        canvas.clear()
        try:
            spec.display.draw(canvas, params, states[:count], count - 1)
            canvas.caption(clock(params, count - 1, canvas.last_step), spec.title)
            canvas.frame()
        except Exception as error:  # the function is the user's
            report.fault(DRAWING, "draw", f"`draw`: {own_mistake(error) or error}")


def try_heuristic(
    report: Report, spec: EnvSpec, params: EnvParams, device: Executor, seed: int
) -> None:
    """Call the heuristic of each group once. An exception is a failure."""
    if spec.heuristic is None:
        return
    # Imported here, because other checks do not need torch.
    from cupydrive.executors.interop import as_torch, heuristic_heads
    from cupydrive.simulation.observations import raw_obs

    batch = Batch(spec, ENVS, params, device)
    batch.reset(seed)
    batch.executor.synchronize()
    for g in batch.groups:
        report.tally(HEURISTIC, g.name).compared += 1
        try:
            obs = raw_obs(g, as_torch(batch.current_obs[g.name]))
            heads = heuristic_heads(spec.heuristic, params, obs, g)
            for x, count in zip(heads, g.sizes, strict=False):  # numbers of a Box come after them
                if x.min() < 0 or x.max() >= count:
                    raise SpecError(
                        f"got choices from {x.min()} to {x.max()}, expected 0 to {count - 1}. "
                        f"Correct the heuristic"
                    )
        except Exception as error:  # the function is the user's
            report.fault(
                HEURISTIC,
                g.name,
                f"`heuristic` gives {g.name!r} no actions: {own_mistake(error) or error}",
            )
