"""Callbacks for the rules of `grammar.lark`, which build the surface tree.

They run during parsing and know positions only; a `Problem` that they raise becomes an error with
the surrounding text in `parser.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from anydim.base.text import suggestion
from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.hints import BEYOND, reserved_hint
from anydim.lang.surface.syntax import (
    ATTRIBUTE_KINDS,
    PRECEDENCE,
    RESERVED,
    Assignment,
    Attribute,
    BranchBlock,
    CallTerm,
    Case,
    Constructor,
    Convert,
    Count,
    Definition,
    Dimension,
    Exists,
    Flat,
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
    Setting,
    Spread,
    StructureType,
    Term,
    WhileBlock,
    changed,
    depth,
    parts,
    walk,
)

if TYPE_CHECKING:
    from lark import Token

DEEPEST = 100
LARGEST = 4000  # terms of a statement, with the named terms of its `where`
DEEPEST_BLOCK = 32
LARGEST_PATTERN = 200  # constructors and names of a case
DEEPEST_LOOPS = 8  # proofs about sizes get slower with every enclosing loop
Block = TypeVar("Block", LoopBlock, BranchBlock, WhileBlock, MatchBlock)
CONSTANTS = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}
COMBINES = {"": "", "+": "add", "*": "mul", "min": "min", "max": "max"}
OPERATORS = {row.operator: row.name for row in FUNCTIONS.values() if row.arity == 2}
PREFIXES = {row.operator: row.name for row in FUNCTIONS.values() if row.arity == 1}


def builder(more: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """The lark transformer that builds nodes during parsing; `more` rules take precedence."""
    from lark import Transformer, v_args

    return v_args(inline=True)(type("Builder", (Transformer,), {**RULES, **(more or {})}))()


def _at(token: Token) -> int:
    return token.start_pos or 0


def _start(
    _: Any, *declared: Definition | StructureType
) -> tuple[list[StructureType], list[Definition]]:
    types = [each for each in declared if isinstance(each, StructureType)]
    return types, [each for each in declared if isinstance(each, Definition)]


def _definition(
    _: Any,
    name: Token,
    parameters: tuple[Parameter, ...] | None,
    attributes: tuple[Attribute, ...] | None,
    results: tuple[str, ...],
    statements: tuple[Item, ...],
) -> Definition:
    return Definition(
        str(name), parameters or (), attributes or (), results, statements, (), _at(name)
    )


def _results(_: Any, *names: Token | None) -> tuple[str, ...]:
    return tuple(str(name) for name in names if name is not None)


def _together(_: Any, *parts: Any) -> tuple[Any, ...]:
    return parts


def _parameter(_: Any, kind: Parameter, name: Token) -> Parameter:
    return replace(kind, name=str(name))


def _type_name(
    _: Any, kind: Token, arguments: tuple[Parameter, ...] | None, shape: tuple[Term, ...] | None
) -> Parameter:
    """A type, as a parameter without a name."""
    rows, sizes = [], []
    for term in shape or ():
        index = _row_of(term)
        if index is not None and isinstance(term, CallTerm):
            rows.append((term.name, index))
            term = Name(term.name, term.position)
        sizes.append(term)
    made = Parameter("", str(kind), tuple(sizes), _at(kind), tuple(rows), arguments or ())
    level = [made]
    for _depth in range(DEEPEST_BLOCK):
        level = [inner for outer in level for inner in outer.arguments]
    if level:
        raise Problem(made.position, f"types nested more than {DEEPEST_BLOCK} deep")
    return made


def _structure(
    _: Any, word: Token, name: Token, parameters: tuple[Token, ...] | None,
    *constructors: Constructor,
) -> StructureType:  # fmt: skip
    return StructureType(str(name), constructors, tuple(map(str, parameters or ())), _at(name))


def _constructor(_: Any, name: Token, fields: tuple[Parameter, ...] | None) -> Constructor:
    return Constructor(str(name), fields or (), _at(name))


def _row_of(term: Term) -> str | None:
    """The index of the row that a ragged size depends on: b of `L(b)`; None for other sizes."""
    plain = isinstance(term, CallTerm) and len(term.arguments) == 1
    if not plain or not isinstance(term, CallTerm) or not term.name[0].isupper():
        return None
    (argument,) = term.arguments
    return argument.name if isinstance(argument, Name) else None


def _attribute(_: Any, kind: Token, name: Token, default: Term | None) -> Attribute:
    if kind not in ATTRIBUTE_KINDS:
        hint = suggestion(kind, ATTRIBUTE_KINDS) or f"kinds: {', '.join(ATTRIBUTE_KINDS)}"
        raise Problem(_at(kind), f"an attribute cannot be of kind '{kind}'", hint)
    return Attribute(str(name), str(kind), _constant(kind, default), _at(name))


def _constant(kind: Token, term: Term | None) -> int | float | bool | str | None:
    """The value of an attribute's default, which must be a plain constant of its kind."""
    if term is None:
        return None
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
    if not fits[str(kind)]:
        raise Problem(term.position, f"{value} is not a default for kind '{kind}'")
    if isinstance(value, bool):
        return value
    return float(sign * value) if kind == "float" else sign * value


def _assignment(
    _: Any, target: tuple[Token, tuple[Term, ...]], assign: Token, value: Term,
    where: tuple[Range | Exists | Given, ...] | None,
) -> Assignment:  # fmt: skip
    name, indices = target
    clauses, given = where or (), [clause for clause in where or () if isinstance(clause, Given)]
    if given:
        indices, value, clauses = _with_given(given, indices, value, clauses)
    initial = assign.endswith("!")
    combine = COMBINES[assign.rstrip("!").removesuffix("=")]
    if initial and not combine:
        raise Problem(_at(assign), "'=!' is not an assignment", "write '=' or '+=!'")
    ends: list[Term] = []
    ranges = tuple(clause for clause in clauses if not isinstance(clause, Given))
    for clause in ranges:
        ends += (clause.low, clause.high) if isinstance(clause, Range) else clause.indices
    _shallow(value, *indices, *ends)
    names = tuple(Name(clause.name, clause.position) for clause in given)
    return Assignment(str(name), indices, combine, initial, value, ranges, _at(name), names)


def _with_given(
    given: Sequence[Given], indices: tuple[Term, ...], value: Term,
    clauses: Sequence[Range | Exists | Given],
) -> tuple[tuple[Term, ...], Term, tuple[Range | Exists, ...]]:  # fmt: skip
    """Substitute the names defined in a statement's `where` clauses."""
    meant: dict[str, Term] = {}
    used: set[str] = set()

    def inside(term: Term) -> Term:
        names = [t.name for t in walk(term) if isinstance(t, Name)]
        used.update(names)
        sizes = {name: len(walk(named)) for name, named in meant.items()}
        if sum(sizes.get(name, 1) for name in names) > LARGEST:
            raise Problem(term.position, "the expression is too large", "give parts of it names")
        return changed(term, lambda t: meant.get(t.name, t) if isinstance(t, Name) else t)

    for clause in given:
        if clause.name in meant:
            raise Problem(clause.position, f"'{clause.name}' is defined twice")
        if clause.name in used:
            problem = f"'{clause.name}' is used before it is defined"
            raise Problem(clause.position, problem, "define names before their use")
        named = inside(clause.value)
        _shallow(named)
        meant[clause.name] = named
    made = tuple(map(inside, indices)), inside(value)
    ranges = tuple(_clause_with(clause, inside) for clause in clauses
                   if not isinstance(clause, Given))  # fmt: skip
    for clause in given:
        if clause.name not in used:
            problem = f"'{clause.name}' is not used elsewhere in the statement"
            raise Problem(clause.position, problem, f"remove '{clause.name}' from the 'where'")
    return (*made, ranges)


def _clause_with(clause: Range | Exists, inside: Callable[[Term], Term]) -> Range | Exists:
    if isinstance(clause, Range):
        return replace(clause, low=inside(clause.low), high=inside(clause.high))
    return replace(clause, indices=tuple(map(inside, clause.indices)))


def _given(_: Any, name: Token, assign: Token, value: Term) -> Given:
    if assign != "=":
        raise Problem(_at(assign), f"a name is defined by '=', not '{assign}'")
    _allowed(name)
    return Given(str(name), value, _at(name))


def _several(_: Any, *parts: Any) -> Invoke:
    *left, assign, value = parts
    if assign != "=":
        raise Problem(_at(assign), f"results of a call are assigned by '=', not '{assign}'")
    if not isinstance(value, CallTerm):
        raise Problem(value.position, "several tensors are assigned by a call: C, D = g(A, B)")
    _shallow(value)
    indices = {each[1] for each in left}
    rows = next(iter(indices))
    if len(indices) > 1 or len(rows) > 1 or not all(isinstance(each, Name) for each in rows):
        problem = "results of a call have no indices, or all that of its row"
        raise Problem(_at(left[0][0]), problem, "write C, D = g(A, B), or C(b), D(b) = g(A(b), B)")
    names = tuple(str(name) for name, _ in left)
    return Invoke(names, value, _at(left[0][0]), rows=_row(rows))


def _row(indices: tuple[Term, ...]) -> str:
    return indices[0].name if indices and isinstance(indices[0], Name) else ""


def _loop(
    _: Any, word: Token, name: Token, first: Term, second: Term | None, third: Term | None,
    body: tuple[Item, ...],
) -> LoopBlock:  # fmt: skip
    start, stop = (Number(0), first) if second is None else (first, second)
    step = Number(1) if third is None else third
    _shallow(start, stop, step)
    loop = LoopBlock(str(name), start, stop, step, body, _at(word))
    return _shallow_blocks(loop)


def _branch(
    _: Any, word: Token, condition: Term, then: tuple[Item, ...],
    otherwise: tuple[Item, ...] | BranchBlock | None,
) -> BranchBlock:  # fmt: skip
    _shallow(condition)
    rest = (otherwise,) if isinstance(otherwise, BranchBlock) else otherwise or ()
    return _shallow_blocks(BranchBlock(condition, then, rest, _at(word)))


def _while(_: Any, word: Token, condition: Term, body: tuple[Item, ...]) -> WhileBlock:
    _shallow(condition)
    return _shallow_blocks(WhileBlock(condition, body, _at(word)))


def _match(_: Any, word: Token, *rest: Any) -> MatchBlock:
    names = [each for each in rest if not isinstance(each, Case)]
    for name in names:
        _allowed(name)
    structures = tuple(Name(str(name), _at(name)) for name in names)
    cases = tuple(each for each in rest if isinstance(each, Case))
    return _shallow_blocks(MatchBlock(structures, cases, _at(word)))


def _case(_: Any, *parts: Any) -> Case:
    *patterns, body = parts
    waiting, count = list(patterns), 0
    while waiting:
        waiting.extend(waiting.pop().arguments or ())
        count += 1
    if count > LARGEST_PATTERN:
        problem = f"a pattern has more than {LARGEST_PATTERN} names"
        raise Problem(patterns[0].position, problem, "match the parts in a case of its own")
    return Case(tuple(patterns), body, patterns[0].position)


def _pattern(_: Any, name: Token, *rest: Any) -> Pattern:
    _allowed(name)
    return Pattern(str(name), rest[0] or () if rest else None, _at(name))


def _shallow(*terms: Term) -> None:
    for term in terms:
        if depth(term) > DEEPEST:
            raise Problem(term.position, f"expression nested more than {DEEPEST} deep")


def _shallow_blocks(item: Block) -> Block:
    deepest = 0
    level: list[LoopBlock | BranchBlock | WhileBlock | MatchBlock] = [item]
    if _loops_within(item) > DEEPEST_LOOPS:
        raise Problem(item.position, f"loops nested more than {DEEPEST_LOOPS} deep")
    while level:
        deepest += 1
        blocks = (inner for outer in level for block in parts(outer) for inner in block)
        level = [
            i for i in blocks if isinstance(i, (LoopBlock, BranchBlock, WhileBlock, MatchBlock))
        ]
    if deepest > DEEPEST_BLOCK:
        raise Problem(item.position, f"blocks nested more than {DEEPEST_BLOCK} deep")
    return item


def _loops_within(item: Item) -> int:
    """Nesting depth of loops, this item included."""
    if not isinstance(item, (LoopBlock, BranchBlock, WhileBlock, MatchBlock)):
        return 0
    inner = max((_loops_within(i) for block in parts(item) for i in block), default=0)
    return inner + isinstance(item, (LoopBlock, WhileBlock))


def _target(_: Any, name: Token, indices: tuple[Term, ...] | None) -> Any:
    return name, indices or ()


def _range(_: Any, name: Token, low: Term, high: Term) -> Range:
    return Range(str(name), low, high, _at(name))


def _exists(_: Any, name: Token, indices: tuple[Term, ...] | None) -> Exists:
    return Exists(str(name), indices or (), _at(name))


def _select(_: Any, condition: Term, then: Term, otherwise: Term) -> Term:
    return Operation("select", (condition, then, otherwise), condition.position)


def _operators(_: Any, *parts: Any) -> Term:
    """Group a flat chain `a + b * c` by precedence, left-associative."""
    operands: list[Term] = [parts[0]]
    waiting: list[Token] = []

    def apply() -> None:
        right = operands.pop()
        left = operands.pop()
        token = waiting.pop()
        operands.append(Operation(OPERATORS[str(token)], (left, right), _at(token)))

    for token, operand in zip(parts[1::2], parts[2::2]):
        while waiting and PRECEDENCE[str(waiting[-1])] >= PRECEDENCE[str(token)]:
            apply()
        waiting.append(token)
        operands.append(operand)
    while waiting:
        apply()
    return operands[0]


def _prefix(_: Any, token: Token, argument: Term) -> Term:
    return Operation(PREFIXES[str(token)], (argument,), _at(token))


def _call(
    _: Any, name: Token, arguments: tuple[Term, ...] | None, settings: tuple[Setting, ...] | None
) -> CallTerm:
    if name in RESERVED:
        problem = f"'{name}' is a reserved word, not a function"
        raise Problem(_at(name), problem, reserved_hint(name))
    return CallTerm(str(name), arguments or (), None, settings or (), _at(name))


def _setting(_: Any, name: Token, value: Term) -> Setting:
    _shallow(value)
    return Setting(str(name), value, _at(name))


def _flat(_: Any, name: Token, offset: Term) -> Flat:
    return Flat(str(name), offset, None, _at(name))


def _guarded(_: Any, read: CallTerm | Flat, default: Term) -> Term:
    if isinstance(read, CallTerm):
        return CallTerm(read.name, read.arguments, default, read.settings, read.position)
    return Flat(read.tensor, read.offset, default, read.position)


def _number(_: Any, token: Token) -> Number:
    if len(token) > 40:
        raise Problem(_at(token), "a number has more than 40 digits")
    if token.isdigit():
        value: int | float = int(token)
        if value >= 2**64:
            raise Problem(_at(token), "an integer exceeds 64 bits", BEYOND)
    else:
        value = float(token)
    return Number(value, _at(token))


def _name(_: Any, token: Token) -> Term:
    if token in CONSTANTS:
        return Number(CONSTANTS[str(token)], _at(token))
    _allowed(token)
    return Name(str(token), _at(token))


def _allowed(token: Token) -> None:
    """Raise Problem for a reserved word."""
    if token in RESERVED:
        raise Problem(_at(token), f"'{token}' is a reserved word, not a name", reserved_hint(token))


def _spread(_: Any, token: Token) -> Spread:
    return Spread(token[3:], _at(token))


def _dimension(_: Any, token: Token) -> Dimension:
    tensor, axis = token.split(".")
    if len(axis) > 3:
        raise Problem(_at(token), "a dimension exceeds 999")
    return Dimension(tensor, int(axis), _at(token))


def _count(_: Any, size: Token, ellipsis: Token) -> Count:
    return Count(ellipsis[3:], _at(size))


def _convert(_: Any, token: Token, argument: Term) -> Convert:
    return Convert(token[token.index("<") + 1 : token.index(">")].strip(), argument, _at(token))


RULES: dict[str, Callable[..., Any]] = {
    "start": _start, "definition": _definition, "results": _results, "parameters": _together,
    "parameter": _parameter, "type_name": _type_name, "type_arguments": _together,
    "structure": _structure, "type_parameters": _together, "constructor": _constructor,
    "match": _match, "case": _case, "pattern": _pattern, "patterns": _together,
    "attributes": _together, "attribute": _attribute,
    "assignment": _assignment, "several": _several, "loop": _loop, "branch": _branch,
    "while_": _while, "block": _together, "settings": _together, "setting": _setting,
    "target": _target, "where": _together, "range": _range, "given": _given,
    "exists": _exists, "terms": _together, "select": _select, "operators": _operators,
    "prefix": _prefix, "guarded": _guarded, "call": _call, "flat": _flat, "number": _number,
    "name": _name, "spread": _spread, "dimension": _dimension, "count": _count,
    "convert": _convert,
}  # fmt: skip
