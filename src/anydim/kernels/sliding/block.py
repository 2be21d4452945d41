"""Vectors of the result that are reduced at the same time, in shared loops over what is reduced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.product.epilogue import PRODUCT
from anydim.kernels.rows.cells import identity, is_product
from anydim.kernels.sliding.columns import Columns, Setting, without
from anydim.kernels.sliding.form import Limit, Sliding, Window
from anydim.kernels.write.arithmetic import compare, constant, plus, times
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.values import near, number, operate, splat
from anydim.lang.tree import Apply, Expr
from anydim.lang.tree.affine import Affine, to_expr
from anydim.sizes import Size


@dataclass(frozen=True)
class Cell:
    """One vector: its columns, the indices of its first lane, how far it lies behind the first.

    Vectors `by` a number further along an axis share what they load. `inside` are the lanes that
    exist, where those are not the ones of the columns.
    """

    columns: Columns
    indices: Mapping[str, ir.Value]
    by: tuple[str, int] | None = None
    inside: ir.Value | None = None

    @property
    def mask(self) -> ir.Value | None:
        return self.inside or self.columns.inside


class Block:
    """Writes the reduction of some vectors and what follows it.

    What windows may leave is not asked where it is `known`. Rows from `high` on do not exist.
    """

    def __init__(
        self, setting: Setting, scope: Elements, cells: Sequence[Cell],
        known: frozenset[Limit], high: ir.Value | None = None,
    ) -> None:  # fmt: skip
        self.setting, self.cells, self.known, self.high = setting, cells, known, high
        self.scope = scope
        self.vector = ir.Type(setting.form.dtype, setting.lanes)
        self.outside = self._joined([self._inner(scope, cell) for cell in cells], scope.steps)
        self.scopes = self.outside
        self.registers = [setting.context.fresh("a") for _ in cells]
        self.found: dict[object, ir.Value] = {}
        self.masks: list[list[dict[object, list[ir.Value]]]] = [[{} for _ in cells] for _ in "ab"]

    def steps(self) -> tuple[ir.Step, ...]:
        """The loops over the reduced axes that are not unrolled, the taps inside, the stores."""
        form, context = self.setting.form, self.setting.context
        start = number(form.dtype, identity(form.combine, form.dtype), self.setting.lanes)
        self.scope.steps += [ir.Declare(register, start) for register in self.registers]
        nest = []
        for axis in form.loops:
            name, outer = context.fresh("k"), self.scopes
            at = {axis.name: ir.Var(ir.INDEX, name)}
            self.scopes = self._joined([scope.inner(at) for scope in outer], [])
            nest.append((name, self.setting.context.sizes.value(axis.extent), outer[0].steps))
        for turn in range(len(form.bodies) + len(self.cells) - 1):
            for copy in range(len(self.cells)):
                if 0 <= turn - copy < len(form.bodies):
                    self._fold(copy, *form.bodies[turn - copy])
        inner = self.scopes[0].steps
        for name, extent, outside in reversed(nest):
            outside.append(ir.For(name, constant(0), extent, constant(1), tuple(inner)))
            inner = outside
        for copy in range(len(self.cells)):
            self._finish(copy)
        return tuple(self.scope.steps)

    def _inner(self, scope: Elements, cell: Cell, **more: object) -> Elements:
        lane = self.setting.form.lane.name
        indices = {**cell.indices, lane: cell.columns.at}
        lanes = self.setting.lanes
        return scope.inner(indices, lane=lane, lanes=lanes, mask=cell.mask, **more)  # type: ignore[arg-type]

    def _joined(self, scopes: list[Elements], steps: list[ir.Step]) -> list[Elements]:
        """Scopes whose steps are the same ones."""
        for scope in scopes:
            scope.steps = steps
        return scopes

    def _fold(self, copy: int, expr: Expr, windows: tuple[Window, ...]) -> None:
        """Combine one tap's value with an accumulator."""
        form, scope = self.setting.form, self.scopes[copy]
        for window in windows:
            scope.know(window.read, self._window(copy, window))
        found = combined(form, scope, expr, ir.Get(self.vector, self.registers[copy]))
        scope.steps.append(ir.Assign(self.registers[copy], found))

    def _finish(self, copy: int) -> None:
        """Everything that follows the reduction, and the stores."""
        context, cell = self.setting.context, self.cells[copy]
        total = ir.Var(self.vector, context.fresh())
        at = self._inner(self.scope, cell)
        known = {**cell.columns.known(at), PRODUCT: total}
        scope = self._inner(
            self.scope, cell, local=lambda read: known.get(read.tensor), answers=frozenset(known)
        )
        scope.steps += [*at.steps, ir.Let(total.name, ir.Get(self.vector, self.registers[copy]))]
        for output in self.setting.form.outputs:
            result = cell.columns.result(output)
            value = scope.value(result, context.types[output.tensor].dtype)
            place = scope.offset(self.setting.form.own)
            scope.steps.append(ir.Store(context.buffers[output.tensor], place, value, cell.mask))
        steps = tuple(scope.steps)
        axis, by = cell.by or ("", 0)
        if self.high is not None and by and axis in cell.indices:
            steps = (ir.If(compare("less", cell.indices[axis], self.high), steps),)
        self.scope.steps += steps

    # ---- windows -------------------------------------------------------------------------------

    def _window(self, copy: int, window: Window) -> ir.Value:
        """The lanes of a window; its default where they leave the tensor."""
        cell = self.cells[copy]
        asked = (*window.limits, *(window.beyond if self.high is not None else ()))
        limits = tuple(limit for limit in asked if limit not in self.known)
        window = replace(window, limits=limits, beyond=())
        home = copy
        if cell.by is not None:
            window, home = window.moved(*cell.by), 0
        read = window.read
        key = (read.tensor, read.default, window.address, window.stride, window.limits)
        same = (*key, id(cell.columns), home)
        if same not in self.found:
            self.found[same] = self._load(copy, home, window)
        return self.found[same]

    def _load(self, copy: int, home: int, window: Window) -> ir.Value:
        setting, cell, scope = self.setting, self.cells[copy], self.scopes[home]
        columns, first = cell.columns, self.cells[home].columns.at
        dtype = setting.context.types[window.read.tensor].dtype
        vector = ir.Type(dtype, setting.lanes)
        limits = tuple(limit for limit in window.limits if not columns.uniform(limit))
        fine = self._fine(home, [limit for limit in window.limits if columns.uniform(limit)])
        level = partial(self._level, home, columns)

        def masks(spread: int) -> list[ir.Value | None]:
            found = columns.masks(level, scope, first, cell.mask, limits, spread)
            if fine is None:
                return found
            each = splat(fine, setting.lanes)
            return [
                each if mask is None else scope.name(operate("and", mask, each)) for mask in found
            ]

        start, found = self._start(home, first, window, fine), None
        for part, mask in enumerate(masks(columns.spread(window))):
            at = plus(start, part * setting.lanes)
            load = scope.name(columns.load(vector, window, at, mask))
            if found is not None:
                picked = _picked(part, window.stride, setting.lanes)
                load = scope.name(ir.Shuffle(vector, found, load, picked))
            found = load
        assert found is not None
        default = window.read.default
        if default is None or not window.limits:
            return found
        other = scope.scalar(default, dtype)
        if isinstance(other, ir.Const) and other.value == 0:
            return found
        (inside,) = masks(1)
        assert inside is not None
        return scope.name(operate("select", inside, found, splat(other, setting.lanes)))

    def _start(self, home: int, at: ir.Value, window: Window, fine: ir.Value | None) -> ir.Value:
        """Where the first lane lies; windows some elements apart share all but these."""
        scope, form = self.scopes[home], window.address
        fixed = whole_number(form.constant)
        rest = without(Affine(form.constant - fixed, form.terms), self.setting.form.lane.name)
        key = (rest, window.stride, fine, home)
        if key not in self.found:
            first = plus(scope.scalar(to_expr(rest)), times(at, window.stride))
            self.found[key] = scope.name(first if fine is None else near(first, fine))
        return plus(self.found[key], fixed)

    def _level(
        self, home: int, columns: Columns, limits: tuple[Limit, ...]
    ) -> tuple[Elements, dict[object, list[ir.Value]]]:
        """Where what depends on limits is computed: before the loops, where it can be."""
        used = {name for limit in limits for name in limit.index.indices}
        if used & {axis.name for axis in self.setting.form.loops}:
            return self.scopes[home], self.masks[1][home]
        if used & set(self.cells[home].indices):
            return self.outside[home], self.masks[0][home]
        return columns.scope, columns.found

    def _fine(self, home: int, limits: list[Limit]) -> ir.Value | None:
        """Whether the indices that are the same for all lanes are inside."""
        result: ir.Value | None = None
        loops = {axis.name for axis in self.setting.form.loops}
        for limit in limits:
            inner = bool(loops & set(limit.index.indices))
            scope = (self.scopes if inner else self.outside)[home]
            key = (limit, home)
            if key not in self.found:
                at = scope.scalar(to_expr(limit.index))
                extent = self.setting.context.sizes.value(limit.extent)
                both = (compare("greater_equal", at, 0), compare("less", at, extent))
                self.found[key] = scope.name(ir.Op(ir.FLAG, "and", both))
            flag = self.found[key]
            both_key = (result, flag)
            if result is not None and both_key not in self.found:
                self.found[both_key] = self.scopes[home].name(operate("and", result, flag))
            result = flag if result is None else self.found[both_key]
        return result


def combined(form: Sliding, scope: Elements, expr: Expr, old: ir.Value) -> ir.Value:
    """What is reduced so far with one tap's value."""
    if form.combine == "add" and form.dtype.is_float and is_product(expr):
        assert isinstance(expr, Apply)
        left, right = (scope.value(part, form.dtype) for part in expr.arguments)
        return operate("fma", left, right, old)
    return operate(form.combine, old, scope.value(expr, form.dtype))


def whole_number(size: Size) -> int:
    """The part of a size that is the same for all sizes."""
    return size.coefficients.get((), 0)


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
