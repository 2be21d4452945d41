"""Proof that every element is written before it is read, once for all sizes.

A read in a loop may read what earlier iterations wrote: it is proved for the first iteration, where
only steps before the loop count, and for every later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from anydim.base.records import dataclass
from anydim.lang.resolve import ranges
from anydim.lang.resolve.scope import facts_of, with_facts
from anydim.lang.resolve.written_parts import (
    Part,
    Range,
    Span,
    bare,
    is_covered,
    merge_parts,
    over,
    parts_of,
    range_of,
)
from anydim.lang.tree import (
    Axis,
    Branch,
    Expr,
    Loop,
    OrderedStep,
    Read,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import reads
from anydim.sizes import Box, Guard, Size, as_size, bounds, maximum, minimum, simplify

DEEPEST_CASES = 4  # nesting depth up to which the first iteration is a separate case


Parts = dict[str, list[Part]]  # by tensor


@dataclass(frozen=True)
class Unwritten:
    """A read that may precede the write of its element; without a step: an unwritten result."""

    tensor: str
    step: OrderedStep | None = None
    read: Read | None = None


def first_unwritten(
    steps: Sequence[OrderedStep],
    types: Mapping[str, TensorType],
    given: Iterable[str],
    outputs: Iterable[str],
    box: Box,
) -> Unwritten | None:
    """The first read without a proof; `given` tensors hold values from the start."""
    checker = _Checker(types, frozenset(given))
    found = next(checker.steps(steps, {}, box, 0), None)
    if found is not None:
        return found
    parts = _with({}, merge_parts(parts_of(steps, box)))
    for name in outputs:
        shape = types[name].shape
        whole = Part(name, tuple((as_size(0), size) for size in shape))
        mine = parts.get(name, [])
        if name not in checker.given and not is_covered(whole, mine, _running(shape, box)):
            return Unwritten(name)
    return None


def assume_guards(box: Box, guards: Iterable[Guard]) -> Box:
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
    """A copy of these parts extended by more."""
    found = {name: list(parts) for name, parts in done.items()}
    for part in more:
        found.setdefault(part.tensor, []).append(part)
    return found


def _is_empty(box: Box) -> bool:
    """Whether constraints evidently contradict each other."""
    return any(bounds(fact, box).high < 0 for fact in box.constraints)


@dataclass(frozen=True)
class _Checker:
    types: Mapping[str, TensorType]
    given: frozenset[str]

    def steps(
        self, steps: Sequence[OrderedStep], done: Parts, box: Box, depth: int
    ) -> Iterator[Unwritten]:
        """Yield every unproved read, given that the `done` parts are written before."""
        if _is_empty(box):
            return
        done = _with(done, ())
        for step in steps:
            yield from self._step(step, done, box, depth)
            for part in parts_of((step,), box):
                same = done.setdefault(part.tensor, [])
                if part not in same:
                    same.append(part)

    def _step(self, step: OrderedStep, done: Parts, box: Box, depth: int) -> Iterator[Unwritten]:
        if isinstance(step, Branch):
            yield from self._reads(step, (step.condition,), (), done, box)
            for block, holds in ((step.then, True), (step.otherwise, False)):
                inner = with_facts(box, facts_of(step.condition, holds, box))
                yield from self.steps(block, done, inner, depth)
        elif isinstance(step, Loop):
            yield from self._reads(step, (step.start, step.stop), (), done, box)
            yield from self._loop(step, done, box, depth)
        else:
            indices = step.indices if isinstance(step, Write) else ()
            axes = (*step.axes, *step.reduced)
            yield from self._reads(step, (step.body, *indices), axes, done, box)

    def _loop(self, loop: Loop, done: Parts, box: Box, depth: int) -> Iterator[Unwritten]:
        iterations = range_of(loop)
        inner = iterations.body_box(box)
        body = merge_parts(parts_of(loop.body, inner))
        symbol = Size.symbol(iterations.variable)
        earlier = _before(body, iterations, symbol, inner)
        if iterations.first is None or depth >= DEEPEST_CASES:
            yield from self.steps(loop.body, _with(done, earlier), inner, depth + 1)
            return
        distance = symbol - iterations.first if loop.step > 0 else iterations.first - symbol
        yield from self.steps(loop.body, done, with_facts(inner, [-distance]), depth + 1)
        later = with_facts(inner, [distance - 1])
        yield from self.steps(loop.body, _with(done, earlier), later, depth + 1)

    def _reads(
        self,
        step: OrderedStep,
        exprs: tuple[Expr, ...],
        axes: tuple[Axis, ...],
        done: Parts,
        box: Box,
    ) -> Iterator[Unwritten]:
        found = dict.fromkeys(read for expr in exprs for read in reads(expr))
        if isinstance(step, Write) and step.combine and not step.fresh:
            found[Read(step.target, step.indices)] = None
        extents = {axis.name: axis.extent for axis in axes}
        running: Box | None = None
        for read in found:
            parts = done.get(read.tensor, [])
            if read.tensor in self.given or self._is_just(read, extents, parts, box):
                continue
            running = running or _running(extents.values(), box)
            if not is_covered(self._part(read, extents, running), parts, running):
                yield Unwritten(read.tensor, step, read)

    def _is_just(
        self, read: Read, extents: Mapping[str, Size], parts: list[Part], box: Box
    ) -> bool:
        """Whether a read covers exactly one part, the common case."""
        spans = [] if read.flat or read.default is not None else self._spans(read, extents, box)
        plain = tuple(span for span in spans if span is not None)
        return any(p.spans == plain and not p.facts and p.comb is None for p in parts)

    def _spans(self, read: Read, extents: Mapping[str, Size], box: Box) -> list[Span | None]:
        found = (ranges.expression_range(bare(index), extents, box) for index in read.indices)
        return [None if span is None else (span[0], span[1] + 1) for span in found]

    def _part(self, read: Read, extents: Mapping[str, Size], box: Box) -> Part:
        """The elements a read may access; bounds are proved or checked elsewhere."""
        shape = self.types[read.tensor].shape
        whole = tuple((as_size(0), size) for size in shape)
        if read.flat:
            return Part(read.tensor, whole)
        spans = []
        for span, all_of_it in zip(self._spans(read, extents, box), whole):
            low, high = span or all_of_it
            if span is not None:
                low = simplify(maximum(0, low), box)
                high = simplify(minimum(all_of_it[1], high), box)
            spans.append((low, high))
        return Part(read.tensor, tuple(spans))


def _before(body: list[Part], iterations: Range, symbol: Size, box: Box) -> list[Part]:
    """The parts written by the iterations before the current one."""
    if iterations.step > 0:
        return over(body, iterations, iterations.low, symbol, box)
    if iterations.high is None:
        return []
    return over(body, iterations, symbol + 1, iterations.high, box)
