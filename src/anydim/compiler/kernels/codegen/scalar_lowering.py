"""Lowering of scalar expressions of the language to loop IR values, at one point of a loop nest.

A `ScalarLowering` represents the body of one loop. It holds the current values of the axes and the
axis, if any, that runs along vector lanes. The values that an expression needs are named by `Let`
steps, collected in `steps`, each common subexpression once. `inner()` opens the body of a nested
loop; there, values that do not depend on that loop's axes are hoisted out of it (`scope.py`).

    context = Context(types, SizeParameters(), machine, buffers)
    kernel = ScalarLowering(context)                    # function level
    row = kernel.inner({"r": Var(INDEX, "r")})          # inside `for r`
    lane = row.inner({"c": Var(INDEX, "c")}, lane="c", lanes=8, mask=None)
    y = lane.value(statement.body, float32)             # 8 values, for c .. c+7
    # put lane.steps in the loop over c; row.steps before that loop, kernel.steps first of all

A checked index (`lang/tree/bounds_checks.py`) that is out of bounds where its value is used is
reported: the index is stored in the check's slot of the operand `STATUS`, and the read yields 0. No
out-of-bounds memory is accessed. Masked-off lanes access no memory either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from anydim.base.dtypes import DType, boolean, float32, float64, int64, uint64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen import lane_patterns as along
from anydim.compiler.kernels.codegen.arithmetic import near
from anydim.compiler.kernels.codegen.context import Context, SizeParameters
from anydim.compiler.kernels.codegen.exact_division import (
    DIVISIONS,
    Divisor,
    divide_by_shared,
    divisor,
    quotient,
)
from anydim.compiler.kernels.codegen.scope import Inside, LocalRead, Scope
from anydim.compiler.kernels.codegen.value_bounds import at_peak
from anydim.compiler.kernels.inference import (
    LOGICAL,
    Linear,
    common_dtype,
    dtype_of,
    linear_expr,
    match_clamp,
    read_address,
    value_arguments,
    weak_dtype,
    widest,
)
from anydim.compiler.kernels.ir import constant, convert, greatest, number, operate
from anydim.compiler.kernels.launch import STATUS
from anydim.lang.functions import FUNCTIONS, INSIDE, REINTERPRETING
from anydim.lang.tree import Apply, Cast, Expr, Index, Literal, Read, SizeTerm
from anydim.lang.tree.affine import affine, reads
from anydim.lang.tree.bounds_checks import Check, active_checks, has_checks, within
from anydim.runtime.positions import FINE
from anydim.sizes import Size, as_size, product

__all__ = ["Context", "Inside", "LocalRead", "ScalarLowering", "SizeParameters"]


class ScalarLowering(Scope):
    """Lowers expressions at one point of a loop nest; see the module's docstring."""

    outer: ScalarLowering | None
    uniform: ScalarLowering | None

    # ---- interface -----------------------------------------------------------------------------

    def value(self, expr: Expr, dtype: DType | None = None) -> ir.Value:
        """The value of an expression in every lane, as `dtype` (its own type when None).

        Emits the checks of its checked indices.
        """
        for check in active_checks(expr, self.context.types):
            self._check(check)
        found = self._at(expr, dtype or self.dtype(expr))
        return self.spread(found, self.lanes)

    # ---- lowering ------------------------------------------------------------------------------

    def _shared_divisor(self, expr: Expr, dtype: DType) -> Divisor | None:
        """A divisor shared by all elements of a row, such as the total of a softmax."""
        scope: ScalarLowering | None = self
        while scope is not None and not scope.answers:
            scope = scope.outer
        if scope is None or self.lanes == 1 or not self.context.machine.fused:
            return None
        same = isinstance(expr, Literal) or (self.outer is not None and self._hoistable(expr))
        return divisor(expr, dtype) if same else None

    def _divide_by_shared(self, expr: Apply, dtype: DType) -> ir.Value | None:
        """A quotient by a shared divisor; None where each element is divided."""
        dividend, whole = expr.arguments
        by = self._shared_divisor(whole, dtype)
        if by is None or not self._needs_lanes(dividend):
            return None
        shared = by.values(lambda e, kind: self.spread(self._at(e, kind), self.lanes), self._at)
        x = self.name(self.spread(self._at(dividend, dtype), self.lanes))
        total = whole.tensor if isinstance(whole, Read) else ""
        if total in self.safe and self.context.totals.get(total) == dividend:
            return divide_by_shared(x, shared, self.name)
        register = self.context.fresh("quotient")
        steps, result = quotient(x, shared, self.mask, self.name, register)
        self.steps += steps
        return result

    def _compute(self, expr: Expr, dtype: DType) -> ir.Value:
        if isinstance(expr, Literal):
            return number(dtype, expr.value)
        if isinstance(expr, SizeTerm):
            return self._size(expr.size)
        if isinstance(expr, Index):
            return self._index(expr.name)
        if isinstance(expr, Cast):
            bounds = match_clamp(expr, self.dtype(expr.argument))
            if bounds is not None:
                return self._convert_limited(expr.dtype, *bounds)
            return convert(self._at(expr.argument, self.dtype(expr.argument)), dtype)
        if isinstance(expr, Read):
            found = self.local(expr) if self.local is not None else None
            return self._load(expr) if found is None else found
        return self._apply(expr, dtype)

    def _convert_limited(self, dtype: DType, inner: Expr, low: Literal, high: Literal) -> ir.Value:
        """A value clamped between two bounds and converted to an integer, without a check for
        NaN."""
        value = self._at(inner, float32)
        lanes = value.type.lanes
        for function, bound in (("fast_max", low), ("fast_min", high)):
            value = operate(function, value, number(float32, bound.value, lanes))
        return ir.Convert(ir.Type(dtype, lanes), value, fits=True)

    def _size(self, size: Size) -> ir.Value:
        return self.context.sizes.value(size)

    def _index(self, name: str) -> ir.Value:
        value = self.indices[name]
        if name != self.lane or self.lanes == 1:
            return value
        vector = ir.Type(int64, self.lanes)
        return ir.Splat(vector, value) + ir.Iota(vector)

    def _apply(self, expr: Apply, dtype: DType) -> ir.Value:
        if expr.function == INSIDE:
            return self._at(expr.arguments[0], dtype)
        if expr.function in REINTERPRETING:
            inner = self._at(expr.arguments[0], self.dtype(expr.arguments[0]))
            return ir.Bitcast(ir.Type(dtype, inner.type.lanes), inner)
        if expr.function in LOGICAL:
            common: DType = boolean
        elif FUNCTIONS[expr.function].result == "bool":
            weak = map(weak_dtype, expr.arguments)
            common = common_dtype(expr.arguments, self.context.types) or widest(weak)
        else:
            common = dtype
        if self.lane in self.indices and self.lanes > 1:
            first, step = self.indices[self.lane], self.context.step
            shared = (
                along.repeat_pattern(expr, self.lane, self.lanes, first, step) if step else None
            )
            shared = shared or self._lane_quotient(expr) or self._lane_order(expr)
            if shared is not None:
                return shared
        fused = self._multiply_add(expr, common)
        if fused is not None:
            return fused
        divided = self._divide_by_shared(expr, common) if expr.function in DIVISIONS else None
        if divided is not None:
            return divided
        between = self._between(expr)
        if between is not None:
            return between
        values = [self._at(argument, common) for argument in value_arguments(expr)]
        if expr.function == "select":
            values.insert(0, self._at(expr.arguments[0], boolean))
        peak = at_peak(expr, self.context.peaks) is not None
        return operate("exp_nonpositive" if peak else expr.function, *self.alike(values))

    def _between(self, expr: Apply) -> ir.Value | None:
        """`0 <= index < size` for a data-dependent index, as one unsigned comparison."""
        below = expr.arguments[-1] if expr.function == "and" else None
        if not isinstance(below, Apply) or not isinstance(below.arguments[-1], SizeTerm):
            return None
        index, size = below.arguments[0], below.arguments[-1]
        if expr != within(index, size.size) or not reads(index) or self.dtype(index) != int64:
            return None
        values = (self._at(part, int64).bits(uint64) for part in (index, size))
        return operate("less", *self.alike([*values]))

    def _lane_quotient(self, expr: Apply) -> ir.Value | None:
        """A quotient or remainder of contiguous lanes by a size, with one division for all of
        them."""
        if expr.function not in ("floordiv", "mod") or self.dtype(expr) != int64:
            return None
        dividend, by = expr.arguments
        form = affine(dividend)
        if form is None or self.lane is None or form.stride(self.lane).constant != 1:
            return None
        if not isinstance(by, SizeTerm) and not (isinstance(by, Literal) and by.value > 0):
            return None
        divisor, magic = (self._at(each, int64) for each in along.uniform_divisor(by))
        first = self.name(self.offset(form))
        return along.quotient_by(expr.function, first, divisor, magic, self.lanes, self.name)

    def _lane_order(self, expr: Apply) -> ir.Value | None:
        """Comparison of contiguous indices with an index that the lanes share."""
        other = along.SWAPPED.get(expr.function)
        if other is None or self.lane is None:
            return None
        left, right = map(affine, expr.arguments)
        if left is None or right is None:  # data-dependent indices have no bounds
            return None
        for function, apart in ((expr.function, left - right), (other, right - left)):
            if apart.stride(self.lane).constant == 1:
                return along.compared_lanes(function, self.offset(apart), self.lanes)
        return None

    def _multiply_add(self, expr: Apply, dtype: DType) -> ir.Value | None:
        """a * b + c, a * b - c and c - a * b on floats as one fused multiply-add."""
        if expr.function not in ("add", "sub") or dtype not in (float32, float64):
            return None
        left, right = expr.arguments
        for factors, other, first in ((left, right, True), (right, left, False)):
            typed = dtype_of(factors, self.context.types) in (dtype, None)
            if not (typed and isinstance(factors, Apply) and factors.function == "mul"):
                continue
            a, b = (self._at(f, dtype) for f in factors.arguments)
            c = self._at(other, dtype)
            if expr.function == "sub" and first:
                c = self.name(-c)
            elif expr.function == "sub":
                a = self.name(-a)
            return operate("fma", *self.alike([a, b, c]))
        return None

    # ---- reads ---------------------------------------------------------------------------------

    def _load(self, read: Read) -> ir.Value:
        shape = self.context.types[read.tensor].shape
        inside = self.inside(read)
        form = self._address(read, shape)
        if self.lanes == 1 and self.mask is not None:  # one lane, which may be masked off
            inside = self.both(self.mask, inside)
        if self.lanes == 1 or not (
            self.lane in form.affine.indices
            or any(self._varies(atom) for atom, _ in form.atoms)
            or (inside is not None and inside.type.lanes > 1)
        ):
            value = self._load_scalar(read, form, inside)
        else:
            value = self._load_lanes(read, form, inside)
        if read.default is None or inside is None:
            return value
        default = self._at(read.default, value.type.dtype)
        return operate("select", *self.alike([inside, self.name(value), default]))

    def _address(self, read: Read, shape: tuple[Size, ...]) -> Linear:
        return read_address(read, shape)

    def _load_scalar(self, read: Read, form: Linear, inside: ir.Value | None) -> ir.Value:
        dtype = self.context.types[read.tensor].dtype
        offset = self._at(linear_expr(form), int64)
        return ir.Load(ir.Type(dtype), self._buffer(read), offset, inside)

    def _load_lanes(self, read: Read, form: Linear, inside: ir.Value | None) -> ir.Value:
        assert self.lane is not None
        vector = ir.Type(self.context.types[read.tensor].dtype, self.lanes)
        mask = self.both(self.mask, inside)
        guard = None if mask is None or inside is None else self._guard(read, mask)
        regular = not any(self._varies(atom) for atom, _ in form.atoms)
        stride = form.affine.stride(self.lane).constant
        if regular and stride is not None and along.has_strided_load(vector.dtype, stride):
            offset = self._start(self._at(linear_expr(form.without(self.lane)), int64), stride)
            buffer = self._buffer(read)
            return along.load_steps(vector, buffer, offset, stride, mask, self.name, guard)
        step = self.context.step
        found = along.runs_of(form, self.lane, self.lanes, step) if step else None
        if found is not None:
            return self._load_runs(read, form, found, mask, guard)
        offsets = self.spread(self._at(linear_expr(form), int64), self.lanes)
        gathered = ir.Gather(vector, self._buffer(read), offsets, mask)
        atoms = [atom for atom, _ in form.atoms if self._varies(atom)]
        index = along.table_index(form, self.lane, vector, self.context.machine)
        if index is not None:
            rest = self._at(linear_expr(form.without(self.lane)), int64)
            size = self._size(product(self.context.types[read.tensor].shape))
            name = self.context.fresh("picked")
            steps, value = along.permuted_gather(
                gathered, rest, self._at(index, int64), size, self.name, name
            )
        elif not atoms or any(reads(atom) for atom in atoms):
            return gathered
        else:
            steps, value = along.contiguous_gather(gathered, self.name, self.context.fresh("near"))
        self.steps += steps
        return value

    def _guard(self, read: Read, mask: ir.Value) -> ir.Value | None:
        """The condition under which a load's address is near the tensor; None if it always is.

        Lane indices are not checked if they are contiguous and move with the loop by a small
        offset.
        """
        uniform: list[Expr] = []
        for index, extent in self._unproved_indices(read):
            if self._varies(index):
                form = affine(index)
                if form is None or form.terms != ((self.lane, as_size(1)),):
                    return mask
                start = form.constant.constant
                if start is None or abs(start) > self.lanes:
                    return mask
            else:
                uniform.append(within(index, extent))
        return self._all(uniform)

    def _load_runs(
        self, read: Read, form: Linear, found: along.Runs, mask: ir.Value | None,
        guard: ir.Value | None,
    ) -> ir.Value:  # fmt: skip
        """Lanes selected from a few contiguous runs."""
        assert self.lane is not None
        size, buffer = self.context.sizes.value, self._buffer(read)
        outside = self._at(linear_expr(form.without(self.lane)), int64)
        at = outside + along.start_of(found, self.indices[self.lane], size)
        at = at if guard is None else near(self.name(at), guard)
        vector = ir.Type(self.context.types[read.tensor].dtype, self.lanes)
        return along.load_runs(vector, buffer, self.name(at), found, mask, size, self.name)

    def _buffer(self, read: Read) -> str:
        return self.context.buffers.get(read.tensor, read.tensor)

    # ---- checked indices -----------------------------------------------------------------------

    def inside(self, read: Read) -> ir.Value | None:
        """Whether the indices of a read are in bounds; None when no check is needed."""
        return self._all([within(*bound) for bound in self._unproved_indices(read)])

    def _all(self, conditions: Sequence[Expr]) -> ir.Value | None:
        """The conjunction of conditions; None for an empty one."""
        if not conditions:
            return None
        return self._at(reduce(lambda *both: Apply("and", both), conditions), boolean)

    def _unproved_indices(self, read: Read) -> Iterator[tuple[Expr, Size]]:
        """The indices that may be out of bounds, with their extents."""
        shape = self.context.types[read.tensor].shape
        extents = (product(shape),) if read.flat else shape
        for index, extent in zip(read.indices, extents):
            if read.default is None and not reads(index) and not has_checks(index):
                continue
            if (index, extent) in self.context.inside:
                continue
            if isinstance(index, Apply) and index.function == INSIDE:
                index = index.arguments[0]
            yield index, extent

    def _check(self, check: Check) -> None:
        """Report an out-of-bounds index once, in the outermost loop that can evaluate it."""
        outer, runs = self.outer, self.certain and self.context.running
        if outer is not None and runs and self._hoistable(check.failing):
            outer._check(check)
        elif self.uniform is not None and not self._needs_lanes(check.failing):
            self.uniform._check(check)
        elif check not in self._reported:
            self._reported.add(check)
            self._report(check)

    def _report(self, check: Check) -> None:
        failing = self._at(check.failing, boolean)
        index = self._at(check.index, int64)
        if self.mask is not None and self._needs_lanes(check.failing):
            failing = self.name(operate("and", *self.alike([failing, self.mask])))
        then: list[ir.Step] = []
        if index.type.lanes > 1:
            chosen = ir.Var(index.type, self.context.fresh())
            failing_index = operate("select", *self.alike([failing, index, constant(FINE)]))
            then.append(ir.Let(chosen.name, failing_index))
            index = chosen.reduce_lanes("max")
        found = greatest(index, FINE + 1)  # never stored as FINE
        then.append(ir.Store(STATUS.name, constant(check.number), found))
        if self.context.failed:
            then.append(ir.Assign(self.context.failed, constant(True, boolean)))
        self.steps.append(ir.If(self.name(failing.any), tuple(then)))
