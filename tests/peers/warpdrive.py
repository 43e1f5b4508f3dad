"""WarpDrive 2.7 (Lan et al. 2022), by Numba and by its CUDA C: random actions, one Python loop over
steps, as in its trainers.

Alike: tasks, parameters of its run configurations, actions drawn by its own sampler from uniform
distributions, resets of what is done. Not alike: every step is some launches from Python (sample,
step, reset of each array), nothing is kept but the last step, starts are one state or a pool of
1,000, and CartPole's ends are not told apart.
"""

import time

from protocol import arguments, tell
from warpdrive_backends import CARTPOLE, TAG_CONTINUOUS, TAG_GRID, Work, time_each, who, wrapped

from cupydrive.bench.timing import make_row

# of one row and of all, at most: it compiles for up to half a minute (900: compare.py)
SECONDS, TOTAL = 120, 840
GRID = {"grid_length": 100, "episode_length": 100, "seed": 20, "use_full_observation": False}
PLANE = {
    "grid_length": 20.0, "episode_length": 500, "max_acceleration": 0.1, "min_acceleration": -0.1,
    "max_turn": 2.356,
    "min_turn": -2.356, "num_acceleration_levels": 20, "num_turn_levels": 20, "seed": 274880,
    "use_full_observation": False,
    "num_other_agents_observed": 10, "tagging_distance": 0.02,
}  # fmt: skip
WORKS = (
    Work("cartpole", CARTPOLE, {"episode_length": 500, "reset_pool_size": 1000}, 10_000),
    Work("tag_grid", TAG_GRID, {**GRID, "num_taggers": 4}),
    Work("tag_grid", TAG_GRID, {**GRID, "num_taggers": 999}),
    Work("tag_continuous", TAG_CONTINUOUS, {**PLANE, "num_taggers": 5, "num_runners": 100}, 500),
)


def stepper(work, backend):
    """Return the number of agents, and a function that steps all copies of one environment once
    with random actions.
    """
    import torch

    wrapper, make_sampler = wrapped(work, work.settings, backend)
    from warp_drive.training.utils.data_loader import create_and_push_data_placeholders

    wrapper.reset_all_envs()
    wrapper.init_reset_pool(0)
    sampler = make_sampler(wrapper.cuda_function_manager)
    sampler.init_random(0)
    create_and_push_data_placeholders(wrapper, sampler, push_data_batch_placeholders=False)
    data, space, agents = (
        wrapper.cuda_data_manager,
        wrapper.env.action_space[0],
        wrapper.env.num_agents,
    )
    several = hasattr(space, "nvec")
    heads = (
        {f"sampled_actions_{i}": k for i, k in enumerate(space.nvec)}
        if several
        else {"sampled_actions": space.n}
    )
    uniform = {
        head: torch.full((work.n, agents, int(k)), 1 / int(k), device="cuda")
        for head, k in heads.items()
    }

    def step():
        for head, distribution in uniform.items():
            sampler.sample(data, distribution, action_name=head)
        if several:
            drawn = [data.data_on_device_via_torch(head) for head in heads]
            torch.cat(drawn, dim=-1, out=data.data_on_device_via_torch("sampled_actions"))
        wrapper.step_all_envs()
        wrapper.reset_only_done_envs()

    return agents, step


def time_one(number, runs, backend):
    """Tell the row of one of ``WORKS``; in a process of its own."""
    import torch

    work, begin = WORKS[number], time.perf_counter()
    agents, step = stepper(work, backend)
    step()
    torch.cuda.synchronize()
    compiled, seconds = time.perf_counter() - begin, []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        for _ in range(work.steps):
            step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    note = f"stores only the last step; {compiled:.1f} s to start (not counted)"
    tell(
        make_row(
            "rollout",
            work.env,
            work.n,
            agents,
            work.steps,
            seconds[1:],
            who=who(backend),
            note=note,
        )
    )


def main():
    """Tell each environment's row."""
    given = arguments(
        __doc__, "rollout", dict.fromkeys(work.env for work in WORKS), backends=("numba", "pycuda")
    )
    time_each(given, "warpdrive", WORKS, SECONDS, TOTAL)


if __name__ == "__main__":
    main()
