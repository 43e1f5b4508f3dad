"""Exceptions that are a user's to mend, in a line or two: of an environment file of one's own, of a package that is missing."""

import linecache
import os
import traceback

from cupydrive.envs import USER_MODULE
from cupydrive.errors import CupydriveError

PACKAGES = {"PIL": "pillow"}  # what is installed by another name than it is imported by
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def own_mistake(error):
    """Return where in a user's own environment file an exception came from, and what it is; None if it did not come from one.

    The last frame that is in such a file counts: what it called, NumPy say, is not the user's.
    """
    if isinstance(error, SyntaxError) and error.filename and not os.path.abspath(error.filename).startswith(PACKAGE):
        return _words(error.filename, error.lineno, "", f"{type(error).__name__}: {error.msg}")
    what = str(error) if isinstance(error, CupydriveError) else "".join(traceback.format_exception_only(error)).strip()
    own = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(USER_MODULE)
    ]
    if not own:
        return None
    frame, line = own[-1]
    name = frame.f_code.co_name
    place = "" if name == "<module>" else f", in {name}"
    return _words(frame.f_code.co_filename, line, place, what)


def missing_package(error):
    """Return which package is not installed, and what installs it, if that is what an exception is about; else None."""
    if not isinstance(error, ImportError) or not error.name or error.name.split(".")[0] == __name__.split(".")[0]:
        return None
    package = error.name.split(".")[0]
    return f"{error}; cupydrive needs the package here: pip install {PACKAGES.get(package, package)}"


def _words(path, line, place, what):
    """Return ``FILE:LINE, in FUNCTION: ERROR`` and the line's text."""
    text = linecache.getline(path, line or 0).strip()
    near = os.path.relpath(path)
    return f"{path if near.startswith('..') else near}:{line}{place}: {what}" + (f"\n    {text}" if text else "")
