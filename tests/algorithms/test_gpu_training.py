"""Training on a GPU: captured equals eager, iterations do not wait for the host, resuming gives the
same bits.
"""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from equal_runs import rows, same
from networks import Joint
from point import KERNEL, PYTHON
from test_runs import KINDS

import cupydrive as cd
from cupydrive.training.begin import make_run
from cupydrive.training.run import Run

pytestmark = pytest.mark.gpu
QUIET = {"device": "cuda", "progress": False}


@pytest.fixture(autouse=True)
def point():
    cd.register(PYTHON, KERNEL)


def train(kind, iterations, **options):
    name, settings = KINDS[kind]
    settings = settings()
    return cd.train(
        name,
        settings,
        num_envs=64,
        steps=iterations * 64 * settings.num_steps,
        seed=5,
        **QUIET,
        **options,
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
def test_captured_equals_eager_bit_for_bit(kind):
    captured, eager = train(kind, 12), train(kind, 12, cuda_graph=False)
    assert same(captured, eager)
    for one, other in zip(rows(captured), rows(eager), strict=True):
        assert {key: (value, other[key]) for key, value in one.items() if other[key] != value} == {}


def weights(seed):
    """Return the weights after short captured runs of each kind."""
    found = []
    for env, settings, options in (
        ("cartpole", cd.PPO(num_steps=8, policy=Joint), {}),
        ("cartpole", cd.PPO(num_steps=8), {"backend": "torch"}),
        ("pendulum", cd.DDPG(learning_starts=64, buffer_size=2048, batch_size=64), {}),
        ("tag_grid", cd.PPO(num_steps=8), {}),
    ):
        run = cd.train(env, settings, num_envs=64, steps=64 * 8 * 6, seed=seed, **QUIET, **options)
        found += [
            p.detach().cpu().clone()
            for policy in run.policies.values()
            for p in policy.parameters()
        ]
    return found


def test_threads_that_capture_give_the_weights_of_one():
    alone = weights(1)
    for _ in range(2):
        with ThreadPoolExecutor(3) as pool:
            for found in pool.map(weights, [1] * 3):
                assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))


@pytest.mark.full
@pytest.mark.parametrize(
    "mode", [lambda: torch.autocast("cuda", torch.bfloat16), torch.inference_mode]
)
def test_what_is_captured_does_not_depend_on_torchs_modes(mode):
    alone, before = weights(2), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with mode():
            found = weights(2)
    finally:
        torch.set_float32_matmul_precision(before)
    assert all(torch.equal(a, b) for a, b in zip(found, alone, strict=True))


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
def test_resuming_gives_the_bits_of_a_run_that_was_never_stopped(kind, tmp_path):
    whole, half = train(kind, 9), train(kind, 4)
    half.total = whole.total
    half.save(tmp_path)
    resumed = Run.load(tmp_path, "cuda")
    cd.train(resumed, progress=False)
    assert same(whole, resumed)


@pytest.mark.full
@pytest.mark.parametrize(
    ("env", "backend", "precision", "network"),
    [
        ("tag_grid", "torch", "float32", cd.Network(hidden=(16,))),
        ("tag_grid", "kernels", "float32", cd.Network(hidden=(16,))),
        ("tag_grid", "kernels", "bfloat16", cd.Network(hidden=(16,))),
        ("tag_grid", "kernels", "bfloat16", cd.Network(hidden=(300, 300))),
        ("tag_grid", "kernels", "float32", cd.Network(hidden=(16,), core=cd.GRU(16))),
        ("tag_grid", "kernels", "bfloat16", cd.Network(hidden=(16,), core=cd.GRU(16))),
        ("connect_four", "torch", "float32", cd.Network(hidden=(16,))),
        ("connect_four", "kernels", "float32", cd.Network(hidden=(16,))),
        ("connect_four", "kernels", "float32", cd.Network(hidden=(16,), conv=cd.Conv((16,)))),
        ("connect_four", "kernels", "bfloat16", cd.Network(hidden=(16,), conv=cd.Conv((16,)))),
    ],
)
def test_pools_are_captured_and_exact_ones_have_the_bits_of_a_cpu(env, backend, precision, network):
    one = env == "connect_four"  # policy, for both groups
    settings = cd.PPO(
        num_steps=8,
        network=network,
        precision=precision,
        normalize_obs=not one,
        normalize_reward=True,
    )
    pool = cd.OpponentPool(settings, size=2, every=2, share=0.3)
    options = {"num_envs": 64, "steps": 12 * 64 * 8, "backend": backend, "progress": False}
    options["policies"] = dict.fromkeys(["first+second"] if one else ["tagger", "runner"], pool)
    options |= {} if one else {"grid_length": 6, "num_taggers": 2, "max_episode_steps": 20}
    captured, eager = (
        cd.train(env, device="cuda", cuda_graph=how, **options) for how in (True, False)
    )
    learner = next(iter(captured.learners.values()))
    assert same(captured, eager) and int(learner.taken) > 2
    if (backend, precision) == ("kernels", "float32"):
        own, host = captured.snapshot(), cd.train(env, device="cpu", **options).snapshot()
        assert all(
            torch.equal(own[name], host[name])
            for name in own
            if "policy." in name or "plays" in name
        )


@pytest.mark.full
@pytest.mark.parametrize("hidden", [(64, 64), (256, 256)])
def test_policies_side_by_side_have_the_bits_of_one_after_the_other(hidden):
    found = []
    for side_by_side in (True, False):
        settings = cd.A2C(hidden=hidden, num_steps=8)
        run = make_run("tag_continuous", settings, num_envs=512, seed=2, device="cuda",
        num_taggers=2, num_runners=3,
                       num_other_agents_observed=4)  # fmt: skip
        assert run.rollout.side_by_side
        run.rollout.side_by_side = side_by_side
        for _ in range(4):
            run.iterate()
        found.append(run)
    assert same(*found)


def waits(run):
    """Return how often two iterations, launched by the host, make it wait or copy to or from it."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(2):
        run.iterate()
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler, about itself
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            for _ in range(2):
                run.iterate()
    names = [event.name.lower() for event in trace.events()]
    assert any("env_step" in name or "env_play" in name for name in names)
    return sum(
        "streamsynchronize" in n
        or "eventsynchronize" in n
        or "dtoh" in n
        or "htod" in n
        or "cudamalloc" in n
        for n in names
    )


class Waiting(torch.nn.Module):
    """A policy that reads a number back to the host."""

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(2))

    def forward(self, obs):
        self.logits.sum().item()
        return self.logits.expand(len(obs), -1), obs.sum(1) * self.logits.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_an_iteration_does_not_wait_for_the_host(kind):
    name, settings = KINDS[kind]
    assert waits(make_run(name, settings(), num_envs=64, device="cuda")) == 0


@pytest.mark.full
def test_a_planted_item_is_seen():
    planted = cd.PPO(num_steps=8, policy=lambda obs_dim, size: Waiting())
    assert waits(make_run("cartpole", planted, num_envs=64, device="cuda")) > 0


@pytest.mark.full
def test_cpu_and_gpu_curves_agree_statistically():
    """The mean return over training, five seeds each: equal within four standard errors."""
    areas = {}
    for device in ("cpu", "cuda"):
        areas[device] = []
        for seed in range(5):
            settings = cd.PPO(learning_rate=2.5e-3, hidden=(32,))
            run = cd.train(
                "cartpole",
                settings,
                num_envs=64,
                steps=80_000,
                seed=seed,
                device=device,
                progress=False,
            )
            returns = [
                row["charts/episodic_return"]
                for row in run.metrics
                if "charts/episodic_return" in row
            ]
            areas[device].append(sum(returns) / len(returns))
    cpu, cuda = (torch.tensor(areas[device]).double() for device in ("cpu", "cuda"))
    error = math.sqrt(((cpu.var() + cuda.var()) / 5).item())
    assert abs((cpu.mean() - cuda.mean()).item()) < 4 * error, areas


@pytest.mark.full
def test_what_does_not_fit_says_what_to_lower():
    with pytest.raises(cd.CupydriveError, match=r"num_envs|num_steps"):
        cd.train("tag_continuous", cd.PPO(num_steps=4096), num_envs=100_000, steps=1, **QUIET)
