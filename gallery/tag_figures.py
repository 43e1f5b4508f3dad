"""Figures of episodes of Tag: how many runners are in the game, how near the taggers are, and how
many runners are tagged.

N are episodes, T taggers, R runners. Distances are in the environment's unit: lengths of continuous
Tag, cells of grid Tag.
"""

import numpy as np

from cupydrive.playing.recording import Recording

MOMENTS = 50  # at which an episode's figures are taken, besides its start


def follow(recording: Recording, device: str = "cpu") -> dict:
    """Play a recording again and return figures of its episodes, as JSON holds them.

    Returns:
        ``steps`` at which figures were taken; under ``curves`` ``in_game``, the share of runners in
        the game over all episodes, and ``to_tagger``, the mean distance of these to their nearest
        tagger over the episodes that go on, None where there are none; ``tags`` of an episode,
        mean.
    """
    params = recording.params
    every = max(1, params.max_episode_steps // MOMENTS)
    steps, curves, tags, before = [], {"in_game": [], "to_tagger": []}, 0, None
    for moment in recording.moments(device):
        nearest, in_game = runners(recording.spec.name, params, moment.states)
        if before is None:  # whoever a tagger begins beside has not been tagged
            before = np.ones_like(in_game)
        else:
            tags += int((before & ~in_game).sum())
            before &= in_game
        if moment.step % every == 0:
            count = before.sum(axis=1)
            going = ~np.asarray(moment.over) & (count > 0)
            means = np.where(before, nearest, 0.0).sum(axis=1)[going] / count[going]
            steps.append(moment.step)
            curves["in_game"].append(round(float(before.mean()), 4))
            curves["to_tagger"].append(round(float(means.mean()), 4) if going.any() else None)
    return {
        "episodes": recording.num_envs,
        "steps": steps,
        "curves": curves,
        "tags": round(tags / recording.num_envs, 4),
    }


def runners(name: str, params, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, R): the distance of each runner to its nearest tagger, and whether it is in the
    game.
    """
    at = np.stack([states["x"], states["y"]], axis=-1).astype(np.float64)
    taggers, others = at[:, : params.num_taggers], at[:, params.num_taggers :]
    nearest = np.hypot(*np.moveaxis(taggers[:, None] - others[:, :, None], -1, 0)).min(axis=2)
    # On a grid a runner is caught where a tagger stands on its cell.
    return nearest, nearest > 0 if name == "tag_grid" else states["active"][
        :, params.num_taggers :
    ] != 0
