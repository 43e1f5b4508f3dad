"""Gymnasium's own vector environments and cupydrive's, on the CPU of this machine, one after the other in one process.

    python tests/peers/gymnasium_vector.py

Alike: the tasks, random actions, autoreset, results of every step. Not alike: Gymnasium computes in float64, resets in
the next step and samples no action inside of ``step``; cupydrive's rollout draws its actions and writes all steps of a
trajectory in one launch. The columns "step" call ``step`` of either through Gymnasium's interface, with NumPy arrays and
the same autoreset mode.
"""

import argparse
import statistics
import time
import warnings

import gymnasium

import cupydrive as cd
from cupydrive.about import info
from cupydrive.executors.host import HostExecutor
from cupydrive.gymnasium import make_vec

IDS = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountain_car": "MountainCar-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
    "pendulum": "Pendulum-v1",
}
STEPS = 64  # of one rollout


def rate(step, amount, seconds, runs=5):
    """Return the median of ``runs`` rates, ``amount`` per call of ``step``, each over ``seconds``."""
    step()
    found = []
    for _ in range(runs):
        calls, begin = 0, time.perf_counter()
        while (now := time.perf_counter()) - begin < seconds:
            step()
            calls += 1
        found.append(amount * calls / (now - begin))
    return statistics.median(found)


def stepping(env, seconds):
    """Return env-steps/s of ``step`` with one fixed batch of random actions."""
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = env.action_space.sample()
    return rate(lambda: env.step(actions), env.num_envs, seconds)


def theirs(name, sizes, seconds):
    """Return (env-steps/s, what) of Gymnasium's fastest: its NumPy version of the task if there is one, and SyncVectorEnv."""
    found = []
    for mode in ("vector_entry_point", "sync"):
        if mode == "vector_entry_point" and gymnasium.spec(IDS[name]).vector_entry_point is None:
            continue
        for n in sizes if mode == "vector_entry_point" else (16, 64):
            env = gymnasium.make_vec(IDS[name], num_envs=n, vectorization_mode=mode)
            found.append((stepping(env, seconds), f"{type(env).__name__} x {n:,}"))
            env.close()
    return max(found)


def fused(name, n, seconds):
    """Return env-steps/s of random rollouts in one launch."""
    with cd.make(name, n, device="cpu") as env:
        env.reset(seed=0)
        return rate(lambda: env.rollout(STEPS), n * STEPS, seconds)


def main():
    """Print one line for each task."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=0.3, help="of one timing; the median of 5 is taken")
    options.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    given = options.parse_args()
    warnings.simplefilter("ignore")  # of Gymnasium, about older versions of these environments
    print(HostExecutor().describe())
    print(", ".join(f"{name} {version}" for name, version in info().versions.items()))
    print(f"{'':<26}{'Gymnasium':>11}  {'':<32}{'step':>9}{'rollout':>11}{'':>7}")
    for name in IDS:
        peer, what = theirs(name, given.sizes, given.seconds)
        step, at = max(
            (stepping(make_vec(name, n, device="cpu", autoreset_mode="next_step"), given.seconds), n)
            for n in given.sizes
        )
        rollout, of = max((fused(name, n, given.seconds), n) for n in given.sizes)
        print(
            f"{name:<26}{peer / 1e6:9.2f} M  {what:<32}{step / 1e6:7.1f} M{rollout / 1e6:9.1f} M{rollout / peer:6.1f} x"
            f"   (x {at:,}; x {of:,})",
            flush=True,
        )


if __name__ == "__main__":
    main()
