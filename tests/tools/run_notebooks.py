"""Runs the lessons, and keeps them with what they showed: notebooks/ is committed as one machine
has executed it.

    python tests/tools/run_notebooks.py [--only 03 04] [--out DIR]

It takes whatever device there is; the first cell of each lesson says which. Each runs in a process
of its own, in an empty folder, with this checkout's package. A lesson that fails, or shows what
must not be committed, is not written: its message is shown and the others go on. Exit code 1 if
there was one. Needs nbclient, nbformat and ipykernel, and for `10_sciences` the tables that
`cupydrive data` tells of.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
# bytes of JSON: of one output, of all outputs of all lessons
MOST_OUTPUT, MOST_TOGETHER = 300_000, 3_000_000
CELL_SECONDS = 1200
PARAMETERS, INJECTED = "parameters", "injected-parameters"  # tags of cells, as papermill has them


def lessons():
    """Return the paths of all notebooks, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path):
    """Return a notebook of format 4."""
    import nbformat

    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook, tag):
    """Return the cells that have a tag."""
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def parameters(notebook):
    """Return the values that the cell tagged `parameters` assigns, by name.

    Raises:
        ValueError: If it does anything but to assign literals to names.
    """
    found = {}
    for cell in tagged(notebook, PARAMETERS):
        for node in ast.parse(cell.source).body:
            if not isinstance(node, ast.Assign) or not all(
                isinstance(target, ast.Name) for target in node.targets
            ):
                raise ValueError(
                    f"a cell of parameters only assigns literals, and this one says: {ast.unparse(node)}"
                )
            found |= dict.fromkeys(
                (target.id for target in node.targets), ast.literal_eval(node.value)
            )
    return found


def inject(notebook, values):
    """Put a cell below the one tagged `parameters` that assigns those of ``values`` which
    it knows.
    """
    import nbformat

    known = {name: values[name] for name in parameters(notebook) if name in values}
    if known:
        cell = nbformat.v4.new_code_cell(
            "\n".join(f"{name} = {value!r}" for name, value in known.items())
        )
        cell.metadata["tags"] = [INJECTED]
        (at,) = (
            k
            for k, cell in enumerate(notebook.cells)
            if PARAMETERS in cell.metadata.get("tags", [])
        )
        notebook.cells.insert(at + 1, cell)


def execute(notebook, folder, begun=lambda number: None):
    """Run all cells in ``folder``, in a process of this Python that imports this checkout's
    package.

    Args:
        notebook: Is given its outputs.
        folder: Where its files go.
        begun: Called with the number of each code cell that begins, the first is 1.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails; it shows the cell and the error.
    """
    import nbclient

    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    places = [k for k, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        coalesce_streams=True,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=lambda cell, cell_index: (
            cell_index in places and begun(places.index(cell_index) + 1)
        ),
    )
    # what a lesson puts into one of its own
    with tempfile.TemporaryDirectory(prefix="cupydrive-lesson-") as temporary:
        client.execute(env=os.environ | {"PYTHONPATH": path, "TMPDIR": temporary})


def tidy(notebook):
    """Drop from outputs what nobody sees: progress lines that went away, second copies in formats
    that are not shown.
    """
    for cell in code_cells(notebook):
        cell.outputs = [o for o in cell.outputs if o.get("data") != {"text/plain": ""}]
        for output in cell.outputs:
            for kind, other in (("image/png", "image/jpeg"), ("text/html", "text/latex")):
                if kind in output.get("data", {}):
                    output.data.pop(other, None)


def digest(notebook):
    """Return the SHA-256 of all code; of words around it nothing."""
    return hashlib.sha256(
        json.dumps([cell.source for cell in code_cells(notebook)]).encode()
    ).hexdigest()


def stamp(notebook, seconds):
    """Say in the notebook's metadata of which code and version, and from which machine, its outputs
    are.
    """
    import cupydrive

    line = "".join(output.get("text", "") for output in code_cells(notebook)[0].outputs).strip()
    about = {
        "version": cupydrive.__version__,
        "code": digest(notebook),
        "made_with": line,
        "seconds": round(seconds),
    }
    notebook.metadata["cupydrive"] = about


def sizes(notebook):
    """Return the bytes of JSON of each output."""
    return [len(json.dumps(output)) for cell in code_cells(notebook) for output in cell.outputs]


def stale(notebook):
    """Return why a notebook's outputs are not those of its code in this version, or None."""
    import cupydrive

    about = notebook.metadata.get("cupydrive", {})
    cells = code_cells(notebook)
    if about.get("version") != cupydrive.__version__:
        return f"its outputs are of version {about.get('version')}, and this is cupydrive {cupydrive.__version__}"
    if about.get("code") != digest(notebook):
        return "its code has changed since it was run"
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        return "its cells were not run once each, from top to bottom"
    return None


def unfit(notebook):
    """Return why outputs must not be committed, as a list of lines."""
    found = []
    for number, cell in enumerate(code_cells(notebook), 1):
        for output in cell.outputs:
            data, size = output.get("data", {}), len(json.dumps(output))
            words = "".join(
                [output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")]
            )
            words = re.sub(r"base64,[\w+/=]+", "", words)
            said = []
            if output.output_type == "error":
                said.append(f"{output.ename}: {output.evalue}")
            if size > MOST_OUTPUT:
                said.append(
                    f"an output has {size:,} bytes; the limit is {MOST_OUTPUT:,}: fewer steps, or a smaller size="
                )
            if folder := re.search(
                r"(?<![\w.])/(?:home|root|tmp|var|work|mnt|Users)/[^\s'\"<]*", words
            ):
                said.append(f"it shows a folder of this machine, {folder[0]}")
            said += [
                f"a part was left out: {line}"
                for line in words.splitlines()
                if re.search(r"\bskipped\b", line)
            ]
            if "<video" in data.get("text/html", "") and "image/png" not in data:
                said.append(
                    "a video comes without its still as image/png, which git hosts and converters show"
                )
            found += [f"code cell {number}: {line}" for line in said]
    return found


def run(path, out, shown):
    """Execute one lesson and write it into ``out``; return what it showed in bytes, or None if it
    is not written.
    """
    import nbclient
    import nbformat

    notebook = read(path)
    cells, start = len(code_cells(notebook)), time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="cupydrive-lesson-") as folder:
            execute(
                notebook, folder, lambda number: shown(f"{path.stem}: cell {number} of {cells}")
            )
    except (nbclient.exceptions.CellControlSignal, nbclient.exceptions.DeadKernelError) as error:
        print(f"{path.stem}: failed, not written\n{error}", flush=True)
        return None
    seconds = time.perf_counter() - start
    tidy(notebook)
    stamp(notebook, seconds)
    if wrong := unfit(notebook):
        print(
            "\n".join([f"{path.stem}: not written", *(f"  {line}" for line in wrong)]), flush=True
        )
        return None
    nbformat.validate(notebook)
    nbformat.write(notebook, out / path.name)
    print(f"{path.stem}: {seconds:.0f} s, {sum(sizes(notebook)):,} bytes of outputs", flush=True)
    return sum(sizes(notebook))


def main():
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="NAME", help="how their names begin, such as 03"
    )
    parser.add_argument(
        "--out", type=Path, default=FOLDER, metavar="DIR", help="where they are written; notebooks/"
    )
    asked = parser.parse_args()
    chosen = [path for path in lessons() if path.stem.startswith(tuple(asked.only))]
    if odd := [
        name for name in asked.only if not any(path.stem.startswith(name) for path in chosen)
    ]:
        parser.error(
            f"no lesson begins with {', '.join(odd)}; there are {', '.join(path.stem for path in lessons())}"
        )
    asked.out.mkdir(parents=True, exist_ok=True)
    on_terminal, start = sys.stderr.isatty(), time.perf_counter()

    def shown(words):
        if on_terminal:
            print(f"\r\x1b[K{words}", end="\r", file=sys.stderr, flush=True)

    done = [run(path, asked.out, shown) for path in chosen]
    written = [size for size in done if size is not None]
    print(
        f"{len(written)} of {len(chosen)} written to {asked.out} in {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    together = sum(sum(sizes(read(path))) for path in lessons())
    if asked.out.resolve() == FOLDER and together > MOST_TOGETHER:
        print(
            f"all lessons together have {together:,} bytes of outputs; the limit is {MOST_TOGETHER:,}"
        )
        return 1
    return 0 if len(written) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
