"""Damage statements of the package, one at a time, and record which test fails first.

    python tests/tools/damaged_statements.py --draw 60 --seed 0     draw damages and find a test for each
    python tests/tools/damaged_statements.py                        repeat the recorded damages

A damage drops a statement, inverts a condition or shifts an index. Each runs in its own copy of the checkout: first the test
that found it last time, then the tests of the same folder, then all others, until one fails. The record is
damaged_statements.json in tests/data. It names a damage by file, function and the text before and after, not by line.
GPU tests, slow tests and altered kernels are left out. The exit code is 1 if a damage that was found is not found any more.
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
SECONDS = 1800  # per run of tests
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

    def apply(self, text: str) -> str:
        """Return ``text`` with this damage.

        Raises:
            LookupError: If the statement is not there any more.
        """
        for damage, start, end in damages(self.file, text):
            if replace(damage, found_by=self.found_by) == self:
                return text[:start] + self.after + text[end:]
        raise LookupError(f"{self.file} has no longer in {self.function}: {self.before}")


def damages(file: str, text: str) -> Iterator[tuple[Damage, int, int]]:
    """Yield all damages of a module and the range of characters that each replaces."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()

    def place(node: ast.AST) -> tuple[int, int]:
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        return len(data[:first].decode()), len(data[:last].decode())

    def visit(node: ast.AST, function: str) -> Iterator[tuple[Damage, int, int]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            inside = f"{function}.{child.name}".lstrip(".") if named else function
            for kind, whole, part, after in changes(child) if function else ():
                (start, end), (first, last) = place(whole), place(part)
                damaged = text[start:first] + after(text[first:last]) + text[last:end]
                yield Damage(file, function, kind, text[start:end], damaged), start, end
            yield from visit(child, inside)

    yield from visit(ast.parse(text), "")


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST, Callable[[str], str]]]:
    """Yield the kind, the node that names the damage, the part that changes and a function from its text to the new text."""
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    # Without the assignment of a local name nothing works: any test finds that.
    is_local = isinstance(node, ast.Assign) and all(isinstance(n, ast.Name | ast.Tuple) for n in node.targets)
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Raise) and not is_docstring and not is_local:
        yield "dropped", node, node, lambda text: "pass"
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "inverted", node.test, node.test, lambda text: f"(not ({text}))"
    if isinstance(node, ast.Subscript):
        bounds = [node.slice.lower, node.slice.upper] if isinstance(node.slice, ast.Slice) else [node.slice]
        for bound in bounds:
            if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
                yield "shifted", node, bound, lambda text: f"{text} + 1"


def draw(number: int, seed: int) -> list[Damage]:
    """Draw ``number`` damages, a third of each kind, uniformly over the statements of ``ROOMS``."""
    files = sorted(path for room in ROOMS for path in (ROOT / "cupydrive" / room).rglob("*.py"))
    names = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in files]
    found = list(dict.fromkeys(damage for file, text in names for damage, _, _ in damages(file, text)))
    generator, kinds = random.Random(seed), ("dropped", "inverted", "shifted")
    return [d for kind in kinds for d in generator.sample([d for d in found if d.kind == kind], number // len(kinds))]


def search(damage: Damage, processes: int) -> Damage:
    """Run tests on a damaged copy of the checkout until one fails and return the damage with its name."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, tracked.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        path = copy / damage.file
        path.write_text(damage.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
        room = damage.file.split("/")[1]
        near = [str(p.relative_to(copy)) for p in (copy / "tests").rglob(room) if p.is_dir()]
        for tests in ([damage.found_by] if damage.found_by else [], near, ["tests"]):
            if tests and (name := first_failure(copy, tests, processes)):
                return replace(damage, found_by=name)
    return replace(damage, found_by="")


def first_failure(copy: Path, tests: list[str], processes: int) -> str:
    """Return the name of the first test that fails, an empty string if all pass or none is left."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--no-header",
        "--tb=no",
        "-m",
        LEFT_OUT,
        "-n",
        str(processes),
        *tests,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{' '.join(tests)}: no end within {SECONDS} s"
    if done.returncode in (0, 4, 5):  # 4, 5: a test that has been deleted
        return ""
    failed = FAILED.search(done.stdout)
    return failed[1] if failed else f"{' '.join(tests)}: exit code {done.returncode}"


def main() -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--draw", type=int, metavar="N", help="draw N new damages instead of repeating the recorded ones"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="damages at a time")
    parser.add_argument("--processes", type=int, default=2, help="processes of each run of tests")
    given = parser.parse_args()
    before = draw(given.draw, given.seed) if given.draw else [Damage(**row) for row in json.loads(RECORD.read_text())]
    after = []
    with ThreadPoolExecutor(given.workers) as pool:
        for damage in pool.map(lambda damage: search(damage, given.processes), before):
            after.append(damage)
            place = f"{damage.file} {damage.function} {damage.kind}"
            print(f"[{len(after)} of {len(before)}] {place}: {damage.found_by or 'not found'}", flush=True)
    if given.draw:
        RECORD.write_text(json.dumps([asdict(damage) for damage in after], indent=1) + "\n")
    lost = [old for old, new in zip(before, after, strict=True) if old.found_by and not new.found_by]
    print(f"{sum(bool(damage.found_by) for damage in after)} of {len(after)} found, {len(lost)} lost")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
