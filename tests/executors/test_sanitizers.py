"""Host builds under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer: a
full check is clean.

The compiler's runtime is loaded before Python; only the kernels are instrumented. Threads are
Python's own over ctypes, so ThreadSanitizer sees no OpenMP runtime that it cannot follow. Each
sanitizer is also shown a planted mistake.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cupydrive import envs
from cupydrive.codegen import source

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="needs g++, which brings the sanitizers' runtimes"
    ),
]
ROOT = Path(__file__).resolve().parents[2]
MEMORY = ("libasan.so", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("libtsan.so", "-fsanitize=thread")
PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from cupydrive import envs
from cupydrive.codegen import includes, source
from cupydrive.checks.checker import check
from cupydrive.executors import host
from cupydrive.codegen.source import kernel_text
sys.modules["cuda.bindings"] = sys.modules["cupy"] = None  # NVRTC finds its own library under no sanitizer
kernels, name, old, new, whole, *flags = sys.argv[1:]
source.KERNELS = includes.KERNELS = Path(kernels)
build = host.build
host.build = lambda unit, given: build(unit, tuple("-O0" if flag in ("-O1", "-O3") else flag for flag in given))  # soonest
host.FLAGS = (*host.FLAGS, "-g", *flags)
host.SMALL_LAUNCH = 0  # threads always
spec = envs.get(name).with_made_up_tables()
if whole == "first":
    spec = replace(spec, cases=spec.cases[:1])
if old:
    text = kernel_text(spec)[1]
    assert old in text
    spec = replace(spec, kernel=text.replace(old, new, 1))
report = check(spec, agent_steps=1000 if whole == "first" else 100_000, device="cpu", progress=False)
print(report)
sys.exit(0 if report.passed or old else 1)
"""


def check_under(sanitizer, name, tmp_path, old="", new="", whole="first"):
    """Run a check, ``whole`` or of the first case, in a process with the sanitizer's runtime;
    return the process.

    Its kernels are those of this process, which may be altered ones
    (tests/tools/shared_mutation.py).
    """
    library, *flags = sanitizer
    runtime = subprocess.run(
        ["g++", f"-print-file-name={library}"], capture_output=True, text=True
    ).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip(f"g++ here has no {library}")
    command = [sys.executable, "-c", PROGRAM, str(source.KERNELS), name, old, new, whole, *flags]
    if shutil.which("setarch"):  # ThreadSanitizer wants the memory map without randomisation
        command = ["setarch", platform.machine(), "-R", *command]
    environment = {
        **os.environ,
        "CXX": "g++",
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "exitcode=66 halt_on_error=1",
        "CUPYDRIVE_CACHE": str(tmp_path),
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600
    )


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS], ids=["memory", "threads"])
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("cartpole", "first"),
        ("tag_grid", "first"),
        *(pytest.param(name, "whole", marks=pytest.mark.slow) for name in envs.names()),
    ],
)
def test_a_check_is_clean(name, whole, sanitizer, tmp_path):
    done = check_under(sanitizer, name, tmp_path, whole=whole)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "PASS" in done.stdout


# Of a block of its own: behind a large one may lie another one, where AddressSanitizer sees nothing
# wrong. The name is glued together, since kernels may not call it.
PAST_THE_END = (
    "\n#define GLUE(a, b) a##b\n"
    "volatile int six = 6; float* few = (float*)GLUE(__builtin_m, alloc)(24); few[six] = time;"
)


@pytest.mark.parametrize(
    ("sanitizer", "old", "new", "words"),
    [
        (MEMORY, "row[5] = time;", f"{PAST_THE_END} row[5] = few[six];", "heap-buffer-overflow"),
        (
            THREADS,
            "  int tags = 0;",
            "  extern int optind; optind += 1; int tags = 0;",
            "data race",
        ),  # libc's, of all threads
    ],
    ids=["memory", "threads"],
)
def test_a_planted_mistake_is_reported(sanitizer, old, new, words, tmp_path):
    done = check_under(sanitizer, "tag_grid", tmp_path, old, new)
    assert done.returncode != 0
    assert words in done.stderr
