"""Sums of four products of bytes, by the best available instruction; all variants are exact.
Sums of two products of bfloat16, where there is an instruction (`functions/dots.py` elsewhere), and
conversions to it.

AVX512-VNNI and AVX-VNNI have one instruction. Other x86 and WebAssembly multiply pairs of 16-bit
numbers and add them (vpmaddwd, i32x4.dot): even and odd bytes are widened separately. ARM's dot
products are of bytes that are both signed. The fallback processes single bytes.
"""

from __future__ import annotations

from anydim.base.dtypes import bfloat16, int16, uint8
from anydim.compiler.targets.llvm.lanes import Lanes
from anydim.compiler.targets.llvm.spelling import type_text

_PAIRS = {
    16: ("avx512bw", "llvm.x86.avx512.pmaddw.d.512"), 8: ("avx2", "llvm.x86.avx2.pmadd.wd"),
    4: ("sse2", "llvm.x86.sse2.pmadd.wd"),
}  # fmt: skip
_WASM_PAIRS = {4: ("simd128", "llvm.wasm.dot")}


def dot_bytes(v: Lanes, left: str, right: str, total: str) -> str:
    """Return total + products of left's unsigned and right's signed bytes, per int32 lane."""
    processor = v.emitter.module.processor
    have, pairs = processor.has, _WASM_PAIRS if processor.is_wasm else _PAIRS
    if v.lanes in _PAIRS and _has_dots(have, v.lanes):
        return _in_one(v, left, right, total)
    if v.lanes in pairs and pairs[v.lanes][0] in have:
        return _by_pairs(v, pairs[v.lanes][1], left, right, total)
    if v.lanes == 4 and "dotprod" in have:
        return _signed_dots(v, left, right, total)
    return _one_by_one(v, left, right, total)


def _has_dots(have: frozenset[str], lanes: int) -> bool:
    wide = {"avx512vnni", "avx512vl"} <= have
    return wide or ("avxvnni" in have and lanes < 16)


def _in_one(v: Lanes, left: str, right: str, total: str) -> str:
    name = f"llvm.x86.avx512.vpdpbusd.{32 * v.lanes}"
    kind = type_text(uint8, 4 * v.lanes)
    parts = [_as(v, operand, kind) for operand in (left, right)]
    return v.emitter.intrinsic(v.text, name, (v.text, total), *((kind, part) for part in parts))


def _as(v: Lanes, value: str, kind: str, have: str = "") -> str:
    return v.emitter.pure(f"bitcast {have or v.text} {value} to {kind}", (value,))


def _by_pairs(v: Lanes, name: str, left: str, right: str, total: str) -> str:
    """Widen even and odd bytes to 16-bit numbers; the sum of two products fits 32 bits."""
    halves = Lanes(v.emitter, int16, 2 * v.lanes)
    eight = halves.constant(8)
    a, b = (_as(v, operand, halves.text) for operand in (left, right))
    low = halves.binary("and", a, halves.constant(255)), halves.binary("shl", b, eight)
    even = low[0], halves.binary("ashr", low[1], eight)
    odd = halves.binary("lshr", a, eight), halves.binary("ashr", b, eight)
    for first, second in (even, odd):
        pairs = ((halves.text, first), (halves.text, second))
        total = v.binary("add", total, v.emitter.intrinsic(v.text, name, *pairs))
    return total


def _signed_dots(v: Lanes, left: str, right: str, total: str) -> str:
    """Use products of signed bytes: a * b is (a - 128) * b + 128 * b."""
    name, kind = "llvm.aarch64.neon.sdot.v4i32.v16i8", type_text(uint8, 16)
    flipped = v.binary("xor", left, v.constant(-0x7F7F7F80))  # 0x80 in every byte
    a, b, ones = (_as(v, operand, kind) for operand in (flipped, right, v.constant(0x01010101)))
    sums = v.emitter.intrinsic(v.text, name, (v.text, v.constant(0)), (kind, ones), (kind, b))
    total = v.binary("add", total, v.binary("shl", sums, v.constant(7)))
    return v.emitter.intrinsic(v.text, name, (v.text, total), (kind, a), (kind, b))


def _one_by_one(v: Lanes, left: str, right: str, total: str) -> str:
    """Extract each byte by shifting left, then right."""
    top = v.constant(24)
    for byte in range(4):
        up = v.constant(24 - 8 * byte)
        a = v.binary("lshr", v.binary("shl", left, up), top)
        b = v.binary("ashr", v.binary("shl", right, up), top)
        total = v.binary("add", total, v.binary("mul", a, b))
    return total


# ---- bfloat16 ----------------------------------------------------------------------------------

_FEWEST = 4  # lanes of the narrowest instruction
_LEAST, _MOST = 8, 16  # lanes of conversions


def has_pair_dots(have: frozenset[str]) -> bool:
    """Whether vdpbf16ps exists in all widths."""
    return {"avx512bf16", "avx512vl"} <= have


def dot_bfloat16(v: Lanes, left: str, right: str, total: str) -> str:
    """Return total + the products of two bfloat16 in the bits of left and right, per lane."""
    if v.lanes < _FEWEST:
        wide = Lanes(v.emitter, v.dtype, _FEWEST)
        made = dot_bfloat16(wide, *(widen(v, wide, each) for each in (left, right, total)))
        return first_lanes(v, wide, made)
    kind = f"<{2 * v.lanes} x bfloat>"
    parts = [(kind, _as(v, operand, kind)) for operand in (left, right)]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * v.lanes}"
    return v.emitter.intrinsic(v.text, name, (v.text, total), *parts)


def round_to_bfloat16(v: Lanes, value: str) -> str:
    """Return float32 as bfloat16, subnormal numbers as zeros.

    By intrinsics: LLVM 22 fails to legalise some fptrunc to bfloat.
    """
    emitter, stored = v.emitter, Lanes(v.emitter, bfloat16, v.lanes)
    if v.lanes > _MOST:
        half = Lanes(emitter, v.dtype, v.lanes // 2)
        parts = []
        for start in (0, half.lanes):
            order = _lane_list(range(start, start + half.lanes))
            text = f"shufflevector {v.text} {value}, {v.text} poison, {order}"
            parts.append(round_to_bfloat16(half, emitter.pure(text, (value,))))
        both = ", ".join(f"{half.like(bfloat16).text} {part}" for part in parts)
        return emitter.pure(f"shufflevector {both}, {_lane_list(range(v.lanes))}", parts)
    if v.lanes < _LEAST:
        wide = Lanes(emitter, v.dtype, _LEAST)
        made = round_to_bfloat16(wide, widen(v, wide, value))
        return first_lanes(stored, wide.like(bfloat16), made)
    kind, name = f"<{v.lanes} x bfloat>", f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * v.lanes}"
    rounded = emitter.intrinsic(kind, name, (v.text, value))
    return emitter.pure(f"bitcast {kind} {rounded} to {stored.text}", (rounded,))


def _lane_list(lanes: range) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def widen(v: Lanes, wide: Lanes, value: str) -> str:
    """Return fewer lanes as the first ones of a vector."""
    if v.lanes == 1:
        text = f"insertelement {wide.text} zeroinitializer, {v.text} {value}, i64 0"
        return v.emitter.pure(text, (value,))
    order = ", ".join(f"i32 {min(lane, v.lanes)}" for lane in range(wide.lanes))
    mask = f"<{wide.lanes} x i32> <{order}>"
    text = f"shufflevector {v.text} {value}, {v.text} zeroinitializer, {mask}"
    return v.emitter.pure(text, (value,))


def first_lanes(v: Lanes, wide: Lanes, value: str) -> str:
    if v.lanes == 1:
        return v.emitter.pure(f"extractelement {wide.text} {value}, i64 0", (value,))
    order = ", ".join(f"i32 {lane}" for lane in range(v.lanes))
    mask = f"<{v.lanes} x i32> <{order}>"
    text = f"shufflevector {wide.text} {value}, {wide.text} poison, {mask}"
    return v.emitter.pure(text, (value,))
