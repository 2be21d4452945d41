"""Functions of a model: small ones are inlined, large ones become graphs that nodes call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from anydim.base import settings
from anydim.base.errors import GraphError, ModelError
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.operators.call import OnnxNode
from anydim.compiler.frontends.onnx.operators.relations import Unlike, decide
from anydim.compiler.frontends.onnx.values.bindings import Binding
from anydim.compiler.frontends.onnx.values.emitter import Emitter, Relation
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.regions import CALL, CallRegion
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, Size, as_size, bounds

# Functions with fewer nodes are inlined: fusion crosses their border, constant arguments can be
# packed, and sizes passed as tensors stay known. A graph of its own pays off only for a large
# function that is called repeatedly.
SMALLEST_CALLED = 200
DEEPEST = 64  # nesting of functions


@dataclass(frozen=True)
class Function:
    """A FunctionProto, the opset of its nodes, and the defaults of its attributes."""

    proto: Any
    opset: int
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(proto: Any, opset: int) -> Function:
        """`opset` applies if the function imports none for the standard's operators."""
        versions = [e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")]
        defaults = {attribute.name: attribute for attribute in proto.attribute_proto}
        return Function(proto, versions[0] if versions else opset, defaults)


Functions = Mapping[tuple[str, str, str], Function]


def functions_of(model: Any, opset: int, name: str) -> Functions:
    """The functions of a model by domain, name and overload; ModelError for duplicates."""
    found: dict[tuple[str, str, str], Function] = {}
    for proto in model.functions:
        key = _key(proto.domain, proto.name, proto.overload)
        if key in found:
            raise ModelError(f"{name}: function '{proto.name}' is defined twice")
        found[key] = Function.of(proto, opset)
    return found


def find(functions: Functions, proto: Any) -> Function | None:
    """The function that a node calls; None for an operator."""
    return functions.get(_key(proto.domain, proto.op_type, proto.overload))


def _key(domain: str, name: str, overload: str) -> tuple[str, str, str]:
    return ("" if domain == "ai.onnx" else domain), name, overload


def is_called(names: Any, function: Function, inputs: Sequence[Binding | None]) -> bool:
    """Whether a function becomes a graph: it is large, and its inputs are tensors of data only."""
    if count_nodes(function, names.model.functions, names.model.expansions) < SMALLEST_CALLED:
        return False
    return all(isinstance(held, str) and held not in names.emitter.known for held in inputs)


def check_expansion(model: Any, function: Function, label: str) -> None:
    """Raise ModelError if a call expands to more nodes than allowed.

    A few functions that call each other twice can expand beyond any memory.
    """
    limit = settings.most_nodes
    count = count_nodes(function, model.functions, model.expansions)
    if count > limit:
        raise ModelError(
            f"{model.name}, node '{label}': function '{function.proto.name}' and those that it"
            f" calls are {count} nodes, above the limit {limit}",
            "raise the setting most_nodes (ANYDIM_MOST_NODES); each node takes time to compile",
        )


def count_nodes(
    function: Function, functions: Functions, known: dict[int, int], depth: int = 0
) -> int:
    """The nodes of a function with those that it calls; recursion counts to the depth followed."""
    if id(function) not in known:
        known[id(function)] = 0
        total = 0
        pending = [function.proto.node]
        while pending:
            for node in pending.pop():
                inner = find(functions, node)
                total += 1
                if inner is not None and depth < DEEPEST:
                    total += count_nodes(inner, functions, known, depth + 1)
                pending += [a.g.node for a in node.attribute if a.HasField("g")]
        known[id(function)] = total
    return known[id(function)]


def call_function(names: Any, function: Function, label: str, call: OnnxNode) -> Sequence[Binding]:
    """The results of a function of the model: it is inlined, or a node calls its graph."""
    formals, proto = function.proto, call.proto
    if len(proto.input) > len(formals.input) or len(proto.output) > len(formals.output):
        raise Unsupported("more inputs or results than its function has")
    if not names.model.depth:
        check_expansion(names.model, function, label)
    if names.model.depth >= DEEPEST:
        raise Unsupported("functions call each other without end")
    names.model.depth += 1
    try:
        if not is_called(names, function, call.inputs):
            return expand(names, function, call.attributes, label, call)
        values = [held for held in call.inputs if isinstance(held, str)]
        node, results = _call_node(names, function, call.attributes, label, values)
        names.emitter.commit([node])
        return results
    finally:
        names.model.depth -= 1


def expand(
    names: Any, function: Function, attributes: Mapping[str, Any], label: str, call: OnnxNode,
    strict: bool = False,
) -> list[Binding]:  # fmt: skip
    """The results of the nodes of a function, which are inlined in place of a node.

    `strict`: errors of its parts are reported for the node.
    """
    formals, results = function.proto, call.proto.output
    inner = type(names)(names.model, names.emitter, function.opset, None, label, attributes)
    inner.path = names.path if strict else f"{label}/"
    inner.held = dict.fromkeys(formals.input)
    inner.held.update(zip(formals.input, call.inputs))
    for formal, value in zip(formals.output, call.outputs):
        if value and formal not in inner.held:
            inner.value_names[formal] = value
    if not strict:
        inner.run(formals.node, formals.output)
    for part in formals.node if strict else ():
        try:
            inner.build(part, label)
        except (Unsupported, GraphError) as reason:
            raise Unsupported(f"its part {part.op_type}: {problem_of(reason)}") from None
    named = zip(formals.output, results)
    return [inner.result(formal, label) if name else "" for formal, name in named]


def problem_of(reason: Unsupported | GraphError) -> str:
    """Why a node cannot be imported."""
    return reason.problem if isinstance(reason, GraphError) else str(reason)


def _call_node(
    names: Any, function: Function, attributes: Mapping[str, Any], label: str,
    inputs: Sequence[str],
) -> tuple[Node, list[str]]:  # fmt: skip
    """A node that calls a function on tensors, and its results. Equal calls share one graph."""
    emitter: Emitter = names.emitter
    given = [emitter.types[name] for name in inputs]
    own, back = _own_dims(function, given, emitter.box)
    bodies = names.model.bodies
    written = tuple(a.SerializeToString() for _, a in sorted(attributes.items()))
    assumed = _known_ones(emitter, back)
    key = (id(function), written, tuple(own[0]), own[1].dims, tuple(assumed))
    if key not in bodies:
        bodies[key] = _graph(names, function, attributes, label, own, assumed, back)
    graph: Graph = bodies[key]
    outer = {}
    for name in graph.outputs:
        kind = graph.types[name]
        shape = tuple(_outside(emitter, size, back, graph.box, name) for size in kind.shape)
        outer[emitter.fresh(f"{label}/{name}")] = TensorType(kind.dtype, shape)
    source = f"{names.model.name}: {label}"
    return emitter.region(CALL, tuple(inputs), outer, CallRegion(graph), source), list(outer)


def _own_dims(
    function: Function, given: Sequence[TensorType], box: Box
) -> tuple[tuple[list[TensorType], Box], dict[str, Size]]:
    """Dims of a called function, one for each different size of its arguments.

    Returns the argument types over these dims with their box, and the caller's size of each dim.
    """
    dims: dict[Size, Size] = {}
    own_box = Box()
    kinds = []
    for kind in given:
        shape = []
        for size in kind.shape:
            if size.constant is None and size not in dims:
                where = bounds(size, box)
                name = f"{_word(function)}.{len(dims)}"
                own_box = own_box.also(Dim(name, max(where.lo or 0, 0), where.hi))
                dims[size] = Size.symbol(name)
            shape.append(dims.get(size, size))
        kinds.append(TensorType(kind.dtype, tuple(shape)))
    return (kinds, own_box), {str(own): outer for outer, own in dims.items()}


def _known_ones(emitter: Emitter, back: Mapping[str, Size]) -> list[Relation]:
    """Which dims of a called function are known to be 1, or not to be 1, at the call."""
    found: list[Relation] = []
    for own, outer in back.items():
        taken = decide(emitter, (outer, "==", as_size(1)))
        if taken is not None:
            found.append((Size.symbol(own), "==" if taken else "!=", as_size(1)))
    return found


def _unlike_outside(reason: Unlike, back: Mapping[str, Size]) -> Unlike:
    """Translate an Unlike error of a function to the sizes of its caller."""
    relation = reason.relation
    if relation is not None:
        left, sign, right = relation
        known = left.symbols | right.symbols <= back.keys()
        relation = (left.substitute(back), sign, right.substitute(back)) if known else None
    return Unlike(str(reason), relation, reason.results, reason.differing)


def _word(function: Function) -> str:
    """The prefix of a function's dims, unique to the function."""
    proto = function.proto
    return re.sub(r"\W", "_", f"_{proto.domain}_{proto.name}_{proto.overload}".rstrip("_"))


def _graph(
    names: Any, function: Function, attributes: Mapping[str, Any], label: str,
    own: tuple[list[TensorType], Box], assumed: Sequence[Relation], back: Mapping[str, Size],
) -> Graph:  # fmt: skip
    kinds, box = own
    names.model.dims.update(box.names)
    emitter = Emitter(box, reserved=names.model.dims, relations=list(assumed))
    formals = function.proto
    inner = type(names)(names.model, emitter, function.opset, None, "", attributes, f"{label}/")
    emitter.taken.update(name for node in formals.node for name in node.output)
    inner.held.update(dict.fromkeys(formals.input))
    values = []
    for name, kind in zip(formals.input, kinds):
        value = emitter.fresh(name)
        emitter.types[value] = kind
        inner.held[name] = value
        values.append(value)
    before = len(names.model.failures)
    try:
        inner.run(formals.node, formals.output)
    except Unlike as reason:
        raise _unlike_outside(reason, back) from None
    if len(names.model.failures) > before:
        raise Unsupported("its function has nodes that are not supported")
    outputs: list[str] = []
    for formal in formals.output:
        value = inner.result(formal, label)
        if not isinstance(value, str):
            raise Unsupported("its function returns a value that is no tensor")
        emitter.materialise(value)
        if value not in emitter.makers or value in outputs:
            copy = emitter.fresh(f"{formal}/result")
            source = f"{names.model.name}: {label}"
            emitter.commit([emitter.node("identity", (value,), (copy,), {}, source)])
            value = copy
        outputs.append(value)
    return emitter.graph(formals.name, values, outputs)


def _outside(emitter: Emitter, size: Size, back: Mapping[str, Size], box: Box, stem: str) -> Size:
    """A result size of a function in the caller's dims; a new dim if data inside decides it."""
    if size.symbols <= back.keys():
        return size.substitute(back)
    where = bounds(size, box)
    return emitter.dim(stem, max(where.lo or 0, 0), where.hi)
