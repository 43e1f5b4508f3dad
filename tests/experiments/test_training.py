"""train(): nothing given is ignored, a folder is used twice without loss, and a callback that fails
loses nothing.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch
from equal_runs import same
from networks import Joint

import cupydrive as cd
from cupydrive.cli.main import main
from cupydrive.errors import MemoryLimitError, ParameterError, TrainingError
from cupydrive.executors.modes import ordinary_modes
from cupydrive.playing.config import resolve_eval
from cupydrive.playing.game import Game, GameConfig
from cupydrive.playing.torch_settings import memory_errors, threads_for
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints

SMALL = {"num_steps": 8, "hidden": (8,)}
QUIET = {"device": "cpu", "progress": False}
EACH = 8 * 8  # env-steps of one iteration


def train(iterations=2, env="cartpole", settings=None, **options):
    settings = settings or cd.PPO(**SMALL)
    return cd.train(
        env, settings, **{"num_envs": 8, "steps": iterations * EACH, **QUIET, **options}
    )


# ---- the same lines twice ------------------------------------------------------------------------


def test_out_of_a_run_says_what_goes_on_and_all_of_it_works(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    first = train(out=tmp_path)
    with pytest.raises(TrainingError) as error:
        train(out=tmp_path)
    for part in ("holds a run of 128 env-steps", "resume=True", "overwrite=True"):
        assert part in str(error.value)
    again = train(out=tmp_path, resume=True)
    assert same(first, again) and again.metrics == first.metrics
    more = train(3, out=tmp_path, resume=True)
    assert more.step == 3 * EACH and cd.load(tmp_path).step == 3 * EACH
    anew = train(1, out=tmp_path, overwrite=True, seed=7)
    assert anew.step == EACH and [int(p.stem) for p in checkpoints(tmp_path)] == [0, EACH]
    assert same(cd.load(tmp_path), anew) and (tmp_path / "notes.txt").read_text() == "mine"
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == len(anew.metrics)


def test_resume_begins_a_run_where_there_is_none_and_gives_the_bits_of_a_whole_one(tmp_path):
    whole = train(5)
    part = train(2, out=tmp_path / "run", resume=True)
    assert part.step == 2 * EACH
    assert same(whole, train(5, out=tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(num_envs=16), r"num_envs: found 8, expected 16"),
        (
            dict(settings=cd.PPO(**SMALL, gamma=0.5)),
            r"gamma of policy 'cart': found 0.99, expected 0.5",
        ),
        (dict(settings=cd.A2C(**SMALL)), r"kind of policy 'cart': found 'ppo', expected 'a2c'"),
        (dict(env="acrobot"), r"the environment: found 'cartpole', expected 'acrobot'"),
    ],
)
def test_resume_names_what_differs_and_changes_nothing(tmp_path, change, words):
    run = train(out=tmp_path, gravity=9.8)
    with pytest.raises(TrainingError, match=words):
        train(4, out=tmp_path, resume=True, **change)
    assert same(run, Run.load(tmp_path))
    # What is not given is the run's.
    assert cd.train("cartpole", out=tmp_path, steps=3 * EACH, resume=True, **QUIET).step == 3 * EACH


@pytest.mark.full
def test_resume_of_ones_own_network_takes_it_from_the_call(tmp_path):
    settings = cd.PPO(num_steps=8, policy=Joint)
    whole = train(4, settings=settings)
    train(2, settings=settings, out=tmp_path)
    assert same(whole, train(4, settings=settings, out=tmp_path, resume=True))


def test_overwrite_takes_the_lock_and_loses_nothing_to_a_mistake(tmp_path):
    run = train(out=tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.pt")}
    with pytest.raises(ParameterError, match="minibatches"):
        train(out=tmp_path, overwrite=True, settings=cd.PPO(num_steps=8, num_minibatches=7))
    with (
        run.lock.hold(tmp_path),
        pytest.raises(TrainingError, match="is being written by another run"),
    ):
        train(out=tmp_path, overwrite=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.pt")} == before


def test_resume_and_overwrite_on_the_command_line(tmp_path, capsys):
    line = [
        "train",
        "cartpole",
        "--num-envs",
        "8",
        "--set",
        "num_steps=8",
        "hidden=[8]",
        "--device",
        "cpu",
    ]
    line += ["--steps", "128", "--out", str(tmp_path / "run")]
    assert main(line) == 0
    assert main(line) == 2 and "--resume" in capsys.readouterr().err
    assert main([*line, "--resume"]) == 0 and "128 env-steps" in capsys.readouterr().out
    assert (
        main([*line, "--resume", "--seed", "3"]) == 2 and "seed: found 0" in capsys.readouterr().err
    )
    assert main([*line, "--overwrite", "--seed", "3"]) == 0 and Run.load(tmp_path / "run").seed == 3
    assert (
        main(["train", "cartpole", "--overwrite"]) == 2
        and "overwrite=True needs out=" in capsys.readouterr().err
    )


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(num_envs=8), r"train\(run, num_envs=8\): a run has .* Omit num_envs"),
        (dict(resume=True), r"train: resume=True needs out=|train\(run, resume=True\)"),
        (dict(device="cuda"), r"the run is on cpu. Save it and load it on the other"),
        (dict(), r"has done its 128 env-steps\. Pass steps="),
    ],
)
def test_train_of_a_run_refuses_what_it_would_ignore(options, words):
    run = train()
    with pytest.raises(ParameterError, match=words):
        cd.train(run, progress=False, **options)
    assert cd.train(run, steps=EACH, progress=False, device="cpu").step == 3 * EACH


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            dict(callback=lambda: None),
            r"must be a function of \(step, metrics\): too many positional arguments",
        ),
        (dict(resume=True), r"resume=True needs out="),
        (dict(resume=True, overwrite=True, out="x"), r"expected one of them"),
    ],
)
def test_train_refuses_before_it_begins(options, words):
    with pytest.raises((ParameterError, TrainingError), match=words):
        train(**options)


# ---- callbacks -----------------------------------------------------------------------------------


class Mistake(Exception):
    """What a user's function raises."""


@pytest.mark.quick(2)
@pytest.mark.parametrize("kept", ["in a folder", "by the exception"])
@pytest.mark.parametrize("kind", [Mistake, MemoryError, SystemExit])
def test_a_callback_that_raises_loses_nothing(kept, kind, tmp_path):
    mistake, seen, out = kind("a slip"), [], tmp_path if kept == "in a folder" else None

    def callback(step, row):
        seen.append(step)
        if len(seen) == 3:
            raise mistake

    with pytest.raises(kind) as error:
        train(9, out=out, callback=callback)
    assert error.value is mistake and len(seen) == 3
    run = error.value.run if out is None else Run.load(out)
    if out is None:
        assert mistake.__notes__ == [
            f"the run up to env-step {run.step:,} is kept as this exception's `run`"
        ]
    assert run.step == run.metrics[-1]["charts/global_step"]
    assert run.step == 3 * EACH if out else 3 * EACH <= run.step < 9 * EACH
    assert same(train(9), cd.train(run, out=out, progress=False))


# ---- threads and memory --------------------------------------------------------------------------


@pytest.fixture
def limit():
    """Return a function that sets torch's threads; what they were comes back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_small_networks_compute_on_one_thread_and_what_was_set_comes_back(limit):
    assert [threads_for(n, 8) for n in (10**6, 2**30, 2**31, 2**40)] == [1, 1, 2, 8]
    assert threads_for(2**40, 1) == 1  # never raised
    seen = []
    limit(3)
    train(callback=lambda step, row: seen.append(torch.get_num_threads()))
    assert set(seen) == {1} and torch.get_num_threads() == 3
    with pytest.raises(Mistake):
        train(callback=lambda step, row: (_ for _ in ()).throw(Mistake()))
    assert torch.get_num_threads() == 3
    run = train(settings=cd.PPO(num_steps=8), backend="torch")
    run.learners["cart"].rows_at_once = lambda rollout: 2**20
    with run.computing():
        assert torch.get_num_threads() == 3


class Watched(torch.nn.Module):
    """A policy that notes on how many threads it is asked, or fails."""

    fails = False

    def __init__(self, obs_dim, size):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(obs_dim, size), []

    def forward(self, obs):
        if self.fails:
            raise Mistake
        self.seen.append(torch.get_num_threads())
        return self.layer(obs), obs[:, 0]


PLAYING = {
    "evaluate": lambda run, folder: run.evaluate(4),
    "render": lambda run, folder: run.render(folder / "a.gif", size=(64, 64), progress=False),
    "tournament": lambda run, folder: cd.tournament(
        {"one": run, "two": cd.RandomPolicy()}, episodes=4, progress=False
    ),
    "a game": lambda run, folder: Game(
        resolve_eval(cd.play, run, kind=GameConfig, agent="runner")
    ).step(),
}


@pytest.mark.parametrize("way", PLAYING)
def test_policies_play_on_as_many_threads_as_they_are_worth_and_what_was_set_comes_back(
    way, limit, tmp_path, monkeypatch
):
    policies = {"tagger": cd.PPO(num_steps=8, policy=Watched), "runner": cd.HeuristicPolicy()}
    run = cd.train("tag_grid", policies=policies, num_envs=8, steps=64, grid_length=6, **QUIET)
    policy = run.policies["tagger"]

    def asked_on():
        policy.seen.clear()
        PLAYING[way](run, tmp_path)
        return set(policy.seen)

    limit(3)
    assert asked_on() == {1} and torch.get_num_threads() == 3
    policy.fails = True
    with pytest.raises(Mistake):
        asked_on()
    assert torch.get_num_threads() == 3
    policy.fails = False
    # now it is worth any number
    monkeypatch.setattr("cupydrive.playing.torch_settings.PRODUCTS_PER_THREAD", 1)
    assert asked_on() == {3}
    limit(1)
    assert asked_on() == {1} and torch.get_num_threads() == 1  # never raised


# ---- what the surrounding program does to torch --------------------------------------------------


class Own(torch.nn.Module):
    """A policy of one's own, whose forward names no dtype."""

    def __init__(self, obs_dim, size):
        super().__init__()
        self.actor, self.critic = torch.nn.Linear(obs_dim + 1, size), torch.nn.Linear(obs_dim, 1)

    def forward(self, obs):
        return self.actor(torch.cat([obs, torch.ones(len(obs), 1)], 1)), self.critic(obs)[:, 0]


def weights(run):
    return [p.detach().clone() for policy in run.policies.values() for p in policy.parameters()]


def ddpg(**options):
    settings = cd.DDPG(learning_starts=32, buffer_size=512, batch_size=32, hidden=(8,))
    return cd.train("pendulum", settings, num_envs=8, steps=2 * EACH, **QUIET, **options)


TRAINED = {
    "kernels": train,
    "torch": lambda: train(
        backend="torch", settings=cd.PPO(**SMALL, normalize_obs=True, normalize_reward=True)
    ),
    "ddpg": ddpg,
    "own": lambda: train(settings=cd.A2C(num_steps=8, policy=Own)),
}


def played(policies):
    return cd.evaluate("pendulum", policies, episodes=4, device="cpu").returns.values()


def results(folder):
    """Return tensors that a run of ``folder``, new ones and players without one give."""
    run = cd.load(folder, device="cpu")
    obs, noise = (
        torch.from_numpy(np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4)),
        torch.Generator().manual_seed(0),
    )
    found = [run.act(obs), run.act(obs, greedy=False, generator=noise), run.policy()(obs)]
    for evaluation in (
        run.evaluate(4),
        cd.evaluate("tag_grid", "heuristic", episodes=4, device="cpu"),
    ):
        found += [evaluation.length, *evaluation.returns.values()]
    found += [*played("random"), *played("heuristic")]
    return (
        found
        + weights(cd.train(run, steps=EACH, progress=False))
        + [w for each in TRAINED.values() for w in weights(each())]
    )


@contextmanager
def set_to(change, value, before):
    change(value)
    try:
        yield
    finally:
        change(before)


MODES = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "float64": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "set_default_device": lambda: set_to(torch.set_default_device, "meta", None),
    "device": lambda: torch.device("meta"),
    "matmul precision": lambda: set_to(torch.set_float32_matmul_precision, "medium", "highest"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    train(out=folder, settings=cd.PPO(num_steps=8, hidden=(64, 64), normalize_obs=True))
    return folder, results(folder)


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_results_do_not_depend_on_torchs_modes(plain, mode):
    folder, expected = plain
    with MODES[mode]():
        before = (
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.is_grad_enabled(),
        )
        found = results(folder)
        assert before == (
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.is_grad_enabled(),
        )
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


class Halving(Joint):
    def forward(self, obs):
        with torch.autocast("cpu", torch.bfloat16):
            return tuple(out.float() for out in super().forward(obs))


@pytest.mark.full
@pytest.mark.parametrize("settings", [{"precision": "bfloat16"}, {"policy": Halving}])
@pytest.mark.parametrize("inner", [True, False])  # also where the caller has switched it off again
def test_weights_that_an_inner_autocast_casts_are_those_of_now(settings, inner):
    settings = cd.PPO(num_steps=8, **settings)
    expected = train(4, settings=settings, backend="torch")
    with (
        torch.autocast("cpu", torch.bfloat16),
        torch.autocast("cpu", torch.bfloat16, enabled=inner),
    ):
        found = train(4, settings=settings, backend="torch")
        assert torch.is_autocast_enabled("cpu") == inner and torch.is_autocast_cache_enabled()
    assert same(found, expected)


def test_what_is_made_in_inference_mode_works_after_it():
    with torch.inference_mode():
        env = cd.make("cartpole", 4, device="cpu")
        obs, _ = env.reset(seed=0)
        env.step(torch.zeros(4, dtype=torch.int64))  # converted into a buffer that is kept
        run = train(backend="torch")
        policy = run.policy()
    assert not obs.is_inference() and not any(p.is_inference() for p in policy.parameters())
    env.step(torch.ones(4, dtype=torch.int64))
    layer = torch.nn.Linear(4, 1)
    layer(obs).sum().backward()
    assert same(cd.train(run, steps=EACH, progress=False), train(3, backend="torch"))


@pytest.mark.full
def test_threads_give_the_weights_of_one():
    """Whatever draws from torch's global generator meanwhile; it goes on as if nothing had been
    trained.
    """
    settings = {"torch": TRAINED["torch"], "ddpg": ddpg, "own": TRAINED["own"]}
    alone = {name: weights(each()) for name, each in settings.items()}
    (evaluated,) = played("random")
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            found = {
                name: pool.submit(lambda each=each: weights(each()))
                for name, each in settings.items()
            }
            seen = pool.submit(played, "random")
            for name, future in found.items():
                assert all(
                    torch.equal(a, b) for a, b in zip(future.result(), alone[name], strict=True)
                ), name
            assert torch.equal(*seen.result(), evaluated)


@pytest.mark.full
def test_networks_of_ours_leave_torchs_generator_alone():
    def drawing():
        while not done:
            torch.rand(8)

    alone, done = [weights(TRAINED["torch"]()), weights(ddpg())], []
    thread = threading.Thread(target=drawing)
    thread.start()
    try:
        found = [weights(TRAINED["torch"]()), weights(ddpg())]
    finally:
        done.append(True)
        thread.join()
    assert all(
        torch.equal(a, b)
        for one, other in zip(found, alone, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(settings=cd.A2C(num_steps=8, policy=Own))
    assert torch.equal(torch.rand(3), expected)


def test_what_several_threads_change_of_torch_comes_back():
    """The first one to begin may be the first one to end."""
    torch.set_default_dtype(torch.float64)
    try:
        first, second = ExitStack(), ExitStack()
        first.enter_context(ordinary_modes(tf32=True))
        second.enter_context(ordinary_modes(tf32=False, benchmark=True))
        first.close()
        assert torch.get_float32_matmul_precision() == "highest"  # the second one's
        assert not torch.backends.cudnn.allow_tf32 and torch.backends.cudnn.deterministic
        assert torch.backends.cudnn.benchmark
        assert torch.get_default_dtype() == torch.float32
        second.close()
        assert (
            torch.get_default_dtype() == torch.float64
            and torch.get_float32_matmul_precision() == "highest"
            and torch.backends.cudnn.allow_tf32
            and not torch.backends.cudnn.deterministic
            and not torch.backends.cudnn.benchmark
        )
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_host_without_memory_is_a_memory_limit_error():
    with (
        pytest.raises(MemoryLimitError, match=r"DefaultCPUAllocator.*Lower num_envs"),
        memory_errors(),
    ):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="size") as error, memory_errors():
        torch.zeros(2) @ torch.zeros(3)
    assert not isinstance(error.value, MemoryLimitError)


# ---- difference ----------------------------------------------------------------------------------


def test_difference_is_of_pairs_and_has_two_numbers():
    chance = cd.evaluate(
        "tag_grid", {"tagger": cd.RandomPolicy()}, episodes=50, device="cpu", grid_length=6
    )
    heuristic = cd.evaluate("tag_grid", episodes=50, device="cpu", grid_length=6)
    found = cd.difference(heuristic, chance, "length")
    mean, half = found
    assert (mean, half) == (found.mean, found.half) and mean < -half
    assert str(found) == repr(found) and str(found).startswith(f"{mean:+.4g} +- ")
    assert cd.difference(heuristic, heuristic, "tagger") == (0.0, 0.0)
    one = cd.evaluate("tag_grid", episodes=1, device="cpu", grid_length=6)
    assert np.isnan(cd.difference(one, one, "length").half)
    with pytest.raises(ParameterError, match=r"name = 'lenght'.*Did you mean 'length'"):
        cd.difference(one, one, "lenght")
    with pytest.raises(
        ParameterError, match="name = 'return', expected 'tagger', 'runner', 'length'"
    ):
        cd.difference(one, one, "return")


def test_the_return_of_the_only_group_is_called_as_it_is_printed():
    one, other = (
        cd.evaluate("cartpole", "random", episodes=20, seed=3, device="cpu", gravity=g)
        for g in (5.0, 9.8)
    )
    found = cd.difference(one, other, "return")
    assert [*found] == [*cd.difference(one, other, "cart")]
    assert one.mean("return") == one.summary()["return"] == one.mean("cart")


class Still:
    """Players of one's own that say no more than how they act."""

    def player(self, spec, group):
        return self

    def begin(self, rollout, group):
        self.group = group.name

    def act(self, rollout, t):
        rollout.action[self.group][t].zero_()


def test_a_player_that_is_no_network_needs_to_say_no_more_than_how_it_acts():
    assert cd.evaluate("cartpole", {"cart": Still()}, episodes=5, device="cpu").length.min() >= 1
