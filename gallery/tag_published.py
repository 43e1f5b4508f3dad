"""Tag as WarpDrive published it: taggers and runners learn together, and play against heuristics
and their earlier selves.

    python gallery/tag_published.py --case continuous-1.0 --seed 0 --steps 2e8 --out runs/tag [--resume] [--seconds 500]
    python gallery/tag_published.py --case continuous-1.0 --seed 0 --steps 2e8 --out runs/tag --evaluate --json FILE

``--case`` and ``--seed`` may be given several times. A run that ``--seconds`` or Ctrl-C stops goes
on with ``--resume`` and the same other options: schedules refer to ``--steps``. Each run has a
folder in ``--out``: its last checkpoint, which is what goes on; under ``weights`` the policies
alone after a hundredth, a tenth, three tenths and all of its env-steps, which ``cd.FrozenPolicy``
plays on any device; and ``training.json``: seconds, machine, versions, date and command of each
part. ``--evaluate`` plays them: both trained, each against the heuristics, and earlier ones against
each other (``cd.tournament``). Figures go to ``--json``, cell by cell; cells that are there, of the
same weights and as many episodes, stay. Of each match four episodes are kept under ``recordings``.
``gallery/tag_published.json`` is committed.
"""

import argparse
import datetime
import json
import shlex
import signal
import sys
import time
from functools import cache, partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tag_figures

import cupydrive as cd
from cupydrive.executors import choose
from cupydrive.executors.about import info
from cupydrive.inputs.files import write_atomically
from cupydrive.training.begin import make_run
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints, pack_checkpoint, pack_config

# Tutorial 5 of WarpDrive, whose checkpoint has learnt for 10^9 env-steps: 5 taggers, 100 runners,
# 10 levels of each action, the 10 nearest seen, 500 steps. Starts are random here. A runner is 1,
# 1.5 or 2 times as fast as a tagger.
CONTINUOUS = dict(
    num_taggers=5, num_runners=100, num_other_agents_observed=10, num_acceleration_levels=10,
    num_turn_levels=10,
    min_turn=-2.35, max_turn=2.35, max_episode_steps=500,
)  # fmt: skip
# WarpDrive's run configuration of grid Tag: 4 taggers, 100 steps, everybody sees everybody.
GRID = dict(num_taggers=4, grid_length=100, use_full_observation=True, max_episode_steps=100)
CASES = {
    f"continuous-{ratio}": ("tag_continuous", CONTINUOUS | {"skill_level_runner": ratio})
    for ratio in (1.0, 1.5, 2.0)
}
CASES |= {"grid": ("tag_grid", GRID)}
NUM_ENVS = {"tag_continuous": 1000, "tag_grid": 4000}
# On 101 x 101 cells nobody who acts at random is ever caught, so that there is nothing to learn
# from: who is to play there has played on smaller boards before, each a little larger than the one
# before, for a tenth of the env-steps each.
SMALLER = (10, 15, 20, 30, 40, 55, 75)  # largest coordinates
# env-steps in which the rate rises: with the full rate from the start some seeds of Tag learn
# nothing
WARM_UP = 3e6
MARKS = (0.01, 0.1, 0.3, 1.0)  # of the env-steps, after which weights are kept
EPISODES = 256
FIGURED = 64  # of those, of whose states figures are taken
RECORDED = 4  # of those, which are kept
SEED = 10_000  # of the episodes; runs have seeds of their own


def learners(case, steps, hidden=(256, 256)):
    """Return the settings of taggers and runners.

    PPO: to learn from a row costs three times what it costs to collect it. Runners have 20 times
    the taggers' rows, and learn from each once, in 16 minibatches; taggers, whose rows are few,
    learn from each four times. Rewards are rare and large, so they are divided by the deviation of
    their sums. Discount and network are WarpDrive's.
    """
    common = dict(hidden=hidden, shared_layers=True)
    warm = min(WARM_UP, steps / 20)
    rate = ((0, 1e-4), (warm, 1e-3), (steps, 5e-5))
    common |= dict(learning_rate=rate, ent_coef=((0, 0.01), (steps, 0.001)), num_steps=32)
    if case == "grid":
        both = cd.PPO(gamma=0.97, **common)
        return {"tagger": both, "runner": both}
    common |= dict(gamma=0.98, normalize_reward=True)
    return {
        "tagger": cd.PPO(update_epochs=4, num_minibatches=8, **common),
        "runner": cd.PPO(update_epochs=1, num_minibatches=16, **common),
    }


def label(case, seed, steps):
    """Return the name of a run: of its folder, and in results."""
    return f"{case}-{steps / 1e6:g}M-seed{seed}"


@cache
def about(device):
    """Return command, machine, versions and date, as results have them."""
    here = info()
    return {
        "command": "python gallery/tag_published.py " + shlex.join(sys.argv[1:]),
        "machine": here.gpus if choose(device)[0] == "cuda" else here.processor,
        "versions": here.versions,
        "date": datetime.date.today().isoformat(),
    }


def read(path, otherwise):
    """Return what a JSON file holds, or ``otherwise`` where there is none."""
    return json.loads(path.read_text()) if path.exists() else otherwise


def write(path, content):
    """Write a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (text(content) + "\n").encode())


def text(content, depth=3):
    """Return JSON in which entries have lines of their own down to ``depth``; the numbers of a
    curve share one.
    """
    if not depth or not isinstance(content, dict | list) or not content:
        return json.dumps(content)
    if isinstance(content, list):
        return "[\n" + ",\n".join(text(entry, depth - 1) for entry in content) + "\n]"
    return (
        "{\n"
        + ",\n".join(
            f"{json.dumps(key)}: {text(entry, depth - 1)}" for key, entry in content.items()
        )
        + "\n}"
    )


# ---- training ------------------------------------------------------------------------------------


def begin(case, seed, steps, num_envs, device, **smaller):
    """Return a run before its first step; ``smaller`` are parameters and ``hidden`` of a trial.

    Copies begin at different times of their first episode. Otherwise all would be at the same time
    of an episode for good, as long as runners survive, and an iteration would learn from one part
    of it alone.
    """
    env, params = CASES[case]
    settings = learners(case, steps, **{k: smaller.pop(k) for k in ("hidden",) if k in smaller})
    run = make_run(
        env, policies=settings, num_envs=num_envs, seed=seed, device=device, **params | smaller
    )
    run.total = int(steps)
    kept = run.batch.get_state()
    kept["clock"]["elapsed"] = [
        k * run.params.max_episode_steps // num_envs for k in range(num_envs)
    ]
    run.batch.set_state(kept)
    with run.rollout.stream():
        run.batch.observe()
    run.rollout.carry_obs()
    return run


def climb(run, case, seed, **smaller):
    """Train on the smaller boards, one after another, and give their weights to ``run``; return
    what each board took.
    """
    policies, boards = None, []
    for length in SMALLER:
        board = begin(
            case,
            seed,
            run.total / 10,
            run.num_envs,
            run.device,
            **smaller | {"grid_length": length},
        )
        for name, module in board.policies.items() if policies else ():
            module.load_state_dict(policies[name].state_dict())
        cd.train(board, steps=board.total)
        if board.interrupted:
            raise KeyboardInterrupt
        policies = board.policies
        boards.append(
            {"grid_length": length, "env_steps": board.step, "seconds": round(board.seconds, 2)}
        )
    for name, module in run.policies.items():
        module.load_state_dict(policies[name].state_dict())
    return boards


def keep_weights(run, folder):
    """Write the policies of this moment, and nothing else, as a run folder that ``cd.FrozenPolicy``
    plays: a megabyte.
    """
    kept = {
        f"{name}/{key}": tensor.detach().cpu().clone()
        for name, learner in run.learners.items()
        for key, tensor in learner.tensors().items()
        if key.startswith(("policy.", "obs_moments."))
    }
    content, here = (
        pack_checkpoint(run.spec.name, run.step, kept),
        folder / "weights" / f"{run.step:012d}",
    )
    (here / "checkpoints").mkdir(parents=True, exist_ok=True)
    write_atomically(here / "config.json", pack_config(run.as_json()))
    write_atomically(here / "checkpoints" / f"{run.step:015d}.pt", content.getbuffer())


def kept_weights(folder):
    """Return the folders of weights that a run has kept, by env-steps, ascending."""
    return {
        int(path.parent.parent.name): path.parent.parent
        for path in sorted(folder.glob("weights/*/checkpoints/*.pt"))
    }


def watch(run, folder, deadline):
    """Return a callback of ``train`` that keeps weights when a mark is passed, and interrupts once
    at the deadline.
    """
    marks = [
        mark * run.total
        for mark in MARKS
        if mark < 1 and not any(s >= mark * run.total for s in kept_weights(folder))
    ]
    interrupted = []

    def look(step, row):
        if marks and run.step >= marks[0]:
            del marks[0]
            keep_weights(run, folder)
        # iterations go on
        listening = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        if listening and time.monotonic() > deadline and not interrupted:
            interrupted.append(step)
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C: the iteration ends, the run is saved

    return look


def train(
    case,
    seed,
    steps,
    folder,
    *,
    num_envs=None,
    device="auto",
    resume=False,
    deadline=1e99,
    **smaller,
):
    """Train a run, or go on with it, until its env-steps are done or ``time.monotonic()`` passes
    ``deadline``; return it.
    """
    if resume and checkpoints(folder):
        run = Run.load(folder, device)
        if run.total != int(steps):
            raise SystemExit(
                f"{folder} was begun for {run.total:,} env-steps in all; pass --steps {run.total}"
            )
    else:
        copies = num_envs or NUM_ENVS[CASES[case][0]]
        run = begin(case, seed, steps, copies, choose(device)[0], **smaller)
    first = run.step
    boards = climb(run, case, seed, **smaller) if case == "grid" and first == 0 else []
    if first < steps:
        cd.train(
            run, steps=int(steps) - first, out=folder, callback=watch(run, folder, deadline), keep=1
        )
        part = {
            "from": first,
            "to": run.step,
            "seconds": round(run.seconds, 2),
            "num_envs": run.num_envs,
        }
        part |= {"smaller boards": boards} if boards else {}
        parts = [*read(folder / "training.json", []), part | about(device)]
        write(folder / "training.json", parts)
    if run.step >= steps and run.step not in kept_weights(folder):
        keep_weights(run, folder)
    return run


# ---- evaluation ----------------------------------------------------------------------------------


def matches(folder):
    """Return who plays whom, by name; the trained ones play greedily."""
    last = cd.FrozenPolicy(list(kept_weights(folder).values())[-1], greedy=True)
    return {
        "trained": {"tagger": last, "runner": last},
        "trained taggers": {"tagger": last, "runner": cd.HeuristicPolicy()},
        "trained runners": {"tagger": cd.HeuristicPolicy(), "runner": last},
        "heuristic": {"tagger": cd.HeuristicPolicy(), "runner": cd.HeuristicPolicy()},
        "random": {"tagger": cd.RandomPolicy(), "runner": cd.RandomPolicy()},
    }


def play(env, params, players, episodes, device, recording):
    """Return the figures of a match, and keep its first episodes in the file ``recording``."""
    found = cd.evaluate(env, players, episodes=episodes, seed=SEED, device=device, **params)
    found.recording[:RECORDED].save(recording)
    figures = tag_figures.follow(found.recording[:FIGURED], choose(device)[0])
    means = {name: [round(x, 4) for x in pair] for name, pair in found.summary().items()}
    return {"mean": means, **figures}


def meet(env, params, folder, episodes, device):
    """Return the tournament of a run's weights of all marks: the tags of an episode (of grid Tag:
    its length) of each pair.
    """
    players = {
        f"{step:,}": cd.FrozenPolicy(path, greedy=True)
        for step, path in kept_weights(folder).items()
    }
    key = "tags" if env == "tag_continuous" else "length"
    found = cd.tournament(
        players, env, key=key, episodes=episodes, seed=SEED, device=device, progress=False, **params
    )
    tables = {name: getattr(found, name).round(3).tolist() for name in ("mean", "half")}
    return {"key": key, "players": list(found.policies), **tables}


def evaluate(case, folder, path, *, episodes=EPISODES, device="auto", **smaller):
    """Play all matches of a run and write their figures to ``path``, cell by cell."""
    (env, params), weights = CASES[case], kept_weights(folder)
    params = params | smaller
    if not weights:
        raise SystemExit(f"{folder} holds no weights yet; train it, or unpack them there")
    parts, step = read(folder / "training.json", []), list(weights)[-1]
    (folder / "recordings").mkdir(exist_ok=True)
    trained = {"case": case, "env_steps": step, "params": params, "training": parts}
    took = [*parts, *(board for part in parts for board in part.get("smaller boards", []))]
    trained["seconds"] = round(sum(each["seconds"] for each in took), 2)

    def cell(name, make, of_weights=True):
        made_of = {"episodes of means": episodes} | ({"env_steps": step} if of_weights else {})
        results = read(path, {})
        row = results[folder.name] = trained | {
            "cells": results.get(folder.name, {}).get("cells", {})
        }
        others = (
            [] if of_weights else [other for other in results.values() if other["params"] == params]
        )
        known = [other["cells"][name] for other in (row, *others) if name in other["cells"]]
        done = next((found for found in known if made_of.items() <= found.items()), None)
        row["cells"][name] = done or {**made_of, **make(), **about(device)}
        write(path, results)  # after each, so that an interrupt keeps those that are done
        print(f"{folder.name}  {name:<16} {row['cells'][name]['mean']}", flush=True)

    for name, who in matches(folder).items():
        file = folder / "recordings" / f"{name.replace(' ', '-')}.npz"
        make = partial(play, env, params, who, episodes, device, file)
        cell(name, make, any(isinstance(player, cd.FrozenPolicy) for player in who.values()))
    cell("earlier", partial(meet, env, params, folder, episodes, device))


def main():
    """Train or evaluate what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, action="append", required=True)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--steps", type=float, default=2e8, help="env-steps in all")
    parser.add_argument("--num-envs", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/tag"))
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--resume", action="store_true", help="go on with runs that have begun")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1e9,
        help="of this command, after which a run stops to be resumed",
    )
    parser.add_argument(
        "--evaluate", action="store_true", help="play the runs instead of training them"
    )
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--json", type=Path, default=Path("gallery/tag_published.json"))
    args = parser.parse_args()
    deadline = time.monotonic() + args.seconds
    for seed in args.seed or [0]:
        for case in args.case:
            folder = args.out / label(case, seed, args.steps)
            if args.evaluate:
                evaluate(case, folder, args.json, episodes=args.episodes, device=args.device)
                continue
            options = dict(num_envs=args.num_envs, device=args.device, resume=args.resume)
            run = train(case, seed, args.steps, folder, deadline=deadline, **options)
            print(
                f"{folder.name}: {run.step:,} of {args.steps:,.0f} env-steps, {run.seconds:.1f} s "
                f"here",
                flush=True,
            )
            if run.step < args.steps:
                return
    return


if __name__ == "__main__":
    sys.exit(main())
