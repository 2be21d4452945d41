"""The target for processors, by a C compiler."""

from __future__ import annotations

from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.processor import NATIVE, Processor
from anydim.compiler.targets.target import Target, TargetKind

NAME = "c"


def _c(processor: Processor) -> Target:
    from anydim.compiler.targets.c.compiler import compiling
    from anydim.compiler.targets.c.compilers import writes_tiles
    from anydim.compiler.targets.c.loader import load
    from anydim.compiler.targets.c.render import sources

    machine = processor.machine
    has_tiles = (machine.tiles or machine.pair_tiles) and writes_tiles()
    return Target(
        name=NAME,
        processor=processor.as_plain_with_tiles if has_tiles else processor.as_plain,
        templates=TEMPLATES,
        launch="range",
        sources=sources,
        compiling=compiling,
        load=load if processor.name == NATIVE else None,
        export_suffix=".c",
    )


C = TargetKind(NAME, _c, is_host=True)
