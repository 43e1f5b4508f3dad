"""Laws that need a GPU: the same bits as on the CPU, zero copies, no waiting."""

import warnings
from itertools import product
from threading import Thread

import numpy as np
import point
import pytest
import torch
from equal_runs import assert_same_bits
from torch.profiler import ProfilerActivity, profile

from cupydrive import envs
from cupydrive.checks.bits import trajectory
from cupydrive.checks.checker import check
from cupydrive.codegen.layout import Layout
from cupydrive.errors import MemoryLimitError
from cupydrive.executors import executor
from cupydrive.simulation.make import make

pytestmark = pytest.mark.gpu


def made(name, num_envs, device, **options):
    env = make(name, num_envs, device=device, **options)
    env.reset(seed=5)
    return env


def leaves(value):
    return list(value.values()) if isinstance(value, dict) else [value]


@pytest.mark.full
@pytest.mark.parametrize("name", envs.names())
def test_check_passes_with_the_bitwise_part(name):
    report = check(name, agent_steps=5_000, progress=False)
    assert report.passed, str(report)
    assert any("cpu against cuda" in part for part, _ in report.tallies)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", envs.names())
def test_tensors_are_the_kernels_memory(name):
    env = made(name, 33, "cuda")
    result = env._results[env.batch.now]
    buffers = env.batch.step_buffers[env.batch.now]
    for tensors, arrays in ((result[0], buffers.obs), (result[1], buffers.reward)):
        for tensor, array in zip(leaves(tensors), arrays.values(), strict=True):
            assert tensor.is_cuda and tensor.data_ptr() == array.data.ptr
    assert result[2].data_ptr() == buffers.terminated.data.ptr
    first = next(iter(env.state.values()))
    assert first.data_ptr() == env.batch.state.data.ptr


@pytest.mark.quick(10)
@pytest.mark.parametrize("name", envs.names())
def test_cpu_and_gpu_step_alike_bit_for_bit(name):
    gpu, cpu = made(name, 65, "cuda"), made(name, 65, "cpu")
    actions = cpu.rollout(50).action
    cpu.reset(seed=5)
    for t in range(50):
        one = {k: v[t] for k, v in actions.items()} if isinstance(actions, dict) else actions[t]
        two = {k: v.cuda() for k, v in one.items()} if isinstance(one, dict) else one.cuda()
        for a, b in zip(cpu.step(one)[:4], gpu.step(two)[:4], strict=True):
            for x, y in zip(leaves(a), leaves(b), strict=True):
                assert torch.equal(x, y.cpu())


def count_waits(env, action, work=lambda env: None):
    """Return how many copies, waits and allocations the CUDA runtime does in 100 steps."""
    for _ in range(3):
        env.step(action)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats().get("allocation.all.allocated", 0)
    pool = env.batch.executor.xp.get_default_memory_pool()
    taken = pool.total_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler, about itself
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            for _ in range(100):
                env.step(action)
                work(env)
    names = [event.name.lower() for event in trace.events()]
    calls = sum(
        "memcpy" in n
        or "memset" in n
        or ("synchronize" in n and "device" not in n)
        or "malloc" in n
        for n in names
    )
    launches = sum("env_step" in n for n in names)
    allocated = torch.cuda.memory_stats().get("allocation.all.allocated", 0) - before
    return calls + allocated + (pool.total_bytes() - taken), launches


def test_a_step_copies_waits_and_allocates_nothing():
    env = made("cartpole", 1000, "cuda", validate=False)
    action = torch.ones(1000, dtype=torch.int32, device="cuda")
    waits, launches = count_waits(env, action)
    assert waits == 0
    assert launches >= 100
    planted, _ = count_waits(env, action, lambda env: env._results[0][1].sum().item())
    assert planted >= 100


def test_a_step_replays_in_a_cuda_graph():
    import cupy

    env, eager = (
        made("tag_grid", 100, "cuda", validate=False),
        made("tag_grid", 100, "cuda", validate=False),
    )
    action = {
        "tagger": torch.ones(100, 4, dtype=torch.int32, device="cuda"),
        "runner": torch.ones(100, 1, dtype=torch.int32, device="cuda"),
    }
    for e in (env, eager):
        e.step(action)
        e.step(action)
    torch.cuda.synchronize()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream), cupy.cuda.Stream.from_external(stream):
        env.step(action)
        env.step(action)
    for _ in range(20):
        graph.replay()
        eager.step(action)
        eager.step(action)
    torch.cuda.synchronize()
    for name, member in eager.state.items():
        assert torch.equal(member, env.state[name])


def test_threads_launch_too():
    want, env, got = (
        made("cartpole", 100, "cuda").rollout(20).obs,
        made("cartpole", 100, "cuda"),
        [],
    )
    thread = Thread(target=lambda: got.append(env.rollout(20).obs))
    thread.start()
    thread.join()
    assert torch.equal(got[0], want)


@pytest.mark.full
def test_a_thread_whose_first_call_of_cuda_is_a_launch():
    want, batch = (made("cartpole", 100, "cuda").batch for _ in range(2))
    batch.rollout(20)  # allocates here: in the thread that would make its context
    thread = Thread(target=batch.rollout, args=(20,))
    thread.start()
    thread.join()
    for _ in range(2):
        want.rollout(20)
    assert (batch.rollout(20).obs["cart"] == want.rollout(20).obs["cart"]).all()


@pytest.mark.full
def test_kernels_of_torch_before_and_after_a_step_keep_their_order():
    n, last = 200_000, {}
    for device in ("cpu", "cuda"):
        env = made("cartpole", n, device, validate=False)
        ids, action = (
            torch.arange(n, dtype=torch.int32, device=device),
            torch.zeros(n, dtype=torch.int32, device=device),
        )
        seen = torch.zeros(n, 4, device=device)
        for k in range(40):
            torch.bitwise_and(ids + k * k, 1, out=action)
            obs = env.step(action)[0]
            seen.mul_(0.5).add_(obs)  # torch rounds these two alike on both
            action.fill_(-1)
        last[device] = seen.cpu()
    assert torch.equal(last["cpu"], last["cuda"])


FEW = {"num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 4}
AGENTS = [
    ("tag_grid", {"num_taggers": 1}),
    ("tag_grid", {"num_taggers": 32, "num_other_agents_observed": 32}),
    ("tag_grid", {"num_taggers": 1004, "num_other_agents_observed": 7}),
    ("tag_continuous", {"num_taggers": 1, "num_runners": 1, "num_other_agents_observed": 1}),
    ("tag_continuous", {"num_taggers": 3, "num_runners": 30, "use_full_observation": True}),
    ("tag_continuous", {"num_taggers": 5, "num_runners": 1000, "num_other_agents_observed": 32}),
]


def of_team(team):
    """Return the layout of a team: 64 threads a block, or one team that is larger."""
    return Layout(team, max(1, 64 // team))


def layouts():
    """Yield (environment, parameters, layout, copies): all teams of some agents, some of any
    number, one thread of few.
    """
    for team in (2**k for k in range(11)):
        yield "tag_grid", {"num_taggers": 40}, of_team(team), 9
        yield "tag_continuous", {"num_taggers": 3, "num_runners": 30}, of_team(team), 9
    for (name, params), team in product(AGENTS, (None, 1, 32, 1024)):
        yield name, params, team and of_team(team), 5
    for num_envs, envs_per_block in product((1, 31, 100), (8, 32, 64)):
        for name, params in (
            ("tag_grid", {}), ("tag_grid", {"num_taggers": 2, "use_full_observation": True}),
            ("tag_continuous", FEW),
        ):  # fmt: skip
            yield name, params, Layout(1, envs_per_block), num_envs


@pytest.mark.quick(12)
@pytest.mark.parametrize(("name", "params", "layout", "num_envs"), list(layouts()))
def test_any_layout_gives_the_cpus_bits(name, params, layout, num_envs):
    """From states drawn wide, with episodes that end."""
    spec = envs.get(name)
    made_params = spec.make_params(max_episode_steps=5, **params)
    fitting = layout and layout.fit(spec, made_params, 90_000)
    states = spec.reference.sample_states(made_params, np.random.default_rng(4), num_envs)
    states = states.astype(spec.state_dtype(made_params))
    want = trajectory(spec, made_params, executor("cpu"), 3, num_envs, 12, states=states)
    assert_same_bits(
        trajectory(spec, made_params, executor("cuda"), 3, num_envs, 12, fitting, states), want
    )


@pytest.mark.full
@pytest.mark.parametrize("num_envs", [1, 31, 32, 33, 1025])
@pytest.mark.parametrize("name", envs.names())
def test_any_number_of_environments_gives_the_cpus_bits(name, num_envs):
    gpu, cpu = made(name, num_envs, "cuda"), made(name, num_envs, "cpu")
    for _ in range(2):  # the second begins with the last row of the first, which it writes again
        a, b = gpu.rollout(8), cpu.rollout(8)
        for x, y in zip(leaves(a.obs), leaves(b.obs), strict=True):
            assert x.cpu().numpy().tobytes() == y.numpy().tobytes()


@pytest.mark.full
def test_a_hundred_thousand_environments_are_made_at_once():
    env = made("tag_continuous", 100_000, "cuda", num_taggers=5, num_runners=100)
    assert env.state["x"].shape == (100_000, 105)


@pytest.mark.full
def test_a_launch_without_room_for_the_arrays_of_its_threads_says_what_they_take():
    import cupy

    array = "float far[120000]; for (int k = 0; k < 120000; ++k) far[k] = s.v + k; s.x += far[unsigned(s.x * s.x) % 120000];"
    env = made(envs.register(point.PYTHON, point.KERNEL.replace("s.x += s.v;", array)), 100, "cuda")
    free, processors = (
        cupy.cuda.Device().mem_info[0],
        cupy.cuda.Device().attributes["MultiProcessorCount"],
    )
    # where there is room for so many threads
    taken = cupy.cuda.Memory(max(1, free - 1024 * processors * 480_000))
    with pytest.raises(
        MemoryLimitError, match=r"env_rollout needs 4\d\d,\d\d\d bytes of local memory.*are free"
    ):
        env.rollout(1)
    del taken
    env.reset(seed=1)  # other kernels go on
