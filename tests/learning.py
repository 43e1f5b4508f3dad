"""It learns: ten seeds of each lesson, against a mark or against the heuristic on the same starts.

    python tests/learning.py [--device cuda] [--lesson NAME] [--seeds 10] [--json gallery/learning.json]

"Solved" is a mean of at least the mark over 1,000 fresh greedy episodes on saved weights. Training time is counted after
set-up and capture. Where a lesson has a mark, each seed is trained once more, until its greedy episodes reach the mark.
Taggers play against the heuristic runners, and are compared with the heuristic taggers on the same 10,000 starts. A lesson
passes if its median seed does. Results are committed in gallery/learning.json; those of lessons that are not run stay there.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cupydrive as cd
from cupydrive.bench.solving import MARKS, solve
from cupydrive.executors.about import info
from cupydrive.inputs.files import write_atomically
from cupydrive.training.run import Run
from cupydrive.training.train import suggested_algorithm, suggestions

RUNNERS = {"runner": cd.Heuristic()}
TAG_GRID = {"num_taggers": 4, "grid_length": 20}
TAG_CONTINUOUS = {"num_taggers": 5, "num_runners": 20, "max_episode_steps": 50}


def falling(rate, steps):
    """Return a schedule from ``rate`` to a twentieth of it."""
    return ((0, rate), (steps, rate / 20))


def suggested(name, group):
    """Return the lesson that an environment of one group suggests for itself."""
    about = suggestions(name)
    return name, {}, {group: suggested_algorithm(name)}, about["steps"], about["num_envs"], group, MARKS[name]


CLASSIC = (
    ("cartpole", "cart"), ("acrobot", "arm"), ("mountain_car", "car"), ("mountain_car_continuous", "car"), ("pendulum", "pole"),
)  # fmt: skip
# Name: environment, parameters, policies, env-steps, environments, what is measured, and the mark (None: the heuristic).
LESSONS = {
    **{f"{name} ppo": suggested(name, group) for name, group in CLASSIC},
    "cartpole a2c": (
        "cartpole", {}, {"cart": cd.A2C(learning_rate=falling(3e-3, 4e6), num_steps=16)}, 4e6, 64, "cart", MARKS["cartpole"],
    ),
    "tag_grid ppo": (
        "tag_grid", TAG_GRID,
        {"tagger": cd.PPO(learning_rate=falling(2.5e-3, 2e7), ent_coef=((0, 0.01), (2e7, 0.0))), **RUNNERS},
        2e7, 2048, "length", None,
    ),
    "tag_continuous ppo": (
        "tag_continuous", TAG_CONTINUOUS,
        {
            "tagger": cd.PPO(
                learning_rate=((0, 1e-4), (3e6, 2e-3), (6e7, 1e-4)), ent_coef=((0, 0.01), (6e7, 0.0)), gamma=0.95,
                num_steps=16, num_minibatches=8, hidden=(128, 128), normalize_reward=True,
            ),
            **RUNNERS,
        },
        6e7, 4096, "tags", None,
    ),
}  # fmt: skip
# Catalysis is learnt where greedy episodes earn the best return there is within 0.1 %; tests/test_catalysis.py checks these.
BEST = {
    "diffusion2d": 8.9484, "diffusion2d_relaxed": 9.3983, "diffusion3d": 28.9518, "surface": 28.2119, "gas1": 28.9848,
    "gas2": 27.9762, "surface_double_grids": 46.4021, "gas2_double_grids": 25.8783, "two_atom_diffusion": 28.0259,
}  # fmt: skip
for setting, best in BEST.items():
    about = suggestions("catalysis")
    LESSONS[f"catalysis {setting}"] = (
        "catalysis", {"setting": setting}, {"atoms": suggested_algorithm("catalysis")}, about["steps"], about["num_envs"],
        "atoms", 0.999 * best,
    )  # fmt: skip
BETTER = {"length": -1, "tags": 1, "cart": 1}


def learn(name, seed, device):
    """Train one seed of a lesson, load its weights from disk and evaluate them; return a row of results."""
    env, params, policies, steps, num_envs, key, mark = LESSONS[name]
    with tempfile.TemporaryDirectory() as folder:
        common = dict(steps=steps, num_envs=num_envs, seed=seed, device=device, out=folder, progress=False)
        run = cd.train(env, policies=policies, **common, **params)
        seconds, done = run.seconds, run.step
        run = Run.load(folder, device)
    found = run.evaluate(1000 if mark is not None else 10_000)
    mean, half = found.mean(key)
    row = {"seed": seed, "env_steps": done, "seconds": round(seconds, 3), key: [round(mean, 3), round(half, 3)]}
    if mark is not None:
        soonest = solve(env, mark, policies[key], steps=steps, num_envs=num_envs, seed=seed, device=device, **params)
        until = (
            None if soonest.seconds is None else {"seconds": round(soonest.training, 4), "env_steps": soonest.env_steps}
        )
        return row | {"until_mark": until, "passed": mean >= mark}
    heuristic = cd.evaluate(env, episodes=10_000, device=device, **params)
    difference, about = cd.difference(found, heuristic, key)
    row["heuristic"] = [round(x, 3) for x in heuristic.mean(key)]
    row["difference"] = [round(difference, 3), round(about, 3)]
    return row | {"passed": BETTER[key] * difference > about}


def lesson(name, seeds, device):
    """Return the results of all seeds of a lesson, and of the median one."""
    rows = [learn(name, seed, device) for seed in range(seeds)]
    key = LESSONS[name][5]
    middle = statistics.median_low([row[key][0] for row in rows])
    median = next(row for row in rows if row[key][0] == middle)
    for row in rows:
        print(f"{name:<20} {row}", flush=True)
    values = [row[key][0] for row in rows]
    spread = {"lowest": min(values), "median": middle, "highest": max(values)}
    times = [row["seconds"] for row in rows]
    print(f"{name:<20} median seed {'passes' if median['passed'] else 'FAILS'}: {spread}", flush=True)
    return {
        "passed": median["passed"],
        key: spread,
        "seconds": {"lowest": min(times), "median": statistics.median(times), "highest": max(times)},
        "seeds": rows,
    }


def main():
    """Run the lessons; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--lesson", choices=LESSONS, action="append")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = {name: lesson(name, args.seeds, args.device) for name in args.lesson or LESSONS}
    if args.json:
        about = info()
        made = {
            "command": f"python tests/learning.py --device {args.device}",
            "machine": [gpu.name for gpu in about.gpus] if args.device != "cpu" else about.processor,
            "versions": about.versions,
            "date": datetime.date.today().isoformat(),
        }
        known = json.loads(args.json.read_text()) if args.json.exists() else {}
        known |= {name: {**result, **made} for name, result in results.items()}
        write_atomically(args.json, json.dumps(known, indent=1).encode() + b"\n")
    return 0 if all(result["passed"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
