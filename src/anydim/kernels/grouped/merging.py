"""Axes that lie behind one another wherever they are read become one: fewer indices to find.

The place of an item among all rows of a product is a number; each axis more is a division more to
find its index. Batch and sequence of an activation are one axis where nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.records import dataclass
from anydim.kernels.inference import free_axes
from anydim.kernels.product.epilogue import PRODUCT, outside_reads
from anydim.lang.tree import Axis, Expr, Read, TensorType
from anydim.lang.tree.affine import Affine, address, reads, rewrite, to_expr


@dataclass(frozen=True)
class Loops:
    """Axes in lists that are flattened, what is computed in them, and where results are written."""

    axes: tuple[tuple[Axis, ...], ...]
    values: tuple[Expr, ...]
    place: Affine


def merged(loops: Loops, types: Mapping[str, TensorType]) -> Loops:
    """The same with neighbours in each list merged as far as they can be."""
    for number, _ in enumerate(loops.axes):
        for at in reversed(range(len(loops.axes[number]) - 1)):
            loops = _pair(loops, number, at, types)
    return loops


def _pair(loops: Loops, number: int, at: int, types: Mapping[str, TensorType]) -> Loops:
    """With two neighbours as the second one of them, if they are one walk everywhere."""
    outer, inner = loops.axes[number][at : at + 2]
    changes: dict[Read, Read] = {}
    names = {outer.name, inner.name}
    for value in loops.values:
        if free_axes(outside_reads(value)) & names:
            return loops
        for read in reads(value):
            if not free_axes(read) & names or read.tensor == PRODUCT:
                continue
            form = address(read, types[read.tensor].shape) if read.default is None else None
            if form is None or not _one_walk(form, outer, inner):
                return loops
            changes[read] = Read(read.tensor, (to_expr(form.without(outer.name)),), flat=True)
    if not _one_walk(loops.place, outer, inner):
        return loops
    whole = Axis(inner.name, outer.extent * inner.extent)
    axes = list(loops.axes)
    axes[number] = (*axes[number][:at], whole, *axes[number][at + 2 :])

    def change(expr: Expr) -> Expr | None:
        return changes.get(expr) if isinstance(expr, Read) else None

    values = tuple(rewrite(value, change) for value in loops.values)
    return Loops(tuple(axes), values, loops.place.without(outer.name))


def _one_walk(form: Affine, outer: Axis, inner: Axis) -> bool:
    return form.stride(outer.name) == form.stride(inner.name) * inner.extent
