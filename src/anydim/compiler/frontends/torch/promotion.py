"""torch's type promotion, and the types that its kernels compute in.

Source: torch's documentation, "Type promotion" (torch.result_type, torch.promote_types).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anydim.base.dtypes import (
    DTYPES,
    DType,
    bfloat16,
    boolean,
    float16,
    float32,
    float64,
    int16,
    int64,
    uint8,
)
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.sizes import Size

_PARTS = {"complex32": float16, "complex64": float32, "complex128": float64}
_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def dtype_of(torch_dtype: Any) -> DType:
    """The element type of a torch.dtype, of a complex one that of its parts.

    Raises Refused for quantised types.
    """
    name = str(torch_dtype).removeprefix("torch.")
    if name in _PARTS:
        return _PARTS[name]
    if name not in DTYPES:
        raise Refused(f"tensors of {torch_dtype}")
    return DTYPES[name]


def working(dtype: DType) -> DType:
    """The type in which torch's kernels compute numbers of a type: float32 for 16-bit floats."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


def promoted_pair(a: DType, b: DType) -> DType:
    """torch.promote_types."""
    if a == b:
        return a
    if _KINDS[a.kind] != _KINDS[b.kind]:
        return a if _KINDS[a.kind] > _KINDS[b.kind] else b
    if {a, b} == {float16, bfloat16}:
        return float32
    if a.kind != b.kind:  # one of them is unsigned
        signed, other = (a, b) if a.kind == "int" else (b, a)
        return signed if signed.bits > other.bits else int16 if other == uint8 else int64
    return a if a.bits > b.bits else b


def promote(operands: Sequence[Any]) -> DType:
    """torch.result_type of tensors and numbers.

    Tensors with axes decide, unless a scalar tensor is of a higher kind, or else a number.
    """
    tensors = [value for value in operands if hasattr(value, "dtype")]
    groups = (
        [value.dtype for value in tensors if value.shape],
        [value.dtype for value in tensors if not value.shape],
        [number_type(value) for value in operands if not hasattr(value, "dtype")],
    )
    found: DType | None = None
    for group in groups:
        if not group:
            continue
        own = _together(group)
        if found is None or _KINDS[own.kind] > _KINDS[found.kind]:
            found = own
    assert found is not None
    return found


def number_type(value: Any) -> DType:
    """The type of a Python number or a size among tensors."""
    if isinstance(value, bool):
        return boolean
    return int64 if isinstance(value, (int, Size)) else float32


def _together(dtypes: Iterable[DType]) -> DType:
    first, *others = dtypes
    for other in others:
        first = promoted_pair(first, other)
    return first
