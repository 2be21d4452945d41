"""Schemas of the ONNX standard, and checks of a node's attributes against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from anydim.compiler.frontends.onnx.file.tensors import Unsupported


@lru_cache(maxsize=1024)
def schema_of(operator: str, opset: int, domain: str = "") -> Any:
    """The standard's schema of an operator; None if there is none of that name."""
    import onnx

    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


@lru_cache(maxsize=64)
def domain_known(domain: str) -> bool:
    """Whether the standard has operators of a domain."""
    import onnx

    return any(schema.domain == domain for schema in onnx.defs.get_all_schemas())


def attributes_of(
    proto: Any, schema: Any, function: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The attributes of a node with the standard's defaults; Unsupported for unknown ones.

    `function` holds the attributes of the enclosing function, by name.
    """
    values: dict[str, Any] = {}
    for attribute in bind_references(proto.attribute, function or {}):
        declared = schema.attributes.get(attribute.name)
        if declared is None:
            raise Unsupported(f"attribute '{attribute.name}', which it does not have")
        if attribute.name in values:
            raise Unsupported(f"attribute '{attribute.name}' is given twice")
        if attribute.type != declared.type.value:
            raise Unsupported(f"attribute '{attribute.name}' is of another type")
        values[attribute.name] = value_of(attribute)
    for name, declared in schema.attributes.items():
        if name not in values:
            if declared.required:
                raise Unsupported(f"attribute '{name}' is missing")
            if declared.default_value.type:
                values[name] = value_of(declared.default_value)
    return values


def bind_references(attributes: Iterable[Any], function: Mapping[str, Any]) -> list[Any]:
    """Replace references to attributes of a function by their values.

    A reference to an attribute that was not given is dropped.
    """
    kept = []
    for attribute in attributes:
        if not attribute.ref_attr_name:
            kept.append(attribute)
        elif attribute.ref_attr_name in function:
            own = type(attribute)()
            own.CopyFrom(function[attribute.ref_attr_name])
            own.name = attribute.name
            kept.append(own)
    return kept


def value_of(attribute: Any) -> Any:
    """The value of an attribute; Unsupported for a kind that no operator takes."""
    field = _ATTRIBUTE_FIELDS.get(attribute.type)
    if field is None:
        raise Unsupported(f"attribute '{attribute.name}'")
    value = getattr(attribute, field)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if field in ("floats", "ints"):
        return tuple(value)
    if field == "strings":
        texts = {item: item.decode("utf-8", "replace") for item in set(value)}
        return tuple(map(texts.__getitem__, value))  # a forest repeats its modes for every node
    return value


# AttributeProto.AttributeType -> the field that holds the value
_ATTRIBUTE_FIELDS = {
    1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings",
    11: "sparse_tensor", 13: "tp",
}  # fmt: skip
