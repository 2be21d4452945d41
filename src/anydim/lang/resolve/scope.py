"""Scope of a statement: the loops and branches around it, and the sizes known inside them.

The variable of a loop is a symbol of sizes. In the body, the box used for proofs is extended by it
with its bounds, and by the facts that the conditions around imply on sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.records import dataclass
from anydim.lang.resolve.binding import Binding
from anydim.lang.tree import Apply, Expr, Literal, SizeTerm
from anydim.sizes import Box, Dim, Size, Truth, as_size, bounds, prove


@dataclass(frozen=True)
class LoopAround:
    """A loop: low <= variable < high in its body; `high` is None when data-dependent.

    In the text it is `name`, whose value is variable + base.
    """

    variable: str
    low: Size
    high: Size | None
    step: int
    name: str
    base: Size

    @property
    def minimum(self) -> Size:
        """The minimum over all iterations."""
        if self.step >= -1 or self.high is None:
            return self.low
        return self.high - 1 + self.step * ((self.high - 1 - self.low) // -self.step)

    @property
    def maximum(self) -> Size | None:
        """The maximum over all iterations; None when data-dependent."""
        if self.step <= 1 or self.high is None:
            return None if self.high is None else self.high - 1
        return self.low + self.step * ((self.high - 1 - self.low) // self.step)


def in_text(values: Mapping[str, int], loops: Sequence[LoopAround]) -> dict[str, int]:
    """Rename values of loop variables to the names that the text uses."""
    around = {loop.variable: loop for loop in loops if loop.base.symbols <= values.keys()}
    return {
        around[name].name if name in around else name:
        value + around[name].base.evaluate(values) if name in around else value
        for name, value in values.items()
    }  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """`binding` has the sizes and the box of this scope, `outer` is the box of the group.

    `taken` holds the names of sizes in use, so that every loop variable is unique.
    """

    binding: Binding
    outer: Box
    loops: tuple[LoopAround, ...] = ()
    conditional: bool = False
    taken: set[str] = field(default_factory=set)

    @property
    def box(self) -> Box:
        return self.binding.box

    def copy(self) -> Scope:
        """A copy with its own set of taken names."""
        return replace(self, taken=set(self.taken))

    def enter_loop(
        self, name: str, low: Size, high: Size | None, step: int
    ) -> tuple[Scope, str, Size]:
        """The scope of a loop's body, the loop's variable, and its base.

        The variable starts at 0 where `low` may be negative: then `name` is variable + low.
        """
        variable = new_name(name, self.taken)
        low_bound = bounds(low, self.box).lo
        base = as_size(0)
        if low_bound is None or low_bound < 0:
            base, low_bound = low, 0
            low, high = as_size(0), None if high is None else high - base
        symbol = Size.symbol(variable)
        facts = [symbol - low] if low.constant is None else []
        facts += [] if high is None else [high - 1 - symbol]
        box = _extend_box(self.box, Dim(variable, low_bound), facts)
        sizes = {**self.binding.sizes, name: symbol + base}
        binding = replace(self.binding, box=box, sizes=sizes)
        loops = (*self.loops, LoopAround(variable, low, high, step, name, base))
        return replace(self, binding=binding, loops=loops), variable, base

    def within(self, condition: Expr, holds: bool) -> Scope:
        """The scope of a branch that runs where a condition holds, or where it does not."""
        box = with_facts(self.box, facts_of(condition, holds, self.box))
        return replace(self, binding=replace(self.binding, box=box), conditional=True)


def new_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, derived from `name`, and mark it as taken."""
    number, new = 1, name
    while new in taken:
        number += 1
        new = f"{name}_{number}"
    taken.add(new)
    return new


def _extend_box(box: Box, dim: Dim, facts: Sequence[Size]) -> Box:
    return with_facts(Box.of(*box.dims, dim, constraints=box.constraints), facts)


def with_facts(box: Box, facts: Iterable[Size]) -> Box:
    """The part of a box where sizes are not negative; facts on unknown names are dropped."""
    known = {dim.name for dim in box.dims}
    new = tuple(f for f in facts if f.symbols and f.symbols <= known and f not in box.constraints)
    return Box.of(*box.dims, constraints=(*box.constraints, *new)) if new else box


# ---- facts from conditions ---------------------------------------------------------------------

_OPPOSITE = {
    "less": "greater_equal", "greater_equal": "less", "greater": "less_equal",
    "less_equal": "greater", "equal": "not_equal", "not_equal": "equal",
}  # fmt: skip


def facts_of(condition: Expr, holds: bool, box: Box) -> list[Size]:
    """Sizes that are not negative where a condition holds (or does not); other conditions imply
    no facts."""
    if not isinstance(condition, Apply):
        return []
    if condition.function == "not":
        return facts_of(condition.arguments[0], not holds, box)
    if condition.function == ("and" if holds else "or"):
        return [fact for part in condition.arguments for fact in facts_of(part, holds, box)]
    if condition.function not in _OPPOSITE:
        return []
    sides = [_size(argument) for argument in condition.arguments]
    if sides[0] is None or sides[1] is None:
        return []
    function = condition.function if holds else _OPPOSITE[condition.function]
    return _relation(function, sides[0], sides[1], box)


def exact_facts(condition: Expr, holds: bool, box: Box) -> list[Size] | None:
    """Sizes that are not negative exactly where a condition holds (or does not); None if none."""
    if not isinstance(condition, Apply):
        return None
    if condition.function == "not":
        return exact_facts(condition.arguments[0], not holds, box)
    if condition.function == ("and" if holds else "or"):
        parts = [exact_facts(part, holds, box) for part in condition.arguments]
        found = [fact for part in parts if part is not None for fact in part]
        return None if None in parts else found
    return facts_of(condition, holds, box) or None


def _size(expr: Expr) -> Size | None:
    if isinstance(expr, SizeTerm):
        return expr.size
    if isinstance(expr, Literal) and type(expr.value) is int:
        return as_size(expr.value)
    return None


def _relation(function: str, left: Size, right: Size, box: Box) -> list[Size]:
    if function == "equal":
        return [left - right, right - left]
    if function == "not_equal":
        if prove(left, ">=", right, box) is Truth.PROVED:
            return [left - right - 1]
        return [right - left - 1] if prove(left, "<=", right, box) is Truth.PROVED else []
    if function.startswith("greater"):
        left, right = right, left
    return [right - left - (0 if function.endswith("equal") else 1)]


# ---- over all iterations -------------------------------------------------------------------------


def hoist_size(size: Size, loops: Sequence[LoopAround], box: Box, at_maximum: bool) -> Size | None:
    """The maximum (or minimum) of a size over all iterations; None when it is unknown.

    Exact where all of these loops run and their ranges do not depend on each other.
    """
    for loop in reversed(loops):
        if loop.variable not in size.symbols:
            continue
        split = size.linear_in((loop.variable,))
        if split is None:
            return None
        coefficient = split[0][loop.variable]
        if prove(coefficient, ">=", 0, box) is Truth.PROVED:
            at_top = at_maximum
        elif prove(coefficient, "<=", 0, box) is Truth.PROVED:
            at_top = not at_maximum
        else:
            return None
        end = loop.maximum if at_top else loop.minimum
        if end is None:
            return None
        size = split[1] + coefficient * end
    return size


def trips(loop: LoopAround) -> Size | None:
    """A size that is positive exactly where a loop runs; None when data-dependent."""
    return None if loop.high is None else loop.high - loop.low
