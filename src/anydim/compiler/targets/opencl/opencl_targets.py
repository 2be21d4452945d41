"""The targets for OpenCL devices: processors, and graphics cards."""

from __future__ import annotations

from dataclasses import replace

from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.group_templates import group_templates
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Target, TargetKind

NAME, GROUPS = "opencl", "opencl-groups"


def _opencl(processor: Processor) -> Target:
    from anydim.compiler.targets.opencl.dialect import MAX_LANES
    from anydim.compiler.targets.opencl.render import sources, texts

    return Target(
        name=NAME,
        processor=replace(processor.as_plain, max_lanes=MAX_LANES),
        templates=tuple(t for t in TEMPLATES if t.least_lanes <= MAX_LANES),
        launch="device",
        sources=sources,
        compiling=texts,
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
