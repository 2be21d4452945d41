"""Operators that the ONNX standard itself writes in terms of other operators: their bodies.

A node of such an operator is replaced by the nodes of its body, with names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from anydim.frontends.onnx.tensors import ELEMENT_TYPES
from anydim.lang.tree import TensorType

_NUMBERS = {dtype: number for number, dtype in ELEMENT_TYPES.items()}


@dataclass(frozen=True)
class Body:
    """Nodes that compute what one node stands for, in the operators of an opset."""

    nodes: tuple[Any, ...]
    opset: int


def body_of(
    proto: Any, schema: Any, opset: int, types: Sequence[TensorType | None],
    fresh: Callable[[str], str],
) -> Body | None:  # fmt: skip
    """What the standard puts in the place of a node; None where it has nothing for it.

    `types` are those of its inputs, `fresh` makes a name that no value has.
    """
    import onnx

    function = onnx.FunctionProto()
    if schema.has_function:
        function.ParseFromString(_text(schema.name, schema.since_version, opset))
    elif schema.has_context_dependent_function:
        kinds = [_type_proto(kind).SerializeToString() for kind in types]
        written = schema.get_context_dependent_function(proto.SerializeToString(), kinds)
        if not written:
            return None
        function.ParseFromString(written)
    else:
        return None
    versions = [entry.version for entry in function.opset_import if not entry.domain]
    names = dict(zip(function.input, proto.input))
    names |= {formal: "" for formal in function.input if formal not in names}
    names |= {formal: own for formal, own in zip(function.output, proto.output) if own}
    given = {attribute.name: attribute for attribute in proto.attribute}
    for name, declared in schema.attributes.items():
        if name not in given and declared.default_value.type:
            given[name] = declared.default_value
    nodes = []
    for inner in function.node:
        node = onnx.NodeProto()
        node.CopyFrom(inner)
        for side in (node.input, node.output):
            for position, name in enumerate(side):
                if name and name not in names:
                    names[name] = fresh(f"{proto.name or proto.op_type}/{name}")
                side[position] = names[name] if name else ""
        _bind(node, given)
        nodes.append(node)
    return Body(tuple(nodes), versions[0] if versions else opset)


@lru_cache(maxsize=256)
def _text(operator: str, since: int, opset: int) -> bytes:
    import onnx

    schema: Any = onnx.defs.get_schema(operator, since)
    version = max((v for v in schema.function_opset_versions if v <= opset), default=since)
    text = schema.get_function_with_opset_version(version)
    assert isinstance(text, bytes)
    return text


def _bind(node: Any, given: dict[str, Any]) -> None:
    """Put the node's own attributes where the body refers to them."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in given:
                continue
            name = attribute.name
            attribute.CopyFrom(given[attribute.ref_attr_name])
            attribute.name = name
        kept.append(attribute)
    copies = [type(attribute).FromString(attribute.SerializeToString()) for attribute in kept]
    del node.attribute[:]
    node.attribute.extend(copies)


def _type_proto(kind: TensorType | None) -> Any:
    import onnx

    proto = onnx.TypeProto()
    if kind is None:
        return proto
    proto.tensor_type.elem_type = _NUMBERS[kind.dtype]
    proto.tensor_type.shape.SetInParent()
    for size in kind.shape:
        dim = proto.tensor_type.shape.dim.add()
        if size.constant is None:
            dim.dim_param = str(size)
        else:
            dim.dim_value = size.constant
    return proto
