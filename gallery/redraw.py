"""Draw a gallery again from the recordings and points that it keeps, or its learning curves from
runs with many seeds.

    python gallery/redraw.py [NAME ...] [--out gallery]
    python gallery/redraw.py [NAME ...] --seeds 10 [--steps N] [--seed K] [--device cuda] [--out gallery]

The first form plays and trains nothing, and no figure changes. The second form changes only the
learning curves.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tyro

from cupydrive import envs
from cupydrive.errors import RenderError
from cupydrive.executors import choose
from cupydrive.experiments.train import train
from cupydrive.gallery.build import (
    about,
    draw_curve,
    keep_curves,
    planned,
    read_entries,
    write_entries,
)
from cupydrive.gallery.clips import draw_files, own_numbers
from cupydrive.inputs.arguments import shown
from cupydrive.playing.recording import Recording
from cupydrive.spec import EnvSpec


def redraw(names: Sequence[str], out: Path) -> None:
    """Draw the clips and curves of a gallery again, from the recordings and points that it keeps.
    No figure changes.

    Args:
        names: Environments. Defaults to those of the gallery whose data is here.
        out: Its folder.

    Raises:
        RenderError: If there is no such entry, or the folder cannot be written.
    """
    entries = read_entries(out)
    for spec in specs_of(entries, names, out):
        entry = entries[spec.name]
        entry |= about(spec)
        for clip in entry["clips"]:
            recording = Recording.load(out / clip["recording"])
            clip["size"] = draw_files(recording, clip["kind"], out)
            clip |= own_numbers(recording, clip["means"])
            print(f"{spec.name}: {clip['video']}", flush=True)
        draw_curve(spec.name, entry, out)
        write_entries(out, entries)


def learning_curves(
    names: Sequence[str],
    out: Path,
    *,
    seeds: int = 10,
    device: str = "auto",
    seed: int = 0,
    steps: int | None = None,
) -> None:
    """Train many seeds of what a gallery shows, side by side, and draw their learning curves. Clips
    stay.

    Args:
        names: Environments. Defaults to those of the gallery whose data is here.
        out: Its folder.
        seeds: Number of runs, with the seeds ``seed``, ``seed + 1``, ...
        device: Where to train.
        seed: The first one.
        steps: Env-steps of each. Defaults to what the environment's showcase says.

    Raises:
        RenderError: If there is no such entry, every run fails, or the folder cannot be written.
    """
    entries, device = read_entries(out), choose(device)[0]
    for spec in specs_of(entries, names, out):
        policies, params, goal, num_envs = planned(spec, steps)
        options: dict[str, Any] = {
            "policies": policies,
            "num_envs": num_envs,
            "seed": seed,
            "device": device,
            **params,
        }
        found: Any = train(spec, steps=goal, seeds=seeds, **options)
        kept = [run for k, run in enumerate(found.runs) if k not in found.failures]
        if not kept:
            raise RenderError(f"{spec.name}: every run failed: {found.failures}")
        if min(run.step for run in kept) < goal:
            raise KeyboardInterrupt
        keep_curves(spec.name, kept, out)
        draw_curve(spec.name, entries[spec.name], out)
        write_entries(out, entries)
        print(f"{spec.name}: {len(kept)} seeds of {kept[0].step:,} env-steps", flush=True)


def specs_of(entries: dict, names: Sequence[str], out: Path) -> list[EnvSpec]:
    """Return the environments of a gallery that are named, or all whose data is here."""
    known = [name for name in entries if name in envs.names()]  # others have programs of their own
    for name in names:
        if name not in known:
            raise RenderError(
                f"{out} has no entry {shown(name)}; it has {', '.join(known) or 'none'}: make it "
                f"first"
            )
    return [envs.get(name) for name in names] or envs.with_data(print, known)


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    out: Path = Path("gallery"),
    seeds: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: str = "auto",
) -> None:
    """Draw a gallery again.

    Args:
        names: Environments. Defaults to those of the gallery whose data is here.
        out: Folder of the gallery.
        seeds: Train this many seeds and draw only the learning curves.
        steps: Env-steps of each. Defaults to what the environment's showcase says.
        seed: The first seed.
        device: Where to train.
    """
    if seeds is None:
        redraw(names, out)
    else:
        learning_curves(names, out, seeds=seeds, device=device, seed=seed, steps=steps)
    print(f"wrote {out / 'index.html'}")


if __name__ == "__main__":
    tyro.cli(main)
