"""The command that shows, takes and fetches tables of other people's repositories."""

from typing import Annotated

import tyro

from cupydrive.cli.options import unsaid
from cupydrive.errors import CupydriveError, DataError, MissingDataError
from cupydrive.inputs.arguments import checked_path


def run_data(
    folder: Annotated[str | None, tyro.conf.Positional, unsaid(metavar="[DIR]")] = None,
    name: Annotated[str | None, unsaid(metavar="NAME")] = None,
    fetch: bool = False,
) -> int:
    """Show which tables environments need from other people's repositories, where they are, and whose they are.

    Args:
        folder: Take the tables in this folder, and in those below it, into the user's cache; if left out, show what is there.
        name: One data set alone, such as rice_n; all if left out.
        fetch: Fetch what is missing from its repository into the user's cache.
    """
    from cupydrive.inputs.data import files, here, take
    from cupydrive.inputs.sources import cache_folder, differs, listed, source, sources

    chosen = list(sources().values()) if name is None else [source(name)]
    wrong, asked = [], chosen  # what went wrong, and the data sets that must be whole for exit code 0
    if folder is not None:
        path = checked_path("data", "DIR", folder, DataError)
        if not path.is_dir():
            raise DataError(f"data: DIR = {path} is no folder; name the one that holds the files")
        found = {wanted.name: take(wanted, path) for wanted in chosen}
        for wanted in chosen:
            wrong += [
                differs(wanted, file, found[wanted.name].other[file.name])
                for file in wanted.files
                if file.name in found[wanted.name].other
            ]
            if count := len(found[wanted.name].paths):
                print(f"took {count} of {len(wanted.files)} files of {wanted.name} from {path} into {cache_folder()}")
        if name is None and not fetch:
            asked = [wanted for wanted in chosen if found[wanted.name].paths or found[wanted.name].other]
        if not asked:
            known = "; ".join(f"{one.name}: {listed([file.name for file in one.files])}" for one in chosen)
            raise MissingDataError(f"{path} and the folders below it hold no file of a known name ({known})")
    if fetch:
        for wanted in chosen:
            try:
                files(wanted.name)
            except MissingDataError as error:
                wrong.append(str(error))
    lacks = []
    for wanted in chosen:
        _, there, damaged = here(wanted)
        missing = [file.name for file in wanted.files if file.name not in there]
        print(_status(wanted, there, missing, damaged))
        lacks += [f"{wanted.name} lacks {listed(missing)}"] if missing and wanted in asked else []
    if lacks and not wrong:
        wrong = [
            f"{'; '.join(lacks)}. Fetch them: cupydrive data --fetch; or take them from a folder: cupydrive data DIR"
        ]
    if wrong:
        raise CupydriveError(wrong[0] + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""))
    return 0


def _status(wanted, there, missing, damaged):
    """Return where a data set is, and what a reader should know of it, as lines of text."""
    from cupydrive.inputs.files import from_home
    from cupydrive.inputs.sources import listed

    where = listed(sorted({from_home(path.parent) for path in there.values()})) if there else ""
    rows = [
        ("is", wanted.about),
        ("files", f"{len(there)} of {len(wanted.files)}{f', in {where}' if where else ''}"),
        ("missing", ", ".join(missing)),
        ("damaged", listed(damaged) if damaged else ""),
        ("from", wanted.page),
        ("licence", wanted.licence),
        ("credit", wanted.credit),
    ]
    return "\n".join([wanted.name, *(f"  {key:8} {words}" for key, words in rows if words)])
