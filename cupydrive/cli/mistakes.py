"""Exceptions of a user's own Python file, in two lines: what Python would show is mostly frames of this package."""

import linecache
import os
import traceback

from cupydrive.envs import USER_MODULE

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def own_mistake(error):
    """Return where in a user's own environment file an exception came from, and what it is; None if it did not come from one.

    The last frame that is in such a file counts: what it called, NumPy say, is not the user's.
    """
    if isinstance(error, SyntaxError) and error.filename and not os.path.abspath(error.filename).startswith(PACKAGE):
        return _words(error.filename, error.lineno, "", f"{type(error).__name__}: {error.msg}")
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
    return _words(frame.f_code.co_filename, line, place, "".join(traceback.format_exception_only(error)).strip())


def _words(path, line, place, what):
    """Return ``FILE:LINE, in FUNCTION: ERROR`` and the line's text."""
    text = linecache.getline(path, line or 0).strip()
    near = os.path.relpath(path)
    return f"{path if near.startswith('..') else near}:{line}{place}: {what}" + (f"\n    {text}" if text else "")
