"""Geometry of windows in a tensor: dimensions with padding, channel groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import quotient_up
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.ir import greatest, least
from anydim.compiler.kernels.matmul.product_axes import merge_axes, merged_extent, merged_stride
from anydim.lang.resolve.ranges import running
from anydim.lang.tree import Apply, Axis, Expr, Index, Literal, Read, SizeTerm
from anydim.lang.tree.affine import Affine, affine, rewrite, substitute
from anydim.sizes import Box, Size, Truth, as_size, product, prove

SMALL = 8  # strides, windows and paddings up to this size are constants in the kernel

_UNREAD = Affine(as_size(0))  # the address in a factor that no axis indexes
ALL_TAPS = "all_taps"  # name of the version that adds the zeros of taps out of bounds


@dataclass(frozen=True)
class Walk:
    """An axis of a product: its name and extent; subclasses add its strides in the tensors."""

    name: str
    extent: Size


@dataclass(frozen=True)
class WindowAxis(Walk):
    """An axis of output positions, channels or taps, with its strides in x and w."""

    x: Size
    w: Size


class InLoops:
    """The form of a product with outer loops."""

    loops: tuple[Walk, ...]

    @property
    def extents(self) -> tuple[tuple[str, Size], ...]:
        """Names and extents of the loops."""
        return tuple((walk.name, walk.extent) for walk in self.loops)

    @property
    def around(self) -> Size:
        """Number of iterations of the loops."""
        return product(walk.extent for walk in self.loops)


@dataclass(frozen=True)
class Bound:
    """A dimension of x where windows may be out of bounds.

    In bounds: 0 <= constant + position * stride + tap * spread < extent; a name may be ''.
    """

    constant: Size
    position: str
    stride: Size
    tap: str
    spread: Size
    extent: Size


def bounds_of(
    read: Read, shape: tuple[Size, ...], positions: Sequence[Axis], taps: Sequence[Axis],
    extents: Mapping[str, Size], box: Box,
) -> tuple[Bound, ...] | None:  # fmt: skip
    """Return the bounds of a read that yields 0 outside; None unless they are those of windows."""
    if read.default is None:
        return ()
    if read.flat or not (isinstance(read.default, Literal) and read.default.value == 0):
        return None
    found = []
    for index, extent in zip(read.indices, shape):
        form = affine(index)
        if form is None:
            return None
        if inside_always(form, extent, extents, box):
            continue
        position_names = [name for name in form.indices if any(name == a.name for a in positions)]
        tap_names = [name for name in form.indices if any(name == a.name for a in taps)]
        if (
            len(position_names) > 1
            or len(tap_names) > 1
            or len(position_names) + len(tap_names) != len(form.indices)
        ):
            return None
        position, tap = "".join(position_names), "".join(tap_names)
        found.append(
            Bound(form.constant, position, form.stride(position), tap, form.stride(tap), extent)
        )
    return tuple(found)


def taps_inside(
    bound: Bound, low: ir.Value, high: ir.Value, taps: Size, value: Callable[[Size], ir.Value]
) -> tuple[ir.Value, ir.Value]:
    """Return the range of `taps` that are in bounds for some output position from `low` to `high`.

    The stop may be below the start where the range is empty.
    """
    start = value(bound.constant)
    missing = greatest(0 - start - high * value(bound.stride), 0)
    reached = greatest(value(bound.extent) - start - low * value(bound.stride), 0)
    first, stop = (quotient_up(each, value(bound.spread)) for each in (missing, reached))
    return least(first, value(taps)), least(stop, value(taps))


def inside_always(form: Affine, extent: Size, extents: Mapping[str, Size], box: Box) -> bool:
    """Whether an index stays in 0:extent for all values of its axes."""
    low = high = form.constant
    for name, coefficient in form.terms:
        if prove(coefficient, ">=", 0, box) is not Truth.PROVED:
            return False
        high = high + coefficient * (extents[name] - 1)
    inside = running(extents.values(), box)
    return (
        prove(low, ">=", 0, box) is Truth.PROVED
        and prove(extent - high, ">", as_size(0), inside) is Truth.PROVED
    )


def without(read: Expr, units: set[str]) -> Read:
    """Return the read with 0 for axes of extent 1."""

    changed = substitute(read, dict.fromkeys(units, SizeTerm(as_size(0))))
    assert isinstance(changed, Read)
    return changed


def window_axis(axes: Sequence[Axis], x: Affine, w: Affine = _UNREAD) -> WindowAxis:
    """Merged axes as one; `x` and `w` are the addresses of the factors."""
    name, strides = axes[-1].name if axes else "", (merged_stride(axes, each) for each in (x, w))
    return WindowAxis(name, merged_extent(axes), *strides)


def merge_positions(
    axes: Sequence[Axis], bounds: Sequence[Bound], x: Affine, w: Affine = _UNREAD
) -> tuple[WindowAxis, ...]:
    """Merge adjacent output axes that x strides over as one axis, where no bound uses them."""
    groups = merge_axes(axes, [x], {bound.position for bound in bounds})
    return tuple(window_axis(group, x, w) for group in groups)


class LayerSizes(SizeParameters):
    """The sizes of a kernel that layers share: only small constants are literals in its code.

    A size with a `role` is always a parameter of its own: layers share the kernel although the size
    is small in one of them, or equals another size.
    """

    def __init__(self) -> None:
        super().__init__()
        self._roles: dict[str, Size] = {}

    def role(self, name: str, size: Size) -> ir.Value:
        """Return the parameter of that name; InternalError where it already has another size."""
        known = self._roles.setdefault(name, size)
        if known != size:
            raise InternalError(f"size '{name}' of a kernel is {known}, and also {size}")
        return ir.Var(ir.INDEX, name)

    def role_or_literal(self, name: str, size: Size, max_literal: int = 1) -> ir.Value:
        """Return a role, or a literal for a constant of at most `max_literal`."""
        constant = size.constant
        if constant is not None and abs(constant) <= max_literal:
            return ir.Const(ir.INDEX, constant)
        return self.role(name, size)

    @property
    def names(self) -> tuple[str, ...]:
        return (*super().names, *self._roles)

    @property
    def sizes(self) -> tuple[Size, ...]:
        return (*super().sizes, *self._roles.values())

    def value(self, size: Size | int) -> ir.Value:
        size = as_size(size)
        known = size.constant
        if known is not None and abs(known) <= SMALL:
            return ir.Const(ir.INDEX, known)
        name = self._names.setdefault(size, f"p{len(self._names)}")
        return ir.Var(ir.INDEX, name)


Split = tuple[tuple[Axis, ...], tuple[Size, ...], Callable[..., Expr]]


def split_groups(axes: tuple[Axis, ...], strides: tuple[Size, ...], x: Read) -> Split | None:
    """Return axes and strides of the result, with `m // share` in a read as an axis of its own.

    Also returns the rewrite of expressions over the old axes. None when `share` does not divide the
    extent of m.
    """
    shares = {part for index in x.indices for part in _quotients(index)}
    if not shares:
        return axes, strides, lambda expr: expr
    if len(shares) > 1:
        return None
    (name, share) = shares.pop()
    at = next((n for n, axis in enumerate(axes) if axis.name == name), None)
    if at is None:
        return None
    groups = axes[at].extent.divide_exactly(as_size(share))
    if groups is None:
        return None
    group = f"{name} group"

    def change(expr: Expr) -> Expr:
        whole = Apply("mul", (Index(group), SizeTerm(as_size(share))))

        def replace_group(part: Expr) -> Expr | None:
            if isinstance(part, Apply) and _quotient(part) == (name, share):
                return Index(group)
            return None

        def split_channel(part: Expr) -> Expr | None:
            return Apply("add", (whole, Index(name))) if part == Index(name) else None

        return rewrite(rewrite(expr, replace_group), split_channel)

    outer, inner = Axis(group, groups), Axis(name, as_size(share))
    parts = (strides[at] * share, strides[at])
    return (
        (*axes[:at], outer, inner, *axes[at + 1 :]),
        (*strides[:at], *parts, *strides[at + 1 :]),
        change,
    )


def _quotients(expr: Expr) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()

    def visit(part: Expr) -> Expr | None:
        known = _quotient(part)
        if known is not None:
            found.add(known)
        return None

    rewrite(expr, visit)
    return found


def _quotient(expr: Expr) -> tuple[str, int] | None:
    """Return (axis, divisor) of an axis divided by a constant."""
    if not (isinstance(expr, Apply) and expr.function == "floordiv"):
        return None
    axis, by = expr.arguments
    divisor = affine(by)
    if not isinstance(axis, Index) or divisor is None or divisor.terms:
        return None
    known = divisor.constant.constant
    return None if known is None or known < 1 else (axis.name, known)
