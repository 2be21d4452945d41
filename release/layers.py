"""Layers that most networks have, as graphs: what their kernels are compiled for ahead of time.

No kernel holds the number of its channels: one of a layer serves all widths. So the layers stand
once for each kind of computation with each of the usual computations that are fused after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy

import anydim as ad
from anydim.api.cached_graph import over_rows
from anydim.compiler.frontends.growing_caches import with_spare_capacity
from anydim.serving.language_models.decoder_caches import NEW, OPTIONAL, ROWS
from anydim.serving.language_models.decoder_graph import build_decoder
from anydim.serving.language_models.decoder_spec import DecoderSpec, LayerSpec, Rope
from anydim.serving.language_models.matrices import Blocks

Fused = Callable[[ad.Builder, Any, Any], Any]  # of a graph, a result and a value of its shape
_CHANNELS = 64  # of all layers inside a network
_EPILOGUES: dict[str, Fused] = {
    "nothing": lambda g, y, x: y,
    "relu": lambda g, y, x: g.relu(y),
    "relu6": lambda g, y, x: g.clip(y, _number(g, 0), _number(g, 6)),
    "silu": lambda g, y, x: y * g.sigmoid(y),
    "hard_swish": lambda g, y, x: g.hard_swish(y),
    "leaky_relu": lambda g, y, x: g.leaky_relu(y, alpha=0.1),
    "sum": lambda g, y, x: y + x,
    "relu_of_sum": lambda g, y, x: g.relu(x + y),
}
_ROWS: dict[str, Fused] = {
    "nothing": lambda g, y, x: y,
    "relu": lambda g, y, x: g.relu(y),
    "tanh": lambda g, y, x: g.tanh(y),
    "sigmoid": lambda g, y, x: g.sigmoid(y),
    "silu": lambda g, y, x: y * g.sigmoid(y),
    "gelu": lambda g, y, x: y * (g.erf(y / _number(g, 2**0.5)) + _number(g, 1)) * _number(g, 0.5),
    "sum": lambda g, y, x: y + x,
}
_IMAGES = (  # kernel, stride, whether each channel is alone, the epilogues
    (1, 1, False, tuple(_EPILOGUES)),
    (3, 1, False, tuple(_EPILOGUES)),
    (3, 2, False, ("nothing", "relu", "silu")),
    (1, 2, False, ("nothing",)),
    (3, 1, True, ("relu", "relu6", "hard_swish", "silu")),
    (3, 2, True, ("relu", "relu6", "hard_swish", "silu")),
    (5, 1, True, ("relu", "hard_swish")),
    (5, 2, True, ("relu", "hard_swish")),
)


def graphs() -> Iterator[tuple[Any, str | None]]:
    """Networks of images of free and of known sizes, of sequences, elementwise functions, and
    language models; each with a precision."""
    for made in (_images("free"), _images("known"), _sequences(), _elements()):
        yield made, None
    for bits, has_minima in ((4, True), (4, False), (8, False)):
        for precision in (None, "int8"):
            yield _decoder(bits, has_minima), precision


def _decoder(bits: int, has_minima: bool) -> Any:
    """A language model of the sizes of SmolLM2-135M, with weights of few bits in blocks of 32.

    Its libraries serve other sizes, too, and so do a third of its kernels.
    """
    rope = Rope(tuple(10_000 ** (-n / 32) for n in range(32)), interleaved=True)
    layers = (LayerSpec(None, rope),) * 3
    spec = DecoderSpec("llama", 49152, 576, 9, 3, 64, layers, 8192, 1e-5, score_scale=64**-0.5)

    def weights(name: str) -> Any:
        stem, kind = name.split(".")[-2:]
        if kind == "bias" or stem == "head" or stem not in spec.parts | {"norm", "embedding"}:
            return None
        shape = [size or 1536 for size in spec.expected_shape(stem)]
        if len(shape) == 1:
            return numpy.ones(shape, numpy.float32)
        scales = numpy.ones((shape[0], shape[1] // 32), numpy.float32)
        tied = stem == "embedding"
        codes = numpy.ones(shape, ml_dtypes.int4 if bits == 4 and not tied else numpy.int8)
        return Blocks(codes, scales, scales if has_minima and not tied else None, 32)

    rows = dict.fromkeys((NEW, *OPTIONAL.values()), ROWS)
    return over_rows(with_spare_capacity(build_decoder(spec, weights, "decoder")), rows)[0]


def _number(g: ad.Builder, value: float) -> Any:
    return g.constant(numpy.float32(value))


def _weights(g: ad.Builder, *shape: int) -> Any:
    return g.constant(numpy.full(shape, 1 / shape[-1], numpy.float32))


def _images(kind: str) -> ad.Builder:
    """A network whose layers follow each other, behind a first one that reads 3 channels."""
    g = ad.Builder(f"images_{kind}")
    sides = [g.dim("height", 1), g.dim("width", 1)] if kind == "free" else [224, 224]
    x = g.input("x", ad.float32, (g.dim("batch", 0), 3, *sides))
    for number, (kernel, epilogue) in enumerate(((3, "relu"), (3, "silu"), (7, "relu"))):
        y = _EPILOGUES[epilogue](g, _conv(g, x, 3, kernel, 2), None)
        y = g.max_pool(y, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
        for form in _IMAGES[number::3]:
            y = _layers(g, y, *form)
        y = g.max_pool(y, kernel=(5, 5), strides=(1, 1), pads=(2, 2, 2, 2))
        pooled = g.reduce_mean(y, axes=(2, 3), keepdims=True)
        g.output(f"scaled{number}", y * g.sigmoid(_conv(g, pooled, _CHANNELS, 1, 1)))
        rows = g.reduce_mean(y, axes=(2, 3), keepdims=False)
        g.output(f"classes{number}", g.softmax(_dense(g, rows), axis=-1))
    return g


def _layers(
    g: ad.Builder, x: Any, kernel: int, stride: int, alone: bool, epilogues: tuple[str, ...]
) -> Any:
    """Layers of one kind, each with an epilogue and each behind a layer without one."""
    for name in epilogues:
        y = _conv(g, x, _CHANNELS, kernel, stride, alone)
        same = x if stride == 1 else None
        x = _EPILOGUES[name](g, y, same)
    return x


def _conv(
    g: ad.Builder, x: Any, channels: int, kernel: int, stride: int, alone: bool = False
) -> Any:
    weights = _weights(g, _CHANNELS, 1 if alone else channels, kernel, kernel)
    given = {"strides": (stride, stride), "pads": (kernel // 2,) * 4}
    groups = channels if alone else 1
    return g.conv(x, weights, _weights(g, _CHANNELS), **given, groups=groups)


def _dense(g: ad.Builder, x: Any) -> Any:
    return g.matmul(x, _weights(g, _CHANNELS, _CHANNELS)) + _weights(g, _CHANNELS)


def _sequences() -> ad.Builder:
    """Layers of an encoder: products with epilogues, norms, attention with a mask."""
    g = ad.Builder("sequences")
    batch, length = g.dim("batch", 0), g.dim("length", 0)
    x = g.input("x", ad.float32, (batch, length, _CHANNELS))
    mask = g.input("mask", ad.float32, (batch, 1, 1, length))
    for name, fused in _ROWS.items():
        y = fused(g, _dense(g, x), x)
        x = g.layer_norm(y, _weights(g, _CHANNELS), _weights(g, _CHANNELS), axis=-1, epsilon=1e-5)
        g.output(f"after_{name}", x)
    for masked in (False, True):
        q, k, v = (_heads(g, _dense(g, x), batch, length) for _ in range(3))
        scores = g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2))) / _number(g, 4)
        weights = g.softmax(scores + mask if masked else scores, axis=-1)
        mixed = g.transpose(g.matmul(weights, v), perm=(0, 2, 1, 3))
        x = _dense(g, g.reshape(mixed, shape=(batch, length, _CHANNELS))) + x
        g.output(f"masked{int(masked)}", x)
    return g


def _heads(g: ad.Builder, x: Any, batch: Any, length: Any) -> Any:
    return g.transpose(g.reshape(x, shape=(batch, length, 4, _CHANNELS // 4)), perm=(0, 2, 1, 3))


def _elements() -> ad.Builder:
    """Functions of all elements, and concatenations of two to four tensors."""
    g = ad.Builder("elements")
    rows = g.dim("rows", 0)
    functions: dict[str, Callable[[Any], Any]] = {
        "relu": g.relu, "sigmoid": g.sigmoid, "tanh": g.tanh, "hard_swish": g.hard_swish,
        "silu": lambda x: x * g.sigmoid(x), "gelu": g.gelu, "exp": g.exp, "sqrt": g.sqrt,
    }  # fmt: skip
    for width in (_CHANNELS, g.dim("columns", 0)):
        kind = "known" if width is _CHANNELS else "free"
        x, y = (g.input(f"{name}_{kind}", ad.float32, (rows, width)) for name in "xy")
        for name, function in functions.items():
            g.output(f"{name}_{kind}", function(x))
        g.output(f"sum_{kind}", x + y)
        g.output(f"product_{kind}", x * y)
        g.output(f"relu_of_sum_{kind}", g.relu(x + y))
        for count in (2, 3, 4):
            g.output(f"joined{count}_{kind}", g.concat(*([x, y] * 2)[:count], axis=1))
    return g
