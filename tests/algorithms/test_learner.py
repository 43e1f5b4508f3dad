"""Runs whose learner is kernels: which policies get it, equal bits with any number of threads,
checkpoints.
"""

import platform
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import everything
import numpy as np
import pytest
import torch
from conftest import run_python
from learner_weights import QUIET, WEIGHTS, digest, recorded

import cupydrive as cd
from cupydrive import envs
from cupydrive.algorithms.architecture import Network
from cupydrive.algorithms.kernels import choice
from cupydrive.algorithms.kernels.arithmetic import TENSOR, WIDE
from cupydrive.algorithms.kernels.choice import make_learner, tensor_arithmetic, why_not
from cupydrive.algorithms.kernels.layout import NetworkLayout, tensors_of
from cupydrive.algorithms.kernels.learner import KernelLearner, fill_initial, orthogonal
from cupydrive.codegen.source import assemble_file
from cupydrive.errors import DeviceError, ParameterError
from cupydrive.executors.host import HostExecutor, HostProgram
from cupydrive.executors.joined import OnlyViews
from cupydrive.playing.policy import ActorCritic, make_distribution
from cupydrive.random import RandomStream, unit
from cupydrive.training.begin import make_run
from cupydrive.training.suggestions import suggested_algorithm

# What is asked of a GPU: of an A100 with 163 KiB in a block, and of an sm_86 with 99.
GPUS = [
    SimpleNamespace(
        name="cuda", device=SimpleNamespace(compute_capability=version), team_bytes=kib * 1024
    )
    for version, kib in (("80", 163), ("86", 99))
]


def train(env, settings, steps=2000, **options):
    return cd.train(env, settings, steps=steps, device="cpu", progress=False, **options)


@pytest.mark.optimised
# Of the recorded runs `make test` compiles one, and `make test-full` another.
@pytest.mark.parametrize(
    "name",
    [
        name if k in (0, 2) else pytest.param(name, marks=pytest.mark.slow)
        for k, name in enumerate(WEIGHTS)
    ],
)
def test_any_number_of_threads_gives_the_recorded_weights(name, monkeypatch):
    env, settings, options = WEIGHTS[name]
    for threads in (1, 3):
        monkeypatch.setenv("CUPYDRIVE_THREADS", str(threads))
        run = cd.train(env, settings, **options, device="cpu", **QUIET)
        assert all(isinstance(learner, KernelLearner) for learner in run.learners.values())
        # what users get
        assert run.batch.executor.threads == threads and "-O3" in run.batch.executor.flags
        assert digest(run) == recorded()[name]


def test_threads_are_a_whole_number(monkeypatch):
    for wrong in ("0", "-1", "two", "1.5", " 2", "1025", "9" * 5000):
        monkeypatch.setenv("CUPYDRIVE_THREADS", wrong)
        with pytest.raises(
            DeviceError, match=r"CUPYDRIVE_THREADS = .{,100}, expected (an int|1 to 1024)"
        ):
            HostExecutor()
    monkeypatch.setenv("CUPYDRIVE_THREADS", "1024")
    assert HostExecutor().threads == 1024
    assert HostExecutor(threads=2).threads == 2  # an argument says more than the environment


def test_levels_of_optimisation_are_the_compilers(monkeypatch):
    for wrong in ("4", "-1", "fast", " 1", "-O2"):
        monkeypatch.setenv("CUPYDRIVE_OPTIMIZE", wrong)
        with pytest.raises(
            DeviceError, match=f"CUPYDRIVE_OPTIMIZE = '{wrong}', expected '0', '1', '2' or '3'"
        ):
            HostExecutor()
    for unset in (
        lambda: monkeypatch.setenv("CUPYDRIVE_OPTIMIZE", ""),
        lambda: monkeypatch.delenv("CUPYDRIVE_OPTIMIZE"),
    ):
        unset()
        assert "-O3" in HostExecutor().flags and "-O1" in HostExecutor(debug=True).flags


@pytest.mark.parametrize("name", envs.names())
def test_what_environments_suggest_learns_by_kernels(name):
    spec = envs.get(name)
    for algorithm in ("ppo", "a2c"):
        for group in spec.groups(spec.make_params()):
            settings = suggested_algorithm(name, algorithm)
            assert why_not(settings, group, HostExecutor()) is None
            size = make_distribution(group, settings.distribution).size
            for gpu in GPUS:
                assert (
                    tensor_arithmetic(NetworkLayout.of(settings, group.obs_dim, size), gpu)[0]
                    is not None
                )


@pytest.mark.parametrize(
    ("hidden", "way"),
    [((64, 64), TENSOR), ((256, 256), WIDE), ((256, 256, 256), WIDE), ((8192,), None)],
)
def test_matrix_units_take_networks_by_their_size(hidden, way):
    layout = NetworkLayout.of(cd.PPO(hidden=hidden), 76, 22)
    found, reason = tensor_arithmetic(layout, GPUS[0])
    assert found is way and (
        way is not None or re.search(r"16 rows of its layers .* need [\d,]+ bytes", reason)
    )
    assert (
        tensor_arithmetic(
            layout, SimpleNamespace(name="cuda", device=SimpleNamespace(compute_capability="75"))
        )[0]
        is None
    )


@pytest.mark.full
def test_wide_networks_go_on_from_restored_weights(monkeypatch):
    """What kernels read of the weights follows whoever writes them."""
    monkeypatch.setattr(choice, "EXACT", WIDE)  # a CPU has these kernels for tests alone
    run = make_run(
        "cartpole",
        cd.PPO(num_steps=8, hidden=(24, 16)),
        num_envs=6,
        seed=1,
        device="cpu",
        backend="kernels",
    )
    assert (
        all(learner.arithmetic is WIDE for learner in run.learners.values())
        and run.rollout.play is None
    )
    kept = run.snapshot()
    found = []
    for _ in range(2):
        run.restore(kept)
        for _ in range(2):
            run.iterate()
        found.append(digest(run))
    assert found[0] == found[1]


REFUSED = {
    "its network is one of your own": cd.PPO(policy=torch.nn.Identity),
    "activation = 'silu'": cd.PPO(activation="silu"),
    "no tensor cores": cd.A2C(precision="bfloat16"),
    "compile = True": cd.PPO(compile=True),
    "LSTM.size=16. has no kernels": cd.PPO(network=cd.Network(core=cd.LSTM(16))),
    "too wide": cd.PPO(hidden=(20_000,)),
    "too wide for kernels": cd.PPO(hidden=(20_000,) * 4),
    "DDPG has no kernels": cd.DDPG(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_kernels_cannot_do_learns_by_torch_and_says_why(reason):
    settings = REFUSED[reason]
    env = "pendulum" if isinstance(settings, cd.DDPG) else "cartpole"
    group = cd.make(env, num_envs=1, device="cpu").batch.groups[0]
    learner, why = make_learner("cart", settings, group, HostExecutor())
    assert (
        not isinstance(learner, KernelLearner)
        and re.search(reason, why)
        and why.startswith("policy 'cart' learns by torch: ")
    )
    with pytest.raises(
        ParameterError, match=f"backend='kernels', but kernels do not apply: .*{reason}"
    ):
        make_learner("cart", settings, group, HostExecutor(), "kernels")


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="every other processor has it"
)
def test_a_processor_without_fused_multiply_add_learns_by_torch():
    group = cd.make("cartpole", num_envs=1, device="cpu").batch.groups[0]
    slow = HostExecutor(flags=("-mno-fma", "-mno-avx512f"))
    assert why_not(cd.PPO(), group, slow) == "this processor has no fused multiply-add"
    assert why_not(cd.PPO(), group, HostExecutor()) is None
    with pytest.raises(
        ParameterError, match="backend='kernels', but kernels do not apply: this processor"
    ):
        make_learner("cart", cd.PPO(), group, slow, "kernels")


def test_checkpoints_go_from_one_learner_to_the_other(tmp_path):
    """After one more iteration the two have weights that differ by rounding alone."""
    settings = cd.PPO(num_steps=8, num_minibatches=1, update_epochs=1)
    for how, other in (("kernels", "torch"), ("torch", "kernels")):
        folder = tmp_path / how
        run = train("cartpole", settings, num_envs=16, steps=1000, backend=how, out=folder)
        kept = run.snapshot()
        next_run = make_run("cartpole", settings, num_envs=16, device="cpu", backend=other)
        assert set(next_run.tensors()) == set(run.tensors())
        next_run.restore(kept)
        before = [p.clone() for p in run.policies["cart"].parameters()]
        run.iterate()
        next_run.iterate()
        pairs = zip(
            before,
            run.policies["cart"].parameters(),
            next_run.policies["cart"].parameters(),
            strict=True,
        )
        for was, mine, theirs in pairs:
            moved = (mine - was).abs().max()
            assert moved > 0
            assert (mine - theirs).abs().max() <= 1e-3 * moved


# Three steps on all rows: a minibatch of some would be of other rows, and after the first step
# ratios and values are clipped.
WHOLE = dict(num_steps=8, num_minibatches=1, update_epochs=3, learning_rate=0.02)
SCALED = dict(normalize_obs=True, normalize_reward=True)
TAG = dict(env="tag_grid", grid_length=6, num_taggers=2, max_episode_steps=20)
COMPARED = {
    "PPO": (cd.PPO(**WHOLE, norm_adv=False), TAG),
    "values clipped": (cd.PPO(**WHOLE, clip_vloss=True), TAG),
    "scaled, agents leave": (cd.PPO(**WHOLE, **SCALED, clip_vloss=True), dict(env="everything")),
    "A2C": (cd.A2C(num_steps=8, learning_rate=0.02), dict(env="pendulum")),
    "PQN": (cd.PQN(**WHOLE, hidden=(20,)), dict(env="cartpole", max_episode_steps=12)),
    "PQN, scaled, agents leave": (
        cd.PQN(**WHOLE, normalize_reward=True, epsilon=0.5),
        dict(env="connect_four"),
    ),
    "A2C, scaled, agents leave": (
        cd.A2C(num_steps=8, norm_adv=True, **SCALED),
        dict(env="everything"),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", COMPARED)
def test_both_learners_report_the_same_losses(name):
    """Of the same minibatches from the same weights: of the first ones, and after two iterations of
    the kernels.
    """
    settings, about = COMPARED[name]
    env, params = about["env"], {key: value for key, value in about.items() if key != "env"}
    if env == "everything":
        env = envs.register(everything.PYTHON.replace("TIME_LIMIT", "truncates"), everything.KERNEL)
    runs = [
        make_run(env, settings, num_envs=32, device="cpu", backend=how, **params)
        for how in ("kernels", "torch")
    ]
    for iterations in (0, 2):
        for _ in range(iterations):
            runs[0].iterate()
        kept = runs[0].snapshot()
        kept |= {
            key: torch.zeros_like(sums) for key, sums in kept.items() if key.endswith("metric_sums")
        }
        for run in runs:
            run.restore(kept)
            cd.train(run, steps=run.steps_per_iteration, progress=False)
        mine, theirs = (
            {k: v for k, v in run.metrics[-1].items() if k.startswith("losses/")} for run in runs
        )
        assert set(mine) == set(theirs) and len(mine) == sum(
            len(one.reported) for one in runs[0].learners.values()
        )
        for key, value in mine.items():
            assert value == pytest.approx(theirs[key], rel=2e-5, abs=2e-6), key


def test_an_iteration_is_these_launches_and_nothing_of_torchs(monkeypatch):
    run = make_run(
        "cartpole",
        cd.PPO(num_steps=4, update_epochs=3, num_minibatches=2),
        num_envs=8,
        device="cpu",
    )
    launched, real = Counter(), HostProgram.launch

    def launch(self, name, *about):
        launched[name] += 1
        real(self, name, *about)

    monkeypatch.setattr(HostProgram, "launch", launch)
    with OnlyViews():
        run.iterate()
    collecting = {
        "carry": 1,
        "pack": 1,
        "forward_rows": 4,
        "env_step": 4,
        "look_for_nonfinite": 1,
    }
    # of the last row, and of the final ones
    estimating = {"truncations": 1, "forward_rows": 2, "advantages": 1}
    drawing = dict.fromkeys(("arrange", "mean", "squared_deviations", "deviation"), 1)
    learning = dict.fromkeys(("gradient", "reduce", "update"), 3 * 2)
    parts = (
        collecting,
        estimating,
        drawing,
        learning,
        {"take_in_episodes": 1, "count_iteration": 1},
    )
    assert launched == sum(map(Counter, parts), Counter())


@pytest.mark.full
def test_a_run_folder_says_which_learner_it_is_of(tmp_path):
    settings = cd.PPO(num_steps=8)
    run = train("cartpole", settings, num_envs=16, steps=1000, backend="torch", out=tmp_path)
    assert run.backends == {
        "cart": "policy 'cart' learns by torch: backend = 'torch'",
        "all rollouts": "rollouts are launched step by step: kernels that learn do not play cart",
    }
    assert all(line in repr(run) for line in run.backends.values())
    again = cd.load(tmp_path)
    assert again.backend == "torch" and not isinstance(again.learners["cart"], KernelLearner)


# ---- initial weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_initial_weights_are_orthogonal_with_the_gains_of_torchs(shared):
    policy = ActorCritic((5,), 7, Network(hidden=(40, 24), shared=shared))
    fill_initial(policy, 3, 2)
    layers = tensors_of(policy)
    assert all((bias == 0).all() for bias in layers[1::2])
    found = [w for w in layers[::2]]
    root = 2**0.5
    if shared:
        found = [*found[:-1], found[-1][:7], found[-1][7:]]
        gains = [root, root, 0.01, 1.0]
    else:
        gains = [root, root, 0.01, root, root, 1.0]
    for w, gain in zip(found, gains, strict=True):
        w = w.detach().double() / gain
        product = w @ w.T if len(w) <= w.shape[1] else w.T @ w
        assert (product - torch.eye(len(product))).abs().max() < 5e-7


def test_one_vector_is_the_normal_numbers_of_its_agent_layer_and_part():
    """By Box and Muller from NumPy's Philox, in float64; the counter's first word counts fours of
    them.
    """
    program, weights_purpose = HostExecutor().build(assemble_file("learn/initial")), 5
    agent, layer, part = 3, 2, 1
    found = orthogonal(program, (1, 6), 0.5, 7, (agent, layer, part))[0].numpy()
    stream = RandomStream(7, np.arange(2), 0, layer, weights_purpose)
    words = unit(stream.bits(1, draw=part, first_agent=agent)[:, 0]).astype(np.float64)  # (2, 4)
    radius, turn = np.sqrt(-2 * np.log(1 - words[:, ::2])), 2 * np.pi * words[:, 1::2]
    normal = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=-1).reshape(-1)[:6]
    assert np.allclose(found, 0.5 * normal / np.linalg.norm(normal), rtol=1e-6, atol=1e-7)


# ---- weights that must not change ----------------------------------------------------------------


@pytest.mark.quick(5)
@pytest.mark.gpu
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_gpu_has_the_weights_of_a_cpu(name):
    env, settings, options = WEIGHTS[name]
    settings = replace(settings, precision="float32")
    assert digest(cd.train(env, settings, **options, device="cuda", **QUIET)) == recorded()[name]


@pytest.mark.full
def test_nothing_of_torchs_optimisers_or_compiler_is_loaded():
    program = (
        "import sys, cupydrive as cd\n"
        "cd.train('cartpole', cd.PPO(num_steps=8), num_envs=16, steps=500, device='cpu', progress=False)\n"
        "print([m for m in sys.modules if m.startswith(('torch._dynamo', 'torch._inductor', 'sympy'))])"
    )
    done = run_python("-c", program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_more_rows_than_kernels_can_number_are_refused(monkeypatch):
    monkeypatch.setattr("cupydrive.algorithms.kernels.learner.MOST_ROWS", 127)
    with pytest.raises(
        ParameterError, match=r"num_envs = 16 and num_steps = 8 give 128 rows .* at most 127"
    ):
        train("cartpole", cd.PPO(num_steps=8), num_envs=16)
