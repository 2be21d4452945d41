"""Rows of matrix products by groups of rows, as mixtures of experts have them."""

from __future__ import annotations

from typing import Any

from anydim.base.dtypes import DType, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import TorchBuilder
from anydim.compiler.frontends.torch.record import Build
from anydim.compiler.frontends.torch.refusal import Refused


def grouped_product(g: TorchBuilder, x: Value, weight: Value, ends: Value) -> Value:
    """Rows [rows, depth] by the matrix [depth, columns] of their group; `ends` ascend.

    Rows behind the last end are 0.
    """
    made: Value = g.defined("grouped_product", x, weight, g.as_type(ends, int64))
    return made


def grouped_mm(
    g: TorchBuilder, x: Value, weight: Value, ends: Value | None = None,
    bias: Value | None = None, out_dtype: DType | None = None, **_: Any,
) -> Value:  # fmt: skip
    """Groups of rows only, the form of a mixture of experts."""
    if ends is None or (len(x.shape), len(weight.shape)) != (2, 3):
        raise Refused(f"groups of {len(x.shape)} and {len(weight.shape)} axes, or without ends")
    made = grouped_product(g, x, weight, ends)
    return made if bias is None else g.add(made, bias)


ROWS: dict[str, Build] = {
    "transformers.grouped_mm_fallback.default": grouped_product,
    "_grouped_mm.default": grouped_mm,
}
