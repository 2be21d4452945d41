"""The compiled model of a session, from the last session of the same file where there was one."""

from __future__ import annotations

from collections.abc import Iterator

from anydim.base.reports import reported
from anydim.entry import compile
from anydim.frontends.onnx.file.reading import Opened
from anydim.kept import kept
from anydim.program.held import Held


@reported
def compiled(model: Opened, threads: int) -> Held:
    """The model; raises what `anydim.compile` raises. One with data in other files is made anew."""
    if any(tensor.data_location for tensor in model.proto.graph.initializer):
        return compile(model, threads=threads)
    return kept(_parts(model, threads), lambda: compile(model, threads=threads))


def _parts(model: Opened, threads: int) -> Iterator[str | memoryview]:
    """The file, as far as it matters, and the threads."""
    yield f"{model.name} {threads}"
    yield memoryview(model.proto.SerializeToString(deterministic=True))
    for number, read in sorted(model.weights.items()):
        yield str(number)
        yield read().data.cast("B")
