"""Parts of tensors: the elements that steps certainly write, as products of intervals.

A part has an interval for each dimension, whose ends are sizes over dims and loop variables, and
facts: sizes that are not negative exactly where the part is written. Along one dimension it may be
strided (a comb: every k-th element); k combs with different remainders together fill an interval.
Anything else (a diagonal) counts as not written, which is conservative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.lang.resolve.ranges import is_proved
from anydim.lang.resolve.scope import exact_facts, with_facts
from anydim.lang.tree import Apply, Branch, Expr, Loop, OrderedStep, SizeTerm, Statement, Write
from anydim.lang.tree.affine import affine
from anydim.lang.tree.bounds_checks import is_inside
from anydim.sizes import Box, Dim, Size, as_size, bounds, maximum, minimum, simplify

Span = tuple[Size, Size]  # half open
MAX_PIECES = 6  # successive splits of a read


@dataclass(frozen=True)
class Comb:
    """Along `axis`, only every `stride`-th element of an interval, beginning with its first; the
    interval ends where the next element would be."""

    axis: int
    stride: int


@dataclass(frozen=True)
class Part:
    """The elements of a tensor whose indices are in these intervals, where the facts hold."""

    tensor: str
    spans: tuple[Span, ...]
    facts: tuple[Size, ...] = ()
    comb: Comb | None = None


@dataclass(frozen=True)
class Range:
    """The iterations of a loop: low <= variable < high, upwards or downwards."""

    variable: str
    low: Size
    high: Size | None
    step: int

    def body_box(self, box: Box) -> Box:
        """The box inside the body."""
        symbol = Size.symbol(self.variable)
        low_bound = bounds(self.low, box).lo
        box = Box.of(
            *box.dims, Dim(self.variable, max(low_bound or 0, 0)), constraints=box.constraints
        )
        facts = [symbol - self.low] + ([] if self.high is None else [self.high - 1 - symbol])
        return with_facts(box, facts)

    @property
    def first(self) -> Size | None:
        """The value in the first iteration."""
        if self.step > 0:
            return self.low
        return None if self.high is None else self.high - 1


def range_of(loop: Loop) -> Range:
    """The range of a loop's variable; a data-dependent end is None."""
    start, stop = (e.size if isinstance(e, SizeTerm) else None for e in (loop.start, loop.stop))
    if loop.step > 0:
        return Range(loop.variable, as_size(0) if start is None else start, stop, loop.step)
    low = as_size(0) if stop is None else stop + 1
    return Range(loop.variable, low, None if start is None else start + 1, loop.step)


# ---- what steps write --------------------------------------------------------------------------


def parts_of(steps: Sequence[OrderedStep], box: Box) -> list[Part]:
    """The parts that are written once all of these steps have run."""
    return [part for step in steps for part in _parts(step, box)]


def _parts(step: OrderedStep, box: Box) -> list[Part]:
    if isinstance(step, Statement):
        return [Part(step.target, tuple((as_size(0), axis.extent) for axis in step.axes))]
    if isinstance(step, Write):
        part = part_of(step)
        adds = bool(step.combine) and not step.fresh
        return [] if part is None or adds else [part]
    if isinstance(step, Branch):
        return list(_either(step, box))
    iterations = range_of(step)
    inner = iterations.body_box(box)
    if iterations.high is None:
        return []
    inside = merge_parts(parts_of(step.body, inner))
    return over(inside, iterations, iterations.low, iterations.high, inner)


def part_of(step: Write) -> Part | None:
    """The part a write fills; None unless it is a product of intervals, at most one a comb."""
    spans = []
    used: list[str] = []
    comb: Comb | None = None
    for axis, index in enumerate(step.indices):
        form = affine(bare(index))
        if form is None or len(form.terms) > 1:
            return None
        if not form.terms:
            spans.append((form.constant, form.constant + 1))
            continue
        ((name, factor),) = form.terms
        stride = factor.constant
        if stride is None or stride < -1 or name in used or (stride > 1 and comb is not None):
            return None
        used.append(name)
        extent = next(a.extent for a in step.axes if a.name == name)
        low = form.constant if stride > 0 else form.constant - extent + 1
        spans.append((low, low + abs(stride) * extent))
        comb = Comb(axis, stride) if stride > 1 else comb
    return Part(step.target, tuple(spans), (), comb)


def bare(index: Expr) -> Expr:
    """An index without its bounds check."""
    return index.arguments[0] if isinstance(index, Apply) and is_inside(index) else index


def _either(branch: Branch, box: Box) -> Iterator[Part]:
    then, otherwise = parts_of(branch.then, box), parts_of(branch.otherwise, box)
    for parts, others, holds in ((then, otherwise, True), (otherwise, then, False)):
        facts = exact_facts(branch.condition, holds, box)
        for part in parts:
            if part in others:
                if holds:
                    yield part
            elif facts is not None:
                yield replace(part, facts=(*part.facts, *facts))


# ---- over iterations -----------------------------------------------------------------------------


def over(parts: Sequence[Part], iterations: Range, low: Size, high: Size, box: Box) -> list[Part]:
    """Union of the parts that the iterations low <= variable < high of a loop write."""
    found = (_over(part, iterations, low, high, box) for part in parts)
    return [part for part in found if part is not None]


def _over(part: Part, iterations: Range, low: Size, high: Size, box: Box) -> Part | None:
    name = iterations.variable
    facts = []
    for fact in part.facts:
        if name not in fact.symbols:
            facts.append(fact)
            continue
        split = fact.linear_in((name,))
        factor = None if split is None else split[0][name].constant
        if split is None or factor not in (1, -1) or abs(iterations.step) > 1:
            return None
        low, high = (maximum(low, -split[1]), high) if factor == 1 else (
            low, minimum(high, split[1] + 1)
        )  # fmt: skip
    moving = [axis for axis, span in enumerate(part.spans)
              if name in span[0].symbols | span[1].symbols]  # fmt: skip
    if not moving:
        return replace(part, facts=(*facts, high - 1 - low))
    (axis, *more) = moving
    if more or (part.comb is not None and part.comb.axis == axis):
        return None
    comb, span = part.comb, _swept(part.spans[axis], iterations, low, high, box)
    if span is None and comb is None and not facts:
        found = _comb_of(part.spans[axis], iterations, low, high)
        if found is not None:
            comb, span = Comb(axis, found[0]), found[1]
    if span is None:
        return None
    spans = (*part.spans[:axis], span, *part.spans[axis + 1 :])
    return Part(part.tensor, spans, tuple(facts), comb)


def _swept(span: Span, iterations: Range, low: Size, high: Size, box: Box) -> Span | None:
    """The union of an interval that moves by at most its length per iteration."""
    name = iterations.variable
    ends = [end.linear_in((name,)) for end in span]
    if ends[0] is None or ends[1] is None:
        return None
    factor, other = (split[0].get(name, as_size(0)).constant for split in ends if split is not None)
    if not factor or factor != other:
        return None
    if not is_proved(span[1] - span[0], ">=", abs(factor * iterations.step), box):
        return None
    start, stop = ends[0][1], ends[1][1]
    if factor > 0:
        return start + factor * low, start + factor * high
    return stop + factor * high, stop + factor * low


def _comb_of(span: Span, iterations: Range, low: Size, high: Size) -> tuple[int, Span] | None:
    """Stride and interval of one element that moves upwards by more than one per iteration."""
    split = span[0].linear_in((iterations.variable,))
    factor = None if split is None else split[0].get(iterations.variable, as_size(0)).constant
    if split is None or factor is None or factor < 1 or iterations.step < 1:
        return None
    if span[1] - span[0] != 1:
        return None
    stride = factor * iterations.step
    start = split[1] + factor * low
    count = (high - low + iterations.step - 1) // iterations.step
    return None if stride < 2 else (stride, (start, start + stride * count))


def fill_combs(parts: Sequence[Part]) -> list[Part]:
    """The parts that are not combs, plus the intervals that combs fill together."""
    found = [single for part in parts for single in _single(part)]
    groups: dict[object, list[Part]] = {}
    for part in parts:
        if part.comb is not None:
            axis = part.comb.axis
            others = (*part.spans[:axis], *part.spans[axis + 1 :])
            groups.setdefault((part.tensor, part.facts, part.comb, others), []).append(part)
    return found + [whole for group in groups.values() for whole in _merge_combs(group)]


def _single(part: Part) -> Iterator[Part]:
    """A part that is not a comb, or a comb of one element converted to such a part."""
    if part.comb is None:
        yield part
        return
    axis = part.comb.axis
    low, high = part.spans[axis]
    if high - low == part.comb.stride:
        spans = (*part.spans[:axis], (low, low + 1), *part.spans[axis + 1 :])
        yield replace(part, spans=spans, comb=None)


def _merge_combs(combs: Sequence[Part]) -> Iterator[Part]:
    """The interval filled by combs that differ only in their start and end.

    With a comb for each remainder, the first gap is where the first of them ends.
    """
    comb = combs[0].comb
    assert comb is not None
    spans = [part.spans[comb.axis] for part in combs]
    shifts = [(low - spans[0][0]).constant for low, _ in spans]
    by_remainder = {shift % comb.stride: span for shift, span in zip(shifts, spans)
                    if shift is not None}  # fmt: skip
    if len(by_remainder) == comb.stride:
        low = maximum(*(low for low, _ in by_remainder.values())) - comb.stride + 1
        high = minimum(*(high for _, high in by_remainder.values()))
        before, after = combs[0].spans[: comb.axis], combs[0].spans[comb.axis + 1 :]
        yield replace(combs[0], spans=(*before, (low, high), *after), comb=None)


def merge_parts(parts: Sequence[Part]) -> list[Part]:
    """Merge adjacent parts."""
    found: dict[str, list[Part]] = {}
    for part in dict.fromkeys(parts):
        done = found.setdefault(part.tensor, [])
        for number, other in enumerate(done):
            together = _join_parts(other, part)
            if together is not None:
                done[number] = together
                break
        else:
            done.append(part)
    return [part for done in found.values() for part in done]


def _join_parts(left: Part, right: Part) -> Part | None:
    same = (left.tensor, left.facts, len(left.spans), left.comb) == (
        right.tensor, right.facts, len(right.spans), None
    )  # fmt: skip
    different = [n for n, (a, b) in enumerate(zip(left.spans, right.spans)) if a != b]
    if not same or len(different) != 1:
        return None
    (axis,) = different
    for a, b in ((left, right), (right, left)):
        if a.spans[axis][1] == b.spans[axis][0]:
            span = (a.spans[axis][0], b.spans[axis][1])
            return replace(left, spans=(*left.spans[:axis], span, *left.spans[axis + 1 :]))
    return None


# ---- coverage ----------------------------------------------------------------------------------


def is_covered(wanted: Part, parts: Sequence[Part], box: Box, pieces: int = MAX_PIECES) -> bool:
    """Whether a part is proved to be covered by others of its tensor; incomplete."""
    parts = fill_combs(parts)
    if any(part.spans == wanted.spans and not part.facts for part in parts):
        return True
    if any(is_proved(low, ">=", high, box) for low, high in wanted.spans):
        return True
    usable = [p for p in parts if all(is_proved(fact, ">=", 0, box) for fact in p.facts)]
    for number, part in enumerate(usable):
        rest = _rest(wanted, part, box)
        if rest is None:
            continue
        others = usable[:number] + usable[number + 1 :]
        if all(pieces > 0 and is_covered(piece, others, box, pieces - 1) for piece in rest):
            return True
    return False


def _rest(wanted: Part, part: Part, box: Box) -> list[Part] | None:
    """The remainder of a part along one dimension; None when more than one dimension remains."""
    open_axes = []
    for axis, ((low, high), (start, stop)) in enumerate(zip(wanted.spans, part.spans)):
        if not (is_proved(start, "<=", low, box) and is_proved(stop, ">=", high, box)):
            open_axes.append(axis)
    if len(open_axes) > 1:
        return None
    if not open_axes:
        return []
    (axis,) = open_axes
    (low, high), (start, stop) = wanted.spans[axis], part.spans[axis]
    ends = []
    if not is_proved(start, "<=", low, box):
        ends.append((low, simplify(minimum(high, start), box)))
    if not is_proved(stop, ">=", high, box):
        ends.append((simplify(maximum(low, stop), box), high))
    before, after = wanted.spans[:axis], wanted.spans[axis + 1 :]
    return [replace(wanted, spans=(*before, end, *after)) for end in ends]
