"""The demonstration: check the environments, train two of them, draw what they learned, measure random rollouts."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cupydrive import envs
from cupydrive.bench import Work, measure, short
from cupydrive.checks.checker import check
from cupydrive.executors import choose, executor
from cupydrive.playing.players import HeuristicPolicy
from cupydrive.spec import EnvSpec
from cupydrive.training.algorithms import PPO
from cupydrive.training.begin import make_run
from cupydrive.training.run import Run
from cupydrive.training.train import train

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


def demo(device: str = "auto") -> bool:
    """Print what the machine can do; return whether every check passed and everybody learned."""
    start = time.perf_counter()
    name, reason = choose(device)
    print(reason)
    specs = envs.with_data(print)
    good = [check_briefly(spec, device) for spec in specs]
    print("\ntraining: mean return of 500 episodes before and after", flush=True)
    runs = {}
    FOLDER.mkdir(parents=True, exist_ok=True)
    for lesson in LESSONS:
        learned, runs[lesson[0]] = teach(*lesson, name)
        good.append(learned)
    show_rates(name, specs)
    print("\nvideos, not opened by themselves:")
    for env, run in runs.items():
        path = FOLDER / f"{env}.mp4"
        run.render(path, episodes=VIDEO_EPISODES, progress=sys.stderr.isatty())
        print(f"  {path.resolve()}", flush=True)
    print(f"\ndone in {time.perf_counter() - start:.0f} s\n\n{NEXT}")
    return all(good)


def check_briefly(spec: EnvSpec, device: str) -> bool:
    """Check one environment and print the outcome; return whether it passed."""
    print(f"check {spec.name} ... ", end="", flush=True)
    report = check(spec, agent_steps=AGENT_STEPS, device=device, progress=sys.stderr.isatty())
    print(f"{'passed' if report.passed else 'FAILED'}: {report.agent_steps:,} agent-steps against the reference")
    if not report.passed:
        print(report)
    return report.passed


def teach(
    env: str,
    params: dict[str, Any],
    policies: dict[str, PPO | HeuristicPolicy],
    group: str,
    steps: int,
    num_envs: int,
    device: str,
) -> tuple[bool, Run]:
    """Train, and print the return before and after; return whether it rose beyond chance, and the run."""
    run = make_run(env, policies=policies, num_envs=num_envs, device=device, **params)
    before, about_before = run.evaluate(EPISODES, greedy=False).mean(group)
    start = time.perf_counter()
    train(run, steps=steps, progress=sys.stderr.isatty())
    seconds = time.perf_counter() - start
    after, about_after = run.evaluate(EPISODES, greedy=False).mean(group)
    learned = after - about_after > before + about_before
    print(
        f"train {env:<24} {group} {before:8.2f} -> {after:8.2f}  in {seconds:.0f} s, {short(run.step)} env-steps, "
        f"{'learned' if learned else 'DID NOT LEARN'}",
        flush=True,
    )
    return learned, run


def show_rates(device: str, specs: Sequence[EnvSpec]) -> None:
    """Print env-steps per second of random rollouts of some environments."""
    where = executor(device)
    print(f"\nrandom rollouts on {where.describe()}, medians of 9 runs\n", flush=True)
    print(f"{'environment':<24}{'agents':>7}{'envs':>11}{'T':>5}{'env-steps/s':>14}{'agent-steps/s':>15}")
    for spec in specs:
        agents = sum(g.count for g in spec.groups(spec.make_params()))
        work = Work(spec.name, max(1, AGENTS[device] // agents), ROLLOUT_STEPS)
        speed = measure(work, where).rate
        print(
            f"{spec.name:<24}{agents:>7}{work.num_envs:>11,}{work.steps:>5}{short(speed):>14}{short(speed * agents):>15}",
            flush=True,
        )
