"""Reductions and what is made of them: sums, norms, softmax, scans, recurrences."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cliffs.family import Family, at, typed

FORMS = at(
    "n m",
    (1, 1),
    (1, 17),
    (17, 1),
    (7, 384),
    (300, 300),
    (10000, 3),
    (3, 10000),
    (1, 1000000),
    (1000, 8),
    (128, 1536),
)
CHANNELS = at("n h w", (1, 1, 1), (1, 7, 7), (8, 14, 14), (1, 56, 56), (1, 3, 1000))
REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


def reductions() -> Iterator[Family]:
    for name in REDUCTIONS:
        text = f"a := int64[1] {{1}} y = Reduce{name} (x, a)"
        yield Family(
            f"Reduce{name} last",
            text,
            ("float[n,m] x",),
            FORMS if name in ("Sum", "Max") else FORMS[3::2],
        )
    for name in ("Sum", "Max", "Mean"):
        for axis in (0,):
            yield Family(
                f"Reduce{name} axis 0",
                f"a := int64[1] {{{axis}}} y = Reduce{name} <keepdims=0> (x, a)",
                ("float[n,m] x",),
                FORMS,
            )
        yield Family(
            f"Reduce{name} middle",
            f"a := int64[1] {{1}} y = Reduce{name} (x, a)",
            ("float[n,m,k] x",),
            at("n m k", (1, 100, 7), (8, 196, 64), (3, 7, 2000), (100, 30, 3)),
        )
        yield Family(
            f"Reduce{name} places",
            f"a := int64[2] {{2,3}} y = Reduce{name} (x, a)",
            ("float[n,32,h,w] x",),
            CHANNELS,
        )
        yield Family(
            f"Reduce{name} all", f"y = Reduce{name} <keepdims=0> (x)", ("float[n,m] x",), FORMS
        )
    whole = Family("ReduceMax all", "y = ReduceMax <keepdims=0> (x)", ("T[n,m] x",), FORMS[3:])
    yield from typed(whole, "float16", "int8", "int64", "double")
    total = Family(
        "ReduceSum last",
        "a := int64[1] {1} y = ReduceSum (x, a)",
        ("T[n,m] x",),
        FORMS[3:],
    )
    yield from typed(total, "int32", "int64", "double")
    for name in ("ArgMax", "ArgMin"):
        for axis in (0, 1):
            yield Family(
                f"{name} axis {axis}", f"y = {name} <axis={axis}> (x)", ("float[n,m] x",), FORMS
            )


def softmaxes() -> Iterator[Family]:
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (1, 0):
            yield Family(
                f"{name} axis {axis}", f"y = {name} <axis={axis}> (x)", ("float[n,m] x",), FORMS
            )
    yield Family(
        "Softmax middle",
        "y = Softmax <axis=1> (x)",
        ("float[n,m,k] x",),
        at("n m k", (1, 10, 10), (1, 21, 4096), (8, 100, 17), (50, 50, 3)),
    )
    yield Family("Softmax float16", "y = Softmax <axis=1> (x)", ("float16[n,m] x",), FORMS[3:])


def norms() -> Iterator[Family]:
    wide = at("r", (1,), (7,), (128,), (1000,))
    for channels in (3, 64, 384, 1000):
        constants = (f"float[{channels}] s", f"float[{channels}] b")
        yield Family(
            f"LayerNormalization {channels}",
            "y = LayerNormalization (x, s, b)",
            (f"float[r,{channels}] x",),
            wide,
            constants=constants,
        )
    yield Family(
        "RMSNormalization 384",
        "y = RMSNormalization (x, s)",
        ("float[r,384] x",),
        wide,
        constants=("float[384] s",),
        opset=23,
    )
    yield Family(
        "SkipLayerNormalization",
        "y = com.microsoft.SkipLayerNormalization (x, z, s, b)",
        ("float[1,r,384] x", "float[1,r,384] z"),
        wide,
        constants=("float[384] s", "float[384] b"),
    )
    four = tuple(f"float[64] {name}" for name in ("s", "b", "m", "v"))
    yield Family(
        "BatchNormalization",
        "y = BatchNormalization (x, s, b, m, v)",
        ("float[n,64,h,w] x",),
        (*CHANNELS, {"n": 100, "h": 1, "w": 1}),
        constants=four,
    )
    yield Family(
        "InstanceNormalization",
        "y = InstanceNormalization (x, s, b)",
        ("float[n,64,h,w] x",),
        CHANNELS,
        constants=four[:2],
    )
    yield Family(
        "GroupNormalization 8",
        "y = GroupNormalization <num_groups=8> (x, s, b)",
        ("float[n,64,h,w] x",),
        CHANNELS,
        constants=four[:2],
    )
    yield Family(
        "LpNormalization", "y = LpNormalization <axis=1> (x)", ("float[n,m] x",), FORMS[3:]
    )
    yield Family(
        "MeanVarianceNormalization",
        "y = MeanVarianceNormalization (x)",
        ("float[n,8,h,w] x",),
        CHANNELS,
    )


def scans() -> Iterator[Family]:
    for axis in (0, 1):
        text = f"a := int64 {{{axis}}} y = CumSum (x, a)"
        yield from typed(
            Family(f"CumSum axis {axis}", text, ("T[n,m] x",), FORMS[1:]), "float", "int64"
        )
    sizes = at("t n", (1, 1), (17, 1), (100, 1), (50, 8), (7, 33))
    for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for direction, count in (("forward", 1), ("bidirectional", 2)):
            constants = (
                f"float[{count},{gates * 64},32] w",
                f"float[{count},{gates * 64},64] r",
                f"float[{count},{2 * gates * 64}] b",
            )
            yield Family(
                f"{name} {direction}",
                f'y = {name} <hidden_size=64, direction="{direction}"> (x, w, r, b)',
                ("float[t,n,32] x",),
                sizes,
                constants=constants,
                spread=(-0.2, 0.2),
            )


def transforms() -> Iterator[Family]:
    lengths = at("n t", (1, 16), (1, 100), (1, 127), (4, 256), (1, 1024), (1, 2000))
    yield Family("DFT", "y = DFT (x)", ("float[n,t,1] x",), lengths, opset=20)
    yield Family(
        "STFT",
        "f := int64 {160} l := int64 {400} y = STFT (x, f, w, l)",
        ("float[n,t,1] x",),
        at("n t", (1, 800), (1, 8000), (1, 16000)),
        constants=("float[400] w",),
    )
    yield Family("Det", "y = Det (x)", ("float[n,m,m] x",), at("n m", (1, 3), (1000, 3), (10, 30)))
    yield Family(
        "RotaryEmbedding",
        "y = com.microsoft.RotaryEmbedding (x, p, c, s)",
        ("float[n,t,256] x", "int64[n,t] p"),
        at("n t", (1, 1), (1, 100), (8, 33)),
        below={"p": "t"},
        constants=("float[512,128] c", "float[512,128] s"),
    )


FAMILIES = (*reductions(), *softmaxes(), *norms(), *scans(), *transforms())
