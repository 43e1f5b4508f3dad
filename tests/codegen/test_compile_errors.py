"""A kernel that does not compile gets one message with place and advice; the same mistakes are
errors on CPU and GPU.
"""

import re
import sys
from dataclasses import replace

import point
import pytest
import torch
from test_nvrtc import compiled

from cupydrive import envs
from cupydrive.codegen.diagnostics import explain_compile_error
from cupydrive.codegen.dialect import MATH
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import KERNELS, assemble
from cupydrive.errors import CompileError, DeviceError, SpecError
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.make import make

pytestmark = pytest.mark.optimised

MOVE = "s.x += s.v;"
EACH = "for (int k : env.team.each(2))"
COMPILERS = ["cpu", "nvrtc", pytest.param("zig", marks=pytest.mark.slow)]


def broken(old, new):
    """Return the point environment with one change to its kernel."""
    assert old in point.KERNEL
    python = point.PYTHON.replace(
        "    max_episode_steps", "    seats: int = param(3, 'Seats.')\n    max_episode_steps"
    )
    return replace(envs._load(python).spec, kernel=point.KERNEL.replace(old, new))


def message(spec, where, monkeypatch):
    """Return what a user reads when ``spec`` is compiled by g++ (or the machine's own), zig's
    clang, or NVRTC.
    """
    if where == "zig":
        pytest.importorskip("ziglang")
        monkeypatch.setenv("CXX", f"{sys.executable} -m ziglang c++ -nostdlib++")
    with pytest.raises(CompileError) as caught:
        if where == "nvrtc":
            unit = assemble(spec, spec.make_params(), Layout(1, 32))
            code, log = compiled(unit, 90)
            assert code != 0, "it compiles"
            raise explain_compile_error(unit, log)
        HostExecutor().load(spec, spec.make_params())
    return str(caught.value)


STATE = "point: struct State must be as in Python: { float x; float v; }"
PARAMS = "point: struct Params must be as in Python: { float strength; float drag; }"


@pytest.mark.quick(8)
@pytest.mark.parametrize("where", COMPILERS)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  return false;\n", "", "return on every path"),
        (MOVE, f"{MOVE} s.x == 3;", ""),
        (MOVE, "float y; s.x += y;", "y"),
        (MOVE, "s.x += wobble;", "wobble"),
        (MOVE, f"{EACH} s.x += wobble;", "wobble"),
        (MOVE, "s.x += math::sine(s.v);", "did you mean math::sin?"),
        ("float x, v;", "float x;", STATE),
        ("float x, v;", "float x, v, w;", STATE),
        ("float x, v;", "float v, x;", STATE),
        ("float strength, drag;", "float strength, drag; int seats;", PARAMS),
        (MOVE, "s.x += drag;", "did you mean env.params.drag?"),
        (MOVE, "s.x += DRAG;", "did you mean env.params.drag?"),
        (MOVE, "s.x += env.params.seats;", "did you mean SEATS?"),
        (MOVE, "s.x += env.v;", "did you mean env.state.v?"),
        (MOVE, "s.x += env.points.action(i);", "did you mean env.point?"),
        (MOVE, "env.point.reward[i] = s.x;", "use parentheses for agents and brackets for entries"),
        (MOVE, "float u = env.random.uniform4(i);", ""),
        (MOVE, "s.x = math::clamp(s.x, 0, 1);", ""),
        (MOVE, "env.point.mask(0, 0) = 1;", "this group writes masks"),
        (MOVE, "env.point.left(i) = 0;", "this group says who leaves"),
    ],
)
def test_a_wrong_program_is_an_error_of_every_compiler(where, old, new, words, monkeypatch):
    said = message(broken(old, new), where, monkeypatch)
    assert words in said and "drive/" not in said, said
    if old == MOVE:
        assert f"<kernel of point>:17: {said.splitlines()[1].partition(': ')[2]}\n    {new}" in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MOVE, "s.x += sinf(s.v);", "use math::sin,"),
        (MOVE, "s.x += fabs(s.v);", "use math::abs,"),
        (MOVE, "s.x += tanf(s.v);", "math:: has no tan. It has: abs, "),
        (MOVE, "s.x += std::sqrt(s.v);", "use math::sqrt,"),
        (MOVE, "std::vector<float> w(3);", "kernels have no standard library"),
        (MOVE, 'printf("%f", s.x);', "use env.print("),
        (MOVE, "s.x += 2.0 * s.v;", "Write 2.0f"),
        (MOVE, "s.x += .5*s.v;", "Write .5f"),
        (MOVE, "float* w = new float[3]; s.x += w[0];", "use an array"),
        (MOVE, "s.x += (float)threadIdx.x;", "for (int i : env.team.each(n))"),
        (MOVE, "__syncthreads();", "use env.team.sync()"),
        (MOVE, "atomicAdd(&s.x, 1.0f);", "use env.team.add(array, i, value)"),
        (MOVE, "__shared__ float w[3]; s.x += w[0];", "declare it in `struct Shared"),
        (MOVE, "s.x += (float)rand();", "use env.random.uniform4(i).x"),
        (MOVE, "int n = __popc(3u);", "only one of the compilers"),
        (MOVE, "__int128 n = 3;", "only one of the compilers"),
        (MOVE, "uint32_t n = 3;", "use int, u8, u32"),
        (MOVE, "static int calls = 0; s.x += (float)calls++;", "threads would share this variable"),
        (
            MOVE,
            "thread_local u32 word{3}; s.x += (float)word;",
            "threads would share this variable",
        ),
        (
            "DEVICE bool step",
            "struct Kept { static int calls; };\nDEVICE bool step",
            "threads would share this variable",
        ),
        (
            "DEVICE bool step",
            "DEVICE int calls[3];\nDEVICE bool step",
            "threads would share this variable",
        ),
        (
            "DEVICE bool step",
            "Array<float, 4> seen{};\nDEVICE bool step",
            "threads would share this variable",
        ),
        (
            '#include "drive/env.cuh"',
            '#include <cmath>\n#include "drive/env.cuh"',
            "kernels have no standard library",
        ),
        (
            '#include "drive/env.cuh"',
            '#include "drive/env.cuh"\nstruct Shared { float w; };',
            "Move it up",
        ),
    ],
)
def test_what_compilers_would_judge_differently_is_refused_in_its_line(old, new, words):
    spec = broken(old, new)
    with pytest.raises(CompileError) as caught:
        assemble(spec, spec.make_params(), Layout())
    place = r"^the kernel of 'point' does not compile:\n<kernel of point>:(\d+): `.*` is not part of the dialect\n    (.*)\n  "
    caught.match(place)
    number, line = re.match(place, str(caught.value)).groups()
    assert (
        spec.kernel.splitlines()[int(number) - 1].strip() == line
        and line in new
        and words in str(caught.value)
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DEVICE void observe(", "DEVICE void look("),
        ("DEVICE bool step(", "DEVICE void step("),
        ("DEVICE void reset(", "void reset("),
    ],
)
def test_a_kernel_must_have_its_functions(old, new):
    spec = broken(old, new)
    with pytest.raises(
        SpecError, match=re.escape(f"<kernel of point>: the kernel must have `{old}Env& env)")
    ):
        assemble(spec, spec.make_params(), Layout())


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "right"),
    [
        (
            MOVE,
            "s.x += 2.0f * s.v; // sinf(x) is 2.0 here, no threadIdx, no static int; nor #include <cmath>",
        ),
        (MOVE, "s.x += 0x1e5 * s.v; /* printf(3.5) */"),
        (MOVE, "s.x += (float)((double)s.v * 2.5);"),
        (
            MOVE,
            "struct Dice { float v; DEVICE float roll(int n) { return v * (float)n; } } dice{1.0f}; s.x += dice.roll(2);",
        ),
        (MOVE, "int newest = 3, random = 2, atomic = 1; s.x += (float)(newest + random + atomic);"),
        (
            MOVE,
            "struct Wave { DEVICE float sin(float x) const { return 2.0f * x; } } w; s.x += w.sin(s.v);",
        ),
        (
            MOVE,
            "float best; bool found = false; for (int k = 0; k < i; ++k) if (k % 7 == 3) { best = s.x; found = true; }"
            "if (found) s.x = best;",
        ),
        (
            MOVE,
            "static constexpr float HALF = 0.5f; static const int two[2] = {1, 2}; s.x += HALF * (float)two[0];",
        ),
        (
            "DEVICE bool step",
            "struct Way { static constexpr int N = 3; static DEVICE int of(int n = N) { return n; } };\n"
            "static DEVICE float round(float x) { return 0.5f * x; }\nconstexpr float HALF = 0.5f;\n"
            "#define KEPT \\\n  int calls\ntemplate <class T> DEVICE T same(T x) { T kept = x; return kept; }\n"
            "typedef u32 uint32_t;\nDEVICE uint32_t calloc(uint32_t n) { return n; }\n"
            "DEVICE float rand() { return (float)calloc(3u); }\n"
            "DEVICE float half(float x) { return round(x) + rand(); }\nDEVICE bool step",
        ),
    ],
)
def test_right_kernels_are_left_alone(old, right):
    spec = broken(old, right)
    HostExecutor().load(spec, spec.make_params())
    code, log = compiled(assemble(spec, spec.make_params(), Layout(1, 32)), 90)
    assert code == 0, log


@pytest.mark.full
@pytest.mark.parametrize("layout", [Layout(1, 32), Layout(4, 8)])
def test_an_element_of_an_array_is_assigned_from_another(layout):
    moved = (
        "Array<float, 4> a{}; a[0] = s.v; for (int k = 0; k < 3; ++k) a[k + 1] = a[k]; s.x += a[3];"
    )
    spec = broken(MOVE, moved)
    code, log = compiled(assemble(spec, spec.make_params(), layout), 90)
    assert code == 0, log

    def observed(spec):
        env = make(spec, 3, device="cpu")
        env.reset(seed=4)
        return env.step(torch.ones(3, 1))[0]

    assert torch.equal(observed(spec), observed(broken(MOVE, MOVE)))


@pytest.mark.parametrize("said", ["NO_UNROLL", "UNROLL"])
def test_what_an_author_says_of_unrolling_is_not_said_again(said):
    spec = broken(MOVE, f"{said} {EACH} s.x += s.v;")
    assert f"\n    {said} {EACH}" in assemble(spec, spec.make_params(), Layout()).text


@pytest.mark.parametrize(("name", "an_error"), [("work", False), ("s", True)])
def test_a_warning_of_a_name_that_the_kernel_has_not_is_no_error(name, an_error):
    """A loop past an array's end may look to g++ like a read of the memory around it, which the
    package calls ``work``.
    """
    spec = broken(MOVE, f"{MOVE}  // work")
    unit = assemble(spec, spec.make_params(), Layout())
    for words in (
        f"'{name}' may be used uninitialized",
        f"variable '{name}' is uninitialized when used here",
    ):
        found = explain_compile_error(
            unit, f"<kernel of point>:17:5: warning: {words} [-Wmaybe-uninitialized]\n"
        )
        assert (found is not None and words in str(found)) == an_error


def test_an_error_in_the_package_is_told_at_the_kernels_call():
    unit = assemble(spec := broken(MOVE, "env.point.mask(0, 0) = 1;"), spec.make_params(), Layout())
    log = (
        "kernels/drive/env.cuh:70:19: error: static assertion failed due to requirement 'point_group::MASKED': masks\n"
        "<kernel of point>:17:15: note: in instantiation of member function 'Group<point_group>::mask' requested here\n"
    )
    assert "\n<kernel of point>:17: static assertion failed" in str(
        explain_compile_error(unit, log)
    )


def test_the_mathematics_that_advice_names_exists():
    text = (KERNELS / "drive" / "math.cuh").read_text()
    assert [name for name in MATH if f" {name}(" not in text] == []


@pytest.mark.full
def test_one_mistake_is_one_error_and_several_are_counted(monkeypatch):
    said = message(
        broken(MOVE, "s.x += wobble; s.v += wobble; env.state.x = wobble;"), "cpu", monkeypatch
    )
    assert said.count("<kernel of point>:") == 1
    said = message(
        broken(MOVE, "s.x += a1; s.x += a2; s.x += a3; s.x += a4; s.x += a5;"), "cpu", monkeypatch
    )
    assert said.count("<kernel of point>:") == 3 and said.endswith("(2 more)")
    said = message(broken("  return false;\n}", "  return false;\n"), "cpu", monkeypatch)
    assert "has 6 opening and 5 closing braces" in said


# ---- the compiler itself -------------------------------------------------------------------------


def script(folder, text):
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (" ", "no such program"),
        ('"g++', "no such program"),
        ("no-such-compiler -O3", "no such program"),
        ("true", "ended with exit code 0 and wrote no library"),
        ("ls", "and wrote no library, without an error in a kernel"),
        ("exit 3", "ended with exit code 3"),
        ("echo no space left on device; exit 1", "no space left on device"),
        ('while [ "$1" != -o ]; do shift; done; echo junk > "$2"', "cannot be loaded"),
    ],
)
def test_a_useless_compiler_is_named_with_the_fix(named, words, monkeypatch, tmp_path):
    made = named.startswith(("exit", "echo", "while"))
    monkeypatch.setenv(
        "CXX",
        script(tmp_path, 'case "$1" in --version) exit 0;; esac\n' + named) if made else named,
    )
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    spec = broken(MOVE, f"{MOVE} s.x += 0.125f;")
    with pytest.raises(DeviceError) as caught:
        HostExecutor().load(spec, spec.make_params())
    assert words in str(caught.value)
    assert (
        "cannot be loaded" in words
        or "set it to the command of a C++ compiler, such as CXX=g++"
        in str(caught.value).replace("Unset", "unset")
    )


def test_a_file_that_cannot_run_is_named(monkeypatch, tmp_path):
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fELFjunk")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    with pytest.raises(DeviceError, match=r"cannot be run: Exec format error. Fix: unset CXX"):
        HostExecutor().load(envs.get("cartpole"), envs.get("cartpole").make_params())


@pytest.mark.parametrize(
    "command",
    [["train", "cartpole"], ["check", "cartpole"], ["render", "cartpole", "--out", "x.gif"]],
)
@pytest.mark.parametrize("named", [" ", '"g++', "no-such-compiler"])
def test_commands_end_with_one_line_and_exit_code_2(command, named, monkeypatch, tmp_path, capsys):
    from cupydrive.cli.main import main

    monkeypatch.setenv("CXX", named)
    monkeypatch.chdir(tmp_path)
    out = [str(tmp_path / "x.gif") if word == "x.gif" else word for word in command]
    assert main([*out, "--device", "cpu"]) == 2
    assert f"CXX = {named!r}" in capsys.readouterr().err.strip().splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
