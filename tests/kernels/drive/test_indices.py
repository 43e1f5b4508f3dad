"""drive/indices.cuh: which indices a member has is a closed form; arrays whose index selects are
arrays with an index.
"""

import ctypes
import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from test_math import host_compiler

from cupydrive import envs
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import KERNELS, assemble, pick_int

HEADER, CUDA = KERNELS / "drive" / "indices.cuh", KERNELS / "drive" / "backend" / "cuda.cuh"
FLAGS = ["-O1", "-std=c++17", "-ffp-contract=off", "-fPIC"]
TEAMS = (1, 2, 3)
COUNTS = (0, 1, 2, 3, 4, 7, 12)
SIZES = (1, 2, 8, 9)  # of arrays; more than eight have an index of their own
PRELUDE = """
#include <stdint.h>
typedef int64_t i64;
#define DEVICE inline
#define UNROLL
#define UNROLL_OWN
#define REGISTERS_HAVE_NO_INDEX 1  // as on a GPU: one thread selects
static int outside = 0;
extern "C" void __ubsan_handle_out_of_bounds(void*, uintptr_t) { ++outside; }
extern "C" int were_outside() { return outside; }
"""
PROGRAM = """
extern "C" int each_of(int rank, int n, int* found) {
  int count = 0;
  for (int i : Member{rank}.each(n)) found[count++] = i;
  return count;
}
extern "C" int all_of(int rank, int n, int* found) {
  int count = 0;
  for (int i : Member{rank}.all(n)) found[count++] = i;
  return count;
}
extern "C" int own_of(int rank, int n, int* found, int* turn) {
  int count = 0;
  FOR_OWN(Member{rank}, k, i, n) { found[count] = i; turn[count++] = k; }
  return count;
}
extern "C" int loop_of(int rank, int n, int* found) {
  int count = 0;
  LOOP_OF_OWN(int i, Member{rank}, (n)) if (i % 2 == 0) found[count++] = i++; else found[count++] = i;
  return count;
}
extern "C" int own_turns(int n) { return own_count(n); }
extern "C" int leads(int rank) { return Member{rank}.leader(); }

template <int N> struct Guarded { Array<float, N> array; float after; };
template <int N>
void play(int count, const int* what, const int* at, const int* from, const float* value, float* seen, float* left) {
  Guarded<N> guarded = {};
  Array<float, N>& a = guarded.array;
  const Array<float, N>& constant = a;
  for (int n = 0; n < count; ++n) {
    const int i = at[n], j = from[n];
    switch (what[n]) {
      case 0: seen[n] = constant[i]; break;
      case 1: seen[n] = a[i]; break;
      case 2: seen[n] = a[i] = value[n]; break;
      case 3: seen[n] = a[i] += value[n]; break;
      case 4: seen[n] = a[i] -= value[n]; break;
      case 5: seen[n] = a[i] *= value[n]; break;
      case 6: seen[n] = a[i] = a[j] = value[n]; break;
      case 7: seen[n] = a[i] = constant[j]; break;
    }
  }
  for (int k = 0; k < N; ++k) left[k] = a.of[k];
  left[N] = guarded.after;
}
"""
PLAY = """
extern "C"
void play_SIZE(int n, const int* what, const int* at, const int* from, const float* value, float* seen, float* left) {
  play<SIZE>(n, what, at, from, value, seen, left);
}
"""


@pytest.fixture(scope="module", params=TEAMS, ids="team of {}".format)
def team(request, tmp_path_factory):
    """Return the number of members, and the header built for as many by a C++ compiler."""
    folder = tmp_path_factory.mktemp("indices")
    parts = [
        f"#define TEAM {request.param}",
        PRELUDE,
        HEADER.read_text().replace("#pragma once", ""),
        PROGRAM,
    ]
    # a GPU's, too, is plain C++
    parts[1:1] = re.findall(r"^#define LOOP_OF_OWN.*", CUDA.read_text(), re.M)
    parts += [PLAY.replace("SIZE", str(size)) for size in SIZES]
    (folder / "indices.cpp").write_text("\n".join(parts))
    version = subprocess.run([*host_compiler(), "--version"], capture_output=True, text=True).stdout
    # An array that is its struct's last member may be longer than it says, unless told otherwise.
    strict = "-fstrict-flex-arrays=3" if "clang" in version else "-fsanitize=bounds-strict"
    for command in (
        [*FLAGS, "-fsanitize=bounds", strict, "-c", "-o", "indices.o", "indices.cpp"],
        ["-shared", "-o", "indices.so", "indices.o"],  # whose prelude has what the sanitizer calls
    ):
        done = subprocess.run(
            [*host_compiler(), *command], capture_output=True, text=True, cwd=folder
        )
        assert done.returncode == 0, done.stderr
    return request.param, ctypes.CDLL(str(folder / "indices.so"))


def collected(function, rank, n, *more):
    """Return what a function of the program wrote for a member: its indices."""
    found = np.full(100, -1, np.int32)
    count = function(rank, n, found.ctypes.data_as(ctypes.c_void_p), *more)
    return found[:count].tolist()


@pytest.mark.parametrize("n", COUNTS)
def test_members_have_every_teamth_index_from_their_rank_on(team, n):
    members, program = team
    turns = -(-n // members)
    assert program.own_turns(n) == turns
    for rank in range(members):
        own = list(range(rank, n, members))
        assert collected(program.each_of, rank, n) == own
        turn = np.full(100, -1, np.int32)
        assert collected(program.own_of, rank, n, turn.ctypes.data_as(ctypes.c_void_p)) == own
        assert turn[: len(own)].tolist() == list(range(len(own)))
        assert collected(program.loop_of, rank, n) == own
        # as many for each
        assert collected(program.all_of, rank, n) == [rank + members * k for k in range(turns)]


@pytest.mark.parametrize(
    ("written", "pasted"),
    [
        ("for (int i : env.team.each(5)) f(i);", "LOOP_OF_OWN(int i, env.team, (5)) f(i);"),
        (
            "for (const int r : team.each(f(g(N), (1)) - 1)) {",
            "LOOP_OF_OWN(const int r, team, (f(g(N), (1)) - 1)) {",
        ),
        ("NO_UNROLL for (int i : env.team.each(N)) {", None),  # its author has decided
        ("for (int i : env.team.all(N)) {", None),
        ("for (int i = 0; i < N; ++i) {", None),
    ],
)
def test_a_backend_writes_the_loops_over_own_agents(written, pasted):
    spec = envs.get("cartpole")
    text = (KERNELS / "envs" / "cartpole.cu").read_text()
    unit = assemble(replace(spec, kernel=f"{text}\n{written}\n"), spec.make_params(), Layout())
    assert (pasted or written) in unit.text.splitlines()
    assert written in unit.files[unit.shown]  # as errors show it


def test_one_member_leads(team):
    members, program = team
    assert [program.leads(rank) for rank in range(members)] == [1] + [0] * (members - 1)


@pytest.mark.parametrize("size", SIZES)
def test_an_array_is_one_of_numpys_wherever_it_lies(team, size):
    """All that can be done with an element, at random, leaves what NumPy's leaves and gives what it
    gives.
    """
    _, program = team
    rng, count = np.random.default_rng(size), 400
    what, at, origin = (rng.integers(0, high, count).astype(np.int32) for high in (8, size, size))
    value = rng.uniform(-1.5, 1.5, count).astype(np.float32)
    seen, left = np.full(count, np.nan, np.float32), np.full(size + 1, np.nan, np.float32)
    arrays = (what, at, origin, value, seen, left)
    getattr(program, f"play_{size}")(count, *(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))
    expected, array = np.full(count, np.nan, np.float32), np.zeros(size, np.float32)
    for n, (kind, i, j, x) in enumerate(zip(what, at, origin, value, strict=True)):
        if kind == 6:
            array[j] = x
        array[i] = (array[i], array[i], x, array[i] + x, array[i] - x, array[i] * x, x, array[j])[
            kind
        ]
        expected[n] = array[i]
    np.testing.assert_array_equal(seen, expected)
    np.testing.assert_array_equal(left, [*array, 0])
    assert program.were_outside() == 0


STRETCHES = [10] * 111 + [2] * 27
SUMS = [sum(STRETCHES[:k]) for k in range(len(STRETCHES))]
DIGITS = [int(digit) for digit in "31415926535897932384626433832795"]


@pytest.mark.parametrize(
    ("values", "array"), [(STRETCHES, 0), (SUMS, 0), ([3, 3], 0), ([2, 6], 1), (DIGITS, 1)]
)
def test_numbers_of_many_heads_are_arithmetic_or_an_array(values, array):
    text = pick_int(values)
    assert ("{" in text) == array
    body = (
        text.replace("(void)head; ", "")
        .replace("if (", "if ")
        .replace(") return", ": return")
        .split("; ")
    )
    if "{" not in text:
        lines = "\n".join(f"  {line.rstrip(';')}" for line in body)
        made = {}
        exec(f"def of(head):\n{lines}\n", made)
        assert [made["of"](head) for head in range(len(values))] == values
