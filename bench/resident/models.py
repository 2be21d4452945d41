"""Three models with open dims as ONNX files, and inputs for them at random sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from bench.light import light_model
from bench.workloads import Feeds, draw
from examples.minilm.model import model_path

WIDTH = 256  # of the LSTM's inputs and states
Sizes = dict[str, int]
Range = tuple[int, int]


@dataclass(frozen=True)
class Subject:
    """A model: how to make its file, its bounds, and the ranges that a stream's sizes come from.

    `peaks` are sizes at which the peak of a process is compared.
    """

    write: Callable[[Path], None]
    dims: dict[str, ad.Dim]
    stream: dict[str, Range]
    feeds: Callable[[Sizes, int], Feeds]
    peaks: tuple[tuple[int, ...], ...]

    def drawn(self, random: numpy.random.Generator) -> Sizes:
        """Random sizes of a stream."""
        return {name: int(random.integers(lo, hi + 1)) for name, (lo, hi) in self.stream.items()}

    @property
    def smallest(self) -> Sizes:
        return {name: lo for name, (lo, _) in self.stream.items()}

    @property
    def bound(self) -> Sizes:
        return {name: dim.hi for name, dim in self.dims.items() if dim.hi is not None}


# ---- files -------------------------------------------------------------------------------------


def _write_minilm(path: Path) -> None:
    path.write_bytes(Path(model_path()).read_bytes())


def _write_resnet50(path: Path) -> None:
    """Its mean over 7 x 7 becomes one over whatever height and width are left."""
    model = light_model("resnet50", ("batch", 3, "height", "width"))
    (pool,) = [node for node in model.graph.node if node.op_type == "AveragePool"]
    pool.op_type = "GlobalAveragePool"
    del pool.attribute[:]
    model.graph.input[0].name = "image"
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name == "gpu_0/data_0":
                node.input[place] = "image"
    onnx.save(model, path)


def _write_lstm(path: Path) -> None:
    random = numpy.random.default_rng(0)
    shapes = {"w": (1, 4 * WIDTH, WIDTH), "r": (1, 4 * WIDTH, WIDTH), "b": (1, 8 * WIDTH)}
    weights = [
        numpy_helper.from_array((random.standard_normal(shape) / 16).astype(numpy.float32), name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h"], hidden_size=WIDTH)
    graph = helper.make_graph(
        [node], "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["time", "batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["time", 1, "batch", WIDTH]),
         helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, "batch", WIDTH])],
        weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


# ---- inputs ------------------------------------------------------------------------------------


def _tokens(sizes: Sizes, seed: int) -> Feeds:
    return draw(sizes["batch"], sizes["seq"], seed)


def _image(sizes: Sizes, seed: int) -> Feeds:
    shape = (sizes["batch"], 3, sizes["height"], sizes["width"])
    return {"image": numpy.random.default_rng(seed).random(shape, numpy.float32)}


def _steps(sizes: Sizes, seed: int) -> Feeds:
    shape = (sizes["time"], sizes["batch"], WIDTH)
    return {"x": numpy.random.default_rng(seed).random(shape, numpy.float32)}


SUBJECTS = {
    "minilm": Subject(
        _write_minilm, {"batch": ad.Dim(0, 32), "seq": ad.Dim(1, 512)},
        {"batch": (1, 4), "seq": (1, 48)}, _tokens,
        ((1, 128), (8, 64), (8, 256), (32, 128)),
    ),
    "resnet50": Subject(
        _write_resnet50,
        {"batch": ad.Dim(0, 16), "height": ad.Dim(32, 224), "width": ad.Dim(32, 224)},
        {"batch": (1, 2), "height": (32, 80), "width": (32, 80)}, _image,
        ((1, 64, 64), (1, 224, 224), (4, 160, 96), (8, 224, 224)),
    ),
    "lstm": Subject(
        _write_lstm, {"time": ad.Dim(0, 1000), "batch": ad.Dim(0, 32)},
        {"time": (1, 40), "batch": (1, 8)}, _steps,
        ((200, 1), (100, 8), (400, 4), (1000, 32)),
    ),
}  # fmt: skip
