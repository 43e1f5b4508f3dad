"""Lessons run from top to bottom on the CPU, and are committed with what their code, as it is, has
shown somewhere.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
import run_notebooks
from conftest import optional, python_path, run_python

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = run_notebooks.lessons()
# parameters of any lesson that has them
SMALL = {"STEPS": 4_000, "FEW": 4_000, "RUNS": 1, "TRIALS": 4, "REWARD_THRESHOLD": 1}
SET_UP = 0  # which code cell that is
SECONDS = 120
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def read(path):
    optional("nbformat")
    return run_notebooks.read(path)


def kernels():
    """Return the notebook kernels that this process has started and that still run."""
    psutil = optional("psutil")
    found = psutil.Process().children(recursive=True)
    return [
        p
        for p in found
        if p.is_running() and p.status() != psutil.STATUS_ZOMBIE and "ipykernel" in str(p.cmdline())
    ]


def kinds(notebook):
    """Return of each code cell in which ways it shows something: text that is printed, pictures,
    HTML.
    """
    cells = [
        cell
        for cell in run_notebooks.code_cells(notebook)
        if cell not in run_notebooks.tagged(notebook, INJECTED)
    ]
    return [
        {kind for o in cell.outputs for kind in o.get("data", [o.output_type])} for cell in cells
    ]


INJECTED = run_notebooks.INJECTED


def run(path, folder, monkeypatch):
    """Run a notebook as small as tests want it, hold what is true of all, and return its
    outputs.
    """
    optional("nbclient"), optional("ipykernel")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the CPU executor, wherever this runs
    notebook = read(path)
    committed = kinds(notebook)
    run_notebooks.inject(notebook, SMALL)
    run_notebooks.execute(notebook, folder)
    run_notebooks.tidy(notebook)
    outputs = [output for cell in run_notebooks.code_cells(notebook) for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert len(outputs) >= 5
    for number, (now, then) in enumerate(zip(kinds(notebook), committed, strict=True), 1):
        assert now <= then, (
            f"code cell {number} shows {now - then} now; make notebooks ONLY={path.stem}"
        )
    assert not kernels()
    return outputs


@each
@pytest.mark.filterwarnings("ignore")  # of Jupyter's parts, about each other
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    run(path, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_lesson_on_the_sciences_ends_without_any_data(tmp_path, monkeypatch):
    """Here no table can be had: nobody answers, and the cache is empty."""
    monkeypatch.delenv("CUPYDRIVE_DATA", raising=False)
    monkeypatch.setenv("CUPYDRIVE_DATA_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    outputs = run(ROOT / "notebooks" / "10_sciences.ipynb", tmp_path, monkeypatch)
    said = "".join(o.text for o in outputs if o.output_type == "stream").splitlines()
    for name in ("catalysis", "rice_n", "covid_economy"):
        assert sum(line.startswith(f"{name}: ") and "skipped" in line for line in said) == 1
    assert sum(line.startswith("PASS  lake") for line in said) == 1


LONG = """
import cupydrive as cd
begun = []
def tell(step, metrics):
    if not begun:
        print("begun", flush=True)
    begun.append(step)
run = cd.train("cartpole", cd.PPO(num_steps=8), num_envs=16, steps=10**6, device="cpu", callback=tell)
"""


@pytest.mark.full
def test_a_lessons_temporary_folders_go_with_it(tmp_path):
    nbformat = optional("nbformat")
    optional("nbclient"), optional("ipykernel")
    cell = nbformat.v4.new_code_cell("import tempfile; print(tempfile.mkdtemp())")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    run_notebooks.execute(notebook, tmp_path)
    made = Path(notebook.cells[0].outputs[0].text.strip())
    assert made.parent.name.startswith("cupydrive-lesson-") and not made.parent.exists()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_interrupting_a_cell_keeps_the_result(tmp_path, monkeypatch):
    start_new_kernel = optional("jupyter_client.manager").start_new_kernel
    optional("ipykernel")

    monkeypatch.setenv("PYTHONPATH", python_path())
    manager, client = start_new_kernel(cwd=str(tmp_path))
    try:
        shown = []

        def interrupt_when_begun(message):
            shown.append(message)
            if "begun" in str(message["content"].get("text", "")):
                manager.interrupt_kernel()

        reply = client.execute_interactive(LONG, timeout=SECONDS, output_hook=interrupt_when_begun)
        assert reply["content"]["status"] == "ok"
        said = [
            m["content"]["data"]["text/plain"]
            for m in shown
            if m["msg_type"] == "update_display_data"
        ]
        assert any(
            "interrupted after" in text and "the result is kept" in text for text in said[-2:]
        )
        kept = []
        client.execute_interactive(
            "print(run.step > 0, len(run.metrics) > 0, run.evaluate(10).length.shape)",
            timeout=SECONDS,
            output_hook=lambda message: kept.append(message["content"].get("text", "")),
        )
        assert "True True torch.Size([10])" in "".join(kept)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@each
def test_outputs_are_those_of_the_code(path):
    notebook = read(path)
    assert run_notebooks.stale(notebook) is None, f"make notebooks ONLY={path.stem}"
    line = "".join(o.text for o in run_notebooks.code_cells(notebook)[SET_UP].outputs)
    assert line == notebook.metadata["cupydrive"]["made_with"] + "\n" and "; device: " in line


@each
def test_outputs_can_be_committed(path):
    notebook = read(path)
    assert run_notebooks.unfit(notebook) == []
    assert sum(bool(cell.outputs) for cell in run_notebooks.code_cells(notebook)) >= 4
    optional("nbformat").validate(notebook)


def test_all_outputs_together_are_small():
    assert (
        sum(sum(run_notebooks.sizes(read(path))) for path in NOTEBOOKS)
        <= run_notebooks.MOST_TOGETHER
    )


def test_a_changed_notebook_is_stale_and_changed_words_are_not():
    def damaged(change):
        notebook = read(NOTEBOOKS[0])
        change(notebook)
        return run_notebooks.stale(notebook)

    last = run_notebooks.code_cells(read(NOTEBOOKS[0]))[-1]
    assert "code has changed" in damaged(lambda n: n.cells.append(last))
    assert "code has changed" in damaged(
        lambda n: run_notebooks.code_cells(n)[1].update(source="STEPS = 1")
    )
    assert "from top to bottom" in damaged(
        lambda n: run_notebooks.code_cells(n)[1].update(execution_count=None)
    )
    assert "of version 0.0.0" in damaged(lambda n: n.metadata.cupydrive.update(version="0.0.0"))
    assert "of version None" in damaged(lambda n: n.metadata.pop("cupydrive"))
    assert damaged(lambda n: n.cells[0].update(source="# Other words")) is None


@pytest.mark.parametrize(("output", "words"), [
    ({"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []},
    "code cell 1: ValueError: no"),
    ({"output_type": "stream", "name": "stdout", "text": "in /home/somebody/data"},
    "a folder of this machine, /home/some"),
    ({"output_type": "stream", "name": "stdout", "text": "tables: skipped\n"},
    "a part was left out: tables: skipped"),
    ({"output_type": "display_data", "metadata": {}, "data": {"text/html": "<video></video>"}},
    "without its still"),
    ({"output_type": "display_data", "metadata": {}, "data": {"text/plain": "x" * 300_000}},
    "the limit is 300,000"),
])  # fmt: skip
def test_what_must_not_be_committed_is_named(output, words):
    new = optional("nbformat").v4
    notebook = new.new_notebook(cells=[new.new_code_cell("1")])
    notebook.cells[0].outputs = [optional("nbformat").from_dict(output)]
    (line,) = run_notebooks.unfit(notebook)
    assert words in line


@each
def test_a_notebook_reads_easily(path):
    notebook = read(path)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    said = re.search(r"(\d+ s|minutes?)\b[^.]* two CPU cores", notebook.cells[0].source)
    assert said, "how long does it take?"
    assert sum(cell.cell_type == "markdown" for cell in notebook.cells) >= 5
    run_notebooks.parameters(notebook)  # plain assignments of literals
    for cell in run_notebooks.code_cells(notebook):
        assert "os.environ" not in cell.source


def test_parameters_are_given_below_the_cell_that_has_them():
    new = optional("nbformat").v4
    notebook = new.new_notebook(
        cells=[new.new_code_cell(text) for text in ("A = 1\nB = [2.5, None]  # two", "print(A)")]
    )
    run_notebooks.inject(notebook, {"A": 3})
    assert len(notebook.cells) == 2  # no cell is tagged
    notebook.cells[0].metadata["tags"] = ["parameters"]
    assert run_notebooks.parameters(notebook) == {"A": 1, "B": [2.5, None]}
    run_notebooks.inject(notebook, {"A": 3, "C": 4})
    assert [cell.source for cell in notebook.cells] == [
        "A = 1\nB = [2.5, None]  # two",
        "A = 3",
        "print(A)",
    ]
    assert notebook.cells[1].metadata["tags"] == [INJECTED]
    notebook.cells[0].source = "import os"
    with pytest.raises(ValueError, match="only assigns literals, and this one says: import os"):
        run_notebooks.parameters(notebook)


# ---- set-up --------------------------------------------------------------------------------------


def set_up(path):
    """Return the first code cell, and the extras that it names; without them it is the same in all
    lessons.
    """
    cell = run_notebooks.code_cells(read(path))[SET_UP]
    assert cell.metadata["tags"] == ["set-up"]
    first, rest = cell.source.split("\n", 1)
    return rest, ast.literal_eval(re.match(r"EXTRAS = (\[.*?\])", first)[1])


def test_the_set_up_is_the_same_in_all_notebooks():
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    texts = [set_up(path) for path in NOTEBOOKS]
    assert {rest for rest, _ in texts} == {texts[0][0]}
    assert {name for _, extras in texts for name in extras} <= known.keys()


def begin(folder, python, first="", **environment):
    """Run the set-up cell as a program in ``folder``, below lines that come ``first``."""
    text = run_notebooks.code_cells(read(NOTEBOOKS[0]))[SET_UP].source.replace(
        "EXTRAS = []", "EXTRAS = ['sweep']"
    )
    (folder / "cell.py").write_text(first + text)
    bare = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    return subprocess.run(
        [python, "cell.py"], cwd=folder, env=bare, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.fixture
def bare(tmp_path):
    """Return a Python without any package, pip included, and the folder for its packages."""
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    (site,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    return tmp_path / "bare" / "bin" / "python", site


@pytest.mark.full
def test_the_set_up_only_says_what_runs_where_cupydrive_is(tmp_path):
    """That is so beside a checkout too, whose program then leaves all as it is."""
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    done = begin(
        tmp_path, sys.executable, PYTHONPATH=python_path(), CUDA_VISIBLE_DEVICES="", PIP_DRY_RUN="1"
    )
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(
        r"cupydrive \S+, Python .*; device: .*\n", done.stdout
    )


PIP = """
import sys
from pathlib import Path
asked = sys.argv[1:]
if "--no-deps" in asked:
    package = Path(__file__).parents[1] / "cupydrive"
    package.mkdir()
    (package / "__init__.py").write_text(f"class Info: line = 'installed from ' + {asked[-1]!r}\\ninfo = Info")
else:
    print("missing:", *asked[asked.index("-c") + 2 :])
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("place", "first"),
    [("cupydrive", ""), ("cupydrive", "import cupydrive\n"), (".", ""), ("..", ""), ("../..", "")],
)
def test_the_set_up_installs_from_a_checkout_that_is_near(place, first, tmp_path, bare):
    """Beside the cell lies a folder ``cupydrive``, as `git clone` makes it, which can be imported,
    and is no package.
    """
    python, site = bare
    here = tmp_path / "some" / "lessons"
    (here / "cupydrive").mkdir(parents=True), (site / "pip").mkdir()
    (here / place / "notebooks").symlink_to(ROOT / "notebooks")
    (site / "packaging").symlink_to(Path(optional("packaging").__file__).parent)
    (site / "pip" / "__main__.py").write_text(PIP)  # it installs a package that says from where
    done = begin(here, python, first)
    assert (done.returncode, done.stderr) == (0, "")
    about, missing, line = done.stdout.splitlines()
    assert about.startswith("installing cupydrive, ") and about.endswith(
        "; all else stays as it is"
    )
    names = {re.match(r"[\w-]+", word)[0] for word in missing.removeprefix("missing: ").split()}
    assert {"numpy", "torch", "optuna"} <= names and not {
        "jupyterlab",
        "lightning",
        "pettingzoo",
    } & names
    assert line == f"installed from {ROOT}"


def program(name):
    """Return a program of notebooks/ as a dictionary of what it defines."""
    found = {"__name__": name, "__file__": str(ROOT / "notebooks" / f"{name}.py")}
    exec(compile((ROOT / "notebooks" / f"{name}.py").read_text(), found["__file__"], "exec"), found)
    return found


def test_only_what_is_missing_is_installed_and_the_rest_is_held(tmp_path):
    install = program("install")
    project = {"dependencies": ["numpy>=2", "tyro", "Old_Name>=1; python_version < '3'"]}
    project["optional-dependencies"] = {"sweep": ["optuna>=4"]}
    wanted = install["wanted"](project, ["sweep"])
    assert [r.name for r in wanted] == ["numpy", "tyro", "optuna"]
    assert [r.name for r in install["lacking"](wanted, {"numpy": "2.4.0"})] == ["tyro", "optuna"]
    first, second = install["plan"](
        install["lacking"](wanted, {"numpy": "2.4.0"}), tmp_path / "held.txt"
    )
    assert first[-4:] == ["-c", str(tmp_path / "held.txt"), "tyro", "optuna>=4"]
    assert second[-2:] == ["--no-deps", str(ROOT)]
    assert len(install["plan"]([], tmp_path)) == 1
    with pytest.raises(
        install["InstallError"], match=r"numpy 1\.26\.4 is installed here, and cupydrive needs >=2"
    ):
        install["lacking"](wanted, {"numpy": "1.26.4"})
    with pytest.raises(install["InstallError"], match="no extra swep; there are sweep"):
        install["wanted"](project, ["swep"])


# ---- copies --------------------------------------------------------------------------------------


def test_copies_of_lessons_are_ones_own(tmp_path):
    copy = program("start")["copy"]
    lesson, folder = tmp_path / "00_one.ipynb", tmp_path / "runs" / "own"
    own = folder / lesson.name
    lesson.write_text("first")
    assert copy([lesson], folder) == [] and own.read_text() == "first"
    lesson.write_text("second")
    assert copy([lesson], folder) == [] and own.read_text() == "second"  # nobody had changed it
    own.write_text("mine")
    # it is the newest lesson, changed
    assert copy([lesson], folder) == [] and own.read_text() == "mine"
    lesson.write_text("third")
    for _ in range(2):
        (line,) = copy([lesson], folder)
        assert (
            line.startswith("00_one.ipynb: yours is kept, and the lesson has changed since")
            and own.read_text() == "mine"
        )
    own.unlink()
    assert copy([lesson], folder) == [] and own.read_text() == "third"
    (folder / ".copied.json").write_text("damaged")
    lesson.write_text("fourth")
    # it cannot be known whose it is
    assert len(copy([lesson], folder)) == 1 and own.read_text() == "third"
    lesson.write_text("third")
    assert copy([lesson], folder) == []
    lesson.write_text("fifth")
    assert copy([lesson], folder) == [] and own.read_text() == "fifth"


def test_the_lessons_own_folder_is_not_for_copies(tmp_path):
    command = ROOT / "notebooks" / "start.py", "--copy-only", "--folder"
    done = run_python(*command, ROOT / "notebooks", seconds=SECONDS)
    assert done.returncode == 2 and "the lessons' own folder" in done.stderr
    done = run_python(*command, tmp_path / "own", seconds=SECONDS)
    assert done.stdout == f"Your copies of the lessons are in {tmp_path / 'own'}\n"
    assert sorted(p.name for p in (tmp_path / "own").glob("*.ipynb")) == [p.name for p in NOTEBOOKS]
    assert json.loads((tmp_path / "own" / ".copied.json").read_text()).keys() == {
        p.name for p in NOTEBOOKS
    }
