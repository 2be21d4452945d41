"""Data that routines are tested with: duplicates, and what is special about each type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anydim.base.dtypes import DTYPES

ORDERED = [dtype for dtype in DTYPES.values() if not dtype.stored]
# every type, and both directions of some whose keys are made in different ways
DIRECTIONS = [(dtype, number % 2 == 0) for number, dtype in enumerate(ORDERED)]
DIRECTIONS += [(dtype, not up) for dtype, up in DIRECTIONS if dtype.bits in (1, 16)]


def data(random: np.random.Generator, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Values with many duplicates, and what is special about the type."""
    if DTYPES[dtype.name].is_float:
        values = random.integers(-20, 20, shape) / 4
        special = random.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, -np.nan], shape)
        return np.where(random.random(shape) < 0.3, special, values).astype(dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    info = np.iinfo(dtype)
    few = random.integers(max(info.min, -9), 9, shape)
    wide = random.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.where(random.random(shape) < 0.5, few.astype(dtype), wide)
