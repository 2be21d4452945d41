"""The inside of sliding kernels: one row of the result, windows loaded, folded and finished."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import int64
from anydim.kernels import ir
from anydim.kernels.launch import Machine
from anydim.kernels.product.epilogue import PRODUCT, Output
from anydim.kernels.rows.cells import identity, is_product
from anydim.kernels.sliding.form import Limit, Sliding, Window
from anydim.kernels.sliding.merged import COLUMN, ROW, Image, Lanes, image_of, inside, without
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
    quotient,
    quotient_up,
    round_down,
    split_index,
    times,
    variable,
)
from anydim.kernels.write.elements import Context, Elements, SizeParameters
from anydim.kernels.write.loops import parallel_loop
from anydim.kernels.write.values import convert, near, number, operate, splat
from anydim.lang.tree import Apply, Axis, Expr, Group, Index, Read, Tensor, TensorType
from anydim.lang.tree.affine import Affine, rewrite, to_expr
from anydim.sizes import Box, Size, as_size

_MERGED = 2  # vectors side by side where rows are merged


class SlidingWriter:
    """Writes the body of one kernel, and collects the sizes it needs."""

    def __init__(
        self, group: Group, form: Sliding, lanes: int, vectors: int, machine: Machine,
        tensors: Sequence[Tensor], box: Box,
    ) -> None:  # fmt: skip
        self.form, self.lanes, self.vectors = form, lanes, vectors
        self.buffers = {tensor.name: f"t{number}" for number, tensor in enumerate(tensors)}
        self.sizes = SizeParameters()
        self.types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
        self.types[PRODUCT] = TensorType(form.dtype, ())
        self.types |= {name: TensorType(int64, ()) for name in (ROW, COLUMN)}
        self.context = Context(self.types, self.sizes, machine, self.buffers)
        self.vector = ir.Type(form.dtype, lanes)
        self.scratch = as_size(0)
        self.wide = machine.lanes(form.dtype)
        self.image = image_of(form, lanes, self.wide, box)

    def body(self) -> tuple[ir.Step, ...]:
        """The steps of main: rows from start to stop, merged where they are short."""
        rows = self._rows()
        if self.image is None:
            return rows
        merged = self.image.worth_it(self.sizes, self.lanes, self.wide)
        self.lanes = self.wide
        self.vector = ir.Type(self.form.dtype, self.lanes)
        return (ir.If(merged, self._images(self.image), rows),)

    def _images(self, image: Image) -> tuple[ir.Step, ...]:
        """The rows from start to stop, those of an image as one."""
        scope, outer = Elements(self.context), self.form.outer[:-1]
        height, width = (self.sizes.value(axis.extent) for axis in (image.rows, image.columns))
        inner = scope.inner({axis.name: variable(f"image_{axis.name}") for axis in outer})
        extents = ((f"image_{a.name}", self.sizes.value(a.extent)) for a in reversed(outer))
        before = times(variable("image"), height)
        low = greatest(minus(variable("start"), before), 0)
        high = least(minus(variable("stop"), before), height)
        first, last = (inner.name(times(row, width)) for row in (low, high))
        pairs = inner.name(plus(first, round_down(minus(last, first), _MERGED * self.lanes)))
        self._vectors(inner, image, first, pairs, _MERGED)
        self._vectors(inner, image, pairs, last, 1)
        body = [*split_index("image", *extents), *inner.steps]
        images = quotient(variable("start"), height), quotient_up(variable("stop"), height)
        scope.steps.append(loop("image", *images, 1, *body))
        return (ir.If(compare("less", variable("start"), variable("stop")), tuple(scope.steps)),)

    def _vectors(
        self, scope: Elements, image: Image, low: ir.Value, high: ir.Value, count: int
    ) -> None:
        """The elements low ... high of an image, so many vectors at a time."""
        block, at = scope.inner({}), self.context.fresh("at")
        cells = [_MergedCell(self, block, variable(at), copy, high, image) for copy in range(count)]
        self._finished(block, cells)
        scope.steps.append(loop(at, low, high, self.lanes * count, *block.steps))

    def _finished(self, block: Elements, cells: Sequence[_Cell]) -> None:
        self._reduced(block, cells, list(self.form.loops))
        for cell in cells:
            cell.finish()

    def _rows(self) -> tuple[ir.Step, ...]:
        scope = Elements(self.context)
        axes = [(axis.name, self.sizes.value(axis.extent)) for axis in self.form.outer]
        parallel_loop(scope, axes, self._row)
        return tuple(scope.steps)

    def _row(self, row: Elements) -> None:
        """All vectors of a row, a block of them at a time."""
        extent = self.sizes.value(self.form.lane.extent)
        block = row.inner({})
        cells = [_Cell(self, block, variable("at"), copy, extent) for copy in range(self.vectors)]
        self._finished(block, cells)
        row.steps.append(loop("at", 0, extent, self.lanes * self.vectors, *block.steps))

    def _reduced(self, block: Elements, cells: Sequence[_Cell], loops: list[Axis]) -> None:
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
    cells: Sequence[_Cell],
    scopes: list[Elements],
    opened: list[tuple[str, ir.Value]],
    block: Elements,
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

    def __init__(
        self, writer: SlidingWriter, block: Elements, first: ir.Value, copy: int, extent: ir.Value
    ) -> None:
        self.writer, self.block = writer, block
        form, lanes, context = writer.form, writer.lanes, writer.context
        self.at = block.name(plus(first, copy * lanes))
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
        scope.steps.append(ir.Assign(self.register, combined(form, scope, expr, old)))

    def finish(self) -> None:
        """Everything that follows the reduction, and the stores."""
        form, writer = self.writer.form, self.writer
        total = ir.Var(writer.vector, writer.context.fresh())
        self.block.steps.append(ir.Let(total.name, ir.Get(writer.vector, self.register)))

        known = {PRODUCT: total, **self._known()}
        scope = self.block.inner(
            {form.lane.name: self.at}, lane=form.lane.name, lanes=writer.lanes, mask=self.inside,
            local=lambda read: known.get(read.tensor), answers=frozenset(known),
        )  # fmt: skip
        for output in form.outputs:
            value = scope.value(self._result(output), writer.types[output.tensor].dtype)
            place = self._place(scope)
            scope.steps.append(ir.Store(writer.buffers[output.tensor], place, value, self.inside))
        self.block.steps += scope.steps

    def _known(self) -> dict[str, ir.Value]:
        """What an output may read beside the sums that is no tensor."""
        return {}

    def _result(self, output: Output) -> Expr:
        return output.value

    def _place(self, scope: Elements) -> ir.Value:
        """Where the first lane is stored."""
        return scope.offset(self.writer.form.own)

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


class _MergedCell(_Cell):
    """One vector of an image whose rows are merged."""

    def __init__(
        self, writer: SlidingWriter, block: Elements, first: ir.Value, copy: int, extent: ir.Value,
        image: Image,
    ) -> None:  # fmt: skip
        super().__init__(writer, block, first, copy, extent)
        self.image = image
        width = writer.sizes.value(image.columns.extent)
        self.lanes = Lanes.at(block, self.at, width, writer.lanes)
        self.offsets: dict[tuple[Size, ...], ir.Value] = {}

    def _known(self) -> dict[str, ir.Value]:
        places = zip((ROW, COLUMN), (self.lanes.row, self.lanes.column))
        return {name: self.block.name(convert(place, int64)) for name, place in places}

    def _result(self, output: Output) -> Expr:
        """Rows and columns are those of each lane."""
        names = dict(zip(self.image.names, (ROW, COLUMN)))
        own = tuple(map(Index, self.image.names))

        def change(part: Expr) -> Expr | None:
            if isinstance(part, Index) and part.name in names:
                return Read(names[part.name], own)
            return None

        return output.value if output.is_product else rewrite(output.value, change)

    def _place(self, scope: Elements) -> ir.Value:
        rows = without(self.writer.form.own, self.image.names)
        return plus(scope.scalar(to_expr(rows)), self.at)

    def _load(self, scope: Elements, window: Window) -> ir.Value:
        start = scope.scalar(to_expr(without(window.address, self.image.names)))
        (mask,) = self._range(scope, window, 1)
        vector = ir.Type(self._dtype(window), self.writer.lanes)
        buffer = self.writer.buffers[window.read.tensor]
        load: ir.Value
        if self.image.gathered:
            offsets = operate("add", self._apart(window), splat(start, self.writer.lanes))
            load = ir.Gather(vector, buffer, scope.name(offsets), mask)
        else:
            load = ir.Load(vector, buffer, scope.name(near(plus(start, self.at), mask)), mask)
        return self._defaulted(scope, window, scope.name(load), None)

    def _apart(self, window: Window) -> ir.Value:
        """How far apart the elements are that the lanes read, as int64."""
        strides = tuple(window.address.stride(name) for name in self.image.names)
        if strides not in self.offsets:
            lanes, size = self.writer.lanes, self.writer.sizes.value
            row, column = (
                operate("mul", convert(place, int64), splat(size(stride), lanes))
                for place, stride in zip((self.lanes.row, self.lanes.column), strides)
            )
            self.offsets[strides] = self.block.name(operate("add", row, column))
        return self.offsets[strides]

    def _range(self, scope: Elements, window: Window, spread: int) -> list[ir.Value]:
        """The lanes that are inside of all limits."""
        mask = self.inside
        for limit in window.limits:
            key = (limit.index, limit.extent)
            home = self._home(scope, limit.index)
            if key not in self.masks or home is scope:
                extent = self.writer.sizes.value(limit.extent)
                self.masks[key] = [inside(home, limit, self.image, self.lanes, extent)]
            mask = scope.name(operate("and", mask, self.masks[key][0]))
        return [mask]


def combined(form: Sliding, scope: Elements, expr: Expr, old: ir.Value) -> ir.Value:
    """What is reduced so far with one tap's value."""
    if form.combine == "add" and form.dtype.is_float and is_product(expr):
        assert isinstance(expr, Apply)
        left, right = (scope.value(part, form.dtype) for part in expr.arguments)
        return operate("fma", left, right, old)
    return operate(form.combine, old, scope.value(expr, form.dtype))


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
