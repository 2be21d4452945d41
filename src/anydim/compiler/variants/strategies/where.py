"""The strategy `where`: one strategy at sizes where a condition holds, another one elsewhere.

where("m <= 4", exact(), else_=generic())
where("8 <= seq and batch*seq < 512", adaptive())
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from anydim.base.errors import DimError, OptionError
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr
from anydim.compiler.variants.strategies.plain import GENERIC
from anydim.compiler.variants.strategies.strategy import Cuts, Strategy, print_value
from anydim.sizes import Size, parse

_RELATION = re.compile(r"(<=|>=|==|!=|<|>)")
_MAX = 1000  # characters of a condition
_HOLDS = {
    "<=": int.__le__, ">=": int.__ge__, "==": int.__eq__,
    "!=": int.__ne__, "<": int.__lt__, ">": int.__gt__,
}  # fmt: skip


@dataclass(frozen=True)
class Relation:
    """`left relation right`, of size expressions."""

    left: Size
    relation: str
    right: Size

    def holds(self, dims: Mapping[str, int]) -> bool:
        """Evaluate at dims; False if a size is undefined."""
        try:
            left, right = self.left.evaluate(dims), self.right.evaluate(dims)
        except DimError:
            return False
        return bool(_HOLDS[self.relation](left, right))


@dataclass(frozen=True)
class Where(Strategy):
    """One strategy or another, by size.

    Attributes:
        condition: Relations of dims of the model, joined by `and`.
        then: Strategy where the condition holds.
        else_: Strategy elsewhere.
    """

    condition: str
    then: Strategy
    else_: Strategy = GENERIC

    def __post_init__(self) -> None:
        for name in ("then", "else_"):
            if not isinstance(getattr(self, name), Strategy):
                given = short_repr(getattr(self, name))
                raise OptionError(f"where: {name} is {given}, expected a strategy")
        relations_of(self.condition)

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations of the condition, which must all hold."""
        return relations_of(self.condition)

    @property
    def names(self) -> frozenset[str]:
        own = (each.left.symbols | each.right.symbols for each in self.relations)
        return self.then.names.union(self.else_.names, *own)

    def leaves(self) -> Iterator[Strategy]:
        yield from self.then.leaves()
        yield from self.else_.leaves()

    def conditions(self) -> Iterator[str]:
        yield self.condition
        yield from self.then.conditions()
        yield from self.else_.conditions()

    def choose_leaf(self, holds: Callable[[str], bool]) -> Strategy:
        return (self.then if holds(self.condition) else self.else_).choose_leaf(holds)

    def fill_buckets(self, cuts: Cuts) -> Where:
        return Where(self.condition, self.then.fill_buckets(cuts), self.else_.fill_buckets(cuts))

    def __str__(self) -> str:
        return f"where({print_value(self.condition)}, {self.then}, else_={self.else_})"


def relations_of(text: str) -> tuple[Relation, ...]:
    """Parse a condition; raises OptionError for an invalid text."""
    if not isinstance(text, str) or len(text) > _MAX:
        raise OptionError(f"where: {short_repr(text)} is not a condition", 'write one as "m <= 4"')
    found = []
    for part in re.split(r"\band\b", text):
        operands = _RELATION.split(part)
        if len(operands) < 3:
            hint = 'write conditions as "m <= 4" or "8 <= seq and batch*seq < 512"'
            raise OptionError(f"where: '{part.strip()}' is not a condition", hint)
        sizes = [parse(operand.strip()) for operand in operands[::2]]
        found += [Relation(*each) for each in zip(sizes, operands[1::2], sizes[1:])]
    return tuple(found)
