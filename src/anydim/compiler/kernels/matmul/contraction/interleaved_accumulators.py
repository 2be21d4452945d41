"""Large K with a run-time B stored K-contiguous: K is split over four interleaved accumulators.

    c[j] = init[j] + sum of steps 0, 4, 8 ... + sum of steps 1, 5, 9 ... + two more

Few rows multiply four k-steps at once without packing (`_row`), and without transposing squares of
b; for many rows both operands are packed accumulator by accumulator, and the k-steps of one
accumulator (a turn) are a piece of k. A turn is at most as long as other pieces; longer products
are even blocks of four turns. Both variants pad missing k-steps with zeros, so that a row has the
same bits.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import DType
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import (
    first_lanes,
    quotient,
    quotient_up,
    round_down,
)
from anydim.compiler.kernels.codegen.register_transpose import deinterleave, transposed_block
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, greatest, least, number, select, variable
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.accumulators import multiply_add
from anydim.compiler.kernels.matmul.contraction_form import ContractionForm
from anydim.compiler.kernels.matmul.matmul_kernel import function_library
from anydim.compiler.kernels.matmul.register_tile import load_scalars, strip_pointers
from anydim.compiler.kernels.matmul.schedules import Contraction
from anydim.compiler.kernels.schedule import ANY
from anydim.sizes import NEVER, Condition, Size, at_least

INTERLEAVED, FEW_ROWS = "interleaved", "few_rows"  # names of versions
ACCUMULATORS = 4
# One row 1.3 to 1.7 -> 0.9 to 1.15, many rows 1 to 4 % longer.
LONG, BROAD = 288, 128  # minimum k-steps and columns: copies of a are then negligible
FEW = 2  # maximum rows without packing
_MIN_STEPS = 128  # minimum steps of a turn, where there are several blocks of turns
_ROWS = 8  # rows of b at a time
_SCALARS = ("src_row", "dst_row", "rows", "columns", "turn")


def may_interleave(
    form: ContractionForm, schedule: Contraction, machine: Machine, lanes: int
) -> bool:
    """Whether products of some sizes use interleaved accumulators."""
    if schedule.version not in (ANY, INTERLEAVED, FEW_ROWS):
        return False
    plain = form.pieces is None and form.windows is None and form.k.a == 1 and form.n.b != 1
    fits = lanes % ACCUMULATORS == 0 and not machine.max_lanes
    return plain and fits and not schedule.packed and is_long(form) != NEVER


def is_long(form: ContractionForm) -> Condition:
    """Return where a product has large K and enough columns."""
    # Not a condition on rows: a row must have the same bits in every batch.
    return at_least(form.k.extent, LONG) & at_least(form.n.extent, BROAD)


def padded_k(k: Size) -> Size:
    """Return an upper bound of the padded k of all turns."""
    return k + k // 8


def steps_per_accumulator(k: ir.Value, columns: ir.Value, max_steps: int) -> ir.Value:
    """Return the steps of a turn, at most `max_steps`; 0 where accumulators are not interleaved."""
    blocks = greatest(quotient_up(k, ACCUMULATORS * max(max_steps, _MIN_STEPS)), 1)
    even = quotient_up(k, blocks * ACCUMULATORS)
    even = select(blocks <= 1, even, round_down(even + (ACCUMULATORS - 1), ACCUMULATORS))
    return select((k >= LONG) & (columns >= BROAD), even, 0)


def accumulator_stride(turn: ir.Value) -> ir.Value:
    """Return the distance between turns: a multiple of four vectors, never whole pages."""
    # An odd multiple of four: turns whole pages apart would share one set of the cache.
    return (turn + (ACCUMULATORS - 1)) & -ACCUMULATORS | ACCUMULATORS


@lru_cache(maxsize=16)
def interleaved_libraries(lanes: int, dtype: DType) -> tuple[ir.Library, ...]:
    """Return libraries for one row times b, and for copies of rows of a and b of a block of k.

        dst[turn(c), r] = src[r, c] for b, with panels of a vector of rows `dst_row` apart
        dst[r, turn(c)] = src[r, c] for a

    for rows r and columns c; missing steps of a turn are 0. `matrix_vector.py` has the functions of
    rows with one accumulator.
    """
    name, vector = f"turns_{dtype}_x{lanes}", ir.Type(dtype, lanes)
    ends = tuple(ir.Pointer(each, dtype) for each in ("src", "dst"))
    return (
        function_library(f"{name}_row", strip_pointers(dtype), partial(_row, vector), dtype),
        function_library(f"{name}_a", ends, partial(_rows_of_a, vector), dtype, _SCALARS),
        function_library(f"{name}_b", ends, partial(_rows_of_b, vector), dtype, _SCALARS),
    )


def _row(vector: ir.Type, code: Writer) -> None:
    """Multiply rows by b; excess columns are read as the last column, and not stored."""
    lanes, dtype, few = vector.lanes, vector.dtype, ir.Type(vector.dtype, ACCUMULATORS)
    k, columns, b_row, turn = load_scalars(code, "k", "columns", "b_panel", "step")
    all_rows, a_row, init_row, c_row = load_scalars(code, "rows", "a_row", "init_row", "c_row")
    given = load_scalars(code, "init_step")[0].differs(0)
    sums = [ir.Get(few, f"t{u}") for u in range(min(_ROWS, lanes))]
    code.emit(ir.Stack("sums", dtype, lanes * ACCUMULATORS))

    def add(a: ir.Value, at: ir.Value, rows: list[ir.Value], mask: ir.Value | None = None) -> None:
        own = code.let(ir.Load(few, "a", a + at, mask))
        for total, row in zip(sums, rows):
            b = ir.Load(few, "b", row + at, mask)
            code.emit(ir.Assign(total.name, multiply_add(own, b, total)))

    def emit_sums(a: ir.Value, j: ir.Value, k0: ir.Value) -> None:
        """Emit four sums of a block of k per column, into scratch."""
        stop = code.let(k0 + least(k - k0, turn * ACCUMULATORS))
        whole = code.let(k0 + round_down(stop - k0, ACCUMULATORS))
        with code.range(0, lanes, len(sums)) as i:
            rows = [code.let(least(j + i + u, columns - 1) * b_row) for u in range(len(sums))]
            for total in sums:
                code.emit(ir.Declare(total.name, number(dtype, 0, ACCUMULATORS)))
            for at, last in code.blocks(k0, whole, k0 + turn * ACCUMULATORS, ACCUMULATORS):
                inside = first_lanes(greatest(stop - at, 0), ACCUMULATORS)
                add(a, at, rows, code.let(inside) if last else None)
            for u, total in enumerate(sums):
                code.emit(ir.Store("sums", (i + u) * ACCUMULATORS, total))

    with code.range(0, columns, lanes) as j, code.range(0, all_rows) as r:
        inside, c = code.let(first_lanes(columns - j, lanes)), code.let(r * c_row + j)
        code.emit(ir.Declare("total", number(dtype, 0, lanes)))
        with code.when(given):
            begin = ir.Load(vector, "init", r * init_row + j, inside)
            code.emit(ir.Assign("total", begin))
        with code.range(0, k, turn * ACCUMULATORS) as k0:
            emit_sums(code.let(r * a_row), j, k0)
            loads = [ir.Load(vector, "sums", constant(u * lanes)) for u in range(ACCUMULATORS)]
            for own in deinterleave(vector, loads, code.let):
                code.emit(ir.Assign("total", ir.Get(vector, "total") + own))
        code.emit(ir.Store("c", c, ir.Get(vector, "total"), inside))


def _rows_of_a(vector: ir.Type, code: Writer) -> None:
    lanes, columns, turn = vector.lanes, variable("columns"), variable("turn")
    whole = code.let(quotient(columns, lanes * ACCUMULATORS) * lanes)
    further = code.let(accumulator_stride(turn))

    def emit_copy(source: ir.Value, target: ir.Value, at: ir.Value, masked: bool) -> None:
        starts = [at * ACCUMULATORS + u * lanes for u in range(ACCUMULATORS)]
        ends = [
            code.let(first_lanes(greatest(columns - start, 0), lanes)) if masked else None
            for start in starts
        ]
        inside = code.let(first_lanes(turn - at, lanes)) if masked else None
        loads = [ir.Load(vector, "src", source + x, end) for x, end in zip(starts, ends)]
        for u, own in enumerate(deinterleave(vector, loads, code.let)):
            code.emit(ir.Store("dst", target + further * u + at, own, inside))

    with code.range(0, variable("rows")) as r:
        source, target = code.let(r * variable("src_row")), code.let(r * variable("dst_row"))
        for at, last in code.blocks(0, whole, turn, lanes):
            emit_copy(source, target, at, masked=last)


def _rows_of_b(vector: ir.Type, code: Writer) -> None:
    """Copy rows of b; excess rows are read as the last row, and stored as zeros."""
    lanes, zero = vector.lanes, number(vector.dtype, 0, vector.lanes)
    rows, columns, row, turn = (variable(each) for each in ("rows", "columns", "src_row", "turn"))
    whole, further = code.let(round_down(columns, lanes)), code.let(accumulator_stride(turn))

    def square(c: ir.Value, mask: ir.Value | None) -> None:
        first = code.let(quotient(c, ACCUMULATORS))
        loads = [ir.Load(vector, "src", source + c, mask) for source in sources]
        for i, column in enumerate(transposed_block(vector, loads, code.let)):
            at = (first + further * (i % ACCUMULATORS) + i // ACCUMULATORS) * lanes
            code.emit(ir.Store("dst", panel + at, select(inside, column, zero)))

    with code.range(0, rows, lanes) as r:
        panel = code.let(quotient(r, lanes) * variable("dst_row"))
        inside = code.let(first_lanes(rows - r, lanes))
        sources = [code.let(least(r + i, rows - 1) * row) for i in range(lanes)]
        for c, last in code.blocks(0, whole, turn * ACCUMULATORS, lanes):
            valid = first_lanes(greatest(columns - c, 0), lanes)
            square(c, code.let(valid) if last else None)
