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
    def of(cls, path: str, line: int | None, function: str = "<module>") -> "Place":
        """Return the place of a line of the file ``path``."""
        near = os.path.relpath(path)
        text = linecache.getline(path, line or 0).strip()
        return cls(path if near.startswith("..") else near, line, function, text)


def own_place(error: BaseException) -> Place | None:
    """Return the ``Place`` in a user's own environment file that an exception came from, or None.

    It is the last frame in such a file: the functions that it called, NumPy's say, are not the user's.
    """
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__", "").startswith(USER_MODULE):
            return Place.of(frame.f_code.co_filename, line, frame.f_code.co_name)
    return None
