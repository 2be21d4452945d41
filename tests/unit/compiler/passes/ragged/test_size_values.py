"""Promise: nodes that read their own row are independent, however exporters write the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import boolean
from anydim.base.errors import ModelError
from anydim.compiler.graph.regions import LOOP
from anydim.compiler.passes.ragged.placement import mask_inputs
from anydim.compiler.passes.ragged.rows import RaggedRows
from anydim.compiler.passes.ragged.size_values import decide_comparison, span_of
from anydim.lang.tree import Apply, Expr, Index, Literal, SizeTerm
from anydim.lang.tree.affine import Affine, affine
from anydim.sizes import Box, Dim, Size, as_size

WIDTH = 8
SEQ = Size.symbol("seq")
Make = Callable[[ad.Builder, Any, Any, Any, Any], Any]


def weights(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(shape).standard_normal(shape).astype(numpy.float32)


def number(g: ad.Builder, value: int) -> Any:
    return g.constant(numpy.array(value, numpy.int64))


def column(g: ad.Builder, count: Any, *axes: int) -> Any:
    return g.unsqueeze(g.range(count=count), axes=axes)


def masked(g: ad.Builder, x: Any, kept: Any) -> Any:
    """The softmax over the tokens that `kept` marks, bool [batch, 1, seq], of each column."""
    turned = g.transpose(x, perm=(0, 2, 1))
    shut = g.where(kept, number(g, 0), number(g, -9))
    return g.softmax(g.add(turned, g.cast(shut, to=ad.float32)), axis=-1)


def mask_at_pairs(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """mask[rows, keys], as GatherND."""
    rows = g.expand(column(g, b, 1, 2, 3), shape=(b, 1, t, 1))
    keys = g.expand(column(g, t, 0, 1, 3), shape=(b, 1, t, 1))
    kept = g.gather_nd(g.cast(mask, to=boolean), g.concat(rows, keys, axis=-1))
    return masked(g, x, kept)


def mask_at_offsets(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """mask.flatten()[rows * seq + keys]."""
    flat = g.reshape(g.cast(mask, to=boolean), shape=(b * t, 1))
    offsets = g.add(column(g, t, 0, 1), g.mul(column(g, b, 1, 2), g.size_tensor(values=(t,))))
    return masked(g, x, g.squeeze(g.gather(flat, offsets, axis=0), axes=(3,)))


def last_token(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """x[rows, mask.sum(1) - 1]."""
    last = g.sub(g.reduce_sum(mask, axes=(1,), keepdims=True), number(g, 1))
    return g.gather_nd(x, g.concat(column(g, b, 1), last, axis=-1))


def last_token_at_offset(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    last = g.sub(g.reduce_sum(mask, axes=(1,), keepdims=False), number(g, 1))
    offsets = g.add(g.mul(g.range(count=b), g.size_tensor(values=(t,), scalar=True)), last)
    return g.gather(g.reshape(x, shape=(b * t, WIDTH)), offsets, axis=0)


def largest_token(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """x[rows, x[..., 0].argmax(1)]: data beside the number of the row."""
    first = g.squeeze(g.slice(x, starts=(0,), ends=(1,), axes=(2,)), axes=(2,))
    at = g.arg_max(first, axis=1, keepdims=True)
    return g.gather_nd(x, g.concat(column(g, b, 1), at, axis=-1))


def largest_token_at_offset(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    first = g.squeeze(g.slice(x, starts=(0,), ends=(1,), axes=(2,)), axes=(2,))
    at = g.arg_max(first, axis=1, keepdims=False)
    offsets = g.add(g.mul(g.range(count=b), g.size_tensor(values=(t,), scalar=True)), at)
    return g.gather(g.reshape(x, shape=(b * t, WIDTH)), offsets, axis=0)


def tiled_constant(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """A table for each of 2 heads, repeated for each row."""
    heads = g.reshape(g.transpose(g.reshape(x, shape=(b, t, 2, 4)), perm=(0, 2, 1, 3)),
                      shape=(2 * b, t, 4))  # fmt: skip
    table = g.tile(g.constant(weights(2, 4, 4)), repeats=(b, 1, 1))
    return g.reshape(g.matmul(heads, table), shape=(b, 2, t, 4))


def time_first(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """[seq, batch, width], heads merged with the batch, and [seq * batch, width]."""
    turned = g.transpose(x, perm=(1, 0, 2))
    heads = g.transpose(g.reshape(turned, shape=(t, 2 * b, 4)), perm=(1, 0, 2))
    scores = g.softmax(g.matmul(heads, g.transpose(heads, perm=(0, 2, 1))), axis=-1)
    mixed = g.reshape(g.transpose(g.matmul(scores, heads), perm=(1, 0, 2)), shape=(t * b, WIDTH))
    linear = g.matmul(mixed, g.constant(weights(WIDTH, WIDTH)))
    return g.transpose(g.reshape(linear, shape=(t, b, WIDTH)), perm=(1, 0, 2))


def positions(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """A table looked up by numbers that nodes over all tokens compute."""
    table = g.constant(weights(128, WIDTH))
    return g.relu(g.add(x, g.gather(table, column(g, t, 0), axis=0)))


def number_of_the_row(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    return g.add(x, g.cast(column(g, b, 1, 2), to=ad.float32))


def next_row(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    return g.gather(x, g.sub(g.range(count=b), number(g, 1)), axis=0)


def next_offset(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """The token behind the last one belongs to the next row."""
    last = g.reduce_sum(mask, axes=(1,), keepdims=False)
    offsets = g.add(g.mul(g.range(count=b), g.size_tensor(values=(t,), scalar=True)), last)
    return g.gather(g.reshape(x, shape=(b * t, WIDTH)), offsets, axis=0)


def numbers_alone(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    g.output("x", g.relu(x))
    return g.range(count=b)


def merged_time_first(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
    """Rows that lie at a stride, read as if they lay in one part."""
    return g.reshape(g.transpose(x, perm=(1, 0, 2)), shape=(b, t, WIDTH))


INDEPENDENT: tuple[Make, ...] = (
    mask_at_pairs, mask_at_offsets, last_token, last_token_at_offset, largest_token,
    largest_token_at_offset, tiled_constant, time_first, positions,
)  # fmt: skip
MIXED: tuple[Make, ...] = (
    number_of_the_row, next_row, next_offset, numbers_alone, merged_time_first,
)  # fmt: skip


def model(make: Make) -> ad.Builder:
    g = ad.Builder(make.__name__)
    b, t = g.dim("batch", 0, 64), g.dim("seq", 0, 128)
    x = g.input("tokens", ad.float32, (b, t, WIDTH))
    mask = g.input("attention_mask", ad.int64, (b, t))
    g.output("y", make(g, b, t, x, mask))
    return g


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("make", INDEPENDENT)
def test_a_row_reads_itself(make: Make) -> None:
    alone, ragged = ad.compile(model(make)), ad.compile(model(make), ragged="auto")
    rows = [weights(length, WIDTH) for length in (3, 1, 7, 2)]
    found = ragged(tokens=rows)["y"]
    for row, made in zip(rows, found):
        mask = numpy.ones((1, len(row)), numpy.int64)
        expected = alone(tokens=row[None], attention_mask=mask)["y"][0]
        numpy.testing.assert_allclose(made, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("make", MIXED)
def test_a_row_that_reads_more_is_refused(make: Make) -> None:
    with pytest.raises(ModelError, match="no ragged form"):
        RaggedRows("auto").run(model(make).graph())


@pytest.mark.parametrize("make", [mask_at_pairs, mask_at_offsets])
def test_masks_are_folded(make: Make) -> None:
    graph, _ = RaggedRows("auto").run(model(make).graph())
    (body,) = (node.region.body for node in graph.nodes if node.operator == LOOP)
    assert not {node.operator for node in body.nodes} & {"gather", "gather_nd", "range", "where"}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("attention_mask", True), ("mask.1", True), ("query_mask", True), ("padding_mask", False),
        ("global_attention_mask", False), ("special_tokens_mask", False), ("masked_pos", False),
    ],
)  # fmt: skip
def test_masks_of_padding_are_known_by_name(name: str, kept: bool) -> None:
    g = ad.Builder("masks")
    b, t = g.dim("batch"), g.dim("seq")
    g.output("y", g.cast(g.input(name, ad.int64, (b, t)), to=ad.float32))
    graph = g.graph()
    assert mask_inputs(graph, "batch", frozenset({"seq"})) == (frozenset({name}) if kept else set())


def test_element_work_between_convolutions_is_inside() -> None:
    def make(g: ad.Builder, b: Any, t: Any, x: Any, mask: Any) -> Any:
        y = g.transpose(x, perm=(0, 2, 1))
        for _ in range(3):
            y = g.relu(g.conv(y, g.constant(weights(WIDTH, WIDTH, 3)), pads=(1, 1)))
        return g.transpose(y, perm=(0, 2, 1))

    graph, _ = RaggedRows("auto").run(model(make).graph())
    (loop,) = (node for node in graph.nodes if node.operator == LOOP)
    assert [node.operator for node in loop.region.body.nodes].count("relu") == 3
    assert len(loop.outputs) == 1


ROW, ONE, SIZES = Index("i"), Index("j"), Box.of(Dim("seq", 1, None))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Apply("less", (ROW, SizeTerm(SEQ))), True),
        (Apply("less", (ROW, SizeTerm(as_size(0)))), False),
        (Apply("less_equal", (ROW, SizeTerm(as_size(0)))), None),
        (Apply("equal", (ROW, SizeTerm(SEQ))), False),
        (Apply("equal", (ONE, SizeTerm(as_size(0)))), True),
        (Apply("not_equal", (ROW, ONE)), None),
        (Apply("and", (Literal(True, boolean), Literal(False, boolean))), False),
        (Apply("or", (Apply("less", (ONE, ROW)), Literal(True, boolean))), True),
    ],
)
def test_comparisons_of_indices_are_decided(expr: Expr, expected: bool | None) -> None:
    found = decide_comparison(expr, {"i": SEQ, "j": as_size(1)}, SIZES)
    assert (None if expected is None else Literal(expected, boolean)) == found


def test_spans_of_affine_forms() -> None:
    form = affine(Apply("sub", (Apply("mul", (ROW, SizeTerm(SEQ))), ONE)))
    assert form is not None
    extents = {"i": as_size(4), "j": SEQ}
    assert span_of(form, extents, SIZES) == (1 - SEQ, 3 * SEQ)
    assert span_of(Affine.of(as_size(0), {"k": SEQ}), extents, SIZES) is None
