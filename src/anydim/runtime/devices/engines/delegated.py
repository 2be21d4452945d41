"""Delegated subgraphs as called by host code: a C function of two int64s each.

It reads the slots of a part (`runtime/delegated.py`) and never raises: on failure it returns 1, and
the exception is stored for the thread, which retrieves it at the end of the call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import int64
from anydim.base.text import axes_text
from anydim.runtime.delegated import RUN, DelegatedPart, Port
from anydim.runtime.devices.engines.engine import Engine, EnginePart, EngineResult, Tensor

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_WORD = 8  # bytes


class LoadedParts:
    """The delegated parts of a program, loaded by their engines; `arrays` contain their models."""

    def __init__(
        self, parts: Sequence[DelegatedPart], engines: Mapping[str, Engine],
        arrays: Mapping[str, numpy.ndarray], threads: int,
    ) -> None:  # fmt: skip
        """Raises DeviceError for a part that its engine rejects."""
        self._kept = threading.local()
        self._models = {part.model: arrays[part.model] for part in parts}
        self._runs = [
            _Run(part, engines[part.engine], self.model(part.model), threads, self._kept)
            for part in parts
        ]

    def functions(self) -> Iterator[tuple[int, int]]:
        """Yield the slot and the address of each part's function."""
        for run in self._runs:
            yield run.part.function, run.address

    def model(self, name: str) -> bytes:
        """Return the ONNX model of a part, by the name of its constant."""
        return self._models[name].tobytes()

    def begin(self) -> None:
        """Clear this thread's stored exception and results."""
        self._kept.error, self._kept.found = None, {}

    def raise_kept(self) -> None:
        """Raise the stored exception of this thread's call, if any."""
        error: BaseException | None = getattr(self._kept, "error", None)
        self.begin()
        if error is not None:
            raise error


class _Run:
    """A part with the function that runs it."""

    def __init__(
        self, part: DelegatedPart, engine: Engine, model: bytes, threads: int, kept: threading.local
    ) -> None:
        self.part, self.engine, self.kept = part, engine, kept
        vectors = [Port(name, int64, 1) for name, _ in part.vectors]
        self.loaded: EnginePart = engine.load(
            model, [*part.inputs, *vectors], part.outputs, threads
        )
        self.where = f"{part.source}: " if part.source else ""
        self._words = ctypes.c_int64 * part.words
        self._function = _FUNCTION(self._call)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _call(self, address: int, what: int) -> int:
        try:
            work = self._run if what == RUN else self._fetch
            self.engine.converting_errors("run", lambda: work(address), self.where)
            return 0
        except BaseException as error:  # must not propagate into native code
            self.kept.error = error
            return 1

    def _run(self, address: int) -> None:
        words = self._words.from_address(address)
        given, index = _tensors(words, self.part.inputs, 0)
        for _, count in self.part.vectors:
            given.append(Tensor(address + _WORD * index, int64, (count,)))
            index += count
        first = index
        outputs, index = _tensors(words, self.part.outputs, index)
        made = self.loaded.run(given, [each if each.address else None for each in outputs])
        for port, found in zip(self.part.outputs, made):
            if found is not None:
                _store_found(words, first, port, found)
            first += 1 + port.rank
        if any(made):
            self.kept.found[address] = made

    def _fetch(self, address: int) -> None:
        """Copy the results with sizes found by the engine to their destinations."""
        words = self._words.from_address(address)
        outputs, _ = _tensors(words, self.part.outputs, self._first_output())
        for tensor, found in zip(outputs, self.kept.found.pop(address)):
            if found is not None and tensor.bytes:
                ctypes.memmove(tensor.address, found.address, tensor.bytes)

    def _first_output(self) -> int:
        outputs = sum(1 + port.rank for port in self.part.outputs)
        return self.part.words - outputs


def _tensors(words: Any, ports: Sequence[Port], index: int) -> tuple[list[Tensor], int]:
    """Parse tensors from slots at an index; returns them and the index after them."""
    found = []
    for port in ports:
        end = index + 1 + port.rank
        found.append(Tensor(words[index], port.dtype, tuple(words[index + 1 : end])))
        index = end
    return found, index


def _store_found(words: Any, index: int, port: Port, found: EngineResult) -> None:
    if len(found.shape) != port.rank:
        raise ValueError(
            f"output '{port.name}' has {axes_text(len(found.shape))}, expected {port.rank}"
        )
    words[index + 1 : index + 1 + port.rank] = list(found.shape)
