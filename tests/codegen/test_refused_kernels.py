"""What a compiler lets through and a run does not forgive is refused in the kernel's line, or found
by a debug build.
"""

import sys
from dataclasses import replace

import everything
import point
import pytest
from test_compile_errors import COMPILERS, MOVE, broken, message
from test_nvrtc import compiled

import cupydrive as cd
from cupydrive import envs
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble
from cupydrive.errors import CompileError, KernelFault
from cupydrive.executors.host import FRAME_BYTES, HostExecutor, frame_bytes

pytestmark = pytest.mark.optimised

THERE = "Array<float, 4> a{}; Array<int, 4> n{}; int all; u32 word = 3; u8 byte = 1;"


@pytest.mark.full
@pytest.mark.parametrize("debug", [False, True])
def test_a_call_that_a_constant_leaves_out_needs_no_flag(debug):
    """RICE-N has masks in some cases alone."""
    spec = broken(
        MOVE, "if constexpr (SEATS == 4) { env.point.mask(0, 0) = 1; env.point.left(0) = 1; }"
    )
    HostExecutor(debug=debug).load(spec, spec.make_params())
    assert compiled(assemble(spec, spec.make_params(), Layout(1, 32)), 90) == (0, "")


@pytest.mark.full
@pytest.mark.parametrize(
    ("function", "text", "words"),
    [
        (
            "reset",
            "env.state.speed[0] = env.driver.action(0);",
            "an action is read outside of `step`",
        ),
        ("reset", "env.driver.reward(0) = 1.0f;", "a reward is written outside of `step`"),
        ("observe", "env.driver.reward(0) += 1.0f;", "a reward is written outside of `step`"),
        ("reset", "env.walker.mask(0, 0) = 1;", "a mask is written outside of `observe`"),
        ("step", "env.walker.mask(0, 0) = 1;", "a mask is written outside of `observe`"),
        ("reset", "env.walker.allow_all(env.team);", "masks are written outside of `observe`"),
        ("observe", "env.walker.active(0) = 1;", "`active` is written outside of `step`"),
        ("reset", "env.walker.left(0) = 1;", "`left` is written outside of `step`"),
    ],
)
def test_a_debug_build_says_which_rows_a_function_has_not(function, text, words):
    begin = next(
        line for line in everything.KERNEL.splitlines() if f" {function}(Env& env) {{" in line
    )
    kernel = everything.KERNEL.replace(begin, f"{begin} {text}")
    spec = envs.register(everything.PYTHON.replace("TIME_LIMIT", "truncates"), kernel)
    env = cd.make(spec, 2, device="cpu", debug=True)
    with pytest.raises(KernelFault) as caught:
        env.reset(seed=0)
        env.rollout(1)
    assert f": {words}, in environment 0" in str(caught.value)


@pytest.mark.quick(2)
@pytest.mark.parametrize("where", COMPILERS)
@pytest.mark.parametrize(
    "value",
    [
        "env.team.sum(s.x)",
        "env.team.min((double)s.x)",
        "env.team.before(s.x, &all)",
        "env.team.add(n, 1, 0.5f)",
        "Random::below(word, s.x)",
        "Random::unit(env.random.uniform4(0).x)",
    ],
)
def test_floats_are_refused_where_their_fraction_would_be_dropped(where, value, monkeypatch):
    line = f"{THERE} s.x += (float){value};"
    said = message(broken(MOVE, line), where, monkeypatch)
    assert f"\n    {line}\n  env.team's sum, min, " in said and "<kernel of point>:17: " in said, (
        said
    )


@pytest.mark.full
@pytest.mark.parametrize("layout", [Layout(1, 32), Layout(4, 8), Layout(64)])
def test_integers_of_any_kind_are_summed_and_drawn(layout):
    wholes = (
        "word) + env.team.sum(byte) + env.team.sum(true) + env.team.sum(n[1]) + env.team.sum((i64)3"
    )
    least = "env.team.min(word) + env.team.min(3) + (u32)env.team.min((i64)3) + (u32)env.team.min((u64)3)"
    rest = "env.team.before(n[1], &all) + env.team.before(word, &all) + env.team.add(n, 1, word) + env.team.add(n, 1, n[2])"
    draws = "Random::unit(3) + (float)(Random::below(3, 4) + Random::below(word, byte) + Random::below(word, NUM_AGENTS))"
    text = f"{THERE} s.x += (float)(env.team.sum({wholes})) + (float)({least}) + (float)({rest}) + {draws};"
    spec = broken(MOVE, text)
    HostExecutor().load(spec, spec.make_params())
    code, log = compiled(assemble(spec, spec.make_params(), layout), 90)
    assert code == 0, log


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        ("uniform4(70000).x", "agent (random numbers) index 70000 is outside [0, 65536)"),
        ("uniform4(env.elapsed - 1).x", "agent (random numbers) index -1 is outside [0, 65536)"),
        ("uniform4(0, 4096).x", "draw (random numbers) index 4096 is outside [0, 4096)"),
        ("bits(65536).x", "agent (random numbers) index 65536 is outside [0, 65536)"),
        ("bits(0, 5000).word(1)", "draw (random numbers) index 5000 is outside [0, 4096)"),
    ],
)
def test_a_debug_build_finds_random_numbers_of_another_stream(draw, words):
    env = cd.make(
        broken("env.state.v = 0.0f;", f"env.state.v = (float)env.random.{draw};"),
        2,
        device="cpu",
        debug=True,
    )
    with pytest.raises(KernelFault) as caught:
        env.reset(seed=0)
    assert str(caught.value).startswith(f"<kernel of point>:9: {words}, in environment 0")


@pytest.mark.full
def test_the_last_random_numbers_of_a_stream_are_in_range():
    spec = broken("env.random.uniform4(0)", "env.random.uniform4(65535, 4095)")
    cd.make(spec, 2, device="cpu", debug=True).reset(seed=0)


@pytest.mark.full
@pytest.mark.parametrize(
    "functions",
    [
        "DEVICE float f(float x) { return x > 0.0f ? 2.0f * f(x - 1.0f) + f(x - 2.0f) : x; }",
        "DEVICE float g(float x);\nDEVICE float f(float x) { return x > 0.0f ? 1.0f + x * g(x - 1.0f) : x; }\n"
        "DEVICE float g(float x) { return x > 0.0f ? x + 3.0f * f(x - 1.0f) : x; }",
    ],
    ids=["itself", "another"],
)
def test_a_function_that_calls_itself_is_told_to_be_a_loop(functions, monkeypatch):
    """g++ alone inlines or fails: to clang and NVRTC a function that calls itself is one."""
    monkeypatch.setenv("CXX", "g++")
    kernel = point.KERNEL.replace("DEVICE bool step", f"{functions}\nDEVICE bool step").replace(
        MOVE, "s.x += f(s.v);"
    )
    said = message(replace(envs._load(point.PYTHON).spec, kernel=kernel), "cpu", monkeypatch)
    assert said.endswith("Write a loop") and "DEVICE float f(float x)" in said, said


@pytest.mark.full
@pytest.mark.parametrize("where", COMPILERS)
def test_an_array_of_no_constant_length_does_not_compile(where, monkeypatch):
    assert "<kernel of point>:17: " in message(
        broken(MOVE, "float y[i + 3]; y[0] = s.x; s.x = y[0];"), where, monkeypatch
    )


@pytest.mark.full
def test_a_check_compiles_for_a_gpu_where_there_is_none(monkeypatch):
    pytest.importorskip("cuda.bindings.nvrtc")
    spec = broken(MOVE, "s.x += (float)UINT32_MAX;")  # of a library's header
    row = "cuda: the kernel compiles for a GPU, by NVRTC"
    report = cd.check(spec, device="cpu", agent_steps=100, progress=False)
    assert (
        '<kernel of point>:17: identifier "UINT32_MAX" is undefined | s.x' in report.failures()[0]
    )
    spec = broken(
        MOVE, "s.x += s.v * (float)(math::popcount(5u) - 1 + math::count_trailing_zeros(1u));"
    )
    report = cd.check(spec, device="cpu", agent_steps=100, progress=False)
    assert row in str(report) and not any(row in text for text in report.failures())
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)  # not installed, nor is CuPy
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert row not in str(cd.check(spec, device="cpu", agent_steps=100, progress=False))


SHARED = "struct Shared { float y[1 << 22]; };\nstruct State"


@pytest.mark.full
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("struct State", SHARED).replace(
            MOVE, "env.shared.y[i] = s.v; s.x = env.shared.y[(int)s.x];"
        ),
        lambda text: text.replace(
            MOVE, "float y[1 << 22]; for (float& z : y) z = s.x; s.x = y[(int)s.v];"
        ),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_more_than_a_thread_has_of_stack_names_size_and_limit(change, debug):
    spec = replace(envs._load(point.PYTHON).spec, kernel=change(point.KERNEL))
    words = rf"16\d{{6}}\D.*{FRAME_BYTES}.*\n.*\n.*are on a thread's stack. Make them smaller"
    with pytest.raises(CompileError, match=words):
        cd.make(spec, 2, device="cpu", debug=debug)


@pytest.mark.parametrize(
    ("limit", "want"), [(2**20, 3 * 2**18), (8 << 20, 6 << 20), (1 << 30, 6 << 20), (-1, 3 << 19)]
)
def test_what_lies_on_a_stack_fits_into_that_of_this_machine(limit, want, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert frame_bytes() == want


@pytest.mark.full
def test_a_state_may_be_larger_than_a_stack():
    spec = envs._load(
        point.PYTHON.replace('Field("v"))', 'Field("v"), Field("y", "f4", (1 << 23,)))')
    ).spec
    kernel = point.KERNEL.replace("x, v; }", "x, v, y[1 << 23]; }").replace(
        MOVE, "s.y[(1 << 23) - 1] += 1.0f;"
    )
    with cd.make(replace(spec, kernel=kernel), 1, device="cpu") as env:
        env.reset(seed=0)
        env.rollout(3)
        assert env.state["y"][0, -1] == 3
