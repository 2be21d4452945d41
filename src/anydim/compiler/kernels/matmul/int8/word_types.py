"""The words of 32 bits that products add at once: four bytes along k, or two bfloat16."""

from __future__ import annotations

from anydim.base.dtypes import DType, bfloat16, float32, int32, uint8
from anydim.base.records import dataclass

WORD = 4  # bytes of a word


@dataclass(frozen=True)
class WordType:
    """`count` numbers of type `element` make a word; sums of their products are `total`."""

    element: DType
    total: DType

    @property
    def count(self) -> int:
        return WORD // self.element.bytes


BYTES, PAIRS = WordType(uint8, int32), WordType(bfloat16, float32)
