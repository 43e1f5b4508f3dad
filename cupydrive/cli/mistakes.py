"""Packages that are missing."""

PACKAGES = {"PIL": "pillow"}  # packages whose name differs from that of their import


def missing_package(error):
    """Return which package is not installed, and what installs it, if that is what an exception is about; else None."""
    if not isinstance(error, ImportError) or not error.name or error.name.split(".")[0] == __name__.split(".")[0]:
        return None
    package = error.name.split(".")[0]
    return f"{error}; cupydrive needs the package here: pip install {PACKAGES.get(package, package)}"
