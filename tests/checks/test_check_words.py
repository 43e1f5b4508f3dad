"""A check says what is wrong: a value that is no number, the parameters of its case, what a reference lacks or mistypes."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.checks.answers import require_outcome
from cupydrive.checks.causes import REFERENCE
from cupydrive.checks.checker import check
from cupydrive.checks.report import Report
from cupydrive.cli.scaffold import new
from cupydrive.errors import SpecError


@pytest.fixture(scope="module")
def written_env(tmp_path_factory):
    """Return the ``EnvSpec`` of ``cupydrive new`` and its kernel's text."""
    python, kernel = new("mine", tmp_path_factory.mktemp("mine"))
    return envs.get(str(python)), kernel.read_text()


def failures(spec, text, right, wrong):
    """Return what a check of the kernel with ``wrong`` in the place of ``right`` says, in the first case that fails."""
    assert text.count(right) == 1
    report = check(
        replace(spec, kernel=text.replace(right, wrong)), agent_steps=600, device="cpu", fail_fast=True, progress=False
    )
    return report.failures()


@pytest.mark.full
def test_a_kernel_that_gives_nan_is_told_so_before_all_that_follows(written_env):
    spec, text = written_env
    first, *others = failures(
        replace(spec, cases=({},)), text, "math::sqrt(dx * dx + dy * dy)", "math::sqrt(-dx * dx - dy * dy)"
    )
    assert first.startswith("the kernel gives NaN in reward.point (a square root ")
    assert "; reward.point: environment " in first and ": kernel nan, reference -" in first
    assert any(text.startswith("terminated: ") for text in others)  # that came first, and blamed step's end
    assert all(", and nan agrees with nothing (" in text for text in others if "kernel nan, reference nan" in text)


@pytest.mark.full
def test_a_failure_names_the_parameters_of_its_case(written_env):
    spec, text = written_env
    cases = ({"num_points": 1}, {"num_points": 4, "bonus": 0.5})
    first, *_ = failures(
        replace(spec, cases=cases), text, "- p.drag * s.vx[i]", "- (NUM_POINTS > 2 ? 0.0f : p.drag) * s.vx[i]"
    )
    assert "; state.vx: environment " in first and ", with num_points=4, bonus=0.5: kernel " in first


@pytest.mark.parametrize(
    ("cases", "case", "words"),
    [
        (({},), 0, "environment 1: kernel"),
        (({}, {"n": 2}), 0, "environment 1, with default parameters: kernel"),
        (({}, {"n": 2}), 1, "environment 1, with n=2: kernel"),
        (({"n": 2},), 0, "environment 1, with n=2: kernel"),
    ],
)
def test_parameters_are_said_where_they_tell_something(cases, case, words):
    report = Report("e", ["cpu"], list(cases), 0)
    report.case = cases[case]
    report.compare(REFERENCE, "terminated", np.array([True, True]), np.array([True, False]))
    assert f"terminated: {words} True, reference False (1 of 2 rows)" in report.failures()[0]


NAN, INF = np.float32(np.nan), np.float32(np.inf)


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        ((1, NAN, 2), (1, 1, 1), "the kernel gives NaN in reward.a (a square root "),
        ((2, INF, 1), (1, 1, 1), "the kernel gives inf in reward.a (a division by 0, "),
        ((NAN, 2, 1), (NAN, 1, 1), "step gives other rewards than the reference; reward.a: environment 1: kernel 2, "),
        ((NAN, 1, 1), (NAN, 1, 1), "kernel and reference give NaN in reward.a (a "),
        ((INF, 1, 1), (INF, 1, 1), "kernel and reference give inf in reward.a (a "),
        ((1, 1, 1), (1, NAN, 1), "the reference gives NaN in reward.a (a square root "),
    ],
)
def test_what_tells_most_is_said_of_a_comparison(got, want, words):
    report = Report("e", ["cpu"], [{}], 0)
    got, want = np.float32(got), np.float64(want)
    # A near decision excuses no NaN.
    report.compare(
        REFERENCE,
        "reward.a",
        got,
        want,
        scale=1.0,
        margin=np.where(np.isfinite(want), np.where(np.isfinite(got), 1.0, 0.0), 1.0),
    )
    assert report.failures()[0].startswith(words), report.failures()


def test_a_nan_that_comes_later_takes_the_place_of_a_difference():
    report = Report("e", ["cpu"], [{}], 0)
    for value in (2, NAN, 3):
        report.compare(REFERENCE, "reward.a", np.float32([value]), np.float64([1]), scale=1.0)
    assert "kernel nan, reference 1 (1 of 1 rows)" in report.failures()[0]


OF_STATE = (
    "must hold every field of the state that observe does not return in Observed.state: x, y, vx, vy, goal_x, goal_y"
)
# What is done to the reference's Outcome or Observed, and what the check says before it compares anything.
WRONG_ANSWERS = {
    "a field left out": (
        "step",
        lambda o: o.state.pop("goal_y"),
        f"step's Outcome.state lacks 'goal_y'; it {OF_STATE}.",
    ),
    "a field misspelt": (
        "step",
        lambda o: o.state.update(goaly=o.state.pop("goal_y")),
        "goal_y. Did you mean 'goaly'?",
    ),
    "a reward left out": (
        "step",
        lambda o: o.reward.clear(),
        "step's Outcome.reward lacks 'point'; it must hold every group",
    ),
    "a metric left out": (
        "step",
        lambda o: o.metrics.clear(),
        "step's Outcome.metrics lacks 'arrivals'; it must hold every ",
    ),
    "an int reward": (
        "step",
        lambda o: o.reward.update(point=o.reward["point"].astype(np.int32)),
        "step's reward['point'] is int32; it must be floating, as float64 is",
    ),
    "an int state": (
        "step",
        lambda o: o.state.update(vx=o.state["vx"].astype(int)),
        "step's state['vx'] is int64; it must be floating",
    ),
    "an int end": (
        "step",
        lambda o: setattr(o, "terminated", o.terminated.astype(int)),
        "step's terminated is int64; it must be bool",
    ),
    "a misspelt margin": (
        "step",
        lambda o: o.margin.update({"reward.pont": o.margin.pop("reward.point")}),
        "step's Outcome.margin has 'reward.pont', and nothing that is compared is called that. Did you mean 'reward.point'? "
        "There are: terminated, x, y, vx, vy, goal_x, goal_y, metric.arrivals, reward.point, left.point",
    ),
    "a misspelt margin of an observation": (
        "observe",
        lambda o: o.margin.update({"obs.point": np.ones(1)}),
        "observe's Observed.margin has 'obs.point', and nothing that is compared is called that. Did you mean 'point'?",
    ),
    "a field more": (
        "step",
        lambda o: o.state.update(z=o.state["x"]),
        "step's Outcome.state has 'z', and nothing that is compared is called that. There are: x, y, vx, vy, goal_x, goal_y",
    ),
    "a group more": (
        "step",
        lambda o: o.reward.update(points=o.reward["point"]),
        "Outcome.reward has 'points', and nothing",
    ),
    "a metric more": (
        "step",
        lambda o: o.metrics.update(wins=o.metrics["arrivals"]),
        "Outcome.metrics has 'wins', and nothing",
    ),
    "a mask without one": (
        "observe",
        lambda o: o.mask.update(point=o.obs["point"]),
        "Observed.mask has 'point', and nothing",
    ),
    "an observation that is too short": (
        "observe",
        lambda o: o.obs.update(point=o.obs["point"][..., :5]),
        "obs.point has shape (1, 3, 6) by the Group's count and obs_dim, and the reference gives (1, 3, 5)",
    ),
    "no observation": (
        "observe",
        lambda o: o.obs.clear(),
        "observe's Observed.obs lacks 'point'; it must hold every group",
    ),
    "an int observation": (
        "observe",
        lambda o: o.obs.update(point=o.obs["point"].astype(int)),
        "observe's obs['point'] is int64; it must be floating",
    ),
}


def answered_by(written_env, function, change):
    """Return the environment whose reference's ``function`` returns what ``change`` has made of its result."""
    spec, text = written_env
    return replace(spec, kernel=text, cases=({},), **{function: lambda *args: change(getattr(spec, function)(*args))})


@pytest.mark.full
@pytest.mark.parametrize("mistake", WRONG_ANSWERS)
def test_a_reference_that_returns_something_else_is_told_so(written_env, mistake):
    function, change, words = WRONG_ANSWERS[mistake]
    spec = answered_by(written_env, function, lambda answer: (change(answer), answer)[1])
    with pytest.raises(SpecError, match=f"^mine: .*{re.escape(words)}"):
        check(spec, agent_steps=10, device="cpu", fail_fast=True, progress=False)


@pytest.mark.full
@pytest.mark.parametrize("function", ["reset", "sample"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda states: None, r"returns a NoneType; it must return \(\d+,\) states, such as np\.zeros\(n, \["),
        (lambda states: states["x"], r"returns an ndarray; it must return \(\d+,\) states"),
        (lambda states: states[["x", "y"]], r"result lacks 'vx'; it must hold every field of the state: x, y, vx, vy"),
        (lambda states: states[:-1], r"returns states of shape \(\d+,\); it must be \(\d+,\)"),
    ],
)
def test_states_that_are_none_are_told_so(written_env, function, change, words):
    with pytest.raises(SpecError, match=f"^mine: {function}.*{words}"):
        check(answered_by(written_env, function, change), agent_steps=10, device="cpu", progress=False)


@pytest.mark.full
@pytest.mark.parametrize(
    ("function", "right", "wrong"),
    [
        ("step", "    velocity = velocity + ", '    states["vx"] += 1.0\n    velocity = velocity + '),
        ("step", "    velocity = velocity + ", '    action["point"].sort()\n    velocity = velocity + '),
        ("observe", "    to_x, to_y = ", '    states["x"][:, 0] = 0.0\n    to_x, to_y = '),
    ],
)
def test_a_reference_that_writes_into_what_it_is_given_is_told_so(tmp_path, function, right, wrong):
    python, _ = new("writing", tmp_path)
    text = python.read_text()
    assert text.count(right) == 1
    python.write_text(text.replace(right, wrong))
    with pytest.raises(SpecError) as caught:
        check(str(python), agent_steps=10, device="cpu", progress=False)
    line = 1 + text[: text.index(right)].count("\n")
    written = wrong.partition("\n")[0].strip()
    assert str(caught.value).startswith(
        f"writing: `{function}` changes an array that it is given in {python}:{line}, `{written}` ("
    )
    assert str(caught.value).endswith("states = states.copy(): what is compared later needs it as it was")


@pytest.mark.full
def test_an_error_of_a_reference_that_is_no_writing_stays_as_it_is(written_env):
    def fail(outcome):
        raise ValueError("of the author's own")

    with pytest.raises(ValueError, match=r"^of the author's own$"):
        check(answered_by(written_env, "step", fail), agent_steps=10, device="cpu", progress=False)


@pytest.mark.full
@pytest.mark.parametrize(("function", "type_name"), [("step", "Outcome"), ("observe", "Observed")])
def test_a_reference_that_returns_no_answer_is_told_so(written_env, function, type_name):
    spec = answered_by(written_env, function, lambda answer: None)
    with pytest.raises(SpecError, match=f"mine: {function} returns a NoneType; it must return a cupydrive.{type_name}"):
        check(spec, agent_steps=10, device="cpu", fail_fast=True, progress=False)


@pytest.mark.full
@pytest.mark.parametrize("sample", [True, False])
def test_a_drawing_that_fails_is_told_with_its_line(tmp_path, sample):
    python, _ = new("drawn", tmp_path)
    right = 'canvas.circle((now["goal_x"], now["goal_y"]), p.goal_radius, canvas.GREEN)'
    wrong = right.replace("GREEN", "GREN")
    text = python.read_text()
    assert text.count(right) == 1
    python.write_text(text.replace(right, wrong))
    spec = envs.get(str(python))
    report = check(
        spec if sample else replace(spec, sample=None), agent_steps=600, device="cpu", fail_fast=True, progress=False
    )
    what = "a state of `sample`" if sample else "a played state"
    line = 1 + python.read_text()[: python.read_text().index(wrong)].count("\n")
    said = f"`draw` cannot show {what}: {python}:{line}: AttributeError: 'Canvas' object has no attribute 'GREN'"
    first, *others = report.failures()
    assert first.startswith(said) and f"(`{wrong}`), with default parameters; draw, on a small picture" in first
    assert len(others) == sample  # the played state, too


@pytest.mark.full
def test_a_drawing_is_tried_on_a_state_alone_and_on_some_of_an_episode(written_env):
    spec, text = written_env
    seen = []

    def draw(canvas, p, states, elapsed):
        spec.draw(canvas, p, states, elapsed)
        seen.append((p.num_points, len(states), elapsed, states.dtype == spec.state_dtype(p)))

    report = check(replace(spec, kernel=text, draw=draw, trail=2), agent_steps=600, device="cpu", progress=False)
    assert seen == [(n, *how, True) for n in (3, 1, 40) for how in ((1, 0), (3, 3))]
    assert [row for row in report.parts() if row[0].startswith("draw")] == [
        ("draw, on a small picture", 2, 6, 0.0, 0, False)
    ]
    report = check(replace(spec, kernel=text, draw=None), agent_steps=600, device="cpu", progress=False)
    assert not any(row[0].startswith("draw") for row in report.parts())


def test_a_field_that_observe_computes_may_be_left_out(written_env):
    """As ``Observed.state`` says; and all that the reference has no ``observe`` for."""
    spec, _ = written_env
    params, action = spec.make_params(), {"point": np.zeros((2, 3), int)}
    groups, states = spec.groups(params), spec.sample(params, np.random.default_rng(0), 2)
    outcome, seen = (
        spec.step(params, states, action, np.ones(2, int), None),
        spec.observe(params, states, np.ones(2, int)),
    )
    del outcome.state["goal_y"]
    require_outcome(spec, params, groups, outcome, replace(seen, state={"goal_y": states["goal_y"]}))
    require_outcome(spec, params, groups, outcome, None)
    with pytest.raises(SpecError, match="lacks 'goal_y'"):
        require_outcome(spec, params, groups, outcome, seen)


@pytest.mark.full
@pytest.mark.parametrize("horizon", ["task", "limit"])
@pytest.mark.parametrize("margin", [False, True])
def test_an_end_for_each_agent_is_told_its_shape(written_env, horizon, margin):
    spec, text = written_env

    def step(*given):
        outcome, per_agent = spec.step(*given), np.zeros((len(given[1]), 1))
        outcome.margin.pop("terminated", None)
        return replace(outcome, margin=outcome.margin | {"terminated": per_agent}) if margin else replace(
            outcome, terminated=per_agent > 1
        )  # fmt: skip

    what = r"margin\['terminated'\]" if margin else "terminated"
    with pytest.raises(
        SpecError, match=rf"step's {what} has shape \((\d+), 1\), expected \(\1,\): one value for each env"
    ):
        check(replace(spec, kernel=text, step=step, horizon=horizon), agent_steps=100, device="cpu", progress=False)


@pytest.mark.parametrize(("value", "said"), [(3.08216e-41, True), (-1e-39, True), (0.0, False), (1.2e-38, False)])
def test_a_number_below_the_normal_ones_is_perhaps_memory_that_was_never_written(value, said):
    report = Report("e", ["cpu"], [{}], 0)
    report.compare(REFERENCE, "obs.a", np.float32([value]), np.float64([0.5]), scale=1.0)
    assert ("; so small a number is perhaps memory that was never written; " in report.failures()[0]) == said


def test_a_report_is_text_where_there_is_no_standard_output(monkeypatch):
    report = Report("für", ["cpu"], [{}], 0)
    want = str(report)
    for stream in (None, object()):
        monkeypatch.setattr(sys, "stdout", stream)
        assert str(report) == want
