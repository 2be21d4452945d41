"""Variant dispatch of a launch: lookup of `runtime/variant_tables.py` in native code."""

from __future__ import annotations

from collections.abc import Iterator

from anydim.compiler.kernels import ir
from anydim.compiler.native.body import Body, parameter
from anydim.runtime import variant_tables

CHOOSE = "choose"
_TABLE, _SIZES, _COUNT = (parameter(name) for name in ("table", "sizes", "count"))


def choosing_code() -> Iterator[ir.Function]:
    """`choose(table, arguments)`: returns the row for a launch's sizes, 0: the generic variant."""
    yield _hash()
    yield _same()
    yield _holds()
    yield _find_span()
    yield _note()
    yield _miss()
    yield _choose()


def _hash() -> ir.Function:
    body = Body()
    found = body.variable(0)
    with body.range(0, _COUNT) as number:
        size = _just_stored(body, number) & variant_tables.BITS
        found.set((found() * variant_tables.FACTOR + size) & variant_tables.BITS)
    whole = found()
    body.give(whole ^ (whole >> 15))
    return body.function("hash_of", ("sizes", "count"))


def _just_stored(body: Body, number: ir.Value) -> ir.Value:
    """Load a size; atomic, since a vector load of slots stored one by one is slow."""
    return body.atomic("load", _SIZES + 8 * number)


def _same() -> ir.Function:
    """Whether `count` slots at two addresses are equal."""
    body, other = Body(), parameter("other")
    with body.range(0, _COUNT) as number:
        differ = _just_stored(body, number).differs(body.load(other, number))
        with body.when(differ):
            body.give(0)
    body.give(1)
    return body.function("same", ("sizes", "other", "count"))


def _choose() -> ir.Function:
    body, arguments = Body(), parameter("arguments")
    count = body.load(_TABLE, variant_tables.SIZES)
    sizes = body.let(arguments + 8 * body.load(_TABLE, variant_tables.OPERANDS))
    last = body.load(_TABLE, variant_tables.LAST)
    with body.when(last.differs(0)):
        _hit(body, last, sizes, count)
    mask = body.load(_TABLE, variant_tables.MASK)
    with body.when(mask >= 0):
        index = body.load(_TABLE, variant_tables.INDEX)
        at = body.variable(body.ask("hash_of", sizes, count) & mask)
        row = body.variable(body.load(index, at()))
        with body.loop(lambda: row().differs(0)):
            here = row()
            _hit(body, here, sizes, count)
            at.set((at() + 1) & mask)
            row.set(body.load(index, at()))
    with body.when(body.load(_TABLE, variant_tables.SPANS) > 0):
        span = body.ask("spanned", _TABLE, sizes, count)
        with body.when(span.differs(0)):
            body.give(span)
    body.give(body.ask("miss", _TABLE, sizes, count))
    return body.function(CHOOSE, ("table", "arguments"))


def _holds() -> ir.Function:
    """Whether sizes are inside a span, and its `extent` supports them."""
    body, row = Body(), parameter("row")
    low = body.let(row + 8 * variant_tables.FIRST)
    high = body.let(low + 8 * _COUNT)
    with body.range(0, _COUNT) as number:
        size = _just_stored(body, number)
        with body.when((size < body.load(low, number)) | (size > body.load(high, number))):
            body.give(0)
    extent = body.load(row, variant_tables.EXTENT)
    with body.when(extent.differs(0)), body.when(body.ask(extent, _SIZES) < 0):
        body.give(0)
    body.give(1)
    return body.function("holds", ("sizes", "row", "count"))


def _find_span() -> ir.Function:
    """Return the row of a span that contains the sizes, otherwise 0."""
    body = Body()
    last = body.load(_TABLE, variant_tables.LAST_SPAN)
    with body.when(last.differs(0)):
        _within(body, last)
    rows = body.load(_TABLE, variant_tables.FIRST_SPAN)
    with body.range(0, body.load(_TABLE, variant_tables.SPANS)) as number:
        _within(body, body.load(rows, number))
    body.give(0)
    return body.function("spanned", ("table", "sizes", "count"))


def _within(body: Body, row: ir.Value) -> None:
    """Return a row if its span contains the sizes."""
    with body.when(body.ask("holds", _SIZES, row, _COUNT).differs(0)):
        body.store(row, variant_tables.HITS, body.load(row, variant_tables.HITS) + 1)
        body.store(_TABLE, variant_tables.LAST_SPAN, row)
        body.give(row)


def _hit(body: Body, row: ir.Value, sizes: ir.Value, count: ir.Value) -> None:
    """Return a row if it has these sizes."""
    with body.when(body.ask("same", sizes, row + 8 * variant_tables.FIRST, count).differs(0)):
        body.store(row, variant_tables.HITS, body.load(row, variant_tables.HITS) + 1)
        body.store(_TABLE, variant_tables.LAST, row)
        body.give(row)


def _miss() -> ir.Function:
    """Count the sizes of a miss and notify the callback, if any."""
    body = Body()
    body.store(_TABLE, variant_tables.MISSES, body.load(_TABLE, variant_tables.MISSES) + 1)
    with body.when(body.load(_TABLE, variant_tables.SEEN).differs(0)):
        body.call("note", _TABLE, _SIZES, _COUNT)
    missed = body.load(_TABLE, variant_tables.MISSED)
    with body.when(missed.differs(0)):
        body.give(body.ask(missed, body.load(_TABLE, variant_tables.NUMBER), _SIZES))
    body.give(0)
    return body.function("miss", ("table", "sizes", "count"))


def _note() -> ir.Function:
    """Count sizes in their counter row; frequent sizes replace rare ones."""
    body = Body()
    index = body.ask("hash_of", _SIZES, _COUNT) & body.load(_TABLE, variant_tables.SEEN_MASK)
    words = _COUNT + variant_tables.FIRST_SEEN
    row = body.let(body.load(_TABLE, variant_tables.SEEN) + 8 * index * words)
    held = row + 8 * variant_tables.FIRST_SEEN
    before = body.load(row, variant_tables.COUNT)
    with body.when(body.ask("same", _SIZES, held, _COUNT).differs(0)):
        body.store(row, variant_tables.COUNT, before + 1)
        body.leave()
    with body.when(before > 0):
        body.store(row, variant_tables.COUNT, before - 1)
        body.leave()
    with body.range(0, _COUNT) as number:
        body.store(held, number, body.load(_SIZES, number))
    body.store(row, variant_tables.COUNT, 1)
    return body.function("note", ("table", "sizes", "count"), result=False)
