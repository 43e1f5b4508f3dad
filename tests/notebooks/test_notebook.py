"""What a notebook adds: kernels in cells, reloading, pictures of environments."""

import re

import numpy as np
import point
import pytest
import torch
from conftest import optional

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import CompileError, CupydriveError, OrderError, TrainingError
from cupydrive.executors import executor
from cupydrive.simulation.batch import Batch

# A test's own copy of the environment under a name that is not used elsewhere.
PYTHON = point.PYTHON.replace('"point", Params', '"cell_point", Params')


@pytest.fixture
def shell(monkeypatch):
    # IPython warns of one that is not this Python's
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    InteractiveShell = optional("IPython.core.interactiveshell").InteractiveShell

    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "cupydrive")
    made.user_ns.clear()
    made.push({"SPEC": envs._load(PYTHON).spec})
    yield made
    envs._registered.pop("cell_point", None)
    InteractiveShell.clear_instance()


def line_of(text, part):
    """Return the number of the first line that has ``part``, as an editor counts a cell's lines:
    the magic is line 1.
    """
    return next(k for k, line in enumerate(text.splitlines(), 2) if part in line)


@pytest.mark.full
def test_a_cell_is_a_kernel(shell, capsys):
    shell.run_cell_magic("cuda_env", "cell_point", point.KERNEL)
    assert re.search(r"cell_point: compiled for (cpu|cuda) in \d", capsys.readouterr().out)
    cd.register(point.PYTHON, point.KERNEL)
    one, other = (cd.make(name, num_envs=4, device="cpu") for name in ("cell_point", "point"))
    for env in (one, other):
        env.reset(seed=0)
    assert torch.equal(one.rollout(50).obs, other.rollout(50).obs)


def test_a_syntax_error_names_the_cells_line(shell):
    broken = point.KERNEL.replace("s.x += s.v;", "s.x += s.w;")
    with pytest.raises(CompileError) as error:
        shell.run_cell_magic("cuda_env", "cell_point", broken)
    assert f"<kernel of cell_point>:{line_of(broken, 's.w')}" in str(error.value)
    assert "s.x += s.w;" in str(error.value)
    assert "cell_point" not in envs.names()  # what does not compile is not registered


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("s.x += s.v;", "s.x += sinf(s.v);", "use math::sin"),
        (
            "float x, v;",
            "float x; int v;",
            "struct State must be as in Python: { float x; float v; }",
        ),
    ],
)
def test_a_cell_shows_its_message_alone(shell, capsys, old, new, words):
    result = shell.run_cell("%%cuda_env cell_point\n" + point.KERNEL.replace(old, new))
    assert isinstance(result.error_in_exec, CompileError)
    shown = capsys.readouterr().out.strip()
    assert (
        shown == f"CompileError: {result.error_in_exec}"
        and "Traceback" not in shown
        and "magic.py" not in shown
    )
    assert shown.count(words) == 1 and len(shown.splitlines()) <= 4


@pytest.mark.parametrize("notebook", [False, True])
def test_the_choice_of_a_device_is_a_quiet_line_in_a_notebook(notebook, capsys, monkeypatch):
    from cupydrive.simulation import make as making

    monkeypatch.setattr(making, "in_notebook", lambda: notebook)
    monkeypatch.setattr(making, "_said", set())
    cd.make("cartpole")
    cd.make("cartpole")
    shown = capsys.readouterr()
    assert (shown.out if notebook else shown.err).count("cupydrive: device: ") == 1
    assert (shown.err if notebook else shown.out) == ""


@pytest.mark.full
def test_a_nan_names_the_field(shell):
    shell.run_cell_magic(
        "cuda_env",
        "cell_point",
        point.KERNEL.replace("row[1] = env.state.v", "row[1] = 0.0f / 0.0f"),
    )
    report = cd.check("cell_point", agent_steps=1000, device="cpu", progress=False)
    assert not report.passed and "obs.point" in str(report) and "nan" in str(report)
    with pytest.raises(
        TrainingError, match="the obs of 'point' in environment 0, agent 0, entry 1"
    ):
        cd.train(
            "cell_point", cd.PPO(num_steps=8), num_envs=4, steps=100, device="cpu", progress=False
        )


def test_a_cell_without_a_spec_says_what_to_do(shell):
    with pytest.raises(
        CupydriveError,
        match=r"no EnvSpec with this name, it has: cell_point\. Did you mean 'cell_point'\?",
    ):
        shell.run_cell_magic("cuda_env", "cel_point", point.KERNEL)
    with pytest.raises(CupydriveError, match="kernel must have `struct State"):
        shell.run_cell_magic("cuda_env", "cell_point", "struct Params {};\n")


@pytest.mark.full
def test_reload_takes_a_changed_cell_over_and_keeps_tensors_and_state(shell):
    shell.run_cell_magic("cuda_env", "cell_point", point.KERNEL)
    env = cd.make("cell_point", num_envs=3, device="cpu", strength=0.5)
    env.reset(seed=0)
    push = torch.ones(3, 1)
    env.step(push)
    x, v = (env.state[name].clone() for name in ("x", "v"))
    held = env.state["x"]
    shell.run_cell_magic(
        "cuda_env", "cell_point", point.KERNEL.replace("s.x += s.v;", "s.x += 2.0f * s.v;")
    )
    assert env.reload() is True
    assert torch.equal(env.state["x"], x) and env.elapsed.tolist() == [1, 1, 1]
    env.step(push)
    v = v * np.float32(0.9) + np.float32(0.5)
    torch.testing.assert_close(env.state["x"], x + 2 * v, rtol=1e-6, atol=1e-6)
    assert held.data_ptr() == env.state["x"].data_ptr()


def test_reload_takes_changed_bounds_over(tmp_path):
    python, kernel = tmp_path / "bounded.py", tmp_path / "bounded.cu"
    text = point.PYTHON.replace('"point", Params', '"bounded", Params')
    python.write_text(text)
    kernel.write_text(point.KERNEL)
    env = cd.make(python, num_envs=2, device="cpu")
    env.reset(seed=0)
    assert np.isinf(env.single_observation_space.high).all()
    assert text.count('Group("point", 1, 2, ') == 1
    python.write_text(
        text.replace('Group("point", 1, 2, ', 'Group("point", 1, 2, obs_high=3.0, action_space=')
    )
    assert env.reload() is True
    assert env.groups[0].obs_high == 3.0 and (env.observation_space.high == 3.0).all()
    envs._registered.pop("bounded")


def test_what_runs_on_with_other_parameters_runs_as_what_was_made_with_them():
    spec, device = envs.get("tag_grid"), executor("cpu")
    long, short = (spec.make_params(max_episode_steps=steps) for steps in (100, 7))
    held, made = Batch(spec, 3, long, device), Batch(spec, 3, short, device)
    assert held.exchange(spec, short)
    for batch in (held, made):
        batch.reset(0)
    got, want = held.rollout(20), made.rollout(20)
    assert got.terminated.any()
    for name in ("tagger", "runner"):
        # elapsed time as a share of max_episode_steps is among them
        assert (got.obs[name] == want.obs[name]).all()


@pytest.mark.full
def test_reload_of_another_layout_begins_anew(shell):
    shell.run_cell_magic("cuda_env", "cell_point", point.KERNEL)
    env = cd.make("cell_point", num_envs=3, device="cpu", strength=0.5)
    env.reset(seed=0)
    wider = PYTHON.replace('Field("v"))', 'Field("v"), Field("w"))').replace(
        '("v", "f4")]', '("v", "f4"), ("w", "f4")]'
    )
    shell.push({"SPEC": envs._load(wider).spec})
    shell.run_cell_magic(
        "cuda_env", "cell_point", point.KERNEL.replace("float x, v;", "float x, v, w;")
    )
    assert env.reload() is False
    assert set(env.state) == {"x", "v", "w"} and env.params.strength == 0.5
    with pytest.raises(OrderError):
        env.step(torch.zeros(3, 1))
    env.reset(seed=0)


@pytest.mark.full
def test_reload_of_what_does_not_compile_leaves_the_environment_as_it_was(tmp_path):
    python, kernel = tmp_path / "file_point.py", tmp_path / "file_point.cu"
    python.write_text(point.PYTHON.replace('"point", Params', '"file_point", Params'))
    kernel.write_text(point.KERNEL)
    env = cd.make(python, num_envs=2, device="cpu")
    env.reset(seed=0)
    env.step(torch.ones(2, 1))
    before = env.state["x"].clone()
    kernel.write_text(point.KERNEL.replace("s.x += s.v;", "s.x += ;"))
    with pytest.raises(CompileError, match=r"file_point\.cu"):
        env.reload()
    env.step(torch.zeros(2, 1))
    kernel.write_text(point.KERNEL.replace("s.x += s.v;", "s.x += 0.0f;"))
    here = env.state["x"].clone()
    assert env.reload() is True
    env.step(torch.ones(2, 1))
    assert torch.equal(env.state["x"], here) and not torch.equal(here, before)
    envs._registered.pop("file_point")


def test_an_environment_shows_its_state_as_a_picture():
    env = cd.make("cartpole", num_envs=2, device="cpu")
    assert "<img" not in env._repr_html_()
    env.reset(seed=0)
    first = env._repr_html_()
    assert "data:image/png;base64," in first and "2 environments, after 0, 0 steps" in first
    env.step(torch.zeros(2, dtype=torch.int32))
    assert env._repr_html_() != first
