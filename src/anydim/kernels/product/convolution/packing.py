"""Bringing the operands of a convolution into place: windows of x as rows of B, weights as A.

    b[k, p] = x[position(k, p)], 0 outside x     k over the channels of a chunk and all taps

Vectors run along the last axis of the places; for each of them and each tap one loop over the
channels loads and stores. Strides up to 4 load all they step over and shuffle, larger ones gather.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydim.base.dtypes import int64
from anydim.kernels import ir
from anydim.kernels.product.convolution.form import Windows
from anydim.kernels.product.places import Bound
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
    times,
    variable,
)
from anydim.kernels.write.elements import SizeParameters
from anydim.kernels.write.values import operate
from anydim.sizes import product

PACK_SCALARS = ("x_at", "column", "width", "channels")
SHUFFLED_STRIDES = 4


class WindowPack:
    """Writes the function `windows`: a panel of B from `column` on, rows `row` elements apart."""

    name = "windows"

    def __init__(self, form: Windows, sizes: SizeParameters, lanes: int, row: int) -> None:
        self.form, self.sizes, self.lanes, self.row = form, sizes, lanes, row
        self.vector = ir.Type(form.dtype, lanes)
        self.last = form.places[-1]
        self.stride = int(self.last.x.constant or 1)

    def function(self) -> ir.Function:
        """dst[k, :width] for the channels from `x_at` on; call when the sizes are complete."""
        body = self._rows()
        return ir.Function(
            self.name,
            (
                ir.Pointer("x", self.form.dtype),
                ir.Pointer("dst", self.form.dtype),
                *(ir.Scalar(name) for name in (*PACK_SCALARS, *self.sizes.names)),
            ),
            body,
        )

    def _rows(self) -> tuple[ir.Step, ...]:
        """All stretches of the panel that lie in one row of places."""
        extent = self.sizes.value(self.last.extent)
        end = plus(variable("column"), variable("width"))
        start = times(variable("line"), extent)
        steps: list[ir.Step] = [
            ir.Let("row_start", start),
            ir.Let("begin", greatest(variable("column"), variable("row_start"))),
            ir.Let("end", least(end, plus(variable("row_start"), extent))),
        ]
        terms: list[ir.Value] = [variable("x_at")]
        rest: ir.Value = variable("line")
        for number, step in reversed(list(enumerate(self.form.places[:-1]))):
            name = f"place_{number}"
            if number:
                size = self.sizes.value(step.extent)
                steps.append(ir.Let(f"outer_{number}", quotient(rest, size)))
                rest_next = variable(f"outer_{number}")
                steps.append(ir.Let(name, minus(rest, times(rest_next, size))))
                rest = rest_next
            else:
                steps.append(ir.Let(name, rest))
            terms.append(times(variable(name), self.sizes.value(step.x)))
        steps.append(ir.Let("row_x", plus(*terms)))
        steps.append(loop("at", variable("begin"), variable("end"), self.lanes, *self._vector()))
        lines = plus(quotient(minus(end, constant(1)), extent), 1)
        first = quotient(variable("column"), extent)
        return (loop("line", first, lines, 1, *steps),)

    def _vector(self) -> list[ir.Step]:
        """One vector of places, for all taps; those that lanes depend on are the outer loops."""
        lanes = {bound.tap for bound in self.form.bounds if bound.place == self.last.name}
        taps = list(enumerate(self.form.taps))
        inner = self._channels()
        for number, tap in reversed([t for t in taps if t[1].name not in lanes]):
            inner = [loop(f"tap_{number}", 0, self.sizes.value(tap.extent), 1, *inner)]
        inner = [*self._inside(), *self._masks(), *inner]
        for number, tap in reversed([t for t in taps if t[1].name in lanes]):
            inner = [loop(f"tap_{number}", 0, self.sizes.value(tap.extent), 1, *inner)]
        return [
            ir.Let("place", minus(variable("at"), variable("row_start"))),
            ir.Let("count", least(minus(variable("end"), variable("at")), self.lanes)),
            ir.Let("vector_x", plus(variable("row_x"), times(variable("place"), self.stride))),
            ir.Let("vector_to", minus(variable("at"), variable("column"))),
            *inner,
        ]

    def _channels(self) -> list[ir.Step]:
        form, value = self.form, self.sizes.value
        x: list[ir.Value] = [variable("vector_x")]
        to: list[ir.Value] = []
        for number, tap in enumerate(form.taps):
            x.append(times(variable(f"tap_{number}"), value(tap.x)))
            behind = product(step.extent for step in form.taps[number + 1 :])
            to.append(times(variable(f"tap_{number}"), value(behind)))
        k = plus(*to, times(variable("channel"), value(form.window)))
        source = plus(variable("tap_x"), times(variable("channel"), value(form.channels.x)))
        target = plus(variable("vector_to"), times(k, self.row))
        return [
            ir.Let("tap_x", plus(*x)),
            *self._wanted(),
            *self._each_channel(source, target),
        ]

    def _each_channel(self, source: ir.Value, target: ir.Value) -> list[ir.Step]:
        return [
            loop(
                "channel", 0, variable("channels"), 1,
                ir.Let("from", source),
                *self._loads(),
                ir.Store("dst", target, ir.Var(self.vector, "found")),
            )
        ]  # fmt: skip

    # ---- what is inside x ----------------------------------------------------------------------

    def _inside(self) -> list[ir.Step]:
        """low and high: the lanes whose positions along their own dimension are inside."""
        low: ir.Value = constant(0)
        high: ir.Value = variable("count")
        steps: list[ir.Step] = []
        for number, bound in enumerate(self.form.bounds):
            if bound.place != self.last.name:
                continue
            extent, by = self.sizes.value(bound.extent), self.sizes.value(bound.stride)
            steps.append(ir.Let(f"base_{number}", self._position(bound)))
            at = variable(f"base_{number}")
            below = quotient_up(greatest(minus(constant(0), at), 0), by)
            above = quotient_up(greatest(minus(extent, at), 0), by)
            low, high = greatest(low, below), least(high, above)
        return [*steps, ir.Let("low", low), ir.Let("high", high)]

    def _wanted(self) -> list[ir.Step]:
        """The masks of what is loaded: none of it where another dimension is left."""
        flags = ir.Type(ir.FLAG.dtype, self.lanes)
        steps: list[ir.Step] = []
        fine: ir.Value | None = None
        for number, bound in enumerate(self.form.bounds):
            if bound.place == self.last.name:
                continue
            steps.append(ir.Let(f"base_{number}", self._position(bound)))
            at, extent = variable(f"base_{number}"), self.sizes.value(bound.extent)
            low, high = compare("greater_equal", at, 0), compare("less", at, extent)
            inside = ir.Op(ir.FLAG, "and", (low, high))
            fine = inside if fine is None else ir.Op(ir.FLAG, "and", (fine, inside))
        for number in range(self._loaded):
            mask: ir.Value = ir.Var(flags, f"mask_{number}")
            if fine is not None:
                mask = operate("and", mask, ir.Splat(flags, fine))
            steps.append(ir.Let(f"wanted_{number}", mask))
        return steps

    def _position(self, bound: Bound) -> ir.Value:
        """The position of lane 0 along a dimension of x."""
        value = self.sizes.value
        terms = [value(bound.constant)]
        if bound.place == self.last.name:
            terms.append(times(variable("place"), value(bound.stride)))
        elif bound.place:
            names = [step.name for step in self.form.places]
            place = variable(f"place_{names.index(bound.place)}")
            terms.append(times(place, value(bound.stride)))
        if bound.tap:
            names = [step.name for step in self.form.taps]
            tap = variable(f"tap_{names.index(bound.tap)}")
            terms.append(times(tap, value(bound.spread)))
        return plus(*terms)

    @property
    def _loaded(self) -> int:
        """Vectors that are loaded for one."""
        return self.stride if self.stride <= SHUFFLED_STRIDES else 1

    def _masks(self) -> list[ir.Step]:
        """The lanes of what is loaded that are wanted and inside."""
        low: ir.Value = variable("low")
        high: ir.Value = variable("high")
        if self._loaded > 1:
            behind = plus(times(minus(high, constant(1)), self.stride), 1)
            high = either(compare("greater", high, 0), behind, constant(0))
            low = times(low, self.stride)
        steps: list[ir.Step] = [ir.Let("first", low), ir.Let("behind", high)]
        for number in range(self._loaded):
            shift = constant(number * self.lanes)
            after = first_lanes(minus(variable("behind"), shift), self.lanes)
            before = first_lanes(minus(variable("first"), shift), self.lanes)
            both = operate("and", after, operate("not", before))
            steps.append(ir.Let(f"mask_{number}", both if self._padded else after))
        return steps

    @property
    def _padded(self) -> bool:
        return any(bound.place == self.last.name for bound in self.form.bounds)

    # ---- loading -------------------------------------------------------------------------------

    def _loads(self) -> list[ir.Step]:
        flags = ir.Type(ir.FLAG.dtype, self.lanes)
        if self.stride > SHUFFLED_STRIDES:
            wide = ir.Type(int64, self.lanes)
            offsets = operate(
                "add",
                ir.Splat(wide, variable("from")),
                operate("mul", ir.Iota(wide), ir.Const(wide, self.stride)),
            )
            found: ir.Value = ir.Gather(self.vector, "x", offsets, ir.Var(flags, "wanted_0"))
            return [ir.Let("found", found)]
        parts: list[ir.Value] = []
        steps: list[ir.Step] = []
        for number in range(self.stride):
            at = plus(variable("from"), number * self.lanes)
            load = ir.Load(self.vector, "x", at, ir.Var(flags, f"wanted_{number}"))
            steps.append(ir.Let(f"part_{number}", load))
            parts.append(ir.Var(self.vector, f"part_{number}"))
        found = parts[0]
        for number in range(1, self.stride):
            found = ir.Shuffle(self.vector, found, parts[number], self._picked(number))
        return [*steps, ir.Let("found", found)]

    def _picked(self, number: int) -> tuple[int, ...]:
        """Lanes for the positions up to those of part `number`, out of what is chosen and it."""
        places: Sequence[int] = [lane * self.stride for lane in range(self.lanes)]
        picked = []
        for lane, place in enumerate(places):
            part, inside = divmod(place, self.lanes)
            if part == number:
                picked.append(self.lanes + inside)
            else:
                picked.append(place if number == 1 and part == 0 else lane)
        return tuple(picked)


def weights_function(form: Windows, sizes: SizeParameters, rows: int) -> ir.Function:
    """dst[tile, k, :rows] = w[row, k]: tiles of `rows` rows, `channels` channels from `w_at` on.

    Rows behind the last one are left as they are: nobody reads their sums.
    """
    inner: list[ir.Step] = []
    source = [variable("row_w"), times(variable("channel"), sizes.value(form.channels.w))]
    to: list[ir.Value] = [times(variable("channel"), sizes.value(form.window))]
    for number, tap in enumerate(form.taps):
        source.append(times(variable(f"tap_{number}"), sizes.value(tap.w)))
        behind = product(step.extent for step in form.taps[number + 1 :])
        to.append(times(variable(f"tap_{number}"), sizes.value(behind)))
    target = plus(variable("row_to"), times(plus(*to), rows))
    inner = [ir.Store("dst", target, ir.Load(ir.Type(form.dtype), "w", plus(*source)))]
    for number, tap in reversed(list(enumerate(form.taps))):
        inner = [loop(f"tap_{number}", 0, sizes.value(tap.extent), 1, *inner)]
    tile = quotient(variable("row"), rows)
    k = times(variable("channels"), sizes.value(form.window))
    inside = minus(variable("row"), times(variable("tile"), rows))
    row_w = plus(variable("w_at"), times(variable("row"), sizes.value(form.row_w)))
    return ir.Function(
        "weights",
        (
            ir.Pointer("w", form.dtype),
            ir.Pointer("dst", form.dtype),
            *(ir.Scalar(name) for name in ("w_at", "rows", "channels", *sizes.names)),
        ),
        (
            loop(
                "row", 0, variable("rows"), 1,
                ir.Let("tile", tile),
                ir.Let("row_w", row_w),
                ir.Let("row_to", plus(times(times(variable("tile"), k), rows), inside)),
                loop("channel", 0, variable("channels"), 1, *inner),
            ),
        ),
    )  # fmt: skip
