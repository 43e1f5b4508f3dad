"""Options that a command does not have, numbers that are none, what lacks and what is too much: said in one line, unframed.

Everything else that can be wrong with a command line is the parser's, or the command's own.
"""

import contextlib
import inspect
import math
from typing import get_args, get_origin, get_type_hints

import tyro

from cupydrive import envs
from cupydrive.errors import CupydriveError, did_you_mean
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.names import ELSEWHERE

NUMBERS = {int: "an integer, such as 16", float: "a number, such as 2e6"}
HELP = ("--help", "-h")


def options(command):
    """Return by flag, such as ``--num-envs``, the type that a command's function gives the option, None left out."""
    whole, plain, found = get_type_hints(command, include_extras=True), get_type_hints(command), {}
    for name in inspect.signature(command).parameters:
        about = get_args(whole[name])[1:]
        if tyro.conf.Positional in about:
            continue
        said = next((each.name for each in about if getattr(each, "name", None)), None)
        flag = (said or name).replace("_", "-")
        kinds = [kind for kind in get_args(plain[name]) or (plain[name],) if kind is not type(None)]
        found[f"--{flag}"] = kinds[0] if len(kinds) == 1 else plain[name]
        if plain[name] is bool:
            found[f"--no-{flag}"] = bool
    return found


def wrong_option(name, command, args):
    """Return in words the first option that a command does not have, or number that is none; None if there is none.

    Args:
        name: Of the command.
        command: Its function.
        args: What follows the command's name.
    """
    known = options(command)
    for number, text in enumerate(args):
        if text == "--" or any(each in args for each in HELP):
            return None
        if not text.startswith("--"):
            continue
        given, equals, value = text.partition("=")
        flag = given.replace("_", "-")
        if not equals:
            value = next((each for each in args[number + 1 : number + 2] if not each.startswith("--")), None)
        if flag not in known:
            return f"{name} has no option {shown(given)}.{elsewhere(flag, value, known, args)} See: cupydrive {name} --help"
        if value is not None and known[flag] in NUMBERS and not is_number(value, known[flag]):
            return f"{flag} {shown(value)}; it must be {NUMBERS[known[flag]]}. See: cupydrive {name} --help"
    return None


def wrong_count(name, command, args):
    """Return in words what a command needs and is not given, or the first argument that is one too many; None if neither is so.

    Args:
        name: Of the command.
        command: Its function.
        args: What follows the command's name; none of it is a wrong option.
    """
    if any(each in args for each in ("--", *HELP)):
        return None
    types, left, flags, free = options(command), [], set(), 0
    for text in args:
        if text.startswith("--"):
            given, equals, _ = text.partition("=")
            flag = given.replace("_", "-")
            flags.add(flag)
            free = 0 if equals else values_of(types[flag])
        elif free:
            free -= 1
        else:
            left.append(text)
    positional, needs = [], []
    hints = get_type_hints(command, include_extras=True)
    for key, parameter in inspect.signature(command).parameters.items():
        kind, *about = get_args(hints[key]) or (hints[key],)
        called = next((each.metavar for each in about if getattr(each, "metavar", None)), key.upper())
        if tyro.conf.Positional in about:
            positional.append((called.strip("[]"), values_of(kind)))
            if parameter.default is parameter.empty and not left and values_of(kind) == 1:
                needs.append(called)
        elif parameter.default is parameter.empty and (flag := f"--{key.replace('_', '-')}") not in flags:
            needs.append(f"{flag} {called}")
    if needs:
        return f"{name} needs {' and '.join(needs)}. See: cupydrive {name} --help"
    most = sum(count for _, count in positional)
    if len(left) > most:
        takes = f"one {' and one '.join(called for called, _ in positional)}" if positional else "options alone"
        return f"{name} takes {takes}; {shown(left[int(most)])} is one too many. See: cupydrive {name} --help"
    return None


def values_of(kind):
    """Return how many texts an option of a type takes: none for a switch, any number for a tuple."""
    if get_origin(kind) is tuple:
        return math.inf
    return 0 if kind is bool else 1


def is_number(text, kind):
    """Return whether a text is a number as the parser reads it; None is what stands for a default."""
    try:
        kind(text)
    except ValueError:
        return text == "None"
    return True


def elsewhere(flag, value, known, args):
    """Return where what an unknown option names is given: settings and parameters are pairs; else the nearest option."""
    name, ways, value = flag.removeprefix("--").replace("-", "_"), [], "..." if value is None else value
    if "--set" in known:
        from cupydrive.training.algorithms import ALGORITHMS
        from cupydrive.training.misplaced import meant

        asked = [kind for word, kind in ALGORITHMS.items() if word in [each.lower() for each in args]]
        ours = [setting for kind in asked or ALGORITHMS.values() if (setting := meant(name, kind))]
        ways += [f"--set {ours[0]}={value}"] if ours else []
    if "--param" in known:
        for word in args:
            with contextlib.suppress(CupydriveError):
                if word in envs.names() and name in envs.get(word).make_params().__dataclass_fields__:
                    ways.append(f"--param {name}={value}")
    if ways:
        return f" Did you mean {' or '.join(ways)}?"
    ours = next((f"--{each}" for each in ELSEWHERE.get(name, ()) if f"--{each}" in known), None)
    return f" Did you mean {ours} {value}?" if ours else did_you_mean(flag, known)


def swallowed(**taken):
    """Return in words what an option of several values has taken that is an environment; else which environments there are.

    Args:
        **taken: Texts by option.
    """
    for option, texts in taken.items():
        for text in texts:
            if text in envs.names() or text.endswith(".py"):
                what = "no KEY=VALUE" if option in ("set", "param") else "no group"
                first = f"the environment comes first: cupydrive train {text} --{option} ..."
                return f"{shown(text)} after --{option} is {what}; {first}"
    return f"Environments: {', '.join(envs.names())}"
