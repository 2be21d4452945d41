"""Resolves a node of a file: what imports it, with its inputs, attributes and results."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from anydim.base.errors import ModelError
from anydim.compiler.frontends.custom import find_operator
from anydim.compiler.frontends.onnx.file.schema import (
    attributes_of,
    bind_references,
    domain_known,
    schema_of,
    value_of,
)
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.graphs.definitions import import_body, import_defined
from anydim.compiler.frontends.onnx.graphs.functions import call_function, find
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.graphs.subgraphs import NodeScope
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.operators.table import OPERATORS, Build
from anydim.compiler.frontends.onnx.values.bindings import Binding

STANDARD = ("", "ai.onnx")


def resolve(names: Names, proto: Any, label: str) -> tuple[OnnxNode, Build]:
    """A node with its inputs, attributes and results, and the function that imports it.

    That is a function of the model, a definition of the user, a row of the table of operators, or
    the body by which the standard defines the operator: the first that there is. Raises ModelError
    for an undefined input, Unsupported for an operator that nothing imports, or a node that does
    not fit its declaration.
    """
    inputs, outputs = _inputs(names, proto, label), [names.value_name(n) for n in proto.output]
    while outputs and not outputs[-1]:
        outputs.pop()
    call = OnnxNode(
        names.emitter, proto, names.opset, inputs, tuple(outputs) or ("",), {},
        f"{names.model.name}: {label}", NodeScope(names, label),
    )  # fmt: skip
    function = find(names.model.functions, proto)
    if function is not None:
        given = bind_references(proto.attribute, names.attributes)
        call.attributes = {**function.defaults, **{each.name: each for each in given}}
        return call, partial(call_function, names, function, label)
    definition = find_operator(names.model.operators, proto.domain, proto.op_type)
    if definition is not None:
        given = bind_references(proto.attribute, names.attributes)
        call.attributes = {each.name: value_of(each) for each in given}
        return call, partial(import_defined, names, definition, label)
    row, schema = _row(names, proto)
    if not schema.min_input <= len(inputs) <= schema.max_input:
        raise Unsupported(f"{len(inputs)} inputs")
    if len(proto.output) > schema.max_output or (schema.min_output and not proto.output):
        raise Unsupported(f"{len(proto.output)} results")
    call.attributes = attributes_of(proto, schema, names.attributes)
    while call.inputs and call.inputs[-1] is None:
        call.inputs = call.inputs[:-1]
    call.schema = schema
    return call, row or partial(import_body, names, label)


def _inputs(names: Names, proto: Any, label: str) -> tuple[Binding | None, ...]:
    found: list[Binding | None] = []
    for name in proto.input:
        try:
            found.append(names.lookup(name) if name else None)
        except KeyError:
            made = name in names.produced  # nodes are sorted, so this is a cycle
            problem = "depends on its own result" if made else "is not defined"
            raise ModelError(
                f"{names.model.name}, node '{label}' ({proto.op_type}): "
                f"its input '{name}' {problem}",
                "a graph has no cycles; what repeats is a Loop or a Scan" if made else "",
            ) from None
    return tuple(found)


def _row(names: Names, proto: Any) -> tuple[Build | None, Any]:
    """The row of a node's operator, None if there is none, and its schema.

    Raises Unsupported for an operator without a schema.
    """
    domain, operator = "" if proto.domain in STANDARD else proto.domain, proto.op_type
    opset = names.model.domains.get(domain) if domain else names.opset
    schema = None if opset is None else schema_of(operator, opset, domain)
    if domain or schema is None:  # imported late: few models use onnxruntime's own operators
        microsoft: Any = import_module("anydim.compiler.frontends.onnx.microsoft.table")
        found: tuple[Build, Any] | None = microsoft.find(domain, operator)
        if found is not None:
            return found
        if domain in microsoft.REFUSED:
            raise Unsupported(f"domain '{domain}': {microsoft.REFUSED[domain]}")
        if not domain_known(domain):
            known = "no operator of " if domain == microsoft.DOMAIN else ""
            raise Unsupported(f"{known}domain '{domain}'")
    if opset is None:
        raise Unsupported(f"domain '{domain}', of which the model imports no opset")
    if schema is None:
        raise Unsupported("not an operator of this opset")
    return OPERATORS.get(f"{domain}.{operator}" if domain else operator), schema
