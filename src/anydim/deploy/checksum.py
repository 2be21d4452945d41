"""The checksum of large constants: it finds accidental damage at the speed of memory.

100 MB take 7 ms on one core of a Zen 4, where `zlib.crc32` takes 25 ms and SHA-256 55 ms. The words
of 64 bits are summed modulo 2^64 along the rows and along the columns of a table; SHA-256 of all
sums, of the bytes behind the last whole row, and of the length is the checksum. Sums weighted by
position, as Fletcher's, are functions of the sums of rows and columns, so damage that they find is
found. Damage is missed where it cancels in each row and in each column it touches, which takes four
words at least. It is no signature: those who need one sign the file, which has SHA-256 of every
member, too.
"""

from __future__ import annotations

import numpy

from anydim.base.digest import sha256

_COLUMNS = 2048  # words of a row
_ROWS = 64  # summed together, while the second level of cache holds them
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
