"""Rows of A that are windows of a tensor, as convolutions of channels-last tensors have them.

    a[m, k] = x[position(m, k)], 0 outside of x     m over places, k over taps and then a run

Reduced axes that lie behind one another in x are one run, which is copied in whole vectors: all
channels, with them the taps along a row of an image. Where a window leaves x, what is inside of
a run is copied and zeros are put around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as every

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.product.places import Bound, WindowAxis, bounds_of, merged_places
from anydim.kernels.write.arithmetic import first_lanes
from anydim.kernels.write.elements import SizeParameters
from anydim.kernels.write.term import Term, constant, larger, select, smaller
from anydim.kernels.write.writer import Writer
from anydim.lang.tree import Axis, Read
from anydim.lang.tree.affine import Affine, affine
from anydim.sizes import Box, Size, as_size, product

_STRAIGHT = 48  # vectors of a window that are copied without a loop
WINDOW_SCALARS = ("x_at", "first_row", "rows", "dst_row")


@dataclass(frozen=True)
class WindowSide:
    """How rows of A lie in x: `places` are the axes of m, `taps` those of k around a run.

    A run has `run` elements; where it may leave x, its outermost axis is `tap`.
    """

    places: tuple[WindowAxis, ...]
    taps: tuple[WindowAxis, ...]
    run: Size
    tap: WindowAxis | None
    bounds: tuple[Bound, ...]

    @property
    def run_bound(self) -> Bound | None:
        """What a run may leave."""
        return next((b for b in self.bounds if self.tap and b.tap == self.tap.name), None)

    def vectors(self, lanes: int) -> int | None:
        """Vectors of a whole window, where that is known."""
        run, taps = self.run.constant, product(tap.extent for tap in self.taps).constant
        return None if run is None or taps is None else -(-run // lanes) * taps


def moves(read: Read, rows: Sequence[Axis], reduced: Sequence[Axis]) -> bool:
    """Whether a read is one of windows: it may be outside, or steps over places."""
    if read.default is not None:
        return True
    own, summed = {axis.name for axis in rows}, {axis.name for axis in reduced}
    for form in () if read.flat else map(affine, read.indices):
        used = own & set(() if form is None else form.indices)
        if form is not None and used:
            if summed & set(form.indices) or any(form.stride(name) != 1 for name in used):
                return True
    return False


def window_side(
    read: Read,
    x: Affine,
    shape: tuple[Size, ...],
    rows: Sequence[Axis],
    reduced: Sequence[Axis],
    box: Box,
) -> tuple[WindowSide, tuple[Axis, ...]] | None:
    """The windows that rows are, and the reduced axes in their order; None for other reads."""
    extents = {axis.name: axis.extent for axis in (*rows, *reduced)}
    bounds = bounds_of(read, shape, rows, reduced, extents, box)
    if bounds is None or not rows:
        return None
    taps, run, length = list(reduced), list[Axis](), as_size(1)
    tap: WindowAxis | None = None
    while taps and tap is None:
        inner = next((axis for axis in taps if x.stride(axis.name) == length), None)
        if inner is None:
            break
        taps.remove(inner)
        run.insert(0, inner)
        if any(bound.tap == inner.name for bound in bounds):
            tap = _axis(inner, x)
        length = length * inner.extent
    side = WindowSide(
        merged_places([_axis(a, x) for a in rows], bounds), tuple(_axis(a, x) for a in taps),
        length, tap, bounds,
    )  # fmt: skip
    own = [bound for bound in bounds if tap is not None and bound.tap == tap.name]
    if len(own) > 1 or any(bound.spread != 1 for bound in own):
        return None
    return side, (*taps, *run)


def _axis(axis: Axis, x: Affine) -> WindowAxis:
    return WindowAxis(axis.name, axis.extent, x.stride(axis.name), as_size(0))


def window_function(
    side: WindowSide, dtype: DType, lanes: int, sizes: SizeParameters
) -> ir.Function:
    """dst[i, :k] for the rows from `first_row` on; what lies behind a row in dst is written over.

    Call it when the sizes are complete.
    """
    body = _Windows(side, ir.Type(dtype, _lanes_of(side, lanes)), sizes).rows()
    scalars = (*WINDOW_SCALARS, *sizes.names)
    pointers = (ir.Pointer("x", dtype), ir.Pointer("dst", dtype))
    return ir.Function("windows", (*pointers, *map(ir.Scalar, scalars)), body)


def _lanes_of(side: WindowSide, lanes: int) -> int:
    """Those that copy a run: the fewest that hold a short one, as stores of more of them overlap
    and most lie across two lines of the cache."""
    run = side.run.constant
    return lanes if run is None else min(lanes, 1 << max(run - 1, 1).bit_length())


def _given(name: str) -> Term:
    return Term(ir.Var(ir.INDEX, name))


class _Windows:
    """Writes the body of the function."""

    def __init__(self, side: WindowSide, vector: ir.Type, sizes: SizeParameters) -> None:
        self.side, self.vector, self.sizes = side, vector, sizes
        self.code = Writer()
        self.run = self._size(side.run)

    def _size(self, size: Size) -> Term:
        return Term(self.sizes.value(size))

    def rows(self) -> tuple[ir.Step, ...]:
        """Row by row; the place of the next one follows from that of the last."""
        code, side = self.code, self.side
        extents = [code.let(larger(self._size(place.extent), 1)) for place in side.places]
        left, firsts = _given("first_row"), list[Term]()
        for extent in reversed(extents[1:]):
            above = code.let(left / extent)
            firsts.insert(0, left - above * extent)
            left = above
        counters = [code.variable(first) for first in (left, *firsts)]
        with code.range(0, _given("rows")) as row:
            places = {place.name: c() for place, c in zip(side.places, counters)}
            self._row(places, code.let(row * _given("dst_row")))
            self._advance(counters, extents)
        return code.written

    def _advance(self, counters: list, extents: list[Term]) -> None:
        code = self.code
        counters[-1] += 1
        if len(counters) > 1:
            with code.when(counters[-1]() >= extents[-1]):
                counters[-1].set(0)
                self._advance(counters[:-1], extents[:-1])

    def _row(self, places: Mapping[str, Term], to: Term) -> None:
        """One window: as it lies where it is inside of x, else run by run."""
        code, side = self.code, self.side
        source = _given("x_at")
        for place in side.places:
            source = source + places[place.name] * self._size(place.x)
        source = code.let(source)
        inside: Term | None = None
        bases = {}
        for bound in side.bounds:
            base = self._size(bound.constant)
            if bound.place:
                base = base + places[bound.place] * self._size(bound.stride)
            bases[bound] = base = code.let(base)
            reach = self._size((self._extent(bound.tap) - 1) * bound.spread) if bound.tap else 0
            fine = (base >= 0) & (base + reach < self._size(bound.extent))
            inside = fine if inside is None else inside & fine
        if inside is None:
            self._whole(source, to)
            return
        with code.when(inside):
            self._whole(source, to)
        with code.otherwise():
            self._taps(source, to, bases)

    def _extent(self, tap: str) -> Size:
        axes = self.side.taps if self.side.tap is None else (*self.side.taps, self.side.tap)
        return next(axis.extent for axis in axes if axis.name == tap)

    def _whole(self, source: Term, to: Term) -> None:
        """All of a window, in a row of copies where these are few."""
        side, code, lanes = self.side, self.code, self.vector.lanes
        count = side.vectors(lanes)
        if count is None or count > _STRAIGHT:
            self._taps(source, to, {})
            return
        run = int(side.run.constant or 0)
        ranges = [range(int(tap.extent.constant or 0)) for tap in side.taps]
        mask = Term(first_lanes(constant(run % lanes).value, lanes)) if run % lanes else None
        mask = None if mask is None else code.let(mask)
        for number, places in enumerate(every(*ranges)):
            at = source
            for place, tap in zip(places, side.taps):
                at = at + self._size(tap.x * place)
            at = code.let(at)
            for begin in range(0, run, lanes):
                part = mask if begin + lanes > run else None
                self._copy(at + begin, to + (number * run + begin), part)

    def _copy(self, source: Term, to: Term, mask: Term | None = None) -> None:
        load = ir.Load(self.vector, "x", source.value, None if mask is None else mask.value)
        self.code.emit(ir.Store("dst", to.value, load))

    def _taps(self, source: Term, to: Term, bases: Mapping[Bound, Term]) -> None:
        """Run by run; what is outside of x is 0."""
        side, code = self.side, self.code
        low, high = constant(0), self.run
        own = side.run_bound
        if side.tap is not None and own is not None and bases:
            unit, base = self._size(side.tap.x), bases[own]
            steps = self._size(side.tap.extent)
            first = smaller(larger(0 - base, 0), steps)
            low = code.let(first * unit)
            behind = smaller(larger(self._size(own.extent) - base, first), steps)
            high = code.let(behind * unit)
        self._tap(0, source, constant(0), to, (low, high), bases, None)

    def _tap(
        self, number: int, source: Term, at: Term, to: Term, ends: tuple[Term, Term],
        bases: Mapping[Bound, Term], fine: Term | None,
    ) -> None:  # fmt: skip
        """The loops over the taps around a run."""
        side, code = self.side, self.code
        if number == len(side.taps):
            self._one(code.let(source), code.let(to + at * self.run), ends, fine, bases)
            return
        tap = side.taps[number]
        with code.range(0, self._size(tap.extent)) as place:
            now = fine
            for bound, base in bases.items():
                if bound.tap == tap.name:
                    index = code.let(base + place * self._size(bound.spread))
                    here = (index >= 0) & (index < self._size(bound.extent))
                    now = here if now is None else now & here
            inner = at * self._size(tap.extent) + place
            moved = source + place * self._size(tap.x)
            self._tap(number + 1, moved, inner, to, ends, bases, now)

    def _one(
        self, source: Term, to: Term, ends: tuple[Term, Term], fine: Term | None,
        bases: Mapping[Bound, Term],
    ) -> None:  # fmt: skip
        """A run: zeros, what is inside, zeros."""
        code, lanes = self.code, self.vector.lanes
        low, high = ends
        for bound, base in bases.items():
            if not bound.tap:
                here = (base >= 0) & (base < self._size(bound.extent))
                fine = here if fine is None else fine & here
        if fine is not None:
            low = code.let(select(fine, low, self.run))
            high = code.let(select(fine, high, self.run))
        if self.side.run.constant == 1:
            self._element(source, to, high > low)
            return
        if bases:
            self._zeros(to, constant(0), low)
        whole = code.let(low + ((high - low) & -lanes))
        with code.range(low, whole, lanes) as place:
            self._copy(source + place, to + place)
        with code.when(whole < high):
            mask = code.let(Term(first_lanes((high - whole).value, lanes)))
            self._copy(source + whole, to + whole, mask)
        if bases:
            self._zeros(to, high, self.run)

    def _element(self, source: Term, to: Term, fine: Term) -> None:
        """A run of one element."""
        kind, code = ir.Type(self.vector.dtype), self.code
        with code.when(fine):
            code.emit(ir.Store("dst", to.value, ir.Load(kind, "x", source.value)))
        with code.otherwise():
            code.emit(ir.Store("dst", to.value, constant(0, self.vector.dtype).value))

    def _zeros(self, to: Term, low: Term, high: Term) -> None:
        zero = constant(0, self.vector.dtype, self.vector.lanes)
        with self.code.range(low, high, self.vector.lanes) as place:
            self.code.emit(ir.Store("dst", (to + place).value, zero.value))
