"""For the API's pages: settings of algorithms with those that they inherit, their types, and their
defaults in plain words.

mkdocstrings reads the source and does not run it; there ``PPO`` documents only what it adds to
``OnPolicy``, as the package itself completes docstrings when it is imported.
"""

import re

import griffe

CALL = re.compile(r"param\((.*)\)", re.S)  # makes a field; the first argument is its default
SETTINGS = "algorithms.settings.Settings"


class SettingsInApi(griffe.Extension):
    """What griffe calls when it has read a package."""

    def on_package(self, *, pkg, **_):
        """Complete the arguments of every dataclass of settings."""
        base = pkg[SETTINGS]
        for cls in classes(pkg):
            if cls.docstring is not None and any(above is base for above in cls.mro()):
                complete(cls)


def classes(module):
    """Yield the classes of a module and of the modules in it."""
    for member in module.members.values():
        if member.is_alias:
            continue
        if member.is_class:
            yield member
        elif member.is_module:
            yield from classes(member)


def arguments(cls):
    """Return the arguments that a class's own docstring names, a list that can be added to."""
    sections = cls.docstring.parsed if cls.docstring is not None else []
    kind = griffe.DocstringSectionKind.parameters
    found = next((section for section in sections if section.kind is kind), None)
    if found is None:
        found = griffe.DocstringSectionParameters([])
        sections.append(found)
    return found.value


def complete(cls):
    """Add the arguments of the bases of ``cls`` to its own, and to each its type and default."""
    own = arguments(cls)
    for above in (cls, *cls.mro()):
        for argument in arguments(above):
            if argument.name not in {known.name for known in own}:
                own.append(
                    griffe.DocstringParameter(argument.name, description=argument.description)
                )
            known = next(known for known in own if known.name == argument.name)
            field = above.members.get(argument.name)
            if field is not None and known.annotation is None:
                known.annotation, known.value = field.annotation, plain(field.value)


def plain(default):
    """Return a default as its reader would write it: that of ``param(4, ...)`` is 4."""
    made = CALL.fullmatch(str(default))
    if made is None:
        return default
    depth = 0
    for place, letter in enumerate(made[1]):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            return made[1][:place]
    return made[1]
