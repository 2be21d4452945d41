"""Products by warps that multiply fragments of matrices, as tensor cores do (`products.py`).

Factors are of 16 bits, or of float32 where these may be rounded to tf32; sums are of float32. A
group's tile is shared out among its warps, whose items have fragments in registers.
"""

from __future__ import annotations

from functools import partial

from anydim.base.dtypes import float32, uint16, uint32
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.fragments import COLUMNS, ROWS, SHARES, SUMS, WARP, Place
from anydim.kernels.grouped.copies import RIGHT, Side
from anydim.kernels.grouped.places import rest
from anydim.kernels.grouped.products import ProductForm, ProductWriter, product_form
from anydim.kernels.ir import constant, number
from anydim.kernels.launch import TF32, Launch, Machine
from anydim.kernels.template import Task, form_template
from anydim.kernels.write.arithmetic import quotient
from anydim.lang.tree import Group

_ITEM = ir.Item()
_BANKS = 16  # bytes, four banks of local memory; a warp reads all 32 at a time, each at one place


@dataclass(frozen=True)
class Fragments:
    """A group makes `rows` x `columns` sums, a warp `warp_rows` x `warp_columns` of them.

    `depth` steps of the sums are in local memory at a time.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 32
    warp_rows: int = 32
    warp_columns: int = 32

    @property
    def across(self) -> int:
        """Warps beside each other in a row of the tile."""
        return self.columns // self.warp_columns

    @property
    def items(self) -> int:
        return WARP * self.across * (self.rows // self.warp_rows)


def _form(task: Task) -> ProductForm | None:
    """A product whose fragments a machine multiplies."""
    form, machine = product_form(task.group), task.machine
    if form is None or form.dtype != float32 or form.a.dtype != form.b.dtype:
        return None
    fine = machine.tf32 if form.a.dtype == float32 else machine.warps and form.a.dtype in SHARES
    return form if fine else None


def _lower(form: ProductForm, schedule: Fragments, task: Task) -> Launch:
    writer = _Writer(task.group, form, schedule, task.machine)
    sides = writer.sides(writer.stride)
    body = writer.body(*sides)
    name = TF32 if form.a.dtype == float32 else form.a.dtype.name
    return writer.launch(
        "fragments", body, sides, f"a product by warps that multiply fragments of {name}"
    )


TEMPLATE = form_template("fragments", Fragments, _form, lambda *_: Fragments(), _lower, widens=True)


class _Writer(ProductWriter):
    """Writes the body of one kernel."""

    def __init__(
        self, group: Group, form: ProductForm, schedule: Fragments, machine: Machine
    ) -> None:
        super().__init__(group, form, schedule, machine)
        self.schedule, self.factors = schedule, form.a.dtype
        self.shares = SHARES[self.factors]
        self.tiles = [
            (i, j)
            for i in range(schedule.warp_rows // ROWS)
            for j in range(schedule.warp_columns // COLUMNS)
        ]
        let, begin = self.work.let, self.begin
        warp = let(quotient(_ITEM, WARP), begin)
        down, across = quotient(warp, schedule.across), rest(warp, schedule.across)
        self.warp_row = let(down * schedule.warp_rows, begin)
        self.warp_column = let(across * schedule.warp_columns, begin)
        lane = let(rest(_ITEM, WARP), begin)
        self.lane = let(quotient(lane, 4), begin), let(rest(lane, 4), begin)

    def stride(self, along_depth: bool, count: int) -> int:
        """Elements from one row to the next: so many more that the items of a warp, whose places
        are (g, t) or (t, g) of 8 x 4, read from banks of their own."""
        return count + (_BANKS // self.factors.bytes if along_depth else 8)

    def body(self, left: Side, right: Side) -> list[ir.Step]:
        """The steps of an item."""
        zero = number(float32, 0)
        steps: list[ir.Step] = [ir.Declare(n, zero) for t in self.tiles for n in self._sums(*t)]
        steps += self.blocks(left, right, partial(self._multiply, left, right))
        return self.whole([*steps, *self._finish()])

    # ---- fragments -----------------------------------------------------------------------------

    def _multiply(self, left: Side, right: Side, part: ir.Value | int) -> ir.For:
        """The sums of a warp by one block of both factors."""
        k, steps = ir.Var(ir.INDEX, "k"), list[ir.Step]()
        a = {
            i: [self._held(left, self.warp_row, i * ROWS, place, k, part, steps)
                for place in self.shares.left]
            for i in sorted({i for i, _ in self.tiles})
        }  # fmt: skip
        b = {
            j: [self._held(right, self.warp_column, j * COLUMNS, place, k, part, steps)
                for place in self.shares.right]
            for j in sorted({j for _, j in self.tiles})
        }  # fmt: skip
        for i, j in self.tiles:
            steps.append(ir.Fragments(self.factors, self._sums(i, j), tuple(a[i]), tuple(b[j])))
        width = constant(self.shares.depth)
        return ir.For("k", constant(0), constant(self.schedule.depth), width, tuple(steps))

    def _held(
        self, side: Side, first: ir.Value, more: int, place: Place, k: ir.Value,
        part: ir.Value | int, steps: list[ir.Step],
    ) -> ir.Value:  # fmt: skip
        """What an item gives of a factor; of the right one columns are its own."""
        own, step = self._at(place, swapped=side.name == RIGHT)
        own, step = first + own + more, k + step
        let = self.work.let
        if self.factors == float32:
            return let(ir.Load(ir.Type(float32), side.name, side.place(own, step, part)), steps)
        if side.along_depth:  # two side by side are a word, whose number is half of theirs
            at = quotient(side.place(own, step, part), 2)
            return let(ir.Load(ir.Type(uint32), side.name, at), steps)
        low, high = (
            ir.Convert(ir.Type(uint32), ir.Load(
                ir.Type(uint16), side.name, side.place(own, step + n, part)
            ))
            for n in (0, 1)
        )  # fmt: skip
        kind = ir.Type(uint32)
        moved = ir.Op(kind, "shift_left", (high, ir.Const(kind, 16)))
        return let(ir.Op(kind, "bit_or", (low, moved)), steps)

    def _at(self, place: Place, swapped: bool = False) -> tuple[ir.Value, ir.Value]:
        """The row and the column of a value of this item; the other way round where `swapped`."""
        zero, by_g, by_t = place(0, 0), place(1, 0), place(0, 1)
        made = [
            self.lane[0] * (g - more) + self.lane[1] * (t - more) + more
            for more, g, t in zip(zero, by_g, by_t)
        ]
        return (made[1], made[0]) if swapped else (made[0], made[1])

    @staticmethod
    def _sums(i: int, j: int) -> tuple[str, ...]:
        return tuple(f"sum{i}_{j}_{n}" for n in range(len(SUMS)))

    # ---- what follows --------------------------------------------------------------------------

    def _finish(self) -> list[ir.Step]:
        """The results of an item, where they are inside: a row of its fragments after the other."""
        made: list[ir.Step] = []
        places = [self._at(place) for place in SUMS]

        def columns(i: int, row: ir.Value, rows: dict[str, ir.Value]) -> list[ir.Step]:
            steps: list[ir.Step] = []
            for j in range(self.schedule.warp_columns // COLUMNS):
                for name, (own, column) in zip(self._sums(i, j), places):
                    if own == row:
                        first = self.column0 + self.warp_column + column + j * COLUMNS
                        at = self.work.let(first, steps)
                        steps.append(self.stored(rows, at, ir.Get(ir.Type(float32), name)))
            return steps

        for i in range(self.schedule.warp_rows // ROWS):
            for own in dict.fromkeys(own for own, _ in places):
                first = self.row0 + self.warp_row + own + i * ROWS
                row = self.work.let(first, made)
                made.append(self.inside_row(row, partial(columns, i, own)))
        return made
