"""Parses definitions and structure types, by recursive descent."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from anydim.base.text import suggestion
from anydim.lang.surface.assignments import assign, assign_several, define_term
from anydim.lang.surface.scanner import END, NAME, Word
from anydim.lang.surface.syntax import (
    ATTRIBUTE_KINDS,
    Assignment,
    Attribute,
    BranchBlock,
    CallTerm,
    Case,
    Constructor,
    Definition,
    Exists,
    Given,
    Invoke,
    Item,
    LoopBlock,
    MatchBlock,
    Name,
    Number,
    Operation,
    Parameter,
    Pattern,
    Problem,
    Range,
    StructureType,
    Term,
    WhileBlock,
)
from anydim.lang.surface.terms import TermReader, check_depth, check_not_reserved

DEEPEST_BLOCK = 32
DEEPEST_LOOPS = 8  # proofs about sizes get slower with every enclosing loop
LARGEST_PATTERN = 200  # constructors and names of a case
_match_structure = re.compile(r"(?!(min|max)=)[A-Za-z_]").match  # `match` of others is a name


class DefinitionReader(TermReader):
    """Reads a text of definitions and structure types."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._blocks = self._loops = self._types = 0  # open ones
        self._names = 0  # in the patterns of this case

    def read(self) -> tuple[list[StructureType], list[Definition]]:
        """The types and definitions as they are written; raises Problem."""
        types: list[StructureType] = []
        definitions: list[Definition] = []
        while self.at < len(self.text):
            if self.keyword("def"):
                definitions.append(self._definition())
            elif self.keyword("type"):
                types.append(self._structure())
            else:
                self.fail(END)
        return types, definitions

    # ---- definitions ---------------------------------------------------------------------------

    def _definition(self) -> Definition:
        name = self.name()
        self.need("(")
        parameters = self._parameters(")", ";")
        attributes = self.items(self._attribute) if self.mark(";") else ()
        self.need(")")
        self.need("->")
        results, statements = self._results(), self._block()
        return Definition(str(name), parameters, attributes, results, statements, (), name.position)

    def _parameters(self, *ends: str) -> tuple[Parameter, ...]:
        return () if self.starts(*ends) else self.items(self._parameter)

    def _parameter(self) -> Parameter:
        kind = self._type()
        return replace(kind, name=str(self.name()))

    def _type(self) -> Parameter:
        """A type, as a parameter without a name."""
        kind, arguments = self.name(), tuple[Parameter, ...]()
        if self.mark("<"):
            self._types += 1
            if self._types >= DEEPEST_BLOCK:
                raise Problem(kind.position, f"types nested more than {DEEPEST_BLOCK} deep")
            arguments = self.items(self._type)
            self.need(">")
            self._types -= 1
        rows, sizes = [], []
        for term in self.arguments():
            index = _row_of(term)
            if index is not None and isinstance(term, CallTerm):
                rows.append((term.name, index))
                term = Name(term.name, term.position)
            sizes.append(term)
        return Parameter("", str(kind), tuple(sizes), kind.position, tuple(rows), arguments)

    def _attribute(self) -> Attribute:
        kind, name = self.name(), self.name()
        default = self.term() if self.mark("=") else None
        if kind not in ATTRIBUTE_KINDS:
            hint = suggestion(kind, ATTRIBUTE_KINDS) or f"kinds: {', '.join(ATTRIBUTE_KINDS)}"
            raise Problem(kind.position, f"an attribute cannot be of kind '{kind}'", hint)
        value = None if default is None else _constant(kind, default)
        return Attribute(str(name), str(kind), value, name.position)

    def _results(self) -> tuple[str, ...]:
        if not self.mark("("):
            return (str(self.name()),)
        names = () if self.starts(")") else self.items(self.name)
        self.need(")")
        return tuple(map(str, names))

    # ---- structures ----------------------------------------------------------------------------

    def _structure(self) -> StructureType:
        name, parameters, constructors = self.name(), tuple[Word, ...](), list[Constructor]()
        if self.mark("<"):
            parameters = self.items(self.name)
            self.need(">")
        self.need("{")
        while not self.mark("}"):
            constructors.append(self._constructor())
            self.mark(";")
        names = tuple(map(str, parameters))
        return StructureType(str(name), tuple(constructors), names, name.position)

    def _constructor(self) -> Constructor:
        name, fields = self.name(), tuple[Parameter, ...]()
        if self.mark("("):
            fields = self._parameters(")")
            self.need(")")
        return Constructor(str(name), fields, name.position)

    def _match(self, word: Word) -> MatchBlock:
        structures, cases = self.items(self._allowed_name), list[Case]()
        self.need("{")
        while not self.mark("}"):
            if self.starts_with_word("else"):
                self.fail(NAME)
            self._names = 0
            patterns = self.items(self._pattern)
            cases.append(Case(patterns, self._block(), patterns[0].position))
            self.mark(";")
        matched = tuple(Name(str(name), name.position) for name in structures)
        return MatchBlock(matched, tuple(cases), word.position)

    def _allowed_name(self) -> Word:
        name = self.name()
        check_not_reserved(name)
        return name

    def _pattern(self) -> Pattern:
        name = self._allowed_name()
        self._names += 1
        if self._names > LARGEST_PATTERN:
            problem = f"a pattern has more than {LARGEST_PATTERN} names"
            raise Problem(name.position, problem, "match the parts in a case of its own")
        if not self.mark("("):
            return Pattern(str(name), None, name.position)
        fields = () if self.starts(")") else self.items(self._pattern)
        self.need(")")
        return Pattern(str(name), fields, name.position)

    # ---- statements ----------------------------------------------------------------------------

    def _block(self) -> tuple[Item, ...]:
        self.need("{")
        found = []
        while not self.mark("}"):
            found.append(self._statement())
            self.mark(";")
        return tuple(found)

    def _statement(self) -> Item:
        if self.starts_with_word("else", "where"):
            self.fail(NAME, *_BLOCKS)
        self.missed += _BLOCKS
        word = self.name()
        read = _BLOCKS.get(word)
        if read is None or (word == "match" and not _match_structure(self.text, self.at)):
            return self._assignment(word)
        self._blocks += 1
        self._loops += word in ("for", "while")
        if self._loops > DEEPEST_LOOPS:
            raise Problem(word.position, f"loops nested more than {DEEPEST_LOOPS} deep")
        if self._blocks > DEEPEST_BLOCK:
            raise Problem(word.position, f"blocks nested more than {DEEPEST_BLOCK} deep")
        item = read(self, word)
        self._blocks -= 1
        self._loops -= word in ("for", "while")
        return item

    def _assignment(self, word: Word) -> Assignment | Invoke:
        targets = [(word, self.arguments())]
        while self.mark(","):
            targets.append((self.name(), self.arguments()))
        operator, value = self.assignment(), self.term()
        if len(targets) > 1:
            return assign_several(targets, operator, value)
        clauses = self.items(self._clause) if self.keyword("where") else ()
        return assign(*targets[0], operator, value, clauses)

    def _clause(self) -> Range | Exists | Given:
        if self.keyword("exists"):
            name = self.name()
            self.need("(")
            indices = self.terms(")")
            self.need(")")
            return Exists(str(name), indices, name.position)
        name = self.name()
        if not self.keyword("in"):
            return define_term(name, self.assignment(), self.term())
        low = self.chain()
        self.need(":")
        return Range(str(name), low, self.chain(), name.position)

    def _loop(self, word: Word) -> LoopBlock:
        name = self.name()
        self.need_keyword("in")
        ends = [self.chain()]
        while len(ends) < 3 and self.mark(":"):
            ends.append(self.chain())
        if len(ends) == 1:
            ends.insert(0, Number(0))
        start, stop, step = ends if len(ends) == 3 else (*ends, Number(1))
        check_depth(start, stop, step)
        return LoopBlock(str(name), start, stop, step, self._block(), word.position)

    def _while(self, word: Word) -> WhileBlock:
        condition = self.term()
        check_depth(condition)
        return WhileBlock(condition, self._block(), word.position)

    def _branch(self, word: Word) -> BranchBlock:
        condition = self.term()
        check_depth(condition)
        then, otherwise = self._block(), tuple[Item, ...]()
        if self.keyword("else"):
            chained = self.starts_with_word("if")
            self.missed.append("if")
            otherwise = (self._statement(),) if chained else self._block()
        return BranchBlock(condition, then, otherwise, word.position)


_BLOCKS: dict[str, Callable[[DefinitionReader, Word], Item]] = {
    "for": DefinitionReader._loop, "if": DefinitionReader._branch,
    "match": DefinitionReader._match, "while": DefinitionReader._while,
}  # fmt: skip


def _row_of(term: Term) -> str | None:
    """The index of the row that a ragged size depends on: b of `L(b)`; None for other sizes."""
    if not isinstance(term, CallTerm) or len(term.arguments) != 1 or not term.name[0].isupper():
        return None
    (argument,) = term.arguments
    return argument.name if isinstance(argument, Name) else None


def _constant(kind: Word, term: Term) -> int | float | bool | str:
    """The value of an attribute's default, which must be a plain constant of its kind."""
    if kind == "type":
        if isinstance(term, Name):
            return term.name
        raise Problem(term.position, "the default of a type attribute must be a type name")
    sign, inner = 1, term
    if isinstance(term, Operation) and term.function == "neg":
        sign, inner = -1, term.arguments[0]
    if not isinstance(inner, Number) or (sign < 0 and isinstance(inner.value, bool)):
        raise Problem(term.position, "the default of an attribute must be a constant")
    value = inner.value
    fits = {
        "int": type(value) is int,
        "size": type(value) is int,
        "bool": isinstance(value, bool),
        "float": not isinstance(value, bool),
    }
    if not fits[kind]:
        raise Problem(term.position, f"{value} is not a default for kind '{kind}'")
    if isinstance(value, bool):
        return value
    return float(sign * value) if kind == "float" else sign * value
