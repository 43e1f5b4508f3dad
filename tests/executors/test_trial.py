"""A kernel that crashes or never ends takes nothing with it: it runs in a process of its own first,
whose end is an error.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import point
import pytest
from conftest import run_python

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import KernelFault
from cupydrive.executors import trial
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch
from cupydrive.simulation.first_steps import play_steps

MOVE = "s.x += s.v;"
MISTAKES = {
    "null pointer": (
        "float* p = nullptr; p[3] = s.v; s.x += s.v;",
        "SIGSEGV in `step`, in environment 0. Look for an index out of bounds, an infinite recursion",
    ),
    "overflow": (
        "s.x += (float)(math::to_int(-3.0e9f + 0.0f * s.v) / (env.elapsed - 2));",
        "SIGFPE in `step`, in environment 0. Look for an integer `/` or `%` of -2147483648 by -1",
    ),
    "division": (
        "s.x += (float)(1 / (env.elapsed - 2));",
        "an integer is divided by 0, in environment 0",
    ),
    "no end": (
        "while (s.v < 1.0e30f) s.x += 1.0f;",
        "does not terminate in `step`, in environment 0: a loop ran for 0.2 s. Look for a loop",
    ),
    "no way back": (
        "struct Deeper { static float than(float x) { volatile float kept = x; return than(kept + 1.0f) + kept; } };\n"
        "    if (env.elapsed > 0) s.x += Deeper::than(s.v);",
        "SIGSEGV in `step`, in environment 0. Look for an index out of bounds, an infinite recursion",
    ),
    "wild index": (
        "env.shared.w[env.elapsed << 24] = s.v; s.x += env.shared.w[env.elapsed];",
        "array element index 16777216 is outside the array, in environment 0\n"
        "Unnoticed, the kernel ends its process with SIGSEGV",
    ),
}


def wrong(text, **changes):
    """Return the point environment whose step does ``text``; the kernel stands in a string, as in a
    notebook.
    """
    kernel = point.KERNEL.replace(
        "struct State {", "struct Shared { float w[4]; };\nstruct State {"
    )
    assert MOVE in kernel
    return replace(envs._load(point.PYTHON).spec, kernel=kernel.replace(MOVE, text), **changes)


# `make test` has a check of one of them.
@pytest.mark.full
@pytest.mark.parametrize(("use", "mistake"), [
    pytest.param(use, mistake, id=f"{use.__name__}-{mistake}",
    marks=pytest.mark.slow if use is cd.check and k else ())
    for use in (cd.make, cd.check) for k, mistake in enumerate(MISTAKES)
])  # fmt: skip
def test_a_crash_is_an_error_that_says_where(mistake, use, monkeypatch):
    monkeypatch.setattr(trial, "CPU_SECONDS", 0.2)
    # a mutant that only this ends leaves no process behind
    monkeypatch.setattr(trial, "WALL_SECONDS", 30)
    text, words = MISTAKES[mistake]
    with pytest.raises(KernelFault) as caught:
        use(wrong(text), device="cpu")
    assert words in str(caught.value), str(caught.value)
    if "Look for" not in words:  # its place is known
        spec = wrong(text)
        number = next(k for k, line in enumerate(spec.kernel.splitlines(), 1) if text in line)
        assert str(caught.value).startswith(f"<kernel of point>:{number}: ")


@pytest.mark.full
def test_a_crash_from_a_state_that_only_check_draws_is_found(monkeypatch):
    spec = wrong("float* p = nullptr; s.x += s.v; if (s.x > 2.0f && env.elapsed < 2) p[3] = s.v;")
    cd.make(spec, 2, device="cpu").reset(seed=0)  # starts lie near 0
    with pytest.raises(KernelFault, match="SIGSEGV in `step`"):
        cd.check(spec, device="cpu", progress=False)


@pytest.mark.full
def test_the_place_of_a_loop_without_end_is_not_waited_for_as_long_as_its_end(monkeypatch):
    """The debug build says where the loop is; that it has no end is known by then."""
    limits, run = [], trial.RecordingExecutor.run
    monkeypatch.setattr(trial, "CPU_SECONDS", 2.5)
    monkeypatch.setattr(
        trial.RecordingExecutor,
        "run",
        lambda self, seconds: limits.append(seconds) or run(self, seconds),
    )
    with pytest.raises(
        KernelFault, match=r"does not terminate in `step`, in environment 0: a loop ran for 2\.5 s"
    ):
        cd.make(wrong(MISTAKES["no end"][0]), 2, device="cpu")
    assert len(limits) == 2 and min(limits[0], trial.CPU_SECONDS) > limits[1]


LATE = {
    "wild index": (
        "if (env.elapsed == 50) env.shared.w[env.elapsed << 24] = s.v; s.x += s.v;",
        "index 838860800 is outside",
    ),
    "no end": (
        "while (env.elapsed > 50 && s.v < 1.0e30f) s.x += 1.0f; s.x += s.v;",
        "does not terminate in `step`",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("mistake", LATE)
def test_what_goes_wrong_late_in_an_episode_is_found_before_the_kernel_runs_here(
    mistake, monkeypatch
):
    monkeypatch.setattr(trial, "CPU_SECONDS", 0.2)
    text, words = LATE[mistake]
    spec = wrong(text)
    with pytest.raises(KernelFault, match=words):
        cd.make(spec, 2, device="cpu", max_episode_steps=60)


LATER = "s.x += s.v + (float)(1 SIGN (env.elapsed - 120));"  # more steps than are tried


@pytest.mark.parametrize("sign", ["/", "%"])
@pytest.mark.parametrize(
    "host", [{"threads": 2}, {"debug": True}, {"count": True}, {"team_threads": 4}], ids=str
)
def test_an_integer_divided_by_0_in_any_step_and_build_is_an_error_with_its_line(sign, host):
    spec = wrong(LATER.replace("SIGN", sign))
    line = next(k for k, text in enumerate(spec.kernel.splitlines(), 1) if "elapsed - 120" in text)
    params = spec.make_params(max_episode_steps=500)
    batch = Batch(spec, 30_000 if "threads" in host else 3, params, HostExecutor(**host))
    batch.reset(0)
    batch.rollout(119)
    before = batch.get_state()
    for _ in range(2):  # and again after it: the fault is forgotten when it has been said
        with pytest.raises(
            KernelFault,
            match=rf"^<kernel of point>:{line}: an integer is divided by 0, in environment \d+\. ",
        ):
            batch.rollout(1)
        batch.set_state(before)
    batch.reset(0)
    batch.rollout(119)  # nothing else is lost
    assert batch.get_state()["state"].tobytes() == before["state"].tobytes()


@pytest.mark.parametrize("host", [{}, {"debug": True}], ids=str)
def test_a_build_that_checks_needs_no_library_of_the_compilers(host):
    """On machines whose compiler comes without its sanitizers it could not be linked."""
    spec = envs.get("cartpole")
    library = HostExecutor(**host).load(spec, spec.make_params()).library._name
    assert b"libubsan" not in Path(library).read_bytes()


@pytest.mark.full
def test_a_right_kernel_is_tried_once_and_the_packages_own_never(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    tried = []
    run = trial.RecordingExecutor.run
    monkeypatch.setattr(
        trial.RecordingExecutor,
        "run",
        lambda self, *how: tried.append(self.library) or run(self, *how),
    )
    spec = wrong(f"{MOVE} s.x += 0.001f;")
    for number in (1, 2, 3):
        Batch(spec, number, executor=HostExecutor())
    assert len(tried) == 1
    Batch(envs.get("cartpole"), 2, executor=HostExecutor())
    Batch(spec, 2, executor=HostExecutor(debug=True))
    assert len(tried) == 1
    Batch(wrong(f"{MOVE} s.x += 0.002f;"), 1, executor=HostExecutor())
    assert len(tried) == 2


@pytest.mark.parametrize("name", ["tag_grid", "tag_continuous", "pendulum"])
def test_what_the_other_process_runs_is_what_runs_here(name, monkeypatch):
    """The launches that are written down, run here on the arrays that they point to, give what a
    Batch gives.
    """
    spec, host = envs.get(name), HostExecutor(threads=1)
    params = spec.make_params()
    layout = host.layout(spec, params)
    written = trial.RecordingExecutor(host)
    play_steps(Batch, spec, params, written, layout, None)
    assert written.run() == ""
    program = host.load(spec, params, layout)
    for array in written.arrays:
        array[...] = np.zeros((), array.dtype)
    for act in written.acts:
        if "put" in act:
            array = written.arrays[act["put"]]
            array[...] = np.frombuffer(bytes.fromhex(act["bytes"]), array.dtype).reshape(
                array.shape
            )
            continue
        call = np.frombuffer(bytearray.fromhex(act["call"]), np.uint8)
        program.launch(act["kernel"], call, act["count"], 0)
    here = Recorder(host)
    play_steps(Batch, spec, params, here, layout, None)
    assert len(here.arrays) == len(written.arrays)
    for one, other in zip(here.arrays, written.arrays, strict=True):
        assert one.tobytes() == other.tobytes()


class Recorder(HostExecutor):
    """A HostExecutor that knows its arrays."""

    def __init__(self, host):
        super().__init__(threads=1)
        self.arrays = []

    def allocate(self, shape, dtype):
        self.arrays.append(super().allocate(shape, dtype))
        return self.arrays[-1]


def test_a_python_that_cannot_run_is_said_and_the_kernel_runs_on(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trial.sys, "executable", "/bin/false")
    with pytest.warns(
        UserWarning, match="could not be tried in a separate process by '/bin/false'"
    ):
        cd.make(wrong(f"{MOVE} s.x += 0.003f;"), 1, device="cpu").reset(seed=0)


@pytest.mark.full
def test_the_command_ends_with_exit_code_2_and_not_with_a_signal(tmp_path):
    python, kernel = tmp_path / "crash.py", tmp_path / "crash.cu"
    python.write_text(point.PYTHON.replace('"point", Params', '"crash", Params'))
    kernel.write_text(point.KERNEL.replace(MOVE, "float* p = nullptr; p[3] = s.v; s.x += s.v;"))
    done = run_python("-m", "cupydrive", "check", python, "--device", "cpu")
    assert (
        done.returncode == 2
        and "SIGSEGV in `step`" in done.stderr
        and "Traceback" not in done.stderr
    )
