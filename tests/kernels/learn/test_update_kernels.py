"""Steps alone, along gradients that are made up: sums in their order, what stops a step, and the
same bits by any team.
"""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learner_kernels import unpadded
from other_teams import OTHER_TEAMS, Backwards
from walled import walled

from cupydrive.algorithms.kernels.layout import PAD, PARTS, TEAMS, NetworkLayout
from cupydrive.algorithms.kernels.steps import Steps, UnpackedSteps
from cupydrive.executors.host import HostExecutor

# rows of fewer numbers than a team has members, and of more
LAYOUT = NetworkLayout(((3, 18, 2), (3, 18, 1)), 2)
REPORTED = ("policy_loss", "value_loss", "entropy", "grad_norm", "old_approx_kl", "approx_kl")


def made(
    how, pieces, parts=1, segments=1, teams=1, packs=True, target=None, inverse=0.25,
    rectified=False, **numbers,
):  # fmt: skip
    """Return ``Steps`` along ``pieces``, with a wall behind each array that they read or write."""
    rng = np.random.default_rng(1)
    sizes = [shape for into, out in LAYOUT.layers for shape in ((out, into), (out,))]
    weights = [
        walled(torch.from_numpy(rng.normal(0, 1, size).astype(np.float32))) for size in sizes
    ]
    usual = {
        "learning_rate": 1e-2,
        "ent_coef": 0.0,
        "vf_coef": 0.0,
        "max_grad_norm": 0.5,
        "skip": 0.0,
        "bad": 0.0,
    }
    shared = {name: walled(torch.tensor(value)) for name, value in (usual | numbers).items()}
    shared |= {
        "iteration": torch.tensor([3]),
        "metric_sums": walled(torch.zeros(len(REPORTED) + 1)),
    }
    steps = (Steps if packs else UnpackedSteps)(
        HostExecutor(**how), LAYOUT, weights, REPORTED, shared
    )
    for name in ("steps", "total", "squares", "packed", "step_size", "corrections"):
        setattr(steps, name, walled(getattr(steps, name)))
    steps.first, steps.second = ([walled(p) for p in of] for of in (steps.first, steps.second))
    steps.teams, moments = teams, torch.full((2, 2, 4), inverse)
    steps.attach(
        SimpleNamespace(parts=parts, sums=walled(pieces), moments=moments, minibatches=2, epochs=2),
        target,
        rectified,
    )
    steps.segments = steps.call["segments"] = segments
    return steps


def bits(tensors):
    return b"".join(t.numpy().tobytes() for t in tensors if t is not None)


# Splits, parts; segments of one team, teams that take the step; whether kernels read packed weights.
SIZES = [
    (100, 3, 1, 1, True),
    (128, 32, 1, 5, False),
    (37, 4, 7, LAYOUT.rows, True),
    (16, 16, 2, 7, False),
    (5, 1, PARTS, 7, False),
]


@pytest.mark.full
@pytest.mark.parametrize("sizes", SIZES)
def test_steps_along_any_pieces_are_the_same_by_any_team_in_any_order(sizes):
    pieces = np.random.default_rng(0).normal(0, 1, (sizes[0], LAYOUT.gradient)).astype(np.float32)
    expected, found = np.zeros(LAYOUT.gradient, np.float32), []
    for begin, end in pairwise(k * sizes[0] // sizes[1] for k in range(sizes[1] + 1)):
        part = np.zeros_like(expected)
        for piece in pieces[begin:end]:
            part += piece
        expected += part
    squares = (expected[:-PAD].astype(np.float64) ** 2).reshape(-1, PAD).sum(1)
    if not sizes[-1] and sizes[2] == PARTS:  # one of each team
        squares = np.add.reduceat(squares, range(0, len(squares), sizes[2]))
    for how in OTHER_TEAMS.values():
        for order in (lambda program: program, Backwards):
            steps = made(how, torch.from_numpy(pieces), *sizes[1:])
            steps.program = order(steps.program)
            steps.pack()
            for epoch, minibatch in ((0, 0), (0, 1), (1, 1)):
                steps.descend(epoch, minibatch)
            assert np.array_equal(steps.total.numpy(), expected)
            found_squares = steps.squares[: len(squares)].numpy()
            assert np.allclose(found_squares, squares, rtol=1e-6, atol=0)
            norms = steps.shared["metric_sums"][REPORTED.index("grad_norm")].item()
            assert norms == pytest.approx(3 * np.sqrt(squares.sum()), rel=1e-6)
            shared = [steps.shared[name] for name in ("metric_sums", "skip", "bad", "iteration")]
            found.append(
                bits(
                    (
                        *steps.weights,
                        *steps.first,
                        *steps.second,
                        steps.steps,
                        steps.packed,
                        *shared,
                    )
                )
            )
    assert found[1:] == found[:1] * 5


@pytest.mark.full
def test_a_team_larger_than_any_row_reads_nothing_behind_the_last():
    """As large as a GPU's, whose members load what they need first before they know what becomes of
    the step.
    """
    pieces, found = torch.full((1, LAYOUT.gradient), 0.125), []
    for how in (OTHER_TEAMS["one thread"], dict(team_threads=TEAMS["update"])):
        steps = made(how, pieces, teams=LAYOUT.rows)
        steps.descend(0, 0)
        found.append(bits((*steps.weights, *steps.first, *steps.second)))
    assert found[0] == found[1]


def after(numbers, **settings):
    """Return what is shared after the first epoch's last step, along 0, where ``numbers`` are the
    sums of what is reported.
    """
    piece = torch.zeros(1, LAYOUT.gradient)
    piece[0, LAYOUT.gradient - PAD : LAYOUT.gradient - PAD + len(numbers)] = torch.tensor(numbers)
    steps = made(OTHER_TEAMS["one thread"], piece, **settings)
    steps.descend(0, 1)
    return steps.shared


# Sums of the policy's loss, of the values' and of the entropy; one over the rows.
@pytest.mark.parametrize(
    ("sums", "settings", "overflows"),
    [
        ((1e38, 0.0, 0.0), dict(inverse=4.0), True),
        ((0.0, 1e38, 0.0), dict(inverse=4.0, vf_coef=1.0), True),
        ((0.0, 0.0, 1e38), dict(inverse=4.0, ent_coef=1.0), True),
        ((0.0, 1e38, 0.0), dict(inverse=1.0, vf_coef=4.0), True),
        ((0.0, 0.0, 1e38), dict(inverse=1.0, ent_coef=4.0), True),
        ((2e38, 0.0, 2e38), dict(inverse=1.0, ent_coef=1.0), False),
        ((-2e38, 2e38, 0.0), dict(inverse=1.0, vf_coef=1.0), False),
    ],
)
def test_a_loss_that_overflows_stops_the_step(sums, settings, overflows):
    shared = after(sums, **settings)
    assert (shared["bad"], shared["metric_sums"][-1]) == ((1, 0) if overflows else (0, 1))


def test_a_divergence_at_the_target_is_not_above_it():
    """Of what is exact in float32."""
    sums = (0.0, 0.0, 0.0, 0.0, 2.0)
    assert [after(sums, target=t)["skip"] for t in (0.5, 0.4375)] == [0, 1]


@pytest.mark.parametrize("last", [6, 600])
def test_rectified_steps_are_torchs(last):
    """The first five divide by nothing; some of the others are skipped."""
    rng = np.random.default_rng(4)
    piece = torch.zeros(1, LAYOUT.gradient)
    steps = made(OTHER_TEAMS["one thread"], piece, rectified=True, max_grad_norm=1e9)
    theirs = [torch.nn.Parameter(p.double()) for p in steps.weights]
    reference = torch.optim.RAdam(theirs, lr=1e-2)
    for step in range(last):
        numbers = rng.normal(0, 0.1, LAYOUT.gradient - PAD).astype(np.float32)
        steps.gradients.sums[0, :-PAD] = torch.from_numpy(numbers)
        steps.shared["skip"].fill_(step % 4 == 2)
        steps.descend(0, 0)
        if step % 4 == 2:
            continue
        for p, gradient in zip(theirs, unpadded(LAYOUT, steps.total), strict=True):
            p.grad = gradient.view_as(p).double()
        reference.step()
    for mine, exact in zip(steps.weights, theirs, strict=True):
        torch.testing.assert_close(mine.double(), exact.detach(), rtol=2e-6, atol=2e-6)
