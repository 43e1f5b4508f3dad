"""Damage statements of the package, one at a time, and record which test fails first.

    python tests/tools/damaged_statements.py --draw 60 --seed 0     draw damages, find a test for each and record both
    python tests/tools/damaged_statements.py                        repeat the recorded damages

The record is damaged_statements.json in tests/data. The first form makes it, in about an hour, and
replaces one that is there.

A damage drops a statement, inverts a condition or shifts an index. Each runs in its own copy of the
checkout, first with the test that found it last time. For the others all tests run once, on a copy
in which each of these statements notes the tests that reach it. Then each damage runs with the
tests that reach it, until one fails. The record names a damage by file, function and the text
before and after, not by line. GPU tests, slow tests and altered kernels are left out. The exit code
is 1 if a damage that was found is not found any more.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "data" / "damaged_statements.json"
ROOMS = ("inputs", "training", "playing", "simulation", "executors", "adapters")
LEFT_OUT = "not gpu and not slow and not mutants"
# an expression, so that it fits into f-strings, too
NOTE = "__import__('cupydrive.reached').reached.note({number})"
# A module of the copy in which statements note who reaches them. Programs that a test starts
# inherit the test's name.
REACHED = """
import os

seen = set()


def note(number):
    pair = number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if pair not in seen:
        seen.add(pair)
        with open({path!r}, "a", encoding="utf-8") as file:
            file.write(f"{{pair[0]}} {{pair[1]}}\\n")
"""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Damage:
    """One damaged statement and the first test that failed, an empty string if none did."""

    file: str
    function: str
    kind: str
    before: str
    after: str
    found_by: str = ""

    def place(self, text: str) -> tuple[int, int]:
        """Return the range of characters of ``text`` that this damage replaces.

        Raises:
            LookupError: If the statement is not there any more.
        """
        for damage, _, start, end in damages(self.file, text, ast.parse(text)):
            if replace(damage, found_by=self.found_by) == self:
                return start, end
        raise LookupError(f"{self.file} has no longer in {self.function}: {self.before}")

    def apply(self, text: str) -> str:
        """Return ``text`` with this damage."""
        start, end = self.place(text)
        return text[:start] + self.after + text[end:]


class Notes(ast.NodeTransformer):
    """A change of a module in which statements note that they are reached.

    Args:
        numbers: Kind and number of each damage, by the node that it replaces.
    """

    def __init__(self, numbers: dict[ast.AST, list[tuple[str, int]]]):
        self.numbers = numbers

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        """Return a node with the notes of its damages and of those within it."""
        noted = inner = self.generic_visit(node)
        for kind, number in self.numbers.get(node, ()):
            note = ast.parse(NOTE.format(number=number), mode="eval").body  # None, which is false
            if kind == "dropped":
                noted = [ast.Expr(note), noted]
            elif kind == "inverted":
                noted = ast.BoolOp(ast.Or(), [note, noted])
            else:
                inner.value = ast.BoolOp(ast.Or(), [note, inner.value])
        return noted


def with_notes(file: str, text: str, found: list[Damage]) -> str:
    """Return a module in which the statements of its damages note their numbers in ``found`` when
    they are reached.

    Raises:
        LookupError: If a statement is not there any more.
    """
    tree, numbers = ast.parse(text), {}
    wanted = {
        replace(damage, found_by=""): number
        for number, damage in enumerate(found)
        if damage.file == file
    }
    for damage, node, _, _ in damages(file, text, tree):
        if damage in wanted:
            numbers.setdefault(node, []).append((damage.kind, wanted.pop(damage)))
    if wanted:
        raise LookupError(f"{file} has no longer: {[damage.before for damage in wanted]}")
    noted = ast.unparse(ast.fix_missing_locations(Notes(numbers).visit(tree)))
    compile(noted, file, "exec")
    return noted


def damages(file: str, text: str, tree: ast.Module) -> Iterator[tuple[Damage, ast.AST, int, int]]:
    """Yield all damages of a module with the node and the range of characters that each replaces.

    Args:
        file: Path of the module.
        text: Its text.
        tree: What ``ast.parse`` returns for the text.
    """
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()

    def place(node: ast.AST) -> tuple[int, int]:
        first, last = (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )
        return len(data[:first].decode()), len(data[:last].decode())

    def visit(node: ast.AST, function: str) -> Iterator[tuple[Damage, ast.AST, int, int]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            inside = f"{function}.{child.name}".lstrip(".") if named else function
            for kind, whole, part, after in changes(child) if function else ():
                (start, end), (first, last) = place(whole), place(part)
                damaged = text[start:first] + after(text[first:last]) + text[last:end]
                before, changed = plain(text[start:end]), plain(damaged)
                yield Damage(file, function, kind, before, changed), whole, start, end
            yield from visit(child, inside)

    yield from visit(tree, "")


def plain(code: str) -> str:
    """Return a statement or an expression as Python writes it, whatever its line breaks."""
    try:
        return ast.unparse(ast.parse(f"(\n{code}\n)"))
    except SyntaxError:  # a statement
        return ast.unparse(ast.parse(code))


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST, Callable[[str], str]]]:
    """Yield the kind, the node that names the damage, the part that changes and a function from its
    text to the new text.
    """
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    # Without the assignment of a local name nothing works: any test finds that.
    is_local = isinstance(node, ast.Assign) and all(
        isinstance(n, ast.Name | ast.Tuple) for n in node.targets
    )
    if (
        isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Raise)
        and not is_docstring
        and not is_local
    ):
        yield "dropped", node, node, lambda text: "pass"
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "inverted", node.test, node.test, lambda text: f"(not ({text}))"
    if isinstance(node, ast.Subscript):
        bounds = (
            [node.slice.lower, node.slice.upper]
            if isinstance(node.slice, ast.Slice)
            else [node.slice]
        )
        for bound in bounds:
            if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
                yield "shifted", node, bound, lambda text: f"{text} + 1"


def draw(number: int, seed: int) -> list[Damage]:
    """Draw ``number`` damages, a third of each kind, uniformly over the statements of ``ROOMS``."""
    files = sorted(path for room in ROOMS for path in (ROOT / "cupydrive" / room).rglob("*.py"))
    names = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in files]
    found = list(
        dict.fromkeys(
            one[0] for file, text in names for one in damages(file, text, ast.parse(text))
        )
    )
    generator, drawn = random.Random(seed), []
    for k, kind in enumerate(("dropped", "inverted", "shifted")):
        drawn += generator.sample(
            [damage for damage in found if damage.kind == kind], (number + 2 - k) // 3
        )
    return drawn


def copy_checkout(folder: str) -> Path:
    """Copy the files that git tracks and return the new checkout."""
    copy = Path(folder) / "checkout"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return copy


def reached(found: list[Damage], processes: int) -> list[list[str]]:
    """Run all tests once and return, for each damage, the tests that reach its statement and pass
    without it.

    Raises:
        RuntimeError: If no test notes anything: then none has run.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy, notes = copy_checkout(folder), Path(folder) / "notes"
        notes.touch()
        (copy / "cupydrive" / "reached.py").write_text(
            REACHED.format(path=str(notes)), encoding="utf-8"
        )
        for file in {damage.file for damage in found}:
            text = (copy / file).read_text(encoding="utf-8")
            (copy / file).write_text(with_notes(file, text, found), encoding="utf-8")
        failed = set(failures(copy, ["tests"], processes))
        lines = [line.partition(" ") for line in notes.read_text(encoding="utf-8").splitlines()]
    if not lines:
        raise RuntimeError(
            "no test reached any of the statements: look whether the tests run at all"
        )
    tests = [
        {test for at, _, test in lines if int(at) == number} - failed - {""}
        for number in range(len(found))
    ]
    return [
        sorted(names, key=lambda name: (damage.file.split("/")[1] not in name, name))
        for damage, names in zip(found, tests, strict=True)
    ]


def search(damage: Damage, tests: list[str], processes: int) -> Damage:
    """Run tests on a damaged copy of the checkout until one fails and return the damage with its
    name.
    """
    if not any(tests):
        return damage
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_checkout(folder)
        path = copy / damage.file
        text = damage.apply(path.read_text(encoding="utf-8"))
        compile(text, damage.file, "exec")  # or any test would find it
        path.write_text(text, encoding="utf-8")
        try:
            return replace(damage, found_by=next(iter(failures(copy, tests, processes, "-x")), ""))
        except LookupError:
            if tests != [damage.found_by]:
                raise
            return replace(damage, found_by="")  # the test has been deleted


def search_all(
    found: list[Damage], tests: list[list[str]], given: argparse.Namespace
) -> list[Damage]:
    """Search for all damages, several at a time, and print each result."""
    after = []
    with ThreadPoolExecutor(given.workers) as pool:
        for damage in pool.map(
            lambda damage, names: search(damage, names, given.processes), found, tests
        ):
            after.append(damage)
            place = f"{damage.file} {damage.function} {damage.kind}"
            print(
                f"[{len(after)} of {len(found)}] {place}: {damage.found_by or 'not found'}",
                flush=True,
            )
    return after


def failures(copy: Path, tests: list[str], processes: int, *options: str) -> list[str]:
    """Return the names of the tests that fail.

    Raises:
        LookupError: If a test does not exist.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        "--tb=no",
        "-rfE",
        "-m",
        LEFT_OUT,
        "-n",
        str(processes),
    ]
    paths = [str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [*command, *options, *tests], cwd=copy, env=environment, capture_output=True, text=True
    )
    if done.returncode in (4, 5):
        raise LookupError(f"no such test: {done.stderr.strip()[-300:]}")
    return FAILED.findall(done.stdout) if done.returncode else []


def main() -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draw",
        type=int,
        metavar="N",
        help="draw N new damages instead of repeating the recorded ones",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="damages at a time")
    parser.add_argument("--processes", type=int, default=2, help="processes of each run of tests")
    given = parser.parse_args()
    if not given.draw and not RECORD.exists():
        parser.error(
            f"{RECORD} does not exist. Make it: python tests/tools/damaged_statements.py --draw 60"
        )
    before = (
        draw(given.draw, given.seed)
        if given.draw
        else [Damage(**row) for row in json.loads(RECORD.read_text())]
    )
    known = [damage for damage in before if damage.found_by]
    after = dict(
        zip(known, search_all(known, [[damage.found_by] for damage in known], given), strict=True)
    )
    missing = [damage for damage in before if not after.get(damage, damage).found_by]
    if missing:
        print(
            f"all tests run once to learn which of them reach {len(missing)} statements", flush=True
        )
        tests = reached(missing, given.workers * given.processes)
        after |= zip(missing, search_all(missing, tests, given), strict=True)
    if given.draw:
        RECORD.write_text(json.dumps([asdict(after[damage]) for damage in before], indent=1) + "\n")
    lost = sum(bool(damage.found_by) and not after[damage].found_by for damage in before)
    print(
        f"{sum(bool(damage.found_by) for damage in after.values())} of {len(after)} found, {lost} lost"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
