"""Simplification with equal results: local algebra, constant folding, common subexpressions.

After: no body has a subexpression where a rule of `rules.py` matches; no statement reads only
constants (unless its result would be large, or is larger than these and takes little work), but
weights of products, where they are large, may take twice the bytes of these; no two statements
compute the same thing; constant indices are proven in bounds, or guarded where that depends on the
sizes of a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.compiler.graph.derivations import Evaluated
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.compiler.kernels.work_estimate import cost
from anydim.compiler.passes.flow import Line, group_of, inputs_of, live, pack, unpack
from anydim.compiler.passes.options import EXACT
from anydim.compiler.passes.rules import simplify_expression
from anydim.compiler.passes.shared_loops import rename_axes
from anydim.compiler.passes.view_forms import is_reshape, is_view
from anydim.lang.meaning.contract import factors
from anydim.lang.resolve.ranges import INSIDE, UNDECIDED, read_guards, read_status
from anydim.lang.tree import Apply, Axis, Expr, Index, Literal, Read, Statement
from anydim.lang.tree.affine import affine, reads, rewrite, to_expr
from anydim.lang.tree.bounds_checks import (
    active_checks,
    has_checks,
    is_inside,
    renumber_checks,
    size_of,
)
from anydim.sizes import Guard, Size, merged_guards


@dataclass(frozen=True)
class Simplify:
    """Apply the rules, fold constants up to `max_bytes` of a result, merge equal statements.

    Unless precision is "exact", elements that share a divisor use one reciprocal.
    """

    precision: str = EXACT
    max_bytes: int = 64 << 20

    def run(self, graph: Graph) -> Graph:
        lines, guards = [], list(graph.guards)
        numbers: dict[str, Literal] = {}  # values whose elements are one number
        for line in unpack(graph):
            body = _with_numbers(line.statement.body, numbers)
            body = simplify_expression(body, self.precision != EXACT)
            number = _number(line.statement, body, graph)
            if number is not None:
                numbers[line.target] = number
            if self.precision != EXACT:
                body = _by_reciprocals(body, line.statement.axes[-1:], graph)
            line = Line(line.statement.with_body(body), line.source)
            line = _as_it_lies(line, graph)
            line, found = _remove_checks(line, graph) if has_checks(body) else (line, [])
            lines.append(line)
            guards = merged_guards(guards, found)
        graph, lines = self._fold(graph.replace(guards=tuple(guards)), lines)
        lines = _merge_equal(lines, graph)
        return pack(graph, live(lines, graph.outputs), graph.types)

    def _fold(self, graph: Graph, lines: list[Line]) -> tuple[Graph, list[Line]]:
        constants = dict(graph.constants)
        later: dict[str, Statement] = {}  # views of constants, values larger than operands or
        kept = []  # than `max_bytes`: folded only if a reader is folded, or a product
        for line in lines:
            statement = line.statement
            if all(name in constants or name in later for name in inputs_of(statement)):
                if self._foldable(statement, graph):
                    folded = _fold_statement(statement, later, constants, graph)
                    if folded is not None:
                        constants[line.target] = folded
                        continue
                    later[line.target] = statement
                elif _may_fold_later(statement, later, constants, graph):
                    later[line.target] = statement
            elif statement.combine:  # constant weights are packed at compile time
                for name in _wide(statement, later, graph):
                    wanted = _fold_statement(later[name], later, constants, graph, self.max_bytes)
                    if wanted is not None:
                        constants[name] = wanted
            kept.append(line)
        kept = [line for line in kept if line.target not in constants]
        return graph.replace(constants=constants), kept

    def _foldable(self, statement: Statement, graph: Graph) -> bool:
        if statement.target in graph.outputs or is_view(statement, graph.types):
            return False
        extents = [axis.extent.constant for axis in (*statement.axes, *statement.reduced)]
        known = [extent for extent in extents if extent is not None]
        if len(known) < len(extents) or _mentions_dims(statement):
            return False
        result = math.prod(known[: len(statement.axes)])
        dtype = graph.types[statement.target].dtype
        if result * dtype.bytes > self.max_bytes:
            return False
        return math.prod(known) <= (_MAX_PRODUCTS if _is_product(statement) else _MAX_STEPS)


def _number(statement: Statement, body: Expr, graph: Graph) -> Literal | None:
    """The number that all elements of a value are, if it is one."""
    if not isinstance(body, Literal) or statement.combine:
        return None
    return Literal(body.value, graph.types[statement.target].dtype)


def _with_numbers(body: Expr, numbers: Mapping[str, Literal]) -> Expr:
    """Replace reads of values that are one number, unless an index of the read is checked."""

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.tensor not in numbers or expr.default is not None:
            return None
        return None if any(map(has_checks, expr.indices)) else numbers[expr.tensor]

    return rewrite(body, change) if numbers else body


def _fold_statement(
    statement: Statement,
    later: Mapping[str, Statement],
    constants: Mapping[str, Constant],
    graph: Graph,
    wanted: int = 0,
) -> Constant | None:
    """Evaluate a statement that reads constants and values in `later`.

    None if it is larger than its operands (an expand is better an index) for little work, unless it
    is `wanted`; or if evaluation is an error. Above `wanted` bytes it is computed when packed.
    """
    needed = _names_below(statement, later, constants) - constants.keys()
    ordered = [made for name, made in later.items() if name in needed]
    group = group_of([*ordered, statement], graph.types, [statement.target])
    inputs = [constants[tensor.name] for tensor in group.inputs]
    count = math.prod(axis.extent.constant or 0 for axis in statement.axes)
    if ordered and count > sum(math.prod(each.shape) for each in inputs):
        if count > _WIDE or not (wanted or cost(statement.body) >= _LONG):
            return None
    extents = [axis.extent.constant or 0 for axis in (*statement.axes, *statement.reduced)]
    dtype = graph.types[statement.target].dtype
    if wanted and count * dtype.bytes > wanted:
        return Constant.later(Evaluated(group, dtype), dtype.numpy, extents, *inputs)
    long = math.prod(extents) > _LONG_SUM and bool(statement.combine) and dtype.is_float
    try:
        return Constant.derive(Evaluated(group, dtype, long), *inputs)
    except InputError:  # a constant index out of bounds: reported by the call
        for each in inputs:
            each.mark_read()
        return None


def _names_below(
    statement: Statement, later: Mapping[str, Statement], constants: Mapping[str, Constant]
) -> set[str]:
    """The constants and values in `later` that a statement is computed of."""
    needed: set[str] = set()
    pending = [*inputs_of(statement)]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += () if name in constants else inputs_of(later[name])
    return needed


def _may_fold_later(
    statement: Statement,
    later: Mapping[str, Statement],
    constants: Mapping[str, Constant],
    graph: Graph,
) -> bool:
    """Whether it is a view, or a large value of elements with twice its constants' bytes at most.

    Such are weights of 16 bits that products read in float32.
    """
    if _mentions_dims(statement) or is_view(statement, graph.types):
        return not _mentions_dims(statement)
    extents = [axis.extent.constant for axis in statement.axes]
    if statement.combine or statement.target in graph.outputs or has_checks(statement.body):
        return False
    held = sum(
        constants[n].nbytes for n in _names_below(statement, later, constants) & constants.keys()
    )
    size = graph.types[statement.target].dtype.bytes * math.prod(each or 0 for each in extents)
    return None not in extents and size <= 2 * held


def _wide(statement: Statement, later: Mapping[str, Statement], graph: Graph) -> list[str]:
    """Operands of a statement, also through views, that are computed of constants."""
    found, pending = [], [*inputs_of(statement)]
    while pending:
        name = pending.pop()
        if name in later and is_view(later[name], graph.types):
            pending += inputs_of(later[name])
        elif name in later:
            found.append(name)
    return found


def _is_product(statement: Statement) -> bool:
    return statement.combine == "add" and len(factors(statement.body)) > 1


_MAX_PRODUCTS = 1 << 34  # steps of a contraction: a second or two in the evaluator
_MAX_STEPS = 1 << 26  # steps of other statements, where a small result may need a long expand
_LONG_SUM = 1 << 22  # steps of a float reduction; longer ones: evaluated in float64, rounded once
_WIDE = 1 << 20  # elements of a constant folded from smaller ones to save time
_LONG = 10  # operations: more than a read from memory costs


def _remove_checks(line: Line, graph: Graph) -> tuple[Line, list[Guard]]:
    """Remove index checks that a proof or a new guard makes redundant; return these guards."""
    statement, box = line.statement, graph.box
    extents = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}
    always = {check.index for check in active_checks(statement.body, graph.types) if check.always}
    guards: list[Guard] = []

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Apply) or not is_inside(expr):
            return None
        index, size = expr.arguments[0], size_of(expr)
        status, span = read_status(index, size, extents, box)
        if status == UNDECIDED and span is not None and index in always:
            low, high = span
            which = f"index {low}" if low == high else f"indices {low} to {high}"
            message = f"{line.source}: {which} inside an axis of size {size}"
            guards.extend(read_guards(low, high, size, extents, box, message))
            status = INSIDE
        if status != INSIDE:
            return None
        form = affine(index)
        return index if form is None else to_expr(form)

    body = rewrite(statement.body, change)
    return Line(statement.with_body(body), line.source), guards


def _as_it_lies(line: Line, graph: Graph) -> Line:
    """Rewrite a reshape to the value's own shape as an elementwise read."""
    statement = line.statement
    body = statement.body
    if not isinstance(body, Read) or not body.flat or not is_reshape(statement, graph.types):
        return line
    if graph.types[body.tensor].shape != statement.shape:
        return line
    own = tuple(Index(axis.name) for axis in statement.axes)
    return Line(statement.with_body(Read(body.tensor, own)), line.source)


def _by_reciprocals(body: Expr, axes: tuple[Axis, ...], graph: Graph) -> Expr:
    """Rewrite divisions by values shared along the last axis as products with their reciprocals.

    Not in 16 bits: 1 / x overflows in float16 where x / x does not.
    """

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Apply) or expr.function != "div":
            return None
        value, shared = expr.arguments
        dtype = dtype_of(expr, graph.types)
        if dtype is None or not dtype.is_float or dtype.bits < 32:
            return None
        along = {axis.name for axis in axes}
        if not along <= free_axes(value) or along & free_axes(shared) or not reads(shared):
            return None
        return Apply("mul", (value, Apply("div", (Literal(1.0, dtype), shared))))

    return rewrite(body, change) if axes else body


def _mentions_dims(statement: Statement) -> bool:
    found: list[Size] = []

    def look(expr: Expr) -> Expr | None:
        size = getattr(expr, "size", None)
        if isinstance(size, Size) and size.constant is None:
            found.append(size)
        return None

    rewrite(statement.body, look)
    return bool(found)


def _merge_equal(lines: list[Line], graph: Graph) -> list[Line]:
    """Merge statements that are equal up to renaming of axes and targets, into the first."""
    first: dict[Statement, str] = {}
    instead: dict[str, str] = {}
    kept = []

    def redirect(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor in instead:
            return replace(expr, tensor=instead[expr.tensor])
        return None

    for line in lines:
        statement = line.statement
        if instead:
            statement = statement.with_body(rewrite(statement.body, redirect))
        key = _anonymous(statement)
        if key in first and line.target not in graph.outputs:
            instead[line.target] = first[key]
            continue
        first.setdefault(key, line.target)
        kept.append(replace(line, statement=statement))
    return kept


def _anonymous(statement: Statement) -> Statement:
    axes: tuple[Axis, ...] = (*statement.axes, *statement.reduced)
    names = {axis.name: f"i{number}" for number, axis in enumerate(axes)}
    body = renumber_checks(statement.body, lambda check: 0)
    return replace(rename_axes(replace(statement, body=body), names), target="")
