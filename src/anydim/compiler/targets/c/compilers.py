"""Finds the C compiler of this machine and its flags."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache

from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.compiler.targets.processor import Processor

ZIG = "zig"  # the `ziglang` wheel, or a zig on the path
_USUAL = ("cc", "gcc", "clang", ZIG)
# Semantics of generated code: multiply and add round separately (except for fma), nothing is
# reordered. Square roots set no errno. No runtime library of the compiler is needed.
MEANING = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_REST = ("-std=c11", "-fno-stack-protector", "-fPIC", "-w", "-O2")
TILE_FEATURES = ("amx-tile", "amx-int8", "amx-bf16")
_TILES = 'int main(void) { __asm__("tdpbf16ps %tmm0, %tmm1, %tmm2"); return 0; }'
# LLVM's feature names with a flag -mNAME in GCC and clang
_FLAGS = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2",
    "lzcnt", "movbe", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512vnni",
    "avxvnni", *TILE_FEATURES,
)  # fmt: skip


@dataclass(frozen=True)
class Compiler:
    """A C compiler: its command line, and an identity for cache keys."""

    command: tuple[str, ...]
    identity: str

    def flags(self, processor: Processor) -> tuple[str, ...]:
        """Return the compile flags for a processor."""
        return (*MEANING, *_REST, *machine_flags(processor))


def compiler() -> Compiler:
    """Return the compiler of `settings.c_compiler`, or the first one found.

    Raises OptionError if it is missing.
    """
    return _find_compiler(settings.c_compiler)


def machine_flags(processor: Processor) -> tuple[str, ...]:
    """Return the compile flags that describe the processor."""
    if processor.architecture == "x86_64":
        return tuple(f"-m{feature}" for feature in _FLAGS if feature in processor.has)
    return ("-march=armv8-a+dotprod",) if "dotprod" in processor.has else ()


def writes_tiles() -> bool:
    """Whether the C compiler assembles instructions of tiles; True without one, as files are then
    compiled elsewhere."""
    try:
        return _assembles_tiles(compiler())
    except OptionError:
        return True


@lru_cache(maxsize=8)
def _assembles_tiles(made: Compiler) -> bool:
    flags = (f"-m{feature}" for feature in TILE_FEATURES)
    with tempfile.TemporaryDirectory() as folder:
        command = [*made.command, *flags, "-w", "-x", "c", "-c", "-o", f"{folder}/tiles.o", "-"]
        ran = subprocess.run(command, input=_TILES, capture_output=True, text=True, check=False)
    return ran.returncode == 0


@lru_cache(maxsize=8)
def _find_compiler(wanted: str) -> Compiler:
    for name in (wanted,) if wanted else _USUAL:
        command = _command(name)
        if command is not None:
            return Compiler(command, f"{shlex.join(command)} {_version(command)}")
    raise OptionError(
        f"there is no C compiler '{wanted}'" if wanted else "there is no C compiler on the path",
        "install gcc or clang, or the package 'ziglang'; setting 'c_compiler' (environment "
        "variable ANYDIM_C_COMPILER) names another one",
    )


def _command(name: str) -> tuple[str, ...] | None:
    """Return the command line of a compiler, or None if it is missing."""
    words = shlex.split(name)
    if name == ZIG and importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    path = shutil.which(words[0]) if words else None
    if path is None:
        return None
    return (path, "cc") if name == ZIG else (path, *words[1:])


def _version(command: tuple[str, ...]) -> str:
    """Return the compiler's version text; with the size of its file if that is empty."""
    made = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return made.stdout.strip() or str(os.stat(command[0]).st_size)
