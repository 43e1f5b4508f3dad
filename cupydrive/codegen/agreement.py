"""What C and Python must agree on: ``struct Batch``, and assertions in the compiled text that every struct is the same."""

import numpy as np

FEW_OWN = 8  # agents of one member, up to which it keeps what no environment reads of them in registers


def agreement(spec, params):
    """Return assertions that ``State``, ``Params``, ``Log`` and ``Batch`` are in C what they are in Python."""
    lines = [
        "template <class A, class B> struct Same { static constexpr bool value = false; };",
        "template <class A> struct Same<A, A> { static constexpr bool value = true; };",
        "template <class T, int N> struct Same<Array<T, N>, T[N]> { static constexpr bool value = true; };",
    ]
    for struct, dtype in (
        ("State", spec.state_dtype(params)),
        ("Params", spec.pack_params(params).dtype),
        ("Log", spec.log_dtype()),
    ):
        if struct == "Params" and dtype.names == ("none",):
            continue  # no float parameters: any struct will do
        members = [_member(name, dtype.fields[name][0]) for name in dtype.names]
        differs = f'"{spec.name}: struct {struct} must be as in Python: {{ {"; ".join(members)}; }}");'
        for name in dtype.names:
            ctype, offset = _ctype(dtype.fields[name][0]), dtype.fields[name][1]
            lines.append(f"static_assert(Same<decltype({struct}::{name}), {ctype}>::value, {differs}")
            lines.append(f"static_assert(OFFSET_OF({struct}, {name}) == {offset}, {differs}")
        lines.append(f"static_assert(sizeof({struct}) == {dtype.itemsize}, {differs}")
    batch = batch_dtype(spec, params)
    groups = {g.name for g in spec.groups(params)}
    lines += [
        f"static_assert(OFFSET_OF(Batch, {'rows.' * (name in groups)}{name}) == {batch.fields[name][1]}, "
        f'"struct Batch: {name}");'
        for name in batch.names
    ]
    lines.append(f'static_assert(sizeof(Batch) == {batch.itemsize}, "struct Batch");')
    lines.append(f'static_assert(FEW_OWN == {FEW_OWN}, "FEW_OWN: Layout.near_bytes counts with another number");')
    return "\n".join(lines)


def state_fields(spec, params):
    """Return where each member of ``State`` is, for ``kernels/drive/entries.cuh``."""
    dtype = spec.state_dtype(params)
    places = ((name, *dtype.fields[name][:2]) for name in dtype.names)
    fields = (f'{{"{name}", {offset}, {kind.itemsize}, {kind.base.itemsize}}}' for name, kind, offset in places)
    return f"constexpr StateField STATE_FIELDS[] = {{{', '.join(fields)}}};"


def _ctype(dtype: np.dtype) -> str:
    """Return the C type of a member, such as ``float[3]``."""
    kind = {"f4": "float", "i4": "int", "u4": "u32"}[dtype.base.str[1:]]
    return kind + "".join(f"[{n}]" for n in dtype.shape)


def _member(name: str, dtype: np.dtype) -> str:
    """Return the declaration of a member in C."""
    kind, bracket, shape = _ctype(dtype).partition("[")
    return f"{kind} {name}{bracket}{shape}"


def batch_dtype(spec, params):
    """Return the NumPy dtype of ``struct Batch``, the one argument of every kernel; pointers are uint64."""
    pointers = "obs current_obs final_obs reward returns episode_return action action_mask active left"
    rows = np.dtype([(name, "u8") for name in pointers.split()])
    members = [("params", spec.pack_params(params).dtype)]
    members += [(name, "i4") for name in ("num_envs", "first_env", "steps", "max_episode_steps")]
    members += [("inverse_horizon", "f4")]
    pointers = "seed state clock log mask terminated truncated episode_length episode_log"
    members += [(name, "u8") for name in pointers.split()]
    members += [(g.name, rows) for g in spec.groups(params)]
    members += [("printed", "u8"), ("cache", "u8")]
    if tables := spec.declared_tables(params):
        members += [("table", [(t.name, "u8") for t in tables])]
    return np.dtype(members, align=True)
