"""Detection of names that CPU and GPU compilers treat differently, before compilation.

A C++ compiler has a standard library and no ``threadIdx``. NVRTC has ``threadIdx`` and no library.
docs/dialect.md lists the names that both support.
"""

import re
from collections.abc import Iterator

from cupydrive.errors import CompileError

_words = re.compile(r"\w+").findall
MATH = _words(
    "abs atan2 clamp copy_sign cos count_trailing_zeros divide exp floor fma infinity log log1p "
    "max min not_a_number popcount pow pow_minus_1 shortest_turn sin sincos softplus sqrt tanh "
    "to_int wrap_angle wrap_turn"
)
# Mathematical functions of C and CUDA that have another name in `math::`, or none.
OTHER_NAMES = {
    "fabs": "abs",
    "fmin": "min",
    "fmax": "max",
    "copysign": "copy_sign",
    "fdivide": "divide",
}
NOT_OFFERED = _words(
    "acos acosh asin asinh atan atanh cbrt ceil cosh erf exp2 expm1 fmod hypot log10 log2 "
    "remainder rint round rsqrt sinh tan trunc"
)
_SHARED_WITH_C = _words("abs atan2 cos exp floor fma log log1p max min pow sin sincos sqrt tanh")
_BARE = re.compile(
    rf"(?<![\w.:])(?<!->)((?:{'|'.join((*_SHARED_WITH_C, *OTHER_NAMES, *NOT_OFFERED))})f?)\s*\("
)
_TYPES = (
    r"\b(?:auto|bool|double|float|int|u8|u32|i64|u64|void|[A-Z]\w*"
    r"|(?:(?:unsigned|signed|long|short|char)(?:\s+int)?\s*)+)"
)
_LIBRARY = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*<[^>\n]*>|(?<!\w)std\s*::\s*(\w+)|\busing\s+namespace\s+std\b",
    re.M,
)
NO_LIBRARY = "kernels have no standard library. docs/dialect.md lists their types and functions"
STATE = (
    "threads would share this variable. Put state into struct State, and scratch memory of one "
    "call into struct Shared or local variables. Declare constants as `constexpr`"
)
ARRAYS = (
    "use an array of constant size: a member of State or Shared, or Array<float, 8> in a function"
)
RANDOM_ADVICE = "use env.random.uniform4(i).x, a number in [0, 1)"
INTRINSIC = "only one of the compilers supports it. docs/dialect.md lists what both support"
REFUSED = (
    (r"\bnew\b|\b(?:malloc|calloc|realloc)(?=\s*\()", ARRAYS),
    (
        r"\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b",
        "loop over agents with `for (int i : env.team.each(n))`. env.team.rank is this thread's "
        "index in its team",
    ),
    (
        r"\b__sync(?:threads|warp)\w*",
        "use env.team.sync(), which all threads of the team must reach",
    ),
    (
        r"\batomic[A-Z]\w*",
        "use env.team.add(array, i, value) for an Array<int, N>, or env.team.sum(value)",
    ),
    (
        r"\b__shared__\b",
        "declare it in `struct Shared { ... };` before the include of drive/env.cuh, and use "
        "env.shared.NAME",
    ),
    (r"\b__(?:device|global|host|forceinline)__\b", "write DEVICE before a function"),
    (r"\bs?rand(?=\s*\()|\bcurand(?:_|[A-Z])\w*", RANDOM_ADVICE),
    (
        r"\bprintf(?=\s*\()",
        'use env.print("x = %g", x), which prints one environment on CPU and GPU',
    ),
    (r"\bu?int(?:_fast|_least)?(?:8|16|32|64|ptr|max)_t\b", "use int, u8, u32, i64 or u64"),
    (r"\b__(?!attribute__|builtin_(?:expect|unreachable)\b)[a-z]\w*(?=\s*\()", INTRINSIC),
    (
        r"\b(?:_mm\d*_\w+|(?:__)?asm(?:__)?|__u?int128(?:_t)?|__(?:fp|bf)16|_Float\d+x?|__float\d+|__COUNTER__)\b",
        INTRINSIC,
    ),
    (r"\?\s*:(?!:)", "write the middle of `a ? b : c`, which NVRTC requires"),
    (r"\bcase\b[^:;{}]*\.\.\.", "write one `case` for each value, as NVRTC requires"),
    (r"\(\s*\{(?=[^{}()]*;)", "write a function: NVRTC has no statement expressions"),
    (r"\{\s*\.\w+\s*=", "write members in their order, without names, as NVRTC requires"),
    (
        r"\b(?:static|thread_local)\b"
        r"(?![^;={}()\[\]]*\b(?:const|constexpr|operator|struct|class|union)\b)[^;={}()\[\]]*(?=[;={\[])",
        STATE,
    ),
)
# A declaration outside all braces.
_GLOBAL = re.compile(
    rf"(?:^|;)\s*((?:(?:DEVICE|inline|volatile|extern)\s+)*(?:{_TYPES}|Array\s*<[^;]*?>)[\s*&]*\b(?!operator\b)\w+)\s*[=;,\[]"
)
_CONSTANT = re.compile(r"\b(?:const|constexpr)\b[\w\s]*$")  # before `static`
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.M | re.S)
_DOUBLE = re.compile(
    r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?[lL]?(?![\w.])"
)
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
_LATE = re.compile(r"\bstruct\s+(?:Params|State|Shared|Cache)\s*(?=\{)")


def check_dialect(name: str, shown: str, text: str) -> None:
    """Raise ``CompileError`` for the first name that is not part of the dialect.

    Args:
        name: Name of the environment.
        shown: Name of the file in messages.
        text: Text of a kernel or of its author's header.
    """
    code = code_only(text)
    first = min(_mistakes(text, code), key=lambda mistake: mistake[0], default=None)
    if first is not None:
        position, found, advice = first
        number = code.count("\n", 0, position) + 1
        message = entry(
            shown, number, f"`{found}` is not part of the dialect", text.splitlines(), advice
        )
        raise CompileError(heading(name) + message)


def _mistakes(text: str, code: str) -> Iterator[tuple[int, str, str]]:
    """Yield position, text and advice for each rejected name."""
    for match in _LIBRARY.finditer(code):
        yield match.start(), match[0].strip(), math_advice(match[1] or "") or NO_LIBRARY
    for match in _BARE.finditer(code):
        if not _is_own(match[1], code):
            yield match.start(), match[1], math_advice(match[1])
    for pattern, advice in REFUSED:
        for match in re.finditer(rf"(?<![\w.:])(?<!->)(?:{pattern})", code):
            found = match[0].strip()
            constant = advice is STATE and _CONSTANT.search(code, 0, match.start())
            if not constant and not (found.isidentifier() and _is_own(found, code)):
                yield match.start(), found, advice
    for match in _GLOBAL.finditer(_outside_braces(code)):
        yield match.start(1), match[1], STATE
    include = re.search(r'^[ \t]*#[ \t]*include[ \t]+"drive/env\.cuh"', text, re.M)
    if include and (late := _LATE.search(code, include.end())):
        yield (
            late.start(),
            late[0].strip(),
            'this struct must be defined before `#include "drive/env.cuh"`. Move it up',
        )
    lines = code.splitlines()
    for match in _DOUBLE.finditer(code):
        if not re.search(r"\bdouble\b", lines[code.count("\n", 0, match.start())]):
            advice = (
                f"it is a double. Write {match[0].rstrip('lL')}f, or use `double` in the same line"
            )
            yield match.start(), match[0], advice


def _is_own(name: str, code: str) -> bool:
    """Return whether the kernel itself defines a function or a type with this name."""
    function = rf"(?:{_TYPES}|\bDEVICE\b[\w\s]*)\s+{name}\s*\("
    kind = rf"\busing\s+{name}\s*=|\busing\b[^;]*\b(?:{name}|math)\s*;|\btypedef\b[^;]*\b{name}\s*;"
    return re.search(f"{function}|{kind}", _DIRECTIVE.sub(_blank, code)) is not None


def math_advice(name: str) -> str:
    """Return advice for a mathematical function of C, or an empty string for other names."""
    for bare in (name, name.removesuffix("f")):
        ours = OTHER_NAMES.get(bare, bare)
        if ours in MATH:
            return f"use math::{ours}, which gives the same bits on CPU and GPU"
        if bare in NOT_OFFERED:
            return f"math:: has no {bare}. It has: {', '.join(MATH)}"
    return ""


def code_only(text: str) -> str:
    """Replace comments and strings in ``text`` by blanks, so that all positions are preserved."""
    return _NOT_CODE.sub(_blank, text)


def _outside_braces(code: str) -> str:
    """Replace directives and braced blocks in ``code`` by blanks, each block ending in ``;``."""
    code = _DIRECTIVE.sub(_blank, code)
    while (rest := re.sub(r"\{[^{}]*\}", lambda m: f"{_blank(m)[:-1]};", code)) != code:
        code = rest
    return code


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def heading(name: str) -> str:
    """Return the first line of messages about a kernel that does not compile."""
    return f"the kernel of {name!r} does not compile:\n"


def entry(file: str, number: int, what: str, lines: list[str], advice: str = "") -> str:
    """Format one error: place, message, source line and advice."""
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return (
        f"{file}:{number}: {what}"
        + f"\n    {source}" * bool(source)
        + f"\n  {advice}" * bool(advice)
    )
