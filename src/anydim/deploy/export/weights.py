"""The file of an exported program's constants: a header of 64 bytes, then the constants.

    magic     16 bytes    'anydim weights 1'
    bytes      8          of the whole file
    sums      16          of the words after the header, and of the running sums
    digest    24          the first bytes of the SHA-256 of everything after the header

Numbers are little-endian; constants are aligned to 64 bytes. The program holds a copy of the
header, so that it rejects any other file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence

import numpy

from anydim.base.records import dataclass

MAGIC = b"anydim weights 1"
HEAD = struct.Struct("<16sQQQ24s")
ALIGNMENT = 64
_WORDS = 1 << 20  # 8-byte words summed at a time
_ALL = (1 << 64) - 1


@dataclass(frozen=True)
class Weights:
    """The file: its header, its content, and the offset of each constant in the file."""

    head: bytes
    content: bytes
    offsets: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of the file in bytes."""
        return len(self.head) + len(self.content)


def weights_of(names: Sequence[str], arrays: Mapping[str, numpy.ndarray]) -> Weights:
    """Lay out the constants in that order; equal ones are stored once."""
    known: dict[bytes, int] = {}
    parts: list[bytes] = []
    offsets, end = [], HEAD.size
    for name in names:
        data = numpy.ascontiguousarray(arrays[name]).tobytes()
        data += bytes(-len(data) % ALIGNMENT)
        digest = hashlib.sha256(data).digest()
        if digest not in known:
            known[digest] = end
            parts.append(data)
            end += len(data)
        offsets.append(known[digest])
    content = b"".join(parts)
    first, second = _sums(content)
    digest = hashlib.sha256(content).digest()[:24]
    head = HEAD.pack(MAGIC, HEAD.size + len(content), first, second, digest)
    return Weights(head, content, tuple(offsets))


def _sums(content: bytes) -> tuple[int, int]:
    """The sum of the 64-bit words, and the sum of its running values, modulo 2^64."""
    words = numpy.frombuffer(content, "<u8")
    first = second = 0
    for start in range(0, len(words), _WORDS):
        part = words[start : start + _WORDS]
        weight = numpy.arange(len(part), 0, -1, dtype=numpy.uint64)
        second += first * len(part) + int((part * weight).sum(dtype=numpy.uint64))
        first += int(part.sum(dtype=numpy.uint64))
    return first & _ALL, second & _ALL
