"""Minibatches of the learner's kernels: which rows they have, the moments of these, and rows at the
bounds of a clip.
"""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learner_kernels import chosen, compute, problem, reference
from other_teams import OTHER_TEAMS, Backwards
from told import Keeping, Told
from walled import walled

from cupydrive.algorithms import PPO
from cupydrive.algorithms.kernels.gradients import COLUMNS, Minibatches, Task, drawers
from cupydrive.codegen.source import assemble_file
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.ranks import Shard


@pytest.mark.parametrize(
    ("envs", "agents"), [(1, (1,)), (5, (2, 3, 1)), (300, (1,)), (129, (1, 2))]
)
def test_minibatches_share_out_all_rows_block_by_block(envs, agents):
    config = PPO(
        num_steps=8,
        hidden=(16,),
        num_minibatches=3 if envs == 300 else 1 if envs == 1 else 2,
        update_epochs=2,
    )
    case = problem(config, envs=envs, agents=agents, obs_dim=3)
    case.gradients.arrange()
    rows, minibatches, blocks = (
        case.gradients.rows,
        case.gradients.minibatches,
        case.gradients.blocks,
    )
    bounds = pairwise(b * envs // blocks for b in range(blocks + 1))
    block_of_env = torch.tensor(
        [b for b, (first, last) in enumerate(bounds) for _ in range(first, last)]
    )
    # of each row
    env = torch.cat([torch.arange(8 * envs * count) // count % envs for count in agents])
    for epoch in range(2):
        parts = [chosen(case, epoch, m) for m in range(minibatches)]
        assert sorted(row for part in parts for row in part) == list(range(rows))
        # an even share of each environment's rows, but for what blocks do not divide into
        for part in parts:
            assert abs(len(part) - rows / minibatches) <= blocks
        found = block_of_env[env[case.gradients.memory["order"][epoch].long()]]
        # each block its own rows
        assert torch.equal(found, block_of_env.repeat_interleave(8 * sum(agents)))
    assert chosen(case, 0) != chosen(case, 1)
    first = [chosen(case, 0, m) for m in range(minibatches)]
    case.shared["iteration"] += 1
    case.gradients.arrange()
    assert first != [chosen(case, 0, m) for m in range(minibatches)]


SHARED = dict.fromkeys(("clip_coef", "ent_coef", "vf_coef", "skip", "center", "scale", "packed"))
SHARED |= {"seed": torch.tensor([11]), "iteration": torch.tensor([3])}


def minibatches_of(executor, config, sizes, columns, shared=SHARED):
    """Return ``Minibatches`` of rows of which only some columns are known; the caller keeps what
    ``columns`` has.
    """
    columns = {name: columns.get(name, [None] * len(sizes[2])) for name in COLUMNS}
    layout = SimpleNamespace(gradient=16, sequences=False)
    return Minibatches(Task(executor, layout, None, config, *sizes), columns, shared, 1)


def advantages(rng, steps, envs, agents):
    """Return random advantages by group, and who is in the game."""
    shapes = [(steps, envs, count) for count in agents]
    advantage = [torch.from_numpy(rng.normal(3, 2, shape).astype(np.float32)) for shape in shapes]
    return {
        "advantage": advantage,
        "active": [torch.from_numpy(rng.random(shape) < 0.7) for shape in shapes],
    }


# Environments, steps, agents, epochs, minibatches; and of what executor.
MANY = (200, 35, (1, 1), 2, 1)  # of 70 or 140 rows a block, fewer than a sum has chains, or more


@pytest.mark.parametrize(
    ("sizes", "how"),
    [
        (MANY, {}),
        ((*MANY[:3], 1, 1), {}),
        ((200, 5, (1,), 2, 1), {"team_threads": 4}),
        ((100, 1, (1,), 2, 2), {}),
    ],
    ids=["shuffled", "in order", "team of 4", "a minibatch of no rows"],
)
def test_moments_are_those_of_all_rows_in_the_game(sizes, how):
    n, steps, agents, epochs, minibatches = sizes
    config = PPO(num_steps=steps, update_epochs=epochs, num_minibatches=minibatches)
    columns = advantages(np.random.default_rng(0), steps, n, agents)
    made = minibatches_of(
        HostExecutor(1, flags=("-O1",), **how), config, (Shard(n), steps, agents), columns
    )
    made.arrange()
    there = torch.cat(
        [x[a] for x, a in zip(columns["advantage"], columns["active"], strict=True)]
    ).double()
    expected = [1 / len(there), there.mean().item(), there.std(correction=0).item(), len(there)]
    for *of_none, of_all in made.moments.tolist():  # the one row of a block is the last minibatch's
        assert of_all == pytest.approx(expected, rel=1e-5)
        assert all(found == pytest.approx([1, 0, 1e-8, 0], rel=1e-5) for found in of_none)


@pytest.mark.parametrize("envs", [7, 130, 300])
def test_a_rank_draws_and_weighs_the_rows_of_its_blocks_as_one_that_has_all(envs):
    steps, size, config = 6, 3, PPO(num_steps=6, update_epochs=2, num_minibatches=3)
    known = advantages(np.random.default_rng(1), steps, envs, (2,))

    def drawn(shard):
        columns = {
            name: [column[:, shard.envs].contiguous() for column in of]
            for name, of in known.items()
        }
        made = minibatches_of(
            HostExecutor(1, flags=("-O1",)), config, (shard, steps, (2,)), columns
        )
        made.arrange()
        return made, columns["advantage"][0].view(-1)[made.memory["order"].long()]

    everything = Keeping()
    whole, rows = drawn(Shard(envs, everything))
    for rank in range(size):
        shard = Shard(envs, Told(rank, size, everything.kept))
        made, own = drawn(shard)
        assert not shard.ranks.left
        assert torch.equal(made.moments, whole.moments)
        assert torch.equal(own, rows[:, 2 * steps * shard.envs.start : 2 * steps * shard.envs.stop])


@pytest.mark.full
@pytest.mark.parametrize(
    "sizes",
    [(1, 2000, (1, 1), 1, 1), (2, 3, (128,), 1, 1), (130, 5, (2, 1), 1, 1), (130, 5, (2, 1), 1, 2)],
    ids=["long", "a step has as many rows as there are chains", "in order", "shuffled"],
)
def test_minibatches_are_the_same_by_any_team_in_any_order(sizes):
    n, steps, agents, epochs, minibatches = sizes
    config, found = PPO(num_steps=steps, update_epochs=epochs, num_minibatches=minibatches), []
    columns = advantages(np.random.default_rng(2), steps, n, agents)
    columns = {name: [walled(column) for column in of] for name, of in columns.items()}
    for how in OTHER_TEAMS.values():
        for order in (lambda program: program, Backwards):
            made = minibatches_of(HostExecutor(**how), config, (Shard(n), steps, agents), columns)
            memory = {name: walled(tensor) for name, tensor in made.memory.items()}
            for name in ("order", "counts", "sums", "squares", "moments"):
                made.call[name] = memory[name].data_ptr()
            made.drawing = order(made.drawing)
            made.arrange()
            found.append(
                b"".join(
                    tensor.numpy().tobytes() for tensor in memory.values() if tensor is not None
                )
            )
    assert found[1:] == found[:1] * 5
    if epochs * minibatches == 1:  # nothing to draw: each block has its rows as they come
        bounds = pairwise(b * n // made.blocks for b in range(made.blocks + 1))
        block_of_env = torch.tensor(
            [b for b, (first, last) in enumerate(bounds) for _ in range(first, last)]
        )
        # of each row
        env = torch.cat([torch.arange(steps * n * count) // count % n for count in agents])
        assert torch.equal(memory["order"][0].long(), torch.argsort(block_of_env[env], stable=True))


def test_all_bits_of_an_iterations_number_draw_others():
    columns, config = (
        advantages(np.random.default_rng(0), 4, 3, (1,)),
        PPO(num_steps=4, num_minibatches=2),
    )
    orders = []
    for iteration in (3, 2**31 + 3, 2**32 + 3, 2**62 + 3):
        shared = SHARED | {"iteration": torch.tensor([iteration])}
        made = minibatches_of(
            HostExecutor(1, flags=("-O1",)), config, (Shard(3), 4, (1,)), columns, shared
        )
        made.arrange()
        orders.append(tuple(made.memory["order"].view(-1).tolist()))
    assert len(set(orders)) == 4


def test_a_minibatch_of_no_rows_has_a_gradient_of_0():
    """Nothing is left of the minibatch before."""
    case = problem(PPO(num_steps=1, hidden=(), num_minibatches=2, update_epochs=2), envs=4)
    assert any(g.any() for g in compute(case, 0, 1))
    assert not any(g.any() for g in compute(case, 1, 0))


@pytest.mark.full
def test_a_value_at_the_bound_of_its_clip_has_the_gradient_of_torch():
    """It is not beyond the bound, and of two losses that are equal each counts by half.

    This build checks indices of arrays.
    """
    config = PPO(num_steps=4, hidden=(), clip_vloss=True, update_epochs=1, num_minibatches=1)
    case = problem(
        config, "sixteen", envs=4, leaving=True, gain=100.0, executor=HostExecutor(debug=True)
    )
    case.numbers["clip_coef"] = 0.25
    case.shared["clip_coef"].fill_(0.25)
    # so that each value is 0; logits are so large that exponentials may overflow
    for p in case.steps.weights[2:]:
        p.zero_()
    values = case.parts[0]["value"].view(-1)
    values[::2], values[1::2] = 0.25, -0.25
    values[::3], case.parts[0]["returns"].view(-1)[::3] = (
        -0.75,
        -0.25,
    )  # beyond the bound, with the same error either way
    case.gradients.arrange()
    losses, expected = reference(case)
    for mine, exact in zip(compute(case), expected, strict=True):
        assert (mine - exact).norm() <= 1e-5 * exact.norm()
    reported = dict(zip(case.steps.reported, case.shared["metric_sums"].tolist(), strict=False))
    assert reported["value_loss"] == pytest.approx(losses["value_loss"], rel=1e-5)


@pytest.mark.parametrize("crowded", [False, True])
def test_a_chunk_of_any_size_has_threads_that_a_block_can_have(crowded):
    for rows in (1, 3, 4, 5, 8, 31, 32, 33, 63, 64, 65, 128, 1000):
        team = drawers(rows, crowded)
        unit = assemble_file(
            "learn/minibatches", (("AGENT_GROUPS", 1), ("SEQUENCES", 0), ("SHUFFLED", 1)), team=team
        )
        assert unit.layout.team == team and (team >= min(rows, 128) or not crowded)
