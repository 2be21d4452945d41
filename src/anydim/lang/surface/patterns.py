"""Patterns of `match` blocks: names resolved to constructors, bindings, and complete cases.

Whether cases are complete, and whether a case is ever reached, is decided column by column
(L. Maranget, "Warnings for pattern matching", 2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.base.text import count_of, quote_list, suggestion
from anydim.lang.surface.printer import print_pattern, print_type_name
from anydim.lang.surface.structure_types import Types, sizes_of
from anydim.lang.surface.syntax import (
    BranchBlock,
    Case,
    Constructor,
    Definition,
    Item,
    LoopBlock,
    MatchBlock,
    Parameter,
    Pattern,
    WhileBlock,
    items,
    targets,
)

MOST_STEPS = 100_000  # of the comparison of the cases of a match
MOST_LEVELS = 500
Row = tuple[Pattern, ...]
_ANY = Pattern("_")


@dataclass(frozen=True)
class Bound:
    """A name that stands for a structure.

    `root` is the parameter that it is a part of, or "" for a structure that a statement assigns;
    `strict` unless it may be all of it.
    """

    kind: Parameter
    root: str
    strict: bool = False


def bindings(
    pattern: Pattern, kind: Parameter, types: Types, inside: bool = False
) -> Iterator[tuple[Pattern, Parameter, bool]]:
    """Yield the names of a pattern, each with its type and whether it is inside a constructor."""
    if pattern.arguments is None:
        if pattern.name != "_":
            yield pattern, kind, inside
        return
    for inner, part in zip(pattern.arguments, _fields(pattern.name, kind, types)):
        yield from bindings(inner, part, types, True)


def field_sizes(
    pattern: Pattern, kind: Parameter, types: Types
) -> Iterator[tuple[set[str], set[str]]]:
    """Yield, for each constructor in a pattern, the sizes of its fields and those that count
    structures."""
    if pattern.arguments is None:
        return
    fields = _fields(pattern.name, kind, types)
    sizes: set[str] = set()
    counts: set[str] = set()
    for part in fields:
        found = counts if types.is_list(part) else sizes
        found.update(sizes_of(replace(part, arguments=())))
    yield sizes - counts, counts
    for inner, part in zip(pattern.arguments, fields):
        yield from field_sizes(inner, part, types)


def _fields(name: str, kind: Parameter, types: Types) -> tuple[Parameter, ...]:
    return {each.name: each.fields for each in types.constructors(kind)}[name]


# ---- resolution --------------------------------------------------------------------------------


@dataclass
class Resolver:
    """Resolves the patterns of a definition; raises LanguageError for those that are invalid."""

    definition: Definition
    types: Types
    tensors: set[str] = field(default_factory=set)

    def block(
        self, block: tuple[Item, ...], scope: Mapping[str, Parameter], inner: str = ""
    ) -> tuple[Item, ...]:
        """A block with resolved patterns; `inner` names the loop or branch that it is in."""
        made: list[Item] = []
        for item in block:
            if isinstance(item, MatchBlock):
                if inner or any(isinstance(each, MatchBlock) for each in made):
                    problem = f"a match cannot be inside {inner}" if inner else (
                        "a block has one match, and this is the second")  # fmt: skip
                    hint = "put it into a definition of its own, and call that"
                    raise self.definition.error(item.position, problem, hint)
                item = self._match(item, scope)
            elif isinstance(item, (LoopBlock, WhileBlock)):
                item = replace(item, body=self.block(item.body, scope, "a loop"))
            elif isinstance(item, BranchBlock):
                then = self.block(item.then, scope, "a branch")
                otherwise = self.block(item.otherwise, scope, "a branch")
                item = replace(item, then=then, otherwise=otherwise)
            made.append(item)
        return tuple(made)

    def _match(self, match: MatchBlock, scope: Mapping[str, Parameter]) -> MatchBlock:
        kinds = [self._matched_type(name.name, name.position, scope) for name in match.structures]
        if len({name.name for name in match.structures}) < len(kinds):
            raise self.definition.error(match.position, "a structure is matched twice")
        if not match.cases:
            hint = "add one for each constructor, or _ { ... } for all"
            raise self.definition.error(match.position, "the match has no case", hint)
        rows: list[Row] = []
        cases: list[Case] = []
        try:
            for case in match.cases:
                row = self._row(case, kinds)
                if not _Steps(self.types).useful(rows, row, kinds):
                    problem = "the case is never reached: the cases before fit all that it fits"
                    hint = self._misspelt(rows, kinds) or "remove it, or move it up"
                    raise self.definition.error(case.position, problem, hint)
                rows.append(row)
                body = self.block(case.body, self._inside(row, kinds, scope))
                cases.append(replace(case, patterns=row, body=body))
            missing = _Steps(self.types).missing(rows, kinds)
        except _TooMany:
            raise self._too_many(match) from None
        if missing is not None:
            text = ", ".join(map(print_pattern, missing))
            hint = f"add a case: {text} {{ ... }}"
            raise self.definition.error(match.position, f"no case fits {text}", hint)
        return replace(match, cases=tuple(cases))

    def _row(self, case: Case, kinds: Sequence[Parameter]) -> Row:
        """The resolved patterns of a case."""
        if len(case.patterns) != len(kinds):
            structures, patterns = count_of(len(kinds), "structure"), len(case.patterns)
            problem = f"the match has {structures}, but the case {count_of(patterns, 'pattern')}"
            raise self.definition.error(case.position, problem, "write one pattern for each")
        row = tuple(map(self._pattern, case.patterns, kinds))
        seen: set[str] = set()
        for pattern, kind in zip(row, kinds):
            for name, _, _ in bindings(pattern, kind, self.types):
                if name.name in seen:
                    problem = f"'{name.name}' occurs twice in the patterns of a case"
                    hint = "rename one of them, or write '_' for what the case does not use"
                    raise self.definition.error(name.position, problem, hint)
                seen.add(name.name)
        return row

    def _inside(
        self, row: Row, kinds: Sequence[Parameter], scope: Mapping[str, Parameter]
    ) -> dict[str, Parameter]:
        """The structures that have names in a case."""
        inside = dict(scope)
        for pattern, kind in zip(row, kinds):
            for name, part, _ in bindings(pattern, kind, self.types):
                inside.pop(name.name, None)
                if self.types.is_structure(part):
                    inside[name.name] = part
                else:
                    self.tensors.add(name.name)
        return inside

    def _misspelt(self, rows: Sequence[Row], kinds: Sequence[Parameter]) -> str:
        """A hint if a name that fits everything is similar to a constructor."""
        for row in rows:
            for pattern, kind in zip(row, kinds):
                for name, part, _ in bindings(pattern, kind, self.types):
                    if self.types.is_structure(part) and not self.types.is_list(part):
                        known = [each.name for each in self.types.constructors(part)]
                        found = suggestion(name.name, known)
                        if found:
                            return f"'{name.name}' is a name that fits all: {found}"
        return ""

    def _too_many(self, match: MatchBlock) -> LanguageError:
        problem = "the match has too many patterns to compare"
        hint = "match fewer structures at once"
        return self.definition.error(match.position, problem, hint)

    def _matched_type(self, name: str, position: int, scope: Mapping[str, Parameter]) -> Parameter:
        """The type of a name that is matched."""
        if name in scope:
            if self.types.is_list(scope[name]):
                problem = f"'{name}' is any number of structures, and a match takes one"
                hint = f"call a definition for each of them: h = f({name})"
                raise self.definition.error(position, problem, hint)
            return scope[name]
        parameters = {each.name: each for each in self.definition.parameters}
        if name in parameters or name in self.tensors:
            hint = f"a match takes {quote_list(scope)}" if scope else "a match takes structures"
            if name in parameters and parameters[name].type[0].isupper():
                kind = parameters[name].type
                hint = suggestion(kind, self.types.declared) or (
                    f"declare its type: type {kind} {{ ... }}")  # fmt: skip
            raise self.definition.error(position, f"'{name}' is a tensor, not a structure", hint)
        hint = suggestion(name, scope) or f"there is {quote_list(scope)}"
        problem = f"there is no structure '{name}'"
        if name in targets(self.definition.statements):
            problem = f"'{name}' is assigned, and a match takes parameters and their parts"
        raise self.definition.error(position, problem, hint)

    def _pattern(self, pattern: Pattern, kind: Parameter) -> Pattern:
        """A pattern with its names resolved to constructors of the type."""
        if not self.types.is_structure(kind) or self.types.is_list(kind):
            if pattern.arguments is not None:
                what = "any number of structures" if kind.shape and self.types.is_structure(
                    kind) else "a tensor"  # fmt: skip
                problem = f"field '{kind.name}' is {what}, so its pattern is a name or '_'"
                raise self.definition.error(pattern.position, problem)
            return pattern
        known = {each.name: each for each in self.types.constructors(kind)}
        constructor = known.get(pattern.name)
        if constructor is None:
            if pattern.arguments is None:
                return pattern
            problem = f"'{pattern.name}' is no constructor of {print_type_name(kind)}"
            hint = suggestion(pattern.name, known) or f"there is {quote_list(known)}"
            raise self.definition.error(pattern.position, problem, hint)
        given = pattern.arguments or ()
        if len(given) != len(constructor.fields):
            count = len(constructor.fields)
            fields = count_of(count, "field") if count else "no fields"
            problem = f"'{pattern.name}' has {fields}, but {len(given)} in the pattern"
            raise self.definition.error(
                pattern.position, problem, f"write {shown_constructor(constructor)}"
            )
        return replace(pattern, arguments=tuple(map(self._pattern, given, constructor.fields)))


def shown_constructor(constructor: Constructor) -> str:
    """A constructor as a pattern: `node(left, right)`."""
    return print_pattern(
        Pattern(constructor.name, tuple(Pattern(part.name) for part in constructor.fields))
    )


def pattern_names(block: tuple[Item, ...]) -> Iterator[str]:
    """Yield all names in the patterns of a block."""
    for item in items(block):
        if isinstance(item, MatchBlock):
            waiting = [pattern for case in item.cases for pattern in case.patterns]
            for pattern in waiting:
                waiting += pattern.arguments or ()
                if pattern.arguments is None:
                    yield pattern.name


# ---- complete cases ----------------------------------------------------------------------------


class _TooMany(Exception):
    pass


@dataclass
class _Steps:
    """Comparison of the rows of patterns of a match, with a count of its steps."""

    types: Types
    count: int = 0

    def missing(
        self, rows: Sequence[Row], kinds: Sequence[Parameter], level: int = 0
    ) -> Row | None:
        """Patterns that no row fits; None if the rows are complete."""
        self._step(level)
        if not rows:
            return (_ANY,) * len(kinds)
        if any(_fits_all(row) for row in rows):
            return None
        if all(row[0].arguments is None for row in rows):
            found = self.missing([row[1:] for row in rows], kinds[1:], level + 1)
            return None if found is None else (_ANY, *found)
        for constructor in self.types.constructors(kinds[0]):
            fields = constructor.fields
            inner = [new for row in rows for new in _inside(row, constructor)]
            found = self.missing(inner, (*fields, *kinds[1:]), level + 1)
            if found is not None:
                parts, rest = found[: len(fields)], found[len(fields) :]
                return (Pattern(constructor.name, parts), *rest)
        return None

    def useful(
        self, rows: Sequence[Row], row: Row, kinds: Sequence[Parameter], level: int = 0
    ) -> bool:
        """Whether a row fits something that no earlier row fits."""
        self._step(level)
        if not rows or any(_fits_all(each) for each in rows):
            return not rows
        if all(each[0].arguments is None for each in (*rows, row)):
            return self.useful([each[1:] for each in rows], row[1:], kinds[1:], level + 1)
        for constructor in self.types.constructors(kinds[0]):
            for new in _inside(row, constructor):
                inner = [new for each in rows for new in _inside(each, constructor)]
                if self.useful(inner, new, (*constructor.fields, *kinds[1:]), level + 1):
                    return True
        return False

    def _step(self, level: int) -> None:
        self.count += 1
        if self.count > MOST_STEPS or level > MOST_LEVELS:
            raise _TooMany


def _fits_all(row: Row) -> bool:
    return all(pattern.arguments is None for pattern in row)


def _inside(row: Row, constructor: Constructor) -> Iterator[Row]:
    """The row for the fields of a constructor, if the first pattern fits it."""
    first, rest = row[0], row[1:]
    if first.arguments is None:
        yield (*(_ANY for _ in constructor.fields), *rest)
    elif first.name == constructor.name:
        yield (*first.arguments, *rest)
