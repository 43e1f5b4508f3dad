"""A number that is not finite in training is explained: the explanation is the known answer, and no
run's bits change.
"""

import math

import numpy as np
import pytest
import reinforce
import streaks
import torch
from streaks import NONE, STREAK

import cupydrive as cd
from cupydrive.algorithms.kernels.play import Play
from cupydrive.codegen.layout import PlayLayout
from cupydrive.errors import NotFiniteError, TrainingError
from cupydrive.spec import Field
from cupydrive.training import explain, loop
from cupydrive.training.begin import make_run
from cupydrive.training.runfolder import checkpoints, read_checkpoint
from cupydrive.training.together import Alone

STEPS, ENVS, LIMIT = 8, 6, 50  # of a rollout, and of an episode
QUIET = {"device": "cpu", "progress": False}
SMALL = {"num_envs": ENVS, "steps": 40 * STEPS * ENVS, **QUIET}


def a2c(**changed):
    return cd.A2C(**{"num_steps": STEPS, "hidden": (8,), "learning_rate": 1e-3} | changed)


def ppo(**changed):
    return cd.PPO(
        **{"num_steps": STEPS, "hidden": (8,), "num_minibatches": 2, "update_epochs": 2} | changed
    )


def failed(env, settings, **options):
    """Train until it fails; return the error and its explanation."""
    with pytest.raises(NotFiniteError) as caught:
        cd.train(env, settings, **{**SMALL, **options})
    return caught.value, caught.value.run.explain()


def first_streak(backend="kernels", device="cpu"):
    """Return where a sound run of equal bits has its first full streak: steps so far, environment,
    agent; and all actions.
    """
    run, actions = (
        make_run(
            streaks.spec(streaks.kernel()), a2c(), num_envs=ENVS, backend=backend, device=device
        ),
        [],
    )
    while len(actions) < LIMIT:
        run.iterate()
        rows = [run.rollout.action[name][..., 0].cpu().numpy() for name in ("one", "two")]
        actions += list(np.concatenate(rows, -1))
        for step in range(STREAK, min(len(actions), LIMIT) + 1):
            full = (np.array(actions[step - STREAK : step]) == 2).all(0)
            if full.any():
                env, agent = np.argwhere(full)[0]
                return step, int(env), int(agent), np.array(actions)
    raise AssertionError("no agent has a streak")


# ---- environments --------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", "torch"])
@pytest.mark.parametrize(
    ("kernel", "same", "device"),
    [
        ("c", False, "cpu"),
        ("c", True, "cpu"),
        ("python", True, "cpu"),
        pytest.param("c", True, "cuda", marks=pytest.mark.gpu),
    ],
)
def test_the_first_environment_step_agent_and_field_are_the_known_ones(
    backend, kernel, same, device, tmp_path
):
    """On a GPU, too, which has captured the run in a graph."""
    step, env, agent, actions = first_streak(backend, device)
    reference = {"step": streaks.breaking_step} if same else {}
    spec = streaks.spec(
        streaks.kernel(total=NONE) if kernel == "c" else streaks.IN_TORCH, **reference
    )
    error, found = failed(spec, a2c(), backend=backend, device=device, out=tmp_path)
    assert (found.field, found.environment, found.step) == (
        "state.total",
        env,
        step,
    ) and math.isnan(found.value)
    assert found.index == (agent,)
    taken = np.array(
        [np.concatenate([each.action["one"], each.action["two"]])[:, 0] for each in found.trace]
    )
    assert len(taken) >= min(step, STEPS) and np.array_equal(
        taken, actions[step - len(taken) : step, env]
    )
    before, last = found.trace[-1].state["total"][0], found.trace[-1].after["total"][0]
    assert np.isfinite(before).all() and math.isnan(last[agent])
    assert (
        math.isnan(found.reference)
        if same
        else found.reference == pytest.approx(before[agent] + 0.2, rel=1e-6)
    )
    assert (tmp_path / "explanation.txt").read_text() == f"{found}\n"
    place = f"First non-finite number: state.total[{agent}] = nan in environment {env} after step {step:,}"
    words = f"{place}. The NumPy reference gives {found.reference:.6g}"
    details = f"{words}. Details: {tmp_path / 'explanation.txt'}"
    assert details in str(error) and "\n" not in str(error)
    assert str(found).count("  step ") == min(
        8, len(taken)
    ) and f"  step {step}: actions one = " in str(found)


FIELDS = {
    "reward": ({"reward": NONE}, {}, None),
    "obs": ({"seen": NONE}, {}, None),
    "state": ({"total": "3e38f * 10.0f"}, {"step": None}, "has no reference `step`"),
    "unseen": ({"seen": NONE}, {"observe": None}, "has no reference `observe`"),
}


@pytest.mark.full
@pytest.mark.parametrize("case", FIELDS)
def test_rewards_and_observations_are_told_apart(case):
    gaps, functions, why_not = FIELDS[case]
    step, env, agent, _ = first_streak()
    _, found = failed(streaks.spec(streaks.kernel(**gaps), **functions), a2c())
    kind = case if case != "unseen" else "obs"
    name = "total" if kind == "state" else "one" if agent == 0 else "two"
    assert (found.field, found.environment, found.step) == (f"{kind}.{name}", env, step)
    assert found.agent == (None if kind == "state" else max(0, agent - 1))
    if why_not is None:
        total = found.trace[-1].state["total"][0, agent] + 0.1 * 2
        assert found.reference == pytest.approx(total if kind == "reward" else 0.01 * total)
    else:
        assert found.reference is None and why_not in str(found)


@pytest.mark.full
def test_the_last_observation_of_a_terminated_episode_is_no_cause():
    """Nobody learns from it.

    Here it is NaN in environment 0 at the step at which a reward of environment 1 is.
    """
    text = streaks.kernel(seen=NONE, when="elapsed == 6", reward=NONE)
    text = text.replace("return false;", "return env.elapsed == 6;")
    _, found = failed(streaks.spec(text, step=None), a2c(), seed=0)
    assert (found.field, found.environment, found.step) == ("reward.two", 1, 12)


@pytest.mark.full
def test_the_last_observation_of_an_episode_is_found_where_only_learning_sees_it():
    spec = streaks.spec(streaks.kernel(seen=NONE, when="elapsed == 12"), time_limit="truncates")
    _, found = failed(spec, a2c(), max_episode_steps=12)
    assert (found.field, found.environment, found.step, found.index) == (
        "final_obs.one",
        0,
        12,
        (0, 1),
    )
    last = found.trace[-1]
    assert last.over and found.reference == pytest.approx(0.01 * last.reward["one"][0], rel=1e-5)


@pytest.mark.full
def test_a_reset_that_gives_no_number_is_compared_with_the_references_reset():
    _, found = failed(streaks.spec(streaks.kernel(start=f"i == 2 ? {NONE} : 0.0f")), a2c())
    assert (found.field, found.environment, found.index, found.step) == ("state.total", 0, (2,), 0)
    assert not found.trace and found.reference == 0.0


@pytest.mark.full
def test_a_rollout_in_one_launch_is_taken_apart():
    """What a GPU does where policies play by kernels; the bits are those of single steps."""
    step, env, agent, _ = first_streak()
    run = make_run(
        streaks.spec(streaks.kernel(total=NONE)),
        a2c(),
        num_envs=ENVS,
        backend="kernels",
        device="cpu",
    )
    run.rollout.play = Play(run.rollout, PlayLayout(1, 2, warp_sets=4))
    with pytest.raises(NotFiniteError):
        cd.train(run, steps=SMALL["steps"], progress=False)
    found = run.explain()
    assert (found.field, found.environment, found.step, found.index) == (
        "state.total",
        env,
        step,
        (agent,),
    )


@pytest.mark.full
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_the_recorded_iterations_learn_what_the_failed_run_learnt(backend, monkeypatch):
    """Also from the values after the last step, which a rollout in one launch computes itself."""
    weights, make = [], explain.environment_explanation

    def keep(run, *about):
        weights.extend((run.step, {name: tensor.clone() for name, tensor in run.tensors().items()}))
        return make(run, *about)

    monkeypatch.setattr(explain, "environment_explanation", keep)
    late = streaks.kernel(total=f"env.elapsed > {5 * STEPS // 2} ? {NONE} : s.total[i]")
    failed(streaks.spec(late), a2c(), backend=backend)
    run = make_run(
        streaks.spec(streaks.kernel()), a2c(), num_envs=ENVS, backend=backend, device="cpu"
    )
    step, kept = weights
    trained = Alone(run)
    while run.step < step:
        trained.schedule(run.step)
        run.iterate()
        run.step += run.steps_per_iteration
    assert step >= 2 * STEPS * ENVS
    for name, tensor in run.learners["one"].policy.state_dict().items():
        assert torch.equal(tensor, kept[f"one/policy.{name}"])


@pytest.mark.full
@pytest.mark.parametrize("reset", [False, True])
def test_a_state_that_is_infinite_on_purpose_is_not_taken_for_the_cause(reset):
    """It is infinite from the start of each episode on; in the second case, episodes begin within
    the trace.
    """
    endless = "1e38f * 1e38f"
    text = streaks.kernel(reward=NONE).replace("float total[3];", "float total[3]; float nearest;")
    text = text.replace(
        "streak[i] = 0;", f"streak[i] = 0; if (i == 0) env.state.nearest = {endless};"
    )
    spec = streaks.spec(text, state=lambda p: (*streaks.state(p), Field("nearest", "f4")))
    _, found = failed(spec, a2c(), **({"max_episode_steps": 7} if reset else {}))
    assert found.field.startswith("reward.") and math.isnan(found.value) and found.trace


def test_a_reference_that_raises_is_quoted():
    def raises(p, states, action, elapsed, random):
        raise ZeroDivisionError("in the reference")

    _, found = failed(streaks.spec(streaks.kernel(total=NONE), step=raises), a2c())
    assert "No NumPy reference: the reference raises ZeroDivisionError: in the reference" in str(
        found
    )


# ---- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_a_learning_rate_that_is_too_high_is_found_in_the_iteration_after_it(backend, device):
    rate = ((0, 1e-3), (2 * STEPS * ENVS, 1e-3), (2 * STEPS * ENVS + 1, 1e30))
    error, found = failed("cartpole", ppo(learning_rate=rate), backend=backend, device=device)
    assert (found.field, found.policy, found.env_steps, found.environment) == (
        "loss",
        "cart",
        3 * STEPS * ENVS,
        None,
    )
    assert "of policy 'cart' in the iteration after env-step 144" in str(error)
    assert "PPO(learning_rate=" in str(found)
    row = error.run.metrics[-1]
    assert f"env-step 144: policy_loss = {row['losses/policy_loss']:.4g}, value_loss = " in str(
        found
    )


def test_weights_and_a_policys_outputs_are_named():
    _, found = failed("cartpole", ppo(learning_rate=3e38))
    assert found.field.startswith("weight.") and math.isinf(found.value)

    class Huge(torch.nn.Module):
        """Gives a value that is not finite where the pole leans far."""

        def __init__(self, obs_dim, size):
            super().__init__()
            self.layer = torch.nn.Linear(obs_dim, size)

        def forward(self, obs):
            value = self.layer(obs)[:, 0]
            return self.layer(obs), torch.where(obs[:, 2].abs() > 0.15, torch.inf, value)

    _, found = failed("cartpole", a2c(policy=Huge))
    assert found.field == "value.cart" and found.policy == "cart" and found.environment is not None


def test_a_learner_of_ones_own_is_named(monkeypatch):
    update = reinforce.ReinforceLearner.update

    def fails(self, rollout):
        update(self, rollout)
        self.bad.fill_(float(rollout.iteration == 3))

    monkeypatch.setattr(reinforce.ReinforceLearner, "update", fails)
    _, found = failed("cartpole", reinforce.Reinforce(num_steps=STEPS))
    assert (found.field, found.value, found.policy, found.env_steps) == (
        "loss",
        None,
        "cart",
        2 * STEPS * ENVS,
    )


# ---- replays -------------------------------------------------------------------------------------


def test_a_run_is_as_it_was_after_its_explanation(monkeypatch):
    monkeypatch.setattr(loop, "MOST_EXPLAINED", 0)
    with pytest.raises(NotFiniteError) as caught:
        cd.train("cartpole", ppo(learning_rate=1e30), **SMALL)
    run = caught.value.run
    before, flags = (
        run.snapshot(),
        [run.rollout.nonfinite.tolist(), float(run.learners["cart"].bad)],
    )
    assert (
        run.explanation is None
        and run.explain().field == "loss"
        and run.explain() is run.explanation
    )
    after = run.snapshot()
    assert all(torch.equal(before[name], after[name]) for name in before | after)
    assert (
        flags == [run.rollout.nonfinite.tolist(), float(run.learners["cart"].bad)]
        and flags[1] == 1.0
    )


def counted_iterations(monkeypatch):
    """Return a list that grows with each iteration of each run."""
    iterations, schedule = [], Alone.schedule
    monkeypatch.setattr(
        Alone, "schedule", lambda self, step: (iterations.append(step), schedule(self, step))
    )
    return iterations


def test_a_replay_begins_at_the_last_checkpoint(monkeypatch, tmp_path):
    """And explains what a replay from the start does, in at most twice the iterations since the
    checkpoint.
    """
    each = STEPS * ENVS
    rate = ((0, 1e-3), (20 * each, 1e-3), (20 * each + 1, 1e30))
    _, expected = failed("cartpole", ppo(learning_rate=rate))
    run = cd.train(
        "cartpole", ppo(learning_rate=rate), out=tmp_path, **SMALL | {"steps": 15 * each}
    )
    iterations = counted_iterations(monkeypatch)
    with pytest.raises(NotFiniteError) as caught:
        cd.train(run, steps=20 * each, progress=False, out=tmp_path)
    found = caught.value.run.explain()
    trained = iterations.index(15 * each, 1)  # where the first replay begins
    assert iterations[0] == 15 * each and len(iterations) - trained <= 2 * trained
    assert str(found) == str(expected)
    saved = read_checkpoint(tmp_path, "cartpole")
    kept = explain.Replay(run, saved, line=None).run.snapshot()
    assert all(torch.equal(kept[name], tensor) for name, tensor in saved["tensors"].items())


def test_a_long_run_without_a_checkpoint_is_not_replayed(monkeypatch):
    monkeypatch.setattr(explain, "REPLAY_SECONDS", 0.0)
    with pytest.raises(
        NotFiniteError, match=r"No explanation: the replay .* is 0 s. Train with out=DIR"
    ):
        cd.train("cartpole", ppo(learning_rate=1e30), **SMALL)


def test_weights_that_a_callback_changes_are_no_part_of_a_replay():
    def spoil(step, metrics):
        with torch.no_grad():
            next(iter(runs[0].policies.values())).actor[0].weight.fill_(math.nan)

    runs = [make_run("cartpole", ppo(), num_envs=ENVS, device="cpu")]
    with pytest.raises(
        NotFiniteError,
        match="met no non-finite number: the failure depends on more than the settings",
    ):
        cd.train(runs[0], steps=SMALL["steps"], progress=False, callback=spoil)


def test_an_interrupted_explanation_keeps_the_error(monkeypatch):
    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(explain.Replay, "find", press)
    with pytest.raises(NotFiniteError, match="No explanation: interrupted"):
        cd.train("cartpole", ppo(learning_rate=1e30), **SMALL)
    members = [{"learning_rate": 1e30}, {"learning_rate": 1e30, "hidden": (9,)}, {"hidden": (10,)}]
    population = cd.train("cartpole", ppo(), members=members, **SMALL)
    assert population.interrupted and list(population.failures) == [0]


def test_nothing_is_saved_after_a_number_that_is_not_finite(tmp_path):
    """Also if it is time to save before the numbers of an interval have been read, and if a
    callback raises then.
    """
    long = {**SMALL, "steps": 3000 * STEPS * ENVS}
    with pytest.raises(NotFiniteError, match="the last checkpoint is kept"):
        cd.train("cartpole", ppo(learning_rate=1e30), out=tmp_path, checkpoint_minutes=1e-9, **long)
    assert [path.stem for path in checkpoints(tmp_path)] == ["0" * 15]


def test_a_member_that_fails_is_explained_as_it_is_alone(tmp_path):
    rate = ((0, 1e-3), (2 * STEPS * ENVS, 1e-3), (2 * STEPS * ENVS + 1, 1e30))
    members = [{"learning_rate": 1e-3}, {"learning_rate": rate}, {"learning_rate": 1e-4}]
    population = cd.train("cartpole", ppo(), members=members, out=tmp_path, **SMALL)
    _, alone = failed("cartpole", ppo(learning_rate=rate))
    found = population.runs[1].explain()
    assert list(population.failures) == [1] and found.line in population.failures[1]
    assert (tmp_path / "001" / "explanation.txt").read_text() == f"{found}\n"
    assert str(found) == str(alone)
    assert not (tmp_path / "000" / "explanation.txt").exists()


def test_a_run_that_has_not_failed_says_so(tmp_path):
    run = cd.train("cartpole", ppo(), out=tmp_path / "sound", **SMALL | {"steps": STEPS * ENVS})
    with pytest.raises(TrainingError, match="nothing to explain"):
        run.explain()
    failed("cartpole", ppo(learning_rate=1e30), out=tmp_path / "failed")
    with pytest.raises(TrainingError, match=r"explanation.txt in its folder"):
        cd.load(tmp_path / "failed").explain()
    cd.train(
        "cartpole",
        ppo(),
        out=tmp_path / "failed",
        overwrite=True,
        **SMALL | {"steps": STEPS * ENVS},
    )
    assert not (tmp_path / "failed" / "explanation.txt").exists()
