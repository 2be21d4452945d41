"""Ranks of ellipses: from the ranks of the arguments, or as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.base.user_values import short_repr
from anydim.lang.surface.syntax import Definition, Parameter, Spread


@dataclass
class Ranks:
    """Ranks by ellipsis; `own` has them by (parameter, ellipsis).

    A parameter with one ellipsis may have fewer of its dimensions: the others broadcast.
    """

    definition: Definition
    arguments: Mapping[str, int]  # the rank of each argument
    whole: dict[str, int] = field(default_factory=dict)
    own: dict[tuple[str, str], int] = field(default_factory=dict)

    def split(self, parameter: Parameter, found: Sequence[Spread]) -> None:
        """Distribute the dimensions of a parameter over its several ellipses."""
        unknown = [term for term in found if term.name not in self.whole]
        if len(unknown) > 1:
            names = " or ".join(f"'...{term.name}'" for term in unknown)
            raise self.definition.error(
                parameter.position,
                f"the dimensions of '{parameter.name}' are split ambiguously over its ellipses",
                f"give {names}, its number of dimensions, like an attribute",
            )
        taken = sum(self.whole[term.name] for term in found if term.name in self.whole)
        free = self.free(parameter, taken, exact=not unknown)
        if unknown:
            self.whole[unknown[0].name] = free
        for term in found:
            self.own[parameter.name, term.name] = self.whole[term.name]

    def free(self, parameter: Parameter, taken: int = 0, exact: bool = False) -> int:
        """Dimensions of an argument that plain terms and `taken` leave to an ellipsis."""
        needed = taken + sum(not isinstance(term, Spread) for term in parameter.shape)
        actual = self.arguments[parameter.name]
        if actual < needed or (exact and actual > needed):
            least = "" if exact else "at least "
            raise self.definition.error(
                parameter.position,
                f"'{parameter.name}' has {least}{count_of(needed, 'dimension')}, "
                f"but the argument has {actual}",
                "give an array of that rank, or declare an ellipsis such as '...b'"
                if exact
                else "give an array of that rank",
            )
        return actual - needed


def ranks_of(
    definition: Definition, arguments: Mapping[str, int], given: Mapping[str, Any]
) -> Ranks:
    """The ranks of all ellipses; `given` holds attributes, and "...p" for the rank of an ellipsis.

    Raises LanguageError for ranks that are ambiguous or do not fit.
    """
    ranks = Ranks(definition, arguments, whole=_given_ranks(definition, given))
    for parameter in definition.parameters:
        found = spreads_of(parameter)
        if len(found) == 1:
            name = found[0].name
            ranks.own[parameter.name, name] = ranks.free(parameter)
            if f"...{name}" not in given:
                ranks.whole[name] = max(ranks.own[parameter.name, name], ranks.whole.get(name, 0))
    for parameter in definition.parameters:
        found = spreads_of(parameter)
        if len(found) > 1:
            ranks.split(parameter, found)
        elif not found:
            ranks.free(parameter, exact=True)
    for (tensor, name), own in ranks.own.items():
        if own > ranks.whole[name]:
            raise definition.error(
                definition.position,
                f"'{tensor}' has {count_of(own, 'dimension')} for '...{name}', "
                f"which has {ranks.whole[name]}",
                "give an array with fewer dimensions",
            )
    return ranks


def spreads_of(parameter: Parameter) -> list[Spread]:
    """The ellipses in the shape of a parameter."""
    return [term for term in parameter.shape if isinstance(term, Spread)]


def ellipses_of(definition: Definition) -> tuple[str, ...]:
    """The ellipses of a definition, in order."""
    found = (term.name for p in definition.parameters for term in spreads_of(p))
    return tuple(dict.fromkeys(found))


def _given_ranks(definition: Definition, given: Mapping[str, Any]) -> dict[str, int]:
    known = {name[3:]: value for name, value in given.items() if name.startswith("...")}
    for name, value in known.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise definition.error(
                definition.position, f"'...{name}' stands for {short_repr(value)} dimensions",
                "give an integer >= 0",
            )  # fmt: skip
    return known
