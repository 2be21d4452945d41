"""The file of a saved program: a ZIP archive of stored members, each aligned, each with a digest.

    manifest.json         what there is: names, offsets, lengths and SHA-256 digests of all members
    levels/NAME/...       records and code for a kind of processor
    constants/DIGEST      packed constants, each once

The manifest comes first; its own digest and the number of this format stand in its ZIP header, so
that nothing but the manifest tells a reader where something is. Tools for ZIP archives list and
unpack such a file. `archive.py` writes it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import weakref
from typing import Any

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass
from anydim.deploy.records import parse_json

FORMAT = 5  # to be raised with every change of what files hold
MANIFEST = "manifest.json"
ALIGNMENT = 64  # of every member; constants lie in memory so
_LONGEST_NAME = 200
_MOST_MEMBERS = 1 << 16
_OTHERS = "ad.compile takes an ONNX file; what it gives has a method `save`"
_LONGEST_MANIFEST = 1 << 24

LOCAL = struct.Struct("<4sHHHHHIIIHH")  # the header of a member
OWN = struct.Struct("<HHI32s")  # our field of the first header: its id, its length, format, digest
OWN_ID = 0x6461


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
    """A part of a file that there is."""

    offset: int
    length: int
    digest: str


class Container:
    """An open file: its manifest, and its members as views of memory shared by all processes."""

    def __init__(self, path: str) -> None:
        """Raises ArtefactError where the file cannot be read or is none of this format."""
        self.path = path
        try:
            self.file = open(path, "rb")  # noqa: SIM115  open as long as code may be mapped from it
            weakref.finalize(self, self.file.close)
            self.length = os.fstat(self.file.fileno()).st_size
            if self.length < LOCAL.size:
                raise ArtefactError(f"{path} is no saved model: it has {self.length} bytes")
            self._memory = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise ArtefactError(f"{path} cannot be mapped: {error}") from None
        self.memory = memoryview(self._memory)
        self.about, self.parts = self._read()

    def fail(self, problem: str) -> ArtefactError:
        """The error for a file that says something that cannot be."""
        hint = "it is damaged, or something else: save the model again"
        return ArtefactError(f"{self.path}: {problem}", hint)

    def view(self, name: str, verify: bool = True) -> memoryview:
        """The bytes of a member, of which the digest holds if they are to be verified."""
        part = self.part(name)
        view = self.memory[part.offset : part.offset + part.length]
        if verify and hashlib.sha256(view).hexdigest() != part.digest:
            raise self.fail(f"'{name}' is not what was saved")
        return view

    def part(self, name: str) -> Part:
        """Where a member is."""
        if name not in self.parts:
            raise self.fail(f"there is no '{name}' in it")
        return self.parts[name]

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
        if magic != b"PK\3\4" or name != MANIFEST.encode() or len(own) != OWN.size:
            raise ArtefactError(f"{self.path} is no model that anydim saved", _OTHERS)
        identity, _, format, digest = OWN.unpack(own)
        if identity != OWN_ID:
            raise ArtefactError(f"{self.path} is no model that anydim saved", _OTHERS)
        if format != FORMAT:
            raise ArtefactError(
                f"{self.path} has format {format}, this version of anydim reads format {FORMAT}",
                "save the model with this version, or load it with the one that made it",
            )
        text = bytes(self.memory[start : start + length])
        if method or length > _LONGEST_MANIFEST or hashlib.sha256(text).digest() != digest:
            raise self.fail("its manifest is not what was saved")
        return parse_json(text)

    def _part(self, name: str, row: Any) -> Part:
        kinds = [int, int, str]
        if not isinstance(row, list) or [type(item) for item in row] != kinds:
            raise self.fail(f"its manifest says nothing of '{name[:_LONGEST_NAME]}'")
        offset, length, digest = row
        inside = 0 <= offset <= self.length and 0 <= length <= self.length - offset
        if not inside or offset % ALIGNMENT or len(name) > _LONGEST_NAME:
            raise self.fail(f"'{name[:_LONGEST_NAME]}' is not inside the file")
        return Part(offset, length, digest)
