"""Products in tiles, multiplied and added up one by one, in the order of k (`products.py`)."""

from __future__ import annotations

from functools import partial

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.grouped.copies import Side
from anydim.kernels.grouped.places import rest
from anydim.kernels.grouped.products import ProductForm, ProductWriter, product_form
from anydim.kernels.ir import constant, convert, fma, number
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.template import Task, form_template
from anydim.kernels.write.arithmetic import quotient
from anydim.lang.tree import Group

_ITEM = ir.Item()


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


def _lower(form: ProductForm, schedule: Tiles, task: Task) -> Launch:
    writer = _Writer(task.group, form, schedule, task.machine)
    sides = writer.sides(lambda along, count: count, own=False)
    body = writer.body(*sides)
    return writer.launch(
        "tiles", body, sides, "a product in tiles of local memory, a group for each"
    )


TEMPLATE = form_template(
    "tiles", Tiles, lambda task: product_form(task.group), lambda *_: Tiles(), _lower, widens=True
)


class _Writer(ProductWriter):
    """Writes the body of one kernel."""

    def __init__(self, group: Group, form: ProductForm, schedule: Tiles, machine: Machine) -> None:
        super().__init__(group, form, schedule, machine)
        self.schedule = schedule
        self.item_row = self.work.let(
            quotient(_ITEM, schedule.across) * schedule.item_rows, self.begin
        )
        self.item_column = self.work.let(rest(_ITEM, schedule.across), self.begin)

    def body(self, left: Side, right: Side) -> list[ir.Step]:
        """The steps of an item."""
        schedule, zero = self.schedule, number(self.form.dtype, 0)
        steps: list[ir.Step] = [
            ir.Declare(self._sum(i, j), zero)
            for i in range(schedule.item_rows) for j in range(schedule.item_columns)
        ]  # fmt: skip
        steps += self.blocks(left, right, partial(self._multiply, left, right))
        return self.whole([*steps, *self._finish()])

    def _multiply(self, left: Side, right: Side, part: ir.Value | int) -> ir.For:
        """The sums of an item by one block of both factors."""
        schedule, kind = self.schedule, ir.Type(self.form.dtype)
        k = ir.Var(ir.INDEX, "k")
        steps = [
            *(self._factor(f"a{i}", left, self.item_row + i, k, part)
              for i in range(schedule.item_rows)),
            *(self._factor(f"b{j}", right, self._column(j), k, part)
              for j in range(schedule.item_columns)),
        ]  # fmt: skip
        for i in range(schedule.item_rows):
            for j in range(schedule.item_columns):
                name = self._sum(i, j)
                a, b = ir.Var(kind, f"a{i}"), ir.Var(kind, f"b{j}")
                steps.append(ir.Assign(name, fma(a, b, ir.Get(kind, name))))
        return ir.For("k", constant(0), constant(schedule.depth), constant(1), tuple(steps))

    def _factor(
        self, name: str, side: Side, own: ir.Value, k: ir.Value, part: ir.Value | int
    ) -> ir.Step:
        held = ir.Load(ir.Type(side.factor.dtype), side.name, side.place(own, k, part))
        return ir.Let(name, convert(held, self.form.dtype))

    def _column(self, j: int) -> ir.Value:
        """Of the tile: items beside each other have columns beside each other."""
        return self.item_column + j * self.schedule.across

    @staticmethod
    def _sum(i: int, j: int) -> str:
        return f"sum{i}_{j}"

    def _finish(self) -> list[ir.Step]:
        """The results of an item, where they are inside."""
        made: list[ir.Step] = []
        kind = ir.Type(self.form.dtype)

        def columns(i: int, rows: dict[str, ir.Value]) -> list[ir.Step]:
            steps: list[ir.Step] = []
            for j in range(self.schedule.item_columns):
                column = self.work.let(self.column0 + self._column(j), steps)
                steps.append(self.stored(rows, column, ir.Get(kind, self._sum(i, j))))
            return steps

        for i in range(self.schedule.item_rows):
            row = self.work.let(self.row0 + self.item_row + i, made)
            made.append(self.inside_row(row, partial(columns, i)))
        return made
