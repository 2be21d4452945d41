"""Compiles CUDA programs to cubins for an architecture, in parallel, with a cache on disk."""

from __future__ import annotations

from anydim.base.cache import key_of
from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.compiler.kernels.launch import TF32
from anydim.compiler.targets.compilation import Compilation
from anydim.compiler.targets.cuda.dialect import MAX_LANES
from anydim.compiler.targets.cuda.nvrtc import OPTIONS, nvrtc
from anydim.compiler.targets.processor import LIBRARY, NATIVE, WARPS, Processor
from anydim.compiler.targets.target import Source

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
_WARPS = 80  # minimum architecture of mma instructions on 16 bits and tf32
_LEAST = "sm_80"  # default architecture without a device
_REGISTERS = 32  # per thread for accumulators of a matmul; the others are for addresses


def architecture(name: str) -> Processor:
    """Return the description of an architecture for templates: 'sm_90', or 'sm_90+tf32'.

    With `+tf32`, operands of float32 matmuls may be rounded to it; with `+library`, a library
    computes matrix products. Raises OptionError for an unknown one.
    """
    named, *more = (_LEAST if name == NATIVE else name).split("+")
    if named not in ARCHITECTURES or not {*more} <= {TF32, LIBRARY}:
        raise OptionError(
            f"unknown CUDA architecture '{name}'",
            f"the architectures are {quote_list(ARCHITECTURES)}, with '+{TF32}' or without",
        )
    features = ["fma", *(each for each in more if each == LIBRARY)]
    if int(named.removeprefix("sm_")) >= _WARPS:
        features += [WARPS, *(each for each in more if each == TF32)]
    return Processor(
        "+".join((named, *more)), "nvptx64-nvidia-cuda", named,
        ",".join(f"+{feature}" for feature in features), 4, _REGISTERS, max_lanes=MAX_LANES,
    )  # fmt: skip


def compiling(processor: Processor, threads: int = 0) -> Compilation:
    """Return a compilation of modules to cubins; raises OptionError if NVRTC is not installed."""
    chosen = nvrtc()

    def compiled(module: Source) -> bytes:
        return chosen.compile(module.text(), processor.cpu)

    return Compilation(
        compiled,
        lambda module: key_of("cubin", chosen.version, *OPTIONS, processor.cpu, module.identity),
        threads,
    )
