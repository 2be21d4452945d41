"""The words of 32 bits that products add at once: four bytes along k, or two bfloat16."""

from __future__ import annotations

from anydim.base.dtypes import DType, bfloat16, float32, int32, uint8
from anydim.base.records import dataclass

WORD = 4  # bytes of a word


@dataclass(frozen=True)
class WordType:
    """`count` numbers of type `element` make a word; sums of their products are `total`.

    With `split`, factors are float32, each a sum of numbers of that type (`float_parts.py`).
    """

    element: DType
    total: DType
    split: bool = False

    @property
    def is_pair(self) -> bool:
        """Whether a word is two bfloat16."""
        return self.element == bfloat16

    @property
    def count(self) -> int:
        return WORD // self.element.bytes


BYTES, PAIRS = WordType(uint8, int32), WordType(bfloat16, float32)
PARTS = WordType(bfloat16, float32, split=True)
