"""Exceptions that are a user's to mend, in a line or two: of an environment file of one's own, of a package that is missing."""

import os
import traceback

from cupydrive.checks.places import Place, own_place
from cupydrive.errors import CupydriveError

PACKAGES = {"PIL": "pillow"}  # what is installed by another name than it is imported by
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def own_mistake(error):
    """Return what an exception is and where in a user's environment file it came from; None if it did not come from one."""
    if isinstance(error, SyntaxError) and error.filename and not os.path.abspath(error.filename).startswith(PACKAGE):
        return _words(Place.of(error.filename, error.lineno), f"{type(error).__name__}: {error.msg}")
    what = str(error) if isinstance(error, CupydriveError) else "".join(traceback.format_exception_only(error)).strip()
    place = own_place(error)
    return place and _words(place, what)


def missing_package(error):
    """Return which package is not installed, and what installs it, if that is what an exception is about; else None."""
    if not isinstance(error, ImportError) or not error.name or error.name.split(".")[0] == __name__.split(".")[0]:
        return None
    package = error.name.split(".")[0]
    return f"{error}; cupydrive needs the package here: pip install {PACKAGES.get(package, package)}"


def _words(place, what):
    """Return ``FILE:LINE, in FUNCTION: ERROR`` and the line's text."""
    inside = "" if place.function == "<module>" else f", in {place.function}"
    return f"{place.file}:{place.line}{inside}: {what}" + (f"\n    {place.text}" if place.text else "")
