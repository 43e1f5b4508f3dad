"""Every notebook runs from top to bottom on the CPU, leaves no process behind, and is committed without outputs."""

from pathlib import Path

import pytest
from conftest import optional, python_path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 120  # for one cell


def read(path):
    return optional("nbformat").read(path, as_version=4)


def kernels():
    """Return the notebook kernels that this process has started and that still run."""
    psutil = optional("psutil")
    found = psutil.Process().children(recursive=True)
    return [
        p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE and "ipykernel" in str(p.cmdline())
    ]


def run(path, folder, monkeypatch):
    """Run a notebook as small as tests want it, hold what is true of all, and return its outputs."""
    client = optional("nbclient").NotebookClient
    optional("ipykernel")

    monkeypatch.setenv("CUPYDRIVE_STEPS", "4000")
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the CPU executor, wherever this runs
    notebook = read(path)
    client(notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error"]
    shown = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert all(text.startswith("cupydrive: device:") for text in shown), shown
    assert len(outputs) >= 5
    assert not kernels()
    return outputs


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
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
    assert any("PASS  lake" in o.data["text/plain"] for o in outputs if o.output_type == "execute_result")


LONG = """
import cupydrive as cd
begun = []
def tell(step, metrics):
    if not begun:
        print("begun", flush=True)
    begun.append(step)
run = cd.train("cartpole", cd.PPO(num_steps=8), num_envs=16, steps=10**6, device="cpu", callback=tell)
"""


@pytest.mark.notebook
@pytest.mark.filterwarnings("ignore")
def test_interrupting_a_cell_keeps_the_result(tmp_path, monkeypatch):
    start_new_kernel = optional("jupyter_client.manager").start_new_kernel
    optional("ipykernel")

    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setenv("CUPYDRIVE_STEPS", "1")
    manager, client = start_new_kernel(cwd=str(tmp_path))
    try:
        shown = []

        def interrupt_when_begun(message):
            shown.append(message)
            if "begun" in str(message["content"].get("text", "")):
                manager.interrupt_kernel()

        reply = client.execute_interactive(LONG, timeout=SECONDS, output_hook=interrupt_when_begun)
        assert reply["content"]["status"] == "ok"
        last = [m["content"]["data"] for m in shown if m["msg_type"] == "update_display_data"][-1]
        assert "interrupted after" in last["text/plain"] and "the result is kept" in last["text/html"]
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_committed_without_outputs_and_reads_easily(path):
    notebook = read(path)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None
    assert sum(cell.cell_type == "markdown" for cell in notebook.cells) >= 5
    optional("nbformat").validate(notebook)


def test_all_notebooks_are_there():
    names = ["quickstart", "kernels", "check", "train_cartpole", "tag", "your_own_environment", "zero_copy", "speed"]
    names += ["other_libraries", "kernels_in_python", "sciences", "populations", "lightning"]
    assert [p.stem for p in NOTEBOOKS] == [f"{k:02d}_{name}" for k, name in enumerate(names)]
