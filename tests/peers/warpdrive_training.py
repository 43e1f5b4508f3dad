"""WarpDrive 2.7's own training (Lan et al. 2022), by Numba and by its CUDA C: its TrainerA2C with
its run configurations.

Alike: tasks, copies, agents, T, policies, widths of networks (policy and value share the hidden
layers), A2C in Tag. Not alike: one update by all of an iteration's data in CartPole too, where ours
learns by PPO as well as by A2C: its PPO has no epochs and no minibatches. ReLU, returns without
lambda, and Adam of its configurations; no value of what follows a time limit; an observation has
neither walls nor velocity of its own agent.

An iteration is its trainer's: T times forward, sample, step, book-keeping and reset, which it
awaits one by one, then loss, gradient and update of each policy. Its logs, every 100 iterations,
and its checkpoints, every 5,000, are not timed. The observation of Tag's only start is computed
once here; WarpDrive computes it once a copy, in Python, for minutes.
"""

import logging
import tempfile
import time
from copy import deepcopy
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from protocol import arguments, tell
from warpdrive_backends import CARTPOLE, TAG_CONTINUOUS, TAG_GRID, Work, time_each, who, wrapped

from cupydrive.bench.timing import make_row

SECONDS, TOTAL = 40, 240  # of one row and of all, at most
ITERATIONS, UNTIMED = 2, 3  # of one timed run, and before the first
ENOUGH = 10  # seconds of timed runs, after which three have to do
SMALL, LARGE = (
    {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 4},
    {"num_taggers": 5, "num_runners": 100},
)
CONFIGURATIONS = {
    "cartpole": "single_cartpole",
    "tag_grid": "tag_gridworld",
    "tag_continuous": "tag_continuous",
}
NEARBY = {"use_full_observation": False}
WORKS = (  # those of bench/training.py; what may be left out for want of time comes last
    Work("tag_continuous", TAG_CONTINUOUS, LARGE, steps=16, hidden=(256, 256)),
    Work("tag_continuous", TAG_CONTINUOUS, SMALL, steps=16, hidden=(256, 256)),
    Work("tag_grid", TAG_GRID, NEARBY | {"num_taggers": 4}, steps=16, hidden=(64, 64)),
    *(Work("cartpole", CARTPOLE, n=n, hidden=(64, 64)) for n in (65_536, 256, 4_096)),
    Work("tag_grid", TAG_GRID, NEARBY | {"num_taggers": 999}, steps=4, hidden=(64, 64)),
)


def configuration(work, folder):
    """Return WarpDrive's run configuration of a task, with the sizes of ``work``; it writes into
    ``folder``.
    """
    import yaml

    package = Path(find_spec("warp_drive").origin).parent
    name = CONFIGURATIONS[work.env]
    config = yaml.safe_load((package / "training" / "run_configs" / f"{name}.yaml").read_text())
    config["env"] |= work.settings
    if work.env == "tag_grid":  # it has one policy for all; ours has one for each group
        config["policy"] = {
            role: deepcopy(config["policy"]["shared"]) for role in ("runner", "tagger")
        }
    for policy in config["policy"].values():
        policy["model"]["fc_dims"] = list(work.hidden)
    sizes = {
        "num_envs": work.n,
        "train_batch_size": work.n * work.steps,
        "num_episodes": 1000 * work.n,
        "seed": 1,
    }
    config["trainer"] |= sizes
    config["saving"]["basedir"] = folder
    return config


def trainer_of(work, config, backend):
    """Return WarpDrive's trainer of a run configuration, its environments reset."""
    wrapper, _ = wrapped(work, config["env"], backend)
    if work.task != CARTPOLE:
        start = wrapper.obs_at_reset()
        wrapper.obs_at_reset = lambda: start
    from warp_drive.training.trainers.trainer_a2c import TrainerA2C

    env = wrapper.env
    agents = {"shared": list(env.agents)} if "shared" in config["policy"] else {
        "runner": list(env.runners), "tagger": list(env.taggers),
    }  # fmt: skip
    trainer = TrainerA2C(
        wrapper, config, policy_tag_to_agent_id_map=agents, results_dir="run", verbose=False
    )
    wrapper.reset_all_envs()  # the beginning of its train()
    return trainer


def iterate(trainer, iteration):
    """Do one iteration of WarpDrive's ``train()``, whose logs and checkpoints come after it."""
    trainer._generate_rollout_batch()
    trainer._update_model_params(iteration)


def about(trainer):
    """Return what the row's figures are of, in words."""
    networks = set()
    for name, model in trainer.models.items():
        trained = trainer.config["policy"][name]["algorithm"].lower()
        outputs = sum(map(int, model.output_dims)) + 1
        networks.add("-".join(map(str, (model.flattened_obs_size, *model.fc_dims, outputs))))
    policies = f"{len(trainer.models)} polic{'y' if len(trainer.models) == 1 else 'ies'}"
    return f"{trained}, network {' and '.join(sorted(networks))}, 1 update an iteration, {policies}"


def timed(trainer, runs, done):
    """Return the seconds of one iteration in each of ``runs`` runs, of three at least; ``done``:
    iterations before.
    """
    import torch

    seconds, iterations, begun = [], count(done), time.perf_counter()
    while len(seconds) < runs and (len(seconds) < 3 or time.perf_counter() - begun < ENOUGH):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(ITERATIONS):
            iterate(trainer, next(iterations))
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin) / ITERATIONS)
    return seconds


def time_one(number, runs, backend):
    """Tell the row of one of ``WORKS``; in a process of its own."""
    import torch

    logging.getLogger().setLevel(logging.ERROR)  # as its training scripts do
    work, begin = WORKS[number], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(work, configuration(work, folder), backend)
        iterate(trainer, 1)  # the first that is not logged
        torch.cuda.synchronize()
        note = f"{about(trainer)}; {time.perf_counter() - begin:.1f} s to start (not counted)"
        for iteration in range(2, UNTIMED + 1):
            iterate(trainer, iteration)
        seconds, agents = timed(trainer, runs, UNTIMED + 1), trainer.cuda_envs.env.num_agents
        tell(
            make_row(
                "training",
                work.env,
                work.n,
                agents,
                work.steps,
                seconds,
                who=who(backend),
                note=note,
            )
        )
        trainer.graceful_close()  # frees the random states while there is a context


def main():
    """Tell each environment's row."""
    given = arguments(
        __doc__, "training", dict.fromkeys(work.env for work in WORKS), backends=("numba", "pycuda")
    )
    time_each(given, "warpdrive_training", WORKS, SECONDS, TOTAL)


if __name__ == "__main__":
    main()
