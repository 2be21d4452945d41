"""The model of a session: opened once, and changed as options and runs ask.

A `Variation` is what a run needs that the file does not have: values for initializers that may be
overridden, a rank for an input without one, axes of one name that may differ. Each is a model of
its own, compiled when the first run asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy

from anydim.base.errors import InputError, ModelError
from anydim.base.records import dataclass
from anydim.frontends.onnx.file.reading import Opened, open_model
from anydim.ort.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    OrtError,
    Unimplemented,
)
from anydim.ort.options import SessionOptions
from anydim.ort.values import OrtValue, element_of


@dataclass(frozen=True)
class Variation:
    """`overridden` initializers become inputs; `ranks` (input, rank) where the file has none; with
    `apart`, axes of one name are dims of their own."""

    overridden: frozenset[str] = frozenset()
    apart: bool = False
    ranks: tuple[tuple[str, int], ...] = ()


PLAIN = Variation()


def opened(source: str | bytes, options: SessionOptions) -> Opened:
    """The model of a path or of bytes, with the sizes and initializers that options give.

    Raises NoSuchFile, InvalidProtobuf, or another OrtError for what cannot be opened.
    """
    if isinstance(source, str) and not os.path.exists(source):
        raise NoSuchFile(
            f"Load model from {source} failed:Load model {source} failed. File doesn't exist"
        )
    if not isinstance(source, str) and not source:
        raise InvalidArgument("No graph was found in the protobuf.")
    try:
        found = open_model(source)
    except (ModelError, InputError) as error:
        begin = f"Load model from {source} failed:" if isinstance(source, str) else ""
        kind = Fail if " opset" in error.problem else InvalidProtobuf
        raise kind(f"{begin}Protobuf parsing failed: {error.problem}", error.hint) from error
    given = _initialized(found, options) if options.initializers else found
    if options.sizes_by_name or options.sizes_by_denotation:
        _override(given.proto.graph, options)
    return given


def _override(graph: Any, options: SessionOptions) -> None:
    """Free dims with one size."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            size = options.sizes_by_name.get(axis.dim_param)
            if size is None:
                size = options.sizes_by_denotation.get(axis.denotation)
            if size is not None and not axis.HasField("dim_value"):
                axis.dim_value = size


def _initialized(found: Opened, options: SessionOptions) -> Opened:
    """Initializers with the values of options."""
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


# ---- variations ------------------------------------------------------------------------------


def varied(found: Opened, variation: Variation) -> Opened:
    """A copy of the model, as a variation has it."""
    if variation == PLAIN:
        return found
    proto = type(found.proto)()
    proto.CopyFrom(found.proto)
    for name, rank in variation.ranks:
        value = next(value for value in proto.graph.input if value.name == name)
        for _ in range(rank):
            value.type.tensor_type.shape.dim.add()
        value.type.tensor_type.shape.SetInParent()
    if variation.apart:
        for value in proto.graph.input:
            for axis in value.type.tensor_type.shape.dim:
                if axis.dim_param:
                    axis.ClearField("dim_param")
    weights = dict(_kept(proto.graph.initializer, found, variation.overridden))
    return replace(found, proto=proto, weights=weights)


def _kept(
    tensors: Any, found: Opened, overridden: frozenset[str]
) -> Iterator[tuple[int, Callable[[], numpy.ndarray]]]:
    """Remove the initializers that are inputs now; the contents of the others by new numbers."""
    kept = [number for number, tensor in enumerate(tensors) if tensor.name not in overridden]
    for number in reversed(range(len(tensors))):
        if tensors[number].name in overridden:
            del tensors[number]
    for now, before in enumerate(kept):
        if before in found.weights:
            yield now, found.weights[before]


# ---- what is refused -------------------------------------------------------------------------


_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "com.microsoft"}


def refused(found: Opened, source: str | bytes, error: ModelError) -> OrtError:
    """The exception for a model that anydim does not take: invalid, or not implemented."""
    import onnx

    own = {function.domain for function in found.proto.functions}
    for node in found.proto.graph.node:
        if node.domain not in _DOMAINS | own:
            where = f"Fatal error: {node.domain}:{node.op_type}(-1)"
            return Fail(f"{where} is not a registered function/op", error.problem)
    checked = source if isinstance(source, str) else type(found.proto).FromString(source)
    try:
        onnx.checker.check_model(checked, full_check=True)
    except Exception as reason:  # its exceptions, and what protobuf raises
        text = str(reason).strip().split("\n")[0]
        kind = next((kind for word, kind in _INVALID if word in text), InvalidGraph)
        return kind(f"This is an invalid model. {text}", error.problem)
    return Unimplemented(error.problem, error.hint)


_INVALID: tuple[tuple[str, type[OrtError]], ...] = (
    ("TypeInferenceError", Fail), ("ShapeInferenceError", Fail), ("Graph output", Fail),
    ("topologically sorted", InvalidArgument),
)  # fmt: skip
