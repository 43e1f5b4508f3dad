"""A report names the first difference: field, environment, agent, step and both values."""

import numpy as np
import pytest

from cupydrive.checks.bits import compare_bits
from cupydrive.checks.report import REFERENCE, Report


def test_axes_are_named_by_what_they_count():
    report = Report("e", ["cpu"], [{}], 0)
    zeros = np.zeros((5, 4, 3, 2), np.float32)
    other = zeros.copy()
    other[3, 2, 1, 0] = 1
    for name, at, axes in (
        ("obs.pole", "step 3, environment 2, agent 1, entry 0", 3),
        ("state.x", "environment 3, agent 2, index 1, index 0", 4),
        ("state.x", "environment 3, index 2, index 1, index 0", 9),
        ("clock.elapsed", "environment 3, agent 2, entry 1", 3),
    ):
        compare_bits(report, at, {name: other}, {name: zeros}, axes, ("team of 8", "team of 1"))
        assert (
            report.tallies[at, name].failure
            == f"{name}: {at}: team of 8 1, team of 1 0 (1 of 5 rows)"
        )
    report.compare("where", "x", other, zeros, where=np.arange(5) > 1, step=np.arange(5) * 10)
    assert report.tallies["where", "x"].failure.startswith(
        "x: environment 3, agent 2, entry 1, entry 0, step 30: kernel 1, ref"
    )
    some = np.zeros((5, 4, 3), bool)
    some[3, 2, 1] = some[1, 1, 1] = True
    report.compare("some", "x", other, zeros, where=some, axes=("step", "environment", "agent"))
    assert report.tallies["some", "x"].failure == (
        "x: step 3, environment 2, agent 1: kernel 1, reference 0 (1 of 2 rows)"
    )


def test_a_row_that_rounding_tips_is_excused():
    report, zeros = Report("e", ["cpu"], [{}], 0), np.zeros(5, np.float32)
    report.compare("here", "x", zeros, zeros, scale=1.0, margin=zeros)
    # rows that agree need no excuse, however near a decision was
    assert report.tallies["here", "x"].excused == 0
    other = zeros.copy()
    other[3] = 1
    report.compare("here", "x", other, zeros, scale=1.0, margin=np.float32([1, 1, 1, 0, 1]))
    assert report.tallies["here", "x"].excused == 1 and report.passed
    report.compare("here", "x", other, zeros, scale=1.0, margin=np.float32([0, 0, 0, 1, 0]))
    assert (
        report.tallies["here", "x"].failure.startswith("x: environment 3: kernel 1, reference 0")
        and not report.passed
    )


@pytest.mark.parametrize(
    ("cases", "case", "words"),
    [
        (({},), 0, "environment 1: kernel"),
        (({}, {"n": 2}), 0, "environment 1, with default parameters: kernel"),
        (({}, {"n": 2}), 1, "environment 1, with n=2: kernel"),
    ],
)
def test_a_failure_names_the_parameters_of_its_case(cases, case, words):
    report = Report("e", ["cpu"], list(cases), 0)
    report.case = cases[case]
    report.compare(REFERENCE, "terminated", np.array([True, True]), np.array([True, False]))
    assert report.failures() == [
        f"terminated: {words} True, reference False (1 of 2 rows); {REFERENCE}"
    ]


NAN, INF = np.float32(np.nan), np.float32(np.inf)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ((1, NAN), (1, 1)),
        ((1, INF), (1, 1)),
        ((1, NAN), (1, NAN)),
        ((1, INF), (1, INF)),
        ((1, 1), (1, NAN)),
    ],
)
def test_what_is_not_finite_agrees_with_nothing_and_a_near_decision_excuses_no_kernel(got, want):
    report = Report("e", ["cpu"], [{}], 0)
    got, want = np.float32(got), np.float64(want)
    report.compare(
        REFERENCE, "reward.a", got, want, scale=1.0, margin=np.where(np.isfinite(got), 1.0, 0.0)
    )
    assert report.failures()[0].startswith(
        f"reward.a: environment 1: kernel {got[1]:g}, reference {want[1]:g} (1 of "
    )


def test_a_fault_comes_before_differences_that_it_may_cause():
    report = Report("e", ["cpu"], [{}], 0)
    report.compare(REFERENCE, "reward.a", np.float32([2]), np.float64([1]), scale=1.0)
    report.fault("bounds", "bounds", "index 5 is outside", rule=True)
    assert [text.partition(";")[0][:18] for text in report.failures()] == [
        "index 5 is outside",
        "reward.a: environm",
    ]
