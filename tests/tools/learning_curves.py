"""Learning curves of the two learners, kernels and torch, are the same in distribution: ten seeds of each.

    python tests/tools/learning_curves.py [--device cpu] [--lesson NAME] [--seeds 10] [--json FILE]

Of each run, the area under the curve of the episodic return over env-steps is taken, in units of return: divided by the
env-steps of the curve. A bootstrap over seeds gives the 90 % interval of the ratio of the learners' means. They are the same
if all of it lies within 0.9 to 1.1, they differ if 1 lies outside of it, else there are too few seeds. Beside it stands the
ratio of the areas above the return of random play, which asks for more where that is far from 0. Runs of the learners
alternate. Exit code 1 if a lesson is not found the same.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cupydrive as cd
from cupydrive import envs
from cupydrive.inputs.files import write_atomically

LEARNERS = ("kernels", "torch")
LOW, HIGH = 0.9, 1.1  # of the ratio of means
LEVEL = 0.9  # of the bootstrap's interval
RESAMPLES = 20_000
STARTS = 4096  # episodes of random play
# Environment, settings (None: those it suggests), env-steps, copies (None: as it suggests) and parameters. With the learning
# rates that CartPole and Acrobot suggest, areas vary by a fifth among seeds, of which forty would be needed; with these,
# which are lower, by 3 to 4 %.
LESSONS = {
    "cartpole": ("cartpole", cd.PPO(), 500_000, 256, {}),
    "acrobot": ("acrobot", cd.PPO(learning_rate=1e-3), 500_000, 256, {}),
    "pendulum": ("pendulum", None, 1_000_000, None, {}),
    "tag_grid": ("tag_grid", None, 300_000, 256, {}),  # two policies
}


def area(steps, returns, level):
    """Return the mean height of a learning curve: the area under it over env-steps, divided by the last of them.

    Args:
        steps: Env-steps at which the curve is known, increasing, above 0.
        returns: Mean return of an episode there.
        level: Of random play, with which the curve begins at 0 env-steps.
    """
    return float(np.trapezoid([level, *returns], [0, *steps]) / steps[-1])


def ratio(ours, theirs, rng):
    """Return the ratio of the means of two samples, and the ends of its bootstrap interval.

    Each resample draws seeds of both with replacement.

    Args:
        ours: Areas, one for each seed.
        theirs: Likewise, of the learner that is divided by; its seeds are others.
        rng: NumPy's ``Generator``.

    A resampled mean of ``theirs`` may have another sign than their mean: the ratio says nothing then, and its interval is
    all numbers.
    """
    means = [
        np.mean(rng.choice(sample, (RESAMPLES, len(sample))), axis=1)
        for sample in (np.asarray(ours, float), np.asarray(theirs, float))
    ]
    if np.any(means[1] * np.mean(theirs) <= 0):
        low, high = -np.inf, np.inf
    else:
        low, high = np.quantile(means[0] / means[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.mean(ours) / np.mean(theirs)), float(low), float(high)


def verdict(low, high):
    """Return in words what an interval of the ratio says."""
    if low >= LOW and high <= HIGH:
        return "the same"
    return "too few seeds" if low <= 1.0 <= high else "they differ"


def random_levels(name, device):
    """Return the mean return of random play by group."""
    env, _, _, _, params = LESSONS[name]
    spec = envs.get(env)
    groups = [g.name for g in spec.groups(spec.make_params(**params))]
    found = cd.evaluate(env, {group: cd.RandomPolicy() for group in groups}, episodes=STARTS, device=device, **params)
    return {group: found.mean(group)[0] for group in groups}


def areas(name, learner, seed, device, levels):
    """Train one seed of a lesson; return the area of each group's curve."""
    env, settings, steps, num_envs, params = LESSONS[name]
    about = dict(steps=steps, num_envs=num_envs, seed=seed, device=device, backend=learner, progress=False)
    metrics = cd.train(env, settings, **about, **params).metrics
    found = {}
    for group, level in levels.items():
        key = "charts/episodic_return" + (f"/{group}" if len(levels) > 1 else "")
        known = [row for row in metrics if key in row]
        found[group] = area([row["charts/global_step"] for row in known], [row[key] for row in known], level)
    return found


def compare(name, seeds, device):
    """Return the areas of a lesson by group and learner, and what they say."""
    levels = random_levels(name, device)
    runs = {learner: [] for learner in LEARNERS}
    for seed in range(seeds):
        for k, learner in enumerate(LEARNERS):
            # Seeds of their own, so that the samples are independent of each other.
            runs[learner].append(areas(name, learner, 2 * seed + k, device, levels))
    results = {}
    for group, level in levels.items():
        samples = {learner: [run[group] for run in runs[learner]] for learner in LEARNERS}
        found = ratio(*samples.values(), np.random.default_rng(0))
        above = ratio(*(np.subtract(sample, level) for sample in samples.values()), np.random.default_rng(0))
        said = verdict(*found[1:])
        results[group] = {"random": level, **samples, "ratio": found, "ratio above random": above, "said": said}
        each = ", ".join(f"{k} {statistics.mean(v):.2f} +- {statistics.stdev(v):.2f}" for k, v in samples.items())
        print(
            f"{name:<10} {group:<7} {each}, random play {level:.2f}; ratio {words(found)}: {said}; above random play "
            f"{words(above)}",
            flush=True,
        )
    return results


def words(found):
    """Return a ratio and its interval in words."""
    return "{:.3f} ({:.3f} to {:.3f})".format(*found)


def main():
    """Compare the lessons; exit code 1 if one is not found the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--lesson", choices=LESSONS, action="append")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f"--seeds {args.seeds}: a spread needs 2 or more")
    results = {name: compare(name, args.seeds, args.device) for name in args.lesson or LESSONS}
    if args.json:
        write_atomically(args.json, json.dumps(results, indent=1).encode() + b"\n")
    return 0 if all(found["said"] == "the same" for groups in results.values() for found in groups.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
