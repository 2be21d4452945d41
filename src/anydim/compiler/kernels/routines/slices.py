"""Slices of a tensor along an axis: comparison element by element, and merge sort.

A slice is all elements with one index along the axis, in row-major order of the others.
"""

from __future__ import annotations

from anydim.base.dtypes import int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import least, select
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import order_key
from anydim.compiler.kernels.routines.nonzero import fill
from anydim.compiler.kernels.routines.rows import Rows


@dataclass(frozen=True)
class Slices:
    """The slices of `x`; `rows` gives the extents before, along and after the axis."""

    code: Code
    x: Buffer
    rows: Rows

    def element(self, number: ir.Value, index: ir.Value) -> ir.Value:
        """The key of an element of a slice."""
        if self.rows.outer.constant == 1:
            offset = number * self.code.size(self.rows.inner) + index
        else:
            inner, length = self.code.size(self.rows.inner), self.code.size(self.rows.length)
            offset = (index // inner * length + number) * inner + index % inner
        return order_key(self.x[offset])

    def compare(self, left: ir.Value, right: ir.Value) -> tuple[ir.Value, ir.Value]:
        """(whether the left one comes first or both are equal, whether they differ)."""
        code = self.code
        count = code.size(self.rows.count)
        at, first, differ = code.variable(0), code.variable(True), code.variable(False)
        with code.loop(lambda: (at() < count) & ~differ()):
            one, other = (code.let(self.element(n, at())) for n in (left, right))
            first.set(one <= other)
            differ.set(one.differs(other))
            at += 1
        return first(), differ()

    def copy(
        self, target: Buffer, target_number: ir.Value, source: Buffer, number: ir.Value
    ) -> None:
        """Copy slice `number` of a tensor to slice `target_number` of one with equal extents."""
        code = self.code
        inner, length = code.size(self.rows.inner), code.size(self.rows.length)
        with code.range(0, code.size(self.rows.outer)) as outer:
            base = code.let(outer * length)
            if self.rows.contiguous:
                target[base + target_number] = source[base + number]
            else:
                to, origin = ((base + n) * inner for n in (target_number, number))
                fill(code, target.part(code.let(to)), inner, source.part(code.let(origin)))


def merge_sort(slices: Slices, indices: Buffer, count: ir.Value) -> ir.Value:
    """Stable merge sort of slice indices. The result starts at 0 or `count`, in a buffer of 2 *
    count."""
    code = slices.code
    with code.range(0, count) as i:
        indices[i] = i.as_(uint32)
    begin, width = code.variable(0), code.variable(1)
    with code.loop(lambda: width() < count):
        source, low = begin(), code.variable(0)
        target = code.let(count - source)
        with code.loop(lambda: low() < count):
            middle = code.let(least(low() + width(), count))
            high = code.let(least(middle + width(), count))
            _merge(slices, indices.part(source), indices.part(target), low(), middle, high)
            low.set(high)
        begin.set(target)
        width.set(width() * 2)
    return begin()


def _merge(
    slices: Slices, source: Buffer, target: Buffer, low: ir.Value, middle: ir.Value, high: ir.Value
) -> None:
    """Merge two sorted ranges, low:middle and middle:high."""
    code = slices.code
    left, right, position = code.variable(low), code.variable(middle), code.variable(low)
    with code.loop(lambda: (left() < middle) & (right() < high)):
        one, other = source[left()], source[right()]
        first, _ = slices.compare(one.as_(int64), other.as_(int64))
        target[position()] = select(first, one, other)
        left += first.as_(int64)
        right += (~first).as_(int64)
        position += 1
    for rest, end in ((left, middle), (right, high)):
        _move(code, source, rest, end, target, position)


def _move(
    code: Code, source: Buffer, rest: Variable, end: ir.Value, target: Buffer, position: Variable
) -> None:
    with code.loop(lambda: rest() < end):
        target[position()] = source[rest()]
        rest += 1
        position += 1
