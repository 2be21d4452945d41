"""Matrix-vector products and products of small matrices, on unpacked operands.

    c[j] = init[j] + sum over k of a[k] * b[k, j]      `row`: rows of b, several at a time
    c[j] = init[j] + sum over k of a[k] * b[j, k]      `across`: squares of b, transposed
    c[i] = init[i] + sum over k of a[i, k] * b[k]      `dots`: rows of a, one by one; `short`: few k

Each function reads a matrix once, in memory order: it is bound by memory. Batches of small
matrices, where a row of b fits a vector, run pair by pair, without the setup of a register tile:

    c[n, i, j] = sum over k of a[n, i, k] * b[n, k, j]     `small`

All but `dots` and `short` sum in the order of a micro-kernel, in the same blocks of k, so that a
row alone has the same bits as among others. `dots` and `short` serve products of one column, where
all rows are summed in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes, quotient, round_down
from anydim.compiler.kernels.codegen.register_transpose import (
    concatenated_vectors,
    deinterleave,
    lane_sums,
    transposed_block,
)
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, iota, least, number, select, variable
from anydim.compiler.kernels.matmul.accumulators import multiply_add
from anydim.compiler.kernels.matmul.contraction_micro_kernels import block_of_k
from anydim.compiler.kernels.matmul.matmul_kernel import function_library
from anydim.compiler.kernels.matmul.register_tile import load_scalars, strip_pointers

SMALL_K = 16  # maximum k-steps of small matrices
WIDE = 2048  # columns that `row` sums at a time: its sums stay in the first-level cache
_STEPS = 6  # rows of b at a time: eight rows pages apart fill a set of the first-level cache
_CHAINS = 4  # independent sums of a row of a, or of short rows
_FEW = 4  # k-steps transposed together where a square does not fit
SHORT = 3  # maximum vectors of a short row


@lru_cache(maxsize=16)
def vector_libraries(lanes: int, dtype: DType) -> tuple[ir.Library, ...]:
    """Return libraries for `row`, `across`, `dots` and `short`, with operands of a micro-kernel.

    The scalar `b_panel` is the stride of rows of b in `row` and `across`.
    """
    writers = {"row": _row, "across": _across, "dots": _dots, "short": _short}
    name, vector = f"vector_{dtype}_x{lanes}", ir.Type(dtype, lanes)
    return tuple(
        function_library(f"{name}_{variant}", strip_pointers(dtype), partial(write, vector), dtype)
        for variant, write in writers.items()
    )


SMALL_SCALARS = (
    "count", "rows", "columns", "k", "a_row", "a_step", "b_column", "b_step", "c_row",
    "a_next", "b_next", "c_next",
)  # fmt: skip


@lru_cache(maxsize=16)
def small_library(lanes: int, dtype: DType, along: bool) -> ir.Library:
    """Return `small` for a b with contiguous columns (`along`), or for any b."""
    name = f"small_{dtype}_x{lanes}_{'along' if along else 'any'}"
    pointers = (ir.Pointer(each, dtype) for each in "abc")
    write = partial(_small, ir.Type(dtype, lanes), along)
    return function_library(name, pointers, write, dtype, SMALL_SCALARS)


def _small(vector: ir.Type, along: bool, code: Writer) -> None:
    """Multiply pairs of matrices; k is at most SMALL_K, and columns fit a vector.

    The rows of b are loaded into vectors first.
    """
    lanes, dtype = vector.lanes, vector.dtype
    zero, total = number(dtype, 0, lanes), ir.Get(vector, "sum")
    code.emit(ir.Stack("panel", dtype, SMALL_K * lanes))
    inside = code.let(first_lanes(variable("columns"), lanes))
    steps = code.let(variable("b_column").spread(lanes) * iota(lanes))
    with code.range(0, variable("count")) as n:
        a0, b0, c0 = (code.let(n * variable(f"{each}_next")) for each in "abc")
        with code.range(0, variable("k")) as k:
            at = b0 + k * variable("b_step")
            row: ir.Value = ir.Load(vector, "b", at, inside)
            if not along:
                row = ir.Gather(vector, "b", at.spread(lanes) + steps, inside)
            code.emit(ir.Store("panel", k * lanes, row))
        with code.range(0, variable("rows")) as i:
            a_at = code.let(a0 + i * variable("a_row"))
            code.emit(ir.Declare(total.name, zero))
            with code.range(0, variable("k")) as k:
                a = ir.Load(ir.Type(dtype), "a", a_at + k * variable("a_step")).spread(lanes)
                b = ir.Load(vector, "panel", k * lanes)
                code.emit(ir.Assign(total.name, multiply_add(a, b, total)))
            code.emit(ir.Store("c", c0 + i * variable("c_row"), total + zero, inside))


def _row(vector: ir.Type, code: Writer) -> None:
    lanes, dtype = vector.lanes, vector.dtype
    k, k_block, columns, b_row = load_scalars(code, "k", "k_block", "columns", "b_panel")
    given = load_scalars(code, "init_step")[0].differs(0)
    code.emit(ir.Stack("sums", dtype, WIDE + lanes))
    whole = code.let(round_down(columns, lanes))
    mask = code.let(first_lanes(columns - whole, lanes))
    even = block_of_k(code, k, k_block)

    def swept(body: Callable[[ir.Value, ir.Value | None], ir.Step]) -> None:
        """Emit a step for all columns."""
        code.sweep(0, columns, lanes, lambda *at: code.emit(body(*at)), whole, mask)

    def steps(first: ir.Value, count: int) -> None:
        """Emit `count` k-steps over all columns."""
        indices = [first + u for u in range(count)]
        rows = [ir.Load(ir.Type(dtype), "a", at).spread(lanes) for at in indices]
        factors = [(code.let(a), code.let(at * b_row)) for a, at in zip(rows, indices)]

        def sums(column: ir.Value, mask: ir.Value | None) -> ir.Step:
            total: ir.Value = ir.Load(vector, "sums", column)
            for a, b in factors:
                total = multiply_add(a, ir.Load(vector, "b", b + column, mask), total)
            return ir.Store("sums", column, total)

        swept(sums)

    with code.range(0, greatest(k, 1), greatest(even, 1)) as k0:
        count = code.let(least(k - k0, even))
        some = code.let(quotient(count, _STEPS) * _STEPS)
        with code.range(0, columns, lanes) as column:
            code.emit(ir.Store("sums", column, number(dtype, 0, lanes)))
        # Six rows of b per load and store of the sums: 1.05 -> 0.96 at 1024 x 1024.
        for k1, last in code.blocks(0, some, count, _STEPS, 1):
            steps(k0 + k1, 1 if last else _STEPS)
        swept(lambda column, mask: _store_sums(
            k0, column, ir.Load(vector, "sums", column), given, mask
        ))  # fmt: skip


def _across(vector: ir.Type, code: Writer) -> None:
    """Transpose squares of long columns; short columns and remainders take a few steps at a time.

    Excess columns are read as the last column, and not stored.
    """
    lanes, dtype, total = vector.lanes, vector.dtype, ir.Get(vector, "sum")
    k, k_block, columns, b_row = load_scalars(code, "k", "k_block", "columns", "b_panel")
    given = load_scalars(code, "init_step")[0].differs(0)
    even = block_of_k(code, k, k_block)
    # Short loads side by side serve columns of less than three squares, where squares took up to
    # 2.9 times as long.
    few = min(_FEW, lanes)
    piece = ir.Type(dtype, few)

    def add(at: ir.Value, column: ir.Value) -> None:
        a = ir.Load(ir.Type(dtype), "a", at).spread(lanes)
        code.emit(ir.Assign(total.name, multiply_add(a, column, total)))

    def together(at: ir.Value, mask: ir.Value | None = None) -> list[ir.Value]:
        """Return a few k-steps of all columns, one after the other."""
        pieces = [code.let(ir.Load(piece, "b", row + at, mask)) for row in rows]
        count = lanes // few
        wide = [concatenated_vectors(pieces[i : i + count]) for i in range(0, lanes, count)]
        return deinterleave(vector, wide, code.let)

    with code.range(0, columns, lanes) as j:
        inside = code.let(first_lanes(columns - j, lanes))
        rows = [code.let(least(j + i, columns - 1) * b_row) for i in range(lanes)]
        with code.range(0, greatest(k, 1), greatest(even, 1)) as k0:
            count = code.let(least(k - k0, even))
            some = code.let(select(count >= SHORT * lanes, round_down(count, lanes), 0))
            code.emit(ir.Declare(total.name, number(dtype, 0, lanes)))
            with code.range(0, some, lanes) as k1:
                loads = [ir.Load(vector, "b", row + (k0 + k1)) for row in rows]
                for u, column in enumerate(transposed_block(vector, loads, code.let)):
                    add(k0 + k1 + u, column)
            fours = code.let(some + round_down(count - some, few))
            with code.range(some, fours, few) as k1:
                for u, column in enumerate(together(k0 + k1)):
                    add(k0 + k1 + u, column)
            remaining, last = code.let(count - fours), code.let(k0 + fours)
            with code.when(remaining.equals(1)):
                offsets = (rows[0] + last).spread(lanes) + b_row.spread(lanes) * iota(lanes)
                add(last, ir.Gather(vector, "b", offsets, inside))
            with code.when(remaining > 1):
                own = together(last, code.let(first_lanes(remaining, few)))
                for u, column in enumerate(own[:-1]):
                    with code.when(remaining > u):
                        add(last + u, column)
            code.emit(_store_sums(k0, j, total, given, inside))


def _store_sums(
    k0: ir.Value, at: ir.Value, total: ir.Value, given: ir.Value, mask: ir.Value | None
) -> ir.Step:
    """Store the sums of a block of k: the first adds an `init` if given, the others add c."""
    vector = total.type

    def store_from(begin: ir.Value) -> tuple[ir.Step, ...]:
        return (ir.Store("c", at, total + begin, mask),)

    start = store_from(ir.Load(vector, "init", at, mask))
    first = ir.If(given, start, store_from(number(vector.dtype, 0, vector.lanes)))
    return ir.If(constant(0) < k0, store_from(ir.Load(vector, "c", at, mask)), (first,))


def _dots(vector: ir.Type, code: Writer) -> None:
    lanes, scalar = vector.lanes, ir.Type(vector.dtype)
    k, rows, a_row, init_row, c_row = load_scalars(code, "k", "rows", "a_row", "init_row", "c_row")
    many, whole = (code.let(round_down(k, each)) for each in (_CHAINS * lanes, lanes))
    mask = code.let(first_lanes(k - whole, lanes))
    chains = [ir.Get(vector, f"t{index}") for index in range(_CHAINS)]
    with code.range(0, rows) as i:
        row = code.let(i * a_row)

        def add(total: ir.Get, at: ir.Value, mask: ir.Value | None = None) -> None:
            a, b = ir.Load(vector, "a", row + at, mask), ir.Load(vector, "b", at, mask)
            code.emit(ir.Assign(total.name, multiply_add(a, b, total)))

        for total in chains:
            code.emit(ir.Declare(total.name, number(vector.dtype, 0, lanes)))
        with code.range(0, many, _CHAINS * lanes) as at:
            for index, total in enumerate(chains):
                add(total, at + index * lanes)
        code.sweep(many, k, lanes, partial(add, chains[0]), whole, mask)
        summed = code.let(ir.Reduce(scalar, "add", sum(chains[1:], chains[0])))
        begin = ir.Load(scalar, "init", i * init_row)
        code.emit(ir.Store("c", i * c_row, summed + begin))


def _short(vector: ir.Type, code: Writer) -> None:
    """Sum one row per lane, with one reduction for all rows of a vector.

    Excess rows are read as the last row.
    """
    lanes, scalar, zero = vector.lanes, ir.Type(vector.dtype), number(vector.dtype, 0, vector.lanes)
    k, rows, a_row, init_row, c_row = load_scalars(code, "k", "rows", "a_row", "init_row", "c_row")
    whole = code.let(round_down(k, lanes))
    contiguous = code.let(c_row.equals(1) & init_row.equals(0))
    # Long rows have a function of their own (`_dots`): in one function with these, registers spill
    # around the loop over rows, and both lose a fifth.
    mask, totals = code.let(first_lanes(k - whole, lanes)), min(lanes, _CHAINS)
    code.emit(ir.Stack("totals", vector.dtype, lanes * lanes))

    def add(at: Sequence[ir.Value], k0: ir.Value, mask: ir.Value | None = None) -> None:
        b = code.let(ir.Load(vector, "b", k0, mask))
        for u, row in enumerate(at):
            total, a = ir.Get(vector, f"t{u}"), ir.Load(vector, "a", row + k0, mask)
            code.emit(ir.Assign(total.name, multiply_add(a, b, total)))

    with code.range(0, rows, lanes) as first:
        with code.range(0, lanes, totals) as i:
            at = [code.let(least(first + i + u, rows - 1) * a_row) for u in range(totals)]
            for u in range(totals):
                code.emit(ir.Declare(f"t{u}", zero))
            code.sweep(0, k, lanes, partial(add, at), whole, mask)
            for u in range(totals):
                code.emit(ir.Store("totals", (i + u) * lanes, ir.Get(vector, f"t{u}")))
        sums = [ir.Load(vector, "totals", constant(i * lanes)) for i in range(lanes)]
        found = code.let(lane_sums(vector, sums, code.let))
        with code.when(contiguous):
            begin = ir.Load(scalar, "init", constant(0)).spread(lanes)
            inside = code.let(first_lanes(rows - first, lanes))
            code.emit(ir.Store("c", first, found + begin, inside))
        with code.otherwise():
            code.emit(ir.Store("totals", constant(0), found))
            with code.range(0, least(rows - first, lanes)) as i:
                begin = ir.Load(scalar, "init", (first + i) * init_row)
                total = ir.Load(scalar, "totals", i) + begin
                code.emit(ir.Store("c", (first + i) * c_row, total))
