"""Structures in graphs that are written in Python: inputs, and calls of definitions over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anydim.base.dtypes import DTYPES, float32
from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.base.text import article, quote_list, suggestion
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.frontends.structures.graphs import (
    declare_structure,
    emit_recursion,
    flatten_structures,
)
from anydim.compiler.frontends.structures.records import structures_of, tensors_of
from anydim.compiler.frontends.structures.recursion import Recursion
from anydim.lang.surface.syntax import TYPE_NAMES, Definition, Name, Number, Parameter
from anydim.lang.tree import TensorType
from anydim.runtime.lists import StructurePort
from anydim.sizes import Size, as_size

if TYPE_CHECKING:
    from anydim.compiler.frontends.graph_builder import GraphBuilder, Value


@dataclass(frozen=True, eq=False)
class StructureValue:
    """Structures in a builder's graph: `port` names their arrays."""

    builder: GraphBuilder
    name: str
    port: StructurePort

    @property
    def type(self) -> str:
        """The name of their type."""
        return self.port.type

    def __repr__(self) -> str:
        return f"<structures {self.name}: {self.port.type}>"


def structure_input(
    builder: GraphBuilder, name: str, definition: Definition, parameter: str,
    sizes: Mapping[str, Size | int],
) -> StructureValue:  # fmt: skip
    """Declare the arrays of structures that a definition takes as inputs of a graph."""
    own = _parameter(definition, parameter)
    kinds, prefix = {}, f"{own.name}."
    for each in flatten_structures(definition).parameters:
        if each.name.startswith(prefix):
            shape = tuple(_size(builder, definition, term, sizes) for term in each.shape)
            dtype = DTYPES[TYPE_NAMES[each.type]] if each.type in TYPE_NAMES else float32
            kinds[each.name.removeprefix(prefix)] = TensorType(dtype, shape)
    port, dims, inputs = declare_structure(name, own.type, definition.types, kinds)
    for dim in dims:
        builder.dim(dim.name, dim.lo, dim.hi)
    for held, kind in inputs.items():
        builder.input(held, kind.dtype, kind.shape)
    return StructureValue(builder, name, port)


def _parameter(definition: Definition, name: str) -> Parameter:
    known = {each.name: each for each in structures_of(definition)}
    if not known:
        raise GraphError(f"'{definition.name}' takes no structures", "declare a type: type T { }")
    if name and name not in known:
        hint = suggestion(name, known) or f"it has {quote_list(known)}"
        raise GraphError(f"'{definition.name}' has no structure '{name}'", hint)
    return known[name] if name else next(iter(known.values()))


def _size(
    builder: GraphBuilder, definition: Definition, term: Any, sizes: Mapping[str, Size | int]
) -> Size:
    if isinstance(term, Number):
        return as_size(int(term.value))
    if isinstance(term, Name):
        if term.name in sizes:
            return as_size(sizes[term.name])
        return builder.dim(term.name)
    raise GraphError(f"'{definition.name}': the sizes of a field must be names or numbers")


def emit_structure_call(
    builder: GraphBuilder, definition: Definition, inputs: Sequence[Any],
    attributes: Mapping[str, Any],
) -> tuple[Value | StructureValue, ...]:  # fmt: skip
    """Emit the call of a definition over structures; returns its results."""
    if len(inputs) != len(definition.parameters):
        takes = quote_list(parameter.name for parameter in definition.parameters)
        raise GraphError(f"'{definition.name}' takes {takes}; got {len(inputs)} arguments")
    tensors = [each.name for each in tensors_of(definition)]
    pairs = list(zip(definition.parameters, inputs))
    ports = {}
    for parameter, given in pairs:
        if parameter.name in tensors:
            continue
        if not isinstance(given, StructureValue) or given.builder is not builder:
            raise GraphError(
                f"'{definition.name}' takes {article(parameter.type)} for '{parameter.name}', and "
                f"got {type(given).__name__}", "declare it: t = g.structure('t', function)",
            )  # fmt: skip
        if given.port.type != parameter.type:
            raise GraphError(
                f"'{definition.name}' takes {article(parameter.type)} for '{parameter.name}', and "
                f"'{given.name}' is {article(given.port.type)}"
            )
        ports[parameter.name] = given.port
    values = builder._values(
        definition.name, [given for parameter, given in pairs if parameter.name in tensors]
    )
    emitter = Emitter(builder._box)
    emitter.types, emitter.nodes = builder._types, builder._nodes
    given_tensors = dict(zip(tensors, (value.name for value in values)))
    made = Recursion(definition, emitter, given_tensors, ports, attributes)
    results = emit_recursion(made, lambda name: emitter.fresh(f"{definition.name}.{name}"))
    builder._box = emitter.box
    builder._reserved.update(emitter.box.names)
    builder._guards += [guard for guard in made.guards if guard not in builder._guards]
    return tuple(
        StructureValue(builder, name, result) if isinstance(result, StructurePort)
        else builder._value(result)
        for name, result in results.items()
    )  # fmt: skip
