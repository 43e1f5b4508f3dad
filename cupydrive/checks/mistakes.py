"""One-line messages for exceptions raised in a user's own environment file."""

import linecache
import os
import traceback

from cupydrive.envs import USER_MODULE
from cupydrive.errors import CupydriveError

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def own_mistake(error: BaseException) -> str | None:
    """Format an exception from a user's own environment file, or return None for any other.

    The result is ``FILE:LINE: ERROR (`SOURCE LINE`)``. It shows the innermost frame in such a file,
    even if the exception was raised in a function that it called, for example one of NumPy.
    """
    text = (
        str(error)
        if isinstance(error, CupydriveError)
        else traceback.format_exception_only(error)[-1].strip()
    )
    if (
        isinstance(error, SyntaxError)
        and error.filename
        and not os.path.abspath(error.filename).startswith(PACKAGE)
    ):
        return _at(error.filename, error.lineno or 0, text)
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__", "").startswith(USER_MODULE):
            return _at(frame.f_code.co_filename, line, text)
    return None


def _at(path: str, line: int, text: str) -> str:
    near, source = os.path.relpath(path), linecache.getline(path, line).strip()
    return f"{path if near.startswith('..') else near}:{line}: {text}" + f" (`{source}`)" * bool(
        source
    )
