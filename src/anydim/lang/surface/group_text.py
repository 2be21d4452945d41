"""Parses the text of a group; the inverse of `printer.print_group`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from anydim.base.dtypes import DTYPES, DType
from anydim.base.errors import UserError
from anydim.base.records import dataclass
from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.parser import run_grammar
from anydim.lang.surface.rules import COMBINES, builder
from anydim.lang.surface.syntax import (
    CallTerm,
    Convert,
    Flat,
    Name,
    Number,
    Operation,
    Problem,
    Term,
    depth,
)
from anydim.lang.surface.tables import load_grammar
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
)  # fmt: skip
from anydim.sizes import Size, as_size
from anydim.sizes.guard import Guard

if TYPE_CHECKING:
    from lark import Lark, Token

DEEPEST = 100


def parse_group(text: str, file: str = "<group>") -> Group:
    """Parse the text of a group as printed by `print_group`; raises LanguageError otherwise."""
    group: Group = run_grammar(_grammar(), text, file)
    return group


@cache
def _grammar() -> Lark:
    return load_grammar(("grammar.lark", "group.lark"), "group", builder(_RULES))


@dataclass(frozen=True)
class _Braced:
    size: Size
    position: int


@dataclass(frozen=True)
class _Quoted:
    name: str
    position: int


def _at(token: Token) -> int:
    return token.start_pos or 0


def _name_of(token: Token) -> str:
    if not token.startswith('"'):
        return str(token)
    try:
        return str(json.loads(token))
    except ValueError:
        raise Problem(_at(token), "this is not a JSON string") from None


def _size_of(token: Token, text: str) -> Size:
    try:
        return as_size(text)
    except UserError as error:
        raise Problem(_at(token), error.problem) from None


# ---- declarations ------------------------------------------------------------------------------


def _declaration(_: Any, kind: Token, type_token: Token, name: Token) -> tuple[str, Tensor]:
    element, _, rest = type_token.partition("[")
    if element not in DTYPES:
        raise Problem(_at(type_token), f"there is no element type '{element}'")
    shape = tuple(_size_of(type_token, part) for part in _split(rest[:-1]))
    return str(kind), Tensor(_name_of(name), TensorType(DTYPES[element], shape))


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


def _guard(_: Any, left: Token, relation: Token, right: Token, message: Token) -> Guard:
    sizes = [_size_of(token, token[1:-1]) for token in (left, right)]
    return Guard(sizes[0], str(relation), sizes[1], _name_of(message))


def _group(_: Any, *parts: Any) -> Group:
    tensors: dict[str, list[Tensor]] = {"input": [], "output": [], "temporary": []}
    known: dict[str, TensorType] = {}
    statements, guards = [], []
    steps: tuple[Any, ...] = ()
    for part in parts:
        if isinstance(part, _Block):
            steps = part.lines
        elif isinstance(part, tuple):
            tensors[part[0]].append(part[1])
            known[part[1].name] = part[1].type
        elif isinstance(part, Guard):
            guards.append(part)
        else:
            statements.append(part)
    return Group(
        inputs=tuple(tensors["input"]),
        outputs=tuple(tensors["output"]),
        statements=tuple(_statement(line, known) for line in statements),
        temporaries=tuple(tensors["temporary"]),
        guards=tuple(guards),
        steps=tuple(_step(line, known) for line in steps),
    )


# ---- statements --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    target: str
    left: tuple[str, ...]
    combine: str
    value: Term
    axes: tuple[Axis, ...]
    position: int


def _line(_: Any, target: Token, *parts: Any) -> _Line:
    split = next(i for i, part in enumerate(parts) if getattr(part, "type", "") == "ASSIGN")
    left = tuple(part.name for part in parts[:split] if part is not None)
    operator, value = parts[split], parts[split + 1]
    axes = tuple(part for part in parts[split + 2 :] if part is not None)
    combine = COMBINES[operator.rstrip("!").removesuffix("=")]
    if bool(combine) != operator.endswith("!"):
        raise Problem(_at(operator), f"'{operator}' is not allowed in a group")
    _shallow(_at(target), value)
    return _Line(_name_of(target), left, combine, value, axes, _at(target))


@dataclass(frozen=True)
class _Block:
    lines: tuple[Any, ...]


@dataclass(frozen=True)
class _WriteLine:
    target: str
    indices: tuple[Term, ...]
    combine: str
    fresh: bool
    value: Term
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    position: int


@dataclass(frozen=True)
class _Iterations:
    variable: str
    ends: tuple[Term, ...]
    body: _Block
    position: int


@dataclass(frozen=True)
class _Choice:
    condition: Term
    then: _Block
    otherwise: _Block
    position: int


def _block(_: Any, *lines: Any) -> _Block:
    return _Block(lines)


def _first(_: Any, block: _Block) -> _Block:
    return block


def _write(
    _: Any, target: Token, indices: tuple[Term, ...] | None, operator: Token, value: Term,
    axes: tuple[Axis, ...] | None, reduced: tuple[Axis, ...] | None,
) -> _WriteLine:  # fmt: skip
    _shallow(_at(target), value, *(indices or ()))
    combine = COMBINES[operator.rstrip("!").removesuffix("=")]
    fresh = operator.endswith("!")
    if fresh and not combine:
        raise Problem(_at(operator), f"'{operator}' is not allowed in a group")
    return _WriteLine(
        _name_of(target), indices or (), combine, fresh, value, axes or (), reduced or (),
        _at(target),
    )  # fmt: skip


def _iterations(
    _: Any, word: Token, variable: _Quoted, start: Term, stop: Term, step: Term, body: _Block
) -> _Iterations:
    _shallow(_at(word), start, stop, step)
    return _Iterations(variable.name, (start, stop, step), body, _at(word))


def _choice(_: Any, word: Token, condition: Term, then: _Block, other: _Block | None) -> _Choice:
    _shallow(_at(word), condition)
    return _Choice(condition, then, other or _Block(()), _at(word))


def _shallow(position: int, *terms: Term) -> None:
    if any(depth(term) > DEEPEST for term in terms):
        raise Problem(position, f"expression nested more than {DEEPEST} deep")


def _axes(_: Any, *axes: Axis) -> tuple[Axis, ...]:
    return axes


def _label(_: Any, token: Token) -> _Quoted:
    return _Quoted(_name_of(token), _at(token))


def _extent(_: Any, label: _Quoted, low: Token, high: Any) -> Axis:
    if isinstance(high, _Braced):
        return Axis(label.name, high.size)
    if isinstance(high, Name):
        return Axis(label.name, Size.symbol(high.name))
    if isinstance(high, Number) and type(high.value) is int:
        return Axis(label.name, as_size(high.value))
    raise Problem(_at(low), "the end of a range must be a number, a size or a size in braces")


def _statement(line: _Line, known: Mapping[str, TensorType]) -> Statement:
    axes = {axis.name: axis for axis in line.axes}
    missing = [name for name in line.left if name not in axes]
    if missing or len(axes) < len(line.axes) or len(set(line.left)) < len(line.left):
        raise Problem(line.position, "every index must have one range and occur once on the left")
    if line.target not in known:
        raise Problem(line.position, f"tensor '{line.target}' is not declared")
    reduced = tuple(axis for axis in line.axes if axis.name not in line.left)
    if reduced and not line.combine:
        raise Problem(line.position, "a plain assignment must not have an index only on the right")
    body = _Resolver(set(axes), known).expr(line.value)
    return Statement(line.target, tuple(axes[n] for n in line.left), body, line.combine, reduced)


def _step(line: Any, known: Mapping[str, TensorType], level: int = 0) -> OrderedStep:
    if level > DEEPEST:
        raise Problem(line.position, f"steps nested more than {DEEPEST} deep")
    if isinstance(line, _Line):
        return _statement(line, known)
    if isinstance(line, _WriteLine):
        return _write_step(line, known)
    resolver = _Resolver(set(), known)
    if isinstance(line, _Choice):
        then, other = (
            tuple(_step(inner, known, level + 1) for inner in block.lines)
            for block in (line.then, line.otherwise)
        )
        return Branch(resolver.expr(line.condition), then, other)
    start, stop, step = map(resolver.expr, line.ends)
    count = step.size.constant if isinstance(step, SizeTerm) else None
    if not count:
        raise Problem(line.position, "the step of a loop must not be 0")
    try:
        Size.symbol(line.variable)
    except UserError as error:
        raise Problem(line.position, error.problem) from None
    body = tuple(_step(inner, known, level + 1) for inner in line.body.lines)
    return Loop(line.variable, start, stop, count, body)


def _write_step(line: _WriteLine, known: Mapping[str, TensorType]) -> Write:
    names = [axis.name for axis in (*line.axes, *line.reduced)]
    if len(set(names)) < len(names) or (line.reduced and not line.combine):
        raise Problem(line.position, "every index must have one range, and '=' must not reduce")
    if line.target not in known or known[line.target].rank != len(line.indices):
        rank = len(line.indices)
        raise Problem(line.position, f"no tensor '{line.target}' has {rank} dimensions")
    indices = tuple(map(_Resolver({axis.name for axis in line.axes}, known).expr, line.indices))
    body = _Resolver(set(names), known).expr(line.value)
    return Write(line.target, indices, line.axes, body, line.combine, line.reduced, line.fresh)


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


def _read_call(
    _: Any, name: Token, arguments: tuple[Term, ...] | None, settings: Any = None
) -> CallTerm:
    if settings:
        raise Problem(_at(name), "a group must not call definitions")
    return CallTerm(str(name), arguments or (), position=_at(name))


def _read_flat(_: Any, name: Token, offset: Term) -> Flat:
    return Flat(str(name), offset, None, _at(name))


def _braced(_: Any, token: Token) -> _Braced:
    return _Braced(_size_of(token, token[1:-1]), _at(token))


_RULES: dict[str, Any] = {
    "group": _group, "declaration": _declaration, "guard": _guard, "line": _line,
    "label": _label, "extent": _extent, "call": _read_call, "flat": _read_flat,
    "braced": _braced, "quoted": _label, "steps": _first, "body": _block, "write": _write,
    "where_extents": _axes, "over_extents": _axes, "iterations": _iterations, "choice": _choice,
}  # fmt: skip
