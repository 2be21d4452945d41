"""Programs by structure: a program for other weights is made from a stored one.

    structures/XX/KEY    the keys of the programs of a structure; KEY is the digest of the source
                         without the contents of weights, and of all that a program depends on
                         besides it

A program has the record of how its constants are derived from weights (`RECORD`). They are derived
again from those of the source; code and records are copied. `compiler/graph/derivations.py` says
what makes two sources differ in structure.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.cache import DiskCache, disk_cache, key_of
from anydim.base.cache_folder import is_there
from anydim.base.digest import sha256
from anydim.base.read_files import note_read, open_regular
from anydim.base.records import dataclass
from anydim.deploy.archive import Member
from anydim.deploy.container import Container
from anydim.deploy.exchange import RECORD, SOURCE, rename_source, write_exchanged

if TYPE_CHECKING:
    from anydim.compiler.frontends.onnx.file.structure import StoredWeight, Structure

_MOST = 8  # programs of a structure


class Source:
    """A source with the contents `data`; `request` is the key of all else but its path.

    `follows`: links of its external data may lead anywhere.
    """

    def __init__(
        self, path: str | None, data: bytes | memoryview | None, request: str, follows: bool = False
    ) -> None:  # fmt: skip
        """Raises OSError, or ModelError for invalid external data."""
        self.name = name_of(path)
        data = _contents(path) if path is not None else memoryview(data or b"").cast("B")
        self._file = import_module("anydim.compiler.frontends.onnx.file.structure")
        self._found: Structure | None = self._file.structure_of(data)
        self._files = {"": data}  # by the location of external data
        self._key = ""
        if self._found is None:
            return
        every = [*self._found.weights.values(), *self._found.others.values()]
        places = dict.fromkeys(each.place for each in every if each.place)
        if places and path is None:
            self._found = None
            return
        if places:
            self._files |= _external(path or "", places, follows)
        others = (sha256(self._bytes(each)).hexdigest() for each in self._found.others.values())
        self._key = key_of(
            "structure 4", request, str(path is None), self._found.digest, *others
        )  # fmt: skip

    @property
    def structure(self) -> str:
        """The digest of the source without the contents of weights, '' if it has none."""
        return "" if self._found is None else self._found.digest

    def difference(self, record: Mapping[str, Any]) -> str:
        """What differs from a program's record, in words; the structures are not equal."""
        if self._found is None:
            return "it is no ONNX model with weights"
        mine = {each.name: each for each in self._found.weights.values()}
        rows = {name: (dtype, shape) for _, name, dtype, shape, _ in record["weights"]}
        for name, each in mine.items():
            found = each.dtype.name, [*each.shape]
            if name not in rows:
                return f"initializer '{name}' is new"
            if found != rows[name]:
                dtype, shape = rows[name]
                return f"'{name}' is {each.dtype}{found[1]}, and was {dtype}{shape}"
        return "nodes, or contents that are no weights, differ"

    def keep(self, program: str, record: bytes) -> None:
        """Note that a program, by its key, was compiled from this source."""
        cache = disk_cache("structures")
        if cache is None or self._found is None:
            return
        others = [each for each in _programs(cache, self._key) if each != program]
        cache.put(self._key, json.dumps([program, *others][:_MOST]).encode())

    def exchange_weights(self, programs: DiskCache) -> Iterator[Exchanged]:
        """The stored programs of this structure with the constants of this source.

        Raises ArtefactError for a damaged one.
        """
        cache, found = disk_cache("structures"), self._found
        if cache is None or found is None:
            return
        for program in _programs(cache, self._key):
            path = programs.path(program)
            if not is_there(path):
                continue
            container = Container(path)
            record = bytes(container.verify_member(RECORD))
            whole = json.loads(record)
            arrays = None if self.differing(whole) else derive_again(whole, self.weight)
            if arrays is not None:
                yield Exchanged(container, record, arrays, self.name)

    def differing(self, record: Mapping[str, Any]) -> str:
        """The name of a weight that differs and that decisions of a program depend on, or ''."""
        assert self._found is not None
        held = {**self._found.weights, **self._found.others}
        numbers = {number for number, *_ in record["weights"]}
        for number, stored in self._found.weights.items():
            if number not in numbers:  # the import saw it elsewhere, so nothing compares it
                return stored.name
        for number, name, _, _, digest in record["weights"]:
            if digest and number in held:
                if sha256(self._bytes(held[number])).hexdigest() != digest:
                    return str(name)
        return ""

    def weight(self, number: int) -> Any:
        """The array of a weight."""
        assert self._found is not None
        stored = self._found.weights[number]
        return self._file.read_weight(self._bytes(stored), stored)

    def _bytes(self, stored: StoredWeight) -> memoryview:
        """The content of a tensor. Raises OSError if it is beyond the end of its file."""
        data = self._files[stored.place][stored.span.start : stored.span.stop]
        if len(data) != len(stored.span):
            raise OSError(f"external data at {stored.place!r} are too short")
        return data


def _external(path: str, places: Iterable[str], follows: bool) -> dict[str, memoryview]:
    """The bytes of files of external data by location. Raises ModelError, OSError."""
    data = import_module("anydim.compiler.frontends.onnx.file.data_folder")
    folder, where = data.DataFolder(path, follows), name_of(path)
    found: dict[str, memoryview] = {}
    for place in places:
        data.check_location(place, where)
        with folder.open(place, where) as file:
            found[place] = map_bytes(file)
    return found


@dataclass(frozen=True)
class Exchanged:
    """A stored program, its record, and new constants by name; `name` is that of their source."""

    container: Container
    record: bytes
    arrays: Mapping[str, Any]
    name: str

    @property
    def facts(self) -> Any:
        """The facts of its manifest, with the new name."""
        facts = json.dumps(self.container.about["facts"]).encode()
        return json.loads(rename_source(facts, self.container.about[SOURCE], self.name))

    def save(self, path: str, about: Mapping[str, Any]) -> None:
        """Write its file, with more entries of the manifest. Raises OptionError, ArtefactError."""
        names = self.container.about[SOURCE], self.name
        more, others = {**about, SOURCE: self.name}, [Member(RECORD, self.record)]
        write_exchanged(self.container, path, self.arrays, names, more, others)


def name_of(path: str | None) -> str:
    """The name of a source in texts."""
    return "the model" if path is None else os.path.basename(path)


def derive_again(record: Mapping[str, Any], weight: Callable[[int], Any]) -> Any:
    """The constants of a program by name, as of `compiler/graph/derivation_record.py`."""
    made = import_module("anydim.compiler.graph.derivation_record")
    return made.derive_again(record, weight)


def _programs(cache: DiskCache, key: str) -> list[str]:
    """The keys of the programs of a structure."""
    found = cache.get(key)
    return [] if found is None else json.loads(found)  # verified by its digest


def _contents(path: str) -> memoryview:
    """The bytes of a file, mapped as long as they are used."""
    with open_regular(path) as file:
        note_read(path, os.fstat(file.fileno()))
        return map_bytes(file)


def map_bytes(file: Any) -> memoryview:
    """The bytes of an open file, mapped as long as they are used. Raises OSError."""
    if not os.fstat(file.fileno()).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
