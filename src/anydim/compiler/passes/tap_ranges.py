"""Crop windows of known sizes: taps at whose every position a factor is a zero out of bounds.

    before  y(m) +=! x(c, k + {-1}) else 0.0 * w(m, c, k)   where c in 0:64, k in 0:3; x(64, 1)
    after   y(m) +=! x(c, 0) * w(m, c, 1)                   where c in 0:64

Of 3 x 3 taps, an image of one position has one in bounds: its convolution is a matrix product. Free
sizes are cropped by formulas, in kernels (`kernels/matmul/convolution/cropped_taps.py`).

After: no first or last index of a sum of products only adds products with zeros out of bounds,
where sizes are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.flow import pack, unpack
from anydim.lang.meaning.contract import factors
from anydim.lang.resolve.ranges import INSIDE, read_status
from anydim.lang.tree import Apply, Axis, Cast, Expr, Index, Literal, Read, SizeTerm, Statement
from anydim.lang.tree.affine import Affine, affine, normal_form, rewrite, substitute
from anydim.sizes import Size, as_size


@dataclass(frozen=True)
class TapRanges:
    """Crop the reduced axes of sums of products."""

    def run(self, graph: Graph) -> Graph:
        lines = unpack(graph)
        made = [replace(line, statement=_crop(line.statement, graph)) for line in lines]
        return graph if made == lines else pack(graph, made, graph.types)


def _crop(statement: Statement, graph: Graph) -> Statement:
    """The statement without taps that only add zeros; itself if there are none."""
    windows = [*_windows(statement, graph)] if statement.combine == "add" else []
    extents = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}
    cropped = {
        axis: kept
        for axis in statement.reduced
        if (kept := _taps_in_bounds(axis.name, windows, extents)) is not None
    }
    if not cropped:
        return statement
    places = {axis.name: _place(axis, kept) for axis, kept in cropped.items()}
    reduced = tuple(
        Axis(axis.name, as_size(len(cropped[axis]))) if axis in cropped else axis
        for axis in statement.reduced
        if axis not in cropped or len(cropped[axis]) > 1
    )
    combine, body = "add" if reduced else "", substitute(statement.body, places)
    return _drop_defaults(replace(statement, body=body, reduced=reduced, combine=combine), graph)


def _windows(statement: Statement, graph: Graph) -> Iterator[tuple[Affine, int]]:
    """Indices of factors that are zeros out of bounds, with the known sizes that they index."""
    for factor in factors(statement.body):
        read = factor.argument if isinstance(factor, Cast) else factor
        if not isinstance(read, Read) or read.flat or not isinstance(read.default, Literal):
            continue
        shape = graph.types[read.tensor].shape if read.default.value == 0 else ()
        for index, size in zip(read.indices, shape):
            form = affine(index)
            if form is not None and size.constant is not None:
                yield form, size.constant


def _taps_in_bounds(
    tap: str, windows: Sequence[tuple[Affine, int]], extents: Mapping[str, Size]
) -> range | None:
    """The taps of an axis that any position has in bounds; None for all or none of them."""
    every = extents[tap].constant or 0
    kept = range(every)
    for form, size in windows:
        spread, reach = form.stride(tap).constant or 0, _reach(form.without(tap), extents)
        if spread > 0 and reach is not None:
            low, high = reach
            first, stop = -(high // spread), (size - 1 - low) // spread + 1
            kept = range(max(kept.start, first), min(kept.stop, stop))
    return kept if 0 < len(kept) < every else None


def _reach(form: Affine, extents: Mapping[str, Size]) -> tuple[int, int] | None:
    """The least and the greatest value of an index; None where sizes are free, or 0."""
    low = high = form.constant.constant
    for name, step in form.terms:
        extent = extents[name].constant
        if low is None or high is None or not extent or step.constant is None:
            return None
        far = step.constant * (extent - 1)
        low, high = low + min(far, 0), high + max(far, 0)
    return None if low is None or high is None else (low, high)


def _place(axis: Axis, kept: range) -> Expr:
    """The index of a kept tap, by its number."""
    start = SizeTerm(as_size(kept.start))
    return start if len(kept) == 1 else Apply("add", (Index(axis.name), start))


def _drop_defaults(statement: Statement, graph: Graph) -> Statement:
    """The statement with indices as sums, and no default where these are in bounds."""
    extents = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.flat:
            return None
        indices, shape = tuple(map(normal_form, expr.indices)), graph.types[expr.tensor].shape
        inside = all(
            read_status(index, size, extents, graph.box)[0] == INSIDE
            for index, size in zip(indices, shape)
        )
        return replace(expr, indices=indices, default=None if inside else expr.default)

    return statement.with_body(rewrite(statement.body, change))
