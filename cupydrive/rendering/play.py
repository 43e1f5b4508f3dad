"""play(): interactive play of one agent by keyboard, in a notebook or a terminal."""

import sys
from typing import Any

from cupydrive.drawing.frames import check_drawable
from cupydrive.errors import RenderError
from cupydrive.playing.config import Playable, PoliciesByGroup, resolve_eval
from cupydrive.playing.game import Game, GameConfig
from cupydrive.protocols import ParamValue
from cupydrive.terminal.progress import in_notebook


def play(
    what: Playable,
    policies: PoliciesByGroup = None,
    *,
    agent: str | None = None,
    seed: int = 10_000,
    greedy: bool = True,
    device: str = "auto",
    fps: int | None = None,
    episodes: int | None = None,
    **params: ParamValue,
) -> Game:
    """Play one agent by keyboard, with or against policies.

    In a notebook (extra ``notebook``), the call shows a picture that takes keys after a click, and
    returns. In a terminal, it returns when the game has ended.

    Args:
        what: Name of an environment, path of its Python file, ``EnvSpec``, ``VectorEnv`` (a new one
            like it), or ``Run``.
        policies: Policies of all other agents: ``"heuristic"``, ``"random"``, or settings by group
            as for ``evaluate``. Defaults to a run's own policies, to the heuristic, or to random
            actions if there is none.
        agent: The person's agent: ``"runner"`` (the first of its group) or ``"tagger 2"``. Defaults
            to the first agent with keys.
        seed: Random seed of the first episode. Each further episode has the next one.
        greedy: Whether a run's policies take the most likely action.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``. A run is played on its own device.
        fps: Steps per second, 1 to 60. Defaults to the environment's ``Display.fps``, within 10 to
            30.
        episodes: Number of episodes. Defaults to unlimited.
        **params: Parameters of the environment. A run has its own.

    Returns:
        ``Game``. Its ``recording`` is the ``Recording`` of the last finished episode, or of the
        unfinished first one, or None before the first step. Its ``scores`` has a text for each
        finished episode.

    Raises:
        ParameterError: If an argument is invalid, or the environment has no keys.
        RenderError: If the environment has no drawing, or there is neither a terminal nor a
            notebook with anywidget.
    """
    options: dict[str, Any] = {
        "agent": agent,
        "seed": seed,
        "greedy": greedy,
        "fps": fps,
        "episodes": episodes,
    }
    game = Game(
        resolve_eval(play, what, policies, params, device=device, kind=GameConfig, **options)
    )
    check_drawable(game.spec)
    if in_notebook():
        try:
            from cupydrive.rendering.notebook import NotebookScreen
        except ImportError:
            raise RenderError(
                "play: a notebook needs the package anywidget: pip install anywidget"
            ) from None
        from IPython.display import display

        display(NotebookScreen(game))
    elif sys.stdin.isatty() and sys.stdout.isatty():
        from cupydrive.rendering.terminal import play_in_terminal

        play_in_terminal(game)
    else:
        raise RenderError("play: no terminal and no notebook found. Run it in one of them")
    return game
