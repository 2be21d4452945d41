"""Conditions that are relations between sizes, read back from the nodes that compute them."""

from __future__ import annotations

from anydim.base.dtypes import boolean
from anydim.frontends.onnx.values.emitting import Emitter
from anydim.sizes import Size, as_size

Relation = tuple[Size, str, Size]  # as a Guard has them

# operator -> its relation, and whether the sides change places
_RELATIONS = {
    "equal": ("==", False), "not_equal": ("!=", False), "less": ("<", False),
    "less_equal": ("<=", False), "greater": ("<", True), "greater_equal": ("<=", True),
}  # fmt: skip
_UNCHANGED = ("cast", "identity", "reshape")


def opposite(relation: Relation) -> Relation:
    """What holds where a relation does not."""
    left, sign, right = relation
    if sign in ("==", "!="):
        return left, "!=" if sign == "==" else "==", right
    return right, "<=" if sign == "<" else "<", left


def relation_of(emitter: Emitter, value: str) -> Relation | None:
    """The relation between sizes that a bool value is; None where it is none."""
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
    """The one integer that a value is known to hold."""
    known = emitter.known.get(value)
    if known is None or known.array.size != 1 or not known.dtype.is_integer:
        return None
    item = known.array.reshape(-1)[0]
    return item if isinstance(item, Size) else as_size(int(item))
