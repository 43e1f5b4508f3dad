"""Assembly of one translation unit per environment: sizes, kernel text, and static assertions.

Includes are expanded with ``#line`` marks. Compiler errors then name the real file and line, no
include path is needed, and a cache keyed by the text cannot return a stale kernel after a header
was edited.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from cupydrive.codegen.agreement import agreement, state_fields
from cupydrive.codegen.dialect import check_dialect, code_only
from cupydrive.codegen.includes import KERNELS, paste, shown_path
from cupydrive.codegen.layout import WARP, Layout, Observations, PlayLayout, fits_bytes
from cupydrive.errors import SpecError
from cupydrive.inputs.kernels import as_text, read_kernel
from cupydrive.inputs.tables import Table
from cupydrive.protocols import EnvParams
from cupydrive.random import below, unit
from cupydrive.spec import EnvSpec, Group, constant_params

# Templates of kernels/drive/bits.cuh.
OBS_ROWS = {"float32": "FloatRows", "bool": "BoolRows", "uint8": "ByteRows"}
FEW_HEADS = 8


@dataclass(frozen=True)
class Unit:
    """One translation unit.

    ``text`` is the source for a compiler, and ``kernels`` are the names of its kernels. ``files``
    contains the lines of each file by shown name, for errors. ``shown`` is the shown name of the
    kernel file, and ``headers`` are those of its author's headers.
    """

    name: str
    text: str
    shown: str
    files: dict[str, list[str]]
    layout: Layout
    kernels: tuple[str, ...]
    headers: tuple[str, ...] = ()

    @property
    def prints(self) -> bool:
        """Whether the kernel prints."""
        return "#define PRINTS 1\n" in self.text

    @property
    def architecture_specific(self) -> bool:
        """Whether the kernel has instructions of a single GPU architecture."""
        return "#define ARCHITECTURE_SPECIFIC 1\n" in self.text

    def of_members(self) -> Self:
        """Return the unit whose kernels take the arguments of several members.

        See ``drive/backend/cuda_launch.cuh``.
        """
        return replace(
            self, name=f"{self.name}_of_members", text=f"#define MANY_CALLS 1\n{self.text}"
        )


@lru_cache(maxsize=256)
def assemble(spec: EnvSpec, params: EnvParams, layout: Layout) -> Unit:
    """Return the ``Unit`` of ``spec`` with ``params`` under ``layout``.

    Raises:
        SpecError: If the kernel file does not exist or lacks a required part.
        CompileError: If the text contains names that CPU and GPU compilers treat differently.
    """
    shown, texts = _texts(spec, params, layout)
    return _unit(
        spec.name, ("drive/platform.cuh", "kernel", "drive/drive.cuh"), texts, shown, layout
    )


@lru_cache(maxsize=64)
def assemble_play(spec: EnvSpec, params: EnvParams, layout: PlayLayout, policies: str) -> Unit:
    """Return the ``Unit`` of the kernel ``env_play``, which runs environment and policies.

    It raises the errors of ``assemble``.

    Args:
        spec: The environment.
        params: Its parameters.
        layout: Layout of the threads.
        policies: Generated text that describes the policies for ``kernels/play``.
    """
    shown, texts = _texts(spec, params, layout)
    texts["generated/sizes.cuh"] += (
        f"\n#define WARP_SETS {layout.warp_sets}\n#define WARPS_PER_SET {layout.warps}"
        f"\n#define HIDDEN_IN_SHARED {int(layout.hidden_in_shared)}"
    )
    texts["generated/policies.cuh"] = policies
    return _unit(
        f"{spec.name}_play", ("drive/platform.cuh", "kernel", "play/play.cuh"), texts, shown, layout
    )


def _texts(spec: EnvSpec, params: EnvParams, layout: Layout) -> tuple[str, dict[str | Path, str]]:
    """Return the shown name of the kernel of ``spec``, and the texts to include, by name."""
    shown, kernel = kernel_text(spec)
    texts: dict[str | Path, str] = {}
    headers = {}
    if not isinstance(spec.kernel, str):
        path = kernel_path(spec)
        read = {p: as_text(p, content) for p, content in read_kernel(path).items()}
        headers = {p: text for p, text in read.items() if p != path}
        texts.update(read.items())
    own = "\n".join([kernel, *headers.values()])
    code = code_only(own)
    for part, text in (
        (r"\bstruct\s+Params\b", "struct Params { float ...; };"),
        (r"\bstruct\s+State\b", "struct State { ...; };"),
        (r'#include\s+"drive/env\.cuh"', '#include "drive/env.cuh"'),
        (r"\bDEVICE\b[^;{}]*\b(?:void|auto)\s+reset\s*\(", "DEVICE void reset(Env& env) { ... }"),
        (r"\bDEVICE\b[^;{}]*\b(?:bool|auto)\s+step\s*\(", "DEVICE bool step(Env& env) { ... }"),
        (
            r"\bDEVICE\b[^;{}]*\b(?:void|auto)\s+observe\s*\(",
            "DEVICE void observe(Env& env) { ... }",
        ),
    ):
        if not re.search(part, own if "#include" in part else code):
            raise SpecError(f"{shown}: the kernel must have `{text}`")
    check_dialect(spec.name, shown, kernel)
    for header, text in headers.items():
        check_dialect(spec.name, shown_path(header), text)
    texts |= {
        "generated/sizes.cuh": _sizes(spec, params, layout, code),
        "generated/groups.cuh": _groups(spec.groups(params)),
        "generated/metrics.cuh": _metrics(spec.metrics),
        "generated/tables.cuh": _tables(spec.declared_tables(params)),
        "generated/agreement.cuh": agreement(spec, params),
        "generated/fields.cuh": state_fields(spec, params),
        "kernel": kernel,
    }
    return shown, texts


@lru_cache(maxsize=64)
def assemble_file(
    path: str, constants: tuple[tuple[str, int], ...] = (), spaces: str = "", team: int = 1
) -> Unit:
    """Return the ``Unit`` of ``kernels/PATH.cu``, a kernel with one team per row or word.

    Args:
        path: The file, such as ``"train/advantages"``.
        constants: Pairs (name, int) of compile-time constants.
        spaces: Generated text that the file includes as ``generated/spaces.cuh``.
        team: Threads of one element on a GPU. A block has 128 threads, or one team if it is larger
            than a warp.
    """
    layout = Layout(team, 128 // team if team <= WARP else 1)
    sizes = [
        f"#define TEAM {team}",
        f"#define ENVS_PER_BLOCK {layout.envs_per_block}",
        "#define ONE_AGENT 0",
        "#define OBS_HALF 0",
    ]
    sizes += [f"constexpr int {key} = {int(value)};" for key, value in constants]
    texts: dict[str | Path, str] = {
        "generated/sizes.cuh": "\n".join(sizes),
        "generated/spaces.cuh": spaces,
    }
    return _unit(
        path.split("/")[1],
        ("drive/platform.cuh", f"{path}.cu"),
        texts,
        f"kernels/{path}.cu",
        layout,
    )


def _unit(
    name: str, parts: Sequence[str], texts: Mapping[str | Path, str], shown: str, layout: Layout
) -> Unit:
    own = [path for path in texts if isinstance(path, Path)]
    files: dict[str, list[str]] = {}
    file = next(iter(own), None)
    text = (
        "\n".join(paste(f'#include "{part}"', texts, files, shown, file) for part in parts) + "\n"
    )
    kernels = re.findall(r"^KERNEL(?:_OF_STEPS|_OF_WARP_SETS|_AHEAD)?\((\w+)", text, re.M)
    return Unit(name, text, shown, files, layout, tuple(kernels), tuple(map(shown_path, own[1:])))


def kernel_text(spec: EnvSpec) -> tuple[str, str]:
    """Return the shown name of the kernel of ``spec``, and its text."""
    if isinstance(spec.kernel, str):
        return f"<kernel of {spec.name}>", spec.kernel
    path = kernel_path(spec)
    if not path.is_file():
        raise SpecError(
            f"{spec.name}: kernel file {path} does not exist. Write it, or pass kernel= to the "
            f"EnvSpec. In a notebook, begin a cell with %%cuda_env {spec.name}"
        )
    return shown_path(path), as_text(path, path.read_bytes())


def kernel_path(spec: EnvSpec) -> Path:
    """Return the path of the kernel file of ``spec``. Its kernel must not be text."""
    kernel = spec.kernel
    return (
        Path(kernel).expanduser()
        if isinstance(kernel, str | Path)
        else KERNELS / "envs" / f"{spec.name}.cu"
    )


def _sizes(spec: EnvSpec, params: EnvParams, layout: Layout, code: str) -> str:
    """Return the constants of this environment: layout, sizes, groups, metrics."""
    groups = spec.groups(params)
    has_shared, has_cache = (
        re.search(rf"\bstruct\s+{name}\b", code) is not None for name in ("Shared", "Cache")
    )
    prints = re.search(r"\.print\s*\(", code) is not None
    lines = [
        f"#define TEAM {layout.team}",
        f"#define ENVS_PER_BLOCK {layout.envs_per_block}",
        f"#define STATE_ON_CHIP {int(layout.state_on_chip)}",
        f"#define ROWS_ON_CHIP {int(layout.rows_on_chip)}",
        *(f"#define OBS_{way.name} {number}" for number, way in enumerate(Observations)),
        f"#define OBSERVATIONS OBS_{layout.observations.name}",
        f"#define OBS_HALF {int(layout.half_obs)}",
        f"#define COMPACT_OBS {int(any(g.obs_dtype != 'float32' for g in groups))}",
        f"#define HAS_SHARED {int(has_shared)}",
        f"#define HAS_CACHE {int(has_cache)}",
        f"#define HAS_TABLES {int(bool(spec.declared_tables(params)))}",
        f"#define PRINTS {int(prints)}",
        f"#define ONE_AGENT {int(spec.one_agent(params))}",
        f"#define HORIZON_ENDS_TASK {'true' if spec.time_limit == 'terminates' else 'false'}",
        f"constexpr bool HAS_METRICS = {str(bool(spec.metrics)).lower()};",
    ]
    if not hasattr(params, "num_agents"):
        lines.append(f"constexpr int NUM_AGENTS = {sum(g.count for g in groups)};")
    for f in constant_params(spec.params):
        value, name = getattr(params, f.name), f.name.upper()
        if isinstance(value, str):
            choices = f.metadata["choices"]
            lines += [f"constexpr int {name}_{c.upper()} = {i};" for i, c in enumerate(choices)]
            value = choices.index(value)
        lines.append(f"constexpr int {name} = {int(value)};")
    lines += [
        f"constexpr int {name} = {int(value)};" for name, value in spec.constants(params).items()
    ]
    return "\n".join(lines)


def _metrics(metrics: Mapping[str, str]) -> str:
    """Return ``struct Metrics`` in C, and ``each_count``, which visits its integers.

    Args:
        metrics: ``"int"`` or ``"float"`` by name.
    """
    members = metrics or {"none": "int"}
    counts = [f"  visit(metrics.{name});" for name, kind in members.items() if kind == "int"]
    return "\n".join(
        [
            "// What one member has counted since the episode began. The members' integers are "
            "added up; a float metric is",
            "// counted by the leader alone, in one fixed order.",
            f"struct Metrics {{ {' '.join(f'{kind} {name};' for name, kind in members.items())} "
            f"}};",
            "template <class Visit> DEVICE void each_count([[maybe_unused]] Visit visit, "
            "[[maybe_unused]] Metrics& metrics) {",
            *counts,
            "}",
        ]
    )


def _tables(tables: Sequence[Table]) -> str:
    """Return ``struct Table`` in C, with one read-only array for each ``Table``."""
    if not tables:
        return ""
    name = 'struct {0} {{ static DEVICE const char* text() {{ return "table {0}"; }} }};'
    lines = ["namespace table_names {", *(name.format(t.name) for t in tables), "}"]
    lines += [*(f"#define GIVEN_{t.name} _,  // for IF_TABLE" for t in tables), "struct Table {"]
    for t in tables:
        ctype, shape = (
            {"f4": "float", "i4": "int", "u1": "u8"}[t.dtype],
            "".join(f", {n}" for n in t.shape),
        )
        lines.append(f"  TableArray<table_names::{t.name}, {ctype}{shape}> {t.name};")
    return "\n".join([*lines, "};"])


def _groups(groups: Sequence[Group]) -> str:
    """Return the structs of all groups in C, and the helpers ``EachGroup`` and ``each_group``."""
    first = [sum(g.count for g in groups[:k]) for k in range(len(groups))]
    lines = [
        *map(_group, groups, first),
        "// One Of<Kind> for each group, by its name.",
        "template <template <class> class Of> struct EachGroup {",
        *(f"  Of<{g.name}_group> {g.name};" for g in groups),
        "};",
        "// Calls visit(Kind{}, parts.NAME...) for one group after the other.",
        "template <class Visit, class... Parts> DEVICE void each_group(Visit visit, Parts&... "
        "parts) {",
        *(f"  visit({g.name}_group{{}}, parts.{g.name}...);" for g in groups),
        "}",
        f"typedef {groups[0].name}_group FirstGroup;",
        f"constexpr int OBS_ENTRIES = {sum(g.count * g.obs_dim for g in groups)};  // of one "
        f"environment",
        "template <class Parts> DEVICE auto& first_group(Parts& parts) { return parts."
        + f"{groups[0].name}; }}",
    ]
    return "\n".join(lines)


def _group(g: Group, first_agent: int) -> str:
    """Return the struct of one group in C, with sizes and functions to read and draw actions."""

    def drawn(choice: str) -> str:
        number = "low(head - DISCRETE) + span(head - DISCRETE) * Random::unit(word)"
        mixed = f"head < DISCRETE ? (float){choice} : {number}"
        return choice if not g.continuous else mixed if g.sizes else number

    lines = [
        f"struct {g.name}_group {{",
        f"  typedef {'float' if g.continuous else 'int'} Action;",
        f"  typedef {OBS_ROWS[g.obs_dtype]}<{g.name}_group> ObsRows;",
        f"  static constexpr bool BITS = {str(g.bits).lower()};",
        f"  static constexpr int WORDS = {g.words};",
        f"  static constexpr int COUNT = {g.count}, OBS = {g.obs_dim}, HEADS = {g.heads}, "
        f"DISCRETE = {len(g.sizes)}, FIRST_AGENT = {first_agent};",
        f"  static constexpr bool LEAVES = {str(g.leaves).lower()}, MASKED = "
        f"{str(g.mask).lower()};",
        f"  static constexpr int CRITIC = {g.critic_obs_dim}, OWN_OBS = {g.own_obs_dim};",
        f"  static constexpr bool AGENT_IDS = {str(g.agent_ids).lower()};",
        f"  static constexpr bool BYTES = {str(fits_bytes(g)).lower()};",
        f"  static constexpr int CHOICES = {g.choices};",
        "#ifdef TEAM_THREADS",
        f'  static const char* name() {{ return "{g.name}"; }}',
        "#endif",
    ]
    if g.continuous:
        lines += [
            f"  static DEVICE float low(int head) {{ {pick_float(g.box.low)} }}",
            f"  static DEVICE float span(int head) {{ {pick_float(g.box.high - g.box.low)} }}",
        ]
    if g.sizes:
        lines += [
            f"  static DEVICE int size(int head) {{ {pick_int(g.sizes)} }}",
            "  static DEVICE int read(Action action, int head) { return read_discrete(action, "
            "size(head)); }",
            f"  static DEVICE int first_choice(int head) {{ {pick_int(g.first_choices)} }}",
            "  static DEVICE Action sample_allowed(u32 word, int head, const u8* mask) {",
            f"    return {drawn('draw_allowed(word, mask + first_choice(head), size(head))')};",
            "  }",
        ]
    else:
        lines += [
            "  static DEVICE int size(int) { return 0; }",
            "  static DEVICE int first_choice(int) { return 0; }",
            "  static DEVICE float read(float action, int) { return read_box(action); }",
        ]
    sample = drawn("Random::below(word, size(head))")
    lines += [f"  static DEVICE Action sample(u32 word, int head) {{ return {sample}; }}"]
    return "\n".join([*lines, "};"])


def pick_int(values: Sequence[int]) -> str:
    """Return the body of a C function of ``head`` that returns one of these ints."""
    stretches = _stretches(values)
    if len(set(values)) == 1 or len(values) <= FEW_HEADS or len(stretches) > FEW_HEADS:
        return _pick("int", [str(n) for n in values])
    # A long array would be initialized again for each `head` that is not a compile-time constant.
    lines = [
        f"{start - step * first} + {step} * head" if step else f"{start}"
        for first, start, step in stretches
    ]
    ends = [*(f"if (head < {first}) " for first, _, _ in stretches[1:]), ""]
    return " ".join(f"{end}return {line};" for end, line in zip(ends, lines, strict=True))


def _stretches(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (first head, its value, step) of each range of heads with equally spaced values."""
    found: list[tuple[int, int, int]] = []
    for head, value in enumerate(values):
        if found:
            first, start, step = found[-1]
            if head == first + 1:
                found[-1] = first, start, value - start
                continue
            if value == start + step * (head - first):
                continue
        found.append((head, value, 0))
    return found


def pick_float(values: Iterable[float]) -> str:
    """Return the body of a C function of ``head`` that returns one of these floats."""
    return _pick("float", [f"{float(x)!r}f" for x in values])


def _pick(kind: str, values: Sequence[str]) -> str:
    if len(set(values)) == 1:
        return f"(void)head; return {values[0]};"
    return f"constexpr {kind} of_head[] = {{{', '.join(values)}}}; return of_head[head];"


def column_words(words: Sequence[int]) -> str:
    """Return the C function ``column_words``: the number of 4-byte words of a row, by array."""
    return f"DEVICE int column_words(int head) {{ {pick_int(words)} }}"


def head_sizes(sizes: Sequence[int]) -> str:
    """Return the C function ``head_size`` for discrete heads with these numbers of choices."""
    return f"DEVICE int head_size(int head) {{ {pick_int(sizes)} }}"


def box_bounds(space: spaces.Box) -> str:
    """Return the C functions ``box_low`` and ``box_span`` of a bounded one-dimensional Box."""
    bounds = {"box_low": space.low, "box_span": space.high - space.low}
    return "\n".join(
        f"DEVICE float {name}(int head) {{ {pick_float(values)} }}"
        for name, values in bounds.items()
    )


def sample_action(
    group: Group, words: NDArray[np.uint32], head: int, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int32] | NDArray[np.float32]:
    """Convert 32-bit random integers to actions of one head, of the group's dtype, as ``sample`` in
    C.

    Args:
        group: The group.
        words: uint32 array.
        head: Index of the head.
        mask: (*shape of words, choices of all heads) bool, the allowed choices. If None, all are
            allowed.
    """
    if mask is not None and head < len(group.sizes):
        allowed = mask[..., group.first_choices[head] :][..., : group.sizes[head]]
        allowed = allowed | ~allowed.any(axis=-1, keepdims=True)
        wanted = below(words, allowed.sum(axis=-1))  # index among the allowed choices
        chosen = np.argmax(np.cumsum(allowed, axis=-1) > wanted[..., None], axis=-1)
        return chosen.astype(group.action_dtype)
    if head >= len(group.sizes):
        low, high = (bound[head] for bound in group.action_bounds)
        return low + np.float32(high - low) * unit(words)
    return below(words, group.sizes[head]).astype(group.action_dtype)
