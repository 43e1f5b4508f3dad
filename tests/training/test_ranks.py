"""Several processes train one run: with the bits of one process, on any number of them, and they
end together.
"""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import run_python
from equal_runs import same
from learner_weights import recorded
from ranks import TOGETHER, start
from torch import distributed

import cupydrive as cd
from cupydrive.cli.main import main
from cupydrive.errors import LostProcessError, ParameterError
from cupydrive.executors.ranks import DistributedRanks, Ranks, Shard, lost_ranks
from cupydrive.training import processes
from cupydrive.training.config import resolve
from cupydrive.training.ranks import Wishes, of_all_ranks, part, require_equal
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints

SIZE = 3  # of two there are tests below


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What tests/training/ranks.py found: by the number of processes, a list of what each says."""
    folder = tmp_path_factory.mktemp("ranks")
    return {size: start(size, folder) for size in (1, SIZE)}


@pytest.mark.full
def test_any_number_of_processes_has_the_weights_that_are_committed(said):
    """Two policies, agents that leave, running means and a limit on the divergence among them."""
    for size, each in said.items():
        assert [one["weights"] for one in each] == [recorded()] * size


@pytest.mark.full
@pytest.mark.parametrize("name", TOGETHER)
def test_sums_of_gradients_are_those_of_one_process(said, name):
    alone, first = said[1][0]["alike"][name], said[SIZE][0]["alike"][name]
    weights = np.array(alone["weights"])
    assert np.abs(np.array(first["weights"]) - weights).max() <= 1e-4 * np.abs(weights).max()
    assert first["metrics"] == pytest.approx(alone["metrics"], rel=1e-3, abs=1e-4)
    assert all(one["alike"][name] == first for one in said[SIZE])


def test_processes_compare_what_they_must_agree_on(tmp_path):
    """A folder, progress and a callback are the first one's alone."""
    sent = []

    class Second(Ranks):
        def gather_bytes(self, content):
            sent.append(content)
            return [sent[0], content]

    config = resolve("cartpole", device="cpu", num_envs=4)
    shard = SimpleNamespace(ranks=Second(1, 2, alone=False))
    about = {"device": "cpu", "step": 0, "backends": {}, "as_json": config.as_json}
    run = SimpleNamespace(shard=shard, **about)
    require_equal(run, config)
    alike = {"out": tmp_path, "progress": False, "callback": lambda step, metrics: None}
    require_equal(run, replace(config, **alike))
    for differs in ({"steps": 7}, {"keep": 9}, {"cuda_graph": False}):
        with pytest.raises(ParameterError, match="differ on rank 1"):
            require_equal(run, replace(config, **differs))
    for differs in ({"step": 8}, {"backends": {"cart": "torch"}}, {"device": "cuda"}):
        with pytest.raises(ParameterError, match="differ on rank 1"):
            require_equal(SimpleNamespace(shard=shard, **about | differs), config)


def test_any_process_may_stop_and_the_first_decides_else():
    told = torch.tensor([[0, 1, 7], [1, 0, 3]], dtype=torch.float64)
    assert Wishes.of_all(told) == Wishes(stop=True, save=True, seconds=7.0)
    assert Wishes.of_all(told[:1]) == Wishes(stop=False, save=True, seconds=7.0)


@pytest.mark.full
def test_all_processes_end_with_one_error(said):
    lost = f"in environment {said[SIZE][-1]['envs'][0] + 1}"
    words = {
        "other settings": ("ParameterError", "differ on rank 1"),
        "other seeds": ("ParameterError", "differ on rank 1"),
        "other weights": (
            "TrainingError",
            f"the weights on rank {SIZE - 1} differ from those of rank 0",
        ),
        "lost number": (
            "NotFiniteError",
            f"{lost}, agent 0",
            "No explanation: explain() works in a single process only",
        ),
        "population": ("ParameterError", "seeds= and members="),
        "too few": ("ParameterError", f"num_envs = {SIZE - 1} environments"),
        "sequences": ("ParameterError", "4 blocks of sequences, which 3 processes cannot share"),
        "ddpg": ("ParameterError", "DDPG supports a single process"),
    }
    for what, expected in words.items():
        for one in said[SIZE]:
            assert one[what] is not None and all(word in one[what] for word in expected), (
                what,
                one[what],
            )


@pytest.mark.parametrize(
    ("envs", "size"), [(64, 3), (1, 1), (5, 5), (129, 2), (1000, 7), (300, 128)]
)
def test_shards_are_all_environments_in_whole_blocks(envs, size):
    shards = [Shard(envs, Ranks(rank, size)) for rank in range(size)]
    assert [e for shard in shards for e in shard.envs] == list(range(envs))
    assert [b for shard in shards for b in shard.blocks] == list(range(shards[0].all_blocks))
    blocks = [len(shard.blocks) for shard in shards]
    assert max(blocks) - min(blocks) <= 1 <= min(blocks)
    for shard in shards:
        assert next(shard.first_env(b) for b in shard.blocks) == shard.envs.start
        assert all(shard.envs_of(other.ranks.rank) == other.envs for other in shards)
    with pytest.raises(
        ParameterError, match=f"cannot be divided among {shards[0].all_blocks + 1} processes"
    ):
        Shard(envs, Ranks(0, shards[0].all_blocks + 1))


@pytest.mark.parametrize("envs", [3, 7, 300])
def test_a_snapshot_is_put_together_of_what_each_rank_takes_of_it(envs):
    """Environments along either dimension; what is summed is the first rank's at first, and equal
    tensors are anybody's.
    """
    size, shared, barrier = 3, [None] * 3, threading.Barrier(3)

    class Threads(Ranks):
        def gather_bytes(self, content):
            shared[self.rank] = content
            barrier.wait()
            return list(shared)

    rng = np.random.default_rng(0)
    kept = {
        "rows": torch.from_numpy(rng.normal(size=(2 * envs, 3))),
        "columns": torch.from_numpy(rng.normal(size=(2, envs))),
    }
    kept |= {"count": torch.tensor(5.0, dtype=torch.float64), "seed": torch.tensor([7])}
    about = {"rows": 0, "columns": 1}, ("count",)

    def exchange(rank):
        shard = Shard(envs, Threads(rank, size, alone=False))
        own = part(kept, *about, shard)
        assert own["columns"].shape == (2, shard.num_envs) and own["rows"].shape == (
            2 * shard.num_envs,
            3,
        )
        return of_all_ranks(own, *about, shard)

    with ThreadPoolExecutor(size) as pool:
        for found in pool.map(exchange, range(size)):
            assert found.keys() == kept.keys()
            assert all(torch.equal(found[name], tensor) for name, tensor in kept.items())


@pytest.mark.parametrize("backend", ["gloo", None])
def test_graphs_hold_the_collectives_of_nccl_only(backend, tmp_path, monkeypatch):
    distributed.init_process_group(
        backend, init_method=(tmp_path / "meeting").as_uri(), rank=0, world_size=1
    )
    try:
        ranks = DistributedRanks()
        with monkeypatch.context() as patch:
            for config, captures in (
                ("cpu:gloo,cuda:gloo", False),
                ("cuda:nccl", True),
                ("cpu:gloo,cuda:nccl", True),
            ):
                patch.setattr(distributed, "get_backend_config", lambda config=config: config)
                assert ranks.captures("cuda") == captures and not ranks.captures("cpu")
        assert Ranks().captures("cuda") and not Ranks().captures("cpu")
        assert ranks.gather_bytes(b"all") == [b"all"]
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    "words",
    [
        "NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.27.5",
        "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4321",
    ],
)
def test_what_libraries_report_of_a_lost_process_becomes_one_error(words):
    with (
        pytest.raises(LostProcessError, match="another process of this run has ended") as caught,
        lost_ranks(),
    ):
        raise RuntimeError(f"{words}\nand more lines")
    assert "more lines" not in str(caught.value)


# ---- runs of the command line --------------------------------------------------------------------

SMALL = ["--device", "cpu", "--num-envs", "20", "--set", "num_steps=8", "hidden=16,16"]


@pytest.mark.full
def test_a_run_goes_on_with_another_number_of_processes(tmp_path, capfd):
    """Two, one, three: as one process in one go."""
    options = dict(num_envs=20, seed=5, device="cpu", progress=False)
    settings = cd.PPO(num_steps=8, hidden=(16, 16), normalize_obs=True, normalize_reward=True)
    whole = cd.train("cartpole", settings, steps=160 * 40, **options)
    more = "normalize_obs=True normalize_reward=True update_epochs=4 gamma=0.99"
    given = ["train", "cartpole", *SMALL, *more.split()]
    given += [
        "gae_lambda=0.95",
        "learning_rate=2.5e-4",
        "--seed",
        "5",
        "--out",
        str(tmp_path / "run"),
        "--resume",
    ]
    assert processes.start_processes(2, [*given, "--steps", "1600"]) == 0
    assert main([*given, "--steps", "3200"]) == 0
    assert processes.start_processes(3, [*given, "--steps", "6400"]) == 0
    run = Run.load(tmp_path / "run")
    assert run.step == whole.step
    assert same(run, whole)
    steps = [row["charts/global_step"] for row in run.metrics]
    assert steps == sorted(set(steps)) and steps[-1] == 6400
    assert run.metrics[-1]["charts/episodic_return"] == pytest.approx(
        whole.metrics[-1]["charts/episodic_return"], rel=1e-12
    )
    out, err = capfd.readouterr()
    # the first process alone prints
    assert out.count("<Run cartpole") == 3 and "Traceback" not in err


@pytest.fixture
def started():
    """A list of processes, which do not outlive the test."""
    children = []
    yield children
    for child in children:
        child.kill()
        child.wait()


def endless(children, folder, count=2):
    """Start processes of a run without end, and wait until it has saved something."""
    end = "--steps 1e12 --checkpoint-minutes 0.002 --out"
    given = ["train", "cartpole", *SMALL, *end.split(), str(folder / "run")]
    children += [processes.start_one(rank, count, given, folder) for rank in range(count)]
    while len(checkpoints(folder / "run")) < 3:
        try:
            assert children[0].wait(0.05) is None, (folder / "1.log").read_text()
        except subprocess.TimeoutExpired:
            continue


@pytest.mark.full
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_when_one_process_is_killed_the_others_end_and_one_line_says_it(
    started, tmp_path, capfd, rank
):
    endless(started, tmp_path)
    started[rank].kill()
    assert processes.wait_for(started, tmp_path) == 128 + signal.SIGKILL
    # it heard of it, or had to be ended
    assert started[1 - rank].poll() in (processes.LOST, -signal.SIGKILL)
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("cupydrive:")]
    assert (
        len(said) == 1 and f"process {rank} of this run was ended by signal 9 (SIGKILL)" in said[0]
    )
    assert Run.load(tmp_path / "run").step > 0


def test_a_process_that_does_not_hear_of_it_is_ended(started, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(processes, "GRACE", 0.1)
    for code in (
        "import signal; signal.pause()",
        "print('cupydrive: no more'); raise SystemExit(5)",
    ):
        with open(tmp_path / f"{len(started)}.log", "wb") as log:
            started.append(subprocess.Popen([sys.executable, "-c", code], stdout=log))
    assert processes.wait_for(started, tmp_path) == 5
    assert [child.poll() for child in started] == [-signal.SIGKILL, 5]
    assert capfd.readouterr().err == "cupydrive: process 1 of this run: no more\n"


@pytest.mark.full
def test_an_interrupt_of_the_first_ends_all_and_keeps_the_result(started, tmp_path, capfd):
    endless(started, tmp_path)
    started[0].send_signal(signal.SIGINT)
    assert processes.wait_for(started, tmp_path) == 0
    out, err = capfd.readouterr()
    run = Run.load(tmp_path / "run")
    assert f"interrupted after {run.step:,} env-steps: the result is kept" in err
    assert run.metrics[-1]["charts/global_step"] == run.step and f"{run.step:,} env-steps" in out


@pytest.mark.full
def test_an_error_of_another_process_is_said_by_one_line(started, tmp_path, capfd):
    given = ["train", "cartpole", *SMALL, "--steps", "1e4"]
    started += [
        processes.start_one(rank, 2, given + ["--seed", "-1"] * rank, tmp_path) for rank in range(2)
    ]
    assert processes.wait_for(started, tmp_path) == 2
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("cupydrive:")]
    assert (
        len(said) == 1
        and said[0].startswith("cupydrive: process 1 of this run: ")
        and "seed = -1" in said[0]
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--gpus", "0"], "--gpus = 0 is out of range"),
        (["--gpus", "two"], "--gpus = 'two' is a str"),
        (["--gpus", "9"], "expected 1 to 4"),
        (["--gpus", "2", "--device", "cpu"], "leave out --device cpu"),
    ],
)
def test_gpus_that_cannot_be_are_refused(given, words, capsys, monkeypatch):
    runtime = SimpleNamespace(getDeviceCount=lambda: 4)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    monkeypatch.setattr(processes, "cuda_problem", lambda: None)
    assert main(["train", "cartpole", *given]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_torchrun_starts_processes_that_train_one_run(tmp_path):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    given = ["train", "cartpole", *SMALL, "--steps", "1600", "--out", str(tmp_path / "run")]
    done = run_python(*torchrun, "-m", "cupydrive", *given, seconds=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<Run cartpole: 1,600 env-steps of 20 environments") == 1
    assert Run.load(tmp_path / "run").step == 1600
