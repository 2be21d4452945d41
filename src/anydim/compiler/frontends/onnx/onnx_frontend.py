"""ONNX models as sources."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.user_values import absolute
from anydim.compiler.frontends.frontend import Frontend, is_instance
from anydim.compiler.frontends.origins import LARGEST_KEPT, ModelFile, Origin

if TYPE_CHECKING:
    import numpy

    from anydim.compiler.frontends.onnx.file.reading import Opened
    from anydim.compiler.graph.derivations import Weight
    from anydim.compiler.graph.nodes import Graph
    from anydim.sizes import Dim


class OnnxFrontend(Frontend):
    """The path of an ONNX file, its bytes, an onnx.ModelProto, or a decoded model (`Opened`).

    Paths that no other frontend recognises are ONNX files, whatever their suffix.
    """

    title = "an ONNX model"
    accepts = ("the path of an ONNX file", "its bytes", "an onnx.ModelProto")
    takes_operators = True
    runs_elsewhere = True

    def recognises(self, source: Any) -> bool:
        if isinstance(source, (str, os.PathLike, bytes, bytearray)):
            return True
        is_proto = hasattr(source, "SerializeToString") and hasattr(source, "graph")
        return is_proto or is_instance(
            source, "anydim.compiler.frontends.onnx.file.reading", "Opened"
        )

    def contents(self, source: Any) -> bytes | memoryview | None:
        if isinstance(source, (bytes, bytearray)):
            return memoryview(source)
        kind = type(source)
        if kind.__module__.partition(".")[0] == "onnx" and kind.__name__ == "ModelProto":
            with suppress(ValueError):  # larger than a message may be
                serialised: bytes = source.SerializeToString(deterministic=True)
                return serialised
        return None

    def read(
        self, source: Any, dims: Mapping[str, Dim], operators: Any, fallback: bool
    ) -> Graph:  # fmt: skip
        known = import_module("anydim.compiler.frontends.custom").operators_of(operators)
        importer = import_module("anydim.compiler.frontends.onnx.importer")
        graph: Graph = importer.import_model(source, dims, known, fallback)
        return graph

    def open_model(
        self, source: Any, operators: Any, external_data: str | None
    ) -> Opened | None:  # fmt: skip
        if operators is not None:
            import_module("anydim.compiler.frontends.custom").operators_of(operators)
        return _opened(source, external_data)

    def weights(self, source: Any, graph: Graph) -> tuple[Sequence[Weight], str]:
        if not hasattr(source, "tracked") or _reads_external_nodes(source):
            return (), ""
        return [*source.tracked.values()], source.structure()

    def with_weights(self, source: Any, arrays: Mapping[str, numpy.ndarray], options: Any) -> Any:
        opened = self.open_model(source, options.operators, options.external_data)
        module = import_module("anydim.compiler.frontends.onnx.file.reading")
        return module.with_weights(opened, arrays)

    def delegate(self, source: Any, dims: Mapping[str, Dim], why: str) -> Graph | None:
        importer = import_module("anydim.compiler.frontends.onnx.importer")
        graph: Graph = importer.import_foreign(source, dims, why)
        return graph

    def soft_bounds(
        self, source: Any, dims: Mapping[str, Dim], highs: Mapping[str, int]
    ) -> Mapping[str, int]:
        if not highs:
            return {}
        opened, module = _opened(source), import_module("anydim.compiler.frontends.onnx.file.dims")
        names = module.DimNames(opened.name, dims)
        names.read(module.input_shapes(opened.proto.graph))
        owns = {name: names.find(name) for name in highs}
        return {own: highs[name] for name, own in owns.items() if isinstance(own, str)}

    def origin(self, source: Any) -> Origin:
        """The model if oracles support it; in memory, LARGEST_KEPT bytes at most."""
        if isinstance(source, (str, os.PathLike)):
            return ModelFile(absolute(source))
        if isinstance(source, (bytes, bytearray)):
            return ModelFile(source) if len(source) <= LARGEST_KEPT else None
        if hasattr(source, "ByteSize") and hasattr(source, "graph"):
            return ModelFile(source) if source.ByteSize() <= LARGEST_KEPT else None
        return None


def _reads_external_nodes(opened: Opened) -> bool:
    """Whether external data are read by nodes, whose contents no structure has."""
    if opened.folder is None or not opened.folder.has_data:
        return False
    tensors = import_module("anydim.compiler.frontends.onnx.file.tensors")
    found: bool = tensors.has_external_nodes(opened.proto)
    return found


def _opened(source: Any, external_data: str | None = None) -> Opened:
    reading = import_module("anydim.compiler.frontends.onnx.file.reading")
    opened: Opened = reading.open_model(source, external_data)
    return opened
