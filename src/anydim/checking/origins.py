"""Sources of models, kept for the oracles of `check`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from anydim.base.records import dataclass
from anydim.checking.oracle import NoAnswer, first_line
from anydim.lang.surface.syntax import (
    CallTerm,
    Definition,
    Flat,
    LoopBlock,
    Range,
    Term,
    items,
    walk,
)

LARGEST_KEPT = 32 * 2**20  # bytes of a model in memory that is kept for a check


@dataclass(frozen=True)
class ModelFile:
    """An ONNX model as given: a path, the bytes of a file, or a ModelProto."""

    source: Any

    def proto(self) -> Any:
        """The model; raises NoAnswer if it cannot be read."""
        onnx = import_module("onnx")
        try:
            if isinstance(self.source, (bytes, bytearray, memoryview)):
                return onnx.load_from_string(bytes(self.source))
            return self.source if hasattr(self.source, "graph") else onnx.load(self.source)
        except Exception as error:
            raise NoAnswer(first_line(error)) from None

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
        definition = self.definition
        names = {parameter.name for parameter in definition.parameters}
        for item in items(definition.statements):
            ends: list[Term] = []
            if isinstance(item, LoopBlock):
                ends = [item.start, item.stop]
            for clause in getattr(item, "where", ()):
                ends += [clause.low, clause.high] if isinstance(clause, Range) else []
            if any(_reads(part, names) for end in ends for part in walk(end)):
                return True
        return any(DefinitionCall(callee, {}).counted for callee in definition.callees)


def _reads(term: Term, names: set[str]) -> bool:
    return isinstance(term, (CallTerm, Flat)) or getattr(term, "name", "") in names


Origin = ModelFile | DefinitionCall | None


def origin_of(source: Any) -> Origin:
    """The source of a model if oracles support it; in memory, LARGEST_KEPT bytes at most."""
    if isinstance(source, (str, os.PathLike)):
        return ModelFile(os.path.abspath(os.fspath(source)))
    if isinstance(source, (bytes, bytearray)):
        return ModelFile(source) if len(source) <= LARGEST_KEPT else None
    if hasattr(source, "ByteSize") and hasattr(source, "graph"):
        return ModelFile(source) if source.ByteSize() <= LARGEST_KEPT else None
    return None
