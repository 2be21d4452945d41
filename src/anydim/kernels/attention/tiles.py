"""The products of attention: one tile of rows times packed panels, held in vector registers.

    c[i, p*lanes + l] = sum over k < count of a[i*a_row + k] * b[p*b_panel + k*b_row + l]

for i < rows, p < vectors. The number of rows is the function's own; two panels run at a time.
The same functions make scores (b: keys, transposed to panels) and mix values (b: values as they
are, a panel every `lanes` columns). Compiled once per machine.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.ir import Like, constant, fma
from anydim.kernels.write.writer import Buffer, Writer

POINTERS = ("a", "b", "c")
SCALARS = ("count", "a_row", "b_row", "b_panel", "c_row", "vectors")


def tile_rows(registers: int) -> int:
    """Rows of the largest tile of two vectors whose sums stay in registers."""
    return 12 if registers >= 32 else 6


@lru_cache(maxsize=8)
def tile_library(lanes: int, rows: int) -> ir.Library:
    """A function for each number of rows up to `rows`."""
    name = f"attention_{lanes}x{rows}"
    return ir.Library(name, partial(_functions, name, lanes, rows), identity=name)


def multiply(
    library: str, most: int, rows: ir.Value, a: ir.Value, b: ir.Value, c: str, *scalars: Like
) -> ir.Step:
    """Call the function for a number of rows, at most `most`, with `POINTERS` and `SCALARS`."""
    zero = constant(0)
    arguments = (a, b, ir.Address(c, zero), *map(zero.like, scalars))
    cases = tuple((m, (ir.Call(f"{library}_{m}", arguments),)) for m in range(1, most + 1))
    return ir.Switch(rows, cases)


def _functions(library: str, lanes: int, rows: int) -> tuple[ir.Function, ...]:
    return tuple(_tiles(f"{library}_{m}", m, lanes) for m in range(1, rows + 1))


def _tiles(name: str, rows: int, lanes: int) -> ir.Function:
    code = Writer()
    a, b, c = (Buffer(code, pointer, float32) for pointer in POINTERS)
    count, a_row, b_row, b_panel, c_row, vectors = (ir.Var(ir.INDEX, scalar) for scalar in SCALARS)
    starts = [code.let(a_row * i) for i in range(rows)]

    def tile(panel: ir.Value, width: int) -> None:
        """The sums of `rows` x `width` vectors, from zero to their place in c.

        One step of k per iteration: in a longer text LLVM moves loads up until registers run out.
        """
        places = [code.variable((panel + j) * b_panel) for j in range(width)]
        nothing = constant(0, float32, lanes)
        sums = [[code.variable(nothing) for _ in range(width)] for _ in range(rows)]
        with code.range(0, count) as k:
            right = [b.load(place(), lanes) for place in places]
            for start, totals in zip(starts, sums):
                left = code.let(a[start + k].spread(lanes))
                for total, vector in zip(totals, right):
                    total.set(fma(left, vector, total()))
            for place in places:
                place += b_row
        for i, totals in enumerate(sums):
            for j, total in enumerate(totals):
                c.store(c_row * i + panel * lanes + j * lanes, total())

    even = code.let(vectors & -2)
    with code.range(0, even, 2) as panel:
        tile(panel, 2)
    with code.when(even < vectors):
        tile(even, 1)
    pointers = (ir.Pointer(pointer, float32) for pointer in POINTERS)
    return ir.Function(name, (*pointers, *map(ir.Scalar, SCALARS)), code.written, public=True)
