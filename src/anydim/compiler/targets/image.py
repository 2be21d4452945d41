"""Links objects to one position-independent image without unresolved symbols.

An image is read by `runtime/image.py`: a head, then code and read-only data of all objects. It
contains no absolute address, no external symbol and no writable data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.targets.elf import Object, Section, Symbol, read_object
from anydim.compiler.targets.relocations import RULES
from anydim.runtime.image import head, head_bytes
from anydim.runtime.systems import LINUX, System

_ALIGNMENT = 64  # of functions: a cache line
_LARGEST = 1 << 27  # bytes; how far an aarch64 branch reaches
_PADDING = b"\xcc"  # x86-64: a trap; aarch64 never runs the gap between functions


def link(
    objects: Iterable[bytes],
    entries: Sequence[str],
    stamp: bytes = bytes(32),
    system: System = LINUX,
) -> bytes:
    """Return the image of objects; `entries` are its exported symbols, in that order.

    The objects have the conventions of `system`. `stamp` identifies the owner of the code in 32
    bytes. Raises InternalError if objects need a feature that an image does not support, or are
    incompatible.
    """
    return _Link([read_object(data) for data in objects], entries).image(stamp, system)


@dataclass(frozen=True)
class _PlacedSection:
    """A section of an object (both by number) and its offset in the image."""

    object: int
    number: int
    section: Section
    start: int


class _Link:
    def __init__(self, objects: Sequence[Object], entries: Sequence[str]) -> None:
        self.objects, self.entries = objects, entries
        architectures = {made.architecture for made in objects}
        if len(architectures) != 1:
            raise InternalError(f"objects for {sorted(architectures)} in one image")
        (self.architecture,) = architectures
        self.length = head_bytes(len(entries))
        self.placed = list(self._place_sections())
        self.starts = {(each.object, each.number): each.start for each in self.placed}
        self.public = dict(self._public())

    def image(self, stamp: bytes, system: System) -> bytes:
        if self.length > _LARGEST:
            raise InternalError(f"an image of {self.length} bytes")
        code = bytearray(_PADDING * self.length)
        for each in self.placed:
            code[each.start : each.start + len(each.section.data)] = each.section.data
        rules = RULES[self.architecture]
        for each in self.placed:
            for relocation in each.section.relocations:
                rule = rules.get(relocation.kind)
                if rule is None:
                    raise InternalError(
                        f"a relocation of kind {relocation.kind} to '{relocation.symbol.name}' in "
                        f"'{each.section.name}' for {self.architecture}"
                    )
                target = self._offset_of(each.object, relocation.symbol) + relocation.addend
                rule(code, each.start + relocation.offset, target)
        missing = [name for name in self.entries if name not in self.public]
        if missing:
            raise InternalError(f"no object defines {missing}")
        offsets = [self.public[name] for name in self.entries]
        start = head(system.platform(self.architecture), len(code), offsets, stamp)
        code[: len(start)] = start
        return bytes(code)

    def _place_sections(self) -> Iterable[_PlacedSection]:
        """Lay out code first, then data, so that code is contiguous."""
        sections = [
            (not section.name.startswith(".text"), number, own, section)
            for number, made in enumerate(self.objects)
            for own, section in made.sections.items()
        ]
        for _, number, own, section in sorted(sections, key=lambda each: each[:3]):
            alignment = max(_ALIGNMENT, section.alignment)
            start = -(-self.length // alignment) * alignment
            self.length = start + len(section.data)
            yield _PlacedSection(number, own, section, start)

    def _public(self) -> Iterable[tuple[str, int]]:
        defined: set[str] = set()
        for number, made in enumerate(self.objects):
            for symbol in made.symbols:
                if symbol.public and symbol.section is not None:
                    if symbol.name in defined:
                        raise InternalError(f"two objects define '{symbol.name}'")
                    defined.add(symbol.name)
                    yield symbol.name, self.starts[number, symbol.section] + symbol.value

    def _offset_of(self, number: int, symbol: Symbol) -> int:
        if symbol.section is not None:
            return self.starts[number, symbol.section] + symbol.value
        if symbol.name not in self.public:
            raise InternalError(f"code needs '{symbol.name}', which no object defines")
        return self.public[symbol.name]
