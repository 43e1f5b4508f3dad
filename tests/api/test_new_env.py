"""Two files, or two strings, are all that a new environment needs: make, check and rollout
follow.
"""

import everything
import pytest
import torch

import cupydrive as cd

pytestmark = pytest.mark.full

PYTHON, KERNEL = everything.PYTHON.replace("TIME_LIMIT", "truncates"), everything.KERNEL
SYNC = "env.team.sync();"


def use(name: str) -> None:
    """Make, check and roll out an environment of a group with a Box and one with discrete heads."""
    report = cd.check(name, agent_steps=5_000, device="cpu", progress=False)
    assert report.passed, str(report)
    env = cd.make(name, 10, device="cpu")
    env.reset(seed=1)
    batch = env.rollout(30)
    assert (
        batch.action["driver"].shape == (30, 10, 3, 2)
        and batch.action["driver"][..., 0].abs().max() <= 1
    )
    assert batch.obs["walker"].shape == (31, 10, 2, 3) and batch.episode["way"].shape == (30, 10)
    obs, _ = env.reset(seed=1)
    jump = obs["walker"][..., 0] == 0  # which is what masks allow
    walkers = torch.stack([torch.full((10, 2), 2), jump], -1).int()
    obs, reward, *_ = env.step({"driver": torch.zeros(10, 3, 2), "walker": walkers})
    assert obs["driver"].shape == (10, 3, 2) and reward["walker"].shape == (10, 2)
    env.reset(seed=1)
    with pytest.raises(cd.CupydriveError, match="is nan"):
        env.step({"driver": torch.full((10, 3, 2), float("nan")), "walker": walkers})


def test_two_files_anywhere_are_an_environment(tmp_path):
    (tmp_path / "everything.py").write_text(PYTHON)
    (tmp_path / "everything.cu").write_text(KERNEL)
    use(str(tmp_path / "everything.py"))
    assert "everything" in cd.names()


def test_two_strings_are_an_environment():
    cd.register(PYTHON, KERNEL)
    use("everything")


@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_sync_is_found_without_a_gpu(number):
    before, *after = KERNEL.split(SYNC)
    kernel = before + SYNC.join(after) if number == 0 else SYNC.join([before, "".join(after)])
    report = cd.check(cd.register(PYTHON, kernel), agent_steps=500, device="cpu", progress=False)
    assert any("a team of threads" in failure for failure in report.failures())


def test_uneven_syncs_are_a_failure_and_not_a_hang():
    kernel = KERNEL.replace(SYNC, f"if (env.team.rank != 1) {SYNC}", 1)
    report = cd.check(cd.register(PYTHON, kernel), agent_steps=500, device="cpu", progress=False)
    assert "different numbers of calls of team.sync" in report.failures()[0]
