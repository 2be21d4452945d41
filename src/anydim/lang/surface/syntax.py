"""The surface tree: a definition as written, before any argument is known.

`parser.py` builds it, `printer.py` prints it, `resolve/instantiate.py` converts it to a
`tree.Group` once the types of the arguments are known. Positions (0-based, into the text) are only
for errors and take no part in comparisons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import TypeAlias

from anydim.base.dtypes import DTYPES
from anydim.base.errors import LanguageError
from anydim.base.records import dataclass
from anydim.base.text import caret, line_and_column

TYPE_NAMES = {
    "float": "float32", "double": "float64", "half": "float16", "int": "int32", "byte": "uint8",
    "bool": "bool", "float64": "float64", "float32": "float32", "float16": "float16",
    "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8", "uint64": "uint64",
    "uint32": "uint32", "uint16": "uint16", "uint8": "uint8",
    **{name: name for name, dtype in DTYPES.items() if not dtype.is_native},
}  # fmt: skip

FUNCTION_ALIASES = {"fmin": "min", "fmax": "max", "fabs": "abs"}

ATTRIBUTE_KINDS = ("int", "float", "bool", "size", "type")

RESERVED = frozenset(
    ("def", "where", "in", "exists", "else", "for", "if", "while", "cast", "size", "true", "false",
     "inf", "nan")
)  # fmt: skip

# Infix operators, lowest precedence first, left-associative: C's order, with // at the level of /.
PRECEDENCE: dict[str, int] = {
    operator: level
    for level, operators in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / // %"), start=1
    )
    for operator in operators.split()
}


def _position() -> int:
    return field(default=0, compare=False, repr=False)


# ---- expressions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A literal: `2`, `0.5`, `true`, `inf`."""

    value: int | float | bool
    position: int = _position()


@dataclass(frozen=True)
class Name:
    """An index, a size variable, an attribute or a scalar."""

    name: str
    position: int = _position()


@dataclass(frozen=True)
class Spread:
    """`...b`: any number of dimensions or indices."""

    name: str
    position: int = _position()


@dataclass(frozen=True)
class Dimension:
    """`A.1`: the size of a dimension of a tensor."""

    tensor: str
    axis: int
    position: int = _position()


@dataclass(frozen=True)
class Count:
    """`size(...b)`: the product of the sizes of an ellipsis."""

    ellipsis: str
    position: int = _position()


@dataclass(frozen=True)
class CallTerm:
    """`f(a, b)`: a read of a tensor (optionally with `else default`), a function or a type cast.

    With `settings` it calls a definition: `f(a, b; alpha = 0.5)`.
    """

    name: str
    arguments: tuple[Term, ...]
    default: Term | None = None
    settings: tuple[Setting, ...] = ()
    position: int = _position()


@dataclass(frozen=True)
class Setting:
    """`alpha = 0.5`: the value of an attribute in a call of a definition."""

    name: str
    value: Term
    position: int = _position()


@dataclass(frozen=True)
class Flat:
    """`x[offset]`: a read by row-major offset."""

    tensor: str
    offset: Term
    default: Term | None = None
    position: int = _position()


@dataclass(frozen=True)
class Operation:
    """A function of `functions.py` written as an operator ('select' is `?:`)."""

    function: str
    arguments: tuple[Term, ...]
    position: int = _position()


@dataclass(frozen=True)
class Convert:
    """`cast<T>(x)`."""

    type: str
    argument: Term
    position: int = _position()


Term: TypeAlias = (
    Number | Name | Spread | Dimension | Count | CallTerm | Flat | Operation | Convert
)  # fmt: skip


# ---- statements and definitions ----------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """`where i in low:high`."""

    index: str
    low: Term
    high: Term
    position: int = _position()


@dataclass(frozen=True)
class Exists:
    """`where exists T(i)`: ranges in which T(i) is in bounds; T is not read."""

    tensor: str
    indices: tuple[Term, ...]
    position: int = _position()


@dataclass(frozen=True)
class Given:
    """`where s = a(i)`: a name for a term in this statement."""

    name: str
    value: Term
    position: int = _position()


@dataclass(frozen=True)
class Assignment:
    """`target(indices) combine= value where ...`; `initial`: the operator has a `!`.

    Terms named by `where` are substituted in the other terms; `given` keeps names and positions.
    """

    target: str
    indices: tuple[Term, ...]
    combine: str
    initial: bool
    value: Term
    where: tuple[Range | Exists, ...] = ()
    position: int = _position()
    given: tuple[Name, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Invoke:
    """`C, D = g(A, B)`: tensors assigned from the results of another definition.

    With a `type`, it makes a node of this structure type: `t = node(left, right)`. With `rows`, an
    index, it is a call for each row: `C(b), D(b) = g(A(b), B)`.
    """

    targets: tuple[str, ...]
    call: CallTerm
    position: int = _position()
    type: str = ""
    rows: str = ""


@dataclass(frozen=True)
class LoopBlock:
    """`for variable in start:stop:step { body }`; stop is exclusive, steps may be negative."""

    variable: str
    start: Term
    stop: Term
    step: Term
    body: tuple[Item, ...]
    position: int = _position()


@dataclass(frozen=True)
class BranchBlock:
    """`if condition { then } else { otherwise }`."""

    condition: Term
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...] = ()
    position: int = _position()


@dataclass(frozen=True)
class WhileBlock:
    """`while condition { body }`: iterations until the condition does not hold."""

    condition: Term
    body: tuple[Item, ...]
    position: int = _position()


@dataclass(frozen=True)
class Pattern:
    """`node(left, leaf(x))`: a constructor with patterns of its fields, a name, or `_`.

    `arguments` is None for a name and for `_`; a constructor without fields has none: ().
    """

    name: str
    arguments: tuple[Pattern, ...] | None = None
    position: int = _position()


@dataclass(frozen=True)
class Case:
    """`leaf(x), _ { body }`: one pattern for each value that is matched, and statements."""

    patterns: tuple[Pattern, ...]
    body: tuple[Item, ...]
    position: int = _position()


@dataclass(frozen=True)
class MatchBlock:
    """`match s, t { cases }`: the first case whose patterns fit the structures runs."""

    structures: tuple[Name, ...]
    cases: tuple[Case, ...]
    position: int = _position()


Item: TypeAlias = Assignment | Invoke | LoopBlock | BranchBlock | WhileBlock | MatchBlock


@dataclass(frozen=True)
class Parameter:
    """`T(...b, M) x`: element type (a type name or a type variable), shape and name.

    A ragged size is written with the index of its row: `T(B, L(b)) x`. The shape has the size L,
    and `rows` the pair (L, b). The type may be a structure type: `Tree t`, `List<Tree> l`; a field
    `Tree(K) children` is any number of structures. `arguments` are the type arguments as written,
    without names; linking moves them into the name of the type.
    """

    name: str
    type: str
    shape: tuple[Term, ...] = ()
    position: int = _position()
    rows: tuple[tuple[str, str], ...] = ()
    arguments: tuple[Parameter, ...] = ()

    def sizes_before(self, ragged: str) -> list[str]:
        """The sizes of the axes before that of a ragged size."""
        names = [term.name if isinstance(term, Name) else "" for term in self.shape]
        return names[: names.index(ragged)]


@dataclass(frozen=True)
class Attribute:
    """`float alpha = 0.01`: a value given when the definition is instantiated."""

    name: str
    kind: str
    default: int | float | bool | str | None = None
    position: int = _position()


@dataclass(frozen=True)
class Constructor:
    """`node(Tree left, Tree right)`: one kind of a structure type, with its fields."""

    name: str
    fields: tuple[Parameter, ...] = ()
    position: int = _position()


@dataclass(frozen=True)
class StructureType:
    """`type Tree { leaf(float(D) x); node(Tree left, Tree right) }`.

    `parameters` are the type parameters of a declaration; the types of a definition have none left.
    """

    name: str
    constructors: tuple[Constructor, ...]
    parameters: tuple[str, ...] = ()
    position: int = _position()

    def constructor(self, name: str) -> Constructor:
        """The constructor of that name; KeyError if there is none."""
        return {each.name: each for each in self.constructors}[name]


@dataclass(frozen=True)
class Definition:
    """One `def`. `text` and `file` are its source, for errors.

    `callees` are the definitions that it calls, each with its own. `types` are the structure types
    of its parameters and their fields. `family` are the definitions that call it and are called by
    it, itself included, without families of their own; empty if it does not call itself.
    `result_types` are the structure types of its results, "" for tensors. `nested` are the names of
    the results of calls that were written inside expressions, and how those were written.
    """

    name: str
    parameters: tuple[Parameter, ...]
    attributes: tuple[Attribute, ...]
    results: tuple[str, ...]
    statements: tuple[Item, ...]
    callees: tuple[Definition, ...] = ()
    position: int = _position()
    types: tuple[StructureType, ...] = ()
    family: tuple[Definition, ...] = ()
    result_types: tuple[str, ...] = ()
    text: str = field(default="", compare=False, repr=False)
    file: str = field(default="<text>", compare=False, repr=False)
    nested: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    def __hash__(self) -> int:
        """Hash computed once: a callee may be reachable along very many paths."""
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            parts = (self.name, self.parameters, self.attributes, self.statements, self.callees)
            known = self.__dict__["_hash"] = hash(parts)
        return known

    @property
    def ragged(self) -> dict[str, str]:
        """The size of the rows for each ragged size: of `T(B, L(b)) x`, B for L."""
        return {
            size: next(name for name in parameter.sizes_before(size) if name.lower() == index)
            for parameter in self.parameters for size, index in parameter.rows
        }  # fmt: skip

    @property
    def line(self) -> int:
        """The 1-based number of its first line."""
        return line_and_column(self.text, self.position)[0]

    def callee(self, name: str) -> Definition:
        """The definition of that name that this one calls; KeyError if there is none."""
        return {definition.name: definition for definition in self.callees}[name]

    @property
    def has_states(self) -> bool:
        """Whether data decides what it runs: it calls itself with a bound, or loops `while`."""
        loops = any(isinstance(item, WhileBlock) for item in items(self.statements))
        return not self.types and (bool(self.family) or loops)

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        """Make an error that points into this definition's text."""
        for name, written in self.nested:
            problem = problem.replace(f"'{name}'", f"'{written}'")
            if re.search(rf"\b{name}\b", hint):
                hint = f"assign its result first: y = {written}"
        return error_at(self.text, self.file, position, f"{self.name}: {problem}", hint)


def error_at(text: str, file: str, position: int, problem: str, hint: str = "") -> LanguageError:
    """A LanguageError with file:line:column, the source line and a caret below the position."""
    line, column = line_and_column(text, position)
    where = f"{file}:{line}:{column}: {problem}\n{caret(text, position)}"
    error = LanguageError(where, hint)
    error.bare = problem
    return error


def children(term: Term) -> tuple[Term, ...]:
    """The direct subterms of a term, in textual order."""
    if isinstance(term, CallTerm):
        return term.arguments if term.default is None else (*term.arguments, term.default)
    if isinstance(term, Flat):
        return (term.offset,) if term.default is None else (term.offset, term.default)
    if isinstance(term, Operation):
        return term.arguments
    if isinstance(term, Convert):
        return (term.argument,)
    return ()


def walk(term: Term) -> list[Term]:
    """A term and all its subterms, outer before inner, left before right."""
    found: list[Term] = []
    waiting = [term]
    while waiting:
        term = waiting.pop()
        found.append(term)
        waiting.extend(reversed(children(term)))
    return found


def rewrite_term(term: Term, change: Callable[[Term], Term]) -> Term:
    """Rewrite a term bottom up."""
    if isinstance(term, (CallTerm, Flat)):
        default = None if term.default is None else rewrite_term(term.default, change)
        if isinstance(term, Flat):
            return change(replace(term, offset=rewrite_term(term.offset, change), default=default))
        arguments = tuple(rewrite_term(inner, change) for inner in term.arguments)
        settings = tuple(replace(s, value=rewrite_term(s.value, change)) for s in term.settings)
        return change(replace(term, arguments=arguments, default=default, settings=settings))
    if isinstance(term, Operation):
        arguments = tuple(rewrite_term(inner, change) for inner in term.arguments)
        return change(replace(term, arguments=arguments))
    if isinstance(term, Convert):
        return change(replace(term, argument=rewrite_term(term.argument, change)))
    return change(term)


def parts(item: Item) -> tuple[tuple[Item, ...], ...]:
    """The blocks directly inside an item."""
    if isinstance(item, (LoopBlock, WhileBlock)):
        return (item.body,)
    if isinstance(item, MatchBlock):
        return tuple(case.body for case in item.cases)
    return (item.then, item.otherwise) if isinstance(item, BranchBlock) else ()


def items(block: tuple[Item, ...]) -> Iterator[Item]:
    """Yield every item of a block and of the blocks inside it, in textual order."""
    for item in block:
        yield item
        for inner in parts(item):
            yield from items(inner)


def targets(block: tuple[Item, ...]) -> Iterator[str]:
    """Yield the tensors that a block assigns, once per assignment."""
    for item in items(block):
        if isinstance(item, Assignment):
            yield item.target
        elif isinstance(item, Invoke):
            yield from item.targets


def depth(term: Term) -> int:
    """Nesting depth of a term; 1 for a name."""
    deepest, level = 0, [term]
    while level:
        deepest += 1
        level = [inner for outer in level for inner in children(outer)]
    return deepest


class Problem(Exception):
    """A problem at a position, raised before the text around it is known."""

    def __init__(self, position: int, text: str, hint: str = "") -> None:
        self.position, self.text, self.hint = position, text, hint
        super().__init__(text)
