"""Packing of constant matrices into panels, at load time."""

from __future__ import annotations

from math import prod

import numpy
from numpy.lib.stride_tricks import as_strided

from anydim.kernels.launch import Panels

ALIGNMENT = 64


def packed_shape(panels: Panels) -> tuple[int, int, int, int]:
    """(groups, panels, k, width) of the packed array."""
    groups, k, n = (prod(size for size, _ in part) for part in _parts(panels))
    return groups, -(-n // panels.width), k, panels.width


def pack(array: numpy.ndarray, panels: Panels) -> numpy.ndarray:
    """The constant in panels: [groups, ceil(n / width), k, width], zero padded, 64-byte aligned."""
    groups, count, k, width = packed_shape(panels)
    result = _aligned((groups, count, k, width), array.dtype)
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


def _parts(panels: Panels) -> tuple[tuple[tuple[int, int], ...], ...]:
    return panels.batch, panels.k, panels.n


def _aligned(shape: tuple[int, ...], dtype: numpy.dtype) -> numpy.ndarray:
    room = numpy.empty(prod(shape) * dtype.itemsize + ALIGNMENT, numpy.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
