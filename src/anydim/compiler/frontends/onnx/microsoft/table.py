"""The table of onnxruntime's operators: a row for each, by domain and name.

The files of the folder have the rows of their families, by their names in com.microsoft.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from anydim.compiler.frontends.onnx.microsoft import (
    attention,
    blocks,
    elements,
    fused,
    grouped,
    images,
    norms,
    quantised,
    shapes,
)
from anydim.compiler.frontends.onnx.microsoft.record import Row, schema_of
from anydim.compiler.frontends.onnx.operators.table import Build

DOMAIN = "com.microsoft"

_FAMILIES: tuple[Mapping[str, Row], ...] = (
    attention.ROWS, attention.POSITION_ROWS, blocks.ROWS, elements.ROWS, fused.ROWS, grouped.ROWS,
    images.ROWS, norms.ROWS, quantised.ROWS, quantised.PRODUCT_ROWS, quantised.RECURRENT_ROWS,
    quantised.TRANSFORMER_ROWS, shapes.ROWS,
)  # fmt: skip

ROWS: dict[tuple[str, str], Row] = {
    **{(DOMAIN, name): row for family in _FAMILIES for name, row in family.items()},
    **{("", name): row for name, row in norms.STANDARD_ROWS.items()},
}
"""(domain, operator type) -> its row.

Rows of domain '' apply if the opset of the model has no operator of that name.
"""

# Domains whose operators are machine-specific, with a hint.
REFUSED = {
    "com.microsoft.nchwc": "its tensors have the layout of the machine on which onnxruntime"
    " saved the file: save it at GraphOptimizationLevel.ORT_ENABLE_EXTENDED",
}


@lru_cache(maxsize=256)
def find(domain: str, name: str) -> tuple[Build, Any] | None:
    """The builder and the schema of an operator; None if it has no row."""
    record = ROWS.get((domain, name))
    return None if record is None else (record.build, schema_of(record, domain, name))
