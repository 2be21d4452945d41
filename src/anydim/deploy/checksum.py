"""The checksum of large constants, which detects accidental damage at memory bandwidth.

100 MB take 7 ms on one core of a Zen 4, where `zlib.crc32` takes 25 ms and SHA-256 55 ms. The
64-bit words form a table; its rows and columns are summed modulo 2^64. The checksum is the SHA-256
of all sums, of the bytes after the last whole row, and of the length. Sums weighted by position,
such as Fletcher's, are functions of the sums of rows and columns, so this detects all damage that
they detect. It misses damage that cancels in every row and column it touches, which takes at least
four words. It is no signature: to sign a file, use the SHA-256 of every member.
"""

from __future__ import annotations

import numpy

from anydim.base.digest import sha256

_COLUMNS = 2048  # 64-bit words of a row
_ROWS = 64  # rows summed together, to stay in the L2 cache
_ROW = 8 * _COLUMNS  # bytes


def checksum(data: bytes | memoryview) -> str:
    """The checksum of bytes, as hexadecimal digits."""
    whole = len(data) // _ROW
    words = numpy.frombuffer(data, "<u8", whole * _COLUMNS).reshape(whole, _COLUMNS)
    rows = numpy.empty(whole, "<u8")
    columns, part = numpy.zeros(_COLUMNS, "<u8"), numpy.empty(_COLUMNS, "<u8")
    for start in range(0, whole, _ROWS):
        block = words[start : start + _ROWS]
        numpy.add.reduce(block, axis=1, out=rows[start : start + _ROWS])
        numpy.add.reduce(block, axis=0, out=part)
        numpy.add(columns, part, out=columns)
    state = sha256(len(data).to_bytes(8, "little"))
    for sums in (rows, columns):
        state.update(sums.data)
    state.update(memoryview(data)[whole * _ROW :])
    return state.hexdigest()
