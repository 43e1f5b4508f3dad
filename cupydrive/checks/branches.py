"""Counts which way the branches of a kernel go, so that a check fails on one that none of its cases and draws takes.

A comparison says nothing of code that has not run. g++ counts every branch of a build with ``--coverage``, and its companion
gcov says what was counted, line by line. Teams of one and of several threads are counted: some branches part the members of a
team, and some code is for one of them alone.
Other compilers count in formats of their own: there the report says that branches were not counted.
"""

import ctypes
import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from cupydrive.codegen.source import kernel_text
from cupydrive.errors import DeviceError
from cupydrive.executors.compiler import compile_unit, compiler
from cupydrive.executors.host import FLAGS, HostExecutor, HostProgram

TEAMS = (1, 2)
COUNTING = ("-O0", "--coverage", "-DCOUNT_BRANCHES")
EXCLUDED = "LCOV_EXCL_BR_LINE"  # in a comment, as for lcov and gcovr: a branch of this line cannot go both ways
PART = "cpu: branches of the kernel, each way taken"


class CountedProgram(HostProgram):
    """One unit whose branches are counted, compiled for this process alone.

    Args:
        executor: The ``BranchCounter``.
        unit: The ``Unit``.
        folder: Where the compiler's notes and the counts lie.
    """

    def __init__(self, executor, unit, folder):
        text, library = Path(folder, "unit.cpp"), Path(folder, "unit.so")
        text.write_text(unit.text, encoding="utf-8")
        team = ("-DTEAM_THREADS", "-pthread") if executor.team_threads else ()
        compile_unit(unit, compiler()[0], (*FLAGS, *COUNTING, *team), text, library)
        self.executor, self.library, self.folder = executor, ctypes.CDLL(str(library)), folder
        self.functions, self.prints = {name: getattr(self.library, name) for name in unit.kernels}, unit.prints
        self.cache_bytes = self.library.cache_bytes()

    def counts(self, file):
        """Return how often each branch of ``file`` was taken, by (line, branches of the line, number of the branch)."""
        self.library.write_branches()
        counted = next(Path(self.folder).glob("*.gcda"))
        command = [gcov(), "--branch-probabilities", "--branch-counts", "--json-format", "--stdout", str(counted)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", cwd=self.folder)
        if done.returncode != 0 or not done.stdout.startswith("{"):
            raise DeviceError(f"gcov cannot read what {compiler()[0][0]} has counted: {done.stderr.strip()[-300:]}")
        found = Counter()
        for lines in (f["lines"] for f in json.loads(done.stdout)["files"] if f["file"] == file):
            for line in lines:  # one entry for each instance of a template
                for k, branch in enumerate(line["branches"]):
                    found[line["line_number"], len(line["branches"]), k] += branch["count"]
        return found


class BranchCounter(HostExecutor):
    """The CPU, counting branches, within ``with``; ``team``: threads of a team, or 1."""

    def __init__(self, team):
        super().__init__(threads=1, team_threads=team if team > 1 else 0)
        self.tries = False  # a check counts branches last: other builds of this kernel have run
        self.programs = {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cupydrive-branches-")
        return self

    def __exit__(self, *exception):
        for program in self.programs.values():  # or the library would write when this process ends
            program.library.write_branches()
        self.folder.cleanup()

    def build(self, unit):
        """Return the ``CountedProgram`` of ``unit``."""
        if unit.text not in self.programs:
            folder = tempfile.mkdtemp(dir=self.folder.name)
            self.programs[unit.text] = CountedProgram(self, unit, folder)
        return self.programs[unit.text]

    def counts(self, file):
        """Return the sums of all programs' counts."""
        total = Counter()
        for program in self.programs.values():
            total.update(program.counts(file))  # which keeps zeros, unlike +
        return total


def gcov():
    """Return the command of gcov that belongs to the compiler: gcov-13 to g++-13."""
    name = Path(compiler()[0][0]).name
    return name.replace("g++", "gcov") if "g++" in name else "gcov"


def cannot_count():
    """Return why branches cannot be counted here, or None."""
    command, identity = compiler()
    if "Free Software Foundation" not in identity:
        return f"{command[0]!r} is not g++, whose gcov says how often each branch was taken"
    try:
        subprocess.run([gcov(), "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"there is no {gcov()}, which comes with g++"
    return None


def report_branches(report, spec, counts):
    """Add one tally for each line of the kernel that has branches; one that went one way only is a failure.

    Args:
        report: ``Report``.
        spec: ``EnvSpec``.
        counts: A ``Counter`` by (line, branches of the line, number of the branch), of all cases and teams.
    """
    file, text = kernel_text(spec)
    lines, taken = text.splitlines(), {}
    for (line, number, k), times in counts.items():
        taken.setdefault(line, {})[number, k] = times
    for line, ways in sorted(taken.items()):
        if EXCLUDED in lines[line - 1]:
            continue
        tally = report.tally(PART, f"{file}:{line}")
        tally.compared, tally.rows = len(ways), sum(ways.values())
        never = sum(times == 0 for times in ways.values())
        if never:
            tally.failure = (
                f"{file}:{line}: {never} of {len(ways)} ways of its conditions were never taken: "
                f"`{lines[line - 1].strip()}`. Let `sample` draw such states, `vary` such parameters, or `cases` such sizes; "
                f"if a way cannot be taken, write {EXCLUDED} in a comment of that line"
            )
