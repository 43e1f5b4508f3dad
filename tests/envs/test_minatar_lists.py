"""Space Invaders and Seaquest of MinAtar, against recorded steps of the package `minatar`
(tests/tools/minatar_oracle.py).
"""

import minatar_oracle
import numpy as np
from test_minatar import Recorded, states

from cupydrive.envs import minatar_space_invaders
from cupydrive.spec import StepResult

ACTIONS = {"space_invaders": (0, 1, 3, 5)}  # recorded numbers of ours


def space_invaders(raw: dict) -> dict:
    """Return fields of ours from a recorded state."""
    boards = (np.array(raw[f"{name}_map"]) > 0 for name in ("alien", "f_bullet", "e_bullet"))
    return {
        "rows": minatar_space_invaders.packed(*boards),
        "cannon": raw["pos"],
        "direction": raw["alien_dir"],
        "interval": raw["enemy_move_interval"],
        "move_timer": raw["alien_move_timer"],
        "enemy_shot_timer": raw["alien_shot_timer"],
        "shot_timer": raw["shot_timer"],
    }


def agrees(
    first: dict, steps: list[dict], channels: tuple[str, ...], seen: np.ndarray, result: StepResult
) -> None:
    """Compare what a step gives besides the state, and what the player saw before it."""
    np.testing.assert_array_equal(result.reward["player"][:, 0], [s["reward"] for s in steps])
    np.testing.assert_array_equal(result.terminated, [s["terminal"] for s in steps])
    assert [name for name, happened in result.events.items() if not np.any(happened)] == []
    assert tuple(first["channels"]) == channels
    for cells, step in zip(seen, steps, strict=True):
        np.testing.assert_array_equal(np.argwhere(cells), step["seen"])


def test_recorded_steps_of_space_invaders_agree():
    module = minatar_space_invaders
    first, steps = minatar_oracle.recorded("space_invaders")
    before, after = (
        states(module, [space_invaders(step[when]) for step in steps])
        for when in ("before", "after")
    )
    actions = [[ACTIONS["space_invaders"].index(step["action"])] for step in steps]
    result = module.step(
        module.Params(sticky_action_prob=0.0),
        before,
        {"player": np.array(actions)},
        np.zeros(len(steps), int),
        Recorded(np.zeros((len(steps), 1, 4))),
    )
    for name in after.dtype.names[:-1]:  # all but last_action
        np.testing.assert_array_equal(result.state[name], after[name], name)
    agrees(first, steps, module.CHANNELS, module.cells(before), result)
