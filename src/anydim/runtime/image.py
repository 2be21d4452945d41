"""Code images: validation, and mapping to executable memory. See `targets/image.py`.

    head    magic, architecture, bytes of the image, number of entries, stamp, entries
    body    code and read-only data, position-independent

The stamp is the digest of the records that the code was generated for. Pages are mapped from the
file, so that processes share them; if the file system forbids execution, they are copied to
anonymous memory, which is then made executable. No page is ever writable and executable at once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Sequence
from typing import BinaryIO

import numpy

from anydim.base.errors import ArtefactError, InternalError
from anydim.base.records import dataclass

ARCHITECTURES = {"x86_64": 1, "aarch64": 2}
PAGES = {"x86_64": 1 << 12, "aarch64": 1 << 16}  # the largest page of such machines
_MAGIC = b"anydim-code-1\0\0\0"
_HEAD = struct.Struct("<16sIIQ32s")  # magic, architecture, entries, bytes, stamp
_MOST_ENTRIES = 1 << 20
_READ, _EXECUTE = 1, 4  # of mprotect


def head_bytes(entries: int) -> int:
    """Return the length of a head with that many entries."""
    return _HEAD.size + 8 * entries


def head(architecture: str, length: int, entries: Sequence[int], stamp: bytes) -> bytes:
    """Return the head of an image; `entries` are offsets into it."""
    if len(stamp) != 32 or len(entries) > _MOST_ENTRIES:
        raise InternalError("an image with a wrong stamp or too many entries")
    fixed = _HEAD.pack(_MAGIC, ARCHITECTURES[architecture], len(entries), length, stamp)
    return fixed + struct.pack(f"<{len(entries)}Q", *entries)


def with_stamp(image: bytes, stamp: bytes) -> bytes:
    """An image with another stamp."""
    found = read_head(image)
    start = head(found.architecture, found.length, found.entries, stamp)
    return start + image[len(start) :]


@dataclass(frozen=True)
class ImageHead:
    """The head of an image; `length` is that of the whole image, `entries` are offsets."""

    architecture: str
    length: int
    entries: tuple[int, ...]
    stamp: bytes


def read_head(data: bytes | memoryview | mmap.mmap) -> ImageHead:
    """Parse the head of an image that fills `data`; raises ArtefactError if it is invalid."""
    names = {number: name for name, number in ARCHITECTURES.items()}
    if len(data) < _HEAD.size:
        raise ArtefactError("the code is truncated")
    magic, architecture, count, length, stamp = _HEAD.unpack_from(data)
    if magic != _MAGIC or architecture not in names:
        raise ArtefactError("the code has a format that this version of anydim does not support")
    if length != len(data) or count > _MOST_ENTRIES or head_bytes(count) > length:
        raise ArtefactError("the length of the code differs from its header")
    entries = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
    if any(not head_bytes(count) <= entry < length for entry in entries):
        raise ArtefactError("an entry point is outside the code")
    return ImageHead(names[architecture], length, entries, stamp)


class MappedImage:
    """An image in memory; addresses are valid while this object lives."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.head = read_head(memory)
        self._base = _address(memory)

    def address(self, entry: int) -> int:
        """Return the address of an entry."""
        return self._base + self.head.entries[entry]

    @property
    def data(self) -> memoryview:
        """All bytes, for verification before anything is called."""
        return memoryview(self._memory)


def map_file(file: BinaryIO, offset: int, length: int) -> MappedImage:
    """Map the image at a page-aligned offset of a file; runs none of its code.

    Raises ArtefactError for an invalid image, OptionError if the system forbids executable
    mappings.
    """
    _check_system()
    try:
        memory = mmap.mmap(
            file.fileno(), length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC,
            offset=offset,
        )  # fmt: skip
    except (OSError, ValueError):  # mounted without execution, or pages larger than we expect
        file.seek(offset)
        return map_bytes(file.read(length))
    return MappedImage(memory)


def map_bytes(code: bytes) -> MappedImage:
    """Copy an image to executable memory; raises the errors of `map_file`."""
    _check_system()
    read_head(code)
    memory = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code)
    system = ctypes.CDLL(None, use_errno=True)
    start, size = ctypes.c_void_p(_address(memory)), ctypes.c_size_t(len(code))
    if system.mprotect(start, size, _READ | _EXECUTE):
        reason = os.strerror(ctypes.get_errno())
        raise _system_error(f"the system forbids executable memory: {reason}")
    return MappedImage(memory)


def _check_system() -> None:
    if not hasattr(mmap, "PROT_EXEC") or os.uname().sysname != "Linux":
        raise _system_error("saved code runs on Linux only")


def _system_error(problem: str) -> ArtefactError:
    return ArtefactError(problem, "compile the model on this machine")


def _address(memory: mmap.mmap) -> int:
    return int(numpy.frombuffer(memory, numpy.uint8).ctypes.data)
