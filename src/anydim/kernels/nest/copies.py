"""A nest that begins with a copy: `y(i,j) = x(i,j)`, of which parts are written anew then.

Where `x` dies there, or the caller gives one array for both, `y` may lie where `x` does, and
nothing is copied: a cache takes as long as what is new in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from anydim.base.records import dataclass
from anydim.kernels.nest.form import NestForm
from anydim.lang.tree import Expr, Index, Read, Write
from anydim.lang.tree.affine import reads
from anydim.lang.tree.stepping import expressions_of


@dataclass(frozen=True)
class Copy:
    """The first step of a nest, which makes `made`, a result, of all of `read`, an operand."""

    write: Write
    made: str
    read: str


def first_copy(form: NestForm) -> Copy | None:
    """The copy that a nest begins with; None where it does not, or reads the operand again."""
    if not form.steps or not isinstance(form.steps[0], Write):
        return None
    write, body = form.steps[0], form.steps[0].body
    axes = tuple(Index(axis.name) for axis in write.axes)
    plain = isinstance(body, Read) and body.default is None and not body.flat
    if not plain or not isinstance(body, Read) or write.combine or write.reduced:
        return None
    if write.place != axes or body.indices != axes:
        return None
    inputs = {tensor.name: tensor.type for tensor in form.group.inputs}
    outputs = {tensor.name: tensor.type for tensor in form.group.outputs}
    kind = inputs.get(body.tensor)
    if kind is None or outputs.get(write.target) != kind:
        return None
    if tuple(axis.extent for axis in write.axes) != kind.shape:
        return None
    found = [read.tensor for expr in _expressions(form) for read in reads(expr)]
    return Copy(write, write.target, body.tensor) if found.count(body.tensor) == 1 else None


def _expressions(form: NestForm) -> Iterator[Expr]:
    yield from (expr for _, expr in expressions_of(form.steps))
