"""Copies the lessons to runs/notebooks and opens JupyterLab there, so that what you run and change
is yours.

    python notebooks/start.py [--folder DIR] [--copy-only]

The copies stay. One that you have changed or run is never written over: if its lesson has changed
since, that is said, and when you have moved your copy away you get the new one.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = ".copied.json"  # SHA-256 of each lesson as it was copied


def sha256(path):
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy(lessons, folder):
    """Copy lessons into a folder, all but those that have been changed there.

    Args:
        lessons: Paths.
        folder: Is made if need be; it keeps what was copied in a file of its own.

    Returns:
        Lines of text: what was not copied, and why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / KEPT
    try:
        copied = json.loads(kept.read_text())
    except (FileNotFoundError, ValueError):  # then every copy counts as changed
        copied = {}
    said = []
    for lesson in lessons:
        own, new = folder / lesson.name, sha256(lesson)
        has = sha256(own) if own.exists() else None
        if has not in (None, new, copied.get(lesson.name)):
            if copied.get(lesson.name) != new:
                said.append(
                    f"{lesson.name}: yours is kept, and the lesson has changed since; for the new "
                    f"one move yours away"
                )
            continue
        if has != new:
            own.write_bytes(lesson.read_bytes())
        copied[lesson.name] = new
    kept.write_text(json.dumps(copied, indent=1))
    return said


def main():
    """Copy, and become JupyterLab; return the exit code if that cannot be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=HERE.parent / "runs" / "notebooks",
        help="where the copies go",
    )
    parser.add_argument("--copy-only", action="store_true", help="do not open JupyterLab")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    if folder == HERE:
        parser.error("--folder is the lessons' own folder; give another one")
    try:
        said = copy(sorted(HERE.glob("*.ipynb")), folder)
    except OSError as error:
        print(
            f"start.py: the lessons cannot be copied to {folder}: {error.strerror}", file=sys.stderr
        )
        return 1
    print("\n".join([*said, f"Your copies of the lessons are in {folder}"]), flush=True)
    if not asked.copy_only:
        os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(folder)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
