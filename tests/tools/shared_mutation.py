"""Alters the shared kernels (kernels/drive, kernels/train), one token or statement at a time, and
runs tests on each.

`python tests/tools/mutation.py --shared` runs it. The tests that JUDGES names for a file judge its
mutants, on the CPU. All are processes forked from one that has imported what tests need, with a
copy of the kernels, a time limit and compiled kernels of their own. Lines that only a GPU compiles
are left out: no CPU can judge them.
"""

import multiprocessing
import os
import platform
import random
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutation import SWAPS

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
# for the judges of one file that is not altered; of a mutant: SLOWER times what that took, and
# START
SECONDS = 300
SLOWER, START = 5, 15


def read_judges() -> dict[str, list[str]]:
    """Return the tests that judge the mutants of each kernel file, most telling first."""
    judges = tomllib.loads((ROOT / "tests" / "tools" / "judges.toml").read_text())

    def expand(names: list[str]) -> list[str]:
        found = []
        for name in names:
            found += (
                expand(judges["lists"][name[1:]]) if name.startswith("@") else [f"tests/{name}"]
            )
        return found

    return {file: expand(names) for file, names in judges["files"].items()}


JUDGES = read_judges()
IMPORTED = [
    "pytest", "hypothesis", "torch", "cupydrive", "cupydrive.checks.checker",
    "cupydrive.playing.policy",
    "cupydrive.algorithms",
]  # fmt: skip
# false wherever a CPU compiles
GPU_ONLY = {"__CUDACC__", "__CUDA_ARCH__", "ROWS_STAGED", "REGISTERS_HAVE_NO_INDEX"}
NO_VECTORS = {
    "defined",
    "__CUDACC__",
    "COUNT_OPERATIONS",
}  # the same: of learners no build counts what environments compute
# processors other than this one
FOREIGN = {"__x86_64__", "__aarch64__"} - {f"__{platform.machine()}__"}
# The same for blocks: from a line that begins so to the bracket that closes it. AHEAD is false, and
# nothing else draws starts; weights of policies that play stay where they are; how wide their
# layers are is asked for registers alone.
GPU_BLOCKS = (
    "if constexpr (AHEAD) {",
    "DEVICE void draw_start(",
    "template <int COUNT, int THREADS> DEVICE void copy_numbers(",
    "DEVICE void load_network(Weights<Network>& shared,",
    "template <class Network> DEVICE const float* layers_of(const Weights<Network>& shared,",
    "DEVICE float normalize_entry(const Weights<Network>& shared,",
    "template <class Network> constexpr int widest() {",
)
# Kernels of warps, of which a CPU has one, of one thread: a team of more does not compile to
# something that is right. That no sync of theirs is missing is judged on a GPU, by the race
# detector of compute-sanitizer.
ONE_THREAD = {"learn/mma/warp_forward.cu"}
# What chooses the fastest among ways that are promised to have the same results: sizes of blocks,
# pieces and vectors, where a member keeps what is its own, and a team its cache, which arrays are
# selected from, when observations are copied or loaded, how many registers a thread is given, how
# many columns a member adds up, how many members share a product. What else depends on these names
# is altered.
FOR_SPEED = re.compile(
    r"(static )?constexpr (int|bool) "
    r"(BLOCK_ENVS|CACHE_ON_CHIP|ENTRIES_AHEAD|FEW_OWN|MEMBERS|MOST_SELECTED|MOST_SUMS|VECTOR_BYTES|SELECTED|SIDE_FLOATS|SPREAD|SEGMENT|VECTOR"
    r"|SUMS_OF_FIRST)\b"
)
# how often, which a CPU's compiler does not see
UNROLLED = re.compile(r"UNROLL_TIMES\(([^()]|\([^()]*\))*\)")
# How many elements a kernel has, its third argument: a CPU's launch says which of them it wants.
LAUNCHED = re.compile(r"^(KERNEL\w*\(\w+, [\w:]+, )([^(),]|\(([^()]|\([^()]*\))*\))+")
UNUSED = re.compile(r"(\(void\)\w+;\s*)+(/\*.*\*/\s*)?\\?$")  # a statement against warnings
PURPOSES = {
    "RESET": "DYNAMICS", "DYNAMICS": "RESET", "ACTION": "POLICY", "POLICY": "SHUFFLE",
    "SHUFFLE": "POLICY",
}  # fmt: skip
# A kernel's comment, on the line itself or alone above it, names mutants that no test can detect
# and gives the reason: mutant(swap <, constant 2): at the limit both are right. A number after the
# kind: which of several on this line.
TAG = re.compile(r"mutant\(([^)]*)\): ")
# Functions of two arguments that may change places: no bit of the result shows it.
COMMUTATIVE = re.compile(
    r"\b(fma|fused|__builtin_ia32_vfmaddps256|__builtin_elementwise_fma|lesser|greater|high_product|distance)"
    r"\(([^(),]+), ([^(),]+)(?=[,)])"
)
OFF_BY_ONE = {"++": "--", "t + 1": "t", "row + ": "row - ", " = 0;": " = 1;"}


@dataclass(frozen=True)
class SharedMutant:
    """One altered line of a shared file (``after`` is None where nothing is); ``equal``: a comment
    of the kernel names it.
    """

    file: str
    line: int
    kind: str
    before: str
    after: str | None
    equal: bool = False

    def __str__(self):
        return f"{self.file}:{self.line} [{self.kind}] {self.before.strip()}  ->  {(self.after or '').strip() or '(dropped)'}"


def compiled_on_a_cpu(lines):
    """Return the numbers of lines that are left when GPU_ONLY names are 0; other conditions count
    as true both ways.
    """
    # of each open #if: whether this branch is compiled, and whether the next one may be
    kept, stack = [], []
    for i, line in enumerate(lines):
        directive = re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", line)
        if not directive:
            if all(here for here, _ in stack):
                kept.append(i)
            continue
        word, condition = directive[1], directive[2].split("//")[0].strip()
        names = set(re.findall(r"\w+", condition))
        if word in ("if", "ifdef", "ifndef"):
            negated = word == "ifndef" or condition.startswith("!")
            known = (
                bool(names & FOREIGN)
                or (bool(names & GPU_ONLY) and "||" not in condition)
                or names == NO_VECTORS
            )
            stack.append((not known or negated, not known or not negated))
        elif word == "endif":
            stack.pop()
        else:
            stack[-1] = (stack[-1][1] and not names & FOREIGN, True)
    return kept


def without_results(lines):
    """Return the numbers of lines that no result of a run on a CPU depends on."""
    found, closing = set(), None
    for i, line in enumerate(lines):
        code = line.strip()
        if closing is None and code.startswith(GPU_BLOCKS):
            closing = line[: len(line) - len(line.lstrip())] + "}"
        if closing is not None or FOR_SPEED.match(code) or UNUSED.match(code):
            found.add(i)
        if closing is not None and line.startswith(closing):
            closing = None
    return found


def code_lines(text):
    """Return the numbers of lines with statements that a CPU compiles, definitions of one line
    among them.
    """
    lines = text.splitlines()
    skipped = re.compile(
        r"^\s*(//|#|template\b[^{]*$|struct\b|typedef\b|static_assert\b|\}|$|\w+\\?$)"
    )
    one_liner = re.compile(r"^\s*(template\b.*)?(static )?(DEVICE|constexpr)\b")
    found = []
    for i in compiled_on_a_cpu(lines):
        line = lines[i]
        if skipped.match(line) or (
            one_liner.match(line) and "{ " not in line.partition("//")[0] and "=" not in line
        ):
            continue
        if (
            not re.match(r"^\s*(const )?[\w:<>]+ ?[*&]*( const)? [\w, *]+(\[\w+\])?;", line)
            or "=" in line
            or "return" in line
        ):
            found.append(i)
    return found


def tags(lines, i):
    """Return the kinds of mutants of a line that a comment names, with their numbers."""
    above = lines[i - 1] if i and lines[i - 1].lstrip().startswith("//") else ""
    return {kind for names in TAG.findall(f"{above} {lines[i]}") for kind in names.split(", ")}


def mutants(file, text):
    """Return every mutant of one shared file that the rules make."""
    lines, found = text.splitlines(), []
    for i in code_lines(text):
        code, comment = re.match(r"(.*?)(\s*(?://|/\*).*|)$", lines[i]).groups()
        end = re.search(r"\s*\\$", code)
        ending = end[0] if end else ""
        code, tail = code[: len(code) - len(ending)], ending + comment
        named, seen, count = tags(lines, i), set(), Counter()
        body = (
            code.find("{ ")
            if re.match(r"^\s*(template\b.*)?(static )?(DEVICE|template|constexpr)\b.*\{ ", code)
            else 0
        )
        head, code = code[:body], code[body:]

        def add(kind, code, i=i, head=head, tail=tail, named=named, seen=seen, count=count):
            after = head + code + tail
            if (kind, after) not in seen and after != lines[i]:
                seen.add((kind, after))
                count[kind] += 1
                equal = not named.isdisjoint({kind, f"{kind} {count[kind]}"})
                found.append(SharedMutant(file, i + 1, kind, lines[i], after, equal))

        def swap(pattern, new, kind, code=code, add=add):
            for match in re.finditer(pattern, code):
                add(kind, code[: match.start()] + match.expand(new) + code[match.end() :])

        for call in (
            "env.team.sync();",
            "team.sync();",
            "rendezvous.wait(member.rank);",
            "shuffle();",
        ):
            if call in code:
                add("dropped sync", code.replace(call, ";", 1))
                break
        if re.match(
            r"^\s*[\w.\[\]():>\-*&<, +%/]+?(\(.*\))?\s*([+\-|&^]?=[^=].*)?;\s*$", code
        ) and not re.match(
            r"^\s*(return|const\w*|float|int|bool|auto|u8|u32|u64|i64|size_type|else|for|if|UNROLL|typedef|using|static)\b",
            code,
        ):
            add("dropped statement", re.match(r"^\s*", code)[0])
        if re.match(r"^\s*if \(.*\) .*;\s*$", code) and "constexpr" not in code:
            add(
                "dropped condition",
                re.sub(
                    r"if \(.*?\) (?=\w[\w.\[\]]*( [+\-|]?= |\()|return|continue|break)",
                    "",
                    code,
                    count=1,
                ),
            )
        for old, new in {**SWAPS, **OFF_BY_ONE}.items():
            swap(r"\b" * old[0].isalpha() + re.escape(old), new, f"swap {old.strip()}")
        for old, new in PURPOSES.items():
            swap(rf"\b{old}\b", new, "purpose")
        for match in re.finditer(r"(?<![\w.])(0x[0-9a-fA-F]+u?|\d+\.\d+f|\d+u?)(?![\w.])", code):
            value = match[1]
            new = (
                f"({value} * 1.5f + 0.25f)"
                if value.endswith("f") and "x" not in value
                else f"({value} + 1)"
            )
            add("constant", code[: match.start()] + new + code[match.end() :])
        simple = r"[\w.\->\[\]&*:]+"
        swap(rf"(\w\()({simple}), ({simple})(?=[,)])", r"\1\3, \2", "swapped arguments")
        swap(rf"(?<=, )({simple}), ({simple})(?=\))", r"\2, \1", "swapped arguments")
    return found


def only_commutes(mutant):
    """Return whether nothing but the first two arguments of a COMMUTATIVE function have changed
    places.
    """
    before = mutant.before
    return any(
        mutant.after == f"{before[: m.start()]}{m[1]}({m[3]}, {m[2]}{before[m.end() :]}"
        for m in COMMUTATIVE.finditer(before)
    )


def what_a_cpu_sees(line):
    """Return a line without what a CPU's build leaves out of it."""
    return LAUNCHED.sub(r"\1", UNROLLED.sub("", line))


def chosen(file, number, seed=0):
    """Return ``number`` mutants of one file, at most all, spread over kinds and lines; dropped
    syncs first.
    """
    text = (KERNELS / file).read_text()
    every = mutants(file, text)
    random.Random(seed).shuffle(every)
    # After the shuffle, which stays as it is.
    unseen = without_results(text.splitlines())
    every = [
        m
        for m in every
        if m.line - 1 not in unseen and what_a_cpu_sees(m.before) != what_a_cpu_sees(m.after)
    ]
    if file in ONE_THREAD:
        every = [m for m in every if not (m.kind.startswith("dropped") and "sync()" in m.before)]
    every = [m for m in every if not only_commutes(m)]
    seen = {}
    for m in every:  # the k-th of its kind and line: lines take turns
        seen.setdefault(m.kind, []).append(m)
    rank = {m: k for group in seen.values() for k, m in enumerate(group)}
    return sorted(every, key=lambda m: (m.kind != "dropped sync", rank[m]))[:number]


class Redirect:
    """A plugin of pytest: tests that read a header themselves read the mutant's, and slow tests run
    if they are named.
    """

    def __init__(self, kernels, names):
        self.kernels = kernels
        self.names = names

    def pytest_collection_modifyitems(self, items):
        """Leave out what is slow and not named itself, and change the module's constant before
        fixtures use it.
        """
        items[:] = [
            item
            for item in items
            if item.nodeid in self.names or item.get_closest_marker("slow") is None
        ]
        for item in items:
            if hasattr(item.module, "HEADER"):
                item.module.HEADER = self.kernels / "drive" / item.module.HEADER.name


def judge(mutant, kernels):
    """Run the judges of ``mutant`` on the kernels of a folder, in this process; its exit code is
    pytest's.
    """
    import pytest

    from cupydrive.codegen import includes, source

    os.chdir(ROOT)
    kernels = Path(kernels)
    source.KERNELS = includes.KERNELS = kernels
    if mutant.after is not None:
        path = kernels / mutant.file
        lines = path.read_text().splitlines()
        assert lines[mutant.line - 1] == mutant.before
        lines[mutant.line - 1] = mutant.after
        path.write_text("\n".join(lines) + "\n")
    with open(kernels / "output", "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    options = [
        "-x",
        "-q",
        "--assert=plain",
        *["-p", "no:cacheprovider", "-p", "no:randomly", "-m"],
        "not gpu",
    ]
    code = pytest.main(
        [*options, *JUDGES[mutant.file]], plugins=[Redirect(kernels, JUDGES[mutant.file])]
    )
    sys.stdout.flush()
    os._exit(int(code))


def verdict(mutant, context, scratch, seconds=SECONDS):
    """Return "survived", "failed", "refused" (by the compiler) or "stopped" (time limit, crash),
    and the judges' last lines.
    """
    kernels = Path(tempfile.mkdtemp(dir=scratch))
    shutil.copytree(KERNELS, kernels, dirs_exist_ok=True)
    process = context.Process(target=judge, args=(mutant, str(kernels)))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    code, output = process.exitcode, kernels / "output"
    said = output.read_text(errors="replace")[-1500:] if output.exists() else ""
    shutil.rmtree(kernels)
    if code == 0:
        return "survived", said
    if code in (1, 2):
        return ("refused" if "CompileError" in said else "failed"), said
    return "stopped", said


@contextmanager
def courtroom():
    """Yield what ``verdict`` needs: a context whose processes have imported everything, and a
    folder for this time only.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        before = os.environ.get("CUPYDRIVE_CACHE")
        os.environ["CUPYDRIVE_CACHE"] = str(Path(scratch, "cache"))
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        try:
            yield context, scratch
        finally:
            os.environ.pop("CUPYDRIVE_CACHE")
            if before is not None:
                os.environ["CUPYDRIVE_CACHE"] = before


def run(selection, workers=2, progress=None):
    """Return the verdict of each mutant; files whose judges fail without any change raise
    RuntimeError first.
    """
    with courtroom() as (context, scratch), ThreadPoolExecutor(workers) as pool:
        files = sorted({m.file for m in selection})
        unaltered = [SharedMutant(file, 0, "none", "", None) for file in files]

        def timed(mutant):
            began = time.monotonic()
            result, said = verdict(mutant, context, scratch)
            if result != "survived":
                raise RuntimeError(f"the judges of {mutant.file} do not pass as it is:\n{said}")
            return START + SLOWER * (time.monotonic() - began)

        limits = dict(zip(files, pool.map(timed, unaltered), strict=True))
        started = time.monotonic()

        def judged(mutant):
            result, _ = verdict(mutant, context, scratch, limits[mutant.file])
            if progress:
                progress(mutant, result, time.monotonic() - started)
            return result

        return list(pool.map(judged, selection))


def main(files, workers, number, seed):
    """Run ``number`` mutants of each file named, by default of all; print each survivor when it is
    found, then the counts.
    """
    selection = [m for file in files or JUDGES for m in chosen(file, number, seed)]

    def progress(mutant, result, seconds):
        if result == "survived":
            print(f"[{seconds:5.0f} s] survived{' (equal)' * mutant.equal} {mutant}", flush=True)

    verdicts = run(selection, workers, progress)
    for file in files or JUDGES:
        of_file = [(m, v) for m, v in zip(selection, verdicts, strict=True) if m.file == file]
        counts = {
            name: sum(v == name for _, v in of_file)
            for name in ("failed", "stopped", "refused", "survived")
        }
        equal = sum(v == "survived" and m.equal for m, v in of_file)
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        print(
            f"{file}: {len(of_file)} mutants: {shown}, of which known to be equal {equal}",
            flush=True,
        )
