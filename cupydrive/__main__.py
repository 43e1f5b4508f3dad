"""The command line, from the functions that Python users call.

Exit codes: 0 success, 1 a check has failed, 2 wrong input or something missing, 130 interrupted.
"""

import json
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cupydrive import envs
from cupydrive.errors import CupydriveError
from cupydrive.spec import checked_int, float_params

Device = Literal["auto", "cpu", "cuda"]
JsonFile = Annotated[Path | None, tyro.conf.arg(name="json", metavar="FILE")]
PngFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
Pairs = Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")]


# ---- envs ------------------------------------------------------------------------------------------------------------


def list_envs(name: Annotated[str | None, tyro.conf.Positional] = None) -> int:
    """List the environments, or all parameters of one.

    Args:
        name: An environment, or the path of a .py file that defines one.
    """
    if name is not None:
        print(describe(envs.get(name)))
        return 0
    rows = [("name", "agents", "observation", "actions", "steps", "summary")]
    for known in envs.names():
        spec = envs.get(known)
        params = spec.make_params()
        groups = spec.groups(params)
        rows.append(
            (
                known,
                " + ".join(f"{g.count} {g.name}" for g in groups),
                _distinct(str(g.obs_dim) for g in groups),
                _distinct(_actions(g) for g in groups),
                str(params.max_episode_steps),
                spec.summary,
            )
        )
    print(_table(rows))
    print("\nAll with default parameters; `cupydrive envs NAME` shows the parameters of one.")
    return 0


def describe(spec):
    """Return an environment's groups and parameters as text."""
    params = spec.make_params()
    ends = {"task": "ends the task (terminated)", "limit": "cuts the episode off (truncated)"}[spec.horizon]
    lines = [f"{spec.name}: {spec.summary}", ""]
    rows = [("group", "agents", "observation", "actions")]
    rows += [(g.name, str(g.count), str(g.obs_dim), _actions(g)) for g in spec.groups(params)]
    lines += [_table(rows), f"The time limit, {params.max_episode_steps} steps, {ends}."]
    lines += [f"metrics: {', '.join(spec.metrics)}"] if spec.metrics else []
    floats = {f.name for f in float_params(spec.params)}
    rows = [("parameter", "default", "range", "unit", "meaning")]
    for f in fields(spec.params):
        about = f.metadata
        if isinstance(f.default, str):
            allowed = ", ".join(about["choices"])
        elif isinstance(f.default, bool):
            allowed = "True, False"
        else:
            allowed = f"{_number(about['low'])} to {_number(about['high'])}"
        mark = "" if f.name in floats or f.name == "max_episode_steps" else " *"
        rows.append((f.name + mark, _number(f.default), allowed, about["unit"], about["help"]))
    return "\n".join([*lines, "", _table(rows), "* a new value compiles the kernel anew; others are data"])


def _distinct(texts):
    return ", ".join(dict.fromkeys(texts))


def _actions(group):
    if group.continuous:
        return f"Box({group.heads})"
    return " x ".join(str(n) for n in group.sizes)


def _number(value):
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(rows):
    """Return rows of strings as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


# ---- info, new -------------------------------------------------------------------------------------------------------


def show_info() -> int:
    """Show versions, GPUs, compiler, cache folder, and the device that "auto" picks."""
    from cupydrive.about import info

    print(info())
    return 0


def new_env(name: Annotated[str, tyro.conf.Positional], folder: Path = Path(".")) -> int:
    """Write NAME.py and NAME.cu of a new environment: a small one that works, to be changed into yours.

    Args:
        name: A Python identifier.
        folder: Where to write the two files.
    """
    from cupydrive.scaffold import new

    python, kernel = new(name, folder)
    print(f"wrote {python} and {kernel}\nnext: cupydrive check {python}")
    return 0


# ---- check -----------------------------------------------------------------------------------------------------------


def check_envs(
    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME...|all")],
    agent_steps: int = 100_000,
    device: Device = "auto",
    seed: int = 0,
    json_file: JsonFile = None,
) -> int:
    """Check environments: kernels against the NumPy reference, and devices against each other, bit for bit.

    Args:
        names: Environments, or paths of .py files that define one; "all": those of the package.
        agent_steps: Steps of one agent to compare with the reference, at least, on each device.
        device: "auto": all that can be used here.
        seed: Of states, actions and parameters.
        json_file: Write the reports to this file.
    """
    from cupydrive.checker import check
    from cupydrive.report import write_json

    if not names:
        raise CupydriveError(f"check what? name environments ({', '.join(envs.names())}), .py files, or all")
    seed = checked_int("check", "seed", seed, 0, 2**63 - 1)
    _check_writable(json_file)
    # All names first: a wrong one is found out before minutes of work.
    specs = {spec.name: spec for name in names for spec in map(envs.get, envs.names() if name == "all" else (name,))}
    reports, code = [], 0
    try:
        for spec in specs.values():
            try:
                report = check(spec, agent_steps=agent_steps, device=device, seed=seed, progress=sys.stderr.isatty())
            except CupydriveError as error:  # of this environment: the others are checked all the same
                _say(error)
                code = 2
                continue
            reports.append(report)
            print(report, flush=True)
            code = code or (0 if report.passed else 1)
    except KeyboardInterrupt:
        done = ", ".join(f"{r.env} {'passed' if r.passed else 'FAILED'}" for r in reports) or "nothing is done"
        _say(f"interrupted while checking {spec.name}; {done}")
        code = 130
    if json_file is not None:
        write_json(json_file, reports)
    return code


def _check_writable(path):
    """Raise now rather than after minutes of work if ``path`` cannot be written."""
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.is_dir() or path.is_dir() or not os.access(folder, os.W_OK):
        raise CupydriveError(f"{path} cannot be written; name a file in a folder that exists and can be written")


# ---- train, evaluate -------------------------------------------------------------------------------------------------


def run_train(
    name: Annotated[str | None, tyro.conf.Positional] = None,
    algorithm: str | None = None,
    steps: float | None = None,
    num_envs: int | None = None,
    seed: int = 0,
    device: Device = "auto",
    out: Folder = None,
    resume: bool = False,
    param: Pairs = (),
    set: Pairs = (),
    keep: int = 3,
    checkpoint_minutes: float = 5.0,
) -> int:
    """Train policies, one per group of agents; Ctrl-C ends it early and keeps the result.

    Args:
        name: An environment, or the path of a .py file that defines one; not needed with --resume.
        algorithm: ppo, a2c or ddpg; what the environment suggests if left out.
        steps: Env-steps in all, such as 2e6; with --resume: more of them, by default up to the run's total.
        num_envs: Environments at once.
        seed: Of everything random.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        out: Folder for configuration, metrics and checkpoints.
        resume: Go on with the run in --out.
        param: Parameters of the environment, such as grid_length=20.
        set: Settings of the algorithm, such as learning_rate=1e-3.
        keep: Checkpoints to keep.
        checkpoint_minutes: Time between checkpoints.
    """
    from cupydrive.executors import choose
    from cupydrive.run import Run
    from cupydrive.training import suggested_algorithm, train

    common = {"out": out, "keep": keep, "checkpoint_minutes": checkpoint_minutes, "steps": steps}
    where, reason = choose(device)
    print(reason, file=sys.stderr)
    if resume:
        if out is None:
            raise CupydriveError("--resume needs --out, the folder of the run")
        if name or algorithm or num_envs or param or set:
            raise CupydriveError(
                "--resume takes everything from the run; leave out name, algorithm, num-envs, param and set"
            )
        run = train(Run.load(out, where), **common)
    else:
        if name is None:
            raise CupydriveError(f"train what? Environments: {', '.join(envs.names())}")
        settings = suggested_algorithm(name, algorithm, **_parsed(set))
        run = train(name, settings, num_envs=num_envs, seed=seed, device=where, **common, **_parsed(param))
    print(run)
    if out is not None:
        print(f"wrote {out}")
    return 0


def run_evaluate(
    run: Annotated[str, tyro.conf.Positional],
    episodes: int = 1000,
    seed: int = 10_000,
    sample: bool = False,
    device: Device = "auto",
    param: Pairs = (),
    json_file: JsonFile = None,
) -> int:
    """Play whole episodes from fresh starts and print mean returns with 95 % confidence intervals.

    Args:
        run: A run folder; or an environment, whose heuristic plays then.
        episodes: Number of starts, one episode each.
        seed: Of the starts; equal seeds give equal starts.
        sample: Draw actions from the policy instead of taking the likeliest.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        param: Parameters, if an environment is evaluated.
        json_file: Write means and half intervals to this file.
    """
    from cupydrive.evaluation import evaluate
    from cupydrive.executors import choose
    from cupydrive.run import Run

    _check_writable(json_file)
    where, _ = choose(device)
    what = Run.load(run, where) if Path(run).is_dir() else run
    found = evaluate(what, episodes=episodes, seed=seed, greedy=not sample, device=where, **_parsed(param))
    print(found)
    if json_file is not None:
        _write_json(json_file, {"env": found.env, "players": found.players, "seed": seed, "mean": found.summary()})
    return 0


# ---- render, gallery -------------------------------------------------------------------------------------------------


def run_render(
    what: Annotated[str, tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")],
    players: Literal["random", "heuristic"] | None = None,
    episodes: int = 1,
    seed: int = 10_000,
    sample: bool = False,
    device: Device = "auto",
    size: tuple[int, int] | None = None,
    fps: int | None = None,
    param: Pairs = (),
) -> int:
    """Play episodes and write them as a video.

    Args:
        what: A run folder, an environment, or a recording (.npz), which is shown again exactly.
        out: File to write: .mp4, .gif or .webp.
        players: Who plays an environment: its heuristic if it has one, else random actions.
        episodes: 1, or up to 64 side by side.
        seed: Of starts and actions.
        sample: Draw actions from the policy instead of taking the likeliest.
        device: "auto": CUDA where a GPU is usable, else the CPU.
        size: Width and height in pixels, even.
        fps: Frames per second; one frame is one step.
        param: Parameters, if an environment is played.
    """
    from cupydrive.executors import choose
    from cupydrive.recording import Recording
    from cupydrive.run import Run
    from cupydrive.video import check_path, render

    check_path(out)
    options = {"size": size, "fps": fps, **_parsed(param)}
    if what.endswith(".npz"):
        video = render(Recording.load(what), out, players, **options)
    else:
        where, _ = choose(device)
        played = Run.load(what, where) if Path(what).is_dir() else what
        options |= {"episodes": episodes, "seed": seed, "greedy": not sample, "device": where}
        video = render(played, out, players, **options)
    print(f"wrote {out}: {video}")
    return 0


def run_gallery(
    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME...")] = (),
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("gallery"),
    runs: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/gallery"),
    device: Device = "auto",
    seed: int = 0,
    steps: float | None = None,
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
    from cupydrive.gallery import gallery

    steps = None if steps is None else int(steps)
    path = gallery(names, out, runs=runs, device=device, seed=seed, steps=steps)
    print(f"wrote {path}")
    return 0


def _parsed(pairs):
    """Return ``KEY=VALUE`` texts as a dictionary; values are JSON where they can be, else text."""
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise CupydriveError(f"{pair!r} is no KEY=VALUE, such as num_taggers=4")
        try:
            found[key.replace("-", "_")] = json.loads(text)
        except ValueError:
            found[key.replace("-", "_")] = {"True": True, "False": False}.get(text, text)
    return found


def _write_json(path, content):
    from cupydrive.files import write_atomically

    write_atomically(path, json.dumps(content, indent=1).encode() + b"\n")


# ---- demo, bench -----------------------------------------------------------------------------------------------------


def run_demo(picture: PngFile = None, device: Device = "auto") -> int:
    """Check the environments briefly, train two of them, and show how fast random rollouts are on this machine.

    Args:
        picture: Also write a PNG with one picture per environment, each after a few random steps.
        device: Where to train and roll out; checks use all that can be used here, or this one.
    """
    from cupydrive.demo import demo, draw_picture
    from cupydrive.executors import choose

    _check_writable(picture)
    if picture is not None:
        draw_picture(picture, choose(device)[0])
        print(f"wrote {picture}")
    return 0 if demo(device) else 1


def run_bench(device: Device = "auto", runs: int = 9, training: bool = False, json_file: JsonFile = None) -> int:
    """Time random rollouts, compilation and creation on this machine, or training.

    Args:
        device: Where to run; "auto": CUDA where a GPU is usable, else the CPU.
        runs: Timed runs of each rollout or lesson; medians are reported.
        training: Time whole training iterations instead.
        json_file: Write the result to this file.
    """
    from cupydrive.bench import bench
    from cupydrive.bench_training import bench_training

    _check_writable(json_file)
    options = {"device": device, "runs": runs, "progress": lambda line: print(line, flush=True)}
    result = bench_training(**options) if training else bench(**options).to_dict()
    if json_file is not None:
        _write_json(json_file, result)
    return 0


DESCRIPTION = """Reinforcement learning environments as CUDA kernels.

Exit codes: 0 success, 1 a check has failed, 2 wrong input or something missing, 130 interrupted."""
COMMANDS = {
    "envs": list_envs,
    "info": show_info,
    "new": new_env,
    "check": check_envs,
    "train": run_train,
    "evaluate": run_evaluate,
    "render": run_render,
    "gallery": run_gallery,
    "demo": run_demo,
    "bench": run_bench,
}


def _say(text):
    print(f"cupydrive: {text}", file=sys.stderr, flush=True)


def main(args=None):
    """Run the command line on ``args``, by default the process's own, and return the exit code."""
    try:
        return tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="cupydrive", description=DESCRIPTION, args=args)
    except CupydriveError as error:
        _say(error)
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:  # the reader has gone, as in `cupydrive envs | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
