"""Kernels for matrix units by teams of threads on a CPU: each member has what a warp of a GPU has,
and no sync is missing.

Members take turns from sync to sync, in an order that changes, so that a missing sync shows.
"""

import pytest
import torch
from learner_kernels import compute, problem
from test_learner_kernels import bits, outputs
from test_tensor_gradients import BY_GROUPS

from cupydrive.algorithms import PPO
from cupydrive.algorithms.kernels import tensor, wide
from cupydrive.algorithms.kernels.arithmetic import TENSOR, WIDE
from cupydrive.executors.host import HostExecutor

pytestmark = pytest.mark.full


def by_teams(arithmetic, team, envs, found, obs_dim=19):
    """Return what ``found(case, executor)`` gives for blocks of 16 rows of one network, by one
    thread and by a team of them.
    """
    config = PPO(num_steps=11, hidden=(40, 34), num_minibatches=2, update_epochs=1)
    about = dict(
        actions="several",
        agents=(2,),
        masks=True,
        leaving=True,
        obs_dim=obs_dim,
        arithmetic=arithmetic,
    )
    with pytest.MonkeyPatch.context() as patched:
        for module in (tensor, wide):
            patched.setattr(module, f"{module.__name__.rpartition('.')[2].upper()}_ROWS", (16, 16))
        executors = HostExecutor(threads=1, flags=("-O1",)), HostExecutor(team_threads=team)
        return [
            found(problem(config, envs=envs, executor=each, **about), each) for each in executors
        ]


# With 27 environments a block of wide kernels has an odd number of slabs of each of its two tiles.
# Of 32 members some have no row of a tile, as on a GPU; those of a warp group share its rows. Of 13
# entries of an observation a member of a block has so few that it loads those of the next tile
# ahead.
@pytest.mark.parametrize(
    ("arithmetic", "team", "obs_dim"),
    [(TENSOR, 32, 13), (WIDE, 32, 19), (BY_GROUPS, 4, 19)],
    ids=["block", "wide", "warp groups"],
)
def test_a_team_of_threads_has_the_gradients_of_one_by_matrix_units(arithmetic, team, obs_dim):
    """No sync is missing, and nobody's rows are left out; some numbers are summed up in another
    order.
    """

    def gradient(case, executor):
        return [*compute(case, 0, 1), case.shared["metric_sums"]]

    one, other = by_teams(arithmetic, team, 27, gradient, obs_dim)
    assert all(torch.allclose(*pair, rtol=1e-4, atol=1e-6) for pair in zip(one, other, strict=True))
    assert arithmetic is BY_GROUPS or bits(one[:-1]) == bits(other[:-1])


def test_splits_of_the_rows_add_up_to_the_gradient_of_one():
    config, found = PPO(num_steps=40, hidden=(40, 34), num_minibatches=1, update_epochs=1), []
    for teams in (1, 64):
        executor = HostExecutor(2, flags=("-O1",))
        executor.resident_teams = lambda *_, teams=teams: teams
        case = problem(config, envs=20, obs_dim=19, arithmetic=WIDE, executor=executor)
        assert case.gradients.splits == (1 if teams == 1 else 3)
        found.append([*compute(case, 0, 0), case.shared["metric_sums"]])
    for one, several in zip(*found, strict=True):
        assert torch.allclose(one, several, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("arithmetic", "envs"), [(TENSOR, 21), (TENSOR, 24), (WIDE, 21)], ids=["block", "warps", "wide"]
)
def test_a_team_of_threads_has_the_outputs_of_one_by_matrix_units(arithmetic, envs):
    def found(case, executor):
        case.steps.pack()
        return outputs(case, arithmetic, executor)

    one, other = by_teams(arithmetic, 32, envs, found)
    assert bits(one) == bits(other)


def test_a_row_is_found_in_chunks_of_one_size_as_in_any():
    """The first are divided, the others searched: told that they may differ, a kernel finds the
    same rows.
    """
    config, found = PPO(num_steps=11, hidden=(16,), num_minibatches=3, update_epochs=1), []
    for alike in (True, False):
        case = problem(config, envs=21, arithmetic=TENSOR)
        assert (case.gradients.table[:, 1] > 0).all()
        if not alike:
            case.gradients.table[:, 1] = 0
        found.append(bits(compute(case, 0, 1)))
    assert found[0] == found[1]
