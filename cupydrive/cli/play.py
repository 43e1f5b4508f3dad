"""``cupydrive play``: a person plays one agent in a terminal or a window."""

import sys
from pathlib import Path
from typing import Annotated

import tyro

from cupydrive.cli.commands import check_writable, is_folder, named
from cupydrive.cli.options import Device, EnvFile, Int, Others, Pairs, parsed, unsaid
from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import checked_int


def run_play(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|NAME|FILE.py")],
    agent: Annotated[str | None, unsaid(metavar='GROUP|"GROUP K"')] = None,
    others: Others = None,
    fps: Int = None,
    episodes: Int = None,
    seed: int = 10_000,
    sample: bool = False,
    device: Device = "auto",
    window: bool = False,
    out: Annotated[Path | None, unsaid(metavar="FILE.npz")] = None,
    env: EnvFile = None,
    param: Pairs = (),
) -> int:
    """Play one agent by keys in the terminal, or in a window; in a notebook there is view(NAME, players="keyboard").

    A terminal tells when a key is pressed and not when it is let go: there a key counts for a tenth of a second or a step, the
    longer of the two, and for as long as it repeats. Space pauses, r begins anew, q ends the game.

    Args:
        what: An environment whose description has keys, or a run folder, whose policies play the others.
        agent: Whom you play, such as runner or "tagger 2"; the first agent if left out.
        others: Who plays the others: by default a run's policies, or the environment's heuristic, or chance.
        fps: Steps a second, 10 to 30; by default what suits the environment.
        episodes: End after so many episodes; by default when you press q.
        seed: Of the first start; the next episode has the next one.
        sample: A run's policies draw actions instead of taking the likeliest.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        window: Play in a window of Matplotlib's, which needs a display and a toolkit.
        out: Write the last whole episode as a recording, which `cupydrive render` makes a video of.
        env: The file that defines the run's environment, if it is one of your own.
        param: Parameters of the environment, such as grid_length=10.
    """
    from cupydrive.drawing.frames import check_drawable
    from cupydrive.executors import choose
    from cupydrive.playing.game import Game, checked_pace
    from cupydrive.rendering.terminal import play_in_terminal
    from cupydrive.rendering.window import play_in_window
    from cupydrive.training.run import Run

    if out is not None and out.suffix != ".npz":
        raise CupydriveError(f"--out {out} ends in {out.suffix!r}; it must end in .npz")
    check_writable(out)
    fps = None if fps is None else checked_pace("play", fps)
    episodes = None if episodes is None else checked_int("play", "episodes", episodes)
    where, _ = choose(device)
    played = Run.load(what, where, env=env) if is_folder(what) else named(what, env)
    game = Game(played, agent, others, seed=seed, greedy=not sample, device=where, **parsed(param))
    check_drawable(game.spec)
    if not window and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CupydriveError(
            "play needs a terminal, for its keys and its pictures, or --window; in a notebook: "
            f"cupydrive.view({game.spec.name!r}, players='keyboard')"
        )
    rounds = (play_in_window if window else play_in_terminal)(game, fps or game.usual_pace, episodes)
    for k, (steps, score) in enumerate(rounds.results):
        print(f"episode {k + 1}: {steps} steps   {score}")
    if out is not None and rounds.recording is not None:
        rounds.recording.save(out)
        print(f"wrote {out}")
    return 0
