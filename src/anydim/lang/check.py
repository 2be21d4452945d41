"""What can be said about a definition before its arguments are known: names, arities, order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anydim.base.errors import LanguageError
from anydim.base.text import suggestion
from anydim.lang.functions import FUNCTIONS
from anydim.lang.syntax import (
    FUNCTION_ALIASES,
    RESERVED,
    TYPE_NAMES,
    Assignment,
    Attribute,
    Call,
    Convert,
    Count,
    Definition,
    Dimension,
    Exists,
    Flat,
    Name,
    Number,
    Parameter,
    Range,
    Spread,
    Term,
    children,
    walk,
)

COMBINE_TEXT = {"": "=", "add": "+=", "mul": "*=", "min": "min=", "max": "max="}


@dataclass
class _Names:
    """What the names of a definition mean; `tensors` grows as statements write."""

    definition: Definition
    others: Iterable[str]
    tensors: dict[str, int | None] = field(default_factory=dict)  # rank; None when it varies
    sizes: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    ellipses: set[str] = field(default_factory=set)

    def error(self, position: int, problem: str, hint: str = "") -> LanguageError:
        return self.definition.error(position, problem, hint)

    def is_index(self, name: str) -> bool:
        return not (name in self.tensors or name in self.sizes or name in self.attributes)


def check(definition: Definition, others: Iterable[str] = ()) -> None:
    """Raise LanguageError for a definition that no arguments can make right.

    `others` are the names of the definitions beside it, which a message may speak of.
    """
    names = _Names(definition, others)
    _check_head(names)
    for statement in definition.statements:
        _check_statement(statement, names)
        names.tensors[statement.target] = _rank(statement.indices)
    written = {statement.target for statement in definition.statements}
    for result in definition.results:
        if result not in written:
            hint = suggestion(result, written)
            raise names.error(definition.position, f"no statement assigns result '{result}'", hint)
    if len(set(definition.results)) != len(definition.results):
        raise names.error(definition.position, "a result is named twice")
    if not definition.results:
        raise names.error(definition.position, "there is no result", "write -> (name)")


def _check_head(names: _Names) -> None:
    seen: set[str] = set()
    heads: tuple[Parameter | Attribute, ...] = names.definition.parameters
    for declared in (*heads, *names.definition.attributes):
        if declared.name in seen or declared.name in RESERVED:
            why = "is named twice" if declared.name in seen else "is a word of the language"
            raise names.error(declared.position, f"parameter '{declared.name}' {why}")
        seen.add(declared.name)
    for attribute in names.definition.attributes:
        kind = names.types if attribute.kind == "type" else names.attributes
        kind.add(attribute.name)
    for parameter in names.definition.parameters:
        names.tensors[parameter.name] = _rank(parameter.shape)
        if parameter.type not in TYPE_NAMES:
            if not parameter.type[0].isupper():
                hint = suggestion(parameter.type, TYPE_NAMES)
                hint = hint or "a type variable starts with a capital letter"
                problem = f"there is no element type '{parameter.type}'"
                raise names.error(parameter.position, problem, hint)
            names.types.add(parameter.type)
        for term in parameter.shape:
            if isinstance(term, Spread):
                names.ellipses.add(term.name)
            names.sizes.update(t.name for t in walk(term) if isinstance(t, Name))
    names.sizes -= names.attributes
    for parameter in names.definition.parameters:
        if parameter.name in names.sizes:
            raise names.error(
                parameter.position, f"'{parameter.name}' is both a tensor and a size"
            )
        for term in parameter.shape:
            _check_shape(term, names)


def _check_shape(term: Term, names: _Names) -> None:
    for inner in walk(term):
        nested = isinstance(inner, Spread) and inner is not term
        if nested or isinstance(inner, (Flat, Convert, Count, Dimension)):
            raise names.error(inner.position, "a dimension is a size, a number or '...name'")
        if isinstance(inner, Call) and FUNCTION_ALIASES.get(inner.name, inner.name) not in (
            "min", "max",
        ):  # fmt: skip
            raise names.error(inner.position, f"'{inner.name}' cannot be part of a shape")


def _rank(indices: tuple[Term, ...]) -> int | None:
    return None if any(isinstance(i, Spread) for i in indices) else len(indices)


# ---- statements --------------------------------------------------------------------------------


def _check_statement(statement: Assignment, names: _Names) -> None:
    target = statement.target
    if target in names.tensors:
        parameter = any(p.name == target for p in names.definition.parameters)
        what = "is a parameter" if parameter else "is assigned twice, which is not supported yet"
        raise names.error(statement.position, f"'{target}' {what}")
    if not names.is_index(target) or target in names.types or target in RESERVED:
        raise names.error(statement.position, f"'{target}' cannot be assigned")
    left = _left_indices(statement, names)
    for clause in statement.where:
        _check_clause(clause, names)
    _check_terms(statement.value, names, target)
    if statement.combine and not statement.initial:
        operator = COMBINE_TEXT[statement.combine]
        raise names.error(
            statement.position,
            f"'{operator}' that adds to what '{target}' holds is not supported yet",
            f"'{operator}!' starts from the operator's identity",
        )
    if not statement.combine:
        _check_no_reduction(statement, left, names)


def _left_indices(statement: Assignment, names: _Names) -> set[str]:
    left: set[str] = set()
    for term in statement.indices:
        if isinstance(term, Spread):
            _check_ellipsis(term.name, term.position, names)
            label = f"...{term.name}"
        elif isinstance(term, Name) and names.is_index(term.name):
            label = term.name
        elif isinstance(term, Name):
            raise names.error(term.position, f"'{term.name}' is not an index: it is declared above")
        else:
            raise names.error(
                term.position, "an index on the left is a name; scatter is not supported yet"
            )
        if label in left:
            raise names.error(term.position, f"index '{label}' stands twice on the left")
        left.add(label)
    return left


def _check_no_reduction(statement: Assignment, left: set[str], names: _Names) -> None:
    for term in walk(statement.value):
        label = term.name if isinstance(term, Name) else ""
        label = f"...{term.name}" if isinstance(term, Spread) else label
        if not label or label in left:
            continue
        if isinstance(term, Spread) or names.is_index(label):
            raise names.error(
                term.position,
                f"index '{label}' is not on the left, so the statement reduces over it",
                "write '+=!', '*=!', 'min=!' or 'max=!' instead of '='",
            )


def _check_clause(clause: Range | Exists, names: _Names) -> None:
    if isinstance(clause, Range):
        if not names.is_index(clause.index):
            raise names.error(clause.position, f"'{clause.index}' is not an index")
        _check_terms(clause.low, names, "")
        _check_terms(clause.high, names, "")
        return
    if clause.tensor not in names.tensors:
        raise names.error(
            clause.position, f"there is no tensor '{clause.tensor}'",
            suggestion(clause.tensor, names.tensors),
        )  # fmt: skip
    call = Call(clause.tensor, clause.indices, None, clause.position)
    _check_terms(call, names, "")


def _check_terms(term: Term, names: _Names, target: str) -> None:
    """Check a term and all inside it; `target` is the tensor that must not be read."""
    waiting = [term]
    while waiting:
        term = waiting.pop()
        _check_term(term, names, target)
        spread_ok = isinstance(term, Call) and term.name in names.tensors
        for inner in children(term):
            if not isinstance(inner, Spread):
                waiting.append(inner)
            elif spread_ok:
                _check_ellipsis(inner.name, inner.position, names)
            else:
                raise names.error(inner.position, "an ellipsis stands only among indices")
    if isinstance(term, Spread):
        raise names.error(term.position, "an ellipsis stands only among indices")


def _check_term(term: Term, names: _Names, target: str) -> None:
    if isinstance(term, Call):
        _check_call(term, names, target)
    elif isinstance(term, Name):
        if term.name == target:
            raise _reads_target(term.position, target, names)
        if names.tensors.get(term.name, 0) not in (0, None):
            raise names.error(term.position, f"tensor '{term.name}' needs indices")
    elif isinstance(term, (Flat, Dimension)) and term.tensor not in names.tensors:
        if term.tensor == target:
            raise _reads_target(term.position, target, names)
        hint = suggestion(term.tensor, names.tensors)
        raise names.error(term.position, f"there is no tensor '{term.tensor}'", hint)
    elif isinstance(term, Dimension):
        rank = names.tensors[term.tensor]
        if rank is not None and term.axis >= rank:
            raise names.error(term.position, f"'{term.tensor}' has {rank} dimensions, from 0")
    elif isinstance(term, Count):
        _check_ellipsis(term.ellipsis, term.position, names)
    elif isinstance(term, Convert) and term.type not in names.types | TYPE_NAMES.keys():
        hint = suggestion(term.type, TYPE_NAMES)
        raise names.error(term.position, f"there is no element type '{term.type}'", hint)
    elif isinstance(term, Number) and isinstance(term.value, int) and term.value >= 2**64:
        raise names.error(term.position, "an integer beyond 64 bits")


def _check_call(call: Call, names: _Names, target: str) -> None:
    count = len(call.arguments)
    if call.name in names.tensors:
        rank = names.tensors[call.name]
        if rank is not None and _rank(call.arguments) not in (rank, None):
            raise names.error(
                call.position, f"tensor '{call.name}' has {rank} dimensions, not {count}"
            )
        return
    if call.name == target:
        raise _reads_target(call.position, target, names)
    if call.default is not None:
        raise names.error(call.position, f"'else' follows a read, and '{call.name}' is no tensor")
    function = FUNCTIONS.get(FUNCTION_ALIASES.get(call.name, call.name))
    if function is not None and function.internal:
        function = None
    is_type = call.name in TYPE_NAMES or call.name in names.types
    if function is None and not is_type:
        raise _unknown(call, names)
    arity = 1 if function is None else function.arity
    if count != arity:
        plural = "" if arity == 1 else "s"
        problem = f"'{call.name}' takes {arity} argument{plural}, not {count}"
        raise names.error(call.position, problem)


def _unknown(call: Call, names: _Names) -> LanguageError:
    if call.name in names.others:
        return names.error(call.position, f"calling '{call.name}' is not supported yet")
    functions = (row.name for row in FUNCTIONS.values() if not row.internal)
    known = (*names.tensors, *functions, *TYPE_NAMES)
    return names.error(
        call.position, f"there is no tensor or function '{call.name}'", suggestion(call.name, known)
    )


def _reads_target(position: int, target: str, names: _Names) -> LanguageError:
    return names.error(position, f"reading '{target}' where it is assigned is not supported yet")


def _check_ellipsis(name: str, position: int, names: _Names) -> None:
    if name not in names.ellipses:
        hint = suggestion(name, names.ellipses)
        raise names.error(position, f"no parameter has '...{name}'", hint)
