"""On the CPU environments of one agent step side by side, and all in pieces: a few steps of some
thousands at a time.

Lanes without an environment run one that is there.
"""

import ctypes
import mmap

import numpy as np
import point
import pytest
from conftest import run_python

import cupydrive as cd
from cupydrive import envs
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

pytestmark = pytest.mark.optimised

# Doubles until 100, which ends the task: a state that nobody reaches would never leave the loop.
PROGRAM = """
import point
import cupydrive as cd

walk = "s.x = 2.0f * (s.x < 0.0f ? -s.x : s.x) + 0.1f; while (s.x > 1000.0f) s.x += 1.0f - 1.0f;"
text = point.KERNEL.replace("s.x += s.v;", walk)
text = text.replace("return false;", "return env.state.x > 100.0f;")
spec = cd.register(point.PYTHON, text)
for n in (1, 15, 17):
    env = cd.make(spec, n, device="cpu", max_episode_steps=1000)
    env.reset(seed=0)
    print(n, env.rollout(200).obs[..., 0].max().item() < 1000)
"""


@pytest.mark.full
def test_no_lane_leaves_the_states_of_the_environment():
    done = run_python("-c", PROGRAM, seconds=60)
    assert done.stdout == "1 True\n15 True\n17 True\n", done.stderr


def rolled(batch, *lengths):
    """Return the rows of rollouts one after the other, by name."""
    parts = []
    for steps in lengths:
        written = batch.rollout(steps)
        arrays = {name: getattr(written, name) for name in ("terminated", "truncated")}
        for what in ("action", "reward"):
            arrays |= {f"{what}.{name}": array for name, array in getattr(written, what).items()}
        arrays |= {f"obs.{name}": array[1:] for name, array in written.obs.items()}
        parts.append({name: array.copy() for name, array in arrays.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def entries(name):
    """Return the numbers that all agents of an environment observe together."""
    spec = envs.get(name)
    return sum(g.count * g.obs_dim for g in spec.groups(spec.make_params()))


# Rows of tens of thousands of numbers take gigabytes.
@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if entries(name) > 20_000 else name
        for name in envs.names()
    ],
)
def test_long_rollouts_of_many_are_short_ones_of_few(name):
    spec, n = envs.get(name), 4_200
    small = (
        {"num_taggers": 2, "num_runners": 6, "num_other_agents_observed": 3}
        if name == "tag_continuous"
        else {}
    )
    large = sum(g.count * g.obs_dim for g in spec.groups(spec.make_params(**small))) > 1_000
    steps = 4 if large else 11  # rows of many take gigabytes
    params = spec.make_params(max_episode_steps=steps * 2 // 3, **small)
    many = Batch(spec, n, params)
    many.reset(5)
    want = rolled(many, 2, steps - 2)
    for first, count in ((0, 9), (4_090, 20), (n - 9, 9)):  # where pieces begin, meet and end
        few = Batch(spec, count, params, first_env=first)
        few.reset(5)
        for key, array in rolled(few, *[1] * steps).items():
            assert array.tobytes() == want[key][:, first : first + count].tobytes(), key


def gusty():
    """Return the point environment with wind, drawn in `step`, a count of gusts, and a time limit
    that ends the task.
    """
    blow = "const float wind = env.random.uniform4(0).x - 0.5f; env.metrics.gusts += wind > 0.25f; s.x += s.v + wind;"
    counted = (
        '"terminates", Reference(reset, step, observe, sample_states), metrics={"gusts": "int"}'
    )
    python = (
        point.PYTHON.replace(
            "x = states[",
            "wind = random.uniform()[:, 0, 0] - np.float64(0.5)\n    x = wind + states[",
        )
        .replace(
            "np.zeros(len(x), bool))", 'np.zeros(len(x), bool), metrics={"gusts": wind > 0.25})'
        )
        .replace('"truncates", Reference(reset, step, observe, sample_states)', counted)
    )
    return cd.register(python, point.KERNEL.replace("s.x += s.v;", blow))


@pytest.mark.full
def test_what_a_step_draws_and_counts_and_a_limit_that_ends_the_task_are_the_references():
    """No environment of the package that has one agent does any of it."""
    report = cd.check(gusty(), agent_steps=5_000, device="cpu", progress=False)
    assert report.passed, str(report)


def test_a_step_reads_no_action_behind_the_last():
    """Five environments leave eleven lanes empty; behind their actions lies memory that nobody may
    read.
    """
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    end = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    batch = Batch(envs.get("cartpole"), 5, executor=HostExecutor(threads=1))
    batch.reset(0)
    batch.step([end - 5 * 4])
    assert (batch.clock["elapsed"] == 1).all()
