"""A target: LLVM's code with vectors of 16 bytes."""

from __future__ import annotations

from dataclasses import replace

from anydim.compiler.targets.llvm.llvm_target import LLVM
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Target, TargetKind


def _narrow(processor: Processor) -> Target:
    narrow = replace(processor.as_plain, vector_bytes=16)
    return replace(LLVM.make(processor), name="narrow", processor=narrow)


NARROW = TargetKind("narrow", _narrow, is_host=True)
