"""Cases of the operators that are no comprehension; see cases.py."""

from __future__ import annotations

import json
from bisect import bisect_left
from itertools import combinations
from typing import Any

import numpy as np

from anydim.compiler.kernels.routines.trees import TABLES
from anydim.sizes import as_size
from tests.ops.case import Case, case, sized

N, M = as_size("n"), as_size("m")


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


def tree_tables(used: int, slots: int, leaves: int, weights: int, kind: str = "float32") -> list:
    """The types of tables of so many columns, slots, leaves and weights."""
    sizes = (used, slots, slots, slots, slots, leaves + 1, weights, weights)
    return [f"{dtype or kind}[{size}]" for dtype, size in zip(TABLES.values(), sizes)]


def walked(x, used, features, splits, following, missing, first, targets, weights, *, trees, depth,
           count, join=lambda a, b: a + b, width=None):  # fmt: skip
    """Every row walks down every tree, whatever the tables hold: an index loses its upper bits."""
    places = 1 << max(0, len(used) - 1).bit_length()
    result = np.zeros((len(x), count))
    for row, own in zip(x, result):
        packed = np.zeros(places)
        for place, column in enumerate(used):
            packed[place] = row[column] if 0 <= column < len(row) else 0
        found: dict[int, float] = {}
        for node in range(trees):
            for _ in range(depth):
                second = packed[features[node] % places] > splits[node]
                node = int(following[node] + second) % len(splits)
            leaf = int(features[node])
            if not 0 <= leaf < len(first) - 1:
                continue
            low, high = max(0, first[leaf]), min(len(weights), first[leaf + 1])
            if width is not None:
                low, high = leaf * width, leaf * width + width
            for place in range(low, high if width is None or high <= len(weights) else low):
                target, weight = int(targets[place]), weights[place]
                if 0 <= target < count:
                    found[target] = join(found[target], weight) if target in found else weight
        for target, value in found.items():
            own[target] = value
    return result


def placed(x, keys):
    """Where each element is among keys as they come, by a search from the left."""
    flat = [bisect_left(keys.tolist(), v) for v in x.reshape(-1).tolist()]
    held = keys.tolist()
    found = [p if p < len(held) and held[p] == v else len(held)
             for p, v in zip(flat, x.reshape(-1).tolist())]  # fmt: skip
    return np.array(found, np.int64).reshape(x.shape)


def coupled(shares, count: int):
    """Probabilities p that make the sum of (r_ji p_i - r_ij p_j)^2 small, by libsvm's rounds."""
    shares = np.clip(shares, 1e-7, 1 - 1e-7)
    r = np.zeros((count, count))
    for share, (i, j) in zip(shares, combinations(range(count), 2)):
        r[i, j], r[j, i] = share, 1 - share
    q = np.diag((r**2).sum(0)) - r * r.T
    p = np.full(count, 1 / count)
    for _ in range(100):
        if np.abs(q @ p - p @ q @ p).max() < 0.005 / count:
            break
        for i in range(count):
            p[i] += (p @ q @ p - q[i] @ p) / q[i, i]
            p /= p.sum()
    return p


def coupled_rows(x, count: int):
    return np.array([coupled(row, count) for row in x]).reshape(len(x), count)


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


PLAN = {  # a definition that calls nothing, on nodes of one constructor
    "types": [[0, 1]], "cycles": [{"first": 1, "passed": False}], "roots": [0],
    "definitions": [{"types": [0], "cycle": 0, "decision": 0}],
    "cases": [
        {"definition": 0, "constructor": -1, "calls": [], "fields": [], "nodes": [], "loop": False}
    ],
}  # fmt: skip


def called(roots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of calls, and that of each root's: in the order of first roots."""
    order = list(dict.fromkeys(roots.tolist()))
    return np.array([0, len(order)]), np.array([order.index(root) for root in roots.tolist()])


CASES: dict[str, list[Case]] = {
    "call_levels": [case("int64[n]", plan=json.dumps(PLAN), counts=(5,), high=5, to=called)],
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
        case("float32[n, m]", *tree_tables(2, 8, 5, 6), count=3, trees=3, depth=3, columns=0,
             to=lambda *a: walked(*a, trees=3, depth=4, count=3)),
        case("float64[n, 3]", *tree_tables(3, 4, 4, 9, "float64"), count=2, trees=4, depth=2,
             columns=3, join="max", width=2, high=4,
             to=lambda *a: walked(*a, trees=4, depth=2, count=2, join=max, width=2)),
        case("float32[n, 1]", *tree_tables(0, 1, 2, 1), count=1, trees=1, depth=0, columns=0,
             join="min", high=2,
             to=lambda *a: walked(*a, trees=1, depth=0, count=1, join=min)),
    ],
    "find_keys": [
        case("int64[n, m]", "int64[5]", to=lambda x, keys: placed(x, keys)),
        case("float32[n]", "float32[0]", to=lambda x, keys: np.zeros(len(x))),
        case("int32[n]", "int32[1]", high=2, to=lambda x, keys: (x != keys[0]).astype(int)),
    ],
    "pairwise_coupling": [
        case("float64[n, 3]", count=3, to=lambda x: coupled_rows(x, 3)),
        case("float64[n, 1]", count=2, to=lambda x: coupled_rows(x, 2)),
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
