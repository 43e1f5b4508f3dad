"""What a kernel's text must not have: libraries, CUDA's own names, memory that is taken while it runs or outlasts a call.

A C++ compiler has a standard library and no ``threadIdx``, NVRTC has ``threadIdx`` and no library: each alone would let through
what the other refuses. So these names are read from the text.
"""

import re

NO_LIBRARY = "a kernel has no library: docs/dialect.md names what there is"
ARRAYS = "write an array: a member of State or Shared, or Array<float, 8> in a function; its size is a constant"
RANDOM = "write env.random.uniform4(i).x, a number in [0, 1) that seed, copy, episode, step and i decide"
MATHS = "write math:: and the function's name, such as math::sqrt"
PRINT = 'write env.print("x = %g", x): it prints for one environment, on CPU and GPU and in notebooks'
INTS = "write int, u8, u32, i64 or u64"
TEAM = "loop over agents by `for (int i : env.team.each(n))`; env.team.rank is this thread's number in its copy's team of TEAM"
SYNC = "write env.team.sync(), which all members of the team reach"
ADD = "write env.team.add(array, i, value) for an Array<int, N>, or let env.team.sum(mine) add up ints of all members"
SHARED = "declare it in `struct Shared { ... };` before the include of drive/env.cuh, and write env.shared.NAME"
INTRINSIC = "this is a function of one compiler, which another one does not know: docs/dialect.md names what there is"
DEVICE = "write DEVICE before a function; the kernels themselves are the package's"
# Headers (without .h) and members of namespace std, and what to write instead.
LIBRARY = (
    (r"c?math|complex|numbers|numeric|algorithm", MATHS),
    (r"vector|array|list|deque|map|set|unordered_\w+|c?string|memory|\w+_ptr|span|queue|stack|new", ARRAYS),
    (r"c?stdlib|s?rand|random\w*|mt19937\w*|default_random\w*|\w+_distribution|curand\w*", RANDOM),
    (r"c?stdio|\w*stream|cout|cerr|endl|format|print|println", PRINT),
    (r"c?stdint|u?int\d+_t|size_t|c?stddef", INTS),
    (r"numeric_limits|c?limits|c?float", "write math::infinity() or math::not_a_number()"),
)
# A function or a type of that name of the kernel's own.
_OWN = r"\b(?:auto|bool|double|float|int|u32|void|[A-Z]\w*)[\s*&]+{0}\s*\(|\busing\s+{0}\s*=|\btypedef\b[^;]*\b{0}\s*;"
# Text, and what to write instead; of those that end in `(` or `_t` the kernel may define one of its own.
WORDS = (
    (r"\bnew\b", ARRAYS),
    (r"\b(?:malloc|calloc|realloc)\s*\(", ARRAYS),
    (r"\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b", TEAM),
    (r"\b__sync(?:threads|warp)\w*", SYNC),
    (r"\batomic[A-Z]\w*", ADD),
    (r"\b__shared__\b", SHARED),
    (r"\b__(?:device|global|host|forceinline)__\b", DEVICE),
    (r"\bs?rand\s*\(", RANDOM),
    (r"\bcurand(?:_|[A-Z])\w*", RANDOM),
    (r"\b(?:__builtin_popcount|__popc)\w*(?=\s*\()", "write math::popcount, which counts the bits of a u32 that are 1"),
    (r"\b(?:__builtin_(?:ctz|ffs)|__ffs)\w*(?=\s*\()", "write math::count_trailing_zeros of a u32, which is 32 for 0"),
    (r"\bu?int(?:_fast|_least)?(?:8|16|32|64|ptr|max)_t\b", INTS),
    (r"\b(?:__(?!attribute__|builtin_(?:expect|unreachable)\b)[a-z]\w*(?=\s*\()|_mm\d*_\w+|asm\b)", INTRINSIC),
    (r"\b(?:__u?int128(?:_t)?|__fp16|__bf16|_Float\d+x?|__float\d+|__asm(?:__)?|__COUNTER__)\b", INTRINSIC),
)
STATE = (
    "state belongs in struct State, and scratch of one call in struct Shared or a function's own variables: all copies and "
    "threads would share this one, and results would depend on their order; a number that stays is `constexpr`"
)
# A declaration as far as shows what it declares: a function's parameters begin with a parenthesis.
_STATIC = re.compile(
    r"(?P<first>(?:\b(?:const|constexpr|inline)\s+)*)\b(?:static|thread_local)\b(?P<declares>[^;={}()\[\]]*)(?P<then>.)",
    re.S,
)
# The same outside of all braces, whose text has become blank.
_GLOBAL = re.compile(
    r"(?:^|;)\s*(?:(?:DEVICE|inline|volatile|extern)\s+)*(?:(?:auto|bool|double|float|int|unsigned|u8|u32|i64|u64)\b|Array\s*<[^;]*?>)"
    r"[\s*&]*(?P<name>\b\w+)\s*[=;,\[]"
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.M | re.S)
_CONDITION = re.compile(r"^[ \t]*#(?![ \t]*define\b)(?:[^\n\\]|\\.)*", re.M | re.S)  # or any other directive
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<[ \t]*(?P<name>[^>\n]+?)[ \t]*>", re.M)
_STD = re.compile(r"(?<!\w)std\s*::\s*(?P<name>\w+)|\busing\s+namespace\s+std\b")


def foreign(code, math_advice):
    """Return the first name in ``code`` that is not of the dialect: where, what is said of it, and what to write; or None.

    Args:
        code: The kernel, without comments and strings.
        math_advice: Function of the name of one of C's functions: what to write instead, or an empty string.
    """
    found = [(m.start(), m[0].strip(), _of_library(m["name"], math_advice)) for m in _INCLUDE.finditer(code)]
    found += [(m.start(), m[0], _of_library(m["name"] or "", math_advice)) for m in _STD.finditer(code)]
    text = _CONDITION.sub(_blank, code)
    for pattern, advice in WORDS:
        for match in re.finditer(rf"(?<![\w.:])(?<!->){pattern}", text):
            name = match[0].rstrip("( \n\t")
            if not pattern.endswith((r"\s*\(", r"_t\b")) or not re.search(_OWN.format(name), code):
                found.append((match.start(), name, advice))
    found += [(m.start(), f"static {_last_word(m['declares'])}", STATE) for m in _STATIC.finditer(code) if _is_kept(m)]
    found += [(m.start("name"), m[0].strip(";=,[ \n\t"), STATE) for m in _GLOBAL.finditer(_outside(code))]
    if not found:
        return None
    position, name, advice = min(found, key=lambda one: one[0])  # of several for one word the first
    return position, f"`{name}` is no part of the dialect", advice


def _is_kept(declaration):
    """Return whether a match of ``_STATIC`` declares a variable that can change."""
    declares, then = declaration["first"] + declaration["declares"], declaration["then"]
    return then != "(" and not re.search(r"\b(?:const|constexpr|operator|struct|class|union)\b", declares)


def _outside(code):
    """Return ``code`` with directives and braces blanked, each brace to a semicolon; all else stays where it was."""
    code = _DIRECTIVE.sub(_blank, code)
    while (rest := re.sub(r"\{[^{}]*\}", lambda m: f"{_blank(m)[:-1]};", code)) != code:
        code = rest
    return code


def _blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def _last_word(declares):
    """Return the name at the end of a declaration's text."""
    return (re.findall(r"\w+", declares) or [""])[-1]


def _of_library(name, math_advice):
    """Return what to write instead of a header, or of a member of ``std``."""
    name = name.removesuffix(".h")
    instead = next((advice for words, advice in LIBRARY if re.fullmatch(words, name)), "")
    return math_advice(name) or (f"{instead}; {NO_LIBRARY}" if instead else NO_LIBRARY)
