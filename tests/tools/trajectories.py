"""Digests of random trajectories of every environment, recorded once: a change of the engine
changes no bit of them.

Tables are made up, so that nobody's data is needed.

    python tests/tools/trajectories.py                    compares all of them on the CPU, and on the GPU if there is one
    python tests/tools/trajectories.py --record           writes data/trajectories.json anew, from the CPU

To be recorded anew only where a rule of an environment changes, never to get a test green.
"""

import hashlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cupydrive import envs
from cupydrive.checks.bits import fetch, flatten
from cupydrive.executors import cuda_problem, executor
from cupydrive.simulation.batch import Batch

RECORDED = Path(__file__).resolve().parents[1] / "data" / "trajectories.json"
STEPS, PIECE = 300, 75  # several launches, of which the later ones do not begin with an episode
SEEDS = (0, 2**40 + 17)
LIMIT = 40  # steps of an episode: all kinds of ends come several times
# Beside the cases that `check` has: agents by the thousand.
LARGE = {
    "tag_continuous": {"num_taggers": 5, "num_runners": 1000},
    "tag_grid": {"num_taggers": 999},
}
LONG = 20_000  # entries of one environment's observations
# What a kernel keeps for speed alone: any value gives the same results.
KEPT_FOR_SPEED = ("state.reach",)


@dataclass(frozen=True)
class Work:
    """One trajectory: ``num_envs`` copies of an environment with ``params`` from ``seed``."""

    env: str
    params: dict = field(hash=False)
    num_envs: int
    seed: int
    obs_dtype: str

    def __str__(self):
        params = " ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.env} [{params}] x {self.num_envs}, seed {self.seed}, {self.obs_dtype}"


def works():
    """Return all works: every case of every environment, few and many copies, two seeds, both
    dtypes.
    """
    found = []
    for name in envs.names():
        spec = envs.get(name)
        for case in (*spec.cases, *([LARGE[name]] if name in LARGE else [])):
            groups = spec.groups(spec.make_params(**case))
            agents, entries = sum(g.count for g in groups), sum(g.count * g.obs_dim for g in groups)
            many = max(5, min(257, 2000 // agents)) if entries < LONG else 5
            found += [
                Work(name, case, num_envs, seed, obs_dtype)
                for num_envs, seed, obs_dtype in (
                    (3, SEEDS[0], "float32"),
                    (many, SEEDS[1], "float32"),
                    (many, SEEDS[0], "bfloat16"),
                )
            ]
    return found


def digests(work, device, layout=None):
    """Return {name of an array: SHA-256, shortened} of a work's trajectory on an executor."""
    spec = envs.get(work.env).with_made_up_tables()
    params = spec.make_params(**work.params | {"max_episode_steps": LIMIT})
    batch = Batch(spec, work.num_envs, params, device, layout=layout, obs_dtype=work.obs_dtype)
    batch.reset(work.seed)
    found = {}
    for _ in range(STEPS // PIECE):
        for name, array in flatten(fetch(batch, batch.rollout(PIECE)), batch).items():
            if name not in KEPT_FOR_SPEED:
                digest = found.setdefault(name, hashlib.sha256())
                digest.update(f"{array.dtype.str} {array.shape} ".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
    return {name: digest.hexdigest()[:16] for name, digest in found.items()}


def differences(work, device, layout=None):
    """Return the names of the arrays of a work that are not as recorded."""
    want, got = json.loads(RECORDED.read_text())[str(work)], digests(work, device, layout)
    return sorted(name for name in want | got if want.get(name) != got.get(name))


def main(record):
    """Record or compare every work; return the exit code."""
    if record:
        RECORDED.write_text(
            json.dumps({str(work): digests(work, executor("cpu")) for work in works()}, indent=1)
            + "\n"
        )
        return 0
    wrong = 0
    for name in ("cpu", "cuda") if cuda_problem() is None else ("cpu",):
        for work in works():
            found = differences(work, executor(name))
            wrong += bool(found)
            print(f"{name}: {work}: {', '.join(found) or 'equal'}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main("--record" in sys.argv))
