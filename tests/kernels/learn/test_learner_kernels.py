"""Kernels of kernels/learn: gradients against torch's in float64, Adam by hand, bits that no tiling
or team changes.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from learner_kernels import compute, problem, reference
from walled import walled

from cupydrive.algorithms import A2C, PPO
from cupydrive.algorithms.kernels.arithmetic import EXACT, TENSOR, WIDE
from cupydrive.algorithms.kernels.layout import NetworkLayout
from cupydrive.algorithms.kernels.tensor import (
    MOST_SUMS,
    fitting_rows,
    minibatch_table,
    register_sums,
)
from cupydrive.algorithms.kernels.tensor import block_shape as tensor_shape
from cupydrive.executors.host import HostExecutor
from cupydrive.executors.interop import make_call
from cupydrive.executors.ranks import Shard

PLAIN = dict(update_epochs=1, num_minibatches=1)
# Settings of the algorithm, and of the problem. Widths and rows that fill no tile; 1, 15, 17 rows;
# 3, 5, 76, 1,043 entries.
CASES = {
    "shared": (PPO(num_steps=8, shared_layers=True), dict(envs=6)),
    "separate, two heads' layers": (PPO(num_steps=5, hidden=(24, 17)), dict(envs=3, obs_dim=3)),
    "one row": (PPO(num_steps=1, norm_adv=False, **PLAIN), dict(envs=1)),
    "15 rows": (PPO(num_steps=5, hidden=(16,), **PLAIN), dict(envs=3, obs_dim=76, normalised=True)),
    "17 rows, wide": (PPO(num_steps=17, hidden=(33, 16), **PLAIN), dict(envs=1, obs_dim=1043)),
    "linear": (PPO(num_steps=8, hidden=(), **PLAIN), dict(envs=5)),
    "three layers, ReLU": (PPO(num_steps=8, hidden=(20, 16, 40), activation="relu"), dict(envs=8)),
    "several heads, masks": (PPO(num_steps=8),
    dict(envs=7, actions="several", masks=True, agents=(2,), obs_dim=9)),
    "several heads, no mask": (PPO(num_steps=4, hidden=(16,)), dict(envs=4, actions="several")),
    "groups, leaving": (PPO(num_steps=6, clip_vloss=True),
    dict(envs=8, agents=(3, 1), leaving=True, normalised=True)),
    "values clipped": (PPO(num_steps=8, clip_vloss=True, norm_adv=False, shared_layers=True),
    dict(envs=300)),
    "Gaussian": (PPO(num_steps=8), dict(envs=6, actions="box")),
    "squashed": (PPO(num_steps=8, distribution="squashed", shared_layers=True),
    dict(envs=6, actions="box", leaving=True)),
    "mixed, masks": (PPO(num_steps=8),
    dict(envs=7, actions="mixed", masks=True, agents=(2, 1), leaving=True)),
    "mixed, squashed": (A2C(num_steps=9, distribution="squashed", shared_layers=True),
    dict(envs=6, actions="mixed")),
    "A2C": (A2C(num_steps=9), dict(envs=5, actions="several", agents=(2, 2), masks=True, leaving=True)),
    "A2C, normalised": (A2C(num_steps=9, norm_adv=True, activation="relu"),
    dict(envs=140, actions="box")),
}  # fmt: skip


# What takes the compiler longest, or what others nearly cover, is left to `make test-all`.
LONG = (
    *(
        "one row",
        "three hidden layers",
        "17 rows, wide",
        "several heads, no mask",
        "values clipped",
        "A2C, normalised",
    ),
    *("bounds checked", "products by a library"),
)


def sampled(names):
    """Return the names as parameters, the long ones marked as slow."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names]


@pytest.mark.parametrize("name", sampled(CASES))
def test_gradients_are_torchs_in_float64(name):
    config, about = CASES[name]
    case = problem(config, **about)
    last = case.gradients.epochs - 1, case.gradients.minibatches - 1
    losses, expected = None, None
    case.steps.pack()
    case.gradients.arrange()
    losses, expected = reference(case, *last)
    found = compute(case, *last)
    for layer, (mine, exact) in enumerate(zip(found, expected, strict=True)):
        assert (mine - exact).norm() <= 1e-5 * exact.norm(), layer
    *sums, count = case.shared["metric_sums"].tolist()
    assert count == 1
    reported = dict(zip(case.steps.reported, sums, strict=True))
    norm = torch.stack([g.norm() for g in expected]).norm().item()
    for key, value in (losses | {"grad_norm": norm}).items():
        assert reported[key] == pytest.approx(value, rel=2e-5, abs=2e-6), key


def outputs(case, arithmetic, executor):
    """Return the logits and values of a case's observations by forward passes in one arithmetic."""
    obs = case.parts[0]["obs"].flatten(0, 2).contiguous()
    rows, size = len(obs), case.layout.size
    tile, unit = arithmetic.forward_unit(case.layout, case.distribution, executor, rows)
    logits, value = walled(torch.zeros(rows, size)), walled(torch.zeros(rows))
    pointers = {"obs": obs, "at": None, "center": None, "scale": None, "packed": case.steps.packed}
    pointers |= {"parameters": logits, "value": value} | arithmetic.pointers(case.steps)
    # of which a team has several, and the last ones fewer; a team of threads has all
    tiles = -(-rows // tile)
    teams = tiles // (1 if not arithmetic.in_block else 3 if executor.max_team == 1 else tiles)
    sample = {"sample": case.distribution.call()}
    call = make_call(
        {"rows": rows, "num_envs": rows, "agents": 1, "teams": teams}, pointers, structs=sample
    )
    executor.build(unit).launch("forward_rows", call, teams, rows)
    return logits, value


@pytest.mark.full
@pytest.mark.parametrize(("shared", "way"), [(False, TENSOR), (True, TENSOR), (False, WIDE)])
def test_actions_of_bfloat16_factors_differ_where_the_draw_lies_at_a_boundary(shared, way):
    """Of 6,144 draws one in a hundred may differ; no probability by more than 0.02, no value by
    more than 2 % of their size.
    """
    executor = HostExecutor(flags=("-O1",))
    config, found = PPO(num_steps=96, shared_layers=shared), []
    for each in (EXACT, way):
        case = problem(config, envs=64, executor=executor, arithmetic=each)
        case.steps.pack()
        found.append(outputs(case, each, executor))
    (exact, values), (near, near_values) = found
    ends, near_ends = (logits.softmax(1).cumsum(1)[:, :-1].contiguous() for logits in (exact, near))
    draw = torch.from_numpy(np.random.default_rng(0).random((len(exact), 1), dtype=np.float32))
    action, near_action = ((draw > e).sum(1) for e in (ends, near_ends))
    assert (ends - near_ends).abs().max() < 0.02
    assert 0 < (action != near_action).float().mean() < 0.01
    assert (values - near_values).abs().max() < 0.02 * values.abs().max()


def test_no_thread_of_a_tensor_block_has_more_sums_than_registers_hold():
    """Of many rows a block has fewer threads, unless each would have too many sums."""
    executor = HostExecutor()
    for width, threads in ((64, 128), (96, 128), (112, 256), (128, 256)):
        layout = NetworkLayout.of(PPO(hidden=(width, width)), 4, 2)
        assert tensor_shape(layout, executor, 2**20)[1] == threads, width
        assert register_sums(layout, threads) <= MOST_SUMS
    assert not fitting_rows(NetworkLayout.of(PPO(hidden=(256, 256)), 4, 2), executor)


@pytest.mark.parametrize("envs", [7, 128, 129, 300])
@pytest.mark.parametrize("minibatches", [1, 3])
def test_the_host_knows_where_each_row_of_a_minibatch_is(envs, minibatches):
    """Chunk after chunk, as ``order`` has them: what the exact kernels find by themselves."""
    rows_of_env, blocks = 5, min(envs, 128)
    rows = [((b + 1) * envs // blocks - b * envs // blocks) * rows_of_env for b in range(blocks)]
    begins = np.cumsum([0, *rows])
    for m, (count, even, *table) in enumerate(
        minibatch_table(Shard(envs), rows_of_env, minibatches).tolist()
    ):
        parts = [(m * n // minibatches, (m + 1) * n // minibatches) for n in rows]
        sizes = [end - begin for begin, end in parts]
        assert count == sum(sizes) and even == (sizes[0] if len(set(sizes)) == 1 else 0)
        assert table[:blocks] == [sum(sizes[:b]) for b in range(blocks)]
        assert table[blocks:] == [begins[b] + parts[b][0] for b in range(blocks)]


def bits(tensors):
    return b"".join(np.ascontiguousarray(t.numpy()).tobytes() for t in tensors)


EXECUTORS = {
    "two threads": dict(threads=2),
    "narrow vectors": dict(flags=("-mno-avx512f",)),
    "products by a library": dict(flags=("-mno-avx512f", "-mno-fma", "-O1")),
    "team of 4": dict(team_threads=4, flags=("-fsanitize=bounds", "-fno-sanitize-recover=bounds")),
    "bounds checked": dict(debug=True),
}
NEEDED = {"narrow vectors": "avx512f", "products by a library": "fma"}


@pytest.mark.full
@pytest.mark.parametrize("how", sampled(EXECUTORS))
def test_bits_depend_on_neither_tiles_nor_threads_nor_teams(how):
    if how in NEEDED and NEEDED[how] not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has nothing else")
    config = PPO(num_steps=4, hidden=(40, 17, 33), num_minibatches=2, update_epochs=1)
    about = dict(envs=70, actions="several", agents=(2,), masks=True, leaving=True, obs_dim=19)
    found = []
    for executor in (HostExecutor(threads=1), HostExecutor(**EXECUTORS[how])):
        case = problem(config, executor=executor, **about)
        case.steps.pack()
        given = outputs(case, EXACT, executor)
        gradient = compute(case, 0, 1)
        found.append(
            (
                bits(given),
                bits(gradient),
                bits(case.steps.weights),
                bits([case.shared["metric_sums"]]),
            )
        )
    assert found[0] == found[1]


def test_gradients_below_the_limit_of_their_norm_are_not_scaled():
    config, found, norm = PPO(num_steps=8, hidden=(16,), **PLAIN), [], None
    for limit in (1e6, 1.3):
        case = problem(config, envs=9, obs_dim=3)
        case.shared["max_grad_norm"].fill_(limit if norm is None else limit * norm)
        compute(case)
        norm = case.shared["metric_sums"][case.steps.reported.index("grad_norm")].item()
        found.append(bits(case.steps.weights))
    assert found[0] == found[1]


def test_epochs_after_too_large_a_divergence_are_skipped_until_the_iteration_ends():
    config = PPO(num_steps=4, hidden=(16,), num_minibatches=2, update_epochs=3, target_kl=1e-3)
    case = problem(config, envs=4)
    compute(case, 0, 0)
    assert case.shared["skip"] == 0  # in the middle of an epoch
    compute(case, 0, 1)
    assert case.shared["skip"] == 1 and case.shared["metric_sums"][-1] == 2
    stopped, before = bits(case.steps.weights), int(case.shared["iteration"])
    for epoch, minibatch in ((1, 0), (1, 1), (2, 0), (2, 1)):
        case.gradients.compute(epoch, minibatch)
        case.steps.descend(epoch, minibatch)
        over = (epoch, minibatch) == (2, 1)
        assert bits(case.steps.weights) == stopped and case.shared["metric_sums"][-1] == 2
        assert (case.shared["skip"] == 0) == over and int(case.shared["iteration"]) == before + over
    compute(case, 0, 0)
    assert bits(case.steps.weights) != stopped


def test_pieces_of_any_size_have_the_same_sum():
    config, found = PPO(num_steps=8, hidden=(16,), num_minibatches=2), []
    for per_block in (False, True):
        case = problem(config, envs=70, obs_dim=3)
        if per_block:  # as on a GPU
            gradients = case.gradients
            gradients.splits, gradients.call["splits"] = gradients.blocks, gradients.blocks
            gradients.call["parts"] = 1
            gradients.sums = gradients.partial_sums = torch.zeros(
                gradients.blocks, case.layout.gradient
            )
            chunks = torch.full((gradients.blocks, gradients.chunk_floats), torch.nan)
            gradients.call["chunks"], gradients.call["partial_sums"] = (
                chunks.data_ptr(),
                gradients.partial_sums.data_ptr(),
            )
            case.steps.attach(gradients)
        found.append(bits(compute(case)))
    assert found[0] == found[1]
    written = int((~chunks.isnan()).sum())  # by each piece as much, in memory of its own
    numbers = sum(p.numel() for p in case.steps.weights)
    assert written >= len(chunks) * numbers and written % len(chunks) == 0


def test_adam_is_torchs():
    config = PPO(num_steps=4, hidden=(16,), num_minibatches=1)
    case = problem(config, envs=4, gain=3.0)
    theirs = [p.detach().clone().double().requires_grad_() for p in case.steps.weights]
    adam = torch.optim.Adam(theirs, lr=case.numbers["learning_rate"], eps=1e-5)
    for _ in range(20):
        gradient = compute(case)
        norm = torch.stack([g.double().norm() for g in gradient]).norm()
        assert norm > case.numbers["max_grad_norm"] or case.steps.steps[0] > 5
        for p, g in zip(theirs, gradient, strict=True):
            p.grad = g.double() * min(1.0, case.numbers["max_grad_norm"] / (norm.item() + 1e-6))
        adam.step()
    assert case.steps.steps.tolist() == [20.0] * len(theirs)
    for mine, exact in zip(case.steps.weights, theirs, strict=True):
        rounding = 2.0**-24 * exact.abs().max().item()  # of one step
        assert torch.allclose(mine.double(), exact, rtol=0, atol=20 * rounding + 1e-8)
    for k, p in enumerate(theirs):
        state = adam.state[p]
        assert torch.allclose(case.steps.first[k].double(), state["exp_avg"], rtol=1e-5, atol=1e-9)
        assert torch.allclose(
            case.steps.second[k].double(), state["exp_avg_sq"], rtol=1e-5, atol=1e-12
        )


def test_corrections_of_a_checkpoints_step_are_those_of_going_on():
    case = problem(PPO(num_steps=4, hidden=(16,), num_minibatches=1), envs=4)
    for _ in range(30):
        compute(case)
    kept = case.steps.corrections.clone()
    case.steps.corrections.zero_()
    case.steps.steps.fill_(29.0)
    compute(case)
    assert torch.equal(case.steps.corrections, kept)
    assert kept[:2].tolist() == pytest.approx([1 - 0.9**30, 1 - 0.999**30], rel=1e-5)
    for step in (10, 2001):  # of an earlier checkpoint, and of a late one
        case.steps.steps.fill_(step - 1.0)
        compute(case)
        assert case.steps.corrections.tolist() == pytest.approx(
            [1 - 0.9**step, 1 - 0.999**step, step], rel=1e-5
        )


@pytest.mark.parametrize("bad", ["obs", "log_prob", "returns", "weights"])
def test_a_number_that_is_not_finite_stops_all_steps(bad):
    case = problem(PPO(num_steps=4, hidden=(16,), num_minibatches=1), envs=4)
    nan = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)  # of all bits
    if bad == "weights":
        case.steps.weights[0][0, 0] = nan
    else:
        case.parts[0][bad].view(-1)[3] = nan
    before = bits(case.steps.weights)
    compute(case)
    assert (case.shared["bad"], case.shared["skip"]) == (1, 1)
    assert bits(case.steps.weights) == before
    assert (
        case.shared["metric_sums"].tolist() == [0.0] * 8 and case.steps.steps.tolist() == [0.0] * 8
    )
    case.shared["skip"].zero_()  # the next iteration begins, with sound numbers
    if bad != "weights":
        case.parts[0][bad].view(-1)[3] = 0.5
        compute(case)
        assert bits(case.steps.weights) == before


@pytest.mark.parametrize("alone", ["loss", "norm"])
def test_either_the_loss_or_the_norm_may_overflow_alone(alone):
    case = problem(PPO(num_steps=4, hidden=(), num_minibatches=1), envs=4)
    for p in case.steps.weights:
        p.zero_()
    if alone == "loss":
        case.parts[0]["returns"].view(-1)[3] = 3e19  # its square is infinite, its gradient's is not
    else:
        case.parts[0]["obs"].view(-1)[3] = 1e25  # times weights of 0
    gradient = torch.cat([g.view(-1) for g in compute(case)]).double()
    squares = case.steps.squares.sum()
    assert torch.isfinite(gradient).all() and bool(torch.isfinite(squares)) == (alone == "loss")
    assert (case.shared["bad"], case.steps.steps.sum()) == (1, 0)


def test_the_target_is_of_the_mean_divergence():
    def skipped(target):
        case = problem(PPO(num_steps=4, hidden=(16,), num_minibatches=1), envs=4)
        case.steps.attach(case.gradients, target)
        compute(case)
        found = dict(zip(case.steps.reported, case.shared["metric_sums"].tolist(), strict=False))
        return case.shared["skip"].item(), found["approx_kl"]

    divergence = skipped(None)[1]
    assert 0.01 < divergence < 0.5
    assert [skipped(divergence * factor)[0] for factor in (0.99, 1.01)] == [1.0, 0.0]
