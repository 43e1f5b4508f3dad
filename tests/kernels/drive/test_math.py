"""drive/math.cuh: accuracy against float64, edge cases, the same bits from compilers and
the GPU.
"""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from math_edges import BELOW_1, EDGE_CASES
from test_nvrtc import compile_to

HEADER = Path(__file__).resolve().parents[3] / "kernels" / "drive" / "math.cuh"
FLAGS = ["-march=native", "-ffp-contract=off", "-std=c++17", "-shared", "-fPIC"]
inf, nan, pi = np.inf, np.nan, float(np.float32(np.pi))
NVRTC_OPTIONS = ["--std=c++17", "--fmad=false"]
# Name -> the 32-bit word that each side computes from floats a and b.
FUNCTIONS = {
    "sin": "bits(sin(a))",
    "cos": "bits(cos(a))",
    "atan2": "bits(atan2(a, b))",
    "wrap_angle": "bits(wrap_angle(a))",
    "wrap_turn": "bits(wrap_turn(a))",
    "shortest_turn": "bits(shortest_turn(a, b))",
    "exp": "bits(exp(a))",
    "log": "bits(log(a))",
    "log1p": "bits(log1p(a))",
    "softplus": "bits(softplus(a))",
    "tanh": "bits(tanh(a))",
    "pow": "bits(pow(a, b))",
    "pow_minus_1": "bits(pow_minus_1(a, b))",
    "sqrt": "bits(sqrt(a))",
    "divide": "bits(divide(a, b))",
    "divisor": "bits(Divisor(b).of(a))",
    "floor": "bits(floor(a))",
    "abs": "bits(abs(a))",
    "min": "bits(min(a, b))",
    "max": "bits(max(a, b))",
    "clamp": "bits(clamp(a, -0.75f, b))",
    "unit": "bits(clamp(a, 0.0f, 1.0f))",
    "to_int": "(u32)to_int(a)",
    "abs_int": "(u32)abs((int)bits(a))",
    "clamp_int": "(u32)clamp((int)bits(a), -1000, 100000)",
    "popcount": "(u32)popcount(bits(a))",
    "count_trailing_zeros": "(u32)count_trailing_zeros(bits(a))",
}

GPU_PRELUDE = """
typedef unsigned int u32;
typedef long long i64;
#define DEVICE __device__ __forceinline__
"""
CPU_PRELUDE = """
#include <stdint.h>
typedef uint32_t u32;
typedef int64_t i64;
#define DEVICE inline __attribute__((always_inline))
#if defined(__x86_64__)
#include <xmmintrin.h>
static u32 flush_denormals() { u32 old = _mm_getcsr(); _mm_setcsr(old | 0x8040); return old; }  // FTZ, DAZ
static void restore(u32 old) { _mm_setcsr(old); }
#else
static uint64_t flush_denormals() {
  uint64_t old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  __asm__ volatile("msr fpcr, %0" : : "r"(old | (1u << 24)) : "memory");  // FZ
  return old;
}
static void restore(uint64_t old) { __asm__ volatile("msr fpcr, %0" : : "r"(old) : "memory"); }
#endif
"""
CPU_FUNCTION = """
namespace math {
__attribute__((noinline)) static void loop_NAME(const float* x, const float* y, u32* out, i64 count) {
  for (i64 i = 0; i < count; ++i) { const float a = x[i], b = y[i]; (void)b; out[i] = EXPRESSION; }
}
}
extern "C" void run_NAME(const float* x, const float* y, u32* out, i64 count) {
  const auto old = flush_denormals();
  math::loop_NAME(x, y, out, count);
  restore(old);
}
"""
GPU_FUNCTION = """
namespace math { DEVICE u32 word_NAME(float a, float b) { return EXPRESSION; } }
extern "C" __global__ void run_NAME(const float* x, const float* y, u32* out, i64 count) {
  const i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x;
  if (i < count) out[i] = math::word_NAME(x[i], y[i]);
}
"""


def source(prelude: str, function: str) -> str:
    text = HEADER.read_text().replace("#pragma once", "")
    parts = [
        function.replace("NAME", name).replace("EXPRESSION", word)
        for name, word in FUNCTIONS.items()
    ]
    return "\n".join([prelude, text, *parts])


class Library:
    """math.cuh built by a C++ compiler; calls run with denormals flushed."""

    def __init__(self, compiler: list[str], flags: list[str], folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "math.cpp").write_text(source(CPU_PRELUDE, CPU_FUNCTION))
        command = [
            *compiler,
            *flags,
            *FLAGS,
            "-o",
            str(folder / "math.so"),
            str(folder / "math.cpp"),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.loaded = ctypes.CDLL(str(folder / "math.so"))

    def words(self, name: str, a, b=0.0) -> np.ndarray:
        a, b = (np.ascontiguousarray(v, np.float32) for v in np.broadcast_arrays(a, b))
        out = np.empty(a.shape, np.uint32)
        pointers = [ctypes.c_void_p(v.ctypes.data) for v in (a, b, out)]
        getattr(self.loaded, f"run_{name}")(*pointers, ctypes.c_int64(a.size))
        return out

    def __call__(self, name: str, a, b=0.0) -> np.ndarray:
        return self.words(name, a, b).view(np.float32)


def host_compiler() -> list[str]:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    pytest.skip("no C++ compiler")


def other_compilers() -> list[list[str]]:
    found = [["clang++"]] if shutil.which("clang++") else []
    return found + (
        [[sys.executable, "-m", "ziglang", "c++"]] if importlib.util.find_spec("ziglang") else []
    )


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):  # infinities and NaN are on purpose
        yield


@pytest.fixture(scope="module")
def cpu(tmp_path_factory) -> Library:
    return Library(host_compiler(), ["-O3"], tmp_path_factory.mktemp("math"))


def patterns(step: int) -> np.ndarray:
    """Floats of every sign and exponent, NaN, infinities and denormals among them."""
    return np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def between(low: float, high: float, count: int) -> np.ndarray:
    """Positive floats of [low, high], evenly spaced in their bit patterns."""
    first, last = np.array([low, high], np.float32).view(np.uint32)
    return np.linspace(first, last, count).astype(np.uint32).view(np.float32)


def both_signs(x: np.ndarray) -> np.ndarray:
    return np.concatenate([-x[::-1], x])


EDGES = np.array([
    0, 1e-45, 1e-39, 1.1754944e-38, 1e-20, 0.5, 0.55, 0.6666667, 0.7853982, 1, 1.3333333, 1.5707964,
    3.1415927, 6.2831855, 87.33654, 88.72283, 89, 104, 120, 1e4, 1e6, 2.0**22, 2.0**23, 2.0**24,
    2.0**31,
    1e20, 3.4028235e38, inf, nan,
], np.float32)  # fmt: skip
with np.errstate(all="ignore"):
    EDGES = np.concatenate(
        [EDGES, np.nextafter(EDGES, np.float32(0)), np.nextafter(EDGES, np.float32(inf))]
    )
EDGES = np.concatenate([EDGES, -EDGES])


def inputs(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs: a is dense in bit patterns, then dense in ordinary values, then every pair of
    edges.
    """
    random = np.random.default_rng(1)
    a = patterns(step)
    ordinary = random.normal(0, 3, (2, a.size // 2)).astype(np.float32)
    edges = np.array(np.meshgrid(EDGES, EDGES)).reshape(2, -1)
    b = np.concatenate([random.permutation(a), ordinary[1], edges[1]])
    return np.concatenate([a, ordinary[0], edges[0]]), b


def same(name: str, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Equal words; for floats NaN equals NaN, and a denormal handed through equals the zero of its
    sign.
    """
    if FUNCTIONS[name].startswith("(u32)"):
        return one == two

    def plain(word):
        x = word.view(np.float32)
        return np.where(
            np.isnan(x), np.uint32(0x7FC00000), np.where(denormal(x), word & 0x80000000, word)
        )

    return plain(one) == plain(two)


def denormal(x: np.ndarray) -> np.ndarray:
    return (x.view(np.uint32) & 0x7FFFFFFF != 0) & (x.view(np.uint32) & 0x7F800000 == 0)


def assert_same(name: str, a, b, one: np.ndarray, two: np.ndarray):
    wrong = np.flatnonzero(~same(name, one, two))
    example = [hex(v.view(np.uint32)[i]) for i in wrong[:1] for v in (a, b, one, two)]
    assert wrong.size == 0, f"{name}: {wrong.size} of {one.size} differ; a, b, one, two = {example}"


def worst_ulp(got: np.ndarray, exact: np.ndarray) -> float:
    """Largest error, in spacings of float32 at the exact value."""
    spacing = np.exp2(np.floor(np.log2(np.abs(exact))) - 23)
    return float(np.max(np.abs(got.astype(np.float64) - exact) / spacing))


# --- accuracy
# -----------------------------------------------------------------------------------------------


def exact_softplus(x):
    """Return log(1 + e^x) in float64, for any x."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


SMALL = 2.0**-126
COUNT = 1_000_000
ONE_ARGUMENT = [
    ("sin", np.sin, both_signs(between(SMALL, 0.785, COUNT)), 0.75),
    ("sin", np.sin, both_signs(between(1e-3, 1e4, COUNT)), 1.6),
    ("cos", np.cos, both_signs(between(SMALL, 0.785, COUNT)), 0.95),
    ("cos", np.cos, both_signs(between(1e-3, 1e4, COUNT)), 1.6),
    ("sin", np.sin, both_signs(between(1e4, 1e6, COUNT)), 2.0),
    ("cos", np.cos, both_signs(between(1e4, 1e6, COUNT)), 2.0),
    ("exp", np.exp, between(SMALL, 88.72283, COUNT), 0.95),
    ("exp", np.exp, -between(SMALL, 87.33654, COUNT), 0.95),
    ("log", np.log, between(SMALL, 3.4028235e38, COUNT), 1.0),
    ("log", np.log, between(0.5, 2, COUNT), 1.0),
    ("tanh", np.tanh, both_signs(between(SMALL, 20, COUNT)), 1.65),
    ("tanh", np.tanh, both_signs(between(0.5, 0.6, COUNT)), 1.65),
    ("sqrt", np.sqrt, between(SMALL, 3.4028235e38, COUNT), 0.5),
    ("log1p", np.log1p, between(SMALL, 3.4028235e38, COUNT), 1.55),
    ("log1p", np.log1p, both_signs(between(1e-3, 0.5, COUNT)), 1.55),
    ("log1p", np.log1p, -between(SMALL, -BELOW_1, COUNT), 0.95),
    ("softplus", exact_softplus, between(SMALL, 3.4028235e38, COUNT), 2.0),
    ("softplus", exact_softplus, -between(SMALL, 87.3, COUNT), 2.0),
    ("softplus", exact_softplus, both_signs(between(0.1, 30, COUNT)), 2.0),
]


@pytest.mark.full
@pytest.mark.parametrize("name, exact, x, bound", ONE_ARGUMENT)
def test_error_of_one_argument(cpu, name, exact, x, bound):
    reference = exact(x.astype(np.float64))
    keep = np.abs(reference) >= SMALL  # log(1) is compared below
    assert worst_ulp(cpu(name, x)[keep], reference[keep]) <= bound


@pytest.mark.full
def test_error_of_atan2(cpu):
    random = np.random.default_rng(2)
    y, x = (random.permutation(both_signs(between(1e-15, 1e15, COUNT))) for _ in range(2))
    y = np.concatenate([y, random.normal(size=COUNT).astype(np.float32)])
    x = np.concatenate([x, random.normal(size=COUNT).astype(np.float32)])
    assert worst_ulp(cpu("atan2", y, x), np.arctan2(y.astype(np.float64), x)) <= 1.6


def test_error_of_pow(cpu):
    random = np.random.default_rng(3)
    x, y = (
        random.uniform(low, high, COUNT).astype(np.float32) for low, high in ((0.001, 10), (-4, 4))
    )
    assert worst_ulp(cpu("pow", x, y), np.power(x.astype(np.float64), y)) <= 1.2
    x = random.permutation(between(SMALL, 3.4e38, COUNT))
    limit = np.minimum(87 / np.maximum(np.abs(np.log(x)), 1e-4), 1e4)
    y = (random.uniform(-1, 1, COUNT) * limit).astype(np.float32)
    assert worst_ulp(cpu("pow", x, y), np.power(x.astype(np.float64), y)) <= 5


def test_error_of_pow_minus_1(cpu):
    random = np.random.default_rng(4)
    x, y = (
        random.uniform(low, high, COUNT).astype(np.float32) for low, high in ((0.001, 10), (-4, 4))
    )
    # ever nearer to 1
    for power, bound in ((y, 2.2), (np.float32(1e-3) * y, 1.6), (np.float32(1e-6) * y, 1.1)):
        exact = np.expm1(power * np.log(x.astype(np.float64)))
        keep = np.abs(exact) >= SMALL
        assert worst_ulp(cpu("pow_minus_1", x, power)[keep], exact[keep]) <= bound


@pytest.mark.parametrize(
    "name, low, high, bound",
    [("wrap_angle", -np.pi, np.pi, 3.6e-7), ("wrap_turn", 0, 2 * np.pi, 4.8e-7)],
)
def test_wrapped_angles(cpu, name, low, high, bound):
    low, high = np.float32(low), np.float32(high)
    turns = (np.arange(-16000, 16000) * np.pi / 2).astype(np.float32)
    x = np.concatenate(
        [
            both_signs(between(1e-30, 1e5, COUNT)),
            turns,
            np.nextafter(turns, high),
            np.nextafter(turns, -high),
        ]
    )
    x = x[~denormal(x)]
    wrapped = cpu(name, x)
    assert np.all((wrapped >= low) & (wrapped < high))
    difference = wrapped.astype(np.float64) - x
    assert np.max(np.abs(difference - np.round(difference / (2 * np.pi)) * 2 * np.pi)) <= bound
    inside = x[(x >= low) & (x < high)]
    assert np.array_equal(cpu(name, inside), inside)
    huge = cpu(name, both_signs(between(1e5, 3.4e38, COUNT)))
    assert np.all((huge >= low) & (huge < high))
    assert np.isnan(cpu(name, [np.inf, -np.inf, np.nan])).all()


def test_the_shortest_turn(cpu):
    """At most half a turn, and it leads to where it should, to a rounding or two."""
    random = np.random.default_rng(4)
    a, b = (random.uniform(0, 2 * np.pi, COUNT).astype(np.float32) for _ in range(2))
    turn = cpu("shortest_turn", a, b).astype(np.float64)
    assert np.all(np.abs(turn) <= np.pi)
    missed = turn - (b.astype(np.float64) - a)
    assert np.max(np.abs(missed - np.round(missed / (2 * np.pi)) * 2 * np.pi)) <= 4.8e-7


# --- edge cases
# ---------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("name, a, b, result", EDGE_CASES)
def test_edge_case(cpu, name, a, b, result):
    expected, got = np.array([result], np.float32), cpu(name, [a], [b])
    exact = result in (0, 1, -1) or not np.isfinite(result)  # others to one ulp
    assert same(name, got.view(np.uint32), expected.view(np.uint32)).all() or (
        not exact and np.isclose(got, expected, 1.2e-7, 0)
    ), got


def test_integers(cpu):
    big = 2**31 - 1
    for a, result in [
        (0, 0), (-0.0, 0), (0.99, 0), (-0.99, 0), (1.5, 1), (-1.5, -1), (2.0**31, big),
        (1e20, big), (inf, big), (2147483520, 2147483520), (-(2.0**31), -big - 1),
        (-1e20, -big - 1),
        (-inf, -big - 1), (nan, 0), (-nan, 0), (1e-40, 0),
    ]:  # fmt: skip
        assert cpu.words("to_int", [a]).view(np.int32)[0] == result, a
    integers = np.array([-(2**31), -1001, -5, 0, 7, 100001, big], np.int32)
    words = integers.view(np.float32)
    assert np.array_equal(
        cpu.words("clamp_int", words).view(np.int32), np.clip(integers, -1000, 100000)
    )
    assert np.array_equal(cpu.words("abs_int", words).view(np.int32), np.abs(integers))


def test_bits_are_counted(cpu):
    words = np.concatenate(
        [patterns(10_007).view(np.uint32), 1 << np.arange(32), [2**32 - 1]]
    ).astype(np.uint32)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(-1, 32)
    assert np.array_equal(cpu.words("popcount", words.view(np.float32)), bits.sum(axis=1))
    zeros = np.where(words == 0, 32, bits.argmax(axis=1))
    assert np.array_equal(cpu.words("count_trailing_zeros", words.view(np.float32)), zeros)


@pytest.mark.full
def test_shape_for_every_float(cpu):
    """Sine, cosine and tanh stay in [-1, 1]; tanh is odd; NaN in, NaN out; no result is
    denormal.
    """
    x = patterns(1021)
    finite = np.isfinite(x)
    for name in ("sin", "cos", "tanh"):
        y = cpu(name, x)
        assert np.all(np.abs(y[finite]) <= 1) and np.all(np.isnan(y[np.isnan(x)]))
    assert np.array_equal(cpu("tanh", -x[finite]), -cpu("tanh", x[finite]))
    a, b = inputs(40009)
    for name in list(FUNCTIONS)[:15]:  # sin to floor
        assert not denormal(cpu(name, a, b)).any(), name


def test_softplus_of_every_float_is_at_least_0_and_at_least_x(cpu):
    x = patterns(509)
    x = x[~np.isnan(x)]
    y = cpu("softplus", x)
    assert (y >= np.maximum(x, 0)).all() and np.array_equal(y[x >= 17], x[x >= 17])


def test_a_divisor_divides(cpu):
    """Within 0.51 ulp of the quotient, which is 1 and 0 where it should be."""
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.uniform(-20, 20, (2, 1_000_000))).astype(np.float32)
    assert worst_ulp(cpu("divisor", a, b), a.astype(np.float64) / b) <= 0.51
    assert (cpu("divisor", b, b) == 1).all() and (cpu("divisor", 0 * a, b) == 0).all()


# --- the same bits everywhere
# -------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "flags", [["-O0"], ["-O1"], ["-O3", "-fno-math-errno", "-fno-trapping-math"]], ids=" ".join
)
def test_optimisation_keeps_the_bits(cpu, tmp_path, flags):
    other = Library(host_compiler(), flags, tmp_path)
    a, b = inputs(4001)
    for name in FUNCTIONS:
        assert_same(name, a, b, cpu.words(name, a, b), other.words(name, a, b))


@pytest.mark.full
@pytest.mark.parametrize("compiler", other_compilers(), ids=" ".join)
def test_compilers_agree(cpu, tmp_path, compiler):
    other = Library(compiler, ["-O3"], tmp_path)
    a, b = inputs(4001)
    for name in FUNCTIONS:
        assert_same(name, a, b, cpu.words(name, a, b), other.words(name, a, b))


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_compiles_under_nvrtc(architecture):
    code, log, ptx = compile_to(
        SimpleNamespace(text=source(GPU_PRELUDE, GPU_FUNCTION)), architecture
    )
    assert code == 0, log
    ptx = ptx.replace("rcp.approx.ftz.f32", "")  # of math::inverse, which corrects it: see below
    assert ".f64" not in ptx and ".approx" not in ptx and "call" not in ptx


@pytest.mark.gpu
def test_gpu_gives_the_same_bits(cpu):
    cupy = pytest.importorskip("cupy")
    module = cupy.RawModule(code=source(GPU_PRELUDE, GPU_FUNCTION), options=tuple(NVRTC_OPTIONS))
    a, b = inputs(1021)
    x, y, out = cupy.asarray(a), cupy.asarray(b), cupy.empty(a.size, np.uint32)
    for name in FUNCTIONS:
        module.get_function(f"run_{name}")(
            (a.size // 256 + 1,), (256,), (x, y, out, np.int64(a.size))
        )
        assert_same(name, a, b, cpu.words(name, a, b), cupy.asnumpy(out))


INVERSES = """
extern "C" __global__ void wrong_inverses(unsigned long long* wrong) {
  for (u32 word = 0x3f800000u + blockIdx.x * blockDim.x + threadIdx.x; word <= 0x71800000u; word += gridDim.x * blockDim.x) {
    const float a = math::from_bits(word);
    if (math::bits(math::inverse(a)) != math::bits(math::divide(1.0f, a))) atomicAdd(wrong, 1ull);
  }
}
"""


@pytest.mark.full
@pytest.mark.gpu
def test_every_inverse_is_rounded_to_nearest_on_a_gpu():
    """For every float that it is meant for: an approximation and one correction."""
    cupy = pytest.importorskip("cupy")
    module = cupy.RawModule(
        code=source(GPU_PRELUDE, GPU_FUNCTION) + INVERSES, options=tuple(NVRTC_OPTIONS)
    )
    wrong = cupy.zeros(1, np.uint64)
    module.get_function("wrong_inverses")((2048,), (256,), (wrong,))
    assert wrong[0] == 0
