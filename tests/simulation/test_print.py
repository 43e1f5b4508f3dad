"""env.print: a line for one environment each step, the same on CPU and GPU, through Python's own
output.
"""

import math
import re
from dataclasses import replace

import numpy as np
import point
import pytest
import torch
from test_nvrtc import compiled

import cupydrive as cd
from cupydrive import envs
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.printing import PRINT_BYTES, formatted, lines
from cupydrive.codegen.source import KERNELS, assemble, kernel_text
from cupydrive.errors import ParameterError
from cupydrive.executors import executor
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

MOVE = "s.x += s.v;"
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def printing(text='env.print("x = %.9g after %d", s.x, env.elapsed);'):
    return replace(
        envs._load(point.PYTHON).spec, kernel=point.KERNEL.replace(MOVE, f"{MOVE} {text}")
    )


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_a_step_prints_one_line_for_one_environment(device, capsys):
    env = cd.make(printing(), 40, device=device)
    env.reset(seed=3)
    assert capsys.readouterr().out == ""
    for number, chosen in enumerate((0, 0, 7, 39), 1):
        env.print_env = chosen
        env.step(torch.full((40, 1), 0.5, device=env.device))
        said = capsys.readouterr().out
        x = float(env.state["x"][chosen])
        assert re.fullmatch(
            rf"point\[{chosen}\], step {number}: x = (\S+) after {number}\n", said
        ), said
        assert float(said.split()[5]) == pytest.approx(x, rel=1e-7)
    env.print_env = None
    env.step(torch.zeros((40, 1), device=env.device))
    assert capsys.readouterr().out == ""


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", DEVICES)
def test_a_rollout_prints_its_steps_in_order_and_says_what_did_not_fit(device, capsys):
    env = cd.make(printing(), 300, device=device, max_episode_steps=7)
    env.reset(seed=0)
    env.rollout(20)
    said = capsys.readouterr().out.splitlines()
    assert [int(line.split(" after ")[1]) for line in said] == [
        *range(1, 8),
        *range(1, 8),
        *range(1, 7),
    ]
    env.rollout(5000)
    *said, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        rf"point\[0\]: [\d,]+ more lines did not fit into {PRINT_BYTES:,} bytes.*", last
    )
    assert len(said) + int(last.split()[1].replace(",", "")) == 5000
    env.rollout(2)
    assert len(capsys.readouterr().out.splitlines()) == 2  # the memory is free again


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", DEVICES)
def test_printing_changes_no_number(device):
    plain = replace(envs._load(point.PYTHON).spec, kernel=point.KERNEL)
    one, other = (Batch(spec, 100, executor=executor(device)) for spec in (plain, printing()))
    for batch in (one, other):
        batch.reset(0)
    got, want = other.rollout(60), one.rollout(60)
    for name in ("obs", "reward", "action"):
        assert (getattr(got, name)["point"] == getattr(want, name)["point"]).all()


def printing_tag():
    """Tag on a grid, whose state is arrays; it prints from two of them, and an entry of an
    observation.
    """
    text = kernel_text(envs.get("tag_grid"))[1].rstrip()
    assert text.endswith("}")  # of `observe`, the last function
    printed = 'env.team.sync();\n  env.print("%d %d %.9g", env.state.x[0], env.state.y[4], env.runner.obs(0)[2]);'
    return replace(envs.get("tag_grid"), kernel=f"{text[:-1]}  {printed}\n}}\n")


@pytest.mark.full
@pytest.mark.parametrize("obs_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "build", [{}, {"debug": True}, {"team_threads": 4}], ids=["product", "debug", "team of 4"]
)
def test_elements_of_arrays_and_observations_print_as_their_numbers(build, obs_dtype, capsys):
    batch = Batch(printing_tag(), 3, executor=HostExecutor(**build), obs_dtype=obs_dtype)
    batch.printer.choose(1)
    batch.reset(1)
    for _ in range(5):
        capsys.readouterr()
        obs = batch.rollout(1).obs["runner"][1, 1, 0, 2]
        if obs_dtype == "bfloat16":  # the upper half of a float
            obs = (np.uint32(obs) << 16).view(np.float32)
        state, clock = (batch.get_state()[name][1] for name in ("state", "clock"))
        want = f"tag_grid[1], step {clock['elapsed']}: {state['x'][0]} {state['y'][4]} {obs:.9g}"
        assert capsys.readouterr().out.splitlines() == [want]


@pytest.mark.full
@pytest.mark.gpu
@pytest.mark.parametrize("team", [1, 4, 64])
def test_cpu_and_gpu_print_the_same_lines_for_any_team(team, capsys):
    spec, said = printing_tag(), []
    for device, layout in (("cpu", None), ("cuda", Layout(team, 64 // team if team < 64 else 1))):
        batch = Batch(spec, 50, executor=executor(device), layout=layout)
        batch.printer.choose(17)
        batch.reset(1)
        batch.rollout(30)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and len(said[0].splitlines()) >= 31


@pytest.mark.full
def test_a_team_prints_each_line_once(capsys):
    kernel = point.KERNEL.replace(
        "auto row = env.point.obs(0);",
        'auto row = env.point.obs(0); env.print("%.9g", env.state.x);',
    )
    spec, said = replace(envs._load(point.PYTHON).spec, kernel=kernel), []
    for host in (HostExecutor(), HostExecutor(team_threads=4)):
        batch = Batch(spec, 3, executor=host)
        batch.printer.choose(1)
        batch.reset(1)
        batch.rollout(5)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and len(said[0].splitlines()) == 6


@pytest.mark.full
def test_reload_takes_prints_over(capsys, tmp_path):
    python, kernel = tmp_path / "said.py", tmp_path / "said.cu"
    python.write_text(point.PYTHON.replace('"point", Params', '"said", Params'))
    kernel.write_text(point.KERNEL)
    env = cd.make(python, 3, device="cpu")
    env.print_env = 2
    env.reset(seed=0)
    env.rollout(3)
    kernel.write_text(point.KERNEL.replace(MOVE, f'{MOVE} env.print("here");'))
    assert env.reload() is True
    env.step(torch.zeros(3, 1))
    env.rollout(3)
    said = capsys.readouterr().out.splitlines()
    assert said == [f"said[2], step {k}: here" for k in (4, 5, 6, 7)]


@pytest.mark.parametrize("value", [-1, 4, 1.0, "0", True])
def test_an_environment_that_does_not_exist_cannot_print(value):
    env = cd.make(printing(), 4, device="cpu")
    with pytest.raises(ParameterError, match="print_env"):
        env.print_env = value
    assert env.print_env == 0


@pytest.mark.parametrize(
    ("form", "values", "want"),
    [
        ("x = %g", [], "x = %g"),
        ("x", [2.0], "x 2.0"),
        ("%g, %g", [1.0], "%g, %g 1.0"),
        ("%d", [math.inf], "%d inf"),
    ],
)
def test_a_format_with_another_number_of_values_shows_them_all(form, values, want):
    assert formatted(form, values) == want


@pytest.mark.full
def test_all_types_and_formats(capsys):
    text = (
        'env.print("%% %d %i %u %x|%5.2f|%-6g|%+.1e|%lld %llu %d" " joined, %c|%d %ld %lld %lu %llu %zu", -3, (i64)1 << 40, '
        "4000000000u, 255, 1.5f, 2.0f, -0.25f, (i64)-1, ~(u64)0, s.x < 9.0f, 65, "
        "(u8)200, -5L, -6LL, 7UL, 8ULL, sizeof(float));"
    )
    env = cd.make(printing(text), 1, device="cpu")
    env.reset(seed=0)
    env.step(torch.zeros(1, 1))
    want = "% -3 1099511627776 4000000000 ff| 1.50|2     |-2.5e-01|-1 18446744073709551615 1 joined, A|200 -5 -6 7 8 4"
    assert capsys.readouterr().out == f"point[0], step 1: {want}\n"
    assert list(lines(b"")) == []


@pytest.mark.full
@pytest.mark.parametrize(
    "layout", [Layout(1, 32), Layout(4, 16), Layout(64, 1), Layout(1, 32, half_obs=True)]
)
def test_printing_kernels_compile_for_gpus(layout):
    text = 'env.print("%g %d %u %ld %llu", s.x, env.elapsed, env.random.env, 1L, 2ULL);'
    for spec in (printing(text), printing_tag()):
        assert compiled(assemble(spec, spec.make_params(), layout), 90) == (0, "")


def test_kernels_that_do_not_print_have_none_of_it():
    for path in (KERNELS / "envs").glob("*.cu"):
        spec = envs.get(path.stem)
        unit = assemble(spec, spec.make_params(), Layout())
        assert not unit.prints and "#define PRINTS 0" in unit.text
    assert Batch(envs.get("cartpole"), 2).printer is None
