"""The targets for OpenCL devices: processors, and graphics cards."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.group_templates import group_templates
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Target, TargetKind

NAME, GROUPS = "opencl", "opencl-groups"


def _opencl(processor: Processor) -> Target:
    render = import_module("anydim.compiler.targets.opencl.render")
    max_lanes = import_module("anydim.compiler.targets.opencl.dialect").MAX_LANES
    return Target(
        name=NAME,
        processor=replace(processor.as_plain, max_lanes=max_lanes),
        templates=tuple(t for t in TEMPLATES if t.least_lanes <= max_lanes),
        launch="device",
        sources=render.sources,
        compiling=render.texts,
        load=None,
    )


def _opencl_groups(processor: Processor) -> Target:
    return replace(
        _opencl(processor),
        name=GROUPS,
        processor=replace(processor, max_lanes=1),
        templates=group_templates(),
        ordered=False,
    )


OPENCL = TargetKind(NAME, _opencl, is_host=False)
# for devices with slow single work-items: graphics cards
OPENCL_GROUPS = TargetKind(GROUPS, _opencl_groups, is_host=False)
