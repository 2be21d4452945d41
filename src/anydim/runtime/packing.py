"""Packing of constant matrices into panels, at load time.

The memory of a packed constant is allocated at once; filling it is numpy work in few steps over
whole arrays, which may run later and concurrently with other work.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy
from numpy.lib.stride_tricks import as_strided

from anydim.base.dtypes import convert_array
from anydim.runtime.pages import Pages
from anydim.runtime.panels import BytesPanels, NarrowPanels, Packing, Panels, ProductPanels


def packed_shape(panels: Panels) -> tuple[int, int, int, int]:
    """(groups, panels, k, width) of the packed array."""
    groups, k, n = _sizes(panels.batch, panels.k, panels.n)
    return groups, -(-n // panels.width), k, panels.width


_AT_ONCE = 1 << 15  # products of a step: fits caches, below the threading of numpy's BLAS
Work = Callable[[], None]


def pack(array: numpy.ndarray, packing: Packing, pages: Pages | None = None) -> numpy.ndarray:
    """Pack a constant for a kernel: 64-byte aligned, in memory of `pages`."""
    result, fill = allocate_packed(
        lambda: array, array.dtype, packing, Pages() if pages is None else pages
    )
    fill()
    return result


def allocate_packed(
    given: Callable[[], numpy.ndarray], dtype: numpy.dtype, packing: Packing, pages: Pages
) -> tuple[numpy.ndarray, Work]:
    """Allocate memory for the packed array; the returned work calls `given` and fills it."""
    if isinstance(packing, BytesPanels):
        return _pack_bytes(given, packing, pages)
    if isinstance(packing, NarrowPanels):
        return _pack_narrow(given, packing, pages)
    if isinstance(packing, ProductPanels):
        return _pack_products(given, dtype, packing, pages)
    return _pack(given, dtype, packing, pages)


def _pack_bytes(
    given: Callable[[], numpy.ndarray], panels: BytesPanels, pages: Pages
) -> tuple[numpy.ndarray, Work]:
    """[groups, panels, words, width, 4]: words of four bytes along k, and their sums, both aligned.

    The sums of a row directly follow its words; the sums of a panel follow its zero padding. Words
    of numbers of two bytes have 0 for sums.
    """
    parts = (panels.batch, panels.own, panels.taps, panels.k)
    groups, own, taps, k = _sizes(*parts)
    each = 4 // panels.element
    count, words = -(-own // panels.width), -(-k // each)
    used, part = panels.part_words(taps, k)
    depth, every = panels.depth, panels.parts * part
    sums_at = every if panels.width == 1 else -(-every // depth) * depth
    length = sums_at + 1 if panels.width > 1 else -(-(every + 1) // depth) * depth
    one = length * panels.width * 4
    whole = _allocate_aligned(
        ((groups * count + panels.spare) * one,), numpy.dtype(numpy.uint8), pages
    )
    unit = number_type(panels)
    shape = (groups, count, length, panels.width, each)
    result = whole[: groups * count * one].view(unit).reshape(shape)

    def fill() -> None:
        source = view_parts(_numbers(given(), panels), panels.offset, parts)
        if panels.flipped:
            source = source ^ numpy.uint8(128)
        padded = numpy.zeros((groups, count * panels.width, taps, words * each), unit)
        padded[:, :own, :, :k] = source
        if part > used:
            whole_parts = numpy.zeros((groups, len(padded[0]), panels.parts, part * each), unit)
            whole_parts[..., : used * each] = padded.reshape(*whole_parts.shape[:3], used * each)
            padded = whole_parts
        words_of = padded.reshape(groups, count, panels.width, every, each)
        result[:, :, :every] = words_of.transpose(0, 1, 3, 2, 4)
        result[:, :, every:] = 0
        whole[result.nbytes :] = 0
        if panels.element > 1:
            return
        signed = padded if panels.unsigned else padded.view(numpy.int8)
        sums = signed.sum((2, 3), dtype=numpy.int32).reshape(groups, count, panels.width, 1)
        sums = (sums.astype(numpy.int64) * panels.factor).astype(numpy.int32)
        result[:, :, sums_at] = numpy.ascontiguousarray(sums).view(numpy.uint8)

    return whole, fill


def number_type(panels: BytesPanels) -> numpy.dtype:
    """The integers of an element's bits."""
    return numpy.dtype(numpy.uint8 if panels.element == 1 else numpy.uint16)


def _numbers(array: numpy.ndarray, panels: BytesPanels) -> numpy.ndarray:
    """The bits of the elements; types below eight bits become bytes."""
    if panels.element == 1:
        wide = numpy.int8 if array.dtype.name[0] == "i" else numpy.uint8
        array = convert_array(array, numpy.dtype(wide))
    return numpy.ascontiguousarray(array).view(number_type(panels))


def _pack_narrow(
    given: Callable[[], numpy.ndarray], panels: NarrowPanels, pages: Pages
) -> tuple[numpy.ndarray, Work]:
    """int8 [panels, bytes]; see `NarrowPanels`."""
    (k, _), (n, _) = panels.k, panels.n
    width, depth = panels.width, panels.depth
    count = -(-n // width)
    result = _allocate_aligned(
        (count, depth * width * panels.bits // 8), numpy.dtype(numpy.int8), pages
    )

    def fill() -> None:
        array = convert_array(given(), numpy.dtype(numpy.int8))
        source = view_parts(array, 0, ((panels.n,), (panels.k,)))
        if source.shape != (count * width, depth):
            padded = numpy.zeros((count * width, depth), numpy.int8)
            padded[:n, :k] = source
            source = padded
        by_panel = source.reshape(count, width, depth)
        if panels.bits == 8:
            result.reshape(count, depth, width)[...] = by_panel.transpose(0, 2, 1)
            return
        pairs = (by_panel + 8).view("<u2")  # two fields of four bits, in a byte each
        words = (pairs | pairs >> 4).astype(numpy.uint8).view("<u4")
        result.view(numpy.uint32).reshape(count, depth // 8, width)[...] = words.transpose(0, 2, 1)

    return result, fill


def view_parts(
    array: numpy.ndarray, offset: int, parts: tuple[tuple[tuple[int, int], ...], ...],
    collapsed: bool = True,
) -> numpy.ndarray:  # fmt: skip
    """A constant viewed along the axes of all parts.

    `collapsed`: each part's axes are one, which may copy; otherwise a view to write to.
    """
    flat = numpy.ascontiguousarray(array).reshape(-1)[offset:]
    shape = tuple(size for part in parts for size, _ in part)
    strides = tuple(stride * flat.itemsize for part in parts for _, stride in part)
    if not prod(shape):
        found = flat[:0].reshape(shape)
    else:
        found = as_strided(flat, shape, strides, writeable=not collapsed)
    return found.reshape(_sizes(*parts)) if collapsed else found


def _sizes(*parts: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """The number of elements along each part."""
    return tuple(prod(size for size, _ in part) for part in parts)


def _pack(
    given: Callable[[], numpy.ndarray], dtype: numpy.dtype, panels: Panels, pages: Pages
) -> tuple[numpy.ndarray, Work]:
    """Pack into panels: [groups, ceil(n / width), k, width], zero padded, 64-byte aligned."""
    groups, count, k, width = packed_shape(panels)
    result = _allocate_aligned((groups, count, k, width), dtype, pages)
    (n,) = _sizes(panels.n)

    def fill() -> None:
        if not result.size or not n:
            return
        source = view_parts(given(), panels.offset, (panels.batch, panels.k, panels.n))
        whole = n // width
        if whole:
            columns = source[:, :, : whole * width].reshape(groups, k, whole, width)
            result[:, :whole] = columns.transpose(0, 2, 1, 3)
        if n % width:
            result[:, whole, :, : n % width] = source[:, :, whole * width :]
            result[:, whole, :, n % width :] = 0

    return result, fill


def _pack_products(
    given: Callable[[], numpy.ndarray], dtype: numpy.dtype, panels: ProductPanels, pages: Pages
) -> tuple[numpy.ndarray, Work]:
    """[groups, pairs, ceil(n / width), k, width]: matrix x taps x matrix', computed in float64."""
    parts = (panels.batch, panels.n, panels.k, panels.taps)
    groups, n, k, taps = _sizes(*parts)
    matrix = numpy.array(panels.matrix)
    pairs, width = numpy.kron(matrix, matrix), panels.width
    count = -(-n // width)
    result = _allocate_aligned((groups, len(pairs), count, k, width), dtype, pages)

    def fill() -> None:
        source = view_parts(given(), panels.offset, parts)
        step = max(1, _AT_ONCE // (len(pairs) * width))
        by_tap = numpy.zeros((taps, step * width))
        made = numpy.empty((len(pairs), step * width))
        for group, panel, first in product(range(groups), range(count), range(0, k, step)):
            columns = source[group, panel * width : (panel + 1) * width, first : first + step]
            own, rows, _ = columns.shape
            into = by_tap[:, : rows * width].reshape(taps, rows, width)
            into[:, :, :own], into[:, :, own:] = columns.transpose(2, 1, 0), 0
            numpy.matmul(pairs, by_tap, made)
            of_rows = made[:, : rows * width].reshape(-1, rows, width)
            result[group, :, panel, first : first + rows] = of_rows

    return result, fill


def _allocate_aligned(shape: tuple[int, ...], dtype: numpy.dtype, pages: Pages) -> numpy.ndarray:
    return pages.take(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
