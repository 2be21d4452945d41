"""Matrix products: both operands of a call, a constant one, bytes, batches, sums of axes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.cliffs.family import Family, at, grid

SQUARES = at(
    "m k n",
    (1, 1, 1),
    (5, 5, 5),
    (16, 16, 16),
    (17, 33, 49),
    (64, 64, 64),
    (100, 300, 7),
    (300, 17, 300),
    (255, 256, 257),
    (1, 1000, 1000),
    (1000, 1000, 1),
    (1, 4096, 1),
    (1000, 1, 1000),
    (3, 2000, 5),
    (1, 512, 2048),
    (7, 768, 768),
    (33, 384, 384),
    (512, 512, 512),
    (1000, 64, 9),
)
ROWS = (1, 2, 3, 5, 8, 13, 17, 32, 64, 100, 257)


def matrices() -> Iterator[Family]:
    yield Family("MatMul of a call", "y = MatMul (a, b)", ("float[m,k] a", "float[k,n] b"), SQUARES)
    yield Family(
        "MatMul double", "y = MatMul (a, b)", ("double[m,k] a", "double[k,n] b"), SQUARES[:12]
    )
    yield Family("MatMul int32", "y = MatMul (a, b)", ("int32[m,k] a", "int32[k,n] b"), SQUARES[:9])
    yield Family(
        "MatMul float16", "y = MatMul (a, b)", ("float16[m,k] a", "float16[k,n] b"), SQUARES[:12]
    )
    for a, b in ((0, 1), (1, 0), (1, 1)):
        left, right = ("m,k", "k,m")[a], ("k,n", "n,k")[b]
        yield Family(
            f"Gemm transposed {a}{b}",
            f"y = Gemm <transA={a}, transB={b}> (a, b)",
            (f"float[{left}] a", f"float[{right}] b"),
            SQUARES,
        )
    yield Family(
        "Gemm with bias",
        "y = Gemm <alpha=0.5> (a, b, c)",
        ("float[m,k] a", "float[k,n] b", "float[n] c"),
        SQUARES,
    )
    for k, n in (
        (1, 384),
        (33, 49),
        (64, 64),
        (256, 10),
        (384, 384),
        (384, 1536),
        (768, 1),
        (1000, 1000),
    ):
        yield Family(
            f"MatMul by {k}x{n}",
            "y = MatMul (x, w)",
            (f"float[m,{k}] x",),
            grid(m=ROWS),
            constants=(f"float[{k},{n}] w",),
        )
    yield Family(
        "dense GELU 384x1536",
        "s = MatMul (x, w) t = Add (s, b) y = Gelu (t)",
        ("float[m,384] x",),
        grid(m=ROWS),
        constants=("float[384,1536] w", "float[1536] b"),
    )
    yield Family(
        "float16 weights 384x384",
        "y = MatMul (x, w)",
        ("float16[m,384] x",),
        grid(m=ROWS[::3]),
        constants=("float16[384,384] w",),
    )


def batches() -> Iterator[Family]:
    sizes = at(
        "b m k n",
        (1, 7, 7, 7),
        (12, 1, 32, 100),
        (12, 100, 32, 100),
        (12, 17, 100, 32),
        (96, 12, 12, 12),
        (1000, 3, 3, 3),
        (100, 4, 4, 1),
        (8, 64, 64, 64),
        (2, 129, 65, 257),
    )
    yield Family("batched MatMul", "y = MatMul (a, b)", ("float[b,m,k] a", "float[b,k,n] b"), sizes)
    yield Family(
        "batched by transposed",
        "t = Transpose <perm=[0,2,1]> (b) y = MatMul (a, t)",
        ("float[b,m,k] a", "float[b,n,k] b"),
        sizes,
    )
    yield Family("batched by one", "y = MatMul (a, b)", ("float[b,m,k] a", "float[k,n] b"), sizes)
    yield Family("one by batched", "y = MatMul (a, b)", ("float[m,k] a", "float[b,k,n] b"), sizes)
    for equation, first, second in (
        ("bhid,bhjd->bhij", "b,4,m,k", "b,4,n,k"),
        ("bij,bjk->bik", "b,m,k", "b,k,n"),
        ("bi,bj->bij", "b,m", "b,n"),
        ("bmk,bkn->mn", "b,m,k", "b,k,n"),
        ("bij,bij->b", "b,m,k", "b,m,k"),
    ):
        yield Family(
            f"Einsum {equation}",
            f'y = Einsum <equation="{equation}"> (a, b)',
            (f"float[{first}] a", f"float[{second}] b"),
            sizes,
        )


def along_two_axes() -> Iterator[Family]:
    """What stands between a convolution, or batches first, and a recurrent layer."""
    cases = (64, 1), (17, 1), (64, 2), (64, 8), (8, 8), (17, 17), (3, 128), (1, 64), (2, 64)
    sizes = at("b t", *cases)
    for shape, perm in (("b,200,t", "2,0,1"), ("b,t,200", "1,0,2")):
        for constant in (True, False):
            weights = ("float[200,400] w",)
            yield Family(
                f"rows along two axes of {shape}{'' if constant else ', weights of a call'}",
                f"u = Transpose <perm=[{perm}]> (x) y = MatMul (u, w)",
                (f"float[{shape}] x", *(() if constant else weights)),
                sizes,
                constants=weights if constant else (),
            )


def integers() -> Iterator[Family]:
    for a, b in (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")):
        yield Family(
            f"MatMulInteger {a} {b}",
            "y = MatMulInteger (a, b)",
            (f"{a}[m,k] a", f"{b}[k,n] b"),
            SQUARES[::2],
        )
    for k, n in ((64, 64), (384, 384)):
        yield Family(
            f"MatMulInteger by {k}x{n}",
            "y = MatMulInteger (x, w)",
            (f"uint8[m,{k}] x",),
            grid(m=ROWS),
            constants=(f"int8[{k},{n}] w",),
        )
    scale = "s := float {0.05} p := uint8 {3} z := int8 {0} "
    yield Family(
        "QLinearMatMul by 384x384",
        scale + "y = QLinearMatMul (x, s, p, w, s, z, s, p)",
        ("uint8[m,384] x",),
        grid(m=ROWS[::2]),
        constants=("int8[384,384] w",),
    )


def attentions() -> Iterator[Family]:
    sizes = at(
        "b q s",
        (1, 1, 1),
        (1, 1, 64),
        (1, 1, 700),
        (1, 7, 7),
        (2, 17, 33),
        (1, 128, 128),
        (8, 25, 25),
        (1, 512, 512),
        (1, 1, 2049),
    )
    kinds = ("float[b,4,q,64] Q", "float[b,4,s,64] K", "float[b,4,s,64] V")
    text = (
        "k := float {0.125} t = Transpose <perm=[0,1,3,2]> (K) m = MatMul (Q, t) "
        "p = Mul (m, k) e = Softmax <axis=-1> (p) y = MatMul (e, V)"
    )
    yield Family("attention", text, kinds, sizes)
    masked = text.replace("e = Softmax <axis=-1> (p)", "r = Add (p, M) e = Softmax <axis=-1> (r)")
    yield Family("attention with mask", masked, (*kinds, "float[b,1,1,s] M"), sizes)
    yield Family(
        "MultiHeadAttention",
        "y = com.microsoft.MultiHeadAttention <num_heads=4> (Q, K, V)",
        ("float[b,q,256] Q", "float[b,s,256] K", "float[b,s,256] V"),
        sizes,
    )


FAMILIES = (*matrices(), *batches(), *along_two_axes(), *integers(), *attentions())
