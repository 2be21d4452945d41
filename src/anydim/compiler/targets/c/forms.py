"""Types of values in C: an element type by its short name, and the number of lanes."""

from __future__ import annotations

from functools import cached_property

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.dialect import storage_name

FLAG = "_Bool"  # scalar flag
_FEW = 4  # lanes that are converted in one step
_LEAST = 32  # bits of integers that are converted to floats in one step


@dataclass(frozen=True)
class Form:
    """`element` is 'f32', 'u8', ...; flags of several lanes are integers, 0 or -1."""

    element: str
    lanes: int = 1

    @cached_property
    def name(self) -> str:
        """The name of the C type."""
        return self.element if self.lanes == 1 else f"{self.element}x{self.lanes}"

    @cached_property
    def bits(self) -> int:
        """Bits of an element."""
        return 1 if self.element == FLAG else int(self.element[1:])

    @property
    def all_bits(self) -> int:
        return self.bits * self.lanes

    @property
    def kind(self) -> str:
        """'f', 'i', 'u' or '_' of a flag."""
        return self.element[0]

    @property
    def signed(self) -> Form:
        """The signed integers of the same width, the result type of vector comparisons."""
        return Form(f"i{self.bits}", self.lanes)

    @property
    def unsigned(self) -> Form:
        return Form(f"u{self.bits}", self.lanes)

    @property
    def scalar(self) -> Form:
        return Form(self.element)

    @property
    def half(self) -> Form:
        """The same bits in half as many lanes."""
        return Form(self.element, self.lanes // 2)


def form_of(kind: ir.Type) -> Form:
    """Return the form of a value of loop IR, except for vectors of flags."""
    if kind.dtype.kind == "bool" and kind.lanes == 1:
        return Form(FLAG)
    return Form(storage_name(kind.dtype), kind.lanes)


def flags(lanes: int, bits: int) -> Form:
    """Return the form of flags: integers of `bits`."""
    return Form(FLAG) if lanes == 1 else Form(f"i{bits}", lanes)


def steps(have: Form, wanted: Form) -> list[Form]:
    """Return the intermediate forms of a conversion that GCC would do lane by lane.

    Each step doubles or halves the width of integers, or converts integers of 32 or 64 bits from
    or to floats.
    """
    if have.lanes <= _FEW or FLAG in (have.element, wanted.element):
        return []
    first, last = have, wanted
    if have.kind == "f" and wanted.kind != "f" and wanted.bits < _LEAST:
        first = Form(f"i{_LEAST}", have.lanes)
    if wanted.kind == "f" and have.kind != "f" and have.bits < _LEAST:
        last = Form(f"i{_LEAST}", have.lanes)
    found = [first] if first != have else []
    if first.kind != "f" and last.kind != "f":
        bits = first.bits
        while bits != last.bits:
            bits = 2 * bits if bits < last.bits else bits // 2
            if bits != last.bits:
                found.append(Form(f"{first.kind}{bits}", have.lanes))
    return [*found, last] if last != wanted else found
