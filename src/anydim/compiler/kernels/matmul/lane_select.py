"""Gathers of nearby lanes as permutes of whole vectors: faster than a gather on a Zen 4."""

from __future__ import annotations

from anydim.base.dtypes import int32, uint64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import number, select

# Lanes of rows of up to five positions lie in four: 1.1 to 1.66 -> 0.7 to 1.3.
SELECT_VECTORS = 4  # vectors that the lanes are selected from


def within_vectors(offsets: ir.Value, valid: ir.Value | None = None) -> ir.Value:
    """Whether all lanes at `offsets` (in the mask `valid`) are within SELECT_VECTORS vectors."""
    far = offsets.bits(uint64) >= SELECT_VECTORS * offsets.type.lanes
    return ~(far if valid is None else far & valid).any


def select_lanes(
    code: Writer, gathered: ir.Gather, source: ir.Value, offsets: ir.Value, fits: ir.Value
) -> ir.Value:
    """Return the gathered lanes, at `offsets` from `source`.

    Where `fits` holds, SELECT_VECTORS vectors from `source` on are readable and contain every
    lane: the lanes are permuted out of them. Otherwise the gather runs.
    """
    vector, mask, lanes = gathered.type, gathered.mask, gathered.type.lanes
    zero = number(vector.dtype, 0, lanes)
    found = code.variable(zero)
    with code.when(fits):
        parts = [
            ir.Load(vector, gathered.buffer, source + n * lanes) for n in range(SELECT_VECTORS)
        ]
        indices = offsets.as_(int32)
        low, high = (ir.Permute(vector, *pair, indices) for pair in zip(parts[::2], parts[1::2]))
        chosen = select(offsets < 2 * lanes, low, high)
        found.set(chosen if mask is None else select(mask, chosen, zero))
    with code.otherwise():
        found.set(gathered)
    return found()
