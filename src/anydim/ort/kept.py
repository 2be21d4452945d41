"""The compiled model of a session, from the last session of the same file where there was one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anydim.base.reports import reported
from anydim.entry import compile
from anydim.frontends.onnx.file.reading import Opened
from anydim.model_store import kept
from anydim.program.callable_program import Held


@reported
def compiled(model: Opened, threads: int, path: str | None) -> Held:
    """The model; raises what `anydim.compile` raises.

    `path` is that of the file which the model is as it stands there, if it is one: then a model
    with data in other files is kept by the contents of these.
    """
    if has_external_data(model.proto):
        return compile(model if path is None else path, threads=threads)
    return kept(_parts(model, threads), lambda: compile(model, threads=threads))


def has_external_data(proto: Any) -> bool:
    """Whether a tensor anywhere in a model lies in another file."""
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
    """The file, as far as it matters, and the threads."""
    yield f"{model.name} {threads}"
    yield memoryview(model.proto.SerializeToString(deterministic=True))
    for number, read in sorted(model.weights.items()):
        yield str(number)
        yield read().data.cast("B")
