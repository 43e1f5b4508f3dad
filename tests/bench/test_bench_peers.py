"""Other libraries beside ours: each program times what it is asked for, and says what it
cannot do.
"""

import importlib
import json
import math
from pathlib import Path

import pytest

from cupydrive.bench import Bench, Ceilings, Row

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def peers_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "peers"))


def test_peers_that_are_not_there_say_so(monkeypatch, tmp_path):
    import compare

    (tmp_path / "there.py").write_text(
        "from dataclasses import asdict\nimport json\nfrom cupydrive.bench.timing import make_row\n"
        "print(json.dumps(asdict(make_row('rollout', 'x', 2, 1, 3, [0.5], who='there'))))\n"
    )
    (tmp_path / "absent.py").write_text(
        "import sys\nprint('not installed: x', file=sys.stderr)\nsys.exit(3)\n"
    )
    (tmp_path / "broken.py").write_text("raise ValueError('broken')\n")
    monkeypatch.setattr(compare, "FOLDER", tmp_path)
    ours = Row("rollout", "x", "x", 2, 1, 3, [1.0], 6.0)
    file = tmp_path / "bench.json"
    file.write_text(
        json.dumps(Bench("cpu", "m", {}, "", "", Ceilings(1.0, 1.0, 1.0), [ours]).to_dict())
    )
    compare.compare(file, 2)
    found = Bench.from_dict(json.loads(file.read_text()))
    assert found.rows[0] == ours and [(row.who, row.rate) for row in found.rows[1:]] == [
        ("there", 12.0)
    ]
    assert found.skipped == ["absent: not installed: x", "broken failed: ValueError: broken"]


def test_peers_time_only_the_environments_that_are_asked_for(monkeypatch, tmp_path, capsys):
    import compare
    import protocol

    monkeypatch.setattr("sys.argv", ["peer", "--device", "cpu", "--envs", "z", "y"])
    assert protocol.arguments("Of steps.", "stepping", {"x": 1, "y": 2, "z": 3}).envs == ["y", "z"]
    monkeypatch.setattr(
        "sys.argv",
        [
            "peer",
            "--device",
            "cpu",
            "--envs",
            "rice_n",
            "--cases",
            "rollout",
            "stepping",
            "training",
        ],
    )
    for program in compare.programs():
        with pytest.raises(SystemExit) as left:  # whatever is installed
            importlib.import_module(program.stem).main()
        assert not left.value.code and capsys.readouterr() == ("", "")
    (tmp_path / "peer.py").write_text("import sys\nsys.exit(' '.join(sys.argv[1:]))\n")
    monkeypatch.setattr(compare, "FOLDER", tmp_path)
    ((_, said),) = compare.run_peers("cpu", ["rollout"], 2, ["cartpole", "acrobot"])
    assert said == ["peer failed: --device cpu --runs 2 --cases rollout --envs cartpole acrobot"]


def test_gymnasiums_program_tells_rows(monkeypatch):
    import gymnasium_vector

    monkeypatch.setattr("protocol.SECONDS", 0.002)
    env = gymnasium_vector.VectorEnv("cartpole", 8, device="cpu", autoreset_mode="next_step")
    row = gymnasium_vector.timed("cartpole", env, 3, "us")
    assert row.case == "stepping" and len(row.seconds) == 3 and math.isfinite(row.rate)
