"""Products by warps with matrix fragments, as tensor cores compute them (`gpu_matmul.py`).

Factors have 16 bits, or are float32 that may be rounded to tf32; sums are float32. The tile of a
work-group is divided among its warps, whose threads hold fragments in registers.
"""

from __future__ import annotations

from itertools import product

from anydim.base.dtypes import float32, uint16, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient
from anydim.compiler.kernels.gpu.gpu_matmul import ProductForm, ProductWriter, Tiled, product_form
from anydim.compiler.kernels.gpu.group_indices import remainder
from anydim.compiler.kernels.gpu.shared_memory_copies import RIGHT, LocalLayout
from anydim.compiler.kernels.launch import TF32, Launch, Machine
from anydim.compiler.kernels.mma_fragments import (
    COLUMNS,
    FRAGMENT_LAYOUTS,
    ROWS,
    SUMS,
    WARP,
    FragmentIndex,
)
from anydim.compiler.kernels.template import Task, form_template
from anydim.lang.tree import Group

_ITEM = ir.Item()
_BANKS = 16  # bytes of four banks of local memory; a warp reads all 32 banks, each at one address


@dataclass(frozen=True)
class Fragments(Tiled):
    """The threads of a warp compute sums together."""

    depth: int = 32
    part_rows: int = 32
    part_columns: int = 32
    together = WARP


def _form(task: Task) -> ProductForm | None:
    """Return a product whose fragments a machine can multiply, or None."""
    form, machine = product_form(task.group), task.machine
    if form is None or form.dtype != float32 or form.a.dtype != form.b.dtype:
        return None
    supported = (
        machine.tf32
        if form.a.dtype == float32
        else machine.warps and form.a.dtype in FRAGMENT_LAYOUTS
    )
    return form if supported else None


def _lower(form: ProductForm, schedule: Fragments, task: Task) -> Launch:
    writer = _Writer(task.group, form, schedule, task.machine)
    layouts = writer.layouts(writer.stride)
    body = writer.body(*layouts)
    name = TF32 if form.a.dtype == float32 else form.a.dtype.name
    return writer.launch(
        "fragments", body, layouts, f"a product by warps that multiply fragments of {name}"
    )


TEMPLATE = form_template("fragments", Fragments, _form, lambda *_: Fragments(), _lower, widens=True)


class _Writer(ProductWriter):
    """Writes the body of one kernel."""

    def __init__(
        self, group: Group, form: ProductForm, schedule: Fragments, machine: Machine
    ) -> None:
        super().__init__(group, form, schedule, machine)
        self.schedule, self.factors = schedule, form.a.dtype
        self.shares = FRAGMENT_LAYOUTS[self.factors]
        self.tiles = [
            (i, j)
            for i in range(schedule.part_rows // ROWS)
            for j in range(schedule.part_columns // COLUMNS)
        ]
        self.sums = tuple(name for tile in self.tiles for name in self._sums(*tile))
        let = self.work.let
        warp = let(quotient(_ITEM, WARP))
        down, across = quotient(warp, schedule.across), remainder(warp, schedule.across)
        self.warp_row = let(down * schedule.part_rows)
        self.warp_column = let(across * schedule.part_columns)
        lane = let(remainder(_ITEM, WARP))
        self.lane = let(quotient(lane, 4)), let(remainder(lane, 4))

    def stride(self, along_depth: bool, count: int) -> int:
        """Return the row stride in elements, padded so that a warp's reads have no bank conflicts.

        The elements of a warp's threads are at (g, t) or (t, g) of 8 x 4.
        """
        return count + (_BANKS // self.factors.bytes if along_depth else 8)

    # ---- fragments -----------------------------------------------------------------------------

    def multiply(self, left: LocalLayout, right: LocalLayout, part: ir.Value | int) -> None:
        with self.work.range(0, self.schedule.depth, self.shares.depth, "k") as k:
            a = {
                i: [self._fragment(left, self.warp_row, i * ROWS, element, k, part)
                    for element in self.shares.left]
                for i in sorted({i for i, _ in self.tiles})
            }  # fmt: skip
            b = {
                j: [self._fragment(right, self.warp_column, j * COLUMNS, element, k, part)
                    for element in self.shares.right]
                for j in sorted({j for _, j in self.tiles})
            }  # fmt: skip
            for i, j in self.tiles:
                sums = self._sums(i, j)
                self.work.emit(ir.Fragments(self.factors, sums, tuple(a[i]), tuple(b[j])))

    def _fragment(
        self, layout: LocalLayout, first: ir.Value, more: int, element: FragmentIndex, k: ir.Value,
        part: ir.Value | int,
    ) -> ir.Value:  # fmt: skip
        """Return a thread's part of a fragment; columns are the right factor's own indices."""
        own, step = self._at(element, swapped=layout.name == RIGHT)
        own, step = first + own + more, k + step
        let = self.work.let
        if self.factors == float32:
            return let(ir.Load(ir.Type(float32), layout.name, layout.offset(own, step, part)))
        if layout.along_depth:  # two adjacent elements are one 32-bit word, at half the offset
            at = quotient(layout.offset(own, step, part), 2)
            return let(ir.Load(ir.Type(uint32), layout.name, at))
        low, high = (
            ir.Convert(ir.Type(uint32), ir.Load(
                ir.Type(uint16), layout.name, layout.offset(own, step + n, part)
            ))
            for n in (0, 1)
        )  # fmt: skip
        kind = ir.Type(uint32)
        moved = ir.Op(kind, "shift_left", (high, ir.Const(kind, 16)))
        return let(ir.Op(kind, "bit_or", (low, moved)))

    def _at(self, element: FragmentIndex, swapped: bool = False) -> tuple[ir.Value, ir.Value]:
        """Return the row and the column of a value of this thread; exchanged if `swapped`."""
        zero, by_g, by_t = element(0, 0), element(1, 0), element(0, 1)
        made = [
            self.lane[0] * (g - more) + self.lane[1] * (t - more) + more
            for more, g, t in zip(zero, by_g, by_t)
        ]
        return (made[1], made[0]) if swapped else (made[0], made[1])

    @staticmethod
    def _sums(i: int, j: int) -> tuple[str, ...]:
        return tuple(f"sum{i}_{j}_{n}" for n in range(len(SUMS)))

    # ---- epilogue ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Store the results row by row of the fragments."""
        elements = [self._at(element) for element in SUMS]
        down = range(self.schedule.part_rows // ROWS)
        for i, own in product(down, dict.fromkeys(own for own, _ in elements)):
            with self.inside_row(self.work.let(self.row0 + self.warp_row + own + i * ROWS)) as rows:
                for j in range(self.schedule.part_columns // COLUMNS):
                    for name, (row, column) in zip(self._sums(i, j), elements):
                        if row == own:
                            first = self.column0 + self.warp_column + column + j * COLUMNS
                            self.store(rows, self.work.let(first), ir.Get(ir.Type(float32), name))
