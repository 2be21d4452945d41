"""The target for processors, by a C compiler."""

from __future__ import annotations

from importlib import import_module

from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.processor import NATIVE, Processor
from anydim.compiler.targets.target import Target, TargetKind

NAME = "c"


def _c(processor: Processor) -> Target:
    loader = import_module("anydim.compiler.targets.c.loader")
    return Target(
        name=NAME,
        processor=processor.as_plain,
        templates=TEMPLATES,
        launch="range",
        sources=import_module("anydim.compiler.targets.c.render").sources,
        compiling=import_module("anydim.compiler.targets.c.compiler").compiling,
        load=loader.load if processor.name == NATIVE else None,
        export_suffix=".c",
    )


C = TargetKind(NAME, _c, is_host=True)
