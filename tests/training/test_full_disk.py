"""A disk that fills while a run is written: one error, no file that is half written, and none that
was not there before.
"""

import contextlib
import resource

import pytest

import cupydrive as cd
from cupydrive.errors import TrainingError
from cupydrive.training.run import Run


def train(out, steps=32):
    """Return a run of one iteration of 16 env-steps after the other, written to ``out``."""
    settings = cd.PPO(num_steps=4, hidden=(4,), num_minibatches=1, update_epochs=1)
    return cd.train(
        "cartpole", settings, num_envs=4, steps=steps, out=out, device="cpu", progress=False
    )


@contextlib.contextmanager
def full_disk(most):
    """A limit on the bytes of a file stands for the disk: what is written beyond it fails, as on
    one that is full.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def assert_events_are_whole(folder):
    """Walk through the records of TensorBoard's files: a length of 8 bytes, its checksum, the
    content and its checksum.
    """
    for path in folder.glob("events.*"):
        content, at = path.read_bytes(), 0
        while at < len(content):
            at += 8 + 4 + int.from_bytes(content[at : at + 8], "little") + 4
        assert at == len(content)


# of metrics.jsonl: its next row is cut short, or TensorBoard's is
@pytest.mark.parametrize("more", [10, 450])
def test_a_disk_that_fills_while_a_run_trains_is_one_error(more, tmp_path, capfd):
    train(tmp_path)
    run, rows = Run.load(tmp_path), (tmp_path / "metrics.jsonl").read_bytes()
    with (
        full_disk(len(rows) + more),
        pytest.raises(
            TrainingError,
            match=r"cannot be written to .*earlier checkpoints are kept.*File too large",
        ),
    ):
        cd.train(run, steps=1600, out=tmp_path, progress=False)
    assert capfd.readouterr().err == ""
    text = (tmp_path / "metrics.jsonl").read_bytes()
    assert text.startswith(rows) and text.endswith(b"\n")
    assert_events_are_whole(tmp_path)
    assert Run.load(tmp_path).step == 32 and not [*tmp_path.rglob("*.part")]


# Cut short is TensorBoard's file, config.json, or the checkpoint.
@pytest.mark.parametrize("most", [32, 64, 128, 500, 2000])
def test_a_disk_that_is_full_from_the_beginning_is_one_error_and_keeps_no_file(
    most, tmp_path, capfd
):
    (tmp_path / "notes.txt").write_text("mine")
    with (
        full_disk(most),
        pytest.raises(TrainingError, match=r"cannot be written to .*File too large"),
    ):
        train(tmp_path)
    assert capfd.readouterr().err == ""
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"notes.txt", ".lock"}
    assert train(tmp_path).step == 32
