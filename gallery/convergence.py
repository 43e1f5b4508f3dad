"""How many copies learn soonest: return against seconds of training and against env-steps, ten
seeds of each number of copies.

    python gallery/convergence.py gallery/convergence.json --device cuda [--env cartpole] [--copies 10,100] [--seeds 10]
    python gallery/convergence.py gallery/convergence.json --redraw

Charts are written beside the JSON, as ``FILE-seconds.png`` and ``FILE-env-steps.png``.

An environment's copies all learn by the same settings of PPO, those that it suggests. But its
schedules, which count env-steps and would end within the first iteration of 100,000 copies, stay at
their first values. Each number of copies gets at least ITERATIONS iterations, and LEAST env-steps.
Seconds are those after set-up and capture, until the host has read a return: the mean over copies
of each one's latest episode, which there is once each copy has ended one. They are of actions as
they are drawn in training; the mark is of greedy ones. Medians begin where the last seed has a
return, and end where the first ends.

One training is a cell of the JSON, written when it is done: a second call with the same settings on
the same machine trains those that are missing, and --redraw draws the charts of those that are
there.
"""

import argparse
import datetime
import json
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.ticker import EngFormatter, NullFormatter

from cupydrive import envs
from cupydrive.algorithms.schedule import schedules, value_at
from cupydrive.drawing.curves import DARK, Curves, draw_median, quartiles
from cupydrive.drawing.palette import Palette
from cupydrive.errors import CupydriveError
from cupydrive.executors import choose
from cupydrive.executors.about import info
from cupydrive.inputs.files import write_atomically
from cupydrive.terminal.progress import Silent
from cupydrive.training.begin import make_run
from cupydrive.training.loop import Loop
from cupydrive.training.suggestions import suggested_algorithm
from cupydrive.training.together import Alone

ENVS = ("cartpole", "acrobot")
COPIES = (10, 100, 1_000, 10_000, 100_000)
ITERATIONS, LEAST = 60, 250_000  # of a training; env-steps
POINTS = 60  # of a curve, at most; equally far apart on an axis of logarithms
RETURN = "charts/episodic_return"
AXES = {
    "seconds": 1,
    "env-steps": 0,
}  # what a chart's horizontal axis is: the place in a point (env-steps, seconds, return)


# ---- training ------------------------------------------------------------------------------------


def equal_settings(env):
    """Return the settings for all numbers of copies: those that the environment suggests, schedules
    at their first values.
    """
    suggested = suggested_algorithm(env, "ppo")
    scheduled = schedules(type(suggested))
    return replace(suggested, **{name: value_at(getattr(suggested, name), 0) for name in scheduled})


def train_cell(env, settings, copies, seed, steps, device):
    """Return what one training has reached: ``env_steps``, ``seconds``, and its curve, points
    (env-steps, seconds, return).

    Raises:
        KeyboardInterrupt: If Ctrl-C ended it early.
    """
    run, rows = make_run(env, settings, num_envs=copies, seed=seed, device=device), []

    def note(step, row, number):
        if RETURN in row:
            rows.append((step, time.perf_counter() - loop.started, row[RETURN]))

    run.total = steps
    loop = Loop(Alone(run), [replace(run.config, steps=steps)], Silent(), note)
    loop.go()
    if run.step < steps:
        raise KeyboardInterrupt
    return {"env_steps": run.step, "seconds": digits(run.seconds), "curve": pooled(rows)}


def pooled(rows):
    """Return at most ``POINTS`` points: means of the returns between steps of equal ratio, at the
    last of them.
    """
    if not rows:
        return []
    steps = np.array([step for step, _, _ in rows], float)
    ratio = np.log(steps / steps[0]) / max(np.log(steps[-1] / steps[0]), 1e-9)
    part = np.minimum((ratio * POINTS).astype(int), POINTS - 1)
    together = (
        [row for row, k in zip(rows, part, strict=True) if k == which] for which in np.unique(part)
    )
    return [
        [rows[-1][0], digits(rows[-1][1]), digits(np.mean([row[2] for row in rows]))]
        for rows in together
    ]


def digits(number):
    """Return a number with five digits that count."""
    return float(f"{number:.5g}")


# ---- the file ------------------------------------------------------------------------------------


def described(env, settings):
    """Return what the file says of an environment."""
    spec = envs.get(env)
    return {"title": spec.title, "mark": spec.reward_threshold, "settings": str(settings)}


def measure(work: dict, seeds: int, device: str, machine: dict, path: Path) -> dict:
    """Train the cells that a file does not have yet, and return what it holds then; an interrupt
    keeps those that are done.

    Args:
        work: ``{env: (settings, {copies: env-steps})}``.
        seeds: Number of seeds of each.
        device: ``"cuda"`` or ``"cpu"``.
        machine: ``machine``, ``versions`` and ``command`` as the file says them.
        path: Of the JSON.

    Raises:
        CupydriveError: If the file holds cells of another machine, other versions, settings or
            env-steps.
    """
    found = json.loads(path.read_text()) if path.exists() else {"envs": {}, "cells": []}
    about = {
        env: described(env, settings) | {"env_steps": {str(n): k for n, k in steps.items()}}
        for env, (settings, steps) in work.items()
    }
    check_same(path, found, machine, about)
    for env, now in about.items():
        now["env_steps"] = found["envs"].get(env, {}).get("env_steps", {}) | now["env_steps"]
    found |= {**machine, "date": datetime.date.today().isoformat(), "envs": found["envs"] | about}
    done = {(cell["env"], cell["copies"], cell["seed"]) for cell in found["cells"]}
    for seed in range(seeds):  # the outermost, so that an interrupt leaves some of all
        for env, (settings, steps) in work.items():
            for copies in steps:
                if (env, copies, seed) in done:
                    continue
                try:
                    cell = train_cell(env, settings, copies, seed, steps[copies], device)
                except KeyboardInterrupt:
                    return found | {"interrupted": True}
                found["cells"].append({"env": env, "copies": copies, "seed": seed, **cell})
                print(f"{env}, {copies:,} copies, seed {seed}: {cell['seconds']:.3f} s", flush=True)
                write_atomically(path, as_json(found).encode())
    return found


def check_same(path: Path, found: dict, machine: dict, work: dict) -> None:
    """Raise ``CupydriveError`` if a file's cells are not comparable with what is to be trained."""
    pairs = [(found.get(name, machine[name]), machine[name]) for name in ("machine", "versions")]
    for env, about in work.items():
        known = found["envs"].get(env, about)
        pairs.append((known["settings"], about["settings"]))
        steps = about["env_steps"].items()
        pairs += [
            (f"{known['env_steps'].get(n, k):,} env-steps", f"{k:,} env-steps") for n, k in steps
        ]
    for before, now in pairs:
        if before != now:
            raise CupydriveError(f"{path} has cells of {before}, not {now}; name another file")


def as_json(found):
    """Return the text of the file: a cell is a line, and the results of all seeds stand before
    them.
    """
    about = {name: value for name, value in found.items() if name not in ("cells", "interrupted")}
    head = json.dumps({**about, "results": results(found)}, indent=1).removesuffix("\n}")
    cells = ",\n".join(f"  {json.dumps(cell)}" for cell in found["cells"])
    return f'{head},\n "cells": [\n{cells}\n ]\n}}\n'


# ---- what seeds say together ---------------------------------------------------------------------


def by_copies(found, env):
    """Return an environment's cells by the number of copies, ascending."""
    numbers = sorted({cell["copies"] for cell in found["cells"] if cell["env"] == env})
    return {
        n: [cell for cell in found["cells"] if (cell["env"], cell["copies"]) == (env, n)]
        for n in numbers
    }


def results(found):
    """Return, for each environment and number of copies, quartiles of the last return, and where
    their median has the mark.

    ``env_steps_to_mark`` and ``seconds_to_mark`` are those at which the median over seeds of the
    curves first reaches it.
    """
    rows = []
    for env, about in found["envs"].items():
        for copies, cells in by_copies(found, env).items():
            last = [cell["curve"][-1][2] for cell in cells if cell["curve"]]
            row = {"env": env, "copies": copies, "seeds": len(cells)}
            row["return"] = [digits(x) for x in np.percentile(last, (25, 50, 75))] if last else None
            for name, place in (("env_steps_to_mark", 0), ("seconds_to_mark", 1)):
                steps, _, middle, _ = quartiles(points(cells, place), share=1.0)
                there = steps[middle >= about["mark"]] if about["mark"] is not None else ()
                row[name] = digits(there[0]) if len(there) else None
            rows.append(row)
    return rows


def points(cells, place):
    """Return of each cell the points (x, return), x being env-steps (place 0) or seconds
    (place 1).
    """
    return [[(point[place], point[2]) for point in cell["curve"]] for cell in cells]


@rc_context(DARK)
def chart(found, axis):
    """Return a figure: for each environment the return over ``axis``, by the number of copies, the
    mark as a dashed line.
    """
    names = [env for env in found["envs"] if by_copies(found, env)]
    figure = Curves(figsize=(0.5 + 4 * len(names), 3.6), dpi=160, layout="constrained")
    every = sorted({cell["copies"] for cell in found["cells"]})
    colors = dict(zip(every, colormaps["viridis"](np.linspace(1.0, 0.4, len(every))), strict=True))
    for number, env in enumerate(names):
        axes, about = figure.add_subplot(1, len(names), number + 1), found["envs"][env]
        for copies, cells in by_copies(found, env).items():
            draw_median(axes, points(cells, AXES[axis]), colors[copies], f"{copies:,}", share=1.0)
        if about["mark"] is not None:
            axes.axhline(about["mark"], color=Palette.SOFT, linewidth=1.2, linestyle="--")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter("s" if axis == "seconds" else "", sep=" "))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("training time without set-up" if axis == "seconds" else "env-steps")
        axes.set_ylabel("mean return of an episode, points" if number == 0 else "")
        mark = (
            "" if about["mark"] is None else f", solved from {about['mark']:g} on"
        )  # in the panel it would lie on curves
        axes.set_title(about["title"] + mark, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
    # One key for all panels, beside them: within one it would lie on lines.
    keys = {
        label: line
        for axes in figure.axes
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        keys.values(), keys.keys(), frameon=False, title="environments", loc="outside right upper"
    )
    seeds = max(cell["seed"] for cell in found["cells"]) + 1
    figure.suptitle(
        f"PPO, {seeds} seed{'s' * (seeds > 1)}: median and quartiles. {found['machine']}, "
        f"{found['date']}",
        fontsize=10,
    )
    return figure


def main(arguments: list[str] | None = None) -> int:
    """Train what is missing, write the file and the charts beside it; exit code 130 if an interrupt
    came.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, metavar="FILE.json")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--env", choices=envs.names(), action="append")
    parser.add_argument(
        "--copies", type=lambda text: tuple(map(int, text.split(","))), default=COPIES
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--redraw", action="store_true", help="draw the charts of the file and train nothing"
    )
    args = parser.parse_args(arguments)
    if args.redraw:
        found = json.loads(args.path.read_text())
    else:
        device, about, work = choose(args.device)[0], info(), {}
        for env in args.env or ENVS:
            settings = equal_settings(env)
            work[env] = (
                settings,
                {n: max(LEAST, ITERATIONS * n * settings.num_steps) for n in args.copies},
            )
        command = shlex.join(
            [
                "python",
                "gallery/convergence.py",
                *(sys.argv[1:] if arguments is None else arguments),
            ]
        )
        name = about.gpus[0] if device == "cuda" else about.processor
        machine = {"command": command, "machine": name, "versions": about.versions}
        found = measure(work, args.seeds, device, machine, args.path)
    print(*results(found), sep="\n")
    for axis in AXES if found["cells"] else ():
        figure = chart(found, axis)
        write_atomically(args.path.with_name(f"{args.path.stem}-{axis}.png"), figure.png())
    return 130 if found.get("interrupted") else 0


if __name__ == "__main__":
    sys.exit(main())
