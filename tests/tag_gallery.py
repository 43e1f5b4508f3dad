"""The gallery's pictures of Tag as published, from the runs of ``tests/tag_published.py``: whole arenas, three speeds, curves.

    python tests/tag_gallery.py --runs runs/tag --continuous LABEL LABEL LABEL --grid LABEL [--out gallery]
    python tests/tag_gallery.py --draw gallery/tag_published-trained.npz [MORE.npz ...] --video FILE.mp4

Labels are names of run folders: of the runs with runners 1, 1.5 and 2 times as fast as taggers, and of grid Tag. The first
form writes clips, recordings and curves, and the entries ``tag_published`` and ``tag_grid_published`` of the gallery. It plays
nothing: episodes are those that ``--evaluate`` has recorded, figures those in ``tag_published.json``. All it needs of a run is
``config.json``, ``metrics.jsonl`` and ``recordings``: a megabyte. The second form draws a clip again.
"""

import argparse
import json
import sys
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tag_published

from cupydrive.gallery.beside import SideBySide
from cupydrive.gallery.build import poster, read_entries
from cupydrive.gallery.page import write_pages
from cupydrive.inputs.files import write_atomically
from cupydrive.playing.recording import Recording
from cupydrive.rendering.video import Video
from cupydrive.spec import kept_params
from cupydrive.terminal.curves import COLORS, PANEL_SIZE, Curves, draw_median, pooled
from cupydrive.training.frozen import rebuild
from cupydrive.training.runfolder import read_config, read_metrics

# Pixels of one arena, frames per second, and steps from one frame to the next: of a clip, of one of several side by side, and
# of the small animations, which also have an end.
LOOK = {"tag_continuous": dict(size=(512, 544), fps=8, every=8), "tag_grid": dict(size=(512, 544), fps=8)}
BESIDE = dict(size=(304, 328), fps=5, every=20)
PREVIEW = dict(fps=6, every=8, seconds=2)
PREVIEW_SIZES = {1: (300, 324), 3: (240, 258)}
SUMMARIES = {
    "tag_published": "Tag as WarpDrive published it: 5 taggers and 100 runners, who learn together.",
    "tag_grid_published": "Grid Tag as WarpDrive published it: 4 taggers and a runner on 101 x 101 cells, who learn together.",
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
    return f"runners {recording.params.skill_level_runner / recording.params.skill_level_tagger:g} x as fast"


def video(recordings, title=None, progress=True):
    """Return the ``Video`` of one recording, or of several side by side."""
    if len(recordings) > 1:
        return SideBySide(recordings, [ratio(r) for r in recordings], **BESIDE, progress=progress)
    return Video(recordings[0], **LOOK[recordings[0].spec.name], title=title, progress=progress)


def preview(recordings, title=None):
    """Return a small video of the first seconds."""
    look = PREVIEW | {"size": PREVIEW_SIZES[3 if len(recordings) > 1 else 1], "progress": False}
    if len(recordings) > 1:
        return SideBySide(recordings, [ratio(r) for r in recordings], **look)
    return Video(recordings[0], **look, title=title)


def clip(entry, kind, files, title, means, episodes, out):
    """Write video, still and animation of recordings that lie in ``out``; return what ``gallery.json`` says of them."""
    recordings, name = [Recording.load(out / file) for file in files], f"{entry}-{kind}"
    drawn = video(recordings, title)
    drawn.save(out / f"{name}.mp4")
    write_atomically(out / f"{name}.webp", poster(drawn))
    preview(recordings, title).save(out / f"{name}.gif")
    where = " ".join(f"gallery/{file}" for file in files)
    said = {
        "kind": kind,
        "video": f"{name}.mp4",
        "poster": f"{name}.webp",
        "preview": f"{name}.gif",
        "recording": files[0],
        "size": [drawn.width, drawn.height],
        "players": dict.fromkeys(recordings[0].players, title),
        "seed": recordings[0].seed,
        "first_env": recordings[0].first_env,
        "episodes": len(recordings),
        "steps": [r.steps for r in recordings],
        "means": means,
        "episodes_of_means": episodes,
        "command": f"python tests/tag_gallery.py --draw {where} --video {name}.mp4",
    }
    return said | ({"beside": files[1:]} if files[1:] else {})


def keep(folder, match, file):
    """Write the first episode of a match as a recording of its own."""
    Recording.load(folder / "recordings" / f"{match.replace(' ', '-')}.npz")[0].save(file)


def cells_of(results, label):
    """Return what ``tag_published.json`` says of a run, or end with words."""
    if label not in results or "trained taggers" not in results[label]["cells"]:
        raise SystemExit(f"{label} has not been evaluated; run tests/tag_published.py --evaluate on it first")
    return results[label]


def make_entry(entry, folders, results, out):
    """Write the clips and curves of one entry; return it. The first folder's run is the one that is told about."""
    first, found = folders[0], [cells_of(results, folder.name) for folder in folders]
    config, row = read_config(first), found[0]
    clips = []
    for kind, match in (("trained", "trained"), ("general", "trained taggers")):
        keep(first, match, out / f"{entry}-{kind}.npz")
        cell = row["cells"][match]
        about = [f"{entry}-{kind}.npz"], TITLES[match], cell["mean"], cell["episodes of means"]
        clips.append(clip(entry, kind, *about, out))
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
    curve = f"{entry}-curve.svg"
    figure(folders, found).savefig(out / curve, metadata={"Date": None})
    spec, params = Recording.load(out / f"{entry}-trained.npz").spec, row["params"]
    part = row["training"][-1]
    return {
        "summary": SUMMARIES[entry],
        "params": {**kept_params(spec.make_params(**params))},
        "changed": params,
        "clips": clips,
        "curve": curve,
        "training": {
            "command": part["command"],
            "policies": {name: str(rebuild(name, about, None)) for name, about in config["policies"].items()},
            "env_steps": row["env_steps"],
            "num_envs": config["num_envs"],
            "seed": config["seed"],
        },
        "device": part["machine"][0] if isinstance(part["machine"], list) else part["machine"],
        "versions": part["versions"],
        "date": part["date"],
    }


def figure(folders, found):
    """Return curves: what both groups earn while they learn, and within an episode who is in the game and how far away."""
    panels = Curves(figsize=(2 * PANEL_SIZE[0], 2 * PANEL_SIZE[1]), dpi=110, layout="constrained")
    axes = [panels.add_subplot(2, 2, k + 1) for k in range(4)]
    speeds = [row["params"].get("skill_level_runner", 1.0) for row in found]
    colors = dict(zip(speeds, cycle(COLORS), strict=False))
    for folder, speed in zip(folders, speeds, strict=True):
        label = f"runners {speed:g} x as fast" if len(folders) > 1 else ""
        for axis, group in zip(axes, ("tagger", "runner"), strict=False):
            key = f"charts/episodic_return/{group}"
            points = pooled([r for r in read_metrics(folder) if key in r], key)
            draw_median(axis, [points] if points else [], colors[speed], label)
            axis.set(xlabel="env-steps", ylabel=f"episodic return, {group}")
    for row, speed in zip(found, speeds, strict=True):
        for match, style in (("trained", "-"), ("heuristic", ":")):
            cell = row["cells"][match]
            for axis, name in zip(axes[2:], ("in_game", "to_tagger"), strict=True):
                values = [float("nan") if value is None else value for value in cell["curves"][name]]
                label = TITLES[match] if speed == speeds[0] else None
                axis.plot(cell["steps"], values, style, color=colors[speed], linewidth=1.6, label=label)
    axes[2].set(xlabel="step of an episode", ylabel="share of runners in the game", ylim=(0, 1.02))
    axes[3].set(xlabel="step of an episode", ylabel="distance to the nearest tagger")
    for axis in axes:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return panels


def main():
    """Write the entries, or draw a clip again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/tag"))
    parser.add_argument("--continuous", nargs="+", default=[], help="labels of the runs of continuous Tag")
    parser.add_argument("--grid", nargs=1, default=[], help="label of the run of grid Tag")
    parser.add_argument("--json", type=Path, default=Path("gallery/tag_published.json"))
    parser.add_argument("--out", type=Path, default=Path("gallery"))
    parser.add_argument("--draw", type=Path, nargs="+", help="recordings to draw again")
    parser.add_argument("--video", type=Path, help="where to: .mp4, .gif or .webp")
    args = parser.parse_args()
    if args.draw:
        recordings = [Recording.load(path) for path in args.draw]
        clips = [c for entry in read_entries(args.draw[0].parent).values() for c in entry["clips"]]
        titles = [next(iter(c["players"].values())) for c in clips if c["recording"] == args.draw[0].name]
        video(recordings, *titles[:1]).save(args.video or Path("tag.mp4"))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    results = tag_published.read(args.json, {})
    for entry, labels in (("tag_published", args.continuous), ("tag_grid_published", args.grid)):
        if labels:
            made = make_entry(entry, [args.runs / label for label in labels], results, args.out)
            entries = dict(sorted({**read_entries(args.out), entry: made}.items()))
            write_atomically(args.out / "gallery.json", json.dumps(entries, indent=1).encode() + b"\n")
            write_pages(args.out, read_entries(args.out))
    size = sum(path.stat().st_size for path in args.out.glob("tag*published*"))
    print(f"wrote {size:,} bytes into {args.out}")


if __name__ == "__main__":
    sys.exit(main())
