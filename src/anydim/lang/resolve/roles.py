"""Roles of tensors in a definition: their writers, and the statement that defines them wholly."""

from __future__ import annotations

from collections.abc import Iterator

from anydim.base.records import dataclass
from anydim.lang.resolve.binding import Binding
from anydim.lang.surface.syntax import (
    Assignment,
    Definition,
    Exists,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Spread,
    Term,
    parts,
    targets,
    walk,
)

Chain = tuple[int, ...]  # the blocks around an item, outer before inner


@dataclass(frozen=True)
class Role:
    """How a tensor is written.

    `definer` is the item that defines all of it before anything else writes to it; without one,
    and if it is not a parameter, its size is the union of the ranges that its `writers` cover.
    `first` are the positions of the items before which no other writes it.
    """

    parameter: bool
    definer: Assignment | Invoke | None
    writers: tuple[Assignment | Invoke, ...]
    first: frozenset[int] = frozenset()

    def constrains(self, item: Assignment) -> bool:
        """Whether the tensor's shape limits the ranges of an item that writes it."""
        if self.parameter or self.definer is not None:
            return item is not self.definer
        return accumulates(item)


def accumulates(item: Assignment | Invoke) -> bool:
    """Whether an item combines with the previous value of its target."""
    return isinstance(item, Assignment) and bool(item.combine) and not item.initial


def needs_order(definition: Definition, binding: Binding) -> bool:
    """Whether a definition is more than one whole assignment for each of its tensors."""
    found: set[str] = set(binding.tensors)
    for item in definition.statements:
        if not isinstance(item, Assignment) or item.target in found:
            return True
        taken = found | binding.sizes.keys() | binding.attributes.keys()
        if not _is_plain(item, taken) or accumulates(item):
            return True
        if item.target in tensors_named(item):
            return True
        found.add(item.target)
    return False


def _is_plain(item: Assignment, taken: set[str]) -> bool:
    """Whether the indices on the left are distinct fresh names."""
    spreads = {f"...{term.name}" for term in item.indices if isinstance(term, Spread)}
    names = {term.name for term in item.indices if isinstance(term, Name)}
    return len(names) + len(spreads) == len(item.indices) and taken.isdisjoint(names)


def tensors_named(item: Assignment) -> set[str]:
    """Names on the right and in the indices of an item that may refer to tensors."""
    terms = [item.value, *item.indices]
    found = set()
    for clause in item.where:
        ends = clause.indices if isinstance(clause, Exists) else (clause.low, clause.high)
        terms += ends
        found |= {clause.tensor} if isinstance(clause, Exists) else set()
    return found.union(*map(names_in, terms))


def names_in(term: Term) -> set[str]:
    """Names in a term that may refer to tensors."""
    inner = [part for part in walk(term) if not isinstance(part, Spread)]
    return {getattr(part, "tensor", getattr(part, "name", "")) for part in inner} - {""}


def roles_of(definition: Definition, binding: Binding) -> dict[str, Role]:
    """The role of every tensor that a definition writes, in the order of first writing."""
    found: dict[str, list[tuple[Assignment | Invoke, Chain]]] = {}
    for item, chain in _walk_chains(definition.statements, (), [0]):
        for name in targets((item,)):
            found.setdefault(name, []).append((item, chain))
    parameters = {parameter.name for parameter in definition.parameters}
    variables = set(_variables(definition.statements))
    taken = parameters | found.keys() | binding.sizes.keys() | binding.attributes.keys() | variables
    roles, firsts = {}, dict[str, set[int]]()
    _written_after(definition.statements, frozenset(parameters), firsts)
    for name, writers in found.items():
        first, chain = writers[0]
        before_all = all(other[: len(chain)] == chain for _, other in writers)
        whole = not accumulates(first) and (isinstance(first, Invoke) or _is_plain(first, taken))
        definer = first if before_all and whole and name not in parameters else None
        items = tuple(item for item, _ in writers)
        roles[name] = Role(name in parameters, definer, items, frozenset(firsts.get(name, ())))
    return roles


def _written_after(
    block: tuple[Item, ...], before: frozenset[str], first: dict[str, set[int]]
) -> frozenset[str]:
    """The tensors written after a block; `first` gets the items before which nothing writes one.

    Branches do not follow each other, and an iteration of a loop is not before the next one.
    """
    for item in block:
        if isinstance(item, (Assignment, Invoke)):
            names = tuple(targets((item,)))
            for name in names:
                if name not in before:
                    first.setdefault(name, set()).add(item.position)
            before = before.union(names)
        else:
            before = before.union(*[_written_after(inner, before, first) for inner in parts(item)])
    return before


def _walk_chains(
    block: tuple[Item, ...], chain: Chain, count: list[int]
) -> Iterator[tuple[Assignment | Invoke, Chain]]:
    count[0] += 1
    chain = (*chain, count[0])
    for item in block:
        if isinstance(item, (Assignment, Invoke)):
            yield item, chain
        else:
            for inner in parts(item):
                yield from _walk_chains(inner, chain, count)


def _variables(block: tuple[Item, ...]) -> Iterator[str]:
    for item in block:
        if isinstance(item, LoopBlock):
            yield item.variable
        for inner in parts(item):
            yield from _variables(inner)
