"""Images of words by stride phases (space-to-depth), with one element per column of the result.

    image   [word][phase]...[image][position]     a word of four bytes along k, as int32

With a stride of s along an axis, positions 0, s, 2s, ... are one phase, 1, 1 + s, ... the next. If
windows are padded so far that no phase has more positions than the result has columns, then the
columns of a vector are contiguous in the image for each tap, however short rows are: column q reads
position q shifted by the tap, or the padding value, according to its index along each axis. Padding
is not stored. Other windows use an image with padding (`im2col.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from anydim.base.dtypes import int32, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, index_sum, loop, quotient
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import constant, convert, number, register, select, splat, variable
from anydim.compiler.kernels.matmul.int8.im2col import axis_name, columns_of, overlaps
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Form
from anydim.compiler.kernels.matmul.int8.int8_packing import PACK, BytesPack
from anydim.compiler.kernels.matmul.int8.word_types import WORD
from anydim.lang.tree import Expr, Index, Read, TensorType
from anydim.lang.tree.affine import Affine, address, affine, row_major_strides, to_expr
from anydim.sizes import Size, as_size, ceil_div, product

UNSORTED, _WORD = "unsorted", "word"
_FEW = 4  # up to 1/4 of a vector, positions are copied one by one


def phase(number: int) -> str:
    """Return the name of the phase along an axis."""
    return f"phase{number}"


@dataclass(frozen=True)
class PhasedAxis:
    """An axis of the columns: the stride `by` of windows, and the steps of `taps`.

    The constant of `taps` is the position of the first tap.
    """

    name: str
    extent: Size
    by: int
    taps: Affine

    @property
    def before(self) -> int:
        """Columns to shift by so that no tap precedes the first position."""
        return max(-(int(self.taps.constant.constant or 0) // self.by), 0)


@dataclass(frozen=True)
class Phases:
    """The read of b over k, phases and positions.

    If positions of b are contiguous in memory, with a `shape`, `flat` is the read over all of them:
    words are packed from vectors of them first, and then sorted by phases if there are several.
    """

    read: Read
    flat: Read | None
    shape: tuple[Size, ...]
    dimensions: tuple[PhasedAxis, ...]
    words: Size
    images: str
    columns: Size

    @property
    def is_sorted(self) -> bool:
        """Whether memory has the words in the order of the image."""
        return all(s.by == 1 and s.extent == own for s, own in zip(self.dimensions, self.shape))

    @property
    def position_indices(self) -> tuple[Expr, ...]:
        """The indices of the read along positions."""
        own = {phase(at) for at in range(len(self.dimensions))}
        return tuple(index for index in self.read.indices if free_axes(index) & own)

    @property
    def unsorted(self) -> Size:
        """Bytes of the words before they are sorted."""
        if self.flat is None or self.is_sorted:
            return as_size(0)
        return self.words * product(self.shape) * WORD

    @property
    def image_bytes(self) -> Size:
        """Bytes between images."""
        return self.columns * WORD

    def bytes(self, count: Size) -> Size:
        """Return the bytes of `count` images."""
        return self.words * self.plane(count) * WORD + self.unsorted

    def plane(self, count: Size) -> Size:
        """Return the positions of a word."""
        return (
            product(as_size(dimension.by) for dimension in self.dimensions) * count * self.columns
        )


def phases_of(form: Int8Form, is_packed: bool, images: str, kind: TensorType) -> Phases | None:
    """Return the image of b; None where windows overlap too little, or have another form."""
    read, columns, taps = form.b.read, columns_of(form), {name for name, _ in form.taps}
    if is_packed or read.flat or not taps:
        return None
    dimensions: list[PhasedAxis] = []
    shape: list[Size] = []
    indices: list[Expr] = []
    for index, size in zip(read.indices, kind.shape):
        own = [column for column in columns if column[0] in free_axes(index)]
        line = affine(index)
        if not own and not free_axes(index) & taps:
            if read.default is not None and not _is_inside(line, size, form.every_extent):
                return None
            indices.append(index)
            continue
        if line is None or len(own) != 1 or own[0] != columns[len(dimensions)]:
            return None
        (name, extent), at = own[0], len(dimensions)
        steps, by = line.without(name), line.stride(name).constant or 0
        wide = by > 0 and (extent - ceil_div(size, max(by, 1))).constant
        known = steps.constant.constant is not None and taps >= {*steps.indices}
        if wide is False or wide is None or wide < 0 or not known:
            return None
        if any((step.constant or 0) < 1 for _, step in steps.terms):
            return None
        terms = {axis_name(at): as_size(by), phase(at): as_size(1)}
        indices.append(to_expr(Affine.of(as_size(0), terms)))
        dimensions.append(PhasedAxis(name, extent, by, steps))
        shape.append(size)
    lines = [
        Affine.of(as_size(0), {s.name: as_size(s.by), **dict(s.taps.terms)}) for s in dimensions
    ]
    if len(dimensions) < len(columns) or not overlaps(form, [name for name, _ in columns], lines):
        return None
    moved, words = Read(read.tensor, tuple(indices)), form.tap_words
    flat = _flat(moved, shape, kind)
    return Phases(moved, flat, tuple(shape), tuple(dimensions), words, images, form.n.extent)


def _is_inside(line: Affine | None, size: Size, extents: Mapping[str, Size]) -> bool:
    """Whether an index along an axis of extent `size`, without windows, is always in bounds.

    Axes of images and channels cover their whole extent. Where the result has one row, the rows of
    a window may be reduced like channels, and extend beyond the image.
    """
    if line is None or any((step.constant or 0) < 1 for _, step in line.terms):
        return False
    last = line.constant + sum(
        (step * (extents[name] - 1) for name, step in line.terms), as_size(0)
    )
    first, beyond = line.constant.constant, (last - size).constant
    return first is not None and beyond is not None and first >= 0 > beyond


def _flat(read: Read, shape: Sequence[Size], kind: TensorType) -> Read | None:
    """Return the read with one index for all positions; None if memory has another order."""
    names = [phase(at) for at in range(len(shape))]  # they step by one position
    form = address(read, kind.shape)
    each = as_size(0) if form is None else form.stride(names[-1])
    strides = row_major_strides(tuple(shape))
    if form is None or any(form.stride(name) != each * by for name, by in zip(names, strides)):
        return None
    rest = form.without(*names, *(axis_name(at) for at in range(len(names))))
    whole = rest + Affine.of(as_size(0), {axis_name(0): each})
    return Read(read.tensor, (to_expr(whole),), flat=True)


@dataclass(frozen=True)
class PhasesPack:
    """Writes the functions that fill the image and copy panels from it."""

    pack: BytesPack
    image: Phases
    count: Size

    def fill(self) -> ir.Function:
        """Return the function that fills one image, at dst."""
        pack, image, value = self.pack, self.image, self.pack.sizes.value
        root = pack.root()
        with pack.hoisting(root):
            if image.flat:
                read, to = image.flat, "dst" if image.is_sorted else UNSORTED
                whole = product(image.shape)
                plane = value(image.plane(self.count) if image.is_sorted else whole)

                def words(lane: ScalarLowering, at: ir.Value, mask: ir.Value | None) -> None:
                    pack.words(lane, read, lambda group, word: pack.code.emit(
                        ir.Store(to, group * plane + at, word, mask)
                    ))  # fmt: skip

                pack.along(root, axis_name(0), value(whole), words)
        if not image.is_sorted or not image.flat:
            types = {UNSORTED: TensorType(int32, (image.words, *image.shape))}
            found = replace(
                pack.context,
                types={**pack.context.types, **types},
                buffers={**pack.context.buffers, UNSORTED: UNSORTED},
            )
            level = ScalarLowering(found, root.indices) if image.flat else pack.root()
            with pack.hoisting(level):
                self._fill_axes(level, 0, constant(0), constant(0))
        return pack.function("image", ir.Pointer(UNSORTED, int32))

    def _fill_axes(self, level: ScalarLowering, depth: int, phases: ir.Value, at: ir.Value) -> None:
        """Fill the axes from `depth` on: their phases, and the positions of each phase."""
        pack, code, dimension = self.pack, self.pack.code, self.image.dimensions[depth]
        name, below = axis_name(depth), self.image.dimensions[depth + 1 :]
        with code.range(0, dimension.by) as own:
            inner, number_ = level.inner({phase(depth): own}), phases * dimension.by + own
            extent = code.let(self._phase_extent(depth, own))
            with pack.hoisting(inner):
                if below:
                    with code.range(0, extent) as row:
                        nearer = inner.inner({name: row})
                        further = row * pack.sizes.value(product(each.extent for each in below))
                        with pack.hoisting(nearer):
                            self._fill_axes(nearer, depth + 1, number_, at + further)
                    return
                base = at + number_ * pack.sizes.value(self.count * self.image.columns)
                few = pack.lanes // _FEW if self.image.flat else 0  # words are packed by vectors
                with code.when(extent > few):
                    pack.along(inner, name, extent, partial(self._words, base))
                with code.otherwise(), code.range(0, extent) as column:
                    one = inner.inner({name: column})
                    with pack.hoisting(one):
                        self._words(base, one, column, None)

    def _phase_extent(self, axis: int, own: ir.Value) -> ir.Value:
        """Return the positions of one phase of an axis."""
        size, by = self.pack.sizes.value(self.image.shape[axis]), self.image.dimensions[axis].by
        return quotient(size + (by - 1) - own, by)

    def _words(
        self, at: ir.Value, lane: ScalarLowering, position: ir.Value, mask: ir.Value | None
    ) -> None:
        """Fill all words of the positions of a row together."""
        pack, image = self.pack, self.image
        plane = pack.sizes.value(image.plane(self.count))

        def store(group: ir.Value, word: ir.Value) -> None:
            pack.code.emit(ir.Store("dst", group * plane + at + position, word, mask))

        if image.flat is None:
            pack.words(lane, image.read, store)
            return
        with pack.code.range(0, pack.sizes.value(image.words)) as group:
            own = lane.inner({_WORD: group})
            word = own.value(Read(UNSORTED, (Index(_WORD), *image.position_indices)), int32)
            pack.code.take(own.steps)
            store(group, word)

    def panel(self) -> ir.Function:
        """Return the function that writes columns `first` to `first + count` as a panel to dst."""
        pack, code, root, lanes = self.pack, self.pack.code, self.pack.root(), self.pack.lanes
        vector, count = ir.Type(int32, lanes), PACK.count
        for dimension in self.image.dimensions:
            code.emit(ir.Stack(f"{dimension.name}s", int32, pack.layout.width))
        code.emit(ir.Declare(self.pack.sum.name, number(int32, 0, lanes)))
        with pack.hoisting(root):
            code.take(self._columns())
            outside = [code.let(word) for word in pack.outside(root)]
            with code.range(0, count, lanes) as j:
                few = code.let(first_lanes(count - j, lanes))
                at = [code.let(ir.Load(vector, f"{s.name}s", j)) for s in self.image.dimensions]
                code.emit(ir.Assign(self.pack.sum.name, number(int32, 0, lanes)))
                pack.taps(root, lambda _, tap: self._tap(tap, j, at, few, outside))
                pack.column_sums(j, None)
        return pack.function("panel", ir.Pointer("image", int32))

    def _tap(
        self, tap: ir.Value, j: ir.Value, at: Sequence[ir.Value], mask: ir.Value,
        outside: Sequence[ir.Value],
    ) -> None:  # fmt: skip
        """Copy all words of a tap, for a vector of columns at positions `at`."""
        pack, code, value, lanes = self.pack, self.pack.code, self.pack.sizes.value, self.pack.lanes
        dimensions = self.image.dimensions
        start, phases = PACK.first + j, constant(0)
        strides = row_major_strides(tuple(dimension.extent for dimension in dimensions))
        for axis, (dimension, stride, column) in enumerate(zip(dimensions, strides, at)):
            steps = (pack.tap_at[name] * value(step) for name, step in dimension.taps.terms)
            first = dimension.taps.constant + dimension.before * dimension.by
            further = code.let(index_sum(value(first), *steps))
            whole = quotient(further, dimension.by)
            by = code.let(whole - dimension.before)
            own = further - whole * dimension.by
            phases = phases * dimension.by + own
            start = start + by * value(stride)
            moved = (column + splat(convert(by, int32), lanes)).bits(uint32)
            mask = mask & (moved < splat(convert(self._phase_extent(axis, own), uint32), lanes))
        start = code.let(start + phases * value(self.count * self.image.columns))
        plane, inside = value(self.image.plane(self.count)), code.let(mask)

        def copy_words(group: ir.Value, count: int, mask: ir.Value | None) -> None:
            word: ir.Value = ir.Load(ir.Type(int32, lanes), "image", start + group * plane, mask)
            if mask is not None:
                word = select(mask, word, outside[count - 1])
            pack.store_word(word, tap * value(self.image.words) + group, j, None)

        with code.when((~inside).any):  # a masked load stalls on earlier stores that may overlap it
            pack.groups(partial(copy_words, mask=inside))
        with code.otherwise():
            pack.groups(partial(copy_words, mask=None))

    def _columns(self) -> list[ir.Step]:
        """Compute the positions of each column along the axes; they restart with the next image."""
        value, dimensions = self.pack.sizes.value, self.image.dimensions
        starts: list[ir.Step] = []
        advance: tuple[ir.Step, ...] = ()
        rest: ir.Value = PACK.first
        for dimension in reversed(dimensions):
            above = quotient(rest, value(dimension.extent))
            starts.append(
                ir.Declare(f"at_{dimension.name}", rest - above * value(dimension.extent))
            )
            rest = above
        for dimension in dimensions:  # the last axis advances most often
            index = f"at_{dimension.name}"
            ended = ir.If(
                register(index).equals(value(dimension.extent)),
                (ir.Assign(index, constant(0)), *advance),
            )
            advance = (ir.Assign(index, register(index) + 1), ended)
        stores = [
            ir.Store(f"{s.name}s", variable("column"), convert(register(f"at_{s.name}"), int32))
            for s in dimensions
        ]
        return [*starts, loop("column", 0, PACK.count, 1, *stores, *advance)]
