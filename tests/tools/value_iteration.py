"""The best return there is, nearly: value iteration on a grid of states, and what its greedy policy
earns from given starts.

For environments of two state fields and no randomness after the start. States, actions and values
are float64, and the dynamics are those of the environment's NumPy reference. A value is the
greatest sum of rewards, undiscounted, of as many steps as an episode has; between grid points it is
interpolated linearly along each axis. The greedy policy looks one step ahead: it takes the action
whose reward and next value are the greatest together. It can be played, so what it earns is a lower
bound of the optimum. The values themselves are no bound, but an estimate with another error: where
both agree, the optimum is near. Starts are those of ``evaluate``, from the same seed.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import cupydrive as cd
from cupydrive import envs

# Not the car with a price on pushing: pushes of next to nothing, which interpolation favours, move
# it by less than a cell.
KNOWN = ("pendulum", "mountain_car")
STARTS = 10_000  # the seed that ``evaluate`` has unless it is given one


@dataclass(frozen=True)
class Grid:
    """The grid of an environment's states.

    Args:
        low: Of each field.
        high: Of each field.
        points: Along each field; the last one of a field that wraps is the first one again.
        wraps: Whether each field does.
        actions: (A,) that are tried at grid points.
        tried: (A',) that are tried in play: of a continuous action more.
    """

    low: tuple
    high: tuple
    points: tuple
    wraps: tuple
    actions: np.ndarray
    tried: np.ndarray

    def states(self):
        """Return all grid points, two arrays (P0 * P1,)."""
        axes = [np.linspace(*ends) for ends in zip(self.low, self.high, self.points, strict=True)]
        return [a.ravel() for a in np.meshgrid(*axes, indexing="ij")]

    def place(self, fields):
        """Return where states (n,) lie: the number of the cell's first corner, and the shares of
        the way along both axes.
        """
        corner, shares = 0, []
        for x, low, high, points in zip(fields, self.low, self.high, self.points, strict=True):
            way = np.clip((x - low) / (high - low), 0.0, 1.0) * (points - 1)
            cell = np.minimum(way.astype(np.int32), points - 2)
            corner = corner * points + cell
            shares.append(way - cell)
        return corner, *shares

    def at(self, values, corner, along, across):
        """Return the values (n,) at places, from those of all grid points."""
        row = self.points[1]
        near = values[corner] + across * (values[corner + 1] - values[corner])
        far = values[corner + row] + across * (values[corner + row + 1] - values[corner + row])
        return near + along * (far - near)

    def joined(self, values):
        """Return values whose first and last points agree along fields that wrap."""
        table = values.reshape(self.points)
        if self.wraps[0]:
            table[-1] = table[0]
        return table.ravel()


def grid(env, fine=1.0):
    """Return the ``Grid`` of an environment.

    Args:
        env: One of ``KNOWN``.
        fine: Times as many points along each axis.
    """
    p = envs.get(env).make_params()
    speeds = -p.max_speed, p.max_speed
    if env == "pendulum":
        ends, wraps, usual = ((-np.pi, np.pi), speeds), (True, False), (480, 320)
        actions, tried = (
            np.linspace(-p.max_torque, p.max_torque, 17),
            np.linspace(-p.max_torque, p.max_torque, 81),
        )
    else:
        ends, wraps, usual = ((p.min_position, p.goal_position), speeds), (False, False), (600, 400)
        actions = tried = np.arange(3)
    points = tuple(round(fine * cells) + 1 for cells in usual)  # odd: one lies at zero speed
    return Grid(*zip(*ends, strict=True), points, wraps, actions, tried)


def stepped(spec, p, fields, action):
    """Return the next fields, the rewards (n,) and whether the episode goes on, of states (n,) and
    actions (n,).
    """
    states = np.zeros(len(action), [(f.name, np.float64) for f in spec.state(p)])
    for f, x in zip(spec.state(p), fields, strict=True):
        states[f.name] = x
    (group,) = spec.groups(p)
    given = {group.name: action[:, None, None] if group.continuous else action[:, None]}
    found = spec.reference.step(p, states, given, np.zeros(len(action), int), None)
    return (
        [found.state[f.name] for f in spec.state(p)],
        found.reward[group.name][:, 0],
        ~found.terminated,
    )


def iterate(env, grid):
    """Return the values of all grid points: the greatest sum of rewards of as many steps as an
    episode has.
    """
    spec = envs.get(env)
    p = spec.make_params()
    fields = grid.states()
    ways = []
    for action in grid.actions:
        after, reward, on = stepped(spec, p, fields, np.full(len(fields[0]), action))
        ways.append((reward, on, grid.place(after)))
    values = np.zeros(len(fields[0]))
    for _ in range(p.max_episode_steps):
        before = values
        each = (reward + on * grid.at(before, *place) for reward, on, place in ways)
        values = next(each)
        for other in each:
            np.maximum(values, other, out=values)
        values = grid.joined(values)
        if np.array_equal(values, before):
            break
    return values


def starts(env, episodes, seed=STARTS):
    """Return the fields (episodes,) of the states in which ``evaluate`` begins its episodes."""
    made = cd.make(env, num_envs=episodes, device="cpu")
    made.reset(seed=seed)
    return [
        made.state[f.name].numpy().reshape(-1).astype(np.float64)
        for f in made.spec.state(made.params)
    ]


def play(env, grid, values, fields):
    """Return the returns (n,) of the greedy policy from states."""
    spec = envs.get(env)
    p = spec.make_params()
    n, tried = len(fields[0]), grid.tried
    total, playing, rows = np.zeros(n), np.ones(n, bool), np.arange(n)
    for _ in range(p.max_episode_steps):
        many = [np.tile(x, len(tried)) for x in fields]
        after, reward, on = stepped(spec, p, many, np.repeat(tried, n))
        promised = reward + on * grid.at(values, *grid.place(after))
        best = promised.reshape(len(tried), n).argmax(0) * n + rows
        total += playing * reward[best]
        playing &= on[best]
        fields = [x[best] for x in after]
        if not playing.any():
            break
    return total
