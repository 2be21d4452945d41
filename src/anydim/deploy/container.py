"""The file of a saved program: a ZIP archive of stored members, each aligned, each with a digest.

    manifest.json         the members: offsets, lengths, SHA-256 digests, checksums of large ones
    levels/NAME/...       records and code for a kind of processor
    constants/DIGEST      packed constants, each once

The manifest comes first; its digest, the length of the whole file and the number of this format
stand in its ZIP header, so that nothing but the manifest tells a reader where something is. Tools
for ZIP archives list and unpack such a file. `archive.py` writes it.
"""

from __future__ import annotations

import mmap
import os
import struct
import weakref
from typing import Any

from anydim.base.digest import sha256
from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass
from anydim.deploy.checksum import checksum
from anydim.deploy.records import parse_json

FORMAT = 8  # to be raised with every change of what files hold
MANIFEST = "manifest.json"
ALIGNMENT = 64  # of every member; constants lie in memory so
_LONGEST_NAME = 200
_MOST_MEMBERS = 1 << 16
_OTHERS = "ad.compile takes an ONNX file; what it gives has a method `save`"
_LONGEST_MANIFEST = 1 << 24

LOCAL = struct.Struct("<4sHHHHHIIIHH")  # the header of a member
OWN_ID = 0x6461
OWN = struct.Struct("<HHI32sQ")  # our field of the first header: id, length, format; those of the
_FORMAT = struct.Struct("<HHI")  # format follow: digest of the manifest, length of the file
LARGE = 1 << 16  # bytes of a member above which it has a checksum, too


def is_saved(path: str | os.PathLike[str]) -> bool:
    """Whether a file starts as saved models do; what is in it may still be refused."""
    try:
        with open(path, "rb") as file:
            start = file.read(LOCAL.size + len(MANIFEST))
    except OSError:
        return False
    return start[:4] == b"PK\3\4" and start[LOCAL.size :] == MANIFEST.encode()


@dataclass(frozen=True)
class Part:
    """A member of a file; `checksum` is empty for a small one."""

    offset: int
    length: int
    digest: str
    checksum: str


class Container:
    """An open file: its manifest, and its members as views of memory shared by all processes.

    With `copied`, they are views of a copy in memory of this process, which nothing that happens to
    the file can change. Where it is `known` that all members are what was saved, they are not
    compared again.
    """

    def __init__(self, path: str, copied: bool = False, known: bool = False) -> None:
        """Raises ArtefactError where the file cannot be read or is none of this format."""
        self.path, self.copied, self.known = path, copied, known
        try:
            self.file = open(path, "rb")  # noqa: SIM115  open as long as code may be mapped from it
            weakref.finalize(self, self.file.close)
            self.length = os.fstat(self.file.fileno()).st_size
            if self.length < LOCAL.size:
                raise ArtefactError(f"{path} is no saved model: it has {self.length} bytes")
            self._memory = (
                self._copy() if copied
                else mmap.mmap(self.file.fileno(), self.length, access=mmap.ACCESS_READ)
            )  # fmt: skip
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise ArtefactError(f"{path} cannot be mapped: {error}") from None
        self.memory = memoryview(self._memory).toreadonly()
        self.about, self.parts = self._read()

    def fail(self, problem: str) -> ArtefactError:
        """The error for a file that says something that cannot be."""
        hint = "it is damaged, or something else: save the model again"
        return ArtefactError(f"{self.path}: {problem}", hint)

    def view(self, name: str) -> memoryview:
        """The bytes of a member, whatever they are."""
        part = self.part(name)
        return self.memory[part.offset : part.offset + part.length]

    def verified(self, name: str, again: bool = False) -> memoryview:
        """The bytes of a member, whose digest holds; `again`: it is compared where it is known."""
        view = self.view(name)
        if (again or not self.known) and sha256(view).hexdigest() != self.part(name).digest:
            raise self.fail(f"'{name}' is not what was saved")
        return view

    def check(self, name: str) -> None:
        """Raise ArtefactError for a member that is damaged; a large one by its checksum."""
        saved = self.part(name).checksum
        if not saved:
            self.verified(name)
        elif not self.known and checksum(self.view(name)) != saved:
            raise self.fail(f"'{name}' is not what was saved")

    def part(self, name: str) -> Part:
        """Where a member is."""
        if name not in self.parts:
            raise self.fail(f"there is no '{name}' in it")
        return self.parts[name]

    def _copy(self) -> mmap.mmap:
        memory = mmap.mmap(-1, self.length)
        view, at = memoryview(memory), 0
        while at < self.length:
            read = self.file.readinto(view[at:])
            if not read:
                raise self.fail("it became shorter while it was read")
            at += read
        return memory

    def _read(self) -> tuple[dict[str, Any], dict[str, Part]]:
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
            raise self.fail("its first header is not what was saved")
        *_, digest, saved = OWN.unpack(own)
        if saved != self.length:
            raise self.fail(f"it has {self.length} bytes, and {saved} were saved")
        text = bytes(self.memory[start : start + length])
        if method or length > _LONGEST_MANIFEST or sha256(text).digest() != digest:
            raise self.fail("its manifest is not what was saved")
        return parse_json(text)

    def _part(self, name: str, row: Any) -> Part:
        kinds = [int, int, str, str]
        if not isinstance(row, list) or [type(item) for item in row] != kinds:
            raise self.fail(f"its manifest says nothing of '{name[:_LONGEST_NAME]}'")
        offset, length, digest, checksum = row
        inside = 0 <= offset <= self.length and 0 <= length <= self.length - offset
        if not inside or offset % ALIGNMENT or len(name) > _LONGEST_NAME:
            raise self.fail(f"'{name[:_LONGEST_NAME]}' is not inside the file")
        if bool(checksum) != (length > LARGE):
            raise self.fail(f"its manifest says nothing of '{name}'")
        return Part(offset, length, digest, checksum)
