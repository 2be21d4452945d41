"""Parses the text of a group; the inverse of `printer.print_group`.

The expressions are those of definitions. Names may stand in double quotes (JSON strings), sizes in
braces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import UserError
from anydim.base.records import dataclass
from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.parser import read_text
from anydim.lang.surface.scanner import ATOMS, END, IDENTIFIER, NAME, Word
from anydim.lang.surface.syntax import (
    CallTerm,
    Convert,
    Flat,
    Name,
    Number,
    Operation,
    Problem,
    Setting,
    Term,
    depth,
)
from anydim.lang.surface.terms import DEEPEST, LEAVES, TermReader, combination
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
    Write,
)
from anydim.sizes import Size, as_size
from anydim.sizes.guard import Guard

_BRACED = r"\{[^{}]*\}"
_QUOTED = r'"(\\.|[^"\\\n])*"'
_match_braced = re.compile(_BRACED).match
_match_quoted = re.compile(_QUOTED).match
_match_label = re.compile(f"{IDENTIFIER}|{_QUOTED}").match
_match_kind = re.compile(r"(input|output|temporary)(?=\s+[a-z]+[0-9]*\[)").match
_match_type = re.compile(r"[a-z]+[0-9]*\[[^\]\n]*\]").match
_match_relation = re.compile(r"==|!=|<=|<").match
_match_low = re.compile(r"0\s*:").match


def parse_group(text: str, file: str = "<group>") -> Group:
    """Parse the text of a group as printed by `print_group`; raises LanguageError otherwise."""
    return read_text(lambda text: _GroupReader(text).read(), text, file)


@dataclass(frozen=True)
class _Braced:
    """`{n + 1}` in an expression."""

    size: Size
    position: int


@dataclass(frozen=True)
class _Quoted:
    """`"a name"` in an expression: an index."""

    name: str
    position: int


def _parse_name(word: Word) -> str:
    if not word.startswith('"'):
        return str(word)
    try:
        return str(json.loads(word))
    except ValueError:
        raise Problem(word.position, "this is not a JSON string") from None


def _parse_size(position: int, text: str) -> Size:
    try:
        return as_size(text)
    except UserError as error:
        raise Problem(position, error.problem) from None


def _read_quoted(word: Word) -> _Quoted:
    return _Quoted(_parse_name(word), word.position)


def _read_braced(word: Word) -> _Braced:
    return _Braced(_parse_size(word.position, word[1:-1]), word.position)


class _GroupReader(TermReader):
    """Reads a group. Tensors are declared before the lines that use them."""

    match_atom = re.compile(f"{ATOMS}|(?P<quoted>{_QUOTED})|(?P<braced>{_BRACED})").match
    readable = ("name", "quoted")
    leaves = {**LEAVES, "quoted": _read_quoted, "braced": _read_braced}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._types: dict[str, TensorType] = {}
        self._nested = 0  # blocks of steps

    def read(self) -> Group:
        """The group; raises Problem for an invalid text."""
        tensors: dict[str, list[Tensor]] = {"input": [], "output": [], "temporary": []}
        guards, statements, steps = list[Guard](), list[Statement](), tuple[OrderedStep, ...]()
        self.need_keyword("group")
        self.need("{")
        while not self.mark("}"):
            kind = _match_kind(self.text, self.at)
            if kind is not None:
                tensors[self.take(kind.end())].append(self._declaration())
            elif self.keyword("guard"):
                guards.append(self._guard())
            elif self.keyword("steps"):
                steps = self._steps()
            else:
                statements.append(self._statement())
        if self.at < len(self.text):
            self.fail(END)
        inputs, outputs, temporaries = map(tuple, tensors.values())
        return Group(inputs, outputs, tuple(statements), temporaries, tuple(guards), steps)

    # ---- declarations --------------------------------------------------------------------------

    def _declaration(self) -> Tensor:
        word = self.token(_match_type, "a type")
        element, _, rest = word.partition("[")
        if element not in DTYPES:
            raise Problem(word.position, f"there is no element type '{element}'")
        shape = tuple(_parse_size(word.position, part) for part in _split(rest[:-1]))
        tensor = Tensor(self._label()[0], TensorType(DTYPES[element], shape))
        self._types[tensor.name] = tensor.type
        return tensor

    def _guard(self) -> Guard:
        left = _read_braced(self.token(_match_braced, "a size in braces"))
        relation = self.token(_match_relation, "a relation")
        right = _read_braced(self.token(_match_braced, "a size in braces"))
        message = self.token(_match_quoted, "a text in quotes")
        return Guard(left.size, str(relation), right.size, _parse_name(message))

    def _label(self) -> tuple[str, int]:
        """A name, perhaps in quotes, and its position."""
        word = self.token(_match_label, NAME)
        return _parse_name(word), word.position

    def call(
        self, name: Word, arguments: tuple[Term, ...], settings: tuple[Setting, ...]
    ) -> CallTerm:
        """A read or a function; a group has no definitions to call."""
        if settings:
            raise Problem(name.position, "a group must not call definitions")
        return CallTerm(str(name), arguments, position=name.position)

    # ---- statements and steps ------------------------------------------------------------------

    def _statement(self) -> Statement:
        target, position = self._label()
        self.need("(")
        left = () if self.starts(")") else self.items(self._label)
        self.need(")")
        operator, value = self.assignment(), self.term()
        combine, initial = combination(operator)
        if bool(combine) != initial:
            raise Problem(operator.position, f"'{operator}' is not allowed in a group")
        extents = self._extents("where")
        axes, names = {axis.name: axis for axis in extents}, [name for name, _ in left]
        if not axes.keys() >= {*names} or len(axes) < len(extents) or len({*names}) < len(names):
            problem = "every index must have one range and occur once on the left"
            raise Problem(position, problem)
        if target not in self._types:
            raise Problem(position, f"tensor '{target}' is not declared")
        reduced = tuple(axis for axis in extents if axis.name not in names)
        if reduced and not combine:
            problem = "a plain assignment must not have an index only on the right"
            raise Problem(position, problem)
        (body,) = self._resolve(position, {*axes}, value)
        return Statement(target, tuple(axes[name] for name in names), body, combine, reduced)

    def _extents(self, word: str) -> tuple[Axis, ...]:
        return self.items(self._extent) if self.keyword(word) else ()

    def _extent(self) -> Axis:
        name, _ = self._label()
        self.need_keyword("in")
        low, high = self.token(_match_low, "0:"), self.term()
        if isinstance(high, _Braced):
            return Axis(name, high.size)
        if isinstance(high, Name):
            return Axis(name, Size.symbol(high.name))
        if isinstance(high, Number) and type(high.value) is int:
            return Axis(name, as_size(high.value))
        problem = "the end of a range must be a number, a size or a size in braces"
        raise Problem(low.position, problem)

    def _steps(self) -> tuple[OrderedStep, ...]:
        self.need("{")
        self._nested += 1
        if self._nested > DEEPEST:
            raise Problem(self.at, f"steps nested more than {DEEPEST} deep")
        found = list[OrderedStep]()
        while not self.mark("}"):
            if self.keyword("write"):
                found.append(self._write())
            elif self.keyword("for"):
                found.append(self._loop())
            elif self.keyword("if"):
                (condition,) = self._resolve(self.at, set(), self.term())
                then = self._steps()
                found.append(Branch(condition, then, self._steps() if self.keyword("else") else ()))
            else:
                found.append(self._statement())
        self._nested -= 1
        return tuple(found)

    def _loop(self) -> Loop:
        variable, position = self._label()
        self.need_keyword("in")
        ends = [self.chain()]
        while len(ends) < 3:
            self.need(":")
            ends.append(self.chain())
        start, stop, step = self._resolve(position, set(), *ends)
        count = step.size.constant if isinstance(step, SizeTerm) else None
        if not count:
            raise Problem(position, "the step of a loop must not be 0")
        try:
            Size.symbol(variable)
        except UserError as error:
            raise Problem(position, error.problem) from None
        return Loop(variable, start, stop, count, self._steps())

    def _write(self) -> Write:
        target, position = self._label()
        self.need("(")
        terms = self.terms(")")
        self.need(")")
        operator, value = self.assignment(), self.term()
        combine, fresh = combination(operator)
        if fresh and not combine:
            raise Problem(operator.position, f"'{operator}' is not allowed in a group")
        axes, reduced = self._extents("where"), self._extents("over")
        names = [axis.name for axis in (*axes, *reduced)]
        if len({*names}) < len(names) or (reduced and not combine):
            problem = "every index must have one range, and '=' must not reduce"
            raise Problem(position, problem)
        if target not in self._types or self._types[target].rank != len(terms):
            raise Problem(position, f"no tensor '{target}' has {len(terms)} dimensions")
        indices = self._resolve(position, {axis.name for axis in axes}, *terms)
        (body,) = self._resolve(position, {*names}, value)
        return Write(target, indices, axes, body, combine, reduced, fresh)

    def _resolve(self, position: int, axes: set[str], *terms: Term) -> tuple[Expr, ...]:
        if any(depth(term) > DEEPEST for term in terms):
            raise Problem(position, f"expression nested more than {DEEPEST} deep")
        return tuple(map(_Resolver(axes, self._types).expr, terms))


def _split(text: str) -> list[str]:
    """Split a text at commas outside parentheses."""
    parts, level = [""], 0
    for character in text:
        level += (character == "(") - (character == ")")
        if character == "," and level == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if text.strip() else []


@dataclass(frozen=True)
class _Resolver:
    """Resolves surface terms of a group's text to expressions."""

    axes: set[str]
    tensors: Mapping[str, TensorType]

    def expr(self, term: Any) -> Expr:
        if isinstance(term, _Braced):
            return SizeTerm(term.size)
        if isinstance(term, _Quoted):
            return Index(term.name)
        if isinstance(term, Name):
            return self._name(term)
        if isinstance(term, Number) and type(term.value) is int:
            return SizeTerm(as_size(term.value))
        if isinstance(term, Operation):
            return Apply(term.function, tuple(map(self.expr, term.arguments)))
        if isinstance(term, Convert) and term.type in DTYPES:
            return Cast(DTYPES[term.type], self.expr(term.argument))
        if isinstance(term, Flat):
            default = None if term.default is None else self.expr(term.default)
            return self._read(term, term.tensor, (term.offset,), default, True)
        if isinstance(term, CallTerm):
            return self._call(term)
        raise Problem(term.position, "this is not allowed in a group", "write float32(0.5)")

    def _name(self, term: Name) -> Expr:
        return Index(term.name) if term.name in self.axes else SizeTerm(Size.symbol(term.name))

    def _call(self, term: CallTerm) -> Expr:
        name = term.name
        default = None if term.default is None else self.expr(term.default)
        if not name.startswith('"') and default is None:
            if name in DTYPES or name == "literal":
                return _literal(term, DTYPES.get(name))
            if name in FUNCTIONS and len(term.arguments) == FUNCTIONS[name].arity:
                return Apply(name, tuple(map(self.expr, term.arguments)))
        return self._read(term, name, term.arguments, default, False)

    def _read(
        self, term: CallTerm | Flat, name: str, indices: tuple[Term, ...], default: Expr | None,
        flat: bool,
    ) -> Read:  # fmt: skip
        try:
            tensor = json.loads(name) if name.startswith('"') else name
        except ValueError:
            raise Problem(term.position, "this is not a JSON string") from None
        if tensor not in self.tensors:
            raise Problem(term.position, f"tensor '{tensor}' is not declared")
        if not flat and len(indices) != self.tensors[tensor].rank:
            raise Problem(term.position, f"'{tensor}' is read with {len(indices)} indices")
        return Read(tensor, tuple(map(self.expr, indices)), flat, default)


def _literal(term: CallTerm, dtype: DType | None) -> Literal:
    sign, inner = 1, term.arguments[0] if len(term.arguments) == 1 else term
    if isinstance(inner, Operation) and inner.function == "neg":
        sign, inner = -1, inner.arguments[0]
    if not isinstance(inner, Number):
        raise Problem(term.position, "a literal must be a number", "a cast is cast<type>(...)")
    value = inner.value if isinstance(inner.value, bool) else sign * inner.value
    return Literal(value, dtype)
