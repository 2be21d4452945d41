"""The target for processors, by LLVM."""

from __future__ import annotations

from anydim.base.settings import USUAL_TARGET
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.targets.llvm.compiler import compiling, machine_code
from anydim.compiler.targets.llvm.loader import load
from anydim.compiler.targets.llvm.render import sources
from anydim.compiler.targets.processor import NATIVE, Processor
from anydim.compiler.targets.target import Target, TargetKind


def _llvm(processor: Processor) -> Target:
    return Target(
        name=USUAL_TARGET,
        processor=processor,
        templates=TEMPLATES,
        launch="range",
        sources=sources,
        compiling=compiling,
        load=load if processor.name == NATIVE else None,
        assembly=machine_code,
    )


LLVM = TargetKind(USUAL_TARGET, _llvm, is_host=True)
