"""Programs of the corpus for each precision: products, convolutions, attention, ragged batches,
weights of 8 and 4 bits, and tensors of float16.

Those in parts of bfloat16 multiply on tiles, which few machines have: their results are those of
the evaluator of loop IR.
"""

from __future__ import annotations

import numpy
import onnx

import anydim as ad
from anydim.base.dtypes import DType
from anydim.compiler.frontends.builder import Value
from tests.golden.case import Case, along
from tests.golden.numbers import floats, integers
from tests.models.building import graph, model, node

ROUNDED = ("int8", "bfloat16", "bfloat16x3", "bfloat16x2")
"""The precisions whose arithmetic differs from the default's."""
TILES = " by tiles"
_SIZES = along(n=(0, 1, 3), h=(4, 5, 12), w=(4, 7, 9))
_HEADS, _HIDDEN = 2, 64


def rungs() -> onnx.ModelProto:
    """A convolution, a product and what follows them, of sizes that are rounded."""
    held = {
        "k": floats((33, 16, 3, 3), "k", -0.5, 0.5), "w": floats((33, 65), "w", -0.5, 0.5),
        "v": floats((65, 34), "v", -0.5, 0.5),
    }  # fmt: skip
    nodes = [
        node("a = Conv(x, k)", strides=[2, 2], pads=[1] * 4), node("b = Relu(a)"),
        node("c = Transpose(b)", perm=[0, 2, 3, 1]), node("d = MatMul(c, w)"),
        node("e = Tanh(d)"), node("y = MatMul(e, v)"),
    ]  # fmt: skip
    return model(graph("rungs", ["x f[n, 16, h, w]"], nodes, ["y f[n, i, j, 34]"], held))


def stage() -> onnx.ModelProto:
    """A block of a residual network: 1 x 1, 3 x 3 with stride 2, 1 x 1, and a strided shortcut."""
    shapes = {"k": (32, 64, 1, 1), "l": (32, 32, 3, 3), "m": (64, 32, 1, 1), "s": (64, 64, 1, 1)}
    held = {name: floats(shape, f"stage {name}", -0.25, 0.25) for name, shape in shapes.items()}
    held |= {f"{n}_b": floats(shape[:1], f"stage {n} bias") for n, shape in shapes.items()}
    nodes = [
        node("a = Conv(x, k, k_b)"), node("b = Relu(a)"),
        node("c = Conv(b, l, l_b)", strides=[2, 2], pads=[1] * 4), node("d = Relu(c)"),
        node("e = Conv(d, m, m_b)"), node("f = Conv(x, s, s_b)", strides=[2, 2]),
        node("g = Add(e, f)"), node("y = Relu(g)"),
    ]  # fmt: skip
    return model(graph("stage", ["x f[n, 64, h, w]"], nodes, ["y f[n, 64, i, j]"], held))


def narrow() -> onnx.ModelProto:
    """Products by weights of 8 bits with a scale per column, and of 4 bits with those of blocks."""
    held = {
        "a": integers((64, 96), "a", -127, 128).astype(numpy.int8),
        "a_s": floats((96,), "a scale", 0.001, 0.004),
        "b": integers((40, 3, 16), "b", 0, 256).astype(numpy.uint8),
        "b_s": floats((120,), "b scale", 0.01, 0.04),
    }
    nodes = [
        node("w = DequantizeLinear(a, a_s)", axis=1), node("t = MatMul(x, w)"), node("u = Tanh(t)"),
        node("y = MatMulNBits(u, b, b_s)", domain="com.microsoft", K=96, N=40, bits=4,
             block_size=32),
    ]  # fmt: skip
    made = model(graph("narrow", ["x f[n, 64]"], nodes, ["y f[n, 40]"], held))
    made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return made


def _weights(g: ad.Builder, dtype: DType, *shape: int, name: str) -> Value:
    return g.constant((floats(shape, f"rungs {name}") / numpy.float32(4)).astype(dtype.numpy))


def _head_columns(g: ad.Builder, x: Value, dtype: DType, perm: tuple[int, ...], n: str) -> Value:
    batch, seq, _ = x.shape
    y = g.matmul(x, _weights(g, dtype, _HIDDEN, _HIDDEN, name=n))
    return g.transpose(g.reshape(y, shape=(batch, seq, _HEADS, _HIDDEN // _HEADS)), perm=perm)


def attention(dtype: DType = ad.float32) -> ad.Builder:
    """Attention of 2 heads between products, without a mask."""
    g = ad.Builder("attention")
    batch, seq = g.dim("batch", 0, 8), g.dim("seq", 1, 40)
    x = g.input("x", dtype, (batch, seq, _HIDDEN))
    q, k = (_head_columns(g, x, dtype, perm, name)
            for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1))))  # fmt: skip
    p = g.softmax(g.matmul(q, k) * g.constant(numpy.asarray(0.125, dtype.numpy)), axis=-1)
    mixed = g.matmul(p, _head_columns(g, x, dtype, (0, 2, 1, 3), "v"))
    y = g.reshape(g.transpose(mixed, perm=(0, 2, 1, 3)), shape=(batch, seq, _HIDDEN))
    g.output("y", g.matmul(y, _weights(g, dtype, _HIDDEN, _HIDDEN, name="o")))
    return g


def half_attention() -> ad.Builder:
    return attention(ad.float16)


def half_convolution() -> ad.Builder:
    """Convolutions of float16, with strides and without, and a product."""
    g = ad.Builder("half_convolution")
    n, h, w = g.dim("n", 0, 4), g.dim("h", 2, 32), g.dim("w", 2, 32)
    x = g.input("x", ad.float16, (n, 16, h, w))
    k, v = (_weights(g, ad.float16, 33, c, 3, 3, name="k") for c in (16, 33))
    y = g.relu(g.conv(x, k, strides=(2, 2), pads=(1, 1, 1, 1)))
    y = g.transpose(g.conv(y, v, pads=(1, 1, 1, 1)), perm=(0, 2, 3, 1))
    g.output("y", g.matmul(y, _weights(g, ad.float16, 33, 18, name="w")))
    return g


_ALONE = along(batch=(0, 1, 2), seq=(1, 26, 7))
_ROWS = ({"seq": ()}, {"seq": (7, 26, 1)})
_PIXELS = {"h": ad.Dim(14, 32), "w": ad.Dim(14, 32)}  # int8 leaves images that may be smaller
_IMAGES = along(n=(0, 1, 3), h=(14, 15, 21), w=(14, 19, 16))
CASES = [
    *(Case(f"rungs, {precision} (onnx)", rungs, _SIZES, precision=precision)
      for precision in ("fast", *ROUNDED)),
    *(Case(f"stage, {precision} (onnx)", stage, _IMAGES, _PIXELS, precision=precision)
      for precision in ("exact", "int8", "bfloat16")),
    *(Case(f"narrow, {precision} (onnx)", narrow, along(n=(0, 1, 5, 19)), precision=precision)
      for precision in ("exact", "int8")),
    *(Case(f"attention, {precision}", attention, _ALONE, precision=precision)
      for precision in ROUNDED),
    *(Case(f"ragged attention, {precision}", attention, _ROWS, precision=precision, ragged="auto")
      for precision in ("exact", *ROUNDED)),
    Case(f"rungs, bfloat16{TILES} (onnx)", rungs, _SIZES, precision="bfloat16", tiles=True),
    Case(f"attention, bfloat16{TILES}", attention, _ALONE, precision="bfloat16", tiles=True),
    Case("attention, float16", half_attention, _ALONE),
    Case("convolution, float16", half_convolution, _SIZES),
]  # fmt: skip
