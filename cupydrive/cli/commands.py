"""The commands that make, play and draw runs: train, sweep, evaluate, render, play, gallery."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
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
    """Train policies, one per group of agents; Ctrl-C, or SIGTERM, ends it early and keeps the
    result in --out.

    Started by torchrun, all processes train one run together.

    Args:
        name: An environment, or the path of a .py file that defines one; not needed with --resume.
        algorithm: ppo, a2c or ddpg; what the environment suggests if left out.
        steps: Env-steps in all, such as 2e6; by default what cupydrive envs NAME says. To resume
            without a name: so many more.
        num_envs: Copies of the environment at once; by default what cupydrive envs NAME says.
        seed: Of everything random, an integer from 0 on; by default 0.
        seeds: Train so many runs, with the seeds from --seed on, and print what they say together;
            by default one.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        out: Folder for configuration, metrics and checkpoints, such as runs/cartpole; if left out,
            nothing is kept.
        resume: Go on with the run in --out; with a name, begin it where there is none, so that a
            script can run again.
        overwrite: Replace the run in --out; other files there stay.
        env: With --resume: the file that defines the run's environment, if it is one of your own.
        heuristic: Groups that do not learn but play the environment's heuristic, such as runner.
        pool: Groups that learn, and of which past snapshots play half of the environments, such as
            runner.
        param: Parameters of the environment, such as grid_length=20; those that list numbers as
            name=1,2,3.
        set: Settings of the algorithm, such as learning_rate=1e-3.
        backend: What PPO and A2C compute with, by default kernels where they apply.
        keep: Number of checkpoints that stay in --out, the newest.
        checkpoint_minutes: Minutes between checkpoints.
        gpus: Train one run on so many GPUs of this machine, one process each; by default on one.
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
                "--resume goes on with the run in --out, --overwrite replaces it; pass one of them"
            )
        what: Any = name
        if name is None:
            if not resume or out is None:
                raise CupydriveError(
                    "train what? Name an environment, or the folder of a run: --resume --out DIR"
                )
            what = Run.load(out, where, env=env)
        elif env is not None:
            raise CupydriveError(
                f"--env goes with --resume; a new run takes the file: cupydrive train {env}"
            )
        spec, params = envs.get(what if name else what.spec), parsed(param)
        # a name that is none of its parameters is not taken for an argument
        spec.require_known(params)
        policies: dict[str, PlayerSettings | LearnerSettings] | None = None  # those of the run
        if algorithm or heuristic or pool or set or not resume:
            learns: Any = suggested_algorithm(
                what if name else spec, algorithm, params=params, **parsed(set)
            )
            policies = dict.fromkeys(
                [g.name for g in spec.groups(spec.make_params(**params))], learns
            )
            if both := [group for group in pool if group in heuristic]:
                raise CupydriveError(
                    f"--pool {both[0]} and --heuristic {both[0]}: name it in one of them"
                )
            policies |= {group: OpponentPool(learns) for group in pool}
            policies |= {group: HeuristicPolicy() for group in heuristic}
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
    mark: Float = None,
    key: Annotated[str | None, unsaid(metavar="METRIC")] = None,
    prune: bool = False,
    batch: int = 8,
    seed: int = 0,
    device: DeviceOption = "auto",
    param: Pairs = (),
) -> int:
    """Search for settings of an algorithm with Optuna; the same command goes on after Ctrl-C, or on
    another machine.

    Args:
        name: An environment, or the path of a .py file that defines one.
        out: Folder of the sweep, which several processes may share.
        trials: Finished trials in the folder at which the sweep ends.
        algorithm: ppo, a2c or ddpg; what the environment suggests if left out.
        steps: Env-steps of each trial, such as 2e5; by default what cupydrive envs NAME says of the
            algorithm.
        num_envs: Environments of each trial; by default what cupydrive envs NAME says of the
            algorithm.
        mark: Return to reach in as few env-steps as possible; if left out, the highest return at
            the end wins.
        key: Metric that is the return, such as charts/episodic_return/tagger; needed if there are
            several groups.
        prune: End trials early whose return is below the median after 1/8, 1/4 or 1/2 of their
            env-steps.
        batch: Trials that are drawn and trained together.
        seed: Seed of the draws and of each training.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        param: Parameters of the environment, such as grid_length=20.
    """
    from cupydrive.experiments.sweep import sweep

    options: dict[str, Any] = {
        "steps": steps,
        "num_envs": num_envs,
        "mark": mark,
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
    """Play whole episodes from fresh starts and print mean returns with 95 % confidence intervals.

    Args:
        run: A run folder, such as runs/cartpole; or an environment.
        policies: Policies that play instead of the run's policies, or of the environment's
            heuristic.
        episodes: Number of starts, one episode each.
        seed: Of the starts; equal seeds give equal starts.
        sample: Draw actions from the policy instead of taking the likeliest.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        env: The file that defines the run's environment, if it is one of your own.
        param: Parameters, if an environment is evaluated.
        json_file: Write means and half intervals to this file.
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
        what: A run folder, an environment, or a recording (.npz), which is shown again exactly.
        out: File to write: .mp4, .gif or .webp.
        policies: Policies instead of the run's. An environment's default: its heuristic, otherwise
            random actions.
        episodes: 1, or up to 64 side by side.
        seed: Of starts and actions.
        sample: Draw actions from the policy instead of taking the likeliest.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        size: Width and height in pixels, even; by default what suits the environment.
        fps: Frames per second, one frame for each step; by default what suits the environment.
        env: The file that defines the environment of a run or recording, if it is one of your own.
        param: Parameters, if an environment is played.
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
    """Play one agent by keys in the terminal. In a notebook, use cupydrive.play(NAME).

    Space pauses, r starts a new episode, q quits. A terminal does not report when a key is
    released, so a key counts for 0.1 seconds or one step, whichever is longer, and for as long as
    it repeats.

    Args:
        what: An environment with keys, or a run folder, whose policies play the other agents.
        policies: Policies of the other agents. Defaults to a run's policies, the heuristic, or
            random actions.
        agent: Your agent, such as runner or "tagger 2". Defaults to the first agent with keys.
        fps: Steps per second, 1 to 60. By default as in the environment's videos, within 10 to 30.
        episodes: Number of episodes. By default you play until you press q.
        seed: Random seed of the first episode. Each further episode has the next one.
        sample: Sample the actions of a run's policies instead of taking the most likely ones.
        device: "auto" is CUDA if there is a usable GPU, otherwise the CPU.
        out: Write the last finished episode as a recording, which `cupydrive render` turns into a
            video.
        env: File of the run's environment, if it is your own.
        param: Parameters of the environment, such as grid_length=10.
    """
    from cupydrive.rendering.play import play

    if out is not None and out.suffix != ".npz":
        raise CupydriveError(f"--out {out} ends in {out.suffix!r}; it must end in .npz")
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
    """Train and play every environment; write videos, learning curves, and a page that shows them.

    Args:
        names: Environments; all that draw if left out.
        out: Folder of the gallery; open index.html in it.
        runs: Folder of the runs; one that is done is not trained again.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        seed: Of the training.
        steps: Env-steps to train each, such as 1e5; by default what the environment suggests.
    """
    from cupydrive.gallery.build import gallery

    env_steps = None if steps is None else int(checked_float("gallery", "steps", steps, 1, 2**53))
    print(f"wrote {gallery(names, out, runs=runs, device=device, seed=seed, steps=env_steps)}")
    return 0


def after_training(run: "Run | Population", out: Path | None, name: str | None) -> str:
    """Return what a training has written, and the commands that take it, as lines.

    Args:
        run: ``Run`` or ``Population``.
        out: Its folder, or None.
        name: Name of the environment, or path of its Python file, as on the command line. None for
            a run's own.
    """
    if out is None:
        return (
            "nothing was written; --out DIR keeps a run, for cupydrive evaluate and cupydrive "
            "render"
        )
    if not hasattr(run, "spec"):  # a population
        return f"wrote {out}; in Python cupydrive.load({str(out)!r}) reads it"
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
    what: str, device: str, env: str | None, pairs: Sequence[str]
) -> tuple[Any, dict[str, Any]]:
    """Return what a command plays, and its device and parameters.

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
                f"{error}. Nor is it a run folder; cupydrive train NAME --out DIR makes one"
            ) from None
    if pairs:
        raise CupydriveError(
            f"--param {shown(pairs[0])}: a run or a recording brings its own parameters; leave it "
            f"out"
        )
    return found, options


def params_of(env: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the parameters that ``--param`` gives for an environment.

    Another name is not taken for an argument.
    """
    params = parsed(pairs)
    envs.get(env).require_known(params)
    return params


def check_writable(path: Path | None) -> None:
    """Raise now rather than after minutes of work if ``path`` cannot be written."""
    if path is not None:
        checked_target("file", checked_path("cupydrive", "file", path))


def write_json_file(path: Path, content: dict | list) -> None:
    """Write ``content`` as JSON, atomically."""
    with file_errors(CupydriveError, f"{path} cannot be written"):
        write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")
