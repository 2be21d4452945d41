"""Element types of the tensors that statements write: the least that hold all that is assigned.

A tensor that is made of itself, alone or through others, starts with nothing known, and its type
grows until no statement adds to it. Tensors that do not depend on each other are settled in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.lang.tree import TensorType
from anydim.lang.tree.typing import OPEN, Inferred, TypeProblem, join, settled
from anydim.sizes import Size

Types = Mapping[str, TensorType]


@dataclass(frozen=True)
class Source:
    """What a statement assigns to a tensor.

    `names` are the tensors that it is made of; `type_in` gives its type for types of theirs, `OPEN`
    where they do not decide it, and raises TypeProblem where it has none.
    """

    names: frozenset[str]
    type_in: Callable[[Types], DType]


def element_types(sources: Mapping[str, Sequence[Source]], tensors: Types) -> dict[str, TensorType]:
    """`tensors` with the element types of those that have sources; `OPEN` where none follows."""
    types = dict(tensors)
    uses = {
        name: {used for source in of for used in source.names if used in sources}
        for name, of in sources.items()
    }
    for names in components(uses):
        if len(names) > 1 or names[0] in uses[names[0]]:
            _grow(names, sources, types)
        else:
            found = join(_known(sources[names[0]], types))
            types[names[0]] = TensorType(settled(found), _shape(names[0], types))
    return types


def _grow(
    names: Sequence[str], sources: Mapping[str, Sequence[Source]], types: dict[str, TensorType]
) -> None:
    """Settle tensors that depend on each other."""
    for name in names:
        types[name] = Inferred(OPEN, _shape(name, types))
    _least(names, sources, types)
    for name in names:  # what is made of literals alone decides its type only now
        types[name] = Inferred(settled(types[name].dtype), types[name].shape)
    _least(names, sources, types)
    for name in names:
        types[name] = TensorType(types[name].dtype, types[name].shape)


def _least(
    names: Sequence[str], sources: Mapping[str, Sequence[Source]], types: dict[str, TensorType]
) -> None:
    """Let types grow until all that is assigned fits."""
    changed = True
    while changed:
        changed = False
        for name in names:
            before = types[name]
            found = join([before.dtype, *_known(sources[name], types)])
            if found != before.dtype:
                types[name], changed = Inferred(found, before.shape), True


def _known(sources: Sequence[Source], types: Types) -> list[DType]:
    found = []
    for source in sources:
        try:
            found.append(source.type_in(types))
        except TypeProblem:
            continue  # an error where it stays one, once all types are known
    return found


def _shape(name: str, types: Types) -> tuple[Size, ...]:
    return types[name].shape if name in types else ()


def components(uses: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """The names that use each other, in the order of `uses`; what others use comes before them."""
    users: dict[str, list[str]] = {name: [] for name in uses}
    for name, used in uses.items():
        for other in used:
            users[other].append(name)
    place = {name: number for number, name in enumerate(uses)}
    found: set[str] = set()
    for name in reversed(list(_finished(users, users, set()))):
        if name not in found:
            component = list(_finished([name], uses, found))
            yield sorted(component, key=place.__getitem__)


def _finished(
    roots: Iterable[str], edges: Mapping[str, Iterable[str]], seen: set[str]
) -> Iterator[str]:
    """All that is reached from some names, each after what is reached from it first."""
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(edges[root]))]
        while path:
            name, rest = path[-1]
            new = next((other for other in rest if other not in seen), None)
            if new is None:
                path.pop()
                yield name
            else:
                seen.add(new)
                path.append((new, iter(edges[new])))
