"""What taggers and runners do in episodes of Tag, in figures: how far apart they are, who surrounds whom, who tags whom.

``follow`` plays a recording again and takes the figures of ``measures`` on the way. Letters: N episodes, T taggers, R runners.
Distances are in the environment's unit: lengths of continuous Tag, cells of grid Tag.
"""

import numpy as np

MOMENTS = 50  # at which an episode's figures are taken, besides its start
NEAR = 0.1  # of the arena's side: a second tagger this near to a tag has helped


def places(spec, params, states):
    """Return the taggers' places (N, T, 2), the runners' (N, R, 2), whether these are in the game (N, R), side and reach.

    A runner nearer to a tagger than ``reach`` is tagged.
    """
    at = np.stack([states["x"], states["y"]], axis=-1).astype(np.float64)
    taggers, runners = at[:, : params.num_taggers], at[:, params.num_taggers :]
    side = float(params.grid_length)
    if spec.name == "tag_grid":  # caught: a tagger stands on its cell
        return taggers, runners, (taggers != runners).any(axis=2).all(axis=1, keepdims=True), side, 0.5
    return taggers, runners, states["active"][:, params.num_taggers :] != 0, side, params.tagging_distance * side


def distances(here, there):
    """Return (N, A, B): from each of (N, A, 2) to each of (N, B, 2)."""
    return np.hypot(*np.moveaxis(there[:, None, :, :] - here[:, :, None, :], -1, 0))


def mean_of(values, where):
    """Return (N,) the mean over the runners of ``where`` (N, R); NaN where there are none."""
    with np.errstate(invalid="ignore"):
        return np.where(where, values, 0.0).sum(axis=1) / where.sum(axis=1)


def measures(taggers, runners, in_game, side):
    """Return figures of N arenas at one moment by name, (N,) each; NaN where nobody is there to be measured.

    * ``to_tagger``: distance of a runner in the game to its nearest tagger, mean;
    * ``to_edge``: its distance to the nearest edge, mean (a sixth of the side if places are uniform);
    * ``angle``: of the runner in the game that is nearest to a tagger: the angle between the directions to its two nearest
      taggers, degrees (180: from opposite sides, 90 on average if directions are random);
    * ``encircled``: share of runners in the game that lie within the taggers' convex hull: no half plane through the runner is
      free of taggers;
    * ``tagger_spread``: distance of two taggers, mean over pairs (0.521 of the side if places are uniform);
    * ``runner_spread``: Clark and Evans' index (Ecology 1954) of the runners in the game: mean distance to the nearest other
      one, over that of as many points at random, ``side / (2 sqrt(R))``; below 1 they crowd, above they spread.

    Args:
        taggers: (N, T, 2).
        runners: (N, R, 2).
        in_game: (N, R) bool.
        side: Of the arena.
    """
    n, t = len(taggers), taggers.shape[1]
    found = dict.fromkeys(("to_tagger", "to_edge", "angle", "encircled", "tagger_spread", "runner_spread"))
    apart = distances(runners, taggers)
    nearest = apart.min(axis=2)
    found["to_tagger"] = mean_of(nearest, in_game)
    found["to_edge"] = mean_of(np.minimum(runners, side - runners).min(axis=2), in_game)
    way = taggers[:, None, :, :] - runners[:, :, None, :]
    direction = np.arctan2(way[..., 1], way[..., 0])  # (N, R, T)
    anybody = in_game.any(axis=1)
    found["angle"] = np.full(n, np.nan)
    if t > 1:
        hunted = np.where(in_game, nearest, np.inf).argmin(axis=1)
        both = np.argsort(apart[np.arange(n), hunted], axis=1, kind="stable")[:, :2]
        first, second = np.take_along_axis(direction[np.arange(n), hunted], both, axis=1).T
        between = np.abs(np.mod(first - second + np.pi, 2 * np.pi) - np.pi)
        found["angle"] = np.where(anybody, np.degrees(between), np.nan)
    ordered = np.sort(direction, axis=2)
    gaps = np.diff(ordered, axis=2, append=ordered[..., :1] + 2 * np.pi)
    found["encircled"] = mean_of(gaps.max(axis=2) < np.pi - 1e-9, in_game)
    pairs = np.triu_indices(t, 1)
    of_pairs = distances(taggers, taggers)[:, pairs[0], pairs[1]]
    found["tagger_spread"] = of_pairs.mean(axis=1) if t > 1 else np.full(n, np.nan)
    found["runner_spread"] = clark_evans(runners, in_game, side)
    return found


def clark_evans(points, there, side):
    """Return (N,) Clark and Evans' index of those points (N, R, 2) that are ``there`` (N, R); NaN of fewer than two."""
    apart = distances(points, points)
    apart[:, np.arange(points.shape[1]), np.arange(points.shape[1])] = np.inf
    apart = np.where(there[:, None, :], apart, np.inf).min(axis=2)
    count = there.sum(axis=1)
    with np.errstate(invalid="ignore"):
        index = mean_of(apart, there) * 2 * np.sqrt(count) / side
    return np.where(count > 1, index, np.nan)


def tags(before, after, apart, reach, side):
    """Return (N,) ints: runners tagged in a step, those of them within reach of two taggers or more, and those with help.

    Args:
        before: (N, R) bool, in the game before the step.
        after: (N, R) bool, after it.
        apart: (N, R, T) distances after it.
        reach: Of a tagger.
        side: Of the arena; with help: a second tagger was within a tenth of it.
    """
    tagged = before & ~after
    second = np.sort(apart, axis=2)[..., 1] if apart.shape[2] > 1 else np.full(tagged.shape, np.inf)
    return tagged.sum(axis=1), (tagged & (second < reach)).sum(axis=1), (tagged & (second < NEAR * side)).sum(axis=1)


def mean_known(values):
    """Return the mean of those numbers that are not NaN, rounded; None if there are none."""
    known = values[np.isfinite(values)]
    return round(float(known.mean()), 4) if known.size else None


def follow(recording, device="cpu"):
    """Return the figures of a recording's episodes, as JSON holds them.

    Returns:
        ``steps`` at which they were taken; under ``curves`` by name a mean over the episodes that go on then, None where
        nobody could be measured (``in_game``: the share of runners in the game, over all episodes); under ``means`` the same
        over all of these moments; ``tags`` of an episode, mean; ``by_two`` and ``helped``: the shares of tags made within reach
        of two taggers, and with a second one near; None without tags.
    """
    spec, params = recording.spec, recording.params
    rows, steps, counted, before = [], [], np.zeros(3), None
    every = max(1, params.max_episode_steps // MOMENTS)
    for moment in recording.moments(device):
        taggers, runners, in_game, side, reach = places(spec, params, moment.states)
        if moment.step == 0:  # whoever a tagger begins beside has not been tagged
            before = np.ones_like(in_game)
        else:
            counted += [count.sum() for count in tags(before, in_game, distances(runners, taggers), reach, side)]
            before = before & in_game
        if moment.step % every == 0:
            found = measures(taggers, runners, before, side)
            if "speed" in moment.states.dtype.names:
                found["runner_speed"] = mean_of(moment.states["speed"][:, params.num_taggers :], before)
            going = {name: np.where(moment.over, np.nan, values) for name, values in found.items()}
            rows.append({"in_game": before.mean(axis=1), **going})
            steps.append(moment.step)
    number, by_two, helped = counted
    curves = {name: np.array([row[name] for row in rows]) for name in rows[0]}  # (moments, N)
    return {
        "episodes": recording.num_envs,
        "steps": steps,
        "curves": {name: [mean_known(values) for values in array] for name, array in curves.items()},
        "means": {name: mean_known(array) for name, array in curves.items()},
        "tags": round(number / recording.num_envs, 4),
        "by_two": round(by_two / number, 4) if number else None,
        "helped": round(helped / number, 4) if number else None,
    }
