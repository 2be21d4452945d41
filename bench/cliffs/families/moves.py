"""What only moves data: transposes, joins, cuts, repeats, pads, gathers of whole rows."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cliffs.family import Family, Peer, at, grid, typed

CUBES = at(
    "a b c",
    (1, 3, 3),
    (1, 17, 15),
    (1, 100, 256),
    (8, 100, 256),
    (1, 300, 300),
    (300, 300, 3),
    (3, 300, 300),
    (1000, 5, 64),
    (1, 1000, 1000),
)
MATRICES = at(
    "n m", (1, 1), (7, 15), (1, 1000), (1000, 1), (300, 300), (2000, 3), (3, 2001), (1000, 1000)
)
TYPES = ("float", "int64", "float16", "uint8")


def transposes() -> Iterator[Family]:
    for order in ((1, 2, 0), (0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1)):
        peer: Peer = lambda x, order=order: x.transpose(order).copy()  # noqa: E731
        text = f"y = Transpose <perm=[{','.join(map(str, order))}]> (x)"
        kinds = TYPES if order == (0, 2, 1) else ("float", "uint8")
        yield from typed(
            Family(f"Transpose {order}", text, ("T[a,b,c] x",), CUBES, numpy=peer), *kinds
        )
    yield Family(
        "Transpose and Relu",
        "t = Transpose <perm=[1,2,0]> (x) y = Relu (t)",
        ("float[a,b,c] x",),
        CUBES,
    )
    yield Family(
        "Transpose and Mul",
        "t = Transpose <perm=[0,2,1]> (x) y = Mul (t, t)",
        ("float[a,b,c] x",),
        CUBES,
    )
    images = at("n h w", (1, 7, 7), (1, 56, 56), (1, 224, 224), (4, 100, 99))
    for channels in (3, 64):
        to = Family(
            f"NCHW to NHWC {channels}",
            "y = Transpose <perm=[0,2,3,1]> (x)",
            (f"T[n,{channels},h,w] x",),
            images,
            numpy=lambda x: x.transpose(0, 2, 3, 1).copy(),
        )
        back = Family(
            f"NHWC to NCHW {channels}",
            "y = Transpose <perm=[0,3,1,2]> (x)",
            (f"T[n,h,w,{channels}] x",),
            images,
            numpy=lambda x: x.transpose(0, 3, 1, 2).copy(),
        )
        for family in (to, back):
            yield from typed(family, "float", "uint8")
    heads = at("n s", (1, 1), (1, 17), (1, 128), (8, 100))
    yield Family(
        "heads apart",
        "k := int64[4] {0,0,4,64} r = Reshape (x, k) y = Transpose <perm=[0,2,1,3]> (r)",
        ("float[n,s,256] x",),
        heads,
    )
    yield Family(
        "heads together",
        "k := int64[3] {0,0,256} t = Transpose <perm=[0,2,1,3]> (x) y = Reshape (t, k)",
        ("float[n,4,s,64] x",),
        heads,
    )


def joins() -> Iterator[Family]:
    for axis in (0, 1):
        yield from typed(
            Family(
                f"Concat axis {axis}",
                f"y = Concat <axis={axis}> (a, b)",
                ("T[n,m] a", "T[n,m] b"),
                MATRICES,
            ),
            *(TYPES if axis else ("float",)),
        )
    yield Family(
        "Concat of different widths",
        "y = Concat <axis=1> (a, b)",
        ("float[n,m] a", "float[n,k] b"),
        at("n m k", (1, 100, 1), (300, 300, 1), (300, 1, 300), (1000, 64, 7), (10000, 3, 4)),
    )
    names = [f"x{number}" for number in range(8)]
    for axis in (0, 1):
        yield Family(
            f"Concat of 8 axis {axis}",
            f"y = Concat <axis={axis}> ({', '.join(names)})",
            tuple(f"float[n,m] {name}" for name in names),
            MATRICES,
        )
    yield Family(
        "Concat channels",
        "y = Concat <axis=1> (a, b)",
        ("float[n,64,h,w] a", "float[n,32,h,w] b"),
        at("n h w", (1, 7, 7), (1, 14, 14), (1, 56, 56), (8, 28, 28)),
    )
    yield Family(
        "Split in 2",
        "y, z = Split <axis=1, num_outputs=2> (x)",
        ("float[n,m] x",),
        at("n m", (1, 2), (100, 64), (1000, 1000), (10000, 6)),
    )
    yield Family(
        "Split in 3 and Mul",
        "k := int64[3] {64,64,64} a, b, c = Split <axis=1> (x, k) d = Mul (a, b) y = Add (d, c)",
        ("float[n,192] x",),
        grid(n=(1, 17, 1000)),
    )


def cuts() -> Iterator[Family]:
    for name, starts, ends, axes, steps in (
        ("rows", "1", "-1", "0", "1"),
        ("columns", "1", "-1", "1", "1"),
        ("every second column", "0", "9223372036854775807", "1", "2"),
        ("every second row", "0", "9223372036854775807", "0", "2"),
        ("backwards", "-1", "-9223372036854775807", "1", "-1"),
        ("one column", "0", "1", "1", "1"),
    ):
        values = " ".join(
            f"{key} := int64[1] {{{value}}}"
            for key, value in zip("seab", (starts, ends, axes, steps))
        )
        yield from typed(
            Family(
                f"Slice {name}", f"{values} y = Slice (x, s, e, a, b)", ("T[n,m] x",), MATRICES[1:]
            ),
            *(("float", "uint8") if "column" in name else ("float",)),
        )
    for mode in ("constant", "reflect", "edge", "wrap"):
        text = f'p := int64[8] {{0,0,1,2,0,0,2,1}} y = Pad <mode="{mode}"> (x, p)'
        yield from typed(
            Family(
                f"Pad {mode}",
                text,
                ("T[n,8,h,w] x",),
                at("n h w", (1, 5, 5), (1, 31, 33), (1, 112, 112), (8, 7, 300)),
            ),
            *(("float", "uint8") if mode in ("constant", "reflect") else ("float",)),
        )


def repeats() -> Iterator[Family]:
    yield from typed(
        Family(
            "Tile both",
            "r := int64[2] {2,3} y = Tile (x, r)",
            ("T[n,m] x",),
            MATRICES,
        ),
        "float",
        "uint8",
    )
    yield Family(
        "Tile rows",
        "r := int64[2] {4,1} y = Tile (x, r)",
        ("float[n,m] x",),
        MATRICES,
    )
    expand = "s = Shape (l) y = Expand (x, s)"
    for form, shape in (("row", "1,m"), ("column", "n,1"), ("number", "1,1")):
        yield from typed(
            Family(f"Expand {form}", expand, (f"T[{shape}] x", "bool[n,m] l"), MATRICES[1:]),
            *(("float", "uint8") if form != "number" else ("float",)),
        )
    for name in ("DCR", "CRD"):
        yield Family(
            f"DepthToSpace {name}",
            f'y = DepthToSpace <blocksize=2, mode="{name}"> (x)',
            ("float[n,64,h,w] x",),
            at("n h w", (1, 7, 7), (1, 28, 28), (1, 64, 65)),
        )
    yield Family(
        "SpaceToDepth",
        "y = SpaceToDepth <blocksize=2> (x)",
        ("float[n,16,h2,w2] x",),
        at("n h2 w2", (1, 14, 14), (1, 56, 56), (1, 128, 130)),
    )
    yield Family("Trilu", "y = Trilu (x)", ("float[n,m] x",), MATRICES[1:])
    yield Family("EyeLike", "y = EyeLike (x)", ("float[n,m] x",), MATRICES[1:])
    yield Family(
        "ConstantOfShape", "s = Shape (l) y = ConstantOfShape (s)", ("bool[n,m] l",), MATRICES[1:]
    )
    yield Family(
        "Range",
        "a := int64 {0} b := int64 {1} s = Size (l) y = Range (a, s, b)",
        ("bool[n,m] l",),
        MATRICES[1:],
    )
    yield Family("Squeeze", "a := int64[1] {1} y = Squeeze (x, a)", ("float[n,1,m] x",), MATRICES)
    yield Family("Flatten", "y = Flatten (x)", ("float[n,m,3] x",), MATRICES)
    yield Family(
        "Reshape",
        "k := int64[1] {-1} y = Reshape (x, k)",
        ("float[n,m] x",),
        MATRICES,
    )
    yield Family(
        "ReverseSequence",
        "y = ReverseSequence (x, l)",
        ("float[t,n,16] x", "int64[n] l"),
        at("t n", (8, 1), (50, 8), (200, 33)),
        below={"l": "t"},
    )


FAMILIES = (*transposes(), *joins(), *cuts(), *repeats())
