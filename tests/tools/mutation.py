"""Alters kernels, one token or statement at a time, and asks `check` whether it notices.

    python tests/tools/mutation.py [ENV ...]                         environments: killed n of m, and the survivors
    python tests/tools/mutation.py --shared [FILE ...] --workers 16  shared kernels (shared_mutation.py), e.g. drive/drive.cuh

The rules know C++ tokens and nothing of any environment. Each mutant runs in a process of its own
with a time limit: an endless loop or a crash counts as killed.
"""

import argparse
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SECONDS = 60
PER_ENVIRONMENT = 40
SWAPS = {
    " + ": " - ", " - ": " + ", " += ": " -= ", " * ": " + ", " / ": " * ",
    " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
    " && ": " || ", " || ": " && ",
    "math::min": "math::max", "math::max": "math::min", " ? ": " ? !", "x[": "y[", "y[": "x[",
    "[i]": "[0]", "[j]": "[i]",
}  # fmt: skip
RUN = """
import sys
from dataclasses import replace
from cupydrive import envs
from cupydrive.checks.checker import check
spec = replace(envs.get(sys.argv[1]).with_made_up_tables(), kernel=sys.stdin.read())
report = check(spec, agent_steps=30000, device="cpu", fail_fast=True, progress=False)
sys.exit(0 if report.passed else 1)
"""


@dataclass(frozen=True)
class Mutant:
    """One altered kernel."""

    env: str
    line: int
    kind: str
    before: str
    after: str
    text: str

    def __str__(self):
        return f"{self.env}.cu:{self.line} [{self.kind}] {self.before.strip()}  ->  {self.after.strip() or '(dropped)'}"


def code_lines(text):
    """Return the numbers of lines that hold statements: after the includes, no declarations,
    comments or directives.
    """
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if "drive/env.cuh" in line) + 1
    skipped = re.compile(r"^\s*(//|#|template\b|struct\b|DEVICE\b|constexpr\b|\}|$)")
    return [i for i in range(start, len(lines)) if not skipped.match(lines[i])]


def mutants(env, text):
    """Return every mutant of one kernel that the rules make."""
    lines, found = text.splitlines(), []

    def add(i, kind, after):
        altered = [*lines[:i], after, *lines[i + 1 :]]
        found.append(Mutant(env, i + 1, kind, lines[i], after, "\n".join(altered) + "\n"))

    for i in code_lines(text):
        line = lines[i]
        code, _, comment = line.partition("//")
        tail = f"//{comment}" if comment else ""
        if "team.sync()" in code:
            add(i, "dropped sync", code.replace("env.team.sync();", "") + tail)
            continue
        if re.match(r"^\s*[\w.\[\]():>\-]+(\(.*\))?\s*([+\-|]?=.*)?;\s*$", code) and not re.match(
            r"^\s*(return|const|float|int|bool|auto|u32|u64|i64)\b", code
        ):
            add(i, "dropped statement", tail)
        for old, new in SWAPS.items():
            for match in re.finditer(re.escape(old), code):
                add(
                    i,
                    f"swap {old.strip()}",
                    code[: match.start()] + new + code[match.end() :] + tail,
                )
        for match in re.finditer(r"(?<![\w.])(\d+\.\d+f|\d+)(?![\w.])", code):
            value = match[1]
            new = f"({value} * 1.5f + 0.25f)" if value.endswith("f") else str(int(value) + 1)
            add(i, "constant", code[: match.start()] + new + code[match.end() :] + tail)
    return found


def chosen(env, text, number=PER_ENVIRONMENT, seed=0):
    """Return ``number`` mutants of one kernel, spread over its kinds, every dropped sync among
    them.
    """
    every = mutants(env, text)
    always = [m for m in every if m.kind == "dropped sync"]
    kinds = {}
    shuffled = [m for m in every if m.kind != "dropped sync"]
    random.Random(seed).shuffle(shuffled)
    for m in shuffled:
        kinds.setdefault(m.kind, []).append(m)
    picked = list(always)
    while len(picked) < number and any(kinds.values()):
        for group in kinds.values():
            if group and len(picked) < number:
                picked.append(group.pop())
    return picked


def verdict(mutant):
    """Return how ``check`` took a mutant: "survived", "failed", "refused" (an error) or "stopped"
    (time limit, crash).
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUN, mutant.env],
            input=mutant.text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "stopped"
    if done.returncode == 0:
        return "survived"
    return "refused" if "Error" in done.stderr else "failed" if done.returncode == 1 else "stopped"


def run(selection, workers=2):
    """Return the verdict of each mutant."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(verdict, selection))


def main(names, workers):
    """Run all chosen mutants of the environments named and print the result.

    Raises:
        RuntimeError: If `check` does not pass without any change, as it would kill every mutant.
    """
    from cupydrive import envs
    from cupydrive.codegen.source import kernel_text

    for name in names or envs.names():
        text = kernel_text(envs.get(name))[1]
        found = verdict(Mutant(name, 0, "none", "", "", text))
        if found != "survived":
            raise RuntimeError(f"{name}: the kernel without a change has {found}")
        selection = chosen(name, text)
        verdicts = run(selection, workers)
        killed = sum(v != "survived" for v in verdicts)
        print(f"{name}: killed {killed} of {len(selection)}", flush=True)
        for mutant, result in zip(selection, verdicts, strict=True):
            if result == "survived":
                print(f"  survived {mutant}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help="environments or, with --shared, files; by default all"
    )
    parser.add_argument(
        "--shared", action="store_true", help="alter kernels/drive and kernels/train"
    )
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    parser.add_argument(
        "--number", type=int, default=40, help="mutants of each shared file, at most"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones, if there are more")
    given = parser.parse_args()
    if given.shared:
        import shared_mutation

        shared_mutation.main(given.names, given.workers, given.number, given.seed)
    else:
        main(given.names, given.workers)
