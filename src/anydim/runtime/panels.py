"""Packed layouts of constants: how a kernel reads a matrix that is known before any call."""

from __future__ import annotations

from anydim.base.records import dataclass


@dataclass(frozen=True)
class Panels:
    """Packing of a constant matrix operand: [groups..., ceil(n/width)][k][width], zero padded.

    `batch`, `k` and `n` give the (size, stride) pairs of each role, outermost first, over the flat
    row-major constant; all are plain ints because the operand is constant. 64-byte aligned.
    """

    width: int
    batch: tuple[tuple[int, int], ...]
    k: tuple[tuple[int, int], ...]
    n: tuple[tuple[int, int], ...]
    offset: int = 0


@dataclass(frozen=True)
class ProductPanels(Panels):
    """Panels of a constant whose two axes `taps` are first multiplied by a matrix on both sides.

    Every pair of rows of `matrix` makes a group: [groups..., pairs, ceil(n/width)][k][width].
    """

    taps: tuple[tuple[int, int], ...] = ()
    matrix: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class BytesPanels:
    """Packing of a constant factor of an int8 product; see `matmul/int8/packed_layout.py`.

    `batch`, `own` (rows or columns), `taps` and `k` give (size, stride) pairs as in `Panels`.
    `width` columns make a panel; rows are panels of width 1. `flipped` bytes are offset by 128;
    `unsigned` gives their signedness after that. Their sums are multiplied by `factor`. Panels are
    padded with zeros to a multiple of `depth` 4-byte words; `spare` more such panels may be read,
    their contents are not used. With an `element` of 2 bytes words hold two numbers, such as
    bfloat16, and there are no sums. Taps may be several `parts` of equal count, each padded so.
    """

    width: int
    batch: tuple[tuple[int, int], ...]
    own: tuple[tuple[int, int], ...]
    taps: tuple[tuple[int, int], ...]
    k: tuple[tuple[int, int], ...]
    offset: int
    flipped: bool
    unsigned: bool
    factor: int
    depth: int = 1
    spare: int = 0
    element: int = 1
    parts: int = 1

    def part_words(self, taps: int, k: int) -> tuple[int, int]:
        """The words of a part, and with its padding, if there are several."""
        used = taps // self.parts * -(-k // (4 // self.element))
        return used, used if self.parts == 1 else -(-used // self.depth) * self.depth


@dataclass(frozen=True)
class NarrowPanels:
    """Packing of 4-bit or 8-bit weights: [ceil(n/width)][k], with k zero padded to `depth`.

    `k` and `n` give (size, stride). 8-bit weights take one byte each, [k][width]. Eight 4-bit
    weights along k make a word, the first one in the low bits; each is stored with an offset of 8.
    """

    width: int
    bits: int
    k: tuple[int, int]
    n: tuple[int, int]
    depth: int


Packing = Panels | BytesPanels | NarrowPanels
