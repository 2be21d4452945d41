"""im2col for int8 products: overlapping windows are packed into words once, as an image.

    image   [word][position][position]...     a word of four bytes along k, as int32

Positions are those that windows read, with padding, so that columns and taps have constant strides
in the image. A panel is copied from the image run by run, as vectors that end with a row, or
gathered where adjacent columns are not adjacent in the image, or runs are short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from anydim.base.dtypes import int32, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import (
    first_lanes,
    index_sum,
    loop,
    quotient,
    quotient_up,
)
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.ir import constant, least, number, register, variable
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Form
from anydim.compiler.kernels.matmul.int8.int8_packing import PACK, BytesPack
from anydim.compiler.kernels.matmul.int8.word_types import WORD
from anydim.compiler.kernels.matmul.lane_select import SELECT_VECTORS, select_lanes, within_vectors
from anydim.lang.tree import Expr, Read
from anydim.lang.tree.affine import Affine, affine, row_major_strides, to_expr
from anydim.sizes import Size, as_size, maximum, product

_REUSED = 2  # minimum windows that read a position
_FEW = 8  # runs of up to 1/8 of a vector are gathered
_SELECT = 3  # up to 1/3, where lanes are permuted out of vectors


@dataclass(frozen=True)
class Image:
    """The read of b over k and positions, the extents of positions, and the windows' strides.

    `steps` are the strides of columns and taps, in int32 elements; `start` is the first offset.
    """

    read: Read
    extents: tuple[Size, ...]
    steps: Affine
    words: Size
    images: str  # the loop over images, where panels may have columns of several

    @property
    def plane(self) -> Size:
        """Positions of a word."""
        return product(self.extents)

    @property
    def image_bytes(self) -> Size:
        """Bytes between images."""
        return self.words * self.plane * WORD

    def bytes(self, count: Size) -> Size:
        """Return the bytes of `count` images."""
        return count * self.image_bytes


def axis_name(number: int) -> str:
    """Return the name of an axis of the image."""
    return f"place{number}"


def columns_of(form: Int8Form) -> tuple[tuple[str, Size], ...]:
    """Return the column axes of the reads of b."""
    return form.columns or ((form.n.name, form.n.extent),)


def image_of(form: Int8Form, is_packed: bool, images: str) -> Image | None:
    """Return the image of b; None if b is packed, or has no windows with enough overlap."""
    read, columns = form.b.read, columns_of(form)
    moving = {name: maximum(extent, 1) - 1 for name, extent in (*columns, *form.taps)}
    if is_packed or read.flat or not form.taps:
        return None
    indices: list[Expr] = []
    lines: list[Affine] = []
    extents: list[Size] = []
    for index in read.indices:
        if not free_axes(index) & moving.keys():
            indices.append(index)
            continue
        line = affine(index)
        if line is None or not moving.keys() >= {*line.indices}:
            return None
        lengths = {name: step.constant for name, step in line.terms}
        reach, low = as_size(1), line.constant
        for name, length in lengths.items():
            if length is None:
                return None
            reach = reach + abs(length) * moving[name]
            low = low + min(length, 0) * moving[name]
        indices.append(to_expr(Affine.of(low, {axis_name(len(lines)): as_size(1)})))
        lines.append(Affine(line.constant - low, line.terms))
        extents.append(reach)
    if not overlaps(form, [name for name, _ in columns], lines):
        return None
    steps = Affine(as_size(0))
    for line, stride in zip(lines, row_major_strides(tuple(extents))):
        steps = steps + line.scale(stride)
    moved = Read(read.tensor, tuple(indices), default=read.default)
    return Image(moved, tuple(extents), steps, form.tap_words, images)


def overlaps(form: Int8Form, columns: Sequence[str], lines: Sequence[Affine]) -> bool:
    """Whether most positions are read by several windows."""
    stride_product = product(
        line.stride(name) for line in lines for name in columns if name in line.indices
    )
    taps, stride = form.tap_count.constant, stride_product.constant
    return taps is None or (stride is not None and taps >= _REUSED * abs(stride))


@dataclass(frozen=True)
class ImagePack:
    """Writes the functions that fill the image and copy panels from it."""

    pack: BytesPack
    image: Image

    def fill(self) -> ir.Function:
        """Return the function that fills one image, at dst."""
        root = self.pack.root()
        with self.pack.hoisting(root):
            self._fill_axes(root, 0, constant(0))
        return self.pack.function("image")

    def _fill_axes(self, level: ScalarLowering, depth: int, at: ir.Value) -> None:
        """Fill the words of a position together: their bounds tests are shared."""
        pack, image = self.pack, self.image
        name, extent = axis_name(depth), pack.sizes.value(image.extents[depth])
        if depth == len(image.extents) - 1:
            pack.along(level, name, extent, lambda lane, position, mask: self._words(
                lane, at + position, mask
            ))  # fmt: skip
            return
        stride = pack.sizes.value(row_major_strides(image.extents)[depth])
        with pack.code.range(0, extent) as position:
            inner = level.inner({name: position})
            with pack.hoisting(inner):
                self._fill_axes(inner, depth + 1, at + position * stride)

    def _words(self, lane: ScalarLowering, at: ir.Value, mask: ir.Value | None) -> None:
        plane = self.pack.sizes.value(self.image.plane)

        def store(group: ir.Value, word: ir.Value) -> None:
            self.pack.code.emit(ir.Store("dst", group * plane + at, word, mask))

        self.pack.words(lane, self.image.read, store)

    def panel(self) -> ir.Function:
        """Return the function that writes columns `first` to `first + count` as a panel to dst."""
        pack, code = self.pack, self.pack.code
        root, lanes = pack.root(), pack.lanes
        vector, wide = ir.Type(int32, lanes), ir.Type(int64, lanes)
        for name in ("places", "runs"):
            code.emit(ir.Stack(name, int64, pack.layout.width))
        code.emit(ir.Declare(self.pack.sum.name, number(int32, 0, lanes)))
        with pack.hoisting(root):
            code.take(self._window_offsets())
            name, extent = columns_of(pack.form)[-1]
            run = pack.sizes.value(extent)
            permutes = pack.context.machine.permutes
            contiguous = run > lanes // (_SELECT if permutes else _FEW)
            if self.image.steps.stride(name).constant != 1:
                contiguous = ir.number(ir.FLAG.dtype, 0)
            with code.when(contiguous):
                self._runs(root, vector, run)
            with code.otherwise(), code.range(0, PACK.count, lanes) as j:
                offsets = code.let(ir.Load(wide, "places", j))
                load: Callable[[ir.Value], ir.Value] = partial(self._gather, vector, offsets)
                if permutes:
                    first = code.let(ir.Load(ir.INDEX, "places", j))
                    relative = code.let(offsets - first.spread(lanes))
                    all_of = pack.sizes.value(self.image.words * self.image.plane)
                    limit = code.let(all_of - first - SELECT_VECTORS * lanes)
                    near = code.let(within_vectors(relative))
                    load = partial(
                        self._gather_or_select, vector, offsets, first, relative, near, limit
                    )
                self._copy(root, j, load, None)
        return pack.function("panel", ir.Pointer("image", int32))

    def _gather(self, vector: ir.Type, offsets: ir.Value, at: ir.Value) -> ir.Gather:
        return ir.Gather(vector, "image", offsets + at)

    def _gather_or_select(
        self, vector: ir.Type, offsets: ir.Value, first: ir.Value, relative: ir.Value,
        near: ir.Value, limit: ir.Value, at: ir.Value,
    ) -> ir.Value:  # fmt: skip
        """Gather lanes, or permute them out of vectors; `limit` is the last valid start."""
        code, at = self.pack.code, self.pack.code.let(at)
        gathered = self._gather(vector, offsets, at)
        return select_lanes(code, gathered, first + at, relative, near & (at <= limit))

    def _runs(self, root: ScalarLowering, vector: ir.Type, extent: ir.Value) -> None:
        """Copy columns run by run, at most a vector at a time."""
        code, lanes = self.pack.code, vector.lanes
        column = code.variable(constant(0))
        with code.loop(lambda: column() < PACK.count):
            j = code.let(column())
            at = code.let(ir.Load(ir.INDEX, "places", j))
            remaining = least(extent - ir.Load(ir.INDEX, "runs", j), PACK.count - j)
            length = code.let(least(remaining, lanes))
            with code.when(length.equals(lanes)):
                self._copy(root, j, lambda by: ir.Load(vector, "image", at + by), None)
            with code.otherwise():
                few = code.let(first_lanes(length, lanes))
                self._copy(root, j, lambda by: ir.Load(vector, "image", at + by, few), few)
            column += length

    def _window_offsets(self) -> list[ir.Step]:
        """Compute the offset of each column's window, and its index in its run.

        Offsets within a run are consecutive. Columns after the last one repeat it.
        """
        value = self.pack.sizes.value
        columns = [
            (name, extent, self.image.steps.stride(name))
            for name, extent in columns_of(self.pack.form)
        ]
        if self.image.images:  # images follow one another
            columns.insert(0, (self.image.images, as_size(1), self.image.words * self.image.plane))
        at: list[ir.Value] = [value(self.image.steps.constant)]
        starts: list[ir.Step] = []
        rest: ir.Value = PACK.first
        advance: list[ir.Step] = []
        for number_, (name, extent, step) in enumerate(reversed(columns)):
            index = f"at_{name}"
            above = quotient(rest, value(extent)) if number_ < len(columns) - 1 else constant(0)
            starts.append(ir.Declare(index, rest - above * value(extent)))
            at.append(register(index) * value(step))
            rest = above
        for name, extent, step in columns:  # the last axis advances most often
            index = f"at_{name}"
            ended = register(index).equals(value(extent))
            wrapped = [ir.If(ended, (
                ir.Assign(index, constant(0)),
                ir.Assign("place", register("place") - value(extent * step)),
                *advance,
            ))] if advance else []  # fmt: skip
            advance = [
                ir.Assign(index, register(index) + 1),
                ir.Assign("place", register("place") + value(step)),
                *wrapped,
            ]
        whole = quotient_up(PACK.count, self.pack.lanes) * self.pack.lanes
        more = variable("column") + 1 < PACK.count
        return [
            *starts,
            ir.Declare("place", index_sum(*at)),
            loop(
                "column", 0, whole, 1,
                ir.Store("places", variable("column"), register("place")),
                ir.Store("runs", variable("column"), register(f"at_{columns[-1][0]}")),
                ir.If(more, tuple(advance)),
            ),
        ]  # fmt: skip

    def _copy(
        self, root: ScalarLowering, j: ir.Value, load: Callable[[ir.Value], ir.Value],
        mask: ir.Value | None,
    ) -> None:  # fmt: skip
        """Copy all words of the columns of a vector, or of a part of one."""
        pack, image, value = self.pack, self.image, self.pack.sizes.value
        words = value(image.words)

        def tap(_: ScalarLowering, number_: ir.Value) -> None:
            taps = (at * value(image.steps.stride(name)) for name, at in pack.tap_at.items())
            with pack.code.range(0, words) as g:
                further = index_sum(*taps, g * value(image.plane))
                pack.store_word(load(further), number_ * words + g, j, mask)

        pack.code.emit(ir.Assign(self.pack.sum.name, number(int32, 0, pack.lanes)))
        pack.taps(root, tap)
        pack.column_sums(j, mask)
