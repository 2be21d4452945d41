"""Graphs and builders as sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

from anydim.base.errors import DimError, OptionError
from anydim.compiler.frontends.frontend import Frontend, is_instance

if TYPE_CHECKING:
    import numpy

    from anydim.compiler.graph.derivations import Weight
    from anydim.compiler.graph.nodes import Graph
    from anydim.sizes import Dim


class GraphFrontend(Frontend):
    """A `Graph`, or the graph that a `Builder` has built so far."""

    title = "a graph"
    accepts = ("a Builder", "a Graph")
    declares_dims = True

    def recognises(self, source: Any) -> bool:
        return _is_builder(source) or is_instance(source, "anydim.compiler.graph.nodes", "Graph")

    def snapshot(self, source: Any) -> Any:
        return source.graph() if _is_builder(source) else source

    def contents(self, source: Any) -> bytes | memoryview | None:
        if _is_builder(source):
            return None
        found: bytes = import_module("anydim.compiler.graph.text").contents(source)
        return found

    def read(
        self, source: Any, dims: Mapping[str, Dim], operators: Any, fallback: bool
    ) -> Graph:  # fmt: skip
        graph: Graph = self.snapshot(source)
        if dims:
            raise OptionError(
                "dims were given for a graph that declares its own",
                "give bounds where the dims are made: g.dim('n', 0, 128)",
            )
        weight = import_module("anydim.compiler.graph.derivations").Weight
        number = count()

        def own(name: str, array: numpy.ndarray) -> tuple[numpy.ndarray, Weight]:
            return array, weight(next(number), name, array)  # of this compilation alone

        return _change_weights(graph, own)

    def weights(self, source: Any, graph: Graph) -> tuple[Sequence[Weight], str]:
        derivations = import_module("anydim.compiler.graph.derivations")
        return [*derivations.weights_of([*graph.constants.values()])], ""

    def with_weights(self, source: Any, arrays: Mapping[str, numpy.ndarray], options: Any) -> Any:
        weight = import_module("anydim.compiler.graph.derivations").Weight

        def other(name: str, array: numpy.ndarray) -> tuple[numpy.ndarray, Weight]:
            array = arrays.get(name, array)
            return array, weight(0, name, array)

        return _change_weights(self.snapshot(source), other)

    def soft_bounds(
        self, source: Any, dims: Mapping[str, Dim], highs: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Raises OptionError for own dims with upper bounds: the graph was built with them."""
        graph: Graph = self.snapshot(source)
        for dim in graph.box.dims:
            if dim.hi not in (None, dim.lo):
                raise OptionError(
                    f"{graph.name}: dim '{dim.name}' has the bound {dim.hi} and cannot grow",
                    f"g.dim('{dim.name}', {dim.lo}), and its bound to compile: "
                    f"dims={{'{dim.name}': ({dim.lo}, {dim.hi})}}",
                )
        for name in dims:
            try:
                graph.box.dim(name)
            except DimError as error:
                raise OptionError(f"dims: {graph.name}: {error.problem}", error.hint) from None
        return highs


def _change_weights(
    graph: Graph, change: Callable[[str, numpy.ndarray], tuple[numpy.ndarray, Weight]]
) -> Graph:
    """The graph with other constants in place of its named ones.

    A graph that was imported may have constants that are derived from others: it has no weights.
    """
    made: Any = import_module("anydim.compiler.graph.nodes").Constant
    weights_of: Any = import_module("anydim.compiler.graph.derivations").weights_of
    found = {name: weights_of([each]) for name, each in graph.constants.items()}
    is_own = all(graph.constants[n].origin in weights for n, weights in found.items() if weights)
    held = {
        name: each if not found[name]
        else made(*change(getattr(each.origin, "name", ""), each.elements)) if is_own
        else made(each.elements)
        for name, each in graph.constants.items()
    }  # fmt: skip
    return graph.replace(constants=held)


def _is_builder(source: Any) -> bool:
    return is_instance(source, "anydim.compiler.frontends.builder", "Builder")
