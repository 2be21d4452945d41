"""Processors as compile targets: this one, or one described by name.

    x86-64-v2  x86-64-v3  x86-64-v4       the levels of the x86-64 ABI
    aarch64                               ARMv8-A with NEON
    riscv64                               RV64GC, without vectors
    x86-64-v3+vnni  aarch64+dotprod       and one additional feature
    windows-x86-64-v3  macos-aarch64      the same on other systems (`runtime/systems.py`)
    wasm32                                browsers and node: WebAssembly with vectors of 128 bits
    wasm32+relaxed                        and fused multiply-add where the processor has it
    wasm32+threads                        and atomic operations
    native                                the processor of this process

LLVM aborts the process if a feature does not belong to a processor, so only the pairs of this table
are ever passed to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.compiler.kernels.launch import TF32, Machine
from anydim.compiler.kernels.limits import DEFAULTS, Limits
from anydim.runtime.systems import LINUX, SYSTEMS, System, system_of

NATIVE = "native"
_TILES = ("amx-int8", "amx-tile")
_PAIRS = ("avx512bf16", "avx512vl")
_PAIR_TILES = ("amx-bf16", "amx-tile")
_PERMUTES = ("avx512bw", "avx512vl")
# The shapes of all tiles as int64s: palette 1; 64 bytes per row (16 bits each), 16 rows (8 bits)
TILE_SHAPES = (1, 0, 0x0040004000400040, 0x0040004000400040, 0, 0, 0x1010101010101010, 0)
WARPS, LIBRARY = "warps", "library"  # features: those of `Machine`
WASM = "wasm32"  # an architecture, and the name of its processor


@dataclass(frozen=True)
class Processor:
    """A compile target; all fields except cache sizes are in the key of a cached object.

    `name` is the name in the user interface, `triple`, `cpu` and `features` ('+avx2,-sse4a') are
    LLVM's. Vectors have up to `vector_bytes` bytes and `max_lanes` lanes (0: unlimited), in
    `registers` registers. Cache bytes are the share of one core. A `plain` one is for targets
    without syntax for rare instructions. `limits` are between versions of kernels.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    l1_bytes: int = Machine.l1_bytes
    l2_bytes: int = Machine.l2_bytes
    max_lanes: int = 0
    plain: bool = False
    limits: Limits = DEFAULTS

    @cached_property
    def has(self) -> frozenset[str]:
        """Its enabled features, without sign."""
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))

    @property
    def architecture(self) -> str:
        """'x86_64', 'aarch64', or another name of LLVM's."""
        name = self.triple.split("-")[0]
        return _SAME.get(name, name)

    @cached_property
    def system(self) -> System:
        """The system whose conventions its code has."""
        return system_of(self.triple)

    @property
    def platform(self) -> str:
        """The name of its architecture and system in saved files."""
        return self.system.platform(self.architecture)

    @property
    def of_images(self) -> Processor:
        """The same with ELF objects, which images are linked of, whatever its system has."""
        if self.system.objects == "ELF" or self.triple.endswith("-elf"):
            return self
        return replace(self, triple=f"{self.triple}-elf")

    @property
    def is_wasm(self) -> bool:
        """Whether its code runs in browsers: addresses have 32 bits, functions have types."""
        return self.architecture == WASM

    @property
    def machine(self) -> Machine:
        """Its description for templates."""
        fused = "fma" in self.has or self.architecture in ("aarch64", "riscv64")
        return Machine(
            self.vector_bytes, self.registers, self.l1_bytes, self.l2_bytes, fused,
            self.max_lanes, WARPS in self.has, TF32 in self.has,
            self._has_wide(_TILES),
            permutes=not self.plain and self.has.issuperset(_PERMUTES),
            llc_bytes=_KEPT if self.architecture == "x86_64" and not self.plain else 0,
            limits=self.limits,
            pairs=self._has_wide(_PAIRS), pair_tiles=self._has_wide(_PAIR_TILES),
            touches=self.is_wasm, library=LIBRARY in self.has,
        )  # fmt: skip

    def _has_wide(self, features: tuple[str, ...]) -> bool:
        """Whether it has features that kernels use with vectors of 64 bytes only."""
        return self.vector_bytes == 64 and self.has.issuperset(features)

    @cached_property
    def level(self) -> Processor | None:
        """The highest level in the table whose code this processor runs, or None.

        Vectors, registers and object format must be the same.
        """
        if self.system is not LINUX or self.is_wasm:
            return None
        levels = (row.processor for row in reversed(_LINUX_ROWS))
        same = (p for p in levels if p.architecture == self.architecture and p.has <= self.has)
        found = next(same, None)
        own = (self.vector_bytes, self.registers)
        return found if found and (found.vector_bytes, found.registers) == own else None

    @cached_property
    def level_with_dots(self) -> Processor | None:
        """The level with instructions for dot products of bytes, if this processor has them."""
        level = self.level
        row = None if level is None else _BY_NAME[level.name]
        names = [name for name in _DOTS if row and self.has.issuperset(row.more.get(name, "?"))]
        return describe_processor(f"{level.name}+{names[0]}") if level and names else level

    @property
    def as_plain(self) -> Processor:
        """The same for targets without syntax for tiles and the like."""
        return self._without(*_TILES, *_PAIR_TILES, _PAIRS[0])

    @property
    def as_plain_with_tiles(self) -> Processor:
        """The same for targets that write tiles alone."""
        return self._without(_PAIRS[0])

    def _without(self, *dropped: str) -> Processor:
        kept = (f for f in self.features.split(",") if f[1:] not in dropped)
        return replace(self, features=",".join(kept), plain=True)

    @cached_property
    def flags(self) -> frozenset[str]:
        """Its features as Linux names them in /proc/cpuinfo."""
        return frozenset(_FLAGS.get(f, f.replace(".", "_").replace("-", "_")) for f in self.has)


_DOTS = ("vnni", "dotprod")  # optional features of rows
_KEPT = 40 << 20  # assumed size of the last-level cache
_SAME = {"AMD64": "x86_64", "amd64": "x86_64", "arm64": "aarch64"}
_FLAGS = {
    "64bit": "lm", "bmi": "bmi1", "crc32": "sse4_2", "lzcnt": "abm", "prfchw": "3dnowprefetch",
    "pclmul": "pclmulqdq", "rdrnd": "rdrand", "sahf": "lahf_lm", "sha": "sha_ni", "sse3": "pni",
    "avx512bf16": "avx512_bf16", "avx512vnni": "avx512_vnni", "avxvnni": "avx_vnni", "x87": "fpu",
    "neon": "asimd", "dotprod": "asimddp", "fp-armv8": "fp",
}  # fmt: skip


@dataclass(frozen=True)
class _Described:
    """A row of the table; `more` are optional features, by the names in the user interface."""

    processor: Processor
    more: Mapping[str, tuple[str, ...]]


def _text(features: tuple[str, ...]) -> str:
    return ",".join(f"+{feature}" for feature in sorted(features))


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_RISC_V = "riscv64-unknown-linux-gnu"
_WEB = ("bulk-memory", "mutable-globals", "nontrapping-fptoint", "sign-ext", "simd128")
_V2 = ("cx16", "popcnt", "sahf", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_LINUX_ROWS = (
    _Described(Processor("x86-64-v2", _X86, "x86-64-v2", _text(_V2), 16, 16), {}),
    _Described(
        Processor("x86-64-v3", _X86, "x86-64-v3", _text(_V3), 32, 16), {"vnni": ("avxvnni",)}
    ),
    _Described(
        Processor("x86-64-v4", _X86, "x86-64-v4", _text(_V4), 64, 32, 32 * 1024, 1024 * 1024),
        {
            "vnni": ("avx512vnni",),
            "amx": ("avx512vnni", *_TILES),
            "bfloat16": _PAIRS,
            "amx-bfloat16": (*_PAIRS, *_PAIR_TILES),
        },
    ),
    _Described(
        Processor("aarch64", _ARM, "generic", _text(("fp-armv8", "neon")), 16, 32),
        {"dotprod": ("dotprod",)},
    ),
    # RV64GC: no vectors, so that a vector takes a register for each of its lanes.
    _Described(
        Processor("riscv64", _RISC_V, "generic-rv64", _text(("a", "c", "d", "f", "m")), 16, 8), {}
    ),
    # The same kernels with and without fused steps, so that weights have one layout. Engines do not
    # schedule instructions again, so tiles that use all registers spill. Without prefetches, blocks
    # of B are touched (`contraction_loops.py`), so any number of row tiles has several panels.
    _Described(
        Processor(
            WASM,
            "wasm32-unknown-unknown",
            "generic",
            _text(_WEB),
            16,
            12,
            limits=replace(DEFAULTS, few_row_tiles=1),
        ),
        {"relaxed": ("relaxed-simd",), "threads": ("atomics",)},
    ),
)


def _rows() -> Iterator[_Described]:
    """The table on every system. Tiles are on Linux alone, where a process requests them."""
    yield from _LINUX_ROWS
    for system in SYSTEMS:
        for row in _LINUX_ROWS if system is not LINUX else ():
            here = row.processor
            if here.architecture in system.architectures:
                triple = f"{here.architecture}-{system.triple}"
                more = {name: new for name, new in row.more.items() if "amx-tile" not in new}
                made = replace(here, name=system.prefix + here.name, triple=triple)
                yield _Described(made, more)


_ROWS = tuple(_rows())
_BY_NAME = {row.processor.name: row for row in _ROWS}


def describe_processor(text: str) -> Processor:
    """Return the processor described by a text; raises OptionError if it is unknown."""
    name, *added = text.removeprefix("linux-").split("+")
    row = _BY_NAME.get(name)
    if row is None:
        known = [NATIVE, *_BY_NAME]
        hint = suggestion(name, known) or f"the processors are {quote_list(known)}"
        raise OptionError(f"there is no processor '{text}'", hint)
    features = [row.processor.features]
    for more in sorted(set(added)):
        if more not in row.more:
            known = [f"{name}+{other}" for other in row.more]
            hint = f"there is {quote_list(known)}" if known else "nothing can be added to it"
            raise OptionError(f"there is no '{more}' of processor '{name}' in '{text}'", hint)
        features.append(_text(row.more[more]))
    full = "+".join([name, *sorted(set(added))])
    return replace(row.processor, name=full, features=",".join(features))


def every_name() -> tuple[str, ...]:
    """Return the names of all described processors with images (`image.py`)."""
    return tuple(
        text for row in _ROWS if not row.processor.is_wasm
        for text in (row.processor.name, *(f"{row.processor.name}+{more}" for more in row.more))
    )  # fmt: skip
