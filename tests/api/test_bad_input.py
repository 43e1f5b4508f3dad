"""Every mistake of a caller gives an error that names the value, the limit and the fix; nothing has
changed then.
"""

import re
from dataclasses import make_dataclass, replace
from pathlib import Path

import everything
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from cupydrive import envs
from cupydrive.codegen.agreement import batch_dtype
from cupydrive.codegen.source import KERNELS, kernel_text
from cupydrive.errors import (
    ActionError,
    DeviceError,
    KernelFault,
    MemoryLimitError,
    OrderError,
    ParameterError,
    SpecError,
    UnknownEnvironmentError,
)
from cupydrive.executors import compiler
from cupydrive.inputs.descriptions import TAKEN
from cupydrive.simulation.make import make
from cupydrive.spec import Field, Group, Table, param

ROOT = Path(__file__).resolve().parents[2]


def grid(**options):
    env = make("tag_grid", 3, device="cpu", **options)
    env.reset(seed=0)
    return env


def good_action():
    return {
        "tagger": torch.zeros(3, 4, dtype=torch.int32),
        "runner": torch.zeros(3, 1, dtype=torch.int32),
    }


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (dict(env="cartpol"), UnknownEnvironmentError, "Did you mean 'cartpole'"),
        (dict(num_envs=0), ParameterError, "num_envs = 0 is out of range, expected 1"),
        (
            dict(num_envs=1e3),
            ParameterError,
            "num_envs = 1000.0 is a float, expected an int, such as 1000",
        ),
        (dict(num_envs=2**31 - 1), MemoryLimitError, "largest num_envs that fits is"),
        (dict(num_envs="many"), ParameterError, "num_envs = 'many', expected an int or 'auto'"),
        (dict(gravty=9.8), ParameterError, "no parameter 'gravty'. Did you mean 'gravity'"),
        (
            dict(tau=0.0),
            ParameterError,
            "tau = 0.0 is out of range, expected 1e-06 to 1.0 s",
        ),
        (dict(device="gpu"), DeviceError, "expected 'auto', 'cuda' or 'cpu'"),
        (dict(device="cuda:1"), DeviceError, "Select it with torch.cuda.set_device"),
        (dict(env="tag_grid", start="randm"), ParameterError, "Did you mean 'random'"),
        (
            dict(env="tag_continuous", num_runners=2, num_taggers=1),
            ParameterError,
            "num_other_agents_observed=2 or less",
        ),
    ],
)
def test_make_refuses(options, error, words):
    options = {"env": "cartpole", "num_envs": 2, "device": "cpu", **options}
    with pytest.raises(error) as caught:
        make(options.pop("env"), options.pop("num_envs"), **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.pop("runner"), "got ['tagger'], expected a dict with tagger, runner"),
        (lambda a: a.update(runer=a["runner"]), "'runer'], expected a dict with tagger, runner"),
        (
            lambda a: a.update(tagger=a["tagger"][:2]),
            "(2, 4) of torch.int32 on cpu, expected a torch tensor (3, 4) of torch.int32 on cpu",
        ),
        (
            lambda a: a.update(tagger=a["tagger"].float()),
            "(3, 4) of torch.float32 on cpu, expected",
        ),
        (lambda a: a.update(tagger=[[0] * 4] * 3), "got a list, expected a torch tensor (3, 4)"),
        (lambda a: a.update(tagger=a["tagger"].to("meta")), "on meta, expected"),
        (lambda a: a["runner"].__setitem__((2, 0), -1), "environment 2 is -1"),
        (
            lambda a: a["tagger"].__setitem__((1, 2), 5),
            "environment 1, agent 2 is 5, expected 0 to 4",
        ),
        (lambda a: a.update(tagger=a["tagger"].long() + 2**32), "is 4294967296, expected 0 to 4"),
    ],
)
def test_step_refuses_and_changes_nothing(change, words):
    env, action = grid(), good_action()
    env.step(action)
    before = env.batch.state.tobytes(), env.batch.clock.tobytes()
    change(action)
    with pytest.raises(ActionError) as caught:
        env.step(action)
    assert words in str(caught.value)
    assert (env.batch.state.tobytes(), env.batch.clock.tobytes()) == before


def test_unchecked_wild_actions_are_read_as_the_nearest_valid():
    wild, tame = grid(validate=False), grid()
    action = {
        "tagger": torch.tensor([[-(2**31), 2**31 - 1, 9, -1]] * 3, dtype=torch.int32),
        "runner": torch.full((3, 1), 7, dtype=torch.int32),
    }
    wild.step(action)
    tame.step({key: value.clamp(0, 4) for key, value in action.items()})
    assert wild.batch.state.tobytes() == tame.batch.state.tobytes()


def test_int64_and_strided_actions_are_converted():
    env, same = grid(), grid()
    env.step({"tagger": torch.ones(4, 3, dtype=torch.int64).T, "runner": np.ones((3, 1), np.int64)})
    same.step(
        {
            "tagger": torch.ones(3, 4, dtype=torch.int32),
            "runner": torch.ones(3, 1, dtype=torch.int32),
        }
    )
    assert env.batch.state.tobytes() == same.batch.state.tobytes()


def test_step_and_rollout_want_a_reset_first():
    env = make("cartpole", 2, device="cpu")
    for call in (
        lambda: env.step(torch.zeros(2, dtype=torch.int32)),
        lambda: env.rollout(3),
        env.snapshot,
    ):
        with pytest.raises(OrderError, match="before reset"):
            call()


def changed(name, old, new):
    """Return a user's environment: a kernel of the package with one change."""
    spec = envs.get(name)
    text = kernel_text(spec)[1]
    assert old in text
    return replace(spec, kernel=text.replace(old, new))


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("driver.obs(d)[1] =", "driver.obs(d)[2] =", "observation entry index 2 is outside [0, 2)"),
        (
            "driver.reward(d) =",
            "driver.reward(d + 1) =",
            "agent (reward) index 3 is outside [0, 3)",
        ),
        ("s.place[i] = place;", "s.place[i + 1] = place;", "array element index 2"),
        (
            "driver.action(d, 1);",
            "driver.action(d - 1, 1);",
            "agent (action) index -1 is outside [0, 3)",
        ),
        (
            "driver.obs(d)[0] =",
            "driver.obs(d + 1)[0] =",
            "agent (observation) index 3 is outside [0, 3)",
        ),
        ("walker.action(i, 1);", "walker.action(i, 2);", "action head index 2 is outside [0, 2)"),
        (
            "walker.mask(i, 2) =",
            "walker.mask(i + 1, 2) =",
            "agent (mask) index 2 is outside [0, 2)",
        ),
        (
            "walker.mask(i, 1, 1) =",
            "walker.mask(i, 1, 2) =",
            "action head (mask) index 2 is outside [0, 2)",
        ),
        (
            "walker.mask(i, 0, 1) =",
            "walker.mask(i, 2, 1) =",
            "choice (mask) index 2 is outside [0, 2)",
        ),
        (
            "walker.active(i) =",
            "walker.active(i - 1) =",
            "agent (active) index -1 is outside [0, 2)",
        ),
        (
            "walker.left(i) = 0;",
            "walker.left(i + 1) = 0;",
            "agent (left) index 2 is outside [0, 2)",
        ),
    ],
)
def test_a_debug_build_names_every_wild_index_with_its_line(old, new, words):
    assert everything.KERNEL.count(old) == 1
    spec = envs.register(
        everything.PYTHON.replace("TIME_LIMIT", "truncates"), everything.KERNEL.replace(old, new)
    )
    env = make(spec, 2, debug=True)
    with pytest.raises(KernelFault) as caught:
        env.reset(seed=0)
        env.rollout(1)
    line = next(i for i, text in enumerate(spec.kernel.splitlines(), 1) if new in text)
    assert words in str(caught.value) and str(caught.value).startswith(
        f"<kernel of everything>:{line}: "
    )


@pytest.mark.full
@pytest.mark.parametrize("path", ["", "a/" * 150], ids=["line", "file"])
def test_a_fault_without_a_line_or_in_a_file_of_a_long_name_is_one(path):
    """Line 0 means that there is no fault, so it is said as line 1; a file's name is cut after 255
    characters.
    """
    spec = changed("tag_grid", "row[5] = time;", f'\n#line 0 "{path}x.cu"\nrow[7] = time;')
    with pytest.raises(KernelFault) as caught:
        make(spec, 2, debug=True).reset(seed=0)
    assert str(caught.value).startswith(
        f"{(path + 'x.cu')[:255]}:1: observation entry index 7 is outside [0, 6)"
    )


def test_neither_gpu_nor_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match="pip install ziglang, or install"):
        make("cartpole", 1, device="cpu", x_limit=2.5)


def test_a_file_that_is_not_there_is_looked_for_beside_it(tmp_path):
    (tmp_path / "my_env.py").write_text("SPEC = None\n")
    with pytest.raises(
        SpecError,
        match=r"my_emv\.py .*\. Did you mean 'my_env\.py'\? `cupydrive new my_emv` writes the files",
    ):
        envs.register(tmp_path / "my_emv.py")


def test_a_name_without_its_ending_leads_to_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_env.py").write_text("SPEC = None\n")
    with pytest.raises(
        UnknownEnvironmentError,
        match=r"unknown environment 'my_env'\. Name its Python file: my_env\.py\.",
    ):
        make("my_env", device="cpu")


def test_registration_refuses():
    with pytest.raises(SpecError, match="does not exist"):
        envs.register("no/such/file.py")
    with pytest.raises(SpecError, match="is an environment of the package"):
        envs.register(envs.get("cartpole"), kernel="struct\n")
    with pytest.raises(SpecError, match="defines no SPEC"):
        envs.register("x = 1\n", "a\nb")


def test_a_group_has_no_name_that_kernels_use_for_something_else():
    spec = envs.get("cartpole")
    batch = set(batch_dtype(spec, spec.make_params()).names) - {"cart"}
    text = (KERNELS / "drive" / "env.cuh").read_text()
    env = re.findall(r"^  (?:const )?[\w:]+&? (\w+);", text[text.index("struct Env :") :], re.M)
    env += re.findall(r"DEVICE \w+ (\w+)\(", text[text.index("struct Env :") :])
    assert {"state", "team", "metrics", "time", "print"} <= batch | set(env) <= TAKEN
    with pytest.raises(
        SpecError,
        match=r"group 'metrics': kernels reserve the name env\.metrics\. Choose another name",
    ):
        Group("metrics", 1, 4, Discrete(2))
    pair = (Group("cart", 1, 4, Discrete(2)), Group("cart", 2, 4, Discrete(2)))
    with pytest.raises(
        SpecError, match=r"groups\(params\) has the name 'cart' twice\. Names must be unique"
    ):
        replace(spec, groups=lambda p: pair).make_params()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("new", r" = 'new' is a word of C\+\+ or Python, .*\. Choose another"),
        ("lambda", " = 'lambda' is a word of "),
        ("__global__", " = '__global__' is .* reserved for compilers"),
    ],
)
def test_words_of_a_language_name_no_member_of_a_struct(name, words):
    for make_one in (
        Field,
        lambda name: Table(name, (2,)),
        lambda name: Group(name, 1, 4, Discrete(2)),
    ):
        with pytest.raises(SpecError, match=words):
            make_one(name)


def test_a_word_of_cpp_names_no_float_parameter():
    """An int may be called so: in a kernel it is an upper-case constant."""
    base, spec = envs.get("cartpole").params, envs.get("cartpole")
    with pytest.raises(SpecError, match="cartpole: params = 'register' is a word of"):
        replace(
            spec,
            params=make_dataclass(
                "P", [("register", float, param(1.0, "One."))], bases=(base,), frozen=True
            ),
        )
    kept = make_dataclass("P", [("register", int, param(1, "One."))], bases=(base,), frozen=True)
    assert replace(spec, params=kept).params is kept
