"""The records of a file for one kind of processor, without code and constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anydim.base.digest import sha256
from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.runtime.cpu import Level
from anydim.runtime.interface import Interface
from anydim.runtime.lists import Listed, RaggedPort, StructurePort
from anydim.runtime.panels import BytesPanels, NarrowPanels, Panels
from anydim.runtime.program.variants import StoredSite
from anydim.runtime.signature import Signature


@dataclass(frozen=True)
class Repacking:
    """How a constant is made from another member of the file: the layouts of both, if packed.

    The packings are dense (`runtime/unpacking.py`); `checksum` is that of the result.
    """

    source: str
    given: Panels | BytesPanels | NarrowPanels | None
    wanted: Panels | BytesPanels | NarrowPanels | None
    checksum: str


@dataclass(frozen=True)
class SavedArray:
    """A constant: its name in the records, and its digest.

    It is a member of the file with this digest, or made from another one when it is loaded.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    digest: str
    repacking: Repacking | None = None

    @property
    def bytes(self) -> int:
        """Size of the array in bytes."""
        count = self.dtype.bytes
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class SavedDevice:
    """The code for a device of the program, by its name, compiled by a target.

    `modules` are the modules of its objects, in the order of their members; without modules, its
    kernels are entries of the host's code, after those of the interface. Scratch memory is sized
    for `workers`.
    """

    name: str
    target: str
    modules: tuple[str, ...] = ()
    workers: int = 1


@dataclass(frozen=True)
class Saved:
    """The records for calls of a loaded program; `program_reports.py` has those for explanations.

    The entries of the code are the symbols of the interface, in order, then the symbols of devices,
    then the symbols of specialised variants.
    """

    level: Level
    signature: Signature
    interface: Interface
    threads: int
    arrays: tuple[SavedArray, ...]
    lists: Mapping[str, Listed | RaggedPort | StructurePort] = field(default_factory=dict)
    devices: tuple[SavedDevice, ...] = ()
    places: tuple[StoredSite, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The entries of the host's code."""
        inside = {device.name for device in self.devices if not device.modules}
        others = (each.symbols for each in self.interface.devices if each.name in inside)
        bodies = (s for site in self.places for body in site.bodies for s in body.symbols)
        return tuple(dict.fromkeys((*self.interface.symbols, *sum(others, ()), *bodies)))


def stamp(saved: bytes, story: bytes) -> bytes:
    """The digest of the records that an image of code carries."""
    state = sha256(b"anydim records 1\n", len(saved) + len(story))
    for text in (saved, story):
        state.update(len(text).to_bytes(8, "little"))
        state.update(text)
    return state.digest()


def member(level: str, what: str) -> str:
    """The name of a member of a level: 'start.json', 'story.json' or 'code'."""
    return f"levels/{level}/{what}"


def device_member(level: str, device: int, module: int) -> str:
    """The name of an object for a device; both are numbers."""
    return f"levels/{level}/devices/{device}/{module}"


def constant_member(digest: str) -> str:
    """The name of a constant's member."""
    return f"constants/{digest}"
