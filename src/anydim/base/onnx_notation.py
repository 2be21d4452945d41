"""ONNX's notation of element types and of open dims, which files and sessions share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anydim.base.dtypes import DTYPES, DType

# TensorProto.DataType -> element type.
ELEMENT_TYPES: dict[int, DType] = {
    number: DTYPES[name]
    for number, name in {
        1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
        9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
        17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
        21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2",
        26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn",
    }.items()
}  # fmt: skip
NUMBERS: Mapping[DType, int] = {dtype: number for number, dtype in ELEMENT_TYPES.items()}
OPEN = frozenset(("", "?", "*", "-1", "0", "None", "none", "null", "unk", "nan"))


def is_open(text: str) -> bool:
    """Whether the text of a dim is open: `?`, blank, `-1`."""
    return text.strip() in OPEN or not re.search(r"\w", text)


STRING = 8  # TensorProto.STRING
_WORDS = {"float32": "float", "float64": "double"}


def type_name(element: int) -> str:
    """The name of an element type in onnxruntime: 'float', 'int64', 'float8e4m3fn'."""
    if element == STRING:
        return "string"
    dtype = ELEMENT_TYPES.get(element)
    if dtype is None:
        return f"type {element}"
    name = _WORDS.get(dtype.name, dtype.name)
    return name.replace("_", "") if name.startswith("float") else name


def type_text(kind: Any) -> str:
    """A TypeProto as onnxruntime writes it: 'seq(tensor(float))'."""
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return f"seq({type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if which == "map_type":
        return f"map({type_name(kind.map_type.key_type)},{type_text(kind.map_type.value_type)})"
    if which == "sparse_tensor_type":
        return f"sparse_tensor({type_name(kind.sparse_tensor_type.elem_type)})"
    return f"tensor({type_name(kind.tensor_type.elem_type)})" if which else ""
