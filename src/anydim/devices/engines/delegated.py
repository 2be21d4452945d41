"""Parts that engines run as host code reaches them: a C function of two int64s for each.

It reads the words of a part (`runtime/delegated.py`) and never raises: it returns 1, and what was
raised is kept for the thread, which asks for it when the call has ended.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import int64
from anydim.devices.engines.engine import Engine, Found, Part, Tensor
from anydim.runtime.delegated import RUN, HandedPart, Port

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_WORD = 8  # bytes


class HandedParts:
    """The parts of a program, loaded by their engines; `arrays` hold their models."""

    def __init__(
        self, parts: Sequence[HandedPart], engines: Mapping[str, Engine],
        arrays: Mapping[str, numpy.ndarray], threads: int,
    ) -> None:  # fmt: skip
        """Raises DeviceError for a part that its engine does not take."""
        self._kept = threading.local()
        self._models = {part.model: arrays[part.model] for part in parts}
        self._runs = [
            _Run(part, engines[part.engine], self.model(part.model), threads, self._kept)
            for part in parts
        ]

    def functions(self) -> Iterator[tuple[int, int]]:
        """The word of each part's function, and the function's address."""
        for run in self._runs:
            yield run.part.function, run.address

    def model(self, name: str) -> bytes:
        """The ONNX model of a part, by the name of the constant that it is."""
        return self._models[name].tobytes()

    def begin(self) -> None:
        """Forget what a part has raised in this thread, and what it has found."""
        self._kept.error, self._kept.found = None, {}

    def raise_kept(self) -> None:
        """Raise what a part has raised last in this thread in this call, if anything."""
        error: BaseException | None = getattr(self._kept, "error", None)
        self.begin()
        if error is not None:
            raise error


class _Run:
    """A part with the function that runs it."""

    def __init__(
        self, part: HandedPart, engine: Engine, model: bytes, threads: int, kept: threading.local
    ) -> None:
        self.part, self.engine, self.kept = part, engine, kept
        vectors = [Port(name, int64, 1) for name, _ in part.vectors]
        self.loaded: Part = engine.load(model, [*part.inputs, *vectors], part.outputs, threads)
        self.where = f"{part.source}: " if part.source else ""
        self._words = ctypes.c_int64 * part.words
        self._function = _FUNCTION(self._call)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _call(self, address: int, what: int) -> int:
        try:
            work = self._run if what == RUN else self._fetch
            self.engine.told("run", lambda: work(address), self.where)
            return 0
        except BaseException as error:  # it must not go into native code
            self.kept.error = error
            return 1

    def _run(self, address: int) -> None:
        words = self._words.from_address(address)
        given, place = _tensors(words, self.part.inputs, 0)
        for _, count in self.part.vectors:
            given.append(Tensor(address + _WORD * place, int64, (count,)))
            place += count
        first = place
        wanted, place = _tensors(words, self.part.outputs, place)
        made = self.loaded.run(given, [each if each.address else None for each in wanted])
        for port, found in zip(self.part.outputs, made):
            if found is not None:
                _tell(words, first, port, found)
            first += 1 + port.rank
        if any(made):
            self.kept.found[address] = made

    def _fetch(self, address: int) -> None:
        """Copy what was found to where it is wanted."""
        words = self._words.from_address(address)
        outputs, _ = _tensors(words, self.part.outputs, self._first_output())
        for tensor, found in zip(outputs, self.kept.found.pop(address)):
            if found is not None and tensor.bytes:
                ctypes.memmove(tensor.address, found.address, tensor.bytes)

    def _first_output(self) -> int:
        outputs = sum(1 + port.rank for port in self.part.outputs)
        return self.part.words - outputs


def _tensors(words: Any, ports: Sequence[Port], place: int) -> tuple[list[Tensor], int]:
    """The tensors that words say, from a place on; the place behind them."""
    found = []
    for port in ports:
        end = place + 1 + port.rank
        found.append(Tensor(words[place], port.dtype, tuple(words[place + 1 : end])))
        place = end
    return found, place


def _tell(words: Any, place: int, port: Port, found: Found) -> None:
    if len(found.shape) != port.rank:
        raise ValueError(f"output '{port.name}' has {len(found.shape)} axes, expected {port.rank}")
    words[place + 1 : place + 1 + port.rank] = list(found.shape)
