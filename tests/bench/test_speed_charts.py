"""Charts of speed: a group for each task, ours beside each other library with the factor written, units and copies named."""

import json
import re

import pytest
from matplotlib.colors import to_hex

from cupydrive.bench import Bench, Ceilings, charts, tables
from cupydrive.bench.timing import make_row, short
from cupydrive.drawing.palette import Palette

pytestmark = pytest.mark.full

GALLERY = tables.ROOT / "gallery"
SWEEPS = sorted(path.stem for path in GALLERY.glob("scaling-*.json"))


def texts(figure):
    """Return everything that is written in a figure's only panel."""
    (axes,) = figure.axes
    return [text.get_text() for text in (*axes.texts, *axes.get_yticklabels())]


@pytest.fixture(scope="module")
def drawn():
    return tables.charts()


def bench(*rows):
    return Bench("cpu", "a machine", {}, "2026-01-01", "c", Ceilings(1.0, 1.0, 1.0), list(rows))


@pytest.mark.parametrize("name", ["cuda", "cpu"])
def test_each_other_library_stands_beside_ours_with_the_factor(name):
    result = tables.results()[name]
    peers = charts.fastest([row for row in result.rows if row.who not in charts.OURS and row.case != "sampling"])
    groups, written = charts.groups_of(result.rows), texts(charts.chart(result))
    assert peers and sum(len(rows) - 1 for rows in groups.values()) == len(peers)
    for title, (own, *others) in groups.items():
        assert title in written and own.who in charts.OURS and f"{own.num_envs:,} cop" in title and own.env in title
        assert others and all((row.env, row.agents, row.case) == (own.env, own.agents, own.case) for row in others)
        for row in others:
            (said,) = (
                t for t in written if t.startswith(short(row.rate)) and t.endswith(charts.times(own.rate / row.rate))
            )
            assert row.num_envs == own.num_envs or f"with {row.num_envs:,} cop" in said
            assert not own.note, "full observations are what others write"


@pytest.mark.parametrize("name", [*SWEEPS, "speed", "speed-cpu", "speed-training"])
def test_axes_of_the_gallerys_charts_have_units(name, drawn):
    (axes,) = drawn[f"{name}.png"].axes
    bars = name in ("speed", "speed-cpu", "speed-training")
    assert (axes.get_xlabel() if bars else axes.get_ylabel()) == "env-steps per second"
    if not bars:
        assert re.match(r"(copies of the environment|agents in each copy|steps of a launch)", axes.get_xlabel())


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_names_its_copies_and_shows_others_of_its_task(name):
    sweep, others = Bench.from_dict(json.loads((GALLERY / f"{name}.json").read_text())), tables.results()["cuda"].rows
    (axes,) = charts.chart(sweep, others).axes
    copies = {row.num_envs for row in sweep.rows}
    words = axes.get_xlabel() + " ".join(axes.get_legend_handles_labels()[1])
    assert len(copies) > 1 or f"{copies.pop():,} copies" in words
    shown = {line.get_label().split(",")[0]: line for line in axes.lines}
    known = {row.who.split(",")[0] for row in others if row.env == sweep.rows[0].env and "WarpDrive" in row.who}
    assert known and known <= {*shown}, "a sweep without others beside it"
    for who in known:
        rates = {row.rate for row in others if row.who.startswith(who)}
        assert {*shown[who].get_ydata()} <= rates


@pytest.mark.parametrize("name", SWEEPS)
def test_a_factor_of_a_sweep_is_that_of_its_line_over_the_point(name, drawn):
    """Not of a row of another run, whose steps in a launch are others: whoever divides what is drawn gets what is written."""
    (axes,) = drawn[f"{name}.png"].axes
    ours, *others = axes.lines
    points = {(x, y) for line in others for x, y in zip(*line.get_data(), strict=True)}
    for text in axes.texts:
        x, y = text.xy
        near = [rate for at, rate in zip(*ours.get_data(), strict=True) if abs(at / x - 1) < 0.06]
        assert (x, y) in points and text.get_text() in [f"ours {charts.times(rate / y)}" for rate in near]


def test_training_stands_beside_others_with_the_factor_in_a_group_for_each_task():
    result = tables.results()["training"]
    written, found = texts(charts.training_chart(result)), [row for row in result.rows if row.case == "training"]
    for env, agents in {(row.env, row.agents) for row in found}:
        assert [
            text
            for text in written
            if text.startswith(f"{env}{'' if agents == 1 else f', {agents:,} agents'}, training")
        ]
    others = [row for row in found if row.who not in charts.OURS]
    factors = {}
    for row in others:
        ours = [r.rate for r in found if r.who == "cupydrive" and charts.task_of(r) == charts.task_of(row)]
        factors[f"{short(row.rate)}, ours {charts.times(max(ours) / row.rate)}"] = row
    shown = {text for text in written if ", ours " in text}
    assert shown <= {*factors} and {factors[text].who for text in shown} == {row.who for row in others}
    jax = [text for text, row in factors.items() if row.who.startswith("JAX")]
    assert len(shown & {*jax}) == 3 and {jax[0], jax[-1]} <= shown


def lesson(env, agents, copies, seconds, note, who="cupydrive"):
    return make_row("training", env, copies, agents, 4, [seconds], who=who, note=note)


LEARNT = (  # made up: CartPole by two algorithms, one of which another library has, and Tag by one
    lesson("cartpole", 1, 8, 1.0, "ppo by kernels, tensor, network 4-64-64-3, 4 epochs x 4 minibatches, 1 policy"),
    lesson("cartpole", 1, 8, 0.25, "a2c by kernels, tensor, network 4-64-64-3, 1 policy"),
    lesson("tag_grid", 5, 20, 1.0, "a2c by kernels, tensor, network 6-64-64-6, 2 policies"),
    lesson("tag_grid", 5, 20, 4.0, "a2c by torch, float32, network 6-64-64-6, 2 policies"),
    lesson("cartpole", 1, 8, 2.0, "ppo, hidden (64, 64), 4 epochs x 4 minibatches", "JAX"),
    lesson("cartpole", 1, 8, 0.75, "a2c, network 4-64-64-3, 1 update an iteration, 1 policy", "WarpDrive, Numba"),
    lesson("tag_grid", 5, 20, 0.5, "a2c, network 6-64-64-6, 1 update an iteration, 2 policies", "WarpDrive, Numba"),
    lesson("tag_grid", 5, 20, 25.0, "a2c, network 6-64-64-6, 1 update an iteration, 2 policies", "WarpDrive, CUDA C"),
    lesson("tag_grid", 5, 40, 25.0, "a2c, network 6-64-64-6, 1 update an iteration, 2 policies", "of other copies"),
)


def test_the_algorithm_of_a_row_is_named_by_its_note():
    side_by_side = lesson("cartpole", 1, 80, 1.0, "10 runs of 8 copies side by side, ppo by kernels, tensor")
    found = [charts.algorithm_of(row) for row in (side_by_side, *LEARNT, lesson("cartpole", 1, 8, 1.0, "mappo"))]
    assert found == ["ppo", "ppo", "a2c", "a2c", "a2c", "ppo", "a2c", "a2c", "a2c", "a2c", ""]


def test_training_by_other_algorithms_or_of_other_copies_is_not_compared():
    written = texts(charts.training_chart(bench(*LEARNT)))
    titles = [text for text in written if ", training, " in text]
    assert titles == [
        "cartpole, training, 8 copies, PPO",
        "cartpole, training, 8 copies, A2C",
        "tag_grid, 5 agents, training, 20 copies, A2C",
    ]
    assert sorted(text.split(", ")[1] for text in written if ", ours " in text) == [
        "ours 0.5 x", "ours 2.0 x", "ours 25 x", "ours 3.0 x"
    ]  # fmt: skip
    assert "of other copies" not in written and "80" in written and "20, kernels 4.0 x" in written


def test_without_others_all_rows_are_shown_in_one_group_a_task():
    rows = [
        make_row("rollout", "a", 8, 1, 4, [1.0]),
        make_row("rollout", "a", 16, 1, 8, [1.0]),
        make_row("rollout", "b", 8, 3, 4, [1.0]),
    ]
    assert {title: len(found) for title, found in charts.groups_of(rows).items()} == {"a": 2, "b, 3 agents": 1}
    figure = charts.chart(bench(*rows))
    assert len(figure.axes[0].patches) == 3 and {to_hex(p.get_facecolor()) for p in figure.axes[0].patches} == {
        Palette.BLUE.lower()
    }


def test_a_point_has_a_factor_only_where_both_had_the_same_sizes():
    swept = [make_row("rollout", "a", n, 1, 4, [1.0]) for n in (10, 100, 1000)]
    peers = [make_row("rollout", "a", n, 1, 4, [2.0], who="other") for n in (100, 500)]
    assert [t for t in texts(charts.chart(bench(*swept), peers)) if "ours" in t] == ["ours 2.0 x"]
    far = [
        make_row("rollout", "a", 100, 50, 4, [2.0], who="other"),
        make_row("rollout", "b", 100, 1, 4, [2.0], who="other"),
    ]
    assert len(charts.chart(bench(*swept), far).axes[0].lines) == 1  # many agents, or another task: not to be compared
