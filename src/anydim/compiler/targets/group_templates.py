"""Templates for devices whose work-items form groups, one lane each."""

from __future__ import annotations

from anydim.compiler.kernels.template import Template
from anydim.compiler.kernels.templates import TEMPLATES


def group_templates() -> tuple[Template, ...]:
    """Return the templates, most specific first; their modules are imported by the first call."""
    from anydim.compiler.kernels.gpu import (
        gpu_attention,
        group_rows,
        library_matmul,
        tensor_core_matmul,
        tiled_matmul,
    )

    grouped = (gpu_attention, library_matmul, tensor_core_matmul, tiled_matmul, group_rows)
    return (*(module.TEMPLATE for module in grouped), *(t for t in TEMPLATES if t.least_lanes == 1))
