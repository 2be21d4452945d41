"""GroupQueryAttention and RotaryEmbedding: caches of keys and values, rotation by position."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.microsoft.attention import mask_scores, refuse
from anydim.compiler.frontends.onnx.microsoft.record import Required, Row, row
from anydim.compiler.frontends.onnx.operators.attention import (
    Operands,
    capped_below,
    operands_of,
    rotated_pairs,
    scale_of,
    scores_of,
    split_heads,
    weighted_values,
)
from anydim.compiler.frontends.onnx.operators.call import OnnxNode, Result
from anydim.sizes import Size, maximum, simplify

_SMOOTH = 0.0  # the score of the additional key of smooth_softmax


@dataclass(frozen=True)
class _Rows:
    """The positions of the new rows of each sequence: `first` [batch] and `own` [batch, rows]."""

    first: str
    own: str


def group_query_attention(call: OnnxNode) -> Sequence[Result]:
    """Attention in which groups of queries share keys; new keys and values are written to a cache.

    Each sequence has its own position: `seqlens_k` + 1 is its length with the new rows; a whole
    prompt starts at 0.
    """
    refuse(call, range(12, 16), ("sliding_window_cache", "qk_output", "kv_cache_bit_width"))
    if any(call.attribute(f"{side}_quant_type") != "NONE" for side in "kv"):
        raise Unsupported("a quantised cache")
    query, key, value = _split_inputs(call)
    new = _new_rows(call, call.kind(query).shape[2])
    if call.attribute("do_rotary"):
        query, key = (_rotate(call, part, _positions(call, new)) for part in (query, key))
    key, value = (_update_cache(call, part, 3 + n, new) for n, part in enumerate((key, value)))
    keys, values = (_used(call, part, 3 + n) for n, part in enumerate((key, value)))
    return [_attend(call, query, keys, values, new), key, value]


def _used(call: OnnxNode, cache: str, position: int) -> str:
    """The part of a cache that the longest sequence uses: buffers may be larger."""
    if not call.given(position):
        return cache
    return call.emit("slice", cache, starts=(0,), ends=(call.size(6),), axes=(2,))


def _attend(call: OnnxNode, query: str, key: str, value: str, new: _Rows) -> str:
    """Heads that share keys become rows of one product per group."""
    batch, count, rows, depth = call.kind(query).shape
    kept = call.attribute("kv_num_heads")
    group = call.attribute("num_heads") // kept
    if group > 1:
        query = call.emit("reshape", query, shape=(batch, kept, group * rows, depth))
    given = operands_of(call, query, key, value)
    scores = scores_of(
        call, given, scale_of(call, call.attribute("scale"), given.depth, given.dtype), given.whole
    )
    scores = capped_below(call, scores, call.attribute("softcap"))
    bias = _bias(call, given, group) if call.given(10) else None
    scores = mask_scores(call, scores, (bias,), _attention_mask(call, given, new, group))
    made = weighted_values(call, _shares(call, scores, given, group), given, flat=group == 1)
    if group == 1:
        return made
    width = call.kind(made).shape[3]
    made = call.emit("reshape", made, shape=(batch, kept, group, rows, width))
    made = call.emit("transpose", made, perm=(0, 3, 1, 2, 4))
    return call.emit("reshape", made, shape=(batch, rows, count * width))


def _split_inputs(call: OnnxNode) -> tuple[str, str, str]:
    """Queries, keys and values with heads as axes; packed ones are split."""
    heads, kept = call.attribute("num_heads"), call.attribute("kv_num_heads")
    if min(heads, kept) < 1 or heads % kept:
        raise Unsupported(f"{heads} heads of queries, {kept} of keys")
    call.axes(0, 3)
    parts = [call.input(0)]
    if call.given(1):
        parts += [call.input(1), call.input(2)]
    else:
        depth = call.shape(0)[-1] // (heads + 2 * kept)
        sizes = (heads * depth, kept * depth, kept * depth)
        parts = call.emit_many("split", 3, call.input(0), axis=-1, sizes=sizes)
    query, key, value = (
        split_heads(call, part, count) for part, count in zip(parts, (heads, kept, kept))
    )
    return query, key, value


def _new_rows(call: OnnxNode, rows: Size) -> _Rows:
    """The new rows end at the end of the sequence; they start at 0 if all of it is new."""
    lengths, total = (call.emit("cast", call.input(n), to=int64) for n in (5, 6))
    if call.kind(total).rank:
        total = call.emit("reshape", total, shape=())
    count = call.size_tensor(rows)
    ends = call.emit("add", lengths, call.number(1, int64))
    if call.kind(ends).rank != 1:
        ends = call.emit("reshape", ends, shape=(call.shape(0)[0],))
    whole = call.emit("equal", total, count)
    zero = call.number(0, int64)
    first = call.emit("where", whole, zero, call.emit("sub", ends, count))
    spread = call.emit("unsqueeze", first, axes=(1,))
    return _Rows(first, call.emit("add", spread, call.iota(rows)))


def _positions(call: OnnxNode, new: _Rows) -> str:
    return call.input(9) if call.given(9) else new.own


def _rotate(call: OnnxNode, value: str, positions: str) -> str:
    """Rotate pairs of elements by the angles of each row's position."""
    call.axes(7, 2), call.axes(8, 2)
    tables = (call.input(7), call.input(8))
    return rotate_by_tables(
        call, value, tables, positions, bool(call.attribute("rotary_interleaved"))
    )


def _update_cache(call: OnnxNode, new: str, position: int, rows: _Rows) -> str:
    """The cache with the new rows: as long as the past, or as the longest sequence now."""
    if not call.given(position):
        return new
    count = simplify(maximum(call.axes(position, 4)[2], call.size(6)), call.box)
    first = call.counted(rows.first, count - call.kind(new).shape[2])
    return call.emit("cached_rows", call.input(position), first, new, count=count)


def _of_group(call: OnnxNode, value: str, group: int) -> str:
    """Repeat [..., rows, n] for each head of a group: [..., group * rows, n]."""
    if group == 1:
        return value
    *outer, rows, width = call.kind(value).shape
    lifted = call.emit("unsqueeze", value, axes=(len(outer),))
    spread = call.emit("expand", lifted, shape=(*outer, group, rows, width))
    return call.emit("reshape", spread, shape=(*outer, group * rows, width))


def _attention_mask(call: OnnxNode, given: Operands, new: _Rows, group: int) -> str:
    """[batch, 1, rows, columns]: the keys that each row attends to, within the window."""
    columns = call.iota(given.columns)
    if call.attribute("causal"):
        last = _of_group(call, call.emit("unsqueeze", new.own, axes=(1, 3)), group)
    else:
        rows = call.kind(new.own).shape[1]
        end = call.emit("add", new.first, call.size_tensor(rows - 1))
        last = call.emit("unsqueeze", end, axes=(1, 2, 3))
    allowed = call.emit("less_equal", columns, last)
    window = call.attribute("local_window_size")
    if window < 0:
        return allowed
    oldest = call.emit("sub", last, call.number(window, int64))
    return call.emit("logical_and", allowed, call.emit("greater", columns, oldest))


def _bias(call: OnnxNode, given: Operands, group: int) -> str:
    """The input attention_bias padded to all keys of the cache; the padding is masked anyway."""
    bias, shape = call.input(10), call.axes(10, 4)
    missing = simplify(maximum(given.columns - shape[-1], 0), call.box)
    if missing.constant != 0:
        bias = call.emit("pad", bias, before=(0,) * 4, after=(0, 0, 0, missing))
    if call.kind(bias).shape[-1] != given.columns:
        bias = call.emit("slice", bias, starts=(0,), ends=(given.columns,), axes=(3,))
    if shape[1].constant == 1:
        return _of_group(call, bias, group)
    return call.emit("reshape", bias, shape=(shape[0], *given.whole[1:]))


def _shares(call: OnnxNode, scores: str, given: Operands, group: int) -> str:
    """Softmax; a sink is an additional score per head whose share is discarded."""
    if call.given(11):
        rows = given.rows.divide_exactly(group)
        sink = call.emit("reshape", call.input(11), shape=(given.count, group, 1, 1))
        sink = call.emit("expand", sink, shape=(given.count, group, rows, 1))
        sink = call.emit("reshape", sink, shape=(given.count, given.rows, 1))
    elif call.attribute("smooth_softmax") == 1:
        sink = call.number(_SMOOTH, given.dtype)
    else:
        return call.emit("softmax", scores, axis=-1)
    top = call.emit("reduce_max", scores, axes=(-1,), keepdims=True)
    top = call.emit("maximum", top, sink)
    powers = call.emit("exp", call.emit("sub", scores, top))
    total = call.emit("reduce_sum", powers, axes=(-1,), keepdims=True)
    total = call.emit("add", total, call.emit("exp", call.emit("sub", sink, top)))
    return call.emit("div", powers, total)


# ---- rotation ----------------------------------------------------------------------------------


def rotate_by_tables(
    call: OnnxNode, value: str, tables: tuple[str, str], positions: str, interleaved: bool,
    flat: bool = False,
) -> str:  # fmt: skip
    """Rotate [batch, head, row, depth] by the rows of cosine and sine tables at `positions`.

    `positions` is [batch, row]; rotates one element per angle of the tables.
    """
    cos, sin = (call.emit("gather", table, positions, axis=0) for table in tables)
    width = call.kind(cos).shape[-1] * 2
    return rotated_pairs(call, value, (cos, sin), interleaved, width, flat)


def rotary_embedding(call: OnnxNode) -> Result:
    """Positions are given per row, or as the position of the first row."""
    refuse(call, (), ("is_packed_batching",))
    flat = len(call.axes(0, 3, 4)) == 3
    x = call.input(0)
    depth = call.axes(2, 2)[-1] * 2
    if flat:
        heads = call.attribute("num_heads") or (call.shape(0)[-1] // depth).constant
        x = split_heads(call, x, heads)
    positions = call.input(1)
    batch, _, rows, _ = call.kind(x).shape
    if len(call.axes(1, 1, 2)) == 1:
        positions = call.emit("add", positions, call.iota(rows))
        positions = call.emit("expand", positions, shape=(batch, rows))
    call.axes(3, 2)
    tables = (call.input(2), call.input(3))
    return rotate_by_tables(call, x, tables, positions, bool(call.attribute("interleaved")), flat)


ROWS: dict[str, Row] = {
    "GroupQueryAttention": row(
        group_query_attention,
        "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? "
        "sin_cache? position_ids? attention_bias? head_sink? k_scale? v_scale? q_norm_weight? "
        "k_norm_weight? -> output present_key? present_value? output_qk?",
        num_heads=Required(int), kv_num_heads=Required(int), causal=1, do_rotary=int,
        k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=int, local_window_size=-1,
        qk_norm_epsilon=1e-6, qk_output=0, rotary_interleaved=int, scale=float,
        sliding_window_cache=0, smooth_softmax=-1, softcap=float,
        limits="no quantised and no sliding caches, no output_qk"),
    "RotaryEmbedding": row(
        rotary_embedding, "input position_ids cos_cache sin_cache -> output",
        num_heads=int, rotary_embedding_dim=int, interleaved=int, is_packed_batching=int,
        scale=float, limits="no packed batches"),
}  # fmt: skip
