"""Replaces strings in the attributes of learned models by numbers for native code.

A classifier with named classes returns class numbers, and a LabelEncoder after it maps them to
names; categories and words become numbers before the operator. Only the encoders remain on the
host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from anydim.runtime.string_operators import LEARNED

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
