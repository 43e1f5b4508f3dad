"""What a command says last: which commands come next."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def after_demo():
    """Return the commands that come next, one a line.

    The first makes them known, where this Python is that of a virtual environment whose commands are not.
    """
    activate = Path(sys.prefix, "bin", "activate")
    unknown = shutil.which("cupydrive") is None and activate.is_file()
    return "\n".join(
        [
            "next:",
            *([f"  . {os.path.relpath(activate)}"] if unknown else []),
            "  cupydrive train acrobot --out runs/acrobot",
            "  cupydrive play tag_grid --agent runner --param grid_length=10",
            "  cupydrive new my_env",
        ]
    )


def after_training(run, out, name):
    """Return what a training has written, and the commands that take it, as lines.

    Args:
        run: ``Run`` or ``Population``.
        out: Its folder, or None.
        name: Name of the environment, or path of its Python file, as the command line had it; None: a run's own.
    """
    if out is None:
        return "nothing was written; --out DIR keeps a run, for cupydrive evaluate and cupydrive render"
    if not hasattr(run, "spec"):  # a population, which Python alone reads as one
        return f"wrote {out}; in Python cupydrive.load({str(out)!r}) reads it"
    folder, own = shlex.quote(str(out)), f" --env {shlex.quote(name)}" if name and name.endswith(".py") else ""
    lines = [f"wrote {out}", f"next: cupydrive evaluate {folder}{own}"]
    if run.spec.draw is not None:
        lines.append(f"then: cupydrive render {folder} --out {run.spec.name}.mp4{own}")
    return "\n".join(lines)
