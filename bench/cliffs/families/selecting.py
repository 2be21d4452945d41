"""Places that data gives: gathers, scatters, sorting, top-k, unique, boxes."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from bench.cliffs.family import Family, Sizes, at, typed

TABLES = at(
    "n m k",
    (100, 1, 1000),
    (30000, 384, 1),
    (30000, 384, 7),
    (30000, 384, 128),
    (1000, 5, 300),
    (500, 64, 2000),
    (10, 100000, 5),
)
LONG = at("n m", (1, 1), (1, 17), (7, 100), (1000, 10), (1, 10000), (4, 50000), (100, 1000))


COMPARED = 32  # elements with a bound, in a step
KEPT = 100  # boxes of a class, at most


def chosen(rows: int, length: int, count: int) -> float:
    """Steps of finding the largest of rows, in order: all are looked at, the found ones sorted."""
    return rows * (length / COMPARED + count * log2(length + 1))


def gathers() -> Iterator[Family]:
    inputs, below = ("T[n,m] x", "int64[k] i"), {"i": "n"}
    yield from typed(
        Family("Gather rows", "y = Gather (x, i)", inputs, TABLES, below=below),
        "float",
        "uint8",
        "int64",
    )
    yield Family(
        "Gather columns",
        "y = Gather <axis=1> (x, i)",
        ("float[m,n] x", "int64[k] i"),
        TABLES[4:6],
        below=below,
    )
    yield Family(
        "Gather middle",
        "y = Gather <axis=1> (x, i)",
        ("float[3,n,m] x", "int64[k] i"),
        TABLES[4:6],
        below=below,
    )
    yield Family(
        "Gather one",
        "i := int64 {0} y = Gather <axis=1> (x, i)",
        ("float[b,s,384] x",),
        at("b s", (1, 7), (8, 100), (64, 64)),
    )
    yield Family(
        "GatherElements",
        "y = GatherElements <axis=0> (x, i)",
        ("float[n,m] x", "int64[k,m] i"),
        TABLES[4:6] + at("n m k", (1000, 1, 1000)),
        below=below,
    )
    yield Family(
        "GatherElements last",
        "y = GatherElements <axis=1> (x, i)",
        ("float[r,n] x", "int64[r,k] i"),
        at("r n k", (1, 1000, 1000), (300, 100, 100), (1000, 1000, 1)),
        below=below,
    )
    yield Family(
        "GatherND",
        "y = GatherND (x, i)",
        ("float[n,n,m] x", "int64[k,2] i"),
        at("n m k", (30, 1, 1000), (30, 64, 300), (100, 5, 3)),
        below=below,
    )
    yield Family(
        "OneHot",
        "d := int64 {10} v := float[2] {0,1} y = OneHot (i, d, v)",
        ("int64[k] i",),
        at("k", (1,), (100,), (10000,)),
        below={"i": 10},
    )


def scatters() -> Iterator[Family]:
    inputs, below = ("float[n,m] x", "int64[k,m] i", "float[k,m] u"), {"i": "n"}
    sizes = at("n m k", (10, 10, 3), (1000, 5, 300), (500, 64, 500), (100000, 4, 1))
    for reduction in ("none", "add"):
        yield Family(
            f"ScatterElements {reduction}",
            f'y = ScatterElements <axis=0, reduction="{reduction}"> (x, i, u)',
            inputs,
            sizes,
            below=below,
        )
        yield Family(
            f"ScatterND {reduction}",
            f'y = ScatterND <reduction="{reduction}"> (x, i, u)',
            ("float[n,m] x", "int64[k,1] i", "float[k,m] u"),
            sizes,
            below=below,
        )


def sorting() -> Iterator[Family]:
    for k in (1, 5):
        text = f"k := int64[1] {{{k}}} y, i = TopK <axis=%d> (x, k)"

        def steps(sizes: Sizes, k: int = k) -> float:
            return chosen(sizes["n"], sizes["m"], k)

        yield Family(f"TopK {k} last", text % 1, ("float[n,m] x",), LONG[1:], steps=steps)
        yield Family(f"TopK {k} axis 0", text % 0, ("float[m,n] x",), LONG[1:], steps=steps)
    yield Family(
        "TopK all",
        "s = Shape <start=1> (x) y, i = TopK <axis=1> (x, s)",
        ("float[n,m] x",),
        LONG,
        steps=lambda sizes: chosen(sizes["n"], sizes["m"], sizes["m"]),
    )
    yield Family(
        "TopK half",
        "s = Shape <start=1> (x) t := int64[1] {2} k = Div (s, t) y, i = TopK <axis=1> (x, k)",
        ("float[n,m] x",),
        LONG[1:],
        steps=lambda sizes: chosen(sizes["n"], sizes["m"], sizes["m"] // 2),
    )
    yield from typed(
        Family(
            "Unique",
            "y, i, j, c = Unique (x)",
            ("T[n,m] x",),
            LONG,
            steps=lambda sizes: chosen(1, sizes["n"] * sizes["m"], sizes["n"] * sizes["m"]),
        ),
        "float",
        "int64",
    )
    yield Family("NonZero", "y = NonZero (x)", ("bool[n,m] x",), LONG)
    yield Family(
        "Compress", "y = Compress <axis=0> (x, c)", ("float[m,n] x", "bool[m] c"), LONG[1:]
    )
    box = "k := int64 {100} t := float {0.5} y = NonMaxSuppression (b, s, k, t, t)"
    yield Family(
        "NonMaxSuppression",
        box,
        ("float[1,n,4] b", "float[1,c,n] s"),
        at("n c", (10, 1), (300, 1), (2000, 1), (300, 20), (8400, 1)),
        steps=lambda sizes: chosen(sizes["c"], sizes["n"], KEPT) + sizes["c"] * KEPT**2 / 16,
    )


FAMILIES = (*gathers(), *scatters(), *sorting())
