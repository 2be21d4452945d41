"""Programs of the corpus that are written with a Builder."""

from __future__ import annotations

from collections.abc import Callable

import numpy

import anydim as ad
from anydim.base.dtypes import DType
from anydim.compiler.frontends.builder import Value
from tests.golden.case import LANES, Case, Sizes, along
from tests.golden.numbers import floats, integers

Made = Callable[[ad.Builder], None]
CASES: list[Case] = []


def case(sizes: tuple[Sizes, ...], **spans: tuple[float, float]) -> Callable[[Made], Made]:
    """Enter a function that fills a builder as a case of its name."""

    def entered(fill: Made) -> Made:
        def graph() -> ad.Builder:
            g = ad.Builder(fill.__name__)
            fill(g)
            return g

        CASES.append(Case(fill.__name__, graph, sizes, spans=spans))
        return fill

    return entered


def weights(g: ad.Builder, *shape: int, dtype: DType = ad.float32, name: str = "") -> Value:
    """A constant of small numbers, others for each shape and name."""
    array = floats(shape, f"weights {shape} {name}") / numpy.float32(4)
    return g.constant(array.astype(dtype.numpy))


# ---- element work, rows, views -----------------------------------------------------------------


@case(along(n=LANES))
def pointwise_chain(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 5))
    g.output("y", g.tanh((x * 2.0 + 1.0) / 3.0) * x)


@case(along(n=(0, 1, 13)), x=(0.125, 3.0))
def functions(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 3))
    for name in ("exp", "log", "erf", "sin", "cos", "tanh", "sigmoid", "softplus", "sqrt"):
        g.output(name, getattr(g, name)(x))
    g.output("power", x ** (x - 1.0))
    g.output("wide", g.exp(g.cast(x, to="float64")))


@case(along(n=(0, 1, 7, 8, 17), m=(3, 0, 1, 9, 8)))
def broadcast(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 64), g.dim("m", 0, 64)
    x, y = g.input("x", ad.float32, (n, 1, m)), g.input("y", ad.float32, (3, 1))
    flag, count = g.input("flag", ad.boolean, (n, 3, 1)), g.input("count", ad.int32, (m,))
    g.output("chosen", g.where(flag, x + y, x * y))
    g.output("counts", count * 3 % 2 + count)


@case(along(n=LANES))
def keepdims_outputs(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 7))
    total = g.reduce_sum(x, axes=(1,), keepdims=True)
    g.output("total", total)
    g.output("share", x / (total + 10.0))


@case(along(n=(0, 1, 5), m=(1, 8, 37)))
def written_out_norm(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), g.dim("m", 1, 64)))
    centred = x - g.reduce_mean(x, axes=(1,), keepdims=True)
    variance = g.reduce_mean(centred * centred, axes=(1,), keepdims=True)
    g.output("y", centred / g.sqrt(variance + 1e-5))


@case(along(n=(0, 1, 2, 9), m=(1, 7, 64, 1031)))
def log_softmax_rows(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), g.dim("m", 1, 2048)))
    g.output("y", g.log_softmax(x, axis=-1))


@case(along(batch=(0, 1, 3), seq=(1, 7, 17)))
def column_mean(g: ad.Builder) -> None:
    batch, seq = g.dim("batch", 0, 5), g.dim("seq", 1, 20)
    x, mask = g.input("x", ad.float32, (batch, seq, 10)), g.input("mask", ad.int64, (batch, seq))
    weight = g.cast(g.unsqueeze(mask, axes=(2,)), to="float32")
    total = g.reduce_sum(x * weight, axes=(1,), keepdims=False)
    g.output("y", total / (g.reduce_sum(weight, axes=(1,), keepdims=False) + 1.0))


@case(along(n=(1, 2, 8), m=(1, 9, 33)))
def reductions(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 1, 64), 3, g.dim("m", 1, 64)))
    for name, axes in (("max", (2,)), ("min", (0,)), ("prod", (1, 2)), ("l2", (0, 2))):
        g.output(name, getattr(g, f"reduce_{name}")(x, axes=axes))
    g.output("largest", g.arg_max(x, axis=2))
    g.output("running", g.cum_sum(x, axis=2))


@case(along(n=LANES, h=(3, 1, 0, 8, 7, 9, 2)))
def gates(g: ad.Builder) -> None:
    n, h = g.dim("n", 0, 64), g.dim("h", 0, 64)
    both = g.input("x", ad.float32, (n, 3 * h)) + g.input("y", ad.float32, (n, 3 * h)) * 2.0
    parts = [g.slice(both, starts=(k * h,), ends=(k * h + h,), axes=(1,)) for k in range(3)]
    g.output("z", g.sigmoid(parts[0]) * g.tanh(parts[1]) + parts[2])


@case(along(n=(0, 1, 5), m=(3, 1, 12)))
def views(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 12), g.dim("m", 0, 12)
    x = g.input("x", ad.float32, (n, 6, m))
    g.output("y", g.reshape(g.transpose(x, perm=(2, 0, 1)), shape=(m, n * 6)) + 1.0)
    g.output("z", g.reshape(x * 2.0, shape=(n * 6, m)))


@case(along(n=(0, 1, 9, 40), m=(3, 1, 17, 64)))
def transposition(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 128), g.dim("m", 0, 128)
    x = g.input("x", ad.float32, (2, n, m))
    g.output("y", g.transpose(x, perm=(0, 2, 1)))


@case(along(n=(0, 1, 4), m=(2, 1, 7)))
def joined_parts(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 12), g.dim("m", 0, 12)
    x, y = g.input("x", ad.float32, (n, 3)), g.input("y", ad.float32, (m, 3))
    g.output("both", g.concat(x, y * 2.0, axis=0))
    g.output("framed", g.pad(x, before=(1, 0), after=(2, 3)))


@case(along(n=(0, 1, 11), m=(2, 1, 8)), index=(-9, 9), place=(0, 9))
def gathered(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 32), g.dim("m", 0, 32)
    table, index = g.input("table", ad.float32, (9, m)), g.input("index", ad.int64, (n,))
    place = g.input("place", ad.int64, (n, 1))
    rows = g.gather(table, index)
    g.output("rows", rows + 1.0)
    g.output("sums", g.scatter_nd(table, place, rows, reduction="add"))


@case(along(n=(1, 5), m=(1, 7)))
def resized(g: ad.Builder) -> None:
    n, m = g.dim("n", 1, 16), g.dim("m", 1, 16)
    x = g.input("x", ad.float32, (n, 2, m))
    g.output("y", g.resize(x, sizes=(n, 2, 2 * m), scales=(1.0, 1.0, 2.0), mode="linear"))


# ---- products ----------------------------------------------------------------------------------


@case(along(n=LANES))
def dense_gelu(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 12))
    h = g.matmul(x, weights(g, 12, 20)) + weights(g, 20)
    g.output("y", h * (g.erf(h / 1.4142135) + 1.0) * 0.5)


@case(along(n=(0, 1, 7, 37)))
def residual_norm(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 16))
    y = g.matmul(x, weights(g, 16, 16)) + x
    scale, bias = weights(g, 16, name="scale"), weights(g, 16, name="bias")
    g.output("y", g.layer_norm(y, scale, bias, axis=-1, epsilon=1e-5))


@case(along(n=(0, 1, 9)))
def two_consumers(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 64), 9))
    a, b = g.exp(x), g.exp(x)
    g.output("y", g.matmul(a, weights(g, 9, 4)))
    g.output("z", a + b)


@case(along(m=(0, 1, 7, 53), k=(3, 0, 8, 131), n=(2, 5, 1, 47)))
def open_product(g: ad.Builder) -> None:
    m, k, n = g.dim("m", 0, 256), g.dim("k", 0, 256), g.dim("n", 0, 256)
    a, b = g.input("a", ad.float32, (m, k)), g.input("b", ad.float32, (k, n))
    g.output("y", g.relu(g.matmul(a, b)))


@case(along(b=(0, 1, 3), m=(1, 7, 13), k=(4, 1, 17), n=(3, 8, 9)))
def batched_products(g: ad.Builder) -> None:
    b, m, k, n = (g.dim(name, 0, 64) for name in "bmkn")
    x, y = g.input("x", ad.float32, (b, m, k)), g.input("y", ad.float32, (b, n, k))
    g.output("right", g.matmul(x, g.transpose(y, perm=(0, 2, 1))))
    g.output("left", g.einsum(x, y, equation="bik,bjk->bji"))


@case(along(n=(0, 1, 9)))
def half_precision(g: ad.Builder) -> None:
    n = g.dim("n", 0, 64)
    for dtype in (ad.float16, ad.bfloat16):
        x = g.input(f"x_{dtype}", dtype, (n, 16))
        y = g.matmul(x, weights(g, 16, 24, dtype=dtype)) + weights(g, 24, dtype=dtype)
        g.output(f"y_{dtype}", g.softmax(y, axis=-1))


@case(along(n=(0, 1, 9)))
def double_precision(g: ad.Builder) -> None:
    x = g.input("x", ad.float64, (g.dim("n", 0, 64), 7))
    g.output("y", g.softmax(g.matmul(x, weights(g, 7, 5, dtype=ad.float64)), axis=-1))


def heads(g: ad.Builder, x: Value, perm: tuple[int, ...], name: str) -> Value:
    batch, seq, _ = x.shape
    y = g.matmul(x, weights(g, 24, 24, name=name))
    return g.transpose(g.reshape(y, shape=(batch, seq, 3, 8)), perm=perm)


@case(along(batch=(0, 1, 2, 3), seq=(1, 1, 9, 37)))
def attention(g: ad.Builder) -> None:
    batch, seq = g.dim("batch", 0, 8), g.dim("seq", 1, 40)
    x = g.input("x", ad.float32, (batch, seq, 24))
    mask = g.input("mask", ad.float32, (batch, 1, 1, seq))
    q, k = heads(g, x, (0, 2, 1, 3), "q"), heads(g, x, (0, 2, 3, 1), "k")
    p = g.softmax(g.matmul(q, k) / 2.8 + mask, axis=-1)
    mixed = g.matmul(p, heads(g, x, (0, 2, 1, 3), "v"))
    g.output("y", g.reshape(g.transpose(mixed, perm=(0, 2, 1, 3)), shape=(batch, seq, 24)))


@case(along(seq=(1, 3, 17), past=(0, 5, 300)))
def attention_with_past(g: ad.Builder) -> None:
    seq, past = g.dim("seq", 1, 64), g.dim("past", 0, 512)
    q = g.input("q", ad.float32, (2, seq, 64))
    k, v = (g.input(name, ad.float32, (2, past + seq, 64)) for name in "kv")
    scores = g.matmul(q, g.transpose(k, perm=(0, 2, 1))) * 0.125
    g.output("y", g.matmul(g.softmax(scores, axis=-1), v))


# ---- windows -----------------------------------------------------------------------------------


@case(along(n=(0, 1, 2), h=(3, 9, 5), w=(4, 8, 17)))
def convolution(g: ad.Builder) -> None:
    n, h, w = g.dim("n", 0, 4), g.dim("h", 2, 32), g.dim("w", 2, 32)
    x = g.input("x", ad.float32, (n, 3, h, w))
    y = g.conv(x, weights(g, 8, 3, 3, 3), weights(g, 8), strides=(2, 1), pads=(1, 1, 1, 1))
    g.output("y", g.relu(y))


@case(along(n=(0, 1, 2), side=(10, 13, 16)))
def winograd(g: ad.Builder) -> None:
    n, side = g.dim("n", 0, 4), g.dim("side", 10, 32)
    x = g.input("x", ad.float32, (n, 16, side, side))
    y = g.conv(x, weights(g, 16, 16, 3, 3), weights(g, 16), pads=(1, 1, 1, 1))
    g.output("y", g.relu(y + x))


@case(along(n=(0, 1, 2), h=(3, 9, 5), w=(4, 8, 17)))
def depthwise(g: ad.Builder) -> None:
    n, h, w = g.dim("n", 0, 4), g.dim("h", 2, 32), g.dim("w", 2, 32)
    x = g.input("x", ad.float32, (n, 6, h, w))
    g.output("y", g.conv(x, weights(g, 6, 1, 3, 3), groups=6, pads=(1, 1, 1, 1)))


@case(along(n=(0, 1, 2), m=(3, 9, 16)))
def transposed_convolution(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 4), g.dim("m", 1, 32)
    x = g.input("x", ad.float32, (n, 4, m))
    y = g.conv_transpose(
        x, weights(g, 4, 6, 3), weights(g, 6), strides=(2,), before=(1,), sizes=(2 * m,)
    )
    g.output("y", y)


@case(along(n=(0, 1, 2), h=(2, 9, 5), w=(4, 8, 17)))
def pooling(g: ad.Builder) -> None:
    n, h, w = g.dim("n", 0, 4), g.dim("h", 2, 32), g.dim("w", 2, 32)
    x = g.input("x", ad.float32, (n, 2, h, w))
    g.output("top", g.max_pool(x, kernel=(3, 2), strides=(2, 1), pads=(1, 0, 2, 1)))
    g.output("mean", g.average_pool(x, kernel=(2, 2)))


# ---- bytes -------------------------------------------------------------------------------------


@case(along(m=(0, 1, 7, 19), k=(3, 0, 9, 66)), a=(0, 256), b=(-128, 128))
def bytes_product(g: ad.Builder) -> None:
    m, k = g.dim("m", 0, 64), g.dim("k", 0, 128)
    a, b = g.input("a", ad.uint8, (m, k)), g.input("b", ad.int8, (k, 21))
    zeros = g.input("a_zero", ad.uint8, ()), g.input("b_zero", ad.int8, (21,))
    g.output("y", g.matmul_integer(a, b, *zeros))


@case(along(n=(0, 1, 3), m=(4, 9, 17)), x=(0, 256))
def bytes_convolution(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 4), g.dim("m", 3, 32)
    x = g.input("x", ad.uint8, (n, 4, m))
    w = g.constant(integers((6, 4, 3), "bytes", -128, 128).astype(numpy.int8))
    zero = g.constant(numpy.uint8(7)), g.constant(numpy.int8(0))
    g.output("y", g.conv_integer(x, w, *zero, pads=(1, 1)))


# ---- routines, sizes from data, loops and branches ---------------------------------------------


@case(along(n=(0, 1, 3), m=(1, 8, 33)))
def sorting(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 8), g.dim("m", 1, 64)))
    for name, value in zip(("sorted", "order"), g.sort(x)):
        g.output(name, value)
    for name, value in zip(("best", "places"), g.top_k(x, k=1)):
        g.output(name, value)


@case(along(n=(0, 1, 17)), x=(0, 4))
def found_sizes(g: ad.Builder) -> None:
    x = g.input("x", ad.int64, (g.dim("n", 0, 32),))
    g.output("places", g.nonzero(x))
    g.output("kept", g.compress(x, x > 1) * 2)
    for name, value in zip(("values", "first", "group", "counts"), g.unique(x)):
        g.output(name, value)


@case(along(n=(0, 1, 5), m=(0, 2, 4)))
def growing_loop(g: ad.Builder) -> None:
    n, m = g.dim("n", 0, 8), g.dim("m", 0, 8)
    x, start = g.input("x", ad.float32, (n, 3)), g.input("start", ad.float32, (1, 3))
    g.input("trips", ad.float32, (m,))

    def body(b: ad.Builder, _: object, state: Value) -> Value:
        b.stack(b.reduce_sum(state, axes=(0,)))
        return b.concat(state, x * 0.5, axis=0)

    end, sums = g.loop(body, start, trips=m)
    g.output("end", end)
    g.output("sums", sums)


@case(along(n=(0, 1, 9)))
def branching(g: ad.Builder) -> None:
    x = g.input("x", ad.float32, (g.dim("n", 0, 32),))
    positive = g.reduce_sum(x, axes=(0,)) > 0.0
    g.output("y", g.branch(positive, lambda b: b.exp(x), lambda b: b.concat(x, -x)))
