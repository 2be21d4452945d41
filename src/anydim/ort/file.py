"""Opens the model of a session and applies the sizes and initializers of its options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from anydim.base.errors import InputError, ModelError
from anydim.compiler.frontends.onnx.file.reading import Opened, open_model
from anydim.compiler.frontends.onnx.graphs.names import TWO_VALUES
from anydim.ort.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    OrtError,
    Unimplemented,
)
from anydim.ort.options import SessionOptions
from anydim.ort.values import OrtValue, element_of


def open_source(source: str | bytes, options: SessionOptions) -> Opened:
    """Open a model from a path or bytes, with the sizes and initializers of the options.

    Raises InvalidProtobuf, or another OrtError if it cannot be opened.
    """
    if not isinstance(source, str) and not source:
        raise InvalidArgument("No graph was found in the protobuf.")
    try:
        found = open_model(source, options.compile_options.external_data)
    except (ModelError, InputError) as error:
        begin = f"Load model from {source} failed:" if isinstance(source, str) else ""
        kind = Fail if " opset" in error.problem else InvalidProtobuf
        raise kind(f"{begin}Protobuf parsing failed: {error.problem}", error.hint) from error
    given = _replace_initializers(found, options) if options.initializers else found
    if options.sizes_by_name or options.sizes_by_denotation:
        _override(given.proto.graph, options)
    return given


def _override(graph: Any, options: SessionOptions) -> None:
    """Fix the free dims that have an override."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            size = options.sizes_by_name.get(axis.dim_param)
            if size is None:
                size = options.sizes_by_denotation.get(axis.denotation)
            if size is not None and not axis.HasField("dim_value"):
                axis.dim_value = size


def _replace_initializers(found: Opened, options: SessionOptions) -> Opened:
    """Replace initializers by the values of the options."""
    weights = dict(found.weights)
    for number, tensor in enumerate(found.proto.graph.initializer):
        value = options.initializers.get(tensor.name)
        if value is not None:
            _check_initializer(tensor, value)
            weights.pop(number, None)
            array = numpy.ascontiguousarray(value.numpy())
            tensor.ClearField("data_location")
            del tensor.external_data[:]
            tensor.raw_data = array.tobytes()
    return replace(found, weights=weights)


def _check_initializer(tensor: Any, value: OrtValue) -> None:
    array = value.numpy()
    if list(array.shape) != list(tensor.dims) or element_of(array) != tensor.data_type:
        raise InvalidArgument(
            f"initializer '{tensor.name}': {value.data_type()}{value.shape()} was added,"
            f" the file has type {tensor.data_type} {list(tensor.dims)}"
        )


# ---- unsupported models ----------------------------------------------------------------------


_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "com.microsoft"}


def error_of_refusal(found: Opened, source: str | bytes, error: ModelError) -> OrtError:
    """The exception for a model that anydim rejects: invalid, or not implemented."""

    own = {function.domain for function in found.proto.functions}
    for node in found.proto.graph.node:
        if node.domain not in _DOMAINS | own:
            where = f"Fatal error: {node.domain}:{node.op_type}(-1)"
            return Fail(f"{where} is not a registered function/op", error.problem)
    if TWO_VALUES in error.problem:
        return InvalidGraph(f"This is an invalid model. {error.problem}", error.hint)
    checked = source if isinstance(source, str) else type(found.proto).FromString(source)
    text = _invalid(checked)
    if not text:
        return Unimplemented(error.problem, error.hint)
    kind = next((kind for marker, kind in _INVALID if marker in text), InvalidGraph)
    return kind(f"This is an invalid model. {text}", error.problem)


def _invalid(model: Any) -> str:
    """What makes a model, or the file at a path, invalid; '' if nothing does."""
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as reason:  # onnx's exceptions, and protobuf's
        text = str(reason).strip().split("\n")[0]
        return _invalid_but_for_shapes(model) if text.startswith(_NO_SHAPE) else text
    return ""


_NO_SHAPE = "Field 'shape' of 'type' is required"  # onnxruntime takes values of any rank


def _invalid_but_for_shapes(model: Any) -> str:
    """The same for a model that declares inputs or results without a shape."""
    import onnx

    try:
        proto = onnx.load(model, load_external_data=False) if isinstance(model, str) else model
        formed = type(proto)()
        formed.CopyFrom(proto)
        for value in (*formed.graph.input, *formed.graph.output):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.shape.SetInParent()
        for tensor in formed.graph.initializer:  # which may be in other files
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=1, dims=[0]))
        onnx.checker.check_model(formed)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as reason:
        return str(reason).strip().split("\n")[0]
    return ""


_INVALID: tuple[tuple[str, type[OrtError]], ...] = (
    ("TypeInferenceError", Fail), ("ShapeInferenceError", Fail), ("Graph output", Fail),
    ("topologically sorted", InvalidArgument),
)  # fmt: skip
