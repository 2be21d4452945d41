"""The file of a saved program: a ZIP archive of stored members, each aligned, each with a digest.

    manifest.json         the members: offsets, lengths, SHA-256 digests, checksums of large ones
    levels/NAME/...       records and code for a kind of processor
    constants/DIGEST      packed constants, each once

The manifest comes first. Its ZIP header holds its digest, the length of the whole file and the
format number, so a reader takes offsets from the manifest only. Tools for ZIP archives list and
unpack such a file. `archive.py` writes it.
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from io import BufferedReader
from typing import Any

from anydim.base.digest import sha256
from anydim.base.errors import ArtefactError
from anydim.base.read_files import open_regular
from anydim.base.records import dataclass
from anydim.deploy.checksum import checksum
from anydim.deploy.records import parse_json
from anydim.runtime.pages import block

FORMAT = 12  # raise with every change of the content of files
MANIFEST = "manifest.json"
ALIGNMENT = 64  # of every member; the alignment of constants in memory
_LONGEST_NAME = 200
_MOST_MEMBERS = 1 << 16
_OTHERS = "compile the ONNX file with ad.compile, and save the model with its method `save`"
_LONGEST_MANIFEST = 1 << 24

LOCAL = struct.Struct("<4sHHHHHIIIHH")  # the header of a member
OWN_ID = 0x6461
OWN = struct.Struct("<HHI32sQ")  # our field of the first header: id, length, format;
_FORMAT = struct.Struct("<HHI")  # then the digest of the manifest, the length of the file
LARGE = 1 << 16  # bytes above which a member has a checksum, too


def is_saved(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts like a saved model; its content may still be invalid."""
    try:
        with open_regular(os.fspath(path)) as file:
            start = file.read(LOCAL.size + len(MANIFEST))
    except OSError:
        return False
    return start[:4] == b"PK\3\4" and start[LOCAL.size :] == MANIFEST.encode()


@dataclass(frozen=True)
class MemberRecord:
    """A member of a file; `checksum` is empty for a small one."""

    offset: int
    length: int
    digest: str
    checksum: str


class Container:
    """An open file: its manifest, and its members as views of memory shared by all processes.

    With `copied`, they are views of a private copy that later changes of the file do not affect.
    With `known`, the members were verified before and are not verified again.
    """

    def __init__(self, path: str, copied: bool = False, known: bool = False) -> None:
        """Open a file; ArtefactError if it cannot be read or has another format."""
        self.path, self.copied, self.known = path, copied, known
        try:
            self.file = BufferedReader(open_regular(path))  # open while code is mapped from it
            weakref.finalize(self, self.file.close)
            self.length = os.fstat(self.file.fileno()).st_size
            if self.length < LOCAL.size:
                raise ArtefactError(f"{path} is no saved model: it has {self.length} bytes")
            memory = self._copy() if copied else self._map_file()
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise ArtefactError(f"{path} cannot be mapped: {error}") from None
        self.memory = memory.toreadonly()
        self.about, self.parts = self._read()

    def fail(self, problem: str) -> ArtefactError:
        """The error for a file with inconsistent content."""
        hint = "it is damaged or no saved model: save the model again"
        return ArtefactError(f"{self.path}: {problem}", hint)

    def view(self, name: str) -> memoryview:
        """The bytes of a member, not verified."""
        part = self.part(name)
        return self.memory[part.offset : part.offset + part.length]

    def verify_member(self, name: str, again: bool = False) -> memoryview:
        """The bytes of a member after checking its digest; `again` checks it even if known."""
        view = self.view(name)
        if (again or not self.known) and sha256(view).hexdigest() != self.part(name).digest:
            raise self.fail(f"'{name}' does not match its digest")
        return view

    def check(self, name: str) -> None:
        """Raise ArtefactError for a damaged member; a large one is checked by its checksum."""
        saved = self.part(name).checksum
        if not saved:
            self.verify_member(name)
        elif not self.known and checksum(self.view(name)) != saved:
            raise self.fail(f"'{name}' does not match its checksum")

    def part(self, name: str) -> MemberRecord:
        """The offset, length and digests of a member."""
        if name not in self.parts:
            raise self.fail(f"it has no member '{name}'")
        return self.parts[name]

    def _map_file(self) -> memoryview:
        return memoryview(mmap.mmap(self.file.fileno(), self.length, access=mmap.ACCESS_READ))

    def _copy(self) -> memoryview:
        view, at = block(self.length).data, 0
        while at < self.length:
            read = self.file.readinto(view[at:])
            if not read:
                raise self.fail("it became shorter while it was read")
            at += read
        return view

    def _read(self) -> tuple[dict[str, Any], dict[str, MemberRecord]]:
        whole = self._manifest()
        table = whole.pop("members", None) if isinstance(whole, dict) else None
        if not isinstance(table, dict) or len(table) > _MOST_MEMBERS:
            raise self.fail("its manifest lists no members")
        return whole, {name: self._part(name, row) for name, row in table.items()}

    def _manifest(self) -> Any:
        magic, _, _, method, *_, length, _, name_length, extra_length = LOCAL.unpack_from(
            self.memory
        )
        start = LOCAL.size + name_length + extra_length
        name = bytes(self.memory[LOCAL.size : LOCAL.size + name_length])
        own = self.memory[LOCAL.size + name_length : start]
        if magic != b"PK\3\4" or name != MANIFEST.encode() or len(own) < _FORMAT.size:
            raise ArtefactError(f"{self.path} is no model that anydim saved", _OTHERS)
        identity, _, format = _FORMAT.unpack_from(own)
        if identity != OWN_ID:
            raise ArtefactError(f"{self.path} is no model that anydim saved", _OTHERS)
        if format != FORMAT:
            raise ArtefactError(
                f"{self.path} has format {format}, this version of anydim reads format {FORMAT}",
                "save the model with this version, or load it with the one that made it",
            )
        if len(own) != OWN.size:
            raise self.fail("its first header is damaged")
        *_, digest, saved = OWN.unpack(own)
        if saved != self.length:
            raise self.fail(f"it has {self.length} bytes, expected {saved}")
        text = bytes(self.memory[start : start + length])
        if method or length > _LONGEST_MANIFEST or sha256(text).digest() != digest:
            raise self.fail("its manifest does not match its digest")
        return parse_json(text)

    def _part(self, name: str, row: Any) -> MemberRecord:
        kinds = [int, int, str, str]
        if not isinstance(row, list) or [type(item) for item in row] != kinds:
            raise self.fail(f"its manifest entry of '{name[:_LONGEST_NAME]}' is invalid")
        offset, length, digest, checksum = row
        inside = 0 <= offset <= self.length and 0 <= length <= self.length - offset
        if not inside or offset % ALIGNMENT or len(name) > _LONGEST_NAME:
            raise self.fail(f"'{name[:_LONGEST_NAME]}' is not inside the file")
        if bool(checksum) != (length > LARGE):
            raise self.fail(f"its manifest entry of '{name}' is invalid")
        return MemberRecord(offset, length, digest, checksum)
