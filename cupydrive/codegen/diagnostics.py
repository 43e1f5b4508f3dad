"""Convert a compiler's log to one message with file, line, source line and advice."""

import re
from difflib import get_close_matches

from cupydrive.codegen.dialect import MATH, code_only, entry, heading, math_advice
from cupydrive.codegen.source import Unit
from cupydrive.errors import CompileError

# Diagnostics for g++, clang++ and zig, and the same ones for NVRTC by number: a missing return, an
# unused result, an uninitialized variable. They do not change the machine code. The last one is a
# warning of g++ that `explain` turns into an error for the user's files only, because after
# optimization g++ also suspects members of the package's own structs.
GNU_WARNINGS = (
    "-Wno-all",
    "-Werror=return-type",
    "-Werror=unused-value",
    "-Werror=vla",  # variable-length arrays, which NVRTC rejects
    "-Wuninitialized",
    # clang's warning has false positives.
    "-Wno-sometimes-uninitialized",
)
NVRTC_WARNINGS = ("--diag-error=940,174,549",)
AGREEMENT = "<generated/agreement.cuh>"  # static assertions of agreement.py
SHOWN_MISTAKES = 3  # maximum number of independent errors in one message

# Messages of g++, clang and NVRTC, and the fix.
COMPILER_ADVICE = (
    (
        r"no return statement in function|end of non-void|not return a value"
        r"|missing return statement",
        "a function that is not void must return on every path. Use `return false;` where an "
        "episode continues",
    ),
    (
        r"overloaded function type>\[|reference to (?:non-static member|overloaded) function"
        r"|bound function may only",
        "use parentheses for agents and brackets for entries: env.GROUP.reward(agent), "
        "env.GROUP.obs(agent)[entry]",
    ),
    (
        r"deleted (?:member )?function|cannot be referenced -- it is a deleted",
        "env.team's sum, min, before and add and Random::below take integers. Random::unit takes a "
        "word such as env.random.bits(i).x",
    ),
    (
        r"inlining failed .*(?:recursive inlining|function not inlinable)",
        "recursion is not supported. Write a loop",
    ),
    (
        r"frame size",
        "on a CPU, struct Shared and the arrays of functions are on a thread's stack. Make them "
        "smaller, or members of State",
    ),
)
_ERROR = (  # OWN is replaced by the names of the author's files
    r"^(?P<file>OWN|[^\n:()]+?)(?::(?P<a>\d+)(?::\d+)?|\((?P<b>\d+)\)): "
    r"(?:(?:fatal )?error|(?P<warning>warning)):? ?(?P<what>.*)$"
    r"(?:\n +(?P<operands>operand types are: .*)$)?"  # NVRTC only
)
_UNKNOWN = re.compile(
    r"""['"](\w+)['"] (?:was not declared|is undefined|is not a member of)"""
    r"|undeclared identifier '(\w+)'"
    r"""|(?:no member named|has no member(?: named)?) ['"](\w+)['"]"""
)


def explain_compile_error(unit: Unit, log: str) -> CompileError | None:
    """Return a ``CompileError`` with the first errors of a compiler's ``log``.

    Structs that differ from their description come first, then errors in the author's files. Errors
    in the package's files are usually consequences of these, and are shown only if there are no
    others. Each message is shown once. The result is None if the log names no error in a file.
    """
    own_files = (unit.shown, *unit.headers)
    code = code_only("\n".join(line for file in own_files for line in unit.files.get(file, [])))
    errors = _errors(log, own_files, code)
    own = [e for e in errors if e[0] in own_files]
    structs = [e for e in errors if e[0] == AGREEMENT]
    names = known_names(unit)
    found: dict[str, str] = {}
    for file, number, what in structs + own or errors:
        lines = unit.files.get(file, [])
        asserted = re.search(r'"(.*)"\);$', lines[number - 1]) if file == AGREEMENT else None
        if asserted is None:
            found.setdefault(what, entry(file, number, what, lines, _advice(what, names)))
        # Skip struct Batch if another struct differs, because the others are its members.
        elif not found or not asserted[1].startswith("struct Batch"):
            found.setdefault(asserted[1], asserted[1])
    shown = list(found.values())
    opened, closed = code.count("{"), code.count("}")
    if found and opened != closed:
        shown.insert(0, f"{unit.shown} has {opened} opening and {closed} closing braces")
    more = f"\n({len(shown) - SHOWN_MISTAKES} more)" if len(shown) > SHOWN_MISTAKES else ""
    return (
        CompileError(heading(unit.name) + "\n".join(shown[:SHOWN_MISTAKES]) + more)
        if found
        else None
    )


def _errors(log: str, own_files: tuple[str, ...], code: str) -> list[tuple[str, int, str]]:
    """Return file, line and message of each error.

    An error in the package's files is reported at the kernel's call, if the log names it.
    """
    own = "|".join(map(re.escape, own_files))
    call = re.compile(rf'(?P<file>{own}):(?P<a>\d+)|at line (?P<b>\d+) of "?(?P<own>{own})')
    matches = list(re.finditer(_ERROR.replace("OWN", own), log, re.M))
    ends, starts = [0, *(m.end() for m in matches)], [*(m.start() for m in matches), len(log)]
    found = []
    for k, m in enumerate(matches):
        file, number = m["file"], int(m["a"] or m["b"])
        what = re.sub(r" \[-W[^\]]*\]$", "", m["what"]) + f" ({m['operands']})" * bool(
            m["operands"]
        )
        if (
            m["warning"]
            and "frame size" not in what
            and not (file in own_files and _is_unset(what, code))
        ):
            continue
        if file not in (*own_files, AGREEMENT):
            # g++ names the call before the error. clang and NVRTC name it after the error.
            before = log[ends[k] : m.start()]
            after = re.split(
                "In (?:instantiation of|function|member function)", log[m.end() : starts[k + 1]]
            )[0]
            around = before[before.rfind("In instantiation of") :] + after
            if there := call.search(around):
                file, number = there["file"] or there["own"], int(there["a"] or there["b"])
        found.append((file, number, what))
    return found


def _is_unset(what: str, code: str) -> bool:
    """Return whether a warning is about an uninitialized variable of the kernel.

    g++ also warns about variables of the package.
    """
    name = re.search(
        r"'(\w+)' (?:(?:is|may be) used uninitialized|is uninitialized when used)", what
    )
    return name is not None and re.search(rf"\b{name[1]}\b", code) is not None


def _advice(what: str, names: dict[str, str]) -> str:
    """Return advice for a compiler's message, or an empty string.

    Args:
        what: The message.
        names: Result of ``known_names``.
    """
    if unknown := _UNKNOWN.search(what):
        name = next(filter(None, unknown.groups()))
        if advice := math_advice(name):
            return advice
        if near := get_close_matches(name.lower(), names, n=1, cutoff=0.7):
            return f"did you mean {names[near[0]]}?"
    return next((advice for pattern, advice in COMPILER_ADVICE if re.search(pattern, what)), "")


def known_names(unit: Unit) -> dict[str, str]:
    """Return the kernel's spelling of each name of its environment, by the lower-case name.

    The names are parsed from the generated text.
    """
    agreement, sizes, tables = (
        "\n".join(unit.files.get(f"<generated/{name}.cuh>", ()))
        for name in ("agreement", "sizes", "tables")
    )
    constants = re.findall(r"^constexpr int (\w+) =", sizes, re.M)
    written = {
        **{name: f"math::{name}" for name in MATH},
        **{name: name for name in constants},
        **{
            name: f"env.table.{name}"
            for name in re.findall(r"^  TableArray<.*> (\w+);", tables, re.M)
        },
        **{
            name: f"env.{struct.lower()}.{name}"
            for struct, name in re.findall(r"decltype\((\w+)::(\w+)\)", agreement)
        },
        **{
            name: f"env.{name}"
            for name in re.findall(r"OFFSET_OF\(Batch, rows\.(\w+)\)", agreement)
        },
    }
    return {name.lower(): words for name, words in written.items()}
