"""Signatures: groups without reductions, with a name for each of their sizes, numbers included.

A kernel of independent elements is the same for 64 and for 128 channels, at a half and at a quarter
of the size. In the signature of such a group loops are merged (`kernels/flatten.py`), and a
concatenation is one of rows; then every extent, stride and offset is a name with facts: whether it
may be 0, whether it is longer than a vector, whether whole vectors fill a row. Groups of one
signature share one kernel, lowered once.

Numbers shorter than a vector stay numbers: loops over them are unrolled. So do all numbers of loops
in loops and of computations on concatenations: with names, rows of 16 to 384 elements took 1.04 to
1.2 of the time (biases, parts, concatenations before a scale and a ReLU).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import accumulate

from anydim.base.records import dataclass
from anydim.compiler.kernels.concat.concat_form import chains
from anydim.compiler.kernels.flatten import flat_address, flatten
from anydim.compiler.kernels.launch import moved_bytes
from anydim.compiler.kernels.rows.row_body import PIECE
from anydim.lang.tree import (
    Apply,
    Axis,
    Cast,
    Expr,
    Group,
    Index,
    Literal,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.affine import Affine, affine, reads, rewrite, row_major_strides, to_expr
from anydim.lang.tree.bounds_checks import has_checks
from anydim.lang.tree.renaming import replace_sizes
from anydim.sizes import Atom, Box, Dim, RelativeSizes, Size, as_size, product

_VECTOR = 64  # bytes of the widest vectors
_LEAST = 16  # smallest number that gets a name
_PLAIN = ("floordiv", "max")  # of sizes that are lengths; others are 0 or 1 where data is repeated


class _Unnamed(Exception):
    """A size that is no length, or an index that depends on sizes and is not affine."""


def signature(group: Group, box: Box, llc_bytes: int) -> tuple[Group, RelativeSizes] | None:
    """The signature of a group and what its names stand for; None if it has none.

    None for groups with reductions, default values, checked indices, or sizes as values: relations
    between their sizes decide what their kernels do. Concatenations have default values. None also
    for loops in loops whose data fits into a cache of `llc_bytes` at all sizes, as their kernels
    never bypass it: names do not tell that.
    """
    if group.steps or group.guards:
        return None
    widths = (tensor.type.dtype.bytes for tensor in (*group.inputs, *group.outputs))
    most = box.enclosure.roughly(moved_bytes(group)).hi
    large = most is None or most >= llc_bytes
    names = _Names(box, max(_LEAST, _VECTOR // min(widths, default=1)), large)
    try:
        named = next(filter(None, (form(group, names) for form in _FORMS)), None)
    except _Unnamed:
        return None
    if named is None:
        return None
    return named, RelativeSizes(Box.of(*names.dims), names.originals, {})


@dataclass
class _Names:
    """Names of sizes in order of first use, and sizes in terms of names.

    Numbers below `lanes` have no name, or no `numbers` do. `large`: the data may be larger than
    the caches.
    """

    box: Box
    lanes: int
    large: bool
    numbers: bool = True
    known: dict[Size, Size] = field(default_factory=dict)
    originals: dict[str, Size] = field(default_factory=dict)
    dims: list[Dim] = field(default_factory=list)

    def of(self, size: Size, by: int = 1) -> Size:
        """A size in terms of names, equal ones of equal sizes; see `new`."""
        known = self.known.get(size)
        if known is None:
            known = self.known[size] = self.new(size, by)
        return known

    def new(self, size: Size, by: int = 1, most: int | None = None) -> Size:
        """A size by a name of its own; a multiple of the name if `by` divides the size.

        It is at most `most`. Raises _Unnamed.
        """
        if size.constant is not None and (abs(size.constant) < self.lanes or not self.numbers):
            return size
        atoms = (atom for monomial in size.coefficients for atom in monomial)
        if any(isinstance(atom, Atom) and atom.function not in _PLAIN for atom in atoms):
            raise _Unnamed
        range = self.box.enclosure.roughly(size)
        if range.lo is None or range.lo < 0:
            if range.hi is None or range.hi > 0:
                raise _Unnamed
            return -self.of(-size)
        whole = size.divide_exactly(by) if by > 1 else None
        long = range.lo >= self.lanes and whole is None
        least = min(range.lo, self.lanes + 1 if long else 1)
        if not self.numbers:  # versions depend on bounds
            most = range.hi if whole is None or range.hi is None else range.hi // by
        name = f"s{len(self.dims)}"
        self.dims.append(Dim(name, least, most))
        self.originals[name] = size if whole is None else whole
        return Size.symbol(name) * (1 if whole is None else by)


# ---- independent elements ----------------------------------------------------------------------


def _elements(group: Group, names: _Names) -> Group | None:
    if any(map(_relates, group.statements)):
        return None
    group = flatten(group)
    if any(len(statement.axes) > 1 for statement in group.statements):
        if not names.large or any(map(_transposes, group.statements)):
            return None
        names = replace(names, numbers=False)
    shapes: dict[str, tuple[Size, ...]] = {}
    for statement in group.statements:
        for axis in statement.axes[-1:]:
            names.of(axis.extent, names.lanes)
    for statement in group.statements:
        extents = tuple(names.of(axis.extent) for axis in statement.axes)
        shapes[statement.target] = extents
        strides = zip(row_major_strides(statement.shape), row_major_strides(extents))
        for size, named in (*strides, (product(statement.shape), product(extents))):
            names.known.setdefault(size, named)
    statements = tuple(_statement(each, names) for each in group.statements)
    apart = {read.tensor for s in statements for read in reads(s.body) if not read.flat}

    def tensor(old: Tensor) -> Tensor:
        shape = shapes.get(old.name)
        if shape is None:
            given = old.type.shape if old.name in apart else (product(old.type.shape),)
            shape = tuple(map(names.of, given))
        return Tensor(old.name, TensorType(old.type.dtype, shape))

    inputs, outputs, temporaries = (
        tuple(map(tensor, old)) for old in (group.inputs, group.outputs, group.temporaries)
    )
    lines = {t.name for t in (*inputs, *outputs, *temporaries) if len(t.type.shape) == 1}

    def plain(expr: Expr) -> Expr | None:
        """A read of one dimension, in the form that people write."""
        if isinstance(expr, Read) and expr.flat and expr.tensor in lines:
            return replace(expr, flat=False)
        return None

    plainly = tuple(each.with_body(rewrite(each.body, plain)) for each in statements)
    return Group(inputs, outputs, plainly, temporaries)


def _transposes(statement: Statement) -> bool:
    """Whether elements that are neighbours in a result are apart where they are read."""
    last = statement.axes[-1].name if statement.axes else ""
    forms = map(flat_address, reads(statement.body))
    return any(form and form.stride(last).constant not in (0, 1) for form in forms)


def _relates(statement: Statement) -> bool:
    """Whether relations between sizes decide what the kernel of a statement does."""
    if statement.combine or statement.reduced or has_checks(statement.body):
        return True
    guarded = any(read.default is not None for read in reads(statement.body))
    return guarded or _has_sizes(statement.body)


def _has_sizes(expr: Expr) -> bool:
    """Whether a size is a value of an expression, outside of the indices of reads."""
    if isinstance(expr, Apply):
        return any(map(_has_sizes, expr.arguments))
    return isinstance(expr, SizeTerm) or (isinstance(expr, Cast) and _has_sizes(expr.argument))


def _statement(statement: Statement, names: _Names) -> Statement:
    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read):
            return None
        form = flat_address(expr)
        if form is None:
            if any(reads(index) or _is_sized(index) for index in expr.indices):
                raise _Unnamed
            return None
        terms = {name: names.of(stride) for name, stride in form.terms}
        return replace(expr, indices=(to_expr(Affine.of(names.of(form.constant), terms)),))

    axes = tuple(Axis(axis.name, names.of(axis.extent)) for axis in statement.axes)
    return replace(statement, axes=axes, body=rewrite(statement.body, change))


def _is_sized(index: Expr) -> bool:
    """Whether an index depends on sizes, or on numbers that would have names."""
    if isinstance(index, Literal):
        return not isinstance(index.value, int) or abs(index.value) >= _LEAST
    if isinstance(index, SizeTerm):
        return index.size.constant is None or abs(index.size.constant) >= _LEAST
    if isinstance(index, Apply):
        return any(map(_is_sized, index.arguments))
    return isinstance(index, Cast)


# ---- concatenations ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pieces:
    """The axis along which elements are read from one tensor up to the first stop, then from the
    next; the last stop is its extent."""

    axis: str
    stops: tuple[Size, ...]

    def lengths(self) -> list[Size]:
        return [stop - start for start, stop in zip((as_size(0), *self.stops), self.stops)]


def _pieces(group: Group) -> _Pieces | None:
    """The pieces of a group whose statements have the same axes, and no checks."""
    axes = group.statements[0].axes
    for s in group.statements:
        if s.axes != axes or s.combine or s.reduced or has_checks(s.body):
            return None
    found = next((chain for s in group.statements for chain in chains(s.body)), None)
    extents = {axis.name: axis.extent for axis in axes}
    if found is None or found[0] not in extents:
        return None
    return _Pieces(found[0], (*found[1], extents[found[0]]))


def _names_of_parts(lengths: Sequence[Size], names: _Names) -> list[Size]:
    """A name for each length; together at most a piece, whose rows are not split, if they are."""
    most = PIECE // len(lengths)
    highs = [names.box.enclosure.roughly(length).hi for length in lengths]
    short = all(high is not None and high <= most for high in highs)
    return [names.new(length, most=most if short else None) for length in lengths]


def _concatenation_of_rows(group: Group, names: _Names) -> Group | None:
    """A group that only concatenates, as a concatenation of rows; None for others."""
    pieces = _pieces(group)
    if pieces is None or len(group.statements) != 1:
        return None
    (statement,), (output,) = group.statements, group.outputs
    position = [axis.name for axis in statement.axes].index(pieces.axis)
    given = _whole_reads(statement, pieces, position, group)
    if given is None:
        return None
    outer, inner = product(statement.shape[:position]), product(statement.shape[position + 1 :])
    rows = () if outer.constant == 1 else (Axis("i0", names.new(outer)),)
    before, axis = tuple(Index(each.name) for each in rows), Index("i1")
    parts = _names_of_parts([length * inner for length in pieces.lengths()], names)
    stops = list(accumulate(parts))
    bodies = [
        replace(read, indices=(*before, _index_from(axis, start)))
        for read, start in zip(given, (as_size(0), *stops))
    ]
    body: Expr = bodies[-1]
    for taken, end in zip(bodies[-2::-1], stops[-2::-1]):
        body = Apply("select", (Apply("less", (axis, SizeTerm(end))), taken, body))
    axes = (*rows, Axis(axis.name, stops[-1]))
    outermost = tuple(each.extent for each in rows)
    shapes = {read.tensor: (*outermost, part) for read, part in zip(given, parts)}
    return replace(
        group,
        inputs=tuple(
            Tensor(t.name, TensorType(t.type.dtype, shapes[t.name])) for t in group.inputs
        ),
        outputs=(Tensor(output.name, TensorType(output.type.dtype, (*outermost, stops[-1]))),),
        statements=(replace(statement, axes=axes, body=body),),
    )


def _index_from(axis: Index, start: Size) -> Expr:
    return axis if start.constant == 0 else Apply("add", (axis, SizeTerm(-start)))


def _whole_reads(
    statement: Statement, pieces: _Pieces, position: int, group: Group
) -> list[Read] | None:
    """The reads of a statement that only concatenates whole tensors, each once."""
    found, rest = list[Read](), statement.body
    while isinstance(rest, Apply) and rest.function == "select":
        _, taken, rest = rest.arguments
        if not isinstance(taken, Read):
            return None
        found.append(taken)
    if not isinstance(rest, Read):
        return None
    found.append(rest)
    if sorted(read.tensor for read in found) != sorted(tensor.name for tensor in group.inputs):
        return None
    names = [axis.name for axis in statement.axes]
    starts = (as_size(0), *pieces.stops)
    for read, start, length in zip(found, starts, pieces.lengths()):
        shape = (*statement.shape[:position], length, *statement.shape[position + 1 :])
        indices: list[Expr] = [Index(name) for name in names]
        if read.flat or group.type_of(read.tensor).shape != shape:
            return None
        form = affine(read.indices[position])
        indices[position] = read.indices[position]
        if form != Affine(-start, ((pieces.axis, as_size(1)),)) or list(read.indices) != indices:
            return None
    return found


def _piecewise(group: Group, names: _Names) -> Group | None:
    """A group that computes on a concatenation, with named sizes; None for others."""
    pieces = _pieces(group) if names.large else None
    if pieces is None or not all(_aligned(s, pieces.axis, group) for s in group.statements):
        return None
    names = replace(names, numbers=False)
    parts = _names_of_parts(pieces.lengths(), names)
    names.known.update(zip(pieces.stops, accumulate(parts)))
    return replace_sizes(group, names.of)


def _aligned(statement: Statement, apart: str, group: Group) -> bool:
    """Whether all reads are at an element's own indices, shifted along one axis at most."""
    extents = {axis.name: axis.extent for axis in statement.axes}
    for read in reads(statement.body):
        shape = group.type_of(read.tensor).shape
        if read.flat or any(_is_numbered(index) for index in read.indices):
            return False
        for index, size in zip(read.indices, shape):
            form = affine(index)
            if form is None or len(form.terms) > 1 or any(c.constant != 1 for _, c in form.terms):
                return False
            name = "".join(form.indices)
            if name != apart and (form.constant.constant != 0 or extents.get(name, size) != size):
                return False
    return True


def _is_numbered(index: Expr) -> bool:
    """Whether an index has a number that is no size, which would keep its value."""
    if isinstance(index, Apply):
        return any(map(_is_numbered, index.arguments))
    return isinstance(index, Literal) and index.value != 0


_FORMS = (_elements, _concatenation_of_rows, _piecewise)
