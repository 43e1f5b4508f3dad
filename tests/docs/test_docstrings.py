"""Examples in docstrings of the package run and print what they show."""

import ast
import doctest
import inspect
from pathlib import Path

import pytest

import cupydrive as cd

ROOT = Path(__file__).resolve().parents[2]
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Public names that users call first.
SHOWN = [
    "A2C", "DDPG", "Display", "EnvSpec", "Field", "GRU", "Group", "Network", "OpponentPool", "PPO",
    "PQN", "Reference", "Run", "StepResult", "VectorEnv", "VectorEnv.rollout", "VectorEnv.step",
    "check", "check_policy", "difference", "evaluate", "load", "make", "param", "render", "sweep",
    "tournament", "train",
]  # fmt: skip


def examples():
    """Yield the docstrings that contain an example, each as a test with the name of its object."""
    for path in sorted((ROOT / "cupydrive").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        inside = [(module, ast.parse(path.read_text()))]
        for name, node in inside:
            kinds = ast.ClassDef | ast.FunctionDef
            inside += [(f"{name}.{n.name}", n) for n in node.body if isinstance(n, kinds)]
            text = ast.get_docstring(node)
            if text and ">>>" in text:
                yield name, text, path


@pytest.mark.full
# Lightning uses a deprecated function of torch.
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize(("name", "text", "path"), [pytest.param(*e, id=e[0]) for e in examples()])
def test_an_example_prints_what_it_shows(name, text, path, tmp_path, monkeypatch):
    if "lightning" in name:
        pytest.importorskip("lightning")
    if "pettingzoo" in name or "stable_baselines3" in name:
        pytest.importorskip(name.split(".")[2])
    if "sweep" in name:
        pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(text, {}, name, str(path), 0)
    printed = []
    doctest.DocTestRunner(verbose=False, optionflags=ALIKE).run(test, out=printed.append)
    assert not printed, "".join(printed)


@pytest.mark.parametrize("name", SHOWN)
def test_what_users_call_first_has_an_example(name):
    found = cd
    for part in name.split("."):
        found = getattr(found, part)
    assert "\nExamples:\n" in inspect.cleandoc(found.__doc__)
