"""Laws of the checker: it passes what is right, and fails what is wrong in any of the ways below."""

import html
import itertools
import json
import re
import shutil
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.checks.bits import compare_bits, device_envs
from cupydrive.checks.causes import PATHS, REFERENCE, RESETS, STATISTICS, TEAMS
from cupydrive.checks.checker import check
from cupydrive.checks.report import Report, write_json
from cupydrive.cli.scaffold import new
from cupydrive.codegen.source import kernel_text

STEPS = 20_000


# rice_n's takes a minute where nothing is compiled yet; in `make test` the demo's test checks it, with fewer steps.
@pytest.mark.quick(9)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "rice_n" else n for n in envs.names()]
)
def test_every_environment_passes(name, tmp_path):
    report = check(name, agent_steps=STEPS, device="cpu", progress=False)
    assert report.passed, str(report)
    assert report.agent_steps >= STEPS
    assert all(times > 0 for times in report.events.values())
    write_json(tmp_path / "report.json", [report])
    (read,) = json.loads((tmp_path / "report.json").read_text())
    assert read["passed"] and read["env"] == name and read["comparisons"]
    assert "PASS" in report._repr_html_() and "PASS" in str(report)
    said = f"PASS  {name}: {report.number_of_cases()} on cpu, {report.agent_steps:,} agent-steps against the reference"
    assert report.summary == f"{said} (seed 0)" == str(report).splitlines()[0]


WRONG = [
    (
        "cartpole",
        "s.x += p.tau * s.x_dot;\n    s.x_dot += p.tau * x_acc;",
        "s.x_dot += p.tau * x_acc;\n    s.x += p.tau * s.x_dot;",
    ),
    ("cartpole", "4.0f / 3.0f", "1.25f"),
    ("cartpole", "math::abs(s.theta) > p.theta_limit", "s.theta > p.theta_limit"),
    ("tag_grid", "(action == 3) - (action == 4)", "(action == 3) - (action == 2)"),
    ("tag_grid", "env.team.sync();  // everybody has moved", "// everybody has moved"),
    ("tag_grid", "? RUNNER : chaser;", "? RUNNER : NUM_TAGGERS - 1 - chaser;"),
    ("tag_continuous", "env.team.sync();  // everybody has moved, all tags are 0", ""),
    ("tag_continuous", "env.team.sync();  // all tags are counted", ""),
    ("tag_continuous", "(j != i) & is_tagger(j)", "is_tagger(j)"),
    # The next two only in `make test-all`.
    ("tag_continuous", "speed <= 0.0f || speed >= top ?", "speed <= 0.0f || speed > top ?"),
    ("tag_continuous", "env.team.add(env.shared.tags, tagger, 1);", "env.shared.tags[tagger] = 1;"),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "right", "wrong"), [*WRONG[:-2], *(pytest.param(*case, marks=pytest.mark.slow) for case in WRONG[-2:])]
)
def test_a_wrong_kernel_fails_with_place_and_values(name, right, wrong):
    text = kernel_text(envs.get(name))[1]
    assert text.count(right) == 1
    cases = envs.get(name).cases
    # Without a sync only the comparison with a team fails, which comes after the reference's of all cases.
    spec = replace(envs.get(name), kernel=text.replace(right, wrong), cases=cases[:1] if "sync" in right else cases)
    report = check(spec, agent_steps=STEPS, device="cpu", fail_fast=True, progress=False)
    assert not report.passed
    assert re.search(r"environment \d+.*: .+ [-\w.]+, .+ [-\w.]+ \([\d,]+ of [\d,]+ rows\)", report.failures()[0])


@pytest.mark.full
@pytest.mark.parametrize("fail_fast", [False, True])
def test_fail_fast_leaves_out_what_comes_after_the_first_failure(fail_fast):
    text = kernel_text(envs.get("cartpole"))[1].replace("4.0f / 3.0f", "1.25f")
    spec = replace(envs.get("cartpole"), kernel=text, events=("never happens",))
    report = check(spec, agent_steps=1000, device="cpu", fail_fast=fail_fast, progress=False)
    assert not report.passed and report.mismatched
    assert ("what comes after the first failure" in report.skipped) == fail_fast
    assert any(text.startswith("event never seen: never happens; ") for text in report.failures()) != fail_fast
    assert any("bounds-checked" in t.part for t in report.tallies.values()) != fail_fast


@pytest.mark.full
@pytest.mark.parametrize("excluded", [False, True])
def test_a_branch_that_no_draw_takes_fails_unless_its_line_says_why(excluded):
    """The altered kernel computes the same numbers: no comparison can see that a part of it has never run."""
    text, step = kernel_text(envs.get("cartpole"))[1], "s.x += p.tau * s.x_dot;"
    assert text.count(step) == 1
    comment = "  // LCOV_EXCL_BR_LINE: there is no such planet" if excluded else ""
    spec = replace(
        envs.get("cartpole"), kernel=text.replace(step, f"if (p.gravity > 1e6f) s.x = 0.0f;{comment}\n    {step}")
    )
    report = check(spec, agent_steps=1000, device="cpu", progress=False)
    assert not any("branches" in reason for reason in report.skipped)
    assert report.passed == excluded
    if not excluded:
        (failure,) = report.failures()
        line = 1 + spec.kernel.splitlines().index("    if (p.gravity > 1e6f) s.x = 0.0f;")
        place, words = f"<kernel of cartpole>:{line}", "1 of 2 ways that its conditions can go were never taken"
        assert failure.startswith(f"{place}: {words}: `if (p.gravity > 1e6f) s.x = 0.0f;`. Let ")
        assert failure.count(f"{line}") == 1  # the place is said once


@pytest.mark.full
def test_of_several_conditions_it_is_said_which_went_one_way_only():
    text, step = kernel_text(envs.get("cartpole"))[1], "s.x += p.tau * s.x_dot;"
    line = "if (s.x > 0.0f && p.gravity < 1e6f && s.theta > 0.0f) s.x_dot = s.x_dot + 0.0f;"
    spec = replace(envs.get("cartpole"), kernel=text.replace(step, f"{line}\n    {step}"))
    (failure,) = check(spec, agent_steps=1000, device="cpu", progress=False).failures()
    words = "1 of 6 ways that its conditions can go were never taken (of its 3 conditions, as they are asked, number 2): `if "
    assert words in failure


@pytest.mark.full
def test_where_branches_cannot_be_counted_the_report_says_so(monkeypatch, tmp_path):
    """With a compiler beside which there is no gcov."""
    (tmp_path / "g++-none").symlink_to(shutil.which("g++"))
    monkeypatch.setenv("CXX", str(tmp_path / "g++-none"))
    report = check("cartpole", agent_steps=1000, device="cpu", progress=False)
    assert report.passed
    assert "branches that no case takes: there is no gcov-none, which comes with g++" in report.skipped


@pytest.mark.full
def test_events_are_those_that_the_reference_names():
    report = check("cartpole", agent_steps=1000, device="cpu", progress=False)
    assert report.passed and {"fell left", "balanced", "pushed right"} < set(report.events)


@pytest.mark.full
def test_an_event_that_never_happens_fails():
    spec = replace(envs.get("cartpole"), events=("flies",))
    report = check(spec, agent_steps=1000, device="cpu", progress=False)
    (failure,) = report.failures()
    assert failure == (
        "event never seen: flies; parameters of `cases` or a state of `sample` must lead to it, or its condition is wrong"
    )


@pytest.mark.full
def test_an_event_that_a_step_forgets_now_and_then_fails():
    """Otherwise one that is named only where it happens could never be missed."""
    whole, calls = envs.get("cartpole"), itertools.count()

    def step(*args):
        outcome = whole.step(*args)
        if next(calls) == 2:
            del outcome.events["fell left"]
        return outcome

    report = check(replace(whole, step=step), agent_steps=1000, device="cpu", progress=False)
    assert report.failures() == ["event that `step` does not name in every call: fell left"]


# What beginners do to the environment of `cupydrive new`: a text to replace, and how the report begins then.
EACH = "  int arrived = 0;\n  for (int i : env.team.each(NUM_AGENTS)) {"
MISTAKES = {
    "no leader guard": (
        ("if (env.team.leader()) s.ticks += 1;", "s.ticks += 1;"),
        r"`step`: two members of a team write `state\.ticks` between .*`if \(env\.team\.leader\(\)\)`",
    ),
    "a sync that not all reach": (
        ("  return env.team.sum", "  if (env.team.leader()) env.team.sync();\n  return env.team.sum"),
        r"the members of a team of 4 call different numbers of team\.sync\(\), any, sum, min or before\. All members must ",
    ),
    "a field that reset forgets": (
        ("s.vx[i] = s.vy[i] = 0.0f;", "s.vx[i] = 0.0f;"),
        r"reset gives another state than the reference; state\.vy: environment \d+, agent \d: kernel \S+, reference 0 \(",
    ),
    "an entry of the observation too far": (
        ("row[4] = s.goal_x - s.x[i];\n    row[5]", "row[3] = s.goal_x - s.x[i];\n    row[4]"),
        r"observe gives something else .* for the same state; obs\.point: environment \d+, agent \d, entry 3, step ",
    ),
}
MISTAKES_TOO = {
    "a sum that not all reach": (
        ("    arrived += there;", "    arrived += env.team.sum(there);"),
        r"the members of a team of 4 call different numbers of .*: none stands .* in a loop over env\.team\.each\(n\), ",
    ),
    "a loop over all by everybody": (
        (EACH, EACH.replace("int i : env.team.each(NUM_AGENTS)", "int i = 0; i < NUM_AGENTS; ++i")),
        r"`step`: two members of a team write `state\.\w+\[\d+\]` between .*for \(int i : env\.team\.each\(n\)\)",
    ),
    "ends before all are there": (
        ("return env.team.sum(arrived) ==", "return arrived =="),
        r"every member of a team runs .*env\.team\.sum, min or any first, and env\.team\.sync\(\) stands .*"
        r"; terminated: environment \d+: a team of 4 False, ",
    ),
    "a wrong sign": (
        ("- p.drag * s.vx[i]", "+ p.drag * s.vx[i]"),
        r"step gives another state than the reference; state\.vx: environment \d+, agent \d, step \d+: kernel \S+, reference ",
    ),
    "the reward of the first alone": (
        ("env.point.reward(i) =", "if (i == 0) env.point.reward(i) ="),
        r"step gives other rewards than the reference; reward\.point: environment \d+, agent [12], step \d+: kernel 0, ",
    ),
    "an end by elapsed": (
        (
            "return env.team.sum(arrived) == NUM_AGENTS",
            "return env.elapsed > 10 || env.team.sum(arrived) == NUM_AGENTS",
        ),
        r"step ends the episode .*; terminated: environment \d+, step \d+: kernel True, reference False \(",
    ),
}


@pytest.fixture(scope="module")
def written_env(tmp_path_factory):
    """Return the ``EnvSpec`` of ``cupydrive new`` with a counter in its state, and its kernel's text."""
    python, kernel = new("mine", tmp_path_factory.mktemp("mine"))
    python.write_text(
        python.read_text()
        .replace('Field("goal_y", scale=1.0, unit="m"),', 'Field("goal_y", scale=1.0, unit="m"), Field("ticks", "i4"),')
        .replace('"goal_y": states["goal_y"],', '"goal_y": states["goal_y"], "ticks": states["ticks"] + 1,')
    )
    text = kernel.read_text().replace("goal_x, goal_y; }", "goal_x, goal_y; int ticks; }")
    text = text.replace("    s.goal_x = 2.0f", "    s.ticks = 0;\n    s.goal_x = 2.0f")
    text = text.replace("  int arrived = 0;", "  if (env.team.leader()) s.ticks += 1;\n  int arrived = 0;")
    kernel.write_text(text)
    return replace(envs.get(str(python)), cases=({},)), text


@pytest.mark.full
@pytest.mark.parametrize("mistake", [*MISTAKES, *(pytest.param(name, marks=pytest.mark.slow) for name in MISTAKES_TOO)])
def test_the_first_line_is_the_cause(written_env, mistake):
    spec, text = written_env
    (right, wrong), words = (MISTAKES | MISTAKES_TOO)[mistake]
    assert text.count(right) == 1
    report = check(replace(spec, kernel=text.replace(right, wrong)), agent_steps=600, device="cpu", progress=False)
    first, table, page = str(report).splitlines()[0], str(report), report._repr_html_()
    assert re.match(f"FAIL  mine: {words}", first) and report.summary == first, first
    assert html.escape(report.failures()[0]) in page and page.index("FAIL") < page.index("<table>")
    failed = {t.part for t in report.tallies.values() if t.failure}
    marked = {line.strip().split("  ")[0] for line in table.splitlines() if line.endswith("  FAILED")}
    assert marked == failed and page.count("<td>FAILED</td>") == len(failed)


@pytest.mark.full
def test_results_may_not_depend_on_the_cache(written_env):
    spec, text = written_env
    include, begin = '#include "drive/env.cuh"', "  int arrived = 0;"
    assert text.count(include) == 1 and text.count(begin) == 1
    text = text.replace(include, f"struct Cache {{ float reward; }};\n{include}")
    kept = text.replace(begin, f"  if (env.team.leader()) env.cache.reward = 1.0f;\n{begin}")
    used = text.replace(begin, f"  if (env.team.leader()) s.ticks += env.cache.reward > 0.0f;\n{begin}")
    assert check(replace(spec, kernel=kept), agent_steps=600, device="cpu", progress=False).passed
    report = check(replace(spec, kernel=used), agent_steps=600, device="cpu", progress=False)
    assert not report.passed and any(t.failure for t in report.tallies.values() if "bit for bit" in t.part)


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
        assert report.tallies[at, name].failure == f"{at}: team of 8 1, team of 1 0 (1 of 5 rows)"
    report.compare("where", "x", other, zeros, where=np.arange(5) > 1, step=np.arange(5) * 10)
    assert report.tallies["where", "x"].failure.startswith(
        "environment 3, agent 2, entry 1, entry 0, step 30: kernel 1, ref"
    )


def test_a_row_that_rounding_tips_is_excused_and_said_to_be():
    report, zeros = Report("e", ["cpu"], [{}], 0), np.zeros(5, np.float32)
    report.compare("here", "x", zeros, zeros, scale=1.0, margin=zeros)
    assert "excused: rows" not in str(report)  # rows that agree need no excuse, however near a decision was
    other = zeros.copy()
    other[3] = 1
    report.compare("here", "x", other, zeros, scale=1.0, margin=np.float32([1, 1, 1, 0, 1]))
    assert report.tallies["here", "x"].excused == 1 and report.passed and "excused: rows" in str(report)
    report.compare("here", "x", other, zeros, scale=1.0, margin=np.float32([0, 0, 0, 1, 0]))
    assert report.tallies["here", "x"].failure.startswith("environment 3: kernel 1, reference 0") and not report.passed


@lru_cache(maxsize=1)
def compared_of(spec):
    """Return (part, name) of all that a check of ``spec`` compares."""
    return {(t.part, t.name) for t in check(spec, agent_steps=100, device="cpu", progress=False).tallies.values()}


# Pictures compare nothing, and there are fewer without a `sample`.
SMALL_TAG = replace(envs.get("tag_grid"), cases=({"num_taggers": 2, "grid_length": 2},), events=(), draw=None)


@pytest.mark.full
@pytest.mark.parametrize(
    "missing", [("reset", "step", "observe", "sample"), ("reset",), ("step",), ("observe",), ("sample",)]
)
def test_what_has_no_reference_is_checked_as_far_as_it_goes(missing):
    spec = replace(SMALL_TAG, **dict.fromkeys(missing))
    report = check(spec, agent_steps=2000, device="cpu", progress=False)
    assert not report.mismatched and report.events["autoreset"] and report.events["time limit reached"], str(report)
    words = {4: "without a reference (", 1: "without a reference of `step` ("}[len(missing)]
    assert (words if "step" in missing else "against the reference (") in str(report)
    said = [text for text in report.skipped if "the environment has no " in text]
    assert len(said) == len(missing) and all(f"`{m}`" in text for m, text in zip(missing, said, strict=True))
    assert all(f"not done: {text}" in str(report) for text in said)
    parts = {t.part for t in report.tallies.values()}
    assert {f"cpu: {STATISTICS}", f"cpu: {RESETS}", f"cpu: {PATHS}", f"cpu: {TEAMS}"} <= parts
    left_out = compared_of(SMALL_TAG) - {(t.part, t.name) for t in report.tallies.values()}
    assert bool(left_out) == (missing != ("sample",))
    assert {part.partition(" ")[2] for part, _ in left_out} <= {REFERENCE, RESETS, STATISTICS}, left_out


@pytest.mark.full
def test_a_kernel_without_a_reference_still_keeps_the_rules_of_teams():
    spec = replace(envs.get("tag_grid"), **dict.fromkeys(("reset", "step", "observe", "sample")))
    text = kernel_text(spec)[1].replace("env.team.sync();  // everybody has moved", "")
    spec = replace(spec, kernel=text, cases=({"num_taggers": 2, "grid_length": 2},))
    report = check(spec, agent_steps=500, device="cpu", progress=False)
    assert str(report).startswith("FAIL  tag_grid: every member of a team"), str(report)
    assert "agent-steps without a reference" in str(report)


@pytest.mark.parametrize("name", envs.names())
def test_devices_are_compared_on_as_much_as_fits(name):
    """On 1,000 agents and 200,000 entries of observations a step at most, but for four environments, the fewest there are."""
    spec = envs.get(name)
    for case in spec.cases:
        groups = spec.groups(spec.make_params(**case))
        agents, entries = sum(g.count for g in groups), sum(g.count * g.obs_dim for g in groups)
        n = device_envs(groups)
        assert 4 <= n <= 1000 and (n == 4 or (n * agents <= 1000 and n * entries <= 200_000))
        assert n == 1000 or (n + 1) * agents > 1000 or (n + 1) * entries > 200_000
