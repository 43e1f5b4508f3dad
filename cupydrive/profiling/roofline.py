"""The roofline of a profile: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009)."""

from cupydrive.bench.timing import short
from cupydrive.drawing.palette import Palette
from cupydrive.drawing.stage import dress
from cupydrive.terminal.curves import Curves

AROUND = 30  # times less and more of operations for each byte are shown than the environment has, and than where the roofs meet


def roofline(p):
    """Return a figure of what the device allows by float operations for each byte written, and where a ``Profile`` is."""
    from matplotlib.ticker import EngFormatter, FuncFormatter

    write, arithmetic = p.ceilings.write, p.ceilings.arithmetic
    mine, corner = p.operations_per_step / p.bytes_per_step, arithmetic / write
    low, high = min(mine, corner) / AROUND, max(mine, corner) * AROUND
    figure = Curves(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog([low, corner, high], [low * write, arithmetic, arithmetic], color=Palette.SOFT)
    axes.annotate(f"writes {short(write)}B/s", (low, low * write), (8, 0), textcoords="offset points", va="top")
    axes.annotate(f"arithmetic {short(arithmetic)}FLOP/s", (high, arithmetic), (0, -6), textcoords="offset points", ha="right",
                  va="top")  # fmt: skip
    reached = p.rate * p.operations_per_step
    allowed = min(mine * write, arithmetic)
    axes.plot([mine, mine], [reached, allowed], color=Palette.GREY, linestyle=":")
    axes.plot([mine], [reached], color=Palette.BLUE, marker="o", markersize=8, linestyle="none")
    axes.set_xlabel("float operations for each byte written")
    axes.set_ylabel("float operations per second")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, place: f"{x:g}"))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_ylim(min(reached, low * write) / 3, arithmetic * 3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_title(
        f"{p.env}: {short(p.rate)} env-steps/s, {reached / allowed:.0%} of what is allowed\n"
        f"{p.machine}, {p.num_envs:,} copies x {p.steps} steps",
        fontsize=10,
        loc="left",
    )
    return dress(figure)
