"""A product of which one side is a vector, both sides where they lie: nothing is packed.

    c[j] = init[j] + sum over k of a[k] * b[k, j]      `row`: rows of b, several at a time
    c[j] = init[j] + sum over k of a[k] * b[j, k]      `across`: squares of b, turned in registers
    c[i] = init[i] + sum over k of a[i, k] * b[k]      `dots`: rows of a, one by one

Each reads a matrix once, as it comes, which is all that memory has to do. Many small matrices, of
which a row of b is a vector, go pair by pair, without what goes around a register tile:

    c[n, i, j] = sum over k of a[n, i, k] * b[n, k, j]     `small`

All but `dots` add up in the order of a micro-kernel, in the same blocks of k, so that a row alone
has the bits of a row among others. `dots` serves products of one column: there all rows are summed
in the same way.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType, int64
from anydim.kernels import ir
from anydim.kernels.product.contraction.library import blocks_of_k
from anydim.kernels.product.micro import multiply_add, strip_pointers, taken
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    minus_one,
    plus,
    round_down,
    times,
    variable,
)
from anydim.kernels.write.squares import transposed
from anydim.kernels.write.values import number, operate

SMALL_K = 16  # steps of k of small matrices
WIDE = 2048  # columns that `row` sums at a time: its sums stay in the first cache
_STEPS = 8  # rows of b at a time
_CHAINS = 4  # sums of a row of a side by side


@lru_cache(maxsize=16)
def vector_libraries(lanes: int, dtype: DType) -> tuple[ir.Library, ...]:
    """A library each for `row`, `across` and `dots`; operands are those of a micro-kernel.

    Of the scalars that are given, `b_panel` is the stride of rows of b in `row` and `across`.
    """
    writers = {"row": _row, "across": _across, "dots": _dots}
    names = {f"vector_{dtype}_x{lanes}_{way}": write for way, write in writers.items()}
    return tuple(
        ir.Library(name, partial(write, name, ir.Type(dtype, lanes)), identity=name)
        for name, write in names.items()
    )


SMALL_SCALARS = (
    "count", "rows", "columns", "k", "a_row", "a_step", "b_column", "b_step", "c_row",
    "a_next", "b_next", "c_next",
)  # fmt: skip


@lru_cache(maxsize=16)
def small_library(lanes: int, dtype: DType, along: bool) -> ir.Library:
    """`small` for a b whose columns are neighbours, or, not `along`, any b."""
    name = f"small_{dtype}_x{lanes}_{'along' if along else 'any'}"
    return ir.Library(name, partial(_small, name, ir.Type(dtype, lanes), along), identity=name)


def _small(name: str, vector: ir.Type, along: bool) -> tuple[ir.Function, ...]:
    """Of a pair, b is brought into vectors first; k is at most SMALL_K, columns fit a vector."""
    lanes, dtype = vector.lanes, vector.dtype
    mask = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")
    wide = ir.Type(int64, lanes)
    at = plus(variable("b_at"), times(variable("k0"), variable("b_step")))
    places = operate("add", ir.Splat(wide, at), ir.Var(wide, "columns_at"))
    steps = operate("mul", ir.Splat(wide, variable("b_column")), ir.Iota(wide))
    row = ir.Load(vector, "b", at, mask) if along else ir.Gather(vector, "b", places, mask)
    a = plus(variable("a_at"), times(variable("k1"), variable("a_step")))
    added = multiply_add(
        ir.Splat(vector, ir.Load(ir.Type(dtype), "a", a)),
        ir.Load(vector, "panel", times(variable("k1"), lanes)), ir.Get(vector, "sum"),
    )  # fmt: skip
    c = plus(variable("c0"), times(variable("i"), variable("c_row")))
    total = operate("add", ir.Get(vector, "sum"), number(dtype, 0, lanes))
    rows = loop(
        "i", 0, variable("rows"), 1,
        ir.Let("a_at", plus(variable("a0"), times(variable("i"), variable("a_row")))),
        ir.Declare("sum", number(dtype, 0, lanes)),
        loop("k1", 0, variable("k"), 1, ir.Assign("sum", added)),
        ir.Store("c", c, total, mask),
    )  # fmt: skip
    function = ir.Function(
        name,
        (
            *(ir.Pointer(each, dtype) for each in "abc"),
            *(ir.Scalar(each) for each in SMALL_SCALARS),
        ),
        (
            ir.Stack("panel", dtype, SMALL_K * lanes),
            ir.Let("inside", first_lanes(variable("columns"), lanes)),
            *(() if along else (ir.Let("columns_at", steps),)),
            loop(
                "n", 0, variable("count"), 1,
                ir.Let("a0", times(variable("n"), variable("a_next"))),
                ir.Let("b_at", times(variable("n"), variable("b_next"))),
                ir.Let("c0", times(variable("n"), variable("c_next"))),
                loop(
                    "k0", 0, variable("k"), 1,
                    ir.Store("panel", times(variable("k0"), lanes), row),
                ),
                rows,
            ),
        ),
        public=True,
    )  # fmt: skip
    return (function,)


def _row(name: str, vector: ir.Type) -> tuple[ir.Function, ...]:
    lanes, dtype = vector.lanes, vector.dtype
    mask = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")

    def swept(column: str, *body: ir.Step) -> list[ir.Step]:
        return [loop(column, 0, variable("whole"), lanes, *body)]

    def tail(*body: ir.Step) -> ir.If:
        return ir.If(compare("less", variable("whole"), variable("columns")), body)

    def steps(count: int) -> list[ir.Step]:
        """Some steps of k, on all columns."""

        def sums(column: str, mask: ir.Value | None) -> ir.Store:
            total: ir.Value = ir.Load(vector, "sums", variable(column))
            for u in range(count):
                at = plus(variable(f"b{u}"), variable(column))
                b = ir.Load(vector, "b", at, mask)
                total = multiply_add(ir.Var(vector, f"a{u}"), b, total)
            return ir.Store("sums", variable(column), total)

        made: list[ir.Step] = []
        for u in range(count):
            at = plus(variable("k0"), variable("k1"), u)
            a = ir.Splat(vector, ir.Load(ir.Type(dtype), "a", at))
            made += [ir.Let(f"a{u}", a), ir.Let(f"b{u}", times(at, variable("b_panel")))]
        return [*made, *swept("j", sums("j", None)), tail(sums("whole", mask))]

    def finished(column: str, mask: ir.Value | None) -> tuple[ir.Step, ...]:
        return _stored(column, ir.Load(vector, "sums", variable(column)), mask)

    zero = ir.Store("sums", variable("z"), number(dtype, 0, lanes))
    some = round_down(variable("count"), _STEPS)
    function = ir.Function(
        name,
        strip_pointers(dtype),
        (
            *(taken(each) for each in ("k", "k_block", "columns", "b_panel", "init_panel")),
            ir.Stack("sums", dtype, WIDE + lanes),
            ir.Let("whole", round_down(variable("columns"), lanes)),
            ir.Let("inside", first_lanes(minus(variable("columns"), variable("whole")), lanes)),
            *blocks_of_k(),
            loop(
                "k0", 0, greatest(variable("k"), 1), greatest(variable("even"), 1),
                ir.Let("count", least(minus(variable("k"), variable("k0")), variable("even"))),
                ir.Let("some", some),
                loop("z", 0, variable("columns"), lanes, zero),
                loop("k1", 0, variable("some"), _STEPS, *steps(_STEPS)),
                loop("k1", variable("some"), variable("count"), 1, *steps(1)),
                *swept("f", *finished("f", None)),
                tail(*finished("whole", mask)),
            ),
        ),
        public=True,
    )  # fmt: skip
    return (function,)


def _across(name: str, vector: ir.Type) -> tuple[ir.Function, ...]:
    """Of the last columns, those that there are not are read as the last one, and not stored."""
    lanes, dtype = vector.lanes, vector.dtype
    mask = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")
    wide = ir.Type(int64, lanes)
    last = minus_one(variable("columns"))
    at = plus(variable("k0"), variable("k1"))

    def row(i: int) -> ir.Let:
        return ir.Let(f"b{i}", times(least(plus(variable("j"), i), last), variable("b_panel")))

    def added(column: ir.Value, u: int) -> ir.Assign:
        a = ir.Splat(vector, ir.Load(ir.Type(dtype), "a", plus(at, u)))
        return ir.Assign("sum", multiply_add(a, column, ir.Get(vector, "sum")))

    rows = [ir.Load(vector, "b", plus(variable(f"b{i}"), at)) for i in range(lanes)]
    turned, columns = transposed(vector, rows, "x")
    starts = operate("mul", ir.Splat(wide, variable("b_panel")), ir.Iota(wide))
    places = operate("add", ir.Splat(wide, plus(variable("b0"), at)), starts)
    function = ir.Function(
        name,
        strip_pointers(dtype),
        (
            *(taken(each) for each in ("k", "k_block", "columns", "b_panel", "init_panel")),
            *blocks_of_k(),
            loop(
                "j", 0, variable("columns"), lanes,
                ir.Let("inside", first_lanes(minus(variable("columns"), variable("j")), lanes)),
                *(row(i) for i in range(lanes)),
                loop(
                    "k0", 0, greatest(variable("k"), 1), greatest(variable("even"), 1),
                    ir.Let("count", least(minus(variable("k"), variable("k0")), variable("even"))),
                    ir.Let("some", round_down(variable("count"), lanes)),
                    ir.Declare("sum", number(dtype, 0, lanes)),
                    loop(
                        "k1", 0, variable("some"), lanes,
                        *turned, *(added(column, u) for u, column in enumerate(columns)),
                    ),
                    loop(
                        "k1", variable("some"), variable("count"), 1,
                        added(ir.Gather(vector, "b", places, mask), 0),
                    ),
                    *_stored("j", ir.Get(vector, "sum"), mask),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip
    return (function,)


def _stored(column: str, total: ir.Value, mask: ir.Value | None) -> tuple[ir.Step, ...]:
    """The sums of a block of k: the first is added to `init`, where there is one, others to c."""
    vector, at = total.type, variable(column)

    def stored(begin: ir.Value) -> ir.Store:
        return ir.Store("c", at, operate("add", total, begin), mask)

    later = stored(ir.Load(vector, "c", at, mask))
    start = stored(ir.Load(vector, "init", at, mask))
    given = compare("not_equal", variable("init_panel"), 0)
    first = ir.If(given, (start,), (stored(number(vector.dtype, 0, vector.lanes)),))
    return (ir.If(compare("less", constant(0), variable("k0")), (later,), (first,)),)


def _dots(name: str, vector: ir.Type) -> tuple[ir.Function, ...]:
    lanes, dtype = vector.lanes, vector.dtype
    mask = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside")

    def sums(column: str, chain: int, mask: ir.Value | None) -> ir.Assign:
        at = plus(variable(column), chain * lanes)
        a = ir.Load(vector, "a", plus(variable("row"), at), mask)
        b = ir.Load(vector, "b", at, mask)
        return ir.Assign(f"t{chain}", multiply_add(a, b, ir.Get(vector, f"t{chain}")))

    total: ir.Value = ir.Get(vector, "t0")
    for chain in range(1, _CHAINS):
        total = operate("add", total, ir.Get(vector, f"t{chain}"))
    scalar = ir.Type(dtype)
    begin = ir.Load(scalar, "init", times(variable("i"), variable("init_row")))
    all_chains = (sums("j", chain, None) for chain in range(_CHAINS))
    function = ir.Function(
        name,
        strip_pointers(dtype),
        (
            *(taken(each) for each in ("k", "rows", "a_row", "init_row", "c_row")),
            ir.Let("many", round_down(variable("k"), _CHAINS * lanes)),
            ir.Let("whole", round_down(variable("k"), lanes)),
            ir.Let("inside", first_lanes(minus(variable("k"), variable("whole")), lanes)),
            loop(
                "i", 0, variable("rows"), 1,
                ir.Let("row", times(variable("i"), variable("a_row"))),
                *(ir.Declare(f"t{c}", number(dtype, 0, lanes)) for c in range(_CHAINS)),
                loop("j", 0, variable("many"), _CHAINS * lanes, *all_chains),
                loop("l", variable("many"), variable("whole"), lanes, sums("l", 0, None)),
                ir.If(
                    compare("less", variable("whole"), variable("k")),
                    (sums("whole", 0, mask),),
                ),
                ir.Let("total", ir.Reduce(scalar, "add", total)),
                ir.Store(
                    "c", times(variable("i"), variable("c_row")),
                    operate("add", ir.Var(scalar, "total"), begin),
                ),
            ),
        ),
        public=True,
    )  # fmt: skip
    return (function,)
