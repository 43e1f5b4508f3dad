"""Gymnasium's own checks, wrappers and vector environments say whether the adapter to Gymnasium is
right.
"""

import copy
import pickle
import warnings

import archers
import gymnasium
import masked
import numpy as np
import point
import pytest
import torch
from conftest import optional, run_python
from gymnasium import error
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as vector_wrappers
from packaging.version import Version
from test_gymnasium import IDS

import cupydrive as cd
from cupydrive import envs
from cupydrive.drawing.canvas import Canvas
from cupydrive.errors import CupydriveError
from cupydrive.gymnasium import Env, VectorEnv, register

OLD_GYMNASIUM = Version(gymnasium.__version__) < Version("1.4")
OURS = {name: f"cupydrive/{envs.get(name).title}-v0" for name in IDS}
# What Gymnasium also says of its own classes.
SAYS = "ignore:.*(infinity|symmetric and normalized|out of date).*:UserWarning"
OLD = "ignore:.*out of date.*:DeprecationWarning"
pytestmark = [pytest.mark.filterwarnings(SAYS), pytest.mark.filterwarnings(OLD)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", OURS)
def test_a_single_environment_passes_gymnasiums_checks(name):
    env = gymnasium.make(OURS[name], render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("name", OURS)
def test_equal_seeds_give_equal_episodes(name):
    one, other = Env(name), Env(name)
    one.action_space.seed(4)
    for seed in (1, None, None):
        assert data_equivalence(one.reset(seed=seed), other.reset(seed=seed), exact=True)
        for _ in range(250):
            action = one.action_space.sample()
            results = one.step(action)
            assert data_equivalence(results, other.step(action), exact=True)
            assert one.observation_space.contains(results[0])
            if results[2] or results[3]:
                break
    assert not data_equivalence(one.reset(seed=2)[0], other.reset(seed=3)[0])


def set_their_state(env, state):
    env.state = np.array(list(state), np.float64)


@pytest.mark.quick(3)
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", OURS)
def test_the_vector_form_is_gymnasiums_own(name, mode):
    """Step by step from equal states: results, types and infos of SyncVectorEnv."""
    n, limit = 6, 20
    kwargs = {"vector_kwargs": {"autoreset_mode": mode}, "vectorization_mode": "sync"}
    theirs = gymnasium.make_vec(IDS[name], num_envs=n, max_episode_steps=limit, **kwargs)
    more = {} if mode == AutoresetMode.SAME_STEP else {"autoreset_mode": mode}
    ours = gymnasium.make_vec(OURS[name], num_envs=n, max_episode_steps=limit, device="cpu", **more)
    assert isinstance(ours, gymnasium.vector.VectorEnv)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    for space in (
        "single_observation_space",
        "single_action_space",
        "observation_space",
        "action_space",
    ):
        assert getattr(ours, space) == getattr(theirs, space)
    results = ours.reset(seed=0), theirs.reset(seed=0)
    assert results[0][0].dtype == results[1][0].dtype and results[0][0].shape == results[1][0].shape
    assert results[0][1] == results[1][1]
    ours.action_space.seed(0)
    rng, ends = np.random.default_rng(0), 0
    over = np.zeros(n, bool)
    for t in range(60):
        begun = over if mode == AutoresetMode.NEXT_STEP else np.zeros(n, bool)
        if mode == AutoresetMode.DISABLED and over.any():
            with pytest.raises(error.ResetNeeded, match="has ended"):
                ours.step(ours.action_space.sample())
            for env in (ours, theirs):
                env.reset(options={"reset_mask": over})
        if t % 8 == 0:  # also states that random play does not reach
            wide = ours.env.spec.reference.sample_states(ours.env.params, rng, n)
            ours.env.set_state(**{key: wide[key] for key in wide.dtype.names})
        states = ours.env.batch.first_states(n)["states"]
        for env, state in zip(theirs.envs, states, strict=True):
            set_their_state(env.unwrapped, state)
        action = ours.action_space.sample()
        if ours.env.groups[0].continuous:
            action *= 1.5  # both clip
        obs, reward, terminated, truncated, info = ours.step(action)
        want = theirs.step(action)
        over = terminated | truncated
        ends += over.sum()
        for mine, other in zip((obs, reward, terminated, truncated), want[:4], strict=True):
            assert (
                type(mine) is type(other)
                and mine.dtype == other.dtype
                and mine.shape == other.shape
            )
        unlike = over if mode == AutoresetMode.SAME_STEP else begun  # starts differ
        tolerance = {"rtol": 0, "atol": 2e-5 * np.max(ours.env.groups[0].obs_scale)}
        np.testing.assert_allclose(obs[~unlike], want[0][~unlike], **tolerance)
        np.testing.assert_allclose(reward, want[1], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(terminated, want[2])
        np.testing.assert_array_equal(truncated, want[3])
        assert info.keys() == want[4].keys()
        if "final_obs" in info:
            np.testing.assert_array_equal(info["_final_obs"], want[4]["_final_obs"])
            np.testing.assert_array_equal(info["_final_info"], want[4]["_final_info"])
            assert info["final_obs"].dtype == want[4]["final_obs"].dtype == object
            for mine, other in zip(info["final_obs"], want[4]["final_obs"], strict=True):
                assert (mine is None) == (other is None)
                if mine is not None:
                    assert mine.dtype == other.dtype
                    np.testing.assert_allclose(mine, other, **tolerance)
    assert ends > n
    ours.close()


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", DEVICES)
def test_torch_arrays_are_the_numpy_ones(device):
    kinds = [
        VectorEnv("cartpole", 9, device=device, arrays=arrays, max_episode_steps=12)
        for arrays in ("numpy", "torch")
    ]
    seen = [env.reset(seed=5)[0] for env in kinds]
    kept, copies = seen[1], seen[1].clone()
    for _ in range(20):
        assert seen[1].device.type == device and np.array_equal(seen[0], seen[1].cpu().numpy())
        action = kinds[0].action_space.sample()
        numpy, tensors = kinds[0].step(action), kinds[1].step(torch.from_numpy(action).to(device))
        for mine, other in zip(numpy[:4], tensors[:4], strict=True):
            assert np.array_equal(mine, other.cpu().numpy())
        ended = tensors[4]["_final_obs"].cpu().numpy()
        assert np.array_equal(ended, numpy[4].get("_final_obs", np.zeros(9, bool)))
        for i in np.nonzero(ended)[0]:
            assert np.array_equal(
                numpy[4]["final_obs"][i], tensors[4]["final_obs"][i].cpu().numpy()
            )
        seen = [numpy[0], tensors[0]]
    assert torch.equal(kept, copies)  # copy=True: later steps did not write into it


def test_an_array_that_is_not_copied_is_the_kernels_memory():
    env = VectorEnv("cartpole", 4, device="cpu", copy=False, arrays="torch")
    obs, _ = env.reset(seed=0)
    assert obs.data_ptr() == env.env.batch.current_obs["cart"].ctypes.data


@pytest.mark.full
def test_metrics_come_with_the_episodes_end():
    env = VectorEnv(
        cd.register(masked.PYTHON, masked.KERNEL),
        3,
        device="cpu",
        validate=False,
        walkers=1,
        max_episode_steps=2,
    )
    _, info = env.reset(seed=0)
    assert info["action_mask"].shape == (3, 5) and info["action_mask"].dtype == np.int8
    for _ in range(2):
        *_, truncated, info = env.step(np.array([[2, 0], [0, 0], [2, 1]]))
    assert truncated.all() and info["final_info"]["_forbidden"].all()
    assert info["final_info"]["forbidden"].shape == (3,) and info["_final_info"].all()


# ---- wrappers ------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.skipif(
    OLD_GYMNASIUM, reason="the wrappers of Gymnasium before 1.4 count a same-step episode one short"
)
@pytest.mark.filterwarnings("ignore:.*autoreset mode is same-step.*:UserWarning")
def test_vector_wrappers_run(tmp_path):
    optional("moviepy")
    env = VectorEnv("cartpole", 4, device="cpu", render_mode="rgb_array", max_episode_steps=30)
    env = vector_wrappers.RecordEpisodeStatistics(env)
    env = vector_wrappers.RecordVideo(
        env,
        str(tmp_path / "videos"),
        episode_trigger=lambda episode: episode == 0,
        disable_logger=True,
    )
    env = vector_wrappers.NormalizeReward(env)
    env.reset(seed=0)
    core, found = env.unwrapped.env, 0
    for _ in range(60):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert np.isfinite(reward).all()
        over = terminated | truncated
        if over.any():
            assert np.array_equal(info["_episode"], over)
            log = core.step_results[4]["episode"]
            assert np.array_equal(info["episode"]["r"][over], log["return"].numpy()[over])
            assert np.array_equal(info["episode"]["l"][over], log["length"].numpy()[over])
            found += over.sum()
    env.close()
    assert found > 4 and [p.suffix for p in (tmp_path / "videos").iterdir()] == [".mp4"]


def test_a_wrapper_for_autoreset_in_the_next_step_runs():
    raw, env = (
        VectorEnv("cartpole", 64, device="cpu", autoreset_mode="next_step") for _ in range(2)
    )
    env = vector_wrappers.NormalizeObservation(env)
    seen = [raw.reset(seed=0)[0]]
    env.reset(seed=0)
    for _ in range(100):
        action = raw.action_space.sample()
        seen.append(raw.step(action)[0])
        last = env.step(action)[0]
    mean, std = np.mean(seen, axis=(0, 1)), np.std(seen, axis=(0, 1))
    np.testing.assert_allclose(last, (seen[-1] - mean) / std, rtol=0, atol=1e-3)


@pytest.mark.full
def test_single_wrappers_run(tmp_path):
    optional("moviepy")
    wrappers = gymnasium.wrappers
    env = gymnasium.make(OURS["pendulum"], render_mode="rgb_array")
    env = wrappers.RecordVideo(
        env,
        str(tmp_path / "videos"),
        episode_trigger=lambda episode: episode == 0,
        disable_logger=True,
    )
    env = wrappers.NormalizeReward(
        wrappers.RescaleAction(wrappers.RecordEpisodeStatistics(env), -1, 1)
    )
    env.reset(seed=0)
    for _ in range(200):
        *_, truncated, info = env.step(env.action_space.sample())
    assert truncated and info["episode"]["l"] == 200 and -2000 < info["episode"]["r"] < 0
    env.close()
    assert [p.suffix for p in (tmp_path / "videos").iterdir()] == [".mp4"]


# ---- registry ------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_name_with_the_module_needs_no_import():
    code = (
        "import gymnasium; env = gymnasium.make_vec('cupydrive.gymnasium:cupydrive/CartPole-v0', num_envs=3); "
        "print(env, env.reset(seed=0)[0].shape)"
    )
    done = run_python("-c", code)
    assert done.stdout == "VectorEnv(cupydrive/CartPole-v0, num_envs=3) (3, 4)\n", done.stderr


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasiums_own_vectors_take_the_single_form(mode):
    env = gymnasium.make_vec(OURS["cartpole"], num_envs=3, vectorization_mode=mode)
    obs, _ = env.reset(seed=7)
    for i in range(3):  # one seed each, as always with these
        assert np.array_equal(obs[i], Env("cartpole").reset(seed=7 + i)[0])
    assert env.step(env.action_space.sample())[0].shape == (3, 4)
    env.close()


@pytest.mark.full
def test_an_environment_of_ones_own_is_registered():
    spec = cd.register(point.PYTHON, point.KERNEL)
    assert register(spec) == "cupydrive/Point-v0"
    env = gymnasium.make("cupydrive/Point-v0", strength=0.5)
    check_env(env.unwrapped)
    assert env.unwrapped.env.params.strength == 0.5


# ---- time limits ---------------------------------------------------------------------------------


def ending(env):
    """Return the steps of an episode, and whether it was terminated and truncated."""
    env.reset(seed=0)
    for steps in range(1, 1000):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return steps, bool(terminated), bool(truncated)


class Mine(Env):
    def __init__(self, **options):
        super().__init__("pendulum", **options)


def deep(calls, **options):
    return deep(calls - 1, **options) if calls else Env("pendulum", **options)


class Factory:
    def build(self, **options):
        return Env("pendulum", **options)


class Holder(gymnasium.Env):
    """Another environment, of which a pendulum is a part."""

    def __init__(self):
        self.part = Env("pendulum")


REGISTERED = {
    "Lambda-v0": {
        "entry_point": lambda **options: Env("pendulum", **options),
        "max_episode_steps": 300,
    },
    "Method-v0": {"entry_point": Factory().build, "max_episode_steps": 300},
    "Subclass-v0": {"entry_point": Mine, "max_episode_steps": 300},
    "Deep-v0": {"entry_point": lambda **options: deep(6, **options), "max_episode_steps": 300},
    "Kwargs-v0": {"entry_point": Env, "kwargs": {"env": "pendulum", "max_episode_steps": 300}},
    "Holder-v0": {"entry_point": Holder, "max_episode_steps": 300},
}


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    for name, options in REGISTERED.items():
        gymnasium.register(name, **options)


@pytest.mark.parametrize("asked", [None, 400, 30])
def test_gymnasiums_time_limit_is_the_kernels(asked):
    more = {} if asked is None else {"max_episode_steps": asked}
    for env in (
        gymnasium.make(OURS["pendulum"], **more),
        gymnasium.make(gymnasium.spec(OURS["pendulum"]), **more),
    ):
        assert (
            ending(env)
            == ending(gymnasium.make(IDS["pendulum"], **more))
            == (asked or 200, False, True)
        )
        assert (
            env.spec.max_episode_steps
            == env.unwrapped.env.params.max_episode_steps
            == (asked or 200)
        )
        assert gymnasium.make(env.spec).unwrapped.env.params.max_episode_steps == (asked or 200)
    vec = gymnasium.make_vec(OURS["pendulum"], 2, device="cpu", **more)
    assert vec.env.params.max_episode_steps == (asked or 200)
    sync = gymnasium.make_vec(OURS["pendulum"], 2, "sync", **more)
    assert sync.envs[0].unwrapped.env.params.max_episode_steps == (asked or 200)
    env = gymnasium.wrappers.TimeAwareObservation(gymnasium.make(OURS["pendulum"], **more))
    assert env.max_timesteps == (asked or 200) and env.reset(seed=0)[0].shape == (4,)


def test_no_time_limit_is_none_in_the_kernel():
    assert (
        gymnasium.make(
            OURS["pendulum"], max_episode_steps=-1
        ).unwrapped.env.params.max_episode_steps
        == 2**31 - 1
    )


@pytest.mark.parametrize("name", ["Lambda-v0", "Method-v0", "Subclass-v0", "Deep-v0", "Kwargs-v0"])
def test_time_limits_of_a_users_own_registrations_are_the_kernels(registered, name):
    assert ending(gymnasium.make(name)) == (300, False, True)
    assert ending(gymnasium.make(name, max_episode_steps=400)) == (400, False, True)


def test_the_time_limit_of_another_environment_is_not_that_of_its_part(registered):
    assert (
        gymnasium.make(
            "Holder-v0", disable_env_checker=True
        ).unwrapped.part.env.params.max_episode_steps
        == 200
    )


@pytest.mark.full
def test_a_task_ends_by_itself_and_metrics_come_with_a_shorter_limit():
    task = masked.PYTHON.replace('"truncates"', '"terminates"').replace("param(2, ", "param(1, ")
    name = register(cd.register(task, masked.KERNEL))
    assert gymnasium.spec(name).max_episode_steps is None
    assert ending(gymnasium.make(name)) == (20, True, False)
    env = gymnasium.make(name, max_episode_steps=30)
    env.reset(seed=0)
    for _ in range(30):
        *_, terminated, _, info = env.step([2, 0])
    assert terminated and "forbidden" in info


# ---- masks ---------------------------------------------------------------------------------------


def test_masks_reach_gymnasiums_users():
    spec = cd.register(masked.PYTHON, masked.KERNEL)
    env = Env(spec, walkers=1)
    check_env(env, skip_render_check=True)
    _, info = env.reset(seed=0, options={"state": {"place": 0}})
    assert info["action_mask"].tolist() == [0, 1, 1, 0, 1] and info["action_mask"].dtype == np.int8
    assert env.action_masks().tolist() == [False, True, True, False, True]
    env.step(np.array([0, 0]))
    with pytest.raises(error.InvalidAction, match="entry 0 is 3"):
        env.step(np.array([3, 0]))
    env = Env(spec, walkers=1, validate=True)
    env.reset(options={"state": {"place": 0}})
    with pytest.raises(error.InvalidAction, match="its mask forbids"):
        env.step(np.array([0, 0]))
    for arrays in ("numpy", "torch"):
        vec = VectorEnv(spec, 3, device="cpu", walkers=1, arrays=arrays)
        with pytest.raises(CupydriveError, match="before reset"):
            vec.action_masks()
        _, info = vec.reset(seed=0)
        assert (vec.action_masks() == info["action_mask"]).all() and vec.action_masks().shape == (
            3,
            5,
        )
        assert [row.tolist() for row in vec.call("action_masks")] == vec.action_masks().tolist()
    assert not hasattr(Env("cartpole"), "action_masks") and not hasattr(
        VectorEnv("cartpole"), "action_masks"
    )


# ---- mixed actions -------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", [False, True])
def test_tuples_of_actions_pass_gymnasiums_checks(masks):
    spec = cd.register(archers.PYTHON, archers.KERNEL)
    check_env(Env(spec, archers=1, masked=masks), skip_render_check=True)
    env = VectorEnv(spec, 3, device="cpu", archers=1, masked=masks, validate=False)
    env.reset(seed=0)
    env.action_space.seed(1)
    for _ in range(20):
        env.step(env.action_space.sample())


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_the_parts_of_a_tuple_reach_the_kernel_in_one_row(arrays):
    spec = cd.register(archers.PYTHON, archers.KERNEL)
    vec = VectorEnv(spec, 50, device="cpu", archers=1, arrays=arrays)
    own, single = cd.make(spec, 50, device="cpu", archers=1), Env(spec, archers=1)
    vec.reset(seed=2), own.reset(seed=2), single.reset(seed=2)
    vec.action_space.seed(3)
    for _ in range(7):
        aim, colour, gears, power = action = vec.action_space.sample()
        row = np.concatenate([colour[:, None], gears, aim, power], 1).astype(np.float32)
        first = single.step((aim[0], colour[0], gears[0], power[0]))
        want = own.step(torch.from_numpy(row)[:, None].squeeze(1))
        given = tuple(map(torch.from_numpy, action)) if arrays == "torch" else action
        obs, reward, *_ = vec.step(given)
        assert np.array_equal(obs, want[0]) and np.array_equal(reward, want[1])
        assert np.array_equal(obs[0], first[0]) and reward[0] == first[1]
    vec.step(row)  # as Run.act returns it
    vec.step((aim * 5, colour, gears, power))  # a Box is clipped


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({1: 3}, "entry 0 is 3.0, expected a whole number from 0 to 2"),
        ({1: 0.5}, "entry 0 is 0.5, expected a whole number"),
        ({2: [0, 4]}, "entry 2 is 4.0"),
        ({0: [np.nan, 0.0]}, "NaN"),
        (
            {0: [0.0]},
            r"parts of shapes \[\(1, 1\), \(1,\), \(1, 2\), .*\], expected \[\(1, 2\), \(1,\)",
        ),
        ({3: None}, "the action"),
    ],
)
def test_wrong_parts_of_a_tuple_are_gymnasiums_errors(changes, words):
    env = Env(cd.register(archers.PYTHON, archers.KERNEL), archers=1)
    env.reset(seed=0)
    parts = dict(enumerate([[0.0, 0.0], 1, [0, 1], [0.5]])) | changes
    with pytest.raises(error.InvalidAction, match=words):
        env.step(tuple(parts.values()))
    with pytest.raises(error.InvalidAction, match="expected"):
        env.step(([0.0, 0.0], 1))


# ---- attributes and copies -----------------------------------------------------------------------


def test_attributes_of_gymnasiums_vectors():
    theirs = gymnasium.make_vec("CartPole-v1", 2, "sync")
    for mode in ("same_step", "next_step", "disabled"):
        env = VectorEnv("cartpole", 2, device="cpu", autoreset_mode=mode)
        assert (
            env.autoreset_mode is env.metadata["autoreset_mode"]
            and env.autoreset_mode.name.lower() == mode
        )
    own = {"env_fns", "envs", "observation_mode"}  # of vectors that are made of single environments
    assert not {name for name in dir(theirs) if name[0] != "_"} - set(dir(env)) - own
    assert cd.make("cartpole", 2, device="cpu").autoreset_mode == AutoresetMode.SAME_STEP
    env.set_attr("copy", [False, False])
    assert env.get_attr("copy") == (False, False) and env.call("__repr__") == (repr(env), repr(env))
    for name, value in (
        ("gravity", 1.0),
        ("copy", []),
        ("copy", [False]),
    ):
        with pytest.raises(CupydriveError, match=f"set_attr: got {name}"):
            env.set_attr(name, value)


@pytest.mark.parametrize("call", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_owns_a_kernels_memory_says_how_to_copy_it(call):
    core = cd.make("cartpole", 2, device="cpu")
    core.reset(seed=0)
    run = cd.train(
        "cartpole", cd.PPO(num_steps=8), num_envs=4, steps=32, device="cpu", progress=False
    )
    words = r"env\.snapshot\(\).*restore\(snapshot\).*cupydrive\.make.*run\.save"
    for owner in (
        core,
        Env("cartpole"),
        VectorEnv("cartpole", 2, device="cpu"),
        run,
        frozen := run.frozen("cart"),
    ):
        with pytest.raises(
            CupydriveError, match="Trained .*a run's policy.*run.save" if owner is frozen else words
        ):
            call(owner)
        if call is not copy.copy:  # also inside of something else
            with pytest.raises(CupydriveError, match="cannot be copied"):
                call([owner])
    for plain in (core.snapshot(), core.rollout(3)):
        call(plain)


def test_several_agents_are_shown_the_other_door():
    for make in (Env, VectorEnv):
        with pytest.raises(CupydriveError, match=r"got 5, expected 1.*pettingzoo"):
            make("tag_grid")
    assert not [name for name in gymnasium.registry if name.startswith("cupydrive/Tag")]


# ---- resets and mistakes -------------------------------------------------------------------------


def test_a_mask_resets_some_and_a_state_starts_from_it():
    env = VectorEnv("cartpole", 3, device="cpu")
    env.reset(seed=0)
    before = env.step(np.array([0, 1, 1]))[0]
    obs, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(obs[[0, 2]], before[[0, 2]]) and not np.array_equal(obs[1], before[1])
    obs, _ = env.reset(seed=1, options={"state": {"x": 1.0, "theta": [0.0, 0.1, 0.2]}})
    assert (
        obs[:, 0].tolist() == [1, 1, 1] and obs[:, 2].tolist() == np.float32([0, 0.1, 0.2]).tolist()
    )
    assert Env("cartpole").reset(seed=1, options={"state": {"x": 2}})[0][0] == 2


def test_wrong_resets_and_actions_are_gymnasiums_errors():
    for env in (Env("cartpole"), VectorEnv("cartpole", 3, device="cpu")):
        env.reset(seed=0)
        masks = [{"reset_mask": mask} for mask in (np.ones(3), np.ones(2, bool))]
        for options in (
            {"lo": 0.1},
            {"state": 3},
            *masks,
            {"reset_mask": np.ones(3, bool), "state": {"x": 0}},
        ):
            with pytest.raises(error.Error):
                env.reset(options=options)
        with pytest.raises(error.Error):
            env.reset(seed=-1)
        for action in (2, "a", np.zeros(7), None):
            with pytest.raises(error.InvalidAction):
                env.step(action)


def test_order_and_making():
    for env in (Env("cartpole"), VectorEnv("cartpole", 2, device="cpu")):
        action = env.action_space.sample()
        with pytest.raises(error.ResetNeeded):
            env.step(action)
        env.reset(seed=0)
        with pytest.raises(error.Error, match="render_mode"):
            env.render()
        env.close()
        env.close()
        with pytest.raises(error.ClosedEnvironmentError):
            env.step(action)
    env = Env("cartpole", max_episode_steps=1)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(error.ResetNeeded, match="after the end"):
        env.step(0)
    with pytest.raises(TypeError, match="Did you mean 'gravity'"):
        gymnasium.make(OURS["cartpole"], gravty=9)
    with warnings.catch_warnings(), pytest.raises(ValueError, match="num_envs = 0"):
        warnings.simplefilter("ignore")
        gymnasium.make_vec(OURS["cartpole"], num_envs=0)


def test_frames_are_those_of_the_environment():
    env = VectorEnv("cartpole", 2, device="cpu", render_mode="rgb_array")
    env.reset(seed=0, options={"state": {"x": [0.0, 2.0]}})
    left, right = env.render()
    width, height = env.env.spec.display.size
    assert left.shape == (height, width, 3) and left.dtype == np.uint8
    blue = np.array(tuple(bytes.fromhex(Canvas.BLUE[1:])))
    cart = [
        np.nonzero((abs(frame.astype(int) - blue) < 9).all(-1))[1].mean() for frame in (left, right)
    ]
    assert cart[1] - cart[0] > width / 5  # the second cart stands further right
