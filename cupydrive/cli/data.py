"""The command that shows and fetches published data sets."""

from typing import Annotated

from cupydrive.cli.options import unsaid
from cupydrive.errors import MissingDataError


def run_data(name: Annotated[str | None, unsaid(metavar="NAME")] = None, fetch: bool = False) -> int:
    """Show the published data sets that environments read: where their files are, their licence and their authors.

    Args:
        name: One data set only, such as rice_n. Defaults to all.
        fetch: Fetch missing files into the user's cache folder.
    """
    from cupydrive.inputs.data import files, here
    from cupydrive.inputs.files import from_home
    from cupydrive.inputs.sources import source, sources

    lacking = []
    for wanted in list(sources().values()) if name is None else [source(name)]:
        if fetch:
            files(wanted.name)
        found, damaged = here(wanted)
        folders = ", ".join(sorted({from_home(path.parent) for path in found.values()}))
        missing = [file for file in wanted.files if file not in found]
        lacking += [wanted.name] * bool(missing)
        print(wanted.name)
        for key, value in (
            ("is", wanted.about),
            ("files", f"{len(found)} of {len(wanted.files)}{f', in {folders}' if found else ''}"),
            ("missing", ", ".join(missing)),
            ("damaged", ", ".join(map(str, damaged))),
            ("from", wanted.page),
            ("licence", wanted.licence),
            ("credit", wanted.credit),
        ):
            if value:
                print(f"  {key:8} {value}")
    if lacking:
        raise MissingDataError(
            f"files of {', '.join(lacking)} are missing. Fetch them: cupydrive data --fetch; or put them into a folder DIR "
            "and set CUPYDRIVE_DATA=DIR"
        )
    return 0
