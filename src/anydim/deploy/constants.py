"""The constants of a file that is written: each once, in the layout of the first target."""

from __future__ import annotations

import hashlib

import numpy

from anydim.base.dtypes import from_numpy
from anydim.compiler.native.build import Assembled
from anydim.deploy.checksum import checksum
from anydim.deploy.container import LARGE
from anydim.deploy.saved import Repacking, SavedArray
from anydim.runtime.panels import Packing
from anydim.runtime.unpacking import dense, most_bytes, plain_elements, repack


class Constants:
    """Collects the constants of all versions of a model; `members` are those in the file.

    A large constant that another target reads in another layout is stored once: later versions
    refer to the member of the first one and to both layouts, if the move gives the same bytes.
    """

    def __init__(self, several: bool) -> None:
        self.members: dict[str, memoryview] = {}
        self._several = several
        self._sources: dict[str, tuple[str, Packing | None]] = {}  # by digest of the elements

    def save_constants(self, made: Assembled) -> tuple[SavedArray, ...]:
        """The records of a version's constants."""
        packings = made.packings
        return tuple(self._save_constant(name, array, packings.get(name))
                     for name, array in made.arrays.items())  # fmt: skip

    def _save_constant(
        self, name: str, array: numpy.ndarray, packing: Packing | None
    ) -> SavedArray:
        data = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
        digest = hashlib.sha256(data.data).hexdigest()
        record = SavedArray(name, from_numpy(array.dtype), array.shape, digest)
        if digest in self.members:
            return record
        if self._several and data.size > LARGE:
            found = self._repacking(data, digest, packing, array.dtype)
            if found is not None:
                return SavedArray(record.name, record.dtype, record.shape, digest, found)
        self.members[digest] = data.data
        return record

    def _repacking(
        self, data: numpy.ndarray, digest: str, packing: Packing | None, dtype: numpy.dtype
    ) -> Repacking | None:
        """How to make the constant of a member, if it has one with these elements."""
        alone = None if packing is None else dense(packing)[0]
        elements = plain_elements(data, alone, dtype)
        of_elements = hashlib.sha256(elements.view(numpy.uint8).data).hexdigest()
        if of_elements not in self._sources:
            self._sources[of_elements] = digest, packing
            return None
        source, layout = self._sources[of_elements]
        given, wanted = _both(layout, packing)
        member = numpy.frombuffer(self.members[source], numpy.uint8)
        if data.size > most_bytes(member.size):
            return None
        made = numpy.empty_like(data)
        repack(member, given, wanted, dtype, made)
        if numpy.array_equal(made, data):
            return Repacking(source, given, wanted, checksum(data.data))
        return None


def _both(given: Packing | None, wanted: Packing | None) -> tuple[Packing | None, Packing | None]:
    """Both packings in dense form, described in the same order where both describe one matrix."""
    if given is None or wanted is None:
        return given and dense(given)[0], wanted and dense(wanted)[0]
    first, second = dense(given, wanted)
    return first, second
