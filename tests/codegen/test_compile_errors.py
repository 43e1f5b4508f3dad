"""A kernel that does not compile gets one message: where, what, and what to do; the same mistakes on CPU and GPU."""

import sys
from dataclasses import replace

import point
import pytest
import torch
from test_nvrtc import compiled

from cupydrive import envs
from cupydrive.codegen.diagnostics import FUNCTIONS, MATH, NO_RETURN, UNINITIALISED, UNUSED, explain
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import KERNELS, assemble
from cupydrive.errors import CompileError, DeviceError
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.make import make

pytestmark = pytest.mark.optimised

MOVE, SPEED = "s.x += s.v;", "s.v = s.v * env.params.drag"
EACH = "for (int k : env.team.each(2))"


def broken(old, new):
    """Return the point environment with one change to its kernel."""
    assert old in point.KERNEL
    python = point.PYTHON.replace("    max_episode_steps", "    seats: int = param(3, 'Seats.')\n    max_episode_steps")
    return replace(envs._load(python)[0], kernel=point.KERNEL.replace(old, new))


def message(spec, where, monkeypatch):
    """Return what a user reads when ``spec`` is compiled by g++ (or the machine's own), zig's clang, or NVRTC."""
    if where == "zig":
        pytest.importorskip("ziglang")
        monkeypatch.setenv("CXX", f"{sys.executable} -m ziglang c++ -nostdlib++")
    with pytest.raises(CompileError) as caught:
        if where == "nvrtc":
            unit = assemble(spec, spec.make_params(), Layout(1, 32))
            code, log = compiled(unit, 90)
            assert code != 0, "it compiles"
            raise explain(unit, log)
        HostExecutor().load(spec, spec.make_params())
    return str(caught.value)


@pytest.mark.quick(8)
@pytest.mark.parametrize("where", ["cpu", "nvrtc", pytest.param("zig", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("  return false;\n", "", "}", NO_RETURN),
        ("  return false;\n", "  if (s.x > 1.0f) return true;\n", "}", NO_RETURN),
        (MOVE, f"{MOVE} s.x == 3;", f"{MOVE} s.x == 3;", UNUSED),
        (MOVE, f"{MOVE} s.x + s.v;", f"{MOVE} s.x + s.v;", UNUSED),
        (MOVE, "float y; s.x += y;", "float y; s.x += y;", UNINITIALISED),
        (MOVE, "s.x += wobble;", "s.x += wobble;", "wobble"),
        (MOVE, f"{EACH} s.x += wobble;", f"{EACH} s.x += wobble;", "wobble"),
        (MOVE, "s.x += math::sine(s.v);", "s.x += math::sine(s.v);", "did you mean math::sin?"),
        ("float x, v;", "float x;", "", "struct State has no member 'v', which Python declares"),
        ("float x, v;", "float x, v, w;", "", "(x, v); the kernel also has w, which Python does not declare"),
        (
            "float strength, drag;",
            "float strength, drag; int seats;",
            "",
            "an int parameter is a constant, SEATS, and no",
        ),
        (MOVE, "s.x += drag;", "s.x += drag;", "write env.params.drag: a float parameter is a member"),
        (MOVE, "s.x += DRAG;", "s.x += DRAG;", "write env.params.drag: a float parameter is a member"),
        (MOVE, "s.x += seats;", "s.x += seats;", "write SEATS: an int parameter is a constant"),
        (MOVE, "s.x += env.params.seats;", "s.x += env.params.seats;", "write SEATS: an int parameter is a constant"),
        (MOVE, "s.x += v;", "s.x += v;", "write env.state.v"),
        (MOVE, "s.x += env.v;", "s.x += env.v;", "write env.state.v"),
        (MOVE, "s.x += s.w;", "s.x += s.w;", "State has x, v; a new member is declared in Python, too"),
        (
            MOVE,
            "env.log.hits += 1;",
            "env.log.hits += 1;",
            "declare it in Python: EnvSpec(..., metrics={'hits': 'int'})",
        ),
        (MOVE, "s.x += point.action(i);", "s.x += point.action(i);", "write env.point"),
        (MOVE, "s.x += env.points.action(i);", "s.x += env.points.action(i);", "write env.point"),
        (
            MOVE,
            "s.x += (float)CELLS;",
            "s.x += (float)CELLS;",
            "constants=lambda params: {'CELLS': ...}), or an int parameter",
        ),
        (MOVE, "s.x += env.point.action[i];", "s.x += env.point.action[i];", "agents are called and entries indexed"),
        (MOVE, "env.point.reward[i] = s.x;", "env.point.reward[i] = s.x;", "agents are called and entries indexed"),
        (MOVE, "s.x = 2 * env.random.uniform4(i);", "s.x = 2 * env.random.uniform4(i);", "uniform4(i).x, .y, .z or .w"),
        (MOVE, "s.x += env.random.uniform4(i);", "s.x += env.random.uniform4(i);", "uniform4(i).x, .y, .z or .w"),
        (MOVE, "float u = env.random.uniform4(i);", "float u = env.random.uniform4(i);", "uniform4(i).x, .y, .z or .w"),
        (
            MOVE,
            "s.x = env.random.uniform4(i) - .5f;",
            "s.x = env.random.uniform4(i) - .5f;",
            "uniform4(i).x, .y, .z or .w",
        ),
        (MOVE, "u32 w = env.random.bits(i);", "u32 w = env.random.bits(i);", "bits(i).x, .y, .z or .w, or .word(k)"),
        (MOVE, "s.x = math::clamp(s.x, 0, 1);", "s.x = math::clamp(s.x, 0, 1);", "give all arguments one type"),
    ],
)
def test_a_wrong_program_is_an_error_of_every_compiler(where, old, new, line, words, monkeypatch):
    said = message(broken(old, new), where, monkeypatch)
    assert words in said, said
    assert f"\n    {line}" * bool(line) in said
    assert len(said.splitlines()) <= 4 and "-Werror" not in said and "drive/" not in said, said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MOVE, "s.x += sinf(s.v);", "write math::sin, which gives the same bits"),
        (MOVE, "s.x += fabs(s.v);", "write math::abs"),
        (MOVE, "s.x += log1pf(s.v);", "write math::log1p"),
        (MOVE, "s.x += fmaxf(s.v, 0.0f);", "write math::max"),
        (MOVE, "s.x += tanf(s.v);", "math:: has no tan; it has: abs, "),
        (MOVE, 'printf("%f", s.x);', "write env.print("),
        (MOVE, "s.x += 2.0 * s.v;", "write 2.0f; where a double is meant"),
        (MOVE, "s.x += 1e-3 * s.v;", "write 1e-3f;"),
        (MOVE, "s.x += .5*s.v;", "write .5f;"),
        (
            MOVE,
            "s.x += std::sqrt(s.v);",
            "`std::sqrt` is no part of the dialect\n    s.x += std::sqrt(s.v);\n  write",
        ),
        (MOVE, "s.x += std::hypot(s.x, s.v);", "math:: has no hypot"),
        (MOVE, "s.x += std::sin(s.v);", "\n  write math::sin, which gives the same bits"),
        (MOVE, "std::vector<float> w(3);", "write an array: a member of State or Shared"),
        (MOVE, "const std :: int32_t n = 3; s.x += n;", "write int, u8, u32, i64 or u64; a kernel has no library"),
        (MOVE, "s.x += std::move(s.v);", "\n  a kernel has no library: docs/dialect.md names what there is"),
        (MOVE, "float* w = new float[3]; s.x += w[0];", "`new` is no part of the dialect"),
        (MOVE, "float* w = (float*)malloc(12); s.x += w[0];", "write an array: a member of State or Shared"),
        (MOVE, "s.x += (float)threadIdx.x;", "loop over agents by `for (int i : env.team.each(n))`; env.team.rank is"),
        (
            MOVE,
            "if (blockIdx.x == 0) s.x += s.v;",
            "loop over agents by `for (int i : env.team.each(n))`; env.team.rank is",
        ),
        (MOVE, "__syncthreads();", "write env.team.sync(), which all members"),
        (MOVE, "atomicAdd(&s.x, 1.0f);", "write env.team.add(array, i, value)"),
        (MOVE, "__shared__ float w[3]; s.x += w[0];", "declare it in `struct Shared"),
        (MOVE, "s.x += (float)rand();", "write env.random.uniform4(i).x"),
        (MOVE, "srand(3);", "write env.random.uniform4(i).x"),
        (
            "DEVICE void observe(",
            "DEVICE void look(",
            "there is no function `observe`; define `DEVICE void observe(Env& env)",
        ),
        (
            "DEVICE bool step(",
            "DEVICE void step(",
            "`step` returns void\n    DEVICE void step(Env& env) {\n  write `DEVICE bool",
        ),
        (
            "DEVICE bool step(",
            "bool step(",
            "`step` lacks DEVICE\n    bool step(Env& env) {\n  write `DEVICE bool step(",
        ),
        ("DEVICE void reset(", "static inline void\nreset (", "`reset` lacks DEVICE"),
        ("}\n\nDEVICE void observe(", "} void observe(", "`observe` lacks DEVICE"),
    ],
)
def test_what_compilers_would_judge_differently_is_read_from_the_text(old, new, words):
    spec = broken(old, new)
    with pytest.raises(CompileError) as caught:
        assemble(spec, spec.make_params(), Layout())
    assert words in str(caught.value)
    if old == MOVE:
        number = next(k for k, line in enumerate(spec.kernel.splitlines(), 1) if new in line)
        assert f"<kernel of point>:{number}: " in str(caught.value) and f"\n    {new}" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#include <cmath>", "write math:: and the function's name"),
        ("  # include  < random >", "write env.random.uniform4(i).x"),
        ("#include <stdint.h>", "write int, u8, u32, i64 or u64"),
        ("#include <chrono>", "a kernel has no library: docs/dialect.md"),
        ("using namespace std;", "a kernel has no library: docs/dialect.md"),
    ],
)
def test_a_library_is_refused_which_a_cpu_has_and_a_gpu_has_not(line, words):
    include = '#include "drive/env.cuh"'
    spec = broken(include, f"{line}\n{include}")
    said = rf"<kernel of point>:4: .* is no part of the dialect\n    {line.strip()}\n"
    with pytest.raises(CompileError, match=said) as caught:
        assemble(spec, spec.make_params(), Layout())
    assert words in str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize("layout", [Layout(1, 32), Layout(4, 8)])
def test_an_element_of_an_array_is_assigned_from_another(layout):
    moved = "Array<float, 4> a{}; a[0] = s.v; for (int k = 0; k < 3; ++k) a[k + 1] = a[k]; s.x += a[3];"
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


@pytest.mark.full
@pytest.mark.parametrize(
    "right",
    [
        "s.x += 2.0f * s.v; // sinf(x) is 2.0 here",
        "s.x += 0x1e5 * s.v; /* printf(3.5) */",
        "s.x += (float)((double)s.v * 2.5);",
        "s.x += s.v;  // not a new std::vector, no rand(), no threadIdx; nor #include <cmath>",
        "struct Dice { float v; DEVICE float rand(int n) { return v * (float)n; } } dice{1.0f}; s.x += dice.rand(2);",
        "int newest = 3, random = 2, atomic = 1; s.x += (float)(newest + random + atomic);",
        "s.x += math::sin(s.v) + math::max(1e-3f, 1.f);",
        "float best; bool found = false; for (int k = 0; k < env.elapsed; ++k) if (k % 7 == 3) { best = s.x; found = true; }"
        "if (found) s.x = best;",
        "struct Wave { float v; DEVICE float sin(float x) const { return x * v; } } wave{1.0f}; s.x += wave.sin(s.v);",
    ],
)
def test_right_kernels_are_left_alone(right):
    spec = broken(MOVE, right)
    HostExecutor().load(spec, spec.make_params())


@pytest.mark.full
def test_what_stands_for_device_is_left_to_the_compilers():
    spec = broken("DEVICE bool step(", "#define ANYWHERE DEVICE\nANYWHERE bool step(")
    HostExecutor().load(spec, spec.make_params())


@pytest.mark.full
def test_what_the_optimiser_suspects_in_the_packages_own_structs_is_no_error():
    kernel = point.KERNEL.replace("struct State {", "struct Shared { float w[8]; };\nstruct State {")
    kernel = kernel.replace(MOVE, "if (s.x > 0.0f) env.shared.w[3] = 1.0f; s.x += env.shared.w[3];")
    spec = replace(envs._load(point.PYTHON)[0], kernel=kernel)
    HostExecutor().load(spec, spec.make_params())


@pytest.mark.parametrize("where", ["cpu", "nvrtc", pytest.param("zig", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "float x, v;",
            "float v, x;",
            "point: Python declares State.x as float at byte 0; the kernel has it at another place; the order is another:\n"
            "    in Python: x, v\n    in the kernel: v, x",
        ),
        (
            "float strength, drag;",
            "/* strength */ float drag; float strength;",
            "another place; the order is another:\n    in Python: strength, drag\n    in the kernel: drag, strength",
        ),
    ],
)
def test_members_in_another_order_are_shown_in_both(where, old, new, words, monkeypatch):
    said = message(broken(old, new), where, monkeypatch)
    assert said.endswith(words) and said.count("another place") == 1, said


@pytest.mark.parametrize(("name", "an_error"), [("work", False), ("s", True)])
def test_a_warning_of_a_name_that_the_kernel_has_not_is_no_error(name, an_error):
    """A loop past an array's end may look to g++ like a read of the memory around it, which the package calls ``work``."""
    spec = broken(MOVE, f"{MOVE}  // work")
    unit = assemble(spec, spec.make_params(), Layout())
    for words in (f"'{name}' may be used uninitialized", f"variable '{name}' is uninitialized when used here"):
        found = explain(unit, f"<kernel of point>:17:5: warning: {words} [-Wmaybe-uninitialized]\n")
        assert (found is not None and words in str(found)) == an_error


def test_the_mathematics_that_advice_names_exists():
    text = (KERNELS / "drive" / "math.cuh").read_text()
    assert [name for name in MATH if f" {name}(" not in text] == []
    assert set(FUNCTIONS) == {"reset", "step", "observe"}


def test_a_member_whose_type_is_not_known_is_not_said_to_be_missing(monkeypatch):
    said = message(broken("float x, v;", "float x, v[CELLS];"), "cpu", monkeypatch)
    assert "'CELLS' was not declared" in said.splitlines()[1] and "has no member 'v', which Python" not in said


@pytest.mark.full
def test_one_mistake_is_one_error_and_several_are_counted(monkeypatch):
    said = message(broken(MOVE, "s.x += wobble; s.v += wobble; env.state.x = wobble;"), "cpu", monkeypatch)
    assert said.count("<kernel of point>:") == 1
    said = message(broken(MOVE, "s.x += a1; s.x += a2; s.x += a3; s.x += a4; s.x += a5;"), "cpu", monkeypatch)
    assert said.count("<kernel of point>:") == 3 and said.endswith("(2 more)")
    said = message(broken("  return false;\n}", "  return false;\n"), "cpu", monkeypatch)
    assert "there are 6 opening and 5 closing braces" in said


# ---- the compiler itself ---------------------------------------------------------------------------------------------


def script(folder, text):
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (" ", "names no program"),
        ('""', "names no program"),
        ('"g++', "cannot be read: no closing quotation"),
        ("no-such-compiler -O3", "there is no program 'no-such-compiler' on the PATH"),
        ("/", "there is no program '/' on the PATH"),
        ("true", "ended with exit code 0 and made no library"),
        ("ls", "and made no library, with no error in a kernel"),
        ("exit 3", "ended with exit code 3"),
        ("echo no space left on device; exit 1", "no space left on device"),
        ('while [ "$1" != -o ]; do shift; done; echo junk > "$2"', "cannot be loaded"),
    ],
)
def test_a_useless_compiler_is_named_with_the_fix(named, words, monkeypatch, tmp_path):
    made = named.startswith(("exit", "echo", "while"))
    monkeypatch.setenv("CXX", script(tmp_path, 'case "$1" in --version) exit 0;; esac\n' + named) if made else named)
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    spec = broken(MOVE, f"{MOVE} s.x += 0.125f;")
    with pytest.raises(DeviceError) as caught:
        HostExecutor().load(spec, spec.make_params())
    assert words in str(caught.value)
    assert "cannot be loaded" in words or "set it to the command of a C++ compiler, such as CXX=g++" in str(
        caught.value
    ).replace("Unset", "unset")


def test_a_file_that_cannot_run_is_named(monkeypatch, tmp_path):
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fELFjunk")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    with pytest.raises(DeviceError, match=r"cannot be run: Exec format error; unset CXX"):
        HostExecutor().load(envs.get("cartpole"), envs.get("cartpole").make_params())


@pytest.mark.parametrize(
    "command", [["train", "cartpole"], ["check", "cartpole"], ["render", "cartpole", "--out", "x.gif"]]
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
