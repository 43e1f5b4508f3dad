"""Names that CPU and GPU compilers treat differently, read from a kernel's text and refused before
either compiles it.

A C++ compiler has a standard library and no ``threadIdx``, NVRTC has ``threadIdx`` and no library.
docs/dialect.md lists what both have.
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
# Functions of C's and CUDA's mathematics that have another name in `math::`, or none there.
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
NO_LIBRARY = "a kernel has no library: docs/dialect.md lists its types and functions"
STATE = (
    "state belongs in struct State, and scratch of one call in struct Shared or local variables: "
    "threads would share this variable. A constant is `constexpr`"
)
ARRAYS = (
    "write an array of constant size: a member of State or Shared, or Array<float, 8> in a function"
)
RANDOM_ADVICE = "write env.random.uniform4(i).x, a number in [0, 1)"
INTRINSIC = "this is a function or type of one compiler: docs/dialect.md lists those that both have"
REFUSED = (
    (r"\bnew\b|\b(?:malloc|calloc|realloc)(?=\s*\()", ARRAYS),
    (
        r"\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b",
        "loop over agents by `for (int i : env.team.each(n))`; env.team.rank is this thread's "
        "number in its team",
    ),
    (
        r"\b__sync(?:threads|warp)\w*",
        "write env.team.sync(), which all threads of the team must reach",
    ),
    (
        r"\batomic[A-Z]\w*",
        "write env.team.add(array, i, value) for an Array<int, N>, or env.team.sum(value)",
    ),
    (
        r"\b__shared__\b",
        "declare it in `struct Shared { ... };` before the include of drive/env.cuh, and write "
        "env.shared.NAME",
    ),
    (r"\b__(?:device|global|host|forceinline)__\b", "write DEVICE before a function"),
    (r"\bs?rand(?=\s*\()|\bcurand(?:_|[A-Z])\w*", RANDOM_ADVICE),
    (
        r"\bprintf(?=\s*\()",
        'write env.print("x = %g", x), which prints one environment on CPU and GPU',
    ),
    (r"\bu?int(?:_fast|_least)?(?:8|16|32|64|ptr|max)_t\b", "write int, u8, u32, i64 or u64"),
    (r"\b__(?!attribute__|builtin_(?:expect|unreachable)\b)[a-z]\w*(?=\s*\()", INTRINSIC),
    (
        r"\b(?:_mm\d*_\w+|(?:__)?asm(?:__)?|__u?int128(?:_t)?|__(?:fp|bf)16|_Float\d+x?|__float\d+|__COUNTER__)\b",
        INTRINSIC,
    ),
    (r"\?\s*:(?!:)", "write the middle of `a ? b : c`, which NVRTC requires"),
    (r"\bcase\b[^:;{}]*\.\.\.", "write one `case` for each value, as NVRTC requires"),
    (r"\(\s*\{(?=[^{}()]*;)", "write a function: NVRTC knows no statements in an expression"),
    (r"\{\s*\.\w+\s*=", "write members in their order, without names, as NVRTC requires"),
    (
        r"\b(?:static|thread_local)\b"
        r"(?![^;={}()\[\]]*\b(?:const|constexpr|operator|struct|class|union)\b)[^;={}()\[\]]*(?=[;={\[])",
        STATE,
    ),
)
# A declaration outside of all braces.
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
    """Raise ``CompileError`` for the first name that is no part of the dialect.

    Args:
        name: The environment.
        shown: Name of the file in messages.
        text: A kernel, or a header of its author's.
    """
    code = code_only(text)
    first = min(_mistakes(text, code), key=lambda mistake: mistake[0], default=None)
    if first is not None:
        position, found, advice = first
        number = code.count("\n", 0, position) + 1
        message = entry(
            shown, number, f"`{found}` is no part of the dialect", text.splitlines(), advice
        )
        raise CompileError(heading(name) + message)


def _mistakes(text: str, code: str) -> Iterator[tuple[int, str, str]]:
    """Yield position, text and advice of each name that is refused."""
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
            'this struct stands before `#include "drive/env.cuh"`: move it up',
        )
    lines = code.splitlines()
    for match in _DOUBLE.finditer(code):
        if not re.search(r"\bdouble\b", lines[code.count("\n", 0, match.start())]):
            advice = (
                f"it is a double: write {match[0].rstrip('lL')}f, or name `double` in the same line"
            )
            yield match.start(), match[0], advice


def _is_own(name: str, code: str) -> bool:
    """Return whether the kernel itself defines a function or a type of this name."""
    function = rf"(?:{_TYPES}|\bDEVICE\b[\w\s]*)\s+{name}\s*\("
    kind = rf"\busing\s+{name}\s*=|\busing\b[^;]*\b(?:{name}|math)\s*;|\btypedef\b[^;]*\b{name}\s*;"
    return re.search(f"{function}|{kind}", _DIRECTIVE.sub(_blank, code)) is not None


def math_advice(name: str) -> str:
    """Return what to write instead of a function ``name`` of C's mathematics; an empty string if it
    is none.
    """
    for bare in (name, name.removesuffix("f")):
        ours = OTHER_NAMES.get(bare, bare)
        if ours in MATH:
            return f"write math::{ours}, which gives the same bits on CPU and GPU"
        if bare in NOT_OFFERED:
            return f"math:: has no {bare}; it has: {', '.join(MATH)}"
    return ""


def code_only(text: str) -> str:
    """Return ``text`` with comments and strings blanked; every other character stays where
    it was.
    """
    return _NOT_CODE.sub(_blank, text)


def _outside_braces(code: str) -> str:
    """Return ``code`` with directives and braces blanked, each brace to a semicolon."""
    code = _DIRECTIVE.sub(_blank, code)
    while (rest := re.sub(r"\{[^{}]*\}", lambda m: f"{_blank(m)[:-1]};", code)) != code:
        code = rest
    return code


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def heading(name: str) -> str:
    """Return the first line of every message about a kernel that does not compile."""
    return f"the kernel of {name!r} does not compile:\n"


def entry(file: str, number: int, what: str, lines: list[str], advice: str = "") -> str:
    """Return one mistake: place, message, source line and advice."""
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return (
        f"{file}:{number}: {what}"
        + f"\n    {source}" * bool(source)
        + f"\n  {advice}" * bool(advice)
    )
