"""gallery(): plays and trains every environment, and writes videos, curves and the pages that show
them.

Each clip is kept as a recording, seed and actions, and each learning curve as points, so that all
of them can be drawn again without a GPU.
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

EPISODES = 1000  # of which means are taken
MOSAIC = 16  # episodes
UNTRAINED = ("random", "heuristic")  # kinds of clips, and players


def gallery(
    names: Sequence[str] = (),
    out: Path = Path("gallery"),
    *,
    runs: Path = Path("runs/gallery"),
    device: str = "auto",
    seed: int = 0,
    steps: int | None = None,
) -> Path:
    """Write the gallery of some environments into a folder. Others in it are kept.

    Args:
        names: Environments. Defaults to those that draw and whose data is here.
        out: Folder. It gets ``gallery.json``, ``index.html`` and ``README.md``; for each clip
            ``NAME-KIND.mp4``, ``.webp`` (a still), ``.gif`` and ``.npz``; ``NAME-curve.svg``, and
            ``curves.json``, its points.
        runs: Folder of the runs. One that has reached its steps is not trained again.
        device: Where to play and train.
        seed: Of the training.
        steps: Env-steps to train. Defaults to what the environment's showcase says.

    Returns:
        The path of ``index.html``.

    Raises:
        RenderError: If an environment draws nothing, or the folder cannot be written.
    """
    drawn = [name for name in envs.names() if envs.get(name).display.draw is not None]
    specs = [envs.get(name) for name in names] if names else envs.with_data(print, drawn)
    for spec in specs:
        if spec.display.draw is None:
            raise RenderError(
                f"{spec.name} has no drawing, so it cannot be in the gallery; give it "
                f"Display(draw=...)"
            )
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    for spec in specs:  # written after each one: an interrupt keeps those that are done
        entry = make_entry(spec, out, runs / spec.name, choose(device)[0], seed, steps)
        write_entries(out, read_entries(out) | {spec.name: entry})
    return out / "index.html"


def read_entries(out: Path) -> dict:
    """Return what a gallery's folder says of each environment, by name."""
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
    """Play, train and draw one environment; return what ``gallery.json`` says of it."""
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
    }  # who learns plays against them
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
    """Return the chapter of an environment, given the run that its gallery entry shows."""
    if run.spec.name in sources():  # it reads data of others
        return "Sciences"
    if len(run.spec.groups(run.config.params)) > 1:
        return "Many agents"
    remembers = any(getattr(policy, "state_size", 0) for policy in run.policies.values())
    return "Memory" if remembers else "Classics"


def about(spec: EnvSpec) -> dict:
    """Return what an environment is, and what its figures are called."""
    shown = {
        key: spec.display.showcase[key]
        for key in ("figures", "readable")
        if key in spec.display.showcase
    }
    return {"summary": spec.summary, **shown}


def planned(spec: EnvSpec, steps: int | None = None) -> tuple[dict, dict, int, int]:
    """Return what the gallery trains: policies by group, parameters, env-steps and copies."""
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
    """Draw the learning curve of an entry from points that are kept, beside the means of untrained
    players.
    """
    kept = read_curves(out).get(name)
    if kept is not None:
        with file_errors(RenderError, f"the gallery cannot be written to {out}"):
            write_atomically(out / entry["curve"], chart(kept, levels(entry["clips"])))


def levels(clips: list[dict]) -> dict[str, dict[str, float]]:
    """Return the means of untrained players by the names of metrics: ``{player: {metric: value}}``.

    Only of clips with the rivals that learning had. Against others a return says nothing about the
    learner.
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
