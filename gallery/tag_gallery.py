"""The gallery's pictures of Tag as published, from the runs of tag_published.py: whole arenas, three speeds, curves.

    python gallery/tag_gallery.py --runs runs/tag --continuous LABEL LABEL LABEL --longer LABEL --grid LABEL [--out gallery]
    python gallery/tag_gallery.py --draw gallery/tag_published-trained.npz [MORE.npz ...] --video FILE.mp4
    python gallery/tag_gallery.py --redraw [--out gallery]

Labels are names of run folders: of the runs with runners 1, 1.5 and 2 times as fast as taggers, of one that was trained longer
(alone it joins an entry that is there), and of grid Tag. The first form writes clips, recordings and curves, and the entries
``tag_published`` and ``tag_grid_published`` of the gallery. It plays nothing: episodes are those that ``--evaluate`` has
recorded, figures those in ``tag_published.json``. Curves are medians of all seeds of a run that lie beside it. All it needs of
one is ``config.json``, ``metrics.jsonl`` and ``recordings``: a megabyte. The second form draws a clip again, the third all of
them and the curves, from what lies in the gallery.
"""

import argparse
import sys
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tag_figures
import tag_published
from matplotlib.lines import Line2D
from side_by_side import SideBySide

from cupydrive.drawing.stage import svg
from cupydrive.gallery.build import end_first, poster, read_entries, write_entries
from cupydrive.gallery.curves import PANEL, WIDTH, in_short, read_curves, rounded, write_curves
from cupydrive.inputs.files import write_atomically
from cupydrive.playing.recording import Recording
from cupydrive.rendering.video import Video
from cupydrive.spec import kept_params
from cupydrive.terminal.curves import COLORS, Curves, draw_median, engineered, pooled
from cupydrive.training.frozen import rebuild
from cupydrive.training.runfolder import read_config, read_metrics

# Pixels of one arena, frames per second, and steps from one frame to the next: of a clip, of one of several side by side, and
# of the small animations, which also have an end.
LOOK = {"tag_continuous": dict(size=(640, 702), fps=10, every=8), "tag_grid": dict(size=(640, 702), fps=8)}
BESIDE = dict(size=(1200, 576), fps=12, every=8)
PREVIEW = dict(fps=6, every=8, seconds=2)
PREVIEW_SIZES = {1: (360, 394), 3: (800, 396)}
SUMMARIES = {
    "tag_published": "Tag as WarpDrive published it: 5 taggers and 100 runners, who learn together.",
    "tag_grid_published": "Grid Tag as WarpDrive published it: 4 taggers and a runner on 101 x 101 cells, who learn together.",
}
MATCHES = {
    "trained": "both trained, together",
    "trained taggers": "trained taggers, runners by the rule",
    "trained runners": "taggers by the rule, trained runners",
    "heuristic": "both by the rule",
    "random": "both at random",
}
CALLED = {  # clips that the page's own words say too little of
    "beside": "Side by side: runners as fast as taggers, 1.5 and 2 times as fast",
    "general": "Trained taggers against runners by the rule",
}
TITLES = {
    "trained": "trained together",
    "trained taggers": "trained taggers, heuristic runners",
    "trained runners": "heuristic taggers, trained runners",
    "heuristic": "heuristic",
    "random": "random",
}


def ratio(recording):
    """Return a title: how fast runners are, in a tagger's speed."""
    return speed_in_words(recording.params.skill_level_runner / recording.params.skill_level_tagger)


def speed_in_words(times):
    """Return the speed of runners in words, given in a tagger's."""
    return f"runners {f'{times:g} x as' if times != 1 else 'equally'} fast"


def video(recordings, title=None, progress=True):
    """Return the ``Video`` of one recording, or of several side by side."""
    if len(recordings) > 1:
        return SideBySide(recordings, [ratio(r) for r in recordings], title=title, **BESIDE, progress=progress)
    return Video(recordings[0], **LOOK[recordings[0].spec.name], title=title, progress=progress)


def preview(recordings, title=None):
    """Return a small video of the first seconds."""
    look = PREVIEW | {"size": PREVIEW_SIZES[3 if len(recordings) > 1 else 1], "progress": False}
    if len(recordings) > 1:
        return SideBySide(recordings, [ratio(r) for r in recordings], title=title, **look)
    return Video(recordings[0], **look, title=title)


def clip(entry, kind, files, title, means, episodes, out):
    """Write video, still and animation of recordings that lie in ``out``; return what ``gallery.json`` says of them."""
    name, first = f"{entry}-{kind}", Recording.load(out / files[0])
    where = " ".join(f"gallery/{file}" for file in files)
    said = {
        "kind": kind,
        "video": f"{name}.mp4",
        "poster": f"{name}.webp",
        "preview": f"{name}.gif",
        "recording": files[0],
        "size": draw_files(entry, kind, files, title, out),
        "players": dict.fromkeys(first.players, title),
        "seed": first.seed,
        "first_env": first.first_env,
        "episodes": len(files),
        "steps": [Recording.load(out / file).steps for file in files],
        "means": means,
        "episodes_of_means": episodes,
        "command": f"python gallery/tag_gallery.py --draw {where} --video {name}.mp4",
    }
    return said | ({"beside": files[1:]} if files[1:] else {}) | words_of(kind, files, means, out)


def words_of(kind, files, means, out):
    """Return what ``gallery.json`` says of a clip in words of its own: its title, which steps are drawn, whom its taggers tag.

    Of grid Tag it says no tags: their mean counts taggers that stand on the runner.
    """
    recordings = [Recording.load(out / file) for file in files]
    said = {"title": CALLED[kind]} if kind in CALLED else {}
    look = BESIDE if files[1:] else LOOK[recordings[0].spec.name]
    said |= {"every": look["every"]} if "every" in look else {}
    if recordings[0].spec.name == "tag_continuous":
        names = [name for name in means if name.startswith("tags")]
        said["here"] = {name: tag_figures.follow(r)["tags"] for name, r in zip(names, recordings, strict=True)}
    return said


def draw_files(entry, kind, files, title, out):
    """Write video, still and animation of recordings that lie in ``out``; return the video's size in pixels."""
    recordings, name = [Recording.load(out / file) for file in files], f"{entry}-{kind}"
    drawn = video(recordings, title)
    drawn.save(out / f"{name}.mp4")
    write_atomically(out / f"{name}.webp", poster(drawn))
    write_atomically(out / f"{name}.gif", end_first(preview(recordings, title)))
    return [drawn.width, drawn.height]


def keep(folder, match, file):
    """Write one episode of a match as a recording of its own: the first that taggers have ended, else the first."""
    kept = Recording.load(folder / "recordings" / f"{match.replace(' ', '-')}.npz")
    ended = np.flatnonzero(kept.length < kept.params.max_episode_steps)
    kept[int(ended[0]) if len(ended) else 0].save(file)


def cells_of(results, label):
    """Return what ``tag_published.json`` says of a run, or end with words."""
    if label not in results or "trained taggers" not in results[label]["cells"]:
        raise SystemExit(f"{label} has not been evaluated; run gallery/tag_published.py --evaluate on it first")
    return results[label]


def make_clip(entry, kind, folder, row, out):
    """Write the clip of one match of a run, and keep its recording; return what ``gallery.json`` says of it."""
    match = "trained taggers" if kind == "general" else "trained"
    cell, title = row["cells"][match], TITLES[match]
    if kind == "longer":
        title += f" for {row['env_steps'] / 1e6:,.0f} M env-steps"
    keep(folder, match, out / f"{entry}-{kind}.npz")
    return clip(entry, kind, [f"{entry}-{kind}.npz"], title, cell["mean"], cell["episodes of means"], out)


READINGS = {
    "tag_published": (
        "Both groups learn from nothing, against each other. Runners by the rule flee from the nearest tagger, and trained "
        "taggers catch nearly all; runners that have learnt get away from taggers by the rule, and gain more from learning on."
    ),
    "tag_grid_published": (
        "Who acts at random is hardly ever caught on so large a board, so both have learnt on smaller ones first, of 11 x 11 "
        "to 76 x 76 cells. Taggers by the rule catch a runner by the rule more than twice as often as one that has learnt; "
        "taggers that have learnt catch either more often than they do. Marks are about three cells wide: who overlaps a "
        "runner has not caught it yet."
    ),
}


def of_plane(row):
    """Return what runs of continuous Tag are told by, and what is told of a match: tags of 100 runners."""
    speed = float(row["case"].partition("-")[2])
    about = f"{speed_in_words(speed)}, {row['env_steps'] / 1e6:,.0f} M env-steps"
    return about, {match: row["cells"][match]["mean"]["tags"][0] for match in MATCHES}


def of_grid(row):
    """Return what runs of grid Tag are told by, and what is told of a match: how often the runner is caught, percent."""
    boards = sum(part["env_steps"] for part in row["training"][0]["smaller boards"])
    about = f"{row['env_steps'] / 1e6:,.0f} M env-steps, after {boards / 1e6:,.0f} M on smaller boards"
    return about, {match: 100 * row["cells"][match]["tags"] for match in MATCHES}


TABLES = {  # of each entry: its cases, what the table is of, and what a run says
    "tag_published": ("continuous", "tags of 100 runners", of_plane),
    "tag_grid_published": ("grid", f"episodes in which the runner is caught, % of {tag_published.FIGURED}", of_grid),
}


def caught(results, entry):
    """Return a table of how many runners are caught, by who plays, for each kind of run of an entry; all seeds."""
    cases, of, told = TABLES[entry]
    runs = {}
    for row in results.values():
        if row["case"].startswith(cases) and {*MATCHES} <= {*row["cells"]}:
            about, tags = told(row)
            runs.setdefault(about, []).append(tags)
    titles = [f"{of}, mean of seeds ± the farthest seed's distance"]
    rows = {match: [words] for match, words in MATCHES.items()}
    for about, seeds in runs.items():
        titles.append(f"{about}, {len(seeds)} seeds" if len(seeds) > 1 else f"{about}, 1 seed")
        for match, cells in rows.items():
            tags = np.array([found[match] for found in seeds])
            learnt = len(seeds) > 1 and "trained" in match
            spread = f" ± {np.abs(tags - tags.mean()).max():.0f}" if learnt else ""
            cells.append(f"{tags.mean():.0f}{spread}")
    return [titles, *rows.values()]


def make_entry(entry, folders, results, out):
    """Write the clips and curves of one entry; return it. The first folder's run is the one that is told about."""
    first, found = folders[0], [cells_of(results, folder.name) for folder in folders]
    config, row = read_config(first), found[0]
    clips = [make_clip(entry, kind, first, row, out) for kind in ("trained", "general")]
    if len(folders) > 1:
        files = [f"{entry}-trained.npz", *(f"{entry}-beside-{k}.npz" for k in range(1, len(folders)))]
        for folder, file in zip(folders[1:], files[1:], strict=True):
            keep(folder, "trained", out / file)
        titles = [ratio(Recording.load(out / file)) for file in files]
        means = {
            f"tags, {title}": r["cells"]["trained"]["mean"]["tags"] for title, r in zip(titles, found, strict=True)
        }
        about = TITLES["trained"], means, row["cells"]["trained"]["episodes of means"]
        clips.append(clip(entry, "beside", files, *about, out))
    write_curves(out, read_curves(out) | curves_of(entry, folders, found))
    learning = draw_curves(entry, results, found, out)
    spec, params = Recording.load(out / f"{entry}-trained.npz").spec, row["params"]
    return {
        "chapter": "Many agents",
        "summary": SUMMARIES[entry],
        "reading": READINGS[entry],
        "table": caught(results, entry),
        "params": {**kept_params(spec.make_params(**params))},
        "changed": params,
        "clips": clips,
        "curve": f"{entry}-curve.svg",
        "learning": learning,
        "training": {
            "command": row["training"][-1]["command"],
            "policies": {name: str(rebuild(name, about, None)) for name, about in config["policies"].items()},
            "env_steps": row["env_steps"],
            "num_envs": config["num_envs"],
            "seed": config["seed"],
        },
        **where(row),
    }


EARNED = {  # of each entry: what one sees in the curves of taggers' and runners' returns
    "tag_published": ("taggers earn less as runners learn", "runners earn more"),
    "tag_grid_published": ("taggers earn less at first, then more", "runners earn more at first, then less"),
}


def figure(entry, found, curves):
    """Return curves: what both groups earn while they learn, and within an episode who is in the game and how far away.

    Args:
        entry: Its name, by which curves have their titles.
        found: What ``tag_published.json`` says of all seeds of each run.
        curves: What ``curves.json`` says of each run.
    """
    panels = Curves(figsize=(2 * WIDTH, 2 * PANEL + 0.6), layout="constrained")
    axes = [panels.add_subplot(2, 2, k + 1) for k in range(4)]
    speeds = [seeds[0]["params"].get("skill_level_runner", 1.0) for seeds in found]
    colors = dict(zip(speeds, cycle(COLORS), strict=False))
    for about, speed in zip(curves, speeds, strict=True):
        many = f"{about['seeds']} seeds" if about["seeds"] > 1 else "one seed"
        label = f"{speed_in_words(speed)}, {many}" if len(found) > 1 else many
        for axis, group in zip(axes, ("tagger", "runner"), strict=False):
            seeds = about["points"].get(f"charts/episodic_return/{group}", [])
            draw_median(axis, [[tuple(point) for point in points] for points in seeds], colors[speed], label)
            engineered(axis, "env-steps", f"return of a {group}, points")
    for seeds, speed in zip(found, speeds, strict=True):
        for match, style in (("trained", "-"), ("heuristic", ":")):
            cells = [row["cells"][match] for row in seeds]
            alike = [cell for cell in cells if cell["steps"] == cells[0]["steps"]]
            for axis, name in zip(axes[2:], ("in_game", "to_tagger"), strict=True):
                values = np.median(np.array([cell["curves"][name] for cell in alike], float), axis=0)
                axis.plot(cells[0]["steps"], values, style, color=colors[speed], linewidth=1.6)
    engineered(axes[2], "step of an episode", "free runners, share")
    unit = "cells" if found[0][0]["case"] == "grid" else "units of length"
    engineered(axes[3], "step of an episode", f"to the nearest tagger,\n{unit}")
    for axis, title in zip(axes, (*EARNED[entry], "who is not caught yet", "how far away they are"), strict=True):
        axis.set_title(title, fontsize=10, loc="left")
    axes[2].set_ylim(0, 1.02)
    # One key of all panels, above them: within one it would lie on lines.
    styles = [
        Line2D([], [], color="#666666", linestyle=s, label=f"in an episode: {w}")
        for s, w in (("-", "trained"), (":", "by the rule"))
    ]
    lines = [*axes[0].get_legend_handles_labels()[0], *styles]
    head = "{device}, {date}, {num_envs:,} copies; medians and quartiles of seeds".format(**curves[0])
    panels.legend(handles=lines, frameon=False, loc="outside upper left", ncols=3, title=head, alignment="left")
    return panels


def seeds_of(folder):
    """Return the folders of a run and of its other seeds, by seed."""
    same = folder.name.rpartition("-seed")[0]
    return sorted(folder.parent.glob(f"{same}-seed*"), key=lambda path: int(path.name.rpartition("-seed")[2]))


def curves_of(entry, folders, found):
    """Return what ``curves.json`` is to say of some runs and their other seeds: by the entry's name with the run's number."""
    keys, made = [f"charts/episodic_return/{group}" for group in ("tagger", "runner")], {}
    for number, (folder, row) in enumerate(zip(folders, found, strict=True)):
        metrics = [read_metrics(seed) for seed in seeds_of(folder)]
        points = {
            key: [rounded(pooled([each for each in rows if key in each], key)) for rows in metrics] for key in keys
        }
        sizes = {"seeds": len(metrics), "env_steps": row["env_steps"], "num_envs": read_config(folder)["num_envs"]}
        made[f"{entry}_{number}"] = {**sizes, **where(row), "points": points}
    return made


def where(row):
    """Return on what a run was trained, and when."""
    part = row["training"][-1]
    device = part["machine"][0] if isinstance(part["machine"], list) else part["machine"]
    return {"device": device, "versions": part["versions"], "date": part["date"]}


def draw_curves(entry, results, found, out):
    """Draw the curves of an entry from the points that its folder keeps and all seeds' figures; return what they are of."""
    kept = read_curves(out)
    curves = [kept[f"{entry}_{number}"] for number in range(len(found))]
    seeds = [[r for r in results.values() if all(r[key] == row[key] for key in ("case", "env_steps"))] for row in found]
    write_atomically(out / f"{entry}-curve.svg", svg(figure(entry, seeds, curves)))
    return in_short(*curves)


def redraw(results, out):
    """Draw clips and curves of the entries that ``gallery.json`` has again, from recordings and points; no figure changes."""
    entries = read_entries(out)
    for entry, cases in (("tag_published", "continuous"), ("tag_grid_published", "grid")):
        if entry not in entries:
            continue
        for said in entries[entry]["clips"]:
            files, title = [said["recording"], *said.get("beside", [])], next(iter(said["players"].values()))
            said["size"] = draw_files(entry, said["kind"], files, title, out)
            said |= words_of(said["kind"], files, said["means"], out)
        shown = {}
        for row in results.values():
            if row["case"].startswith(cases):
                shown.setdefault(row["case"], row)  # the first run of a case is the one that is shown
        entries[entry] |= {"reading": READINGS[entry], "table": caught(results, entry)}
        entries[entry]["learning"] = draw_curves(entry, results, [*shown.values()], out)
    write_entries(out, entries)


def main():
    """Write the entries, or draw a clip again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/tag"))
    parser.add_argument("--continuous", nargs="+", default=[], help="labels of the runs of continuous Tag")
    parser.add_argument("--longer", help="label of a run of continuous Tag that was trained longer")
    parser.add_argument("--grid", nargs=1, default=[], help="label of the run of grid Tag")
    parser.add_argument("--json", type=Path, default=Path("gallery/tag_published.json"))
    parser.add_argument("--out", type=Path, default=Path("gallery"))
    parser.add_argument("--draw", type=Path, nargs="+", help="recordings to draw again")
    parser.add_argument("--video", type=Path, help="where to: .mp4, .gif or .webp")
    parser.add_argument("--redraw", action="store_true", help="draw again what the gallery has")
    args = parser.parse_args()
    if args.draw:
        recordings = [Recording.load(path) for path in args.draw]
        clips = [c for entry in read_entries(args.draw[0].parent).values() for c in entry["clips"]]
        titles = [next(iter(c["players"].values())) for c in clips if c["recording"] == args.draw[0].name]
        video(recordings, *titles[:1]).save(args.video or Path("tag.mp4"))
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
        clips = entries["tag_published"]["clips"]
        made = make_clip("tag_published", "longer", args.runs / args.longer, row, args.out)
        clips[:] = [*(clip for clip in clips if clip["kind"] != "longer"), made]
        write_entries(args.out, entries)
    size = sum(path.stat().st_size for path in args.out.glob("tag*published*"))
    print(f"wrote {size:,} bytes into {args.out}")


if __name__ == "__main__":
    sys.exit(main())
