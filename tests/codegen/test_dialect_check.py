"""Names and forms that CPU and GPU compilers treat differently are refused before compilation;
others are left alone.
"""

import pytest

from cupydrive.codegen.dialect import check_dialect
from cupydrive.errors import CompileError

START = 'struct Params {};\nstruct State {};\n#include "drive/env.cuh"\n'
REFUSED = (
    "unsigned counter = 0;", "unsigned int c = 0;", "long x;", "short y[3];", "u32 x = 0;",
    "DEVICE void f() { static int n = 0; }",
    "DEVICE void f() { float x = y ?: 1.0f; }",
    "DEVICE void f(int a) { switch (a) { case 1 ... 3: break; } }",
    "DEVICE void f() { int a = ({ int b = 1; b; }); }",
    "DEVICE void f() { P p = {.a = 1}; }",
    "DEVICE void f() { float x = A * sin(y); }", "#define WAVE sin(x)",
    "DEVICE void f() { g(A * rand()); }",
)  # fmt: skip
RIGHT = (
    "constexpr unsigned k = 3;", "const  static int k = 3;", "constexpr\n static int k = 3;",
    "constexpr inline static int K = 3;",
    "DEVICE V operator,(V a, V b) { return a; }",
    "DEVICE bool operator==(V a, V b) { return true; }",
    "DEVICE void f() { g({1, 2}); int x = a ? b::c : d; }",
    "DEVICE void f() { float x = a ? -1.0f : ::b; }",
    "DEVICE unsigned f(unsigned a) { unsigned b = a; return b; }",
    "DEVICE float rand(int n) { return 3.0f; } DEVICE float f() { return rand(3); }",
    "typedef u32 uint32_t; DEVICE uint32_t f(uint32_t a) { return a; }",
    "using int8_t = signed char; DEVICE int8_t f();",
    "DEVICE void f() { for (int i : env.team.each(3)) { g(i); } }",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_differs_between_compilers_is_refused_at_its_line(text):
    with pytest.raises(CompileError, match=r"kernel:4: `.*` is not part of the dialect"):
        check_dialect("env", "kernel", START + text)


@pytest.mark.parametrize("text", RIGHT)
def test_what_all_compilers_know_is_left_alone(text):
    check_dialect("env", "kernel", START + text)
