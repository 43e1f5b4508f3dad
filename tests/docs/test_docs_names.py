"""What pages of docs/ name between backticks exists: names of the package, arguments, commands with
their flags.

tests/docs/test_docs.py runs blocks. Commands in blocks that a page says no test runs are looked at
here, too.
"""

import ast
import inspect
import re
import shlex
import typing
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import tyro
from page_blocks import BLOCK, blocks, pages

import cupydrive as cd
from cupydrive import envs
from cupydrive.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages()
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
ADAPTERS = ("gymnasium", "pettingzoo", "stable_baselines3", "lightning")
# Of containers, of a program in tests/, of WarpDrive, and of a function that the package does not
# export.
OF_OTHERS = {
    "--pid", "--ipc", "--shared", "policy_tag_to_agent_id_map", "save_copy_and_apply_at_reset",
    "processes",
}  # fmt: skip


@cache
def keywords() -> set[str]:
    """Return every argument of a function or a class of ours, parameters of environments among
    them.
    """
    offered = [one for name in cd.__all__ if callable(one := getattr(cd, name))]
    offered += [
        f
        for one in offered
        if inspect.isclass(one)
        for _, f in inspect.getmembers(one, inspect.isfunction)
    ]
    for name in ADAPTERS:
        offered += [
            one for one in vars(import_module(f"cupydrive.{name}")).values() if callable(one)
        ]
    found = OF_OTHERS | {f.name for name in envs.names() for f in fields(envs.get(name).params)}
    for one in offered:
        if one.__module__.startswith("cupydrive") and not (
            inspect.isclass(one) and issubclass(one, Exception | Warning)
        ):
            found |= set(inspect.signature(one).parameters)
    return found


@cache
def flags(command: str) -> set[str]:
    """Return the flags of a command, as its help has them."""
    found = {"--help"}
    for argument in inspect.signature(COMMANDS[command]).parameters.values():
        hints = typing.get_args(argument.annotation)[1:]
        called = (
            next((hint.name for hint in hints if getattr(hint, "name", None)), None)
            or argument.name
        )
        if tyro.conf.Positional not in hints:
            flag = called.replace("_", "-")
            found |= {f"--{flag}"} | ({f"--no-{flag}"} if argument.annotation is bool else set())
    return found


@cache
def sources() -> str:
    """Return the text of the package and of what builds it."""
    return "".join(
        path.read_text() for path in [*(ROOT / "cupydrive").rglob("*.py"), ROOT / "Makefile"]
    )


def exists(name: str) -> bool:
    """Return whether a dotted name that begins with ``cd`` or ``cupydrive`` is one of the
    package.
    """
    owner = cd
    for part in name.split(".")[1:]:
        if not hasattr(owner, part):
            try:
                import_module(f"{owner.__name__}.{part}")
            # a field of a dataclass, or what __init__ sets, is in the source
            except (ImportError, AttributeError):
                return inspect.isclass(owner) and bool(
                    re.search(rf"\b{part}\b", inspect.getsource(owner))
                )
        owner = getattr(owner, part)
    return True


def wrong_command(words: list[str]) -> list[str]:
    """Return what a command line of ours has that there is not; ``words`` follow ``cupydrive``."""
    if not words or not re.match(r"[a-z]", words[0]):
        return []
    if words[0] not in COMMANDS:
        return [words[0]]
    given = [word.partition("=")[0] for word in words[1:] if word.startswith("--")]
    return [flag for flag in given if flag not in flags(words[0])]


def wrong_in(code: str) -> list[str]:
    """Return what a piece of code between backticks names that does not exist."""
    if re.match(r"cupydrive( |$)", code):
        return wrong_command(shlex.split(code)[1:])
    if re.match(r"--\w", code):
        known = set().union(*map(flags, COMMANDS)) | OF_OTHERS
        return [flag for flag in re.findall(r"--[\w-]+", code) if flag not in known]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    wrong = [name for name in re.findall(r"^make ([\w-]+)$", code) if name not in targets]
    wrong += [name for name in re.findall(r"\bCUPYDRIVE_[A-Z_]+", code) if name not in sources()]
    wrong += [
        name
        for name in re.findall(r"\b(?:cd|cupydrive)(?:\.[a-zA-Z]\w*)+", code)
        if not exists(name)
    ]
    wrong += [name for name in re.findall(r"^([a-z]\w*)=(?!=)", code) if name not in keywords()]
    try:
        calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    except SyntaxError:  # C, or a pattern
        return wrong
    ours = [call for call in calls if ast.unparse(call.func).startswith(("cd.", "cupydrive."))]
    return wrong + [
        given.arg
        for call in ours
        for given in call.keywords
        if given.arg and given.arg not in keywords()
    ]


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_in_code_exists(name):
    wrong = [
        (code, names)
        for code in CODE.findall(BLOCK.sub("", PAGES[name]))
        if (names := wrong_in(code))
    ]
    for block in blocks(PAGES[name]):
        for line in (
            re.sub(r"\\\n", " ", block.code).splitlines() if block.language == "bash" else ()
        ):
            if ours := re.search(r"(?:^|-m |\s)cupydrive ([a-z]+ .*?)(?: # .*)?$", line):
                wrong += [
                    (line, names) for names in wrong_command(shlex.split(ours[1], comments=True))
                ]
    assert not wrong


@pytest.mark.parametrize("code", [
    "cd.trian", 'cd.make("cartpole", num_env=3)', "cd.PPO(gama=0.9)", "cd.Run.evalute",
    "cupydrive trian",
    "cupydrive train cartpole --gpu 2", "--jason", "CUPYDRIVE_CASH", "num_environments=3",
    "make sites",
    "cupydrive.gymnasium.registers()",
])  # fmt: skip
def test_what_is_misspelt_is_found(code):
    assert wrong_in(code)
