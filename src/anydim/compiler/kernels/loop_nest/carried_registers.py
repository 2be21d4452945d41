"""Scalar replacement: loop-carried values in registers instead of memory.

    for t in 0:T { y(t) = y(t - 1) * f(t) + x(t) }

Applies to a write of one element whose element of the previous iteration is read in the loop, no
later than the write: a register holds that element. Storing and loading it would cost more than
computing it. The element is in bounds in all iterations but the first, because it was written; in
the first iteration the register holds the read's default if it is out of bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anydim.base.records import dataclass
from anydim.lang.dependence.accesses import all_writes
from anydim.lang.tree import Expr, Literal, Loop, OrderedStep, Read, SizeTerm, Write
from anydim.lang.tree.affine import affine, reads, rewrite
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Size


@dataclass(frozen=True)
class Carried:
    """A write of a loop's body, by its position there, and the read that yields its value one
    iteration later."""

    position: int
    write: Write
    read: Read


def carried_by(loop: Loop, single: Sequence[frozenset[str | int]]) -> tuple[Carried, ...]:
    """The single-element writes that a loop carries.

    `single` gives, for each step of its body, the axes that have one value there.
    """
    times = Counter(write.target for write in all_writes(loop.body))
    found = []
    for position, step in enumerate(loop.body):
        if not isinstance(step, Write) or times[step.target] > 1:
            continue
        if {axis.name for axis in step.axes} - single[position] or not all(
            map(_plain, step.indices)
        ):
            continue
        before = tuple(_previous_index(index, loop) for index in step.indices)
        read = _read_of(step.target, before, loop.body[: position + 1])
        if before != step.indices and read is not None:
            found.append(Carried(position, step, read))
    return tuple(found)


def _plain(index: Expr) -> bool:
    return affine(index) is not None and not has_checks(index)


def _previous_index(index: Expr, loop: Loop) -> Expr:
    """An index in the previous iteration."""
    earlier = {loop.variable: Size.symbol(loop.variable) - loop.step}

    def change(expr: Expr) -> Expr | None:
        return SizeTerm(expr.size.substitute(earlier)) if isinstance(expr, SizeTerm) else None

    return rewrite(index, change)


def _read_of(tensor: str, element: tuple[Expr, ...], steps: Sequence[OrderedStep]) -> Read | None:
    """The first read of an element by writes among these steps; a default must be a literal."""
    for step in steps:
        for expr in (step.body, *step.indices) if isinstance(step, Write) else ():
            for read in reads(expr):
                if read.tensor == tensor and read.indices == element and not read.flat:
                    if read.default is None or isinstance(read.default, Literal):
                        return read
    return None
