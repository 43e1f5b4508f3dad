"""A check says what is wrong: a value that is no number, the parameters of its case, what a reference lacks or mistypes."""

from dataclasses import replace

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.checks.causes import REFERENCE
from cupydrive.checks.checker import check
from cupydrive.checks.report import Report
from cupydrive.cli.scaffold import new

pytestmark = pytest.mark.checker


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


def test_a_kernel_that_gives_nan_is_told_so_before_all_that_follows(written_env):
    spec, text = written_env
    first, *others = failures(
        replace(spec, cases=({},)), text, "math::sqrt(dx * dx + dy * dy)", "math::sqrt(-dx * dx - dy * dy)"
    )
    assert first.startswith("the kernel gives NaN in reward.point (a square root ")
    assert "; reward.point: environment " in first and ": kernel nan, reference -" in first
    assert any(text.startswith("terminated: ") for text in others)  # that came first, and blamed step's end
    assert all(", and nan agrees with nothing (" in text for text in others if "kernel nan, reference nan" in text)


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
