"""The gallery's pictures of Tag as published, from the runs of tag_published.py: whole arenas,
three speeds, curves.

    python gallery/tag_gallery.py --runs runs/tag --continuous LABEL LABEL LABEL --longer LABEL --grid LABEL [--out gallery]
    python gallery/tag_gallery.py --draw gallery/tag_published-trained.npz [MORE.npz ...] --video FILE.mp4
    python gallery/tag_gallery.py --redraw [--out gallery]

Labels are names of run folders: of the runs with runners 1, 1.5 and 2 times as fast as taggers, of
one that was trained longer (without others it joins an entry that is there), and of grid Tag. The
first form writes clips, recordings and curves, and the entries ``tag_published`` and
``tag_grid_published`` of the gallery. It plays nothing: episodes are those that ``--evaluate`` has
recorded, figures those in ``tag_published.json``. Curves are medians of all seeds of a run that lie
beside it. It needs ``config.json``, ``metrics.jsonl`` and ``recordings`` of each. The second form
draws a clip again, the third all of them and the curves, from what lies in the gallery.
"""

import argparse
import sys
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tag_figures
import tag_published
from matplotlib import rc_context
from matplotlib.lines import Line2D
from side_by_side import SideBySide

from cupydrive.drawing.curves import DARK, Curves, draw_median, engineered
from cupydrive.drawing.palette import Palette
from cupydrive.gallery.build import read_entries, write_entries
from cupydrive.gallery.clips import write_video
from cupydrive.gallery.curves import PANEL, WIDTH, points_of, read_curves, write_curves
from cupydrive.inputs.files import write_atomically
from cupydrive.playing.recording import Recording
from cupydrive.rendering.video import Video
from cupydrive.training.frozen import rebuild
from cupydrive.training.runfolder import read_config, read_metrics

# Pixels, frames per second and steps per frame: of a clip, of several arenas side by side, and of
# the small animations.
LOOK = {
    "tag_continuous": dict(size=(640, 702), fps=10, every=8),
    "tag_grid": dict(size=(640, 702), fps=8),
}
BESIDE = dict(size=(1200, 576), fps=12, every=8)
PREVIEW = dict(fps=6, every=8, seconds=2, progress=False)
PREVIEW_SIZES = {False: (360, 394), True: (800, 396)}  # of one arena, of several
SUMMARIES = {
    "tag_published": "Tag with WarpDrive's published settings: 5 taggers and 100 runners "
    "are trained jointly.",
    "tag_grid_published": "Grid Tag with WarpDrive's published settings: 4 taggers and a runner "
    "are trained jointly on 101 x 101 cells.",
}
CASES = {"tag_published": "continuous", "tag_grid_published": "grid"}
MATCHES = {
    "trained": "both trained jointly",
    "trained taggers": "trained taggers, heuristic runners",
    "trained runners": "heuristic taggers, trained runners",
    "heuristic": "both heuristic",
    "random": "both random",
}
CALLED = {  # clips whose kind and players say too little
    "beside": "Side by side: runners as fast as taggers, 1.5 and 2 times as fast",
    "general": "Trained taggers against heuristic runners",
}
EARNED = {  # what the curves of taggers' and runners' returns show
    "tag_published": ("taggers earn less as runners learn", "runners earn more"),
    "tag_grid_published": (
        "taggers earn less at first, then more",
        "runners earn more at first, then less",
    ),
}


# ---- clips ---------------------------------------------------------------------------------------


def speed_in_words(times: float) -> str:
    """Return the speed of runners in words, given in a tagger's."""
    return f"runners {f'{times:g} x as' if times != 1 else 'equally'} fast"


def ratio(recording: Recording) -> str:
    """Return a title: how fast runners are, in a tagger's speed."""
    return speed_in_words(recording.params.skill_level_runner / recording.params.skill_level_tagger)


def video(
    recordings: list[Recording],
    title: str | None = None,
    small: bool = False,
    progress: bool = True,
) -> Video:
    """Return the ``Video`` of one recording or of several side by side; a small one shows the first
    seconds.
    """
    several, first = len(recordings) > 1, recordings[0]
    look = (BESIDE if several else LOOK[first.spec.name]) | {"progress": progress, "title": title}
    if small:
        look |= PREVIEW | {"size": PREVIEW_SIZES[several]}
    return (
        SideBySide(recordings, [ratio(r) for r in recordings], **look)
        if several
        else Video(first, **look)
    )


def draw(entry: str, said: dict, out: Path) -> dict:
    """Write the files of a clip from recordings in ``out``; return what ``gallery.json`` says of
    its pictures.

    Of grid Tag it says no tags of its own: their mean counts taggers that stand on the runner.
    """
    recordings = [
        Recording.load(out / file) for file in (said["recording"], *said.get("beside", []))
    ]
    title, name = next(iter(said["players"].values())), recordings[0].spec.name
    size = write_video(
        video(recordings, title),
        video(recordings, title, small=True),
        out / f"{entry}-{said['kind']}",
    )
    return {"size": size} | drawn_steps_and_tags(said, recordings, name)


def drawn_steps_and_tags(said: dict, recordings: list[Recording], name: str) -> dict:
    """Return which steps a clip draws, and how many runners its taggers tag."""
    look, found = BESIDE if len(recordings) > 1 else LOOK[name], {}
    if "every" in look:
        found["every"] = look["every"]
    if name == "tag_continuous":
        names = [key for key in said["means"] if key.startswith("tags")]
        found["here"] = {
            key: tag_figures.follow(r)["tags"] for key, r in zip(names, recordings, strict=True)
        }
    return found


def clip(
    entry: str, kind: str, files: list[str], title: str, means: dict, episodes: int, out: Path
) -> dict:
    """Write a clip of recordings that lie in ``out``; return what ``gallery.json`` says of it."""
    name, recordings = f"{entry}-{kind}", [Recording.load(out / file) for file in files]
    where = " ".join(f"gallery/{file}" for file in files)
    said = {
        "kind": kind,
        **({"title": CALLED[kind]} if kind in CALLED else {}),
        "video": f"{name}.mp4",
        "poster": f"{name}.webp",
        "preview": f"{name}.gif",
        "recording": files[0],
        **({"beside": files[1:]} if files[1:] else {}),
        "players": dict.fromkeys(recordings[0].players, title),
        "seed": recordings[0].seed,
        "first_env": recordings[0].first_env,
        "episodes": len(files),
        "steps": [r.steps for r in recordings],
        "means": means,
        "episodes_of_means": episodes,
        "command": f"python gallery/tag_gallery.py --draw {where} --video {name}.mp4",
    }
    return said | draw(entry, said, out)


def keep(folder: Path, match: str, file: Path) -> None:
    """Write one episode of a match as a recording of its own: the first that taggers have ended,
    else the first.
    """
    kept = Recording.load(folder / "recordings" / f"{match.replace(' ', '-')}.npz")
    ended = np.flatnonzero(kept.length < kept.params.max_episode_steps)
    kept[int(ended[0]) if len(ended) else 0].save(file)


def make_clip(entry: str, kind: str, folder: Path, row: dict, out: Path) -> dict:
    """Write the clip of one match of a run, and keep its recording; return what ``gallery.json``
    says of it.
    """
    match = "trained taggers" if kind == "general" else "trained"
    title = "trained taggers, heuristic runners" if kind == "general" else "trained together"
    if kind == "longer":
        title += f" for {row['env_steps'] / 1e6:,.0f} M env-steps"
    keep(folder, match, out / f"{entry}-{kind}.npz")
    cell = row["cells"][match]
    return clip(
        entry, kind, [f"{entry}-{kind}.npz"], title, cell["mean"], cell["episodes of means"], out
    )


def side_by_side(entry: str, folders: list[Path], found: list[dict], out: Path) -> dict:
    """Write the clip of several runs; return what ``gallery.json`` says of it."""
    files = [f"{entry}-trained.npz", *(f"{entry}-beside-{k}.npz" for k in range(1, len(folders)))]
    for folder, file in zip(folders[1:], files[1:], strict=True):
        keep(folder, "trained", out / file)
    cells = [row["cells"]["trained"] for row in found]
    titles = [ratio(Recording.load(out / file)) for file in files]
    means = {
        f"tags, {title}": cell["mean"]["tags"] for title, cell in zip(titles, cells, strict=True)
    }
    return clip(
        entry, "beside", files, "trained together", means, cells[0]["episodes of means"], out
    )


# ---- table and curves ----------------------------------------------------------------------------


def told(row: dict) -> tuple[str, dict[str, float]]:
    """Return what a run is told by, and of each match the tags of 100 runners, or how often the
    runner is caught, percent.
    """
    steps = f"{row['env_steps'] / 1e6:,.0f} M env-steps"
    if row["case"] == "grid":
        boards = sum(part["env_steps"] for part in row["training"][0]["smaller boards"])
        about = f"{steps}, after {boards / 1e6:,.0f} M on smaller boards"
        return about, {match: 100 * row["cells"][match]["tags"] for match in MATCHES}
    about = f"{speed_in_words(float(row['case'].partition('-')[2]))}, {steps}"
    return about, {match: row["cells"][match]["mean"]["tags"][0] for match in MATCHES}


def caught(results: dict, entry: str) -> list[list[str]]:
    """Return a table of how many runners are caught, by who plays, for each kind of run of an
    entry; all seeds.
    """
    runs = {}
    for row in results.values():
        if row["case"].startswith(CASES[entry]) and {*MATCHES} <= {*row["cells"]}:
            about, tags = told(row)
            runs.setdefault(about, []).append(tags)
    grid = f"episodes in which the runner is caught, % of {tag_published.FIGURED}"
    of = grid if entry == "tag_grid_published" else "tags of 100 runners"
    rows = [
        [f"{of}, mean of seeds ± the farthest seed's distance"],
        *([words] for words in MATCHES.values()),
    ]
    for about, seeds in runs.items():
        rows[0].append(f"{about}, {len(seeds)} seed{'s' * (len(seeds) > 1)}")
        for match, cells in zip(MATCHES, rows[1:], strict=True):
            tags = np.array([found[match] for found in seeds])
            spread = np.abs(tags - tags.mean()).max()
            cells.append(
                f"{tags.mean():.0f}" + f" ± {spread:.0f}" * (len(seeds) > 1 and "trained" in match)
            )
    return rows


def curves_of(entry: str, folders: list[Path], found: list[dict]) -> dict:
    """Return what ``curves.json`` says of some runs and their other seeds: by the entry's name with
    the run's number.
    """
    made = {}
    for number, (folder, row) in enumerate(zip(folders, found, strict=True)):
        metrics = [read_metrics(seed) for seed in seeds_of(folder)]
        points = points_of(
            metrics, [f"charts/episodic_return/{group}" for group in ("tagger", "runner")]
        )
        sizes = {
            "seeds": len(metrics),
            "env_steps": row["env_steps"],
            "num_envs": read_config(folder)["num_envs"],
        }
        made[f"{entry}_{number}"] = {**sizes, **where(row), "points": points}
    return made


def seeds_of(folder: Path) -> list[Path]:
    """Return the folders of a run and of its other seeds, by seed."""
    same = folder.name.rpartition("-seed")[0]
    return sorted(
        folder.parent.glob(f"{same}-seed*"), key=lambda path: int(path.name.rpartition("-seed")[2])
    )


def where(row: dict) -> dict:
    """Return on what a run was trained, and when."""
    part = row["training"][-1]
    device = part["machine"][0] if isinstance(part["machine"], list) else part["machine"]
    return {"device": device, "versions": part["versions"], "date": part["date"]}


def draw_curves(entry: str, results: dict, found: list[dict], out: Path) -> None:
    """Draw the curves of an entry from the points that its folder keeps and all seeds' figures."""
    kept = read_curves(out)
    curves = [kept[f"{entry}_{number}"] for number in range(len(found))]
    seeds = [
        [r for r in results.values() if all(r[key] == row[key] for key in ("case", "env_steps"))]
        for row in found
    ]
    write_atomically(out / f"{entry}-curve.svg", figure(entry, seeds, curves).svg())


@rc_context(DARK)
def figure(entry: str, found: list[list[dict]], curves: list[dict]) -> Curves:
    """Return curves: what both groups earn while they learn, and within an episode who is in the
    game and how far away.

    Args:
        entry: Its name.
        found: What ``tag_published.json`` says of all seeds of each run.
        curves: What ``curves.json`` says of each run.
    """
    panels = Curves(figsize=(2 * WIDTH, 2 * PANEL + 0.6), layout="constrained")
    axes = [panels.add_subplot(2, 2, k + 1) for k in range(4)]
    speeds = [seeds[0]["params"].get("skill_level_runner", 1.0) for seeds in found]
    for about, seeds, speed, color in zip(
        curves, found, speeds, cycle(Palette.CURVES), strict=False
    ):
        many = f"{about['seeds']} seeds" if about["seeds"] > 1 else "one seed"
        label = f"{speed_in_words(speed)}, {many}" if len(found) > 1 else many
        for axis, group in zip(axes, ("tagger", "runner"), strict=False):
            points = about["points"].get(f"charts/episodic_return/{group}", [])
            draw_median(axis, [[tuple(point) for point in seed] for seed in points], color, label)
            engineered(axis, "env-steps", f"return of a {group}, points")
        for match, style in (("trained", "-"), ("heuristic", ":")):
            cells = [row["cells"][match] for row in seeds]
            alike = [cell for cell in cells if cell["steps"] == cells[0]["steps"]]
            for axis, name in zip(axes[2:], ("in_game", "to_tagger"), strict=True):
                values = np.median(
                    np.array([cell["curves"][name] for cell in alike], float), axis=0
                )
                axis.plot(cells[0]["steps"], values, style, color=color, linewidth=1.6)
    engineered(axes[2], "step of an episode", "free runners, share")
    unit = "cells" if entry == "tag_grid_published" else "units of length"
    engineered(axes[3], "step of an episode", f"distance,\n{unit}")
    for axis, title in zip(
        axes,
        (*EARNED[entry], "runners not yet caught", "distance to the nearest tagger"),
        strict=True,
    ):
        axis.set_title(title, fontsize=10, loc="left")
    axes[2].set_ylim(0, 1.02)
    # One key of all panels, above them: within one it would lie on lines.
    styles = [
        Line2D([], [], color=Palette.SOFT, linestyle=s, label=f"in an episode: {w}")
        for s, w in (("-", "trained"), (":", "heuristic"))
    ]
    lines = [*axes[0].get_legend_handles_labels()[0], *styles]
    head = "{device}, {date}, {num_envs:,} environments, medians and quartiles of seeds".format(
        **curves[0]
    )
    panels.legend(
        handles=lines,
        frameon=False,
        loc="outside upper left",
        ncols=3,
        title=head,
        alignment="left",
    )
    return panels


# ---- entries -------------------------------------------------------------------------------------


def cells_of(results: dict, label: str) -> dict:
    """Return what ``tag_published.json`` says of a run, or end with an error."""
    if label not in results or "trained taggers" not in results[label]["cells"]:
        raise SystemExit(
            f"{label} has not been evaluated; run gallery/tag_published.py --evaluate on it first"
        )
    return results[label]


def make_entry(entry: str, folders: list[Path], results: dict, out: Path) -> dict:
    """Write the clips and curves of one entry; return it.

    The first folder's run is the one that is told about.
    """
    first, found = folders[0], [cells_of(results, folder.name) for folder in folders]
    config, row = read_config(first), found[0]
    clips = [make_clip(entry, kind, first, row, out) for kind in ("trained", "general")]
    if len(folders) > 1:
        clips.append(side_by_side(entry, folders, found, out))
    write_curves(out, read_curves(out) | curves_of(entry, folders, found))
    draw_curves(entry, results, found, out)
    return {
        "chapter": "Many agents",
        "summary": SUMMARIES[entry],
        "table": caught(results, entry),
        "changed": row["params"],
        "clips": clips,
        "curve": f"{entry}-curve.svg",
        "training": {
            "command": row["training"][-1]["command"],
            "policies": {
                name: str(rebuild(name, about, None)) for name, about in config["policies"].items()
            },
            "env_steps": row["env_steps"],
            "num_envs": config["num_envs"],
            "seed": config["seed"],
        },
        **where(row),
    }


def redraw(results: dict, out: Path) -> None:
    """Draw clips and curves of the entries that ``gallery.json`` has again, from recordings and
    points; no figure changes.
    """
    entries = read_entries(out)
    for entry in [name for name in CASES if name in entries]:
        for said in entries[entry]["clips"]:
            said |= draw(entry, said, out)
        shown = {}
        for row in results.values():
            if row["case"].startswith(CASES[entry]):
                # the first run of a case is the one that is shown
                shown.setdefault(row["case"], row)
        entries[entry]["table"] = caught(results, entry)
        draw_curves(entry, results, [*shown.values()], out)
    write_entries(out, entries)


def main() -> None:
    """Write the entries, or draw a clip again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/tag"))
    parser.add_argument(
        "--continuous", nargs="+", default=[], help="labels of the runs of continuous Tag"
    )
    parser.add_argument("--longer", help="label of a run of continuous Tag that was trained longer")
    parser.add_argument("--grid", nargs=1, default=[], help="label of the run of grid Tag")
    parser.add_argument("--json", type=Path, default=Path("gallery/tag_published.json"))
    parser.add_argument("--out", type=Path, default=Path("gallery"))
    parser.add_argument("--draw", type=Path, nargs="+", help="recordings to draw again")
    parser.add_argument(
        "--video", type=Path, default=Path("tag.mp4"), help="where to: .mp4, .gif or .webp"
    )
    parser.add_argument("--redraw", action="store_true", help="draw again what the gallery has")
    args = parser.parse_args()
    if args.draw:
        clips = [c for entry in read_entries(args.draw[0].parent).values() for c in entry["clips"]]
        titles = [
            next(iter(c["players"].values())) for c in clips if c["recording"] == args.draw[0].name
        ]
        video([Recording.load(path) for path in args.draw], *titles[:1]).save(args.video)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    results = tag_published.read(args.json, {})
    if args.redraw:
        redraw(results, args.out)
    for entry, labels in (("tag_published", args.continuous), ("tag_grid_published", args.grid)):
        if labels:
            made = make_entry(entry, [args.runs / label for label in labels], results, args.out)
            write_entries(args.out, {**read_entries(args.out), entry: made})
    if args.longer:
        entries, row = read_entries(args.out), cells_of(results, args.longer)
        clips = [clip for clip in entries["tag_published"]["clips"] if clip["kind"] != "longer"]
        made = make_clip("tag_published", "longer", args.runs / args.longer, row, args.out)
        entries["tag_published"]["clips"] = [*clips, made]
        write_entries(args.out, entries)


if __name__ == "__main__":
    sys.exit(main())
