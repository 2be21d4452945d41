"""Hoist literals into constant tensors, so that groups that differ only in literals share a kernel.

Quantised networks and learned activations have their own numbers in every layer: a scale, a zero
point, a slope. As literals they would require a kernel per layer to generate and compile.

    y(i) = x(i) * 0.47 + 0.5     z(i) = v(i) * 0.31 + 0.5
    y(i) = x(i) * n(0) + 0.5     z(i) = v(i) * m(0) + 0.5

Only literals that differ among the groups of one form are hoisted: those that kernels may exploit
(0.5 of a gelu, a limit) stay literals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy

from anydim.base.dtypes import DType, int64
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.passes.flow import fused_node, unique_name, with_nodes
from anydim.lang.tree import (
    Apply,
    Cast,
    Expr,
    Group,
    Literal,
    Read,
    SizeTerm,
    Statement,
    Tensor,
)
from anydim.lang.tree.affine import reads

# functions that kernels lower the same for literals and reads
_PLAIN = frozenset({"add", "sub", "mul", "div", "quotient"})
_MAX_LITERALS = 64  # literals of one group


@dataclass(frozen=True)
class Numbers:
    """Replace literals that differ among groups of one form by reads of constants."""

    def run(self, graph: Graph) -> Graph:
        forms: dict[Hashable, list[int]] = defaultdict(list)
        found: dict[int, list[Literal]] = {}
        for number, node in enumerate(graph.nodes):
            numbers = list(_numbers(node.group))
            if numbers and len(numbers) <= _MAX_LITERALS:
                found[number] = numbers
                forms[_form(node.group)].append(number)
        made = _Made(graph)
        for members in forms.values():
            columns = list(zip(*(found[number] for number in members)))
            unlike = [len(set(column)) > 1 for column in columns]
            if any(unlike):
                slots = _slots(columns, unlike)
                for number in members:
                    made.read(number, slots)
        return made.graph()


def _slots(columns: Sequence[tuple[Literal, ...]], unlike: Sequence[bool]) -> list[int | None]:
    """The slot in the constant of its dtype that each literal reads; None for literals that stay.

    Literals that are equal in every group share a slot.
    """
    known: dict[tuple[Literal, ...], int] = {}
    counts: dict[DType | None, int] = defaultdict(int)
    slots: list[int | None] = []
    for column, differs in zip(columns, unlike):
        if differs and column not in known:
            dtype = column[0].dtype
            known[column] = counts[dtype]
            counts[dtype] += 1
        slots.append(known[column] if differs else None)
    return slots


class _Made:
    """A graph under rewriting."""

    def __init__(self, graph: Graph) -> None:
        self.before = graph
        self.nodes = list(graph.nodes)
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)

    def graph(self) -> Graph:
        changed = self.before.replace(types=self.types, constants=self.constants)
        return with_nodes(changed, tuple(self.nodes), self.types)

    def read(self, number: int, slots: Sequence[int | None]) -> None:
        """Replace literals of a group by reads, from one constant per dtype."""
        node = self.nodes[number]
        names: dict[DType, str] = {}
        values: dict[DType, dict[int, Literal]] = defaultdict(dict)
        for literal, slot in zip(_numbers(node.group), slots):
            if slot is not None and literal.dtype is not None:
                values[literal.dtype][slot] = literal
        for dtype, row in values.items():
            numbers = [row[slot].value for slot in range(len(row))]
            names[dtype] = self._constant(node, numpy.array(numbers, dtype.numpy))
        following = iter(slots)

        def change(literal: Literal) -> Expr:
            slot = next(following)
            if slot is None or literal.dtype is None:
                return literal
            return Read(names[literal.dtype], (Literal(slot, int64),))

        statements = tuple(_with_numbers(each, change) for each in node.group.statements)
        read = tuple(Tensor(name, self.types[name]) for name in names.values())
        inputs = (*node.group.inputs, *read)
        group = replace(node.group, inputs=inputs, statements=statements)
        self.nodes[number] = fused_node(group, node.source)

    def _constant(self, node: Node, array: numpy.ndarray) -> str:
        name = unique_name(f"{node.outputs[0]}/numbers", self.types)
        constant = Constant(array)
        self.types[name], self.constants[name] = constant.type, constant
        return name


# ---- numbers and forms -------------------------------------------------------------------------


def _numbers(group: Group) -> Iterator[Literal]:
    """The literals that may be hoisted, in order."""
    for statement in group.statements:
        if not statement.combine:
            yield from _literals(statement.body)


@lru_cache(maxsize=1 << 18)
def _literals(expr: Expr) -> tuple[Literal, ...]:
    if isinstance(expr, Cast):
        return _literals(expr.argument)
    if not isinstance(expr, Apply):
        return ()
    found: list[Literal] = []
    for part in expr.arguments:
        number = _number(expr, part)
        found += _literals(part) if number is None else (number,)
    return tuple(found)


def _number(outer: Apply, part: Expr) -> Literal | None:
    """The argument as a literal that may be hoisted; else None."""
    plain = outer.function in _PLAIN
    return part if plain and isinstance(part, Literal) and part.dtype is not None else None


def _with_numbers(statement: Statement, change: Callable[[Literal], Expr]) -> Statement:
    """The statement with `change` applied to its literals in the order of `_numbers`."""

    def changed(expr: Expr) -> Expr:
        if isinstance(expr, Cast):
            return Cast(expr.dtype, changed(expr.argument))
        if not isinstance(expr, Apply):
            return expr
        parts = []
        for part in expr.arguments:
            number = _number(expr, part)
            parts.append(changed(part) if number is None else change(number))
        return Apply(expr.function, tuple(parts))

    return statement if statement.combine else statement.with_body(changed(statement.body))


def _form(group: Group) -> Hashable:
    """Key of a group's form: everything but sizes, names and literals."""
    tensors = (*group.inputs, *group.outputs, *group.temporaries)
    numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
    types = tuple((tensor.type.dtype, tensor.type.rank) for tensor in tensors)
    statements = tuple(_statement_form(statement, numbers) for statement in group.statements)
    return len(group.inputs), len(group.outputs), types, statements


def _statement_form(statement: Statement, numbers: dict[str, int]) -> Hashable:
    body = _blank(statement.body)
    tensors = tuple(numbers[read.tensor] for read in reads(statement.body))
    return statement.combine, len(statement.axes), numbers[statement.target], body, tensors


@lru_cache(maxsize=1 << 18)
def _blank(expr: Expr) -> Hashable:
    """An expression without sizes, tensor names and literals."""
    if isinstance(expr, Read):
        default = None if expr.default is None else _blank(expr.default)
        return "read", expr.flat, default, tuple(map(_blank, expr.indices))
    if isinstance(expr, Apply):
        numbers = [_number(expr, part) for part in expr.arguments]
        parts = [
            _blank(part) if number is None else number.dtype
            for part, number in zip(expr.arguments, numbers)
        ]
        return expr.function, *parts
    if isinstance(expr, Cast):
        return "cast", expr.dtype, _blank(expr.argument)
    return "size" if isinstance(expr, SizeTerm) else expr
