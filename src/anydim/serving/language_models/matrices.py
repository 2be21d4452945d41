"""Weights as they are in files: arrays of floats, or codes of few bits with a scale per block.

    weight[n, k] = codes[n, k] * scales[n, k // block] + minima[n, k // block]

Formats are those of GGUF (ggml-quants.c of ggml). Codes are centred, so that those of four bits are
int4; formats of five and six bits have int8 codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Union

import ml_dtypes
import numpy

from anydim.base.records import dataclass

Matrix = Union[numpy.ndarray, "Blocks"]


@dataclass(frozen=True)
class Blocks:
    """Codes [n, k] of int4 or int8; scales and minima (None: zeros) [n, k / block] of float32.

    All may have an axis of experts before. Columns are those of the inputs `order` [k]; None: of
    all, one after another.
    """

    codes: numpy.ndarray
    scales: numpy.ndarray
    minima: numpy.ndarray | None
    block: int
    order: numpy.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    def floats(self) -> numpy.ndarray:
        """The weights, float32 [n, k]."""
        spread = numpy.repeat(self.scales, self.block, axis=-1)
        made = self.codes.astype(numpy.float32) * spread
        if self.minima is not None:
            made += numpy.repeat(self.minima, self.block, axis=-1)
        return made if self.order is None else made[:, numpy.argsort(self.order)]

    def rows(self, start: int, end: int) -> Blocks:
        """A range of rows."""
        minima = None if self.minima is None else self.minima[start:end]
        return replace(
            self, codes=self.codes[start:end], scales=self.scales[start:end], minima=minima
        )


def with_experts(matrix: Matrix, count: int) -> Matrix:
    """Divide the rows of a matrix, those of one expert after another: [count, n / count, k]."""
    if not isinstance(matrix, Blocks):
        return matrix.reshape(count, -1, matrix.shape[-1])
    codes, scales, minima = (
        each if each is None else each.reshape(count, -1, each.shape[-1])
        for each in (matrix.codes, matrix.scales, matrix.minima)
    )
    assert codes is not None and scales is not None
    return replace(matrix, codes=codes, scales=scales, minima=minima)


def joined_rows(matrices: Sequence[Matrix]) -> Matrix:
    """The rows of several matrices of one kind. Raises ValueError for matrices that differ."""
    first = matrices[0]
    if not isinstance(first, Blocks):
        return numpy.concatenate(matrices)  # type: ignore[arg-type]
    for each in matrices:
        if not isinstance(each, Blocks) or each.block != first.block or each.order is not None:
            raise ValueError("experts differ in their blocks, or in the order of their inputs")
    minima = [each.minima for each in matrices]  # type: ignore[union-attr]
    zeros = numpy.zeros_like(first.scales)
    return Blocks(
        numpy.concatenate([each.codes for each in matrices]),  # type: ignore[union-attr]
        numpy.concatenate([each.scales for each in matrices]),  # type: ignore[union-attr]
        None if all(each is None for each in minima)
        else numpy.concatenate([zeros if each is None else each for each in minima]),
        first.block,
    )  # fmt: skip


def rows_of(matrix: Matrix, start: int, end: int) -> Matrix:
    """A range of rows of a matrix."""
    return matrix.rows(start, end) if isinstance(matrix, Blocks) else matrix[start:end]


def take_rows(matrix: Matrix, order: numpy.ndarray) -> Matrix:
    """Rows of a matrix in an order."""
    if not isinstance(matrix, Blocks):
        return matrix[order]
    minima = None if matrix.minima is None else matrix.minima[order]
    return replace(matrix, codes=matrix.codes[order], scales=matrix.scales[order], minima=minima)


# ---- formats of GGUF -----------------------------------------------------------------------------

Fields = tuple[numpy.ndarray, numpy.ndarray, "numpy.ndarray | None", int]


def unpack_blocks(kind: str, data: numpy.ndarray) -> Blocks:
    """Unpack rows of bytes [n, bytes] of a format of GGUF. Raises KeyError for other formats."""
    unpack = FORMATS[kind]
    codes, scales, minima, block = unpack(numpy.ascontiguousarray(data))
    dtype = ml_dtypes.int4 if kind in _FOUR_BITS else numpy.int8
    return Blocks(codes.astype(dtype), scales, minima, block)


def _parts(data: numpy.ndarray, *kinds: Any) -> list[numpy.ndarray]:
    """Split each block into fields; a kind is (dtype, count)."""
    sizes = [numpy.dtype(dtype).itemsize * count for dtype, count in kinds]
    blocks = data.reshape(data.shape[0], -1, sum(sizes))
    ends = numpy.cumsum(sizes)
    return [
        numpy.ascontiguousarray(blocks[..., end - size : end]).view(dtype)
        for (dtype, _), size, end in zip(kinds, sizes, ends)
    ]


def _rows(codes: numpy.ndarray) -> numpy.ndarray:
    return codes.reshape(codes.shape[0], -1)


def _floats(part: numpy.ndarray) -> numpy.ndarray:
    return part.astype(numpy.float32)


def _nibbles(part: numpy.ndarray) -> numpy.ndarray:
    """Four-bit fields of blocks of bytes: the low halves, then the high ones."""
    return numpy.concatenate([part & 15, part >> 4], axis=-1).view(numpy.int8)


def _fifth_bits(part: numpy.ndarray) -> numpy.ndarray:
    """The 32 bits of four bytes, shifted to the fifth place."""
    return (numpy.unpackbits(part, axis=-1, bitorder="little") << 4).astype(numpy.int8)


def _q8_0(data: numpy.ndarray) -> Fields:
    scale, codes = _parts(data, ("<f2", 1), ("i1", 32))
    return _rows(codes), _rows(_floats(scale)), None, 32


def _q4_0(data: numpy.ndarray) -> Fields:
    scale, packed = _parts(data, ("<f2", 1), ("u1", 16))
    return _rows(_nibbles(packed) - 8), _rows(_floats(scale)), None, 32


def _q4_1(data: numpy.ndarray) -> Fields:
    scale, low, packed = _parts(data, ("<f2", 1), ("<f2", 1), ("u1", 16))
    scale, low = _rows(_floats(scale)), _rows(_floats(low))
    return _rows(_nibbles(packed) - 8), scale, low + 8 * scale, 32


def _q5_0(data: numpy.ndarray) -> Fields:
    scale, high, packed = _parts(data, ("<f2", 1), ("u1", 4), ("u1", 16))
    codes = (_nibbles(packed) | _fifth_bits(high)) - 16
    return _rows(codes), _rows(_floats(scale)), None, 32


def _q5_1(data: numpy.ndarray) -> Fields:
    scale, low, high, packed = _parts(data, ("<f2", 1), ("<f2", 1), ("u1", 4), ("u1", 16))
    scale, low = _rows(_floats(scale)), _rows(_floats(low))
    codes = (_nibbles(packed) | _fifth_bits(high)) - 16
    return _rows(codes), scale, low + 16 * scale, 32


def _sixths(part: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Eight scales and eight minima of six bits, from twelve bytes."""
    low, middle, high = part[..., :4], part[..., 4:8], part[..., 8:]
    scales = [low & 63, (high & 15) | ((low >> 2) & 48)]
    minima = [middle & 63, (high >> 4) | ((middle >> 2) & 48)]
    return tuple(_floats(numpy.concatenate(each, axis=-1)) for each in (scales, minima))  # type: ignore[return-value]


def _k_scales(
    scale: numpy.ndarray, low: numpy.ndarray, packed: numpy.ndarray
) -> tuple[numpy.ndarray, numpy.ndarray]:
    factors, minima = _sixths(packed)
    return _rows(_floats(scale) * factors), _rows(-_floats(low) * minima)


def _q4_k(data: numpy.ndarray) -> Fields:
    scale, low, packed, codes = _parts(data, ("<f2", 1), ("<f2", 1), ("u1", 12), ("u1", 128))
    scales, minima = _k_scales(scale, low, packed)
    fields = _nibbles(codes.reshape(*codes.shape[:-1], 4, 32))
    return _rows(fields - 8), scales, minima + 8 * scales, 32


def _q5_k(data: numpy.ndarray) -> Fields:
    scale, low, packed, high, codes = _parts(
        data, ("<f2", 1), ("<f2", 1), ("u1", 12), ("u1", 32), ("u1", 128)
    )
    scales, minima = _k_scales(scale, low, packed)
    fields = _nibbles(codes.reshape(*codes.shape[:-1], 4, 32))
    places = numpy.arange(8, dtype=numpy.uint8)
    bits = (high[..., None, :] >> places[:, None] & 1).astype(numpy.int8)
    whole = fields | (bits.reshape(fields.shape) << 4)
    return _rows(whole - 16), scales, minima + 16 * scales, 32


def _q6_k(data: numpy.ndarray) -> Fields:
    low, high, factors, scale = _parts(data, ("u1", 128), ("u1", 64), ("i1", 16), ("<f2", 1))
    halves = _nibbles(low.reshape(*low.shape[:-1], 2, 64))
    places = numpy.arange(0, 8, 2, dtype=numpy.uint8)
    high = high.reshape(*high.shape[:-1], 2, 1, 32) >> places[:, None] & 3
    whole = halves | (high.astype(numpy.int8).reshape(halves.shape) << 4)
    return _rows(whole - 32), _rows(_floats(scale) * _floats(factors)), None, 16


_NONLINEAR = numpy.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], numpy.int8
)  # kvalues_iq4nl of ggml-common.h


def _iq4_nl(data: numpy.ndarray) -> Fields:
    scale, packed = _parts(data, ("<f2", 1), ("u1", 16))
    return _rows(_NONLINEAR[_nibbles(packed)]), _rows(_floats(scale)), None, 32


_FOUR_BITS = {"Q4_0", "Q4_1", "Q4_K"}
FORMATS: dict[str, Callable[[numpy.ndarray], Fields]] = {
    "Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1,
    "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _iq4_nl,
}  # fmt: skip


# ---- quantisation of float weights ---------------------------------------------------------------


def quantize(matrix: numpy.ndarray, bits: int) -> Blocks:
    """Quantise weights [n, k] to codes of 8 or 4 bits in blocks of 32 along k, as Q8_0 and Q4_0."""
    n, k = matrix.shape
    whole = numpy.asarray(matrix, numpy.float32).reshape(n, k // 32, 32)
    if bits == 8:
        scales = numpy.abs(whole).max(axis=2) / 127
    else:
        at = numpy.abs(whole).argmax(axis=2)[..., None]
        scales = numpy.take_along_axis(whole, at, axis=2)[..., 0] / -8
    scales = scales.astype(numpy.float16).astype(numpy.float32)
    safe = numpy.where(scales == 0, 1, scales)[..., None]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    codes = numpy.clip(numpy.rint(whole / safe), low, high).reshape(n, k)
    return Blocks(codes.astype(ml_dtypes.int4 if bits == 4 else numpy.int8), scales, None, 32)
