"""The folder that ``train(out=...)`` names: what lies in it already is gone on with, or an error, and never lost."""

import shutil

import pytest

import cupydrive as cd
from cupydrive.errors import TrainingError


@pytest.mark.parametrize("options", [{"resume": True}, {}, {"resume": True, "seeds": 1}])
def test_the_metrics_of_a_run_whose_checkpoints_are_gone_are_not_lost(options, tmp_path):
    plan = {"num_envs": 8, "steps": 1024, "out": tmp_path, "device": "cpu", "progress": False}
    cd.train("cartpole", **plan, **options)
    folder = tmp_path / "000" if "seeds" in options else tmp_path
    rows = (folder / "metrics.jsonl").read_bytes()
    shutil.rmtree(folder / "checkpoints")
    words = "holds the metrics of a run of 1,024 env-steps, and no checkpoint to go on from.*checkpoints; replace it.*overwrite"
    with pytest.raises(TrainingError, match=words):
        cd.train("cartpole", **plan, **options)
    assert (folder / "metrics.jsonl").read_bytes() == rows
    cd.train("cartpole", **plan, **options | {"resume": False, "overwrite": True})
    (folder / "metrics.jsonl").write_bytes(b"")  # killed before its first checkpoint
    shutil.rmtree(folder / "checkpoints")
    cd.train("cartpole", **plan, **options)


FOREIGN = "of something else, which a run would replace. Pass another folder"


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", '{"my": "thing"}', f"holds config.json {FOREIGN}"),
        ("config.json", "mine", f"holds config.json {FOREIGN}"),
        ("metrics.jsonl", "mine", f"holds metrics.jsonl {FOREIGN}"),
        ("metrics.jsonl", '{"a": 1}\n', "metrics.jsonl, line 1 is damaged: .* Move the file away"),
    ],
)
def test_files_of_something_else_are_never_replaced(file, text, words, options, tmp_path):
    (tmp_path / file).write_text(text)
    plan = {"num_envs": 8, "steps": 256, "out": tmp_path, "device": "cpu", "progress": False}
    with pytest.raises(TrainingError, match=words):
        cd.train("cartpole", **plan, **options)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {file: text}
    (tmp_path / file).rename(tmp_path / "mine")
    cd.train("cartpole", **plan, **options)
    assert (tmp_path / "mine").read_text() == text
