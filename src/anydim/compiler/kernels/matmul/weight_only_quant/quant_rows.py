"""Prepares rows of A for weight-only quantised products."""

from __future__ import annotations

from anydim.base.dtypes import float32, int32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, iota, least, number, variable
from anydim.compiler.kernels.matmul.weight_only_quant.quant_form import FIELDS
from anydim.compiler.kernels.matmul.weight_only_quant.quant_micro_kernels import HIGHEST, QuantTile

SCALARS = ("row", "k_step", "rows", "height")


def prepare_function(tile: QuantTile, groups: int, depth: int, block: int) -> ir.Function:
    """Return the function that copies rows of A contiguously, padded with zeros.

    The last row is repeated up to `height`. For 4-bit fields, elements are divided by the scale of
    their field, and summed over each block.
    """
    code, lanes = Writer(), tile.lanes
    zero = number(float32, 0, lanes)
    factors = code.let(_factors(lanes)) if tile.bits == 4 else None
    total = ir.Get(zero.type, "total")
    with code.range(0, variable("height")) as i:
        source = code.let(least(i, variable("rows") - 1) * variable("row"))
        with code.range(0, groups) as group:
            code.emit(ir.Declare(total.name, zero))
            with code.range(0, block, lanes) as k:
                at = code.let(group * block + k)
                count = code.let(least(depth - at, block - k))
                kept = code.let(first_lanes(block - k, lanes))
                value = _read(code, source, at, count, zero)
                if factors is not None:
                    code.emit(ir.Assign(total.name, total + value))
                to = i * (groups * block) + at
                made = value if factors is None else value * factors
                code.emit(ir.Store("to", to, made, kept))
            if factors is not None:
                code.emit(ir.Store("sums", i * groups + group, total.reduce_lanes("add")))
    pointers = (ir.Pointer(name, float32, alias=True) for name in ("a", "to", "sums"))
    return ir.Function("prepare", (*pointers, *map(ir.Scalar, SCALARS)), code.written)


def _read(code: Writer, row: ir.Value, at: ir.Value, count: ir.Value, zero: ir.Const) -> ir.Value:
    """Load `count` elements of a row of A, contiguous or strided, padded with zeros."""
    lanes, step, value = zero.type.lanes, variable("k_step"), ir.Get(zero.type, "value")
    known = code.let(first_lanes(count, lanes))
    code.emit(ir.Declare(value.name, zero))
    with code.when(constant(0) < count):
        with code.when(step.equals(1)):
            code.emit(ir.Assign(value.name, ir.Load(zero.type, "a", row + at, known)))
        with code.otherwise():
            offsets = (row + at * step).spread(lanes) + iota(lanes) * step
            code.emit(ir.Assign(value.name, ir.Gather(zero.type, "a", offsets, known)))
    return value


def _factors(lanes: int) -> ir.Value:
    """Return 2^(-4 f) for the field f of each lane, as bits; the last field is shifted down."""
    field = least(iota(lanes, int32) & (FIELDS - 1), HIGHEST)
    return ((127 - field * 4) << 23).bits(float32)
