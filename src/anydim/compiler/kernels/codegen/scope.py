"""Scopes of a loop nest: known values, and the loop in which each value is computed.

Each common subexpression is computed once, in the outermost loop that has all its inputs, and named
there by a `Let` step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from typing import TypeVar

from anydim.base.dtypes import DType, int64
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.context import Context, Level
from anydim.compiler.kernels.inference import (
    Linear,
    always_inside,
    dtype_of,
    free_axes,
    linear_expr,
    weak_dtype,
)
from anydim.compiler.kernels.ir import convert, operate, splat
from anydim.lang.tree import Expr, Read
from anydim.lang.tree.affine import Affine, reads
from anydim.lang.tree.bounds_checks import Check
from anydim.sizes import as_size

LocalRead = Callable[[Read], ir.Value | None]
Inside = TypeVar("Inside", bound="Scope")


class Scope(ABC):
    """The body of one loop; see `scalar_lowering.py`."""

    def __init__(
        self, context: Context, indices: Mapping[str, ir.Value] | None = None, *,
        lane: str | None = None, lanes: int = 1, mask: ir.Value | None = None,
    ) -> None:  # fmt: skip
        self.context = context
        self.indices: dict[str, ir.Value] = dict(indices or {})
        self.lane, self.lanes, self.mask = lane, lanes, mask
        self.local: LocalRead | None = None
        self.answers = self.safe = frozenset[str]()
        self.certain = True  # it runs whenever the enclosing body runs
        self.outer: Scope | None = None
        self.own = frozenset(self.indices)
        self._begin()

    def inner(
        self: Inside, indices: Mapping[str, ir.Value], *, lane: str | None = None, lanes: int = 1,
        mask: ir.Value | None = None, local: LocalRead | None = None,
        answers: frozenset[str] = frozenset(), certain: bool = True,
    ) -> Inside:  # fmt: skip
        """The body of a loop over the axes of `indices` (lane 0's value for a lane axis).

        Lanes, mask and `local` are inherited unless given. `local` may provide the value of a read
        (None: load it). Reads of the tensors in `answers` are resolved at this level, even where
        they could be hoisted. `certain`: the body runs whenever this one does.
        """
        inner = copy(self)
        inner.indices, inner.own = {**self.indices, **indices}, frozenset(indices)
        inner.answers, inner.outer, inner.local = answers, self, local or self.local
        inner.certain = certain
        if lane is not None:
            inner.lane, inner.lanes = lane, lanes
        if lane is not None or mask is not None:
            inner.mask = mask
        inner._begin()
        return inner

    def _begin(self) -> None:
        """Reset the values known at this level."""
        self.uniform: Scope | None = None  # the same loop without lanes, for uniform values
        self._level = Level()
        self._known: dict[tuple[Expr, DType], ir.Value] = {}
        self._starts: dict[tuple[ir.Value, int], ir.Value] = {}
        self._reported: set[Check] = set()

    @property
    def steps(self) -> list[ir.Step]:
        """The steps of this level so far."""
        return self._level.steps

    @steps.setter
    def steps(self, steps: list[ir.Step]) -> None:
        self._level.steps = steps

    def dtype(self, expr: Expr) -> DType:
        """The element type of an expression by itself."""
        return dtype_of(expr, self.context.types) or weak_dtype(expr)

    def name(self, value: ir.Value) -> ir.Value:
        """Bind a value to a name by a Let step here, so that it is computed once."""
        return self._name_value(value, self._level)

    def _name_value(self, value: ir.Value, level: Level) -> ir.Value:
        if isinstance(value, (ir.Const, ir.Var)):
            return value
        name = self.context.fresh()
        level.steps.append(ir.Let(name, value))
        self.context.homes[name] = level
        return ir.Var(value.type, name)

    def spread(self, value: ir.Value, lanes: int) -> ir.Value:
        """A value broadcast to all lanes; a scalar is broadcast once, where it was named."""
        if value.type.lanes == lanes or isinstance(value, ir.Const):
            return splat(value, lanes)
        home = self._level
        if isinstance(value, ir.Var):
            home = self.context.homes.get(value.name, home)
        key = (value, lanes)
        if key not in home.spread:
            home.spread[key] = self._name_value(splat(value, lanes), home)
        return home.spread[key]

    def know(self, expr: Expr, value: ir.Value) -> None:
        """Record that `expr` (of its own type) is `value`: a scalar, or one value per lane."""
        self._known[expr, self.dtype(expr)] = value

    def alike(self, values: list[ir.Value]) -> list[ir.Value]:
        """Values broadcast to the lane count of the widest one."""
        lanes = max(value.type.lanes for value in values)
        return [self.spread(value, lanes) for value in values]

    def both(self, left: ir.Value | None, right: ir.Value | None) -> ir.Value | None:
        if left is None or right is None:
            known = left if right is None else right
            return None if known is None else self.spread(known, self.lanes)
        return self.name(operate("and", *self.alike([left, right])))

    # ---- hoisting ------------------------------------------------------------------------------

    @abstractmethod
    def _compute(self, expr: Expr, dtype: DType) -> ir.Value:
        """Compute an expression in its own type, not yet computed in this scope."""

    def scalar(self, expr: Expr, dtype: DType | None = None) -> ir.Value:
        """The value of an expression that is uniform over the lanes, as a scalar."""
        found = self._at(expr, dtype or self.dtype(expr))
        if found.type.lanes != 1:
            raise InternalError(f"{expr} differs from lane to lane")
        return found

    def offset(self, form: Affine | Linear) -> ir.Value:
        """A linear form as an int64 scalar; the lane axis counts with the index of lane 0."""
        form = Linear(form) if isinstance(form, Affine) else form
        lane = self.lane if self.lanes > 1 else None
        own = as_size(0) if lane is None else form.affine.stride(lane)
        if lane is None or own.constant == 0:
            return self.scalar(linear_expr(form), int64)
        start = self.scalar(linear_expr(form.without(lane)), int64)
        if own.constant == 1:
            return self._start(start)
        by = self.context.sizes.value(own)
        return self.name(start + self.indices[lane] * by)

    def _start(self, rest: ir.Value, stride: int = 1) -> ir.Value:
        """rest + stride times the index of lane 0."""
        assert self.lane is not None
        if (rest, stride) not in self._starts:
            self._starts[rest, stride] = self.name(rest + self.indices[self.lane] * stride)
        return self._starts[rest, stride]

    def _at(self, expr: Expr, dtype: DType) -> ir.Value:
        """The value of an expression: a scalar if it is uniform over the lanes, else one value per
        lane."""
        key = (expr, dtype)
        if key in self._known:
            return self._known[key]
        if self.outer is not None and self._hoistable(expr):
            found = self.outer._at(expr, dtype)
        elif self.uniform is not None and not self._needs_lanes(expr):
            found = self.uniform._at(expr, dtype)
        else:
            natural = dtype_of(expr, self.context.types) or dtype
            if natural != dtype:
                found = self.name(convert(self._at(expr, natural), dtype))
            else:
                found = self.name(self._compute(expr, dtype))
        self._known[key] = found
        return found

    def _hoistable(self, expr: Expr) -> bool:
        """Whether an expression may be computed outside this loop (which may run zero times)."""
        if free_axes(expr) & self.own:
            return False
        found = reads(expr)
        if self.answers and any(read.tensor in self.answers for read in found):
            return False
        return self.context.running or all(
            always_inside(read, self.context.types) for read in found
        )

    def _needs_lanes(self, expr: Expr) -> bool:
        answers = self.answers if self.outer is None else self.answers | self.outer.answers
        return self.lane in free_axes(expr) or any(r.tensor in answers for r in reads(expr))

    def _varies(self, expr: Expr) -> bool:
        return self.lanes > 1 and self.lane in free_axes(expr)
