"""The machine of this process, as described by LLVM."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from anydim.base import settings
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.limits import limits_in_use
from anydim.compiler.targets.llvm.llvm_api import reported_text
from anydim.compiler.targets.processor import NATIVE, Processor
from anydim.runtime.cpu import tiles_allowed

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@lru_cache(maxsize=1)
def _describe_host() -> tuple[str, str, str]:
    """Return this machine's triple, processor and features in LLVM's names."""
    features = reported_text("GetHostCPUFeatures").split(",")
    if not tiles_allowed():
        features = [f"-{f[1:]}" if f.startswith("+amx") else f for f in features]
    ordered = ",".join(sorted(features, key=lambda feature: feature[1:]))
    return reported_text("GetDefaultTargetTriple"), reported_text("GetHostCPUName"), ordered


def this_machine() -> Processor:
    """Return the processor of this process; respects `settings.vector_bits`."""
    triple, cpu, features = _describe_host()
    vector_bytes, registers = vector_unit(features, triple, settings.vector_bits)
    return Processor(
        name=NATIVE,
        triple=triple,
        cpu=cpu,
        features=features,
        vector_bytes=vector_bytes,
        registers=registers,
        l1_bytes=_cache_bytes("1") or Processor.l1_bytes,
        l2_bytes=_cache_bytes("2") or Processor.l2_bytes,
        limits=limits_in_use(),
    )


def machine() -> Machine:
    """Return the description of this machine for templates."""
    return this_machine().machine


def vector_unit(features: str, triple: str, wanted_bits: int = 0) -> tuple[int, int]:
    """Return (bytes of a vector register, their number), limited to `wanted_bits` if not 0."""
    have = set(features.split(","))
    if {"+avx512f", "+avx512bw", "+avx512vl", "+avx512dq"} <= have:
        widest, registers = 64, 32
    elif {"+avx2", "+fma"} <= have:
        widest, registers = 32, 16
    else:
        widest, registers = 16, 32 if triple.startswith(("aarch64", "arm64")) else 16
    if wanted_bits:
        widest = max(16, min(widest, wanted_bits // 8))
    return widest, registers


@lru_cache(maxsize=4)
def _cache_bytes(level: str) -> int:
    """Return the bytes of a data cache level, 0 if unknown."""
    try:
        for index in sorted(_CACHES.glob("index*")):
            kind = (index / "type").read_text("utf-8").strip()
            if (index / "level").read_text("utf-8").strip() == level and kind != "Instruction":
                size = (index / "size").read_text("utf-8").strip()
                return int(size.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(size[-1], 1)
    except (OSError, ValueError):
        return 0
    return 0
