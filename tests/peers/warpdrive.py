"""WarpDrive 2.7 (Lan et al. 2022), by Numba and by its CUDA C: random actions, one Python loop over steps, as in its trainers.

Alike: tasks, parameters of its run configurations, actions drawn by its own sampler from uniform distributions, resets of what
is done. Not alike: every step is some launches from Python (sample, step, reset of each array), nothing is kept but the last
step, starts are one state or a pool of 1,000, and CartPole's ends are not told apart.

It needs gym, which NumPy 2 has left behind: Gymnasium stands in for it. WarpDrive writes a module into its own folder and
imports it once, so every environment has a process of its own. Its CUDA C backend needs PyCUDA and nvcc, and has Tag only;
its sampler keeps a random state per agent in the device's heap, which is made large enough for them here.
"""

import itertools
import shutil
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import version

from protocol import absent, arguments, tell

from cupydrive.bench.timing import make_row

STEPS = 32
SECONDS = (
    120  # of one environment, at most: it compiles for up to half a minute, and all have 900 (cupydrive/bench/peers.py)
)
HEAP_BYTES = 2**30  # of the device, for 2,000,000 random states; WarpDrive leaves it at 8 MB, and its kernel fails then
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
BACKENDS = {"numba": "Numba", "pycuda": "CUDA C"}
MODULES = {"numba": "numba.cuda", "pycuda": "pycuda.driver"}  # that a backend cannot do without
# Our name, its module and class, arguments of the class, copies.
WORKS = (
    ("cartpole", *CARTPOLE, {"episode_length": 500, "reset_pool_size": 1000}, 10_000),
    ("tag_grid", *TAG_GRID, {**GRID, "num_taggers": 4}, 2000),
    ("tag_grid", *TAG_GRID, {**GRID, "num_taggers": 999}, 2000),
    ("tag_continuous", *TAG_CONTINUOUS, {**PLANE, "num_taggers": 5, "num_runners": 100}, 500),
)


def sampler_of(backend):
    """Return WarpDrive's sampler of actions for ``backend``, with room for its random states."""
    if backend == "numba":
        return import_module("warp_drive.managers.numba_managers.numba_function_manager").NumbaSampler
    sampler = import_module("warp_drive.managers.pycuda_managers.pycuda_function_manager").PyCUDASampler
    driver = import_module("pycuda.driver")  # WarpDrive's module has made torch's context its own
    driver.Context.set_limit(driver.limit.MALLOC_HEAP_SIZE, HEAP_BYTES)
    return sampler


def stepper(module, name, settings, n, backend):
    """Return the number of agents, and a function that steps ``n`` copies of one environment once with random actions."""
    import numpy as np
    import torch

    np.row_stack = np.vstack  # which NumPy 2.0 renamed
    for stand_in in STAND_INS:
        sys.modules[stand_in] = import_module(stand_in.replace("gym", "gymnasium", 1))
    from warp_drive.env_wrapper import EnvWrapper
    from warp_drive.training.utils.data_loader import create_and_push_data_placeholders

    make_sampler = sampler_of(backend)
    env = getattr(import_module(f"example_envs.{module}"), name)(**settings)
    wrapper = EnvWrapper(env, num_envs=n, env_backend=backend)
    if (module, name) == TAG_GRID and backend == "pycuda":  # what its trainer does: without it nobody moves
        table = "kIndexToActionArr"
        wrapper.cuda_data_manager.add_shared_constants({table: env.step_actions})
        wrapper.cuda_function_manager.initialize_shared_constants(wrapper.cuda_data_manager, constant_names=[table])
    wrapper.reset_all_envs()
    wrapper.init_reset_pool(0)
    sampler = make_sampler(wrapper.cuda_function_manager)
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


def time_one(work, runs, backend):
    """Tell the row of one environment; in a process of its own."""
    import torch

    env, module, name, settings, n = work
    begin = time.perf_counter()
    agents, step = stepper(module, name, settings, n, backend)
    step()
    torch.cuda.synchronize()
    compiled, seconds = time.perf_counter() - begin, []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    who = f"WarpDrive {version('rl-warp-drive')}, {BACKENDS[backend]}"
    note = f"keeps the last step; starts after {compiled:.1f} s"
    tell(make_row("rollout", env, n, agents, STEPS, seconds[1:], who=who, note=note))


def usable(backend):
    """Return why ``backend`` cannot be used here, or an empty string."""
    try:
        import_module(MODULES[backend])
    except ImportError as missing:
        return f"{BACKENDS[backend]}: not installed: {missing}"
    return "" if backend == "numba" or shutil.which("nvcc") else f"{BACKENDS[backend]}: there is no nvcc on PATH"


def main():
    """Tell each environment's row; what fails does not keep the others from being timed."""
    given = arguments(__doc__, "rollout", dict.fromkeys(env for env, *_ in WORKS), backends=tuple(BACKENDS))
    if given.device != "cuda":
        absent("WarpDrive's environments of its GPU backends run on a GPU")
    try:
        version("rl-warp-drive")
    except ImportError as missing:
        absent(f"not installed: {missing}")
    problems = {backend: usable(backend) for backend in given.backends}
    if all(problems.values()):
        absent("; ".join(problems.values()))
    failed = []
    for (i, (env, module, *_, n)), backend in itertools.product(enumerate(WORKS), given.backends):
        if env not in given.envs or problems[backend] or (backend == "pycuda" and module.startswith("single_agent")):
            continue
        program = f"import warpdrive; warpdrive.time_one(warpdrive.WORKS[{i}], {given.runs}, {backend!r})"
        what = f"{env} x {n}, {BACKENDS[backend]}"
        try:
            done = subprocess.run(
                [sys.executable, "-c", program], cwd=sys.path[0], capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            failed.append(f"{what}: still running after {SECONDS} s")
            continue
        print(*[line for line in done.stdout.splitlines() if line.startswith("{")], sep="\n", flush=True)
        if done.returncode:
            failed.append(f"{what}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    if failed:
        sys.exit("; ".join(failed))
    if any(problems.values()):
        absent("; ".join(filter(None, problems.values())))


if __name__ == "__main__":
    main()
