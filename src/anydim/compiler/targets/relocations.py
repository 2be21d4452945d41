"""Relocations of position-independent code: all are relative to the instruction.

A rule takes the image, the offset to patch, and the referenced offset (addend included), and writes
there. Relocations that need an absolute address at run time have no rule. An address loaded from a
global offset table is computed instead, since everything is in the image.

Sources: System V ABI for x86-64, section 4.4; ELF for the Arm 64-bit Architecture, section 5.7;
RISC-V ABIs Specification, section 8.4.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial

from anydim.base.errors import InternalError

Rule = Callable[[bytearray, int, int], None]


def _pack_signed(value: int, bits: int, what: str) -> int:
    """Return the low bits of a number that fits them as a signed integer."""
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise InternalError(f"{what} of {value} bytes in an image")
    return value & ((1 << bits) - 1)


def _relative32(code: bytearray, at: int, target: int) -> None:
    struct.pack_into("<I", code, at, _pack_signed(target - at, 32, "a distance"))


def _relative64(code: bytearray, at: int, target: int) -> None:
    struct.pack_into("<Q", code, at, _pack_signed(target - at, 64, "a distance"))


# ---- x86-64 --------------------------------------------------------------------------------------


def _load_of_address(code: bytearray, at: int, target: int) -> None:
    """Relax `mov target@GOTPCREL(%rip), register` to `lea target(%rip), register`."""
    if code[at - 2] != 0x8B:
        raise InternalError(f"instruction {code[at - 3 : at].hex()} takes an address from a table")
    code[at - 2] = 0x8D
    _relative32(code, at, target)


# ---- aarch64 -------------------------------------------------------------------------------------


def _branch(code: bytearray, at: int, target: int) -> None:
    """B and BL: 26 bits, in instructions."""
    (word,) = struct.unpack_from("<I", code, at)
    distance = _pack_signed(target - at, 28, "a jump") >> 2
    struct.pack_into("<I", code, at, word & 0xFC000000 | distance)


def _page(code: bytearray, at: int, target: int) -> None:
    """ADRP: 21 bits, in pages of 4 KiB; images are aligned to pages."""
    (word,) = struct.unpack_from("<I", code, at)
    pages = _pack_signed((target >> 12) - (at >> 12), 21, "a distance in pages")
    word = word & 0x9F00001F | (pages & 3) << 29 | pages >> 2 << 5
    struct.pack_into("<I", code, at, word)


def _in_page(code: bytearray, at: int, target: int, shift: int = 0) -> None:
    """ADD, or a load or store of 1 << shift bytes: the offset inside the page."""
    (word,) = struct.unpack_from("<I", code, at)
    inside = target & 0xFFF
    if inside & ((1 << shift) - 1):
        raise InternalError("a misaligned target in an image")
    struct.pack_into("<I", code, at, word & 0xFFC003FF | inside >> shift << 10)


def _address_in_page(code: bytearray, at: int, target: int) -> None:
    """Relax `ldr xd, [xn, :got_lo12:target]` to `add xd, xn, :lo12:target`."""
    (word,) = struct.unpack_from("<I", code, at)
    if word & 0xFFC00000 != 0xF9400000:
        raise InternalError(f"instruction {word:08x} takes an address from a table")
    struct.pack_into("<I", code, at, 0x91000000 | word & 0x3FF)
    _in_page(code, at, target)


# ---- riscv64 -------------------------------------------------------------------------------------

TABLE, IN_TABLE = 20, -20  # R_RISCV_GOT_HI20, and the lower half of one, which has no number
UPPER_HALVES, LOWER_HALVES = (TABLE, 23), (24, 25)  # R_RISCV_PCREL_HI20; _LO12_I and _LO12_S


def _upper(code: bytearray, at: int, target: int) -> None:
    """AUIPC: the upper 20 bits, rounded as the lower 12 are signed."""
    (word,) = struct.unpack_from("<I", code, at)
    distance = _pack_signed(target - at, 32, "a distance") + 0x800
    struct.pack_into("<I", code, at, word & 0xFFF | distance & 0xFFFFF000)


def _lower(code: bytearray, at: int, target: int) -> None:
    """The lower 12 bits in a load, an addition or a jump; `target - at` is that of the upper."""
    (word,) = struct.unpack_from("<I", code, at)
    struct.pack_into("<I", code, at, word & 0xFFFFF | (target - at & 0xFFF) << 20)


def _lower_of_store(code: bytearray, at: int, target: int) -> None:
    """The lower 12 bits in a store."""
    (word,), low = struct.unpack_from("<I", code, at), target - at & 0xFFF
    struct.pack_into("<I", code, at, word & 0x1FFF07F | low >> 5 << 25 | (low & 31) << 7)


def _lower_of_address(code: bytearray, at: int, target: int) -> None:
    """Relax `ld rd, %pcrel_lo(label)(rs)` to `addi rd, rs, %pcrel_lo(label)`."""
    (word,) = struct.unpack_from("<I", code, at)
    if word & 0x707F != 0x3003:
        raise InternalError(f"instruction {word:08x} takes an address from a table")
    struct.pack_into("<I", code, at, word & ~0x707F | 0x13)
    _lower(code, at, target)


def _call(code: bytearray, at: int, target: int) -> None:
    """AUIPC and JALR."""
    _upper(code, at, target)
    _lower(code, at + 4, target + 4)


def _term(code: bytearray, at: int, target: int, sign: int) -> None:
    """Add to a sum of two offsets, of which one is subtracted."""
    (word,) = struct.unpack_from("<I", code, at)
    struct.pack_into("<I", code, at, word + sign * target & 0xFFFFFFFF)


RULES: Mapping[str, Mapping[int, Rule]] = {
    "x86_64": {
        2: _relative32,  # R_X86_64_PC32
        4: _relative32,  # R_X86_64_PLT32
        24: _relative64,  # R_X86_64_PC64
        42: _load_of_address,  # R_X86_64_REX_GOTPCRELX
    },
    "aarch64": {
        260: _relative64,  # R_AARCH64_PREL64
        261: _relative32,  # R_AARCH64_PREL32
        275: _page,  # R_AARCH64_ADR_PREL_PG_HI21
        277: _in_page,  # R_AARCH64_ADD_ABS_LO12_NC
        278: _in_page,  # R_AARCH64_LDST8_ABS_LO12_NC
        282: _branch,  # R_AARCH64_JUMP26
        283: _branch,  # R_AARCH64_CALL26
        284: partial(_in_page, shift=1),  # R_AARCH64_LDST16_ABS_LO12_NC
        285: partial(_in_page, shift=2),  # R_AARCH64_LDST32_ABS_LO12_NC
        286: partial(_in_page, shift=3),  # R_AARCH64_LDST64_ABS_LO12_NC
        299: partial(_in_page, shift=4),  # R_AARCH64_LDST128_ABS_LO12_NC
        311: _page,  # R_AARCH64_ADR_GOT_PAGE
        312: _address_in_page,  # R_AARCH64_LD64_GOT_LO12_NC
    },
    "riscv64": {
        19: _call,  # R_RISCV_CALL_PLT
        TABLE: _upper,
        IN_TABLE: _lower_of_address,
        23: _upper,  # R_RISCV_PCREL_HI20
        24: _lower,  # R_RISCV_PCREL_LO12_I
        25: _lower_of_store,  # R_RISCV_PCREL_LO12_S
        35: partial(_term, sign=1),  # R_RISCV_ADD32
        39: partial(_term, sign=-1),  # R_RISCV_SUB32
    },
}
