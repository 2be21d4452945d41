"""Find the axis along which elements are piecewise, and its ranges.

    y(b,k,d) = k < P ? past(b,k,d) else 0 : new(b, k - P, d) else 0 where k in 0:{P + N}

is two copies: k from 0 to P without a condition, then k from P to P + N. In each range the taken
branch is known, and indices that are in bounds need no default any more, so that axes merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import is_

from anydim.base.records import dataclass
from anydim.compiler.kernels.flatten import flatten, same_point, with_bodies
from anydim.compiler.kernels.inference import dtype_of, free_axes
from anydim.lang.resolve.ranges import INSIDE, read_status
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.affine import Affine, affine, parts, reads, rewrite, substitute, to_expr
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Box, Size, as_size, product

MOST = 16  # ranges, each with its own code
_LARGEST = 256  # nodes of an expression after inlining


@dataclass(frozen=True)
class ConcatForm:
    """Loops over `outer` and over `axis`, which `stops` split into ranges; each has its own group.

    A group's statements run over the outer axes, then `axis` (alone, or merged with the axes after
    it), then the remaining axes. `inner` are the axes of one index of `axis`; `inside` holds, per
    group, (index, extent) pairs of reads with defaults that are in bounds wherever the group runs.
    """

    outer: tuple[Axis, ...]
    axis: Axis
    inner: tuple[Axis, ...]
    stops: tuple[Size, ...]
    groups: tuple[Group, ...]
    inside: tuple[frozenset[tuple[Expr, Size]], ...]


def concat_form_of(group: Group, box: Box) -> ConcatForm | None:
    """The form of a group without reductions; None where no axis has ranges."""
    if not any(next(chains(s.body), None) for s in group.statements):
        return None
    group = without_units(group)
    statements = _alone(group)
    if statements is None:
        return None
    axes = statements[0].axes
    found = next((f for s in statements for f in chains(s.body)), None)
    if found is None or found[0] not in {a.name for a in axes if a.extent.constant != 1}:
        return None
    name, stops = found
    if len(stops) >= MOST or not any(_has_guarded_read(s.body, name) for s in statements):
        return None
    position = [axis.name for axis in axes].index(name)
    apart = frozenset(axis.name for axis in axes[: position + 1])
    group = replace(group, statements=statements, temporaries=())
    ends = (*stops, axes[position].extent)
    made = [_within(group, _Range(name, number, ends), box) for number in range(len(ends))]
    groups = tuple(flatten(each, apart) for each, _ in made)
    inside = tuple(known for _, known in made)
    return ConcatForm(axes[:position], axes[position], axes[position + 1 :], ends, groups, inside)


def without_units(group: Group) -> Group:
    """The group without dimensions of size 1, if all reads have index 0 there: one image's values
    then run over the same axes as those of several."""
    kinds = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    every = [read for s in group.statements for read in reads(s.body)]
    ones = {a.name for s in group.statements for a in (*s.axes, *s.reduced) if a.extent == 1}
    if not ones or any(read.flat for read in every):
        return group

    def is_first(index: Expr) -> bool:
        form = affine(index)
        return form is not None and form.constant == 0 and {*form.indices} <= ones

    for read in every:
        pairs = zip(kinds[read.tensor].shape, read.indices)
        if any(size == 1 and not is_first(index) for size, index in pairs):
            return group

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Read):
            pairs = zip(kinds[expr.tensor].shape, expr.indices)
            return replace(expr, indices=tuple(index for size, index in pairs if size != 1))
        if isinstance(expr, Index) and expr.name in ones:
            return SizeTerm(as_size(0))
        return None

    def squeeze(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        shapes = (tuple(size for size in each.type.shape if size != 1) for each in tensors)
        return tuple(
            replace(each, type=TensorType(each.type.dtype, shape))
            for each, shape in zip(tensors, shapes)
        )

    statements = tuple(
        replace(
            s, axes=tuple(a for a in s.axes if a.name not in ones), body=rewrite(s.body, change)
        )
        for s in group.statements
    )
    return replace(
        group, statements=statements, inputs=squeeze(group.inputs),
        outputs=squeeze(group.outputs), temporaries=squeeze(group.temporaries),
    )  # fmt: skip


def in_place_operands(form: ConcatForm) -> dict[str, str]:
    """For each result, the operand whose buffer it may reuse: the operand is read only at the index
    that is written, and in some range the result equals it, so that no copy is needed there."""
    found: dict[str, str] = {}
    for number, statement in enumerate(form.groups[0].statements):
        every = [group.statements[number] for group in form.groups]
        copied = {read.tensor for each in every for read in [copied_from(each)] if read}
        for name in copied - found.keys():
            types = (form.groups[0].type_of(each) for each in (name, statement.target))
            if _same_bytes(*types) and _read_in_place(form, name):
                found.setdefault(statement.target, name)
    operands = list(found.values())
    return {made: read for made, read in found.items() if operands.count(read) == 1}


def _same_bytes(left: TensorType, right: TensorType) -> bool:
    """Whether tensors have the same elements in row-major order; sizes of 1 may be missing."""
    return left.dtype == right.dtype and product(left.shape) == product(right.shape)


def copied_from(statement: Statement) -> Read | None:
    """The read of a statement that copies elements to the index they are read from."""
    body = statement.body
    return body if isinstance(body, Read) and same_point(body, statement) else None


def _read_in_place(form: ConcatForm, tensor: str) -> bool:
    """Whether all reads of a tensor are copies to the same index."""
    return all(
        copied_from(statement) == read
        for group in form.groups
        for statement in group.statements
        for read in reads(statement.body)
        if read.tensor == tensor
    )


def _alone(group: Group) -> tuple[Statement, ...] | None:
    """The statements of the results, with temporaries inlined, all over the same axes; None if
    impossible."""
    axes = group.statements[0].axes
    types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    bodies: dict[str, Expr] = {}
    sizes: dict[str, int] = {}  # of bodies after inlining, repeated reads counted
    for statement in group.statements:
        if statement.combine or statement.reduced or statement.axes != axes:
            return None
        if has_checks(statement.body):
            return None  # a branch that is not computed would not be checked
        own = tuple(Index(axis.name) for axis in axes)
        known = (sizes.get(read.tensor, 0) for read in reads(statement.body))
        sizes[statement.target] = len(parts(statement.body)) + sum(known)
        if sizes[statement.target] > _LARGEST:
            return None
        for read in reads(statement.body):
            if read.tensor in bodies and (read.flat or read.default or read.indices != own):
                return None
        body = rewrite(statement.body, lambda e: _inline_body(e, bodies))
        wanted = types[statement.target].dtype
        bodies[statement.target] = body if dtype_of(body, types) == wanted else Cast(wanted, body)
    outputs = {tensor.name for tensor in group.outputs}
    return tuple(s.with_body(bodies[s.target]) for s in group.statements if s.target in outputs)


def _inline_body(expr: Expr, bodies: Mapping[str, Expr]) -> Expr | None:
    return bodies.get(expr.tensor) if isinstance(expr, Read) else None


def chains(body: Expr) -> Iterator[tuple[str, tuple[Size, ...]]]:
    """The axis and the stops of each `k < a ? .. : k < b ? .. : ..`, the longest chain first."""
    for part in reversed(parts(body)):
        stops: list[Size] = []
        name, rest = "", part
        while isinstance(rest, Apply) and rest.function == "select":
            found = stop_of(rest.arguments[0])
            if found is None or name not in ("", found[0]):
                break
            name, rest = found[0], rest.arguments[2]
            stops.append(found[1])
        if stops:
            yield name, tuple(stops)


def stop_of(condition: Expr) -> tuple[str, Size] | None:
    """(k, a) of k < a."""
    if not isinstance(condition, Apply) or condition.function != "less":
        return None
    index, stop = condition.arguments[0], affine(condition.arguments[1])
    if not isinstance(index, Index) or stop is None or stop.terms:
        return None
    return index.name, stop.constant


def _has_guarded_read(body: Expr, axis: str) -> bool:
    return any(read.default is not None and axis in free_axes(read) for read in reads(body))


@dataclass(frozen=True)
class _Range:
    """The range `ends[number - 1] <= axis < ends[number]`."""

    axis: str
    number: int
    ends: tuple[Size, ...]

    def low(self) -> Size:
        return self.ends[self.number - 1] if self.number else as_size(0)

    def takes_branch(self, condition: Expr) -> bool | None:
        """Whether a condition holds in this range; None where unknown."""
        found = stop_of(condition)
        if found is None or found[0] != self.axis:
            return None
        if found[1] == self.ends[self.number]:
            return True
        return False if found[1] in self.ends[: self.number] else None


def _within(group: Group, here: _Range, box: Box) -> tuple[Group, frozenset[tuple[Expr, Size]]]:
    """The group restricted to one range, and the indices that are in bounds there."""
    extents = {axis.name: axis.extent for axis in group.statements[0].axes}
    bounds = {name: (as_size(0), extent) for name, extent in extents.items()}
    bounds[here.axis] = (here.low(), here.ends[here.number])
    sure = {
        (read.tensor, dimension, index)
        for statement in group.statements for read in reads(statement.body)
        if read.default is None and not read.flat
        for dimension, index in enumerate(read.indices)
    }  # fmt: skip

    inside: set[tuple[Expr, Size]] = set()
    counted = {
        name: to_expr(Affine.of(low, {name: as_size(1)})) for name, (low, _) in bounds.items()
    }
    lengths = {name: high - low for name, (low, high) in bounds.items()}

    def fits(index: Expr, size: Size) -> bool:
        """Whether an index is in 0:size for all values of the axes."""
        if not free_axes(index) <= bounds.keys() or reads(index):
            return False
        return read_status(substitute(index, counted), size, lengths, box)[0] == INSIDE

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Apply) and expr.function == "select":  # in an index, or a default
            taken = here.takes_branch(expr.arguments[0])
            return None if taken is None else expr.arguments[1 if taken else 2]
        if isinstance(expr, Read) and expr.default is not None and not expr.flat:
            unproved = False
            for dimension, pair in enumerate(zip(expr.indices, group.type_of(expr.tensor).shape)):
                if fits(*pair):
                    inside.add(pair)
                elif (expr.tensor, dimension, pair[0]) not in sure:
                    unproved = True
            return None if unproved else replace(expr, default=None)
        return None

    return with_bodies(group, lambda body: rewrite(_take_branches(body, here), change)), frozenset(
        inside
    )


def _take_branches(expr: Expr, here: _Range) -> Expr:
    """An expression without the branches not taken in a range. Pruned before rewriting, because a
    chain of n selects has n - 1 untaken branches in each of its n ranges."""
    while isinstance(expr, Apply) and expr.function == "select":
        taken = here.takes_branch(expr.arguments[0])
        if taken is None:
            break
        expr = expr.arguments[1 if taken else 2]
    if isinstance(expr, Apply):
        arguments = tuple(_take_branches(each, here) for each in expr.arguments)
        return expr if all(map(is_, arguments, expr.arguments)) else Apply(expr.function, arguments)
    if isinstance(expr, Cast):
        argument = _take_branches(expr.argument, here)
        return expr if argument is expr.argument else Cast(expr.dtype, argument)
    return expr
