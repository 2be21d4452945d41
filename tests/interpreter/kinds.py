"""Element types of terms by the rules of docs/language.md, implemented a second time.

A type is the name of an element type ("float32"), or the kind of a term that adapts to its
operands: "?bool", "?int" and "?float" for literals, "?index" for indices and sizes. None is a type
that is not known yet: of a tensor that only statements still to be visited write.
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.base.dtypes import DTYPES

Kind = str | None

BOOL, INT, INDEX, FLOAT = ADAPTING = ("?bool", "?int", "?index", "?float")
_ALONE = {BOOL: "bool", INT: "int64", INDEX: "int64", FLOAT: "float32"}


class NotCovered(Exception):
    """Raised for what the interpreter does not support; the text names it."""


def family(kind: str) -> str:
    """'float', 'int', 'uint' or 'bool'."""
    return DTYPES[_ALONE.get(kind, kind)].kind


def is_float(kind: Kind) -> bool:
    """Whether a type, or an adapting kind, is a float."""
    return kind is not None and family(kind) == "float"


def settled(kind: Kind) -> Kind:
    """The type of a term without other operands."""
    return kind if kind is None else _ALONE.get(kind, kind)


def joined(kinds: Iterable[Kind]) -> Kind:
    """The common type of operands; unknown ones are ignored."""
    known = [kind for kind in kinds if kind is not None]
    own = [kind for kind in known if kind not in _ALONE]
    weakest = max((kind for kind in known if kind in _ALONE), key=ADAPTING.index, default=BOOL)
    if not own:
        return weakest if known else None
    found = own[0]
    for other in own[1:]:
        found = _wider(found, other)
    if is_float(found):
        return found
    if weakest == FLOAT:
        return "float32"
    if weakest == INDEX or (weakest == INT and found == "bool"):
        return "int64"
    return found


def _wider(left: str, right: str) -> str:
    if left == right:
        return left
    ours, theirs = DTYPES[left], DTYPES[right]
    if ours.kind != theirs.kind:
        for kind in ("float", "bool"):
            if kind in (ours.kind, theirs.kind):
                return left if (ours.kind == kind) == (kind == "float") else right
        signed, unsigned = (ours, theirs) if ours.kind == "int" else (theirs, ours)
        if signed.bits > unsigned.bits:
            return signed.name
        return f"int{min(2 * unsigned.bits, 64)}"
    if ours.bits == theirs.bits:
        return "float32"  # float16 and bfloat16
    return left if ours.bits > theirs.bits else right
