"""The engine interface: loads ONNX models and runs them on the memory of a program.

    engine = open_engine("onnxruntime")
    part = engine.load(model, inputs, outputs, threads=2)
    made = part.run([Tensor(address, float32, (3, 4))], [None])

A Tensor as output: the engine writes there. None: the engine determines the sizes and allocates the
result, which is returned and valid while `made` is referenced.
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
        """The number of bytes."""
        return prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True)
class EngineResult:
    """A result with sizes found by the engine, at `address`; valid while `keep` is referenced."""

    address: int
    shape: tuple[int, ...]
    keep: Any


class EnginePart(ABC):
    """A model loaded by an engine; thread-safe."""

    @abstractmethod
    def run(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor | None]
    ) -> Sequence[EngineResult | None]:
        """Run it; returns the results without destination. Exceptions of the engine propagate."""


class Engine(ABC):
    """An installed engine; `name` is its name in `devices=`."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """The installed version."""

    def load(
        self, model: bytes, inputs: Sequence[Port], outputs: Sequence[Port], threads: int
    ) -> EnginePart:
        """Load an ONNX model for `threads` threads.

        Raises DeviceError, with the engine's text, if it rejects the model.
        """
        part: EnginePart = self.converting_errors(
            "load", lambda: self._load(model, inputs, outputs, threads)
        )
        return part

    @abstractmethod
    def holds(self, dtype: DType) -> bool:
        """Whether inputs and outputs may have a type."""

    def check(self, model: bytes) -> None:
        """Raise DeviceError, with the engine's text, if it rejects a model; faster than `load`."""
        self.converting_errors("check", lambda: self._check(model))

    @abstractmethod
    def _check(self, model: bytes) -> None: ...

    @abstractmethod
    def _load(
        self, model: bytes, inputs: Sequence[Port], outputs: Sequence[Port], threads: int
    ) -> EnginePart: ...

    def converting_errors(self, verb: str, work: Callable[[], Any], where: str = "") -> Any:
        """Return the result of some work of the engine, converting exceptions."""
        try:
            return work()
        except UserError:
            raise
        except MemoryError as error:
            raise DeviceMemoryError(
                f"{where}engine '{self.name}': no memory to {verb}: {error}", "use smaller inputs"
            ) from None
        except Exception as error:  # exceptions of engines have no common base
            raise DeviceError(
                f"{where}engine '{self.name}': {verb} failed: {_text(error)}",
                "fix the input, or let anydim compile that part: placement={...: 'cpu'}",
            ) from error


def _text(error: Exception) -> str:
    """Return an engine's error text in one line, shortened."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 600


def view(tensor: Tensor) -> numpy.ndarray:
    """Return a view of a tensor's memory as bytes."""
    if not tensor.bytes:
        return numpy.empty(0, numpy.uint8)
    memory = (ctypes.c_uint8 * tensor.bytes).from_address(tensor.address)
    return numpy.frombuffer(memoryview(memory), numpy.uint8)
