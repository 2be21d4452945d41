"""Products of float32 by constants on tiles of bfloat16: each factor is a sum of parts.

    x = x0 + x1 + x2    x0 = bfloat16(x), x1 = bfloat16(x - x0), x2 = x - x0 - x1
    a w = (a0 w2 + a0 w1 + a1 w1 + a1 w0 + a2 w0 + a0 w0) + (a1 w2 + a2 w1 + a2 w2)

Three parts (`precision="bfloat16x3"`): the first six products are added, three are dropped. Two
parts: a0 w1 + a0 w0 + a1 w0. Compare MKL's float_to_bf16x3 and float_to_bf16x2; Henry, Tang and
Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype", ARITH 2019.

The error. Let u = 2^-8, the rounding of bfloat16, and x be in the binade of 2^e: a multiple of
2^(e-23). |x - x0| is at most 2^(e-8), so it is 16 bits wide, and x1 leaves at most half a unit of
its 8 bits: 7 bits, which x2 holds. So x = x0 + x1 + x2 in exact arithmetic, with |x1| <= u |x| and
|x2| <= u^2 |x|, unless parts are below 2^-126, which tiles take for zeros: that moves a factor by
less than 2^-125. Hence, of |a w|,

    dropped by three parts     2 u^3 + u^4 < 2^-22.9
    dropped by two parts       2 u^2 + u^2 + u^4 < 2^-14.4        (x2 of both factors, and a1 w1)

The products of parts are exact in float32; |a_i w_j| of all add up to at most 1.02 |a w|. A sum of
n terms rounds them 16 times within a tile, twice more, and once for each of the 3 or 6 products of
each 32 terms: with p = 6 (3), by (18 + p ceil(n / 32)) 2^-24 of that. Numbers below 2^-126 flushed
on the way add n 2^-122. All factors are at most 2^40, so flushed parts move a product by 2^-84:

    error <= (2^-22.9 + 1.02 (18 + p ceil(n / 32)) 2^-24) sum |a w| + n 2^-83

Rows with a number above 2^40, an infinity or NaN have zeros for parts and a flag in the word after
them; float32 vectors sum them in the order of k, with the weights put together again. Sums of parts
are exact: two are 17 bits, three are w, as far as it is a multiple of 2^-133 (from 2^-110 on).
Products with such weights stay float32 as a whole (`passes/round_factors.py`). A row is one or the
other whatever other rows there are.
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.ir import constant, fma, number, select
from anydim.compiler.kernels.matmul.int8.int8_packing import PACK, BytesPack
from anydim.sizes import Size, product

LARGEST = 2.0**40  # of factors in parts
_UPPER = -(1 << 16)  # the bits of the second number of a word


class PartsPack(BytesPack):
    """Writes rows of float32 as parts; `unfit_row` sums a row that has none."""

    def words_of_row(self, row: ScalarLowering, number_: ir.Value) -> None:
        """Write the parts of a row to dst, or zeros, and its flag."""
        code, layout, value = self.code, self.layout, self.sizes.value
        at = code.let(number_ * value(layout.row * self.word.count))
        self.unfit = code.variable(number(int32, 0, self._lanes))
        with self.hoisting(row):
            self.taps(row, lambda level, tap: self._parts_of_tap(level, at, tap), 1)
        part, words = value(layout.part), value(layout.words)
        used = value(self._tap_count * self.form.tap_words)
        for index in range(layout.parts):
            self.zero_words(number_, part * index + used, part * (index + 1))
        self.zero_words(number_, words + 1, value(layout.row))
        flag = code.let(self.unfit().reduce_lanes("max"))
        code.emit(ir.Store("dst", number_ * value(layout.row) + words, flag))
        with code.when(flag.differs(0)):
            self.zero_words(number_, constant(0), words)

    @property
    def _lanes(self) -> int:
        parts = self.form.a.parts
        contiguous = parts is not None and all(stride.constant == 1 for _, stride in parts.k[-1:])
        return self.lanes * self.word.count if contiguous else self.lanes

    @property
    def _tap_count(self) -> Size:
        return product(extent for _, extent in self.form.taps[1:])

    def _parts_of_tap(self, level: ScalarLowering, row_at: ir.Value, tap: ir.Value) -> None:
        """Write the parts of one tap of a row."""
        code, lanes, count = self.code, self._lanes, self.word.count
        length = self.sizes.value(self.form.tap_words) * count  # whole words
        start = code.let(row_at + tap * length)
        apart = self.sizes.value(self.layout.part) * count

        def store(at: ir.Value, mask: ir.Value | None) -> None:
            own = level.inner({"k": at}, lane="k", lanes=lanes, mask=mask)
            rest = own.value(self.form.a.read, float32)
            code.take(own.steps)
            rest = code.let(rest if mask is None else select(mask, rest, 0))
            inside = None if mask is None else code.let(first_lanes(length - at, lanes))
            fits = abs(rest) <= LARGEST
            self.unfit.set(select(fits, self.unfit(), 1))
            for index in range(self.layout.parts):
                part = code.let(rest.as_(self.word.element))
                code.emit(ir.Store("dst", start + apart * index + at, part, inside))
                rest = code.let(rest - part.as_(float32))

        code.sweep(constant(0), self.sizes.value(self.form.k), lanes, store)

    def unfit_row(self) -> ir.Function:
        """Return the function of the float32 sums of row `first` by the panel at word `b_at`."""
        lanes, width, value = self.lanes, self.layout.width, self.sizes.value
        vector = ir.Type(float32, lanes)
        for j in range(0, width, lanes):
            self.code.emit(ir.Store("dst", constant(j), number(float32, 0, lanes)))
        root = self.root()
        with self.hoisting(root):
            row = root.inner(self.row_at(PACK.first))
            with self.hoisting(row):
                self.taps(row, lambda level, tap: self.groups(
                    lambda word, count: self._add_word(
                        level, tap * value(self.form.tap_words), word, count, vector)
                ), 1)  # fmt: skip
        return self.function("unfit", more=("b_at",))

    def _add_word(
        self, level: ScalarLowering, tap_at: ir.Value, word: ir.Value, count: int, vector: ir.Type
    ) -> None:
        """Add the products of the numbers of a word to the sums of a panel's columns."""
        code, layout, lanes = self.code, self.layout, vector.lanes
        for at in range(count):
            own = level.inner({"k": word * self.word.count + at})
            a = own.value(self.form.a.read, float32)
            code.take(own.steps)
            a = code.let(a)
            for j in range(0, layout.width, lanes):
                weight: ir.Value | None = None
                for index in range(layout.parts):
                    row = self.sizes.value(layout.part) * index + tap_at + word
                    place = ir.variable("b_at") + row * layout.width + j
                    bits = ir.Load(ir.Type(int32, lanes), "b", place)
                    part = (bits & _UPPER if at else bits << 16).bits(float32)
                    weight = part if weight is None else weight + part
                assert weight is not None
                total = fma(a.spread(lanes), weight, ir.Load(vector, "dst", constant(j)))
                code.emit(ir.Store("dst", constant(j), total))
