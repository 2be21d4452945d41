"""Shape-independent micro-kernels of weight-only quantised products: a few rows times a panel.

    c[i, j] = sum over blocks of scale[block, j] * sum over k of the block of a[i, k] * w[k, j]

Weights are decoded to floats in registers: bytes by conversion, 4-bit fields without a shift.
Field f of a word is 16^f times its value, so `a` is divided by that in advance (a power of two:
exact). A field has an offset of 8, so 8 times the sum of `a` over the block is subtracted.

For many rows `decode` converts the weights to floats once: the same sums in the same order. One set
of sums serves all row counts: the bits of a row do not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product

from anydim.base.dtypes import float32, int8, int32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import constant, fma, number, splat, variable
from anydim.compiler.kernels.matmul.accumulators import Accumulators
from anydim.compiler.kernels.matmul.matmul_kernel import function_library
from anydim.compiler.kernels.matmul.weight_only_quant.quant_form import FIELDS

SCALARS = ("groups", "block", "a_row", "sums_row", "more")
MIDDLE = 8  # the value 0 in a 4-bit field
# Fields are masked where they lie, not shifted: three operations for a vector of weights.
HIGHEST = FIELDS - 2  # the last field that needs no shift: the next one has the sign bit


@dataclass(frozen=True)
class QuantTile:
    """Weights of `bits`, panels of `vectors`; k in steps of `step`; heights of row tiles.

    `wide` are the heights of tiles that read decoded weights. Rows have floats, or bytes
    (`has_bytes`, `byte_rows.py`).
    """

    bits: int
    vectors: int
    lanes: int
    step: int
    heights: tuple[int, ...]
    wide: tuple[int, ...]
    has_bytes: bool = False

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def prefix(self) -> str:
        kind = "bytes" if self.has_bytes else ""
        return f"narrow{self.bits}{kind}_{self.vectors}x{self.lanes}_{self.step}"


def name_of(tile: QuantTile, height: int, wide: bool = False) -> str:
    """Return the name of the function for row tiles of a height."""
    return f"{tile.prefix}_{height}{'wide' if wide else 'rows'}"


def decode_name(tile: QuantTile) -> str:
    """Return the name of the function that decodes a part of a panel: (w, to, k)."""
    return f"{tile.prefix}_decode"


@lru_cache(maxsize=32)
def narrow_libraries(tile: QuantTile) -> tuple[ir.Library, ...]:
    """Return a library for each height, so that threads share the compilation."""
    rows = [*((h, False) for h in tile.heights), *((h, True) for h in tile.wide)]
    decoded = (ir.Pointer("w", int8), ir.Pointer("to", float32), ir.Scalar("k"))
    return (
        *(
            function_library(
                name_of(tile, height, wide),
                row_parameters(wide),
                partial(_rows, tile, height, wide),
                float32,
            )
            for height, wide in rows
        ),
        function_library(decode_name(tile), decoded, partial(_decode, tile), float32),
    )


def row_parameters(wide: bool) -> tuple[ir.Pointer | ir.Scalar, ...]:
    floats = {name: ir.Pointer(name, float32) for name in ("a", "sums", "w", "s", "c")}
    pointers = floats if wide else {**floats, "w": ir.Pointer("w", int8)}
    return (*pointers.values(), *(ir.Scalar(name) for name in SCALARS))


def _offset(tile: QuantTile, step: ir.Value, j: int) -> ir.Value:
    """Return the offset of vector j of a k-step in decoded weights."""
    return step * tile.width + j * tile.lanes


def _weights(code: Writer, tile: QuantTile, at: ir.Value) -> Callable[[int, int], ir.Value]:
    """Return a function of u and j: vector j of the weights of step at + u, as floats."""
    lanes, vector = tile.lanes, ir.Type(float32, tile.lanes)

    def byte(u: int, j: int) -> ir.Value:
        numbers = ir.Load(ir.Type(int8, lanes), "w", _offset(tile, at + u, j))
        return ir.Convert(vector, numbers)

    if tile.bits == 8:
        return byte
    first = at * (tile.width // FIELDS)
    offsets = [first + j * lanes for j in range(tile.vectors)]
    words = [code.let(ir.Load(ir.Type(int32, lanes), "w", offset)) for offset in offsets]

    def field(u: int, j: int) -> ir.Value:
        word = words[j]
        if u > HIGHEST:
            word = word >> number(int32, 4 * (u - HIGHEST), lanes)
        mask = number(int32, 15 << 4 * min(u, HIGHEST), lanes)
        return ir.Convert(vector, word & mask)

    return field


def _decode(tile: QuantTile, code: Writer) -> None:
    """Decode weights to floats in field position: scaled by a power of two per field."""
    with code.range(0, variable("k"), tile.step) as at:
        weight = _weights(code, tile, at)
        for u, j in product(range(tile.step), range(tile.vectors)):
            code.emit(ir.Store("to", _offset(tile, at + u, j), weight(u, j)))


def _rows(tile: QuantTile, height: int, wide: bool, code: Writer) -> None:
    """Emit the sums of a row tile; with `wide`, of decoded weights.

    Decoded weights have fewer steps at a time: LLVM hoists loads, and registers run out.
    """
    lanes, vector = tile.lanes, ir.Type(float32, tile.lanes)
    sums = Accumulators(code, vector, height, tile.vectors, "t")
    offsets = {(i, j): constant(i * tile.width + j * lanes) for i, j in sums.indices}
    step, block = min(tile.step, 4) if wide else tile.step, variable("block")
    with code.when(variable("more").equals(0)):
        for at in offsets.values():
            code.emit(ir.Store("c", at, number(float32, 0, lanes)))
    with code.range(0, variable("groups")) as group:
        sums.declare()
        with code.range(0, block, step) as k:
            at = code.let(group * block + k)
            weight = _decoded_weights(tile, at) if wide else _weights(code, tile, at)
            for u in range(step):
                b = [code.let(weight(u, j)) for j in range(tile.vectors)]
                rows = [variable("a_row") * i + at + u for i in range(height)]
                sums.add([ir.Load(ir.Type(float32), "a", row) for row in rows], b)
        scales = [
            code.let(ir.Load(vector, "s", _offset(tile, group, j))) for j in range(tile.vectors)
        ]
        for (i, j), at in offsets.items():
            total: ir.Value = sums[i, j]
            if tile.bits == 4:
                own = variable("sums_row") * i + group
                row = splat(ir.Load(ir.Type(float32), "sums", own), lanes)
                total = fma(row, number(float32, -MIDDLE, lanes), total)
            code.emit(ir.Store("c", at, fma(scales[j], total, ir.Load(vector, "c", at))))


def _decoded_weights(tile: QuantTile, at: ir.Value) -> Callable[[int, int], ir.Value]:
    """Return the same as `_weights`, for decoded weights."""
    vector = ir.Type(float32, tile.lanes)
    return lambda u, j: ir.Load(vector, "w", _offset(tile, at + u, j))
