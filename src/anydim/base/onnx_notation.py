"""ONNX's notation of element types and of open dims, which files and sessions share."""

from __future__ import annotations

import re

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
OPEN = frozenset(("", "?", "*", "-1", "0", "None", "none", "null", "unk", "nan"))


def is_open(text: str) -> bool:
    """Whether the text of a dim is open: `?`, blank, `-1`."""
    return text.strip() in OPEN or not re.search(r"\w", text)
