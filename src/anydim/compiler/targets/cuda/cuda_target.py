"""The target for NVIDIA's devices."""

from __future__ import annotations

from importlib import import_module

from anydim.compiler.targets.group_templates import group_templates
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Target, TargetKind

NAME = "cuda"


def _cuda(processor: Processor) -> Target:
    return Target(
        name=NAME,
        processor=processor,
        templates=group_templates(),
        launch="device",
        sources=import_module("anydim.compiler.targets.cuda.render").sources,
        compiling=import_module("anydim.compiler.targets.cuda.compiler").compiling,
        load=None,
        ordered=False,
        allows_tf32=True,
    )


def _architecture(name: str) -> Processor:
    found: Processor = import_module("anydim.compiler.targets.cuda.compiler").architecture(name)
    return found


CUDA = TargetKind(NAME, _cuda, is_host=False, processor=_architecture)
