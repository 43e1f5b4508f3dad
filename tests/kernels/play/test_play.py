"""Rollouts in one launch (``env_play``) leave the bytes of rollouts by a launch for each forward
pass, draw and step.
"""

from dataclasses import replace

import archers
import masked
import numpy as np
import pytest
import torch
from walled import walled

import cupydrive as cd
from cupydrive.algorithms.kernels import choice
from cupydrive.algorithms.kernels.arithmetic import TENSOR
from cupydrive.algorithms.kernels.layerwise_tensor import LAYERWISE_TENSOR
from cupydrive.algorithms.kernels.play import Play, make_play, play_layout, play_unit, policies_of
from cupydrive.codegen.layout import PlayLayout
from cupydrive.executors.host import HostExecutor
from cupydrive.training.begin import make_run

# Of more heads than one draw of random words has; those added are not masked, and nothing comes of
# them.
FIVE_HEADS = masked.PYTHON.replace("[3, 2]", "[3, 2, 2, 3, 4]").replace('"masked"', '"five_heads"')
# Of the first head only.
ONE_HEAD = masked.PYTHON.replace("MultiDiscrete([3, 2])", "Discrete(3)").replace(
    '"masked"', '"one_head"'
)
ONE_HEAD_KERNEL = "\n".join(
    line.replace("env.walker.action(i, 1)", "0")
    for line in masked.KERNEL.splitlines()
    if ", 1) = place" not in line
)
FEW = {"max_episode_steps": 6, "num_taggers": 2, "num_runners": 3, "num_other_agents_observed": 2}
CASES = {  # environment, settings by policy, copies, parameters
    "episodes end": ("cartpole", cd.PPO(num_steps=24), 12, {}),
    "time limits, three layers": (
        "cartpole",
        cd.PPO(num_steps=8, hidden=(33, 17, 5), shared_layers=True, activation="relu"),
        8,
        {"max_episode_steps": 5},
    ),
    "warp sets of whole warps": (
        "cartpole",
        cd.PPO(num_steps=4, hidden=(40,)),
        64,
        {"max_episode_steps": 3},
    ),
    "no hidden layer": ("cartpole", cd.A2C(num_steps=8, hidden=()), 5, {}),
    "squashed, normalised": (
        "pendulum",
        cd.PPO(num_steps=8, distribution="squashed", normalize_obs=True, normalize_reward=True),
        5,
        {"max_episode_steps": 6},
    ),
    "Gaussian, wide": ("pendulum", cd.A2C(num_steps=8, hidden=(130,)), 3, {}),
    "five heads, masks": ("five_heads", cd.A2C(num_steps=8, hidden=(16,)), 6, {}),
    "mixed actions": ("archers", cd.PPO(num_steps=8, hidden=(16,)), 6, {}),
    "mixed actions, squashed, masks": (
        "archers",
        cd.A2C(num_steps=8, hidden=(16,), distribution="squashed"),
        3,
        {"masked": True},
    ),
    "two policies": ("tag_grid", cd.A2C(num_steps=8, hidden=(20, 16)), 6, {"max_episode_steps": 5}),
    "two policies, normalised": (
        "tag_grid",
        cd.A2C(num_steps=8, hidden=(8,), normalize_obs=True),
        3,
        {"max_episode_steps": 5},
    ),
    "agents leave": ("tag_continuous", cd.A2C(num_steps=8, hidden=(24,)), 5, FEW),
    "one policy, two groups": (
        "tag_continuous",
        {"tagger+runner": cd.PPO(num_steps=8, num_minibatches=2, hidden=(16,))},
        4,
        FEW,
    ),
}
STATEFUL = {  # likewise, of policies with hidden state
    "MinGRU, episodes truncated": (
        "cartpole",
        cd.PPO(
            num_steps=24,
            network=cd.Network(
                hidden=(32,), core=cd.MinGRU(32, layers=1), activation="relu", shared=True
            ),
        ),
        8,
        {"max_episode_steps": 9},
    ),
    "MinGRU, two layers, two towers": (
        "tag_grid",
        cd.A2C(num_steps=8, network=cd.Network(hidden=(20, 16), core=cd.MinGRU(16))),
        6,
        {"max_episode_steps": 5},
    ),
    "GRU, normalised": (
        "pendulum",
        cd.PPO(num_steps=8, normalize_obs=True, network=cd.Network(hidden=(33,), core=cd.GRU(16))),
        4,
        {"max_episode_steps": 6},
    ),
    "GRU, no hidden layer, two groups": (
        "tag_continuous",
        {
            "tagger+runner": cd.PPO(
                num_steps=8,
                num_minibatches=2,
                network=cd.Network(hidden=(), core=cd.GRU(16), shared=True),
            )
        },
        4,
        FEW,
    ),
}
NORMED = {  # likewise, of policies that only tensor cores play in one launch
    "layer normalization": (
        "pendulum",
        cd.PPO(num_steps=8, network=cd.Network(hidden=(33, 20), layer_norm=True)),
        5,
        {"max_episode_steps": 6},
    ),
    "action values": ("cartpole", cd.PQN(num_steps=8, hidden=(72,)), 12, {"max_episode_steps": 5}),
    "action values, masks": (
        "one_head",
        cd.PQN(num_steps=8, network=cd.Network(hidden=(16,)), epsilon=0.5),
        6,
        {},
    ),
}
CASES |= STATEFUL | NORMED


# What others nearly cover is left to `make test-all`.
NEARLY_COVERED = (
    "episodes end", "warp sets of whole warps", "no hidden layer", "Gaussian, wide", "two policies",
    "two policies, normalised", "MinGRU, two layers, two towers",
)  # fmt: skip
SAMPLED = [
    pytest.param(name, marks=pytest.mark.slow) if name in NEARLY_COVERED else name
    for name in CASES
    if name not in NORMED
]


@pytest.fixture(autouse=True)
def walls(monkeypatch):
    """Arrays that fill whole pieces of 64 bytes, to which all are aligned, end at a page that
    nobody may touch.
    """
    allocate = HostExecutor.allocate

    def before_a_wall(self, shape, dtype):
        plain = allocate(self, shape, dtype)
        if plain.nbytes == 0 or plain.nbytes % 64:
            return plain
        return (
            walled(torch.from_numpy(plain.view(np.uint8).reshape(-1)))
            .numpy()
            .view(dtype)
            .reshape(shape)
        )

    monkeypatch.setattr(HostExecutor, "allocate", before_a_wall)


def made(case, device="cpu", precision="float32"):
    """Return the run of a case, before its first step."""
    env, settings, num_envs, params = CASES[case]
    cd.register(FIVE_HEADS, masked.KERNEL)
    cd.register(ONE_HEAD, ONE_HEAD_KERNEL)
    cd.register(archers.PYTHON, archers.KERNEL)
    if isinstance(settings, dict):
        how = {
            "policies": {
                name: replace(of_one, precision=precision) for name, of_one in settings.items()
            }
        }
    else:
        how = {"algorithm": replace(settings, precision=precision)}
    return make_run(
        env, **how, num_envs=num_envs, seed=3, device=device, backend="kernels", **params
    )


def sizes_of_warp_sets(run):
    """Return numbers of environments that warp sets of ``run`` may have: 1, and as many as share out
    all of them.
    """
    return sorted({1, max(k for k in (1, 2, 4, 8, 32) if run.num_envs % k == 0)})


def warp_sets_of(run, envs):
    """Return the ``Play`` of warp sets of ``envs`` environments on a GPU, some of them in a block."""
    layout = play_layout(
        run.batch, policies_of(run.batch, run.rollout.player_of), run.batch.layout.team, envs
    )
    return Play(run.rollout, replace(layout, warp_sets=4))


def threads_of(run, team):
    """Return the ``Play`` of a warp set of so many threads of this machine."""
    play = Play(run.rollout, PlayLayout())
    play.program = HostExecutor(team_threads=team).build(
        play_unit(run.batch, policies_of(run.batch, run.rollout.player_of), PlayLayout(team))
    )
    return play


def rows(run):
    """Return the bytes of all that the last rollout wrote, by name; of episodes' ends, where they
    ended.
    """
    rollout, found = run.rollout, {}
    over = rollout.terminated | rollout.truncated
    found |= {
        "terminated": rollout.terminated,
        "truncated": rollout.truncated,
        "length": rollout.episode_length[over],
    }
    found |= {name: values[over] for name, values in rollout.metrics.items()}
    for g in run.batch.groups:
        stored = rollout.player_of[g.name].stored[g.name]
        for name in ("obs", "action", "action_mask", "reward", "active", "left"):
            if g.name in getattr(rollout, name):
                found[f"{name} of {g.name}"] = getattr(rollout, name)[g.name]
        for name in ("final_obs", "episode_return"):
            if g.name in getattr(rollout, name):
                found[f"{name} of {g.name}"] = getattr(rollout, name)[g.name][over]
        found |= {
            f"{name} of {g.name}": stored[name]
            for name in ("log_prob", "value", "raw")
            if stored[name] is not None
        }
    return {name: values.cpu().numpy().tobytes() for name, values in found.items()}


def assert_alike(plain, *others, iterations=3):
    """All learn, so that each rollout begins where the one before it has ended, with other
    weights.
    """
    for _ in range(iterations):
        plain.iterate()
        want = rows(plain)
        for fused in others:
            fused.iterate()
            got = rows(fused)
            assert [name for name in want if got[name] != want[name]] == []
    if plain.params.max_episode_steps < 10:
        assert plain.rollout.truncated.any() or plain.rollout.terminated.any()
    want = plain.snapshot()
    for fused in others:
        got = fused.snapshot()
        assert [
            name for name in want if got[name].numpy().tobytes() != want[name].numpy().tobytes()
        ] == []


@pytest.mark.full
@pytest.mark.parametrize("case", SAMPLED)
def test_one_launch_has_the_bytes_of_many(case):
    plain, fused = made(case), made(case)
    assert plain.rollout.play is None
    fused.rollout.play = Play(fused.rollout, PlayLayout())
    assert_alike(plain, fused)


@pytest.mark.full
@pytest.mark.parametrize("case", [
    "time limits, three layers", pytest.param("no hidden layer", marks=pytest.mark.slow),
    pytest.param("squashed, normalised", marks=pytest.mark.slow), "two policies", *NORMED,
])  # fmt: skip
def test_so_it_has_where_products_are_those_of_matrix_units(case, monkeypatch):
    for name in ("EXACT", "LAYERWISE"):  # a CPU has these kernels for tests alone
        monkeypatch.setattr(choice, name, TENSOR)
    plain, fused = made(case), made(case)
    assert all(learner.arithmetic is TENSOR for learner in plain.learners.values())
    fused.rollout.play = Play(fused.rollout, PlayLayout())
    assert_alike(plain, fused)


@pytest.mark.full
def test_values_of_final_observations_have_no_mask(monkeypatch):
    """They are the largest of all action values, within the rounding to bfloat16. With the mask of
    another row some would be smaller.
    """
    monkeypatch.setattr(choice, "LAYERWISE", TENSOR)
    run = made("action values, masks")
    run.iterate()
    run.iterate()
    rollout, (learner,), (g,) = run.rollout, run.learners.values(), run.batch.groups
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # values that differ
        for p in learner.policy.parameters():
            p.add_(torch.randn(p.shape, generator=generator))
        rollout.collect()
        learner.estimate(rollout)
    stored = learner.stored[g.name]
    (at,), (found,) = stored["truncated_at"], stored["final_value"]
    envs = torch.arange(run.num_envs)
    truncated = rollout.truncated[at, envs]
    with torch.no_grad():
        values = learner.policy(rollout.final_obs[g.name][at, envs].flatten(0, 1))[0]
    values = values.unflatten(0, found.shape)[truncated]
    masked = values.where(rollout.mask(g, -1)[truncated], -torch.inf).amax(-1)
    bound = learner.tolerance * (1 + values.abs().amax(-1))
    assert ((found[truncated] - values.amax(-1)).abs() <= bound).all()
    assert (values.amax(-1) - masked > bound).any()


@pytest.mark.full
@pytest.mark.parametrize(
    ("case", "team", "tensor"),
    [
        ("two policies", 2, False),
        ("one policy, two groups", 16, False),  # whose threads have two rows at once, of five
        ("five heads, masks", 4, False),
        ("time limits, three layers", 4, True),
        ("GRU, no hidden layer, two groups", 16, False),
        pytest.param("MinGRU, two layers, two towers", 8, False, marks=pytest.mark.slow),
        pytest.param("episodes end", 4, False, marks=pytest.mark.slow),
        pytest.param("two policies", 32, False, marks=pytest.mark.slow),
        pytest.param("two policies", 32, True, marks=pytest.mark.slow),
        # members see by what others load
        pytest.param("two policies, normalised", 4, True, marks=pytest.mark.slow),
    ],
)
def test_a_warp_set_of_threads_has_the_bytes_of_one(case, team, tensor, monkeypatch):
    if tensor:
        monkeypatch.setattr(choice, "EXACT", TENSOR)
    plain, fused = made(case), made(case)
    fused.rollout.play = threads_of(fused, team)
    assert_alike(plain, fused, iterations=2)


@pytest.mark.full
@pytest.mark.parametrize("case", [
    name if name == "MinGRU, episodes truncated" else pytest.param(name, marks=pytest.mark.slow)
    for name in STATEFUL
])  # fmt: skip
def test_hidden_state_on_tensor_cores_is_that_of_learning(case, monkeypatch):
    """Within the tolerance of ``check_policy``, and for a warp set of threads to the bit what it is for
    one.
    """
    monkeypatch.setattr(choice, "LAYERWISE", LAYERWISE_TENSOR)
    one, warp_set = made(case), made(case)
    one.rollout.play = Play(one.rollout, PlayLayout())
    warp_set.rollout.play = threads_of(warp_set, 16)
    assert_alike(one, warp_set, iterations=2)
    one.rollout.collect()
    for learner in one.learners.values():
        learner.estimate(one.rollout)  # decides which rows are learnt from
        learnt = learner.replayed(one.rollout)
        for g in learner.groups:
            stored = [learner.stored[g.name]["log_prob"], learner.stored[g.name]["value"][:-1]]
            found = [
                (a - b).abs() / (1 + b.abs()) for a, b in zip(stored, learnt[g.name], strict=True)
            ]
            # A GRU's products are not rounded before they are added, as a library's are.
            gru = isinstance(learner.config.architecture.core, cd.GRU)
            assert torch.stack(found).nan_to_num().max() <= (learner.tolerance if gru else 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("case", [
    "MinGRU, episodes truncated", pytest.param("GRU, normalised", marks=pytest.mark.slow),
    pytest.param("MinGRU, two layers, two towers", marks=pytest.mark.slow),
])  # fmt: skip
def test_hidden_state_has_the_same_bits_where_learners_store_it(case, monkeypatch):
    monkeypatch.setattr(choice, "LAYERWISE", LAYERWISE_TENSOR)
    near, far = made(case), made(case)
    near.rollout.play = Play(near.rollout, PlayLayout())
    far.rollout.play = Play(far.rollout, PlayLayout(hidden_in_shared=False))
    assert_alike(near, far)


@pytest.mark.full
@pytest.mark.parametrize("case", [
    "MinGRU, episodes truncated", pytest.param("five heads, masks", marks=pytest.mark.slow)
])  # fmt: skip
def test_launches_of_single_steps_have_the_bytes_of_one(case):
    one, many = made(case), made(case)
    for run in (one, many):
        run.rollout.play = Play(run.rollout, PlayLayout())
    seen: list[int] = []
    many.rollout.on_step = seen.append
    assert_alike(one, many, iterations=2)
    assert seen == 2 * list(range(many.rollout.steps))


def test_a_cpu_takes_the_plain_path_and_says_so():
    run = made("episodes end")
    line = "rollouts are launched step by step: a CPU is faster where one launch computes the rows of all environments"
    assert make_play(run.rollout) == (None, line) and line in repr(run)


def test_a_warp_set_is_some_warps_or_one_larger_team():
    assert (
        PlayLayout(1, 16, warp_sets=4).threads == 128
        and PlayLayout(1, 16, warp_sets=4).block_envs == 64
    )
    assert PlayLayout(64).threads == 64 and PlayLayout(8, 2, warp_sets=3, warps=4).threads == 384


@pytest.mark.quick(3)
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("case", "precision"),
    [
        (name, precision)
        for name in CASES
        for precision in ("float32", "bfloat16")
        if precision == "bfloat16" or name not in NORMED
    ],
)
def test_a_gpu_plays_in_one_launch_with_the_bytes_of_many(case, precision):
    """Warp sets of one environment, and of as many as share out all of them; of the blocks the last one
    is not full. With hidden state tensor cores give other bits in many launches.
    """
    plain = made(case, "cuda", precision)
    assert plain.rollout.play is not None
    alone = case in STATEFUL and precision == "bfloat16"
    plain.rollout.play = warp_sets_of(plain, 1) if alone else None
    runs = {envs: made(case, "cuda", precision) for envs in sizes_of_warp_sets(plain)}
    for envs, run in runs.items():
        run.rollout.play = warp_sets_of(run, envs)
    assert_alike(plain, *runs.values())
