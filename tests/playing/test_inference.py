"""Inference: what a run does with observations outside of training is what evaluate plays, in every
form it is handed out.
"""

from dataclasses import replace

import archers
import numpy as np
import pytest
import torch
from conftest import optional
from gymnasium.spaces import Discrete
from masked import KERNEL, PYTHON
from networks import Joint, Recurrent
from training_kernels import categorical, clocks, sample

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import ParameterError, SpecError, TrainingError
from cupydrive.playing.inference import AS_LIKELY, DiscretePolicy
from cupydrive.spec import Group

# nothing to compile for each network
QUIET = {"device": "cpu", "progress": False, "num_envs": 8, "backend": "torch"}
SMALL = {"num_steps": 8, "hidden": (16,), "normalize_obs": True}
KINDS = {
    "categorical": ("tag_grid", dict(algorithm=cd.A2C(**SMALL), grid_length=6)),
    "shared": ("tag_grid", dict(policies={"tagger+runner": cd.PPO(**SMALL)}, grid_length=6)),
    "heads": (
        "tag_continuous",
        dict(policies={"tagger": cd.PPO(**SMALL), "runner": cd.HeuristicPolicy()}),
    ),
    "gaussian": ("pendulum", dict(algorithm=cd.PPO(**SMALL))),
    "squashed": ("pendulum", dict(algorithm=cd.PPO(distribution="squashed", **SMALL))),
    "mixed": ("archers", dict(algorithm=cd.PPO(distribution="squashed", **SMALL))),
    "ddpg": ("pendulum", dict(algorithm=cd.DDPG(learning_starts=100, batch_size=32, **SMALL))),
}
_runs = {}


@pytest.fixture(autouse=True)
def registered():
    cd.register(archers.PYTHON, archers.KERNEL)


def trained(kind):
    """Return a short run, made once; its networks' outputs are enlarged so that actions reach the
    bounds.
    """
    if kind not in _runs:
        name, options = KINDS[kind]
        run = _runs[kind] = cd.train(name, steps=10 * 8 * 8, seed=3, **QUIET, **options)
        with torch.no_grad():
            for policy in run.policies.values():
                for p in policy.parameters():
                    p *= 3.0
    return _runs[kind]


def played(run, episodes=6):
    """Return observations and actions by group of the greedy episodes that ``evaluate`` plays."""
    recording = run.evaluate(episodes=episodes, seed=1).recording
    env = cd.make(run.spec.name, episodes, device="cpu", validate=False, **vars(run.params))
    obs, _ = env.reset(seed=1)
    found = {g.name: ([], []) for g in env.groups}
    for t in range(int(recording.length.max())):
        going = torch.from_numpy(t < recording.length)
        actions = {}
        for g in env.groups:
            rows = (obs if len(env.groups) == 1 else obs[g.name]).reshape(
                episodes, g.count, g.obs_dim
            )
            dtype = torch.float32 if g.continuous else torch.int32
            action = torch.from_numpy(recording.action[g.name][t]).to(dtype)
            actions[g.name] = action if g.continuous or g.heads > 1 else action[..., 0]
            if g.continuous:  # the kernel reads them as the nearest within the bounds
                action = action.clamp(*map(torch.from_numpy, g.action_bounds))
            found[g.name][0].append(rows[going].clone())
            found[g.name][1].append(
                (action if g.continuous or g.heads > 1 else action[..., 0])[going]
            )
        given = actions if len(env.groups) > 1 else next(iter(actions.values()))
        alone = len(env.groups) == 1 and env.groups[0].count == 1
        obs = env.step(given[:, 0] if alone else given)[0]
    return {name: (torch.cat(rows), torch.cat(taken)) for name, (rows, taken) in found.items()}


def assert_same(found, taken):
    """Discrete actions are equal; those of a Box differ by rounding alone: tanh of kernel and
    torch, sums of other batches.
    """
    assert found.shape == taken.shape and found.dtype == taken.dtype
    if taken.dtype == torch.int32:
        assert torch.equal(found, taken)
    else:
        torch.testing.assert_close(found, taken, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_act_and_policy_take_the_actions_that_evaluate_plays(kind):
    run = trained(kind)
    for name, (obs, taken) in played(run).items():
        many = len(run.batch.groups) > 1
        found = run.act({name: obs} if many else obs)
        assert_same(found[name] if many else found, taken)
        module = run.policy(name)
        assert_same(module(obs), taken)
        rows = obs.view(-1, obs.shape[-1])
        assert_same(module(rows[0]), taken.reshape(len(rows), *taken.shape[2:])[0])
        assert len(taken.unique(dim=0)) > 1


def needed_for_onnx():
    """Return onnxruntime; skip where it, or what writes such files, is not installed."""
    return [optional(name) for name in ("onnx", "onnxscript", "onnxruntime")][-1]


@pytest.mark.full
@pytest.mark.parametrize(
    "kind", ["heads", "squashed", "mixed", pytest.param("ddpg", marks=pytest.mark.slow)]
)
def test_torch_export_trace_and_onnx_give_the_same_actions(kind, tmp_path):
    onnxruntime = needed_for_onnx()
    run = trained(kind)
    name = "tagger" if "tag" in run.spec.name else None
    module = run.policy(name)
    obs, taken = played(run)[name or run.batch.groups[0].name]
    obs, taken = obs.view(-1, obs.shape[-1]), taken.reshape(-1, *taken.shape[2:])
    path = run.export(tmp_path / "policy.onnx", group=name)
    session = onnxruntime.InferenceSession(path)
    assert [x.name for x in session.get_inputs()] == ["obs"] and [
        x.name for x in session.get_outputs()
    ] == ["action"]
    found = torch.from_numpy(session.run(None, {"obs": obs.numpy()})[0])
    # of two choices that differ by rounding, either one is the likeliest
    if found.dtype == torch.int32:
        for h, logits in enumerate(module.parameters_of(obs, None)[0].split(module.sizes, dim=1)):
            chosen = [actions.view(len(obs), -1)[:, h : h + 1].long() for actions in (found, taken)]
            torch.testing.assert_close(
                *(logits.gather(1, choice) for choice in chosen), rtol=1e-6, atol=1e-7
            )
        assert (found == taken).double().mean() > 0.999
    else:
        assert_same(found, taken)
    assert_same(torch.from_numpy(session.run(None, {"obs": obs[:1].numpy()})[0]), taken[:1])
    exported = torch.export.export(
        module, (obs[:2],), dynamic_shapes={"obs": {0: torch.export.Dim("batch")}}
    )
    assert_same(exported.module()(obs), taken)


@pytest.mark.full
def test_an_exported_policy_obeys_masks(tmp_path):
    onnxruntime = needed_for_onnx()
    cd.register(PYTHON, KERNEL)
    run = cd.train("masked", cd.PPO(num_steps=8), steps=64, **QUIET)
    obs, mask = torch.rand(200, 1), torch.rand(200, 5) < 0.5
    session = onnxruntime.InferenceSession(run.export(tmp_path / "masked.onnx"))
    (found,) = session.run(None, {"obs": obs.numpy(), "mask": mask.numpy()})
    assert np.array_equal(found, run.act(obs, mask=mask).numpy())
    assert not np.array_equal(found, run.act(obs, mask=torch.ones_like(mask)).numpy())


def test_jit_trace_accepts_a_policy():
    module = trained("categorical").policy("tagger")
    obs = torch.randn(50, *module.obs_shape)
    with pytest.warns(DeprecationWarning):  # torch's own of trace
        traced = torch.jit.trace(module, obs[:3])
    assert torch.equal(traced(obs), module(obs))


def test_the_networks_alone_are_not_normalised_and_act_is():
    run = trained("gaussian")
    obs, taken = played(run)["pole"]
    alone = run.policies["pole"](obs[:, 0])[0][:, :1].clamp(-2, 2)
    assert not torch.allclose(alone, taken[:, 0], atol=1e-2)


@pytest.mark.full
def test_a_policy_is_a_copy_and_act_is_of_this_moment():
    run = cd.train("pendulum", cd.PPO(**SMALL), steps=64, **QUIET)
    obs = torch.randn(20, 3)
    module, before = run.policy(), run.act(obs)
    cd.train(run, steps=640, progress=False)
    assert torch.equal(module(obs), before) and not torch.equal(run.act(obs), before)
    module.double()
    assert all(p.dtype == torch.float32 for p in run.policies["pole"].parameters())


def test_leading_dimensions_numpy_and_half_precision():
    run = trained("heads")
    d = run.batch.groups[0].obs_dim
    obs = torch.randn(2, 3, 5, d).bfloat16().float()
    action = run.act({"tagger": obs})["tagger"]
    assert action.shape == (2, 3, 5, 2) and action.dtype == torch.int32
    array = run.act({"tagger": np.asfortranarray(obs.double().numpy()).astype(">f8")})["tagger"]
    assert (
        isinstance(array, np.ndarray)
        and array.dtype == np.int32
        and np.array_equal(array, action.numpy())
    )
    assert torch.equal(run.act({"tagger": obs.bfloat16()})["tagger"], action)
    assert run.act({"tagger": obs[:0]})["tagger"].shape == (0, 3, 5, 2)
    env = cd.make("tag_continuous", 4, device="cpu")
    obs, _ = env.reset(seed=0)
    env.step(run.act(obs))  # taken as they are, the heuristic's too


def test_random_actions_follow_the_distribution_and_the_generator():
    run = trained("categorical")
    d = run.batch.groups[0].obs_dim
    obs = {"tagger": torch.zeros(20_000, d)}
    one, same, other = (
        run.act(obs, greedy=False, generator=torch.Generator().manual_seed(seed))["tagger"]
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    learner = run.learners["tagger"]
    with torch.no_grad():
        expected = torch.softmax(learner.policy(learner.normalized(obs["tagger"][:1]))[0][0], 0)
    shares = torch.bincount(one.long(), minlength=5) / len(one)
    assert (shares - expected).abs().max() < 0.02  # 5 standard errors
    box = trained("gaussian").act(torch.zeros(1000, 3), greedy=False)
    assert box.min() >= -2 and box.max() <= 2 and box.std() > 0.1


def test_masked_choices_are_never_taken_and_a_head_that_allows_nothing_is_not_masked():
    run = trained("categorical")
    d = run.batch.groups[0].obs_dim
    obs = torch.randn(500, d)
    mask = torch.rand(500, 5) < 0.4
    free = run.act({"tagger": obs})["tagger"]
    for greedy in (True, False):
        action = run.act({"tagger": obs}, mask={"tagger": mask}, greedy=greedy)["tagger"]
        allowed = mask.gather(1, action.long()[:, None])[:, 0]
        assert (allowed | ~mask.any(1)).all()
        if greedy:
            assert torch.equal(action[~mask.any(1)], free[~mask.any(1)])


@pytest.fixture(scope="module")
def masked_run():
    cd.register(PYTHON, KERNEL)
    return cd.train("masked", cd.PPO(num_steps=8), steps=64, walkers=1, **QUIET)


def test_masks_are_taken_in_every_form_that_is_handed_out(masked_run):
    from cupydrive.gymnasium import Env, VectorEnv

    run, name = masked_run, "walker"
    env = cd.make(run.spec, 4, device="cpu", walkers=1)
    obs, info = env.reset(seed=0)
    mask = info["action_mask"][name]  # (4, 1, 5) bool, beside observations (4, 1)
    want = run.act(obs, mask=mask[:, 0])
    assert ((want[:, 0] != 0) | mask[:, 0, 0]).all()
    for form in (
        mask,
        mask[:, 0].to(torch.int8),
        mask.numpy(),
        mask[:, 0].numpy().astype(np.int8),
        info["action_mask"],
    ):
        assert torch.equal(run.act(obs, mask=form), want)
        assert np.array_equal(run.act(obs.numpy(), mask=form), want.numpy())
        if not isinstance(form, dict):
            assert torch.equal(run.act({name: obs}, mask={name: form})[name], want)
    assert torch.equal(run.policy()(obs, mask.to(torch.int8)), want)
    rolled = env.rollout(3)
    assert run.act(rolled.obs, mask=rolled.action_mask).shape == (4, 4, 2)
    for single, more in (
        (Env(run.spec, walkers=1), ()),
        (VectorEnv(run.spec, 3, device="cpu", walkers=1), (3,)),
    ):
        obs, info = single.reset(seed=0)
        taken = run.act(obs, mask=info["action_mask"])
        assert taken.shape == (*more, 2) and np.array_equal(
            taken, run.act(obs, mask=single.action_masks())
        )
        single.step(taken)


def test_masks_of_pettingzoo_by_head(masked_run):
    optional("pettingzoo")
    from cupydrive.pettingzoo import ParallelEnv

    zoo = ParallelEnv(masked_run.spec, walkers=1)
    obs, infos = zoo.reset(seed=0)
    mask = infos["walker_0"]["action_mask"]
    taken = masked_run.act(obs["walker_0"], mask=mask)
    assert len(mask) == 2 and all(
        allowed[choice] for allowed, choice in zip(mask, taken, strict=True)
    )


@pytest.mark.parametrize("greedy", [True, False])
def test_a_group_with_masks_does_not_act_without_one(masked_run, greedy):
    for call in (
        lambda: masked_run.act(torch.zeros(3, 1), greedy=greedy),
        lambda: masked_run.act({"walker": torch.zeros(3, 1)}, greedy=greedy, mask={}),
        lambda: masked_run.policy()(torch.zeros(3, 1)),
    ):
        with pytest.raises(
            ParameterError, match=r"'walker' got no action mask.*mask=info\['action_mask'\]"
        ):
            call()
    with pytest.raises(ParameterError, match=r"mask of 'walker' has shape \(3, 2, 5\)"):
        masked_run.act(torch.zeros(3, 1), mask=np.ones((3, 2, 5), bool))


@pytest.fixture(scope="module")
def recurrent_run():
    run = cd.train(
        "cartpole",
        cd.PPO(policy=Recurrent, num_steps=8, normalize_obs=True),
        steps=640,
        seed=1,
        **QUIET,
    )
    with torch.no_grad():
        run.policies["cart"].actor.weight.mul_(30.0)
    return run


@pytest.mark.full
@pytest.mark.parametrize("name", ["recurrent", "gaussian"])
def test_a_state_in_the_place_of_a_mask_is_refused(recurrent_run, name):
    module = (recurrent_run if name == "recurrent" else trained(name)).policy()
    want = r"\(\.\.\., 2\)" if name == "recurrent" else "None"
    with pytest.raises(
        ParameterError, match=rf"got mask of shape \(5, 8\), expected {want}.*state=\.\.\."
    ):
        module(torch.zeros(5, *module.obs_shape), torch.zeros(5, 8))


def test_act_and_policy_keep_the_hidden_state_as_evaluate_does(recurrent_run):
    recording = recurrent_run.evaluate(episodes=5, seed=1).recording
    module, env = recurrent_run.policy(), cd.make("cartpole", 5, device="cpu")
    obs, _ = env.reset(seed=1)
    states, over = [None, None, None], torch.zeros(5, dtype=torch.bool)
    for t in range(int(recording.length.max())):
        action, states[0] = recurrent_run.act(obs, states[0])
        array, states[1] = recurrent_run.act(obs.numpy(), states[1])
        same, states[2] = module(obs, state=states[2])
        assert (
            isinstance(states[1], np.ndarray)
            and states[0].shape == (5, 8)
            and states[0].dtype == torch.float32
        )
        assert torch.equal(action, same) and np.array_equal(array, action.numpy())
        going = torch.from_numpy(t < recording.length)
        assert torch.equal(
            action[going], torch.from_numpy(recording.action["cart"][t][:, 0, 0])[going]
        )
        obs, _, terminated, truncated, _ = env.step(action)
        over |= terminated | truncated
    assert over.all() and len(np.unique(recording.action["cart"])) == 2
    lone, state = recurrent_run.act(obs[0])
    drawn, _ = recurrent_run.act(obs[:, None], greedy=False, state=torch.zeros(5, 1, 8))
    assert lone.shape == () and state.shape == (8,) and drawn.shape == (5, 1)
    found = cd.evaluate("cartpole", {"cart": recurrent_run.frozen("cart")}, episodes=5, seed=1)
    assert np.array_equal(found.recording.length, recording.length)


def test_hidden_states_come_by_group():
    settings = {"tagger": cd.PPO(policy=Recurrent, num_steps=8), "runner": cd.HeuristicPolicy()}
    run = cd.train("tag_grid", policies=settings, steps=64, **QUIET)
    obs, _ = cd.make("tag_grid", 3, device="cpu").reset(seed=0)
    actions, states = run.act(obs)
    assert (
        actions.keys() == {"tagger", "runner"}
        and states.keys() == {"tagger"}
        and states["tagger"].shape == (3, 4, 8)
    )
    again, moved = run.act(obs, states)
    assert again.keys() == actions.keys() and not torch.equal(moved["tagger"], states["tagger"])
    assert isinstance(run.act({"runner": obs["runner"]}), dict)
    with pytest.raises(
        ParameterError, match=r"a state of 'runner', whose policy has no hidden state"
    ):
        run.act({"runner": obs["runner"]}, {"runner": torch.zeros(3, 1, 8)})
    for state, words in (
        (torch.zeros(3, 8), r"state = .* expected a dict"),
        ({"tager": 0}, "Did you mean 'tagger'"),
        (
            {"tagger": torch.zeros(3, 4, 7)},
            r"state of 'tagger' has shape \(3, 4, 7\), but its last axis must be 8",
        ),
        (
            {"tagger": torch.zeros(3, 8)},
            r"state of 'tagger' has shape \(3, 8\), expected \(3, 4, 8\)",
        ),
    ):
        with pytest.raises(ParameterError, match=words):
            run.act(obs, state)


CORES = {"gru": cd.GRU(16), "mingru": cd.MinGRU(16), "lstm": cd.LSTM(16)}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["own", *CORES])
def test_a_hidden_state_is_an_input_and_an_output_of_onnx(kind, recurrent_run, tmp_path):
    """Where ``start`` is true, the step is that of a state of zeros."""
    onnxruntime = needed_for_onnx()
    run = recurrent_run
    if kind in CORES:
        network = cd.Network(hidden=(16,), core=CORES[kind])
        run = cd.train("cartpole", cd.PPO(num_steps=8, network=network), steps=640, **QUIET)
        policy, size = run.policies["cart"], network.state_size
        with torch.no_grad():  # both actions are taken
            policy.actor.head.weight.mul_(30.0)
            mean = policy(torch.randn(64, 4), torch.randn(64, size))[0].mean(0)
            policy.actor.head.bias.sub_(mean)
    session = onnxruntime.InferenceSession(run.export(tmp_path / "recurrent.onnx"))
    inputs, outputs = session.get_inputs(), session.get_outputs()
    assert [x.name for x in inputs] == ["obs", "state", "start"]
    assert [x.name for x in outputs] == ["action", "next_state"]
    for rows in (1, 2, 64):
        obs, state = torch.randn(rows, 4), torch.randn(rows, inputs[1].shape[1])
        start = torch.arange(rows) % 2 == 1
        given = {"obs": obs.numpy(), "state": state.numpy(), "start": start.numpy()}
        action, after = session.run(None, given)
        want, moved = run.act(obs, state.masked_fill(start[:, None], 0.0))
        assert np.array_equal(action, want.numpy())
        np.testing.assert_allclose(after, moved.numpy(), rtol=1e-5, atol=1e-5)
        same, left = run.policy()(obs, state=state, start=start)
        assert torch.equal(same, want) and torch.equal(left, moved)
        assert not start.any() or not torch.equal(run.act(obs, state)[1], moved)
    assert len(np.unique(action)) == 2


@pytest.mark.full
def test_an_export_that_fixes_the_batch_is_refused(tmp_path):
    needed_for_onnx()

    class Fixed(Joint):
        def forward(self, obs):
            return super().forward(obs.view(len(obs), -1))

    run = cd.train("cartpole", cd.PPO(policy=Fixed, num_steps=8), steps=64, **QUIET)
    with pytest.raises(TrainingError, match=r"fixes the batch.*obs\.shape\[0\]"):
        run.export(tmp_path / "fixed.onnx")
    assert not list(tmp_path.iterdir())


HEURISTICS = {
    "NumPy": lambda p, obs, group: (np.zeros(np.asarray(obs).shape[:-1], int),),
    "from behind": lambda p, obs, group: (np.zeros(obs.shape[:-1], int)[::-1],),
    "big-endian": lambda p, obs, group: (np.zeros(obs.shape[:-1], ">i4"),),
    "bool in a list": lambda p, obs, group: [obs[..., 0] > 0],
}
WRONG_HEURISTICS = {
    "no tuple": lambda p, obs, group: torch.zeros(obs.shape[:-1], dtype=torch.int64),
    "too many heads": lambda p, obs, group: (obs[..., 0] > 0,) * 2,
    "floats": lambda p, obs, group: (obs[..., 0],),
    "another shape": lambda p, obs, group: (obs > 0,),
    "objects": lambda p, obs, group: (np.zeros(obs.shape[:-1], object),),
    "another device": lambda p, obs, group: (
        torch.zeros(obs.shape[:-1], dtype=torch.int64, device="meta"),
    ),
}


@pytest.mark.parametrize("name", HEURISTICS | WRONG_HEURISTICS)
def test_what_a_heuristic_returns_is_taken_or_named(name):
    spec = replace(envs.get("cartpole"), heuristic=(HEURISTICS | WRONG_HEURISTICS)[name])
    if name in HEURISTICS:
        assert cd.evaluate(spec, episodes=3).recording.length.min() > 0
        return
    words = r"heuristic of group 'cart': got .*, expected a tuple with integers \(3, 1\) on cpu for each of 1 action heads"
    with pytest.raises(SpecError, match=words):
        cd.evaluate(spec, episodes=3)


@pytest.mark.full
@pytest.mark.parametrize(
    "heuristic",
    [
        HEURISTICS["NumPy"],
        WRONG_HEURISTICS["floats"],
        lambda p, obs, group: obs.spread(),
        lambda p, obs, group: (np.full(obs.shape[:-1], 2),),
        lambda p, obs, group: (np.full(obs.shape[:-1], -1),),
    ],
)
def test_a_check_tries_the_heuristic(heuristic):
    spec = replace(envs.get("cartpole"), heuristic=heuristic)
    report = cd.check(spec, device="cpu", agent_steps=100, progress=False, fail_fast=True)
    assert report.passed == (heuristic is HEURISTICS["NumPy"])
    assert any(part.startswith("heuristic") for part, _ in report.tallies)
    assert report.passed or report.failures()[0].startswith("`heuristic` gives 'cart' no actions: ")


@pytest.mark.gpu
def test_masks_and_hidden_states_on_a_gpu():
    on = {"device": "cuda", "progress": False, "num_envs": 8, "steps": 64}
    run = cd.train("cartpole", cd.PPO(policy=Recurrent, num_steps=8), **on)
    obs = torch.randn(5, 4, device="cuda")
    action, state = run.act(obs)
    assert action.device == state.device == obs.device
    again, moved = run.act(obs.cpu().numpy(), state.cpu().numpy())
    assert (
        isinstance(again, np.ndarray)
        and isinstance(moved, np.ndarray)
        and not np.array_equal(moved, state.cpu())
    )
    run = cd.train(cd.register(PYTHON, KERNEL), cd.PPO(num_steps=8), walkers=1, **on)
    obs, info = cd.make(run.spec, 4, device="cuda", walkers=1).reset(seed=0)
    mask = info["action_mask"]["walker"]
    want = run.act(obs, mask=mask)
    assert want.device == obs.device and torch.equal(
        want, run.act(obs, mask=mask.cpu().numpy().astype(np.int8))
    )
    numpy_alone = replace(envs.get("cartpole"), heuristic=HEURISTICS["NumPy"])
    assert not cd.check(
        numpy_alone, device="cuda", agent_steps=100, progress=False, fail_fast=True
    ).passed


def test_equally_likely_choices_are_those_whose_exponential_is_one_in_the_kernel():
    """The kernel compares exp(logit - top) in float32; the module compares logits with a threshold
    instead.
    """
    differences = np.linspace(0, 3 * AS_LIKELY, 1000, dtype=np.float32)
    logits = np.stack([-differences, np.zeros_like(differences)], axis=1)

    class Fixed(torch.nn.Module):
        def forward(self, obs):
            return obs, None

    module = DiscretePolicy(Fixed(), Group("g", 1, 2, Discrete(2)), None)
    found = module(torch.from_numpy(logits)).numpy()
    assert 0 < found.sum() < len(found)
    clock, action = (
        clocks(np.random.default_rng(0), len(logits)),
        np.zeros((len(logits), 1, 1), np.int32),
    )
    kernel = sample(
        categorical((2,)), (len(logits), 1), logits, clock, {"action": action}, greedy=1
    )["action"]
    np.testing.assert_array_equal(found, kernel[:, 0, 0])


@pytest.mark.parametrize(
    ("obs", "options", "words"),
    [
        (torch.zeros(3, 4), {}, r"expected a dict for several groups, with tagger, runner"),
        ({"taggr": torch.zeros(3, 4)}, {}, r"a group in obs = 'taggr'.*Did you mean 'tagger'"),
        (
            {"tagger": torch.zeros(3, 4)},
            {},
            r"observation of 'tagger' has shape \(3, 4\), but its last axis must be 6",
        ),
        ({"tagger": [[0.0] * 6]}, {}, r"expected a torch tensor or NumPy array"),
        (
            {"tagger": torch.zeros(3, 6, device="meta")},
            {},
            r"expected a torch tensor or NumPy array",
        ),
        ({"tagger": np.array([["x"] * 6])}, {}, r"expected a torch tensor or NumPy array"),
        ({"tagger": torch.tensor(1.0)}, {}, r"has shape \(\)"),
        ({"tagger": torch.zeros(3, 6)}, {"mask": torch.ones(3, 5)}, r"mask .* dict"),
        (
            {"tagger": torch.zeros(3, 6)},
            {"mask": {"tagger": torch.ones(3, 5)}},
            r"mask of 'tagger' .* bool or int8",
        ),
        (
            {"tagger": torch.zeros(3, 6)},
            {"mask": {"tagger": torch.ones(2, 5, dtype=torch.bool)}},
            r"shape \(2, 5\), expected \(3, 5\) for these observations",
        ),
    ],
)
def test_act_refuses(obs, options, words):
    with pytest.raises(ParameterError, match=words):
        trained("categorical").act(obs, **options)


class Still(torch.nn.Module):
    """Keeps its hidden state."""

    state_size = 2

    def forward(self, obs, state, start):
        return torch.zeros(len(obs), 2), torch.zeros(len(obs)), state


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"obs": torch.zeros(5, 3, 7, 9)}, r"obs of shape \(5, 3, 7, 9\), expected \(5, 7, 9, 3\)"),
        ({"obs": torch.zeros(5, 189)}, r"obs of shape \(5, 189\), expected \(7, 9, 3\)"),
        ({"state": torch.zeros(1, 2)}, r"state of shape \(1, 2\), expected \(5, 2\)"),
        ({"start": torch.zeros(5, 1).bool()}, r"start of shape \(5, 1\), expected \(5,\)"),
    ],
)
def test_a_module_takes_the_shapes_of_its_group_only(given, words):
    """Images with the channels first have as many entries, in another order."""
    group = Group("eye", 1, action_space=Discrete(2), obs_shape=(7, 9, 3))
    module, fitting = DiscretePolicy(Still(), group, None), {"obs": torch.zeros(5, 7, 9, 3)}
    assert module(**fitting)[0].shape == (5,)
    with pytest.raises(ParameterError, match=rf"the policy of 'eye': got {words}"):
        module(**(fitting | given))


def test_groups_and_paths_that_do_not_fit(tmp_path):
    run = trained("categorical")
    with pytest.raises(ParameterError, match="group = None, expected 'tagger' or 'runner'"):
        run.policy()
    with pytest.raises(ParameterError, match=r"must end in .onnx"):
        run.export(tmp_path / "policy.pt", group="tagger")
    with pytest.raises(ParameterError, match=r"cannot be written"):
        run.export(tmp_path / "none" / "policy.onnx", group="tagger")
    chance = cd.train(
        "tag_grid",
        policies={"tagger": cd.PPO(**SMALL), "runner": cd.RandomPolicy()},
        steps=64,
        **QUIET,
    )
    with pytest.raises(ParameterError, match=r"'runner' plays at random"):
        chance.policy("runner")
