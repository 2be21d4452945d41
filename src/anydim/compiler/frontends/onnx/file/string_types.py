"""Infers the types of values in a model with strings, from onnx's inference and additional rules.

The standard infers no shape for some operators. onnx's native code would crash the process on
malformed graphs, so it runs on well-formed ones only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from anydim.base import settings
from anydim.runtime.string_operators import CONTRIBUTED, LEARNED
from anydim.sizes import LARGEST

STRING = 8  # TensorProto.STRING
_INT64 = 7
_DEEPEST = 64  # nesting of subgraphs


def is_string(kind: Any) -> bool:
    """Whether a type is a tensor of strings, a map, or a list or an optional of these."""
    if kind.HasField("map_type"):
        return True
    if kind.HasField("sequence_type"):
        return is_string(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return is_string(kind.optional_type.elem_type)
    return bool(kind.tensor_type.elem_type == STRING)


def types_of(proto: Any) -> dict[str, Any]:
    """The types of values by name, as far as onnx infers them."""
    import onnx

    graph = proto.graph
    if not _has_bodies(graph) or _written_out(proto) > settings.most_nodes:
        return {value.name: value.type for value in graph.input if value.HasField("type")}
    for _ in range(1 + sum(_key(node) in _UNINFERRED for node in graph.node)):
        with suppress(Exception):  # the import reports the errors that onnx finds
            graph = onnx.shape_inference.infer_shapes(proto).graph
        values = (*graph.value_info, *graph.output, *graph.input)
        kinds = {value.name: value.type for value in values if value.HasField("type")}
        declared = _declare_ranks(graph.node, kinds)
        if not declared:
            break
        own, proto = proto, onnx.ModelProto()
        proto.CopyFrom(own)
        kept = [value for value in proto.graph.value_info if value.name not in declared]
        del proto.graph.value_info[:]
        proto.graph.value_info.extend([*kept, *declared.values()])
    return kinds


def _written_out(proto: Any) -> int:
    """Node count with every function inlined, which onnx does before inference."""
    bodies = {(function.domain, function.name): function.node for function in proto.functions}
    counts: dict[tuple[str, str], int] = {}

    def count(nodes: Iterable[Any]) -> int:
        total = 0
        for node in nodes:
            key = _key(node)
            if key in bodies and key not in counts:
                counts[key] = LARGEST  # for recursive functions
                counts[key] = count(bodies[key])
            total += counts.get(key, 1) + sum(count(each.g.node) for each in node.attribute)
        return total

    try:
        return count(proto.graph.node)
    except RecursionError:
        return LARGEST


def _key(node: Any) -> tuple[str, str]:
    return node.domain, node.op_type


# operators without inferred shapes: their rank, or the number of axes they add to the input
_RANKS = {(LEARNED, "CastMap"): 2, (LEARNED, "DictVectorizer"): 2}
_MORE_AXES = {
    (CONTRIBUTED, "Tokenizer"): 1, (LEARNED, "LabelEncoder"): 0, (LEARNED, "CategoryMapper"): 0,
}  # fmt: skip
_UNINFERRED = _RANKS.keys() | _MORE_AXES.keys()


def _declare_ranks(nodes: Iterable[Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Declarations of results whose rank the standard does not infer."""
    import onnx

    found = {}
    for node in nodes:
        name, key = node.output[0] if node.output else "", _key(node)
        given, known = kinds.get(node.input[0]) if node.input else None, kinds.get(name)
        if key not in _UNINFERRED or given is None:
            continue
        if known is not None and known.tensor_type.HasField("shape"):
            continue
        if key in _MORE_AXES and not given.tensor_type.HasField("shape"):
            continue
        maps = _MORE_AXES.get(key) == 0 and is_string(given)  # names to numbers, or back
        value = onnx.ValueInfoProto(
            name=name, type=number_type(given) if maps else string_type(given)
        )
        if known is not None:
            value.type.tensor_type.elem_type = known.tensor_type.elem_type
        if key in _RANKS:
            value.type.tensor_type.ClearField("shape")
        for _ in range(_RANKS.get(key, 0) + _MORE_AXES.get(key, 0)):
            value.type.tensor_type.shape.dim.add()
        found[name] = value
    return found


_BODIES = {"If": {"then_branch", "else_branch"}, "Loop": {"body"}, "Scan": {"body"}}


def _has_bodies(graph: Any, depth: int = 0) -> bool:
    """Whether all nodes have the subgraphs that they require, at a depth that onnx's code supports.

    onnx does not check this: a missing subgraph crashes the process.
    """
    for node in graph.node:
        graphs = {each.name: each.g for each in node.attribute if each.HasField("g")}
        if depth > _DEEPEST or not _BODIES.get(node.op_type, set()) <= graphs.keys():
            return False
        if not all(_has_bodies(inner, depth + 1) for inner in graphs.values()):
            return False
    return True


def string_type(kind: Any) -> Any:
    """A type of strings with the shape of another type, as far as known."""
    import onnx

    made = onnx.TypeProto()
    if kind is not None:
        made.CopyFrom(kind)
    made.tensor_type.elem_type = STRING
    return made


def number_type(kind: Any) -> Any:
    """The int64 type for the numbers of strings."""
    made = string_type(kind)
    made.tensor_type.elem_type = _INT64
    return made
