"""Sums that stay in registers while k runs: those of a register tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydim.kernels import ir
from anydim.kernels.codegen.writer import Writer
from anydim.kernels.ir import fma, number, splat


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a * b + c, fused for floats."""
    if a.type.dtype.is_float:
        return fma(a, b, c)
    return a * b + c


class Sums:
    """Registers of rows x vectors: `sums[i, j]` is one of them, and may be given another value."""

    def __init__(
        self, code: Writer, vector: ir.Type, rows: int, vectors: int, letter: str = "c"
    ) -> None:
        self.places = [(i, j) for i in range(rows) for j in range(vectors)]
        self._code, self._vector, self._letter = code, vector, letter

    def __getitem__(self, place: tuple[int, int]) -> ir.Get:
        i, j = place
        return ir.Get(self._vector, f"{self._letter}{i}_{j}")

    def __setitem__(self, place: tuple[int, int], value: ir.Value) -> None:
        self._code.emit(ir.Assign(self[place].name, value))

    def declare(self) -> None:
        """All of them are 0 from here on."""
        zero = number(self._vector.dtype, 0, self._vector.lanes)
        for place in self.places:
            self._code.emit(ir.Declare(self[place].name, zero))

    def add(
        self, a: Sequence[ir.Value], b: Sequence[ir.Value],
        added: Callable[[ir.Value, ir.Value, ir.Value], ir.Value] = multiply_add,
    ) -> None:  # fmt: skip
        """One step of k: the products of a number for each row with vectors, which have names."""
        for i, each in enumerate(a):
            row = self._code.let(splat(each, self._vector.lanes))
            for j, column in enumerate(b):
                self[i, j] = added(row, column, self[i, j])
