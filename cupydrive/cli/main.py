"""The command line, from the functions that Python users call.

Exit codes: 0 success, 1 a check has failed, 2 wrong input or something missing, 130 interrupted;
a training that was interrupted and keeps its result (--out) ends with 0.
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

PACKAGES = {"PIL": "pillow"}  # packages whose name differs from that of their import

# ---- envs ----------------------------------------------------------------------------------------


def list_envs(name: MaybeName = None) -> int:
    """List the environments, or all parameters of one.

    Args:
        name: An environment, or the path of a .py file that defines one; if left out, all are
            listed.
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
            _say(f"{known} is left out: {error}")
            continue
        agents = " + ".join(f"{g.count} {g.name}" for g in groups)
        observed, actions = (
            ", ".join(dict.fromkeys(each)) for each in zip(*map(sizes, groups), strict=True)
        )
        rows.append((known, agents, observed, actions, str(params.max_episode_steps), spec.summary))
    print(_table(rows))
    print("\nActions: 2 x 21 are two choices of 21 each at every step.")
    print("All with default parameters; `cupydrive envs NAME` shows the parameters of one.")
    return 0


def described_env(spec: EnvSpec) -> str:
    """Return an environment's groups and parameters as text."""
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
        "; ".join(
            f"{s.algorithm} {s.num_envs:,} environments, {s.steps:,} env-steps"
            for s in all_suggestions(spec, case)
        )
        for case in ({}, *spec.cases)
    ]
    lines.append(f"train takes, where nothing is named: {suggested[0]}")
    for case, words in zip(spec.cases, suggested[1:], strict=True):
        if words != suggested[0]:
            given = ", ".join(f"{name}={value}" for name, value in case.items())
            lines.append(f"with {given}: {words}")
    if spec.display.keys is not None:
        lines.append(
            f"A person can play {' or '.join(spec.display.keys(params))}: cupydrive play "
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
        [*lines, "", _table(table), "* a new value compiles the kernel anew; others are data"]
    )


def sizes(group: Group) -> tuple[str, str]:
    """Return the sizes of a group's observation and actions as text."""
    shape = " x ".join(map(str, group.obs_shape))
    kind = f" {group.obs_dtype}" * (group.obs_dtype != "float32")
    box = [f"Box({group.box.shape[0]})"] if group.continuous else []
    return shape + kind, " and ".join([choices(group.sizes)] * bool(group.sizes) + box)


def choices(sizes: Sequence[int]) -> str:
    """Return the choices that make up an action in words: ``57 x 10``: 57 of 10 each; ``21 and 2``:
    one of 21, one of 2.
    """
    counted = ((size, len(list(equal))) for size, equal in groupby(sizes))
    return " and ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in counted)


def _number(value: object) -> str:
    if value == ():
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of strings as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


# ---- info, data, new -----------------------------------------------------------------------------


def show_info() -> int:
    """Show versions, GPUs, compiler, cache folder, and the device that "auto" picks."""
    from cupydrive.executors.about import info

    print(info())
    return 0


def show_data(
    name: Annotated[str | None, unsaid(metavar="NAME")] = None, fetch: bool = False
) -> int:
    """Show the published data sets that environments read: where their files are, their licence and
    their authors.

    Args:
        name: One data set only, such as rice_n. Defaults to all.
        fetch: Fetch missing files into the user's cache folder.
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
            ("licence", wanted.licence),
            ("credit", wanted.credit),
        ):
            if value:
                print(f"  {key:8} {value}")
    if lacking:
        raise MissingDataError(
            f"files of {', '.join(lacking)} are missing. Fetch them: cupydrive data --fetch; or "
            "put them into a folder DIR and set CUPYDRIVE_DATA=DIR"
        )
    return 0


def new_env(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    folder: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("."),
) -> int:
    """Write NAME.py and NAME.cu of a new environment: a small one that works, to be changed into
    yours.

    It has one group of agents; for two, begin with tag_grid of the package, as docs/tutorial/own.md
    says.

    Args:
        name: What the environment is called: a Python identifier, such as my_env.
        folder: Where to write the two files; it must exist.
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
    """Check environments: kernels against the NumPy reference, and devices against each other, bit
    for bit.

    Args:
        names: Environments, or paths of .py files that define one; all: those of the package whose
            data is here.
        agent_steps: Steps of one agent to compare with the reference, at least, on each device.
        device: "auto": all that can be used here.
        seed: Of states, actions and parameters, an integer from 0 on.
        fail_fast: Of an environment, leave out what comes after the first case with a comparison
            that fails: other cases, teams of threads, array bounds.
        json_file: Write the reports to this file.
    """
    from cupydrive.checks.checker import check

    if not names:
        raise CupydriveError(
            f"check what? name environments ({', '.join(envs.names())}), .py files, or all"
        )
    check_writable(json_file)
    # All names first: a wrong one is found out before minutes of work. Only then what fetches data.
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
    finally:  # an error or an interrupt: what is done is kept
        if json_file is not None:
            write_json_file(json_file, [report.to_dict() for report in reports])
    return 0 if all(report.passed for report in reports) else 1


def run_demo(device: DeviceOption = "auto") -> int:
    """Check the environments briefly, train two of them, draw videos, and show how fast rollouts
    are on this machine.

    Args:
        device: Where to run; "auto": CUDA where a GPU is usable, else the CPU, and checks on both.
    """
    for command in demo.DEMO_COMMANDS:
        line = f"{command} --device {device}"
        print(f"\n$ cupydrive {line}", flush=True)
        if code := main(shlex.split(line)):
            return code
    print(demo.NEXT)
    return 0


DESCRIPTION = """Reinforcement learning environments as CUDA kernels.
`cupydrive COMMAND --help` says what a command takes; `cupydrive demo` shows what there is.

Exit codes: 0 success, 1 a check has failed, 2 wrong input or something missing, 130 interrupted;
a training that was interrupted and keeps its result (--out) ends with 0."""
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
    """Print a warning of ours as one line, without the place in the code; others as Python does."""
    if issubclass(category, CupydriveWarning):
        _say(f"warning: {message}")
    else:
        shown(message, category, *where, **more)


def explanation(error: Exception, args: Sequence[str]) -> str | None:
    """Return an error as one line, or None for a mistake of this program."""
    if isinstance(error, UnregisteredEnvironmentError):
        return f"{error.says} --env: {shlex.join(['cupydrive', *args, '--env', error.file])}"
    if found := own_mistake(error):
        return found
    if isinstance(error, CupydriveError):
        return str(error)
    if isinstance(error, ImportError) and error.name and not error.name.startswith("cupydrive"):
        package = error.name.split(".")[0]
        return (
            f"{error}; cupydrive needs the package here: pip install "
            f"{PACKAGES.get(package, package)}"
        )
    if isinstance(error, OSError):  # a full disk, a file that cannot be opened
        return f"{error.filename or 'a file'} cannot be used: {error.strerror or error}"
    return None


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line on ``args``, by default the process's own, and return the exit code."""
    # Only a process that is the command line's own may be ended, not that of a program which calls
    # this function.
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
        stream.reconfigure(errors="backslashreplace")  # names of files may hold what no text can
    if any(not text or (text.startswith("--") and text.endswith("=")) for text in args):
        _say(
            "an argument is empty, such as a shell variable that is not set; pass a value, or "
            "leave it out"
        )
        return 2
    if args and not args[0].startswith("-") and args[0] not in COMMANDS:
        _say(
            f"there is no command {shown(args[0])}.{did_you_mean(args[0], COMMANDS)} There are: "
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
            return LOST  # the process that started this one reports which has ended, and how
        _say(error)
    except KeyboardInterrupt as error:
        _say(f"interrupted: {error}" if str(error) else "interrupted")
        return 130
    except BrokenPipeError:  # the reader has gone, as in `cupydrive envs | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        words = explanation(error, args)
        if words is None:  # a mistake of this program: all of the traceback
            raise
        _say(words)
    return 2
