"""The inside of sliding kernels: one row of the result, windows loaded, folded and finished."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.product.epilogue import PRODUCT
from anydim.kernels.rows.cells import identity, is_product
from anydim.kernels.sliding.form import Limit, Sliding, Window
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    either,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient_up,
    times,
    variable,
)
from anydim.kernels.write.elements import Context, Elements, SizeParameters
from anydim.kernels.write.loops import parallel_loop
from anydim.kernels.write.values import number, operate, splat
from anydim.lang.tree import Apply, Axis, Expr, Group, Read, Tensor, TensorType
from anydim.lang.tree.affine import Affine, to_expr
from anydim.sizes import as_size


class SlidingWriter:
    """Writes the body of one kernel, and collects the sizes it needs."""

    def __init__(
        self, group: Group, form: Sliding, lanes: int, vectors: int, machine: Machine,
        tensors: Sequence[Tensor],
    ) -> None:  # fmt: skip
        self.form, self.lanes, self.vectors = form, lanes, vectors
        self.buffers = {tensor.name: f"t{number}" for number, tensor in enumerate(tensors)}
        self.sizes = SizeParameters()
        self.types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
        self.types[PRODUCT] = TensorType(form.dtype, ())
        self.context = Context(self.types, self.sizes, machine, self.buffers)
        self.vector = ir.Type(form.dtype, lanes)
        self.scratch = as_size(0)

    def body(self) -> tuple[ir.Step, ...]:
        """The steps of main: rows from start to stop."""
        scope = Elements(self.context)
        axes = [(axis.name, self.sizes.value(axis.extent)) for axis in self.form.outer]
        parallel_loop(scope, axes, self._row)
        return tuple(scope.steps)

    def _row(self, row: Elements) -> None:
        """All vectors of a row, a block of them at a time."""
        extent = self.sizes.value(self.form.lane.extent)
        block = row.inner({})
        cells = [_Cell(self, block, copy, extent) for copy in range(self.vectors)]
        self._reduced(block, cells, list(self.form.loops))
        for cell in cells:
            cell.finish()
        row.steps.append(loop("at", 0, extent, self.lanes * self.vectors, *block.steps))

    def _reduced(self, block: Elements, cells: list[_Cell], loops: list[Axis]) -> None:
        """The loops over the reduced axes that are not unrolled, and the taps inside."""
        scopes = [cell.scope for cell in cells]
        opened: list[tuple[str, ir.Value]] = []
        for axis in loops:
            name = self.context.fresh("k")
            opened.append((name, self.sizes.value(axis.extent)))
            at = {axis.name: ir.Var(ir.INDEX, name)}
            scopes = [scope.inner(at) for scope in scopes]
        for expr, windows in self.form.bodies:
            for cell, scope in zip(cells, scopes):
                cell.fold(scope, expr, windows)
        _close(cells, scopes, opened, block)


def _close(
    cells: list[_Cell], scopes: list[Elements], opened: list[tuple[str, ir.Value]], block: Elements
) -> None:
    """Put the steps of all cells into shared loops, from the inside out."""
    for name, extent in reversed(opened):
        inner = [step for scope in scopes for step in scope.steps]
        outer = [scope.outer for scope in scopes]
        scopes = [scope for scope in outer if scope is not None]
        scopes[-1].steps.append(ir.For(name, constant(0), extent, constant(1), tuple(inner)))
    for cell in cells:
        block.steps += cell.scope.steps
        cell.scope.steps = []


class _Cell:
    """One vector of the result: its place, its accumulator, the masks of its windows."""

    def __init__(self, writer: SlidingWriter, block: Elements, copy: int, extent: ir.Value) -> None:
        self.writer, self.block = writer, block
        form, lanes, context = writer.form, writer.lanes, writer.context
        self.at = block.name(plus(variable("at"), copy * lanes))
        self.count = block.name(least(minus(extent, self.at), lanes))
        self.inside = block.name(first_lanes(self.count, lanes))
        self.register = context.fresh("a")
        start = number(form.dtype, identity(form.combine, form.dtype), lanes)
        block.steps.append(ir.Declare(self.register, start))
        self.scope = block.inner(
            {form.lane.name: self.at}, lane=form.lane.name, lanes=lanes, mask=self.inside
        )
        self.masks: dict[tuple[object, ...], list[ir.Value]] = {}

    def fold(self, scope: Elements, expr: Expr, windows: tuple[Window, ...]) -> None:
        """Combine one tap's value with the accumulator."""
        form = self.writer.form
        for window in windows:
            scope.know(window.read, self._load(scope, window))
        old = ir.Get(self.writer.vector, self.register)
        if form.combine == "add" and form.dtype.is_float and is_product(expr):
            assert isinstance(expr, Apply)
            left, right = (scope.value(part, form.dtype) for part in expr.arguments)
            step = operate("fma", left, right, old)
        else:
            step = operate(form.combine, old, scope.value(expr, form.dtype))
        scope.steps.append(ir.Assign(self.register, step))

    def finish(self) -> None:
        """Everything that follows the reduction, and the stores."""
        form, writer = self.writer.form, self.writer
        total = ir.Var(writer.vector, writer.context.fresh())
        self.block.steps.append(ir.Let(total.name, ir.Get(writer.vector, self.register)))

        def done(read: Read) -> ir.Value | None:
            return total if read.tensor == PRODUCT else None

        scope = self.block.inner(
            {form.lane.name: self.at}, lane=form.lane.name, lanes=writer.lanes, mask=self.inside,
            local=done, answers=frozenset((PRODUCT,)),
        )  # fmt: skip
        strides = _own_strides(form)
        for output in form.outputs:
            value = scope.value(output.value, writer.types[output.tensor].dtype)
            place = scope.offset(strides)
            scope.steps.append(ir.Store(writer.buffers[output.tensor], place, value, self.inside))
        self.block.steps += scope.steps

    # ---- windows -------------------------------------------------------------------------------

    def _load(self, scope: Elements, window: Window) -> ir.Value:
        """The lanes of a window; its default where they leave the tensor."""
        writer, lane = self.writer, self.writer.form.lane.name
        vector = ir.Type(self._dtype(window), writer.lanes)
        rest = Affine.of(
            window.address.constant, {n: c for n, c in window.address.terms if n != lane}
        )
        start = scope.scalar(to_expr(rest))
        start = scope.name(plus(start, times(self.at, window.stride)))
        fine = self._fine(scope, window)
        found: ir.Value | None = None
        for part, mask in enumerate(self._masks(scope, window)):
            if fine is not None:
                mask = scope.name(operate("and", mask, splat(fine, writer.lanes)))
            buffer = writer.buffers[window.read.tensor]
            load = scope.name(ir.Load(vector, buffer, plus(start, part * writer.lanes), mask))
            if found is None:
                found = load
            else:
                picked = _picked(part, window.stride, writer.lanes)
                found = scope.name(ir.Shuffle(vector, found, load, picked))
        assert found is not None
        return self._defaulted(scope, window, found, fine)

    def _dtype(self, window: Window) -> ir.DType:
        return self.writer.types[window.read.tensor].dtype

    def _defaulted(
        self, scope: Elements, window: Window, found: ir.Value, fine: ir.Value | None
    ) -> ir.Value:
        default = window.read.default
        if default is None or not window.limits:
            return found
        other = scope.scalar(default, self._dtype(window))
        if isinstance(other, ir.Const) and other.value == 0:
            return found
        inside = self._range(scope, window, 1)[0]
        if fine is not None:
            inside = scope.name(operate("and", inside, splat(fine, self.writer.lanes)))
        return scope.name(operate("select", inside, found, splat(other, self.writer.lanes)))

    def _fine(self, scope: Elements, window: Window) -> ir.Value | None:
        """Whether the indices that are the same for all lanes are inside."""
        result: ir.Value | None = None
        for limit in window.limits:
            if limit.index.stride(self.writer.form.lane.name) != 0:
                continue
            key = ("fine", limit.index, limit.extent)
            home = self._home(scope, limit.index)
            if key not in self.masks or home is scope:
                at = home.scalar(to_expr(limit.index))
                extent = self.writer.sizes.value(limit.extent)
                both = ir.Op(
                    ir.FLAG, "and", (compare("greater_equal", at, 0), compare("less", at, extent))
                )
                self.masks[key] = [home.name(both)]
            (flag,) = self.masks[key]
            result = flag if result is None else scope.name(operate("and", result, flag))
        return result

    def _home(self, scope: Elements, index: Affine) -> Elements:
        """Where what depends on an index is computed: before the loops, where it can be."""
        loops = {axis.name for axis in self.writer.form.loops}
        return scope if loops & set(index.indices) else self.scope

    def _masks(self, scope: Elements, window: Window) -> list[ir.Value]:
        """The lanes to load, for each of the vectors that a stride steps over."""
        return self._range(scope, window, window.stride)

    def _range(self, scope: Elements, window: Window, spread: int) -> list[ir.Value]:
        """Masks of the lanes that are inside, lanes `spread` elements apart."""
        lane = self.writer.form.lane.name
        limits = [limit for limit in window.limits if limit.index.stride(lane) != 0]
        key = (spread, *((limit.index, limit.extent) for limit in limits))
        homes = [self._home(scope, limit.index) for limit in limits]
        home = scope if any(h is scope for h in homes) else self.scope
        if key not in self.masks or home is scope:
            self.masks[key] = self._made(home, limits, spread)
        return self.masks[key]

    def _made(self, home: Elements, limits: list[Limit], spread: int) -> list[ir.Value]:
        lanes, lane = self.writer.lanes, self.writer.form.lane.name
        low: ir.Value = constant(0)
        high: ir.Value = greatest(self.count, 0)
        for limit in limits:
            by = limit.index.stride(lane)
            rest = Affine.of(
                limit.index.constant, {n: c for n, c in limit.index.terms if n != lane}
            )
            value = self.writer.sizes.value
            at = home.scalar(to_expr(rest))
            at = home.name(plus(at, times(self.at, value(by))))
            below = quotient_up(greatest(minus(constant(0), at), 0), value(by))
            above = quotient_up(greatest(minus(value(limit.extent), at), 0), value(by))
            low, high = home.name(greatest(low, below)), home.name(least(high, above))
        if spread > 1:
            behind = plus(times(minus(high, constant(1)), spread), 1)
            high = home.name(either(compare("greater", high, 0), behind, constant(0)))
            low = home.name(times(low, spread))
        masks: list[ir.Value] = []
        for part in range(spread):
            mask: ir.Value = first_lanes(minus(high, constant(part * lanes)), lanes)
            if limits:
                before = first_lanes(minus(low, constant(part * lanes)), lanes)
                mask = operate("and", mask, operate("not", before))
            masks.append(home.name(mask))
        return masks


def _own_strides(form: Sliding) -> Affine:
    """Where an element of the result lies."""
    terms = {}
    stride = as_size(1)
    for axis in reversed((*form.outer, form.lane)):
        terms[axis.name] = stride
        stride = stride * axis.extent
    return Affine.of(as_size(0), terms)


def _picked(part: int, stride: int, lanes: int) -> tuple[int, ...]:
    """Lanes for the positions up to those of a part, out of what is chosen and that part."""
    picked = []
    for lane in range(lanes):
        number_, inside = divmod(lane * stride, lanes)
        if number_ == part:
            picked.append(lanes + inside)
        else:
            picked.append(inside if part == 1 and number_ == 0 else lane)
    return tuple(picked)
