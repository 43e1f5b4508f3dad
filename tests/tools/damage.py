"""Damages data files in many ways and reads them again: each gives what was written, or one error of this package.

python tests/tools/damage.py [--times 500]
"""

import argparse
import collections
import io
import json
import random
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cupydrive as cd
from cupydrive.errors import CupydriveError, CupydriveWarning
from cupydrive.inputs.archive import DIGEST, seal

# Values that no writer writes, by which entries of JSON are replaced.
ODD = [
    None, True, False, 0, -1, 1, 2, 10**6, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, "", "x", "cart", "ppo", "frozen",
    "moon.py", "a\nb = 1\n", "\0", "\x1b[2J", "\ud800", "ü", "x" * 10**5, [], {}, [None], [[]], [0.5], [[0, 0.5]],
    [[1, 2], [1, 2]], [2**31], {"kind": "ppo"}, {"": None}, {"kind": "frozen", "path": "."}, {"kind": []},
]  # fmt: skip
ODD_TEXT = [b"NaN", b"Infinity", b"-Infinity", b"[" * 10**5, b'{"a": 1, "a": 2}', b"1e999", b"\xff\xfe", b"9" * 5000]


# ---- ways to damage --------------------------------------------------------------------------------------------------


def flip_bit(content, rng):
    """Change one bit."""
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def change_bytes(content, rng):
    """Write random bytes somewhere."""
    at, count = rng.randrange(len(content)), rng.choice((1, 2, 4, 50))
    return content[:at] + rng.randbytes(count) + content[at + count :]


def cut(content, rng):
    """Cut the file short."""
    return content[: rng.randrange(len(content))]


def remove(content, rng):
    """Take some bytes out."""
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.randint(1, 100) :]


def repeat(content, rng):
    """Write some bytes twice."""
    at = rng.randrange(len(content))
    return content[: at + 1 + rng.randrange(200)] + content[at:]


BYTEWISE = (flip_bit, change_bytes, cut, remove, repeat)


def values_of(value, path=()):
    """Yield the path of every value in JSON."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from values_of(inner, (*path, key))


def edit_json(content, rng):
    """Replace, delete or add an entry of a JSON text."""
    value = json.loads(content)
    path = rng.choice(list(values_of(value)))
    if not path:
        return rng.choice(ODD_TEXT) if rng.random() < 0.5 else json.dumps(rng.choice(ODD)).encode()
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    way = rng.random()
    if way < 0.15:
        del inner[path[-1]]
    elif way < 0.25 and isinstance(inner, dict):
        inner["odd"] = rng.choice(ODD)
    elif way < 0.4:
        inner[path[-1]] = "MARK"
        return json.dumps(value).encode().replace(b'"MARK"', rng.choice(ODD_TEXT))
    else:
        inner[path[-1]] = rng.choice(ODD)
    return json.dumps(value).encode()


def edit_lines(content, rng):
    """Edit one line of JSON lines."""
    lines = content.splitlines(keepends=True)
    k = rng.randrange(len(lines))
    lines[k] = edit_json(lines[k], rng) + b"\n"
    return b"".join(lines)


def edit_array(content, rng):
    """Write another array than the format says."""
    array = np.lib.format.read_array(io.BytesIO(content))
    ways = [
        lambda: array.astype(object),
        lambda: array[:-1] if array.ndim else array[None],
        lambda: array[None],
        lambda: array.view(np.uint8) if array.flags.c_contiguous and array.ndim else array,
        lambda: array.astype(array.dtype.newbyteorder(">")),
        lambda: np.asfortranarray(array[None].repeat(2, 0)),
        lambda: np.zeros((0, *array.shape[1:]), array.dtype),
        lambda: np.frombuffer(rng.randbytes(array.nbytes), array.dtype).reshape(array.shape),
        lambda: np.full(array.shape, "x" * 5),
        lambda: array.astype(np.float64) if array.dtype.names is None else array[array.dtype.names[0]],
    ]
    file = io.BytesIO()
    np.lib.format.write_array(file, rng.choice(ways)(), allow_pickle=True)
    header = rng.random()
    if header < 0.2:  # a header that declares more than there is
        return file.getvalue().replace(b"'shape': (", b"'shape': (1152921504606846976, ", 1)
    if header < 0.3:
        return file.getvalue().replace(b"'descr': ", b"'descr': " + b"(" * 50, 1)
    return file.getvalue()


def edit_archive(content, rng):
    """Change the entries of a zip file; half of the time the digest is made anew, as somebody who means harm would do."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(i.filename, archive.read(i)) for i in archive.infolist()]
    k = rng.randrange(len(entries))
    pickled = [n for n, (name, _) in enumerate(entries) if name.endswith(".pkl")]  # what torch takes for a program
    if pickled and rng.random() < 0.5:
        (k,) = pickled
    name, inner = entries[k]
    way = rng.random()
    if way < 0.15:
        del entries[k]
    elif way < 0.25:
        entries.append((name, inner))
    elif way < 0.35:
        odd = rng.choice(
            ("odd.npy", "../odd", "/odd", "a/b.npy", "", "action.odd.npy", "obs.npy", "state.x.npy", "\\odd")
        )
        entries[k] = (odd, inner)
    elif way < 0.45:
        entries.append(("odd.npy", inner))
    elif name.endswith("about.npy"):
        text = edit_json(np.lib.format.read_array(io.BytesIO(inner)).tobytes(), rng)
        file = io.BytesIO()
        np.lib.format.write_array(file, np.frombuffer(text, np.uint8))
        entries[k] = (name, file.getvalue())
    elif name.endswith(".npy") and way < 0.8:
        entries[k] = (name, edit_array(inner, rng))
    else:
        entries[k] = (name, rng.choice(BYTEWISE)(inner or b"x", rng))
    renewed = rng.random() < 0.5
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, of names that are there twice
        with zipfile.ZipFile(file, "w") as archive:
            for name, inner in entries:
                if not (renewed and name.endswith(DIGEST)):
                    archive.writestr(zipfile.ZipInfo(name), inner)
        if renewed and entries:
            seal(file)
    return file.getvalue()


# ---- files, and what is in them --------------------------------------------------------------------------------------


def arrays_of(path, load):
    """Return what a recording or snapshot holds, for comparison."""
    found = load(path)
    if isinstance(found, cd.Snapshot):
        content = {name: (a.dtype, a.shape, a.tobytes()) for name, a in found.arrays().items()}
        return content | {
            key: getattr(found, key) for key in ("env", "params", "num_envs", "first_env", "seed", "origin")
        }
    content = {name: (a.dtype, a.shape, a.tobytes()) for name, a in found.action.items()}
    content |= {key: getattr(found, key) for key in ("seed", "players", "first_env", "checksum", "origin")}
    return content | {"env": found.spec.name, "params": found.params, "length": found.length.tolist()}


def run_of(path, load):
    """Return what a run folder holds, for comparison; ``path`` is one of its files."""
    folder = path.parent.parent if path.suffix == ".pt" else path.parent
    run = load(folder)
    tensors = {name: tensor.numpy().tobytes() for name, tensor in run.snapshot().items()}
    return tensors | {"step": run.step, "config": run.config(), "metrics": repr(run.metrics)}


def write_files(folder):
    """Write one file of each format; return ``(path, content of it, function that loads, ways to damage)`` by name."""
    quiet = {"device": "cpu", "progress": False}
    env = cd.make("tag_grid", 3, device="cpu", grid_length=5, num_taggers=2)
    env.reset(seed=1)
    env.rollout(4)
    env.snapshot().save(folder / "moment.npz")
    players = {"tagger": cd.Random(), "runner": cd.Random()}
    options = dict(episodes=2, device="cpu", grid_length=5, num_taggers=2, max_episode_steps=20)
    cd.evaluate("tag_grid", players, **options).recording.save(folder / "episodes.npz")
    cd.train("cartpole", cd.PPO(num_steps=4, hidden=(4,)), num_envs=4, steps=64, out=folder / "run", keep=1, **quiet)
    (checkpoint,) = (folder / "run" / "checkpoints").glob("*.pt")
    archives, texts = (*BYTEWISE, edit_archive, edit_archive), (*BYTEWISE, edit_json, edit_json, edit_json)
    files = {
        "recording": (folder / "episodes.npz", arrays_of, cd.Recording.load, archives),
        "snapshot": (folder / "moment.npz", arrays_of, cd.Snapshot.load, archives),
        "checkpoint": (checkpoint, run_of, cd.Run.load, archives),
        "config": (folder / "run" / "config.json", run_of, cd.Run.load, texts),
        "metrics": (folder / "run" / "metrics.jsonl", run_of, cd.Run.load, (*BYTEWISE, edit_lines)),
    }
    return files


def damage(path, look, load, ways, times, rng):
    """Damage a file many times; return how often each outcome was seen, and the cases that broke the law.

    The law: what is read is what was written, or a ``CupydriveError`` of one line is raised. Text has no digest, so that a
    digit may read as another; and who makes the digest anew may write other numbers, if they are sound.
    """
    good = path.read_bytes()
    want, seen, broken = look(path, load), collections.Counter(), []
    for _ in range(times):
        way = rng.choice(ways)
        bad = way(good, rng)
        if bad == good:
            continue
        path.write_bytes(bad)
        may_differ = way in (edit_archive, edit_json, edit_lines) or path.suffix.startswith(".json")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", CupydriveWarning)
                warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")  # of its own parts
                outcome = "equal" if look(path, load) == want else "other"
        except CupydriveError as error:
            names_file = path.name in str(error) or path.suffix != ".npz"  # a run's errors may name its folder
            outcome = "refused" if names_file and "\n" not in str(error) else "unclear"
        except Exception as error:  # that there is none is the law: each is reported
            outcome = f"foreign: {type(error).__name__}: {error}"[:200]
        seen[f"{way.__name__}: {outcome}" if outcome.startswith("foreign") else outcome] += 1
        if outcome not in ("equal", "refused") and not (outcome == "other" and may_differ):
            broken.append((way.__name__, outcome, bad))
    path.write_bytes(good)
    return seen, broken


def main():
    """Damage, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="write files that broke the law into this folder")
    args = parser.parse_args()
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, case in write_files(Path(folder)).items():
            seen, broken = damage(*case, args.times, random.Random(args.seed))
            print(f"{name}: {dict(seen)}", flush=True)
            for k, (way, outcome, bad) in enumerate(broken):
                print(f"  BROKEN by {way}: {outcome}")
                code = 1
                if args.keep:
                    args.keep.mkdir(exist_ok=True)
                    (args.keep / f"{name}-{k}").write_bytes(bad)
    return code


if __name__ == "__main__":
    sys.exit(main())
