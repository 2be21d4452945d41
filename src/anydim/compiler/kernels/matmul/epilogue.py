"""The epilogue of a contraction in its kernel: pointwise statements on the finished sums.

The statements after the product become one expression per output. A term that is added to the
product first (a bias, a residual) is free: the sums start from it instead of 0. The rest is a
small loop over the finished tile, while the tile is in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import dtype_of, free_axes
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
    TensorType,
)
from anydim.lang.tree.affine import (
    Affine,
    address,
    affine,
    reads,
    rewrite,
    row_major_strides,
    to_expr,
)
from anydim.sizes import as_size

ROW, COLUMN = "m", "n"  # names of the product's axes
PRODUCT = "product"  # the tensor that represents the finished sums in an expression


@dataclass(frozen=True)
class Output:
    """A tensor with one element per sum, and the expression of its value."""

    tensor: str
    value: Expr

    @property
    def is_product(self) -> bool:
        """Whether the output is the sums themselves."""
        return isinstance(self.value, Read) and self.value.tensor == PRODUCT


@lru_cache(maxsize=512)
def epilogue_of(group: Group, product: Statement) -> tuple[Output, ...] | None:
    """Return every output as an expression over the product's axes; None unless all are pointwise.

    External reads become flat reads with affine addresses.
    """
    inliner = _Inliner(group, product)
    for statement in group.statements:
        if statement is product:
            continue
        value = inliner.value(statement)
        if value is None:
            return None
        inliner.values[statement.target] = value
    outputs = [(tensor.name, inliner.values.get(tensor.name)) for tensor in group.outputs]
    if not outputs or any(value is None for _, value in outputs):
        return None
    return tuple(Output(name, value) for name, value in outputs if value is not None)


def read_by(outputs: Iterable[Output]) -> list[str]:
    """Return the tensors that outputs read in addition to the product."""
    found = (read.tensor for output in outputs for read in reads(output.value))
    return [tensor for tensor in dict.fromkeys(found) if tensor != PRODUCT]


def target_of(outputs: tuple[Output, ...], group: Group, dtype: DType) -> Output | None:
    """Return the output whose memory holds the sums; None when no output has their type."""
    fitting = [o for o in outputs if group.type_of(o.tensor).dtype == dtype]
    return next((o for o in fitting if o.is_product), fitting[0] if fitting else None)


def product_of(group: Group) -> tuple[Statement, tuple[Expr, ...]] | None:
    """Return the only sum of a group, a sum of products, and its two factors; None otherwise."""
    sums = [s for s in group.statements if s.combine]
    if len(sums) != 1 or sums[0].combine != "add":
        return None
    body = sums[0].body
    if not (isinstance(body, Apply) and body.function == "mul"):
        return None
    return sums[0], body.arguments


class _Unfit(Exception):
    """Raised for an expression that is not pointwise over the product's axes."""


class _Inliner:
    """Rewrites pointwise statements as expressions over the axes of the product."""

    def __init__(self, group: Group, product: Statement) -> None:
        self.group = group
        self.axes = tuple(axis for axis in product.axes if axis.extent.constant != 1)
        self.offset = element_offset(product)
        self.types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
        self.types[PRODUCT] = TensorType(self.types[product.target].dtype, ())
        sums = Read(PRODUCT, tuple(Index(axis.name) for axis in self.axes))
        self.values: dict[str, Expr] = {product.target: sums}
        self.inputs = {tensor.name for tensor in group.inputs}

    def value(self, statement: Statement) -> Expr | None:
        if statement.combine:
            return None
        axes = [axis for axis in statement.axes if axis.extent.constant != 1]
        if [axis.extent for axis in axes] != [axis.extent for axis in self.axes]:
            return None
        names = {old.name: new.name for old, new in zip(axes, self.axes)}
        units = {axis.name for axis in statement.axes} - set(names)
        try:
            value = self._inline(statement.body, names, units)
        except _Unfit:
            return None
        dtype = self.types[statement.target].dtype
        return value if dtype_of(value, self.types) == dtype else Cast(dtype, value)

    def _inline(self, expr: Expr, names: dict[str, str], units: set[str]) -> Expr:
        if isinstance(expr, Read):
            return self._read(expr, names)
        if isinstance(expr, Index):
            return SizeTerm(as_size(0)) if expr.name in units else Index(names[expr.name])
        if isinstance(expr, Apply):
            parts = tuple(self._inline(a, names, units) for a in expr.arguments)
            return Apply(expr.function, parts)
        if isinstance(expr, Cast):
            return Cast(expr.dtype, self._inline(expr.argument, names, units))
        return expr

    def _read(self, read: Read, names: dict[str, str]) -> Expr:
        form = address(read, self.types[read.tensor].shape)
        if form is None or read.default is not None:
            raise _Unfit
        moved = {names[old]: c for old, c in form.terms if old in names}
        form = Affine.of(form.constant, moved)
        if read.tensor in self.inputs:
            return Read(read.tensor, (to_expr(form),), flat=True)
        # A value of the group is known at the product's own element only.
        if form != self.offset or read.tensor not in self.values:
            raise _Unfit
        return self.values[read.tensor]


def read_in_place(
    outputs: tuple[Output, ...], own: Affine, group: Group, others: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Return pairs (result, operand) where the operand is read only at the result's own offset.

    `own` is that offset; `others` are tensors that are read elsewhere too.
    """
    found = [read for output in outputs for read in reads(output.value) if read.tensor != PRODUCT]
    away = {read.tensor for read in found if affine(read.indices[0]) != own}
    near = dict.fromkeys(read.tensor for read in found if read.tensor not in {*away, *others})
    return tuple(
        (output.tensor, tensor)
        for output in outputs
        for tensor in near
        if group.type_of(tensor).dtype.bytes == group.type_of(output.tensor).dtype.bytes
    )


def split_start(
    outputs: tuple[Output, ...], group: Group, column: str, own: Affine, factors: Collection[str]
) -> tuple[Read | None, tuple[Output, ...]]:
    """Splits off an addend, such as a bias: the read, and the outputs without it.

    The read must step by one element along the columns and have the product's type. A read at the
    offsets `own` of the sums, of a tensor that is no factor, is preferred: the sums may reuse its
    memory.
    """
    dtype = next(group.type_of(s.target).dtype for s in group.statements if s.combine)
    found: list[tuple[Apply, Read, Expr, Affine]] = []
    for addition, read, sums in (each for output in outputs for each in _additions(output.value)):
        form = address(read, group.type_of(read.tensor).shape)
        if form is None or form.stride(column) != 1 or group.type_of(read.tensor).dtype != dtype:
            continue
        if isinstance(sums, Read) or (form == own and read.tensor not in factors):
            found.append((addition, read, sums, form))
    found.sort(key=lambda each: each[3] != own or each[1].tensor in factors)
    for addition, read, sums, _ in found:
        rest = _without(outputs, addition, sums)
        if rest is not None:
            return read, rest
    return None, outputs


def _without(outputs: tuple[Output, ...], addition: Expr, sums: Expr) -> tuple[Output, ...] | None:
    """Removes an addend from outputs; None if one also uses the product without it."""
    marker = Read(f"{PRODUCT} and start", ())
    changed = []
    for output in outputs:
        value = rewrite(output.value, lambda e: marker if e == addition else None)
        if any(read.tensor == PRODUCT for read in reads(value)):
            return None
        value = rewrite(value, lambda e: sums if e == marker else None)
        changed.append(Output(output.tensor, value))
    return tuple(changed)


def _additions(expr: Expr) -> list[tuple[Apply, Read, Expr]]:
    """Find every `product + ... + read` in an expression: addition, read and other term."""
    found: list[tuple[Apply, Read, Expr]] = []

    def visit(part: Expr) -> Expr | None:
        if isinstance(part, Apply) and part.function == "add":
            left, right = part.arguments
            for sums, other in ((left, right), (right, left)):
                if isinstance(other, Read) and other.tensor != PRODUCT and _is_sum(sums):
                    found.append((part, other, sums))
        return None

    rewrite(expr, visit)
    return found


def _is_sum(expr: Expr) -> bool:
    """Whether the expression is the product, or a sum of the product and other terms."""
    if isinstance(expr, Apply) and expr.function == "add":
        return any(map(_is_sum, expr.arguments))
    return isinstance(expr, Read) and expr.tensor == PRODUCT


def outside_reads(expr: Expr) -> Expr:
    """Return an expression without the indices of its reads: only axes used as values remain."""

    def change(part: Expr) -> Expr | None:
        return replace(part, indices=()) if isinstance(part, Read) else None

    return rewrite(expr, change)


def element_offset(statement: Statement) -> Affine:
    """Return the offset of a statement's target element, over axes of extent above 1."""
    strides = zip(statement.axes, row_major_strides(statement.shape))
    return Affine.of(as_size(0), {a.name: s for a, s in strides if a.extent.constant != 1})


def streams_of(
    group: Group, statement: Statement, values: Iterable[Expr]
) -> tuple[list[Affine], frozenset[str]]:
    """Return addresses of the target and of other reads in `values`; and axes used as values."""
    found = [element_offset(statement)]
    pinned: set[str] = set()
    for value in values:
        for read in reads(value):
            if read.tensor != PRODUCT:
                form = address(read, group.type_of(read.tensor).shape)
                assert form is not None, "epilogues hold flat reads with affine addresses"
                found.append(form)
        pinned |= free_axes(outside_reads(value))
    return found, frozenset(pinned)


@dataclass(frozen=True)
class Renamed:
    """Rewrites expressions to merged axes; `names` holds the original axes of each new name."""

    names: Mapping[str, Sequence[Axis]]
    group: Group

    def read(self, read: Read) -> Read:
        """Return a flat read where the read has an address."""
        form = None
        if read.default is None:
            form = address(read, self.group.type_of(read.tensor).shape)
        if form is None:
            indices = tuple(self.expr(index) for index in read.indices)
            return replace(read, indices=indices)
        terms = {new: form.stride(axes[-1].name) for new, axes in self.names.items() if axes}
        return Read(read.tensor, (to_expr(Affine.of(form.constant, terms)),), flat=True)

    def expr(self, expr: Expr) -> Expr:
        """Return the rewritten expression; the index of an axis of extent 1 is 0."""
        if isinstance(expr, Read):
            if expr.tensor == PRODUCT:
                return Read(PRODUCT, (Index(ROW), Index(COLUMN)))
            return self.read(expr)
        if isinstance(expr, Index):
            for new, axes in self.names.items():
                if axes and axes[-1].name == expr.name:
                    return Index(new)
            return SizeTerm(as_size(0))
        if isinstance(expr, Apply):
            return Apply(expr.function, tuple(self.expr(a) for a in expr.arguments))
        if isinstance(expr, Cast):
            return Cast(expr.dtype, self.expr(expr.argument))
        return expr
