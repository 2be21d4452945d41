"""Rows of bytes times weights of 4 bits: exact sums of a block, by products of bytes.

    c[i, j] = sum over blocks of scale[block, j] * float(sum over the block of a[i, k] * w[k, j])

The low halves of a word's bytes are the even fields, the high halves the odd ones: two vectors of
unsigned bytes by one mask each. Rows have their bytes in that order. Fields are 8 too large, so
sums start from -8 times the sum of `a` over the block.

Blocks are added in order, one sum per element: the bits of a row do not depend on other rows.
"""

from __future__ import annotations

from functools import lru_cache, partial

from anydim.base.dtypes import float32, int8, int32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, fma, least, number, shuffle, splat, variable
from anydim.compiler.kernels.matmul.accumulators import Accumulators
from anydim.compiler.kernels.matmul.matmul_kernel import function_library
from anydim.compiler.kernels.matmul.weight_only_quant.quant_form import FIELDS, QuantForm
from anydim.compiler.kernels.matmul.weight_only_quant.quant_micro_kernels import (
    MIDDLE,
    QuantTile,
    name_of,
    row_parameters,
)

WORD = 4  # bytes
_HALF = 0x0F0F0F0F  # the low halves of bytes


@lru_cache(maxsize=32)
def byte_libraries(tile: QuantTile) -> tuple[ir.Library, ...]:
    """Return a library for each height, so that threads share the compilation."""
    return tuple(
        function_library(
            name_of(tile, height),
            row_parameters(wide=False),
            partial(_sums, tile, height),
            float32,
            dots=True,
        )
        for height in tile.heights
    )


def _sums(tile: QuantTile, height: int, code: Writer) -> None:
    """Emit the sums of a row tile, over all blocks.

    A block has `block` words of weights, and a row has words of four bytes.
    """
    vector = ir.Type(float32, tile.lanes)
    sums = Accumulators(code, ir.Type(int32, tile.lanes), height, tile.vectors, "t")
    totals = Accumulators(code, vector, height, tile.vectors)
    totals.declare()
    with code.range(0, variable("groups")) as group:
        for i in range(height):
            own = ir.Load(ir.Type(int32), "sums", variable("sums_row") * i + group)
            start = code.let(splat(own, tile.lanes))
            for j in range(tile.vectors):
                code.emit(ir.Declare(sums[i, j].name, start))
        words = tile.step // FIELDS
        with code.range(0, variable("block"), words) as word:
            at = code.let(group * variable("block") + word)
            for u in range(words):
                _add_word(tile, height, code, sums, code.let(at + u))
        for j in range(tile.vectors):
            scale = code.let(ir.Load(vector, "s", group * tile.width + j * tile.lanes))
            for i in range(height):
                totals[i, j] = fma(scale, ir.Convert(vector, sums[i, j]), totals[i, j])
    for i, j in totals.indices:
        code.emit(ir.Store("c", constant(i * tile.width + j * tile.lanes), totals[i, j]))


def _add_word(tile: QuantTile, height: int, code: Writer, sums: Accumulators, at: ir.Value) -> None:
    """Add the products of word `at` of each column."""
    whole, half = ir.Type(int32, tile.lanes), number(int32, _HALF, tile.lanes)
    words = [code.let(ir.Load(whole, "w", at * tile.width + j * tile.lanes))
             for j in range(tile.vectors)]  # fmt: skip
    # A shift of signed words brings in copies of the sign, which the mask removes.
    for part, by in enumerate((0, 4)):
        fields = [code.let((word >> number(int32, by, tile.lanes) if by else word) & half)
                  for word in words]  # fmt: skip
        rows = [variable("a_row") * i + at * 2 + part for i in range(height)]
        sums.add([ir.Load(ir.Type(int32), "a", row) for row in rows], fields, _dot)


def _dot(row: ir.Value, fields: ir.Value, total: ir.Value) -> ir.Value:
    return ir.Op(total.type, "dot_bytes", (fields, row, total))


def prepare_bytes(form: QuantForm, block: int, lanes: int) -> ir.Function:
    """Return the function that copies rows of A contiguously, padded with zeros.

    Bytes are in the order of the fields; each block has -8 times its sum in `sums`.
    """
    code, count = Writer(), _vector_of(block, lanes * WORD)
    order = tuple(at // FIELDS * FIELDS + _ORDER[at % FIELDS] for at in range(count))
    middle = number(int32, MIDDLE * 0x01010101, count // WORD)
    total = ir.Get(middle.type, "total")
    with code.range(0, variable("height")) as i:
        source = code.let(least(i, variable("rows") - 1) * variable("row"))
        with code.range(0, form.groups) as group:
            code.emit(ir.Declare(total.name, number(int32, 0, count // WORD)))
            with code.range(0, block, count) as k:
                at = code.let(group * block + k)
                to = code.let(i * (form.groups * block) + at)
                known = code.let(first_lanes(form.depth - at, count))
                value = code.let(ir.Load(ir.Type(int8, count), "a", source + at, known))
                code.emit(ir.Store("to", to, shuffle(value, value, order)))
                stored = ir.Load(total.type, "to", to / WORD)
                code.emit(ir.Assign(total.name, _dot(stored, middle, total)))
            negative = constant(0, int32) - total.reduce_lanes("add")
            code.emit(ir.Store("sums", i * form.groups + group, negative))
    pointers = (
        ir.Pointer(name, dtype, alias=True)
        for name, dtype in (("a", int8), ("to", float32), ("sums", float32))
    )
    scalars = ("row", "rows", "height")
    return ir.Function("prepare", (*pointers, *map(ir.Scalar, scalars)), code.written)


_ORDER = (*range(0, FIELDS, 2), *range(1, FIELDS, 2))


def _vector_of(block: int, most: int) -> int:
    """Return the bytes that are copied at once: a power of two that divides the block."""
    return min(most, block & -block)
