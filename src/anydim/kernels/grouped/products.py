"""What products by groups have in common: their form, tiles, factors on their way, results.

    C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n],  y = f(C, ...)

A and B are any expressions: m are the axes that only A has, n those that only B has, batch those
of both, k what is summed over. So a convolution is a product whose A reads windows, 0 outside of
the image. A group makes a tile of m x n; parts of A and B pass through local memory, zeros behind
their ends. Where a factor is a conversion from 16 bits, these are what passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from anydim.base.dtypes import DType, bfloat16, float16, float32, float64, int32, int64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.grouped.places import Work, own_place, plain
from anydim.kernels.inference import dtype_of, free_axes
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.product.epilogue import PRODUCT, Output, epilogue_of
from anydim.kernels.schedule import print_schedule
from anydim.kernels.write.arithmetic import compare, constant, plus, quotient, times
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.values import number, operate
from anydim.lang.tree import Apply, Axis, Cast, Expr, Group, Read, Statement, TensorType
from anydim.lang.tree.affine import address, reads
from anydim.sizes import Size, ceil_div, product

_DTYPES = (float32, float64, int32, int64)
_NARROW = (float16, bfloat16)
_START, _ITEM = ir.Var(ir.INDEX, "start"), ir.Item()


@dataclass(frozen=True)
class Factor:
    """A factor: its value before any conversion to the type of the sums, and its own axes.

    `along_depth`: neighbours in memory are steps of the sum.
    """

    value: Expr
    dtype: DType
    axes: tuple[Axis, ...]
    along_depth: bool


@dataclass(frozen=True)
class ProductForm:
    """The factors of a product, the axes by what has them, and what is made of the sums."""

    statement: Statement
    dtype: DType
    a: Factor
    b: Factor
    batch: tuple[Axis, ...]
    outputs: tuple[Output, ...]

    @property
    def depth(self) -> tuple[Axis, ...]:
        return self.statement.reduced


class Tiled(Protocol):
    """A schedule: a group of `items` makes `rows` x `columns` sums, `depth` steps at a time."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def items(self) -> int: ...


@lru_cache(maxsize=512)
def product_form(group: Group) -> ProductForm | None:
    """The group as a product; None where it is none."""
    sums = [s for s in group.statements if s.combine]
    if len(sums) != 1 or sums[0].combine != "add" or not plain(group):
        return None
    (statement,) = sums
    body, dtype = statement.body, group.type_of(statement.target).dtype
    if not (isinstance(body, Apply) and body.function == "mul") or dtype not in _DTYPES:
        return None
    outputs = epilogue_of(group, statement)
    if outputs is None:
        return None
    a, b = body.arguments
    in_a, in_b = free_axes(a), free_axes(b)
    axes = [axis for axis in statement.axes if axis.extent.constant != 1]
    if axes and axes[-1].name in in_a - in_b:
        a, b, in_a, in_b = b, a, in_b, in_a
    rows = tuple(axis for axis in axes if axis.name in in_a - in_b)
    columns = tuple(axis for axis in axes if axis.name in in_b - in_a)
    batch = tuple(axis for axis in statement.axes if axis not in rows and axis not in columns)
    if not columns or not statement.reduced:
        return None
    left = _factor(a, dtype, rows, statement.reduced, group)
    right = _factor(b, dtype, columns, statement.reduced, group)
    return ProductForm(statement, dtype, left, right, batch, outputs)


def _factor(
    value: Expr, dtype: DType, axes: tuple[Axis, ...], depth: tuple[Axis, ...], group: Group
) -> Factor:
    """A factor of a product with sums of `dtype`."""
    types = {tensor.name: tensor.type for tensor in group.inputs}
    inner = value.argument if isinstance(value, Cast) else value
    held = dtype_of(inner, types)
    if inner is not value and held in _NARROW:
        value, dtype = inner, held
    found = reads(value)
    form = address(found[-1], types[found[-1].tensor].shape) if found else None
    along = form is None or form.stride(depth[-1].name).constant == 1
    return Factor(value, dtype, axes, along and bool(axes))


@dataclass(frozen=True)
class Side:
    """Where a part of a factor lies in local memory: `width` of its own places, `depth` steps.

    `along_depth` says which of them lie side by side; the next ones begin `stride` elements on.
    """

    name: str
    factor: Factor
    first: ir.Value
    extent: Size
    width: int
    depth: int
    along_depth: bool
    stride: int

    @property
    def local(self) -> ir.Local:
        rows = self.width if self.along_depth else self.depth
        return ir.Local(self.name, self.factor.dtype, rows * self.stride)

    def place(self, own: ir.Value, step: ir.Value) -> ir.Value:
        """Where the element of a place and a step lies."""
        outer, inner = (own, step) if self.along_depth else (step, own)
        return plus(times(outer, self.stride), inner)


class ProductWriter:
    """Writes the body of one kernel, around what `schedule` does with parts of both factors."""

    def __init__(self, group: Group, form: ProductForm, schedule: Tiled, machine: Machine) -> None:
        self.form, self.tile = form, schedule
        self.work = Work(group, machine, {PRODUCT: TensorType(form.dtype, ())})
        self.rows, self.columns, self.depth, self.batches = (
            product(axis.extent for axis in axes)
            for axes in (form.a.axes, form.b.axes, form.depth, form.batch)
        )
        self.tiles_down = ceil_div(self.rows, schedule.rows)
        self.tiles_across = ceil_div(self.columns, schedule.columns)
        self.begin: list[ir.Step] = []  # of all, after what is outside of every loop
        self.outside = Elements(self.work.context)
        work, value = self.work, self.work.sizes.value
        across, down = value(self.tiles_across), value(self.tiles_down)
        rest = work.let(quotient(_START, across), self.begin)
        tile = work.let(ir.Op(ir.INDEX, "fmod", (_START, across)), self.begin)
        self.column0 = work.let(times(tile, schedule.columns), self.begin)
        tile = work.let(ir.Op(ir.INDEX, "fmod", (rest, down)), self.begin)
        self.row0 = work.let(times(tile, schedule.rows), self.begin)
        batch = work.let(quotient(rest, down), self.begin)
        self.scope = self.outside.inner(work.indices(batch, form.batch, self.begin))

    def whole(self, steps: Sequence[ir.Step]) -> list[ir.Step]:
        """All steps of an item, around those of its tile."""
        return [*self.outside.steps, *self.begin, *self.scope.steps, *steps]

    def sides(self, stride: Callable[[bool, int], int], own: bool = True) -> tuple[Side, Side]:
        """Both factors in local memory; `stride` is told whether steps lie side by side, and how
        many elements do. Without `own` places do, whatever lies side by side in the tensors."""
        form, tile = self.form, self.tile
        made = []
        for name, factor, first, extent, width in (
            ("left", form.a, self.row0, self.rows, tile.rows),
            ("right", form.b, self.column0, self.columns, tile.columns),
        ):
            along = own and factor.along_depth
            pitch = stride(along, tile.depth if along else width)
            made.append(Side(name, factor, first, extent, width, tile.depth, along, pitch))
        return made[0], made[1]

    def launch(
        self, name: str, body: Sequence[ir.Step], sides: Sequence[Side], reason: str
    ) -> Launch:
        """The launch of the kernel with that body."""
        return self.work.launch(
            name, body, self.tile.items, [side.local for side in sides],
            parallel=self.batches * self.tiles_down * self.tiles_across,
            flops=2 * self.batches * self.rows * self.columns * self.depth,
            schedule=print_schedule(self.tile), reason=reason,
        )  # fmt: skip

    # ---- factors -------------------------------------------------------------------------------

    def fill(self, side: Side, k0: ir.Value) -> ir.For:
        """All items bring a part of a factor into local memory; 0 behind its ends."""
        work, tile, factor = self.work, self.tile, side.factor
        steps: list[ir.Step] = []
        at = ir.Var(ir.INDEX, f"{side.name}_at")
        inner = tile.depth if factor.along_depth else side.width  # neighbours read neighbours
        one = work.let(quotient(at, inner), steps)
        other = work.let(ir.Op(ir.INDEX, "fmod", (at, constant(inner))), steps)
        own, k = (one, other) if factor.along_depth else (other, one)
        place = side.place(own, k)
        row = work.let(plus(side.first, own), steps)
        depth = work.let(plus(k0, k), steps)
        value = work.sizes.value
        fine = operate(
            "and", compare("less", row, value(side.extent)),
            compare("less", depth, value(self.depth)),
        )  # fmt: skip
        then: list[ir.Step] = []
        indices = work.indices(row, factor.axes, then) | work.indices(depth, self.form.depth, then)
        scope = self.scope.inner(indices)
        found = scope.value(factor.value, factor.dtype)
        then += [*scope.steps, ir.Store(side.name, place, found)]
        zero = ir.Store(side.name, place, number(factor.dtype, 0))
        steps.append(ir.If(fine, tuple(then), (zero,)))
        count = constant(side.width * tile.depth)
        return ir.For(at.name, _ITEM, count, constant(tile.items), tuple(steps))

    # ---- what follows --------------------------------------------------------------------------

    def inside_row(
        self, row: ir.Value, body: Callable[[dict[str, ir.Value]], list[ir.Step]]
    ) -> ir.If:
        """What is done for a row of sums, if there is one."""
        steps: list[ir.Step] = []
        rows = self.work.indices(row, self.form.a.axes, steps)
        steps += body(rows)
        return ir.If(compare("less", row, self.work.sizes.value(self.rows)), tuple(steps))

    def stored(self, rows: dict[str, ir.Value], column: ir.Value, total: ir.Value) -> ir.If:
        """The results of a sum, if there is such a column."""
        steps: list[ir.Step] = []
        total = self.work.let(total, steps)
        columns = self.work.indices(column, self.form.b.axes, steps)

        def done(read: Read) -> ir.Value | None:
            return total if read.tensor == PRODUCT else None

        inner = self.scope.inner({**rows, **columns}, local=done, answers=frozenset((PRODUCT,)))
        types, statement = self.work.types, self.form.statement
        values = [
            (o.tensor, inner.value(o.value, types[o.tensor].dtype)) for o in self.form.outputs
        ]
        place = inner.offset(own_place(statement.axes, statement.shape))
        stores = [ir.Store(self.work.buffers[name], place, value) for name, value in values]
        inside = compare("less", column, self.work.sizes.value(self.columns))
        return ir.If(inside, (*steps, *inner.steps, *stores))
