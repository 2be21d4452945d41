"""Blocks of result vectors that are reduced together, in shared loops over the reduced axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, zip_longest

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop, near
from anydim.compiler.kernels.codegen.reduction import (
    accumulate,
    identity,
    is_product,
    neutral_element,
    terms_of,
)
from anydim.compiler.kernels.codegen.register_transpose import strided_lanes
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.ir import constant, select, shuffle, splat
from anydim.compiler.kernels.matmul.epilogue import PRODUCT
from anydim.compiler.kernels.window_reduction.window_columns import (
    Columns,
    Setting,
    inside,
    narrow_range,
)
from anydim.compiler.kernels.window_reduction.window_form import Limit, Window, WindowForm
from anydim.lang.tree import Apply, Axis, Cast, Expr, Literal, Read
from anydim.lang.tree.affine import Affine, to_expr
from anydim.sizes import Size

Tap = tuple[int, tuple[Expr, tuple[Window, ...]]]
"""(vector, (reduced expression, its windows))."""
Rows = tuple[tuple[Limit, ...], ...]  # limits of each window that are uniform over the lanes


@dataclass(frozen=True)
class Cell:
    """One vector: its columns, the indices of its first lane, its distance from the first vector.

    Vectors `by` (axis, distance) apart share loads. `inside` masks the existing lanes where they
    differ from those of the columns.
    """

    columns: Columns
    indices: Mapping[str, ir.Value]
    by: tuple[str, int] | None = None
    inside: ir.Value | None = None

    @property
    def mask(self) -> ir.Value | None:
        return self.inside or self.columns.inside


class Block:
    """Emits the reduction of several vectors, and their epilogue.

    Limits that are `known` to hold are not checked. Rows from `high` on do not exist.
    """

    def __init__(
        self, setting: Setting, scope: ScalarLowering, cells: Sequence[Cell],
        known: frozenset[Limit], high: ir.Value | None = None,
    ) -> None:  # fmt: skip
        self.setting, self.cells, self.known, self.high = setting, cells, known, high
        self.scope = scope
        self.vector = ir.Type(setting.form.dtype, setting.lanes)
        self.outside = self._sharing_steps(
            [self._inner(scope, cell) for cell in cells], scope.steps
        )
        self.scopes = self.outside
        self.registers = [setting.context.fresh("a") for _ in cells]
        self.found: dict[object, ir.Value] = {}
        self.masks: list[list[dict[object, list[ir.Value]]]] = [[{} for _ in cells] for _ in "ab"]

    def steps(self) -> tuple[ir.Step, ...]:
        """The loops over the reduced axes that are not unrolled, with the taps inside, and the
        stores."""
        form, context = self.setting.form, self.setting.context
        start = start_of(form, self.setting.lanes)
        self.scope.steps += [ir.Declare(register, start) for register in self.registers]
        nest = []
        for axis in form.loops:
            name, outer = context.fresh("k"), self.scopes
            at = {axis.name: ir.Var(ir.INDEX, name)}
            span = self._span(axis, outer[0])
            self.scopes = self._sharing_steps([scope.inner(at) for scope in outer], [])
            nest.append((name, span, outer[0].steps))
        for taps in self._grouped_taps():
            copy, (_, windows) = taps[0]
            limits_to_check = dict.fromkeys(
                self._unproved_limits(copy, window) for window in windows
            )
            self.scopes[0].steps += self._accumulate_taps(
                taps, [limits for limits in limits_to_check if limits]
            )
        inner = self.scopes[0].steps
        for name, span, outside in reversed(nest):
            outside.append(loop(name, *span, 1, *inner))
            inner = outside
        for copy in range(len(self.cells)):
            self._epilogue(copy)
        return tuple(self.scope.steps)

    def _span(self, axis: Axis, scope: ScalarLowering) -> tuple[ir.Value, ir.Value]:
        """The taps of a loop that may be in bounds: for a single vector, only those in bounds for
        all lanes.

        Other limits are checked inside the loop.
        """
        form, value = self.setting.form, self.setting.context.sizes.value
        span: tuple[ir.Value, ir.Value] = constant(0), value(axis.extent)
        if len(self.cells) > 1:
            return span
        for limit in _common(form):
            by, moving = limit.index.stride(axis.name), {a.name for a in form.loops} - {axis.name}
            alone = not moving & set(limit.index.indices) and (by.constant or 0) > 0
            if alone and self.cells[0].columns.uniform(limit) and limit not in self.known:
                first = scope.scalar(to_expr(limit.index.without(axis.name)))
                span = narrow_range(scope, *span, first, value(limit.extent) - first, value(by))
                self.known |= {limit}
        return span

    def _grouped_taps(self) -> Iterator[list[Tap]]:
        """Taps in program order for each vector, grouped by the rows they read."""
        queues = [self._runs(copy) for copy in range(len(self.cells))]
        while any(queues):
            heads = [queue[0][0] for queue in queues if queue]
            later = {rows for queue in queues for rows, _ in queue[1:]}
            chosen = next((rows for rows in heads if rows not in later), heads[0])
            first = [queue for queue in queues if queue and queue[0][0] == chosen]
            taken = zip_longest(*(queue.pop(0)[1] for queue in first))
            yield [tap for taps in taken for tap in taps if tap is not None]

    def _runs(self, copy: int) -> list[tuple[Rows, list[Tap]]]:
        """The taps of a vector, with adjacent taps that read the same rows as one run."""
        cell = self.cells[copy]

        def rows(tap: Tap) -> Rows:
            return tuple(
                tuple(limit.shift(*cell.by or ("", 0)) for limit in self._uniform(cell, window))
                for window in tap[1][1]
            )

        taps = [(copy, each) for each in self.setting.form.bodies]
        return [(key, list(run)) for key, run in groupby(taps, rows)]

    def _uniform(self, cell: Cell, window: Window) -> list[Limit]:
        """The limits of a window that are uniform over the lanes."""
        limits = (*window.limits, *(window.beyond if self.high is not None else ()))
        return [limit for limit in limits if cell.columns.uniform(limit)]

    def _unproved_limits(self, copy: int, window: Window) -> tuple[Limit, ...]:
        """The limits to check before a window is read."""
        cell = self.cells[copy]
        found = (limit for limit in self._uniform(cell, window) if limit not in self.known)
        return tuple(limit.shift(*cell.by or ("", 0)) for limit in found)

    def _accumulate_taps(
        self, taps: Sequence[Tap], to_check: Sequence[tuple[Limit, ...]],
        absent: frozenset[tuple[Limit, ...]] = frozenset(),
    ) -> list[ir.Step]:  # fmt: skip
        """Some taps accumulated, under branches on the limits in `to_check`.

        Windows with a limit in `absent` are out of bounds; their taps are skipped where they are
        neutral.
        """
        if to_check:
            first, rest = to_check[0], to_check[1:]
            home = taps[0][0] if self.cells[taps[0][0]].by is None else 0
            flag = self._in_bounds(home, first)
            branches = [
                tuple(self._accumulate_taps(taps, rest, outside_limits))
                for outside_limits in (absent, absent | {first})
            ]
            return [ir.If(flag, *branches)]
        steps, loaded = list[ir.Step](), dict[object, ir.Value]()
        for copy, (expr, windows) in taps:
            outside = [w for w in windows if self._unproved_limits(copy, w) in absent]
            if any(is_neutral(w.read, expr, self.setting.form) for w in outside):
                continue
            answers = frozenset(window.read.tensor for window in windows)
            scope = self.scopes[copy].inner({}, answers=answers)
            scope.steps = steps
            for window in windows:
                default = window.read.default if window in outside else None
                if default is None:
                    value = self._window(copy, window, scope, loaded)
                else:
                    value = scope.value(default, self._dtype(window))
                scope.know(window.read, value)
            old = ir.Get(self.vector, self.registers[copy])
            found = accumulate_tap(self.setting.form, scope, expr, old)
            steps.append(ir.Assign(self.registers[copy], found))
        return steps

    def _inner(self, scope: ScalarLowering, cell: Cell, **more: object) -> ScalarLowering:
        lane = self.setting.form.lane.name
        indices, lanes = {**cell.indices, lane: cell.columns.at}, self.setting.lanes
        return scope.inner(indices, lane=lane, lanes=lanes, mask=cell.mask, **more)  # type: ignore[arg-type]

    def _sharing_steps(
        self, scopes: list[ScalarLowering], steps: list[ir.Step]
    ) -> list[ScalarLowering]:
        """Make scopes append to one list of steps."""
        for scope in scopes:
            scope.steps = steps
        return scopes

    def _epilogue(self, copy: int) -> None:
        """The epilogue of a vector, and its stores."""
        context, cell = self.setting.context, self.cells[copy]
        total = ir.Var(self.vector, context.fresh())
        at = self._inner(self.scope, cell)
        known = {**cell.columns.pseudo_tensors(at), PRODUCT: total}
        scope = self._inner(
            self.scope, cell, local=lambda read: known.get(read.tensor), answers=frozenset(known)
        )
        scope.steps += [*at.steps, ir.Let(total.name, ir.Get(self.vector, self.registers[copy]))]
        for output in self.setting.form.outputs:
            result = cell.columns.result(output)
            value = scope.value(result, context.types[output.tensor].dtype)
            offset = scope.offset(self.setting.form.own)
            scope.steps.append(ir.Store(context.buffers[output.tensor], offset, value, cell.mask))
        steps = tuple(scope.steps)
        axis, by = cell.by or ("", 0)
        if self.high is not None and by and axis in cell.indices:
            steps = (ir.If(cell.indices[axis] < self.high, steps),)
        self.scope.steps += steps

    # ---- windows -------------------------------------------------------------------------------

    def _dtype(self, window: Window) -> DType:
        return self.setting.context.types[window.read.tensor].dtype

    def _window(
        self, copy: int, window: Window, scope: ScalarLowering, loaded: dict[object, ir.Value]
    ) -> ir.Value:
        """The lanes of a window whose rows are in bounds; the default where columns are not."""
        cell, home, unproved = self.cells[copy], copy, self._unproved_limits(copy, window)
        limits = tuple(
            x for x in window.limits if x not in self.known and not cell.columns.uniform(x)
        )
        window = replace(window, limits=limits, beyond=())
        if cell.by is not None:
            window, home = window.shift(*cell.by), 0
        read = window.read
        key = (read.tensor, read.default, window.address, window.stride, window.limits)
        same = (*key, id(cell.columns), home)
        if same not in loaded:
            loaded[same] = self._load(copy, home, window, unproved, scope)
        return loaded[same]

    def _load(
        self, copy: int, home: int, window: Window, unproved: tuple[Limit, ...],
        into: ScalarLowering,
    ) -> ir.Value:  # fmt: skip
        setting, cell, scope = self.setting, self.cells[copy], self.scopes[home]
        columns, first = cell.columns, self.cells[home].columns.at
        vector = ir.Type(self._dtype(window), setting.lanes)
        level = partial(self._level, home, columns)
        masks = partial(columns.masks, level, scope, first, cell.mask, window.limits)
        start, found = self._start(home, first, window, unproved), None
        for part, mask in enumerate(masks(columns.spread(window))):
            at = start + part * setting.lanes
            load = into.name(columns.load(vector, window, at, mask))
            if found is not None:
                lanes = strided_lanes(part, window.stride, setting.lanes)
                load = into.name(shuffle(found, load, lanes))
            found = load
        assert found is not None
        default = window.read.default
        if default is None or not window.limits:
            return found
        other = scope.scalar(default, vector.dtype)
        if isinstance(other, ir.Const) and other.value == 0:
            return found
        (inside,) = masks(1)
        assert inside is not None
        return into.name(select(inside, found, splat(other, setting.lanes)))

    def _start(
        self, home: int, at: ir.Value, window: Window, unproved: tuple[Limit, ...]
    ) -> ir.Value:
        """Offset of the first lane; windows a constant distance apart share everything but the
        constant.

        A select is computed before the loops, where it does not become part of each address.
        """
        scope, form = self.scopes[home], window.address
        fixed = whole_number(form.constant)
        rest = Affine(form.constant - fixed, form.terms).without(self.setting.form.lane.name)
        key = (rest, window.stride, unproved, home)
        if key not in self.found:
            moving = {axis.name for axis in self.setting.form.loops}
            outer = rest.without(*moving)
            inner = rest - outer
            first = scope.scalar(to_expr(outer)) + at * window.stride
            # The select stands before the loops, where it costs nothing per tap.
            if unproved and moving and not any(moving & set(x.index.indices) for x in unproved):
                first = self.outside[home].name(near(first, self._in_bounds(home, unproved)))
            self.found[key] = scope.name(first + scope.scalar(to_expr(inner)))
        return self.found[key] + fixed

    def _level(
        self, home: int, columns: Columns, limits: tuple[Limit, ...]
    ) -> tuple[ScalarLowering, dict[object, list[ir.Value]]]:
        """The scope in which masks of limits are computed: outside the loops, if possible."""
        used = {name for limit in limits for name in limit.index.indices}
        if used & {axis.name for axis in self.setting.form.loops}:
            return self.scopes[home], self.masks[1][home]
        if used & set(self.cells[home].indices):
            return self.outside[home], self.masks[0][home]
        return columns.scope, columns.found

    def _in_bounds(self, home: int, limits: Sequence[Limit]) -> ir.Value:
        """Whether the indices of uniform limits are in bounds.

        Computed before the loops if invariant: addresses computed there use it too.
        """
        result: ir.Value | None = None
        within = False
        loops = {axis.name for axis in self.setting.form.loops}
        for limit in limits:
            inner = bool(loops & set(limit.index.indices))
            within = within or inner
            scope = (self.scopes if inner else self.outside)[home]
            key = (limit, home)
            if key not in self.found:
                self.found[key] = inside(scope, limit)
            flag = self.found[key]
            both_key = (result, flag)
            if result is not None and both_key not in self.found:
                both = (self.scopes if within else self.outside)[home]
                self.found[both_key] = both.name(result & flag)
            result = flag if result is None else self.found[both_key]
        assert result is not None
        return result


def _common(form: WindowForm) -> Iterator[Limit]:
    """The limits that all taps have, and that make every tap neutral outside."""
    _, windows = form.bodies[0]
    for limit in dict.fromkeys(limit for window in windows for limit in window.limits):
        if all(
            any(limit in w.limits and is_neutral(w.read, e, form) for w in found)
            for e, found in form.bodies
        ):
            yield limit


def accumulate_tap(form: WindowForm, scope: ScalarLowering, expr: Expr, old: ir.Value) -> ir.Value:
    """The accumulator combined with the value of one tap."""
    return accumulate(
        form.combine, old, terms_of(scope, expr, form.combine, form.dtype, form.dtype)
    )


def is_neutral(read: Read, expr: Expr, form: WindowForm) -> bool:
    """Whether the default of a read makes a tap neutral, as 0 times w in a sum."""
    if read.default is None:
        return True  # only rows that the result does not have
    if form.combine == "add" and isinstance(expr, Apply) and is_product(expr):
        return any(_outside(factor, read) == 0 for factor in expr.arguments)
    bound = _known_bound(read, expr, form)
    outside = _outside(expr, read) if bound is not None else None
    return outside is not None and outside == bound


def start_of(form: WindowForm, lanes: int) -> ir.Value:
    """The initial value of a reduction: the default of reads out of bounds, where that is
    neutral."""
    found = {
        _known_bound(window.read, expr, form) or 0
        for expr, windows in form.bodies
        for window in windows
        if window.limits and isinstance(expr, Cast) and is_neutral(window.read, expr, form)
    }
    if len(found) != 1:
        return neutral_element(form.combine, form.dtype, lanes)
    return ir.number(form.dtype, found.pop(), lanes)


def _known_bound(read: Read, expr: Expr, form: WindowForm) -> int | float | None:
    """The lower bound of an expression for maxima, the upper bound for minima; None if unknown."""
    kind = read.default.dtype if isinstance(read.default, Literal) else None
    if isinstance(expr, Cast) and expr.argument == read and kind is not None and kind.is_integer:
        wider = expr.dtype.is_integer and expr.dtype.bits > kind.bits  # all its numbers fit
        return identity(form.combine, kind) if wider and form.combine in ("max", "min") else None
    return identity(form.combine, form.dtype) if expr == read else None


def _outside(expr: Expr, read: Read) -> int | float | None:
    """The value of an expression where a read is out of bounds (for int8, zero point minus zero
    point); None where unknown."""
    match expr:
        case Literal(value=number):
            return number
        case Read(default=default):
            return _outside(default, read) if expr == read and default is not None else None
        case Cast(dtype=dtype, argument=argument) if dtype.is_integer:
            value, (low, high) = _outside(argument, read), dtype.range
            return value if isinstance(value, int) and low <= value <= high else None
        case Apply(function="sub", arguments=(one, other)):
            left, right = _outside(one, read), _outside(other, read)
            return 0 if left is not None and left == right else None
    return None


def whole_number(size: Size) -> int:
    """The constant part of a size."""
    return size.coefficients.get((), 0)
