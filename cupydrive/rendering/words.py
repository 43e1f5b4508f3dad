"""What viewers write beside a picture: each agent's action, reward and return, and the members of the state."""

import numpy as np

MOST_NUMBERS = 12  # of one member that are shown
MOST_AGENTS = 12  # of a group that are listed
WIDEST = 76  # letters of a line of the table of agents


def words(moment, e, groups, played=None):
    """Return what episode ``e`` is in at a ``Moment``, as lines of text.

    Args:
        moment: ``Moment``.
        e: Episode, from 0.
        groups: The environment's ``Group``s.
        played: (group's name, agent) whom a person plays; None: nobody.
    """
    state, count = moment.states[e], sum(g.count for g in groups)
    own = [name for name in state.dtype.names if count > 1 and state[name].shape == (count,)]
    table = agents(moment, e, groups, played, own)
    while max(map(len, table)) > WIDEST and own:  # what finds no room beside its agents stands below them
        own.pop()
        table = agents(moment, e, groups, played, own)
    return "\n".join([*table, "", *members(state, own)]).rstrip()


def agents(moment, e, groups, played=None, own=()):
    """Return a table of agents: what each did in the last step, what that brought, and its return so far.

    ``own`` are members of the state with a value for each agent, which are columns of the table, too.
    """
    rows, first = [("agent", "action", "reward", "return", *own)], 0
    for g in groups:
        listed = [i for i in range(g.count) if i < MOST_AGENTS or (g.name, i) == played]
        for i in listed:
            name = (g.name if g.count == 1 else f"{g.name} {i}") + ", you" * ((g.name, i) == played)
            values = [f"{moment.states[e][member][first + i]:.4g}" for member in own]
            rows.append((name, *last_step(moment, e, g, i), f"{moment.returns[g.name][e, i]:.4g}", *values))
        if g.count > len(listed):
            rows.append((f"... {g.count - len(listed)} more", *[""] * (len(rows[0]) - 1)))
        first += g.count
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


def members(state, told=()):
    """Return the members of one state as lines of text, without those of ``told``."""
    lines = []
    for name in state.dtype.names:
        if name in told:
            continue
        values = np.atleast_1d(state[name]).ravel()
        shown = "  ".join(f"{value:.4g}" for value in values[:MOST_NUMBERS].tolist())
        rest = f"  ... {len(values) - MOST_NUMBERS} more" if len(values) > MOST_NUMBERS else ""
        lines.append(f"{name:<12} {shown}{rest}")
    return lines
