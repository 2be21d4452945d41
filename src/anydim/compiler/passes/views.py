"""Eliminate data movement: fold permutations into producers and other views into readers.

A view is a statement whose body is one unguarded read at an affine position: transpose, slice,
expand, reshape, flatten, split. Before fusion each is composed into the reads of its consumers.
A view that cannot be composed into some reader (or is a graph output) stays: it becomes a copy, or
an alias if it only renames the same bytes.

After: no statement reads a view that could have been composed away.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.passes.flow import Line, live, pack, unpack
from anydim.compiler.passes.through_views import ThroughViews
from anydim.compiler.passes.view_forms import (
    is_lookup,
    is_reshape,
    is_view,
    looks_up_rows,
    permutation,
)
from anydim.lang.resolve.ranges import running
from anydim.lang.tree import Apply, Expr, Read, Statement
from anydim.lang.tree.affine import (
    Affine,
    affine,
    normal_form,
    reads,
    rewrite,
    row_major_strides,
    substitute,
    to_expr,
)
from anydim.lang.tree.bounds_checks import checks
from anydim.sizes import Box, Size, Truth, as_size, product, prove

_AGAIN = 2  # lookups of an element
_SHORT = 16  # elements of a short axis


@dataclass(frozen=True)
class Views:
    """Absorb permutations into producers and compose the other views into their readers."""

    def run(self, graph: Graph) -> Graph:
        lines = _absorb_permutations(unpack(graph), graph)
        moved = ThroughViews.of(lines, graph.types, graph.outputs)
        lines = moved.run()
        graph = graph.replace(types=moved.types)
        composed: list[Line] = []
        views: dict[str, Statement] = {}
        uses = _uses(lines, graph)
        for line in lines:
            line = replace(line, statement=_compose_all(line.statement, views, graph))
            single = uses[line.target] == 1
            if is_view(line.statement, graph.types) or (single and is_lookup(line.statement)):
                views[line.target] = line.statement
            composed.append(line)
        return pack(graph, live(composed, graph.outputs), graph.types)


def _uses(lines: list[Line], graph: Graph) -> Counter[str]:
    uses = Counter(read.tensor for line in lines for read in reads(line.statement.body))
    uses.update(graph.outputs)
    return uses


# ---- permutations ------------------------------------------------------------------------------


def _absorb_permutations(lines: list[Line], graph: Graph) -> list[Line]:
    """Let a producer write the permuted tensor, if only the permutation reads it."""
    uses = _uses(lines, graph)
    writer = {line.target: position for position, line in enumerate(lines)}
    result: list[Line | None] = list(lines)
    for position in range(len(lines)):
        current = result[position]
        order = None if current is None else permutation(current.statement)
        if current is None or order is None:
            continue
        body = current.statement.body
        assert isinstance(body, Read)
        origin = writer.get(body.tensor)
        if origin is None or uses[body.tensor] != 1 or order[-1] != len(order) - 1:
            continue
        producer = result[origin]
        if producer is None or is_view(producer.statement, graph.types):
            continue
        axes = tuple(
            replace(producer.statement.axes[i], extent=own.extent)
            for i, own in zip(order, current.statement.axes)
        )
        target = current.target
        result[origin] = replace(
            producer, statement=replace(producer.statement, target=target, axes=axes)
        )
        writer[target] = origin
        result[position] = None
    return [line for line in result if line is not None]


# ---- composition -------------------------------------------------------------------------------


def _compose_all(statement: Statement, views: dict[str, Statement], graph: Graph) -> Statement:
    axes = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.default is not None or expr.tensor not in views:
            return None
        if is_lookup(views[expr.tensor]) and _rather_written(views[expr.tensor], statement, expr):
            return None
        composed = compose(expr, views[expr.tensor], axes, graph)
        while composed is not None and composed.tensor in views:
            # this read may compose where the view itself could not
            further = change(composed)
            if not isinstance(further, Read):
                break
            composed = further
        return composed

    return statement.with_body(rewrite(statement.body, change))


def _rather_written(lookup: Statement, statement: Statement, read: Read) -> bool:
    """Whether to store a lookup: a statement reads elements repeatedly, or in transposed order.

    Repeated reads are those of a product or over additional axes. Looking up long rows again costs
    no more than reading them.
    """
    if _is_product(statement) or _is_transposed(statement, read):
        return True
    used = free_axes(read)
    left = (axis.extent for axis in (*statement.axes, *statement.reduced) if axis.name not in used)
    count = product(left).constant
    return (count is None or count > _AGAIN) and not looks_up_rows(lookup)


def _is_transposed(statement: Statement, read: Read) -> bool:
    """Whether a read is transposed: the last axis steps across its rows, another along them.

    Axes known to be short do not count. Each index and element would come from another row: many
    more cache lines than a set of the L1 cache holds, as rows are often powers of two apart.
    """
    extents = {axis.name: axis.extent for axis in statement.axes}
    if read.flat or len(read.indices) < 2 or not extents:
        return False
    lane, along = statement.axes[-1].name, free_axes(read.indices[-1]) & extents.keys()
    if lane in along or lane not in free_axes(read):
        return False
    return not any(_is_short(extents[name]) for name in (lane, *along)) and bool(along)


def _is_short(extent: Size) -> bool:
    return extent.constant is not None and extent.constant < _SHORT


def _is_product(statement: Statement) -> bool:
    body = statement.body
    return statement.combine == "add" and isinstance(body, Apply) and body.function == "mul"


def compose(read: Read, view: Statement, axes: dict[str, Size], graph: Graph) -> Read | None:
    """Compose a read of a view into one of the view's source; None if not expressible."""
    source = view.body
    assert isinstance(source, Read)
    if read.flat:
        form = affine(read.indices[0])
        if form is None or not is_view(view, graph.types):
            return None
        if is_reshape(view, graph.types):
            return Read(source.tensor, (to_expr(form),), flat=True)
        split = delinearise(form, view.shape, axes, graph.box)
        if split is None:
            return None
        indices: tuple[Expr, ...] = split
    else:
        indices = read.indices
    indices_of = dict(zip((axis.name for axis in view.axes), indices))
    moved = tuple(normal_form(substitute(index, indices_of)) for index in source.indices)
    if not {c for i in indices for c in checks(i)} <= {c for i in moved for c in checks(i)}:
        return None  # the source has no axis with that index: its bounds check would be lost
    return Read(source.tensor, moved, source.flat)


def delinearise(
    form: Affine, shape: tuple[Size, ...], axes: dict[str, Size], box: Box
) -> tuple[Expr, ...] | None:
    """Split a row-major offset into affine indices; each remainder is proven below its stride."""
    indices: list[Expr] = []
    for stride in row_major_strides(shape):
        taken: dict[str, Size] = {}
        rest: dict[str, Size] = {}
        for name, coefficient in form.terms:
            quotient = _exact(coefficient, stride)
            if quotient is None:
                rest[name] = coefficient
            else:
                taken[name] = quotient
        constant = _exact(form.constant, stride) if form.constant.constant != 0 else as_size(0)
        remainder = Affine.of(as_size(0) if constant is not None else form.constant, rest)
        if not _below(remainder, stride, axes, box):
            return None
        indices.append(to_expr(Affine.of(constant if constant is not None else as_size(0), taken)))
        form = remainder
    return tuple(indices) if not form.terms else None


def _exact(value: Size, stride: Size) -> Size | None:
    if stride.constant == 1:
        return value
    return value.divide_exactly(stride)


def _below(form: Affine, stride: Size, axes: dict[str, Size], box: Box) -> bool:
    """Prove 0 <= form < stride if no axis is empty (an empty axis reads no element)."""
    top = form.constant
    for name, coefficient in form.terms:
        if name not in axes or prove(coefficient, ">=", as_size(0), box) is not Truth.PROVED:
            return False
        top = top + coefficient * (axes[name] - 1)
    if prove(form.constant, ">=", as_size(0), box) is not Truth.PROVED:
        return False
    return prove(stride - top, ">", as_size(0), running(axes.values(), box)) is Truth.PROVED
