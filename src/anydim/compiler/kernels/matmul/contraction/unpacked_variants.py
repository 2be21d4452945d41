"""Variants of a contraction without packing: one row, one column, or small matrices.

They are branches of the kernel that call functions of `matrix_vector.py` instead of micro-kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop
from anydim.compiler.kernels.codegen.context import condition_flag
from anydim.compiler.kernels.ir import constant, least, let
from anydim.compiler.kernels.matmul.blocked_loops import nest_levels
from anydim.compiler.kernels.matmul.contraction.contraction_loops import MainWriter
from anydim.compiler.kernels.matmul.contraction.contraction_variables import LOOP
from anydim.compiler.kernels.matmul.contraction.interleaved_accumulators import (
    FEW,
    FEW_ROWS,
    INTERLEAVED,
    interleaved_libraries,
    is_long,
)
from anydim.compiler.kernels.matmul.contraction.matrix_vector import (
    SHORT,
    SMALL_K,
    WIDE,
    small_library,
    vector_libraries,
)
from anydim.compiler.kernels.matmul.contraction.valid_taps import valid_taps_of
from anydim.compiler.kernels.matmul.panel_columns import BY_POSITION
from anydim.compiler.kernels.matmul.register_tile import store_scalar
from anydim.compiler.kernels.matmul.window_geometry import ALL_TAPS
from anydim.compiler.kernels.matmul.work_partition import RECTANGLE
from anydim.compiler.kernels.schedule import ANY
from anydim.compiler.kernels.versions import Listed, checked_version, taken_where
from anydim.sizes import ALWAYS, NEVER, Condition, Size, as_size, at_most, exactly

DONE = "done"  # iterations of the loop that a rectangle has processed
TALL = "tall_tile"  # name of the version
ROWS, COLUMNS, K, B_STEP, A_ROW, C_ROW = map(
    Size.symbol, ("rows", "columns", "k", "b_step", "a_row", "c_row")
)


@dataclass(frozen=True)
class UnpackedVersion:
    """A version without packing: its condition over ROWS, COLUMNS, ..., and its steps.

    Kernels are shared by products of other sizes, so conditions are compared in the kernel. With
    `interleaved`, it has interleaved accumulators.
    """

    name: str
    when: Condition
    steps: list[ir.Step]
    interleaved: bool = False


class ContractionWriter(MainWriter):
    """The contraction kernel with the unpacked variants."""

    def rectangle(self) -> list[ir.Step]:
        steps, version = [*super().rectangle()], self.schedule.version
        found = [*vector_ways(self), *([_small(self)] if self.done else [])]
        ways = [way for way in found if version in (ANY, way.name)]
        at = self.a_at()
        for way in reversed(ways):
            used = condition_flag(way.when, self._compare_role)
            used = used & self.interleaved if way.interleaved else used
            steps = [at, ir.If(used, tuple(way.steps), tuple(s for s in steps if s != at))]
        self.versions = self._list_versions(ways)
        return steps

    def _compare_role(self, size: Size, relation: str, number: int) -> ir.Value:
        """Compare the parameter of a role with a number."""
        names = {ROWS: "all_rows", COLUMNS: "all_columns", K: "all_k", B_STEP: "b_step",
                 A_ROW: "a_row", C_ROW: "c_row"}  # fmt: skip
        value: ir.Value = getattr(self, names[size])
        return value <= number if relation == "<=" else value >= number

    def _list_versions(self, ways: Sequence[UnpackedVersion]) -> Listed:
        """Return the versions over the sizes of the model."""
        form = self.form
        sizes = {
            "rows": form.m.extent, "columns": form.n.extent, "k": form.k.extent,
            "b_step": form.k.b, "a_row": form.m.a, "c_row": form.m.c,
        }  # fmt: skip
        long = is_long(form) if self.interleaves else NEVER
        own = [
            (way.name, way.when.substitute(sizes) & (long if way.interleaved else ALWAYS))
            for way in ways
        ]
        skipping = NEVER if valid_taps_of(form.windows, form.k.extent) is None else ALWAYS
        others = (
            (ALL_TAPS, taken_where(self.schedule.version, ALL_TAPS, NEVER, skipping)),
            (BY_POSITION, form.position_when), (INTERLEAVED, long), (TALL, self.blocks.tall),
            ("panels", ALWAYS),
        )  # fmt: skip
        return checked_version(self.schedule.version, (*own, *others))

    @property
    def done(self) -> str:
        """The register that counts finished small matrices, of which one call runs several."""
        form = self.form
        plain = self.finished and not (form.start or form.pieces or form.windows)
        in_place = not self.schedule.packed and len(form.loops) == 1
        return DONE if plain and in_place else ""


def vector_ways(writer: MainWriter) -> list[UnpackedVersion]:
    """Return the versions without packing; the first whose condition holds is used."""
    form = writer.form
    # A vector reads B once: packing it first takes 2.2 to 4.1 times the time of the product.
    if writer.schedule.packed or form.cuts_b:
        return []
    row, across, dots, short = vector_libraries(writer.tile.lanes, form.dtype)
    found: list[UnpackedVersion] = []
    rows, columns = (walk.extent.constant for walk in (form.m, form.n))
    if rows in (None, 1):
        library, step = (row, writer.b_step) if form.n.b == 1 else (across, writer.b_column)
        writer.needs(library)
        found.append(
            UnpackedVersion("one_row", exactly(ROWS, 1), _one_row(writer, library.name, step))
        )
        if writer.interleaves:
            library = interleaved_libraries(writer.tile.lanes, form.dtype)[0]
            writer.needs(library)
            given = store_scalar("a_row", writer.a_row)
            # rows of sums in scratch have the stride of a block
            wide = WIDE if writer.target is not None else writer.block_columns
            steps = [given, *_one_row(writer, library.name, step, wide)]
            found.append(UnpackedVersion(FEW_ROWS, at_most(ROWS, FEW), steps, interleaved=True))
    one_column = exactly(COLUMNS, 1) & exactly(B_STEP, 1)
    if form.cuts_a or form.windows is not None or columns not in (None, 1):
        return found[::-1]
    if form.k.a == 1:
        candidates = [("one_column", one_column, dots)]
        if not writer.machine.max_lanes:  # device compilers are slow already
            few = one_column & at_most(K, SHORT * writer.tile.lanes)
            candidates.append(("one_short_column", few, short))
        for name, when, library in candidates:
            writer.needs(library)
            found.append(UnpackedVersion(name, when, _one_column(writer, library.name)))
    elif form.windows is None and form.start is None:
        writer.needs(row)
        contiguous = one_column & exactly(C_ROW, 1)
        contiguous = contiguous if form.m.a == 1 else contiguous & exactly(A_ROW, 1)
        steps = _transposed_product(writer, row.name)
        found.append(UnpackedVersion("transposed_column", contiguous, steps))
    return found[::-1]


def _small(writer: MainWriter) -> UnpackedVersion:
    """Return the version for small matrices, for all remaining pairs; see `vector_ways`."""
    form, known, lanes = writer.form, writer.sizes.role_or_literal, writer.tile.lanes
    (walk,), target = form.loops, writer.target
    assert target is not None
    library = small_library(lanes, form.dtype, form.n.b == 1)
    writer.needs(library)
    sizes = (writer.all_rows, writer.all_columns, writer.all_k)
    limits = at_most(ROWS, writer.tile.rows) & at_most(COLUMNS, lanes) & at_most(K, SMALL_K)
    matrices = (
        ir.Address(writer.a, LOOP.a_at),
        ir.Address(writer.b, writer.start_of("b", form.b_start, lambda w: w.b)),
        ir.Address(writer.buffers[target.tensor], writer.start_of("c", as_size(0), lambda w: w.c)),
    )
    scalars = (
        RECTANGLE.left, *sizes, known("a_row", form.m.a), known("a_step", form.k.a),
        writer.b_column, writer.b_step, writer.c_row,
        *(known(f"{each}_{walk.name}", getattr(walk, each)) for each in "abc"),
    )  # fmt: skip
    called = ir.Call(library.name, (*matrices, *scalars))
    return UnpackedVersion("small_matrices", limits, [called, ir.Assign(DONE, RECTANGLE.left)])


def _one_row(
    writer: MainWriter, function: str, b_row: ir.Value, wide: int | ir.Value = WIDE
) -> list[ir.Step]:
    """Multiply by unpacked rows or columns of B, `b_row` apart, by blocks of `wide` columns."""
    stop = least(RECTANGLE.stop_panel * writer.unit, writer.all_columns)
    first = RECTANGLE.first_panel * writer.unit
    return [
        let(LOOP.tile0, RECTANGLE.first_tile),
        let(LOOP.tile1, RECTANGLE.stop_tile),
        *(writer.pack_a() if writer.scratch_layout.holds_a else ()),
        store_scalar("b_panel", b_row),
        loop(
            LOOP.column0, first, stop, wide,
            let(LOOP.width, least(stop - LOOP.column0, wide)),
            *_whole_k(writer, function),
        ),
    ]  # fmt: skip


def _one_column(writer: MainWriter, function: str) -> list[ir.Step]:
    """Multiply rows of A by the only column of B."""
    return [
        let(LOOP.tile0, RECTANGLE.first_tile),
        let(LOOP.tile1, RECTANGLE.stop_tile),
        let(LOOP.column0, constant(0)),
        let(LOOP.width, constant(1)),
        *_whole_k(writer, function),
    ]


def _whole_k(writer: MainWriter, function: str) -> list[ir.Step]:
    start = writer.start_of("b", writer.form.b_start, lambda w: w.b)
    columns = LOOP.column0 * writer.b_column
    results = writer.start_of("c", as_size(0), lambda w: w.c)
    return [
        let(LOOP.c_at, results + LOOP.column0),
        let(LOOP.b_at, start + columns),
        let(LOOP.chunk, writer.all_k),
        *writer.group_sizes(),
        *nest_levels(writer.tiles(function)),
    ]


def _transposed_product(writer: MainWriter, function: str) -> list[ir.Step]:
    """Multiply the only column of B by an A that is contiguous along m: a row times a matrix."""
    form = writer.form
    first, stop = map(writer.first_row, (RECTANGLE.first_tile, RECTANGLE.stop_tile))
    a = ir.Address(writer.a, LOOP.a_at + LOOP.row0)
    b = ir.Address(writer.b, writer.start_of("b", form.b_start, lambda w: w.b))
    sums, _ = writer.sums()
    zeros = ir.Address("zeros", constant(0))
    call = ir.Call(function, (b, a, zeros, sums, ir.Address("given", constant(0))))
    return [
        let(LOOP.c_at, writer.start_of("c", as_size(0), lambda w: w.c)),
        let(LOOP.column0, constant(0)),
        let(LOOP.width, constant(1)),
        store_scalar("k", writer.all_k),
        store_scalar("b_panel", writer.sizes.role_or_literal("a_step", form.k.a)),
        store_scalar("init_step", constant(0)),
        loop(
            LOOP.row0, first, stop, WIDE,
            let(LOOP.rows, least(stop - LOOP.row0, WIDE)),
            let(LOOP.sums_at, writer.sums_at()),
            store_scalar("columns", LOOP.rows),
            call,
            *(() if writer.finished else (writer.epilogue_call(sums_stride=constant(1)),)),
        ),
    ]  # fmt: skip
