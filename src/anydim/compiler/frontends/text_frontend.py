"""Definitions in files as sources: `kernels.tc:matmul`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.frontend import Frontend, Schedules
from anydim.compiler.frontends.origins import DefinitionCall, Origin
from anydim.compiler.frontends.text_source import TextSource, text_source

if TYPE_CHECKING:
    import numpy

    from anydim.compiler.graph.nodes import Graph
    from anydim.sizes import Dim


class TextFrontend(Frontend):
    """A definition of a file in the language."""

    title = "a definition"
    accepts = ("the path of a .tc file with the name of a definition",)
    takes_arguments = True
    is_picklable = True

    def recognises(self, source: Any) -> bool:
        return text_source(source) is not None

    def read(
        self, source: Any, dims: Mapping[str, Dim], operators: Any, fallback: bool
    ) -> Graph:  # fmt: skip
        graph: Graph = _texts().text_graph(_source_of(source), dims)
        return graph

    def schedules(self, source: Any) -> Schedules:
        return Schedules(*_texts().text_options(_source_of(source)))

    def ragged(self, source: Any) -> Mapping[str, str] | None:
        return _texts().definition_of(_source_of(source)).ragged or None

    def origin(self, source: Any) -> Origin:
        return DefinitionCall(*_texts().text_call(_source_of(source)))

    def with_arguments(
        self, source: Any, attributes: Mapping[str, str], types: Mapping[str, str],
        arrays: Mapping[str, numpy.ndarray],
    ) -> Any:  # fmt: skip
        named = _source_of(source)
        parameters = _texts().definition_of(named).parameters if arrays else ()
        names = [parameter.name for parameter in parameters]
        only = names[0] if len(names) == 1 else ""
        found = {name or only: array for name, array in arrays.items()}
        return replace(
            named,
            attributes=FrozenMapping(attributes),
            types=FrozenMapping(types),
            arrays=FrozenMapping({name: found[name] for name in found if name in names}),
        )


def _source_of(source: Any) -> TextSource:
    found = text_source(source)
    assert found is not None
    return found


def _texts() -> Any:
    return import_module("anydim.compiler.frontends.text")
