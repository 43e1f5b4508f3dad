"""Mistakes in the description of an environment are told where it is described, in words of its
author.
"""

from dataclasses import dataclass, make_dataclass, replace
from inspect import signature
from pathlib import Path

import point
import pytest

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import ParameterError, SpecError
from cupydrive.inputs.descriptions import ARGUMENTS

# Not registered: whatever is while tests are collected would be an environment of the package to
# all of them.
WRITTEN = {"__name__": "described"}
exec(compile(point.PYTHON, "described.py", "exec"), WRITTEN)
SPEC = replace(WRITTEN["SPEC"], name="described", kernel=point.KERNEL)


@dataclass
class Thawed:
    max_episode_steps: int = cd.param(40, "Time limit.", low=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            dict(params=Thawed),
            r"params = .*Thawed'>, expected a class decorated with @dataclass\(frozen=True\)",
        ),
        (
            dict(heuristic=lambda p, obs: None),
            r"heuristic = .* must be a function of \(params, obs, group\): too many",
        ),
        (dict(reference=print), "reference = .* expected a cupydrive.Reference"),
        (
            dict(state=lambda p: ()),
            r"state\(params\) = \(\) is empty, expected at least one cupydrive\.Field",
        ),
        (
            dict(state=lambda p: (cd.Field("x"), cd.Field("x"))),
            r"state\(params\) has the name 'x' twice\. Names must be unique",
        ),
        (
            dict(state=lambda p: ("x",)),
            r"state\(params\)\[0\] = 'x' is a str, expected a cupydrive\.Field",
        ),
        (
            dict(groups=lambda p: SPEC.groups(p)[0]),
            r"groups\(params\) = Group.* expected a tuple",
        ),
        (
            dict(kernel="point.cu"),
            r"kernel = 'point\.cu', expected a kernel's text, the Path of its file",
        ),
        (dict(training=lambda: {}), r"training = .* must be a function of \(params\): too many"),
        (dict(training=lambda p: 64), r"training\(params\) = 64 is an int, expected a dict"),
        (dict(training=64), r"training = 64 is an int, expected a dict"),
        (dict(metrics={"length": "int"}), r"metrics has 'length', which is the number of steps"),
        (dict(metrics={"point": "int"}), r"group 'point' has the name of .*: length, point\."),
        (
            dict(groups=lambda p: [replace(g, name="length") for g in SPEC.groups(p)]),
            r"group 'length' has the name of another number of an evaluation: length\.",
        ),
    ],
)
def test_what_is_wrong_in_a_description_is_told(change, words):
    with pytest.raises(SpecError, match=words):
        replace(SPEC, **change).make_params()


def test_a_function_of_other_arguments_is_refused():
    with pytest.raises(
        SpecError,
        match=r"Reference: observe = .* a function of \(params, state, elapsed\): too many",
    ):
        cd.Reference(observe=lambda p, states: None)
    with pytest.raises(
        SpecError, match=r"Display: draw = .* of \(canvas, params, states, elapsed\): too many"
    ):
        cd.Display(lambda canvas, p: None)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(float, 1), ("float", 1), (int, 2.0), ("int", True), (bool, 1), (str, 3)],
)
def test_a_default_is_of_its_annotation(annotation, default):
    price = ("price", annotation, cd.param(default, "Of one."))
    steps = ("max_episode_steps", int, cd.param(40, "Time limit.", low=1))
    with pytest.raises(SpecError, match=r"Params\.price is annotated as \w+, and its default is "):
        replace(SPEC, params=make_dataclass("Params", [price, steps], frozen=True))


def test_a_parameter_has_the_name_of_no_argument_beside_it():
    steps = ("max_episode_steps", int, cd.param(40, "Time limit.", low=1))
    calls = signature(cd.make), signature(cd.train), signature(cd.evaluate)
    assert {"self", *(name for call in calls for name in call.parameters)} == ARGUMENTS
    for name in ARGUMENTS:
        taken = make_dataclass("Params", [(name, int, cd.param(1, "Of one.")), steps], frozen=True)
        with pytest.raises(SpecError, match=rf"Params\.{name} is also an .* such as 'env_{name}'"):
            replace(SPEC, params=taken)


def test_a_parameter_num_agents_is_the_number_of_all_agents():
    agents = ("num_agents", int, cd.param(1, "Agents.", low=1))
    steps = ("max_episode_steps", int, cd.param(40, "Time limit.", low=1))
    spec = replace(SPEC, params=make_dataclass("Params", [agents, steps], frozen=True))
    assert spec.make_params().num_agents == 1
    with pytest.raises(
        SpecError, match=r"num_agents = 2, but groups\(params\) has 1 agents\. Make"
    ):
        spec.make_params(num_agents=2)


def test_what_time_limit_may_be_is_told_where_it_is_wrong():
    needed = (SPEC.name, SPEC.params, SPEC.state, SPEC.groups)
    with pytest.raises(
        SpecError, match=r"^described: time_limit = 40, expected 'terminates' or 'truncates'"
    ):
        cd.EnvSpec(*needed, time_limit=40)


def test_a_function_may_take_more_than_it_is_called_with_if_it_has_defaults():
    def step(params, state, action, elapsed, random, wind=0.0):
        return SPEC.reference.step(params, state, action, elapsed, random)

    observe = lambda *all_of_them: SPEC.reference.observe(*all_of_them)  # noqa: E731
    assert replace(SPEC, reference=cd.Reference(step=step, observe=observe)).make_params()
    reference = cd.Reference(step=lambda params, state, action, elapsed, random, table: None)
    with pytest.raises(SpecError, match=r"step reads `table`, but there is no tables\(params\)"):
        replace(SPEC, reference=reference)
    # Where there are tables it may be given one.
    assert replace(SPEC, reference=reference, tables=lambda p: {"cost": [1.0, 2.0]})


@pytest.mark.parametrize("given", ["float32", float, "f5"])
def test_a_type_by_another_name_is_refused(given):
    with pytest.raises(SpecError, match="expected 'f4', 'i4', 'u4' or 'u1'"):
        cd.Field("x", given)


@pytest.mark.parametrize("name", ["elapsed", "env", "self"])
def test_a_field_has_the_name_of_no_argument_beside_it(name):
    with pytest.raises(SpecError, match=f"set_state takes {name} .* such as 'own_{name}'"):
        cd.Field(name)


def test_without_a_kernel_every_way_to_give_one_is_told(tmp_path):
    bare = replace(SPEC, kernel=None)
    with pytest.raises(
        SpecError,
        match=r"kernel file .* does not exist.* pass kernel= to the EnvSpec.*%%cuda_env described",
    ):
        cd.make(bare, device="cpu")
    with pytest.raises(SpecError, match=r"the kernel is missing. Pass kernel=, its path or text"):
        # whose reference says nothing of where it was written
        cd.register(replace(bare, reference=cd.Reference()))
    with pytest.raises(SpecError, match=r"kernel file .*none\.cu does not exist\. Write it"):
        cd.make(replace(bare, kernel=Path(tmp_path, "none.cu")), device="cpu")


def test_a_kernel_file_is_called_after_the_spec_and_no_spec_as_one_of_the_package(tmp_path):
    file = tmp_path / "mine.py"
    (tmp_path / "mine.cu").write_text(point.KERNEL)
    file.write_text(point.PYTHON.replace('EnvSpec("point"', 'EnvSpec("cartpole"'))
    with pytest.raises(
        SpecError, match=r"^'cartpole' is an environment of the package. .* EnvSpec\('my_cartpole'"
    ):
        envs.get(str(file))
    file.write_text(point.PYTHON.replace('EnvSpec("point"', 'EnvSpec("yours"'))
    with pytest.raises(
        SpecError,
        match=r"kernel file .*yours\.cu' does not exist\. Write it",
    ):
        envs.get(str(file))


def test_what_is_no_environment_is_told_what_is():
    env = cd.make("cartpole", device="cpu")
    with pytest.raises(ParameterError, match=r"is a VectorEnv, expected a name, .*or an EnvSpec"):
        cd.make(env)
