"""Conditions that are relations between sizes, recovered from the nodes that compute them."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.values.emitter import Emitter, Relation
from anydim.sizes import Size, Truth, as_size, prove

# operator -> its relation, and whether to swap the operands
_RELATIONS = {
    "equal": ("==", False), "not_equal": ("!=", False), "less": ("<", False),
    "less_equal": ("<=", False), "greater": ("<", True), "greater_equal": ("<=", True),
}  # fmt: skip
_UNCHANGED = ("cast", "identity", "reshape", "squeeze", "unsqueeze")


class Unlike(Unsupported):
    """A node whose results differ from case to case: in their ranks, types or lengths.

    `relation` between sizes decides the case, if there is one; `results` are the positions of the
    differing results. The nodes after it are compiled for each case (`graphs/cases.py`).
    Vectors of different lengths are one value, but nodes that use them as shapes have different
    ranks.
    """

    def __init__(
        self, problem: str, relation: Relation | None = None, results: Sequence[int] = (0,),
        differing: str = "ranks",
    ) -> None:  # fmt: skip
        super().__init__(problem)
        self.relation = relation
        self.results = tuple(results)
        self.differing = differing


def opposite(relation: Relation) -> Relation:
    """The negation of a relation."""
    left, sign, right = relation
    if sign in ("==", "!="):
        return left, "!=" if sign == "==" else "==", right
    return right, "<=" if sign == "<" else "<", left


def decide(emitter: Emitter, relation: Relation) -> bool | None:
    """Whether a relation holds for all sizes; False if for none, None if it depends on them."""
    truth = prove(*relation, emitter.box)
    if truth is not Truth.UNKNOWN:
        return truth is Truth.PROVED
    at: Emitter | None = emitter
    while at is not None:
        for known in at.relations:
            if _same(known, relation) or _same(opposite(known), relation):
                return _same(known, relation)
        at = at.outer
    return None


def assume(emitter: Emitter, relation: Relation) -> None:
    """Assume a relation in a graph from here on."""
    emitter.relations.append(relation)
    left, sign, right = relation
    if sign == "==":
        emitter.constrain(left - right, right - left)
    elif sign != "!=":
        emitter.constrain(right - left - (sign == "<"))


def _same(one: Relation, other: Relation) -> bool:
    difference, wanted = one[0] - one[2], other[0] - other[2]
    if one[1] != other[1]:
        return False
    return difference == wanted or (one[1] in ("==", "!=") and difference == -wanted)


def relation_of(emitter: Emitter, value: str) -> Relation | None:
    """The relation between sizes that a bool value represents; None if it represents none."""
    node = emitter.makers.get(value)
    if node is None:
        around = next((name for name, own in emitter.captured.items() if own == value), None)
        if around is None or emitter.outer is None:
            return None
        return relation_of(emitter.outer, around)
    if node.operator in _UNCHANGED:
        size = _size(emitter, node.given[0])
        if size is not None and emitter.types[node.given[0]].dtype != boolean:
            return size, "!=", as_size(0)
        return relation_of(emitter, node.given[0])
    if node.operator == "logical_not":
        inner = relation_of(emitter, node.given[0])
        return None if inner is None else opposite(inner)
    if node.operator not in _RELATIONS:
        return None
    sign, swapped = _RELATIONS[node.operator]
    left, right = (_size(emitter, name) for name in node.given)
    if left is None or right is None:
        return None
    return (right, sign, left) if swapped else (left, sign, right)


def _size(emitter: Emitter, value: str) -> Size | None:
    """The integer that a value is known to hold."""
    known = emitter.known.get(value)
    if known is None or not known.dtype.is_integer or known.array.size != 1:
        return None
    item = known.array.reshape(-1)[0]
    return item if isinstance(item, Size) else as_size(int(item))
