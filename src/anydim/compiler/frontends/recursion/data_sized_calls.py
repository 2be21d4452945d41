"""Calls of operators whose results have a size that data decides: `y = compress(x, keep)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends import data_sized
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.graph.nodes import Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import REGION, SIZES, Sizes
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Size

RESULTS = {"nonzero": 1, "compress": 1, "unique": 4}


def data_sized_call(
    emitter: Emitter, name: str, stem: str, given: Sequence[str], attributes: Mapping[str, Any]
) -> list[str]:
    """Emit a call; returns its results. Raises GraphError or TypeError for wrong arguments.

    `stem` is the first part of the name of the new dim.
    """
    makes, made = _Makes(emitter, stem), _CALLS[name]
    return list(made(makes, *given, **attributes))


def _nonzero(makes: _Makes, x: str) -> Sequence[str]:
    return [data_sized.nonzero(makes, x)]


def _compress(makes: _Makes, x: str, condition: str, *, axis: int | None = None) -> Sequence[str]:
    return [data_sized.compress(makes, x, condition, axis)]


def _unique(
    makes: _Makes, x: str, *, axis: int | None = None, sorted: bool = True
) -> Sequence[str]:
    return data_sized.unique(makes, x, axis, sorted)


_CALLS: dict[str, Callable[..., Sequence[str]]] = {
    "nonzero": _nonzero, "compress": _compress, "unique": _unique,
}  # fmt: skip


class _Makes:
    """Adds nodes and dims to a graph under construction."""

    def __init__(self, emitter: Emitter, stem: str) -> None:
        self.emitter, self.stem = emitter, stem

    @property
    def box(self) -> Box:
        return self.emitter.box

    def kind(self, value: str) -> TensorType:
        return self.emitter.types[value]

    def emit(self, name: str, /, *inputs: str, **attributes: Any) -> str:
        return self.emit_many(name, 1, *inputs, **attributes)[0]

    def emit_many(self, name: str, results: int, /, *inputs: str, **attributes: Any) -> list[str]:
        emitter = self.emitter
        complete = operator(name).complete(attributes)
        kinds = operator(name).infer([emitter.types[each] for each in inputs], complete, self.box)
        made = []
        for kind in kinds:
            made.append(emitter.fresh(name))
            emitter.types[made[-1]] = kind
        emitter.node(Node(name, inputs, tuple(made), complete, emitter.source), kinds)
        return made

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        name = f"{self.stem}.{stem}"
        while name in self.box.names:
            name = f"{name}_"
        self.emitter.box = self.box.also(Dim(name, low, high))
        return Size.symbol(name)

    def constrain(self, *sizes: Size) -> None:
        self.emitter.box = self.box.also(constraints=sizes)

    def find(self, value: str, dims: Sequence[Size]) -> None:
        region = FrozenMapping({REGION: Sizes(tuple(map(str, dims)))})
        self.emitter.node(Node(SIZES, (value,), (), region, self.emitter.source), ())
