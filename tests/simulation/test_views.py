"""Views of an environment's memory by name, ``env.state`` and those of Python kernels: written
into, never replaced.
"""

import copy
from dataclasses import replace

import pytest
import torch

import cupydrive as cd
from cupydrive.errors import OrderError, ParameterError
from cupydrive.examples import cartpole_torch


def cartpole():
    env = cd.make("cartpole", 2, device="cpu")
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("pos", "'pos'. It has: x, x_dot, theta, theta_dot"),
        ("theta_dott", "Did you mean 'theta_dot'?"),
    ],
)
def test_a_field_that_the_state_does_not_have_is_named_with_those_there_are(field, words):
    state = cartpole().state
    assert state.get(field) is None and field not in state
    for error in (KeyError, ParameterError):  # as of any dictionary, and as set_state refuses it
        with pytest.raises(error) as caught:
            state[field]
        assert str(caught.value).startswith("cartpole has no state ") and words in str(caught.value)


def put(env):
    env.state["theta"] = torch.ones(2)


def put_elapsed(env):
    env.elapsed = 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put, ("env.state[NAME][:] = ...",)),
        (lambda env: env.state.update(x_dot=torch.ones(2)), ("env.state[NAME][:] = ...",)),
        (lambda env: env.state.pop("theta"), ("env.state[NAME][:] = ...",)),
        (put_elapsed, ("env.elapsed[:] = ...", "env.set_state(elapsed=...)")),
    ],
)
def test_what_would_replace_a_view_and_change_no_environment_says_what_does(change, words):
    env = cartpole()
    views, before = dict(env.state), env.batch.state.tobytes()
    with pytest.raises(ParameterError) as caught:
        change(env)
    assert all(part in str(caught.value) for part in words)
    assert (
        all(env.state[name] is view for name, view in views.items())
        and env.batch.state.tobytes() == before
    )


def test_what_the_error_says_writes():
    env = cartpole()
    env.state["theta"][:] = 0.125
    env.state["x"] += 0.5  # Python puts the same view back
    env.elapsed += 2
    assert (
        env.batch.state["theta"].tolist() == [0.125, 0.125] and (env.batch.state["x"] > 0.4).all()
    )
    assert env.batch.clock["elapsed"].tolist() == [2, 2]


def test_names_that_are_no_attributes_are_told():
    env = cartpole()
    with pytest.raises(AttributeError, match="theta"):
        env.state.theta = 1.0
    with pytest.raises(AttributeError, match="state"):
        env.state = {"theta": torch.ones(2)}
    with pytest.raises(AttributeError, match="num_envs"):
        env.num_envs = 3
    env.close()
    for name in ("state", "elapsed"):
        with pytest.raises(OrderError, match=f"{name} after close"):
            getattr(env, name)


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_a_kernel_in_python_that_replaces_an_array_is_told_so(arrays):
    def push(env):
        env.reward["cart"] = env.reward["cart"] + 1

    kernel = replace(
        cartpole_torch.SPEC.kernel,
        reset=lambda env: None,
        observe=lambda env: None,
        arrays=arrays,
        step=push,
    )
    env = cd.make(replace(cartpole_torch.SPEC, kernel=kernel), 2, device="cpu")
    env.reset(seed=0)
    with pytest.raises(ParameterError, match=r"as in reward\[NAME\]\[:\] = \.\.\.$"):
        env.rollout(1)


def test_a_copy_of_the_views_is_anybodys():
    env = cartpole()
    kept = copy.deepcopy(env.state)
    assert type(kept) is dict and torch.equal(kept["theta"], env.state["theta"])
    kept["theta"] += 1
    kept["x"] = None
    assert (env.state["theta"] < 0.5).all() and env.state["x"] is not None
