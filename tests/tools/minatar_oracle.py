"""Run the package `minatar` as an oracle, and keep what it does in tests/data/minatar.

    python tests/tools/minatar_oracle.py record breakout   # NAME.json.xz
    python tests/tools/minatar_oracle.py means breakout    # its rows of means.json

It needs `pip install minatar==1.0.15`, whose licence is the GPL: nothing of the project imports it.
"""

import argparse
import json
import lzma
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data" / "minatar"
MEANS = DATA / "means.json"
PLAYED, ARRANGED = 1000, 600  # steps of random play, and single steps from arranged states
EPISODES = 10_000
# sticky_action_prob and difficulty_ramping by cupydrive's `rules`
SETTINGS = {"original": (0.1, True), "gymnax": (0.0, False)}


def breakout(rng):
    """Return attributes that set up a game: few or many bricks, the ball anywhere."""
    bricks = np.zeros((10, 10))
    bricks[1:4] = rng.random((3, 10)) < rng.choice([0.0, 0.3, 0.9])
    x, y, last_x, last_y = (int(v) for v in rng.integers(0, (10, 9, 10, 9)))
    return {
        "brick_map": bricks,
        "ball_x": x,
        "ball_y": y,
        "ball_dir": int(rng.integers(4)),
        "pos": int(np.clip(x + rng.integers(-2, 3), 0, 9)),
        "strike": bool(rng.random() < 0.5),
        "last_x": last_x,
        "last_y": last_y,
    }


def freeway(rng):
    """Return attributes that set up a game: cars and the player anywhere, the player often at the
    top or at its moment to move.
    """
    speeds = rng.integers(1, 6, 8) * rng.choice([-1, 1], 8)
    cars = np.stack([rng.integers(0, 10, 8), np.arange(1, 9), rng.integers(0, 6, 8), speeds], 1)
    return {
        "cars": cars.tolist(),
        "pos": int(rng.choice([1, *range(1, 10)])),
        "move_timer": int(rng.choice([0, 0, 1, 2, 3])),
    }


def asterix(rng):
    """Return attributes that set up a game: any level, the player near things, timers often due."""
    level = int(rng.integers(10))
    entities = [None] * 8
    for k in np.flatnonzero(rng.random(8) < rng.choice([0.2, 0.6, 1.0])):
        right, gold = rng.random(2) < 0.5
        entities[k] = [int(rng.integers(10)), int(k) + 1, bool(right), bool(gold)]
    spawn_speed, move_speed = 10 - level, max(1, 5 - level // 2)
    x, y = int(rng.integers(10)), int(rng.integers(1, 9))
    if entities[y - 1] is not None:
        x = int(np.clip(entities[y - 1][0] + rng.integers(-2, 3), 0, 9))
    return {
        "entities": entities,
        "player_x": x,
        "player_y": y,
        "ramp_index": level,
        "spawn_speed": spawn_speed,
        "move_speed": move_speed,
        "spawn_timer": int(rng.choice([0, rng.integers(spawn_speed)])),
        "move_timer": int(rng.choice([0, rng.integers(move_speed)])),
        "ramp_timer": int(rng.choice([-1, 0, 50])),
    }


def space_invaders(rng):
    """Return attributes that set up a game: one alien or many, and bullets, anywhere."""
    boards = (rng.random((3, 10, 10)) < rng.choice([0.0, 0.1, 0.4])).astype(float)
    row, column = rng.integers(0, 10, 2)
    boards[0, row, column] = boards[1, min(row + 1, 9), column] = 1
    return {
        "alien_map": boards[0],
        "f_bullet_map": boards[1],
        "e_bullet_map": boards[2],
        "pos": int(rng.integers(10)),
        "alien_dir": int(rng.choice([-1, 1])),
        "enemy_move_interval": int(rng.integers(6, 13)),
        "alien_move_timer": int(rng.integers(3)),
        "alien_shot_timer": int(rng.integers(3)),
        "shot_timer": int(rng.integers(3)),
    }


def seaquest(rng):
    """Return attributes that set up a game: many things in a few rows, timers often due."""
    rows = int(rng.choice([2, 8]))

    def things(most, *timers):
        """Return some things, each a column, a row, whether it faces right, and timers."""
        return [
            [
                int(rng.integers(10)),
                int(rng.integers(1, 1 + rows)),
                bool(rng.random() < 0.5),
                *(int(rng.choice([0, rng.integers(1 + timer)])) for timer in timers),
            ]
            for _ in range(rng.integers(1 + most))
        ]

    right, move_speed = bool(rng.random() < 0.5), int(rng.integers(2, 6))
    return {
        "e_fish": things(6, move_speed),
        "e_subs": things(6, move_speed, 10),
        "e_bullets": things(6),
        "f_bullets": things(1),
        "divers": things(1, 5),
        "sub_x": int(rng.integers(1, 10)) - (not right),
        "sub_y": int(rng.integers(rows)),
        "sub_or": right,
        "oxygen": int(rng.choice([0, 1, rng.integers(200)])),
        "diver_count": int(rng.choice([0, 6, rng.integers(-2, 7)])),
        "surface": bool(rng.random() < 0.5),
        "e_spawn_timer": int(rng.integers(2)),
        "d_spawn_timer": int(rng.choice([0, 3, 9])),
        "shot_timer": int(rng.integers(2)),
        "e_spawn_speed": int(rng.choice([1, rng.integers(1, 21)])),
        "move_speed": move_speed,
        "ramp_index": int(rng.integers(10)),
    }


ARRANGE = {
    "breakout": breakout,
    "freeway": freeway,
    "asterix": asterix,
    "space_invaders": space_invaders,
    "seaquest": seaquest,
}


def make(game, sticky_action_prob, difficulty_ramping, seed):
    """Return a game of the package, after a reset."""
    from minatar import Environment

    env = Environment(game, sticky_action_prob, difficulty_ramping)
    env.seed(seed)
    env.reset()
    return env


def plain(value):
    """Return a value as JSON keeps it."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def state(env):
    """Return the state of a game by its own names."""
    left_out = {"channels", "action_map", "random"}
    return {name: plain(value) for name, value in vars(env.env).items() if name not in left_out}


def record(game):
    """Write steps of random play, and from arranged states."""
    env, rng = make(game, 0.0, True, 1), np.random.default_rng(1)
    actions = [int(a) for a in env.minimal_action_set()]
    lines = [{"game": game, "minatar": version("minatar"), "channels": env.env.channels}]
    lines[0]["minimal_actions"] = actions
    ended = True
    for k in range(PLAYED + ARRANGED):
        if k >= PLAYED or ended:
            env.reset()
            for name, value in ARRANGE[game](rng).items() if k >= PLAYED else ():
                setattr(env.env, name, value)
            lines.append({"state": json.loads(json.dumps(state(env), default=plain))})
        seen, action = np.argwhere(env.state()).tolist(), int(rng.choice(actions))
        reward, ended = env.act(action)
        step = {"action": action, "reward": int(reward), "terminal": bool(ended), "seen": seen}
        lines.append(step | {"after": json.loads(json.dumps(state(env), default=plain))})
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    (DATA / f"{game}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def recorded(game):
    """Return the first line of a recording, and its steps, each with the state ``before``."""
    text = lzma.decompress((DATA / f"{game}.json.xz").read_bytes()).decode()
    first, *lines = (json.loads(line) for line in text.splitlines())
    steps, before = [], None
    for line in lines:
        if "state" not in line:
            steps.append({"before": before, **line})
        before = line.get("state") or line["after"]
    return first, steps


def recorded_means(game, rules):
    """Return the recorded numbers of random episodes."""
    return json.loads(MEANS.read_text())[f"{game} {rules}"]


def means(game):
    """Write mean and standard error of return and length of random episodes, by rules."""
    for rules, (sticky, ramping) in SETTINGS.items():
        env, rng = make(game, sticky, ramping, 2), np.random.default_rng(2)
        actions, rows = env.minimal_action_set(), np.zeros((EPISODES, 2))
        limit = np.inf if rules == "original" else 2500 if game == "freeway" else 1000
        for row in rows:
            env.reset()
            ended = False
            while not ended and row[1] < limit:
                reward, ended = env.act(actions[rng.integers(len(actions))])
                row += reward, 1
        numbers = {"minatar": version("minatar"), "episodes": EPISODES}
        numbers["command"] = shlex.join(["python", *sys.argv])
        for name, column in zip(("return", "length"), rows.T, strict=True):
            error = column.std(ddof=1) / np.sqrt(EPISODES)
            numbers[name] = {"mean": column.mean(), "standard_error": error}
        known = json.loads(MEANS.read_text()) if MEANS.exists() else {}
        known[f"{game} {rules}"] = numbers
        MEANS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("record", "means"))
    parser.add_argument("game", choices=ARRANGE)
    arguments = parser.parse_args()
    {"record": record, "means": means}[arguments.what](arguments.game)
