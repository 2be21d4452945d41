"""Windows brought into panels by vectors that go on from row to row of the result.

A row of 3, 7 or 17 places fills vectors badly. Where the result is as wide as x and windows step by
one, neighbours in the result read neighbours in x wherever rows end, so that a vector is loaded
as it lies; what else are rows of few places is gathered. Which lanes of a tap are inside of x is
found once for all channels; taps that no lane has inside are zeros.
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int32, int64
from anydim.kernels import ir
from anydim.kernels.product.convolution.form import Windows
from anydim.kernels.product.convolution.packing import WindowPack
from anydim.kernels.product.places import Bound
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient,
    times,
    variable,
)
from anydim.kernels.write.elements import SizeParameters
from anydim.kernels.write.values import convert, operate, splat
from anydim.sizes import product

_MOST = 1 << 24  # places along an axis, and in all further out: they are counted in int32
_STRIDE = 32
_FEW = 4  # channels for which masks of long rows cost more than vectors that end with a row
_FAR = 1 << 30


def follows_on(form: Windows) -> bool:
    """Whether neighbouring places read neighbours in x, also from row to row."""
    return all(
        step.x == product(later.extent for later in form.places[number + 1 :])
        for number, step in enumerate(form.places)
    )


def can_merge(form: Windows) -> bool:
    """Whether there are rows, and what they read can be counted."""
    strides = [bound.stride.constant for bound in form.bounds if bound.place]
    return len(form.places) > 1 and all(s is not None and 0 < s <= _STRIDE for s in strides)


class MergedPack(WindowPack):
    """Writes the function `windows_merged`, which does what `windows` does."""

    name = "windows_merged"

    def __init__(self, form: Windows, sizes: SizeParameters, lanes: int, row: int) -> None:
        super().__init__(form, sizes, lanes, row)
        self.gathered = not follows_on(form)
        self.whole = ir.Type(int32, lanes)

    def worth_it(self) -> ir.Value:
        """Whether a call has rows that this is the faster way for."""
        value = self.sizes.value
        few = (self.form.channels.extent.constant or _FEW) < _FEW
        most = self.lanes // 2 if self.gathered else self.lanes if few else _MOST
        found = compare("less_equal", value(self.last.extent), most)
        for step in self.form.places[:-1]:
            fits = compare("less", value(step.extent), _MOST)
            found = ir.Op(ir.FLAG, "and", (found, fits))
        return found

    def _rows(self) -> tuple[ir.Step, ...]:
        """Vectors of places, whatever rows they are in."""
        end = plus(variable("column"), variable("width"))
        count = first_lanes(minus(end, variable("at")), self.lanes)
        steps = [*self._places(), ir.Let("exist", count), *self._start()]
        inner = self._channels()
        for number, tap in enumerate(self.form.taps):
            mine = [bound for bound in self.form.bounds if bound.tap == tap.name]
            inner = [*self._inside_of(mine), *inner]
            inner = [loop(f"tap_{number}", 0, self.sizes.value(tap.extent), 1, *inner)]
        free = [bound for bound in self.form.bounds if not bound.tap]
        body = [*steps, *self._inside_of(free), *inner]
        return (loop("at", variable("column"), end, self.lanes, *body),)

    def _places(self) -> list[ir.Step]:
        """Of each axis place_N, the first lane's index, and lane_N, how far the others are off."""
        steps: list[ir.Step] = []
        rest: ir.Value = variable("at")
        further: ir.Value = ir.Iota(self.whole)
        for number in range(len(self.form.places) - 1, 0, -1):
            extent = self.sizes.value(self.form.places[number].extent)
            place, outer = variable(f"place_{number}"), variable(f"outer_{number}")
            few, left = variable(f"few_{number}"), variable(f"left_{number}")
            off = ir.Var(self.whole, f"off_{number}")
            ends = ir.Var(self.whole, f"ends_{number}")
            steps += [
                ir.Let(outer.name, quotient(rest, extent)),
                ir.Let(place.name, minus(rest, times(outer, extent))),
                ir.Let(few.name, least(extent, self.lanes)),
                ir.Let(left.name, least(minus(extent, place), self.lanes)),
                ir.Let(off.name, further),
                ir.Let(ends.name, self._ended(off, few, left)),
                ir.Let(f"lane_{number}", operate("sub", off, self._scaled(ends, extent))),
            ]
            rest, further = outer, ends
        steps += [ir.Let("place_0", rest), ir.Let("lane_0", further)]
        return [*steps, ir.Let("place", variable(f"place_{len(self.form.places) - 1}"))]

    def _ended(self, off: ir.Value, few: ir.Value, left: ir.Value) -> ir.Value:
        """How many rows of `few` places end before a lane, `left` of them being left of the first.

        Numbers of a few lanes: quotients of float32, rounded down, are exact.
        """
        shifted = operate("add", off, self._spread(minus(few, left)))
        quotients = operate("div", convert(shifted, float32), convert(self._spread(few), float32))
        return convert(quotients, int32)

    def _spread(self, value: ir.Value) -> ir.Value:
        return splat(convert(value, int32), self.lanes)

    def _scaled(self, lanes: ir.Value, by: ir.Value) -> ir.Value:
        return lanes if by == ir.Const(ir.INDEX, 1) else operate("mul", lanes, self._spread(by))

    def _start(self) -> list[ir.Step]:
        """vector_x: what the first lane reads; apart: how far behind it the others do."""
        value = self.sizes.value
        start: list[ir.Value] = [variable("x_at")]
        steps: list[ir.Step] = []
        for number, step in enumerate(self.form.places):
            start.append(times(variable(f"place_{number}"), value(step.x)))
            if self.gathered:
                wide = convert(ir.Var(self.whole, f"lane_{number}"), int64)
                apart = operate("mul", wide, splat(value(step.x), self.lanes))
                if number:
                    before = ir.Var(ir.Type(int64, self.lanes), f"apart_{number - 1}")
                    apart = operate("add", before, apart)
                steps.append(ir.Let(f"apart_{number}", apart))
        steps.append(ir.Let("vector_x", plus(*start)))
        return [*steps, ir.Let("vector_to", minus(variable("at"), variable("column")))]

    def _inside_of(self, bounds: list[Bound]) -> list[ir.Step]:
        """within_N: the lanes that do not leave x along a bound."""
        steps: list[ir.Step] = []
        for bound in bounds:
            number = self.form.bounds.index(bound)
            base, extent = variable(f"base_{number}"), self.sizes.value(bound.extent)
            low, high = (
                self._spread(greatest(least(minus(end, base), _FAR), -_FAR))
                for end in (constant(0), extent)
            )
            lane: ir.Value = ir.Const(self.whole, 0)
            if bound.place:
                names = [step.name for step in self.form.places]
                lane = ir.Var(self.whole, f"lane_{names.index(bound.place)}")
                lane = self._scaled(lane, self.sizes.value(bound.stride))
            inside = operate(
                "and", operate("greater_equal", lane, low), operate("less", lane, high)
            )
            steps.append(ir.Let(base.name, self._position(bound)))
            steps.append(ir.Let(f"within_{number}", inside))
        return steps

    def _wanted(self) -> list[ir.Step]:
        flags = ir.Type(ir.FLAG.dtype, self.lanes)
        mask: ir.Value = ir.Var(flags, "exist")
        for number in range(len(self.form.bounds)):
            mask = operate("and", mask, ir.Var(flags, f"within_{number}"))
        return [ir.Let("wanted_0", mask)]

    def _each_channel(self, source: ir.Value, target: ir.Value) -> list[ir.Step]:
        steps = super()._each_channel(source, target)
        if not self.form.bounds:
            return steps
        zero = ir.Store("dst", target, ir.Const(self.vector, 0))
        nothing = loop(
            "empty", 0, variable("channels"), 1, ir.Let("channel", variable("empty")), zero
        )
        some = ir.Reduce(ir.FLAG, "max", ir.Var(ir.Type(ir.FLAG.dtype, self.lanes), "wanted_0"))
        return [ir.If(some, tuple(steps), (nothing,))]

    def _loads(self) -> list[ir.Step]:
        mask = ir.Var(ir.Type(ir.FLAG.dtype, self.lanes), "wanted_0")
        found: ir.Value = ir.Load(self.vector, "x", variable("from"), mask)
        if self.gathered:
            wide = ir.Type(int64, self.lanes)
            apart = ir.Var(wide, f"apart_{len(self.form.places) - 1}")
            offsets = operate("add", apart, splat(variable("from"), self.lanes))
            found = ir.Gather(self.vector, "x", offsets, mask)
        return [ir.Let("found", found)]
