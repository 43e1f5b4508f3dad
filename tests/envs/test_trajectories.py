"""Trajectories have the bits that they had when they were recorded: on a CPU, in teams, on a GPU in
any layout.
"""

import json
from dataclasses import replace
from functools import lru_cache

import pytest
import trajectories

from cupydrive import envs
from cupydrive.checks.bits import team_layouts, team_of_threads
from cupydrive.executors.host import HostExecutor

pytestmark = pytest.mark.optimised

WORKS = trajectories.works()
# One of each environment for `make test`: the first case, few copies.
FIRST = list({work.env: work for work in reversed(WORKS)}.values())
CHOOSING = (100, 2_000, 20_000, 200_000)  # numbers of copies, by which a GPU chooses its layout
MANY_AGENTS = 300  # a team of threads walks through them one at a time


@lru_cache(maxsize=1)
def gpu():
    from cupydrive.executors.cuda import CudaExecutor

    return CudaExecutor()


def agents_of(work):
    """Return how many agents one copy has."""
    spec = envs.get(work.env)
    return sum(g.count for g in spec.groups(spec.make_params(**work.params)))


def sampled(works):
    """Return ``works`` as parameters of a test, of which `make test` runs one per environment."""
    return [pytest.param(w, marks=() if w in FIRST else pytest.mark.slow, id=str(w)) for w in works]


@pytest.mark.parametrize("work", sampled(WORKS))
def test_on_a_cpu(work):
    device = HostExecutor(threads=2)
    assert "-O3" in device.flags  # what users get
    assert trajectories.differences(work, device) == []


@pytest.mark.quick(2)
@pytest.mark.parametrize("level", ["0", "1", pytest.param("2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("work", FIRST, ids=str)
def test_at_any_level_of_optimisation(work, level, monkeypatch):
    monkeypatch.setenv("CUPYDRIVE_OPTIMIZE", level)
    device = HostExecutor(threads=2)
    assert f"-O{level}" in device.flags
    assert trajectories.differences(work, device) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "work", [w for w in WORKS if w.num_envs == 3 and agents_of(w) < MANY_AGENTS], ids=str
)
def test_in_a_team_of_threads(work):
    assert trajectories.differences(work, team_of_threads(agents_of(work))) == []


@pytest.mark.quick(10)
@pytest.mark.gpu
@pytest.mark.parametrize("work", sampled(WORKS))
def test_on_a_gpu(work):
    assert trajectories.differences(work, gpu()) == []


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("work", [w for w in WORKS if w.num_envs > 3], ids=str)
def test_on_a_gpu_in_any_layout(work):
    spec = envs.get(work.env)
    params = spec.make_params(**work.params)
    chosen = {gpu().layout(spec, params, num_envs): None for num_envs in CHOOSING}
    for layout in {**chosen, **dict.fromkeys(team_layouts(spec, params))}:
        assert trajectories.differences(work, gpu(), layout) == [], layout


def test_all_works_are_recorded():
    assert set(json.loads(trajectories.RECORDED.read_text())) == {str(work) for work in WORKS}


def test_another_seed_gives_other_bits():
    work = FIRST[0]
    first, other = (
        trajectories.digests(w, HostExecutor(threads=1)) for w in (work, replace(work, seed=5))
    )
    assert not any(
        first[name] == other[name] for name in first if name.startswith(("obs.", "action."))
    )
