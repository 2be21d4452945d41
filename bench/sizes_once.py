"""What keeping values that depend on sizes alone gains: models, sizes, times of calls, bytes kept.

    python -m bench.sizes_once                 the table
    python -m bench.sizes_once --only mel --turns 15

Each model is compiled twice in one process, with such values in each call (`each`) and kept
(`kept`); both are called in turns. Three kinds of calls, in us: `same` sizes as the call before;
sizes that `alternate` and both are known; sizes that are `new`. `equal` says whether results are
equal to the bit.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.base import settings
from anydim.compiler.passes import assemble
from anydim.compiler.passes.sizes_once import SizesOnce

Feeds = dict[str, numpy.ndarray]
_RANDOM = numpy.random.default_rng(0)


class Graph:
    """Nodes of an ONNX graph; every call of `graph.Operator(...)` adds one and names its result."""

    def __init__(self, **inputs: tuple[int, list[Any]]) -> None:
        self.inputs = [helper.make_tensor_value_info(n, *spec) for n, spec in inputs.items()]
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._count = itertools.count()

    def const(self, value: Any, dtype: Any = numpy.float32) -> str:
        name = f"c{next(self._count)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.const(_RANDOM.standard_normal(shape) / numpy.sqrt(shape[0]))

    def ints(self, *values: int) -> str:
        return self.const(values, numpy.int64)

    def size(self, value: str, axis: int) -> str:
        return self.Squeeze(self.Shape(value, start=axis, end=axis + 1), self.ints(0))

    def positions(self, count: str) -> str:
        """0, 1, ... as floats."""
        zero, one = self.const(0, numpy.int64), self.const(1, numpy.int64)
        return self.Cast(self.Range(zero, count, one), to=TensorProto.FLOAT)

    def __getattr__(self, operator: str) -> Callable[..., str]:
        def add(*names: str, **attributes: Any) -> str:
            made = f"v{next(self._count)}"
            self.nodes.append(helper.make_node(operator, names, [made], **attributes))
            return made

        return add

    def model(self, result: str) -> bytes:
        out = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "model", self.inputs, [out], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return onnx.shape_inference.infer_shapes(made).SerializeToString()


def _floats(*shape: int) -> numpy.ndarray:
    return _RANDOM.standard_normal(shape).astype(numpy.float32)


# ---- models --------------------------------------------------------------------------------------


def _attention(g: Graph, x: str, width: int, heads: int, bias: str, turn: Any = None) -> str:
    """A layer of a transformer; `turn` is done to queries and keys."""
    split, last = g.ints(0, 0, heads, width // heads), width // heads

    def part() -> str:
        made = g.Reshape(g.MatMul(x, g.weight(width, width)), split)
        return g.Transpose(made, perm=[0, 2, 1, 3])

    q, k, v = part(), part(), part()
    if turn is not None:
        q, k = turn(q), turn(k)
    scores = g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2]))
    scores = g.Mul(scores, g.const(last**-0.5))
    if bias:
        scores = g.Add(scores, bias)
    mixed = g.Transpose(g.MatMul(g.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    mixed = g.Reshape(mixed, g.ints(0, 0, width))
    x = g.Add(x, g.MatMul(mixed, g.weight(width, width)))
    x = g.LayerNormalization(x, g.const(numpy.ones(width)), g.const(numpy.zeros(width)))
    inner = g.Relu(g.MatMul(x, g.weight(width, 4 * width)))
    return g.Add(x, g.MatMul(inner, g.weight(4 * width, width)))


def _tokens(width: int) -> Graph:
    return Graph(x=(TensorProto.FLOAT, ["batch", "seq", width]))


def _angles(g: Graph, x: str, count: int) -> str:
    """[seq, count] angles of sinusoids."""
    place = g.Unsqueeze(g.positions(g.size(x, 1)), g.ints(1))
    return g.Mul(place, g.const([10000.0 ** (-n / count) for n in range(count)]))


def _causal(g: Graph, x: str) -> str:
    """[seq, seq], -1e9 where a key comes behind its query."""
    place = g.positions(g.size(x, 1))
    behind = g.Greater(g.Unsqueeze(place, g.ints(0)), g.Unsqueeze(place, g.ints(1)))
    return g.Where(behind, g.const(-1e9), g.const(0.0))


def encoder(width: int = 384, layers: int = 2) -> bytes:
    """MiniLM's width, sinusoids added to the input."""
    g = _tokens(width)
    angles = _angles(g, "x", width // 2)
    x = g.Add("x", g.Concat(g.Sin(angles), g.Cos(angles), axis=-1))
    for _ in range(layers):
        x = _attention(g, x, width, 12 if width % 12 == 0 else 4, "")
    return g.model(x)


def small_encoder() -> bytes:
    """A small one: calls take microseconds."""
    return encoder(32, 1)


def decoder(width: int = 256, layers: int = 2) -> bytes:
    """A causal mask and rotary positions."""
    g = _tokens(width)
    heads, half = 4, width // 8
    angles = _angles(g, "x", half)
    double = g.Concat(angles, angles, axis=-1)
    cos, sin = g.Cos(double), g.Sin(double)

    def turn(q: str) -> str:
        first = g.Slice(q, g.ints(0), g.ints(half), g.ints(-1))
        second = g.Slice(q, g.ints(half), g.ints(2 * half), g.ints(-1))
        turned = g.Concat(g.Neg(second), first, axis=-1)
        return g.Add(g.Mul(q, cos), g.Mul(turned, sin))

    x, mask = "x", _causal(g, "x")
    for _ in range(layers):
        x = _attention(g, x, width, heads, mask, turn)
    return g.model(x)


def masked(width: int = 256) -> bytes:
    """A causal mask alone: cheap, nothing is kept of it."""
    g = _tokens(width)
    mask = _causal(g, "x")
    return g.model(_attention(g, _attention(g, "x", width, 4, mask), width, 4, mask))


def relative(width: int = 256, layers: int = 2) -> bytes:
    """T5's buckets of relative positions."""
    g = _tokens(width)
    place = g.positions(g.size("x", 1))
    apart = g.Sub(g.Unsqueeze(place, g.ints(0)), g.Unsqueeze(place, g.ints(1)))
    side = g.Where(g.Greater(apart, g.const(0.0)), g.const(16.0), g.const(0.0))
    far = g.Abs(apart)
    log = g.Div(g.Log(g.Div(g.Max(far, g.const(1.0)), g.const(8.0))), g.const(numpy.log(16.0)))
    large = g.Min(g.Floor(g.Add(g.const(8.0), g.Mul(log, g.const(8.0)))), g.const(15.0))
    bucket = g.Where(g.Less(far, g.const(8.0)), far, large)
    bucket = g.Cast(g.Add(side, bucket), to=TensorProto.INT64)
    bias = g.Transpose(g.Gather(g.weight(32, 4), bucket), perm=[2, 0, 1])
    x = "x"
    for _ in range(layers):
        x = _attention(g, x, width, 4, bias)
    return g.model(x)


def _images(channels: int = 3) -> Graph:
    return Graph(
        x=(TensorProto.FLOAT, ["batch", channels, "h", "w"]),
        like=(TensorProto.FLOAT, ["batch", 1, "oh", "ow"]),
    )


def _resize(mode: str) -> bytes:
    g = _images(16)
    size = g.Concat(g.Shape("x", end=2), g.Shape("like", start=2), axis=0)
    made = g.Resize("x", "", "", size, mode=mode)
    return g.model(g.Add(made, "like"))


def patches() -> bytes:
    """Positions of a vision transformer: a constant table resized to the grid of the image."""
    g = Graph(x=(TensorProto.FLOAT, ["batch", 128, "h", "w"]))
    table = g.weight(1, 128, 16, 16)
    size = g.Concat(g.ints(1, 128), g.Shape("x", start=2), axis=0)
    place = g.Resize(table, "", "", size, mode="cubic", coordinate_transformation_mode="half_pixel")
    tokens = g.Reshape(g.Add("x", place), g.ints(0, 128, -1))
    tokens = g.Transpose(tokens, perm=[0, 2, 1])
    return g.model(_attention(g, tokens, 128, 4, ""))


def grid() -> bytes:
    """Samples at a grid of sizes, bent by sines."""
    g = _images(16)
    h, w = (g.size("like", axis) for axis in (2, 3))

    def steps(count: str) -> str:
        last = g.Cast(count, to=TensorProto.FLOAT)
        return g.Sub(g.Div(g.positions(count), g.Mul(last, g.const(0.5))), g.const(1.0))

    shape = g.Concat(g.Shape("like", start=2), axis=0)
    y = g.Expand(g.Unsqueeze(steps(h), g.ints(1)), shape)
    x = g.Expand(g.Unsqueeze(steps(w), g.ints(0)), shape)
    bent = g.Mul(x, g.Cos(g.Mul(y, g.const(0.3))))
    both = g.Concat(g.Unsqueeze(bent, g.ints(2)), g.Unsqueeze(y, g.ints(2)), axis=2)
    whole = g.Concat(g.Shape("x", end=1), g.Shape(both), axis=0)
    return g.model(g.GridSample("x", g.Expand(both, whole)))


def spectrum() -> bytes:
    """A short-time spectrum: a window and a basis of free length, frames, power."""
    g = Graph(x=(TensorProto.FLOAT, ["batch", "frames", "length"]))
    count = g.size("x", 2)
    length = g.Cast(count, to=TensorProto.FLOAT)
    place = g.positions(count)
    turn = g.Div(g.Mul(place, g.const(2 * numpy.pi)), length)
    window = g.Sub(g.const(0.5), g.Mul(g.const(0.5), g.Cos(turn)))
    bins = g.const(numpy.arange(64))
    angles = g.Mul(g.Unsqueeze(turn, g.ints(1)), bins)
    framed = g.Mul("x", window)
    real, imag = g.MatMul(framed, g.Cos(angles)), g.MatMul(framed, g.Sin(angles))
    return g.model(g.Add(g.Mul(real, real), g.Mul(imag, imag)))


def stft() -> bytes:
    """The operator, with a window that is made in the graph."""
    g = Graph(x=(TensorProto.FLOAT, ["batch", "length", 1]))
    window = g.HannWindow(g.const(256, numpy.int64))
    made = g.STFT("x", g.const(128, numpy.int64), window, g.const(256, numpy.int64))
    return g.model(made)


def mel() -> bytes:
    """Power at a free number of bins through mel filters."""
    g = Graph(x=(TensorProto.FLOAT, ["frames", "bins"]))
    bins = g.size("x", 1)
    length = g.Mul(g.Sub(bins, g.const(1, numpy.int64)), g.const(2, numpy.int64))
    count, rate = g.const(40, numpy.int64), g.const(16000, numpy.int64)
    filters = g.MelWeightMatrix(count, length, rate, g.const(20.0), g.const(7600.0))
    return g.model(g.Log(g.Add(g.MatMul("x", filters), g.const(1e-6))))


def _tokens_at(width: int) -> Callable[..., Feeds]:
    return lambda batch, seq: {"x": _floats(batch, seq, width)}


def _images_at(batch: int, h: int, w: int, oh: int, ow: int) -> Feeds:
    return {"x": _floats(batch, 16, h, w), "like": _floats(batch, 1, oh, ow)}


_SEQUENCES = [(1, 1), (1, 16), (1, 128), (8, 128), (1, 512)]
_PICTURES = [(1, 8, 8, 17, 19), (1, 64, 64, 128, 128), (4, 64, 64, 224, 224)]
MODELS: dict[str, tuple[Callable[[], bytes], Callable[..., Feeds], list[tuple[int, ...]]]] = {
    "encoder": (encoder, _tokens_at(384), _SEQUENCES),
    "small encoder": (small_encoder, _tokens_at(32), _SEQUENCES),
    "decoder": (decoder, _tokens_at(256), _SEQUENCES),
    "causal mask": (masked, _tokens_at(256), _SEQUENCES),
    "relative positions": (relative, _tokens_at(256), _SEQUENCES),
    "resize linear": (lambda: _resize("linear"), _images_at, _PICTURES),
    "resize cubic": (lambda: _resize("cubic"), _images_at, _PICTURES),
    "patch positions": (
        patches, lambda batch, h, w: {"x": _floats(batch, 128, h, w)},
        [(1, 4, 4), (1, 16, 16), (1, 37, 41)],
    ),
    "grid": (grid, _images_at, _PICTURES),
    "spectrum": (
        spectrum, lambda batch, frames, length: {"x": _floats(batch, frames, length)},
        [(1, 1, 64), (1, 16, 400), (4, 100, 400)],
    ),
    "stft": (
        stft, lambda batch, length: {"x": _floats(batch, length, 1)}, [(1, 512), (1, 4096)],
    ),
    "mel": (
        mel, lambda frames, bins: {"x": abs(_floats(frames, bins))},
        [(1, 65), (10, 201), (100, 513)],
    ),
}  # fmt: skip


# ---- times ---------------------------------------------------------------------------------------


def _seconds(call: Callable[[], Any]) -> float:
    """Processor time of a call, of about 20 ms of them."""
    count, spent = 1, 0.0
    while spent < 0.02:
        count *= 2
        start = time.process_time()
        for _ in range(count):
            call()
        spent = time.process_time() - start
    return spent / count


def compiled(source: bytes, threads: int, kept: bool) -> ad.Model:
    """A model; where nothing is `kept`, as if no value depended on sizes alone."""
    with settings.override(keep_programs=False), ExitStack() as changed:
        if not kept:
            alone = mock.patch.object(SizesOnce, "split", lambda self, graph: (graph,))
            none = mock.patch.object(
                assemble, "with_setups", lambda launches, *more: (list(launches), ())
            )
            changed.enter_context(alone)
            changed.enter_context(none)
        return ad.compile(source, threads=threads, strategy="generic")


def _called(model: ad.Model, feeds: list[Feeds]) -> None:
    for each in feeds:
        model(**each)


def _again(models: list[ad.Model], feeds: list[Feeds], turns: int) -> list[float]:
    """Medians of calls with some inputs in turns."""
    times: list[list[float]] = [[] for _ in models]
    for number in range(turns + 1):
        for model, found in zip(models, times):
            spent = _seconds(partial(_called, model, feeds)) / len(feeds)
            found += [spent] if number else []
    return [median(found) for found in times]


def _new(models: list[ad.Model], feeds: Feeds, other: Feeds, turns: int) -> list[float]:
    """Medians of calls behind one of other sizes, with nothing kept."""
    times: list[list[float]] = [[] for _ in models]
    for _ in range(20 * turns):
        for model, found in zip(models, times):
            model(**other)
            run: Any = model.executable
            run.size_values.clear()
            start = time.process_time()
            model(**feeds)
            found.append(time.process_time() - start)
    return [median(found) for found in times]


def rows(only: str, threads: int, turns: int) -> Iterator[tuple[str, ...]]:
    for name, (source, feeds_at, points) in MODELS.items():
        if only not in name:
            continue
        made = source()
        models = [compiled(made, threads, kept) for kept in (False, True)]
        for number, point in enumerate(points):
            feeds = feeds_at(*point)
            results = [model(**feeds) for model in models]
            same = all(numpy.array_equal(a, b, equal_nan=True) for a, b in zip(
                results[0].values(), results[1].values()))  # fmt: skip
            other = feeds_at(*points[number - 1])
            pairs = [
                _again(models, [feeds], turns), _again(models, [feeds, other], turns),
                _new(models, feeds, other, turns),
            ]  # fmt: skip
            sizes = dict(zip([dim.name for dim in models[1].dims.dims], point))
            shown = [f"{1e6 * each:.1f}" for pair in pairs for each in pair]
            gain = pairs[0][0] / pairs[0][1]
            kept = models[1].plan(**sizes).kept_bytes
            yield (
                name, " x ".join(map(str, point)), *shown[:2], f"{gain:.2f}", *shown[2:],
                f"{kept}", "yes" if same else "NO",
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=7)
    given = parser.parse_args()
    heads = (
        "model", "sizes", "same: each", "kept", "gain", "alternate: each", "kept", "new: each",
        "kept", "bytes kept", "equal",
    )  # fmt: skip
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for row in rows(given.only, given.threads, given.turns):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
