"""One of several processes that train runs together; what it found goes to a file as JSON. No tests
of its own.

python tests/training/ranks.py RANK SIZE FOLDER DEVICE
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import distributed

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from learner_weights import WEIGHTS, digest

import cupydrive as cd
from cupydrive.algorithms.kernels import choice
from cupydrive.errors import CupydriveError
from cupydrive.playing.torch_settings import own_random_numbers
from cupydrive.training.begin import make_run

QUIET = {"device": "cpu", "progress": False}
HIDDEN_STATE = cd.Network(hidden=(16,), core=cd.GRU(16))
# A2C learns from all rows at once, in no order: but for rounding, what processes learn together is
# what one learns.
TOGETHER = {
    "torch": ("cartpole", cd.A2C(num_steps=6),
    {"num_envs": 40, "backend": "torch", "steps": 40 * 6 * 8}),
    "torch, agents leave": (
        "tag_continuous",
        cd.A2C(num_steps=6, hidden=(24,), normalize_obs=True, normalize_reward=True),
        {"num_envs": 10, "backend": "torch", "steps": 10 * 6 * 4},
    ),
    "torch, hidden state": ("cartpole", cd.A2C(num_steps=6, network=HIDDEN_STATE),
    {"num_envs": 40, "backend": "torch", "steps": 40 * 6 * 4}),
    "tensor, hidden state": (
        "cartpole", cd.A2C(num_steps=4, network=HIDDEN_STATE, precision="bfloat16"), {"num_envs": 40, "steps": 40 * 4 * 2},
    ),
    "tensor": ("cartpole", cd.A2C(num_steps=4, hidden=(16,), precision="bfloat16"),
    {"num_envs": 40, "steps": 40 * 4 * 2}),
    "tensor, wide": (
        "cartpole",
        cd.A2C(num_steps=2, hidden=(144, 144), precision="bfloat16"),
        {"num_envs": 20, "steps": 20 * 2},
    ),
}  # fmt: skip


def start(size, folder, device="cpu"):
    """Return what each of ``size`` processes has found, by rank."""
    command = [sys.executable, __file__]
    how = {
        "env": os.environ | {"GLOO_SOCKET_IFNAME": "lo", "CUPYDRIVE_THREADS": "1"},
        "stderr": subprocess.PIPE,
    }
    children = [
        subprocess.Popen([*command, str(rank), str(size), folder, device], **how)
        for rank in range(size)
    ]
    errors = [child.communicate()[1].decode() for child in children]
    assert all(child.returncode == 0 for child in children), "\n".join(errors)
    return [json.loads((folder / f"{rank} of {size}.json").read_text()) for rank in range(size)]


def alike(name):
    """Return the weights and the last metrics of one of ``TOGETHER``."""
    env, settings, options = TOGETHER[name]
    with own_random_numbers():
        run = cd.train(env, settings, **options, **QUIET)
    weights = torch.cat(
        [p.detach().flatten() for policy in run.policies.values() for p in policy.parameters()]
    )
    metrics = {key: value for key, value in run.metrics[-1].items() if key != "charts/SPS"}
    return {"weights": weights.tolist(), "metrics": metrics}


def refused(call):
    """Return what a call is refused with."""
    try:
        call()
    except CupydriveError as error:
        return f"{type(error).__name__}: {error}"
    return None


def run_of(num_envs=16):
    """Return a small run before its first step."""
    return make_run("cartpole", cd.PPO(num_steps=4, hidden=(8,)), num_envs=num_envs, device="cpu")


def with_other_weights(rank):
    """Train with weights that differ on the last rank, compared before each checkpoint."""
    run = run_of()
    if rank == distributed.get_world_size() - 1:
        with torch.no_grad():
            next(run.policies["cart"].parameters()).add_(1e-6)
    cd.train(run, steps=6400, checkpoint_minutes=0.0, progress=False)


def with_a_lost_number(rank):
    """Train with a state that is not finite in the second environment of the last rank."""
    run = run_of()
    if rank == distributed.get_world_size() - 1:
        kept = run.batch.get_state()
        kept["state"]["x"][1] = math.nan
        run.batch.set_state(kept)
    cd.train(run, steps=6400, progress=False)


def on_gpus():
    """Return the exact weights of runs on this process's GPU, or on one that all share."""
    exact = {
        k: (env, replace(s, precision="float32"), o | {"device": "cuda"})
        for k, (env, s, o) in WEIGHTS.items()
    }
    return {
        "weights": {
            k: digest(cd.train(env, s, **o, progress=False)) for k, (env, s, o) in exact.items()
        }
    }


def main(rank, size, folder, device):
    """Do everything in one process group, and write what came of it."""
    torch.set_num_threads(1)
    if size > 1:
        one_each = device == "cuda" and torch.cuda.device_count() >= size
        if one_each:
            torch.cuda.set_device(rank)
        meeting = (Path(folder) / f"meeting of {size}").as_uri()
        distributed.init_process_group(
            "nccl" if one_each else "gloo", init_method=meeting, rank=rank, world_size=size
        )
    said = on_gpus() if device == "cuda" else on_cpus(rank, size)
    if size > 1:
        distributed.destroy_process_group()
    (Path(folder) / f"{rank} of {size}.json").write_text(json.dumps(said))


def on_cpus(rank, size):
    """Return what came of all trials."""
    choice.why_no_tensor = lambda executor: None  # a CPU has these kernels for tests alone
    said = {
        "weights": {k: digest(cd.train(env, s, **o, **QUIET)) for k, (env, s, o) in WEIGHTS.items()}
    }
    said["alike"] = {name: alike(name) for name in TOGETHER}
    if size > 1:
        rates = cd.PPO(num_steps=4, learning_rate=1e-3 * (1 + rank))
        said["other settings"] = refused(
            lambda: cd.train("cartpole", rates, num_envs=16, steps=64, **QUIET)
        )
        said["other seeds"] = refused(
            lambda: cd.train("cartpole", num_envs=16, seed=rank, steps=64, **QUIET)
        )
        said["other weights"] = refused(lambda: with_other_weights(rank))
        said["lost number"] = refused(lambda: with_a_lost_number(rank))
        said["population"] = refused(lambda: cd.train("cartpole", seeds=2, **QUIET))
        said["too few"] = refused(lambda: run_of(num_envs=size - 1))
        sequences = cd.PPO(num_steps=4, network=HIDDEN_STATE)
        said["sequences"] = refused(
            lambda: cd.train("cartpole", sequences, num_envs=16, steps=64, **QUIET)
        )
        said["ddpg"] = refused(lambda: cd.train("pendulum", "ddpg", **QUIET))
        said["envs"] = [run_of().shard.envs.start, run_of().shard.envs.stop]
    return said


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
