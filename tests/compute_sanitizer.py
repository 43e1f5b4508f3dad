"""Run every environment's kernels under compute-sanitizer: memcheck, racecheck and synccheck.

    python tests/compute_sanitizer.py

Needs a GPU and compute-sanitizer on PATH; exit code 1 if any tool finds anything. CuPy's memory pool is off in the
programs that are watched: inside a pool an access past the end of an array is not seen.
"""

import os
import subprocess
import sys
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck")
TEAMS = (1, 4, 32, 128)
ENVS = 101  # with 64 a block one is full, the last one is not
CELLS = {"num_taggers": 3, "num_runners": 297}  # continuous Tag finds neighbours in cells; its own cases are smaller
ROOT = Path(__file__).resolve().parent.parent


def watched():
    """Reset, step and roll out all cases of all environments with several team sizes, without a pool."""
    import cupy

    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
    from cupydrive import envs
    from cupydrive.batch import Batch
    from cupydrive.executors.cuda import CudaExecutor
    from cupydrive.source import Layout

    sys.path.insert(0, str(ROOT / "tests"))
    import masked

    specs = (*map(envs.get, envs.names()), envs.register(masked.PYTHON, masked.KERNEL))
    works = [(spec, case, team) for spec in specs for case in spec.cases for team in TEAMS]
    works.append((envs.get("tag_continuous"), CELLS, max(TEAMS)))
    device = CudaExecutor()
    for spec, case, team in works:
        params = spec.make_params(max_episode_steps=3, **case)
        layout = Layout(team, 1 if team > 32 else 64 // team).fit(spec, params, device.shared_bytes)
        batch = Batch(spec, ENVS, params, device, layout=layout)
        batch.reset(0)
        batch.rollout(5)
        written = batch.rollout(5, final_obs=False)
        pointers = [device.pointer(written.action[g.name][0]) for g in batch.groups]
        batch.step(pointers)
        batch.step(pointers, autoreset=False)
        mask = cupy.zeros(ENVS, bool)
        mask[::3] = True
        batch.reset(mask=mask)
        device.synchronise()
    print(f"{len(works)} environments, cases and team sizes")
    if "train" in sys.argv:
        print(f"{train_each()} algorithms")


def train_each():
    """Train two iterations of every algorithm, launched one by one; return how many there are."""
    import point

    import cupydrive as cd

    cd.register(point.PYTHON, point.KERNEL)
    lessons = [
        ("cartpole", cd.PPO(num_steps=8, normalize_obs=True, normalize_reward=True)),
        ("point", cd.PPO(num_steps=8, distribution="squashed")),
        ("masked", cd.A2C(num_steps=8)),
        ("tag_continuous", cd.A2C(num_steps=4)),
        ("point", cd.DDPG(batch_size=32, buffer_size=1000, learning_starts=100)),
    ]
    for env, settings in lessons:
        cd.train(
            env, settings, num_envs=37, steps=2 * 37 * settings.num_steps, device="cuda", capture=False, progress=False
        )
    return len(lessons)


def main():
    """Run the watched program under each tool."""
    worst = 0
    for tool in TOOLS:
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", sys.executable, __file__, "watched"]
        if tool == "memcheck":  # the training kernels have neither shared memory nor barriers
            command.append("train")
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        # Neither CuPy's pool nor torch's: inside a pool an access past the end is not seen.
        environment = {**os.environ, "PYTHONPATH": paths, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        lines = (done.stdout + done.stderr).strip().splitlines()
        print(f"{tool}: exit code {done.returncode}", *lines[-12 if done.returncode else -2 :], sep="\n  ", flush=True)
        worst = max(worst, done.returncode)
    return worst


if __name__ == "__main__":
    sys.exit(watched() if "watched" in sys.argv else main())
