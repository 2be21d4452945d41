"""LLVM's primitives for a processor."""

from __future__ import annotations

from functools import cache

from anydim.compiler.targets.functions.primitives import Primitives
from anydim.compiler.targets.llvm.dots import has_pair_dots
from anydim.compiler.targets.processor import WASM, Processor

_FUNCTIONS = frozenset(("copysign",))


@cache
def primitives(processor: Processor) -> Primitives:
    """Return the primitives of a processor.

    Without native float16 conversions LLVM would call library functions that are not linked.
    """
    float16 = processor.architecture not in ("x86_64", "riscv64", WASM) or "f16c" in processor.has
    pairs = has_pair_dots(processor.has)
    functions = _FUNCTIONS | ({"dot_bfloat16"} if pairs else set())
    return Primitives(float16, functions, bfloat16=pairs)
