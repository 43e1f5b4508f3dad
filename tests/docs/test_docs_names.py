"""What pages of docs/ name in code, in tables and sentences too, exists: calls with their arguments, commands with their flags.

tests/docs/test_docs.py runs blocks. Here are the marks between backticks, which nothing runs, and blocks of commands of ours
that a page says no test runs. Columns of a table that are about another library are left out.
"""

import ast
import inspect
import re
import shlex
import typing
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import tyro
from page_blocks import BLOCK, blocks, pages
from test_dialect import members

import cupydrive as cd
from cupydrive import envs
from cupydrive.checks.report import Report
from cupydrive.cli.main import COMMANDS
from cupydrive.drawing.canvas import Canvas
from cupydrive.playing.evaluation import Evaluation
from cupydrive.profiling import Profile

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages()
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OTHERS = ("WarpDrive", "WarpDrive's YAML", "gymnax")  # heads of columns that name what is not ours
# What pages call objects, and what is made by what: enough to follow each chain that starts from one.
OBJECTS = {"run": cd.Run, "again": cd.Run, "trajectory": cd.Trajectory, "kept": cd.Snapshot, "canvas": Canvas}
OBJECTS |= {"p": Profile, "recording": cd.Recording, "video": cd.Video, "report": Report, "EnvSpec": cd.EnvSpec}
RETURNED = {
    cd.make: cd.VectorEnv, cd.train: cd.Run, cd.load: cd.Run, cd.evaluate: Evaluation, cd.Run.evaluate: Evaluation,
    cd.check: Report, cd.profile: Profile, cd.render: cd.Video, cd.Run.render: cd.Video, cd.sweep: cd.Sweep,
}  # fmt: skip
HELD = {(Evaluation, "recording"): cd.Recording, (cd.Run, "env"): cd.VectorEnv}
# Whose further options a function hands on.
HANDED_ON = {
    cd.Run.render: (cd.render,), cd.Run.evaluate: (cd.evaluate,), cd.VectorEnv.view: (cd.view, cd.render),
    cd.view: (cd.render,), cd.suggested_algorithm: (cd.PPO, cd.A2C, cd.DDPG), cd.Population.evaluate: (cd.evaluate,),
}  # fmt: skip
ADAPTERS = ("gymnasium", "pettingzoo", "stable_baselines3", "lightning")
OF_OTHERS = {"--pid", "--ipc", "--shared"}  # of containers, and of a program in tests/
IN_KERNELS = members("drive/env.cuh", "Env") | {"print", "NAME"}


# ---- what there is ---------------------------------------------------------------------------------------------------


@cache
def params():
    """Names of the parameters of each environment of the package."""
    return {name: {f.name for f in fields(envs.get(name).params)} for name in envs.names()}


@cache
def keywords():
    """Every name that a function or a class of ours takes as an argument, parameters of environments included."""
    offered = [one for name in cd.__all__ if callable(one := getattr(cd, name))]
    offered += [
        method for one in offered if inspect.isclass(one) for _, method in inspect.getmembers(one, inspect.isfunction)
    ]
    for name in ADAPTERS:
        offered += [one for one in vars(import_module(f"cupydrive.{name}")).values() if callable(one)]
    found = set().union(*params().values())
    for one in offered:
        if not (inspect.isclass(one) and issubclass(one, Exception | Warning)) and one.__module__.startswith(
            "cupydrive"
        ):
            found |= set(inspect.signature(one).parameters)
    return found


@cache
def options():
    """The flags of each command, as its help has them."""
    found = {}
    for name, function in COMMANDS.items():
        found[name] = {"--help"}
        for argument in inspect.signature(function).parameters.values():
            hints = typing.get_args(argument.annotation)[1:]
            called = next((hint.name for hint in hints if getattr(hint, "name", None)), None) or argument.name
            if tyro.conf.Positional not in hints:
                flag = called.replace("_", "-")
                found[name] |= {f"--{flag}"} | ({f"--no-{flag}"} if argument.annotation is bool else set())
    return found


def has(owner, name):
    """Return whether a module, a class or an object of it has an attribute, set in ``__init__`` or inherited included."""
    if hasattr(owner, name) or not inspect.isclass(owner):
        return hasattr(owner, name)
    if is_dataclass(owner) and name in {f.name for f in fields(owner)}:
        return True
    own = [base for base in owner.__mro__ if base.__module__.startswith("cupydrive")]
    return any(re.search(rf"\bself\.{name}\b[^=\n]*= |\b{name}: ", inspect.getsource(base)) for base in own)


# ---- what a piece of code says ---------------------------------------------------------------------------------------


def resolve(node, wrong):
    """Return what an expression is as far as it can be told, else None; say in ``wrong`` what it names that is not there."""
    if isinstance(node, ast.Name):
        return cd if node.id in ("cd", "cupydrive") else OBJECTS.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, wrong)
        if owner is None:
            return None
        if inspect.ismodule(owner) and not hasattr(owner, node.attr):
            try:
                return import_module(f"{owner.__name__}.{node.attr}")
            except ImportError:
                pass
        if not has(owner, node.attr):
            wrong.append(f"{getattr(owner, '__name__', owner)} has no {node.attr}")
            return None
        return HELD.get((owner, node.attr)) or getattr(owner, node.attr, None)
    if isinstance(node, ast.Call):
        function = resolve(node.func, wrong)
        if callable(function):
            wrong += misfits(function, node)
        return (
            function if inspect.isclass(function) else RETURNED.get(function) if inspect.isfunction(function) else None
        )
    return None


def misfits(function, call):
    """Return in words what a call's arguments have that the function does not take."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # an exception
        return []
    known = dict(signature.parameters)
    places = [one for one in known.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    most = len(places) - (bool(places) and places[0].name == "self")
    given = [one for one in call.args if not isinstance(one, ast.Starred) and ast.unparse(one) != "..."]
    any_number = any(one.kind is one.VAR_POSITIONAL for one in known.values())
    wrong = [f"{function.__name__} takes {most} by place"] if len(given) > most and not any_number else []
    taken = set(known)
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):
        first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        taken |= params().get(first) or set().union(*params().values())
        for other in HANDED_ON.get(function, ()):
            taken |= set(inspect.signature(other).parameters)
    return wrong + [
        f"{function.__name__} takes no {one.arg}" for one in call.keywords if one.arg and one.arg not in taken
    ]


def wrong_command(words):
    """Return in words what a command line of ours has that there is not; ``words`` follow ``cupydrive``."""
    if not words or not re.match(r"[a-z]", words[0]):
        return []
    if words[0] not in COMMANDS:
        return [f"no command {words[0]}"]
    flags = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    return [f"{words[0]} has no {flag}" for flag in flags if flag not in options()[words[0]]]


def wrong_in(code):
    """Return in words what a piece of code between backticks names that does not exist."""
    wrong = []
    if re.match(r"cupydrive( |$)", code):
        return wrong_command(shlex.split(code)[1:])
    if re.match(r"--\w", code):
        known = set().union(*options().values()) | OF_OTHERS
        return [f"no command has {flag}" for flag in re.findall(r"--[\w-]+", code) if flag not in known]
    for name in re.findall(r"\bCUPYDRIVE_[A-Z_]+", code):
        if name not in sources():
            wrong.append(f"nothing reads {name}")
    for name in re.findall(r"(?<![\w./\])])env\.(\w+)", code):
        if name not in IN_KERNELS | group_names() and not has(cd.VectorEnv, name):
            wrong.append(f"env has no {name}")
    if (found := re.match(r"([a-z]\w*)=(?!=)", code)) and found[1] not in keywords():
        wrong.append(f"nothing takes {found[1]}=")
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    if (found := re.match(r"make ([\w-]+)$", code)) and found[1] not in targets:
        wrong.append(f"make has no {found[1]}")
    for name in re.findall(r"(?<![\w/])([\w-]+\.(?:toml|yml|cff|json))$", code):
        if not list(ROOT.rglob(name)) and name not in sources():
            wrong.append(f"no file {name}")
    try:
        nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call | ast.Attribute)]
    except SyntaxError:  # C, or a pattern
        nodes = []
        wrong += [f"cd has no {name}" for name in re.findall(r"\bcd\.(\w+)", code) if not hasattr(cd, name)]
    for node in nodes:
        resolve(node, wrong)
    return list(dict.fromkeys(wrong))


@cache
def sources():
    """The text of the package and of what builds it."""
    return "".join(path.read_text() for path in [*(ROOT / "cupydrive").rglob("*.py"), ROOT / "Makefile"])


@cache
def group_names():
    """Names of the groups of the package's environments, and of those that pages describe."""
    told = re.findall(r'\bGroup\(\s*"(\w+)"', "".join(PAGES.values()))
    return {*told, *(g.name for name in envs.names() for g in envs.get(name).groups(envs.get(name).make_params()))}


# ---- pages -----------------------------------------------------------------------------------------------------------


def pieces(text):
    """Yield the code between backticks of a page, without its blocks and without what tables say of other libraries."""
    heads = None
    for line in BLOCK.sub("", text).splitlines():
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|")) if line.startswith("|") else None
        heads = None if cells is None else heads or [cell.strip() for cell in cells]
        for column, cell in enumerate(cells or [line]):
            if heads is None or column >= len(heads) or heads[column] not in OTHERS:
                yield from CODE.findall(cell)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_in_code_exists(name):
    wrong = [(code, said) for code in pieces(PAGES[name]) if (said := wrong_in(code))]
    for block in blocks(PAGES[name]):
        for line in re.sub(r"\\\n", " ", block.code).splitlines() if block.language == "bash" else ():
            if ours := re.search(r"(?:^|-m |\s)cupydrive ([a-z]+ .*?)(?: # .*)?$", line):
                wrong += [(line, said) for said in wrong_command(shlex.split(ours[1], comments=True))]
    assert not wrong


@pytest.mark.parametrize("code", [
    "cd.trian", 'cd.make("cartpole", num_env=3)', 'cd.make("tag_grid", gravity=1)', "cd.PPO(gama=0.9)", "run.evalute()",
    "cd.train(1, 2, 3)", "cd.make(...).rolout(3)", "run.evaluate().recoding", "env.resett()", "trajectory.rewards",
    "cupydrive trian", "cupydrive train cartpole --gpu 2", "--jason", "CUPYDRIVE_CASH", "num_environments=3", "make sites",
    "EnvSpec(key=...)", "p.plots()", "cupydrive.gymnasium.registers()", "environments.yml",
])  # fmt: skip
def test_what_is_misspelt_is_found(code):
    assert wrong_in(code)
