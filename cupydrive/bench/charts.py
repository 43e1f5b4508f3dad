"""Charts of a benchmark: sweeps as lines, everything else as bars, one group a task, other libraries beside ours."""

import math
import re

from cupydrive.bench.timing import short
from cupydrive.drawing.palette import Palette
from cupydrive.drawing.stage import dress
from cupydrive.terminal.curves import Curves

AXES = {"num_envs": "copies of the environment", "agents": "agents in each copy", "steps": "steps of a launch"}
RATE = "env-steps per second"
OURS = ("cupydrive", "cupydrive.gymnasium")
NEAR = 10  # a row of another library is shown in a sweep if its other sizes are at most so many times as large or small
WIDTH, LINE = 6.0, 0.25  # inches: of a chart, and of a bar with its gap
PEER_COLORS = (Palette.ORANGE, Palette.PINK, Palette.GREEN, Palette.YELLOW)


def chart(result, others=()):
    """Return a Matplotlib figure of a ``Bench``: lines if all of its rows vary one size alone, else bars.

    Args:
        result: ``Bench``.
        others: ``Row``s of other libraries, to be shown in a sweep where they are of the same task.
    """
    swept = sweeps_of(result.rows)
    if swept:
        return lines(result, *swept, others)
    return bars(result, groups_of(result.rows))


def sweeps_of(rows):
    """Return the size that all rows vary alone, and the rows by what they are of; or None."""
    found, sizes = {}, set()
    for row in rows:
        found.setdefault((row.case, row.env, row.who, row.note), []).append(row)
    for part in found.values():
        varied = [axis for axis in AXES if len({getattr(row, axis) for row in part}) > 1]
        if len(part) < 3 or len(varied) != 1:
            return None
        sizes.add(varied[0])
    return (sizes.pop(), found) if len(sizes) == 1 else None


# ---- bars ------------------------------------------------------------------------------------------------------------


def groups_of(rows):
    """Return rows in groups: by a title, ours first and then others of the same task, the slowest last.

    Beside each row of another library stands ours of the nearest number of copies, which writes full observations. Without
    other libraries a group holds all rows of a task.
    """
    timed = [row for row in rows if row.case in ("rollout", "stepping", "training", "sampling")]
    groups = {}
    for peer in fastest([row for row in timed if row.who not in OURS and row.case != "sampling"]):
        own = beside(peer, timed)
        if own is not None:
            groups.setdefault(title_of(own), [own]).append(peer)
    if not groups:
        for row in timed:
            groups.setdefault(f"{row.env}{agents_of(row)}", []).append(row)
    order = list(dict.fromkeys((row.env, row.agents) for row in timed))  # of a task one group after the other
    titles = sorted(groups, key=lambda title: order.index((groups[title][0].env, groups[title][0].agents)))
    return {title: [groups[title][0], *sorted(groups[title][1:], key=lambda r: -r.rate)] for title in titles}


def fastest(rows):
    """Return of each library and task the fastest row."""
    best = {}
    for row in rows:
        key = row.case, row.env, row.agents, row.who
        if key not in best or row.rate > best[key].rate:
            best[key] = row
    return list(best.values())


def beside(peer, rows):
    """Return our row that another library's is compared with: of the nearest number of copies, the first if several; or None.

    A call through Gymnasium's interface is compared with one through it.
    """
    task = [r for r in rows if (r.case, r.env, r.agents) == (peer.case, peer.env, peer.agents)]
    own = [r for r in task if r.who == OURS[1]] or [r for r in task if r.who == OURS[0]]
    return min(own, key=lambda row: abs(math.log(row.num_envs / peer.num_envs)), default=None)


def title_of(row):
    """Return what a group of bars is of."""
    case = {"stepping": ", single steps", "training": ", training"}.get(row.case, ", rollouts")
    return f"{row.env}{agents_of(row)}{case}, {counted(row.num_envs, 'copy', 'copies')}"


def agents_of(row):
    """Return the number of agents in words, nothing for one."""
    return "" if row.agents == 1 else f", {row.agents:,} agents"


def counted(number, one, many=None):
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def bars(result, groups, named=None, said=None):
    """Return a figure with a group of bars for each task, each with its rate, others with how many times as fast ours is.

    Args:
        result: ``Bench``.
        groups: Rows by title, ours first.
        named: What a bar is called, given its row and the first of its group; ``name_of`` by default.
        said: What follows its rate, likewise; ``compared_with`` by default.
    """
    from matplotlib.ticker import EngFormatter

    named, said = named or name_of, said or compared_with
    count = sum(len(rows) + 1.4 for rows in groups.values())
    figure = Curves(figsize=(WIDTH, 0.9 + LINE * count), layout="constrained")
    axes, place, names = figure.add_subplot(), 0.0, {}
    rates = [row.rate for rows in groups.values() for row in rows]
    low = min(rates) / 3
    for title, rows in groups.items():
        place -= 1.4
        at = {"xy": (0.01, place), "xycoords": ("figure fraction", "data"), "va": "center", "annotation_clip": False}
        ground = {"facecolor": Palette.STAGE, "edgecolor": "none", "pad": 2}  # no grid line through the words
        axes.annotate(title, **at, fontweight="bold", bbox=ground).set_in_layout(False)
        for row in rows:
            place -= 1
            names[place], ours = named(row, rows[0]), row.who in OURS
            axes.barh(place, row.rate - low, left=low, height=0.78, color=Palette.BLUE if ours else Palette.GREY)
            words = short(row.rate) + said(row, rows[0])
            axes.annotate(words, (row.rate, place), (4, 0), textcoords="offset points", va="center")
    axes.set_xscale("log")
    axes.set_xlim(low, 120 * max(rates))  # room for the words
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(place - 0.8, -0.6)
    axes.set_yticks(list(names), names.values())
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(RATE if any(r.case != "sampling" for rows in groups.values() for r in rows) else "per second")
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    return finished(figure, result, axes)


def name_of(row, own):
    """Return what a bar is called: whose it is; of ours that are not compared, what was timed."""
    if row.who in OURS and row is not own:
        return f"{row.case}, {counted(row.num_envs, 'copy', 'copies')}" + ", bfloat16" * row.note.startswith("bfloat16")
    return row.who


def compared_with(row, own):
    """Return how many times as fast ours is, in words, and a row's copies where ours has others; of ours nothing."""
    if row.who in OURS:
        return ""
    copies = f" with {counted(row.num_envs, 'copy', 'copies')}" if row.num_envs != own.num_envs else ""
    return f"{copies}, ours {times(own.rate / row.rate)}"


def times(factor):
    """Return how many times as fast, in words: two digits that count, at least."""
    return f"{factor:,.0f} x" if factor >= 10 else f"{factor:.1f} x"


# ---- lines -----------------------------------------------------------------------------------------------------------


def lines(result, axis, found, others):
    """Return a figure with a line for each thing that was swept, and a point for each row of another library."""
    figure, first = Curves(figsize=(WIDTH, 4.0), layout="constrained"), result.rows[0]
    axes = figure.add_subplot()
    for (_, env, who, _), rows in found.items():
        points = sorted((getattr(row, axis), row.rate) for row in rows)
        axes.loglog(*zip(*points, strict=True), color=Palette.BLUE, marker="o", markersize=4, label=f"{who}, {env}")
    shown = {}
    for row in sorted(others, key=lambda row: -row.rate):
        if row.who not in OURS and (row.case, row.env) == (first.case, first.env) and close(row, first, axis):
            shown.setdefault(row.who, []).append(row)
    for number, (who, rows) in enumerate(shown.items()):
        points = sorted((getattr(row, axis), row.rate) for row in rows)
        look = dict(color=PEER_COLORS[number % len(PEER_COLORS)], marker="s", markersize=6, linestyle=":")
        axes.loglog(*zip(*points, strict=True), **look, label=named(who, rows, first, axis))
        for row in rows:
            own = alike(row, result.rows)
            if own is not None:
                mark(axes, getattr(row, axis), row.rate, own.rate / row.rate, above=number == 0)
    if shown:
        axes.set_ylim(bottom=axes.get_ylim()[0] / 2)  # room for the factor
    engineer(axes, AXES[axis] + others_in_words(first, axis))
    axes.legend(frameon=False)
    return finished(figure, result, axes)


def alike(peer, rows):
    """Return the row of a sweep with as many copies and agents as another library's, 5 % allowed, or None: it is drawn."""
    own = [row for row in rows if row.who in OURS and not row.note and (row.case, row.env) == (peer.case, peer.env)]
    sizes = ("num_envs", "agents")
    same = [row for row in own if all(abs(math.log(getattr(row, s) / getattr(peer, s))) < 0.05 for s in sizes)]
    return min(same, key=lambda row: abs(math.log(row.steps / peer.steps)), default=None)


def mark(axes, x, y, factor, above):
    """Write at a point of another library how many times as fast ours is there."""
    axes.annotate(
        f"ours {times(factor)}",
        (x, y),
        (0, 9 if above else -15),
        textcoords="offset points",
        ha="center",
        clip_on=False,
    )


def close(row, first, axis):
    """Return whether the sizes that a sweep does not vary are similar in a row of another library."""
    sizes = ((getattr(row, name), getattr(first, name)) for name in AXES if name != axis)
    return all(1 / NEAR <= a / b <= NEAR for a, b in sizes)


def named(who, rows, first, axis):
    """Return what another library's points are called: with its copies, where they are not those of the sweep."""
    copies = {row.num_envs for row in rows}
    other = axis != "num_envs" and copies != {first.num_envs}
    return who + (f", {', '.join(f'{n:,}' for n in sorted(copies))} copies" if other else "")


def others_in_words(row, axis):
    """Return the sizes that a sweep does not vary, for its axis."""
    words = {"num_envs": f"{row.num_envs:,} copies", "steps": f"{counted(row.steps, 'step')} a launch"}
    return f" ({', '.join(text for name, text in words.items() if name != axis)})"


def engineer(axes, xlabel):
    """Write an axis of powers of ten as 1 k, 10 M, and say what the axes show."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    axes.set_xlabel(xlabel)
    axes.set_ylabel(RATE)
    for one in (axes.xaxis, axes.yaxis):
        one.set_major_locator(LogLocator(numticks=12))
        one.set_major_formatter(EngFormatter(sep=" "))
        one.set_minor_formatter(NullFormatter())


def finished(figure, result, axes):
    """Return a figure with its machine above, in the colours of the gallery."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both" if axes.get_yscale() == "log" else "x", alpha=0.25, linewidth=0.6)
    axes.set_title(f"{result.machine}, {result.date[:10]}", fontsize=10, loc="left")
    return dress(figure)


# ---- training --------------------------------------------------------------------------------------------------------


def training_chart(result):
    """Return a figure of training: a group of bars for each task and algorithm, ours by kernels first, others with factors."""
    rows = [row for row in result.rows if row.case == "training"]
    groups, shown = {}, {}
    for row in rows:
        groups.setdefault((row.env, row.agents, algorithm_of(row)), {}).setdefault(row.num_envs, []).append(row)
    for (_, _, algorithm), by_copies in groups.items():
        copies = sorted(n for n, found in by_copies.items() if any(row.who in OURS for row in found))
        # Where a task has many numbers of copies, three are shown: the others are in the table.
        for num_envs in sorted({copies[0], copies[len(copies) // 2], copies[-1]} if copies else ()):
            found = by_copies[num_envs]
            own = fastest_of_ours(found)
            found = [own, *sorted((row for row in found if row is not own), key=lambda row: -row.rate)]
            alike = [r for r in found if r.who not in OURS or network_of(r) == network_of(own)]
            shown[title_of(own) + f", {algorithm.upper()}" * bool(algorithm)] = alike
    return bars(result, shown, learner_of, faster_than)


def algorithm_of(row):
    """Return what a row of training learns by, which its note names first; blank if it names none."""
    return next(iter(re.findall(r"\b(?:ppo|a2c|ddpg)\b", row.note)), "")


def task_of(row):
    """Return what rows of training must have in common to be compared: task, copies and algorithm."""
    return row.env, row.agents, row.num_envs, algorithm_of(row)


def fastest_of_ours(rows):
    """Return the fastest of our rows, or None."""
    return max((row for row in rows if row.who in OURS), key=lambda row: row.rate, default=None)


def network_of(row):
    """Return the network of a row of training, in words."""
    return row.note.partition("network ")[2]


def learner_of(row, own):
    """Return what a bar of training is called: whose it is; of ours by what it learns."""
    return row.who if row.who not in OURS else f"cupydrive, {row.note.partition(', network')[0].partition(' ')[2]}"


def faster_than(row, own):
    """Return how many times as fast ours by kernels is, in words: beside other libraries, and beside ours by torch."""
    if row.who not in OURS:
        return f", ours {times(own.rate / row.rate)}"
    return f", kernels {times(own.rate / row.rate)}" if "by torch" in row.note else ""
