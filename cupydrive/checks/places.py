"""Where in a user's own environment file an exception came from."""

import linecache
import os
import traceback
from dataclasses import dataclass

from cupydrive.envs import USER_MODULE


@dataclass(frozen=True)
class Place:
    """A line of a file.

    Args:
        file: Its path, from the current folder where it lies below it.
        line: Number of the line.
        function: The function that it belongs to, or ``"<module>"``.
        text: What stands there, without indentation; an empty string if the file cannot be read.
    """

    file: str
    line: int
    function: str
    text: str

    @classmethod
    def of(cls, path, line, function="<module>"):
        """Return that of a path."""
        near = os.path.relpath(path)
        text = linecache.getline(path, line or 0).strip()
        return cls(path if near.startswith("..") else near, line, function, text)


def own_place(error):
    """Return the ``Place`` in a user's own environment file that an exception came from; None if it did not come from one.

    The last frame that is in such a file counts: what it called, NumPy say, is not the user's.
    """
    own = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(USER_MODULE)
    ]
    if not own:
        return None
    code, line = own[-1]
    return Place.of(code.co_filename, line, code.co_name)
