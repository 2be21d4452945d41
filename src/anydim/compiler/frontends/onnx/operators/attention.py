"""Rows of Attention and RotaryEmbedding: heads are axes, so their number may be a dim.

Queries are grouped by the key head that they share: q[b, h, g, i, d], k[b, h, j, d].
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import DType, boolean, float32, int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.operators.call import GraphWriter, OnnxNode, Result
from anydim.compiler.frontends.onnx.operators.norms import common
from anydim.sizes import Size, as_size, maximum, simplify

_ABSENT = -1  # an unbounded side of a window


@dataclass(frozen=True)
class Operands:
    """Queries [batch, count, rows, depth], keys and values [batch, kept, columns, ...].

    `grouped`: several query heads may share a key head; the first `past` columns are from earlier
    calls.
    """

    query: str
    key: str
    value: str
    past: Size
    dtype: DType
    batch: Size
    count: Size
    rows: Size
    depth: Size
    kept: Size
    columns: Size
    grouped: bool

    @property
    def whole(self) -> tuple[Size, ...]:
        """The shape of the scores."""
        return (self.batch, self.count, self.rows, self.columns)

    @property
    def parts(self) -> tuple[Size, ...]:
        """The shape of the scores by groups of heads."""
        group = self.count // maximum(self.kept, 1)
        return (self.batch, self.kept, group, self.rows, self.columns)

    @property
    def letters(self) -> str:
        return "bhgi" if self.grouped else "bhi"


def attention(call: OnnxNode) -> Sequence[Result]:
    """Inputs Q, K, V, a mask, past keys and values, and the number of valid keys per row."""
    given = _operands(call)
    allowed, bias, always = _masks(call, (given.rows, given.columns), given.past, given.dtype)
    scale = scale_of(call, call.attribute("scale"), given.depth, given.dtype)
    by_groups = given.grouped and not (call.given(3) or call.given(6))
    raw = scores_of(call, given, scale, given.parts if by_groups else given.whole)
    capped = capped_below(call, raw, call.attribute("softcap"))
    biased = capped if bias is None else call.emit("add", capped, bias)
    if allowed is not None:
        biased = call.emit("where", allowed, biased, call.number(float("-inf"), given.dtype))
    working = call.attribute("softmax_precision")
    work = given.dtype if working is None else element_type(working)
    shares = _softmax(call, biased, None if always else allowed, bias, given.dtype, work)
    made = weighted_values(call, shares, given, flat=call.type(0).rank == 3)
    if len(call.outputs) < 4:
        return [made, given.key, given.value]
    mode = call.attribute("qk_matmul_output_mode", 0)
    scores = (raw, capped, biased, shares)[mode]
    return [made, given.key, given.value, reshape_to_rank(call, scores, given.whole)]


def _operands(call: OnnxNode) -> Operands:
    """Q, K and V with heads as axes, past keys and values concatenated before the new ones."""
    rank = call.type(0).rank
    if rank not in (3, 4) or any(call.type(n).rank != rank for n in (1, 2)):
        raise Unsupported(f"queries of type {call.type(0)}")
    heads, shared = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    query, key, value = (call.input(n) for n in range(3))
    if rank == 3:
        query = split_heads(call, query, heads)
        key, value = (split_heads(call, own, shared) for own in (key, value))
    past = as_size(0)
    if call.given(4) and call.given(5):
        if any(call.type(n).rank != 4 for n in (4, 5)):
            raise Unsupported(f"past keys of type {call.type(4)}")
        past = call.shape(4)[2]
        key = call.emit("concat", call.input(4), key, axis=2)
        value = call.emit("concat", call.input(5), value, axis=2)
    return operands_of(call, query, key, value, past)


def operands_of(
    call: GraphWriter, query: str, key: str, value: str, past: Size | int = 0
) -> Operands:
    """Operands from values whose heads are axes."""
    batch, count, rows, depth = call.kind(query).shape
    kept, columns = call.kind(key).shape[1:3]
    return Operands(
        query, key, value, as_size(past), call.kind(query).dtype, batch, count, rows, depth, kept,
        columns, grouped=not call.proved(count, "==", kept),
    )  # fmt: skip


def reshape_to_rank(call: GraphWriter, made: str, shape: Sequence[Size]) -> str:
    """Reshape a value unless its rank matches."""
    same = len(shape) == call.kind(made).rank
    return made if same else call.emit("reshape", made, shape=tuple(shape))


def scores_of(call: GraphWriter, given: Operands, scale: str, shape: Sequence[Size]) -> str:
    """Scaled products of queries and keys in a shape: `whole`, or `parts` by groups of heads."""
    query, letters = given.query, given.letters
    if given.grouped:
        query = reshape_to_rank(call, query, (*given.parts[:-1], given.depth))
    raw = call.emit("einsum", query, given.key, equation=f"{letters}d,bhjd->{letters}j")
    return call.emit("mul", reshape_to_rank(call, raw, shape), scale)


def capped_below(call: OnnxNode, scores: str, cap: float | None) -> str:
    """Apply the soft cap to scores, if there is one."""
    if not cap:
        return scores
    number = call.number(cap, call.kind(scores).dtype)
    return call.emit("mul", call.emit("tanh", call.emit("div", scores, number)), number)


def weighted_values(call: GraphWriter, shares: str, given: Operands, flat: bool) -> str:
    """Values weighted by their shares: [batch, count, rows, width].

    `flat`: heads are last, [batch, rows, count * width].
    """
    letters, width = given.letters, call.kind(given.value).shape[3]
    weights = reshape_to_rank(call, shares, given.parts if given.grouped else given.whole)
    work = common((call.kind(weights).dtype, call.kind(given.value).dtype))
    operands = [call.as_type(value, work) for value in (weights, given.value)]
    made = call.emit("einsum", *operands, equation=f"{letters}j,bhjd->{letters}d")
    made = call.as_type(made, given.dtype)
    if not flat:
        return reshape_to_rank(call, made, (given.batch, given.count, given.rows, width))
    perm = (0, 3, 1, 2, 4) if given.grouped else (0, 2, 1, 3)
    made = call.emit("transpose", made, perm=perm)
    return call.emit("reshape", made, shape=(given.batch, given.rows, given.count * width))


def split_heads(call: OnnxNode, value: str, count: int | None) -> str:
    """[batch, rows, heads * depth] as [batch, heads, rows, depth]."""
    if not count:
        raise Unsupported("the number of heads is missing")
    kind = call.kind(value)
    if kind.rank != 3:
        raise Unsupported(f"heads of {kind}, expected 3 axes")
    batch, rows, width = kind.shape
    parts = call.emit("reshape", value, shape=(batch, rows, count, width // count))
    return call.emit("transpose", parts, perm=(0, 2, 1, 3))


def scale_of(call: GraphWriter, scale: float | None, depth: Size, dtype: DType) -> str:
    """The scale of scores: 1 / sqrt(depth) by default."""
    if scale is not None:
        return call.number(float(scale), dtype)
    if depth.constant is not None:
        return call.number(max(depth.constant, 1) ** -0.5, dtype)
    size = call.emit("size_tensor", values=(depth,), dtype=float32, scalar=True)
    root = call.emit("reciprocal", call.emit("sqrt", size))
    return call.as_type(root, dtype)


def _masks(
    call: OnnxNode, shape: tuple[Size, Size], past: Size, dtype: DType
) -> tuple[str | None, str | None, bool]:
    """(the allowed positions, an addend of scores, whether each row with keys has an allowed one).

    None if there is no mask or addend.
    """
    rows, columns = shape
    tests: list[str] = []
    bias = None
    if call.given(3):
        mask = _wide_mask(call, columns)
        if call.type(3).dtype == boolean:
            tests.append(mask)
        else:
            bias = call.as_type(mask, dtype)
    left, right = (call.attribute(f"{side}_window_size", _ABSENT) for side in ("left", "right"))
    causal = bool(call.attribute("is_causal"))
    always = not call.given(3) and not call.given(6) and left < 0
    if not (causal or call.given(6) or left >= 0 or right >= 0):
        return (tests[0] if tests else None), bias, always
    i, j = call.iota(rows), call.iota(columns)
    position = call.emit("unsqueeze", i, axes=(1,))
    if call.given(6):
        valid = call.counted(call.input(6), columns)
        valid = call.emit("unsqueeze", valid, axes=(1, 2, 3))
        tests.append(call.emit("less", j, valid))
        position = call.emit("add", position, call.emit("sub", valid, call.size_tensor(rows)))
    elif past.constant != 0:
        position = call.emit("add", position, call.size_tensor(past))
    if causal:
        tests.append(call.emit("less_equal", j, position))
    if left >= 0:
        first = call.emit("sub", position, call.number(left, int64))
        tests.append(call.emit("greater_equal", j, first))
    if right >= 0:
        last = call.emit("add", position, call.number(right, int64))
        tests.append(call.emit("less_equal", j, last))
    allowed = tests[0]
    for test in tests[1:]:
        allowed = call.emit("logical_and", allowed, test)
    return allowed, bias, always


def _wide_mask(call: OnnxNode, columns: Size) -> str:
    """The mask padded to all keys; the padding is not allowed."""
    kind = call.type(3)
    if not kind.rank:
        raise Unsupported(f"a mask of type {kind}")
    missing = columns - kind.shape[-1]
    if missing.constant == 0:
        return call.input(3)
    empty = call.number(False if kind.dtype == boolean else float("-inf"), kind.dtype)
    none = (0,) * (kind.rank - 1)
    after = simplify(maximum(missing, 0), call.emitter.box)
    return call.emit(
        "pad", call.input(3), empty, before=(*none, 0), after=(*none, after), mode="constant"
    )


def _softmax(
    call: OnnxNode, scores: str, allowed: str | None, bias: str | None, dtype: DType, work: DType
) -> str:  # fmt: skip
    """Shares along the last axis; rows without an allowed position get shares of 0."""
    shares = call.emit("softmax", call.as_type(scores, work), axis=-1)
    if allowed is not None or bias is not None:
        lowest = call.number(float("-inf"), dtype)
        zero = call.number(0, dtype)
        if bias is None:
            some = allowed
        else:
            some = call.emit("greater", bias, lowest)
            some = some if allowed is None else call.emit("logical_and", some, allowed)
        numbers = call.emit("where", some, call.number(1, dtype), zero)
        any_row = call.emit("reduce_max", numbers, axes=(-1,), keepdims=True)
        row = call.emit("greater", any_row, zero)
        shares = call.emit("where", row, shares, call.number(0, work))
    return call.as_type(shares, dtype)


def rotary_embedding(call: OnnxNode) -> Result:
    """Rotate pairs of elements by the angles of their row, or of given positions."""
    flat = call.type(0).rank == 3
    x = call.input(0)
    if flat:
        x = split_heads(call, x, call.attribute("num_heads"))
    interleaved = bool(call.attribute("interleaved"))
    cos, sin = call.input(1), call.input(2)
    if call.given(3):
        cos, sin = (call.emit("gather", cache, call.input(3), axis=0) for cache in (cos, sin))
    width = call.attribute("rotary_embedding_dim") or call.kind(x).shape[-1]
    return rotated_pairs(call, x, (cos, sin), interleaved, as_size(width), flat)


def rotated_pairs(
    call: OnnxNode, x: str, angles: tuple[str, str], interleaved: bool, width: Size, flat: bool
) -> str:
    """Rotate the first `width` elements of [batch, head, row, depth] by cosines and sines.

    Pairs are neighbours, or elements of the two halves. `flat`: heads are concatenated.
    """
    batch, heads, rows, depth = call.kind(x).shape
    part = None if width == depth else width
    half = width.divide_exactly(as_size(2))
    if not interleaved and part is None and half is not None:
        x = call.emit("reshape", x, shape=(batch, heads, rows, as_size(2), half))
    made = call.emit("rotary_embedding", x, *angles, interleaved=interleaved, width=part)
    if flat:
        made = call.emit("transpose", made, perm=(0, 2, 1, *range(3, call.kind(made).rank)))
    shape = (batch, rows, heads * depth) if flat else (batch, heads, rows, depth)
    return call.emit("reshape", made, shape=shape)
