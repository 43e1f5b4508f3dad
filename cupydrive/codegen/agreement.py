"""The layout of structs in Python, and static assertions that it is the same in C."""

from typing import Any

import numpy as np

from cupydrive.protocols import EnvParams
from cupydrive.spec import EnvSpec

# Maximum number of agents per thread for which returns and draws are kept in registers.
FEW_OWN = 8


def agreement(spec: EnvSpec, params: EnvParams) -> str:
    """Return static assertions that ``State``, ``Params``, ``Metrics`` and ``Batch`` in C have the
    layout of Python.
    """
    lines = [
        "template <class A, class B> struct Same { static constexpr bool value = false; };",
        "template <class A> struct Same<A, A> { static constexpr bool value = true; };",
        "template <class T, int N> struct Same<Array<T, N>, T[N]> { static constexpr bool value = "
        "true; };",
    ]
    for struct, dtype in (
        ("State", spec.state_dtype(params)),
        ("Params", spec.pack_params(params).dtype),
        ("Metrics", spec.metrics_dtype()),
    ):
        if struct == "Params" and dtype.names == ("none",):
            continue  # without float parameters, any struct is accepted
        same, members = [f"sizeof({struct}) == {dtype.itemsize}"], []
        for name, kind, offset in members_of(dtype):
            base = {"f4": "float", "i4": "int", "u4": "u32", "u1": "u8"}[kind.base.str[1:]]
            shape = "".join(f"[{n}]" for n in kind.shape)
            same.append(
                f"Same<decltype({struct}::{name}), {base}{shape}>::value && OFFSET_OF({struct}, "
                f"{name}) == {offset}"
            )
            members.append(f"{base} {name}{shape};")
        message = f"{spec.name}: struct {struct} must be as in Python: {{ {' '.join(members)} }}"
        lines.append(f'static_assert({" && ".join(same)}, "{message}");')
    batch, groups = batch_dtype(spec, params), {g.name for g in spec.groups(params)}
    same = [f"sizeof(Batch) == {batch.itemsize}"]
    for name, _, offset in members_of(batch):
        same.append(f"OFFSET_OF(Batch, {'rows.' * (name in groups)}{name}) == {offset}")
    lines.append(f'static_assert({" && ".join(same)}, "struct Batch");')
    lines.append(
        f'static_assert(FEW_OWN == {FEW_OWN}, "FEW_OWN: Layout.shared_bytes counts with another '
        f'number");'
    )
    return "\n".join(lines)


def members_of(dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any], int]]:
    """Return name, type and offset of each member of a struct."""
    return [(name, member[0], member[1]) for name, member in (dtype.fields or {}).items()]


def state_fields(spec: EnvSpec, params: EnvParams) -> str:
    """Return the offsets of the members of ``State``, for ``kernels/drive/entries.cuh``."""
    places = members_of(spec.state_dtype(params))
    fields = (
        f'{{"{name}", {offset}, {kind.itemsize}, {kind.base.itemsize}}}'
        for name, kind, offset in places
    )
    return f"constexpr StateField STATE_FIELDS[] = {{{', '.join(fields)}}};"


def batch_dtype(spec: EnvSpec, params: EnvParams) -> np.dtype[np.void]:
    """Return the NumPy dtype of ``struct Batch``, the only argument of every kernel.

    Pointers are uint64.
    """
    pointers = (
        "obs current_obs final_obs critic_obs final_critic_obs reward returns episode_return "
        "action action_mask active left"
    )
    flags: list[tuple[str, str]] = [("packed", "i4"), ("current_packed", "i4")]
    rows = np.dtype([*((name, "u8") for name in pointers.split()), *flags])
    members: list[Any] = [("params", spec.pack_params(params).dtype)]
    members += [(name, "i4") for name in ("num_envs", "first_env", "steps", "max_episode_steps")]
    members += [("inverse_horizon", "f4")]
    pointers = "seed state clock metrics mask terminated truncated episode_length episode_metrics"
    members += [(name, "u8") for name in pointers.split()]
    members += [(g.name, rows) for g in spec.groups(params)]
    members += [("printed", "u8"), ("cache", "u8")]
    if tables := spec.declared_tables(params):
        members += [("table", [(t.name, "u8") for t in tables])]
    return np.dtype(members, align=True)
