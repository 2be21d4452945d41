"""Makes the graph of a recursion: calls by levels, one step for all calls of a level and a case.

    sizes, tables = call_levels(children, roots)       native; `kernels/routines/levels.py`
    for each cycle of definitions that call each other, inner ones first:
      cases that do not call the cycle                 over all calls
      what other cases compute before their calls      over all calls
      loop over levels                                 the rest, over the calls of a level
    results of the calls for the roots

A definition has a table for each of its results, a row for each call, in the order of levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.dtypes import int64
from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.definition import ArgumentKinds, argument_types
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.frontends.structures.made_nodes import NewNodes, Results
from anydim.compiler.frontends.structures.order import order_steps
from anydim.compiler.frontends.structures.plan import number_calls
from anydim.compiler.frontends.structures.records import input_name, reachable_types, tensors_of
from anydim.compiler.frontends.structures.recursion import Recursion
from anydim.compiler.graph.nodes import Graph
from anydim.lang.surface.syntax import Definition, Parameter, StructureType
from anydim.lang.tree import TensorType
from anydim.runtime.lists import ConstructorPort, FieldPort, StructurePort, TypePort
from anydim.sizes import Dim, Size, as_size

TREES = "trees"  # the dim of the number of structures


def flatten_structures(definition: Definition) -> Definition:
    """The definition with the tensor fields of its structures as parameters."""
    known = {each.name: each for each in definition.types}
    parameters: list[Parameter] = []
    for parameter in definition.parameters:
        if parameter.type not in known:
            parameters.append(parameter)
            continue
        for kind in reachable_types(parameter.type, known):
            for constructor in kind.constructors:
                for each in constructor.fields:
                    if each.type not in known:
                        name = input_name(parameter.name, parameter.type, kind, constructor.name)
                        parameters.append(replace(each, name=f"{name}.{each.name}"))
    return replace(definition, parameters=tuple(parameters))


def structure_graph(
    definition: Definition, pattern: ArgumentKinds, attributes: Mapping[str, Any],
    fixed: Mapping[str, int] | None = None,
) -> Graph:  # fmt: skip
    """Build the graph of a definition over structures; `pattern` has the kinds of its tensors.

    Raises LanguageError for a definition whose calls have no form by levels.
    """
    flat = flatten_structures(definition)
    kinds, box = argument_types(flat, pattern, attributes, fixed)
    types = dict(zip((parameter.name for parameter in flat.parameters), kinds))
    emitter, ports, inputs = Emitter(box), dict[str, StructurePort](), list[str]()
    for parameter in definition.parameters:
        if parameter in tensors_of(definition):
            emitter.types[parameter.name] = types[parameter.name]
            inputs.append(parameter.name)
            continue
        inner = {
            name.removeprefix(f"{parameter.name}."): kind for name, kind in types.items()
            if name.startswith(f"{parameter.name}.")
        }  # fmt: skip
        port, dims, held = declare_structure(
            parameter.name, parameter.type, definition.types, inner
        )
        ports[parameter.name] = port
        emitter.box = emitter.box.also(*(dim for dim in dims if dim.name not in emitter.box.names))
        emitter.types.update(held)
        inputs += held
    given = {parameter.name: parameter.name for parameter in tensors_of(definition)}
    made = Recursion(definition, emitter, given, ports, attributes)
    results = emit_recursion(made, lambda name: name)
    outputs: list[str] = []
    for name, result in results.items():
        if isinstance(result, StructurePort):
            ports[name] = result
            outputs += (result.roots, *result.hidden)
        else:
            outputs.append(result)
    lists = FrozenMapping(ports)
    made_graph = emitter.graph(definition.name, inputs, outputs, guards=made.guards, lists=lists)
    return made_graph.pruned()


def declare_structure(
    name: str, root: str, types: Sequence[StructureType], kinds: Mapping[str, TensorType]
) -> tuple[StructurePort, list[Dim], dict[str, TensorType]]:
    """The inputs of a structure: its port, the dims that count nodes, and the types by name.

    `kinds` are the types of tensor fields, of one node, by name: `leaf.x`.
    """
    known = {each.name: each for each in types}
    dims, inputs = [Dim(TREES)], dict[str, TensorType]()

    def field(stem: str, each: Parameter, count: Size) -> FieldPort:
        value = f"{stem}.{each.name}"
        if each.type not in known:
            own = kinds[value.removeprefix(f"{name}.")]
            inputs[value] = TensorType(own.dtype, (count, *own.shape))
            return FieldPort(each.name, value, shape=own.shape)
        if not each.shape:
            inputs[value] = TensorType(int64, (count,))
            return FieldPort(each.name, value, each.type)
        total, offsets = Dim(f"{value}.total"), f"{value}.offsets"
        dims.append(total)
        inputs[value] = TensorType(int64, (Size.symbol(total.name),))
        inputs[offsets] = TensorType(int64, (count + 1,))
        return FieldPort(each.name, value, each.type, offsets=offsets)

    ports = []
    for kind in reachable_types(root, known):
        constructors = []
        for constructor in kind.constructors:
            stem = input_name(name, root, kind, constructor.name)
            if constructor.fields:
                dims.append(Dim(stem))
            count = Size.symbol(stem) if constructor.fields else as_size(1)
            fields = tuple(field(stem, each, count) for each in constructor.fields)
            constructors.append(ConstructorPort(constructor.name, fields))
        ports.append(TypePort(kind.name, tuple(constructors)))
    inputs[f"{name}.roots"] = TensorType(int64, (Size.symbol(TREES),))
    return StructurePort(root, tuple(ports), f"{name}.roots"), dims, inputs


def emit_recursion(
    recursion: Recursion, named: Callable[[str], str]
) -> dict[str, str | StructurePort]:
    """Emit the nodes of a recursion; `named` gives the name of a value for a result.

    Returns the results.
    """
    recursion.new = NewNodes(recursion)
    number_calls(recursion)
    for step in order_steps(recursion):
        step()
    return Results(recursion, named).run()
