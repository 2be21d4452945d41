"""Which tensors a nest fills before it reads them; all others are zero-initialised.

A write fills a tensor when its indices are whole axes and whole loops, each once: h(t, i) for t in
0:T, i in 0:N. A read is initialised if it comes later, or if an earlier iteration wrote the
element. A write in a branch whose condition depends on sizes covers the reads in that branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from anydim.lang.dependence.accesses import Access, Instance, LoopAt, accesses, bound_form
from anydim.lang.tree import Apply, Cast, Expr, Literal, SizeTerm, TensorType
from anydim.lang.tree.affine import parts
from anydim.sizes import Box, Size, Truth, as_size, prove

Condition: TypeAlias = "tuple[Expr, bool]"


def filled_before_reads(
    tensor: str, found: Sequence[Instance], types: Mapping[str, TensorType], box: Box,
    kept: bool = True,
) -> bool:  # fmt: skip
    """Whether every element of a tensor is written before it is read, and, with `kept`, at all."""
    fillings = _in_order(tensor, found, types, box)
    return any(not kept or not others for _, others in fillings)


def private(
    tensor: str, at: LoopAt, found: Sequence[Instance], types: Mapping[str, TensorType], box: Box
) -> bool:
    """Whether a tensor is private to an iteration of a loop: filled there before it is read."""
    known = dict(types)
    for instance in found:
        if at.number not in {o.number for o in instance.loops}:
            if any(access.tensor == tensor for access in accesses(instance, known)):
                return False
    return any(at.number in others for _, others in _in_order(tensor, found, types, box))


def _in_order(
    tensor: str, found: Sequence[Instance], types: Mapping[str, TensorType], box: Box
) -> Iterator[tuple[frozenset[int], frozenset[int | Condition]]]:
    """Yield, for each write that fills the tensor before all reads, its loops over dimensions,
    and the other loops and branches around it."""
    known = dict(types)
    touching = [a for instance in found for a in accesses(instance, known) if a.tensor == tensor]
    reading = [access for access in touching if not access.writes]
    for loops, last in _fillings(touching, types[tensor], box):
        chosen = frozenset(at.number for at in loops.values())
        others = _around(touching, last) - chosen
        inside = all(others <= _enclosing(read.instance) for read in reading)
        if inside and all(_after(read, loops, last) for read in reading):
            yield chosen, others


def _around(touching: Sequence[Access], last: int) -> frozenset[int | Condition]:
    return next(_enclosing(a.instance) for a in touching if a.writes and a.instance.number == last)


def _enclosing(instance: Instance) -> frozenset[int | Condition]:
    """The loops around an instance, by number, and the size-dependent branches."""
    fixed = (c for c in instance.conditions if _is_fixed(c[0], instance))
    return frozenset((*(at.number for at in instance.loops), *fixed))


def _is_fixed(condition: Expr, instance: Instance) -> bool:
    """Whether a condition depends on sizes alone, so that it is the same in all iterations."""
    varying = {at.variable for at in instance.loops}
    leaves = [part for part in parts(condition) if not isinstance(part, (Apply, Cast, Literal))]
    return all(isinstance(leaf, SizeTerm) and not leaf.size.symbols & varying for leaf in leaves)


def _fillings(
    touching: Sequence[Access], kind: TensorType, box: Box
) -> list[tuple[dict[int, LoopAt], int]]:
    """The loops and the number of each write (the last, of two branches) that fills the tensor.

    Loops are keyed by the dimension that they iterate over.
    """
    covering: list[tuple[dict[int, LoopAt], Instance]] = []
    for access in touching:
        write = access.instance.write
        if access.writes and write is not None and (write.fresh or not write.combine):
            loops = _loops_by_dimension(access, kind, box)
            if loops is not None:
                covering.append((loops, access.instance))
    found = [(loops, i.number) for loops, i in covering
             if all(_is_fixed(condition, i) for condition, _ in i.conditions)]  # fmt: skip
    by_condition = {i.conditions: (loops, i.number) for loops, i in covering if i.conditions}
    for conditions, (loops, number) in by_condition.items():
        other = by_condition.get(_opposite(conditions))
        if len(conditions) == 1 and other is not None and other[0] == loops:
            found.append((loops, max(number, other[1])))
    return found


def _opposite(conditions: tuple[tuple[Expr, bool], ...]) -> tuple[tuple[Expr, bool], ...]:
    expr, holds = conditions[-1]
    return (*conditions[:-1], (expr, not holds))


def _loops_by_dimension(access: Access, kind: TensorType, box: Box) -> dict[int, LoopAt] | None:
    """Loops by dimension; None unless loops and axes cover all dimensions, each once."""
    loops: dict[int, LoopAt] = {}
    seen: set[tuple[str, int]] = set()
    extents = {axis.name: axis.extent for axis in access.instance.axes}
    around = {at.number: at for at in access.instance.loops}
    for dimension, size in enumerate(kind.shape):
        form = access.form(dimension)
        alone = None if form is None else form.alone
        if form is None or alone is None or alone in seen or form.rest != 0:
            if size == 1 and form is not None and form.rest == 0 and not form.axes + form.loops:
                continue
            return None
        seen.add(alone)
        what, variable = alone
        if what == "loop":
            at = around[variable]
            if not _runs_over(at, access.instance.loops, size, box):
                return None
            loops[dimension] = at
        elif prove(extents[str(variable)], "==", size, box) is not Truth.PROVED:
            return None
    write = access.instance.write
    assert write is not None
    covered = {variable for what, variable in seen if what == "axis"}
    idle = [axis.extent for axis in write.axes if axis.name not in covered]
    runs = all(prove(extent, ">", 0, box) is Truth.PROVED for extent in idle)
    return loops if runs else None


def _runs_over(at: LoopAt, around: tuple[LoopAt, ...], size: Size, box: Box) -> bool:
    """Whether a loop visits each of 0:size once."""
    start, stop = bound_form(at.loop.start, around), bound_form(at.loop.stop, around)
    if start is None or stop is None or start.loops or stop.loops:
        return False
    wanted = {1: (as_size(0), size), -1: (size - 1, as_size(-1))}.get(at.loop.step)
    if wanted is None:
        return False
    ends = (start.rest, stop.rest)
    return all(prove(a, "==", b, box) is Truth.PROVED for a, b in zip(ends, wanted))


def _after(read: Access, loops: Mapping[int, LoopAt], last: int) -> bool:
    """Whether the filling write precedes a read of the same element."""
    order = sorted(loops.items(), key=lambda item: item[1].number)
    around = {at.number for at in read.instance.loops}
    own = read.instance.number
    for dimension, at in order:
        if at.number not in around:
            return own > last
        form = read.form(dimension)
        if form is None or form.alone != ("loop", at.number):
            return False
        back = form.rest.constant
        if back is None:
            return False
        if back * at.loop.step < 0:
            return True
        if back != 0:
            return False
    return own > last
