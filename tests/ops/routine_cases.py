"""Cases of the operators that are no comprehension; see cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydim.sizes import as_size
from tests.ops.case import case, sized

N, M = as_size("n"), as_size("m")


def ordered(x: Any, axis: int, descending: bool = False) -> tuple[Any, Any]:
    """Values in order and their places, ties to the lower index."""
    places = np.argsort(-x if descending else x, axis, kind="stable")
    return np.take_along_axis(x, places, axis), places


def best(x: Any, axis: int, k: int, largest: bool = True) -> tuple[Any, ...]:
    return tuple(found.take(range(k), axis) for found in ordered(x, axis, largest))


CASES = {
    "sort": [
        case("float32[n, m]", to=lambda x: ordered(x, -1)),
        case("int32[n, 3, m]", axis=0, to=lambda x: ordered(x, 0)),
        case("int64[n, m]", descending=True, to=lambda x: ordered(x, 1, True)),
    ],
    "top_k": [
        case("float32[n, 4]", k=2, to=lambda x: best(x, 1, 2)),
        sized("float32[n, m]", axis=0, k=N, largest=False,
              to=lambda x, n, m: best(x, 0, n, False)),
        sized("int32[n, m]", k=M // 2, to=lambda x, n, m: best(x, 1, m // 2)),
    ],
}  # fmt: skip
