"""What an engine is to a program: ONNX models made ready, and runs of them on memory that is ours.

    engine = open_engine("onnxruntime")
    part = engine.load(model, inputs, outputs, threads=2)
    made = part.run([Tensor(address, float32, (3, 4))], [None])

A wanted result is a Tensor: the engine writes there. None: the engine finds its sizes, and keeps it
where it likes; what comes back for it is where it lies, as long as `made` is held.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy

from anydim.base.dtypes import DType
from anydim.base.errors import DeviceError, DeviceMemoryError, UserError
from anydim.base.records import dataclass
from anydim.runtime.delegated import Port


class Tensor(NamedTuple):
    """Memory of the program: contiguous elements."""

    address: int
    dtype: DType
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True)
class Found:
    """A result whose sizes the engine found; it lies at `address` as long as `keep` is held."""

    address: int
    shape: tuple[int, ...]
    keep: Any


class Part(ABC):
    """A model that an engine has made ready. Several threads may run it at once."""

    @abstractmethod
    def run(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor | None]
    ) -> Sequence[Found | None]:
        """Run it; what was not wanted anywhere comes back. Whatever the engine raises is raised."""


class Engine(ABC):
    """An engine that is installed; `name` is what it is asked for by."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """The version that is installed."""

    def load(
        self, model: bytes, inputs: Sequence[Port], outputs: Sequence[Port], threads: int
    ) -> Part:
        """Make an ONNX model ready for `threads` threads.

        Raises DeviceError, with the engine's own text inside, for one that it does not take.
        """
        part: Part = self.told("load", lambda: self._load(model, inputs, outputs, threads))
        return part

    @abstractmethod
    def holds(self, dtype: DType) -> bool:
        """Whether tensors of a type can go in and come out."""

    def check(self, model: bytes) -> None:
        """Raise DeviceError, with the engine's own text inside, for a model that it does not
        take; faster than `load`."""
        self.told("check", lambda: self._check(model))

    @abstractmethod
    def _check(self, model: bytes) -> None: ...

    @abstractmethod
    def _load(
        self, model: bytes, inputs: Sequence[Port], outputs: Sequence[Port], threads: int
    ) -> Part: ...

    def told(self, verb: str, work: Callable[[], Any], where: str = "") -> Any:
        """What some work of the engine gives; what it raises becomes an error of ours."""
        try:
            return work()
        except UserError:
            raise
        except MemoryError as error:
            raise DeviceMemoryError(
                f"{where}engine '{self.name}': no memory to {verb}: {error}", "use smaller inputs"
            ) from None
        except Exception as error:  # engines have exceptions of their own, with no common base
            raise DeviceError(
                f"{where}engine '{self.name}': {verb} failed: {_text(error)}",
                "mend the input, or let anydim compile that part: placement={...: 'cpu'}",
            ) from error


def _text(error: Exception) -> str:
    """What an engine says, on one line and not without end."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 600


def view(tensor: Tensor) -> numpy.ndarray:
    """The elements of a tensor as bytes of its memory."""
    if not tensor.bytes:
        return numpy.empty(0, numpy.uint8)
    memory = (ctypes.c_uint8 * tensor.bytes).from_address(tensor.address)
    return numpy.frombuffer(memoryview(memory), numpy.uint8)
