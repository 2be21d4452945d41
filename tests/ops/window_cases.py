"""Operators that slide windows, and what numpy says they mean: one window after the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from anydim.sizes import as_size
from tests.ops.case import Case, case, sized

N, M = as_size("n"), as_size("m")


def windows(
    x: Any, kernel: Any, strides: Any = None, dilations: Any = None, pads: Any = None,
    ceil: bool = False, value: float = 0,
) -> Any:  # fmt: skip
    """[n, c, *result, *kernel]: what each window sees; `value` in the padding and beyond."""
    rank = len(kernel)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    sizes = x.shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if isinstance(pads, str):
        pads = padding(pads, sizes, reach, strides)
    pads = pads or (0,) * (2 * rank)
    sides = list(zip(pads[:rank], pads[rank:]))
    starts = [
        [p for p in range(0, size + a + b, s)
         if p + r <= size + a + b + (s - 1 if ceil else 0) and (not ceil or p < size + a)]
        for size, (a, b), s, r in zip(sizes, sides, strides, reach)
    ]  # fmt: skip
    slack = [(a, b + r + s) for (a, b), s, r in zip(sides, strides, reach)]
    wide = np.pad(x, [(0, 0), (0, 0), *slack], constant_values=value)
    result = np.zeros((*x.shape[:2], *map(len, starts), *kernel))
    for place in itertools.product(*(range(len(row)) for row in starts)):
        seen = tuple(
            slice(row[p], row[p] + r, d) for row, p, r, d in zip(starts, place, reach, dilations)
        )
        result[(slice(None), slice(None), *place)] = wide[(slice(None), slice(None), *seen)]
    return result


def padding(kind: str, sizes: Any, reach: Any, strides: Any) -> tuple[int, ...]:
    if kind == "valid":
        return (0,) * (2 * len(sizes))
    totals = [
        max((-(-size // s) - 1) * s + r - size, 0) for size, r, s in zip(sizes, reach, strides)
    ]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return tuple([*small, *large] if kind == "same_upper" else [*large, *small])


def convolved(x: Any, w: Any, b: Any = None, groups: int = 1, **how: Any) -> Any:
    rank = x.ndim - 2
    seen = windows(x, w.shape[2:], **how)
    own, out = x.shape[1] // groups, w.shape[0] // groups
    letters, steps = "def"[:rank], "uvw"[:rank]
    parts = [
        np.einsum(
            f"nc{letters}{steps},mc{steps}->nm{letters}",
            seen[:, g * own : (g + 1) * own], w[g * out : (g + 1) * out],
        )
        for g in range(groups)
    ]  # fmt: skip
    y = np.concatenate(parts, 1)
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def conv(*kinds: str, **how: Any) -> Case:
    return case(*kinds, to=lambda *a: convolved(*a, **how), **how)


def pooled(finish: Any, value: float = 0, **fixed: Any) -> list[Case]:
    """The same windows for every pool."""

    def one(kind: str, **how: Any) -> Case:
        def reference(x: Any) -> Any:
            own = dict(how)
            own.pop("count_padding", None)
            rank = x.ndim - 2
            seen = windows(x, own.pop("kernel"), **own, value=value)
            return finish(seen, tuple(range(-rank, 0)))

        return case(kind, to=reference, **how, **fixed)

    return [
        one("float32[n, 2, m]", kernel=(2,)),
        one("float32[2, 1, n, m]", kernel=(3, 2), strides=(2, 1), pads=(1, 0, 2, 1)),
        one("float32[1, 2, n, 5]", kernel=(2, 2), strides=(3, 2), pads=(0, 1, 1, 0), ceil=True),
        one("float32[1, 1, n, m, 4]", kernel=(2, 1, 2), dilations=(2, 1, 3)),
        one("float32[1, n, m]", kernel=(3,), strides=(2,), pads="same_lower"),
    ]


def averaged(count_padding: bool) -> list[Case]:
    """Elements outside are NaN, so that they can be told apart."""

    def mean(seen: Any, axes: Any) -> Any:
        return np.nanmean(seen, axes)

    if not count_padding:
        return pooled(mean, np.nan)
    return [
        case("float32[n, 2, m]", kernel=(3,), pads=(1, 1), count_padding=True,
             to=lambda x: windows(x, (3,), pads=(1, 1)).mean(-1)),
        case("float32[n, 1, 5]", kernel=(4,), strides=(2,), pads=(1, 1), count_padding=True,
             ceil=True, to=lambda x: np.nanmean(windows(
                 np.pad(x, ((0, 0), (0, 0), (1, 1))), (4,), (2,), value=np.nan, ceil=True), -1)),
    ]  # fmt: skip


def spread(
    x: Any, w: Any, b: Any = 0, *, sizes: Any, before: Any, strides: Any = None,
    dilations: Any = None, groups: int = 1,
) -> Any:  # fmt: skip
    """A transposed convolution: every place of x adds to all places its window reaches."""
    rank = x.ndim - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    x, w = (np.split(part, groups, axis) for part, axis in ((x, 1), (w, 0)))
    reach = [
        a + size + step * count + d * k
        for a, size, step, d, count, k in zip(
            before, sizes, strides, dilations, x[0].shape[2:], w[0].shape[2:]
        )
    ]
    wide = np.zeros((len(x[0]), groups * w[0].shape[1], *reach))
    for place in np.ndindex(*x[0].shape[2:]):
        for tap in np.ndindex(*w[0].shape[2:]):
            at = tuple(i * s + k * d for i, s, k, d in zip(place, strides, tap, dilations))
            every = slice(None), slice(None)
            parts = [a[(*every, *place)] @ c[(*every, *tap)] for a, c in zip(x, w)]
            wide[(*every, *at)] += np.concatenate(parts, 1)
    kept = tuple(slice(a, a + size) for a, size in zip(before, sizes))
    return wide[(slice(None), slice(None), *kept)] + np.reshape(b, (-1, *[1] * rank))


def conv_transpose(*kinds: str, sizes: Any, before: Any, **how: Any) -> Case:
    """`sizes` of the result for n and m."""

    def reference(*arrays: Any, n: int, m: int) -> Any:
        first = [as_size(part).evaluate({"n": n, "m": m}) for part in before]
        return spread(*arrays, sizes=sizes(n, m), before=first, **how)

    return sized(*kinds, to=reference, sizes=sizes(N, M), before=before, **how)


def lines(x: Any, places: Any) -> Any:
    """Linear interpolation along the last axis."""
    known = np.arange(x.shape[-1])
    if not x.size:
        return np.zeros((*x.shape[:-1], len(places)))
    return np.apply_along_axis(lambda row: np.interp(places, known, row), -1, x)


CASES: dict[str, list[Case]] = {
    "conv": [
        conv("float32[n, 2, m]", "float32[3, 2, 2]"),
        conv("float32[2, 3, n, m]", "float32[2, 3, 3, 1]", "float32[2]",
             strides=(2, 1), dilations=(1, 2), pads=(1, 0, 2, 1)),
        conv("float32[n, 4, m, 5]", "float32[6, 2, 2, 2]", groups=2, pads=(1, 0, 0, 1)),
        conv("float32[n, 3, m]", "float32[3, 1, 3]", "float32[3]", groups=3, pads="same_upper"),
        conv("float32[1, 2, n, m]", "float32[1, 2, 2, 3]", strides=(2, 3), pads="same_lower"),
        conv("float32[1, 1, n, m, 3]", "float32[2, 1, 2, 1, 2]", pads="valid"),
        conv("float32[1, m, n]", "float32[2, m, 3]", pads=(1, 1)),
    ],
    "conv_transpose": [
        conv_transpose("float32[n, 2, m]", "float32[2, 3, 2]", "float32[3]", strides=(2,),
                       before=(1,), sizes=lambda n, m: (2 * m,)),
        conv_transpose("float32[n, 4, m]", "float32[4, 1, 3]", before=(0,), groups=2,
                       sizes=lambda n, m: (m + 2,)),
        conv_transpose("float32[2, 3, n, m]", "float32[3, 2, 4, 3]", "float32[2]", strides=(2, 2),
                       before=(1, 0), sizes=lambda n, m: (2 * n, 2 * m + 1)),
        conv_transpose("float32[1, 4, n, m]", "float32[4, 2, 2, 3]", strides=(1, 3), groups=2,
                       dilations=(3, 2), before=(2, 1), sizes=lambda n, m: (n + 1, 3 * m + 2)),
        conv_transpose("float32[n, 2, m]", "float32[2, 3, 16]", strides=(8,), before=(4,),
                       sizes=lambda n, m: (8 * m,)),
        conv_transpose("float32[n, 1, m]", "float32[1, 2, 2]", strides=(4,), dilations=(2,),
                       before=(0,), sizes=lambda n, m: (4 * m,)),
        conv_transpose("float32[1, 2, n, m, 3]", "float32[2, 1, 2, 3, 2]", strides=(2, 2, 2),
                       before=(0, 1, 0), sizes=lambda n, m: (2 * n, 2 * m + 1, 6)),
        conv_transpose("float32[2, 2, m]", "float32[2, 3, n]", strides=(3,), before=(1,),
                       sizes=lambda n, m: (3 * m,)),
        conv_transpose("float32[2, 2, m]", "float32[2, 3, 3]", strides=(2,), before=(N,),
                       sizes=lambda n, m: (m,)),
    ],
    "resize": [
        sized("float32[n, 2, 3]", sizes=(N, 2, 6), scales=(1.0, 1.0, 2.0),
              to=lambda x, n, m: np.repeat(x, 2, -1)),
        sized("float32[n, 2, 3]", sizes=(N, M, 5), mode="linear", coordinates="align_corners",
              to=lambda x, n, m: lines(lines(x, np.linspace(0, 2, 5)).swapaxes(1, 2),
                                       np.linspace(0, 1, m)).swapaxes(1, 2)),
        sized("float32[n, 4]", sizes=(N, M * 3), rounding="floor", coordinates="asymmetric",
              to=lambda x, n, m: x[:, np.arange(3 * m) * 4 // (3 * m)]),
        sized("float32[n, 6]", sizes=(N, 3), mode="cubic", exclude_outside=True,
              coordinates="align_corners", to=lambda x, n, m: np.stack([
                  x[:, 0], -0.09375 * (x[:, 1] + x[:, 4]) + 0.59375 * (x[:, 2] + x[:, 3]),
                  x[:, 5]], 1)),
    ],
    "max_pool": [
        *pooled(lambda seen, axes: seen.max(axes), -np.inf),
        case("int32[n, 1, m]", kernel=(2,), pads=(1, 0), low=-9,
             to=lambda x: windows(x, (2,), pads=(1, 0), value=-(2**31)).max(-1)),
        case("int8[n, 1, m]", kernel=(2,), pads=(2, 0), low=-128, high=128,
             to=lambda x: windows(x, (2,), pads=(2, 0), value=-128).max(-1)),
        case("uint8[n, 1, m]", kernel=(3,), pads=(1, 1), high=256,
             to=lambda x: windows(x, (3,), pads=(1, 1), value=0).max(-1)),
    ],
    "average_pool": [*averaged(False), *averaged(True)],
    "lp_pool": [
        *pooled(lambda seen, axes: np.sqrt((seen**2).sum(axes))),
        *pooled(lambda seen, axes: np.abs(seen).sum(axes), p=1),
        *pooled(lambda seen, axes: (np.abs(seen) ** 3).sum(axes) ** (1 / 3), p=3),
    ],
}  # fmt: skip
