"""Is every element written before it is read? Steps are checked once for all sizes.

A read in a loop may take what earlier turns wrote: it is proven for the first turn, where only what
came before the loop counts, and for every later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anydim.lang import ranges
from anydim.lang.affine import reads
from anydim.lang.inside import is_inside
from anydim.lang.parts import Part, Range, Span, bare, covered, merged, over, parts_of, range_of
from anydim.lang.scope import facts_of, with_facts
from anydim.lang.tree import (
    Axis,
    Branch,
    Expr,
    Loop,
    Read,
    Step,
    TensorType,
    Write,
)
from anydim.sizes import Box, Guard, Size, as_size, bounds, maximum, minimum, simplify

DEEPEST_CASES = 4  # loops inside each other whose first turn is a case of its own


Parts = dict[str, list[Part]]  # by tensor


@dataclass(frozen=True)
class Unwritten:
    """A read that may come before what it reads is written; at the end without a step."""

    tensor: str
    step: Step | None = None
    read: Read | None = None


def first_unwritten(
    steps: Sequence[Step], types: Mapping[str, TensorType], given: Iterable[str],
    outputs: Iterable[str], box: Box,
) -> Unwritten | None:
    """The first read for which no proof is found; `given` tensors hold values from the start."""
    checker = _Checker(types, frozenset(given))
    found = next(checker.steps(steps, {}, box, 0), None)
    if found is not None:
        return found
    parts = _with({}, merged(parts_of(steps, box)))
    for name in outputs:
        shape = types[name].shape
        whole = Part(name, tuple((as_size(0), size) for size in shape))
        mine = parts.get(name, [])
        if name not in checker.given and not covered(whole, mine, _running(shape, box)):
            return Unwritten(name)
    return None


def assumed(box: Box, guards: Iterable[Guard]) -> Box:
    """The part of a box where guards hold, as they do whenever a program runs."""
    facts = []
    for guard in guards:
        difference = guard.right - guard.left
        if guard.relation in ("<=", "=="):
            facts.append(difference)
        if guard.relation == "==":
            facts.append(-difference)
        if guard.relation == "<":
            facts.append(difference - 1)
    return with_facts(box, facts)


def _running(extents: Iterable[Size], box: Box) -> Box:
    return with_facts(box, [extent - 1 for extent in extents])


def _with(done: Parts, more: Iterable[Part]) -> Parts:
    """These parts and more, in lists of their own."""
    found = {name: list(parts) for name, parts in done.items()}
    for part in more:
        found.setdefault(part.tensor, []).append(part)
    return found


def _is_empty(box: Box) -> bool:
    """Whether constraints are seen to contradict each other."""
    return any(bounds(fact, box).high < 0 for fact in box.constraints)


@dataclass(frozen=True)
class _Checker:
    types: Mapping[str, TensorType]
    given: frozenset[str]

    def steps(
        self, steps: Sequence[Step], done: Parts, box: Box, depth: int
    ) -> Iterator[Unwritten]:
        """Every read that is not proven, when the `done` parts are written before."""
        if _is_empty(box):
            return
        done = _with(done, ())
        for step in steps:
            yield from self._step(step, done, box, depth)
            for part in parts_of((step,), box):
                same = done.setdefault(part.tensor, [])
                if part not in same:
                    same.append(part)

    def _step(self, step: Step, done: Parts, box: Box, depth: int) -> Iterator[Unwritten]:
        if isinstance(step, Branch):
            yield from self._reads(step, (step.condition,), (), done, box)
            for block, holds in ((step.then, True), (step.otherwise, False)):
                inner = with_facts(box, facts_of(step.condition, holds, box))
                yield from self.steps(block, done, inner, depth)
        elif isinstance(step, Loop):
            yield from self._reads(step, (step.start, step.stop), (), done, box)
            yield from self._loop(step, done, box, depth)
        else:
            place = step.place if isinstance(step, Write) else ()
            axes = (*step.axes, *step.reduced)
            yield from self._reads(step, (step.body, *place), axes, done, box)
            if isinstance(step, Write) and step.combine and not step.fresh:
                own = Read(step.target, step.place)
                yield from self._read(step, own, step.axes, done, box)

    def _loop(self, loop: Loop, done: Parts, box: Box, depth: int) -> Iterator[Unwritten]:
        turns = range_of(loop)
        inner = turns.body_box(box)
        body = merged(parts_of(loop.body, inner))
        symbol = Size.symbol(turns.variable)
        earlier = _before(body, turns, symbol, inner)
        if turns.first is None or depth >= DEEPEST_CASES:
            yield from self.steps(loop.body, _with(done, earlier), inner, depth + 1)
            return
        distance = symbol - turns.first if loop.step > 0 else turns.first - symbol
        yield from self.steps(loop.body, done, with_facts(inner, [-distance]), depth + 1)
        later = with_facts(inner, [distance - 1])
        yield from self.steps(loop.body, _with(done, earlier), later, depth + 1)

    def _reads(
        self, step: Step, exprs: tuple[Expr, ...], axes: tuple[Axis, ...], done: Parts,
        box: Box,
    ) -> Iterator[Unwritten]:  # fmt: skip
        for expr in exprs:
            for read in dict.fromkeys(reads(expr)):
                yield from self._read(step, read, axes, done, box)

    def _read(
        self, step: Step, read: Read, axes: tuple[Axis, ...], done: Parts, box: Box
    ) -> Iterator[Unwritten]:
        if read.tensor in self.given:
            return
        extents = {axis.name: axis.extent for axis in axes}
        box = _running(extents.values(), box)
        shape = self.types[read.tensor].shape
        spans = tuple(self._spans(read, shape, extents, box))
        if not covered(Part(read.tensor, spans), done.get(read.tensor, []), box):
            yield Unwritten(read.tensor, step, read)

    def _spans(
        self, read: Read, shape: tuple[Size, ...], extents: Mapping[str, Size], box: Box
    ) -> Iterator[Span]:
        for axis, size in enumerate(shape):
            span = None
            if not read.flat:
                span = ranges.expression_range(bare(read.indices[axis]), extents, box)
            if span is None:
                yield as_size(0), size
            elif read.default is None and not is_inside(read.indices[axis]):
                yield span[0], span[1] + 1
            else:
                low, high = maximum(0, span[0]), minimum(size, span[1] + 1)
                yield simplify(low, box), simplify(high, box)


def _before(body: list[Part], turns: Range, symbol: Size, box: Box) -> list[Part]:
    """What turns before the one at hand wrote."""
    if turns.step > 0:
        return over(body, turns, turns.low, symbol, box)
    return [] if turns.high is None else over(body, turns, symbol + 1, turns.high, box)


