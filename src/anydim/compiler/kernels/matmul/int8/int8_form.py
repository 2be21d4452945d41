"""The form of int8 products, and of products of bfloat16, which have no zero points.

    C[m, n] = sum over t, k of (a[m, t, k] - a_zero[m]) * (b[t, k, n] - b_zero[n])

in loops, then pointwise statements on C. a and b are reads of integers of at most eight bits, as
int32; the zero points are constant along t and k. The reads are otherwise arbitrary: strides,
windows, padding. n are the last axes of C, if they are contiguous there; b may be read by each of
them (`columns`; empty when n suffices), and a of bfloat16 by each axis of m (`rows`). k is the axis
that is multiplied four at a time, t (the taps) the other reduced axes. The first tap of float32
factors in parts numbers the parts of b, and is no axis of a.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anydim.base.dtypes import DType, bfloat16, float32, int32
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.compiler.kernels.matmul.epilogue import (
    Output,
    Renamed,
    element_offset,
    epilogue_of,
    product_of,
    streams_of,
)
from anydim.compiler.kernels.matmul.int8.word_types import BYTES, WordType
from anydim.compiler.kernels.matmul.product_axes import (
    Parts,
    ProductAxes,
    matrix_axes,
    merge_axes,
    merged_extent,
    merged_stride,
    strided_parts,
)
from anydim.compiler.kernels.matmul.window_geometry import InLoops, Walk, split_groups
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Read,
    SizeTerm,
    Statement,
    TensorType,
)
from anydim.lang.tree.affine import Affine, address, affine, reads, row_major_strides
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Size, as_size, ceil_div, product

_WINDOW_PENALTY = 0.2  # of bytes; bfloat16 takes words along channels alone


@dataclass(frozen=True)
class FactorParts:
    """The (extent, stride) of the axes of a read: loops, m or n (`own`), taps, k."""

    loops: Parts
    own: Parts
    taps: Parts
    k: Parts

    @property
    def all(self) -> tuple[Parts, ...]:
        return self.loops, self.own, self.taps, self.k


@dataclass(frozen=True)
class Int8Factor:
    """A factor: the read of its bytes, and its zero point (int32; None for 0).

    `parts` is None where the read has no strides.
    """

    read: Read
    dtype: DType
    zero: Expr | None
    parts: FactorParts | None = None
    start: Size = as_size(0)


@dataclass(frozen=True)
class Int8Walk(Walk):
    """An axis with its stride in C, in elements."""

    c: Size


@dataclass(frozen=True)
class Int8Form(InLoops):
    """A sum of products of bytes; see the module's docstring. Expressions are over its names."""

    a: Int8Factor
    b: Int8Factor
    loops: tuple[Int8Walk, ...]
    m: Int8Walk
    n: Int8Walk
    rows: tuple[tuple[str, Size], ...]
    columns: tuple[tuple[str, Size], ...]
    taps: tuple[tuple[str, Size], ...]
    k: Size
    outputs: tuple[Output, ...]
    word: WordType = BYTES

    @property
    def tap_words(self) -> Size:
        """Words of a tap."""
        return ceil_div(self.k, self.word.count)

    @property
    def tap_count(self) -> Size:
        return product(extent for _, extent in self.taps)

    @property
    def every_extent(self) -> dict[str, Size]:
        """Extents of all names that the reads use."""
        walks = {walk.name: walk.extent for walk in (*self.loops, self.m, self.n)}
        single = {**dict(self.rows), **dict(self.columns)}
        return {**walks, **single, **dict(self.taps), "k": self.k}

    def loops_of(self, factor: Int8Factor) -> list[Int8Walk]:
        """The loops that a factor uses."""
        used = free_axes(factor.read)
        return [walk for walk in self.loops if walk.name in used]

    @property
    def work(self) -> Size:
        """Multiply-adds in total."""
        return self.around * self.m.extent * self.n.extent * self.tap_count * self.k


def int8_form_of(
    group: Group, constants: frozenset[str], word: WordType = BYTES
) -> Int8Form | None:
    """Return the group as a sum of products of bytes or of bfloat16; None if it is not one."""
    found = product_of(group)
    if found is None or group.type_of(found[0].target).dtype != word.total:
        return None
    statement, parts = found
    first, second = (_factor(part, group, statement, word) for part in parts)
    outputs = epilogue_of(group, statement)
    if first is None or second is None or outputs is None:
        return None
    statement, first, second, outputs = _with_groups(statement, first, second, outputs)
    # Either factor may have the rows.
    for a, b in ((first, second), (second, first)):
        form = _Reading(group, statement, a, b, constants, word).form(outputs)
        if form is not None:
            return form
    return None


def _with_groups(
    statement: Statement, first: Int8Factor, second: Int8Factor, outputs: tuple[Output, ...]
) -> tuple[Statement, Int8Factor, Int8Factor, tuple[Output, ...]]:
    """Splits off channel groups: `m // share` in a read becomes an axis of its own."""
    strides = row_major_strides(statement.shape)
    for factor in (first, second):
        found = split_groups(statement.axes, strides, factor.read)
        if found is None or len(found[0]) == len(statement.axes):
            continue
        axes, _, change = found

        def change_factor(
            factor: Int8Factor, change: Callable[[Expr], Expr] = change
        ) -> Int8Factor:
            read = change(factor.read)
            assert isinstance(read, Read)
            return replace(factor, read=read, zero=factor.zero and change(factor.zero))

        moved = tuple(Output(o.tensor, change(o.value)) for o in outputs)
        statement = replace(statement, axes=axes, body=change(statement.body))
        return statement, change_factor(first), change_factor(second), moved
    return statement, first, second, outputs


def _factor(expr: Expr, group: Group, statement: Statement, word: WordType) -> Int8Factor | None:
    """Match int32(read) or int32(read) - zero, where the read has at most eight bits.

    For bfloat16, float32(bfloat16(read)) or float32(read of bfloat16); for parts, a read of float32
    or the latter.
    """
    types = {t.name: t.type for t in (*group.inputs, *group.temporaries, *group.outputs)}
    zero: Expr | None = None
    if isinstance(expr, Apply) and expr.function == "sub":
        expr, zero = expr.arguments
        reduced = {axis.name for axis in statement.reduced}
        if dtype_of(zero, types) != int32 or free_axes(zero) & reduced or not _plain(zero, group):
            return None
    if word.split and isinstance(expr, Read):
        read: Read | None = expr if types[expr.tensor].dtype == float32 else None
    else:
        read = read_widened(expr, types) if word.is_pair else _read_of_integers(expr, types)
    inputs = {tensor.name for tensor in group.inputs}
    if read is None or read.tensor not in inputs:
        return None
    dtype = types[read.tensor].dtype
    if any(has_checks(index) or reads(index) for index in read.indices):
        return None
    if read.default is not None and free_axes(read.default):
        return None
    extents = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}
    return Int8Factor(_without_default(read, types[read.tensor].shape, extents), dtype, zero)


def _read_of_integers(expr: Expr, types: Mapping[str, TensorType]) -> Read | None:
    """Match int32(read) of integers of at most eight bits."""
    if not (isinstance(expr, Cast) and expr.dtype == int32 and isinstance(expr.argument, Read)):
        return None
    dtype = types[expr.argument.tensor].dtype
    return expr.argument if dtype.is_integer and dtype.bits <= 8 else None


def read_widened(expr: Expr, types: Mapping[str, TensorType]) -> Read | None:
    """Match float32 of a read that is bfloat16, or rounded to it from float32."""
    if not (isinstance(expr, Cast) and expr.dtype == float32):
        return None
    narrow, dtype = expr.argument, bfloat16
    if isinstance(narrow, Cast) and narrow.dtype == bfloat16:
        narrow, dtype = narrow.argument, float32
        if isinstance(narrow, Cast) and narrow.dtype == float32:
            narrow, dtype = narrow.argument, bfloat16  # stored rounded
    fits = isinstance(narrow, Read) and types[narrow.tensor].dtype == dtype
    return narrow if isinstance(narrow, Read) and fits else None


def _without_default(
    read: Read, shape: Sequence[Size], extents: Mapping[str, Size]
) -> Read:  # a convolution with windows of one element has a default that is never used
    if read.default is None or read.flat:
        return read
    plain: list[Expr] = []
    for index, size in zip(read.indices, shape):
        line = affine(index)
        names = [name for name in (line.indices if line else ()) if extents[name].constant != 1]
        if line is None or line.constant.constant != 0 or len(names) > 1:
            return read
        if any(line.stride(name).constant != 1 or extents[name] != size for name in names):
            return read
        plain.append(Index(names[0]) if names else SizeTerm(line.constant))
    return replace(read, indices=tuple(plain), default=None)


def _plain(expr: Expr, group: Group) -> bool:
    """Whether an expression only reads inputs, at affine indices."""
    inputs = {tensor.name: tensor.type for tensor in group.inputs}
    return all(
        read.tensor in inputs
        and read.default is None
        and address(read, inputs[read.tensor].shape) is not None
        for read in reads(expr)
    )


@dataclass(frozen=True)
class _Merged:
    """Axes merged to one loop each; `column_axes` are those of n when b is read by each of them.

    So are `row_axes` those of m.
    """

    outside: Sequence[Sequence[Axis]]
    m: Sequence[Axis]
    n: Sequence[Axis]
    row_axes: Sequence[Axis]
    column_axes: Sequence[Axis]
    taps: Sequence[Sequence[Axis]]
    k: Sequence[Axis]


@dataclass(frozen=True)
class _Reading:
    """A group with its factors assigned to a, which has the rows, and b."""

    group: Group
    statement: Statement
    a: Int8Factor
    b: Int8Factor
    constants: frozenset[str]
    word: WordType

    def form(self, outputs: tuple[Output, ...]) -> Int8Form | None:
        in_a, part = free_axes(self.a.read), self.statement.reduced[:1]
        if self.word.split:
            read = self.a.dtype == float32 and self.b.dtype == bfloat16
            if not read or part[0].name in in_a:
                return None
            in_a |= {part[0].name}
        axes = matrix_axes(self.statement, in_a, free_axes(self.b.read))
        if axes is None or not axes.sums or not self._fitting_zeros(axes):
            return None
        if not axes.rows and (self._along(axes) or (axes.batch and self._is_depthwise(axes))):
            return None
        merged = self._merge(axes, outputs)
        if self.word.is_pair and self._slides(merged.k):
            return None  # one channel: 1.1 to 2.0 of float32's time
        if self.word.split and (not merged.taps or tuple(merged.taps[0]) != part):
            return None
        return self._over(merged, outputs)

    def _along(self, axes: ProductAxes) -> bool:
        """Whether one row is multiplied by columns that are contiguous along the sum.

        This is a matrix-vector product: words of adjacent columns are not contiguous.
        """
        stream = self._stream(self.b)
        if stream is None or self.b.read.tensor in self.constants:
            return False
        along, across = (stream.stride(x.name).constant for x in (axes.sums[-1], axes.columns[-1]))
        return along == 1 and across != 1

    def _is_depthwise(self, axes: ProductAxes) -> bool:
        """Whether every sum runs over a window only, as in a depthwise convolution.

        Each packed column would have one row; kernels of windows along rows are faster.
        """
        columns = {axis.name for axis in axes.columns}
        windows = [i for i in self.b.read.indices if free_axes(i) & columns]
        return all(any(x.name in free_axes(index) for index in windows) for x in axes.sums)

    def _merge(self, axes: ProductAxes, outputs: tuple[Output, ...]) -> _Merged:
        """Merge adjacent axes where every stream strides over both as over one."""
        values = [output.value for output in outputs]
        values += [zero for zero in (self.a.zero, self.b.zero) if zero is not None]
        streams, used = streams_of(self.group, self.statement, values)
        own = [form for form in (self._stream(self.a), self._stream(self.b)) if form is not None]
        pinned = used | self._windows()
        n = merge_axes(axes.columns, streams, used)
        m, batch, alone = (
            merge_axes(group, [*streams, *own], pinned)
            for group in (axes.rows, axes.batch, axes.alone)
        )
        rows = merge_axes(axes.rows, streams, used)
        by_axis = self._reads_by_row_axis(m, rows)
        m = rows if by_axis else m
        k = merge_axes(axes.sums, own, pinned)
        count = self.word.count
        penalty = _WINDOW_PENALTY if self.word == BYTES else 1.0
        inner = max(
            range(len(k)),
            key=lambda i: (_fill_ratio(k[i], count) - penalty * self._slides(k[i]), i),
        )
        return _Merged(
            outside=[*alone, *batch, *m[:-1], *n[:-1]],
            m=m[-1] if m else (),
            n=n[-1],
            row_axes=m[-1] if by_axis else (),
            column_axes=self._column_axes(n[-1], own),
            taps=[group for index, group in enumerate(k) if index != inner],
            k=k[inner],
        )

    def _reads_by_row_axis(
        self, m: Sequence[Sequence[Axis]], every: Sequence[Sequence[Axis]]
    ) -> bool:
        """Whether more axes are rows of a tile if a is read by each of them: `every`, not `m`.

        So a tile has pixels of several lines, and of several images, by weights in panels.
        """
        if not self.word.is_pair or not every or self.a.read.tensor in self.constants:
            return False
        return self.b.read.tensor in self.constants and len(every[-1]) > len(m[-1])

    def _slides(self, axes: Sequence[Axis]) -> bool:
        """Whether words along axes are those of windows: these share no image."""
        own, every = {axis.name for axis in axes}, {axis.name for axis in self.statement.axes}
        read = [self.b.read] if self.word == BYTES else [self.a.read, self.b.read]
        return any(
            free_axes(index) & own and free_axes(index) & every
            for each in read if self.word == BYTES or not each.flat for index in each.indices
        )  # fmt: skip

    def _over(self, axes: _Merged, outputs: tuple[Output, ...]) -> Int8Form:
        """Return the form over the names of merged axes."""
        names: dict[str, Sequence[Axis]]
        names = {f"loop{number}": group for number, group in enumerate(axes.outside)}
        names |= {"m": axes.m, "n": axes.n}
        taps = {f"tap{number}": group for number, group in enumerate(axes.taps)}
        single = {f"n{index}": (axis,) for index, axis in enumerate(axes.column_axes)}
        every = {**names, **taps, "k": axes.k}
        rows = {f"m{index}": (axis,) for index, axis in enumerate(axes.row_axes)}
        renamed = Renamed(every, self.group)
        for_a = renamed if not rows else Renamed({**every, "m": (), **rows}, self.group)
        for_b = renamed if not single else Renamed({**every, "n": (), **single}, self.group)
        target = element_offset(self.statement)

        def walk(name: str) -> Int8Walk:
            own = names[name]
            return Int8Walk(name, merged_extent(own), merged_stride(own, target))

        loops = [axis for group in axes.outside for axis in group]
        order = (loops, axes.m, axes.n, [axis for group in axes.taps for axis in group])
        return Int8Form(
            a=self._rename_factor(self.a, for_a, renamed, order, axes.k, 1),
            b=self._rename_factor(self.b, for_b, renamed, order, axes.k, 2),
            loops=tuple(walk(name) for name in names if name.startswith("loop")),
            m=walk("m"),
            n=walk("n"),
            rows=tuple((name, own[0].extent) for name, own in rows.items()),
            columns=tuple((name, own[0].extent) for name, own in single.items()),
            taps=tuple((name, merged_extent(own)) for name, own in taps.items()),
            k=merged_extent(axes.k),
            outputs=tuple(Output(o.tensor, renamed.expr(o.value)) for o in outputs),
            word=self.word,
        )

    def _column_axes(self, axes: Sequence[Axis], own: Sequence[Affine]) -> Sequence[Axis]:
        """Return the axes of n when b has to be read by each of them."""
        if self.b.read.tensor in self.constants and self._address(self.b) is not None:
            return ()
        together = merge_axes(axes, own, self._windows())
        return axes if len(together) > 1 else ()

    def _fitting_zeros(self, axes: ProductAxes) -> bool:
        """Whether the zero of a is constant along the columns, and that of b along the rows."""
        a = frozenset() if self.a.zero is None else free_axes(self.a.zero)
        b = frozenset() if self.b.zero is None else free_axes(self.b.zero)
        return not a & {x.name for x in axes.columns} and not b & {x.name for x in axes.rows}

    def _address(self, factor: Int8Factor) -> Affine | None:
        read = factor.read
        if read.default is not None:
            return None
        return address(read, self.group.type_of(read.tensor).shape)

    def _stream(self, factor: Int8Factor) -> Affine | None:
        """Return the strides that merged axes must preserve; None for a constant: it is packed."""
        form = self._address(factor)
        return None if factor.read.tensor in self.constants else form

    def _windows(self) -> frozenset[str]:
        """Return the axes of reads without strides, which are not merged."""
        loose = [f.read for f in (self.a, self.b) if self._address(f) is None]
        return frozenset().union(*(free_axes(read) for read in loose))

    def _rename_factor(
        self, factor: Int8Factor, renamed: Renamed, whole: Renamed,
        order: Sequence[Sequence[Axis]], inner: Sequence[Axis], own: int,
    ) -> Int8Factor:  # fmt: skip
        """Return the factor over the new names, with its strides if any.

        `whole` has the names of axes outside the sum.
        """
        form = self._address(factor)
        zero = None if factor.zero is None else whole.expr(factor.zero)
        moved = replace(factor, read=renamed.read(factor.read), zero=zero)
        if form is None:
            return moved

        loops = [x for x in order[0] if form.stride(x.name).constant != 0]
        parts = (strided_parts(axes, form) for axes in (loops, order[own], order[3], inner))
        return replace(moved, parts=FactorParts(*parts), start=form.constant)


def _fill_ratio(axes: Sequence[Axis], count: int) -> float:
    """Share of words' numbers that axes fill, plus a bonus for length; unknown counts as long."""
    extent = merged_extent(axes).constant
    if not extent:
        return 1.0 if extent is None else 0.0
    return extent / (-(-extent // count) * count) + min(extent, 64) / 256
