"""The work: models without torch, and requests in the order in which they come.

Lengths, batches and sizes are drawn once, from seeds, so every engine and every run has the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy
import onnx
from onnx import TensorProto

from anydim.base.records import dataclass
from bench.light import light_model
from bench.networks.sequences import decoder
from bench.networks.writer import FLOAT, Network
from bench.workloads import Feeds, streams
from examples.minilm.model import model_path

LAYERS, HEADS, WIDTH, WORDS, STEPS = 4, 6, 64, 8192, 200  # of the decoder
BATCHES = (1, 1, 1, 1, 2, 2, 3, 4, 5, 8)  # images of a request
CLASSES = 20


@dataclass(frozen=True)
class Workload:
    """A model and its stream of requests.

    `carried` has inputs that a request takes from the results of the one before it, by the name of
    the result; the first request has them all.
    """

    name: str
    model: Callable[[], onnx.ModelProto]
    requests: Callable[[], tuple[Feeds, ...]]
    carried: Mapping[str, str] | None = None


def minilm() -> onnx.ModelProto:
    """Six layers of 384, real weights."""
    return onnx.load(model_path())


def singles() -> tuple[Feeds, ...]:
    """200 sentences, one a request."""
    return streams(200)[0].requests


def padded(size: int, most: int) -> Callable[[], tuple[Feeds, ...]]:
    """Batches of sentences of different lengths, as long as their longest."""

    def requests() -> tuple[Feeds, ...]:
        found = {stream.name: stream.requests for stream in streams(0)}
        return found[f"batches of {size}"][:most]

    return requests


def lstm() -> onnx.ModelProto:
    """Two layers of 256 over 128 numbers a step: [t, b, 128] -> [t, b, 256]"""
    net, x, wide = Network(), "x", 128
    for _ in range(2):
        weights = [net.drawn(1, 1024, wide), net.drawn(1, 1024, 256), net.drawn(1, 2048)]
        y = net("LSTM", x, *weights, hidden_size=256)
        x, wide = net("Squeeze", y, net.integers(1)), 256
    net("Identity", x, output="y")
    return net.model("lstm", {"x": (FLOAT, ["t", "b", 128])}, {"y": (FLOAT, ["t", "b", 256])})


def signals() -> tuple[Feeds, ...]:
    """200 sequences of 5 to 200 steps in batches of 1 to 8."""
    random = numpy.random.default_rng(2)
    shapes = ((random.integers(5, 201), random.integers(1, 9), 128) for _ in range(200))
    return tuple({"x": random.standard_normal(shape, numpy.float32)} for shape in shapes)


def resnet() -> onnx.ModelProto:
    """resnet50 for images of every size: its last pool takes all places."""
    model = light_model("resnet50", ("b", 3, "h", "w"))
    (pool,) = (node for node in model.graph.node if node.op_type == "AveragePool")
    pool.op_type = "GlobalAveragePool"
    del pool.attribute[:]
    return model


def images() -> tuple[Feeds, ...]:
    """50 requests of 1 to 8 images of 160 to 320 places either way."""
    random = numpy.random.default_rng(3)
    shapes = [
        (int(random.choice(BATCHES)), 3, *map(int, random.integers(160, 321, 2))) for _ in range(50)
    ]
    return tuple({"gpu_0/data_0": random.standard_normal(shape, numpy.float32)} for shape in shapes)


def tail() -> onnx.ModelProto:
    """Boxes from distances to their anchors, then at most 100 of each class that do not overlap."""
    net = Network()
    low, high = (net("Slice", "distances", *map(net.integers, (at, at + 2, 2))) for at in (0, 2))
    corners = (net("Sub", "anchors", low), net("Add", "anchors", high))
    boxes = net("Concat", *corners, axis=2)
    scores = net("Sigmoid", net("Transpose", "logits", perm=[0, 2, 1]))
    limits = (net.number(0.5), net.number(0.05))
    kept = net("NonMaxSuppression", boxes, scores, net.integers(100), *limits, output="kept")
    places = net("Squeeze", net("Slice", kept, *map(net.integers, (2, 3, 1))), net.integers(1))
    net("Gather", boxes, places, axis=1, output="boxes")
    pairs = (FLOAT, [1, "n", 2])
    inputs = {"distances": (FLOAT, [1, "n", 4]), "anchors": pairs, "logits": (FLOAT, [1, "n", 20])}
    kept_type = (TensorProto.INT64, ["kept", 3])
    return net.model("tail", inputs, {"kept": kept_type, "boxes": (FLOAT, [1, "kept", 4])})


def candidates() -> tuple[Feeds, ...]:
    """200 requests of 100 to 5,000 boxes; no two scores are so near that rounding orders them."""
    random = numpy.random.default_rng(4)
    made = []
    for count in random.integers(100, 5001, 200):
        made.append({
            "distances": random.uniform(2, 40, (1, count, 4)).astype(numpy.float32),
            "anchors": random.uniform(0, 640, (1, count, 2)).astype(numpy.float32),
            "logits": spread(random, (1, count, CLASSES)),
        })  # fmt: skip
    return tuple(made)


def spread(random: numpy.random.Generator, shape: tuple[int, ...]) -> numpy.ndarray:
    """-6 to 2 in equal steps, in any order."""
    steps = numpy.linspace(-6, 2, int(numpy.prod(shape)), dtype=numpy.float32)
    return random.permutation(steps).reshape(shape)


def dense() -> onnx.ModelProto:
    """768 -> 3072 and GELU."""
    net = Network()
    net("Identity", net.gelu(net.linear("x", 768, 3072)), output="y")
    return net.model("dense", {"x": (FLOAT, ["n", 768])}, {"y": (FLOAT, ["n", 3072])})


def rows() -> tuple[Feeds, ...]:
    """200 requests of 1 to 512 rows."""
    random = numpy.random.default_rng(5)
    counts = random.integers(1, 513, 200)
    return tuple({"x": random.standard_normal((count, 768), numpy.float32)} for count in counts)


def words() -> tuple[Feeds, ...]:
    """200 words one after the other, caches empty at first."""
    drawn = numpy.random.default_rng(6).integers(0, 1000, STEPS)
    requests: list[Feeds] = [{"ids": numpy.array([[word]])} for word in drawn]
    empty = numpy.zeros((1, HEADS, 0, WIDTH), numpy.float32)
    requests[0] |= dict.fromkeys(CACHES.values(), empty)
    return tuple(requests)


def step() -> onnx.ModelProto:
    """A step of a small GPT-2 with a cache."""
    return decoder(LAYERS, HEADS, WIDTH, WORDS, places=2048)


CACHES = {
    f"new_{name}_{layer}": f"{name}_{layer}"
    for layer in range(LAYERS)
    for name in ("keys", "values")
}
WORKLOADS = (
    Workload("W1 sentences", minilm, singles),
    Workload("W1 batches of 8", minilm, padded(8, 60)),
    Workload("W1 batches of 32", minilm, padded(32, 12)),
    Workload("W2 LSTM", lstm, signals),
    Workload("W3 resnet50", resnet, images),
    Workload("W4 detector tail", tail, candidates),
    Workload("W5 dense, GELU", dense, rows),
    Workload("W6 decoder step", step, words, CACHES),
)
