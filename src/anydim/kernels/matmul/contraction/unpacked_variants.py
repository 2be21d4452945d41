"""Variants of a contraction without packing: one row, one column, or small matrices.

They are branches of the kernel that call functions of `matrix_vector.py` instead of micro-kernels.
"""

from __future__ import annotations

from anydim.kernels import ir
from anydim.kernels.codegen.arithmetic import loop
from anydim.kernels.ir import constant, least, variable
from anydim.kernels.matmul.blocked_loops import nested
from anydim.kernels.matmul.contraction.contraction_loops import MainWriter
from anydim.kernels.matmul.contraction.interleaved_accumulators import FEW, interleaved_libraries
from anydim.kernels.matmul.contraction.matrix_vector import (
    SHORT,
    SMALL_K,
    WIDE,
    small_library,
    vector_libraries,
)
from anydim.kernels.matmul.register_tile import store_scalar
from anydim.sizes import as_size

DONE = "done"  # iterations of the loop that a rectangle has processed


class ContractionWriter(MainWriter):
    """The contraction kernel with the unpacked variants."""

    def rectangle(self) -> list[ir.Step]:
        steps = [*super().rectangle()]
        at = self.a_at()
        small = [_small(self)] if self.done else []
        for condition, body in (*small, *vector_variants(self)):
            steps = [at, ir.If(condition, tuple(body), tuple(s for s in steps if s != at))]
        return steps

    @property
    def done(self) -> str:
        """The register for batches of small matrices in one loop, which run several at a time."""
        form = self.form
        plain = self.finished and not (form.start or form.pieces or form.windows)
        in_place = not self.schedule.packed and len(form.loops) == 1
        return DONE if plain and in_place else ""


def vector_variants(writer: MainWriter) -> list[tuple[ir.Value, list[ir.Step]]]:
    """Return conditions without packing, with the steps for each; the last that holds counts."""
    form = writer.form
    if writer.schedule.packed or form.cuts_b:
        return []
    row, across, dots, short = vector_libraries(writer.tile.lanes, form.dtype)
    found: list[tuple[ir.Value, list[ir.Step]]] = []
    one_row, one_column = (extent.equals(1) for extent in (writer.all_rows, writer.all_columns))
    along = one_column & writer.b_step.equals(1)
    rows, columns = (walk.extent.constant for walk in (form.m, form.n))
    if rows in (None, 1):
        library, step = (row, writer.b_step) if form.n.b == 1 else (across, writer.b_column)
        writer.needs(library)
        found.append((one_row, _one_row(writer, library.name, step)))
        if writer.interleaves:
            library = interleaved_libraries(writer.tile.lanes, form.dtype)[0]
            writer.needs(library)
            given = store_scalar("a_row", writer.a_row)
            few = (writer.all_rows <= FEW) & writer.interleaved
            # rows of sums in scratch have the stride of a block
            wide = WIDE if writer.target is not None else writer.block_columns
            found.append((few, [given, *_one_row(writer, library.name, step, wide)]))
    if form.cuts_a or form.windows is not None or columns not in (None, 1):
        return found
    if form.k.a == 1:
        candidates = [(along, dots)]
        if not writer.machine.max_lanes:  # device compilers are slow already
            candidates.append((along & (writer.all_k <= SHORT * writer.tile.lanes), short))
        for condition, library in candidates:
            writer.needs(library)
            found.append((condition, _one_column(writer, library.name)))
    elif form.windows is None and form.start is None:
        writer.needs(row)
        contiguous = along & writer.c_row.equals(1)
        contiguous = contiguous if form.m.a == 1 else contiguous & writer.a_row.equals(1)
        found.append((contiguous, _transposed_product(writer, row.name)))
    return found


def _small(writer: MainWriter) -> tuple[ir.Value, list[ir.Step]]:
    """Return the variant of small matrices, for all remaining pairs; see `vector_variants`."""
    form, known, lanes = writer.form, writer.sizes.known, writer.tile.lanes
    (walk,), target = form.loops, writer.target
    assert target is not None
    library = small_library(lanes, form.dtype, form.n.b == 1)
    writer.needs(library)
    sizes = (writer.all_rows, writer.all_columns, writer.all_k)
    limits = (writer.tile.rows, lanes, SMALL_K)
    rows, columns, depth = (size <= limit for size, limit in zip(sizes, limits))
    matrices = (
        ir.Address(writer.a, variable("a_at")),
        ir.Address(writer.b, writer.start_of("b", form.b_start, lambda w: w.b)),
        ir.Address(writer.buffers[target.tensor], writer.start_of("c", as_size(0), lambda w: w.c)),
    )
    scalars = (
        variable("left"), *sizes, known("a_row", form.m.a), known("a_step", form.k.a),
        writer.b_column, writer.b_step, writer.c_row,
        *(known(f"{each}_{walk.name}", getattr(walk, each)) for each in "abc"),
    )  # fmt: skip
    called = ir.Call(library.name, (*matrices, *scalars))
    condition = rows & columns & depth
    return condition, [called, ir.Assign(DONE, variable("left"))]


def _one_row(
    writer: MainWriter, function: str, b_row: ir.Value, wide: int | ir.Value = WIDE
) -> list[ir.Step]:
    """Multiply by unpacked rows or columns of B, `b_row` apart, by blocks of `wide` columns."""
    stop = least(variable("stop_panel") * writer.unit, writer.all_columns)
    first = variable("first_panel") * writer.unit
    return [
        ir.Let("tile0", variable("first_tile")),
        ir.Let("tile1", variable("stop_tile")),
        *(writer.pack_a() if writer.scratch_layout.holds_a else ()),
        store_scalar("b_panel", b_row),
        loop(
            "column0", first, stop, wide,
            ir.Let("width", least(stop - variable("column0"), wide)),
            *_whole_k(writer, function),
        ),
    ]  # fmt: skip


def _one_column(writer: MainWriter, function: str) -> list[ir.Step]:
    """Multiply rows of A by the only column of B."""
    return [
        ir.Let("tile0", variable("first_tile")),
        ir.Let("tile1", variable("stop_tile")),
        ir.Let("column0", constant(0)),
        ir.Let("width", constant(1)),
        *_whole_k(writer, function),
    ]


def _whole_k(writer: MainWriter, function: str) -> list[ir.Step]:
    start = writer.start_of("b", writer.form.b_start, lambda w: w.b)
    columns = variable("column0") * writer.b_column
    results = writer.start_of("c", as_size(0), lambda w: w.c)
    return [
        ir.Let("c_at", results + variable("column0")),
        ir.Let("b_at", start + columns),
        ir.Let("chunk", writer.all_k),
        *writer.group_sizes(),
        *nested(writer.tiles(function)),
    ]


def _transposed_product(writer: MainWriter, function: str) -> list[ir.Step]:
    """Multiply the only column of B by an A that is contiguous along m: a row times a matrix."""
    form = writer.form
    first, stop = (writer.first_row(variable(f"{end}_tile")) for end in ("first", "stop"))
    a = ir.Address(writer.a, variable("a_at") + variable("row0"))
    b = ir.Address(writer.b, writer.start_of("b", form.b_start, lambda w: w.b))
    sums, _ = writer.sums()
    zeros = ir.Address("zeros", constant(0))
    call = ir.Call(function, (b, a, zeros, sums, ir.Address("given", constant(0))))
    return [
        ir.Let("c_at", writer.start_of("c", as_size(0), lambda w: w.c)),
        ir.Let("column0", constant(0)),
        ir.Let("width", constant(1)),
        store_scalar("k", writer.all_k),
        store_scalar("b_panel", writer.sizes.known("a_step", form.k.a)),
        store_scalar("init_step", constant(0)),
        loop(
            "row0", first, stop, WIDE,
            ir.Let("rows", least(stop - variable("row0"), WIDE)),
            ir.Let("sums_at", writer.sums_at()),
            store_scalar("columns", variable("rows")),
            call,
            *(() if writer.finished else (writer.epilogue_call(sums_stride=constant(1)),)),
        ),
    ]  # fmt: skip
