"""``cupydrive play``: a person plays one agent in a terminal."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from cupydrive.cli.commands import check_writable, run_or_name
from cupydrive.cli.options import Device, EnvFile, Int, Named, Pairs, parsed, unsaid
from cupydrive.errors import CupydriveError


def run_play(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|NAME|FILE.py")],
    policies: Named = None,
    agent: Annotated[str | None, unsaid(metavar='GROUP|"GROUP K"')] = None,
    fps: Int = None,
    episodes: Int = None,
    seed: int = 10_000,
    sample: bool = False,
    device: Device = "auto",
    out: Annotated[Path | None, unsaid(metavar="FILE.npz")] = None,
    env: EnvFile = None,
    param: Pairs = (),
) -> int:
    """Play one agent by keys in the terminal. In a notebook, use cupydrive.play(NAME).

    Space pauses, r starts a new episode, q quits. A terminal does not report when a key is released, so a key counts for 0.1
    seconds or one step, whichever is longer, and for as long as it repeats.

    Args:
        what: An environment with keys, or a run folder, whose policies play the other agents.
        policies: Policies of the other agents. Defaults to a run's policies, the heuristic, or random actions.
        agent: Your agent, such as runner or "tagger 2". Defaults to the first agent with keys.
        fps: Steps per second, 1 to 60. By default as in the environment's videos, within 10 to 30.
        episodes: Number of episodes. By default you play until you press q.
        seed: Random seed of the first episode. Each further episode has the next one.
        sample: Sample the actions of a run's policies instead of taking the most likely ones.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        out: Write the last finished episode as a recording, which `cupydrive render` turns into a video.
        env: File of the run's environment, if it is your own.
        param: Parameters of the environment, such as grid_length=10.
    """
    from cupydrive.executors import choose
    from cupydrive.rendering.play import play

    if out is not None and out.suffix != ".npz":
        raise CupydriveError(f"--out {out} ends in {out.suffix!r}; it must end in .npz")
    check_writable(out)
    where, _ = choose(device)
    played = run_or_name(what, where, env)
    options: dict[str, Any] = {
        "agent": agent,
        "fps": fps,
        "episodes": episodes,
        "seed": seed,
        "greedy": not sample,
        "device": where,
    }
    game = play(played, policies, **options, **parsed(param))
    print(game)
    if out is not None and game.recording is not None:
        game.recording.save(out)
        print(f"wrote {out}")
    return 0
