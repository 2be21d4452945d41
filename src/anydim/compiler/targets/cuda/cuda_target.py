"""The target for NVIDIA's devices."""

from __future__ import annotations

from anydim.compiler.targets.group_templates import group_templates
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Target, TargetKind

NAME = "cuda"


def _cuda(processor: Processor) -> Target:
    from anydim.compiler.targets.cuda.compiler import compiling
    from anydim.compiler.targets.cuda.render import sources

    return Target(
        name=NAME,
        processor=processor,
        templates=group_templates(),
        launch="device",
        sources=sources,
        compiling=compiling,
        load=None,
        ordered=False,
        allows_tf32=True,
    )


def _architecture(name: str) -> Processor:
    from anydim.compiler.targets.cuda.compiler import architecture

    return architecture(name)


CUDA = TargetKind(NAME, _cuda, is_host=False, processor=_architecture)
