"""EnvPool (Weng et al. 2022): C++ environments stepped by threads, on the CPU.

Alike: tasks, random actions, autoreset, results of every step as NumPy arrays.
"""

from importlib.metadata import version

from protocol import IDS, absent, arguments, stepping, tell

from cupydrive.bench.timing import make_row

SIZES = (64, 1_000, 10_000)


def main():
    """Tell the fastest size of each task."""
    given = arguments(__doc__, "stepping", IDS)
    if given.device != "cpu":
        absent("EnvPool's environments run on the CPU")
    try:
        import envpool
        import numpy as np
    except ImportError as missing:
        absent(f"not installed: {missing}")
    for name in given.envs:
        found = []
        for n in SIZES:
            env = envpool.make(IDS[name], env_type="gymnasium", num_envs=n)
            env.reset()
            actions = np.stack([env.action_space.sample() for _ in range(n)])
            seconds = stepping(lambda env=env, actions=actions: env.step(actions), given.runs)
            found.append(
                make_row("stepping", name, n, 1, 1, seconds, who=f"EnvPool {version('envpool')}")
            )
            env.close()
        tell(max(found, key=lambda row: row.rate))


if __name__ == "__main__":
    main()
