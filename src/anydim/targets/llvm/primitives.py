"""What LLVM computes for a processor beyond what every target does."""

from __future__ import annotations

from functools import cache

from anydim.targets.functions.primitives import Primitives
from anydim.targets.processor import Processor

_FUNCTIONS = frozenset(("copysign",))


@cache
def primitives(processor: Processor) -> Primitives:
    """The primitives of a processor.

    Where it does not convert float16, LLVM would call functions of a library that is not there.
    """
    float16 = processor.architecture != "x86_64" or "f16c" in processor.has
    return Primitives(float16, _FUNCTIONS)
