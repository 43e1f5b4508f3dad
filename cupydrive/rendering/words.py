"""What viewers write beside a picture: each agent's action, reward and return, and the members of the state."""

import numpy as np

MOST_NUMBERS = 12  # of one member that are shown
MOST_AGENTS = 12  # of a group that are listed


def words(moment, e, groups, played=None):
    """Return what episode ``e`` is in at a ``Moment``, as lines of text.

    Args:
        moment: ``Moment``.
        e: Episode, from 0.
        groups: The environment's ``Group``s.
        played: (group's name, agent) whom a person plays; None: nobody.
    """
    return "\n".join([*agents(moment, e, groups, played), "", *members(moment.states[e])])


def agents(moment, e, groups, played=None):
    """Return a table of agents: what each did in the last step, what that brought, and its return so far."""
    rows = [("agent", "action", "reward", "return")]
    for g in groups:
        listed = [i for i in range(g.count) if i < MOST_AGENTS or (g.name, i) == played]
        for i in listed:
            name = (g.name if g.count == 1 else f"{g.name} {i}") + ", you" * ((g.name, i) == played)
            rows.append((name, *last_step(moment, e, g, i), f"{moment.returns[g.name][e, i]:.4g}"))
        if g.count > len(listed):
            rows.append((f"... {g.count - len(listed)} more", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([name.ljust(widths[0]), *(x.rjust(w) for x, w in zip(rest, widths[1:], strict=True))]).rstrip()
        for name, *rest in rows
    ]


def last_step(moment, e, group, agent):
    """Return the (action, reward) of one agent in the last step, as texts."""
    if group.name not in moment.action:
        return "", ""
    taken = moment.action[group.name][e, agent].tolist()
    action = ", ".join(f"{x:.3g}" if group.continuous else str(x) for x in taken)
    present = moment.present.get(group.name)
    gone = present is not None and not present[e, agent]
    return "gone" if gone else action, f"{moment.reward[group.name][e, agent]:.4g}"


def members(state):
    """Return the members of one state as lines of text."""
    lines = []
    for name in state.dtype.names:
        values = np.atleast_1d(state[name]).ravel()
        shown = "  ".join(f"{value:.4g}" for value in values[:MOST_NUMBERS].tolist())
        rest = f"  ... {len(values) - MOST_NUMBERS} more" if len(values) > MOST_NUMBERS else ""
        lines.append(f"{name:<12} {shown}{rest}")
    return lines
