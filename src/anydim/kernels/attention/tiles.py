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
from anydim.kernels.write.arithmetic import (
    compare,
    loop,
    plus,
    register,
    round_down,
    times,
    variable,
)
from anydim.kernels.write.values import number, operate

SCALARS = ("count", "a_row", "b_row", "b_panel", "c_row", "vectors")


def tile_rows(registers: int) -> int:
    """Rows of the largest tile of two vectors whose sums stay in registers."""
    return 12 if registers >= 32 else 6


@lru_cache(maxsize=8)
def tile_library(lanes: int, rows: int) -> ir.Library:
    """A function for each number of rows up to `rows`."""
    name = f"attention_{lanes}x{rows}"
    return ir.Library(name, partial(_functions, name, lanes, rows), identity=name)


def multiply(library: str, most: int, rows: ir.Value, *arguments: ir.Value | ir.Address) -> ir.Step:
    """Call the function for a number of rows, at most `most`: pointers a, b, c, then `SCALARS`."""
    cases = tuple((m, (ir.Call(f"{library}_{m}", arguments),)) for m in range(1, most + 1))
    return ir.Switch(rows, cases)


def _functions(library: str, lanes: int, rows: int) -> tuple[ir.Function, ...]:
    return tuple(_tiles(f"{library}_{m}", m, lanes) for m in range(1, rows + 1))


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
            *(ir.Let(f"a{i}", times(variable("a_row"), i)) for i in range(rows)),
            pairs,
            odd,
        ),
        public=True,
    )


def _tile(panel: str, rows: int, vectors: int, lanes: int) -> list[ir.Step]:
    """The sums of `rows` x `vectors` vectors, from zero to their place in c.

    One step of k per iteration: in a longer text LLVM moves loads up until registers run out.
    """
    vector = ir.Type(float32, lanes)
    sums = {(i, j): f"{panel}_c{i}_{j}" for i in range(rows) for j in range(vectors)}
    starts = [
        ir.Declare(f"{panel}_b{j}", times(plus(variable(panel), j), variable("b_panel")))
        for j in range(vectors)
    ]
    k = f"{panel}_k"
    body: list[ir.Step] = []
    for j in range(vectors):
        load = ir.Load(vector, "b", register(f"{panel}_b{j}"))
        body.append(ir.Let(f"{panel}_right{j}", load))
    for i in range(rows):
        load = ir.Load(ir.Type(float32), "a", plus(variable(f"a{i}"), variable(k)))
        body.append(ir.Let(f"{panel}_left{i}", ir.Splat(vector, load)))
        for j in range(vectors):
            factors = (ir.Var(vector, f"{panel}_left{i}"), ir.Var(vector, f"{panel}_right{j}"))
            total = operate("fma", *factors, ir.Get(vector, sums[i, j]))
            body.append(ir.Assign(sums[i, j], total))
    for j in range(vectors):
        after = plus(register(f"{panel}_b{j}"), variable("b_row"))
        body.append(ir.Assign(f"{panel}_b{j}", after))
    first = times(variable(panel), lanes)
    return [
        *starts,
        *(ir.Declare(name, number(float32, 0, lanes)) for name in sums.values()),
        loop(k, 0, variable("count"), 1, *body),
        *(
            ir.Store("c", plus(times(variable("c_row"), i), first, j * lanes), ir.Get(vector, name))
            for (i, j), name in sums.items()
        ),
    ]
