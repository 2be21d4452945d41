"""Reads relocatable 64-bit little-endian ELF objects, the output of every target's compiler.

Objects come from a compiler that we called, so malformed input is an internal error.
"""

from __future__ import annotations

import struct

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.targets.relocations import IN_TABLE, LOWER_HALVES, TABLE, UPPER_HALVES

ARCHITECTURES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_NOBITS, _SYMBOLS, _WITH_ADDENDS, _PLAIN_RELOCATIONS = 8, 2, 4, 9
_WRITE, _ALLOCATED, _THREAD_LOCAL = 1, 2, 0x400
_RELOCATABLE, _GLOBAL, _WEAK, _COMMON, _ABSOLUTE = 1, 1, 2, 0xFFF2, 0xFFF1
_UNUSED = (".eh_frame", ".note", ".comment", ".llvm", ".ARM", ".debug", ".stack_sizes")


@dataclass(frozen=True)
class Symbol:
    """`section` is the number of its section, None if another object defines it."""

    name: str
    section: int | None
    value: int
    public: bool


@dataclass(frozen=True)
class Relocation:
    """Write the address of `symbol` plus `addend` at `offset` of the section; `kind` is its
    encoding."""

    offset: int
    kind: int
    symbol: Symbol
    addend: int


@dataclass(frozen=True)
class Section:
    """A section that is mapped at run time: code, or read-only data."""

    name: str
    data: bytes
    alignment: int
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True)
class Object:
    """The sections of an object by number, and all symbols that it defines or imports."""

    architecture: str
    sections: dict[int, Section]
    symbols: tuple[Symbol, ...]


def read_object(data: bytes) -> Object:
    """Parse an object; raises InternalError for content that an image does not support."""
    ident, kind, machine = _HEADER.unpack_from(data)[:3]
    if ident[:6] != b"\x7fELF\x02\x01" or kind != _RELOCATABLE or machine not in ARCHITECTURES:
        raise InternalError("compiled code is not a relocatable 64-bit ELF object")
    return _Reader(data).object(ARCHITECTURES[machine])


def _join_halves(section: int, relocations: list[Relocation]) -> list[Relocation]:
    """Give the lower half of an address the symbol of its upper half, instead of a label there.

    The distance is counted from the instruction with the upper half; addends make up for that.
    """
    upper = {each.offset: each for each in relocations if each.kind in UPPER_HALVES}
    found = []
    for each in relocations:
        if each.kind in LOWER_HALVES and each.symbol.section == section:
            first = upper[each.symbol.value]
            addend = first.addend + each.offset - first.offset
            kind = IN_TABLE if first.kind == TABLE else each.kind
            each = Relocation(each.offset, kind, first.symbol, addend)
        found.append(each)
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        header = _HEADER.unpack_from(data)
        start, count, names = header[6], header[12], header[13]
        self.rows = [_SECTION.unpack_from(data, start + 64 * n) for n in range(count)]
        self.names = [self.text(names, row[0]) for row in self.rows]

    def text(self, table: int, at: int) -> str:
        start = self.rows[table][4] + at
        return self.data[start : self.data.index(b"\0", start)].decode()

    def object(self, architecture: str) -> Object:
        mapped = {n for n, row in enumerate(self.rows) if self.is_mapped(n, row)}
        symbols = self.symbols()
        relocations: dict[int, list[Relocation]] = {n: [] for n in mapped}
        for row in self.rows:
            if row[1] == _PLAIN_RELOCATIONS and row[7] in mapped:
                raise InternalError("a relocation without addend in compiled code")
            if row[1] == _WITH_ADDENDS and row[7] in mapped:
                relocations[row[7]] = self.relocations(row, symbols)
        if architecture == "riscv64":
            relocations = {n: _join_halves(n, each) for n, each in relocations.items()}
        sections = {
            n: Section(
                self.names[n], self.bytes(self.rows[n]), max(1, self.rows[n][8]),
                tuple(relocations[n]),
            )
            for n in sorted(mapped)
        }  # fmt: skip
        return Object(architecture, sections, tuple(symbols))

    def is_mapped(self, number: int, row: tuple[int, ...]) -> bool:
        name, flags, size = self.names[number], row[2], row[5]
        if not flags & _ALLOCATED or not size or name.startswith(_UNUSED):
            return False
        if flags & (_WRITE | _THREAD_LOCAL) or row[1] == _NOBITS:
            raise InternalError(f"compiled code has writable data: '{name}', {size} bytes")
        return True

    def bytes(self, row: tuple[int, ...]) -> bytes:
        return self.data[row[4] : row[4] + row[5]]

    def symbols(self) -> list[Symbol]:
        found = []
        for row in self.rows:
            if row[1] != _SYMBOLS:
                continue
            for name, info, _, section, value, _ in _SYMBOL.iter_unpack(self.bytes(row)):
                if section == _COMMON:
                    raise InternalError("compiled code has writable data")
                defined_in = None if section in (0, _ABSOLUTE) else section
                public = info >> 4 in (_GLOBAL, _WEAK)
                found.append(Symbol(self.text(row[6], name), defined_in, value, public))
        return found

    def relocations(self, row: tuple[int, ...], symbols: list[Symbol]) -> list[Relocation]:
        return [
            Relocation(offset, info & 0xFFFFFFFF, symbols[info >> 32], addend)
            for offset, info, addend in _RELOCATION.iter_unpack(self.bytes(row))
        ]
