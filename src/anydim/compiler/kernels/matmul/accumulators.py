"""Accumulators of a register tile: sums that stay in registers over the loop along k."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import fma, number, splat


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused for floats."""
    if a.type.dtype.is_float:
        return fma(a, b, c)
    return a * b + c


class Accumulators:
    """Registers of rows x vectors: `sums[i, j]` reads one, and assigning to it sets its value."""

    def __init__(
        self, code: Writer, vector: ir.Type, rows: int, vectors: int, letter: str = "c"
    ) -> None:
        self.indices = [(i, j) for i in range(rows) for j in range(vectors)]
        self._code, self._vector, self._letter = code, vector, letter

    def __getitem__(self, index: tuple[int, int]) -> ir.Get:
        i, j = index
        return ir.Get(self._vector, f"{self._letter}{i}_{j}")

    def __setitem__(self, index: tuple[int, int], value: ir.Value) -> None:
        self._code.emit(ir.Assign(self[index].name, value))

    def declare(self) -> None:
        """Declare every accumulator with the value 0."""
        zero = number(self._vector.dtype, 0, self._vector.lanes)
        for index in self.indices:
            self._code.emit(ir.Declare(self[index].name, zero))

    def add(
        self, a: Sequence[ir.Value], b: Sequence[ir.Value],
        added: Callable[[ir.Value, ir.Value, ir.Value], ir.Value] = multiply_add,
    ) -> None:  # fmt: skip
        """Add one k-step: the products of one scalar per row with named vectors."""
        for i, each in enumerate(a):
            row = self._code.let(splat(each, self._vector.lanes))
            for j, column in enumerate(b):
                self[i, j] = added(row, column, self[i, j])

    def add_by_columns(self, a: Sequence[ir.Value], b: Sequence[ir.Value]) -> None:
        """The same in another order, for few rows: each vector is loaded when it is needed."""
        rows = [self._code.let(splat(each, self._vector.lanes)) for each in a]
        for j, each in enumerate(b):
            column = self._code.let(each)
            for i, row in enumerate(rows):
                self[i, j] = multiply_add(row, column, self[i, j])
