"""Code of cumulative sums: pieces of a row by vectors, or of columns with one lane each.

Along a row, a vector is scanned in log2(lanes) steps (Hillis and Steele, Data parallel algorithms,
1986); the total before it is added to all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from anydim.base.dtypes import DType, int32, int64
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import apply, constant, iota, select, shuffle
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.rows import LANES, Rows
from anydim.sizes import Size

CHAINS = 4  # independent accumulators of a total
STARTS, STATE = "starts", "state"  # totals before pieces, [piece][column]; int64 slots:
PATIENCE = 100  # pauses, about 4 us, before a thread computes another's total
NEXT, WORKERS, FIRST = 0, 1, 2  # pieces taken, threads; known starts of each column vector


@dataclass(frozen=True)
class Spec:
    """Parameters of a scan: `function` is 'add' or 'mul', `identity` its neutral element.

    Sums accumulate in type `wide`. A row has `full` pieces of `piece` elements, and a last one,
    which may be empty.
    """

    function: str
    identity: int
    dtype: DType
    wide: DType
    rows: Rows
    piece: int
    full: Size
    exclusive: bool
    reverse: bool


class PieceQueue:
    """The pieces 0 ... `count`, each taken by one thread, in order."""

    def __init__(self, code: Code, count: ir.Value) -> None:
        self.code, self.count = code, count
        self._next, self._workers = (
            code.let(code.output(STATE, int64).address(word)) for word in (NEXT, WORKERS)
        )

    @contextmanager
    def each(self) -> Iterator[ir.Value]:
        code = self.code
        code.atomic("add", self._workers, 1)
        item = code.variable(code.atomic("add", self._next, 1))
        with code.loop(lambda: item() < self.count):
            yield item()
            item.set(code.atomic("add", self._next, 1))

    def alone(self) -> ir.Value:
        """Whether this is the only thread so far."""
        return self.code.let(self.code.atomic("load", self._workers) < 2)


class Columns:
    """`vectors` of columns from element `base` on, with the lanes in `there`.

    The first one is column `first_column` of `columns`.
    """

    step = 1  # elements of a row per vector

    def __init__(
        self, spec: Spec, code: Code, base: ir.Value, lanes: int, vectors: int,
        first_column: ir.Value, columns: Size, there: ir.Value | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.code, self.lanes, self.vectors = spec, code, lanes, vectors
        self.first_column, self.columns, self.there = code.let(first_column), columns, there
        base = code.let(base)
        self.x = code.input("x0", spec.dtype).part(base)
        self.y = code.output("y0", spec.dtype).part(base)
        self.count, self.full = code.size(spec.rows.length), code.size(spec.full)

    # ---- pieces --------------------------------------------------------------------------------

    def sweep(self) -> None:
        """All pieces."""
        before = self._neutrals()
        if self.spec.full != 0:
            with self.code.range(0, self.full) as piece:
                self._piece(piece, before)
        self._last(self.code.let(self.full * self.spec.piece), before)

    def take(self, piece: ir.Value, alone: Callable[[], ir.Value]) -> None:
        """A piece taken by this thread; threads run concurrently unless this one is `alone`."""
        code, last = self.code, piece.equals(self.full)
        totals = self._neutrals()
        ahead = code.let(~last & ~alone())
        with code.when(ahead):
            for each, total in zip(totals, self._totals(piece)):
                each.set(total)
        before = self._wait_for_start(piece)
        with code.when(last):
            self._last(code.let(self.full * self.spec.piece), before)
        with code.otherwise():
            with code.when(ahead):
                self._publish(piece, before, totals)
                self._blocks(piece, lambda i, _: self._elements(i, self.there, before))
            with code.otherwise():
                self._piece(piece, before)
                self._publish(piece, before)

    def _wait_for_start(self, piece: ir.Value) -> list[Variable]:
        """The total before a piece, once known; after a long wait, computes the totals of other
        threads."""
        code, before = self.code, self._neutrals()
        known = code.variable(code.atomic("load", self._known))
        patience = code.variable(PATIENCE)
        with code.loop(lambda: known() < piece):
            code.emit(ir.Pause())
            patience.set(patience() - 1)
            with code.when(patience() < 0):
                late, found = known(), self._neutrals()
                self._load_starts(late, found)
                self._publish(late, found, self._totals(late))
            known.set(code.atomic("load", self._known))
        self._load_starts(piece, before)
        return before

    def _load_starts(self, piece: ir.Value, into: Sequence[Variable]) -> None:
        with self.code.when(piece > 0):
            starts = self._starts(piece)
            for vector, each in enumerate(into):
                each.set(starts.load(vector * self.lanes, self.lanes))

    def _publish(
        self, piece: ir.Value, before: Sequence[Variable],
        totals: Sequence[Variable | ir.Value] = (),
    ) -> None:  # fmt: skip
        """Publish the total before the next piece: the total before this one, plus its own
        total."""
        after = self.code.let(piece + 1)
        kept = self._starts(after)
        for vector, each in enumerate(before):
            start = each()
            if totals:
                total = totals[vector]
                start = self._combine(start, total if isinstance(total, ir.Value) else total())
            kept.store(vector * self.lanes, start)
        # Another thread may have published it already.
        self.code.atomic("exchange_if", self._known, piece, after)

    def _starts(self, piece: ir.Value) -> Buffer:
        first = self.code.let(piece * self.code.size(self.columns) + self.first_column)
        return self.code.output(STARTS, self.spec.wide).part(first)

    @property
    def _known(self) -> ir.Value:
        """The address of the number of the last piece with a published start."""
        word = self.code.let(self.first_column // self.lanes + FIRST)
        return self.code.let(self.code.output(STATE, int64).address(word))

    # ---- one piece -----------------------------------------------------------------------------

    def _piece(self, piece: ir.Value, before: Sequence[Variable]) -> None:
        """All of a piece; where sums round, the next piece starts from its total."""
        if not self.spec.wide.is_float:
            self._blocks(piece, lambda i, _: self._elements(i, self.there, before))
            return
        starts = [each() for each in before]
        totals = self._totals(piece, before)
        for each, start, total in zip(before, starts, totals):
            each.set(self._combine(start, total))

    def _totals(self, piece: ir.Value, before: Sequence[Variable] | None = None) -> list[ir.Value]:
        """The totals of a piece; its sums are also written if the totals `before` it are given."""
        chains = range(CHAINS)
        sums = [[self.code.variable(self._neutral) for _ in chains] for _ in range(self.vectors)]

        def add(i: ir.Value, chain: int) -> None:
            for each, element in zip(sums, self._elements(i, self.there, before)):
                each[chain].set(self._combine(each[chain](), element))

        self._blocks(piece, add)
        return [self._total([chain() for chain in each]) for each in sums]

    def _blocks(self, piece: ir.Value, do: Callable[[ir.Value, int], object]) -> None:
        low = self.code.let(piece * self.spec.piece)
        with self.code.range(low, self.code.let(low + self.spec.piece), CHAINS * self.step) as i:
            for chain in range(CHAINS):
                do(self.code.let(i + chain * self.step), chain)

    def _total(self, chains: list[ir.Value]) -> ir.Value:
        while len(chains) > 1:
            chains = [self._combine(*pair) for pair in zip(chains[::2], chains[1::2])]
        return chains[0]

    def _last(self, low: ir.Value, before: Sequence[Variable]) -> None:
        """The elements from `low` on."""
        with self.code.range(low, self.count) as i:
            self._elements(i, self.there, before)

    def _elements(
        self, i: ir.Value, where: ir.Value | None, before: Sequence[Variable] | None
    ) -> list[ir.Value]:
        """Element i of all columns; its sums are written if the totals `before` it are given."""
        index = self.count - 1 - i if self.spec.reverse else i
        row, found = self.code.let(index * self.code.size(self.spec.rows.inner)), []
        for number in range(self.vectors):
            at = row + number * self.lanes
            found.append(self._load(at, where))
            if before is not None:
                old = before[number]()
                new = self._combine(old, found[-1])
                before[number].set(new)
                self.y.store(at, (old if self.spec.exclusive else new).as_(self.spec.dtype), where)
        return found

    # ---- values --------------------------------------------------------------------------------

    @property
    def _neutral(self) -> ir.Value:
        return constant(self.spec.identity, self.spec.wide, self.lanes)

    def _neutrals(self) -> list[Variable]:
        return [self.code.variable(self._neutral) for _ in range(self.vectors)]

    def _combine(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.code.let(apply(self.spec.function, left, right))

    def _load(self, i: ir.Value, where: ir.Value | None) -> ir.Value:
        """Elements in the accumulation type; the neutral element in masked lanes."""
        elements = self.x.load(i, self.lanes, where).as_(self.spec.wide)
        return elements if where is None else select(where, elements, self._neutral)


class Row(Columns):
    """A contiguous row."""

    step = LANES

    def _total(self, chains: list[ir.Value]) -> ir.Value:
        return self.code.let(super()._total(chains).reduce_lanes(self.spec.function).spread(LANES))

    def _last(self, low: ir.Value, before: Sequence[Variable]) -> None:
        code, count = self.code, self.count
        whole = code.let(count & -LANES)
        with code.range(low, whole, LANES) as i:
            self._elements(i, None, before)
        with code.when(whole < count):
            rest = code.let(count - whole)
            position = code.let(count - LANES) if self.spec.reverse else whole
            self._elements(position, iota(LANES) < rest, before)

    def _elements(
        self, i: ir.Value, where: ir.Value | None, before: Sequence[Variable] | None
    ) -> list[ir.Value]:
        position = self.code.let(self.count - LANES - i if self.spec.reverse else i)
        elements = self.code.let(self._load(position, where))
        if before is not None:
            self._store_sums(position, elements, where, before[0])
        return [elements]

    def _store_sums(
        self, position: ir.Value, elements: ir.Value, where: ir.Value | None, before: Variable
    ) -> None:
        sums, distance = elements, 1
        while distance < LANES:
            sums = self._combine_shifted(sums, distance)
            distance *= 2
        own = self._shift_lanes(sums, 1) if self.spec.exclusive else sums
        self.y.store(position, self._combine(before(), own).as_(self.spec.dtype), where)
        last = 0 if self.spec.reverse else LANES - 1
        before.set(self._combine(before(), shuffle(sums, sums, (last,) * LANES)))

    def _combine_shifted(self, sums: ir.Value, distance: int) -> ir.Value:
        """Each lane combined with the one `distance` before it, if any."""
        shift = distance if self.spec.reverse else -distance
        shifted = tuple((lane + shift) % LANES for lane in range(LANES))
        number = iota(LANES, int32)
        inside = number < LANES - distance if self.spec.reverse else number >= distance
        return self.code.let(
            select(inside, self._combine(shuffle(sums, sums, shifted), sums), sums)
        )

    def _shift_lanes(self, sums: ir.Value, distance: int) -> ir.Value:
        """Each lane replaced by the lane `distance` before it in scan order."""
        step = distance if self.spec.reverse else -distance
        lanes = [lane + step for lane in range(LANES)]
        inside = tuple(lane if 0 <= lane < LANES else LANES for lane in lanes)
        return shuffle(sums, self._neutral, inside)
