"""A reference must return the right names, types and shapes, and must not write to its
arguments.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.checks.checker import check
from cupydrive.checks.mistakes import own_mistake
from cupydrive.checks.reference import CheckedReference
from cupydrive.cli.scaffold import new
from cupydrive.errors import SpecError
from cupydrive.simulation.batch import CLOCK


@pytest.fixture(scope="module")
def written_env(tmp_path_factory):
    """Return the ``EnvSpec`` of ``cupydrive new`` and its kernel's text."""
    python, kernel = new("mine", tmp_path_factory.mktemp("mine"))
    return envs.get(str(python)), kernel.read_text()


# What is done to the reference's StepResult or Observation, and the error before anything is
# compared.
WRONG_ANSWERS = [
    (
        "step",
        lambda o: o.state.pop("goal_y"),
        "step's state lacks 'goal_y', expected: x, y, vx, vy, goal_x, goal_y",
    ),
    (
        "step",
        lambda o: o.state.update(goaly=o.state.pop("goal_y")),
        "unknown name 'goaly', expected x, y, ",
    ),
    (
        "step",
        lambda o: o.state.update(z=o.state["x"]),
        "step's state has the unknown name 'z', expected x, y, ",
    ),
    (
        "step",
        lambda o: o.state.update(vx=o.state["vx"].astype(int)),
        "step's state['vx'] is int64, expected float",
    ),
    ("step", lambda o: o.reward.clear(), "step's reward lacks 'point'"),
    (
        "step",
        lambda o: o.reward.update(points=o.reward["point"]),
        "step's reward has the unknown name 'points'",
    ),
    (
        "step",
        lambda o: o.reward.update(point=o.reward["point"].astype(int)),
        "step's reward['point'] is int64",
    ),
    ("step", lambda o: o.metrics.clear(), "step's metrics lacks 'arrivals'"),
    (
        "step",
        lambda o: setattr(o, "terminated", o.terminated.astype(int)),
        "['terminated'] is int64, expected bool",
    ),
    (
        "step",
        lambda o: o.margin.update({"reward.pont": np.ones(1)}),
        "Did you mean 'reward.point'?",
    ),
    ("observe", lambda o: o.margin.update({"obs.point": np.ones(1)}), "Did you mean 'point'?"),
    (
        "observe",
        lambda o: o.mask.update(point=o.obs["point"]),
        "observe's mask has the unknown name 'point', expected no names",
    ),
    ("observe", lambda o: o.obs.clear(), "observe's obs lacks 'point'"),
    (
        "observe",
        lambda o: o.obs.update(point=o.obs["point"].astype(int)),
        "observe's obs['point'] is int64",
    ),
    (
        "observe",
        lambda o: o.obs.update(point=o.obs["point"][..., :5]),
        "obs.point has the shape (1, 3, 5) in the reference, expected (1, 3, 6): environment, agent, entry",
    ),
]


# Another result altogether.
WRONG_RESULTS = [
    ("step", lambda o: None, "step returns a NoneType, expected a cupydrive.StepResult"),
    ("observe", lambda o: None, "observe returns a NoneType, expected a cupydrive.Observation"),
    ("reset", lambda o: None, "reset returns a NoneType, expected ("),
    ("sample_states", lambda o: o["x"], "sample_states returns an array of shape ("),
    ("reset", lambda o: o[["x", "y"]], "reset's states lacks 'vx', expected: x, y, vx, vy"),
    ("sample_states", lambda o: o[:-1], "sample_states returns an array of shape ("),
]


def answered_by(written_env, function, change):
    """Return the environment whose reference's ``function`` returns what ``change`` has made of its
    result.
    """
    spec, text = written_env
    original = getattr(spec.reference, function)
    reference = replace(spec.reference, **{function: lambda *args: change(original(*args))})
    return replace(spec, kernel=text, cases=({},), reference=reference)


@pytest.mark.full
@pytest.mark.parametrize(("function", "change", "words"), WRONG_ANSWERS)
def test_a_reference_that_returns_something_else_is_an_error(written_env, function, change, words):
    spec = answered_by(written_env, function, lambda answer: (change(answer), answer)[1])
    with pytest.raises(SpecError, match=f"^mine: .*{re.escape(words)}"):
        check(spec, agent_steps=10, device="cpu", fail_fast=True, progress=False)


@pytest.mark.full
@pytest.mark.parametrize(("function", "change", "words"), WRONG_RESULTS)
def test_a_result_of_another_kind_or_number_is_an_error(written_env, function, change, words):
    with pytest.raises(SpecError, match=f"^mine: {re.escape(words)}"):
        check(
            answered_by(written_env, function, change), agent_steps=10, device="cpu", progress=False
        )


@pytest.mark.full
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    velocity = velocity + ", '    states["vx"] += 1.0\n    velocity = velocity + '),
        ("    velocity = velocity + ", '    action["point"].sort()\n    velocity = velocity + '),
        ("    to_x, to_y = ", '    states["x"][:, 0] = 0.0\n    to_x, to_y = '),
    ],
)
def test_a_reference_cannot_write_to_its_arguments(tmp_path, right, wrong):
    python, _ = new("writing", tmp_path)
    text = python.read_text()
    assert text.count(right) == 1
    python.write_text(text.replace(right, wrong))
    with pytest.raises(ValueError, match="read-only") as caught:
        check(str(python), agent_steps=10, device="cpu", progress=False)
    line = 1 + text[: text.index(right)].count("\n")
    assert own_mistake(caught.value).startswith(f"{python}:{line}: ValueError: ")


def test_a_field_that_observe_computes_may_be_left_out(written_env):
    """As ``Observation.state`` says; and all that the reference has no ``observe`` for."""
    spec, _ = written_env
    params = spec.make_params()
    states, clock = (
        spec.reference.sample_states(params, np.random.default_rng(0), 2),
        np.zeros(2, CLOCK),
    )
    seen = spec.reference.observe(params, states, clock["elapsed"] + 1)

    def step(*given):
        outcome = spec.reference.step(*given)
        del outcome.state["goal_y"]
        return outcome

    reference = CheckedReference(
        replace(spec, reference=replace(spec.reference, step=step)), params
    )
    given = (0, np.arange(2), clock, states, {"point": np.zeros((2, 3, 1), int)})
    reference.step(*given, replace(seen, state={"goal_y": states["goal_y"]}))
    reference.step(*given, None)
    with pytest.raises(SpecError, match="lacks 'goal_y'"):
        reference.step(*given, seen)


@pytest.mark.full
@pytest.mark.parametrize("time_limit", ["terminates", "truncates"])
@pytest.mark.parametrize("margin", [False, True])
def test_an_end_for_each_agent_is_an_error(written_env, time_limit, margin):
    spec, text = written_env

    def step(*given):
        outcome, per_agent = spec.reference.step(*given), np.zeros((len(given[1]), 1))
        outcome.margin.pop("terminated", None)
        return replace(outcome, margin=outcome.margin | {"terminated": per_agent}) if margin else replace(
            outcome, terminated=per_agent > 1
        )  # fmt: skip

    what = r"margin\['terminated'\]" if margin else "terminated"
    with pytest.raises(
        SpecError,
        match=rf"step's {what} has shape \((\d+), 1\), expected \(\1,\), one value per environment",
    ):
        changed = replace(
            spec, kernel=text, reference=replace(spec.reference, step=step), time_limit=time_limit
        )
        check(changed, agent_steps=100, device="cpu", progress=False)
