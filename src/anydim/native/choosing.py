"""Which body of a site serves a launch: `runtime/choices.py` looked up by native code."""

from __future__ import annotations

from collections.abc import Iterator

from anydim.kernels import ir
from anydim.kernels.write.term import Term
from anydim.native.body import Body, parameter
from anydim.runtime import choices

CHOOSE = "choose"
_TABLE, _SIZES, _COUNT, _HASH = (parameter(name) for name in ("table", "sizes", "count", "hash"))


def choosing_code() -> Iterator[ir.Function]:
    """`choose(table, arguments)`: the row for a launch's sizes, 0: the generic body serves it."""
    yield _hash()
    yield _same()
    yield _note()
    yield _miss()
    yield _choose()


def _hash() -> ir.Function:
    body = Body()
    found = body.variable(0)
    with body.range(0, _COUNT) as number:
        size = _just_stored(body, number) & choices.BITS
        found.set((found() * choices.FACTOR + size) & choices.BITS)
    whole = found()
    body.give(whole ^ (whole >> 15))
    return body.function("hash_of", ("sizes", "count"))


def _just_stored(body: Body, number: Term) -> Term:
    """A size; atomic, as a vector of words that were stored one by one is waited for."""
    return body.atomic("load", _SIZES + 8 * number)


def _same() -> ir.Function:
    """Whether `count` words at two addresses are the same."""
    body, other = Body(), parameter("other")
    with body.range(0, _COUNT) as number:
        differ = _just_stored(body, number).differs(body.load(other, number))
        with body.when(differ):
            body.give(0)
    body.give(1)
    return body.function("same", ("sizes", "other", "count"))


def _choose() -> ir.Function:
    body, arguments = Body(), parameter("arguments")
    count = body.load(_TABLE, choices.SIZES)
    sizes = body.let(arguments + 8 * body.load(_TABLE, choices.OPERANDS))
    last = body.load(_TABLE, choices.LAST)
    with body.when(last.differs(0)):
        _hit(body, last, sizes, count)
    hash = body.ask("hash_of", sizes, count)
    mask, index = body.load(_TABLE, choices.MASK), body.load(_TABLE, choices.INDEX)
    at = body.variable(hash & mask)
    row = body.variable(body.load(index, at()))
    with body.loop(lambda: row().differs(0)):
        here = row()
        _hit(body, here, sizes, count)
        at.set((at() + 1) & mask)
        row.set(body.load(index, at()))
    body.give(body.ask("miss", _TABLE, sizes, count, hash))
    return body.function(CHOOSE, ("table", "arguments"))


def _hit(body: Body, row: Term, sizes: Term, count: Term) -> None:
    """Leave with a row if it is of these sizes."""
    with body.when(body.ask("same", sizes, row + 8 * choices.FIRST, count).differs(0)):
        body.store(row, choices.HITS, body.load(row, choices.HITS) + 1)
        body.store(_TABLE, choices.LAST, row)
        body.give(row)


def _miss() -> ir.Function:
    """Count sizes, and have a row made for them where somebody makes rows at once."""
    body = Body()
    with body.when(body.load(_TABLE, choices.SEEN).differs(0)):
        body.call("note", _TABLE, _SIZES, _COUNT, _HASH)
    missed = body.load(_TABLE, choices.MISSED)
    with body.when(missed.differs(0)):
        body.give(body.ask(missed, body.load(_TABLE, choices.NUMBER), _SIZES))
    body.give(0)
    return body.function("miss", ("table", "sizes", "count", "hash"))


def _note() -> ir.Function:
    """Count sizes in their row of what was seen, whose other sizes go when they come less often."""
    body = Body()
    place = _HASH & body.load(_TABLE, choices.SEEN_MASK)
    words = _COUNT + choices.FIRST_SEEN
    row = body.let(body.load(_TABLE, choices.SEEN) + 8 * place * words)
    held = row + 8 * choices.FIRST_SEEN
    before = body.load(row, choices.COUNT)
    with body.when(body.ask("same", _SIZES, held, _COUNT).differs(0)):
        body.store(row, choices.COUNT, before + 1)
        body.leave()
    with body.when(before > 0):
        body.store(row, choices.COUNT, before - 1)
        body.leave()
    with body.range(0, _COUNT) as number:
        body.store(held, number, body.load(_SIZES, number))
    body.store(row, choices.COUNT, 1)
    return body.function("note", ("table", "sizes", "count", "hash"), result=False)
