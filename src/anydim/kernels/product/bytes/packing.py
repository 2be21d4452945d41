"""Bringing the factors of a product of bytes into place, whatever their reads look like.

Rows of a are written along k, many bytes at a time; panels of b along the columns, four steps of k
making a word. Bytes are evaluated as the language says, so windows, padding and strides are nothing
special; each function also sums up what it writes. See `layout.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import boolean, int32, uint8
from anydim.kernels import ir
from anydim.kernels.product.bytes.form import Bytes, BytesForm
from anydim.kernels.product.bytes.layout import WORD, Layout, Side
from anydim.kernels.product.bytes.library import dot
from anydim.kernels.write.arithmetic import (
    constant,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient,
    round_down,
    times,
    variable,
)
from anydim.kernels.write.elements import Context, Elements
from anydim.kernels.write.values import number, operate, splat
from anydim.lang.tree import Apply, Cast, Expr, Literal, Read
from anydim.sizes import Size, ceil_div

PACK_SCALARS = ("first", "count")
_FLIP = 0x80808080
_ONES = 0x01010101


class BytesPack:
    """Writes the packing functions of one kernel; `pointers` are the kernel's own."""

    def __init__(
        self, form: BytesForm, layout: Layout, context: Context,
        pointers: tuple[ir.Pointer, ...], lanes: int,
    ) -> None:  # fmt: skip
        self.form, self.layout, self.context = form, layout, context
        self.pointers, self.lanes = pointers, lanes
        self.sizes = context.sizes

    def function(self, name: str, body: tuple[ir.Step, ...]) -> ir.Function:
        scalars = (*PACK_SCALARS, *(walk.name for walk in self.form.loops), *self.sizes.names)
        pointers = (ir.Pointer("dst", uint8), *self.pointers)
        return ir.Function(name, (*pointers, *(ir.Scalar(scalar) for scalar in scalars)), body)

    def root(self) -> Elements:
        return Elements(self.context, {walk.name: variable(walk.name) for walk in self.form.loops})

    def taps(
        self, outer: Elements, make: Callable[[Elements, ir.Value], list[ir.Step]]
    ) -> list[ir.Step]:
        """Loops over the taps around what `make` writes for one, given its number."""

        def nest(level: Elements, depth: int, tap: ir.Value) -> list[ir.Step]:
            if depth == len(self.form.taps):
                return make(level, tap)
            name, extent = self.form.taps[depth]
            inner = level.inner({name: variable(name)})
            count = self.sizes.value(extent)
            body = nest(inner, depth + 1, plus(times(tap, count), variable(name)))
            return [loop(name, 0, count, 1, *inner.steps, *body)]

        return nest(outer, 0, constant(0))

    def _words(self) -> Size:
        """Words of a tap."""
        return ceil_div(self.form.k, WORD)

    # ---- rows of a -----------------------------------------------------------------------------

    def rows(self) -> ir.Function:
        """Rows `first` to `first + count` of a, from dst on."""
        parts = self.form.a.parts
        beside = parts is not None and all(stride.constant == 1 for _, stride in parts[3][-1:])
        lanes = self.lanes * WORD if beside else self.lanes
        root = self.root()
        row = root.inner({"m": plus(variable("first"), variable("i"))})
        at = variable("row_at")  # in bytes
        k, words = self.sizes.value(self.form.k), self.sizes.value(self._words())
        byte = _byte(self.form.a, self.layout.a)

        def tap(level: Elements, number_: ir.Value) -> list[ir.Step]:
            start = plus(at, times(number_, times(words, WORD)))
            whole = level.inner({"k": variable("k0")}, lane="k", lanes=lanes)
            mask = ir.Var(ir.Type(boolean, lanes), "inside")
            cut = level.inner({"k": variable("k1")}, lane="k", lanes=lanes, mask=mask)
            value = whole.value(byte, uint8)
            rest = cut.name(cut.value(byte, uint8))
            rest = operate("select", mask, rest, number(uint8, 0, lanes))
            main = round_down(k, lanes)
            inside = first_lanes(minus(k, variable("k1")), lanes)
            return [
                loop("k0", 0, main, lanes, *whole.steps,
                     ir.Store("dst", plus(start, variable("k0")), value)),
                loop("k1", main, k, lanes, ir.Let("inside", inside), *cut.steps,
                     ir.Store("dst", plus(start, variable("k1")), rest)),
            ]  # fmt: skip

        body = self.taps(row, tap)
        row_bytes = self.sizes.value(self.layout.row * WORD)
        sums = self._row_sums() if self.layout.b.has_zero else []
        each = loop(
            "i", 0, variable("count"), 1, ir.Let("row_at", times(variable("i"), row_bytes)),
            *row.steps, *body, *sums,
        )  # fmt: skip
        return self.function("rows", (*root.steps, each))

    def _row_sums(self) -> list[ir.Step]:
        """The sum of a row's bytes, behind its words."""
        vector = ir.Type(int32, self.lanes)
        words = self.sizes.value(self.layout.words)
        start = quotient(variable("row_at"), WORD)
        mask = ir.Var(ir.Type(boolean, self.lanes), "words_left")
        ones: ir.Value = number(int32, _ONES, self.lanes)

        def add(name: str, mask: ir.Value | None) -> ir.Assign:
            loaded: ir.Value = ir.Load(vector, "dst", plus(start, variable(name)), mask)
            total = ir.Get(vector, "row_sum")
            left, right = (loaded, ones) if self.layout.a_unsigned else (ones, loaded)
            return ir.Assign("row_sum", dot(left, right, total))

        main = round_down(words, self.lanes)
        left = first_lanes(minus(words, variable("w1")), self.lanes)
        total: ir.Value = ir.Reduce(ir.Type(int32), "add", ir.Get(vector, "row_sum"))
        total = operate("mul", total, number(int32, self.layout.b.factor))
        return [
            ir.Declare("row_sum", number(int32, 0, self.lanes)),
            loop("w0", 0, main, self.lanes, add("w0", None)),
            loop("w1", main, words, self.lanes, ir.Let("words_left", left), add("w1", mask)),
            ir.Store("dst", plus(start, words), total),
        ]

    # ---- panels of b ---------------------------------------------------------------------------

    def panel(self) -> ir.Function:
        """The panel of columns `first` to `first + count`, from dst on."""
        root = self.root()
        if self.form.columns:
            return self._panel_by_runs(root)
        mask = self._mask()
        main = round_down(variable("count"), self.lanes)
        whole, cut = self._along(root, "j0", None), self._along(root, "j1", mask)
        inside = first_lanes(minus(variable("count"), variable("j1")), self.lanes)
        zero = number(int32, 0, self.lanes)
        body = (
            ir.Declare("sum", zero),
            *root.steps,
            loop("j0", 0, main, self.lanes, ir.Assign("sum", zero), *whole),
            loop(
                "j1", main, variable("count"), self.lanes,
                ir.Let("inside", inside), ir.Assign("sum", zero), *cut,
            ),
        )  # fmt: skip
        return self.function("panel", body)

    def _along(self, root: Elements, name: str, mask: ir.Value | None) -> list[ir.Step]:
        """The columns of one vector, from `first` + a variable on."""
        column = plus(variable("first"), variable(name))
        level = root.inner({"n": column}, lane="n", lanes=self.lanes, mask=mask)
        return self._columns(level, variable(name), name, None)

    def _panel_by_runs(self, root: Elements) -> ir.Function:
        """A panel of columns that b is read by apart: run by run along the last of them.

        Runs are shorter than vectors, perhaps, so what is stored is masked.
        """
        outer, (last, extent) = self.form.columns[:-1], self.form.columns[-1]
        length = self.sizes.value(extent)
        first, count = variable("first"), variable("count")
        end = plus(first, count)
        start = greatest(times(variable("run"), length), first)
        stop = least(times(plus(variable("run"), 1), length), end)
        indices: dict[str, ir.Value] = {}
        rest: ir.Value = variable("run")
        for name, size in reversed(outer):
            above = quotient(rest, self.sizes.value(size))
            indices[name] = minus(rest, times(above, self.sizes.value(size)))
            rest = above
        row = root.inner(indices)
        whole, cut = self._run(row, last, "run0", None), self._run(row, last, "run1", self._mask())
        main = round_down(minus(variable("stop"), variable("start")), self.lanes)
        inside = first_lanes(minus(variable("stop"), variable("run1")), self.lanes)
        zero = number(int32, 0, self.lanes)
        runs = loop(
            "run", quotient(first, length), quotient(plus(end, length, -1), length), 1,
            ir.Let("start", start), ir.Let("stop", stop), *row.steps,
            ir.Let("main", plus(variable("start"), main)),
            loop("run0", variable("start"), variable("main"), self.lanes,
                 ir.Assign("sum", zero), *whole),
            loop("run1", variable("main"), variable("stop"), self.lanes,
                 ir.Let("inside", inside), ir.Assign("sum", zero), *cut),
        )  # fmt: skip
        return self.function("panel", (ir.Declare("sum", zero), *root.steps, runs))

    def _mask(self) -> ir.Var:
        return ir.Var(ir.Type(boolean, self.lanes), "inside")

    def _run(self, row: Elements, last: str, name: str, mask: ir.Value | None) -> list[ir.Step]:
        """The columns of one vector of a run."""
        length = self.sizes.value(self.form.columns[-1][1])
        column = minus(variable(name), times(variable("run"), length))
        level = row.inner({last: column}, lane=last, lanes=self.lanes, mask=mask)
        return self._columns(level, minus(variable(name), variable("first")), name, mask)

    def _columns(
        self, level: Elements, at: ir.Value, name: str, mask: ir.Value | None
    ) -> list[ir.Step]:
        """All words of the columns of one vector, and their sums, `at` columns into the panel."""
        k = self.sizes.value(self.form.k)

        def tap(level: Elements, number_: ir.Value) -> list[ir.Step]:
            first = times(number_, self.sizes.value(self._words()))
            whole = quotient(k, WORD)

            def group(group: ir.Value, bytes_: int) -> list[ir.Step]:
                steps, word = self.word(level, self.form.b.read, group, bytes_)
                return [*steps, *self.stored(word, plus(first, group), at, mask)]

            main = loop(f"g{name}", 0, whole, 1, *group(variable(f"g{name}"), WORD))
            return [main, *self.rest(k, lambda left: group(whole, left))]

        body = self.taps(level, tap)
        return [*level.steps, *body, *self.column_sums(at, mask)]

    def rest(self, k: ir.Value, make: Callable[[int], list[ir.Step]]) -> list[ir.Step]:
        """What `make` writes for so many bytes in the last word, of those that there may be."""
        known = self.form.k.constant
        rests = range(1, WORD) if known is None else [known % WORD] if known % WORD else []
        cases = tuple((left, tuple(make(left))) for left in rests)
        left = minus(k, times(quotient(k, WORD), WORD))
        return [ir.Switch(left, cases)] if cases else []

    def column_sums(self, at: ir.Value, mask: ir.Value | None) -> list[ir.Step]:
        """The sums of the columns of a vector, behind their words."""
        if not self.layout.a.has_zero:
            return []
        end = plus(times(self.sizes.value(self.layout.whole), self.layout.width), at)
        by = number(int32, self.layout.a.factor, self.lanes)
        total = operate("mul", ir.Get(by.type, "sum"), by)
        return [ir.Store("dst", end, total, mask)]

    def word(
        self, level: Elements, read: Read, group: ir.Value, bytes_: int
    ) -> tuple[list[ir.Step], ir.Value]:
        """A word of each lane, of `bytes_` steps of k; the others are 0."""
        expr = Cast(int32, Cast(uint8, read))
        steps: list[ir.Step] = []
        word: ir.Value | None = None
        for place in range(bytes_):
            at = level.inner({"k": plus(times(group, WORD), place)})
            value = splat(at.value(expr, int32), self.lanes)
            if place:
                shift = number(int32, 8 * place, self.lanes)
                value = operate("shift_left", value, shift)
            word = value if word is None else operate("bit_or", word, value)
            steps += at.steps
        assert word is not None
        if self.layout.b.flipped:
            flip = _FLIP & ((1 << 8 * bytes_) - 1)
            word = operate("bit_xor", word, number(int32, flip, self.lanes))
        return steps, word

    def stored(
        self, word: ir.Value, row: ir.Value, column: ir.Value, mask: ir.Value | None
    ) -> list[ir.Step]:
        """A word of each column goes into the panel, and into their sums."""
        named = ir.Var(word.type, self.context.fresh("word"))
        at = plus(times(row, self.layout.width), column)
        steps: list[ir.Step] = [ir.Let(named.name, word), ir.Store("dst", at, named, mask)]
        if self.layout.a.has_zero:
            ones: ir.Value = number(int32, _ONES, self.lanes)
            left, right = (ones, named) if self.layout.a_unsigned else (named, ones)
            steps.append(ir.Assign("sum", dot(left, right, ir.Get(named.type, "sum"))))
        return steps

    def along(
        self, level: Elements, name: str, extent: ir.Value,
        make: Callable[[Elements, ir.Value, ir.Value | None], list[ir.Step]],
    ) -> list[ir.Step]:  # fmt: skip
        """Loops over an axis by vectors around what `make` writes, the last one masked."""
        mask = ir.Var(ir.Type(boolean, self.lanes), "inside")
        main = round_down(extent, self.lanes)
        places = variable(f"{name}_0"), variable(f"{name}_1")
        whole = level.inner({name: places[0]}, lane=name, lanes=self.lanes)
        cut = level.inner({name: places[1]}, lane=name, lanes=self.lanes, mask=mask)
        bodies = make(whole, places[0], None), make(cut, places[1], mask)
        inside = first_lanes(minus(extent, places[1]), self.lanes)
        return [
            loop(f"{name}_0", 0, main, self.lanes, *whole.steps, *bodies[0]),
            loop(
                f"{name}_1", main, extent, self.lanes,
                ir.Let("inside", inside), *cut.steps, *bodies[1],
            ),
        ]  # fmt: skip


def _byte(factor: Bytes, side: Side) -> Expr:
    """The byte that is stored for a factor."""
    value: Expr = Cast(uint8, factor.read)
    return Apply("bit_xor", (value, Literal(128, uint8))) if side.flipped else value
