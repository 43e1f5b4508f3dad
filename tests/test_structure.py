"""The house: imports go one way, kernels use nothing that differs between CPU and GPU, two files an environment."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "cupydrive"
# A module imports only modules that stand before it.
ORDER = [
    "errors",
    "arguments",
    "files",
    "events",
    "formats",
    "archive",
    "random",
    "canvas",
    "descriptions",
    "spec",
    "envs",
    "printing",
    "diagnostics",
    "source",
    "executors",
    "interop",
    "python_kernels",
    "batch",
    "actions",
    "curves",
    "progress",
    "causes",
    "report",
    "bits",
    "resets",
    "branches",
    "checker",
    "schedule",
    "normalize",
    "inference",
    "policy",
    "rollout",
    "players",
    "algorithms",
    "recording",
    "evaluation",
    "frames",
    "video",
    "viewer",
    "snapshots",
    "trajectory",
    "vector",
    "examples",
    "gymnasium_input",
    "gymnasium",
    "stable_baselines3",
    "pettingzoo",
    "magic",
    "runfolder",
    "frozen",
    "run",
    "torch_settings",
    "loop",
    "outfolder",
    "training",
    "tuner",
    "making",
    "about",
    "gallery_page",
    "gallery",
    "scaffold",
    "bench",
    "demo",
    "commands",
    "__main__",
]
KERNELS = sorted((ROOT / "kernels" / "envs").glob("*.cu"))


def imported(path):
    """Return the modules of the package that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cupydrive"):
            parts = node.module.split(".")
            yield from (
                [parts[1]]
                if len(parts) > 1
                else [a.name for a in node.names if (PACKAGE / f"{a.name}.py").exists() or (PACKAGE / a.name).is_dir()]
            )


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts == ("__init__",) or "templates" in parts:
        return
    here = ORDER.index(parts[0])
    for name in imported(path):
        assert ORDER.index(name) <= here, f"{path.name} imports {name}"


@pytest.mark.parametrize("module", ["spec", "random", "envs", "source", "report", "batch", "checker", "executors.host"])
def test_these_need_neither_torch_nor_cupy(module):
    block = "import sys\nfor name in ('torch', 'cupy'):\n    sys.modules[name] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{block}import cupydrive.{module}"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_import_cupydrive_loads_neither_torch_nor_cupy_nor_numpy():
    program = "import sys, cupydrive; print([m for m in ('torch', 'cupy', 'numpy', 'gymnasium') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_no_module_has_the_name_of_something_the_package_offers():
    """An import of the module would put it where the function is expected."""
    import cupydrive

    assert not set(cupydrive._HOME) & set(ORDER)


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.name)
def test_environments_use_the_dialects_mathematics_only(path):
    code = re.sub(r"//.*", "", path.read_text())
    words = "(?:f?(?:min|max|abs)|sin|cos|tan|tanh|atan2|sqrt|exp|log|pow|floor|ceil|round|fmod)f?"
    bare = rf"(?<![\w:.]){words}\s*\("
    assert not re.findall(bare, code)
    assert not re.findall(r"#\s*include\s*<|\bdouble\b|\d\.\d+(?![\df])", code)


def test_every_environment_has_its_two_files():
    from cupydrive import envs

    assert (
        {p.stem for p in KERNELS}
        == {p.stem for p in (PACKAGE / "envs").glob("*.py") if p.stem != "__init__"}
        == set(envs.names())
    )
