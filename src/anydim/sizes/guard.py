"""A relation between sizes that is checked when a program runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.sizes.expression import Size


@dataclass(frozen=True)
class Guard:
    """`left relation right` must hold ('==', '!=', '<=', '<'); `message` is the reason."""

    left: Size
    relation: str
    right: Size
    message: str

    @property
    def symbols(self) -> frozenset[str]:
        """The names it depends on."""
        return self.left.symbols | self.right.symbols

    def substitute(self, env: Mapping[str, Size | int]) -> Guard:
        """The same relation with symbols replaced."""
        return replace(self, left=self.left.substitute(env), right=self.right.substitute(env))


def merged_guards(guards: Iterable[Guard], more: Iterable[Guard], source: str = "") -> list[Guard]:
    """The guards, then those of `more` with a new relation, their messages prefixed by `source`."""
    found = {(guard.left, guard.relation, guard.right): guard for guard in guards}
    for guard in more:
        labelled = replace(guard, message=f"{source}: {guard.message}") if source else guard
        found.setdefault((guard.left, guard.relation, guard.right), labelled)
    return list(found.values())


def holds(guard: Guard, sizes: Mapping[str, int]) -> bool:
    """Whether a guard holds at these sizes."""
    left, right = guard.left.evaluate(sizes), guard.right.evaluate(sizes)
    return {
        "==": left == right, "!=": left != right, "<=": left <= right, "<": left < right
    }[guard.relation]  # fmt: skip
