"""Code images: validation, and mapping to executable memory. See `targets/image.py`.

    head    magic, platform, bytes of the image, number of entries, stamp, entries
    body    code and read-only data, position-independent

The stamp is the digest of the records that the code was generated for. A loader maps the pages
(`systems.py`); none is ever writable and executable at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO

from anydim.base.errors import ArtefactError, InternalError
from anydim.base.records import dataclass
from anydim.runtime.systems import SYSTEMS, loader

_ARCHITECTURES = {"x86_64": 1, "aarch64": 2, "riscv64": 3}
_PAGES = {
    "x86_64": 1 << 12,
    "aarch64": 1 << 16,
    "riscv64": 1 << 12,
}  # the largest page of such machines
_NUMBERS = {
    row.platform(architecture): row.number << 16 | _ARCHITECTURES[architecture]
    for row in SYSTEMS for architecture in row.architectures
}  # fmt: skip
_MAGIC = b"anydim-code-1\0\0\0"
_HEAD = struct.Struct("<16sIIQ32s")  # magic, platform, entries, bytes, stamp
_MOST_ENTRIES = 1 << 20


def page_bytes(platform: str) -> int:
    """Return the alignment of an image in a file."""
    return _PAGES[platform.partition("-")[0]]


def head_bytes(entries: int) -> int:
    """Return the length of a head with that many entries."""
    return _HEAD.size + 8 * entries


def head(platform: str, length: int, entries: Sequence[int], stamp: bytes) -> bytes:
    """Return the head of an image; `entries` are offsets into it. See `System.platform`."""
    if len(stamp) != 32 or len(entries) > _MOST_ENTRIES:
        raise InternalError("an image with a wrong stamp or too many entries")
    fixed = _HEAD.pack(_MAGIC, _NUMBERS[platform], len(entries), length, stamp)
    return fixed + struct.pack(f"<{len(entries)}Q", *entries)


def with_stamp(image: bytes, stamp: bytes) -> bytes:
    """An image with another stamp."""
    found = read_head(image)
    start = head(found.platform, found.length, found.entries, stamp)
    return start + image[len(start) :]


@dataclass(frozen=True)
class ImageHead:
    """The head of an image; `length` is that of the whole image, `entries` are offsets."""

    platform: str
    length: int
    entries: tuple[int, ...]
    stamp: bytes


def read_head(data: bytes | memoryview) -> ImageHead:
    """Parse the head of an image that fills `data`; raises ArtefactError if it is invalid."""
    names = {number: name for name, number in _NUMBERS.items()}
    if len(data) < _HEAD.size:
        raise ArtefactError("the code is truncated")
    magic, platform, count, length, stamp = _HEAD.unpack_from(data)
    if magic != _MAGIC or platform not in names:
        raise ArtefactError("the code has a format that this version of anydim does not support")
    if length != len(data) or count > _MOST_ENTRIES or head_bytes(count) > length:
        raise ArtefactError("the length of the code differs from its header")
    entries = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
    if any(not head_bytes(count) <= entry < length for entry in entries):
        raise ArtefactError("an entry point is outside the code")
    return ImageHead(names[platform], length, entries, stamp)


class MappedImage:
    """An image in memory; addresses are valid while this object lives."""

    def __init__(self, data: memoryview, address: int, owner: object) -> None:
        self.data, self._address, self._owner = data, address, owner  # all bytes, for verification
        self.head = read_head(data)

    def address(self, entry: int) -> int:
        """Return the address of an entry."""
        return self._address + self.head.entries[entry]


def map_file(file: BinaryIO, offset: int, length: int) -> MappedImage:
    """Map the image at a page-aligned offset of a file; runs none of its code.

    Raises ArtefactError for an invalid image, or if the system forbids executable mappings.
    """
    from_file = getattr(loader(), "map_file", None)
    if from_file is not None:
        with suppress(OSError, ValueError):  # mounted without execution, or with larger pages
            return MappedImage(*from_file(file, offset, length))
    file.seek(offset)
    return map_bytes(file.read(length))


def map_bytes(code: bytes) -> MappedImage:
    """Copy an image to executable memory; raises the errors of `map_file`."""
    load = loader()
    read_head(code)
    try:
        return MappedImage(*load.map_code(code))
    except OSError as error:
        problem = f"the system forbids executable memory: {error.strerror or error}"
        raise ArtefactError(problem, "compile the model on this machine") from None
