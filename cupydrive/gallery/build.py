"""gallery(): plays and trains every environment, and writes videos, curves and a page that shows them.

Each clip is kept as a recording too: seed and actions, from which anybody draws the same video again; ``redraw`` does so with
all of them. Learning curves are kept as points (``cupydrive.gallery.curves``).
"""

import datetime
import io
import json
from pathlib import Path

from PIL import Image

from cupydrive import envs
from cupydrive.errors import RenderError
from cupydrive.executors import choose, executor
from cupydrive.executors.about import info
from cupydrive.gallery.curves import chart, in_short, of_runs, read_curves, train_curves, write_curves
from cupydrive.gallery.page import chapter_of, write_pages
from cupydrive.inputs.arguments import checked_count, checked_int, checked_path, checked_sequence, shown
from cupydrive.inputs.files import file_errors, read_file, write_atomically
from cupydrive.inputs.formats import GALLERY, MOST_JSON, FormatError, read_json
from cupydrive.playing.evaluation import evaluate
from cupydrive.playing.players import Heuristic, Random
from cupydrive.playing.recording import Recording
from cupydrive.rendering.video import Video, animation
from cupydrive.spec import kept_params
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints
from cupydrive.training.suggestions import suggested_algorithm, suggestion
from cupydrive.training.train import train

EPISODES = 1000  # of which the means are told
SEED = 10_000  # of the episodes; runs have a seed of their own
PREVIEW_WIDTH = 360  # pixels of the small animated pictures
PREVIEW_FPS = 12  # at most
PREVIEW_SECONDS = 8
MOSAIC = 16
UNTRAINED = ("random", "heuristic")  # kinds of clips, and players


def gallery(
    names=(), out="gallery", *, runs="runs/gallery", device="auto", seed=0, seeds=None, steps=None, progress=print
):
    """Write the gallery of some environments into a folder; others in it are kept.

    Args:
        names: Environments; by default those that draw and whose data is here.
        out: Folder. It gets ``gallery.json``, ``index.html`` and ``README.md``; for each clip ``NAME-KIND.mp4``, ``.webp``
            (a still), ``.gif`` and ``.npz``; ``NAME-curve.svg``, and ``curves.json``, its points.
        runs: Folder of the runs. One that has reached its steps is taken as it is, others go on.
        device: Where to play and train.
        seed: Of the training.
        seeds: Train so many, ``seed``, ``seed + 1``, ..., side by side: the curve is of all, clips are of the first, which is
            the run that it would be alone; nothing goes into ``runs``. None: one.
        steps: Env-steps to train, by default what the environment's showcase says.
        progress: Called with a line of text after each clip.

    Returns:
        The path of ``index.html``.

    Raises:
        RenderError: If an environment draws nothing, or the folder cannot be written.
    """
    names = checked_sequence("gallery", "names", names)
    seed = checked_int("gallery", "seed", seed, 0, 2**63 - 1)
    seeds = None if seeds is None else checked_count("gallery", "seeds", seeds)
    steps = None if steps is None else checked_count("gallery", "steps", steps)
    out, runs = checked_path("gallery", "out", out), checked_path("gallery", "runs", runs)
    drawn = [name for name in envs.names() if envs.get(name).draw is not None]
    specs = [envs.get(name) for name in names] if names else envs.with_data(progress, drawn)
    for spec in specs:
        if spec.draw is None:
            raise RenderError(f"{spec.name} has no drawing, so it cannot be in the gallery; give its EnvSpec draw=")
    device = choose(device)[0]
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    for spec in specs:
        entry = make_entry(spec, out, runs / spec.name, device, seed, seeds, steps, progress)
        write_entries(
            out, read_entries(out) | {spec.name: entry}
        )  # after each one: an interrupt keeps those that are done
    return out / "index.html"


def redraw(names=(), out="gallery", *, progress=print):
    """Draw the clips and curves of a gallery again, from the recordings and points that it keeps; no figure changes.

    Args:
        names: Environments; by default those of the gallery whose clips ``gallery`` has drawn and whose data is here.
        out: Its folder.
        progress: Called with a line of text after each clip.

    Raises:
        RenderError: If there is no such entry, or the folder cannot be written.
    """
    names, out = checked_sequence("redraw", "names", names), checked_path("redraw", "out", out)
    entries = read_entries(out)
    known = [name for name in entries if name in envs.names()]  # others have programs of their own
    for name in names:
        if name not in known:
            raise RenderError(f"{out} has no entry {shown(name)} to draw again; it has {', '.join(known) or 'none'}")
    for spec in [envs.get(name) for name in names] or envs.with_data(progress, known):
        entry = entries[spec.name]
        entry |= about(spec)
        for clip in entry["clips"]:
            recording = Recording.load(out / clip["recording"])
            clip["size"] = draw_files(recording, clip["kind"], out)
            clip |= own_numbers(recording, clip["means"])
            progress(f"{spec.name}: {clip['video']}")
        draw_curve(spec.name, entry, out)
        write_entries(out, entries)
    return out / "index.html"


def learning_curves(names=(), out="gallery", *, seeds=10, device="auto", seed=0, steps=None, progress=print):
    """Train many seeds of what a gallery shows and draw their learning curves, medians with quartiles; clips stay.

    Args:
        names: Environments, by default those of the gallery whose data is here.
        out: Its folder.
        seeds: How many: ``seed``, ``seed + 1``, ...
        device: Where to train.
        seed: The first one.
        steps: Env-steps of each, by default what the environment's showcase says.
        progress: Called with a line of text after each environment.

    Raises:
        RenderError: If there is no such entry, or the folder cannot be written.
    """
    names, out = checked_sequence("gallery", "names", names), checked_path("gallery", "out", out)
    steps = None if steps is None else checked_count("gallery", "steps", steps)
    seeds, seed = checked_count("gallery", "seeds", seeds), checked_int("gallery", "seed", seed, 0, 2**63 - 1)
    entries = read_entries(out)
    known = [name for name in entries if name in envs.names()]
    for name in names:
        if name not in known:
            raise RenderError(f"{out} has no entry {shown(name)}; it has {', '.join(known) or 'none'}: make it first")
    for spec in [envs.get(name) for name in names] or envs.with_data(progress, known):
        train_curves(spec, out, planned(spec, steps), curve_keys, seeds, device, seed, progress)
        draw_curve(spec.name, entries[spec.name], out)
        write_entries(out, entries)
    return out / "index.html"


def write_entries(out, entries):
    """Write ``gallery.json`` and the pages."""
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        write_atomically(out / "gallery.json", json.dumps(dict(sorted(entries.items())), indent=1).encode() + b"\n")
        write_pages(out, read_entries(out))


def read_entries(out):
    """Return what a gallery's folder says of each environment, by name."""
    path = Path(out) / "gallery.json"
    if not path.exists():
        return {}
    with file_errors(RenderError, f"{path} cannot be read"):
        content = read_file(path, MOST_JSON)
    try:
        return read_json(content, GALLERY, None)
    except FormatError as error:
        raise RenderError(f"{path} is damaged ({error}); move it away") from None


def make_entry(spec, out, folder, device, seed, seeds, steps, progress):
    """Play, train and draw one environment; return what ``gallery.json`` says of it."""
    policies, params, goal, num_envs = planned(spec, steps)
    made, groups = spec.make_params(**params), list(policies)
    if seeds is None:
        run = trained(spec, policies, params, goal, num_envs, seed, device, folder)
    else:
        run = train_curves(spec, out, planned(spec, steps), curve_keys, seeds, device, seed, progress)[0]
    progress(f"{spec.name}: trained for {run.step:,} env-steps")

    rivals = {name: Heuristic() for name in spec.showcase.get("rivals", ())}
    kinds = {"random": (spec, dict.fromkeys(groups, Random()) | rivals)}  # against whom the others learn, too
    if spec.heuristic is not None:
        kinds["heuristic"] = (spec, dict.fromkeys(groups, Heuristic()))
    kinds["trained"] = (run, None)
    played = {
        kind: evaluate(what, players, episodes=EPISODES, seed=SEED, device=device, **({} if what is run else params))
        for kind, (what, players) in kinds.items()
    }
    *others, last = played
    start = median_start(played[others[-1]], next(iter(run.learners)).split("+")[0])
    clips, shown = [], dict.fromkeys(kinds, start)
    if not all_alike(played[last]):
        shown["mosaic"] = slice(0, MOSAIC)
    for kind, part in shown.items():
        found = played.get(kind, played[last])
        clips.append(draw_clip(found, found.recording[part], kind, out))
        progress(f"{spec.name}: {clips[-1]['video']}")
    if seeds is None:
        with file_errors(RenderError, f"the gallery cannot be written to {out}"):
            write_curves(out, read_curves(out) | {spec.name: of_runs([run], curve_keys(run), device)})
    versions = info().versions
    entry = {
        "chapter": chapter_of(spec, groups),
        **about(spec),
        "params": {**kept_params(made), **params},
        "changed": params,
        "clips": clips,
        "curve": f"{spec.name}-curve.svg",
        "training": {
            "command": f"cupydrive gallery {spec.name}{f' --seeds {seeds} --clips' if seeds else ''}",
            "policies": {name: str(settings) for name, settings in policies.items()},
            "env_steps": run.step,
            "num_envs": run.num_envs,
            "seed": seed,
        },
        "device": executor(device).describe(),
        "versions": versions,
        "date": datetime.date.today().isoformat(),
    }
    draw_curve(spec.name, entry, out)
    return entry


def about(spec):
    """Return what an environment is, and how to read its figures."""
    return {
        "summary": spec.summary,
        **{key: spec.showcase[key] for key in ("reading", "figures", "readable") if key in spec.showcase},
    }


def planned(spec, steps=None):
    """Return what the gallery trains: policies by group, parameters, env-steps and copies."""
    wanted = spec.showcase
    suggested, params = suggestion(spec, wanted.get("algorithm")), wanted.get("params", {})
    learner = suggested_algorithm(spec, suggested.algorithm, **wanted.get(suggested.algorithm, {}))
    groups = [group.name for group in spec.groups(spec.make_params(**params))]
    policies = {name: Heuristic() if name in wanted.get("rivals", ()) else learner for name in groups}
    goal = wanted.get("steps", suggested.steps) if steps is None else steps
    return policies, params, goal, wanted.get("num_envs", suggested.num_envs)


def levels(clips):
    """Return the means of who has not learnt, by what a chart calls it: ``{player: {metric: value}}``.

    Only of clips whose rivals are the rivals that learning had: against others a return says nothing about the learner.
    """
    learnt = next((clip["players"] for clip in clips if clip["kind"] == "trained"), {})
    rivals = {group: player for group, player in learnt.items() if player in UNTRAINED}
    others = [clip for clip in clips if clip["kind"] in UNTRAINED and rivals.items() <= clip["players"].items()]
    return {clip["kind"]: level(clip["means"]) for clip in others}


def draw_curve(name, entry, out):
    """Draw the learning curve of an entry from points that are kept, beside who has not learnt; tell it whose that is."""
    kept = read_curves(out).get(name)
    if kept is not None:
        with file_errors(RenderError, f"the gallery cannot be written to {out}"):
            write_atomically(out / entry["curve"], chart(kept, levels(entry["clips"])))
        entry["learning"] = in_short(kept)


def trained(spec, policies, params, goal, num_envs, seed, device, folder):
    """Return a run that has reached ``goal``: from its folder, gone on with if it must, or trained now."""
    if checkpoints(folder):
        run = Run.load(folder, device)
        return run if run.step >= goal else train(run, steps=goal - run.step, out=folder)
    return train(spec, policies=policies, steps=goal, num_envs=num_envs, seed=seed, device=device, out=folder, **params)


def median_start(found, group):
    """Return the start from which an ``Evaluation``'s group had its median return, of those that were recorded."""
    returns = found.returns[group][: found.recording.num_envs]
    return int(returns.argsort(stable=True)[len(returns) // 2])


def all_alike(found):
    """Return whether all episodes of an ``Evaluation`` are one: starts and steps are not random, and many show no more."""
    return all(bool((values == values[0]).all()) for values in (*found.returns.values(), found.length))


def curve_keys(run):
    """Return the metrics of a learning curve: returns of the groups that learn, and lengths; those that are known yet."""
    learners, alone = [name for key in run.learners for name in key.split("+")], len(run.batch.groups) == 1
    returns = [f"charts/episodic_return{'' if alone else '/' + name}" for name in learners]
    known = {key for row in run.metrics for key in row}
    return [key for key in (*returns, "charts/episodic_length") if key in known]


def level(means):
    """Return the means of a clip by the names of a run's metrics."""
    return {f"charts/episodic_{key.replace(' ', '/')}": mean for key, (mean, _) in means.items()}


def draw_clip(found, recording, kind, out):
    """Write the video, the small animation and the recording of one clip; return what to say of it."""
    name = f"{recording.spec.name}-{kind}"
    recording.save(out / f"{name}.npz")
    return {
        "kind": kind,
        "video": f"{name}.mp4",
        "poster": f"{name}.webp",
        "preview": f"{name}.gif",
        "recording": f"{name}.npz",
        "size": draw_files(recording, kind, out),
        "players": recording.players,
        "seed": recording.seed,
        "first_env": recording.first_env,
        "episodes": recording.num_envs,
        "steps": recording.length.tolist(),
        "means": {key: [round(x, 4) for x in pair] for key, pair in found.summary().items()},
        "episodes_of_means": len(found.length),
        "command": f"cupydrive render gallery/{name}.npz --out {name}.mp4",
        **own_numbers(recording, found.summary()),
    }


def own_numbers(recording, names):
    """Return ``{"here": {name: number}}``: what the only episode of a clip has of the means ``names``; of several {}."""
    if recording.num_envs > 1:
        return {}
    *_, last = recording.moments()
    alone = len(last.returns) == 1
    found = {"return" if alone else f"return {name}": values.mean() for name, values in last.returns.items()}
    found |= {name: values[0] for name, values in last.metrics.items()}
    return {"here": {name: round(float(found[name]), 4) for name in names if name in found}}


def draw_files(recording, kind, out):
    """Write the video, the still and the small animation of a recording; return the video's size in pixels."""
    name = f"{recording.spec.name}-{kind}"
    video = Video(recording, progress=True)
    video.save(out / f"{name}.mp4")
    with file_errors(RenderError, f"the gallery cannot be written to {out}"):
        write_atomically(out / f"{name}.webp", poster(video))
        write_atomically(out / f"{name}.gif", end_first(preview(recording)))
    return [video.width, video.height]


def poster(video):
    """Return the still of a video as bytes of a WebP file.

    Of flat colours a palette without loss is a fifth to a half smaller than WebP with loss, and letters stay sharp.
    """
    file, flat = io.BytesIO(), Image.fromarray(video.still()).quantize(256, dither=Image.Dither.NONE)
    flat.save(file, "WEBP", lossless=True, quality=100, method=6)
    return file.getvalue()


def end_first(video):
    """Return a video as bytes of a GIF file that begins with its end, held: one that does not play shows what came of it."""
    frames = list(video.frames())
    held = len(frames) - video.drawn + 1
    return animation(frames[-held:] + frames[:-held], video.fps, ".gif", colours=frames[0])  # more would make it larger


def preview(recording):
    """Return a small video of the first seconds, for pages that play no video files."""
    width, height = recording.spec.render_size
    size = (PREVIEW_WIDTH, round(PREVIEW_WIDTH * height / width) // 2 * 2)
    fps = recording.spec.render_fps
    every = -(-fps // PREVIEW_FPS)
    return Video(recording, size, fps // every, hold=1.0, every=every, seconds=PREVIEW_SECONDS)
