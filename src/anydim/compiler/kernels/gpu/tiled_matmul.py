"""Products in tiles by multiply-adds, in the order of k (`gpu_matmul.py`)."""

from __future__ import annotations

from itertools import product

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient
from anydim.compiler.kernels.gpu.gpu_matmul import ProductForm, ProductWriter, Tiled, product_form
from anydim.compiler.kernels.gpu.group_indices import remainder
from anydim.compiler.kernels.gpu.shared_memory_copies import LocalLayout
from anydim.compiler.kernels.ir import convert, fma
from anydim.compiler.kernels.launch import Launch, Machine
from anydim.compiler.kernels.template import Task, form_template
from anydim.lang.tree import Group

_ITEM = ir.Item()


@dataclass(frozen=True)
class Tiles(Tiled):
    """Each work-item computes sums of its own."""


def _lower(form: ProductForm, schedule: Tiles, task: Task) -> Launch:
    writer = _Writer(task.group, form, schedule, task.machine)
    layouts = writer.layouts(lambda along, count: count, own=False)
    body = writer.body(*layouts)
    return writer.launch(
        "tiles", body, layouts, "a product in tiles of local memory, one work-group each"
    )


TEMPLATE = form_template(
    "tiles", Tiles, lambda task: product_form(task.group), lambda *_: Tiles(), _lower, widens=True
)


class _Writer(ProductWriter):
    """Writes the body of one kernel."""

    def __init__(self, group: Group, form: ProductForm, schedule: Tiles, machine: Machine) -> None:
        super().__init__(group, form, schedule, machine)
        self.down, self.across = range(schedule.part_rows), range(schedule.part_columns)
        self.sums = tuple(self._sum(i, j) for i in self.down for j in self.across)
        self.schedule = schedule
        self.item_row = self.work.let(quotient(_ITEM, schedule.across) * schedule.part_rows)
        self.item_column = self.work.let(remainder(_ITEM, schedule.across))

    def multiply(self, left: LocalLayout, right: LocalLayout, part: ir.Value | int) -> None:
        work, kind = self.work, ir.Type(self.form.dtype)

        def factor(name: str, layout: LocalLayout, own: ir.Value) -> ir.Value:
            load = ir.Load(ir.Type(layout.factor.dtype), layout.name, layout.offset(own, k, part))
            return work.let(convert(load, self.form.dtype), name)

        with work.range(0, self.schedule.depth, name="k") as k:
            rows = [factor(f"a{i}", left, self.item_row + i) for i in self.down]
            columns = [factor(f"b{j}", right, self._column(j)) for j in self.across]
            for name, (a, b) in zip(self.sums, product(rows, columns)):
                work.emit(ir.Assign(name, fma(a, b, ir.Get(kind, name))))

    def _column(self, j: int) -> ir.Value:
        """Return a column of the tile: adjacent work-items have adjacent columns."""
        return self.item_column + j * self.schedule.across

    @staticmethod
    def _sum(i: int, j: int) -> str:
        return f"sum{i}_{j}"

    def finish(self) -> None:
        kind = ir.Type(self.form.dtype)
        for i in self.down:
            with self.inside_row(self.work.let(self.row0 + self.item_row + i)) as rows:
                for j in self.across:
                    column = self.work.let(self.column0 + self._column(j))
                    self.store(rows, column, ir.Get(kind, self._sum(i, j)))
