"""The ONNX importer: converts a model file to a graph with symbolic sizes.

    graph = import_model("encoder.onnx", {"batch": Dim(0, 64), "seq": Dim(1, 512)})

Named dims of the file (dim_param) become dims; unnamed ones are named after their input and axis.
One error lists all nodes that are not supported.

`graphs/inputs.py` reads the inputs, `graphs/scope.py` imports the nodes: `graphs/resolve.py` looks
up what imports a node, mostly a row of `operators/table.py`, and makes the `OnnxNode` that the row
takes; the results are bound to names. Subgraphs of nodes are built by `operators/branches.py`,
`operators/loop_scan.py` and `graphs/functions.py`; data-dependent sizes by `values/data_sizes.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.errors import ModelError
from anydim.compiler.frontends.custom import Operators
from anydim.compiler.frontends.onnx.file.reading import Opened, open_model
from anydim.compiler.frontends.onnx.file.strings import StringsInside, holds_strings
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, unsupported_error
from anydim.compiler.frontends.onnx.file.variations import apply_ranks
from anydim.compiler.frontends.onnx.graphs.functions import functions_of
from anydim.compiler.frontends.onnx.graphs.inputs import Inputs
from anydim.compiler.frontends.onnx.graphs.names import ImportState, Names
from anydim.compiler.frontends.onnx.graphs.scope import GraphImporter
from anydim.compiler.frontends.onnx.graphs.subgraphs import Emission
from anydim.compiler.frontends.onnx.values.bindings import Binding, Broken, Items, Maybe, Ranked
from anydim.compiler.frontends.onnx.values.emitter import Emitter
from anydim.compiler.frontends.onnx.values.forms import packed_of
from anydim.compiler.graph.nodes import Graph
from anydim.runtime.lists import Listed
from anydim.sizes import Box, Dim


def import_model(
    source: str | os.PathLike[str] | bytes | Any,
    dims: Mapping[str, Dim] | None = None,
    operators: Operators | None = None,
    fallback: bool = False,
) -> Graph:
    """Import an ONNX model: a path, the bytes of a file, or a ModelProto.

    `dims` gives bounds to dims of the model, and ranks to inputs without a declared shape; other
    dims start at 0. `operators` are definitions for operators by domain and name, which take
    precedence over the standard's. With `fallback`, onnxruntime runs the nodes that cannot be
    imported. Raises ModelError for a model that cannot be read or is not supported, OptionError for
    unknown dims.
    """
    opened, dims = apply_ranks(open_model(source), dims or {})
    if holds_strings(opened.proto.graph):
        raise StringsInside(opened)
    try:
        return _graph(opened, dims, operators or {}, fallback)
    except (UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{opened.name} is malformed: {type(error).__name__}") from None


def _graph(opened: Opened, dims: Mapping[str, Dim], operators: Operators, fallback: bool) -> Graph:
    proto = opened.proto.graph
    functions = functions_of(opened.proto, opened.opset, opened.name)
    model = ImportState(opened.name, opened.folder, functions, operators, opened.domains)
    model.fallback, model.tracked = fallback, opened.tracked
    emitter = Emitter(Box(), reserved=model.dims)
    names = GraphImporter(model, emitter, opened.opset)
    names.is_model = True
    names.check(proto)
    names.initializers(proto.initializer, opened.weights)
    inputs = Inputs(names)
    inputs.read(proto, dims)
    names.run(proto.node, [value.name for value in proto.output])
    outputs = {value.name: names.result(value.name) for value in proto.output}
    if not model.failures:
        results = _Outputs(names)
        for name, held in outputs.items():
            results.add(name, held)
    if model.failures:
        raise unsupported_error(opened.name, model.failures, "" if fallback else _ALLOW)
    if not outputs:
        raise ModelError(f"{opened.name} has no outputs")
    lists = {**inputs.lists, **results.lists}
    if opened.folder is not None:
        opened.folder.check_unchanged()
    return emitter.graph(proto.name or opened.name, inputs.values, results.values, lists)


def import_foreign(source: Any, dims: Mapping[str, Dim], why: str) -> Graph:
    """A graph that runs the whole model in onnxruntime, for the reason `why`.

    Raises ModelError if it cannot.
    """
    opened = open_model(source)
    model = ImportState(opened.name, opened.folder, domains=opened.domains)
    names = GraphImporter(model, Emitter(Box(), reserved=model.dims), opened.opset)
    inputs = Inputs(names)
    inputs.read(opened.proto.graph, dims)
    try:
        foreign = import_module("anydim.compiler.frontends.onnx.graphs.foreign")
        results: list[str] = foreign.add_foreign_model(names, opened, inputs.values, why)
    except Unsupported as reason:
        raise ModelError(f"{opened.name} does not run on onnxruntime: {reason}") from None
    return names.emitter.graph(opened.proto.graph.name or opened.name, inputs.values, results)


_ALLOW = "fallback='onnxruntime' lets onnxruntime run them, where it can"


class _Outputs:
    """The results; an input, a constant or a known value is copied by an identity node."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.values: list[str] = []
        self.lists: dict[str, Listed] = {}

    def add(self, name: str, held: Binding) -> None:
        """Add a result of the model under its name: a tensor, or a list."""
        if isinstance(held, Broken):
            return
        if isinstance(held, str):
            self.values.append(self.tensor(name, held))
            return
        if isinstance(held, Ranked):
            parts = self.add_pair(name, held.elements, held.shape)
            self.lists[name] = Listed(*parts, single=True)
            return
        inner, optional = (held.value, True) if isinstance(held, Maybe) else (held, False)
        if inner is None:
            self.names.fail(name, "output", "an optional that is always empty")
            return
        if isinstance(inner, str):
            inner = Items((inner,), self.names.emitter.types[inner].dtype)
        elif isinstance(held, Maybe):
            optional = held.single
        emission = Emission(self.names, name)
        try:
            packed = packed_of(emission, inner)
        except Unsupported as reason:
            self.names.fail(name, "output", str(reason))
            return
        self.lists[name] = Listed(*self.add_pair(name, packed.elements, packed.shapes), optional)

    def add_pair(self, name: str, elements: str, shapes: str) -> tuple[str, str]:
        """The two tensors of a result that is a list."""
        pair = self.tensor(f"{name}.elements", elements), self.tensor(f"{name}.shapes", shapes)
        self.values += pair
        return pair

    def tensor(self, name: str, value: str) -> str:
        emitter = self.names.emitter
        emitter.materialise(value)
        if value != name:
            source = f"{self.names.model.name}: output {name}"
            emitter.commit([emitter.node("identity", (value,), (name,), {}, source)])
        return name
