"""Turns what is wrong with a kernel's text into one message: file, line, source line, and a sentence that says what to do.

Two kinds of mistakes are found. Some are read from the text before any compiler sees it, because the compilers of CPU and
GPU would not agree on them: CUDA knows ``sinf``, C++ without a library does not. The others are the compilers' own errors;
warnings that mean a wrong program are errors under ``GNU_WARNINGS`` and ``NVRTC_WARNINGS``.
"""

import re
from difflib import get_close_matches

from cupydrive.codegen.foreign import PRINT, foreign
from cupydrive.codegen.known_names import UNKNOWN, KnownNames
from cupydrive.codegen.printing import CONVERSION
from cupydrive.errors import CompileError

# The same mistakes for g++, clang++ and zig, and for NVRTC by number: a missing return, a result that nobody uses, a variable
# that has no value yet. They add diagnostics only: the machine code stays the same. The last is a warning to g++ and an error
# of `explain`: g++ looks at what is left after optimisation, where it also suspects members of the package's own structs.
GNU_WARNINGS = (
    "-Wno-all",
    "-Werror=return-type",
    "-Werror=unused-value",
    "-Wpedantic",  # of which `_ADDED` are errors of `explain`; NVRTC knows some others, such as anonymous structs
    "-Werror=vla",  # an array whose length is no constant, which NVRTC refuses
    "-Wuninitialized",
    "-Wno-sometimes-uninitialized",  # of clang alone, and it also speaks of variables that are never read without a value
)
NVRTC_WARNINGS = ("--diag-error=940,174,549",)

FUNCTIONS = {  # that a kernel must define, and their types
    "reset": "void",
    "step": "bool",
    "observe": "void",
}
_words = re.compile(r"\w+").findall
MATH = _words(
    "abs atan2 clamp copy_sign cos count_trailing_zeros divide exp floor fma infinity log log1p max min not_a_number popcount "
    "pow pow_minus_1 shortest_turn sin sincos softplus sqrt tanh to_int wrap_angle wrap_turn"
)
# Functions of C's and CUDA's own mathematics that have another name in `math::`, or none there.
OTHER_NAMES = {"fabs": "abs", "fmin": "min", "fmax": "max", "copysign": "copy_sign", "fdivide": "divide"}
NOT_OFFERED = _words(
    "acos acosh asin asinh atan atanh cbrt ceil cosh erf exp2 expm1 fmod hypot log10 log2 remainder rint round rsqrt "
    "sinh tan trunc"
)
_SHARED_WITH_C = _words("abs atan2 cos exp floor fma log log1p max min pow sin sincos sqrt tanh")
_BARE = re.compile(
    rf"(?<![\w.:])(?<!->)(?P<name>(?:{'|'.join((*_SHARED_WITH_C, *OTHER_NAMES, *NOT_OFFERED))})f?|printf)\s*\("
)
_DOUBLE = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?[lL]?(?![\w.])")
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)

NO_RETURN = (
    "a function that is not void must return a value on every path; `step` returns whether the task has ended: "
    "`return false;` where it goes on"
)
UNUSED = "nothing uses this result; to change a variable write `=`, to ask something put it into an `if`"
NO_TABLES = "an environment has tables if its EnvSpec gives their arrays: tables=lambda params: {name: array, ...}"
UNINITIALISED = "give the variable a value where it is declared, such as `float x = 0.0f;`"
CALLED = "agents are called and entries indexed: env.GROUP.action(agent), env.GROUP.reward(agent), env.GROUP.obs(agent)[entry]"
FOUR_NUMBERS = "env.random.uniform4(i) is four numbers: write env.random.uniform4(i).x, .y, .z or .w"
FOUR_WORDS = "env.random.bits(i) is four words: write env.random.bits(i).x, .y, .z or .w, or .word(k)"
ONE_TYPE = "give all arguments one type: 1.0f for 1, (float)n for an int n"
WHOLE = (
    "env.team's sum, min, before and add are of integers alone, whose result is the same in any order; floats of several "
    "agents are gathered by one member, in the order of agents"
)
WORDS = "a word is an integer, env.random.bits(i).x; a float in [0, 1) is env.random.uniform4(i).x as it is"
BELOW = "Random::below(word, n) is of integers alone: a word env.random.bits(i).x, and an int n"
RECURSION = "a kernel's function may not call itself, nor one that calls it: write a loop"


def _deleted(names):
    """Return a pattern of what compilers say of a call of a function that is refused; ``names`` as in a pattern."""
    return rf"deleted (?:member )?function.*\b(?:{names})\b|\b(?:{names})\b.*deleted function"


# What compilers say (g++, clang, NVRTC), and what to do about it.
ADVICE = (
    (r"no return statement in function|reaches end of non-void|not return a value|missing return statement", NO_RETURN),
    (r"statement has no effect|value computed is not used|result unused|expression has no effect", UNUSED),
    (r"""Env['"].* has no member (?:named )?['"]table['"]|no member named 'table' in '(?:struct )?Env'""", NO_TABLES),
    (
        r"overloaded function type>\[|reference to (?:non-static member|overloaded) function|bound function may only",
        CALLED,
    ),
    (
        r"call (?:of overloaded|to) '(?:min|max|clamp)\b.*ambiguous|than one instance of .*\b(?:min|max|clamp)\b",
        ONE_TYPE,
    ),
    (r"(?:is|may be) used uninitialized|is uninitialized when used|is used before its value is set", UNINITIALISED),
    (_deleted("sum|min|before|add"), WHOLE),
    (_deleted("below"), BELOW),
    (_deleted("unit"), WORDS),
    (r"inlining failed .*(?:recursive inlining|function not inlinable)", RECURSION),
    (r"\bUniform4\b", FOUR_NUMBERS),
    (r"\bRandom::Bits\b|['\"]Bits['\"]", FOUR_WORDS),
)
_MISSING_MEMBER = re.compile(
    r"""'(?P<member>\w+)' is not a member of '(?P<struct>\w+)'|no member named '(?P<member2>\w+)' in '(?P<struct2>\w+)'"""
    r"""|(?:class|struct) "(?P<struct3>\w+)" has no member "(?P<member3>\w+)\""""
)
_ERROR = (  # in which OWN stands for names of the author's files, which may hold any character
    r"^(?P<file>OWN|[^\n:()]+?)(?::(?P<a>\d+)(?::\d+)?|\((?P<b>\d+)\)): "
    r"(?:(?:fatal )?error|(?P<warning>warning)):? ?(?P<what>.*)$"
    r"(?:\n +(?P<operands>operand types are: .*)$)?"  # of NVRTC
)
_UNSET = re.compile(r"(?:variable )?'(?P<name>\w+)' (?:(?:is|may be) used uninitialized|is uninitialized when used)")
# What g++ and clang add to C++17 and NVRTC refuses: `?:` without a middle, `({ })`, `case 1 ... 3`, and the like.
_ADDED = re.compile(
    r".*(?:GNU \?:|omitt(?:ed|ing) (?:the )?middle|braced-groups|statement expression|range expressions|case range|"
    r"zero.size array|compound.literals|designated initializers)"
)
_FRAME = re.compile(r"frame size (?:of )?\(?(\d+).* (?:than|limit) \(?(\d+)")  # of g++, of clang
_FLAG = re.compile(r" \[-W[^\]]*\]$")
_ASSERTION = re.compile(
    r"""^static[_ ]assert(?:ion)? failed(?: due to requirement '.*')?(?:: | with )?"?(?P<says>.*?)"?$"""
)
# The call by which a function of the package came to be compiled: g++ says it before an error, clang and NVRTC after it.
_CALL = r"{0}:(?P<a>\d+):\d+: +required from|{0}:(?P<b>\d+):\d+: note: in instantiation of|at line (?P<c>\d+) of \"?{0}(?!\w)"
_OF_GROUP = re.compile(r"\bKind ?= ?(\w+)_group\b|\bGroup<(\w+)_group>")
_OTHER_SIZE = re.compile(r"struct (Params|State): in Python .* the kernel has another size")
_OTHER_PLACE = re.compile(r"Python declares (Params|State)\..* another place$")
AGREEMENT = "<generated/agreement.cuh>"  # what source.py asserts of the structs
SHOWN = 3  # independent mistakes that one message names


def code_only(text):
    """Return ``text`` with comments and strings blanked; every other character stays where it was."""
    return _NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def math_advice(name):
    """Return what to write instead of a function ``name`` of C's mathematics; an empty string if it is none."""
    if name == "printf":
        return PRINT
    for bare in (name, name.removesuffix("f")):
        ours = OTHER_NAMES.get(bare, bare)
        if ours in MATH:
            return f"write math::{ours}, which gives the same bits on CPU and GPU"
        if bare in NOT_OFFERED:
            return f"math:: has no {bare}; it has: {', '.join(MATH)}"
    return ""


def look_over(name, shown, text, own=None):
    """Raise ``CompileError`` for what the text of a kernel itself shows to be wrong, whichever compiler comes next.

    Args:
        name: The environment.
        shown: Name of the kernel's file in messages.
        text: The kernel, or a header of its author's.
        own: The kernel with its author's headers; None for a header, which need not have the functions.
    """
    code, lines = code_only(text), text.splitlines()
    code_lines = code.splitlines()

    def fail(position, what, advice):
        number = code.count("\n", 0, position) + 1
        raise CompileError(heading(name) + entry(shown, number, what, lines, advice))

    for function, kind in FUNCTIONS.items():
        if own is not None and not re.search(rf"\b{function}\b\s*\(", code_only(own)):
            raise CompileError(
                f"{heading(name)}{shown}: there is no function `{function}`; define "
                f"`DEVICE {kind} {function}(Env& env) {{ ... }}`"
            )
        wrong = re.search(rf"\b(void|bool|int|float)\s+{function}\s*\(\s*Env\s*&", code)
        if wrong and wrong[1] != kind:
            fail(wrong.start(), f"`{function}` returns {wrong[1]}", f"write `DEVICE {kind} {function}(Env& env)`")
        # Of a macro in this place nothing is known.
        bare = re.search(
            rf"(?:^|[;}}]|^[ \t]*#.*)\s*(?:(?:static|inline)\s+)*({kind}\s+{function}\s*\(\s*Env\s*&)", code, re.M
        )
        if bare:
            fail(
                bare.start(1),
                f"`{function}` lacks DEVICE",
                f"write `DEVICE {kind} {function}(Env& env)`: CPU and GPU inline what has it, and keep the state in registers",
            )
    include = re.search(r'^[ \t]*#[ \t]*include[ \t]+"drive/env\.cuh"', text, re.M)
    late = include and re.compile(r"\bstruct\s+(Params|State|Shared|Cache)\s*\{").search(code, include.end())
    if late:
        fail(
            late.start(),
            f"struct {late[1]} stands after the include that reads it",
            'structs stand before `#include "drive/env.cuh"`: move it up',
        )
    if there := foreign(code, math_advice):
        fail(*there)
    for match in _BARE.finditer(code):
        called = match["name"]
        # A function of that name in the kernel itself is the author's own: a type stands before it, or `using` names it.
        types = r"\b(?:auto|bool|double|float|int|u32|void|[A-Z]\w*)"
        if re.search(rf"{types}\s+{called}\s*\(|\busing\b[^;]*\b(?:{called}|math)\s*;", code):
            continue
        fail(match.start(), f"`{called}` is not the same function on CPU and GPU", math_advice(called))
    for match in re.finditer(r"\benv\s*\.\s*print\s*\(", code):
        form, count = printed_values(text, code, match.end() - 1)
        if form is None:
            fail(match.start(), "env.print needs its format as text in quotes", 'write env.print("x = %g", x)')
        wanted = sum(m["type"] != "%" for m in CONVERSION.finditer(form))
        if "%" in CONVERSION.sub("", form):
            fail(
                match.start(),
                f'env.print cannot read the format "{form}"',
                "it knows %d %i %u %x %o %c %e %f %g and %%",
            )
        if wanted != count:
            fail(
                match.start(),
                f"env.print has {wanted} conversions and {count} values",
                "give one value for each conversion",
            )
    for match in _DOUBLE.finditer(code):
        if not re.search(r"\bdouble\b", code_lines[code.count("\n", 0, match.start())]):
            advice = f"write {match[0].rstrip('lL')}f; where a double is meant, name `double` in the same line"
            fail(match.start(), f"{match[0]} is a double, and arithmetic with it is done in double precision", advice)


def prints(kernel):
    """Return whether a kernel's text calls ``env.print``."""
    return re.search(r"\.print\s*\(", code_only(kernel)) is not None


def printed_values(text, code, begin):
    """Return the format and the number of values of the ``env.print(`` that opens at ``begin``; None: the format is no text."""
    depth, ends = 0, [begin]
    for at in range(begin, len(code)):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if code[at] == "," and depth == 1:
            ends.append(at)
        if depth == 0:
            ends.append(at)
            break
    parts = re.fullmatch(r'\s*((?:"(?:\\.|[^"\\\n])*"\s*)+)', text[begin + 1 : ends[1]]) if len(ends) > 1 else None
    return (re.sub(r'"\s*"', "", parts[1].strip())[1:-1] if parts else None), len(ends) - 2


def heading(name):
    """Return the first line of every message about a kernel that does not compile."""
    return f"the kernel of {name!r} does not compile:\n"


def entry(file, number, what, lines, advice=""):
    """Return one mistake: where and what, the source line, and what to do."""
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"{file}:{number}: {what}" + f"\n    {source}" * bool(source) + f"\n  {advice}" * bool(advice)


def advice_for(what, names):
    """Return the sentence that says what to do about a compiler's message, or an empty string; ``names``: ``KnownNames``."""
    for pattern, advice in ADVICE:
        if re.search(pattern, what):
            return advice
    unknown, instead = UNKNOWN.search(what), names.advice(what)
    if unknown is None or instead:
        return instead
    name = next(filter(None, unknown.groups()))
    near = get_close_matches(name, MATH, n=1, cutoff=0.7) if "math" in what else ()
    return math_advice(name) or (f"did you mean math::{near[0]}?" if near else "")


def explain(unit, log):
    """Return a ``CompileError`` from a compiler's ``log``: the first errors, with real file, line and source line.

    Returns None where the log names no error in a file: all is well, or it is the compiler that failed.

    One mistake often makes many errors. A member that Python declares and the struct lacks is said first; where the kernel's
    own file has errors, those in the package's files are their consequences; after a syntax error the rest of the file means
    nothing; the same words are said once.
    """
    own_files = (unit.shown, *unit.headers)
    names = KnownNames.of(unit)
    code = code_only("\n".join(line for file in own_files for line in unit.files.get(file, [])))
    own_words = set(_words(code))  # a warning in the kernel's lines may be of what a function of the package has
    errors = list(re.finditer(_ERROR.replace("OWN", "|".join(map(re.escape, own_files))), log, re.M))
    ends = [0, *(m.end() for m in errors)]
    starts = [*(m.start() for m in errors), len(log)]
    found = [
        _at_its_call(m, log[ends[k] : m.start()], log[m.end() : starts[k + 1]], own_files)
        for k, m in enumerate(errors)
        if not m["warning"]
        or _FRAME.search(m["what"])
        or (m["file"] in own_files and _ADDED.match(m["what"]))
        or (m["file"] in own_files and (unset := _UNSET.match(m["what"])) and unset["name"] in own_words)
    ]
    own = [e for e in found if e[0] in own_files]
    missing = [(e, _MISSING_MEMBER.search(e[2])) for e in found if e[0] == AGREEMENT]
    # One that stands in the struct is missing for another error, in its own line.
    own = [e for e, m in missing if m and not (own and names.in_body(*lacking(m), code))] + own
    shown, said = [], set()
    for file, number, what in own or found:
        lines = unit.files.get(file, [])
        assertion, member = _ASSERTION.match(what), _MISSING_MEMBER.search(what)
        if frame := _FRAME.search(what):
            got, limit = map(int, frame.groups())
            line = (
                f"{unit.shown}: struct Shared and the arrays of functions lie on a thread's stack on a CPU: got {got:,} bytes, "
                f"expected at most {limit:,}. Make them smaller, or members of struct State, which may be larger"
            )
            what = "frame"  # of several kernels the first is shown
        elif assertion and assertion["says"]:
            what = line = assertion["says"]
            if (moved := _OTHER_PLACE.search(what)) and (order := names.other_order(moved[1], code)):
                what, line = order, f"{what}; {order}"  # once for all members that have moved
            struct = _OTHER_SIZE.match(what)
            if struct and (more := names.surplus(struct[1], code)):
                line = f"{what.partition(', the kernel')[0]}; {more}"
            if what.startswith("struct Batch") and said:  # of which the other structs are members
                continue
        elif member and file == AGREEMENT:
            struct, name = lacking(member)
            line = (
                f"struct {struct} has no member {name!r}, which Python declares: add it to the struct, in the same order, or "
                "take it out in Python"
            )
            what = line
        else:
            line = entry(file, number, what, lines, advice_for(what, names))
        if what not in said:
            said.add(what)
            shown.append(line)
        if file in own_files and re.match(r"'?expected", what):
            break
    opened, closed = (code.count(c) for c in "{}")
    if found and opened != closed:
        shown.insert(0, f"{unit.shown}: there are {opened} opening and {closed} closing braces")
    more = f"\n({len(shown) - SHOWN} more)" if len(shown) > SHOWN else ""
    return CompileError(heading(unit.name) + "\n".join(shown[:SHOWN]) + more) if found else None


def _at_its_call(error, before, after, own):
    """Return file, line and text of an error; of an assertion in a function of the package, where the kernel calls it.

    Args:
        error: Match of ``_ERROR``.
        before: What the log says between the error before and this one.
        after: And between this one and the next.
        own: Names of the author's files.
    """
    what = _FLAG.sub("", error["what"]) + f" ({error['operands']})" * bool(error["operands"])
    assertion = _ASSERTION.match(what)
    around = before[before.rfind("In instantiation of") :] + after
    calls = [(file, call) for file in own if (call := re.search(_CALL.format(re.escape(file)), around))]
    if error["file"] in (AGREEMENT, *own) or not (assertion and assertion["says"] and calls):
        return error["file"], int(error["a"] or error["b"]), what
    (shown, call), *_ = calls
    group, says = _OF_GROUP.search(around), assertion["says"]
    if group:
        says = says.replace("this group", f"group {group[1] or group[2]!r}")
    return shown, int(call["a"] or call["b"] or call["c"]), says


def lacking(found):
    """Return the struct and the member that a match of ``_MISSING_MEMBER`` says are missing."""
    return tuple(next(filter(None, (found[part + of] for of in ("", "2", "3")))) for part in ("struct", "member"))
