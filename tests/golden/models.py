"""Programs of the corpus that are ONNX models, built in code."""

from __future__ import annotations

import math

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from examples.minilm.model import Config, build_model, random_weights
from tests.golden.case import Case, along
from tests.golden.numbers import floats, integers
from tests.models.building import graph, model, node
from tests.models.test_detector import detector

ENCODER = Config(layers=1, hidden=24, heads=3, intermediate=40, vocabulary=50, positions=20)


def encoder() -> onnx.ModelProto:
    """MiniLM with one narrow layer."""
    weights = {}
    for name, array in random_weights(ENCODER).items():
        spread = 1.5 / math.sqrt(array.shape[-1]) if array.ndim == 2 else 0.2
        mean = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        weights[name] = floats(array.shape, name, mean - spread, mean + spread)
    return build_model(ENCODER, weights)


def tagger() -> onnx.ModelProto:
    """x [T, B, 7] and lengths [B] -> a bidirectional LSTM, then a GRU."""
    shapes = {
        "w": (2, 80, 7), "r": (2, 80, 20), "b": (2, 160),
        "gw": (1, 24, 40), "gr": (1, 24, 8), "gb": (1, 48),
    }  # fmt: skip
    held = {name: floats(shape, name, -0.25, 0.25) for name, shape in shapes.items()}
    held["shape"] = numpy.array([0, 0, 40], numpy.int64)
    nodes = [
        node("longest = Shape(x)", start=0, end=1),
        node("most = Cast(longest)", to=6),
        node("rows = Min(lengths, most)"),
        node("y, h, c = LSTM(x, w, r, b, rows)", hidden_size=20, direction="bidirectional"),
        node("t = Transpose(y)", perm=[0, 2, 1, 3]),
        node("z = Reshape(t, shape)"),
        node("u, v = GRU(z, gw, gr, gb, rows)", hidden_size=8, linear_before_reset=1),
    ]
    inputs = ["x f[T, B, 7]", "lengths i[B]"]
    outputs = ["u f[T, 1, B, 8]", "v f[1, B, 8]", "c f[2, B, 20]"]
    return model(graph("tagger", inputs, nodes, outputs, held))


def scan() -> onnx.ModelProto:
    """A running sum over columns from the right, kept column by column."""
    body = graph(
        "step", ["state f[r]", "column f[r]", "row f[c]"],
        [node("sum = Add(state, column)"), node("both = ReduceSum(row)", keepdims=0),
         node("state_out = Mul(sum, half)"), node("kept = Add(sum, both)")],
        ["state_out f[r]", "kept f[r]", "both f[]"],
    )  # fmt: skip
    nodes = [
        node(
            "last, all, totals = Scan(start, x, z)", body=body, num_scan_inputs=2,
            scan_input_axes=[1, 0], scan_input_directions=[1, 0],
            scan_output_axes=[1, 0], scan_output_directions=[1, 0],
        ),
    ]  # fmt: skip
    held = {"half": numpy.array(0.5, numpy.float32)}
    outputs = ["last f[r]", "all f[r, t]", "totals f[t]"]
    return model(graph("scan", ["start f[r]", "x f[r, t]", "z f[t, c]"], nodes, outputs, held))


class Quantised:
    """A quantised net under construction: nodes and constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, numpy.ndarray] = {}

    def weights(self, name: str, *shape: int) -> str:
        """Weights with a scale for each output channel."""
        self.held[f"{name}_w"] = integers(shape, name, -127, 128).astype(numpy.int8)
        self.held[f"{name}_s"] = floats(shape[:1], f"{name} scale", 0.001, 0.006)
        self.held[f"{name}_z"] = numpy.zeros(shape[0], numpy.int8)
        self.nodes.append(node(f"{name} = DequantizeLinear({name}_w, {name}_s, {name}_z)", axis=0))
        return name

    def rounded(self, x: str, name: str, scale: float) -> str:
        """x through its quantised form, which is called `name`_q."""
        self.held[f"{name}_s"], self.held[f"{name}_z"] = numpy.float32(scale), numpy.uint8(128)
        self.nodes += [
            node(f"{name}_q = QuantizeLinear({x}, {name}_s, {name}_z)"),
            node(f"{name} = DequantizeLinear({name}_q, {name}_s, {name}_z)"),
        ]
        return name


def quantised_net() -> onnx.ModelProto:
    """Two convolutions, a pool and a product, each between QuantizeLinear and its inverse."""
    net = Quantised()
    x = net.rounded("x", "a", 0.02)
    net.nodes.append(node(f"c0 = Conv({x}, {net.weights('w0', 8, 3, 3, 3)})", pads=[1] * 4))
    net.nodes.append(node("r0 = Relu(c0)"))
    x = net.rounded("r0", "b", 0.03)
    net.nodes.append(node(f"c1 = Conv({x}, {net.weights('w1', 8, 8, 3, 3)})", pads=[1] * 4))
    y = net.rounded("c1", "d", 0.05)
    net.nodes += [node(f"sum = Add({x}, {y})"), node("mean = GlobalAveragePool(sum)")]
    net.nodes.append(node("flat = Flatten(mean)"))
    x = net.rounded("flat", "f", 0.02)
    net.nodes.append(node(f"g = Gemm({x}, {net.weights('w2', 10, 8)})", transB=1))
    net.rounded("g", "y", 0.02)
    held = [numpy_helper.from_array(numpy.asarray(array), n) for n, array in net.held.items()]
    made = helper.make_graph(
        net.nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y_q", TensorProto.UINT8, ["n", 10])], held,
    )  # fmt: skip
    return model(made)


SMALL = ad.Dim(0, 32)
CASES = [
    Case("encoder (onnx)", encoder, along(batch=(0, 1, 2, 3), seq=(1, 1, 7, 17)),
         {"batch": ad.Dim(0, 4), "seq": ad.Dim(1, 20)},
         {"input_ids": (0, 50), "attention_mask": (0, 2)}),
    Case("tagger (onnx)", tagger, along(T=(0, 1, 6), B=(2, 1, 5)), {"T": SMALL, "B": SMALL},
         {"lengths": (0, 7)}),
    Case("scan (onnx)", scan, along(r=(0, 1, 9), t=(2, 1, 5), c=(1, 1, 7)),
         dict.fromkeys("rtc", SMALL)),
    Case("detector (onnx)", detector, along(n=(0, 1, 9, 31)), {"n": ad.Dim(0, 64)},
         {"boxes": (0, 4), "scores": (0, 1)}),
    Case("quantised_net (onnx)", quantised_net, along(n=(0, 1, 2), h=(4, 5, 9), w=(4, 7, 8)),
         {"n": ad.Dim(0, 8), "h": ad.Dim(2, 16), "w": ad.Dim(2, 16)}),
]  # fmt: skip
