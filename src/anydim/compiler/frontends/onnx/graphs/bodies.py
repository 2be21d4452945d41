"""Function bodies of operators that the ONNX standard defines by other operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from anydim.base.onnx_notation import ELEMENT_TYPES
from anydim.lang.tree import TensorType

_NUMBERS = {dtype: number for number, dtype in ELEMENT_TYPES.items()}


def body_of(
    proto: Any, schema: Any, opset: int, types: Sequence[TensorType | Any | None]
) -> tuple[Any, dict[str, Any]] | None:
    """(the function, its attributes) by which the standard replaces a node, or None.

    `types` are those of its inputs: of tensors, or as TypeProto.
    """
    import onnx

    function = onnx.FunctionProto()
    if schema.has_function:
        function.ParseFromString(_text(schema.name, schema.domain, schema.since_version, opset))
    elif schema.has_context_dependent_function:
        kinds = [_type_proto(kind).SerializeToString() for kind in types]
        written = schema.get_context_dependent_function(proto.SerializeToString(), kinds)
        if not written:
            return None
        function.ParseFromString(written)
    else:
        return None
    given = {attribute.name: attribute for attribute in proto.attribute}
    for name, declared in schema.attributes.items():
        if name not in given and declared.default_value.type:
            given[name] = declared.default_value
    return function, given


@lru_cache(maxsize=256)
def _text(operator: str, domain: str, since: int, opset: int) -> bytes:
    import onnx

    schema: Any = onnx.defs.get_schema(operator, since, domain)
    version = max((v for v in schema.function_opset_versions if v <= opset), default=since)
    text = schema.get_function_with_opset_version(version)
    assert isinstance(text, bytes)
    return text


def _type_proto(kind: TensorType | Any | None) -> Any:
    import onnx

    proto = onnx.TypeProto()
    if kind is None:
        return proto
    if not isinstance(kind, TensorType):
        return kind
    proto.tensor_type.elem_type = _NUMBERS[kind.dtype]
    proto.tensor_type.shape.SetInParent()
    for size in kind.shape:
        dim = proto.tensor_type.shape.dim.add()
        if size.constant is None:
            dim.dim_param = str(size)
        else:
            dim.dim_value = size.constant
    return proto
