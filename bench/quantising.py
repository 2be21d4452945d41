"""Models as onnxruntime's quantiser writes them, and as onnxruntime saves them optimised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.version_converter
import onnxruntime
from onnx import helper
from onnxruntime import quantization

FORMS = ("dynamic", "qdq", "operators")
OPSET = 13  # with per-channel scales


def quantised(model: onnx.ModelProto, form: str, folder: Path, feeds: list[Any]) -> Path:
    """A file of the model in a form, its weights signed, the rest unsigned.

    `dynamic` measures what comes in every call; `qdq` and `operators` have calibrated scales, those
    of the feeds: in nodes between float operators, or in operators of bytes.
    """
    source, target = folder / "float.onnx", folder / f"{form}.onnx"
    onnx.save(newer(model), source)
    kind = quantization.QuantType
    if form == "dynamic":
        quantization.quantize_dynamic(source, target, weight_type=kind.QUInt8)
        return target
    formats = {"qdq": quantization.QuantFormat.QDQ, "operators": quantization.QuantFormat.QOperator}
    quantization.quantize_static(
        source, target, _Calibration(feeds), quant_format=formats[form], per_channel=True,
        activation_type=kind.QUInt8, weight_type=kind.QInt8,
    )  # fmt: skip
    return target


class _Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: list[Any]) -> None:
        self.feeds: Iterator[Any] = iter(feeds)

    def get_next(self) -> Any:
        return next(self.feeds, None)


def newer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in opset 13, its initializers no inputs."""
    graph = model.graph
    if model.opset_import[0].version < OPSET:
        inputs = {value.name for value in graph.input}
        for tensor in graph.initializer:  # what the converter asks for
            if tensor.name not in inputs:
                kind = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                graph.input.append(kind)
        model = onnx.version_converter.convert_version(model, OPSET)
    model.ir_version = max(model.ir_version, 8)
    constants = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def optimised(path: Path) -> Path:
    """The file that onnxruntime saves of a model at its `extended` level."""
    target = path.with_suffix(".extended.onnx")
    options = session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return target


def session_options(threads: int = 1) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return options


def random_images(name: str, count: int, batch: int = 1, side: int = 224) -> list[Any]:
    """Feeds of an input: normal numbers, always the same."""
    random = numpy.random.default_rng(count)
    shape = (batch, 3, side, side)
    return [{name: random.standard_normal(shape, numpy.float32)} for _ in range(count)]
