"""The form of products with chosen matrices: each row has one of several constant matrices.

    y(...m,n) +=! x(...m,k) * w(e(...m),n,k)                                       w of float32
    y(...m,n) +=! x(...m,k) * (float(q(e(...m),n,k)) * s(e(...m),n,k // block))    4 or 8 bits

So have mixtures of experts. All sizes of the matrices are known.
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int4, int8, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.kernels.matmul.weight_only_quant.quant_form import FIELDS
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
)
from anydim.lang.tree.affine import Affine, address, reads
from anydim.lang.tree.bounds_checks import has_checks, is_inside, number_of
from anydim.sizes import Size, product

_WIDTHS = {float32: 32, int8: 8, int4: 4}


@dataclass(frozen=True)
class ChosenForm:
    """Rows over `axes` of `x`, by matrices of `w` that `chosen` numbers; addresses are of elements.

    `scales` has one element per `block` of k; without it, weights are float32. `check` is the
    number of the check of the matrices' numbers, if any.
    """

    target: str
    axes: tuple[Axis, ...]
    x: str
    x_at: Affine
    chosen: str
    chosen_at: Affine
    w: str
    scales: str
    bits: int
    block: int
    count: int
    columns: int
    depth: int
    check: int | None

    @property
    def rows(self) -> Size:
        return product(axis.extent for axis in self.axes)

    @property
    def groups(self) -> int:
        """Number of blocks of k."""
        return self.depth // self.block


@dataclass(frozen=True)
class _Weights:
    w: Read
    scales: Read | None
    block: int


def chosen_form_of(group: Group, constants: frozenset[str]) -> ChosenForm | None:
    """Return the group as a product with chosen matrices; None when it is not one."""
    if len(group.statements) != 1:
        return None
    (statement,) = group.statements
    body = statement.body
    sums = [axis for axis in statement.reduced if axis.extent.constant != 1]
    is_sum = statement.combine == "add" and len(sums) == 1
    if not is_sum or not isinstance(body, Apply) or body.function != "mul":
        return None
    for left, right in (body.arguments, body.arguments[::-1]):
        found = _weights_of(right)
        if isinstance(left, Read) and found is not None:
            return _make_form(group, statement, left, found, sums[0], constants)
    return None


def _weights_of(expr: Expr) -> _Weights | None:
    """Match weights [matrix, n, k], or codes of them times scales of blocks."""
    if isinstance(expr, Read):
        return _Weights(expr, None, 0)
    if not (isinstance(expr, Apply) and expr.function == "mul"):
        return None
    cast, scales = expr.arguments
    if not (isinstance(cast, Cast) and cast.dtype == float32 and isinstance(scales, Read)):
        return None
    w = cast.argument
    if not isinstance(w, Read) or len(scales.indices) != 3 or len(w.indices) != 3:
        return None
    block = _divisor(scales.indices[2], w.indices[2])
    same = _plain(scales.indices[0]) == _plain(w.indices[0])
    if block is None or not same or scales.indices[1] != w.indices[1]:
        return None
    return _Weights(w, scales, block)


def _divisor(quotient: Expr, index: Expr) -> int | None:
    """Match index // divisor, of an index that is not negative: it may truncate as well."""
    quotient = _plain(quotient)
    if not (isinstance(quotient, Apply) and quotient.function in ("floordiv", "div")):
        return None
    of, by = quotient.arguments
    if of != index:
        return None
    if isinstance(by, SizeTerm):
        return by.size.constant
    return int(by.value) if isinstance(by, Literal) else None


def _plain(index: Expr) -> Expr:
    """An index without its check."""
    return index.arguments[0] if isinstance(index, Apply) and is_inside(index) else index


def _make_form(
    group: Group, statement: Statement, x: Read, weights: _Weights, k: Axis,
    constants: frozenset[str],
) -> ChosenForm | None:  # fmt: skip
    types = {tensor.name: tensor.type for tensor in group.inputs}
    held = [each for each in (weights.w, weights.scales) if each is not None]
    if any(each.tensor not in constants or each.flat or each.default for each in held):
        return None
    axes = [axis for axis in statement.axes if axis.extent.constant != 1]
    chosen = _plain(weights.w.indices[0]) if len(weights.w.indices) == 3 else None
    if not axes or not isinstance(chosen, Read) or chosen.default or x.default:
        return None
    *rows, n = axes
    sizes = [size.constant for size in types[weights.w.tensor].shape]
    inner = (*x.indices, *chosen.indices)
    if {x.tensor, chosen.tensor} - types.keys() or any(has_checks(i) or reads(i) for i in inner):
        return None
    x_at, chosen_at = (address(each, types[each.tensor].shape) for each in (x, chosen))
    if x_at is None or chosen_at is None or x_at.stride(k.name) != 1:
        return None
    own = {axis.name for axis in rows}
    fits = (
        weights.w.indices[1:] == (Index(n.name), Index(k.name))
        and free_axes(chosen) <= own and free_axes(x) <= own | {k.name}
        and types[x.tensor].dtype == group.type_of(statement.target).dtype == float32
        and types[chosen.tensor].dtype == int64
        and sizes[1:] == [n.extent.constant, k.extent.constant]
    )  # fmt: skip
    bits = _WIDTHS.get(types[weights.w.tensor].dtype, 0)
    if not fits or not all(sizes) or (bits == 32) != (weights.scales is None):
        return None
    count, columns, depth = (int(size or 0) for size in sizes)
    block = weights.block or depth
    if not bits or depth % block or (bits == 4 and block % FIELDS):
        return None
    if weights.scales is not None:
        scales = types[weights.scales.tensor]
        if scales.dtype != float32 or scales.shape != (count, columns, depth // block):
            return None
    first = weights.w.indices[0]
    check = number_of(first) if isinstance(first, Apply) and is_inside(first) else None
    return ChosenForm(
        statement.target, tuple(rows), x.tensor, x_at, chosen.tensor, chosen_at, weights.w.tensor,
        weights.scales.tensor if weights.scales else "", bits, block, count, columns, depth, check,
    )  # fmt: skip
