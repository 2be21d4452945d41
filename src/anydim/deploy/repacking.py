"""Constants that a file stores in the layout of another processor: moved once, then mapped.

    packed/XX/KEY      the moved constants of a model, one after the other; KEY names their digests

The file in the cache is mapped, so processes share it. It is compared with the checksums in the
saved model, as constants in that are; a damaged one is made again. Without a usable cache, each
process holds a copy.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy

from anydim.base.cache import DiskCache, disk_cache, key_of
from anydim.base.cache_folder import is_there, keep, map_file, remove, used
from anydim.base.digest import sha256
from anydim.base.errors import ArtefactError
from anydim.base.locks import lock_path
from anydim.base.records import dataclass
from anydim.deploy.checksum import checksum
from anydim.deploy.container import ALIGNMENT, Container
from anydim.deploy.saved import SavedArray, constant_member
from anydim.deploy.verifying import Check
from anydim.runtime.cores import available_cores
from anydim.runtime.pages import block
from anydim.runtime.unpacking import most_bytes, repack

_LONGEST_WAIT = 60.0  # seconds to wait for another process that moves the same constants


@dataclass(frozen=True)
class _PackedConstant:
    """A constant, with its offset among all that are moved."""

    saved: SavedArray
    offset: int


def repacked_constants(
    container: Container, saved: Sequence[SavedArray], how: str, late: Collection[str]
) -> tuple[dict[str, numpy.ndarray], list[Check]]:
    """The moved constants by name, and the checks that remain for the first calls.

    `how` is a kind of verification, `late` the digests of what is verified later. Raises
    ArtefactError for a damaged constant, and for records that do not match.
    """
    wanted = [each for each in saved if each.repacking is not None]
    table = _Table(container, _place_constants(wanted))
    memory = None if container.copied else table.share_memory(how, late)
    checks: list[Check] = []
    if memory is None:
        memory = table.private()
    elif how == "auto":
        checks = [partial(table.check_later, memory, each) for each in table.moved
                  if each.saved.digest in late]  # fmt: skip
    offsets = {each.saved.digest: each.offset for each in table.moved}
    return {each.name: _array(memory, offsets[each.digest], each) for each in wanted}, checks


def _place_constants(wanted: Sequence[SavedArray]) -> list[_PackedConstant]:
    """Each constant once, aligned."""
    placed, at = [], 0
    for each in {each.digest: each for each in wanted}.values():
        placed.append(_PackedConstant(each, at))
        at += -(-each.bytes // ALIGNMENT) * ALIGNMENT
    return placed


def _array(memory: Any, offset: int, saved: SavedArray) -> numpy.ndarray:
    found = numpy.frombuffer(memory, numpy.uint8, saved.bytes, offset)
    return found.view(saved.dtype.numpy).reshape(saved.shape)


class _Table:
    """The constants to move, and the memory that they are moved to."""

    def __init__(self, container: Container, moved: Sequence[_PackedConstant]) -> None:
        self.container, self.moved = container, moved
        self.size = sum(-(-each.saved.bytes // ALIGNMENT) * ALIGNMENT for each in moved)
        self._path = ""
        for each in moved:
            if each.saved.bytes > most_bytes(len(self._source(each))):
                raise container.fail(f"constant '{each.saved.name}' does not match the records")

    def share_memory(self, how: str, late: Collection[str]) -> Any:
        """The verified memory of the file in the cache, which is made if needed; None without."""
        cache = disk_cache("packed")
        if cache is None:
            return None
        self._path = path = cache.path(key_of("packed 1", *(m.saved.digest for m in self.moved)))
        found = map_file(path, self.size)
        if found is not None:
            damaged = next((m for m in self.moved if not self._is_right(found, m, how, late)), None)
            if damaged is None:
                used(path)
                return found
            cache.discard_damaged(path, damaged.saved.name)
        elif is_there(path):
            cache.discard_damaged(path, "its size")
        return self._make_file(cache, path)

    def _make_file(self, cache: DiskCache, path: str) -> Any:
        """The memory of a new file, or of one that another process has just made."""
        if not cache.admits(self.size):
            return None
        with lock_path(f"{path}.lock", lambda: is_there(path), _LONGEST_WAIT):
            if not is_there(path):
                keep(cache.root, path, self._write)
                cache.tidy()
        return map_file(path, self.size)

    def private(self) -> memoryview:
        """The constants in memory of this process."""
        memory = block(self.size)

        def move(moved: Iterable[_PackedConstant]) -> None:
            for each in moved:
                self._move(each, memory[each.offset : each.offset + each.saved.bytes])

        self._share(move)
        return memory.data.toreadonly()

    def check_later(self, memory: Any, moved: _PackedConstant) -> None:
        """Raise ArtefactError if the file in the cache is damaged; removes it."""
        if not self._is_right(memory, moved, "checksums", ()):
            remove(self._path)
            problem = f"'{moved.saved.name}' in {self._path} does not match its checksum"
            raise ArtefactError(
                f"{self.container.path}: {problem}",
                "the file in the cache is removed: load the model again",
            )

    def _is_right(
        self, memory: Any, moved: _PackedConstant, how: str, late: Collection[str]
    ) -> bool:
        """Whether a constant in the cache is not damaged, or is verified later."""
        view = memoryview(memory)[moved.offset : moved.offset + moved.saved.bytes]
        if how == "digests":
            return sha256(view).hexdigest() == moved.saved.digest
        return moved.saved.digest in late or checksum(view) == _sum(moved)

    def _write(self, name: str) -> None:
        with open(name, "r+b", buffering=0) as file:
            file.truncate(self.size)

            def move(moved: Iterable[_PackedConstant]) -> None:
                scratch = block(max(each.saved.bytes for each in self.moved))
                for each in moved:
                    self._move(each, scratch[: each.saved.bytes])
                    _write_at(file.fileno(), scratch[: each.saved.bytes], each.offset)

            self._share(move)

    def _share(self, move: Callable[[Iterable[_PackedConstant]], None]) -> None:
        """Move constants in one thread per core."""
        left, problems = iter(self.moved), []

        def work() -> None:
            try:
                move(left)  # whose steps are atomic
            except (ArtefactError, OSError, MemoryError) as problem:
                problems.append(problem)

        threads = [threading.Thread(target=work, name="anydim repack", daemon=True)
                   for _ in range(min(available_cores(), len(self.moved)) - 1)]  # fmt: skip
        started = []
        for thread in threads:
            try:
                thread.start()
            except RuntimeError:  # the system cannot start a thread
                break
            started.append(thread)
        work()
        for thread in started:
            thread.join()
        if problems:
            raise problems[0]

    def _move(self, moved: _PackedConstant, into: numpy.ndarray) -> None:
        """Write a constant in its own layout; ArtefactError if it is not the one that was saved."""
        saved, how = moved.saved, moved.saved.repacking
        assert how is not None
        data = numpy.frombuffer(self._source(moved), numpy.uint8)
        repack(data, how.given, how.wanted, saved.dtype.numpy, into)
        if checksum(into.data) != how.checksum:
            name = constant_member(how.source)
            raise self.container.fail(f"'{name}' does not match its checksum")

    def _source(self, moved: _PackedConstant) -> memoryview:
        assert moved.saved.repacking is not None
        return self.container.view(constant_member(moved.saved.repacking.source))


def _sum(moved: _PackedConstant) -> str:
    assert moved.saved.repacking is not None
    return moved.saved.repacking.checksum


def _write_at(handle: int, data: numpy.ndarray, at: int) -> None:
    """Write bytes at an offset. Raises OSError."""
    view = data.data
    while view:
        count = os.pwrite(handle, view, at)
        view, at = view[count:], at + count
