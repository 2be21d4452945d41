"""Meanings of the names of a definition while it is checked, and scopes of the cases of a match."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.base.text import article, count_of
from anydim.lang.surface.hints import shown_read
from anydim.lang.surface.patterns import Bound, bindings, field_sizes
from anydim.lang.surface.structure_types import Types
from anydim.lang.surface.syntax import (
    RESERVED,
    Case,
    Definition,
    Item,
    MatchBlock,
    Parameter,
    Spread,
    Term,
    targets,
)


@dataclass
class Names:
    """Meanings of the names of a definition; `tensors` grows as statements write.

    `family` are the definitions that call this one and are called by it, `made` the types of the
    structures that statements assign, by position and name. `fields` are tensors, and `counts`
    sizes, of the patterns around.
    """

    definition: Definition
    others: Mapping[str, Definition]
    structure_types: Types = field(default_factory=Types)
    family: frozenset[str] = frozenset()
    made: Mapping[tuple[int, str], Parameter] = field(default_factory=dict)
    tensors: dict[str, int | None] = field(default_factory=dict)  # rank; None when it varies
    structures: dict[str, Bound] = field(default_factory=dict)
    sizes: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    ellipses: set[str] = field(default_factory=set)
    loops: list[str] = field(default_factory=list)  # variables of the loops around
    branches: int = 0  # around
    whiles: int = 0  # around
    fields: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)
    partial: set[str] = field(default_factory=set)  # tensors of some cases of a match before

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        return self.definition.error(position, problem, hint)

    def is_index(self, name: str) -> bool:
        return self.role(name) == "index"

    def role(self, name: str) -> str:
        """The role of a name in a statement: tensor, size, attribute, loop variable or index."""
        kinds: dict[str, Container[str]]
        kinds = {"tensor": self.tensors, "structure": self.structures, "size": self.sizes,
                 "attribute": self.attributes, "loop variable": self.loops}  # fmt: skip
        return next((kind for kind, names in kinds.items() if name in names), "index")

    def some_cases(self, name: str) -> str:
        """A problem: a name is a tensor of some cases of a match before; '' if it is not."""
        partial = name in self.partial and self.is_index(name)
        return f"only some cases of the match assign '{name}'" if partial else ""

    def read(self, tensor: str) -> str:
        """Text of a read of a tensor: `x(i,j)`."""
        return shown_read(tensor, self.tensors.get(tensor))

    # ---- cases ---------------------------------------------------------------------------------

    def case(self, match: MatchBlock, case: Case) -> Names:
        """The names inside a case."""
        inner = replace(
            self, tensors=dict(self.tensors), structures=dict(self.structures),
            sizes=set(self.sizes), fields=set(self.fields), counts=set(self.counts),
        )  # fmt: skip
        for name, pattern in zip(match.structures, case.patterns):
            bound = self.structures[name.name]
            for each, kind, inside in bindings(pattern, bound.kind, self.structure_types):
                self._check_pattern_name(each.name, each.position)
                if self.structure_types.is_structure(kind):
                    strict = bound.strict or inside
                    inner.structures[each.name] = Bound(kind, bound.root, strict)
                else:
                    inner.tensors[each.name] = rank_of(kind.shape)
                    inner.fields.add(each.name)
        for name, pattern in zip(match.structures, case.patterns):
            kind = self.structures[name.name].kind
            for sizes, counts in field_sizes(pattern, kind, self.structure_types):
                inner._add_sizes(sizes - self.attributes, counts, pattern.position)
        return inner

    def _check_pattern_name(self, name: str, position: int) -> None:
        what = self.role(name)
        if name in self.types or name in RESERVED:
            what = "type" if name in self.types else "reserved word"
        if what != "index":
            problem = f"'{name}' is {article(what)} already, and cannot name a field"
            raise self.error(position, problem, "use another name in the pattern")

    def _add_sizes(self, sizes: set[str], counts: set[str], position: int) -> None:
        """Add the sizes of the fields of a constructor; `counts` are numbers of structures."""
        clash = (counts & (self.sizes | self.attributes)) | (sizes & self.counts)
        if clash:
            problem = f"'{min(clash)}' is a number of structures here, and another size already"
            hint = "rename the size in the definition, or match in a definition of its own"
            raise self.error(position, problem, hint)
        for name in sorted((sizes | counts) - self.sizes):
            if not self.is_index(name):
                problem = f"'{name}' is {article(self.role(name))}, and a size of the fields here"
                raise self.error(position, problem, f"rename the {self.role(name)}")
        self.sizes |= sizes | counts
        self.counts |= counts

    def join(self, match: MatchBlock, cases: Sequence[Names]) -> None:
        """Add the tensors and the structures that every case of a match assigns."""
        structures = [
            {name for name, bound in case.structures.items() if not bound.root}
            - self.structures.keys()
            for case in cases
        ]
        for name in set.intersection(*structures):
            self.structures[name] = cases[0].structures[name]
        self.partial |= set.union(*structures) - self.structures.keys()
        written = [case.tensors.keys() - case.fields - self.tensors.keys() for case in cases]
        common = set.intersection(*written)
        self.partial |= set.union(*written) - common
        for name, rank in cases[0].tensors.items():
            if name not in common:
                continue
            ranks = {case.tensors[name] for case in cases} - {None}
            if len(ranks) > 1:
                low, high = sorted(known for known in ranks if known is not None)[:2]
                problem = (
                    f"'{name}' has {count_of(low, 'dimension')} in one case, {high} in another"
                )
                raise self.error(match.position, problem, "rename one of them")
            self.tensors[name] = min((r for r in ranks if r is not None), default=rank)


def rank_of(indices: tuple[Term, ...]) -> int | None:
    """The number of dimensions; None with an ellipsis."""
    return None if any(isinstance(i, Spread) for i in indices) else len(indices)


def case_without_assignment(block: tuple[Item, ...], name: str) -> Case | None:
    """A case without an assignment of a tensor that is not assigned outside of its match."""
    cases: list[Case] = []
    for item in block:
        if isinstance(item, MatchBlock):
            cases += item.cases
        elif name in targets((item,)):
            return None
    for case in cases:
        if any(isinstance(inner, MatchBlock) for inner in case.body):
            found = case_without_assignment(case.body, name)
        else:
            found = None if name in targets(case.body) else case
        if found is not None:
            return found
    return None


# ---- calls with structures ---------------------------------------------------------------------


def first_structure(definition: Definition, types: Types) -> Parameter | None:
    """The first parameter that is a structure, which gets smaller in recursive calls."""
    return next((each for each in definition.parameters if types.is_structure(each)), None)
