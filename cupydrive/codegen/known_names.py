"""Names that a kernel may use, read from the text that is generated for it, and where a name that a compiler misses stands."""

import re
from dataclasses import dataclass, field
from difflib import get_close_matches

UNKNOWN = re.compile(
    r"""'(\w+)' was not declared|undeclared identifier '(\w+)'|identifier "(\w+)" is undefined"""
    r"""|'(\w+)' is not a member of 'math'|no member named '(\w+)' in namespace 'math'"""
    r"""|namespace "math" has no member "(\w+)\""""
)
_MEMBER = re.compile(
    r"""'(?:const )?(?:struct )?(?P<a>\w+)' has no member named '(?P<b>\w+)'|no member named '(?P<d>\w+)' in '(?P<c>\w+)'"""
    r"""|(?:class|struct) "(?P<e>\w+)" has no member "(?P<f>\w+)\""""
)
_STRUCT = r"\bstruct\s+{}\s*\{{(.*?)\}}"
_TYPES = {"float", "int", "u32", "unsigned", "const", "double", "bool"}


@dataclass
class KnownNames:
    """What a kernel may name.

    Args:
        members: Members of ``Params``, ``State`` and ``Log``, as Python declares them.
        constants: Compile-time ints.
        groups: Names of groups.
        tables: Names of tables.
    """

    members: dict[str, list[str]] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, unit):
        """Return those of a ``Unit``; of one that is no environment, none."""
        agreement, sizes, tables = (
            "\n".join(unit.files.get(f"<generated/{name}.cuh>", ())) for name in ("agreement", "sizes", "tables")
        )
        declared = re.findall(r"decltype\((\w+)::(\w+)\)", agreement)
        return cls(
            {struct: [name for of, name in declared if of == struct] for struct in ("Params", "State", "Log")},
            re.findall(r"^constexpr int (\w+) =", sizes, re.M),
            re.findall(r"OFFSET_OF\(Batch, rows\.(\w+)\)", agreement),
            re.findall(r"^  TableArray<.*> (\w+);", tables, re.M),
        )

    def instead_of(self, name):
        """Return what a kernel writes for ``name``, in words, or an empty string."""
        members = self.members
        if name.upper() in self.constants:
            return f"write {name.upper()}: an int parameter is a constant of its upper-case name"
        if name.lower() in members.get("Params", ()):
            return f"write env.params.{name.lower()}: a float parameter is a member of struct Params"
        for place, names in (
            ("env.state.", members.get("State", ())),
            ("env.log.", members.get("Log", ())),
            ("env.table.", self.tables),
            ("env.", self.groups),
        ):
            if name in names:
                return f"write {place}{name}"
        if name.isupper() and self.groups and not get_close_matches(name, self.constants, 1):
            given = f"EnvSpec(..., constants=lambda params: {{{name!r}: ...}})"
            return f"constants are Python's: {given}, or an int parameter {name.lower()}"
        return ""

    def advice(self, what):
        """Return what to do about a compiler's message of a name that there is not, or an empty string."""
        if unknown := UNKNOWN.search(what):
            return self.instead_of(next(filter(None, unknown.groups()))) if "math" not in what else ""
        missing = _MEMBER.search(what)
        if missing is None:
            return ""
        struct, name = (missing[a] or missing[b] or missing[c] for a, b, c in (("a", "c", "e"), ("b", "d", "f")))
        # What Python declares and the struct lacks is told by an error of its own.
        if name in self.members.get(struct, ()):
            return ""
        if struct == "Log":
            return f"declare it in Python: EnvSpec(..., metrics={{{name!r}: 'int'}}), or 'float'"
        if struct not in ("Params", "State", "Env"):
            return ""
        if struct == "Env" and (near := get_close_matches(name, self.groups, 1)):
            return f"write env.{near[0]}"
        if (instead := self.instead_of(name)) or struct == "Env":
            return instead
        return f"{struct} has {', '.join(self.members.get(struct, ()))}; a new member is declared in Python, too"

    def in_body(self, struct, name, kernel):
        """Return whether the body of ``struct`` in the kernel's code names ``name``."""
        return name in _words(struct, kernel)

    def other_order(self, struct, kernel):
        """Return the members of ``struct`` in both orders, in words, or an empty string where the kernel has them in Python's.

        Args:
            struct: ``"Params"`` or ``"State"``.
            kernel: The kernel, without comments.
        """
        wanted = self.members.get(struct, [])
        there = [word for word in _words(struct, kernel) if word in wanted]
        if there == wanted or sorted(there) != sorted(wanted):
            return ""
        return f"the order is another:\n    in Python: {', '.join(wanted)}\n    in the kernel: {', '.join(there)}"

    def surplus(self, struct, kernel):
        """Return in words what ``struct`` has in the kernel's code and not in Python, or an empty string.

        Args:
            struct: ``"Params"`` or ``"State"``.
            kernel: The kernel, without comments.
        """
        more = [word for word in _words(struct, kernel) if word not in {*self.members.get(struct, ()), *_TYPES}]
        if not more:
            return ""
        constants = [name for name in more if struct == "Params" and name.upper() in self.constants]
        said = f"the kernel also has {', '.join(more)}"
        if constants:
            return f"{said}; an int parameter is a constant, {constants[0].upper()}, and no member of Params"
        return f"{said}, which Python does not declare"


def _words(struct, kernel):
    """Return the words in the body of a struct of a kernel, in order, but those in brackets."""
    body = re.search(_STRUCT.format(struct), kernel, re.S)
    return re.findall(r"\b[A-Za-z_]\w*\b(?!\s*::)", re.sub(r"\[[^\]]*\]", "", body[1])) if body else []
