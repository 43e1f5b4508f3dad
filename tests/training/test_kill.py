"""A training process that is killed at any moment leaves a run that loads and goes on."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from conftest import python_path

import cupydrive as cd

# Writes a checkpoint after every iteration or two, so that most kills interrupt a write.
PROGRAM = """
import sys
import cupydrive as cd
from cupydrive.training.runfolder import checkpoints
run = cd.load(sys.argv[1])
before, said = run.step, []
def look(step, row):
    if not said and int(checkpoints(sys.argv[1])[-1].stem) > before:
        said.append(print("wrote a checkpoint", flush=True))
cd.train(run, out=sys.argv[1], checkpoint_minutes=1e-4, progress=False, steps=10**8, callback=look)
"""


@pytest.mark.parametrize(
    "times", [pytest.param(3, marks=pytest.mark.full), pytest.param(50, marks=pytest.mark.slow)]
)
def test_a_killed_run_always_loads_and_goes_on(times, tmp_path):
    rng, folder = random.Random(times), tmp_path / "run"
    quiet = {"out": folder, "progress": False}
    step = cd.train(
        "cartpole", cd.PPO(num_steps=8), num_envs=16, steps=128, device="cpu", **quiet
    ).step
    for _ in range(times):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": python_path()},
        )
        assert process.stdout.readline() == b"wrote a checkpoint\n"
        time.sleep(rng.uniform(0.05, 1.5))  # a random moment; nothing is waited for
        process.send_signal(signal.SIGKILL)
        process.communicate()
        run = cd.load(folder)
        assert run.step > step, "a kill must never throw the run back"
        step = run.step + run.steps_per_iteration
        cd.train(run, steps=run.steps_per_iteration, **quiet)
        assert run.step == step and all(row["charts/global_step"] <= step for row in run.metrics)
