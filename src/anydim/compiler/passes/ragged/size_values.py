"""Values that depend only on sizes and masks, as expressions of their indices.

    rows = range(batch)               rows(r) = r
    keys = range(seq)                 keys(k) = k
    at = concat(rows, keys)           at(r, k, 0) = r, at(r, k, 1) = k
    y = gather_nd(mask, at)           y(r, k) = mask(r, k)

Attention masks and the last token of each row are often read this way: the number of the row comes
from a `range` over the batch. With the expressions inlined, such a node reads its own row alone.
A mask that marks padding is 1 everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import prod

from anydim.base.dtypes import boolean, int64
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.passes.rules import apply_rules
from anydim.lang.functions import INSIDE
from anydim.lang.tree import (
    Apply,
    Axis,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    Tensor,
)
from anydim.lang.tree.affine import Affine, affine, body_at, operands, rewrite
from anydim.lang.tree.bounds_checks import within
from anydim.lang.tree.renaming import rename_steps
from anydim.sizes import Box, Size, Truth, as_size, product, prove

NONE: Mapping[str, Size] = FrozenMapping({})
_MOST = 200  # parts of an expression that is worth inlining


@dataclass
class SizeValues:
    """Expressions of the values of a graph that depend on no input."""

    graph: Graph
    masks: frozenset[str] = frozenset()
    statements: dict[str, Statement] = field(default_factory=dict, init=False)
    ranges: dict[str, Size] = field(default_factory=dict, init=False)
    candidates: dict[str, Statement] = field(default_factory=dict, init=False)
    box: Box = field(init=False)  # an empty tensor has no element to ask about

    def __post_init__(self) -> None:
        object.__setattr__(self, "box", self.graph.box.without_zero())
        for name in self.masks:
            kind = self.graph.types[name]
            axes = tuple(Axis(f"i{axis}", size) for axis, size in enumerate(kind.shape))
            one = True if kind.dtype is boolean else 1
            self.statements[name] = Statement(name, axes, Literal(one, kind.dtype))

    def inline(self, node: Node, group: Group) -> Group:
        """The group of a node with known values inlined; its tensors have the graph's names."""
        names = {tensor.name: name for tensor, name in zip(group.inputs, node.given)}
        names |= {tensor.name: name for tensor, name in zip(group.outputs, node.outputs)}
        names |= {tensor.name: f"{node.outputs[0]}/{tensor.name}" for tensor in group.temporaries}
        steps = rename_steps(group.steps, names)
        statements = tuple(
            self._inline_values(step) for step in rename_steps(group.statements, names)
            if isinstance(step, Statement)
        )  # fmt: skip
        read = set(node.given) if steps else set()
        read = read.union(*(_tensors(statement.body) for statement in statements))
        types = self.graph.types  # without those of temporaries
        tensors = tuple(Tensor(name, types[name]) for name in sorted(read) if name in types)
        outputs, temporaries = (
            tuple(Tensor(names[tensor.name], tensor.type) for tensor in part)
            for part in (group.outputs, group.temporaries)
        )
        made = Group(tensors, outputs, statements, temporaries, group.guards, steps)
        self._learn(made)
        if node.operator in ("arg_max", "arg_min"):
            axis = operator(node.operator).complete(node.attributes)["axis"]
            self.ranges[node.outputs[0]] = self.graph.types[node.given[0]].shape[axis]
        return made

    def is_deferred(self, node: Node) -> bool:
        """Whether readers of a node see its expression from now on, of other tensors if need be."""
        for name in node.outputs:
            if name in self.candidates:
                self.statements[name] = self.candidates[name]
        return self.statements.keys() >= set(node.outputs)

    def fill(self) -> Graph:
        """The graph with a `fill` for each value that is one number."""
        return self.graph.replace(nodes=tuple(map(self._fill_node, self.graph.nodes))).pruned()

    def _fill_node(self, node: Node) -> Node:
        name = node.outputs[0] if len(node.outputs) == 1 else ""
        known = self.statements.get(name)
        if known is None or not isinstance(known.body, Literal):
            return node
        kind = self.graph.types[name]
        attributes = {"shape": kind.shape, "value": known.body.value, "dtype": kind.dtype}
        return replace(node, operator="fill", inputs=(), attributes=FrozenMapping(attributes))

    def _learn(self, group: Group) -> None:
        """Keep the expression of an element; readers see it at once if it reads constants alone."""
        if len(group.statements) != 1 or group.steps:
            return
        statement = _as_product(group.statements[0])
        if statement.combine or _size(statement.body, _MOST) > _MOST:
            return
        constants = self.graph.constants
        known = all(name in constants for name in _tensors(statement.body))
        (self.statements if known else self.candidates)[statement.target] = statement

    def _inline_values(self, statement: Statement) -> Statement:
        axes = (*statement.axes, *statement.reduced)
        extents = {axis.name: axis.extent for axis in axes}

        def change(expr: Expr) -> Expr | None:
            known = self._element(expr) if isinstance(expr, Read) else expr
            return decide(expr) if known is expr else rewrite(known, decide)

        def decide(expr: Expr) -> Expr | None:
            return decide_comparison(expr, extents, self.box, self.ranges)

        return statement.with_body(rewrite(statement.body, change))

    def _element(self, read: Read) -> Expr:
        """The value of a read, if it is known."""
        constant = self.graph.constants.get(read.tensor)
        if constant is not None and prod(constant.shape) == 1:
            dtype = self.graph.types[read.tensor].dtype
            return Literal(constant.array.reshape(-1)[0].item(), dtype)
        known = self.statements.get(read.tensor)
        if known is None:
            return read
        if isinstance(known.body, Literal) and read.default in (None, known.body):
            return known.body
        indices = self._offsets(read, known) if read.flat else read.indices
        if indices is None:
            return read
        value = body_at(known, indices)
        if read.default is not None:
            for axis, index in zip(known.axes, indices):
                value = Apply("select", (within(index, axis.extent), value, read.default))
        return value

    def _offsets(self, read: Read, known: Statement) -> tuple[Expr, ...] | None:
        """The indices of an offset into a value with at most one axis that is longer than 1."""
        long = [axis for axis in known.axes if axis.extent.constant != 1]
        if len(long) > 1:
            return None
        zero = SizeTerm(as_size(0))
        return tuple(read.indices[0] if axis in long else zero for axis in known.axes)


def _as_product(statement: Statement) -> Statement:
    """A sum of one integer, as a product."""
    body, dtype = statement.body, getattr(statement.body, "dtype", None)
    if statement.combine != "add" or not isinstance(body, Literal) or dtype is not int64:
        return statement
    total = product(axis.extent for axis in statement.reduced) * int(body.value)
    return Statement(statement.target, statement.axes, SizeTerm(total))


def decide_comparison(
    expr: Expr, extents: Mapping[str, Size], box: Box, ranges: Mapping[str, Size] = NONE
) -> Expr | None:
    """Decide a comparison of indices, and what follows from it; None if nothing changes."""
    if not isinstance(expr, Apply):
        return apply_rules(expr)
    if expr.function == INSIDE:  # another index is an error of the call
        return expr.arguments[0]
    if expr.function in _COMPARISONS:
        found = _compare(expr, {**extents}, box, ranges)
        if found is not None:
            return Literal(found, boolean)
    if expr.function in ("and", "or"):
        for one, other in (expr.arguments, expr.arguments[::-1]):
            if isinstance(one, Literal):
                return other if bool(one.value) == (expr.function == "and") else one
    return apply_rules(expr)


_COMPARISONS = {
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==",
    "not_equal": "!=",
}  # fmt: skip


def numbers_as_indices(expr: Expr, ranges: Mapping[str, Size], extents: dict[str, Size]) -> Expr:
    """Replace reads of natural numbers below a size by indices, whose extents are added."""

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Read) or part.tensor not in ranges:
            return None
        name = f"{part.tensor}{part.indices}"
        extents[name] = ranges[part.tensor]
        return Index(name)

    return rewrite(expr, change)


def _compare(
    expr: Apply, extents: dict[str, Size], box: Box, ranges: Mapping[str, Size]
) -> bool | None:
    numbers = (numbers_as_indices(each, ranges, extents) for each in expr.arguments)
    left, right = map(affine, numbers)
    span = None if left is None or right is None else span_of(left - right, extents, box)
    if span is None:
        return None
    relation, (low, high) = _COMPARISONS[expr.function], span
    if relation in ("==", "!="):
        apart = Truth.PROVED in (prove(low, ">", 0, box), prove(high, "<", 0, box))
        if low != high and not apart:
            return None
        return apart == (relation == "!=") if apart or low.constant == 0 else None
    hardest, easiest = (high, low) if relation in ("<", "<=") else (low, high)
    if prove(hardest, relation, 0, box) is Truth.PROVED:
        return True
    return False if prove(easiest, relation, 0, box) is Truth.REFUTED else None


def span_of(form: Affine, extents: Mapping[str, Size], box: Box) -> tuple[Size, Size] | None:
    """The least and the largest value of an affine form where no axis is empty, or None."""
    low = high = form.constant
    for name, coefficient in form.terms:
        if name not in extents:
            return None
        end = coefficient * (extents[name] - 1)
        if prove(coefficient, ">=", 0, box) is Truth.PROVED:
            high += end
        elif prove(coefficient, "<=", 0, box) is Truth.PROVED:
            low += end
        else:
            return None
    return low, high


def _tensors(expr: Expr) -> set[str]:
    found = {expr.tensor} if isinstance(expr, Read) else set()
    return found.union(*map(_tensors, operands(expr)))


def _size(expr: Expr, most: int) -> int:
    """The number of parts of an expression, as far as `most`."""
    found = 1
    for operand in operands(expr):
        if found > most:
            break
        found += _size(operand, most - found)
    return found
