"""The strategy of each launch: by the names of its nodes, and by its sizes under `where`.

A launch has sizes but no dims. `Decision` expresses a condition on dims in terms of these sizes,
where they determine it; otherwise, as with `seq` for a launch of `batch*seq` rows, the condition
counts as false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from anydim.base.errors import OptionError
from anydim.base.text import quote_list, suggestion
from anydim.compiler.variants.solved_dims import SolvedDim, dims_of_span, size_name
from anydim.compiler.variants.strategies import Strategy
from anydim.compiler.variants.strategies.where import Relation, relations_of
from anydim.runtime.program.segment import Site
from anydim.runtime.variant_tables import Key, Sizes, Span
from anydim.sizes import LARGEST, Size

_SHOWN = 6  # names listed in an error


class Decision:
    """The strategy of launches whose sizes are the expressions `sizes` over the model's dims."""

    def __init__(self, strategy: Strategy, sizes: Sequence[Size]) -> None:
        self.strategy, self._sizes = strategy, tuple(sizes)
        self.leaves = tuple(dict.fromkeys(strategy.leaves()))
        self.undetermined: list[str] = []  # conditions that the sizes do not determine
        self._relations: dict[str, list[Relation] | None] = {}
        if len(self.leaves) > 1:
            self._learn(strategy)

    def at(self, key: Key) -> Strategy:
        """The strategy at sizes; of a span: the strategy of both ends if equal, else generic."""
        if isinstance(key, Span):
            low, high = (self._choose_leaf(ends) for ends in (key.low, key.high))
            return low if low == high else self.strategy.choose_leaf(lambda _: False)
        return self._choose_leaf(key)

    def _choose_leaf(self, sizes: Sizes) -> Strategy:
        values = {size_name(number): size for number, size in enumerate(sizes)}

        def holds(condition: str) -> bool:
            known = self._relations[condition]
            return known is not None and all(each.holds(values) for each in known)

        return self.strategy.choose_leaf(holds)

    def _learn(self, strategy: Strategy) -> None:
        """Express all conditions in terms of the launch's sizes."""
        everywhere = Span((0,) * len(self._sizes), (LARGEST,) * len(self._sizes))
        solved = dims_of_span(self._sizes, everywhere)
        for condition in strategy.conditions():
            made = [self._by_sizes(relation, solved) for relation in relations_of(condition)]
            known = [relation for relation in made if relation is not None]
            self._relations[condition] = known if len(known) == len(made) else None
            if len(known) < len(made):
                self.undetermined.append(condition)

    def _by_sizes(self, relation: Relation, solved: Sequence[SolvedDim] | None) -> Relation | None:
        left, right = (_by_sizes(s, self._sizes, solved) for s in (relation.left, relation.right))
        return None if left is None or right is None else Relation(left, relation.relation, right)


def _by_sizes(size: Size, sizes: Sequence[Size], solved: Sequence[SolvedDim] | None) -> Size | None:
    """A size over dims in terms of launch sizes; None if they do not determine it."""
    if size in sizes:
        return Size.symbol(size_name(sizes.index(size)))
    known: dict[str, Size] = {}
    for each in solved or ():
        if each.source is None:
            known[each.name] = Size.constant_of(1)
            continue
        word, rest = Size.symbol(size_name(each.source)), each.rest.substitute(known)
        known[each.name] = (word - rest) // each.factor.substitute(known)
    if size.symbols - known.keys():
        return None
    made = size.substitute(known)
    needed = {each.name for each in solved or () if each.source is None}
    back = made.substitute({size_name(number): word for number, word in enumerate(sizes)})
    return made if not needed or back == size else None


# ---- by nodes ------------------------------------------------------------------------------------


def strategies_of(
    sites: Sequence[Site], strategy: Strategy, parts: Mapping[str, Strategy],
    every: Sequence[Site] = (),
) -> list[Strategy]:  # fmt: skip
    """The strategy of each site: that of the first pattern that one of its names matches.

    Names are those of the site's nodes, of its kernel, and of the kernel's kind. Raises OptionError
    for a pattern without a match; `every` site of the program includes those on devices, which
    have no variants.
    """
    found, used = [], set()
    for site in sites:
        names = site.names
        pattern = next((p for p in parts if any(fnmatchcase(name, p) for name in names)), None)
        used |= {p for p in parts if any(fnmatchcase(name, p) for name in names)}
        found.append(strategy if pattern is None else parts[pattern])
    for pattern in parts:
        if pattern not in used and any(
            fnmatchcase(name, pattern) for site in every for name in site.names
        ):
            problem = f"strategies: '{pattern}' is on a device, where launches have no variants"
            raise OptionError(problem, "omit that pattern")
        if pattern not in used:
            known = list(dict.fromkeys(name for site in sites for name in site.names))
            some = f"{quote_list(known[:_SHOWN])}{' and others' if len(known) > _SHOWN else ''}"
            hint = suggestion(pattern, known) or f"the names of nodes and kernels are {some}"
            raise OptionError(f"strategies: no node or kernel is called '{pattern}'", hint)
    return found
