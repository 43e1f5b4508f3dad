"""gallery(): play and train every environment, and write videos, curves and pages.

Each clip is stored as a recording (seed and actions), and each learning curve as points, so that
all of them can be redrawn without a GPU.
"""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cupydrive import envs
from cupydrive.errors import RenderError
from cupydrive.executors import choose, executor
from cupydrive.executors.about import info
from cupydrive.experiments.train import train
from cupydrive.gallery.clips import SEED, all_alike, draw_clip, median_start
from cupydrive.gallery.curves import (
    chart,
    curve_keys,
    of_runs,
    read_checked,
    read_curves,
    write_curves,
)
from cupydrive.gallery.page import write_pages
from cupydrive.inputs.files import file_errors, write_atomically
from cupydrive.inputs.sources import sources
from cupydrive.playing.evaluation import evaluate
from cupydrive.playing.players import HeuristicPolicy, RandomPolicy
from cupydrive.protocols import PlayerSettings
from cupydrive.spec import EnvSpec
from cupydrive.training.run import Run
from cupydrive.training.suggestions import suggested_algorithm, suggestion

EPISODES = 1000  # number of episodes of each mean
MOSAIC = 16  # number of episodes of a mosaic
UNTRAINED = ("random", "heuristic")  # kinds of clips and policies without training


def gallery(
    names: Sequence[str] = (),
    out: Path = Path("gallery"),
    *,
    runs: Path = Path("runs/gallery"),
    device: str = "auto",
    seed: int = 0,
    steps: int | None = None,
) -> Path:
    """Write the gallery of some environments into a folder. Entries of other environments are kept.

    The folder contains ``gallery.json``, ``index.html``, ``README.md`` and ``curves.json`` with the
    points of learning curves. Each environment has ``NAME-curve.svg``, and each clip has
    ``NAME-KIND.mp4``, ``.webp`` (a still), ``.gif`` and ``.npz``.

    Args:
        names: Environments. Defaults to those with a drawing whose data is on this machine.
        out: Folder of the gallery.
        runs: Folder of the runs. Finished runs are not trained again.
        device: Device for playing and training.
        seed: Random seed of the training.
        steps: Environment steps to train. Defaults to the environment's showcase.

    Returns:
        The path of ``index.html``.

    Raises:
        RenderError: If an environment has no drawing, or the folder cannot be written.
    """
    drawn = [name for name in envs.names() if envs.get(name).display.draw is not None]
    specs = [envs.get(name) for name in names] if names else envs.with_data(print, drawn)
    for spec in specs:
        if spec.display.draw is None:
            raise RenderError(
                f"{spec.name} has no drawing, so it cannot be in the gallery. Pass "
                f"Display(draw=...) to its EnvSpec"
            )
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    for spec in specs:  # write after each one, so that an interrupt keeps finished entries
        entry = make_entry(spec, out, runs / spec.name, choose(device)[0], seed, steps)
        write_entries(out, read_entries(out) | {spec.name: entry})
    return out / "index.html"


def read_entries(out: Path) -> dict:
    """Read the entries of a gallery's folder, by name of the environment."""
    return read_checked(out / "gallery.json")


def write_entries(out: Path, entries: dict) -> None:
    """Write ``gallery.json`` and the pages."""
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        write_atomically(
            out / "gallery.json",
            json.dumps(dict(sorted(entries.items())), indent=1).encode() + b"\n",
        )
        write_pages(out, entries, read_curves(out))


def make_entry(
    spec: EnvSpec, out: Path, folder: Path, device: str, seed: int, steps: int | None
) -> dict[str, Any]:
    """Play, train and draw one environment, and return its entry of ``gallery.json``."""
    policies, params, goal, num_envs = planned(spec, steps)
    options: dict[str, Any] = {
        "policies": policies,
        "num_envs": num_envs,
        "seed": seed,
        "device": device,
        **params,
    }
    run: Any = train(spec, steps=goal, out=folder, resume=True, **options)
    print(f"{spec.name}: trained for {run.step:,} env-steps", flush=True)

    groups = [group for name in policies for group in name.split("+")]
    rivals = {
        name: HeuristicPolicy() for name in spec.display.showcase.get("rivals", ())
    }  # opponents of the learning policies
    kinds: dict[str, tuple[Any, dict[str, PlayerSettings] | None]] = {
        "random": (spec, {**dict.fromkeys(groups, RandomPolicy()), **rivals})
    }
    if spec.heuristic is not None:
        kinds["heuristic"] = (spec, dict.fromkeys(groups, HeuristicPolicy()))
    kinds["trained"] = (run, None)
    played = {
        kind: evaluate(
            what,
            players,
            episodes=EPISODES,
            seed=SEED,
            device=device,
            **({} if what is run else params),
        )
        for kind, (what, players) in kinds.items()
    }
    *others, last = played
    start = median_start(played[others[-1]], next(iter(run.learners)).split("+")[0])
    parts: dict[str, int | slice] = dict.fromkeys(kinds, start)
    if not all_alike(played[last]):
        parts["mosaic"] = slice(0, MOSAIC)
    clips = []
    for kind, part in parts.items():
        found = played.get(kind, played[last])
        recorded = found.recording
        assert recorded is not None  # the episodes are short
        clips.append(draw_clip(found, recorded[part], kind, out))
        print(f"{spec.name}: {clips[-1]['video']}", flush=True)
    keep_curves(spec.name, [run], out)
    entry = {
        "chapter": chapter_of(run),
        **about(spec),
        "changed": params,
        "clips": clips,
        "curve": f"{spec.name}-curve.svg",
        "training": {
            "command": f"cupydrive gallery {spec.name}",
            "policies": {name: str(settings) for name, settings in policies.items()},
            "env_steps": run.step,
            "num_envs": run.num_envs,
            "seed": seed,
        },
        "device": executor(device).describe(),
        "versions": info().versions,
        "date": datetime.date.today().isoformat(),
    }
    draw_curve(spec.name, entry, out)
    return entry


def chapter_of(run: Run) -> str:
    """Return the chapter of an environment, given the run of its gallery entry."""
    if run.spec.name in sources():  # environments with published data
        return "Sciences"
    if len(run.spec.groups(run.config.params)) > 1:
        return "Many agents"
    remembers = any(getattr(policy, "state_size", 0) for policy in run.policies.values())
    return "Memory" if remembers else "Classics"


def about(spec: EnvSpec) -> dict:
    """Return the summary of an environment and the titles of its figures."""
    shown = {
        key: spec.display.showcase[key]
        for key in ("figures", "readable")
        if key in spec.display.showcase
    }
    return {"summary": spec.summary, **shown}


def planned(spec: EnvSpec, steps: int | None = None) -> tuple[dict, dict, int, int]:
    """Return the gallery's training: policies by group, parameters, environment steps and
    ``num_envs``.
    """
    wanted = spec.display.showcase
    params = wanted.get("params", {})
    suggested = suggestion(spec, wanted.get("algorithm"), params)
    learner = suggested_algorithm(
        spec, suggested.algorithm, params=params, **wanted.get(suggested.algorithm, {})
    )
    names = [group.name for group in spec.groups(spec.make_params(**params))]
    policies = {
        name: HeuristicPolicy() if name in wanted.get("rivals", ()) else learner
        for name in wanted.get("policies", names)
    }
    goal = wanted.get("steps", suggested.steps) if steps is None else int(steps)
    return policies, params, goal, wanted.get("num_envs", suggested.num_envs)


def keep_curves(name: str, runs: list[Run], out: Path) -> None:
    """Add the learning curves of runs, which differ in their seeds, to ``curves.json``."""
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        write_curves(out, read_curves(out) | {name: of_runs(runs, curve_keys(runs[0]))})


def draw_curve(name: str, entry: dict, out: Path) -> None:
    """Draw the learning curve of an entry from its stored points and the untrained means."""
    kept = read_curves(out).get(name)
    if kept is not None:
        with file_errors(RenderError, f"the gallery cannot be written to {out}"):
            write_atomically(out / entry["curve"], chart(kept, levels(entry["clips"])))


def levels(clips: list[dict]) -> dict[str, dict[str, float]]:
    """Return the means of untrained policies, ``{policy: {metric: value}}``.

    Only clips with the opponents of the training are included, because returns against other
    opponents are not comparable.
    """
    learnt: dict[str, str] = next(
        (clip["players"] for clip in clips if clip["kind"] == "trained"), {}
    )
    rivals = {group: player for group, player in learnt.items() if player in UNTRAINED}
    return {
        clip["kind"]: {
            f"charts/episodic_{key.replace(' ', '/')}": mean
            for key, (mean, _) in clip["means"].items()
        }
        for clip in clips
        if clip["kind"] in UNTRAINED and rivals.items() <= clip["players"].items()
    }
