"""Gymnasium's own vector environments, on the CPU.

Alike: tasks, random actions, autoreset, results of every step. Not alike: Gymnasium computes in
float64, resets in the next step, and is given its actions. The rows of cupydrive go through the
same interface in the same way: NumPy arrays, reset in the next step, actions given.
"""

import warnings

import gymnasium
from protocol import IDS, absent, arguments, stepping, tell

from cupydrive.bench.timing import make_row
from cupydrive.gymnasium import VectorEnv

SIZES = (1_000, 10_000, 100_000)
FEW = (16, 64)  # SyncVectorEnv steps its environments one after the other: more copies gain nothing


def timed(name, env, runs, who):
    """Return the row of ``step`` with one batch of random actions."""
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = env.action_space.sample()
    row = make_row(
        "stepping", name, env.num_envs, 1, 1, stepping(lambda: env.step(actions), runs), who=who
    )
    env.close()
    return row


def main():
    """Tell the fastest of each kind for each task."""
    given = arguments(__doc__, "stepping", IDS)
    if given.device != "cpu":
        absent("Gymnasium's environments run on the CPU")
    warnings.simplefilter("ignore")  # of Gymnasium, about older versions of these environments
    for name in given.envs:
        found = []
        for mode, sizes in (("vector_entry_point", SIZES), ("sync", FEW)):
            if mode == "sync" or gymnasium.spec(IDS[name]).vector_entry_point is not None:
                for n in sizes:
                    env = gymnasium.make_vec(IDS[name], num_envs=n, vectorization_mode=mode)
                    found.append(
                        timed(name, env, given.runs, f"Gymnasium {type(env.unwrapped).__name__}")
                    )
        tell(max(found, key=lambda row: row.rate))
        ours = (VectorEnv(name, n, device="cpu", autoreset_mode="next_step") for n in SIZES)
        tell(
            max(
                (timed(name, env, given.runs, "cupydrive.gymnasium") for env in ours),
                key=lambda row: row.rate,
            )
        )


if __name__ == "__main__":
    main()
