"""Writes the file of a saved program (see `container.py`). Equal members give equal bytes."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from anydim.base.errors import OptionError
from anydim.base.files import replace_file
from anydim.base.records import dataclass
from anydim.deploy.checksum import checksum
from anydim.deploy.container import (
    ALIGNMENT,
    FORMAT,
    LARGE,
    LOCAL,
    MANIFEST,
    OWN,
    OWN_ID,
    Container,
)
from anydim.deploy.saved import member
from anydim.runtime.image import page_bytes

_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR_64 = struct.Struct("<4sIQI")
_DATE = 0x21  # 1 January 1980
_LARGE = 0xFFFFFFFF


@dataclass(frozen=True)
class Member:
    """A member to be written: its bytes, the alignment of its first byte, its SHA-256 if known."""

    name: str
    data: bytes | memoryview
    alignment: int = ALIGNMENT
    digest: str = ""


def write(path: str, about: Mapping[str, Any], members: Sequence[Member]) -> None:
    """Write a file atomically. Raises OSError."""
    manifest, starts = _manifest(about, members, [_sums(member) for member in members])
    digest = hashlib.sha256(manifest).digest()
    with replace_file(path) as new, open(new, "xb") as file:
        entries = [_put(file, 0, MANIFEST, manifest, _own(digest, 0))]
        for member, start in zip(members, starts):
            head = start - _head_bytes(member.name, len(member.data))
            file.write(bytes(head - file.tell()))
            entries.append(_put(file, head, member.name, member.data))
        _end(file, entries)
        length = file.tell()
        file.seek(LOCAL.size + len(MANIFEST))
        file.write(_own(digest, length))


def copy(
    container: Container, path: str, omitted: Collection[str] = (),
    facts: Mapping[str, Any] | None = None, others: Sequence[Member] = (),
) -> None:  # fmt: skip
    """Copy the members and `others` to another file after verifying their digests.

    `omitted` are the manifest entries and members to leave out, `facts` others to add. Raises
    OptionError if the file cannot be written, ArtefactError if the source is damaged.
    """
    about = {name: entry for name, entry in container.about.items() if name not in omitted}
    about |= facts or {}
    pages = {member(level["name"], "code"): level["architecture"] for level in about["levels"]}
    members = [
        Member(
            name, container.verify_member(name, again=True),
            page_bytes(pages[name]) if name in pages else ALIGNMENT, part.digest,
        )
        for name, part in container.parts.items() if name not in omitted
    ]  # fmt: skip
    with writing(path):
        write(path, about, [*members, *others])


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert an OSError in the block to an OptionError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OptionError(f"{os.fspath(path)} cannot be written: {reason}") from None


def _own(digest: bytes, length: int) -> bytes:
    """Our extra field of the first header: what a reader needs before it reads the manifest."""
    return OWN.pack(OWN_ID, OWN.size - 4, FORMAT, digest, length)


def _sums(member: Member) -> tuple[str, str]:
    """The digest of a member, and the checksum of a large one."""
    digest = member.digest or hashlib.sha256(member.data).hexdigest()
    return digest, checksum(member.data) if len(member.data) > LARGE else ""


def _manifest(
    about: Mapping[str, Any], members: Sequence[Member], sums: Sequence[tuple[str, str]]
) -> tuple[bytes, list[int]]:
    """The manifest and the offsets of the members.

    Iterates, as each depends on the other's length.
    """
    length = 0
    while True:
        starts = _starts(length, members)
        table = {
            member.name: [start, len(member.data), *each]
            for member, start, each in zip(members, starts, sums)
        }
        text = json.dumps({**about, "members": table}, indent=1).encode() + b"\n"
        if len(text) <= length:
            return text.ljust(length), starts
        length = len(text)


def _starts(length: int, members: Sequence[Member]) -> list[int]:
    at = LOCAL.size + len(MANIFEST) + OWN.size + length
    starts = []
    for each in members:
        at += _head_bytes(each.name, len(each.data))
        at = -(-at // each.alignment) * each.alignment
        starts.append(at)
        at += len(each.data)
    return starts


def _head_bytes(name: str, length: int) -> int:
    return LOCAL.size + len(name) + (20 if length >= _LARGE else 0)


@dataclass(frozen=True)
class _Entry:
    name: str
    offset: int
    length: int
    checksum: int


def _put(
    file: BinaryIO, offset: int, name: str, data: bytes | memoryview, extra: bytes = b""
) -> _Entry:
    """Write a local header and its member."""
    length, checksum = len(data), zlib.crc32(data)
    shown = min(length, _LARGE)
    if shown == _LARGE:
        extra += struct.pack("<HHQQ", 1, 16, length, length)
    version = 45 if shown == _LARGE else 20
    file.write(LOCAL.pack(
        b"PK\3\4", version, 0, 0, 0, _DATE, checksum, shown, shown, len(name), len(extra)
    ))  # fmt: skip
    file.write(name.encode() + extra)
    file.write(data)
    return _Entry(name, offset, length, checksum)


def _end(file: BinaryIO, entries: Sequence[_Entry]) -> None:
    """Write the central directory of the archive."""
    start = file.tell()
    for entry in entries:
        far = [v for v in (entry.length, entry.length, entry.offset) if v >= _LARGE]
        extra = struct.pack(f"<HH{len(far)}Q", 1, 8 * len(far), *far) if far else b""
        length, offset = min(entry.length, _LARGE), min(entry.offset, _LARGE)
        version = 45 if far else 20
        file.write(_CENTRAL.pack(
            b"PK\1\2", version, version, 0, 0, 0, _DATE, entry.checksum, length, length,
            len(entry.name), len(extra), 0, 0, 0, 0, offset,
        ))  # fmt: skip
        file.write(entry.name.encode() + extra)
    end, count = file.tell(), len(entries)
    if end >= _LARGE or count >= 0xFFFF:
        file.write(_END_64.pack(
            b"PK\6\6", _END_64.size - 12, 45, 45, 0, 0, count, count, end - start, start
        ))  # fmt: skip
        file.write(_LOCATOR_64.pack(b"PK\6\7", 0, end, 1))
    file.write(_END.pack(
        b"PK\5\6", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), min(end - start, _LARGE),
        min(start, _LARGE), 0,
    ))  # fmt: skip
