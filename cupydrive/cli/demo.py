"""The demonstration: check the environments, train two of them, draw what they learned, measure random rollouts."""

import sys
import time
from pathlib import Path
from typing import Any, Literal

from cupydrive import envs
from cupydrive.algorithms import PPO
from cupydrive.bench import Work, bench, short
from cupydrive.checks.checker import check
from cupydrive.executors import choose
from cupydrive.experiments.train import train
from cupydrive.playing.players import HeuristicPolicy
from cupydrive.training.begin import make_run

AGENT_STEPS = 20_000  # of a check
AGENTS = {"cpu": 10_000, "cuda": 2**18}  # of all environments of a rollout together: fits into a few GB
ROLLOUT_STEPS = 32
EPISODES = 500  # of an evaluation
VIDEO_EPISODES = 4
NEXT = """next:
  cupydrive train acrobot --out runs/acrobot
  cupydrive play tag_grid --agent runner --param grid_length=10
  cupydrive new my_env"""
FOLDER = Path("runs/demo")
# What is trained: environment, parameters, settings, the group whose return is to rise, env-steps, environments.
LESSONS: tuple[tuple[str, dict[str, Any], dict[str, PPO | HeuristicPolicy], str, int, int], ...] = (
    ("cartpole", {}, {"cart": PPO(learning_rate=((0, 2.5e-3), (200_000, 2.5e-4)))}, "cart", 200_000, 256),
    (
        "tag_grid",
        {"grid_length": 10},
        {"tagger": PPO(learning_rate=2.5e-3), "runner": HeuristicPolicy()},
        "tagger",
        100_000,
        64,
    ),
)


def demo(device: Literal["auto", "cpu", "cuda"] = "auto") -> bool:
    """Print what the machine can do; return whether every check passed and everybody learned."""
    start, shown = time.perf_counter(), sys.stderr.isatty()
    name, reason = choose(device)
    print(reason)
    specs = envs.with_data(print)
    good = []
    for spec in specs:
        report = check(spec, agent_steps=AGENT_STEPS, device=device, progress=shown)
        good.append(report.passed)
        print(str(report).splitlines()[0] if report.passed else report, flush=True)
    print("\ntraining: mean return of 500 episodes before and after", flush=True)
    runs = {}
    FOLDER.mkdir(parents=True, exist_ok=True)
    for env, params, policies, group, steps, num_envs in LESSONS:
        run = runs[env] = make_run(env, policies=policies, num_envs=num_envs, device=name, **params)
        before, about_before = run.evaluate(EPISODES, greedy=False).mean(group)
        train(run, steps=steps, progress=shown)
        after, about_after = run.evaluate(EPISODES, greedy=False).mean(group)
        good.append(after - about_after > before + about_before)  # beyond chance
        learned = "learned" if good[-1] else "DID NOT LEARN"
        print(
            f"train {env:<24} {group} {before:8.2f} -> {after:8.2f}  in {short(run.step)} env-steps, {learned}",
            flush=True,
        )
    print("\nrandom rollouts\n", flush=True)
    agents = {spec.name: sum(g.count for g in spec.groups(spec.make_params())) for spec in specs}
    work = [Work(env, max(1, AGENTS[name] // count), ROLLOUT_STEPS) for env, count in agents.items()]
    bench(("rollout",), device=name, work=work)
    print("\nvideos, not opened by themselves:")
    for env, run in runs.items():
        path = FOLDER / f"{env}.mp4"
        run.render(path, episodes=VIDEO_EPISODES, progress=shown)
        print(f"  {path.resolve()}", flush=True)
    print(f"\ndone in {time.perf_counter() - start:.0f} s\n\n{NEXT}")
    return all(good)
