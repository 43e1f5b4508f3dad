"""Short runs of the learner's kernels and the digests of their weights, which no change may alter.

python tests/tools/learner_weights.py --record      writes tests/data/learner_weights.json; only for a new run
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import cupydrive as cd

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "tests" / "data" / "learner_weights.json"
QUIET = dict(progress=False)
WEIGHTS = {
    "cartpole": ("cartpole", cd.PPO(num_steps=8), dict(num_envs=200, steps=16_000)),
    "tag_grid, two policies": (
        "tag_grid",
        cd.PPO(
            num_steps=6,
            num_minibatches=2,
            hidden=(20,),
            shared_layers=True,
            activation="relu",
            clip_vloss=True,
        ),
        dict(num_envs=30, steps=900),
    ),
    "pendulum": (
        "pendulum",
        cd.PPO(num_steps=8, distribution="squashed"),
        dict(num_envs=33, steps=1000),
    ),
    "tag_continuous, agents leave": (
        "tag_continuous",
        cd.A2C(num_steps=6, hidden=(24, 16)),
        dict(num_envs=9, steps=300),
    ),
    "cartpole, GRU": (
        "cartpole",
        cd.PPO(network=cd.Network(hidden=(24,), core=cd.GRU(20), shared=True), num_steps=40),
        dict(num_envs=96, steps=8_000),
    ),
    "tag_grid, MinGRU": (
        "tag_grid",
        cd.PPO(network=cd.Network(hidden=(24,), core=cd.MinGRU(24)), num_minibatches=3),
        dict(num_envs=72, steps=5_000),
    ),
    "cartpole, PQN": (
        "cartpole",
        cd.PQN(
            num_steps=12, hidden=(24, 20), epsilon=((0, 1.0), (4_000, 0.1)), precision="float32"
        ),
        dict(num_envs=80, steps=8_000),
    ),
    "connect_four, PQN, GRU": (
        "connect_four",
        cd.PQN(network=cd.Network(hidden=(24,), core=cd.GRU(20), layer_norm=True), num_steps=14),
        dict(num_envs=96, steps=5_000),
    ),
    "pendulum, normalised": (
        "pendulum",
        cd.PPO(
            num_steps=8, normalize_obs=True, normalize_reward=True, target_kl=0.05, hidden=(16,)
        ),
        dict(num_envs=150, steps=6000),
    ),
}


def digest(run):
    """Return a hash of all weights."""
    found = hashlib.sha256()
    for name in sorted(run.policies):
        for p in run.policies[name].parameters():
            found.update(np.ascontiguousarray(p.detach().cpu().numpy()).tobytes())
    return found.hexdigest()


def recorded():
    """Return the digests by the names of ``WEIGHTS``."""
    return json.loads(PATH.read_text())


if __name__ == "__main__":
    found = {
        k: digest(cd.train(env, s, **o, device="cpu", **QUIET))
        for k, (env, s, o) in WEIGHTS.items()
    }
    if "--record" in sys.argv:
        PATH.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
