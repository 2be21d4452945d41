"""Requantisation: fold the output scale into the constants, so that no element is divided by it.

    round(quotient(cast(t) * a(m) + b(m), s))  ->  round(cast(t) * a'(m) + b'(m)),  a' = a / s

where a, b and s are constants; limits at 0 and concatenations in between are followed. The rounded
value differs from the quotient by a few units in its last place, so that only a tie may round
differently, as it does where a file has a QLinearConv for the same operation. Sums of two such
values stay as they are: scales are often simple multiples of each other, and ties frequent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.compiler.passes.flow import Line, inputs_of, unique_name
from anydim.compiler.passes.rules import simplify_expression
from anydim.lang.tree import Apply, Axis, Cast, Expr, Index, Literal, Read, Statement, TensorType
from anydim.lang.tree.affine import body_at, reads, rewrite
from anydim.lang.tree.bounds_checks import has_checks

_DEEPEST = 8  # statements between a sum and its rounding
_MIN_SCALE = 2.0**-60


def counted_in_steps(lines: list[Line], graph: Graph, types: dict[str, TensorType]) -> list[Line]:
    """The lines with such quotients replaced; adds the types of new constants."""
    work = _Work(graph, types, lines)
    result: list[Line] = []
    for line in lines:
        body = work.undivided(line)
        result += [Line(made, line.source) for made in work.taken()]
        result.append(replace(line, statement=line.statement.with_body(body)))
    return result


class _Work:
    """State of the rewrite: types and writers of values, new constants."""

    def __init__(self, graph: Graph, types: dict[str, TensorType], lines: list[Line]) -> None:
        self.graph, self.types = graph, types
        self.users = Counter(name for line in lines for name in inputs_of(line.statement))
        self.bodies: Mapping[str, Statement] = {
            line.target: line.statement for line in lines if not line.statement.combine
        }
        self.fixed = set(graph.constants)
        for line in lines:
            if all(name in self.fixed for name in inputs_of(line.statement)):
                self.fixed.add(line.target)
        self.made: list[Statement] = []
        self.stem = ""

    def taken(self) -> list[Statement]:
        made, self.made = self.made, []
        return made

    def undivided(self, line: Line) -> Expr:
        """The body of a line without quotients directly under a rounding."""
        body, dtype = line.statement.body, self.types[line.target].dtype
        if line.statement.combine or not dtype.is_integer or dtype.bits > 16:
            return body
        self.stem = f"{line.target}/steps"
        axes = {axis.name: axis for axis in line.statement.axes}

        def change(part: Expr) -> Expr | None:
            if not (isinstance(part, Apply) and part.function == "round"):
                return None
            (value,) = part.arguments
            if not (isinstance(value, Apply) and value.function == "quotient"):
                return None
            number, scale = value.arguments
            if not self._is_step(scale) or dtype_of(value, self.types) != float32:
                return None
            mark = len(self.made)
            found = _Steps(self, axes, scale).of(number, 0)
            if found is None:
                del self.made[mark:]
                return None
            return Apply("round", (found,))

        return rewrite(simplify_expression(body), change)

    def _is_step(self, scale: Expr) -> bool:
        """Whether a divisor is a scalar constant large enough to divide constants by."""
        if isinstance(scale, Literal):
            return float(scale.value) >= _MIN_SCALE
        if not isinstance(scale, Read) or scale.tensor not in self.graph.constants:
            return False
        constant = self.graph.constants[scale.tensor]
        return prod(constant.shape) == 1 and bool((constant.array >= _MIN_SCALE).all())

    def constant(self, value: Expr, axes: Mapping[str, Axis]) -> Read:
        """Add a value for an expression of constants, along the axes it uses."""
        own = tuple(axis for name, axis in axes.items() if name in free_axes(value))
        name = unique_name(self.stem, self.types)
        self.types[name] = TensorType(float32, tuple(axis.extent for axis in own))
        self.made.append(Statement(name, own, value))
        return Read(name, tuple(Index(axis.name) for axis in own))


@dataclass(frozen=True)
class _Steps:
    """Divides values by a scale; None where that would divide per element."""

    work: _Work
    axes: Mapping[str, Axis]
    scale: Expr

    def of(self, value: Expr, depth: int) -> Expr | None:
        if self._is_constant(value):
            return self._over(value)
        if isinstance(value, Read):
            return self._follow_read(value, depth)
        if not isinstance(value, Apply):
            return None
        if value.function in ("add", "sub") and any(map(self._is_constant, value.arguments)):
            parts = [self.of(part, depth) for part in value.arguments]
            left, right = parts
            if left is None or right is None:
                return None
            return Apply(value.function, (left, right))
        if value.function == "select":
            either, other = (self.of(part, depth) for part in value.arguments[1:])
            if either is None or other is None:
                return None
            return Apply("select", (value.arguments[0], either, other))
        if value.function == "max" and any(_is_zero(part) for part in value.arguments):
            (inner,) = (part for part in value.arguments if not _is_zero(part))
            found = self.of(inner, depth)
            return None if found is None else Apply("max", (found, Literal(0.0, float32)))
        if value.function == "mul":
            for number, factor in (value.arguments, value.arguments[::-1]):
                if (
                    self._is_constant(factor)
                    and isinstance(number, Cast)
                    and number.dtype == float32
                ):
                    return Apply("mul", (number, self._over(factor)))
        return None

    def _follow_read(self, read: Read, depth: int) -> Expr | None:
        """Follow a read of a pointwise value without other readers."""
        producer = self.work.bodies.get(read.tensor)
        if producer is None or depth == _DEEPEST or read.flat or read.default is not None:
            return None
        if self.work.users[read.tensor] > 1 or read.tensor in self.work.graph.outputs:
            return None
        if has_checks(producer.body) or any(map(has_checks, read.indices)):
            return None
        body = body_at(producer.with_body(simplify_expression(producer.body)), read.indices)
        return self.of(body, depth + 1)

    def _is_constant(self, value: Expr) -> bool:
        """Whether a value depends only on constants, at plain indices."""
        found = reads(value)
        if isinstance(value, Literal):
            return True
        return bool(found) and all(
            read.tensor in self.work.fixed and read.default is None
            and all(isinstance(index, Index) or not free_axes(index) for index in read.indices)
            for read in found
        ) and not has_checks(value)  # fmt: skip

    def _over(self, value: Expr) -> Expr:
        divided = Apply("quotient", (value, self.scale))
        if isinstance(value, Literal) and isinstance(self.scale, Literal):
            quotient = numpy.float32(value.value) / numpy.float32(self.scale.value)
            return Literal(float(quotient), float32)
        return self.work.constant(divided, self.axes)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value == 0
