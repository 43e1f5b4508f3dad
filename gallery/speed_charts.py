"""Charts of the results in this folder: bars by task with other libraries below ours, and lines of
sweeps.
"""

import math
import re
from collections.abc import Iterable

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from cupydrive.bench import Bench, Row, short
from cupydrive.drawing.curves import DARK, Curves
from cupydrive.drawing.palette import Palette

SIZES = {
    "num_envs": "environments",
    "agents": "agents per environment",
    "steps": "steps per launch",
}
RATE = "env-steps per second"
OURS = ("cupydrive", "cupydrive.gymnasium")
# a sweep shows a row of another library whose fixed sizes are at most so many times as large or
# small
NEAR = 10
WIDTH, LINE = 6.0, 0.25  # inches: of a chart, and of a bar with its gap
PEER_COLORS = (Palette.ORANGE, Palette.PINK, Palette.GREEN, Palette.YELLOW)


# ---- rows ----------------------------------------------------------------------------------------


def agents_of(row: Row) -> str:
    """Return the number of agents in words, nothing for one."""
    return "" if row.agents == 1 else f", {row.agents:,} agents"


def times(factor: float) -> str:
    """Return a speed-up in words, with at least two significant digits."""
    return f"{factor:,.0f} x" if factor >= 10 else f"{factor:.1f} x"


def fastest(rows: Iterable[Row]) -> list[Row]:
    """Return the fastest row of each library, task and case."""
    best = {}
    for row in rows:
        key = row.case, row.env, row.agents, row.who
        if key not in best or row.rate > best[key].rate:
            best[key] = row
    return list(best.values())


def nearest(peer: Row, rows: Iterable[Row]) -> Row | None:
    """Return our row of a peer's task with the nearest number of copies, the first if several, or
    None.

    A call through Gymnasium's interface is compared with one through ours.
    """
    task = [r for r in rows if (r.case, r.env, r.agents) == (peer.case, peer.env, peer.agents)]
    own = [r for r in task if r.who == OURS[1]] or [r for r in task if r.who == OURS[0]]
    return min(own, key=lambda row: abs(math.log(row.num_envs / peer.num_envs)), default=None)


def algorithm_of(row: Row) -> str:
    """Return the algorithm that the note of a training row names first; empty if it names none."""
    return next(iter(re.findall(r"\b(?:ppo|a2c|ddpg|pqn)\b", row.note)), "")


def training_of(row: Row) -> str:
    """Return the algorithm of a training row, followed by the network's convolutions and cores."""
    layers = dict.fromkeys(re.findall(r"\d+@\w+|[A-Za-z]+\d+", network_of(row)))
    found = (f"conv {x}" if "@" in x else re.sub(r"\B(?=\d+$)", " ", x, count=1) for x in layers)
    return ", ".join([algorithm_of(row).upper(), *found])


def task_of(row: Row) -> tuple:
    """Return the properties that compared training rows share: environment, numbers of agents and
    of environments, algorithm, and kind of network.
    """
    return row.env, row.agents, row.num_envs, training_of(row)


def fastest_of_ours(rows: Iterable[Row]) -> Row | None:
    """Return the fastest of our rows, or None."""
    return max((row for row in rows if row.who in OURS), key=lambda row: row.rate, default=None)


# ---- bars ----------------------------------------------------------------------------------------


def rollout_groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Return groups of rows by title: ours, then the fastest row of each other library, the slowest
    last.
    """
    timed, groups = [row for row in rows if row.case in ("rollout", "stepping")], {}
    for peer in fastest(row for row in timed if row.who not in OURS):
        own = nearest(peer, timed)
        if own is not None:
            case = ", single steps" if own.case == "stepping" else ", rollouts"
            groups.setdefault(
                f"{own.env}{agents_of(own)}{case}, {own.num_envs:,} environments", [own]
            ).append(peer)
    tasks = list(dict.fromkeys((row.env, row.agents) for row in timed))
    ordered = sorted(
        groups.items(), key=lambda group: tasks.index((group[1][0].env, group[1][0].agents))
    )
    return {
        title: [own, *sorted(peers, key=lambda row: -row.rate)] for title, (own, *peers) in ordered
    }


def rollout_chart(result: Bench) -> Curves:
    """Return bars of rollouts and single steps, with the factor of ours beside each other
    library.
    """

    def words(row, own):
        copies = f" with {row.num_envs:,} environments" if row.num_envs != own.num_envs else ""
        return "" if row.who in OURS else f"{copies}, ours {times(own.rate / row.rate)}"

    groups = rollout_groups(result.rows)
    return bars(
        result,
        {title: [(r, r.who, words(r, rows[0])) for r in rows] for title, rows in groups.items()},
    )


def training_chart(result: Bench) -> Curves:
    """Return bars of training by task and algorithm: our fastest learner first, and its factor over
    the others.

    Of a task with many numbers of copies three are drawn.
    """
    groups, drawn = {}, {}
    for row in result.rows:
        if row.case == "training":
            groups.setdefault((row.env, row.agents, training_of(row)), {}).setdefault(
                row.num_envs, []
            ).append(row)
    for (_, _, training), by_copies in groups.items():
        copies = sorted(n for n, found in by_copies.items() if fastest_of_ours(found))
        for num_envs in sorted({copies[0], copies[len(copies) // 2], copies[-1]} if copies else ()):
            own = fastest_of_ours(by_copies[num_envs])
            alike = [
                r
                for r in by_copies[num_envs]
                if r.who not in OURS or network_of(r) == network_of(own)
            ]
            title = f"{own.env}{agents_of(own)}, training, {num_envs:,} environments, {training}"
            rows = sorted(alike, key=lambda row: (row is not own, -row.rate))
            drawn[title] = [(row, learner_of(row), faster(row, own)) for row in rows]
    return bars(result, drawn)


def network_of(row: Row) -> str:
    """Return the network that a training row names."""
    return re.split("[,;]", row.note.partition("network ")[2])[0]


def learner_of(row: Row) -> str:
    """Return the label of a training bar: the library, and of ours the learner."""
    return (
        row.who
        if row.who not in OURS
        else f"cupydrive, {row.note.partition(', network')[0].partition(' ')[2]}"
    )


def faster(row: Row, own: Row) -> str:
    """Return how many times as fast our kernels are as another library, or as our learner
    in torch.
    """
    if row.who not in OURS:
        return f", ours {times(own.rate / row.rate)}"
    return f", kernels {times(own.rate / row.rate)}" if "by torch" in row.note else ""


@rc_context(DARK)
def bars(result: Bench, groups: dict[str, list[tuple[Row, str, str]]]) -> Curves:
    """Return a figure with a group of bars for each task.

    Args:
        result: ``Bench``.
        groups: By title, (row, label, words that follow its rate) of each bar.
    """
    count = sum(len(rows) + 1.4 for rows in groups.values())
    figure = Curves(figsize=(WIDTH, 0.9 + LINE * count), layout="constrained")
    axes, place, names = figure.add_subplot(), 0.0, {}
    rates = [row.rate for rows in groups.values() for row, _, _ in rows]
    low = min(rates) / 3
    for title, rows in groups.items():
        place -= 1.4
        at = {
            "xy": (0.01, place),
            "xycoords": ("figure fraction", "data"),
            "va": "center",
            "annotation_clip": False,
        }
        # no grid line through the words
        ground = {"facecolor": Palette.STAGE, "edgecolor": "none", "pad": 2}
        axes.annotate(title, **at, fontweight="bold", bbox=ground).set_in_layout(False)
        for row, label, words in rows:
            place -= 1
            names[place] = label
            color = Palette.BLUE if row.who in OURS else Palette.GRAY
            axes.barh(place, row.rate - low, left=low, height=0.78, color=color)
            text = short(row.rate) + words
            axes.annotate(text, (row.rate, place), (4, 0), textcoords="offset points", va="center")
    axes.set_xscale("log")
    axes.set_xlim(low, 120 * max(rates))  # room for the words
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(place - 0.8, -0.6)
    axes.set_yticks(list(names), names.values())
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(RATE)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    return finished(figure, result, axes)


# ---- lines ---------------------------------------------------------------------------------------


@rc_context(DARK)
def sweep_chart(result: Bench, others: Iterable[Row] = ()) -> Curves:
    """Return a line over the size that the rows of a sweep vary, and points of other libraries with
    the same task.

    Args:
        result: ``Bench`` of one task, whose rows differ in one size.
        others: ``Row``s of another ``Bench``.
    """
    rows = result.rows
    (size,) = (name for name in SIZES if len({getattr(row, name) for row in rows}) > 1)
    figure, first = Curves(figsize=(WIDTH, 4.0), layout="constrained"), rows[0]
    axes = figure.add_subplot()

    def draw(found, **look):
        points = sorted((getattr(row, size), row.rate) for row in found)
        axes.loglog(*zip(*points, strict=True), **look)

    draw(rows, color=Palette.BLUE, marker="o", markersize=4, label=f"{first.who}, {first.env}")
    shown = {}
    for row in sorted(others, key=lambda row: -row.rate):
        if (
            row.who not in OURS
            and (row.case, row.env) == (first.case, first.env)
            and similar(row, first, size)
        ):
            shown.setdefault(row.who, []).append(row)
    for number, (who, peers) in enumerate(shown.items()):
        copies = sorted({row.num_envs for row in peers})
        other = size != "num_envs" and copies != [first.num_envs]
        label = who + (f", {', '.join(f'{n:,}' for n in copies)} environments" if other else "")
        draw(
            peers,
            color=PEER_COLORS[number % 4],
            marker="s",
            markersize=6,
            linestyle=":",
            label=label,
        )
        for row in peers:
            own = alike(row, rows)
            if own is not None:
                at = (getattr(row, size), row.rate), (0, 9 if number == 0 else -15)
                text = f"ours {times(own.rate / row.rate)}"
                axes.annotate(text, *at, textcoords="offset points", ha="center", clip_on=False)
    if shown:
        axes.set_ylim(bottom=axes.get_ylim()[0] / 2)  # room for the factor
    steps = f"{first.steps:,} step{'s' * (first.steps > 1)} a launch"
    fixed = {"num_envs": f"{first.num_envs:,} environments", "steps": steps}
    axes.set_xlabel(
        f"{SIZES[size]} ({', '.join(text for name, text in fixed.items() if name != size)})"
    )
    axes.set_ylabel(RATE)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_major_formatter(EngFormatter(sep=" "))
        axis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False)
    return finished(figure, result, axes)


def similar(row: Row, first: Row, size: str) -> bool:
    """Return whether the sizes that a sweep does not vary are within a factor of ``NEAR`` in
    another row.
    """
    fixed = ((getattr(row, name), getattr(first, name)) for name in SIZES if name != size)
    return all(1 / NEAR <= a / b <= NEAR for a, b in fixed)


def alike(peer: Row, rows: list[Row]) -> Row | None:
    """Return the row of a sweep with a peer's copies and agents, within 5 %, or None."""
    sizes = ("num_envs", "agents")
    same = [
        row
        for row in rows
        if all(abs(math.log(getattr(row, s) / getattr(peer, s))) < 0.05 for s in sizes)
    ]
    return min(same, key=lambda row: abs(math.log(row.steps / peer.steps)), default=None)


def finished(figure: Curves, result: Bench, axes: Axes) -> Curves:
    """Return a figure with its machine above."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both" if axes.get_yscale() == "log" else "x", alpha=0.25, linewidth=0.6)
    axes.set_title(f"{result.machine}, {result.date[:10]}", fontsize=10, loc="left")
    return figure
