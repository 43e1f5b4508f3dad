"""WarpDrive 2.7 (Lan et al. 2022), its Numba environments: random actions, one Python loop over steps, as in its trainers.

Alike: tasks, parameters of its run configurations, actions drawn by its own sampler from uniform distributions, resets of what
is done. Not alike: every step is some launches from Python (sample, step, reset of each array), nothing is kept but the last
step, starts are one state or a pool of 1,000, and CartPole's ends are not told apart.

It needs gym, which NumPy 2 has left behind: Gymnasium stands in for it. WarpDrive writes a module into its own folder and
imports it once, so every environment has a process of its own.
"""

import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import version

from protocol import absent, arguments, tell

from cupydrive.bench.timing import make_row

STEPS = 32
SECONDS = (
    200  # of one environment, at most: it compiles for up to a minute, and all four have 900 (cupydrive/bench/peers.py)
)
STAND_INS = ("gym", "gym.spaces", "gym.envs", "gym.envs.classic_control", "gym.envs.classic_control.cartpole")
GRID = {"grid_length": 100, "episode_length": 100, "seed": 20, "use_full_observation": False}
PLANE = {
    "grid_length": 20.0, "episode_length": 500, "max_acceleration": 0.1, "min_acceleration": -0.1, "max_turn": 2.356,
    "min_turn": -2.356, "num_acceleration_levels": 20, "num_turn_levels": 20, "seed": 274880, "use_full_observation": False,
    "num_other_agents_observed": 10, "tagging_distance": 0.02,
}  # fmt: skip
CARTPOLE = "single_agent.classic_control.cartpole.cartpole", "CUDAClassicControlCartPoleEnv"
TAG_GRID = "tag_gridworld.tag_gridworld", "CUDATagGridWorld"
TAG_CONTINUOUS = "tag_continuous.tag_continuous", "TagContinuous"
# Our name, its module and class, arguments of the class, copies.
WORKS = (
    ("cartpole", *CARTPOLE, {"episode_length": 500, "reset_pool_size": 1000}, 10_000),
    ("tag_grid", *TAG_GRID, {**GRID, "num_taggers": 4}, 2000),
    ("tag_grid", *TAG_GRID, {**GRID, "num_taggers": 999}, 2000),
    ("tag_continuous", *TAG_CONTINUOUS, {**PLANE, "num_taggers": 5, "num_runners": 100}, 500),
)


def stepper(module, name, settings, n):
    """Return the number of agents, and a function that steps ``n`` copies of one environment once with random actions."""
    import numpy as np
    import torch

    np.row_stack = np.vstack  # which NumPy 2.0 renamed
    for stand_in in STAND_INS:
        sys.modules[stand_in] = import_module(stand_in.replace("gym", "gymnasium", 1))
    from warp_drive.env_wrapper import EnvWrapper
    from warp_drive.managers.numba_managers.numba_function_manager import NumbaSampler
    from warp_drive.training.utils.data_loader import create_and_push_data_placeholders

    env = getattr(import_module(f"example_envs.{module}"), name)(**settings)
    wrapper = EnvWrapper(env, num_envs=n, env_backend="numba")
    wrapper.reset_all_envs()
    wrapper.init_reset_pool(0)
    sampler = NumbaSampler(wrapper.cuda_function_manager)
    sampler.init_random(0)
    create_and_push_data_placeholders(wrapper, sampler, push_data_batch_placeholders=False)
    data, space, agents = wrapper.cuda_data_manager, env.action_space[0], env.num_agents
    several = hasattr(space, "nvec")
    heads = {f"sampled_actions_{i}": k for i, k in enumerate(space.nvec)} if several else {"sampled_actions": space.n}
    uniform = {head: torch.full((n, agents, int(k)), 1 / int(k), device="cuda") for head, k in heads.items()}

    def step():
        for head, distribution in uniform.items():
            sampler.sample(data, distribution, action_name=head)
        if several:
            drawn = [data.data_on_device_via_torch(head) for head in heads]
            torch.cat(drawn, dim=-1, out=data.data_on_device_via_torch("sampled_actions"))
        wrapper.step_all_envs()
        wrapper.reset_only_done_envs()

    return agents, step


def time_one(work, runs):
    """Tell the row of one environment; in a process of its own."""
    import torch

    env, module, name, settings, n = work
    begin = time.perf_counter()
    agents, step = stepper(module, name, settings, n)
    step()
    torch.cuda.synchronize()
    compiled, seconds = time.perf_counter() - begin, []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    who = f"WarpDrive {version('rl-warp-drive')}"
    note = f"Numba; keeps the last step; starts after {compiled:.1f} s"
    tell(make_row("rollout", env, n, agents, STEPS, seconds[1:], who=who, note=note))


def main():
    """Tell each environment's row; what fails does not keep the others from being timed."""
    given = arguments(__doc__, "rollout")
    if given.device != "cuda":
        absent("WarpDrive's Numba environments run on a GPU")
    try:
        version("rl-warp-drive")
        import_module("numba.cuda")
    except ImportError as missing:
        absent(f"not installed: {missing}")
    failed = []
    for i, (env, *_, n) in enumerate(WORKS):
        program = f"import warpdrive; warpdrive.time_one(warpdrive.WORKS[{i}], {given.runs})"
        try:
            done = subprocess.run(
                [sys.executable, "-c", program], cwd=sys.path[0], capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            failed.append(f"{env} x {n}: still running after {SECONDS} s")
            continue
        print(*[line for line in done.stdout.splitlines() if line.startswith("{")], sep="\n", flush=True)
        if done.returncode:
            failed.append(f"{env} x {n}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
