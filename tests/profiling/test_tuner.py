"""The tuner measures layouts that give the same numbers, keeps what it found, and stops where
nothing is gained.
"""

import pytest
from conftest import command

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.bits import trajectory
from cupydrive.codegen.layout import Layout
from cupydrive.errors import DeviceError, MemoryLimitError, SpecError
from cupydrive.executors import cache as cache_module
from cupydrive.executors import executor
from cupydrive.profiling import tuner
from cupydrive.profiling.tuner import best_num_envs, candidates, layout_text, tune

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(cache_module, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(tuner, "TUNED_SECONDS", 0.001)
    return tmp_path


@pytest.mark.parametrize(
    ("team", "block"), [(3, 1), (1, 48), (1, 2048), (8, 256), (32, 0), (64, 2)]
)
def test_blocks_of_a_part_of_a_warp_or_too_many_threads_are_refused(team, block):
    with pytest.raises(
        SpecError, match=f"team = {team}, envs_per_block = {block}: expected powers of two"
    ):
        Layout(team, block)


@pytest.mark.quick(2)
@pytest.mark.parametrize("device", DEVICES)
def test_the_fastest_is_taken_and_known_from_then_on(cache, device, monkeypatch):
    found = tune("tag_grid", 100, device=device)
    assert found.rates[layout_text(found.layout)] == max(found.rates.values())
    assert (
        layout_text(
            executor(device).layout(envs.get("tag_grid"), envs.get("tag_grid").make_params(), 100)
        )
        in found.rates
    )
    monkeypatch.setattr(tuner, "rate", None)  # nothing is measured again
    again = tune("tag_grid", 101, device=device)
    assert again.layout == found.layout and again.rates == found.rates
    env = cd.make("tag_grid", 100, device=device, layout="tuned")
    assert env.batch.layout == found.layout
    with pytest.raises(TypeError):  # another size, or other constants of the kernel: not known
        tune("tag_grid", 1000, device=device)
    with pytest.raises(TypeError):
        tune("tag_grid", 100, device=device, num_taggers=7)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"{}", b'{"layout": {"team": 2}}'])
def test_a_damaged_file_is_measured_anew(cache, monkeypatch, content):
    measured = []
    monkeypatch.setattr(tuner, "rate", lambda *given: measured.append(given) or 1e6)
    first = tune("cartpole", 64, device="cpu")
    (path,) = cache.glob("layout-*.json")
    path.write_bytes(content)
    for _ in range(2):  # whole again after the first
        assert tune("cartpole", 64, device="cpu") == first and len(measured) == 2


@pytest.mark.full
@pytest.mark.gpu
@pytest.mark.parametrize("name", ["cartpole", "tag_grid", "tag_continuous"])
def test_candidates_give_the_same_numbers(name):
    spec, where = envs.get(name), executor("cuda")
    small = (
        {"num_taggers": 2, "num_runners": 9, "num_other_agents_observed": 3}
        if name == "tag_continuous"
        else {}
    )
    params = spec.make_params(**small)
    first, *others = candidates(spec, params, 50, where)
    assert len(others) >= 4
    want = trajectory(spec, params, where, 1, 50, 20, first)
    for layout in others:
        got = trajectory(spec, params, where, 1, 50, 20, layout)
        assert all(got[key].tobytes() == array.tobytes() for key, array in want.items()), layout


def test_the_number_of_environments_is_that_which_trains_fastest(cache, monkeypatch, capsys):
    rates = {64: 1e6, 256: 3e6, 1024: 5e6, 4096: 5.05e6, 16384: 4e6, 65536: 9e9}
    tried = []

    def training_rate(spec, params, n, device):
        tried.append(n)
        if spec.name == "acrobot" or (spec.name == "pendulum" and n > 256):
            raise MemoryLimitError("full")
        return rates[n]

    monkeypatch.setattr(tuner, "training_rate", training_rate)
    assert best_num_envs("cartpole", device="cpu") == 4096
    assert tried == [64, 256, 1024, 4096, 16384]  # twice without gain: the end
    assert capsys.readouterr().err.count("environments train") == 5
    assert best_num_envs("cartpole", device="cpu") == 4096 and len(tried) == 5  # known
    assert best_num_envs("pendulum", device="cpu") == 256
    with pytest.raises(MemoryLimitError, match="full"):
        best_num_envs("acrobot", device="cpu")


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_auto_measures_real_training(cache, monkeypatch, device, capsys):
    monkeypatch.setattr(tuner, "SIZES", (64, 256))
    monkeypatch.setattr(tuner, "ITERATIONS", 1)
    env = cd.make("cartpole", "auto", device=device)
    assert env.num_envs in (64, 256)
    shown = capsys.readouterr().err
    assert "64 environments train" in shown and "256 environments train" in shown


def test_the_command_says_what_it_found(cache, capsys, monkeypatch):
    assert command("tune cartpole --num-envs 64 --device cpu") == 0
    shown = capsys.readouterr().out
    assert "team 1, 1 a block" in shown
    monkeypatch.setattr(tuner, "SIZES", (64,))
    monkeypatch.setattr(tuner, "ITERATIONS", 1)
    assert command("tune cartpole --training --device cpu") == 0
    assert capsys.readouterr().out == "64 environments\n"
    assert command("tune cartpol") == 2 and command("tune cartpole --num-envs 0") == 2


def test_a_default_layout_that_cannot_be_built_is_an_error(cache, monkeypatch):
    def build(*_, **__):
        raise DeviceError("found none")

    monkeypatch.setattr(tuner, "Batch", build)
    with pytest.raises(DeviceError, match="found none"):
        tune("cartpole", 64, device="cpu")
