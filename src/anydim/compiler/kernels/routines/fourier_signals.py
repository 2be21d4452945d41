"""Inputs and outputs of a Fourier transform: rows of tensors, and Bluestein's chirp.

The inverse is the same transform with real and imaginary parts swapped, before and after.
"""

from __future__ import annotations

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import constant, greatest, iota, least, select
from anydim.compiler.kernels.routines.fourier_plan import deinterleave, interleave
from anydim.compiler.kernels.routines.fourier_steps import Numbers, WithinTransform
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.stockham import Complex, product
from anydim.sizes import Size


@dataclass(frozen=True)
class Lines:
    """Element i of row r is at offset r // inner * block + r % inner * step + i * stride."""

    inner: Size
    block: Size
    step: Size
    stride: Size
    parts: int  # 1: real, 2: complex

    @property
    def contiguous(self) -> bool:
        return self.stride.constant == self.parts

    def start(self, code: Code, row: ir.Value) -> ir.Value:
        """The offset of a row, or of one row per lane."""
        block, step = code.size(self.block), code.size(self.step)
        if self.inner.constant == 1:
            return code.let(row * block)
        inner = code.size(self.inner)
        return code.let(row // inner * block + row % inner * step)


@dataclass(frozen=True)
class Geometry:
    """Transforms of `length` elements, of which `given` are in x; `made` are written to y.

    A `mirrored` inverse takes the elements up to length // 2 of a conjugate-symmetric input, and
    its result is real. `window`: x1 holds weights of the elements.
    """

    length: Size
    given: Size
    made: Size
    x: Lines
    y: Lines
    inverse: bool = False
    mirrored: bool = False
    window: bool = False


class Signal:
    """One row along the lanes; `between` and `whole` hold the numbers between the steps."""

    def __init__(
        self, geometry: Geometry, dtype: DType, emitter: WithinTransform, row: ir.Value,
        between: Numbers, whole: Numbers | None = None,
    ) -> None:  # fmt: skip
        self.geometry, self.dtype, self.row = geometry, dtype, row
        self.emitter, self.code = emitter, emitter.code
        self.plan, self.lanes = emitter.plan, emitter.lanes
        self.between, self.whole = between, whole
        self.length = self.code.size(geometry.length)
        self.zero = constant(0.0, emitter.dtype, self.lanes)
        self.rows = self._rows(row)

    def _rows(self, row: ir.Value) -> ir.Value:
        """The rows held by the lanes: one row, or one per lane."""
        return row

    def _numbers(self, first: ir.Value) -> ir.Value:
        """The element indices held by the lanes."""
        return self.code.let(iota(self.lanes) + first)

    # ---- inputs --------------------------------------------------------------------------------

    def read(self, first: ir.Value) -> Complex:
        """Elements from `first` on, times the chirp if there is one."""
        code = self.code
        found = [code.variable(self.zero) for _ in range(2)]
        limit = self.length if self.geometry.mirrored else code.size(self.geometry.given)
        with code.when(first < limit):
            value = self._elements(first, limit)
            if self.geometry.window:
                value = self._apply_window(first, value)
            for part, number in zip(found, reversed(value) if self.geometry.inverse else value):
                part.set(number)
            if self.whole is not None:
                with code.when(self.plan.chirped):
                    chirp = self.emitter.pairs(self.plan.chirp, first, self.length)
                    for part, number in zip(found, product((found[0](), found[1]()), chirp)):
                        part.set(number)
        return found[0](), found[1]()

    def _elements(self, first: ir.Value, limit: ir.Value) -> Complex:
        geometry, code = self.geometry, self.code
        x = code.input("x0", self.dtype)
        if geometry.mirrored:
            return self._load_mirrored(x, self._numbers(first))
        if geometry.x.contiguous and self.rows.type.lanes == 1:
            return self._neighbours(x.part(geometry.x.start(code, self.rows)), first, limit)
        number = self._numbers(first)
        return self._gather(x, number, number < limit, limit)

    def _neighbours(self, x: Buffer, first: ir.Value, limit: ir.Value) -> Complex:
        """A contiguous vector, or two of interleaved pairs."""
        lanes, wide, remaining = self.lanes, self.emitter.dtype, self.code.let(limit - first)
        if self.geometry.x.parts == 1:
            return x.load(first, lanes, iota(lanes) < remaining).as_(wide), self.zero
        low, high = (
            x.load(first * 2 + n * lanes, lanes, iota(lanes) < remaining * 2 - n * lanes).as_(wide)
            for n in range(2)
        )
        return deinterleave(low, high)

    def _gather(self, x: Buffer, number: ir.Value, inside: ir.Value, limit: ir.Value) -> Complex:
        code, lines = self.code, self.geometry.x
        index = greatest(least(number, limit - 1), 0)
        offsets = code.let(lines.start(code, self.rows) + index * code.size(lines.stride))
        where = inside.spread(self.lanes)
        real = x.gather(offsets, where).as_(self.emitter.dtype)
        if lines.parts == 1:
            return real, self.zero
        return real, x.gather(offsets + 1, where).as_(self.emitter.dtype)

    def _load_mirrored(self, x: Buffer, number: ir.Value) -> Complex:
        """Conjugates for the second half; elements that are their own mirror are made real."""
        code, length, given = self.code, self.length, self.code.size(self.geometry.given)
        behind = code.let(number > code.let(length // 2))
        own = code.let(select(behind, length - number, number))
        inside = (own < given) & (number < length)
        real, imaginary = self._gather(x, own, inside, given)
        sign = select(behind.spread(self.lanes), -imaginary, imaginary)
        whole = own.equals(0) | (own * 2).equals(length)
        return real, select(whole.spread(self.lanes), self.zero, sign)

    def _apply_window(self, first: ir.Value, value: Complex) -> Complex:
        weight = self._weights(self.code.input("x1", self.dtype), first).as_(self.emitter.dtype)
        return value[0] * weight, value[1] * weight

    def _weights(self, w: Buffer, first: ir.Value) -> ir.Value:
        return w.load(first, self.lanes, iota(self.lanes) < self.code.let(self.length - first))

    # ---- outputs -------------------------------------------------------------------------------

    def keep(self, first: ir.Value, value: Complex, valid: ir.Value) -> None:
        """Results of the first round: final ones, or inputs of the second round."""
        if self.whole is None:
            self._store(first, self._swap_parts(value), valid)
            return
        with self.code.when(self.plan.chirped):
            self.emitter.store(self.whole, first, value, valid)
        with self.code.otherwise():
            self._store(first, self._swap_parts(value), valid)

    def again(self, first: ir.Value) -> Complex:
        """Inputs of the second round, which is an inverse transform."""
        assert self.whole is not None
        kernel = self.emitter.pairs(self.plan.kernel, first, self.plan.worked)
        real, imaginary = product(self.emitter.load(self.whole, first), kernel)
        return imaginary, real

    def finish(self, first: ir.Value, value: Complex, valid: ir.Value) -> None:
        """Results of the second round."""
        with self.code.when(first < self.code.size(self.geometry.made)):
            chirp = self.emitter.pairs(self.plan.chirp, first, self.length)
            found = product((value[1], value[0]), chirp)
            self._store(first, self._swap_parts(found), valid)

    def _swap_parts(self, value: Complex) -> Complex:
        if not self.geometry.inverse:
            return value
        count = self.length.as_(self.emitter.dtype)
        return value[1] / count, value[0] / count

    def _store(self, first: ir.Value, value: Complex, valid: ir.Value) -> None:
        """Store results from `first` on in y."""
        code, lines = self.code, self.geometry.y
        y = code.output("y0", self.dtype).part(lines.start(code, self.row))
        count = code.let(least(valid, code.size(self.geometry.made) - first))
        parts = [code.let(part.as_(self.dtype)) for part in value[: lines.parts]]
        if lines.contiguous:
            vectors = parts if lines.parts == 1 else interleave(*parts)
            for n, vector in enumerate(vectors):
                start, rest = n * self.lanes, count * lines.parts - n * self.lanes
                y.store(first * lines.parts + start, vector, iota(self.lanes) < code.let(rest))
            return
        stride = code.size(lines.stride)
        for lane in range(self.lanes):
            with code.when(count > lane):
                for n, part in enumerate(parts):
                    y[(first + lane) * stride + n] = part.extract(lane)


class Signals(Signal):
    """One row per lane, from `row` on; lanes past the last row repeat it."""

    def __init__(
        self, geometry: Geometry, dtype: DType, emitter: WithinTransform, row: ir.Value,
        between: Numbers, whole: Numbers | None = None, *, rows: ir.Value,
    ) -> None:  # fmt: skip
        self.count = rows
        super().__init__(geometry, dtype, emitter, row, between, whole)

    def _rows(self, row: ir.Value) -> ir.Value:
        return self.code.let(least(iota(self.lanes) + row, self.count - 1))

    def _numbers(self, first: ir.Value) -> ir.Value:
        return first

    def _weights(self, w: Buffer, first: ir.Value) -> ir.Value:
        return w[first].spread(self.lanes)

    def _store(self, first: ir.Value, value: Complex, valid: ir.Value) -> None:
        code, lines = self.code, self.geometry.y
        y = code.output("y0", self.dtype)
        starts = lines.start(code, self.rows)
        parts = [code.let(part.as_(self.dtype)) for part in value[: lines.parts]]
        with code.when(first < code.size(self.geometry.made)):
            offset = code.let(first * code.size(lines.stride))
            for lane in range(self.lanes):
                with code.when(self.row + lane < self.count):
                    for n, part in enumerate(parts):
                        y[starts.extract(lane) + offset + n] = part.extract(lane)


class Chirp(Signal):
    """The convolution kernel of a chirped signal: the conjugate chirp, mirrored."""

    def read(self, first: ir.Value) -> Complex:
        code, number, length = self.code, self._numbers(first), self.length.spread(self.lanes)
        own = select(number < length, number, self.plan.worked - number)
        inside = code.let((own < length) & (own >= 0))
        index = greatest(least(own, length - 1), 0)
        real, imaginary = self.plan.pair(self.plan.chirp, code.let(index))
        kept = select(inside, real, self.zero), select(inside, -imaginary, self.zero)
        return code.let(kept[0]), code.let(kept[1])

    def keep(self, first: ir.Value, value: Complex, valid: ir.Value) -> None:
        """Store its transform, divided by the number of elements, in the table."""
        count = self.plan.worked.as_(self.emitter.dtype)
        for n, vector in enumerate(interleave(value[0] / count, value[1] / count)):
            position, rest = first * 2 + n * self.lanes, valid * 2 - n * self.lanes
            self.plan.kernel.store(position, vector, iota(self.lanes) < self.code.let(rest))
