"""Seconds until greedy episodes reach an environment's mark, with the settings that it suggests, by each learner.

    python tests/tools/time_to_mark.py [--device cpu] [--env NAME] [--seeds 10] [--minutes 60] [--json FILE]

Counted is training, set-up and evaluations left out. Learners take turns, seed by seed, so that what else the machine does
falls on both alike; no seed begins after so many minutes, of all environments together. A median over seeds of which more
than half do not reach the mark is no number.
"""

import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from solving import marks, solve

from cupydrive.inputs.files import write_atomically

LEARNERS = ("kernels", "torch")


def measure(env, seeds, device, end):
    """Return ``Solved`` of each seed by learner; no seed begins after ``end`` on the monotonic clock."""
    found = {learner: [] for learner in LEARNERS}
    for seed in range(seeds):
        if time.monotonic() > end:
            break
        for learner in LEARNERS:
            found[learner].append(solve(env, seed=seed, device=device, backend=learner))
    return found


def line(env, learner, found):
    """Return the row of the table of one environment and learner."""
    seconds = [math.inf if s.training is None else s.training for s in found]
    steps = [math.inf if s.training is None else s.env_steps for s in found]
    reached = sum(s.training is not None for s in found)
    return (
        f"{env:<24} {learner:<8} seeds {len(found):>2}, at the mark {reached:>2}, median {statistics.median(seconds):8.2f} s, "
        f"{statistics.median(steps):12,.0f} env-steps, lowest {min(seconds):.2f} s, highest {max(seconds):.2f} s"
    )


def main():
    """Measure, print the table and write what each seed took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--env", choices=marks(), action="append")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    end, results = time.monotonic() + 60 * args.minutes, {}
    for env in args.env or marks():
        found = measure(env, args.seeds, args.device, end)
        for learner, solved in found.items():
            print(line(env, learner, solved) if solved else f"{env:<24} {learner:<8} no time was left", flush=True)
        results[env] = {learner: [asdict(s) for s in solved] for learner, solved in found.items()}
        if args.json:
            write_atomically(args.json, json.dumps(results, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main()
