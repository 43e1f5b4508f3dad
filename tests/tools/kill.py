"""Kills a training process with SIGKILL at random moments while it writes checkpoints; its run must always load and go on.

python tests/tools/kill.py [--times 50]
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cupydrive.errors import TrainingError
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints
from cupydrive.training.train import train

# A checkpoint after every iteration or two: most kills hit a write.
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cupydrive import PPO
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints
from cupydrive.training.train import train
options = dict(out=sys.argv[1], checkpoint_minutes=1e-4, progress=False, steps=10**8)
print("ready", flush=True)
if checkpoints(sys.argv[1]):
    train(Run.load(sys.argv[1]), **options)
else:
    train("cartpole", PPO(num_steps=8), num_envs=16, device="cpu", **options)
"""


def kill_once(folder, rng):
    """Start or resume a run in ``folder``, kill it after a moment, and check what is left; return its step."""
    root = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), root], stdout=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(rng.uniform(0.05, 1.5))  # the moment is what is drawn; nothing is waited for
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    if not checkpoints(folder):
        return 0  # killed before the first was complete
    run = Run.load(folder)
    before = run.step
    train(run, steps=run.steps_per_iteration, out=folder, progress=False)
    assert run.step == before + run.steps_per_iteration
    assert all(row["charts/global_step"] <= run.step for row in run.metrics)
    return run.step


def kill_many(times, seed=0):
    """Kill one run ``times`` times; return its steps after each."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        steps = [kill_once(Path(folder) / "run", rng) for _ in range(times)]
    assert steps == sorted(steps), "a kill must never throw the run back"
    return steps


def main():
    """Kill, and print what was left each time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    args = parser.parse_args()
    try:
        steps = kill_many(args.times)
    except (AssertionError, TrainingError) as error:
        print(f"FAILED: {error}")
        return 1
    print(f"killed {args.times} times; the run loaded and went on every time, env-steps after each: {steps}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
