"""How the command line reads its options, and calls their values in its help."""

from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from cupydrive.errors import CupydriveError
from cupydrive.executors import checked_device
from cupydrive.inputs.arguments import checked_choice

# What may be left out shows no default: its sentence says what happens then, where tyro would print "None".
unsaid = partial(tyro.conf.arg, help_behavior_hint="")
JsonFile = Annotated[Path | None, unsaid(name="json", metavar="FILE")]
ChartFile = Annotated[Path | None, unsaid(metavar="FILE")]
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
Pruner = Annotated[str | None, choice("--pruner", "median", "halving", "hyperband"), unsaid()]
Players = Annotated[str | None, choice("--players", "random", "heuristic"), unsaid()]
Others = Annotated[str | None, choice("--others", "random", "heuristic"), unsaid()]
Learner = Annotated[str | None, choice("--learner", "auto", "torch", "kernels"), unsaid()]
Int = Annotated[int | None, number(int), unsaid()]
Float = Annotated[float | None, number(float), unsaid()]
Groups = Annotated[tuple[str, ...], unsaid(metavar="GROUP ...")]
Pairs = Annotated[tuple[str, ...], unsaid(metavar="KEY=VALUE ...")]
