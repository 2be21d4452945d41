"""Programs of torch as sources; torch is imported when one is read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.torch_sources import is_torch
from anydim.frontends.frontend import Frontend

if TYPE_CHECKING:
    from anydim.graph.nodes import Graph
    from anydim.sizes import Dim


class TorchFrontend(Frontend):
    """An exported program, a file of one, or a module with example arguments."""

    title = "a program of torch"
    accepts = ("a torch.export.ExportedProgram",)

    def recognises(self, source: Any) -> bool:
        return is_torch(source)

    def read(
        self, source: Any, dims: Mapping[str, Dim], operators: Any, fallback: bool
    ) -> Graph:  # fmt: skip
        """The graph of an exported program or a file; its state is inputs and results."""
        opening = import_module("anydim.frontends.torch.opening")
        graph: Graph = opening.opened(source, dims).graph
        return graph
