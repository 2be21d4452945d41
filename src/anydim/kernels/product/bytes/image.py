"""What windows of a product of bytes overlap in is brought into words once, as an image.

    image   [word][place][place]...     a word of four bytes along k for every place, as int32

Places are those that windows come to, padding and all, so that columns and taps are steps of
known lengths from one to another. A panel is copied from there: as whole vectors, or gathered where
neighbours among the columns are none among the places, as at the ends of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.base.dtypes import int32, int64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.inference import free_axes
from anydim.kernels.product.bytes.form import BytesForm
from anydim.kernels.product.bytes.layout import WORD
from anydim.kernels.product.bytes.packing import BytesPack
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    loop,
    minus,
    plus,
    quotient,
    quotient_up,
    register,
    times,
    variable,
)
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.values import number, operate, splat
from anydim.lang.tree import Expr, Read
from anydim.lang.tree.affine import Affine, affine, row_major_strides, to_expr
from anydim.sizes import Size, as_size, ceil_div, maximum, product

_REUSED = 2  # a place is in so many windows at least


@dataclass(frozen=True)
class Image:
    """The read of b over k and places, the extents of these, and where windows lie among them.

    `steps` are the int32s from one column or tap to the next, `start` those before the first.
    """

    read: Read
    extents: tuple[Size, ...]
    steps: Affine
    words: Size

    @property
    def plane(self) -> Size:
        """Places of a word."""
        return product(self.extents)

    @property
    def bytes(self) -> Size:
        return self.words * self.plane * WORD


def place(number: int) -> str:
    """The name of an axis of the image."""
    return f"place{number}"


def columns_of(form: BytesForm) -> tuple[tuple[str, Size], ...]:
    """The columns as b is read by them."""
    return form.columns or ((form.n.name, form.n.extent),)


def image_of(form: BytesForm, is_packed: bool) -> Image | None:
    """The image of b; None where it came packed, or its windows are not such, or overlap little."""
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
        indices.append(to_expr(Affine.of(low, {place(len(lines)): as_size(1)})))
        lines.append(Affine(line.constant - low, line.terms))
        extents.append(reach)
    if not _overlaps(form, [name for name, _ in columns], lines):
        return None
    steps = Affine(as_size(0))
    for line, stride in zip(lines, row_major_strides(tuple(extents))):
        steps = steps + line.scaled(stride)
    moved = Read(read.tensor, tuple(indices), default=read.default)
    return Image(moved, tuple(extents), steps, ceil_div(form.k, WORD))


def _overlaps(form: BytesForm, columns: Sequence[str], lines: Sequence[Affine]) -> bool:
    """Whether most places are in several windows."""
    apart = product(line.stride(name) for line in lines for name in columns if name in line.indices)
    taps, stride = form.tap_count.constant, apart.constant
    return taps is None or (stride is not None and taps >= _REUSED * abs(stride))


@dataclass(frozen=True)
class ImagePack:
    """Writes the functions that make the image and bring panels from there."""

    pack: BytesPack
    image: Image

    def fill(self) -> ir.Function:
        """The image, at dst."""
        pack = self.pack
        root = pack.root()
        k = pack.sizes.value(pack.form.k)
        whole = quotient(k, WORD)
        main = loop("g", 0, whole, 1, *self._plane(root, variable("g"), WORD))
        rest = pack.rest(k, lambda left: self._plane(root, whole, left))
        return pack.function("image", (*root.steps, main, *rest))

    def _plane(self, root: Elements, group: ir.Value, bytes_: int) -> list[ir.Step]:
        """A word of every place."""
        pack, image = self.pack, self.image
        strides = row_major_strides(image.extents)
        last = len(image.extents) - 1

        def nest(level: Elements, depth: int, at: ir.Value) -> list[ir.Step]:
            name, extent = place(depth), pack.sizes.value(image.extents[depth])
            if depth == last:
                return pack.along(level, name, extent, lambda lane, here, mask: [
                    *(made := pack.word(lane, image.read, group, bytes_))[0],
                    ir.Store("dst", plus(at, here), made[1], mask),
                ])  # fmt: skip
            inner = level.inner({name: variable(name)})
            step = times(variable(name), pack.sizes.value(strides[depth]))
            body = nest(inner, depth + 1, plus(at, step))
            return [loop(name, 0, extent, 1, *inner.steps, *body)]

        return nest(root, 0, times(group, pack.sizes.value(image.plane)))

    def panel(self) -> ir.Function:
        """The panel of columns `first` to `first + count`, from dst on."""
        pack = self.pack
        root, lanes = pack.root(), pack.lanes
        zero = number(int32, 0, lanes)
        places = ir.Load(ir.Type(int64, lanes), "places", variable("j"))
        copies = self._copy(root, self._gathered)
        if self.image.steps.stride(columns_of(pack.form)[-1][0]).constant == 1:
            first, last = (
                ir.Load(ir.INDEX, "runs", plus(variable("j"), i)) for i in (0, lanes - 1)
            )
            beside = compare("equal", minus(last, first), lanes - 1)
            copies = [ir.If(beside, tuple(self._copy(root, self._beside)), tuple(copies))]
        body = (
            ir.Stack("places", int64, pack.layout.width),
            ir.Stack("runs", int64, pack.layout.width),
            ir.Declare("sum", zero),
            *root.steps,
            *self._places(),
            loop(
                "j", 0, variable("count"), lanes,
                ir.Let("at", ir.Load(ir.INDEX, "places", variable("j"))),
                ir.Let("places_of", places), ir.Assign("sum", zero),
                *copies, *pack.column_sums(variable("j"), None),
            ),
        )  # fmt: skip
        made = pack.function("panel", body)
        pointers = (made.parameters[0], ir.Pointer("image", int32), *made.parameters[1:])
        return ir.Function(made.name, pointers, made.body)

    def _places(self) -> list[ir.Step]:
        """Where the window of each column begins, and its place in its run: places of a run follow
        one another. Those behind the last column are like it."""
        value, columns = self.pack.sizes.value, columns_of(self.pack.form)
        at: list[ir.Value] = [value(self.image.steps.constant)]
        starts: list[ir.Step] = []
        rest: ir.Value = variable("first")
        advance: list[ir.Step] = []
        for number_, (name, extent) in enumerate(reversed(columns)):
            index, step = f"at_{name}", self.image.steps.stride(name)
            above = quotient(rest, value(extent)) if number_ < len(columns) - 1 else constant(0)
            starts.append(ir.Declare(index, minus(rest, times(above, value(extent)))))
            at.append(times(register(index), value(step)))
            rest = above
        for name, extent in columns:  # the last one advances most often
            index, step = f"at_{name}", self.image.steps.stride(name)
            ended = compare("equal", register(index), value(extent))
            wrapped = [ir.If(ended, (
                ir.Assign(index, constant(0)),
                ir.Assign("place", minus(register("place"), value(extent * step))),
                *advance,
            ))] if advance else []  # fmt: skip
            advance = [
                ir.Assign(index, plus(register(index), 1)),
                ir.Assign("place", plus(register("place"), value(step))),
                *wrapped,
            ]
        whole = times(quotient_up(variable("count"), self.pack.lanes), self.pack.lanes)
        more = compare("less", plus(variable("column"), 1), variable("count"))
        return [
            *starts,
            ir.Declare("place", plus(*at)),
            loop(
                "column", 0, whole, 1,
                ir.Store("places", variable("column"), register("place")),
                ir.Store("runs", variable("column"), register(f"at_{columns[-1][0]}")),
                ir.If(more, tuple(advance)),
            ),
        ]  # fmt: skip

    def _beside(self, further: ir.Value) -> ir.Value:
        return ir.Load(ir.Type(int32, self.pack.lanes), "image", plus(variable("at"), further))

    def _gathered(self, further: ir.Value) -> ir.Value:
        kind = ir.Type(int64, self.pack.lanes)
        at = operate("add", ir.Var(kind, "places_of"), splat(further, kind.lanes))
        return ir.Gather(ir.Type(int32, kind.lanes), "image", at)

    def _copy(self, root: Elements, load: Callable[[ir.Value], ir.Value]) -> list[ir.Step]:
        """All words of the columns of a vector."""
        pack, image = self.pack, self.image
        value = pack.sizes.value
        words = value(image.words)

        def tap(_: Elements, number_: ir.Value) -> list[ir.Step]:
            taps = [
                times(variable(name), value(image.steps.stride(name))) for name, _ in pack.form.taps
            ]
            further = plus(*taps, times(variable("g"), value(image.plane)))
            row = plus(times(number_, words), variable("g"))
            return [loop("g", 0, words, 1, *pack.stored(load(further), row, variable("j"), None))]

        return pack.taps(root, tap)
