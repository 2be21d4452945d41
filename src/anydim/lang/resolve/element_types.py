"""Inference of element types: the narrowest type that holds all values assigned to a tensor.

A tensor that depends on itself, alone or through others, starts with an open type, which is widened
to a fixed point. Strongly connected components are solved one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anydim.base.components import components
from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.lang.tree import TensorType
from anydim.lang.tree.typing import OPEN, Inferred, TypeProblem, join, settle_type
from anydim.sizes import Size

Types = Mapping[str, TensorType]


@dataclass(frozen=True)
class Source:
    """An assignment to a tensor.

    `names` are the tensors that it depends on; `type_in` computes its type from their types:
    `OPEN` where they do not decide it; raises TypeProblem where there is none.
    """

    names: frozenset[str]
    type_in: Callable[[Types], DType]


def element_types(sources: Mapping[str, Sequence[Source]], tensors: Types) -> dict[str, TensorType]:
    """Add the element types of tensors with sources to `tensors`; `OPEN` where undetermined."""
    types = dict(tensors)
    uses = {
        name: {used for source in of for used in source.names if used in sources}
        for name, of in sources.items()
    }
    for names in components(uses):
        if len(names) > 1 or names[0] in uses[names[0]]:
            _grow(names, sources, types)
        else:
            found = join(_known_types(sources[names[0]], types))
            types[names[0]] = TensorType(settle_type(found), _shape(names[0], types))
    return types


def _grow(
    names: Sequence[str], sources: Mapping[str, Sequence[Source]], types: dict[str, TensorType]
) -> None:
    """Infer the types of tensors that depend on each other."""
    for name in names:
        types[name] = Inferred(OPEN, _shape(name, types))
    _widen(names, sources, types)
    for name in names:  # literals decide an open type only now
        types[name] = Inferred(settle_type(types[name].dtype), types[name].shape, literals=True)
    _widen(names, sources, types)
    for name in names:
        types[name] = TensorType(types[name].dtype, types[name].shape)


def _widen(
    names: Sequence[str], sources: Mapping[str, Sequence[Source]], types: dict[str, TensorType]
) -> None:
    """Widen types until all assigned values fit."""
    changed = True
    while changed:
        changed = False
        for name in names:
            before = types[name]
            found = join([before.dtype, *_known_types(sources[name], types)])
            if found != before.dtype:
                types[name], changed = replace(before, dtype=found), True


def _known_types(sources: Sequence[Source], types: Types) -> list[DType]:
    found = []
    for source in sources:
        try:
            found.append(source.type_in(types))
        except TypeProblem:
            continue  # reported later if it remains once all types are known
    return found


def _shape(name: str, types: Types) -> tuple[Size, ...]:
    return types[name].shape if name in types else ()
