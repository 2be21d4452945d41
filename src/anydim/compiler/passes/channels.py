"""Fold per-channel scales and shifts by constants into one factor and one summand.

The factor is folded into preceding constant weights where possible.

    y = (t - mean(m)) * rsqrt(var(m) + eps) * gamma(m) + beta(m)  ->  y = t * a(m) + b(m)
    t +=! x(...) * w(m, ...),  y = t * a(m) + b(m)  ->  t +=! x(...) * w'(m, ...),  y = t + b(m)

Chains of such statements become one. Results differ by a few units in the last place.

After: a value is scaled and shifted per channel by constants at most once; after a product with
constant weights it is only shifted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.derivations import Evaluated
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.passes.flow import Line, group_of, live, pack, unique_name, unpack
from anydim.compiler.passes.options import EXACT
from anydim.lang.tree import Apply, Axis, Expr, Index, Literal, Read, Statement, TensorType
from anydim.lang.tree.affine import body_at, reads, rewrite


@dataclass(frozen=True)
class Channels:
    """Combine scales and shifts of channels, and fold the scales into weights.

    Divisions become scales unless precision is "exact": their reciprocals are rounded.
    """

    precision: str = EXACT

    def run(self, graph: Graph) -> Graph:
        lines = unpack(graph)
        work = _Work(graph, lines, self.precision)
        for number in range(len(lines)):
            work.join(number)
        for number in range(len(lines)):
            if number not in work.absorbed:
                work.fold(number)
        changed = graph.replace(constants=work.constants, types=work.types)
        return pack(changed, live(work.lines, graph.outputs), work.types)


@dataclass(frozen=True)
class _Map:
    """a * read + b, where a and b depend on constants and the index `axis` alone."""

    read: Read
    axis: Axis
    scale: Expr | None
    shift: Expr | None


class _Work:
    """State of the rewrite: statements and new constants."""

    def __init__(self, graph: Graph, lines: list[Line], precision: str) -> None:
        self.graph = graph
        self.rules = _RULES if precision == EXACT else _FAST
        self.lines = lines
        self.constants = dict(graph.constants)
        self.types: dict[str, TensorType] = dict(graph.types)
        self.absorbed: set[int] = set()  # statements inlined into their only reader
        self.writer = {line.target: number for number, line in enumerate(lines)}
        self.uses = Counter(
            name for line in lines for name in {r.tensor for r in reads(line.statement.body)}
        )
        self.uses.update(graph.outputs)

    def join(self, number: int) -> None:
        """Rewrite a map as a(m) * x + b(m), with the maps that only it reads inlined."""
        statement = self.lines[number].statement
        if statement.combine or not self.types[statement.target].dtype.is_float:
            return
        inlined, source = self._inline_map(statement)
        found = self._map(inlined)
        if found is None or (source is None and _cost(inlined.body) <= 2):
            return
        if source is not None:
            self.absorbed.add(source)
        made: Expr = found.read
        if found.scale is not None:
            made = Apply("mul", (made, self._constant(statement, found, "scale", found.scale)))
        if found.shift is not None:
            made = Apply("add", (made, self._constant(statement, found, "shift", found.shift)))
        self._replace(number, replace(statement, body=made))

    def fold(self, number: int) -> None:
        """Fold the scale of a map into the weights of the product that it reads."""
        statement = self.lines[number].statement
        found = None if statement.combine else self._map(statement)
        if found is None or found.scale is None or not _own(found.read, statement):
            return
        source = self.writer.get(found.read.tensor)
        if source is None or self.uses[found.read.tensor] != 1:
            return
        producer = self.lines[source].statement
        at = [axis.name for axis in statement.axes].index(found.axis.name)
        weights = _weights(producer, producer.axes[at].name, self.constants)
        scale = self._value(found, found.scale)
        if weights is None or not scale.are("finite"):
            return
        read, dimension = weights
        array = self.constants[read.tensor]
        shape = tuple(-1 if n == dimension else 1 for n in range(len(array.shape)))
        scaled = Constant.scale(array, scale, shape)
        name = self._add_constant(f"{statement.target} weights", scaled)
        moved = replace(read, tensor=name)
        body = rewrite(producer.body, lambda expr: moved if expr == read else None)
        self._replace(source, replace(producer, body=body))
        shifted: Expr = found.read
        if found.shift is not None:
            shifted = Apply("add", (shifted, found.shift))
        self._replace(number, replace(statement, body=shifted))

    def _replace(self, number: int, statement: Statement) -> None:
        self.lines[number] = replace(self.lines[number], statement=statement)

    def _inline_map(self, statement: Statement) -> tuple[Statement, int | None]:
        """The statement with a map inlined that only it reads, and the number of that map."""
        for read in reads(statement.body):
            source = self.writer.get(read.tensor)
            if source is None or self.uses[read.tensor] != 1 or not _own(read, statement):
                continue
            producer = self.lines[source].statement
            if producer.combine or self._map(producer) is None:
                continue
            return statement.with_body(_written_in(statement, read, producer)), source
        return statement, None

    def _map(self, statement: Statement) -> _Map | None:
        """The statement as a map of its only non-constant operand; None if it is no map."""
        found = reads(statement.body)
        values = [read for read in found if read.tensor not in self.constants]
        if len(values) != 1:
            return None
        read = values[0]
        if any(r.default is not None or r.flat for r in found):
            return None
        dtype = self.types[statement.target].dtype
        if any(self.types[r.tensor].dtype != dtype for r in found):
            return None
        parts = _parts(statement.body, read, self.rules)
        if parts is None or parts[0] is None:
            return None
        scale, shift = (None if p in (_ZERO, _ONE) else p for p in parts)
        names = {n for part in (scale, shift) if part is not None for n in _indices(part)}
        axes = [axis for axis in statement.axes if axis.name in names]
        if len(axes) != 1 or len(names) != 1 or axes[0].extent.constant is None:
            return None
        return _Map(read, axes[0], scale, shift)

    def _value(self, found: _Map, part: Expr) -> Constant:
        """Evaluate a part of a map for all channels."""
        name, dtype = "part", self.types[found.read.tensor].dtype
        types = {**self.types, name: TensorType(dtype, (found.axis.extent,))}
        group = group_of([Statement(name, (found.axis,), part)], types, [name])
        inputs = (self.constants[tensor.name] for tensor in group.inputs)
        return Constant.derive(Evaluated(group, dtype), *inputs)

    def _constant(self, statement: Statement, found: _Map, word: str, part: Expr) -> Read:
        name = self._add_constant(f"{statement.target} {word}", self._value(found, part))
        return Read(name, (Index(found.axis.name),))

    def _add_constant(self, name: str, constant: Constant) -> str:
        name = unique_name(name, self.types)
        self.constants[name] = constant
        self.types[name] = constant.type
        return name


def _written_in(statement: Statement, read: Read, producer: Statement) -> Expr:
    """The statement's body with the producer's body substituted for the read."""
    value = body_at(producer, [Index(axis.name) for axis in statement.axes])
    return rewrite(statement.body, lambda expr: value if expr == read else None)


_ZERO, _ONE = Literal(0.0), Literal(1.0)
_Parts = tuple[Expr, Expr]
_Rules = Mapping[str, Callable[..., _Parts | None]]


def _parts(expr: Expr, read: Read, rules: _Rules) -> _Parts | None:
    """(a, b) of an expression a * read + b; None for other expressions."""
    if expr == read:
        return _ONE, _ZERO
    if read not in reads(expr):
        return _ZERO, expr
    if not isinstance(expr, Apply):
        return None
    parts = [_parts(argument, read, rules) for argument in expr.arguments]
    rule = rules.get(expr.function)
    known = [part for part in parts if part is not None]
    return rule(*known) if rule is not None and len(known) == len(parts) else None


def _add(left: _Parts, right: _Parts) -> _Parts:
    return _plus(left[0], right[0]), _plus(left[1], right[1])


def _sub(left: _Parts, right: _Parts) -> _Parts:
    return _add(left, _neg(right))


def _neg(value: _Parts) -> _Parts:
    scale, shift = (p if p == _ZERO else Apply("neg", (p,)) for p in value)
    return scale, shift


def _mul(left: _Parts, right: _Parts) -> _Parts | None:
    if left[0] == _ZERO:
        left, right = right, left
    return None if right[0] != _ZERO else (_times(left[0], right[1]), _times(left[1], right[1]))


def _div(left: _Parts, right: _Parts) -> _Parts | None:
    if right[0] != _ZERO:
        return None
    scale, shift = (p if p == _ZERO else Apply("div", (p, right[1])) for p in left)
    return scale, shift


_RULES: _Rules = {
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "mul": _mul,
}
_FAST: _Rules = {**_RULES, "div": _div}


def _plus(left: Expr, right: Expr) -> Expr:
    if _ZERO in (left, right):
        return right if left == _ZERO else left
    return Apply("add", (left, right))


def _times(left: Expr, right: Expr) -> Expr:
    if left == _ZERO:
        return _ZERO
    return right if left == _ONE else Apply("mul", (left, right))


def _own(read: Read, statement: Statement) -> bool:
    """Whether a value is read at the statement's own indices, without a default."""
    own = tuple(Index(axis.name) for axis in statement.axes)
    return read.indices == own and read.default is None and not read.flat


def _indices(expr: Expr) -> set[str]:
    found: set[str] = set()

    def look(part: Expr) -> Expr | None:
        if isinstance(part, Index):
            found.add(part.name)
        return None

    rewrite(expr, look)
    return found


def _cost(expr: Expr) -> int:
    """Count of function applications in an expression."""
    if isinstance(expr, Apply):
        return 1 + sum(map(_cost, expr.arguments))
    return 0


def _weights(
    producer: Statement, axis: str, constants: Mapping[str, Constant]
) -> tuple[Read, int] | None:
    """The constant factor of a sum of products that has the axis as an index, and its dimension."""
    body = producer.body
    if producer.combine != "add" or not (isinstance(body, Apply) and body.function == "mul"):
        return None
    for weights in body.arguments:
        if not isinstance(weights, Read) or weights.tensor not in constants:
            continue
        dimensions = [n for n, index in enumerate(weights.indices) if index == Index(axis)]
        mentioned = [n for n, index in enumerate(weights.indices) if axis in _indices(index)]
        plain = weights.default is None and not weights.flat
        if plain and len(dimensions) == 1 and mentioned == dimensions:
            return weights, dimensions[0]
    return None
