"""Canonicalize the loops of a group: flat addresses, no unit axes, adjacent axes merged.

    before: y(b,s,c) = x(b,s,c) + bias(c)            loops b, s, c
    after:  y[...]   = x[bs*C + c] + bias[c]         loops bs, c

An axis read by its remainder is periodic: it becomes two loops, over periods and within one.

    before: y(i) = x(i % N) where i in 0:3 * N
    after:  y(a,i) = x(i) where a in 0:3, i in 0:N

Axes with the same name in different statements are the same loop. Tensor types keep their shapes,
but only their dtypes are used after this, because every affine read is flat. A read that is not
affine (or has a default) keeps its form, except for the reads inside it, and the axes it uses
outside of these are not merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import permutations

from anydim.base.dtypes import int64
from anydim.compiler.kernels.inference import free_axes
from anydim.lang.tree import Apply, Axis, Expr, Group, Index, Literal, Read, SizeTerm, Statement
from anydim.lang.tree.affine import (
    Affine,
    address,
    flat_address,
    operands,
    parts,
    reads,
    rewrite,
    row_major_strides,
    substitute,
    to_expr,
)
from anydim.sizes import Size, as_size

_ROUND, _ALONG = " round", " along"  # suffixes of the two loops of a periodic axis
_PARTS = {"floordiv": _ROUND, "mod": _ALONG}
_LONG = 64  # smallest constant period that is split


@lru_cache(maxsize=512)
def flatten(group: Group, apart: frozenset[str] = frozenset()) -> Group:
    """The same computation with flat addresses and merged axes; axes in `apart` start a loop of
    their own."""
    group = _flat_reads(_without_unit_axes(_rounds_apart(group)))
    pair = _mergeable(group, apart)
    while pair is not None:
        group = _merge(group, *pair)
        pair = _mergeable(group, apart)
    return group


def own_address(statement: Statement) -> Affine:
    """The flat offset of a statement's result element, over its axes."""
    strides = row_major_strides(statement.shape)
    return Affine.of(as_size(0), {a.name: s for a, s in zip(statement.axes, strides)})


def all_axes(statement: Statement) -> tuple[Axis, ...]:
    """The axes of the result, then the reduced ones."""
    return (*statement.axes, *statement.reduced)


def rewritten(group: Group, change: Callable[[Expr], Expr | None]) -> Group:
    """A group whose bodies are rewritten by `lang.tree.affine.rewrite`."""
    return with_bodies(group, lambda body: rewrite(body, change))


def with_bodies(group: Group, change: Callable[[Expr], Expr]) -> Group:
    """A group with transformed bodies of its statements."""
    statements = tuple(s.with_body(change(s.body)) for s in group.statements)
    return replace(group, statements=statements)


# ---- steps -------------------------------------------------------------------------------------


def _rounds_apart(group: Group) -> Group:
    """Split periodic axes, whose remainder by a size is used, into periods of that size.

    Short constant periods are excluded: patterns that repeat inside a vector are read in runs.
    """
    extents = {axis.name: axis.extent for s in group.statements for axis in s.axes}
    reduced = {axis.name for s in group.statements for axis in s.reduced}
    rounds: dict[str, Size] = {}
    for statement in group.statements:
        for name, size in _remainders(statement.body):
            count = None if name in reduced else extents.get(name, size).divide_exactly(size)
            if count is not None and count != 1:
                rounds.setdefault(name, size)
    if not rounds:
        return group

    def split_index(expr: Expr) -> Expr | None:
        if isinstance(expr, Apply) and expr.function in _PARTS and len(expr.arguments) == 2:
            index, size = expr.arguments
            if isinstance(index, Index) and index.name in rounds:
                if size == SizeTerm(rounds[index.name]):
                    return Index(index.name + _PARTS[expr.function])
        return None

    whole = {
        name: to_expr(Affine.of(as_size(0), {name + _ROUND: size, name + _ALONG: as_size(1)}))
        for name, size in rounds.items()
    }

    def axes(old: tuple[Axis, ...]) -> Iterator[Axis]:
        for axis in old:
            size = rounds.get(axis.name)
            if size is not None:
                count = axis.extent.divide_exactly(size)
                assert count is not None
                yield Axis(axis.name + _ROUND, count)
            yield axis if size is None else Axis(axis.name + _ALONG, size)

    statements = tuple(replace(s, axes=tuple(axes(s.axes))) for s in group.statements)
    group = rewritten(replace(group, statements=statements), split_index)
    return with_bodies(group, lambda body: substitute(body, whole))


def _remainders(body: Expr) -> Iterator[tuple[str, Size]]:
    """Axes and the sizes by which their remainders are taken."""
    indices = (index for read in reads(body) for index in read.indices)
    for part in (part for expr in (body, *indices) for part in parts(expr)):
        if isinstance(part, Apply) and part.function == "mod":
            index, size = part.arguments
            if isinstance(index, Index) and isinstance(size, SizeTerm):
                known = size.size.constant
                if known is None or known >= _LONG:
                    yield index.name, size.size


def _flat_reads(group: Group) -> Group:
    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.default is not None:
            return None
        form = address(expr, group.type_of(expr.tensor).shape)
        return None if form is None else Read(expr.tensor, (to_expr(form),), flat=True)

    return rewritten(group, change)


def _without_unit_axes(group: Group) -> Group:
    every = (axis for statement in group.statements for axis in all_axes(statement))
    units = {axis.name: Literal(0, int64) for axis in every if axis.extent.constant == 1}
    if not units:
        return group

    def without_units(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(axis for axis in axes if axis.name not in units)

    # temporaries lose their unit dimensions, so reads of them must be flat before
    group = _flat_reads(group)
    statements = tuple(
        replace(s, axes=without_units(s.axes), reduced=without_units(s.reduced))
        for s in group.statements
    )
    return with_bodies(replace(group, statements=statements), lambda body: substitute(body, units))


def _mergeable(group: Group, apart: frozenset[str]) -> tuple[str, str] | None:
    """An outer and an inner axis that can be one loop in all statements."""
    candidates: dict[tuple[str, str], None] = {}
    for statement in group.statements:
        for outer, inner in zip(statement.axes, statement.axes[1:]):
            candidates[outer.name, inner.name] = None
        for outer, inner in permutations(statement.reduced, 2):
            candidates[outer.name, inner.name] = None
    allowed = (pair for pair in candidates if pair[1] not in apart)
    return next((p for p in allowed if all(_merges(s, *p) for s in group.statements)), None)


def _merges(statement: Statement, outer: str, inner: str) -> bool:
    extents = {axis.name: axis.extent for axis in all_axes(statement)}
    if outer not in extents and inner not in extents:
        return True
    written = [axis.name for axis in statement.axes]
    reduced = [axis.name for axis in statement.reduced]
    if outer in written:
        position = written.index(outer)
        if written[position + 1 : position + 2] != [inner]:
            return False
    elif outer not in reduced or inner not in reduced:
        return False
    return _reads_merge(statement.body, outer, inner, extents)


def _reads_merge(expr: Expr, outer: str, inner: str, extents: Mapping[str, Size]) -> bool:
    """Whether the two axes occur in flat affine reads only, with matching strides.

    Such a read may be an index of another one.
    """
    if not free_axes(expr) & {outer, inner}:
        return True
    if isinstance(expr, Index):
        return False
    if isinstance(expr, Read):
        form = flat_address(expr)
        if form is not None:
            return form.stride(outer) == form.stride(inner) * extents[inner]
    return all(_reads_merge(part, outer, inner, extents) for part in operands(expr))


def _merge(group: Group, outer: str, inner: str) -> Group:
    """The pair as one axis with the name of the outer one."""

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or not free_axes(expr) & {outer, inner}:
            return None
        form = flat_address(expr)
        if form is None:  # a gathered index: its inner reads are rewritten
            return None
        terms = dict(form.terms)
        terms.pop(outer, None)
        terms[outer] = terms.pop(inner, as_size(0))
        return Read(expr.tensor, (to_expr(Affine.of(form.constant, terms)),), flat=True)

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        extents = {axis.name: axis.extent for axis in old}
        return tuple(
            Axis(outer, axis.extent * extents[inner]) if axis.name == outer else axis
            for axis in old
            if axis.name != inner
        )

    statements = tuple(
        replace(s, axes=axes(s.axes), reduced=axes(s.reduced)) for s in group.statements
    )
    return rewritten(replace(group, statements=statements), change)


def same_point(reader: Read, writer: Statement) -> bool:
    """Whether a read of `writer`'s result reads the element at the same point of the same loops."""
    return flat_address(reader) == own_address(writer)


def reads_same_elements(group: Group) -> bool:
    """Whether statements read each other's results only at the same point."""
    writers = {statement.target: statement for statement in group.statements}
    return all(
        same_point(read, writers[read.tensor])
        for statement in group.statements
        for read in reads(statement.body)
        if read.tensor in writers
    )
