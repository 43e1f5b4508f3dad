"""The commands that train, play and draw: train, sweep, evaluate, render, play, gallery."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from cupydrive import envs
from cupydrive.cli.interrupts import ended_as_by_ctrl_c
from cupydrive.cli.options import (
    Algorithm,
    Backend,
    DeviceOption,
    EnvFile,
    Float,
    Folder,
    Groups,
    Int,
    JsonFile,
    MaybeName,
    Name,
    Pairs,
    PolicyOption,
    parsed,
    unsaid,
)
from cupydrive.errors import CupydriveError, UnknownEnvironmentError
from cupydrive.inputs.arguments import checked_float, checked_path, checked_target, shown
from cupydrive.inputs.files import file_errors, write_atomically

if TYPE_CHECKING:
    from cupydrive.experiments.population import Population
    from cupydrive.protocols import LearnerSettings, PlayerSettings
    from cupydrive.training.run import Run


@ended_as_by_ctrl_c()
def run_train(
    name: MaybeName = None,
    algorithm: Algorithm = None,
    steps: Float = None,
    num_envs: Int = None,
    seed: Int = None,
    seeds: Int = None,
    device: DeviceOption = "auto",
    out: Folder = None,
    resume: bool = False,
    overwrite: bool = False,
    env: EnvFile = None,
    heuristic: Groups = (),
    pool: Groups = (),
    param: Pairs = (),
    set: Pairs = (),
    backend: Backend = None,
    keep: int = 3,
    checkpoint_minutes: float = 5.0,
    gpus: Annotated[str | None, unsaid(metavar="N|all")] = None,
) -> int:
    """Train policies, one for each group of agents. Ctrl-C or SIGTERM stops the training early and
    keeps the result in --out.

    If started by torchrun, all processes train one run together.

    Args:
        name: An environment, or the path of a .py file that defines one. Optional with --resume.
        algorithm: ppo, a2c, pqn or ddpg. Defaults to the environment's suggestion.
        steps: Total environment steps, such as 2e6. Defaults to the suggestion that cupydrive envs
            NAME prints. With --resume and no name, the number of additional environment steps.
        num_envs: Number of environments. Defaults to the suggestion that cupydrive envs NAME
            prints.
        seed: Random seed, a non-negative integer. Defaults to 0.
        seeds: Number of runs to train, with consecutive seeds that begin at --seed. Statistics over
            the runs are printed. Defaults to 1.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        out: Folder for configuration, metrics and checkpoints, such as runs/cartpole. Without it,
            nothing is saved.
        resume: Continue the run in --out. With a name, start a new run if there is none, so that a
            script can be run repeatedly.
        overwrite: Replace the run in --out. Other files in the folder are kept.
        env: With --resume: file of the run's environment, if it is your own.
        heuristic: Groups that follow the environment's heuristic instead of learning, such as
            runner.
        pool: Learning groups with an opponent pool, such as runner. In half of the environments,
            past snapshots of the policy act.
        param: Parameters of the environment, such as grid_length=20. Lists of numbers are written
            as name=1,2,3.
        set: Settings of the algorithm, such as learning_rate=1e-3.
        backend: Backend of PPO, A2C and PQN. Defaults to kernels wherever possible.
        keep: Number of newest checkpoints to keep in --out.
        checkpoint_minutes: Minutes between checkpoints.
        gpus: Number of GPUs of this machine to train one run on, with one process each. Defaults to
            one.
    """
    from cupydrive.training.processes import joined_processes, start_on_gpus

    if gpus is not None and (code := start_on_gpus(gpus, device)) is not None:
        return code
    with joined_processes(device) as first:
        from cupydrive.algorithms.pool import OpponentPool
        from cupydrive.executors import choose
        from cupydrive.experiments.train import train
        from cupydrive.playing.players import HeuristicPolicy
        from cupydrive.training.run import Run
        from cupydrive.training.suggestions import suggested_algorithm

        where, reason = choose(device)
        if resume and overwrite:
            raise CupydriveError(
                "--resume continues the run in --out, --overwrite replaces it. Pass one of them"
            )
        what: Any = name
        if name is None:
            if not resume or out is None:
                raise CupydriveError(
                    "train: environment missing. Pass its name, or --resume --out DIR for the run "
                    "in a folder"
                )
            what = Run.load(out, where, env=env)
        elif env is not None:
            raise CupydriveError(
                f"--env needs --resume. For a new run, pass the file: cupydrive train {env}"
            )
        spec, params = envs.get(what if name else what.spec), parsed(param)
        # An unknown parameter must not be passed on as an argument of `train`.
        spec.require_known(params)
        # None: the policies of the resumed run.
        policies: dict[str, PlayerSettings | LearnerSettings] | None = None
        if algorithm or heuristic or pool or set or not resume:
            learns: Any = suggested_algorithm(
                what if name else spec, algorithm, params=params, **parsed(set)
            )
            policies = dict.fromkeys(
                [g.name for g in spec.groups(spec.make_params(**params))], learns
            )
            pools, scripted = list(chain.from_iterable(pool)), list(chain.from_iterable(heuristic))
            if both := [group for group in pools if group in scripted]:
                raise CupydriveError(
                    f"--pool {both[0]} and --heuristic {both[0]}: pass the group in one of them"
                )
            policies |= {group: OpponentPool(learns) for group in pools}
            policies |= {group: HeuristicPolicy() for group in scripted}
        options: dict[str, Any] = {
            "steps": steps, "num_envs": num_envs, "seed": seed, "seeds": seeds, "out": out,
            "overwrite": overwrite,
            "resume": resume and name is not None, "backend": backend, "keep": keep,
            "device": where,
            "checkpoint_minutes": checkpoint_minutes,
        }  # fmt: skip
        if first:
            print(reason, file=sys.stderr)
        run = train(what, policies=policies, **options, **params)
        if first:
            print(run)
            print(after_training(run, out, env or name))
    return 130 if out is None and run.interrupted else 0


def run_sweep(
    name: Name,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")],
    trials: int = 40,
    algorithm: Algorithm = None,
    steps: Float = None,
    num_envs: Int = None,
    reward_threshold: Float = None,
    key: Annotated[str | None, unsaid(metavar="METRIC")] = None,
    prune: bool = False,
    batch: int = 8,
    seed: int = 0,
    device: DeviceOption = "auto",
    param: Pairs = (),
) -> int:
    """Search for settings of an algorithm with Optuna. The same command continues the sweep after
    Ctrl-C, or on another machine.

    Args:
        name: An environment, or the path of a .py file that defines one.
        out: Folder of the sweep, which several processes may share.
        trials: Number of finished trials in the folder at which the sweep ends.
        algorithm: ppo, a2c, pqn or ddpg. Defaults to the environment's suggestion.
        steps: Environment steps of each trial, such as 2e5. Defaults to the suggestion that
            cupydrive envs NAME prints.
        num_envs: Number of environments of each trial. Defaults to the suggestion that cupydrive
            envs NAME prints.
        reward_threshold: Return to reach in as few environment steps as possible. Without it, the
            sweep maximizes the final return.
        key: Metric to use as the return, such as charts/episodic_return/tagger. Required if there
            are several groups.
        prune: Stop trials early if their return is below the median after 1/8, 1/4 or 1/2 of their
            environment steps.
        batch: Number of trials that are proposed and trained together.
        seed: Random seed of the proposals and of each training.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        param: Parameters of the environment, such as grid_length=20.
    """
    from cupydrive.experiments.sweep import sweep

    options: dict[str, Any] = {
        "steps": steps,
        "num_envs": num_envs,
        "reward_threshold": reward_threshold,
        "key": key,
        "prune": prune,
    }
    options |= params_of(name, param)
    found = sweep(
        name, algorithm, trials=trials, out=out, batch=batch, seed=seed, device=device, **options
    )
    print(found)
    return 130 if found.interrupted else 0


def run_evaluate(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|NAME|FILE.py")],
    policies: PolicyOption = None,
    episodes: int = 1000,
    seed: int = 10_000,
    sample: bool = False,
    device: DeviceOption = "auto",
    env: EnvFile = None,
    param: Pairs = (),
    json_file: JsonFile = None,
) -> int:
    """Evaluate policies over complete episodes and print mean returns with 95 % confidence
    intervals.

    Args:
        run: A run folder, such as runs/cartpole, or an environment.
        policies: Policies that act instead of the run's policies or the environment's heuristic.
        episodes: Number of evaluation episodes.
        seed: Random seed of the initial states. Equal seeds give equal initial states.
        sample: Sample actions from the policy instead of taking the most likely ones.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        env: File of the run's environment, if it is your own.
        param: Parameters of the environment. Only without a run folder.
        json_file: Write means and half-widths of the confidence intervals to this file.
    """
    from cupydrive.playing.evaluation import evaluate

    check_writable(json_file)
    what, options = to_play(run, device, env, param)
    found = evaluate(what, policies, episodes=episodes, seed=seed, greedy=not sample, **options)
    print(found)
    if json_file is not None:
        about = {"env": found.env, "players": found.players, "seed": seed, "mean": found.summary()}
        write_json_file(
            json_file, about | ({"yardsticks": found.yardsticks} if found.yardsticks else {})
        )
    return 0


def run_render(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|NAME|FILE.py|FILE.npz")],
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    policies: PolicyOption = None,
    episodes: int = 1,
    seed: int = 10_000,
    sample: bool = False,
    device: DeviceOption = "auto",
    size: Annotated[tuple[int, int] | None, unsaid(metavar="WIDTH HEIGHT")] = None,
    fps: Int = None,
    env: EnvFile = None,
    param: Pairs = (),
) -> int:
    """Play episodes and write them as a video.

    Args:
        what: A run folder, an environment, or a recording (.npz), which is replayed exactly.
        out: File to write: .mp4, .gif or .webp.
        policies: Policies that act instead of the run's. For an environment, defaults to its
            heuristic if it has one, otherwise to random actions.
        episodes: Number of episodes, up to 64, shown side by side.
        seed: Random seed of initial states and actions.
        sample: Sample actions from the policy instead of taking the most likely ones.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        size: Width and height in pixels, both even. Defaults to the environment's size.
        fps: Frames per second, with one frame per step. Defaults to the environment's rate.
        env: File of the environment of a run or recording, if it is your own.
        param: Parameters of the environment. Only without a run folder or a recording.
    """
    from cupydrive.rendering.video import check_path, render

    check_path(out)
    played, options = to_play(what, device, env, param)
    options |= {"episodes": episodes, "seed": seed, "greedy": not sample, "size": size, "fps": fps}
    video = render(played, out, policies, **options)
    print(f"wrote {out}: {video}")
    return 0


def run_play(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|NAME|FILE.py")],
    policies: PolicyOption = None,
    agent: Annotated[str | None, unsaid(metavar='GROUP|"GROUP K"')] = None,
    fps: Int = None,
    episodes: Int = None,
    seed: int = 10_000,
    sample: bool = False,
    device: DeviceOption = "auto",
    out: Annotated[Path | None, unsaid(metavar="FILE.npz")] = None,
    env: EnvFile = None,
    param: Pairs = (),
) -> int:
    """Control one agent with the keyboard, in a terminal. In a notebook, use cupydrive.play(NAME).

    Space pauses, r starts a new episode, q quits. Terminals do not report the release of a key.
    A key therefore acts for 0.1 seconds or one step, whichever is longer, and as long as it
    repeats.

    Args:
        what: An environment with keys, or a run folder, whose policies control the other agents.
        policies: Policies of the other agents. Defaults to those of the run, otherwise to the
            heuristic or random actions.
        agent: Your agent, such as runner or "tagger 2". Defaults to the first agent with keys.
        fps: Steps per second, 1 to 60. Defaults to the frame rate of the environment's videos,
            limited to 10 to 30.
        episodes: Number of episodes. Defaults to no limit.
        seed: Random seed of the first episode. It increases by 1 for each further episode.
        sample: Sample the actions of a run's policies instead of taking the most likely ones.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        out: Write the last finished episode as a recording, which `cupydrive render` turns into a
            video.
        env: File of the run's environment, if it is your own.
        param: Parameters of the environment, such as grid_length=10.
    """
    from cupydrive.rendering.play import play

    if out is not None and out.suffix != ".npz":
        raise CupydriveError(f"--out {out}: got suffix {out.suffix!r}, expected '.npz'")
    check_writable(out)
    played, options = to_play(what, device, env, param)
    options |= {
        "agent": agent,
        "fps": fps,
        "episodes": episodes,
        "seed": seed,
        "greedy": not sample,
    }
    game = play(played, policies, **options)
    print(game)
    if out is not None and game.recording is not None:
        game.recording.save(out)
        print(f"wrote {out}")
    return 0


def run_gallery(
    names: Annotated[tuple[str, ...], tyro.conf.Positional, unsaid(metavar="[NAME...]")] = (),
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("gallery"),
    runs: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/gallery"),
    device: DeviceOption = "auto",
    seed: int = 0,
    steps: Float = None,
) -> int:
    """Train and play every environment, and write a page with videos and learning curves.

    Args:
        names: Environments. Defaults to all that define `draw`.
        out: Folder of the gallery. Open index.html in it.
        runs: Folder of the runs. Finished runs are not trained again.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        seed: Random seed of the training.
        steps: Environment steps of each run, such as 1e5. Defaults to the environment's suggestion.
    """
    from cupydrive.gallery.build import gallery

    env_steps = None if steps is None else int(checked_float("gallery", "steps", steps, 1, 2**53))
    print(f"wrote {gallery(names, out, runs=runs, device=device, seed=seed, steps=env_steps)}")
    return 0


def after_training(run: "Run | Population", out: Path | None, name: str | None) -> str:
    """Return the lines printed after a training: its files and the next commands.

    Args:
        run: ``Run`` or ``Population``.
        out: Folder of the run, or None.
        name: Name of the environment, or path of its Python file, as on the command line. None for
            a run's own.
    """
    if out is None:
        return (
            "nothing was written. Pass --out DIR to save the run for cupydrive evaluate and "
            "cupydrive render"
        )
    if not hasattr(run, "spec"):  # a population
        return f"wrote {out}. Load it in Python with cupydrive.load({str(out)!r})"
    folder, own = (
        shlex.quote(str(out)),
        f" --env {shlex.quote(name)}" if name and name.endswith(".py") else "",
    )
    drawn = f"\nthen: cupydrive render {folder} --out {run.spec.name}.mp4{own}"
    return (
        f"wrote {out}\nnext: cupydrive evaluate "
        f"{folder}{own}{drawn if run.spec.display.draw else ''}"
    )


def to_play(
    what: str, device: str, env: str | None, pairs: Sequence[Sequence[str]]
) -> tuple[Any, dict[str, Any]]:
    """Load the run, recording or environment that a command plays.

    Returns:
        The object to play, and a dictionary of its device and parameters.

    Args:
        what: A run folder, a recording, or an environment.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        env: The file that defines the environment of a run or recording, or None.
        pairs: Parameters of an environment. Runs and recordings have their own.
    """
    from cupydrive.executors import choose

    options: dict[str, Any] = {"device": choose(device)[0]}
    found: Any
    if os.path.isdir(checked_path("cupydrive", "the name or folder", what)):
        from cupydrive.training.run import Run

        found = Run.load(what, options["device"], env=env)
    elif what.endswith(".npz"):
        from cupydrive.playing.recording import Recording

        found = Recording.load(what, env=env)
    elif env is not None:
        raise CupydriveError(
            f"--env {env} goes with a run folder or recording, and {what!r} is neither"
        )
    else:
        try:
            return what, options | params_of(what, pairs)
        except UnknownEnvironmentError as error:
            raise CupydriveError(
                f"{error}. It is not a run folder either. Create one with cupydrive train NAME "
                "--out DIR"
            ) from None
    if given := list(chain.from_iterable(pairs)):
        raise CupydriveError(
            f"--param {shown(given[0])}: a run or a recording has its own parameters. Omit --param"
        )
    return found, options


def params_of(env: str, pairs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Parse the values of ``--param`` and check that the environment has these parameters.

    The check prevents an unknown name from being passed on as an argument.
    """
    params = parsed(pairs)
    envs.get(env).require_known(params)
    return params


def check_writable(path: Path | None) -> None:
    """Raise ``ParameterError`` if ``path`` cannot be written, before minutes of work."""
    if path is not None:
        checked_target("file", checked_path("cupydrive", "file", path))


def write_json_file(path: Path, content: dict | list) -> None:
    """Write ``content`` as JSON, atomically."""
    with file_errors(CupydriveError, f"{path} cannot be written"):
        write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
