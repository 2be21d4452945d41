"""Sources of models, kept for the oracles of `check`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.records import dataclass

if TYPE_CHECKING:
    from anydim.lang.surface.syntax import Definition

LARGEST_KEPT = 32 * 2**20  # bytes of a model in memory that is kept for a check


@dataclass(frozen=True)
class ModelFile:
    """An ONNX model as given: a path, the bytes of a file, or a ModelProto."""

    source: Any
    counted = False  # whether values in tensors determine trip counts

    def bytes(self) -> Any:
        """The argument for onnxruntime: a path, to find external data, or bytes."""
        if hasattr(self.source, "SerializeToString"):
            return self.source.SerializeToString()
        data = isinstance(self.source, (bytes, bytearray, memoryview))
        return bytes(self.source) if data else str(self.source)


@dataclass(frozen=True)
class DefinitionCall:
    """A definition, and the attributes that it was compiled with."""

    definition: Definition
    attributes: Mapping[str, Any]

    @property
    def counted(self) -> bool:
        """Whether values in tensors determine trip counts."""
        found: bool = import_module("anydim.lang.surface.trip_counts").counts_trips(self.definition)
        return found


Origin = ModelFile | DefinitionCall | None
