"""The command line, built from the public Python functions.

Exit codes: 0 success, 1 failed check, 2 invalid input or missing requirement, 130 interrupted. An
interrupted training that keeps its result (--out) exits with 0.
"""

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import tyro

from cupydrive import __version__, envs
from cupydrive.checks.mistakes import own_mistake
from cupydrive.cli import demo
from cupydrive.cli.commands import (
    check_writable,
    run_evaluate,
    run_gallery,
    run_play,
    run_render,
    run_sweep,
    run_train,
    write_json_file,
)
from cupydrive.cli.interrupts import ended_if_stuck
from cupydrive.cli.measure import run_bench, run_profile, run_tune
from cupydrive.cli.options import DeviceOption, JsonFile, MaybeName, unsaid
from cupydrive.errors import (
    CupydriveError,
    CupydriveWarning,
    LostProcessError,
    MissingDataError,
    UnregisteredEnvironmentError,
    did_you_mean,
)
from cupydrive.inputs.arguments import shown
from cupydrive.spec import EnvSpec, Group, constant_params
from cupydrive.training.processes import LOST, MEETING, arguments
from cupydrive.training.suggestions import all_suggestions

PACKAGES = {"PIL": "pillow"}  # names of packages that differ from their import names

# ---- envs ----------------------------------------------------------------------------------------


def list_envs(name: MaybeName = None) -> int:
    """List the environments, or all parameters of one.

    Args:
        name: An environment, or the path of a .py file that defines one. Defaults to a list of all
            environments.
    """
    if name is not None:
        print(described_env(envs.get(name)))
        return 0
    rows: list[tuple[str, ...]] = [("name", "agents", "observation", "actions", "steps", "summary")]
    for known in envs.names():
        spec = envs.get(known)
        try:
            params = spec.make_params()
            groups = spec.groups(params)
        except MissingDataError as error:
            _say(f"{known} is skipped: {error}")
            continue
        agents = " + ".join(f"{g.count} {g.name}" for g in groups)
        observed, actions = (
            ", ".join(dict.fromkeys(each)) for each in zip(*map(sizes, groups), strict=True)
        )
        rows.append((known, agents, observed, actions, str(params.max_episode_steps), spec.summary))
    print(_table(rows))
    print("\nActions: 2 x 21 means two choices among 21 at every step.")
    print("Sizes are those of default parameters. `cupydrive envs NAME` shows all parameters.")
    return 0


def described_env(spec: EnvSpec) -> str:
    """Format an environment's groups and parameters."""
    params = spec.make_params()
    rows = [("group", "agents", "observation", "actions")]
    rows += [(g.name, str(g.count), *sizes(g)) for g in spec.groups(params)]
    lines = [f"{spec.name}: {spec.summary}", "", _table(rows)]
    lines.append(
        f"The time limit of {params.max_episode_steps} steps {spec.time_limit} the episode."
    )
    lines += [f"metrics: {', '.join(spec.metrics)}"] if spec.metrics else []
    lines += (
        [f"Solved by a mean return of {spec.reward_threshold:g}."]
        if spec.reward_threshold is not None
        else []
    )
    suggested = [
        ", ".join(
            f"{s.algorithm} ({s.num_envs:,} environments, {s.steps:,} env-steps)"
            for s in all_suggestions(spec, case)
        )
        for case in ({}, *spec.cases)
    ]
    lines.append(f"Defaults of train: {suggested[0]}")
    for case, words in zip(spec.cases, suggested[1:], strict=True):
        if words != suggested[0]:
            given = ", ".join(f"{name}={value}" for name, value in case.items())
            lines.append(f"With {given}: {words}")
    if spec.display.keys is not None:
        lines.append(
            f"Playable by keyboard as {' or '.join(spec.display.keys(params))}: cupydrive play "
            f"{spec.name}"
        )
    constants = {f.name for f in constant_params(spec.params)}
    table = [("parameter", "default", "range", "unit", "meaning")]
    for f in fields(spec.params):
        about = f.metadata
        allowed = "True, False"
        if isinstance(f.default, str):
            allowed = ", ".join(about["choices"])
        elif not isinstance(f.default, bool):
            each = " each" * isinstance(f.default, tuple)
            allowed = f"{_number(about['low'])} to {_number(about['high'])}{each}"
        name = f.name + " *" * (f.name in constants)
        table.append((name, _number(f.default), allowed, about["unit"], about["help"]))
    return "\n".join(
        [*lines, "", _table(table), "* compile-time constant: a new value recompiles the kernel"]
    )


def sizes(group: Group) -> tuple[str, str]:
    """Return the sizes of a group's observation and actions as text."""
    shape = " x ".join(map(str, group.obs_shape))
    kind = f" {group.obs_dtype}" * (group.obs_dtype != "float32")
    box = [f"Box({group.box.shape[0]})"] if group.continuous else []
    return shape + kind, " and ".join([choices(group.sizes)] * bool(group.sizes) + box)


def choices(sizes: Sequence[int]) -> str:
    """Format the numbers of choices of an action.

    ``57 x 10`` means 57 choices among 10, and ``21 and 2`` one choice among 21 and one among 2.
    """
    counted = ((size, len(list(equal))) for size, equal in groupby(sizes))
    return " and ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in counted)


def _number(value: object) -> str:
    if value == ():
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows of strings as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


# ---- info, data, new -----------------------------------------------------------------------------


def show_info() -> int:
    """Show versions, GPUs, compiler, cache folder, and the device that "auto" selects."""
    from cupydrive.executors.about import info

    print(info())
    return 0


def show_data(
    name: Annotated[str | None, unsaid(metavar="NAME")] = None, fetch: bool = False
) -> int:
    """Show the published data sets that environments read, with files, licenses and authors.

    Args:
        name: A single data set, such as rice_n. Defaults to all.
        fetch: Download missing files into the user's cache folder.
    """
    from cupydrive.inputs.data import files, here
    from cupydrive.inputs.files import from_home
    from cupydrive.inputs.sources import source, sources

    lacking = []
    for wanted in list(sources().values()) if name is None else [source(name)]:
        if fetch:
            files(wanted.name)
        found, damaged = here(wanted)
        folders = ", ".join(sorted({from_home(path.parent) for path in found.values()}))
        missing = [file for file in wanted.files if file not in found]
        lacking += [wanted.name] * bool(missing)
        print(wanted.name)
        for key, value in (
            ("is", wanted.about),
            ("files", f"{len(found)} of {len(wanted.files)}{f', in {folders}' if found else ''}"),
            ("missing", ", ".join(missing)),
            ("damaged", ", ".join(map(str, damaged))),
            ("from", wanted.page),
            ("license", wanted.license),
            ("credit", wanted.credit),
        ):
            if value:
                print(f"  {key:8} {value}")
    if lacking:
        raise MissingDataError(
            f"files of {', '.join(lacking)} are missing. Download them with cupydrive data "
            "--fetch, or put them into a folder DIR and set CUPYDRIVE_DATA=DIR"
        )
    return 0


def new_env(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    folder: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("."),
) -> int:
    """Write the files NAME.py and NAME.cu of a small working environment, to be edited.

    It has one group of agents. For two groups, begin with a copy of tag_grid, as described in
    docs/tutorial/own.md.

    Args:
        name: Name of the environment: a Python identifier, such as my_env.
        folder: Existing folder in which the two files are written.
    """
    from cupydrive.cli.scaffold import new

    python, kernel = new(name, folder)
    print(
        f"wrote {python} and {kernel}\nnext: cupydrive check {python}\nthen: cupydrive train "
        f"{python} --out runs/{name}"
    )
    return 0


# ---- check ---------------------------------------------------------------------------------------


def check_envs(
    names: Annotated[tuple[str, ...], tyro.conf.Positional, unsaid(metavar="NAME...|all")],
    agent_steps: int = 100_000,
    device: DeviceOption = "auto",
    seed: int = 0,
    fail_fast: bool = False,
    json_file: JsonFile = None,
) -> int:
    """Check environments: compare kernels with the NumPy reference, and devices bit for bit.

    Args:
        names: Environments, or paths of .py files that define one. "all" means the environments of
            the package whose data is on this machine.
        agent_steps: Minimum number of single-agent steps to compare with the reference, on each
            device.
        device: "auto" means all available devices.
        seed: Random seed of states, actions and parameters, a non-negative integer.
        fail_fast: Stop the check of an environment after the first case with a failed comparison.
            This skips the remaining cases, and the checks of thread teams and of array bounds.
        json_file: Write the reports to this file.
    """
    from cupydrive.checks.checker import check

    if not names:
        raise CupydriveError(
            f"check: environment missing. Pass environments ({', '.join(envs.names())}), .py "
            f"files, or all"
        )
    check_writable(json_file)
    # Look up all names first, so that errors surface before minutes of work. Then download data.
    found = {name: [envs.get(name)] for name in dict.fromkeys(names) if name != "all"}
    found |= {"all": envs.with_data(_say)} if "all" in names else {}
    options: dict[str, Any] = {
        "agent_steps": agent_steps,
        "device": device,
        "seed": seed,
        "fail_fast": fail_fast,
    }
    reports = []
    try:
        for spec in {spec.name: spec for name in names for spec in found[name]}.values():
            reports.append(check(spec, **options, progress=sys.stderr.isatty()))
            print(reports[-1], flush=True)
    finally:  # after an error or an interrupt, write the finished reports
        if json_file is not None:
            write_json_file(json_file, [report.to_dict() for report in reports])
    return 0 if all(report.passed for report in reports) else 1


def run_demo(device: DeviceOption = "auto") -> int:
    """Check the environments briefly, train two of them, render videos, and measure the speed of
    rollouts.

    Args:
        device: "auto" checks the environments on all available devices, and trains on CUDA if a GPU
            is usable, otherwise on the CPU.
    """
    for command in demo.DEMO_COMMANDS:
        line = f"{command} --device {device}"
        print(f"\n$ cupydrive {line}", flush=True)
        if code := main(shlex.split(line)):
            return code
    print(demo.NEXT)
    return 0


DESCRIPTION = """Reinforcement learning environments as CUDA kernels.
`cupydrive COMMAND --help` describes a command, and `cupydrive demo` runs a short demonstration.

Exit codes: 0 success, 1 failed check, 2 invalid input or missing requirement, 130 interrupted. An
interrupted training that keeps its result (--out) exits with 0."""
COMMANDS: dict[str, Callable[..., int]] = {
    "envs": list_envs,
    "info": show_info,
    "new": new_env,
    "check": check_envs,
    "train": run_train,
    "sweep": run_sweep,
    "evaluate": run_evaluate,
    "render": run_render,
    "play": run_play,
    "gallery": run_gallery,
    "demo": run_demo,
    "bench": run_bench,
    "tune": run_tune,
    "profile": run_profile,
    "data": show_data,
}


def _say(text: str | Exception) -> None:
    print(f"cupydrive: {str(text).removeprefix('cupydrive: ')}", file=sys.stderr, flush=True)


def show_warning(
    shown: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    *where: str | int,
    **more: str | None,
) -> None:
    """Print a ``CupydriveWarning`` as one line without its location. Others use Python's format."""
    if issubclass(category, CupydriveWarning):
        _say(f"warning: {message}")
    else:
        shown(message, category, *where, **more)


def explanation(error: Exception, args: Sequence[str]) -> str | None:
    """Format an error as one line, or return None for a bug in this program."""
    if isinstance(error, UnregisteredEnvironmentError):
        return f"{error.says} --env: {shlex.join(['cupydrive', *args, '--env', error.file])}"
    if found := own_mistake(error):
        return found
    if isinstance(error, CupydriveError):
        return str(error)
    if isinstance(error, ImportError) and error.name and not error.name.startswith("cupydrive"):
        package = error.name.split(".")[0]
        return (
            f"{error}. This command needs the package: pip install {PACKAGES.get(package, package)}"
        )
    if isinstance(error, OSError):  # a full disk, a file that cannot be opened
        return f"{error.filename or 'a file'} cannot be used: {error.strerror or error}"
    return None


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line on ``args``, which default to ``sys.argv``, and return the exit code."""
    # End only the process of the command line, not that of a program that calls this function.
    watched = ended_if_stuck() if args is None else contextlib.nullcontext()
    args = sys.argv[1:] if args is None else list(args)
    if not args:
        with contextlib.suppress(SystemExit):
            main(["--help"])
        return 2
    if args[0] == "help":
        args = [*args[1:2], "--help"]
    if args[0] in ("--version", "version"):
        print(f"cupydrive {__version__}")
        return 0
    arguments.set(args)
    streams: list[Any] = [sys.stdout, sys.stderr]
    for stream in streams:
        stream.reconfigure(errors="backslashreplace")  # file names may not be valid text
    if any(not text or (text.startswith("--") and text.endswith("=")) for text in args):
        _say(
            "an argument is empty, for example because a shell variable is not set. Pass a value, "
            "or omit the argument"
        )
        return 2
    if args and not args[0].startswith("-") and args[0] not in COMMANDS:
        _say(
            f"unknown command {shown(args[0])}.{did_you_mean(args[0], COMMANDS)} Commands: "
            f"{', '.join(COMMANDS)}"
        )
        return 2
    try:
        with watched, warnings.catch_warnings():
            warnings.simplefilter("always", CupydriveWarning)
            warnings.showwarning = partial(show_warning, warnings.showwarning)
            return tyro.extras.subcommand_cli_from_dict(
                COMMANDS, prog="cupydrive", description=DESCRIPTION, args=args
            )
    except LostProcessError as error:
        if MEETING in os.environ:
            return LOST  # the parent process reports the rank and the cause
        _say(error)
    except KeyboardInterrupt as error:
        _say(f"interrupted: {error}" if str(error) else "interrupted")
        return 130
    except BrokenPipeError:  # the reader has exited, as in `cupydrive envs | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        words = explanation(error, args)
        if words is None:  # a bug in this program: show the traceback
            raise
        _say(words)
    return 2
