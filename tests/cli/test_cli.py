"""The command line: what each command prints, what it writes, and its exit code."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import command, run_python

import cupydrive
import cupydrive.checks.checker
from cupydrive import envs
from cupydrive.checks.report import Report
from cupydrive.cli.main import COMMANDS, main
from cupydrive.errors import MissingDataError
from cupydrive.executors.about import info
from cupydrive.executors.cache import cache_folder

ROOT = Path(__file__).resolve().parents[2]


def report_of(env, failure=""):
    """Return a report as ``check`` would, with one comparison."""
    report = Report(env, ["cpu"], [{}], 0, agent_steps=10)
    tally = report.tally("part", "field")
    tally.compared, tally.rows, tally.failure = 10, 10, failure
    return report


# ---- start-up ------------------------------------------------------------------------------------


def test_import_needs_neither_torch_nor_cupy_and_is_fast():
    code = (
        "import time; start = time.perf_counter(); import cupydrive; took = time.perf_counter() - start\n"
        "import sys; print(took, *(m for m in ('torch', 'cupy', 'numpy', 'gymnasium', 'matplotlib') if m in sys.modules))"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    took, *heavy = done.stdout.split()
    assert heavy == []
    assert float(took) < 0.5


@pytest.mark.full
@pytest.mark.parametrize("arguments", [["envs"], ["--help"], ["check", "--help"]])
def test_light_commands_import_neither_torch_nor_cupy(arguments):
    code = (
        "import sys; from cupydrive.cli.main import main\n"
        "try: code = main(sys.argv[1:])\n"
        "except SystemExit as error: code = error.code\n"
        "assert not {'torch', 'cupy', 'matplotlib'} & set(sys.modules), 'heavy import'\n"
        "sys.exit(code)"
    )
    done = run_python("-c", code, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(name, capsys):
    with pytest.raises(SystemExit) as end:
        command(f"{name} --help")
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert f"usage: cupydrive {name}" in said
    # What a value is called says what it is, and no default is a word of Python's; those of flags
    # are.
    assert not re.findall(r"\bSTR\b|\bPATH\b|\bNone\b|default: \)", said)


def test_module_runs_as_a_program_and_passes_the_exit_code_on():
    done = run_python("-m", "cupydrive", "envs")
    assert (done.returncode, done.stderr) == (0, "")
    done = run_python("-m", "cupydrive", "envs", "cartpol")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("line", "told"), [
("info extra", "extra"), ("evaluate", "RUN|NAME|FILE.py"),
    ("render runs/r", "--out FILE"),
    ("train cartpole --steps abc", "'abc'"), ("sweep cartpole --trails 3 --out o", "--trials"),
    ("new one two", "two"),
    ("train", "train: environment missing. Pass its name"), ("train nope --steps 1e4", "'nope'"),
    ("bench nope", "cases = 'nope', expected 'rollout'"),
])  # fmt: skip
def test_wrong_usage_ends_with_2(line, told, capsys):
    with pytest.raises(SystemExit) as end:
        sys.exit(main(line.split()))
    assert end.value.code == 2 and told in capsys.readouterr().err


@pytest.mark.full
def test_a_line_without_a_command_shows_what_there_is(capsys):
    assert command("") == 2
    without = capsys.readouterr().out
    for words in (["help"], ["--help"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert (
            not end.value.code and capsys.readouterr().out == without and "subcommands" in without
        )
    with pytest.raises(SystemExit):
        command("help train")
    assert capsys.readouterr().out.startswith("usage: cupydrive train ")


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_is_told(word, capsys):
    assert (
        command(f"{word}") == 0
        and capsys.readouterr().out == f"cupydrive {cupydrive.__version__}\n"
    )


@pytest.mark.parametrize(
    ("missing", "installs"),
    [
        (ModuleNotFoundError("No module named 'PIL'", name="PIL.Image"), "pillow"),
        (ImportError("no", name="av"), "av"),
    ],
)
def test_a_package_that_is_missing_is_one_line_with_what_installs_it(
    missing, installs, monkeypatch, capsys
):
    def play(*given, **named):
        raise missing

    monkeypatch.setattr("cupydrive.playing.evaluation.evaluate", play)
    assert command("evaluate tag_grid --device cpu") == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.endswith(f"pip install {installs}\n")


def test_a_name_that_this_package_has_lost_is_a_mistake_of_this_program(monkeypatch):
    def play(*given, **named):
        raise ImportError("cannot import name 'x'", name="cupydrive.playing")

    monkeypatch.setattr("cupydrive.playing.evaluation.evaluate", play)
    with pytest.raises(ImportError):
        command("evaluate tag_grid --device cpu")


# ---- envs, info ----------------------------------------------------------------------------------


def test_envs_lists_all(capsys):
    assert command("envs") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(envs.names())]] == envs.names()
    assert "4 tagger + 1 runner" in next(line for line in lines if line.startswith("tag_grid"))
    assert max(map(len, lines)) < 200


def test_envs_shows_every_parameter_with_unit_and_range(capsys):
    assert command("envs cartpole") == 0
    out = capsys.readouterr().out
    for name in envs.get("cartpole").params.__dataclass_fields__:
        assert f"\n{name}" in out
    (gravity,) = (line for line in out.splitlines() if line.startswith("gravity"))
    assert gravity.split()[:6] == ["gravity", "9.8", "0", "to", "1000", "m/s^2"]
    assert "\nSolved by a mean return of 475.\n" in out


def test_info_prints_what_is_there(capsys):
    assert command("info") == 0
    out = capsys.readouterr().out
    for word in (
        "cupydrive",
        "Python",
        "NumPy",
        "torch",
        "CuPy",
        "NVRTC",
        "gymnasium",
        "compiler",
        "cache",
        "device",
    ):
        assert f"\n{word} " in f"\n{out}"


@pytest.mark.full
def test_info_survives_missing_parts(tmp_path):
    """Neither torch nor CuPy nor a compiler, and a cache folder that cannot be made."""
    block = (
        "import sys; sys.modules.update(cupy=None, torch=None, ziglang=None)\n"
        "import importlib.util, importlib.metadata as m; find = importlib.util.find_spec; version = m.version\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'ziglang' else find(name, *a)\n"
        "def missing(name):\n"
        "    if name != 'numpy': raise m.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "m.version = missing\n"
        "from cupydrive.executors.about import info; print(info())"
    )
    (tmp_path / "file").write_text("")
    done = run_python(
        "-c", block, PATH=str(tmp_path), CXX="", CUPYDRIVE_CACHE=str(tmp_path / "file" / "cache")
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert lines["torch"] == lines["CuPy"] == "not installed"
    assert "CuPy" in lines["CUDA"] or "no NVIDIA driver" in lines["CUDA"]
    assert lines["compiler"].startswith("none: ")
    assert "cannot be written" in done.stderr


def test_info_counts_the_kernels_of_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path))
    (tmp_path / "one.so").write_bytes(bytes(2_000_000))
    found = info()
    assert dict(found.parts)["cache"].endswith(": 1 kernels, 2.0 MB")
    assert found.versions["cupydrive"] == cupydrive.__version__


def test_info_shows_paths_from_the_home_folder_on(monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: cache_folder().parent)
    assert dict(info().parts)["cache"].startswith(f"~/{cache_folder().name}: ")


# ---- check ---------------------------------------------------------------------------------------


@pytest.mark.full
def test_check_writes_its_report_as_json(tmp_path, capsys):
    path = tmp_path / "report.json"
    arguments = f"--agent-steps 3000 --device cpu --seed 3 --json {path}"
    assert command(f"check cartpole {arguments}") == 0
    (report,) = json.loads(path.read_text())
    assert (report["env"], report["passed"], report["devices"], report["seed"]) == (
        "cartpole",
        True,
        ["cpu"],
        3,
    )
    assert report["agent_steps"] >= 3000
    assert {c["part"] for c in report["comparisons"]} >= {
        "cpu against the NumPy reference, one step"
    }
    assert list(tmp_path.iterdir()) == [path]


def test_check_exits_with_1_if_any_environment_fails(monkeypatch, capsys, tmp_path):
    path = tmp_path / "report.json"
    monkeypatch.setattr(
        cupydrive.checks.checker,
        "check",
        lambda spec, **_: report_of(spec.name, "wrong" if spec.name == "tag_grid" else ""),
    )
    assert command(f"check all --json {path}") == 1
    assert "FAIL  tag_grid: wrong; part\n" in capsys.readouterr().out
    assert {r["env"]: r["passed"] for r in json.loads(path.read_text())} == {
        n: n != "tag_grid" for n in envs.names()
    }
    assert command("check cartpole") == 0


def test_all_that_are_left_out_are_one_line(monkeypatch):
    def lacking(spec):
        raise MissingDataError(f"{spec.name} needs 28 files")

    kept = {name: envs.get(name) for name in ("cartpole", "rice_n", "tag_grid", "catalysis")}
    for name in ("rice_n", "catalysis"):
        kept[name] = replace(kept[name], tables=lambda params, spec=kept[name]: lacking(spec))
    monkeypatch.setattr(envs, "get", kept.get)
    said = []
    assert [spec.name for spec in envs.with_data(said.append, kept)] == ["cartpole", "tag_grid"]
    (line,) = said
    assert line.endswith(": rice_n, catalysis") and "`cupydrive data`" in line and len(line) < 160


# ---- demo, bench ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_make_demo_passes_as_it_is(tmp_path):
    done = run_python("-m", "cupydrive", "demo", "--device", "cpu", cwd=tmp_path, seconds=600)
    assert done.returncode == 0, done.stdout + done.stderr
    check_demo(done.stdout, tmp_path)


@pytest.mark.full
@pytest.mark.long
def test_demo_checks_trains_draws_and_measures(tmp_path, monkeypatch, capsys):
    """Of two environments, with short measurements; it checks and trains these for as long
    as ever.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(envs, "names", lambda: ["cartpole", "tag_grid"])
    monkeypatch.setattr("cupydrive.bench.timing.RUN_SECONDS", {"cpu": 0.0})
    assert command("demo --device cpu") == 0
    check_demo(capsys.readouterr().out, tmp_path)


def check_demo(printed, folder):
    """Check what the demonstration printed and drew in a folder."""
    names = [spec.name for spec in envs.with_data(print)]
    assert printed.count("PASS  ") == len(names)
    untrained, balanced, caught = map(
        float, re.findall(r"^  return (?:tagger)? +(\S+) \+-", printed, re.MULTILINE)
    )
    assert balanced > 10 * untrained and caught > 5
    table = printed.split("per second")[1]
    assert all(name in table for name in ("cartpole", "tag_grid", "tag_continuous"))
    paths = re.findall(r"^wrote (\S+\.mp4): ", printed, re.MULTILINE)
    assert paths == ["runs/demo/cartpole.mp4", "runs/demo/tag_grid.mp4"]
    for path in paths:
        assert (folder / path).stat().st_size > 10_000
    assert "\nnext:\n" in printed and "  cupydrive new my_env\n" in printed
