"""Compiles the model of a session, or reuses that of an earlier session of the same file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anydim.api.compile_options import Options
from anydim.api.entry import compile
from anydim.api.program_cache import load_or_compile
from anydim.base.reports import report_unexpected
from anydim.compiler.frontends.onnx.file.reading import Opened
from anydim.compiler.frontends.onnx.file.tensors import is_external
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.threads import known_threads


@report_unexpected
def compile_or_load(model: Opened, options: Options, path: str | None) -> CallableProgram:
    """Compile a model or reuse it; raises the errors of `anydim.compile`.

    `path` is that of the unmodified file, if there is one; a model with external data, or with
    other options than threads, is then cached by `anydim.compile`.
    """
    threads = known_threads(options.threads)
    if options != Options(threads=options.threads) or has_external_data(model.proto):
        return compile(model if path is None else path, options=options)
    return load_or_compile(_parts(model, threads), lambda: compile(model, options=options))


def has_external_data(proto: Any) -> bool:
    """Whether a tensor anywhere in a model is stored in another file."""
    waiting: list[Any] = [proto.graph, *proto.functions]
    while waiting:
        part = waiting.pop()
        tensors = list(getattr(part, "initializer", ()))
        sparse = list(getattr(part, "sparse_initializer", ()))
        attributes = [each for node in part.node for each in node.attribute]
        for each in (*attributes, *getattr(part, "attribute_proto", ())):
            tensors += [each.t, *each.tensors]
            sparse += [each.sparse_tensor, *each.sparse_tensors]
            waiting += [each.g, *each.graphs]
        tensors += [tensor for each in sparse for tensor in (each.values, each.indices)]
        if any(map(is_external, tensors)):
            return True
    return False


def _parts(model: Opened, threads: int) -> Iterator[str | memoryview]:
    """The parts of the cache key: the file without external data, and the thread count."""
    yield f"{model.name} {threads}"
    yield memoryview(model.proto.SerializeToString(deterministic=True))
    for number, read in sorted(model.weights.items()):
        yield str(number)
        yield read().data.cast("B")
