"""Masked loads and stores in WebAssembly, which has none: LLVM branches for each lane of them.

A masked load reads the whole vector and clears lanes. Memory around an element can be read:
`model.js` keeps `_MOST` bytes behind the last block. Without any lane, the address may be far away,
and the stack is read, at the beginning of memory. A masked store of all lanes is a plain store;
others write lane by lane, since the bytes behind may be another thread's.
"""

from __future__ import annotations

from anydim.base.dtypes import DTYPES, DType, boolean
from anydim.compiler.targets.llvm.emitter import Emitter
from anydim.compiler.targets.llvm.lanes import Lanes
from anydim.compiler.targets.llvm.spelling import memory_text

_VECTOR_BITS = 128
_MOST = 64  # bytes of a vector


def has_masks(dtype: DType, lanes: int) -> bool:
    """Whether vectors of a type are loaded here; LLVM has the others."""
    return lanes in (2, 4, 8, 16) and lanes * dtype.bytes <= _MOST


def lane_mask(emitter: Emitter, mask: str, lanes: int) -> str:
    """Return 32 bits of 1 if a mask has any lane, else of 0."""
    some = lane_test(emitter, "anytrue", mask, lanes)
    return emitter.pure(f"sext i1 {some} to i32", (some,))


def masked_pointer(emitter: Emitter, pointer: str, mask: str) -> str:
    """Return a pointer, or null by a `lane_mask`."""
    number = emitter.pure(f"ptrtoint ptr {pointer} to i32", (pointer,))
    kept = emitter.pure(f"and i32 {number}, {mask}", (number, mask))
    return emitter.pure(f"inttoptr i32 {kept} to ptr", (kept,))


def load_lanes(emitter: Emitter, dtype: DType, lanes: int, pointer: str, mask: str) -> str:
    """Return the value in memory, 0 in lanes that the mask excludes; see `lane_mask`."""
    bits = Lanes(emitter, DTYPES[f"int{8 * dtype.bytes}"], lanes)
    kept = Lanes(emitter, boolean, lanes).cast("sext", mask, bits.dtype)
    loaded = emitter.once(f"load {bits.text}, ptr {pointer}, align {dtype.bytes}")
    found = bits.binary("and", loaded, kept)
    memory = memory_text(dtype, lanes)
    if memory == bits.text:
        return found
    return emitter.pure(f"bitcast {bits.text} {found} to {memory}", (found,))


def lane_test(emitter: Emitter, test: str, mask: str, lanes: int) -> str:
    """Return the flag whether any lane of a mask is set (`anytrue`), or each (`alltrue`)."""
    flags = Lanes(emitter, DTYPES[f"int{_VECTOR_BITS // lanes}"], lanes)
    wide = Lanes(emitter, boolean, lanes).cast("sext", mask, flags.dtype)
    name = f"llvm.wasm.{test}.v{lanes}i{_VECTOR_BITS // lanes}"
    found = emitter.intrinsic("i32", name, (flags.text, wide))
    return emitter.pure(f"icmp ne i32 {found}, 0", (found,))
