"""The loops of products with chosen matrices.

    rows in the order of their matrices, by counting
    for each matrix that rows have chosen, each block of its rows
        the rows, one after another
        for each panel of columns
            for each tile of a few rows: the sums over k; rows of the result

A thread has some panels of each matrix. Sums run over k in order: the bits of a row do not depend
on other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anydim.base.dtypes import float32, int8, int32, int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient, quotient_up, split_index
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.codegen.writer import Buffer, Writer
from anydim.compiler.kernels.ir import START, STOP, constant, greatest, least, select, variable
from anydim.compiler.kernels.launch import STATUS, STATUS_TENSOR, Machine
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, Output
from anydim.compiler.kernels.matmul.matmul_kernel import ProductKernel, call
from anydim.compiler.kernels.matmul.register_tile import LINE
from anydim.compiler.kernels.matmul.weight_only_quant.chosen_form import ChosenForm
from anydim.compiler.kernels.matmul.weight_only_quant.quant_micro_kernels import (
    QuantTile,
    name_of,
    narrow_libraries,
)
from anydim.compiler.kernels.matmul.weight_only_quant.quant_rows import prepare_function
from anydim.lang.tree import Group, Read
from anydim.runtime.positions import FINE
from anydim.sizes import Size, as_size

BLOCK = 96  # maximum rows of a block: with 512 terms they are in the second-level cache
_WORTH = 60_000  # bytes of weights that pay for another thread: about 2 us


class ChosenWriter(ProductKernel):
    """The kernel of a product with chosen matrices: w, and its scales s, are packed."""

    name = "chosen_matrices"

    def __init__(self, group: Group, form: ChosenForm, tile: QuantTile, machine: Machine) -> None:
        outputs = (Output(form.target, Read(PRODUCT, ())),)
        super().__init__(group, outputs, float32, tile.lanes, SizeParameters())
        self.form, self.tile, self.machine, self.code = form, tile, machine, Writer()
        self.libraries = narrow_libraries(tile)
        self.panels = form.columns // tile.width
        self.panel_bytes = form.depth * tile.width * form.bits // 8
        self.grain = max(1, _WORTH // self.panel_bytes)
        self.packed = {"w": int8, "s": float32} if form.scales else {"w": float32}
        self.roles = [(form.x, "a"), (form.chosen, "e"), (form.w, "w")]
        self.roles += [(form.scales, "s")] if form.scales else []
        self.roles += [(form.target, "y")]
        if form.check is not None:
            self.roles.append((STATUS_TENSOR, STATUS.name))
        self.buffers = {form.x: "a", form.chosen: "e", form.target: "y"}

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        """The operands in the order of their roles; the status of a check is the last."""
        named = ((self.group.type_of(tensor).dtype, role)
                 for tensor, role in self.roles if role != STATUS.name)  # fmt: skip
        own = tuple(
            ir.Operand(role, self.packed.get(role, dtype), role == "y") for dtype, role in named
        )
        return own if self.form.check is None else (*own, STATUS)

    @property
    def parallel(self) -> Size:
        """Panels of a matrix."""
        return as_size(self.panels)

    @property
    def moved(self) -> Size:
        """Bytes, if each row reads its matrix."""
        form = self.form
        return form.rows * (form.columns * (form.depth * form.bits // 8 + 4) + form.depth * 4)

    # ---- scratch, in bytes -----------------------------------------------------------------------

    @property
    def _parts(self) -> dict[str, int]:
        """Offsets of ends of matrices' rows, ones, sums of blocks, sums of a tile, rows, order."""
        form, tile, rows = self.form, self.tile, BLOCK + self._heights[-1]
        sizes = {
            "ends": form.count + 1, "ones": tile.width, "sums": rows * form.groups,
            "tile": self._heights[-1] * tile.width, "rows": rows * form.depth, "order": 0,
        }  # fmt: skip
        made, at = {}, 0
        for name, count in sizes.items():
            made[name] = at
            at += -(-count * float32.bytes // LINE) * LINE
        return made

    @property
    def scratch(self) -> Size:
        return self.form.rows * int32.bytes + self._parts["order"]

    @property
    def _heights(self) -> tuple[int, ...]:
        return self.tile.heights if self.form.scales else self.tile.wide

    def _part(self, name: str, at: ir.Value | int = 0) -> ir.Address:
        """The address of element `at` of a part."""
        return ir.Address("scratch", constant(self._parts[name]) + at * float32.bytes)

    def _whole(self, name: str, at: ir.Value) -> ir.Value:
        """Element `at` of a part, as an index."""
        first = self._parts[name] // int32.bytes
        return self.code.let(ir.Load(ir.Type(int32), "scratch", at + first).as_(int64))

    def _set(self, name: str, at: ir.Value, value: ir.Value) -> None:
        first = self._parts[name] // int32.bytes
        self.code.emit(ir.Store("scratch", at + first, value.as_(int32)))

    # ---- functions -------------------------------------------------------------------------------

    def functions(self) -> tuple[ir.Function, ...]:
        """Return the function that prepares rows, and main."""
        self.prepare = prepare_function(
            self.tile, self.form.groups, self.form.depth, self.form.block
        )
        code, form = self.code, self.form
        self.rows = self.sizes.value(form.rows)
        self._order_rows()
        if not form.scales:
            ones = self._parts["ones"] // float32.bytes
            for column in range(0, self.tile.width, self.lanes):
                one = constant(1, float32, self.lanes)
                code.emit(ir.Store("scratch", constant(ones + column), one))
        with code.range(0, form.count) as matrix:
            before = self._whole("ends", greatest(matrix - 1, 0))
            first = code.let(select(matrix.equals(0), 0, before))
            end = self._whole("ends", matrix)
            with code.range(first, end, BLOCK) as start:
                count = code.let(least(end - start, BLOCK))
                self._prepare(start, count)
                with code.range(START, STOP) as panel:
                    self._tiles(matrix, panel, start, count)
        return (self.prepare, self.main(code.written))

    @contextmanager
    def _each_row(self) -> Iterator[tuple[ir.Value, ir.Value]]:
        """Loop over rows: a row, and the number of its matrix."""
        code = self.code
        with code.range(0, self.rows) as row:
            self._split(row)
            at = self.at(self.form.chosen_at.constant, self._steps(self.form.chosen_at))
            number = code.let(ir.Load(ir.Type(int64), "e", at), "number")
            yield row, code.let(least(greatest(number, 0), self.form.count - 1))

    def _split(self, row: ir.Value) -> None:
        """Name the indices of a row along its axes."""
        assert isinstance(row, ir.Var)
        axes = [(axis.name, self.sizes.value(axis.extent)) for axis in reversed(self.form.axes)]
        self.code.take(split_index(row.name, *axes))

    def _steps(self, address: object) -> list[tuple[str, Size]]:
        names = [axis.name for axis in self.form.axes]
        return [(name, address.stride(name)) for name in names]  # type: ignore[attr-defined]

    def _order_rows(self) -> None:
        """Order rows by their matrices; `ends` are where the rows of each end."""
        code = self.code
        with code.range(0, self.form.count + 1) as number:
            self._set("ends", number, constant(0))
        with self._each_row() as (_, matrix):
            self._report(variable("number"))
            self._set("ends", matrix + 1, self._whole("ends", matrix + 1) + 1)
        with code.range(0, self.form.count) as number:
            both = self._whole("ends", number) + self._whole("ends", number + 1)
            self._set("ends", number + 1, both)
        with self._each_row() as (row, matrix):
            place = self._whole("ends", matrix)
            self._set("order", place, row)
            self._set("ends", matrix, place + 1)

    def _report(self, number: ir.Value) -> None:
        """Report a number that no matrix has."""
        if self.form.check is None:
            return
        code = self.code
        with code.when((number < 0) | (constant(self.form.count) <= number)):
            slot = constant(self.form.check)
            code.emit(ir.Store(STATUS.name, slot, greatest(number, FINE + 1)))

    def _prepare(self, start: ir.Value, count: ir.Value) -> None:
        """Copy the rows of a block."""
        code, form = self.code, self.form
        with code.range(0, count) as number:
            row = self._whole("order", start + number)
            code.let(row, "own")
            self._split(variable("own"))
            a = ir.Address("a", self.at(form.x_at.constant, self._steps(form.x_at)))
            to, sums = (
                self._part("rows", number * form.depth),
                self._part("sums", number * form.groups),
            )
            one = constant(1)
            code.emit(
                call(self.prepare, a=a, to=to, sums=sums, row=constant(0), k_step=one, rows=one,
                     height=one)
            )  # fmt: skip

    def _tiles(self, matrix: ir.Value, panel: ir.Value, start: ir.Value, count: ir.Value) -> None:
        """Compute the rows of a block by a panel."""
        code, form, tile, most = self.code, self.form, self.tile, self._heights[-1]
        number = code.let(matrix * self.panels + panel)
        w = ir.Address("w", number * (form.depth * tile.width * form.bits // 8 // self._element))
        s = (
            ir.Address("s", number * (form.groups * tile.width))
            if form.scales
            else self._part("ones")
        )
        tiles = code.let(quotient_up(count, most))
        even = code.let(quotient(count, greatest(tiles, 1)))
        taller = code.let(count - even * tiles)
        with code.range(0, tiles) as at:
            row0 = code.let(at * even + least(at, taller))
            rows = code.let(even + select(at < taller, 1, constant(0)))
            height: ir.Value = constant(most)
            for each in reversed(self._heights[:-1]):
                height = select(rows <= each, each, height)
            arguments = (
                self._part("rows", row0 * form.depth), self._part("sums", row0 * form.groups),
                w, s, self._part("tile"), constant(form.groups), constant(form.block),
                constant(form.depth), constant(form.groups), constant(0),
            )  # fmt: skip
            wide = not form.scales
            cases = tuple((h, (ir.Call(name_of(tile, h, wide), arguments),)) for h in self._heights)
            code.emit(ir.Switch(code.let(height), cases))
            self._store(panel, start + row0, rows)

    @property
    def _element(self) -> int:
        return int8.bytes if self.form.scales else float32.bytes

    def _store(self, panel: ir.Value, first: ir.Value, rows: ir.Value) -> None:
        """Store the sums of a tile to the rows of the result."""
        code, tile = self.code, self.tile
        sums = Buffer(code, "scratch", float32)
        at, y = self._parts["tile"] // float32.bytes, Buffer(code, "y", float32)
        with code.range(0, rows) as number:
            row = self._whole("order", first + number)
            to = code.let(row * self.form.columns + panel * tile.width)
            for column in range(0, tile.width, tile.lanes):
                value = sums.load(number * tile.width + (at + column), tile.lanes)
                y.store(to + column, value)
