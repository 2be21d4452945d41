"""CUDA programs to cubins for an architecture, in parallel, with a cache on disk."""

from __future__ import annotations

from anydim.base.cache import key_of
from anydim.base.errors import OptionError
from anydim.base.text import listed
from anydim.targets.compilation import Compilation
from anydim.targets.cuda.dialect import MOST_LANES
from anydim.targets.cuda.nvrtc import OPTIONS, nvrtc
from anydim.targets.processor import NATIVE, Processor
from anydim.targets.target import Source

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
_LEAST = "sm_80"  # what is made where nobody says for which device
_REGISTERS = 32  # of an item, for values that a product keeps: the rest is for addresses


def architecture(name: str) -> Processor:
    """What templates know of devices of an architecture. Raises OptionError for an unknown one."""
    named = _LEAST if name == NATIVE else name
    if named not in ARCHITECTURES:
        raise OptionError(
            f"there is no CUDA architecture '{name}'",
            f"the architectures are {listed(ARCHITECTURES)}",
        )
    return Processor(
        named, "nvptx64-nvidia-cuda", named, "+fma", 4, _REGISTERS, most_lanes=MOST_LANES
    )


def compiling(processor: Processor, threads: int = 0) -> Compilation:
    """Cubins of modules; raises OptionError where NVRTC is not installed."""
    chosen = nvrtc()

    def compiled(module: Source) -> bytes:
        return chosen.compile(module.text(), processor.name)

    return Compilation(
        compiled,
        lambda module: key_of("cubin", chosen.version, *OPTIONS, processor.name, module.identity),
        threads,
    )
