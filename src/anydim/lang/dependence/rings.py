"""Temporaries that need only their last slices: ring buffers, and their depths.

A temporary that only passes values between iterations, c(t, i) read as c(t - 2, i) and never
again, needs three slices: slice t is stored at t modulo 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from anydim.lang.dependence.accesses import Access, Instance, accesses
from anydim.lang.dependence.starts import filled_before_reads
from anydim.lang.tree import TensorType
from anydim.sizes import Box

DEEPEST = 64  # slices; a deeper ring saves little


def rings(
    found: Sequence[Instance], types: Mapping[str, TensorType], hidden: Iterable[str], box: Box
) -> dict[str, tuple[int, int]]:
    """Dimension and depth of each of the `hidden` tensors that can be a ring buffer."""
    known = dict(types)
    all = [a for instance in found for a in accesses(instance, known)]
    made = {}
    for tensor in sorted(hidden):
        touching = [access for access in all if access.tensor == tensor]
        for dimension in range(types[tensor].rank if touching else 0):
            depth = _depth(touching, dimension)
            if depth is not None and filled_before_reads(tensor, found, types, box, kept=False):
                made[tensor] = dimension, depth
                break
    return made


def _depth(touching: Sequence[Access], dimension: int) -> int | None:
    """One more than the iterations between the first and the last use of a slice."""
    loops, rests = set(), []
    for access in touching:
        form = access.form(dimension)
        if form is None or form.alone is None or form.alone[0] != "loop":
            return None
        if form.rest.constant is None:
            return None
        at = next(at for at in access.instance.loops if at.number == form.alone[1])
        loops.add((at.number, at.loop.step))
        rests.append(form.rest.constant)
    if len(loops) != 1 or abs(next(iter(loops))[1]) != 1:
        return None
    depth = max(rests) - min(rests) + 1
    return depth if depth <= DEEPEST else None
