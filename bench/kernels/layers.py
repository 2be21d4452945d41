"""One layer of a network as a model with free sizes, and its time beside onnxruntime's."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.cli.report.measure import Timings, time_interleaved
from bench.architectures import peer

PLACES = ("h", "v", "d")


def layer_model(
    operator: str, channels: int, weights: tuple[int, ...], bias: int, **attributes: Any
) -> onnx.ModelProto:
    """A convolution of x [n, channels, places...] with random weights and bias, then Relu."""
    random = numpy.random.default_rng(bias)
    constants = {"w": random.standard_normal(weights), "b": random.standard_normal(bias)}
    nodes = [
        helper.make_node(operator, ["x", "w", "b"], ["t"], **attributes),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    axes = ["n", channels, *PLACES[: len(weights) - 2]]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, axes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [
        numpy_helper.from_array(a.astype(numpy.float32), name) for name, a in constants.items()
    ]
    graph = helper.make_graph(nodes, "layer", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def beside_onnxruntime(
    source: onnx.ModelProto, dims: Mapping[str, ad.Dim], shape: Sequence[int], seconds: float
) -> Timings:
    """Times of 'anydim' and 'onnxruntime' at x of a shape; AssertionError where they disagree."""
    model, theirs = ad.compile(source, dims=dict(dims), threads=1), peer(source, 1)
    x = numpy.random.default_rng(1).standard_normal(tuple(shape), numpy.float32)
    calls: dict[str, Callable[[], Any]] = {
        "anydim": lambda: model(x=x)["y"],
        "onnxruntime": lambda: theirs.run(None, {"x": x})[0],
    }
    mine, other = calls["anydim"](), calls["onnxruntime"]()
    assert numpy.abs(mine - other).max() <= 1e-4 * numpy.abs(other).max()
    return time_interleaved(calls, rounds=9, seconds=seconds)


def options_of(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks of layers have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="per line")
    parser.add_argument("--cpu", type=int, default=1, help="the core to stay on")
    return parser


def stay_on(cpu: int) -> None:
    """Keep this process on a core, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu % (os.cpu_count() or 1)})
