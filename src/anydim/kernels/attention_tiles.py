"""The products of attention: one tile of rows times packed panels, held in vector registers.

    c[i, p*lanes + l] = sum over k < count of a[i*a_row + k] * b[p*b_panel + k*b_row + l]

for i < rows, p < vectors. The number of rows is the function's own; two panels run at a time.
The same functions make scores (b: keys, transposed to panels) and mix values (b: values as they
are, a panel every `lanes` columns). Compiled once per machine.
"""

from __future__ import annotations

from functools import lru_cache

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.arithmetic import (
    compare,
    constant,
    loop,
    plus,
    register,
    round_down,
    times,
    variable,
)
from anydim.kernels.elements import number, operate

UNROLL = 1
SCALARS = ("count", "a_row", "b_row", "b_panel", "c_row", "vectors")


def tile_rows(registers: int) -> int:
    """Rows of the largest tile of two vectors whose sums stay in registers."""
    return 12 if registers >= 32 else 6


@lru_cache(maxsize=8)
def tile_library(lanes: int, rows: int) -> ir.Library:
    """`tile_name(.., m)` for m = 1 .. rows."""
    name = f"attention_{lanes}x{rows}"
    functions = tuple(_tiles(f"{name}_{m}", m, lanes) for m in range(1, rows + 1))
    return ir.Library(name, functions)


def multiply(library: ir.Library, rows: ir.Value, *arguments: ir.Value | ir.Address) -> ir.Step:
    """Call the function for a number of rows: pointers a, b, c, then `SCALARS`."""
    cases = tuple(
        (number + 1, (ir.Call(function.name, arguments),))
        for number, function in enumerate(library.functions)
    )
    return ir.Switch(rows, cases)


def _tiles(name: str, rows: int, lanes: int) -> ir.Function:
    even = variable("even")
    pairs = loop("p", 0, even, 2, *_tile("p", rows, 2, lanes))
    odd = ir.If(
        compare("less", even, variable("vectors")),
        (ir.Let("last", even), *_tile("last", rows, 1, lanes)),
    )
    return ir.Function(
        name,
        (
            ir.Pointer("a", float32),
            ir.Pointer("b", float32),
            ir.Pointer("c", float32),
            *(ir.Scalar(scalar) for scalar in SCALARS),
        ),
        (
            ir.Let("even", round_down(variable("vectors"), 2)),
            ir.Let("whole", round_down(variable("count"), UNROLL)),
            *(ir.Let(f"a{i}", times(variable("a_row"), i)) for i in range(rows)),
            *(ir.Let(f"b{u}", times(variable("b_row"), u)) for u in range(UNROLL)),
            pairs,
            odd,
        ),
        public=True,
    )


def _tile(panel: str, rows: int, vectors: int, lanes: int) -> list[ir.Step]:
    """The sums of `rows` x `vectors` vectors, from zero to their place in c."""
    vector = ir.Type(float32, lanes)
    sums = [(i, j) for i in range(rows) for j in range(vectors)]
    steps: list[ir.Step] = [
        ir.Declare(f"{panel}_b{j}", times(plus(variable(panel), j), variable("b_panel")))
        for j in range(vectors)
    ]
    for i, j in sums:
        steps.append(ir.Declare(f"{panel}_c{i}_{j}", number(float32, 0, lanes)))
    for name, start, stop, unroll in (
        ("k", constant(0), variable("whole"), UNROLL),
        ("r", variable("whole"), variable("count"), 1),
    ):
        body: list[ir.Step] = []
        for u in range(unroll):
            body += _one(panel, f"{panel}_{name}", u, rows, vectors, lanes)
        for j in range(vectors):
            at = f"{panel}_b{j}"
            body.append(ir.Assign(at, plus(register(at), times(variable("b_row"), unroll))))
        steps.append(loop(f"{panel}_{name}", start, stop, unroll, *body))
    for i, j in sums:
        column = plus(times(variable(panel), lanes), j * lanes)
        at = plus(times(variable("c_row"), i), column)
        steps.append(ir.Store("c", at, ir.Get(vector, f"{panel}_c{i}_{j}")))
    return steps


def _one(panel: str, k: str, u: int, rows: int, vectors: int, lanes: int) -> list[ir.Step]:
    """Step number `u` of the unrolled sum over k."""
    vector = ir.Type(float32, lanes)
    steps: list[ir.Step] = []
    for j in range(vectors):
        at = plus(register(f"{panel}_b{j}"), variable(f"b{u}")) if u else None
        load = ir.Load(vector, "b", at or register(f"{panel}_b{j}"))
        steps.append(ir.Let(f"{k}_b{u}_{j}", load))
    for i in range(rows):
        at = plus(variable(f"a{i}"), variable(k), u) if i else plus(variable(k), u)
        a = ir.Splat(vector, ir.Load(ir.Type(float32), "a", at))
        steps.append(ir.Let(f"{k}_a{u}_{i}", a))
        for j in range(vectors):
            name = f"{panel}_c{i}_{j}"
            product = (ir.Var(vector, f"{k}_a{u}_{i}"), ir.Var(vector, f"{k}_b{u}_{j}"))
            steps.append(ir.Assign(name, operate("fma", *product, ir.Get(vector, name))))
    return steps
