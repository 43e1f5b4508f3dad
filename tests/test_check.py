"""Laws of the checker: it passes what is right, and fails what is wrong in any of the ways below."""

import json
from dataclasses import replace

import pytest

from cupydrive import envs
from cupydrive.checker import check
from cupydrive.report import write_json
from cupydrive.source import kernel_text

pytestmark = pytest.mark.checker
STEPS = 20_000


@pytest.mark.parametrize("name", envs.names())
def test_every_environment_passes(name, tmp_path):
    report = check(name, agent_steps=STEPS, device="cpu", progress=False)
    assert report.passed, str(report)
    assert report.agent_steps >= STEPS
    assert all(times > 0 for times in report.events.values())
    write_json(tmp_path / "report.json", [report])
    (read,) = json.loads((tmp_path / "report.json").read_text())
    assert read["passed"] and read["env"] == name and read["comparisons"]
    assert "PASS" in report._repr_html_() and "PASS" in str(report)


WRONG = [
    (
        "cartpole",
        "s.x += p.tau * s.x_dot;\n    s.x_dot += p.tau * x_acc;",
        "s.x_dot += p.tau * x_acc;\n    s.x += p.tau * s.x_dot;",
    ),
    ("cartpole", "4.0f / 3.0f", "1.25f"),
    ("cartpole", "math::abs(s.theta) > p.theta_limit", "s.theta > p.theta_limit"),
    ("tag_grid", "X_MOVES >> 2 * action", "Y_MOVES >> 2 * action"),
    ("tag_grid", "env.team.sync();  // everybody has moved", "// everybody has moved"),
    ("tag_grid", "nearest = key < nearest ? key : nearest;", "nearest = key > nearest ? key : nearest;"),
    ("tag_continuous", "env.team.sync();  // everybody has moved, all tags are 0", ""),
    ("tag_continuous", "env.team.sync();  // all tags are counted", ""),
    ("tag_continuous", "(speed <= 0.0f) | (speed >= limit)", "(speed <= 0.0f) | (speed > limit)"),
    ("tag_continuous", "(j != i) & is_tagger(j)", "is_tagger(j)"),
    ("tag_continuous", "env.team.add(env.shared.tags, tagger, 1);", "env.shared.tags[tagger] = 1;"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG)
def test_a_wrong_kernel_fails_with_place_and_values(name, right, wrong):
    text = kernel_text(envs.get(name))[1]
    assert text.count(right) == 1
    cases = envs.get(name).cases
    # Without a sync only the comparison with a team fails, which comes after the reference's of all cases.
    spec = replace(envs.get(name), kernel=text.replace(right, wrong), cases=cases[:1] if "sync" in right else cases)
    report = check(spec, agent_steps=STEPS, device="cpu", fail_fast=True, progress=False)
    assert not report.passed
    assert "instead of" in " ".join(report.failures())


@pytest.mark.parametrize("fail_fast", [False, True])
def test_fail_fast_leaves_out_what_comes_after_the_first_failure(fail_fast):
    text = kernel_text(envs.get("cartpole"))[1].replace("4.0f / 3.0f", "1.25f")
    spec = replace(envs.get("cartpole"), kernel=text, events=("never happens",))
    report = check(spec, agent_steps=1000, device="cpu", fail_fast=fail_fast, progress=False)
    assert not report.passed and report.mismatched
    assert ("what comes after the first failure" in report.skipped) == fail_fast
    assert ("event never seen: never happens" in report.failures()) != fail_fast
    assert any("bounds-checked" in t.part for t in report.tallies.values()) != fail_fast


def test_an_event_that_never_happens_fails():
    spec = replace(envs.get("cartpole"), events=(*envs.get("cartpole").events, "flies"))
    report = check(spec, agent_steps=1000, device="cpu", progress=False)
    assert report.failures() == ["event never seen: flies"]
