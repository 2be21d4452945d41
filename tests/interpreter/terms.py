"""Compilation of terms to Python functions of the values of indices and loop variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from math import prod
from typing import Any

from anydim.base.dtypes import DTYPES
from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    CallTerm,
    Convert,
    Count,
    Dimension,
    Flat,
    Name,
    Number,
    Operation,
    Spread,
    Term,
    walk,
)
from tests.interpreter import numbers
from tests.interpreter.frame import Frame
from tests.interpreter.kinds import (
    BOOL,
    FLOAT,
    INDEX,
    INT,
    Kind,
    NotCovered,
    is_float,
    joined,
    settled,
)
from tests.interpreter.numbers import COMPOSED, LOGIC, RULES, conversion, function_of

Env = dict[str, Any]
Evaluated = Callable[[Env], Any]
Made = tuple[str, Evaluated]


@dataclass
class Stored:
    """A tensor: its elements in row-major order; None where not written yet."""

    kind: str
    shape: tuple[int, ...]
    data: list[Any]

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each axis."""
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


def kind_of(term: Term, frame: Frame, loops: AbstractSet[str]) -> Kind:
    """The element type of a term, as far as the types of its tensors are known."""
    if isinstance(term, Number):
        return BOOL if isinstance(term.value, bool) else INT if type(term.value) is int else FLOAT
    if isinstance(term, Name):
        if term.name in frame.constants:
            return kind_of(Number(frame.constants[term.name]), frame, loops)
        return INDEX if term.name in loops else frame.kinds.get(term.name, INDEX)
    if isinstance(term, (Dimension, Count)):
        return INDEX
    if isinstance(term, Convert):
        return frame.dtype(term.type)
    if isinstance(term, Flat):
        return frame.kinds[term.tensor]
    if isinstance(term, CallTerm):
        if term.name in frame.kinds:
            return frame.kinds[term.name]
        name = FUNCTION_ALIASES.get(term.name, term.name)
        kinds = [kind_of(part, frame, loops) for part in term.arguments]
        if name not in RULES and name not in COMPOSED and name not in LOGIC and name != "bits":
            return name[3:] if name.startswith("as_") else frame.dtype(name)
        return _result(name, kinds)
    if isinstance(term, Operation):
        if term.function == "select":
            taken = chosen(term, frame)
            if taken is not None:
                return kind_of(taken, frame, loops)
        return _result(term.function, [kind_of(part, frame, loops) for part in term.arguments])
    raise NotCovered(f"{type(term).__name__} as a value")


def chosen(term: Operation, frame: Frame) -> Term | None:
    """The operand of `?:` that attributes and constants select."""
    holds = constant_truth(term.arguments[0], frame)
    return None if holds is None else term.arguments[1 if holds else 2]


def constant_truth(term: Term, frame: Frame) -> bool | None:
    """Evaluate a condition that attributes and constants decide."""
    if isinstance(term, Number):
        return bool(term.value) if isinstance(term.value, bool) else None
    if isinstance(term, Name) and isinstance(frame.constants.get(term.name), bool):
        return bool(frame.constants[term.name])
    if not isinstance(term, Operation):
        return None
    if term.function == "not":
        inner = constant_truth(term.arguments[0], frame)
        return None if inner is None else not inner
    if term.function in ("and", "or"):
        first = constant_truth(term.arguments[0], frame)
        return first if first is not None and first == (term.function == "or") else None
    if term.function in _COMPARED:
        values = [_whole(part, frame) for part in term.arguments]
        if None not in values:
            return bool(_COMPARED[term.function](*values))
    return None


_COMPARED: dict[str, Callable[..., bool]] = {
    name: function_of(name, "int64")
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
}


def _whole(term: Term, frame: Frame) -> int | None:
    """Evaluate an integer of attributes and constants."""
    if isinstance(term, Number):
        return term.value if type(term.value) is int else None
    if isinstance(term, Name):
        value = frame.constants.get(term.name)
        return value if type(value) is int else None
    if isinstance(term, Operation) and term.function in ("add", "sub", "mul", "neg"):
        values = [_whole(part, frame) for part in term.arguments]
        if None not in values:
            return int(function_of(term.function, "int64")(*values))
    return None


def _result(name: str, kinds: Sequence[Kind]) -> Kind:
    if name in LOGIC or RULES.get(name) == "bool":
        return "bool"
    if name == "select":
        return joined(kinds[1:])
    if name == "bits":
        kind = settled(kinds[0])
        return None if kind is None else f"uint{8 * DTYPES[kind].bytes}"
    if name in COMPOSED:
        return _composed(name, kinds)
    found = joined(kinds)
    return FLOAT if RULES[name] == "float" and found == INT else found


def _composed(name: str, kinds: Sequence[Kind]) -> Kind:
    if name == "thresholded_relu":
        return joined((kinds[0], INT))
    whole = name in numbers.WITHOUT_FLOATS or name in ("reciprocal", "softsign")
    return joined((*kinds, INT if whole else FLOAT))


# ---- values ------------------------------------------------------------------------------------


@dataclass
class Terms:
    """Compiles terms; `stored` are the tensors, `loops` the variables of the loops around.

    In a statement with uneven ranges (`masked`) a size-dependent position may be out of bounds.
    """

    frame: Frame
    stored: dict[str, Stored]
    loops: frozenset[str]
    masked: bool = False
    made: dict[int, tuple[Term, Made]] = field(default_factory=dict)

    def number(self, term: Term, kind: str) -> Evaluated:
        """Compile a term to a number of a type."""
        source, value = self.value(term)
        convert = conversion(source, kind)
        return value if convert is numbers.identical else lambda env: convert(value(env))

    def truth(self, term: Term) -> Evaluated:
        """Compile a condition; a number is true when it is not 0."""
        return self.number(term, "bool")

    def position(self, term: Term) -> Evaluated:
        """Compile a position."""
        kind, value = self.value(term)
        if is_float(kind):
            raise NotCovered(f"an index must be an integer, not {kind}")
        return value

    def value(self, term: Term) -> Made:
        """The type of a term, and its compiled form."""
        known = self.made.get(id(term))
        if known is None:
            known = self.made[id(term)] = term, self._made(term)
        return known[1]

    def _made(self, term: Term) -> Made:
        kind = kind_of(term, self.frame, self.loops)
        if kind is None:
            raise NotCovered("an element type that cannot be inferred")
        if isinstance(term, Number):
            return kind, _constant(term.value)
        if isinstance(term, Name):
            return kind, self._name(term.name)
        if isinstance(term, Dimension):
            return kind, _constant(self.stored[term.tensor].shape[term.axis])
        if isinstance(term, Count):
            return kind, _constant(self.frame.size(term.ellipsis))
        if isinstance(term, Convert):
            return kind, self.number(term.argument, kind)
        if isinstance(term, Flat):
            return kind, self._read(term.tensor, [term.offset], term.default, True)
        if isinstance(term, CallTerm):
            return kind, self._call(term, kind)
        if isinstance(term, Operation):
            return kind, self._apply(term.function, term.arguments, kind, term)
        raise NotCovered(f"{type(term).__name__} as a value")

    def _name(self, name: str) -> Evaluated:
        frame = self.frame
        if name in frame.constants:
            return _constant(frame.constants[name])
        if name in self.loops:
            return lambda env: env[name]
        if name in frame.kinds:
            return self._read(name, [], None, False)
        return _constant(frame.sizes[name]) if name in frame.sizes else lambda env: env[name]

    def _call(self, term: CallTerm, kind: str) -> Evaluated:
        if term.name in self.frame.kinds:
            return self._read(term.name, term.arguments, term.default, False)
        name = FUNCTION_ALIASES.get(term.name, term.name)
        if name in RULES or name in LOGIC:
            return self._apply(name, term.arguments, kind, term)
        if name == "bits":
            source, value = self.value(term.arguments[0])
            held = settled(source) or ""
            return lambda env: numbers.bits_of(value(env), held)
        if name.startswith("as_"):
            bits = self.number(term.arguments[0], f"uint{8 * DTYPES[kind].bytes}")
            return lambda env: numbers.number_of(bits(env), kind)
        if name in COMPOSED:
            parts = [self.number(part, settled(kind) or "") for part in term.arguments]
            function = COMPOSED[name][1]
            wrap = numbers.identical if is_float(kind) else numbers.wrapped(settled(kind) or "")
            return lambda env: wrap(function(*(part(env) for part in parts)))
        return self.number(term.arguments[0], kind)

    def _apply(self, name: str, arguments: Sequence[Term], kind: str, term: Term) -> Evaluated:
        if name in LOGIC:
            return _logic(name, [self.truth(part) for part in arguments])
        if name == "select":
            taken = chosen(term, self.frame) if isinstance(term, Operation) else None
            if taken is not None:
                return self.value(taken)[1]
            holds = self.truth(arguments[0])
            then, otherwise = (self._adapted(part, kind) for part in arguments[1:])
            return lambda env: then(env) if holds(env) else otherwise(env)
        operands = kind
        if RULES[name] == "bool":
            operands = joined(kind_of(part, self.frame, self.loops) for part in arguments) or ""
        function = function_of(name, operands)
        parts = [self._adapted(part, operands) for part in arguments]
        if len(parts) == 1:
            only = parts[0]
            return lambda env: function(only(env))
        left, right = parts
        return lambda env: function(left(env), right(env))

    def _adapted(self, term: Term, kind: str) -> Evaluated:
        """Compile an operand to a type, or to an adapting kind."""
        if kind == FLOAT:
            value = self.value(term)[1]
            return lambda env: float(value(env))
        return self.number(term, settled(kind) or "")

    # ---- reads ---------------------------------------------------------------------------------

    def _read(
        self, name: str, terms: Sequence[Term], default: Term | None, flat: bool
    ) -> Evaluated:
        stored = self.stored[name]
        shape = (prod(stored.shape),) if flat else stored.shape
        strides = (1,) if flat else stored.strides
        positions: list[tuple[Evaluated, bool]] = []
        for term in terms:
            if isinstance(term, Spread):
                positions += [(each, False) for each in self._spread(name, term, len(positions))]
            else:
                positions.append((self.position(term), self.by_data(term)))
        if len(positions) != len(shape):
            raise NotCovered(f"'{name}' is read with {len(positions)} indices")
        otherwise = None if default is None else self.number(default, stored.kind)
        data, axes = stored.data, list(zip(positions, shape, strides))

        def read(env: Env) -> Any:
            at = 0
            for (position, by_data), size, stride in axes:
                index = position(env)
                if not 0 <= index < size:
                    if otherwise is not None:
                        return otherwise(env)
                    if self.masked and not by_data:
                        return 0
                    raise InputError(f"index {index} is outside 0..{size - 1} of '{name}'")
                at += index * stride
            found = data[at]
            if found is None:
                raise NotCovered(f"element {at} of '{name}' is read before it is written")
            return found

        return read

    def _spread(self, name: str, term: Spread, position: int) -> list[Evaluated]:
        """The positions of an ellipsis; 0 along broadcast axes of size 1."""
        frame = self.frame
        names, sizes = frame.indices(term.name), frame.ellipses[term.name]
        declared = frame.spreads.get((name, term.name))
        if declared is None or declared[0] != position:
            return [_index(each) for each in names]
        start, count = declared
        own = list(zip(names, sizes))[len(names) - count :]
        shape = self.stored[name].shape[start : start + count]
        return [
            _constant(0) if have == 1 and size != 1 else _index(each)
            for (each, size), have in zip(own, shape)
        ]

    def by_data(self, term: Term) -> bool:
        """Whether a term reads a tensor."""
        names = (
            getattr(part, "tensor", getattr(part, "name", "")) for part in walk(term)
            if not isinstance(part, (Spread, Dimension))
        )  # fmt: skip
        return not self.frame.kinds.keys().isdisjoint(names)


def _constant(value: Any) -> Evaluated:
    return lambda env: value


def _index(name: str) -> Evaluated:
    return lambda env: env[name]


def _logic(name: str, parts: Sequence[Evaluated]) -> Evaluated:
    first = parts[0]
    if name == "not":
        return lambda env: not first(env)
    second = parts[1]
    if name == "xor":
        return lambda env: first(env) != second(env)
    if name == "and":
        return lambda env: first(env) and second(env)
    return lambda env: first(env) or second(env)
