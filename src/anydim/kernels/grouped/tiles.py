"""Products in tiles: a group makes a tile of sums, its factors pass through local memory.

    C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n],  y = f(C, ...)

A and B are any expressions: m are the axes that only A has, n those that only B has, batch those
of both, k what is summed over. So a convolution is a product whose A reads windows, 0 outside of
the image. Edges are guarded, sums are added in the order of k.
"""

from __future__ import annotations

from functools import lru_cache

from anydim.base.dtypes import DType, float32, float64, int32, int64
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.grouped.places import Work, own_place, plain
from anydim.kernels.inference import free_axes
from anydim.kernels.launch import Argument, Launch, Machine, moved_bytes
from anydim.kernels.product.epilogue import PRODUCT, Output, epilogue_of
from anydim.kernels.schedule import print_schedule, register
from anydim.kernels.template import Template
from anydim.kernels.write.arithmetic import compare, constant, plus, quotient, times
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.values import number, operate
from anydim.lang.tree import Apply, Axis, Expr, Group, Read, Statement, TensorType
from anydim.sizes import Box, Size, as_size, ceil_div, product

_DTYPES = (float32, float64, int32, int64)
_START, _ITEM = ir.Var(ir.INDEX, "start"), ir.Item()


@dataclass(frozen=True)
class Tiles:
    """A group makes `rows` x `columns` sums, an item `item_rows` x `item_columns` of them.

    `depth` steps of the sums are in local memory at a time.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 16
    item_rows: int = 4
    item_columns: int = 4

    @property
    def across(self) -> int:
        """Items beside each other in a row of the tile."""
        return self.columns // self.item_columns

    @property
    def items(self) -> int:
        return self.across * (self.rows // self.item_rows)


register("tiles", Tiles)


@dataclass(frozen=True)
class TilesForm:
    """The factors of a product, the axes by what has them, and what is made of the sums."""

    statement: Statement
    dtype: DType
    a: Expr
    b: Expr
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    outputs: tuple[Output, ...]

    @property
    def depth(self) -> tuple[Axis, ...]:
        return self.statement.reduced


@lru_cache(maxsize=512)
def tiles_form(group: Group) -> TilesForm | None:
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
    return TilesForm(statement, dtype, a, b, batch, rows, columns, outputs)


def match(group: Group, box: Box, machine: Machine, constants: frozenset[str]) -> Tiles | None:
    """A schedule for a product with what follows it; None for other groups."""
    return None if tiles_form(group) is None else Tiles()


def lower(
    group: Group, schedule: Tiles, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a matched group."""
    form = tiles_form(group)
    if form is None:
        raise InternalError("a group that is no product reached its lowering")
    writer = _Writer(group, form, schedule, machine)
    body = writer.body()
    work = writer.work
    locals = (
        ir.Local("left", form.dtype, schedule.rows * schedule.depth),
        ir.Local("right", form.dtype, schedule.columns * schedule.depth),
    )
    return Launch(
        kernel=work.kernel("tiles", body, schedule.items, locals),
        arguments=tuple(Argument(tensor.name) for tensor in work.tensors),
        sizes=work.sizes.sizes,
        parallel=writer.batches * writer.tiles_down * writer.tiles_across,
        grain=1,
        scratch=as_size(0),
        flops=2 * writer.batches * writer.rows * writer.columns * writer.depth,
        moved=moved_bytes(group),
        schedule=print_schedule(schedule),
        reason="a product in tiles of local memory, a group for each",
    )


TEMPLATE = Template("tiles", Tiles, match, lower)


class _Writer:
    """Writes the body of one kernel."""

    def __init__(self, group: Group, form: TilesForm, schedule: Tiles, machine: Machine) -> None:
        self.form, self.schedule = form, schedule
        self.work = Work(group, machine, {PRODUCT: TensorType(form.dtype, ())})
        self.rows, self.columns, self.depth, self.batches = (
            product(axis.extent for axis in axes)
            for axes in (form.rows, form.columns, form.depth, form.batch)
        )
        self.tiles_down = ceil_div(self.rows, schedule.rows)
        self.tiles_across = ceil_div(self.columns, schedule.columns)

    def body(self) -> list[ir.Step]:
        """The steps of an item."""
        steps: list[ir.Step] = []
        work, schedule, value = self.work, self.schedule, self.work.sizes.value
        across, down = value(self.tiles_across), value(self.tiles_down)
        rest = work.let(quotient(_START, across), steps)
        tile = work.let(ir.Op(ir.INDEX, "fmod", (_START, across)), steps)
        self.column0 = work.let(times(tile, schedule.columns), steps)
        tile = work.let(ir.Op(ir.INDEX, "fmod", (rest, down)), steps)
        self.row0 = work.let(times(tile, schedule.rows), steps)
        batch = work.let(quotient(rest, down), steps)
        self.item_row = work.let(
            times(quotient(_ITEM, schedule.across), schedule.item_rows), steps
        )  # fmt: skip
        self.item_column = work.let(ir.Op(
            ir.INDEX, "fmod", (_ITEM, constant(schedule.across))
        ), steps)  # fmt: skip
        outside = Elements(work.context)
        scope = outside.inner(work.indices(batch, self.form.batch, steps))
        inside = [*self._sums(scope), *self._finish(scope)]
        return [*outside.steps, *steps, *scope.steps, *inside]

    # ---- sums ----------------------------------------------------------------------------------

    def _sums(self, scope: Elements) -> list[ir.Step]:
        form, schedule = self.form, self.schedule
        zero = number(form.dtype, 0)
        steps: list[ir.Step] = [
            ir.Declare(self._sum(i, j), zero)
            for i in range(schedule.item_rows) for j in range(schedule.item_columns)
        ]  # fmt: skip
        barrier = ir.Barrier()
        a = self._fill(scope, "left", form.a, form.rows, self.row0, self.rows, schedule.rows)
        b = self._fill(
            scope, "right", form.b, form.columns, self.column0, self.columns, schedule.columns
        )  # fmt: skip
        depth = self.work.sizes.value(self.depth)
        body = (a, b, barrier, self._multiply(), ir.Barrier())
        steps.append(ir.For("k0", constant(0), depth, constant(schedule.depth), body))
        return steps

    def _fill(
        self, scope: Elements, target: str, factor: Expr, axes: tuple[Axis, ...], first: ir.Value,
        extent: Size, width: int,
    ) -> ir.For:  # fmt: skip
        """All items bring a part of a factor into local memory; 0 behind its ends."""
        work, schedule = self.work, self.schedule
        steps: list[ir.Step] = []
        at = ir.Var(ir.INDEX, f"{target}_at")
        if target == "left":  # what neighbours read lies side by side, as a rule
            one = work.let(quotient(at, schedule.depth), steps)
            k = work.let(ir.Op(ir.INDEX, "fmod", (at, constant(schedule.depth))), steps)
        else:
            k = work.let(quotient(at, width), steps)
            one = work.let(ir.Op(ir.INDEX, "fmod", (at, constant(width))), steps)
        place = plus(times(k, width), one)
        row = work.let(plus(first, one), steps)
        depth = work.let(plus(ir.Var(ir.INDEX, "k0"), k), steps)
        value = work.sizes.value
        fine = operate(
            "and", compare("less", row, value(extent)), compare("less", depth, value(self.depth))
        )
        then: list[ir.Step] = []
        indices = work.indices(row, axes, then) | work.indices(depth, self.form.depth, then)
        inner = scope.inner(indices)
        found = inner.value(factor, self.form.dtype)
        then += [*inner.steps, ir.Store(target, place, found)]
        zero = ir.Store(target, place, number(self.form.dtype, 0))
        steps.append(ir.If(fine, tuple(then), (zero,)))
        count = constant(width * schedule.depth)
        return ir.For(at.name, _ITEM, count, constant(schedule.items), tuple(steps))

    def _multiply(self) -> ir.For:
        """The sums of an item by one block of both factors."""
        schedule, kind = self.schedule, ir.Type(self.form.dtype)
        k = ir.Var(ir.INDEX, "k")
        left = plus(times(k, schedule.rows), self.item_row)
        right = plus(times(k, schedule.columns), self.item_column)
        steps: list[ir.Step] = [
            ir.Let(f"a{i}", ir.Load(kind, "left", plus(left, i)))
            for i in range(schedule.item_rows)
        ]  # fmt: skip
        steps += [
            ir.Let(f"b{j}", ir.Load(kind, "right", plus(right, j * schedule.across)))
            for j in range(schedule.item_columns)
        ]
        for i in range(schedule.item_rows):
            for j in range(schedule.item_columns):
                name = self._sum(i, j)
                a, b = ir.Var(kind, f"a{i}"), ir.Var(kind, f"b{j}")
                steps.append(ir.Assign(name, operate("fma", a, b, ir.Get(kind, name))))
        return ir.For("k", constant(0), constant(schedule.depth), constant(1), tuple(steps))

    @staticmethod
    def _sum(i: int, j: int) -> str:
        return f"sum{i}_{j}"

    # ---- what follows --------------------------------------------------------------------------

    def _finish(self, scope: Elements) -> list[ir.Step]:
        """The results of an item, where they are inside."""
        made: list[ir.Step] = []
        value, work = self.work.sizes.value, self.work
        for i in range(self.schedule.item_rows):
            steps: list[ir.Step] = []
            row = work.let(plus(self.row0, self.item_row, i), made)
            rows = work.indices(row, self.form.rows, steps)
            for j in range(self.schedule.item_columns):
                away = j * self.schedule.across
                column = work.let(plus(self.column0, self.item_column, away), steps)
                then = tuple(self._stores(scope, rows, column, self._sum(i, j)))
                steps.append(ir.If(compare("less", column, value(self.columns)), then))
            made.append(ir.If(compare("less", row, value(self.rows)), tuple(steps)))
        return made

    def _stores(
        self, scope: Elements, rows: dict[str, ir.Value], column: ir.Value, name: str
    ) -> list[ir.Step]:
        steps: list[ir.Step] = []
        total = self.work.let(ir.Get(ir.Type(self.form.dtype), name), steps)
        columns = self.work.indices(column, self.form.columns, steps)

        def done(read: Read) -> ir.Value | None:
            return total if read.tensor == PRODUCT else None

        inner = scope.inner(
            {**rows, **columns}, local=done, answers=frozenset((PRODUCT,))
        )  # fmt: skip
        types, statement = self.work.types, self.form.statement
        values = [
            (o.tensor, inner.value(o.value, types[o.tensor].dtype)) for o in self.form.outputs
        ]
        place = inner.offset(own_place(statement.axes, statement.shape))
        stores = [ir.Store(self.work.buffers[name], place, value) for name, value in values]
        return [*steps, *inner.steps, *stores]
