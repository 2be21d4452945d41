"""Types of the values of a model with strings, and numbers in place of strings.

onnx infers the types, with additional rules for operators of which the standard infers no shape.
Its native code would crash the process on malformed graphs, so it runs on well-formed ones only.

A classifier with named classes returns class numbers, and a LabelEncoder after it maps them to
names; categories and words become numbers before the operator. Only the encoders remain on the
host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from anydim.base import settings
from anydim.runtime.string_operators import CONTRIBUTED, LEARNED
from anydim.sizes import LARGEST

_CLASSIFIERS = {
    "LinearClassifier": "classlabels_ints", "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}  # fmt: skip
_NONE = -1  # the number of an unknown word


def encode_strings(nodes: Iterable[Any], taken: set[str]) -> tuple[list[Any], dict[str, str]]:
    """Rewrite nodes to use numbers for strings; maps each value of numbers to its value of strings.

    `taken` are the names of existing values; names of new values are added to it.
    """
    made: list[Any] = []
    numbers: dict[str, str] = {}

    def fresh(stem: str) -> str:
        name, count = f"{stem}/number", 1
        while name in taken:
            count += 1
            name = f"{stem}/number_{count}"
        taken.add(name)
        numbers[name] = stem
        return name

    for node in nodes:
        rule = _RULES.get((node.domain, node.op_type))
        made += [node] if rule is None else rule(node, fresh)
    return made, numbers


def _classifier(node: Any, fresh: Callable[[str], str]) -> Iterator[Any]:
    names = _strings(node, "classlabels_strings")
    if not names or not node.output or not node.output[0]:
        yield node
        return
    values = names if len(names) > 1 else ["0", "1"]  # a single class is binary: member or not
    own = _without(node, "classlabels_strings", _CLASSIFIERS[node.op_type])
    own.attribute.append(_attribute(_CLASSIFIERS[node.op_type], range(len(names))))
    own.output[0] = fresh(node.output[0])
    yield own
    yield _encoder(node, own.output[0], node.output[0], keys_int64s=range(len(values)),
                   values_strings=values)  # fmt: skip


def _one_hot(node: Any, fresh: Callable[[str], str]) -> Iterator[Any]:
    names = _strings(node, "cats_strings")
    if not names:
        yield node
        return
    own = _without(node, "cats_strings", "cats_int64s")
    own.attribute.append(_attribute("cats_int64s", [names.index(name) for name in names]))
    own.input[0] = fresh(node.input[0])
    yield _encoder(node, node.input[0], own.input[0], keys_strings=names,
                   values_int64s=range(len(names)), default_int64=_NONE)  # fmt: skip
    yield own


def _words(node: Any, fresh: Callable[[str], str]) -> Iterator[Any]:
    names = _strings(node, "pool_strings")
    if not names:
        yield node
        return
    words = list(dict.fromkeys(names))
    numbers = {word: number for number, word in enumerate(words)}
    own = _without(node, "pool_strings", "pool_int64s")
    own.attribute.append(_attribute("pool_int64s", [numbers[name] for name in names]))
    own.input[0] = fresh(node.input[0])
    yield _encoder(node, node.input[0], own.input[0], keys_strings=words,
                   values_int64s=range(len(words)), default_int64=_NONE)  # fmt: skip
    yield own


_RULES = {
    **{(LEARNED, name): _classifier for name in _CLASSIFIERS},
    (LEARNED, "OneHotEncoder"): _one_hot,
    ("", "TfIdfVectorizer"): _words,
}


def _strings(node: Any, name: str) -> list[str]:
    found: Sequence[bytes] = next((a.strings for a in node.attribute if a.name == name), ())
    return [text.decode("utf-8", "replace") for text in found]


def _without(node: Any, *names: str) -> Any:
    """A copy of a node without some attributes."""
    own = type(node)()
    own.CopyFrom(node)
    del own.attribute[:]
    own.attribute.extend(a for a in node.attribute if a.name not in names)
    return own


def _attribute(name: str, value: Any) -> Any:
    import onnx

    return onnx.helper.make_attribute(name, value if isinstance(value, int) else list(value))


def _encoder(node: Any, source: str, target: str, **given: Any) -> Any:
    """A LabelEncoder named after a node; the host runs it in any opset."""
    import onnx

    label = f"{node.name or node.output[0]}/names"
    made = onnx.NodeProto(op_type="LabelEncoder", domain=LEARNED, name=label)
    made.input.append(source)
    made.output.append(target)
    made.attribute.extend(_attribute(name, value) for name, value in given.items())
    return made


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
