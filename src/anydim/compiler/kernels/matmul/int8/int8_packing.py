"""Packing of the factors of an int8 product, for any reads.

Rows of a are written along k, many bytes at a time; panels of b along the columns, with words of
four k-steps. Bytes are evaluated by the scalar lowering, so windows, padding and strides need no
special code; each function also sums the bytes it writes. See `packed_layout.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from anydim.base.dtypes import int32, uint8, uint16
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import loop, quotient
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import (
    constant,
    greatest,
    least,
    number,
    select,
    variable,
    variables,
)
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Factor, Int8Form
from anydim.compiler.kernels.matmul.int8.int8_micro_kernels import dot
from anydim.compiler.kernels.matmul.int8.packed_layout import Layout, OperandSign
from anydim.compiler.kernels.matmul.int8.word_types import BYTES, WORD, WordType
from anydim.lang.tree import Apply, Cast, Expr, Literal
from anydim.sizes import Size

FLIP = 0x80808080
_ONES = 0x01010101
_FIRST = constant(0)
_PREFIX = "w"  # of local names, distinct from those of a context


@dataclass(frozen=True)
class PackParameters:
    """The parameters of packing functions: `count` rows or columns from `first` on."""

    first: ir.Var
    count: ir.Var


PACK = variables(PackParameters)


class BytesPack:
    """Writes the packing functions of one kernel; `pointers` are the kernel's own."""

    def __init__(
        self, form: Int8Form, layout: Layout, context: Context,
        pointers: tuple[ir.Pointer, ...], lanes: int,
    ) -> None:  # fmt: skip
        self.form, self.layout, self.context = form, layout, context
        self.pointers, self.lanes = pointers, lanes
        self.sizes, self.code = context.sizes, Writer(_PREFIX)
        self.tap_at: dict[str, ir.Value] = {}  # indices of the loops over taps
        self.sum = ir.Get(ir.Type(int32, lanes), "sum")
        self.word = form.word

    def function(self, name: str, *own: ir.Pointer, more: Sequence[str] = ()) -> ir.Function:
        """Return a function with the code written so far, with `more` scalars."""
        loops = (walk.name for walk in self.form.loops)
        scalars = (PACK.first.name, PACK.count.name, *more, *loops, *self.sizes.names)
        pointers = (ir.Pointer("dst", uint8), *own, *self.pointers)
        body, self.code = self.code.written, Writer(_PREFIX)
        return ir.Function(name, (*pointers, *map(ir.Scalar, scalars)), body)

    def root(self) -> ScalarLowering:
        return ScalarLowering(
            self.context, {walk.name: variable(walk.name) for walk in self.form.loops}
        )

    @contextmanager
    def hoisting(self, scope: ScalarLowering) -> Iterator[None]:
        """Emit the code of the block after all steps that the scope collects meanwhile."""
        start = self.code.here
        yield
        self.code.take(scope.steps, start)

    def taps(
        self, level: ScalarLowering, make: Callable[[ScalarLowering, ir.Value], None],
        depth: int = 0,
        tap: ir.Value = _FIRST,
    ) -> None:  # fmt: skip
        """Emit loops over the kept taps around the code of `make`, which takes a tap's number."""
        if depth == len(self.form.taps):
            make(level, tap)
            return
        (name, _), kept = self.form.taps[depth], self.layout.kept.axes[depth]
        first, count = self.sizes.value(kept.first), self.sizes.value(kept.count)
        with self.code.range(0, count) as number_:
            self.tap_at[name] = at = number_ + first
            inner = level.inner({name: at})
            with self.hoisting(inner):
                self.taps(inner, make, depth + 1, tap * count + number_)

    # ---- rows of a -----------------------------------------------------------------------------

    def rows(self) -> ir.Function:
        """Return the function that writes rows `first` to `first + count` of a to dst."""
        code, root = self.code, self.root()
        with self.hoisting(root), code.range(0, PACK.count) as i:
            row = root.inner(self.row_at(PACK.first + i))
            self.words_of_row(row, i)
        return self.function("rows")

    def words_of_row(self, row: ScalarLowering, number_: ir.Value) -> None:
        """Write the words of a row to dst, with what follows them."""
        at = self.code.let(number_ * self.sizes.value(self.layout.row * self.word.count))
        with self.hoisting(row):
            self.taps(row, lambda level, tap: self._bytes(level, at, tap))
        if self.layout.b.has_zero:
            self._row_sums(at)
        elif self.layout.depth > 1 and self.word != BYTES:
            start, stop = (self.sizes.value(size) for size in (self.layout.words, self.layout.row))
            self.zero_words(number_, start, stop)

    def row_at(self, m: ir.Value) -> dict[str, ir.Value]:
        """Return the indices of a row of a."""
        if not self.form.rows:
            return {"m": m}
        split = self.code.split(m, [self.sizes.value(size) for _, size in self.form.rows[1:]])
        return {name: at for (name, _), at in zip(self.form.rows, split)}

    def _bytes(self, level: ScalarLowering, row_at: ir.Value, tap: ir.Value) -> None:
        """Write the numbers of one tap of a row."""
        parts = self.form.a.parts
        contiguous = parts is not None and all(stride.constant == 1 for _, stride in parts.k[-1:])
        count, element = self.word.count, self.word.element
        lanes = self.lanes * count if contiguous else self.lanes
        byte = _element(self.form.a, self.layout.a, self.word)
        start = row_at + tap * (self.sizes.value(self.form.tap_words) * count)

        def store(at: ir.Value, mask: ir.Value | None) -> None:
            own = level.inner({"k": at}, lane="k", lanes=lanes, mask=mask)
            value = own.value(byte, element)
            if mask is not None:
                value = select(mask, own.name(value), 0)
            self.code.take([*own.steps, ir.Store("dst", start + at, value)])

        self.code.sweep(constant(0), self.sizes.value(self.form.k), lanes, store)

    def zero_words(self, row: ir.Value, start: ir.Value, stop: ir.Value) -> None:
        """Zero words of a row: tiles multiply them by zeros, and NaN times zero is NaN."""
        whole = self.code.let(row * self.sizes.value(self.layout.row))
        with self.code.range(start, stop) as word:
            self.code.emit(ir.Store("dst", whole + word, number(int32, 0)))

    def _row_sums(self, row_at: ir.Value) -> None:
        """Store the sum of a row's bytes after its words."""
        code, total = self.code, ir.Get(self.sum.type, "row_sum")
        words, start = self.sizes.value(self.layout.words), quotient(row_at, WORD)

        def add(at: ir.Value, mask: ir.Value | None) -> None:
            loaded = ir.Load(total.type, "dst", start + at, mask)
            code.emit(ir.Assign(total.name, self._add_bytes(loaded, total, self.layout.a_unsigned)))

        code.emit(ir.Declare(total.name, number(int32, 0, self.lanes)))
        self.code.sweep(constant(0), words, self.lanes, add)
        whole = total.reduce_lanes("add") * self.layout.b.factor
        code.emit(ir.Store("dst", start + words, whole))

    def _add_bytes(self, words: ir.Value, total: ir.Value, unsigned: bool) -> ir.Value:
        """Return the sums of bytes plus the bytes of words."""
        ones = number(int32, _ONES, self.lanes)
        return dot(words, ones, total) if unsigned else dot(ones, words, total)

    # ---- panels of b ---------------------------------------------------------------------------

    def panel(self) -> ir.Function:
        """Return the function that writes columns `first` to `first + count` as a panel to dst."""
        root, first, count = self.root(), PACK.first, PACK.count
        self.code.emit(ir.Declare(self.sum.name, number(int32, 0, self.lanes)))
        with self.hoisting(root):
            if self.form.columns:
                self._runs(root, first, first + count)
            else:
                self.code.sweep(constant(0), count, self.lanes, lambda at, mask: self._columns(
                    root.inner({"n": first + at}, lane="n", lanes=self.lanes, mask=mask), at, mask
                ))  # fmt: skip
        return self.function("panel")

    def _runs(self, root: ScalarLowering, first: ir.Value, end: ir.Value) -> None:
        """Write a panel whose columns have several axes in b, run by run along the last axis.

        Runs may be shorter than vectors, so stores are masked.
        """
        outer, (last, extent) = self.form.columns[:-1], self.form.columns[-1]
        code, length = self.code, self.sizes.value(extent)
        with code.range(quotient(first, length), quotient(end + length - 1, length)) as run:
            start = code.let(greatest(run * length, first))
            stop = code.let(least((run + 1) * length, end))
            _, *indices = code.split(run, [self.sizes.value(size) for _, size in outer])
            row = root.inner({name: at for (name, _), at in zip(outer, indices)})

            def vector(at: ir.Value, mask: ir.Value | None) -> None:
                column = at - run * length
                level = row.inner({last: column}, lane=last, lanes=self.lanes, mask=mask)
                self._columns(level, at - first, mask)

            with self.hoisting(row):
                self.code.sweep(start, stop, self.lanes, vector)

    def _columns(self, level: ScalarLowering, at: ir.Value, mask: ir.Value | None) -> None:
        """Write all words of one vector of columns, and their sums, at column `at` of the panel."""

        def tap(level: ScalarLowering, number_: ir.Value) -> None:
            first = number_ * self.sizes.value(self.form.tap_words)
            self.words(level, self.form.b.read, lambda group, word: self.store_word(
                word, first + group, at, mask
            ))  # fmt: skip

        self.code.emit(ir.Assign(self.sum.name, number(int32, 0, self.lanes)))
        with self.hoisting(level):
            self.taps(level, tap)
        self.column_sums(at, mask)

    def words(
        self, level: ScalarLowering, read: Expr, store: Callable[[ir.Value, ir.Value], None]
    ) -> None:
        """Emit `store` for each word along k, with its number and value."""
        self.groups(lambda group, count: store(group, self._word(level, read, group, count)))

    def groups(self, make: Callable[[ir.Value, int], None]) -> None:
        """Emit `make` for each word along k, with its number and its count of elements."""
        k, known, each = self.sizes.value(self.form.k), self.form.k.constant, self.word.count
        whole = quotient(k, each)
        with self.code.range(0, whole) as group:
            make(group, each)
        rests = range(1, each) if known is None else [known % each] if known % each else []
        cases, around = [], self.code
        for count in rests:
            self.code = Writer(f"{_PREFIX}{count}_")
            make(whole, count)
            cases.append((count, self.code.written))
        self.code = around
        if cases:
            around.emit(ir.Switch(k - whole * each, tuple(cases)))

    def column_sums(self, at: ir.Value, mask: ir.Value | None) -> None:
        """Store the sums of a vector of columns after their words."""
        if self.layout.a.has_zero:
            end = self.sizes.value(self.layout.whole) * self.layout.width + at
            total = self.sum * self.layout.a.factor
            self.code.emit(ir.Store("dst", end, total, mask))

    def _word(self, level: ScalarLowering, read: Expr, group: ir.Value, count: int) -> ir.Value:
        """Return a word per lane, of `count` k-steps; its other elements are 0."""
        word: ir.Value | None = None
        element = self.word.element
        for number_ in range(count):
            at = level.inner({"k": group * self.word.count + number_})
            value = self._bits(at, read).spread(self.lanes)
            word = value if word is None else word | value << element.bits * number_
            self.code.take(at.steps)
        assert word is not None
        return word ^ (FLIP & ((1 << 8 * count) - 1)) if self.layout.b.flipped else word

    def _bits(self, level: ScalarLowering, read: Expr) -> ir.Value:
        """Return an element as the low bits of an int32."""
        element = self.word.element
        if element == uint8:
            return level.value(Cast(int32, Cast(uint8, read)), int32)
        return level.name(level.value(Cast(element, read), element)).bits(uint16).as_(int32)

    def outside(self, level: ScalarLowering) -> list[ir.Value]:
        """Return words of 1, 2, ... k-steps of the padding value of b."""
        read = self.form.b.read.default or Literal(0, self.form.b.dtype)
        counts = range(1, self.word.count + 1)
        return [self._word(level, read, _FIRST, count) for count in counts]

    def store_word(
        self, word: ir.Value, row: ir.Value, column: ir.Value, mask: ir.Value | None
    ) -> None:
        """Store a word of each column to the panel, and add it to the columns' sums."""
        named = self.code.let(word)
        self.code.emit(ir.Store("dst", row * self.layout.width + column, named, mask))
        if self.layout.a.has_zero:
            added = self._add_bytes(named, self.sum, not self.layout.a_unsigned)
            self.code.emit(ir.Assign(self.sum.name, added))

    def along(
        self, level: ScalarLowering, name: str, extent: ir.Value,
        make: Callable[[ScalarLowering, ir.Value, ir.Value | None], None],
    ) -> None:  # fmt: skip
        """Emit vector loops along an axis around the code of `make`, the last vector masked."""

        def vector(at: ir.Value, mask: ir.Value | None) -> None:
            own = level.inner({name: at}, lane=name, lanes=self.lanes, mask=mask)
            with self.hoisting(own):
                make(own, at, mask)

        self.code.sweep(constant(0), extent, self.lanes, vector)


def zero_padding(
    layout: Layout, value: Callable[[Size], ir.Value], lanes: int, panel: ir.Value
) -> list[ir.Step]:
    """Return steps that zero the padding after the words of a panel in scratch."""
    start, stop = (value(words) * layout.width for words in (layout.words, layout.whole))
    at = panel + variable("zero_at")
    return [loop("zero_at", start, stop, lanes, ir.Store("scratch", at, number(int32, 0, lanes)))]


def _element(factor: Int8Factor, sign: OperandSign, word: WordType) -> Expr:
    """Return the expression of the numbers stored for a factor."""
    value: Expr = Cast(word.element, factor.read)
    return Apply("bit_xor", (value, Literal(128, uint8))) if sign.flipped else value
