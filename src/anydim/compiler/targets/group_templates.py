"""Templates for devices whose work-items form groups, one lane each."""

from __future__ import annotations

from importlib import import_module

from anydim.compiler.kernels.template import Template
from anydim.compiler.kernels.templates import TEMPLATES

_GROUPED = (
    "anydim.compiler.kernels.gpu.gpu_attention",
    "anydim.compiler.kernels.gpu.tensor_core_matmul",
    "anydim.compiler.kernels.gpu.tiled_matmul",
    "anydim.compiler.kernels.gpu.group_rows",
)


def group_templates() -> tuple[Template, ...]:
    """Return the templates, most specific first; their modules are imported by the first call."""
    grouped = (import_module(name).TEMPLATE for name in _GROUPED)
    return (*grouped, *(t for t in TEMPLATES if t.least_lanes == 1))
