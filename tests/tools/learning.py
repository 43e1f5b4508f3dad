"""It learns: ten seeds of each lesson, against a mark or against the heuristic on the same starts.

    python tests/tools/learning.py [--device cuda] [--lesson NAME] [--seeds 10] [--json gallery/learning.json]

A lesson's mark is a mean over fresh greedy episodes on saved weights; a lesson passes if its median
seed does. Training time is counted after set-up and capture. Where an environment says a mark its
lessons ask for more, nearly for the best there is, and each seed is trained once more, until its
greedy episodes reach the environment's own mark. Taggers play against the heuristic runners, and
are compared with the heuristic taggers on the same 10,000 starts: those of grid Tag have to end an
episode in at most 0.6 of the steps, those of continuous Tag to tag 1.2 times as many. The sciences'
lessons (five seeds) need their data (``cupydrive data``). Results are committed in
gallery/learning.json; those of lessons that are not run stay there.
"""

import argparse
import datetime
import json
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from solving import marks, solve

import cupydrive as cd
from cupydrive import envs
from cupydrive.executors.about import info
from cupydrive.inputs.files import write_atomically
from cupydrive.training.begin import make_run
from cupydrive.training.run import Run
from cupydrive.training.suggestions import suggested_algorithm, suggestion


@dataclass(frozen=True)
class Lesson:
    """What is learnt, how, and what counts as learnt."""

    env: str
    params: dict
    policies: dict  # by group
    steps: float  # env-steps
    num_envs: int
    key: str  # what is measured: a group's return, or a metric
    mark: float | None  # at least; None: better than the heuristic's
    # at this multiple of the heuristic's, or better, where there is no mark
    of_heuristic: float = 1.0
    bounds: dict = field(default_factory=dict)  # further marks by name: (least, most)
    until_mark: bool = False  # each seed is trained once more, until the environment's own mark
    episodes: int = 1000
    greedy: bool = True
    rival: object = None  # called with the ``Evaluation``: what it must exceed, by name


RUNNERS = {"runner": cd.HeuristicPolicy()}
# What the pendulum's starts allow, nearly: what the greedy policy of value iteration earns from
# them on 961 x 641 points (tests/tools/value_iteration.py, fine=2; on 481 x 321 points -141.42, and
# the values themselves promise -141.17).
PENDULUM_OPTIMUM = -141.09
# The median seed's, each no less than the environment's own. Of mountain_car the optimum is about
# -97.6, found likewise. No setting that was tried brings the median of ten seeds within 5 of the
# pendulum's optimum (kernels/NOTES.md).
MARKS = {
    "cartpole": 500.0, "acrobot": -75.0, "mountain_car": -100.0, "mountain_car_continuous": 95.0,
    "pendulum": -170.0, "repeat_previous": 0.9, "repeat_first": 0.9,
    "battleship": 0.0, "concentration": 0.5, "minatar_asterix": 10.0, "minatar_breakout": 30.0,
    "minatar_freeway": 50.0,
    "minatar_space_invaders": 150.0, "minatar_seaquest": 20.0,
}  # fmt: skip
MINGRU = cd.Network(hidden=(128,), core=cd.MinGRU(128), activation="relu", shared=True)
TAG_GRID = {"num_taggers": 4, "grid_length": 20}
TAG_CONTINUOUS = {"num_taggers": 5, "num_runners": 20, "max_episode_steps": 50}


def falling(rate, steps):
    """Return a schedule from ``rate`` to a twentieth of it."""
    return ((0, rate), (steps, rate / 20))


def suggested(name, mark, algorithm=None, **params):
    """Return the lesson that an environment of one group suggests for an algorithm, or for
    itself, with parameters ``params``. Its own mark is that of the default ones.
    """
    spec, about = envs.get(name), suggestion(name, algorithm, params)
    (group,) = spec.groups(spec.make_params(**params))
    learner = {group.name: suggested_algorithm(name, algorithm, params=params)}
    sizes = {"steps": about.steps, "num_envs": about.num_envs}
    return Lesson(name, params, learner, key=group.name, mark=mark, until_mark=not params, **sizes)


LESSONS = {
    **{f"{name} ppo": suggested(name, MARKS[name]) for name in marks()},
    "cartpole a2c": suggested("cartpole", MARKS["cartpole"], "a2c"),
    "cartpole pqn": suggested("cartpole", MARKS["cartpole"], "pqn"),
    "repeat_previous mingru": Lesson(
        "repeat_previous", {},
        {"player": suggested_algorithm("repeat_previous", network=MINGRU, update_epochs=8,
        learning_rate=falling(2e-3, 1e6))},
        1e6, 64, "player", 0.9,
    ),
    "cartpole position_only": suggested("cartpole", 475.0, position_only=True),
    "pendulum position_only": suggested("pendulum", -250.0, position_only=True),
    "tag_grid ppo": Lesson(
        "tag_grid", TAG_GRID,
        {"tagger": cd.PPO(learning_rate=falling(2.5e-3, 1e8), ent_coef=((0, 0.01), (1e8, 0.0)),
        gamma=0.97), **RUNNERS},
        1e8, 2048, "length", None, 0.6, episodes=10_000,
    ),
    "tag_continuous ppo": Lesson(
        "tag_continuous", TAG_CONTINUOUS,
        {
            # Nothing is discounted: what counts is how many are tagged in all.
            "tagger": cd.PPO(
                learning_rate=((0, 1e-4), (3e6, 3e-3), (1e8, 1.5e-4)),
                ent_coef=((0, 0.01), (1e8, 0.0)), gamma=1.0,
                gae_lambda=0.9, num_steps=50, num_minibatches=32, hidden=(128, 128),
                normalize_reward=True,
            ),
            **RUNNERS,
        },
        1e8, 4096, "tags", None, 1.2, episodes=10_000,
    ),
}  # fmt: skip
BETTER = {"length": -1, "tags": 1}

# ---- the sciences --------------------------------------------------------------------------------

# Catalysis is learnt where an episode earns the best return there is within 0.1 %;
# tests/envs/test_catalysis.py checks these.
BEST = {
    "diffusion2d": 8.9484, "diffusion2d_relaxed": 9.3983, "diffusion3d": 28.9518,
    "surface": 28.2119, "gas1": 28.9848,
    "gas2": 27.9762, "surface_double_grids": 46.4021, "gas2_double_grids": 25.8783,
    "two_atom_diffusion": 28.0259,
}  # fmt: skip
NEGOTIATION = cd.PPO(
    learning_rate=falling(1e-3, 1.5e6), num_steps=60, num_minibatches=8, gamma=0.97, ent_coef=0.003,
    normalize_obs=True, normalize_reward=True,
)  # fmt: skip
REGIONS = 27


def science(env, group, mark, params=None, policies=None, **further):
    """Return the lesson of one group with the settings that its environment suggests; its greedy
    episodes are all alike.
    """
    about, policies = suggestion(env), policies or {group: suggested_algorithm(env)}
    settings = {"steps": about.steps, "num_envs": about.num_envs, "episodes": 2} | further
    return Lesson(env, params or {}, policies, key=group, mark=mark, **settings)


def constant_levels(found):
    """Return what governors at level 6 and the planner earn of as much subsidy as ``found`` has
    paid, by linear interpolation.

    Of constant levels 6 is the best for both at each of the 21 levels of the subsidy, but for
    governors at the last one.
    """
    # Not validated: on days without a choice an action changes nothing, and need not be the one
    # that is allowed.
    env = cd.make("covid_economy", num_envs=21, device="cpu", validate=False)
    env.reset(0)
    subsidy = torch.arange(21, dtype=torch.int32)[:, None]
    for _ in range(env.params.max_episode_steps):
        *_, info = env.step(
            {"governor": torch.full((21, 51), 6, dtype=torch.int32), "planner": subsidy}
        )
    paid, episode = found.mean("subsidies")[0], info["episode"]
    returns = {name: rows.double().mean(axis=1) for name, rows in episode["return"].items()}
    return {
        name: float(np.interp(paid, episode["subsidies"].double(), each))
        for name, each in returns.items()
    }


COVID = suggested_algorithm("covid_economy")
LESSONS |= {
    **{
        f"catalysis {setting}": science("catalysis", "atoms", 0.999 * best, {"setting": setting})
        for setting, best in BEST.items()
    },
    "rice_n ppo": science("rice_n", "region", 168 / REGIONS),
    # Episodes are sampled, as the published ones are: what binds a region is the strictest of 52
    # proposals.
    "rice_n negotiation": science(
        "rice_n", "region", 154.2 / REGIONS, {"negotiation": True}, {"region": NEGOTIATION},
        steps=1.5e6, episodes=256,
        greedy=False, bounds={"temperature_rise": (-math.inf, 2.0), "economic_index": (0.40, math.inf)},
    ),
    "covid_economy governors": science(
        "covid_economy", "governor", 432.0,
        policies={"governor": COVID, "planner": cd.HeuristicPolicy()},
        bounds={"planner": (438.0, math.inf), "subsidies": (0.0, 0.0)},
    ),
    "covid_economy together": science(
        "covid_economy", "governor", None, policies={"governor": COVID, "planner": COVID},
        rival=constant_levels,
    ),
}  # fmt: skip


def learn(name, seed, device):
    """Train one seed of a lesson, load its weights from disk and evaluate them; return a row of
    results.
    """
    this = LESSONS[name]
    options = dict(
        policies=this.policies, num_envs=this.num_envs, seed=seed, device=device, **this.params
    )
    with tempfile.TemporaryDirectory() as folder:
        run = cd.train(this.env, steps=this.steps, out=folder, progress=False, **options)
        seconds, done = run.seconds, run.step
        run = Run.load(folder, device)
    found = run.evaluate(this.episodes, greedy=this.greedy)
    mean = found.mean(this.key)[0]
    row = {"seed": seed, "env_steps": done, "seconds": round(seconds, 3)}
    row |= {key: [round(x, 3) for x in found.mean(key)] for key in (this.key, *this.bounds)}
    if this.until_mark:
        steps = {"steps": this.steps, "num_envs": this.num_envs}
        soonest = solve(
            this.env,
            None,
            this.policies[this.key],
            seed=seed,
            device=device,
            **steps,
            **this.params,
        )
        row["until_mark"] = None
        if soonest.seconds is not None:
            row["until_mark"] = {
                "seconds": round(soonest.training, 4),
                "env_steps": soonest.env_steps,
            }
    if this.mark is not None:
        within = (low <= found.mean(key)[0] <= high for key, (low, high) in this.bounds.items())
        return row | {"passed": mean >= this.mark and all(within)}
    if this.rival is not None:
        rival = this.rival(found)
        row |= {
            "rival": {
                key: [round(found.mean(key)[0], 3), round(least, 3)] for key, least in rival.items()
            }
        }
        return row | {"passed": all(found.mean(key)[0] > least for key, least in rival.items())}
    heuristic = cd.evaluate(this.env, episodes=this.episodes, device=device, **this.params)
    difference, about = cd.difference(found, heuristic, this.key)
    row["heuristic"] = [round(x, 3) for x in heuristic.mean(this.key)]
    row["difference"] = [round(difference, 3), round(about, 3)]
    enough = BETTER[this.key] * (mean - this.of_heuristic * heuristic.mean(this.key)[0]) >= 0
    return row | {"passed": enough and BETTER[this.key] * difference > about}


def before(name, device):
    """Return what a policy earns that has learnt nothing, by name: its weights are as drawn."""
    this = LESSONS[name]
    run = make_run(
        this.env,
        policies=this.policies,
        num_envs=this.num_envs,
        seed=0,
        device=device,
        **this.params,
    )
    found = run.evaluate(this.episodes, greedy=this.greedy)
    return {key: round(found.mean(key)[0], 3) for key in (this.key, *this.bounds)}


def lesson(name, seeds, device):
    """Return the results of all seeds of a lesson, and of the median one."""
    this, rows = LESSONS[name], [learn(name, seed, device) for seed in range(seeds)]
    key = this.key
    middle = statistics.median_low([row[key][0] for row in rows])
    median = next(row for row in rows if row[key][0] == middle)
    for row in rows:
        print(f"{name:<20} {row}", flush=True)
    values = [row[key][0] for row in rows]
    spread = {"lowest": min(values), "median": middle, "highest": max(values)}
    times = [row["seconds"] for row in rows]
    print(
        f"{name:<20} median seed {'passes' if median['passed'] else 'FAILS'}: {spread}", flush=True
    )
    bounds = {
        which: [None if math.isinf(x) else x for x in pair] for which, pair in this.bounds.items()
    }
    return {
        "passed": median["passed"],
        "mark": this.mark,
        "of_heuristic": this.of_heuristic,
        "bounds": bounds,
        key: spread,
        "seconds": {
            "lowest": min(times),
            "median": statistics.median(times),
            "highest": max(times),
        },
        "untrained": before(name, device),
        "seeds": rows,
    }


def main():
    """Run the lessons; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--lesson", choices=LESSONS, action="append")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    about, passed = info(), []
    made = {
        "command": f"python tests/tools/learning.py --device {args.device} --seeds {args.seeds}",
        "machine": about.gpus if args.device != "cpu" else about.processor,
        "versions": about.versions,
        "date": datetime.date.today().isoformat(),
    }
    for name in args.lesson or LESSONS:
        result = lesson(name, args.seeds, args.device)
        passed.append(result["passed"])
        if args.json:  # after each, so that an interrupt keeps those that are done
            known = json.loads(args.json.read_text()) if args.json.exists() else {}
            write_atomically(
                args.json,
                json.dumps({**known, name: {**result, **made}}, indent=1).encode() + b"\n",
            )
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
