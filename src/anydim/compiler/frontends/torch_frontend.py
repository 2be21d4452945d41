"""Programs of torch as sources; torch is imported when one is read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.collector import collector_paused
from anydim.base.missing_package import missing_module
from anydim.base.torch_sources import is_torch
from anydim.compiler.frontends.frontend import Frontend, Prepared

if TYPE_CHECKING:
    from anydim.compiler.graph.nodes import Graph
    from anydim.sizes import Dim


class TorchFrontend(Frontend):
    """An exported program, a file of one, or a module with example arguments."""

    title = "a program of torch"
    accepts = ("a torch.nn.Module with example arguments", "a torch.export.ExportedProgram")

    def recognises(self, source: Any) -> bool:
        return is_torch(source)

    def prepare(self, source: Any, options: Any) -> Prepared:
        """The graph with the state of the program, and a model that keeps it.

        `options.dims` are the example arguments of a module, `dynamic_shapes` its free axes. If no
        precision is given, it is torch's: "bfloat16" with autocast to it, or "medium" products.
        """
        with collector_paused(lasting=True):
            opened = _opening().open_source(source, options.dims, options.dynamic_shapes)
        precision = options.precision or _opening().torch_precision()
        graph_options = options.changed(dims=None, dynamic_shapes=None, precision=precision)
        state = {name: tensor.detach() for name, tensor in opened.state.items()}
        return Prepared(
            opened.graph, graph_options, state=state, written=opened.written,
            complex_names=opened.imported.complex_names,
            structure=(opened.results, opened.spec) if opened.is_structured else None,
        )  # fmt: skip

    def read(
        self, source: Any, dims: Mapping[str, Dim], operators: Any, fallback: bool
    ) -> Graph:  # fmt: skip
        """The graph of an exported program or a file; its state is inputs and results."""
        graph: Graph = _opening().open_source(source, dims).graph
        return graph


def _opening() -> Any:
    """The module that reads programs; a UserError names torch where it is missing."""
    try:
        return import_module("anydim.compiler.frontends.torch.opening")
    except ModuleNotFoundError as error:
        raise missing_module("anydim.compile", error) from error
