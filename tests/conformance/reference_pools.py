"""Pools as the tests of onnx compute them, all windows at once: onnx goes from window to window."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np


def pool(
    padded: np.ndarray, x_shape: Sequence[int], kernel: Sequence[int],
    strides: Sequence[int] | None, out_shape: Sequence[int], pooling_type: str,
    pads_required: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, count_include_pad: int = 0, p: int = 1,
) -> np.ndarray:  # fmt: skip
    """The same as `onnx.reference.ops.op_pool_common.pool`."""
    rank = len(x_shape) - 2
    required, own = _of_both_ends(pads_required, rank), _of_both_ends(pads, rank)
    strides, dilations = strides or [1] * rank, [1] * rank if dilations is None else dilations
    indices, insides, counts = [], [], []
    for i in range(rank):
        size, reach = x_shape[i + 2], 1 + (kernel[i] - 1) * dilations[i]
        counts.append(int((size + required[i] + required[i + rank] - reach) / strides[i] + 1))
        places = strides[i] * np.arange(counts[i])[:, None] + dilations[i] * np.arange(kernel[i])
        shape = [1] * (2 * rank)
        shape[i], shape[i + rank] = places.shape
        insides.append((places < size + own[i] + own[i + rank]).reshape(shape))
        indices.append(np.minimum(places, padded.shape[i + 2] - 1).reshape(shape))
    windows = padded[(slice(None), slice(None), *indices)]
    counted: Any = np.broadcast_to(reduce(np.logical_and, insides), windows.shape)
    if pooling_type == "MAX" or count_include_pad != 1:
        counted = counted & ~np.isnan(windows)
    over = tuple(range(-rank, 0))
    if pooling_type == "MAX":
        found = np.where(counted, windows, -np.inf).max(over)
    elif pooling_type == "AVG":
        found = np.where(counted, windows, 0).sum(over) / counted.sum(over)
    else:
        found = (np.abs(np.where(counted, windows, 0)) ** p).sum(over) ** (1.0 / p)
    result = np.zeros([*x_shape[:2], *out_shape], padded.dtype)
    result[(slice(None), slice(None), *map(slice, counts))] = found
    return result


def _of_both_ends(pads: Sequence[int] | None, rank: int) -> list[int]:
    if pads is None:
        return [0] * (2 * rank)
    return [*pads] * (2 * rank if len(pads) == 1 else 1)
