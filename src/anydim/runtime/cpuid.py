"""Features of an x86-64 processor by its own instructions, for systems that list none.

A feature of vectors counts if the system saves their registers, as XCR0 says. Source: Intel 64 and
IA-32 Architectures Software Developer's Manual, CPUID and XGETBV.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping

_EAX, _EBX, _ECX, _EDX = range(4)
_XSAVE = 1 << 27  # of leaf 1, ecx: the system uses XSAVE
_AVX, _AVX512 = 0x6, 0xE6  # registers of XCR0
# (leaf, subleaf, register), registers that the system saves: the bits of features that levels need
_BITS: Mapping[tuple[int, int, int, int], Mapping[int, str]] = {
    (1, 0, _EDX, 0): {26: "sse2"},
    (1, 0, _ECX, 0): {
        0: "pni", 9: "ssse3", 13: "cx16", 19: "sse4_1", 20: "sse4_2", 22: "movbe", 23: "popcnt",
        26: "xsave",
    },
    (1, 0, _ECX, _AVX): {12: "fma", 28: "avx", 29: "f16c"},
    (7, 0, _EBX, 0): {3: "bmi1", 8: "bmi2"},
    (7, 0, _EBX, _AVX): {5: "avx2"},
    (7, 0, _EBX, _AVX512): {
        16: "avx512f", 17: "avx512dq", 28: "avx512cd", 30: "avx512bw", 31: "avx512vl",
    },
    (7, 0, _ECX, _AVX512): {11: "avx512_vnni"},
    (7, 1, _EAX, _AVX): {4: "avx_vnni"},
    (7, 1, _EAX, _AVX512): {5: "avx512_bf16"},
    (0x80000001, 0, _ECX, 0): {0: "lahf_lm", 5: "abm"},
}  # fmt: skip


def _stubs(first: str) -> bytes:
    """Return `void cpuid(uint32 leaf, uint32 subleaf, uint32 registers[4])`, which begins with
    code for a calling convention, and at 64 `uint32 xgetbv()` for XCR0."""
    # cpuid; mov [r8], eax; mov [r8+4], ebx; mov [r8+8], ecx; mov [r8+12], edx; pop rbx; ret
    rest = "0fa2 418900 41895804 41894808 4189500c 5b c3"
    return bytes.fromhex(first + rest).ljust(64, b"\xcc") + bytes.fromhex("31c9 0f01d0 c3")


UNIX_STUBS = _stubs("53 89f8 89f1 4989d0")  # push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx
WINDOWS_STUBS = _stubs("53 89c8 89d1")  # push rbx; mov eax, ecx; mov ecx, edx


def x86_flags(
    map_code: Callable[[bytes], tuple[memoryview, int, object]], stubs: bytes
) -> frozenset[str]:
    """Return the features of this processor, in the names of /proc/cpuinfo."""
    _, address, owner = map_code(stubs)
    word = ctypes.c_uint32
    ask = ctypes.CFUNCTYPE(None, word, word, ctypes.c_void_p)(address)

    def registers(leaf: int, subleaf: int) -> list[int]:
        found = (word * 4)()
        ask(leaf, subleaf, ctypes.addressof(found))
        return list(found)

    saved = 0
    if registers(1, 0)[_ECX] & _XSAVE:
        saved = ctypes.CFUNCTYPE(word)(address + 64)()
    found = frozenset(_names(registers, saved))
    del owner  # not before the last call
    return found


def _names(registers: Callable[[int, int], list[int]], saved: int) -> Iterator[str]:
    for (leaf, subleaf, register, needed), bits in _BITS.items():
        highest = registers(leaf & 0x80000000, 0)[_EAX]
        if leaf > highest or (leaf == 7 and subleaf > registers(7, 0)[_EAX]):
            continue
        value = registers(leaf, subleaf)[register] if saved & needed == needed else 0
        yield from (name for bit, name in bits.items() if value >> bit & 1)
