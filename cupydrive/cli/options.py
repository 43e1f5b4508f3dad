"""Types of the command line's options, and their KEY=VALUE pairs."""

import contextlib
import json
from collections.abc import Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from cupydrive.errors import CupydriveError
from cupydrive.inputs.arguments import shown

# Optional arguments show no default, because tyro would print "None". Their help describes it.
unsaid = partial(tyro.conf.arg, help_behavior_hint="")
JsonFile = Annotated[Path | None, unsaid(name="json", metavar="FILE")]
Folder = Annotated[Path | None, unsaid(metavar="DIR")]
EnvFile = Annotated[str | None, unsaid(metavar="FILE.py")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|FILE.py")]
MaybeName = Annotated[str | None, tyro.conf.Positional, unsaid(metavar="[NAME|FILE.py]")]
Algorithm = Annotated[str | None, unsaid(metavar="{ppo,a2c,pqn,ddpg}")]


DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], tyro.conf.arg(metavar="{auto,cpu,cuda}", constructor=str)
]
PolicyOption = Annotated[str | None, unsaid(metavar="{random,heuristic}")]
Backend = Annotated[str | None, unsaid(metavar="{auto,torch,kernels}")]
Int = Annotated[int | None, unsaid(metavar="INT")]
Float = Annotated[float | None, unsaid(metavar="FLOAT")]
# An option with several values may be repeated, and then adds values. They are grouped by use.
Several = Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]
Groups = Annotated[Several, unsaid(metavar="GROUP ...")]
Pairs = Annotated[Several, unsaid(metavar="KEY=VALUE ...")]


def parsed(pairs: Iterable[Iterable[str]]) -> dict[str, Any]:
    """Parse groups of ``KEY=VALUE`` texts to a dictionary. ``read`` parses each value.

    Raises:
        CupydriveError: If a text has no ``=``.
    """
    found = {}
    for pair in chain.from_iterable(pairs):
        key, equals, text = pair.partition("=")
        if not equals:
            raise CupydriveError(f"got {shown(pair)}, expected KEY=VALUE, such as num_taggers=4")
        found[key.replace("-", "_")] = read(text)
    return found


def read(text: str) -> Any:
    """Parse a value as JSON, such as ``4`` or ``[1, 2]``, or as a list, such as ``1,2``.

    Any other text is returned unchanged.
    """
    for form in (text, f"[{text}]") if "," in text else (text,):
        with contextlib.suppress(ValueError, RecursionError):  # not JSON, or nested too deeply
            return json.loads(form)
    return {"True": True, "False": False}.get(text, text)
