"""How the command line reads its options and their KEY=VALUE pairs, and calls their values in its help."""

import contextlib
import json
from ast import literal_eval
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from cupydrive.errors import CupydriveError
from cupydrive.executors import checked_device
from cupydrive.inputs.arguments import checked_choice, shown

# What may be left out shows no default: its sentence says what happens then, where tyro would print "None".
unsaid = partial(tyro.conf.arg, help_behavior_hint="")
JsonFile = Annotated[Path | None, unsaid(name="json", metavar="FILE")]
Folder = Annotated[Path | None, unsaid(metavar="DIR")]
EnvFile = Annotated[str | None, unsaid(metavar="FILE.py")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|FILE.py")]
MaybeName = Annotated[str | None, tyro.conf.Positional, unsaid(metavar="[NAME|FILE.py]")]
Algorithm = Annotated[str | None, unsaid(metavar="{ppo,a2c,ddpg}")]


def number(kind):
    """Return how tyro reads a number, or None: as a union of types it would name Python's classes in its messages."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=lambda texts: None if texts == ["None"] else kind(*texts),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


DEVICE = tyro.constructors.PrimitiveConstructorSpec(  # refuses what the package refuses, in its words
    nargs=1,
    metavar="{auto,cpu,cuda}",
    instance_from_str=lambda texts: checked_device(*texts),
    is_instance=lambda value: isinstance(value, str),
    str_from_instance=lambda value: [value],
)


def choice(option, *choices):
    """Return how tyro reads one of some words, or None; others are refused as Python refuses them, without tyro's frame."""

    def read(texts):
        if texts == ["None"]:
            return None
        return checked_choice("cupydrive", option, *texts, choices, CupydriveError)

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(choices)}}}",
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [str(value)],
    )


Device = Annotated[str, DEVICE]
Players = Annotated[str | None, choice("--players", "random", "heuristic"), unsaid()]
Learner = Annotated[str | None, choice("--learner", "auto", "torch", "kernels"), unsaid()]
Int = Annotated[int | None, number(int), unsaid()]
Float = Annotated[float | None, number(float), unsaid()]
Groups = Annotated[tuple[str, ...], unsaid(metavar="GROUP ...")]
Pairs = Annotated[tuple[str, ...], unsaid(metavar="KEY=VALUE ...")]


def parsed(pairs):
    """Return ``KEY=VALUE`` texts as a dictionary; values are JSON where they can be, lists if they have commas, else text."""
    found = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise CupydriveError(f"{shown(pair)} is no KEY=VALUE, such as num_taggers=4")
        found[key.replace("-", "_")] = read(text)
    return found


def read(text):
    """Return the value that a text stands for, as JSON has it: ``4``, ``[1, 2]``, ``1,2``; other texts are themselves.

    Tuples are read as Python has them, too: ``(1, 2)``, as messages about settings write them.
    """
    if text.startswith("("):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):  # brackets without end, too
            return literal_eval(text)
    for form in (text, f"[{text}]") if "," in text else (text,):
        with contextlib.suppress(ValueError, RecursionError):  # no JSON, or brackets without end
            return json.loads(form)
    return {"True": True, "False": False}.get(text, text)
