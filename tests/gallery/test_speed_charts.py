"""Charts of speed: a group for each task, ours beside each other library with the factor written,
units and copies named.
"""

import pytest
import speed_charts as charts
import speed_tables

from cupydrive.bench import Bench, Ceilings, short
from cupydrive.bench.timing import make_row

pytestmark = pytest.mark.full

SWEEPS = sorted(path.name for path in (speed_tables.ROOT / "gallery").glob("scaling-*.json"))


def texts(figure):
    """Return everything that is written in a figure's only panel."""
    (axes,) = figure.axes
    return [text.get_text() for text in (*axes.texts, *axes.get_yticklabels())]


def bench(*rows):
    return Bench("cpu", "a machine", {}, "2026-01-01", "c", Ceilings(1.0, 1.0, 1.0), list(rows))


def lesson(env, agents, copies, seconds, note, who="cupydrive"):
    return make_row("training", env, copies, agents, 4, [seconds], who=who, note=note)


LEARNT = (  # made up: CartPole by two algorithms, one of which another library has, and Tag by one
    lesson(
        "cartpole",
        1,
        8,
        1.0,
        "ppo by kernels, tensor, network 4-64-64-3, 4 epochs x 4 minibatches, 1 policy",
    ),
    lesson("cartpole", 1, 8, 0.25, "a2c by kernels, tensor, network 4-64-64-3, 1 policy"),
    lesson("tag_grid", 5, 20, 1.0, "a2c by kernels, tensor, network 6-64-64-6, 2 policies"),
    lesson("tag_grid", 5, 20, 4.0, "a2c by torch, float32, network 6-64-64-6, 2 policies"),
    lesson("cartpole", 1, 8, 2.0, "ppo, hidden layers (64, 64), 4 epochs x 4 minibatches", "JAX"),
    lesson(
        "cartpole",
        1,
        8,
        0.75,
        "a2c, network 4-64-64-3, 1 update an iteration, 1 policy",
        "WarpDrive, Numba",
    ),
    lesson(
        "tag_grid",
        5,
        20,
        0.5,
        "a2c, network 6-64-64-6, 1 update an iteration, 2 policies",
        "WarpDrive, Numba",
    ),
    lesson(
        "tag_grid",
        5,
        20,
        25.0,
        "a2c, network 6-64-64-6, 1 update an iteration, 2 policies",
        "WarpDrive, CUDA C",
    ),
    lesson(
        "tag_grid",
        5,
        40,
        25.0,
        "a2c, network 6-64-64-6, 1 update an iteration, 2 policies",
        "of other copies",
    ),
)


@pytest.mark.parametrize("name", ["cuda", "cpu"])
def test_each_other_library_stands_beside_ours_with_the_factor(name):
    result = speed_tables.results()[name]
    peers = charts.fastest(
        row for row in result.rows if row.who not in charts.OURS and row.case != "sampling"
    )
    groups, written = charts.rollout_groups(result.rows), texts(charts.rollout_chart(result))
    assert peers and sum(len(rows) - 1 for rows in groups.values()) == len(peers)
    for title, (own, *others) in groups.items():
        assert (
            title in written
            and own.who in charts.OURS
            and f"{own.num_envs:,} env" in title
            and own.env in title
        )
        assert not own.note, "full observations are what others write"
        for row in others:
            assert (row.env, row.agents, row.case) == (own.env, own.agents, own.case)
            copies = f" with {row.num_envs:,} environments" if row.num_envs != own.num_envs else ""
            assert f"{short(row.rate)}{copies}, ours {charts.times(own.rate / row.rate)}" in written


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_shows_others_of_its_task_with_factors_of_its_own_line(name):
    """Whoever divides what is drawn gets what is written: the factor is not that of a row of
    another run.
    """
    sweep, others = (
        Bench.from_dict(speed_tables.committed(name)),
        speed_tables.results()["cuda"].rows,
    )
    (axes,) = charts.sweep_chart(sweep, others).axes
    copies = {row.num_envs for row in sweep.rows}
    assert axes.get_ylabel() == charts.RATE and (
        len(copies) > 1 or f"{copies.pop():,} environments" in axes.get_xlabel()
    )
    ours, *theirs = axes.lines
    points = {(x, y) for line in theirs for x, y in zip(*line.get_data(), strict=True)}
    known = {row.who for row in others if row.env == sweep.rows[0].env and "WarpDrive" in row.who}
    assert known and {y for _, y in points} <= {row.rate for row in others}
    assert all(any(line.get_label().startswith(who) for line in theirs) for who in known)
    for text in axes.texts:
        near = [
            rate
            for at, rate in zip(*ours.get_data(), strict=True)
            if abs(at / text.xy[0] - 1) < 0.06
        ]
        assert text.xy in points and text.get_text() in [
            f"ours {charts.times(rate / text.xy[1])}" for rate in near
        ]


def test_a_point_has_a_factor_only_where_both_had_the_same_sizes():
    swept = [make_row("rollout", "a", n, 1, 4, [1.0]) for n in (10, 100, 1000)]
    peers = [make_row("rollout", "a", n, 1, 4, [2.0], who="other") for n in (100, 500)]
    assert [t for t in texts(charts.sweep_chart(bench(*swept), peers)) if "ours" in t] == [
        "ours 2.0 x"
    ]
    far = [
        make_row("rollout", *task, 4, [2.0], who="other")
        for task in (("a", 100, 50), ("b", 100, 1))
    ]
    assert len(charts.sweep_chart(bench(*swept), far).axes[0].lines) == 1  # not comparable


def test_training_by_other_algorithms_or_of_other_copies_is_not_compared():
    written = texts(charts.training_chart(bench(*LEARNT)))
    assert [text for text in written if ", training, " in text] == [
        "cartpole, training, 8 environments, PPO",
        "cartpole, training, 8 environments, A2C",
        "tag_grid, 5 agents, training, 20 environments, A2C",
    ]
    factors = sorted(text.split(", ")[1] for text in written if ", ours " in text)
    assert factors == ["ours 0.5 x", "ours 2.0 x", "ours 25 x", "ours 3.0 x"]
    assert "of other copies" not in written and "80" in written and "20, kernels 4.0 x" in written


@pytest.mark.parametrize(
    ("own", "peer", "title"),
    [
        ("ppo by kernels, float32, network 4-64-64-3, 1 policy", "ppo, network 4-64-64-3", "PPO"),
        ("ppo by kernels, bfloat16, network 4-128-GRU128-3", "ppo, network 4-128-GRU128-3; 1 s", "PPO, GRU 128"),
        ("pqn by kernels, bfloat16, network 400-16@3x3-128-3", "pqn, network 400-16@3x3-128-3", "PQN, conv 16@3x3"),
    ],
)  # fmt: skip
def test_rows_of_one_kind_of_network_are_compared(own, peer, title):
    notes = {"cupydrive": own, "JAX": peer}
    rows = [make_row("training", "x", 1, 1, 1, [1.0], who=w, note=n) for w, n in notes.items()]
    assert [charts.training_of(row) for row in rows] == [title, title]
