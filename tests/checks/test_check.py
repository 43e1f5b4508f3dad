"""Laws of the checker: it passes what is right, and fails what is wrong in any of the ways
below.
"""

import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from gymnasium import spaces

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.checker import check
from cupydrive.checks.report import ADVICE, PATHS, REFERENCE, RESETS, STATISTICS, TEAM_CASE
from cupydrive.cli.scaffold import new
from cupydrive.codegen.source import kernel_text

STEPS = 20_000


# Checked by `make test`: one agent and several, floats, bools, turns.
FIRST = ("cartpole", "tag_grid", "minatar_breakout", "connect_four")
# rice_n's takes a minute where nothing is compiled yet; in `make test` the demo's test checks it,
# with fewer steps.
LAST = pytest.param("rice_n", marks=pytest.mark.slow)
OTHERS = [name for name in envs.names() if name not in (*FIRST, "rice_n")]


@pytest.mark.quick(len(FIRST))
@pytest.mark.parametrize("name", [*FIRST, *OTHERS, LAST])
def test_every_environment_passes(name):
    report = check(name, agent_steps=STEPS, device="cpu", progress=False)
    assert report.passed, str(report)
    assert report.agent_steps >= STEPS
    assert all(times > 0 for times in report.events.values())
    read = json.loads(json.dumps(report.to_dict()))
    assert read["passed"] and read["env"] == name and read["comparisons"]
    assert str(report).splitlines()[0] == report.summary
    assert (
        report.summary.startswith(f"PASS  {name}: ")
        and f" {report.agent_steps:,} agent-steps" in report.summary
    )


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
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("name", "right", "wrong"), WRONG)
def test_a_wrong_kernel_fails_with_place_and_values(name, right, wrong):
    text = kernel_text(envs.get(name))[1]
    assert text.count(right) == 1
    cases = envs.get(name).cases
    # Without a sync only the comparison with a team fails, which comes after the reference's of all
    # cases.
    spec = replace(
        envs.get(name),
        kernel=text.replace(right, wrong),
        cases=cases[:1] if "sync" in right else cases,
    )
    report = check(spec, agent_steps=STEPS, device="cpu", fail_fast=True, progress=False)
    assert not report.passed
    assert re.match(
        r"[\w.]+: .*environment \d+.*: .+ [-\w.]+, .+ [-\w.]+ \([\d,]+ of [\d,]+ rows\)",
        report.failures()[0],
    )


def without_an_event(name):
    """Return CartPole, whose reference names one more event, which never happens."""
    spec = envs.get("cartpole")

    def step(*given):
        outcome = spec.reference.step(*given)
        return replace(outcome, events=outcome.events | {name: np.zeros_like(outcome.terminated)})

    return replace(spec, reference=replace(spec.reference, step=step))


WIND = """
struct Params { float wind; };
struct State { float x; };
#include "drive/env.cuh"
DEVICE void reset(Env& env) { env.state.x = 0.0f; }
DEVICE bool step(Env& env) {
  if (env.team.leader()) env.state.x = env.params.wind;
  return false;
}
DEVICE void observe(Env& env) { if (env.team.leader()) env.kite.obs(0)[0] = env.state.x; }
"""


@dataclass(frozen=True)
class Wind:
    wind: float = cd.param(0.0, "Wind.")
    max_episode_steps: int = cd.param(40, "Time limit.", low=1)


@pytest.mark.full
def test_floats_are_drawn_around_the_value_of_a_case_and_only_zeros_are_reported():
    def blown(p, states, action, elapsed, random):
        n = len(states)
        return cd.StepResult(
            {"x": np.full(n, p.wind)}, {"kite": np.zeros((n, 1))}, np.zeros(n, bool)
        )

    def of(wrong, *cases):
        spec = cd.EnvSpec(
            "kite",
            Wind,
            lambda p: [cd.Field("x")],
            lambda p: [cd.Group("kite", 1, 1, spaces.Discrete(2))],
            "truncates",
            cd.Reference(step=blown),
            kernel=WIND.replace(
                "= env.params.wind", "= -env.params.wind" if wrong else "= env.params.wind"
            ),
            cases=cases,
        )
        return check(spec, agent_steps=500, device="cpu", progress=False)

    said = "values of wind other than 0, its default: pass `vary=(low, high)` to its `param`"
    assert of(True, {}).passed and said in of(True, {}).skipped
    assert of(False, {}, {"wind": 2.0}).passed
    wrong = of(True, {}, {"wind": 2.0})
    assert re.match(r"state.x: .*, with wind=2.0: kernel -\d", wrong.failures()[0])
    assert said not in wrong.skipped


@pytest.mark.full
@pytest.mark.parametrize("fail_fast", [False, True])
def test_fail_fast_leaves_out_what_comes_after_the_first_failure(fail_fast):
    text = kernel_text(envs.get("cartpole"))[1].replace("4.0f / 3.0f", "1.25f")
    spec = replace(without_an_event("never happens"), kernel=text)
    report = check(spec, agent_steps=1000, device="cpu", fail_fast=fail_fast, progress=False)
    assert not report.passed and report.mismatched
    assert ("all comparisons after the first failure" in report.skipped) == fail_fast
    assert any("never happens" in text for text in report.failures()) != fail_fast
    assert any("bounds-checked" in t.part for t in report.tallies.values()) != fail_fast


@pytest.mark.full
def test_an_event_that_never_happens_fails():
    spec = without_an_event("flies")
    report = check(spec, agent_steps=1000, device="cpu", progress=False)
    # which the reference names
    assert {"fell left", "balanced", "pushed right"} < set(report.events)
    (failure,) = report.failures()
    assert "flies" in failure


# What beginners do to the environment of `cupydrive new`: a text to replace, and where the report
# then points.
MISTAKES = {
    "no leader guard": (
        "if (env.team.leader()) s.ticks += 1;",
        "s.ticks += 1;",
        r"`step`: two threads of a team write `state\.ticks` between ",
    ),
    "a sync that not all reach": (
        "  return env.team.sum",
        "  if (env.team.leader()) env.team.sync();\n  return env.team.sum",
        r"the threads of a team of 4 make different numbers of calls of team\.sync\(\)",
    ),
    "a field that reset forgets": (
        "s.vx[i] = s.vy[i] = 0.0f;",
        "s.vx[i] = 0.0f;",
        r"state\.vy: environment \d+, agent \d: kernel \S+, reference 0 \(",
    ),
    "an entry of the observation too far": (
        "row[4] = s.goal_x - s.x[i];\n    row[5]",
        "row[3] = s.goal_x - s.x[i];\n    row[4]",
        r"obs\.point: environment \d+, agent \d, entry 3, step \d+: kernel \S+, reference \S+ \(",
    ),
    "NaN": (
        "math::sqrt(dx * dx + dy * dy)",
        "math::sqrt(-dx * dx - dy * dy)",
        r"reward\.point: environment \d+, agent \d, step \d+: kernel nan, reference -",
    ),
}


@pytest.fixture(scope="module")
def written_env(tmp_path_factory):
    """Return the ``EnvSpec`` of ``cupydrive new`` with a counter in its state, and its kernel's
    text.
    """
    python, kernel = new("mine", tmp_path_factory.mktemp("mine"))
    python.write_text(
        python.read_text()
        .replace(
            'Field("goal_y", scale=1.0, unit="m"),',
            'Field("goal_y", scale=1.0, unit="m"), Field("ticks", "i4"),',
        )
        .replace(
            '"goal_y": states["goal_y"],',
            '"goal_y": states["goal_y"], "ticks": states["ticks"] + 1,',
        )
    )
    text = kernel.read_text().replace("goal_x, goal_y; }", "goal_x, goal_y; int ticks; }")
    text = text.replace("    s.goal_x = 2.0f", "    s.ticks = 0;\n    s.goal_x = 2.0f")
    text = text.replace(
        "  int arrived = 0;", "  if (env.team.leader()) s.ticks += 1;\n  int arrived = 0;"
    )
    kernel.write_text(text)
    return replace(envs.get(str(python)), cases=({},)), text


@pytest.mark.full
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_first_line_is_the_cause(written_env, mistake):
    spec, text = written_env
    right, wrong, place = MISTAKES[mistake]
    assert text.count(right) == 1
    report = check(
        replace(spec, kernel=text.replace(right, wrong)),
        agent_steps=600,
        device="cpu",
        progress=False,
    )
    assert (
        re.match(f"FAIL  mine: {place}", str(report))
        and report.summary == str(report).splitlines()[0]
    ), str(report)
    failed = {t.part for t in report.tallies.values() if t.failure}
    assert {
        line.strip().split("  ")[0]
        for line in str(report).splitlines()
        if line.endswith("  FAILED")
    } == failed


@pytest.mark.full
@pytest.mark.parametrize("sample", [True, False])
def test_a_drawing_that_fails_is_reported_with_its_line(tmp_path, sample):
    python, _ = new("drawn", tmp_path)
    right = 'canvas.circle((now["goal_x"], now["goal_y"]), p.goal_radius, canvas.GREEN)'
    wrong = right.replace("GREEN", "GREN")
    text = python.read_text()
    assert text.count(right) == 1
    python.write_text(text.replace(right, wrong))
    spec = envs.get(str(python))
    spec = spec if sample else replace(spec, reference=replace(spec.reference, sample_states=None))
    report = check(spec, agent_steps=600, device="cpu", fail_fast=True, progress=False)
    line = 1 + text[: text.index(right)].count("\n")
    (failure,) = report.failures()
    assert (
        failure.startswith(f"`draw`: {python}:{line}: AttributeError: ")
        and f"(`{wrong}`)" in failure
    )


@pytest.mark.full
def test_a_drawing_is_tried_on_a_state_alone_and_on_a_trail(written_env):
    spec, text = written_env
    seen = []

    def draw(canvas, p, states, elapsed):
        spec.display.draw(canvas, p, states, elapsed)
        seen.append((len(states), elapsed, states.dtype == spec.state_dtype(p)))

    display = replace(spec.display, draw=draw, trail=2)
    assert check(
        replace(spec, kernel=text, display=display), agent_steps=600, device="cpu", progress=False
    ).passed
    assert seen == [(1, 0, True), (3, 2, True)]


@pytest.mark.full
def test_results_may_not_depend_on_the_cache(written_env):
    spec, text = written_env
    include, begin = '#include "drive/env.cuh"', "  int arrived = 0;"
    assert text.count(include) == 1 and text.count(begin) == 1
    text = text.replace(include, f"struct Cache {{ float reward; }};\n{include}")
    kept = text.replace(begin, f"  if (env.team.leader()) env.cache.reward = 1.0f;\n{begin}")
    used = text.replace(
        begin, f"  if (env.team.leader()) s.ticks += env.cache.reward > 0.0f;\n{begin}"
    )
    assert check(replace(spec, kernel=kept), agent_steps=600, device="cpu", progress=False).passed
    report = check(replace(spec, kernel=used), agent_steps=600, device="cpu", progress=False)
    assert not report.passed and any(
        t.failure for t in report.tallies.values() if "bit for bit" in t.part
    )


@lru_cache(maxsize=1)
def compared_of(spec):
    """Return (part, name) of all that a check of ``spec`` compares."""
    return {
        (t.part, t.name)
        for t in check(spec, agent_steps=100, device="cpu", progress=False).tallies.values()
    }


# Pictures compare nothing, and there are fewer without `sample_states`.
SMALL_TAG = replace(
    envs.get("tag_grid"), cases=({"num_taggers": 2, "grid_length": 2},), display=cd.Display()
)


@pytest.mark.full
@pytest.mark.parametrize(
    "missing",
    [
        ("reset", "step", "observe", "sample_states"),
        ("reset",),
        ("step",),
        ("observe",),
        ("sample_states",),
    ],
)
def test_what_has_no_reference_is_checked_as_far_as_it_goes(missing):
    spec = replace(SMALL_TAG, reference=replace(SMALL_TAG.reference, **dict.fromkeys(missing)))
    report = check(spec, agent_steps=2000, device="cpu", progress=False)
    assert (
        not report.mismatched and report.events["autoreset"] and report.events["time limit reached"]
    ), str(report)
    assert (
        "without a reference of `step` (" if "step" in missing else "against the reference ("
    ) in str(report)
    said = [text for text in report.skipped if "the environment has no " in text]
    assert len(said) == len(missing) and all(
        f"`{m}`" in text for m, text in zip(missing, said, strict=True)
    )
    assert all(f"not done: {text}" in str(report) for text in said)
    parts = {t.part for t in report.tallies.values()}
    assert {f"cpu: {STATISTICS}", f"cpu: {RESETS}", f"cpu: {PATHS}", f"cpu: {TEAM_CASE}"} <= parts
    left_out = compared_of(SMALL_TAG) - {(t.part, t.name) for t in report.tallies.values()}
    assert bool(left_out) == (missing != ("sample_states",))
    assert {part.partition(" ")[2] for part, _ in left_out} <= {REFERENCE, RESETS, STATISTICS}, (
        left_out
    )


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_an_entry_that_observe_does_not_write_is_found_without_a_reference(dtype):
    def of(observe):
        spec = cd.EnvSpec(
            "kite",
            Wind,
            lambda p: [cd.Field("x")],
            lambda p: [cd.Group("kite", 1, 2, spaces.Discrete(2), obs_dtype=dtype)],
            "truncates",
            kernel=WIND.replace("env.kite.obs(0)[0] = env.state.x;", f"{{ {observe} }}"),
        )
        return check(spec, agent_steps=500, device="cpu", progress=False)

    every = "auto row = env.kite.obs(0); row[0] = 1; row[1] = 2;"
    assert of(every).passed
    missed = of(every.replace("row[1]", "if (env.elapsed != 2) row[1]"))
    place = r"obs.kite: step 2, environment 0, agent 0, entry 1: bounds-checked (nan|255), fast "
    assert any(re.match(place, failure) for failure in missed.failures())


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("env.kite.active(0) = 1; env.kite.left(0) = 0;", None),
        ("env.kite.active(0) = 1;", "left.kite: step 0"),
        ("env.kite.left(0) = 0;", "active.kite: step 0"),
    ],
)
def test_an_exit_that_step_does_not_write_is_found_without_a_reference(written, found):
    spec = cd.EnvSpec(
        "kite",
        Wind,
        lambda p: [cd.Field("x")],
        lambda p: [cd.Group("kite", 1, 1, spaces.Discrete(2), leaves=True)],
        "truncates",
        kernel=WIND.replace("env.state.x = env.params.wind;", f"{{ {written} }}"),
    )
    report = check(spec, agent_steps=500, device="cpu", progress=False)
    assert report.passed if found is None else report.failures()[0].startswith(found)


@pytest.mark.full
def test_a_kernel_without_a_reference_still_keeps_the_rules_of_teams():
    spec = replace(envs.get("tag_grid"), reference=cd.Reference())
    text = kernel_text(spec)[1].replace("env.team.sync();  // everybody has moved", "")
    spec = replace(spec, kernel=text, cases=({"num_taggers": 2, "grid_length": 2},))
    report = check(spec, agent_steps=500, device="cpu", progress=False)
    assert f"cpu: {TEAM_CASE}" in report.summary and f"fix: {ADVICE[TEAM_CASE]}" in str(report), (
        str(report)
    )
