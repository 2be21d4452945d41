"""The graph of any definition: of tensors, over structures, or with recursion."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from anydim.compiler.frontends.definition import ArgumentKinds, argument_types, plain_graph
from anydim.compiler.graph.nodes import Graph
from anydim.lang.surface.sequences import is_sequence
from anydim.lang.surface.syntax import Definition


def flattened_definition(definition: Definition) -> Definition:
    """The definition with the tensor fields of its structures as parameters."""
    if not definition.types:
        return definition
    made: Definition = _structures().flatten_structures(definition)
    return made


def _structures() -> Any:
    return import_module("anydim.compiler.frontends.structures.graphs")


def graph_of(
    definition: Definition,
    pattern: ArgumentKinds,
    attributes: Mapping[str, Any],
    fixed: Mapping[str, int] | None = None,
) -> Graph:
    """Build the graph of a definition for arguments of these kinds.

    Sizes in `fixed` are constants in it, not dims. `pattern` has the kinds of the
    arguments of `flattened_definition`. Raises LanguageError for arguments that do not fit.
    """
    if definition.types:
        made: Graph = _structures().structure_graph(definition, pattern, attributes, fixed)
        return made
    types, box = argument_types(definition, pattern, attributes, fixed)
    if is_sequence(definition):
        sequence = import_module("anydim.compiler.frontends.recursion.sequence")
        own: Graph = sequence.sequence_graph(definition, types, box, attributes)
        return own
    return plain_graph(definition, types, box, attributes)
