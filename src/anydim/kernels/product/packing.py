"""Packing of constant matrices into panels, at load time."""

from __future__ import annotations

from math import prod

import numpy
from numpy.lib.stride_tricks import as_strided

from anydim.base.dtypes import converted
from anydim.kernels.launch import BytesPanels, Packing, Panels, ProductPanels
from anydim.runtime.pages import Pages


def packed_shape(panels: Panels) -> tuple[int, int, int, int]:
    """(groups, panels, k, width) of the packed array."""
    groups, k, n = (prod(size for size, _ in part) for part in _parts(panels))
    return groups, -(-n // panels.width), k, panels.width


def pack(array: numpy.ndarray, packing: Packing, pages: Pages | None = None) -> numpy.ndarray:
    """A constant as a kernel takes it, 64-byte aligned, in memory of `pages`."""
    pages = Pages() if pages is None else pages
    if isinstance(packing, BytesPanels):
        return _pack_bytes(array, packing, pages)
    if isinstance(packing, ProductPanels):
        return _pack_products(array, packing, pages)
    return _pack(array, packing, pages)


def _pack_bytes(array: numpy.ndarray, panels: BytesPanels, pages: Pages) -> numpy.ndarray:
    """[groups, panels, words + 1, width, 4]: words of four bytes along k, then their sums."""
    parts = (panels.batch, panels.own, panels.taps, panels.k)
    groups, own, taps, k = (prod(size for size, _ in part) for part in parts)
    source = _strided(array, panels.offset, parts).reshape(groups, own, taps, k)
    if panels.flipped:
        source = source ^ numpy.uint8(128)
    count, words = -(-own // panels.width), -(-k // 4)
    shape = (groups, count, taps * words + 1, panels.width, 4)
    result = _aligned(shape, numpy.dtype(numpy.uint8), pages)
    result[...] = 0
    padded = numpy.zeros((groups, count * panels.width, taps, words * 4), numpy.uint8)
    padded[:, :own, :, :k] = source
    words_of = padded.reshape(groups, count, panels.width, taps * words, 4)
    result[:, :, :-1] = words_of.transpose(0, 1, 3, 2, 4)
    signed = padded if panels.unsigned else padded.view(numpy.int8)
    sums = signed.sum((2, 3), dtype=numpy.int32).reshape(groups, count, panels.width, 1)
    sums = (sums.astype(numpy.int64) * panels.factor).astype(numpy.int32)
    result[:, :, -1] = numpy.ascontiguousarray(sums).view(numpy.uint8)
    return result.reshape(groups, count, prod(shape[2:]))


def _strided(
    array: numpy.ndarray, offset: int, parts: tuple[tuple[tuple[int, int], ...], ...]
) -> numpy.ndarray:
    """The bytes of a constant along the axes of all parts; small types have theirs in full."""
    wide = converted(array, numpy.dtype(numpy.int8 if array.dtype.name[0] == "i" else numpy.uint8))
    flat = numpy.ascontiguousarray(wide).reshape(-1)[offset:].view(numpy.uint8)
    shape = tuple(size for part in parts for size, _ in part)
    strides = tuple(stride for part in parts for _, stride in part)
    if not prod(shape):
        return numpy.zeros(shape, numpy.uint8)
    return as_strided(flat, shape, strides, writeable=False)


def _pack(array: numpy.ndarray, panels: Panels, pages: Pages) -> numpy.ndarray:
    """The constant in panels: [groups, ceil(n / width), k, width], zero padded, 64-byte aligned."""
    groups, count, k, width = packed_shape(panels)
    result = _aligned((groups, count, k, width), array.dtype, pages)
    flat = numpy.ascontiguousarray(array).reshape(-1)[panels.offset :]
    parts = _parts(panels)
    shape = tuple(size for part in parts for size, _ in part)
    strides = tuple(stride * flat.itemsize for part in parts for _, stride in part)
    n = prod(size for size, _ in parts[2])
    if not result.size or not n:
        return result
    source = as_strided(flat, shape, strides, writeable=False).reshape(groups, k, n)
    whole = n // width
    if whole:
        columns = source[:, :, : whole * width].reshape(groups, k, whole, width)
        result[:, :whole] = columns.transpose(0, 2, 1, 3)
    if n % width:
        result[:, whole, :, : n % width] = source[:, :, whole * width :]
        result[:, whole, :, n % width :] = 0
    return result


def _pack_products(array: numpy.ndarray, panels: ProductPanels, pages: Pages) -> numpy.ndarray:
    """[groups, pairs, ceil(n / width), k, width]: matrix x taps x matrix', computed in float64."""
    flat = numpy.ascontiguousarray(array).reshape(-1)[panels.offset :]
    parts = (panels.batch, panels.n, panels.k, panels.taps)
    groups, n, k, taps = (prod(size for size, _ in part) for part in parts)
    shape = tuple(size for part in parts for size, _ in part)
    strides = tuple(stride * flat.itemsize for part in parts for _, stride in part)
    source = as_strided(flat, shape, strides, writeable=False).reshape(groups, n, k, taps)
    matrix = numpy.array(panels.matrix)
    pairs, width = numpy.kron(matrix, matrix).T, panels.width
    count = -(-n // width)
    result = _aligned((groups, pairs.shape[1], count, k, width), array.dtype, pages)
    for group in range(groups):
        for tile in range(count):
            block = source[group, tile * width : (tile + 1) * width].astype(numpy.float64)
            made = result[group, :, tile]
            made[..., len(block) :] = 0
            made[..., : len(block)] = (block @ pairs).transpose(2, 1, 0)
    return result


def _parts(panels: Panels) -> tuple[tuple[tuple[int, int], ...], ...]:
    return panels.batch, panels.k, panels.n


def _aligned(shape: tuple[int, ...], dtype: numpy.dtype, pages: Pages) -> numpy.ndarray:
    return pages.take(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
