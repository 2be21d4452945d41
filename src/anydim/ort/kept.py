"""The compiled model of a session, reused from an earlier session of the same file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anydim.base.reports import reported
from anydim.entry import compile
from anydim.frontends.onnx.file.reading import Opened
from anydim.model_store import kept
from anydim.program.callable_program import CallableProgram


@reported
def compiled(model: Opened, threads: int, path: str | None) -> CallableProgram:
    """Compile a model or reuse it; raises the errors of `anydim.compile`.

    `path` is that of the unmodified file, if there is one; a model with external data is then
    cached by the contents of the data files.
    """
    if has_external_data(model.proto):
        return compile(model if path is None else path, threads=threads)
    return kept(_parts(model, threads), lambda: compile(model, threads=threads))


def has_external_data(proto: Any) -> bool:
    """Whether a tensor anywhere in a model is stored in another file."""
    waiting: list[Any] = [proto.graph, *proto.functions]
    while waiting:
        part = waiting.pop()
        tensors = list(getattr(part, "initializer", ()))
        for node in part.node:
            for attribute in node.attribute:
                tensors += [attribute.t, *attribute.tensors]
                waiting += [attribute.g, *attribute.graphs]
        if any(tensor.data_location for tensor in tensors):
            return True
    return False


def _parts(model: Opened, threads: int) -> Iterator[str | memoryview]:
    """The parts of the cache key: the file without external data, and the thread count."""
    yield f"{model.name} {threads}"
    yield memoryview(model.proto.SerializeToString(deterministic=True))
    for number, read in sorted(model.weights.items()):
        yield str(number)
        yield read().data.cast("B")
