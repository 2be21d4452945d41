"""Cases of the operators that are no comprehension; see cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydim.kernels.routines.trees import TABLES
from anydim.sizes import as_size
from tests.ops.case import Case, case, sized

N, M = as_size("n"), as_size("m")
TABLE_TYPES = [str(dtype or "float32") for dtype in TABLES.values()]


def ordered(x: Any, axis: int, descending: bool = False) -> tuple[Any, Any]:
    """Values in order and their places, ties to the lower index."""
    places = np.argsort(-x if descending else x, axis, kind="stable")
    return np.take_along_axis(x, places, axis), places


def best(x: Any, axis: int, k: int, largest: bool = True) -> tuple[Any, ...]:
    return tuple(found.take(range(k), axis) for found in ordered(x, axis, largest))


def padded(found: Any, count: int) -> Any:
    """Places along the last axis, then zeros, `count` in all."""
    kept = found[..., :count]
    return np.pad(kept, [(0, 0)] * (found.ndim - 1) + [(0, count - kept.shape[-1])])


def unique(x: Any) -> tuple[Any, ...]:
    flat = x.reshape(-1)
    found = np.unique(flat, return_index=True, return_inverse=True, return_counts=True)
    values, first, inverse, counts = found
    count = np.array([len(values)])
    return *(padded(r, flat.size) for r in (values, first)), inverse, padded(counts, x.size), count


def unique_columns(x: Any) -> tuple[Any, ...]:
    values = np.unique(x, axis=1) if x.size else x[:, :1]
    nothing = np.zeros(0, np.int64)
    count = np.array([values.shape[1]])
    return padded(values, x.shape[1]), nothing, nothing, nothing, count


def kept_boxes(center: bool) -> Any:
    """Non-maximum suppression of one batch, one pair of boxes after the other."""

    def edges(box: Any) -> Any:
        if center:
            return [(box[i] - box[i + 2] / 2, box[i] + box[i + 2] / 2) for i in (0, 1)]
        return [(min(box[i], box[i + 2]), max(box[i], box[i + 2])) for i in (0, 1)]

    def share(one: Any, other: Any) -> float:
        sides = [min(a[1], b[1]) - max(a[0], b[0]) for a, b in zip(edges(one), edges(other))]
        areas = [np.prod([high - low for low, high in edges(box)]) for box in (one, other)]
        both = sides[0] * sides[1] if min(sides) > 0 else 0
        return both / (areas[0] + areas[1] - both) if min(areas) > 0 else 0.0

    def reference(boxes: Any, scores: Any, most: Any, overlap: Any, threshold: Any) -> Any:
        rows: list[tuple[int, int, int]] = []
        for number, own in enumerate(scores[0]):
            kept: list[int] = []
            for index in np.argsort(-own, kind="stable"):
                apart = all(share(boxes[0, index], boxes[0, k]) <= overlap[0] for k in kept)
                if own[index] > threshold[0] and apart and len(kept) < most:
                    kept.append(index)
            rows += [(0, number, index) for index in kept]
        result = np.zeros((scores.size, 3), np.int64)
        result[: len(rows)] = np.reshape(rows, (-1, 3))
        return result, np.array([len(rows)])

    return reference


CASES: dict[str, list[Case]] = {
    "sort": [
        case("float32[n, m]", to=lambda x: ordered(x, -1)),
        case("int32[n, 3, m]", axis=0, to=lambda x: ordered(x, 0)),
        case("int64[n, m]", descending=True, to=lambda x: ordered(x, 1, True)),
    ],
    "ngram_counts": [
        case("int32[n, m]", "int64[0]", "int64[0]", "int64[0]", "int64[0]", count=3, longest=2,
             to=lambda x, *tables: np.zeros((len(x), 3))),
    ],
    "tree_ensemble": [
        case("float32[n, m]", *(f"{kind}[0]" for kind in TABLE_TYPES), count=2,
             to=lambda x, *tables: np.zeros((len(x), 2))),
        case("float32[n, 3]", *(f"{kind}[2]" for kind in TABLE_TYPES), count=2, join="max", low=0,
             high=1, to=lambda x, *tables: np.full((len(x), 2), np.finfo("f").min)),
    ],
    "cum_prod": [
        case("float32[n, m]", axis=1, to=lambda x: x.cumprod(1)),
        case("int32[n, 2]", reverse=True, low=1, high=3, to=lambda x: x[::-1].cumprod(0)[::-1]),
        case("float32[3, n]", axis=0, exclusive=True,
             to=lambda x: np.stack([np.ones_like(x[0]), x[0], x[0] * x[1]])),
    ],
    "top_k": [
        case("float32[n, 4]", k=2, to=lambda x: best(x, 1, 2)),
        sized("float32[n, m]", axis=0, k=N, largest=False,
              to=lambda x, n, m: best(x, 0, n, False)),
        sized("int32[n, m]", k=M // 2, to=lambda x, n, m: best(x, 1, m // 2)),
    ],
    "unique_fill": [
        case("int32[n, m]", to=unique),
        case("int64[2, m]", axis=1, indices=False, inverse=False, counts=False, high=2,
             to=unique_columns),
    ],
    "nonzero_fill": [
        sized("int32[n, m]", count=N, high=2,
              to=lambda x, n, m: padded(np.stack(np.nonzero(x)), n)),
        case("float32[n, 3]", count=1, to=lambda x: padded(np.stack(np.nonzero(x)), 1)),
    ],
    "compress_fill": [
        case("float32[m, 4]", "bool[4]", axis=1, count=0, to=lambda x, c: x[:, :0]),
        sized("float32[n, 4]", "bool[n]", axis=0, count=N // 9,
              to=lambda x, c, n, m: x[padded(np.flatnonzero(c), n // 9)]),
    ],
    "non_max_suppression_fill": [
        case("float32[1, n, 4]", "float32[1, 2, n]", "int64[]", "float32[1]", "float32[1]",
             center=center, to=kept_boxes(center))
        for center in (False, True)
    ],
}  # fmt: skip
