"""Loops of a transposed copy: square blocks, or a variant for short axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import (
    first_lanes,
    quotient_up,
    round_down,
    split_index,
)
from anydim.compiler.kernels.codegen.context import condition_flag
from anydim.compiler.kernels.codegen.register_transpose import deinterleave, interleave_lanes
from anydim.compiler.kernels.codegen.vector_loops import store_prefetches
from anydim.compiler.kernels.ir import START, STOP, constant, greatest, least, select, variable
from anydim.compiler.kernels.schedule import ANY
from anydim.compiler.kernels.transpose.transpose_form import LANES, block_of, blocks_of, parts_of
from anydim.compiler.kernels.transpose.transpose_tiles import CHUNK, STRIP, Squares
from anydim.compiler.kernels.versions import Listed, Version, usable_versions
from anydim.sizes import ALWAYS, NEVER, Condition, Size, at_most, exactly, minimum

MOST_LANES = 16  # for small elements: larger squares do not fit into registers
# Bytes of 300 x 300 x 3: 1.6 -> 0.27; five to seven columns 1.04 to 1.17 -> 0.56 to 0.76.
FEW = (2, 3, 4, 8)  # columns that are interleaved, or deinterleaved, by shuffles
_MORE = (5, 6, 7)  # if a two-vector shuffle is one instruction
_UNROLLED = 4  # scalar copies per iteration

WIDTH, HEIGHT, ROW_STRIDE, LANE_STEP = map(
    Size.symbol, ("width", "height", "row_stride", "lane_step")
)
Variant = Version[None]  # its condition over WIDTH, ... of a chunk


@dataclass(frozen=True)
class Chunks(Squares):
    """Emits chunks: all lanes of a block of rows, at one index of the outer axes.

    The variant that `forced` names is taken wherever it is right.
    """

    forced: str = ANY

    def write(self) -> None:
        """Emit all chunks."""
        self._declare_buffers()
        with self.code.range(START, STOP, name="unit"):
            self._chunk()

    def _chunk(self) -> None:
        code, value, form = self.code, self._value, self.form
        block = block_of(form, self.vector.dtype)
        blocks = value(blocks_of(form, self.vector.dtype))
        outer = ((axis.name, value(axis.extent)) for axis in reversed(form.outer))
        lane_step = value(form.source.stride(form.lane.name))
        code.take(split_index("unit", ("part", value(parts_of(form))), ("block", blocks), *outer))
        first = code.let(variable("part") * LANES, CHUNK.lane_first.name)
        code.let(self._at(form.source) + first * lane_step, CHUNK.source.name)
        code.let(self._at(form.target) + first, CHUNK.target.name)
        low = code.let(variable("block") * value(block), CHUNK.row0.name)
        code.let(_end(low, value(block), value(form.row.extent)), CHUNK.row1.name)
        self._lanes()
        self._first_variant(self.variants)

    def _lanes(self) -> None:
        """The number of lanes of a chunk, and their distance in the source.

        If the lane axis has extent 1, the next axis of the target supplies the lanes, and some
        chunks copy the lanes of the following ones too.
        """
        value, form = self._value, self.form
        extent = form.lane.extent
        width, step = value(extent), value(form.source.stride(form.lane.name))
        if not form.adjacent:
            first = CHUNK.lane_first
            width = _end(first, constant(LANES), width) - first
        elif extent.constant is None and form.inside is None:
            (axis,), each = form.adjacent, STRIP
            at, alone = variable(axis.name), width.equals(1)
            some = select((at & (each - 1)).equals(0), least(value(axis.extent) - at, each), 0)
            next_step = value(form.source.stride(axis.name))
            width, step = select(alone, some, width), select(alone, next_step, step)
        self.code.let(width, CHUNK.width.name)
        self.code.let(step, CHUNK.lane_step.name)

    # ---- variants ------------------------------------------------------------------------------

    def _first_variant(self, variants: Sequence[Variant]) -> None:
        """Emit the first variant whose condition holds."""
        # Chosen per chunk: a template cannot know which axis is long at call time.
        variant, *others = variants
        if not others:
            variant.lower(None)
            return
        with self.code.when(condition_flag(variant.when, self._compare_property)):
            variant.lower(None)
        with self.code.otherwise():
            self._first_variant(others)

    def _compare_property(self, size: Size, relation: str, number: int) -> ir.Value:
        """Compare a property of a chunk with a number."""
        known = {
            WIDTH: CHUNK.width, HEIGHT: self._value(self.form.row.extent),
            ROW_STRIDE: self._row_stride, LANE_STEP: CHUNK.lane_step,
        }  # fmt: skip
        return known[size] <= number if relation == "<=" else known[size] >= number

    @cached_property
    def variants(self) -> list[Variant]:
        """Variants that beat squares where an axis is contiguous on both sides, or short."""
        rows, lanes = partial(self._vectors, "row", "lane"), partial(self._vectors, "lane", "row")
        narrow, low = partial(self._singly, "row", "lane"), partial(self._singly, "lane", "row")
        least_filled = max(2, min(MOST_LANES, self._wide.lanes) // 4)
        found = [
            _variant("rows", exactly(ROW_STRIDE, 1), rows),
            _variant("lanes", exactly(LANE_STEP, 1), lanes),
            *(self._variants_for_few() if self._copies else ()),
            _variant("few_lanes", at_most(WIDTH, least_filled - 1), narrow, ALWAYS),
            _variant("few_rows", at_most(HEIGHT, least_filled - 1), low, ALWAYS),
        ]
        squares = _variant("squares", ALWAYS, self._squares)
        return usable_versions([*(found if self.form.inside is None else ()), squares], self.forced)

    @property
    def versions(self) -> Listed:
        """The names of variants, and the conditions under which the first chunk takes them."""
        form, known = self.form, self.form.lane.extent
        width, step = minimum(known, LANES), form.source.stride(form.lane.name)
        if form.adjacent and known.constant is None and form.inside is None:
            (axis,), one = form.adjacent, exactly(known, 1)
            width = one.where(minimum(axis.extent, STRIP), known)
            step = one.where(form.source.stride(axis.name), step)
        sizes = {
            "width": width, "height": form.row.extent, "lane_step": step,
            "row_stride": form.target.stride(form.row.name),
        }  # fmt: skip
        found = ((each.name, each.when.substitute(sizes)) for each in self.variants)
        return tuple(each for each in found if each[1] != NEVER)

    def _variants_for_few(self) -> list[Variant]:
        """Variants for a few rows contiguous in the source, or a few lanes contiguous in the
        target."""
        row, lane, lanes = self.form.row.extent, self.form.lane.extent, self._wide.lanes
        fitting = [
            count for count in FEW if 2 * count <= lanes and (count < 4 or 4 * count <= lanes)
        ]
        variants = list[Variant]()
        for count in reversed([few for few in fitting if few != FEW[-1]]):
            if row.constant in (None, count):
                when = exactly(HEIGHT, count) & exactly(LANE_STEP, count)
                emit = partial(self._few, self._deinterleave, count, "lane", lanes)
                variants.append(_variant(f"deinterleaved{count}", when, emit))
        if self.context.machine.permutes and self.vector.dtype.bytes > 1:
            fitting += _MORE
        for count in reversed(fitting):
            if lane.constant in (None, count):
                when = exactly(WIDTH, count) & exactly(ROW_STRIDE, count)
                emit = partial(self._few, self._interleave, count, "row", _step(lanes, count))
                variants.append(_variant(f"interleaved{count}", when, emit))
        return variants

    def _vectors(self, own: str, other: str) -> None:
        """Vector copies along the axis that is contiguous on both sides."""
        vector = self._wide if self._copies else self.vector
        low, high = self._ends(own)
        whole = low + round_down(high - low, vector.lanes)
        with self.code.range(*self._ends(other), name=other) as outer:
            lanes, name = vector.lanes, f"{own}_vector"
            for at, last in self.code.blocks(low, whole, high, lanes, name=name):
                mask = first_lanes(high - at, lanes) if last else None
                from_, to = self._offsets(**{own: at, other: outer})
                store = self._write(to, ir.Load(vector, "x", from_, mask), mask)
                self.code.take(store_prefetches([store]))

    def _singly(self, own: str, other: str) -> None:
        """Scalar copies, the longer axis innermost."""
        kind = ir.Type(self.vector.dtype)
        low, high = self._ends(own)
        whole = low + round_down(high - low, _UNROLLED)
        with self.code.range(*self._ends(other), name=other) as outer:
            for at, last in self.code.blocks(low, whole, high, _UNROLLED, 1, own):
                for number in range(1 if last else _UNROLLED):
                    source, target = self._offsets(**{own: at + number, other: outer})
                    self._write(target, ir.Load(kind, "x", source), None)

    def _few(
        self, move: Callable[[int, ir.Value, ir.Value | None], None], count: int, axis: str,
        step: int,
    ) -> None:  # fmt: skip
        """`move` whole vectors along an axis, then the remainder."""
        low, high = self._ends(axis)
        end = high - (self._wide.lanes - 1)
        rest = low + quotient_up(greatest(end - low, 0), step) * step
        with self.code.range(low, end, step, "p") as at:
            move(count, at, None)
        with self.code.range(rest, high, step, "p") as at:
            move(count, at, high - at)

    def _interleave(self, count: int, row: ir.Value, remaining: ir.Value | None) -> None:
        """Interleave `count` lanes of several rows into target vectors; `remaining` rows at the
        end."""
        wide, lanes = self._wide, self._wide.lanes
        step = _step(lanes, count)
        kind = ir.Type(wide.dtype, step)
        some = None if remaining is None else first_lanes(least(remaining, step), step)
        offsets = [self._offsets(row, constant(number)) for number in range(count)]
        loads = [ir.Load(kind, "x", source, some) for source, _ in offsets]
        stores = []
        for begin in range(0, step * count, lanes):
            mask = None
            if remaining is not None:
                mask = first_lanes(least(remaining, step) * count + -begin, lanes)
            made = interleave_lanes(wide, loads, self.code.let, begin)
            stores.append(ir.Store("y", offsets[0][1] + begin, made, mask))
        self.code.take([*stores, *store_prefetches(stores)])

    def _deinterleave(self, count: int, lane: ir.Value, remaining: ir.Value | None) -> None:
        """Deinterleave source vectors into `count` target rows; `remaining` lanes at the end."""
        wide, lanes = self._wide, self._wide.lanes
        masks: list[ir.Value | None] = [None] * count
        some = None
        if remaining is not None:
            joined = least(remaining * count, lanes * count)
            masks = [first_lanes(joined + -number * lanes, lanes) for number in range(count)]
            some = first_lanes(least(remaining, lanes), lanes)
        offsets = [self._offsets(constant(number), lane) for number in range(count)]
        source = offsets[0][0]
        loads = [ir.Load(wide, "x", source + n * lanes, mask) for n, mask in enumerate(masks)]
        columns = deinterleave(wide, loads, self.code.let)
        stores = [ir.Store("y", to, column, some) for (_, to), column in zip(offsets, columns)]
        self.code.take([*stores, *store_prefetches(stores)])


def _step(lanes: int, count: int) -> int:
    """Rows of `count` elements that are interleaved at once, so that they fill whole vectors."""
    return lanes if lanes % count else lanes // count


def _end(first: ir.Value, each: ir.Value, end: ir.Value) -> ir.Value:
    """End of a chunk that starts at `first`: the last one is up to half a chunk longer or
    shorter."""
    last = first + each
    return select(end - last < each / 2, end, last)


def _variant(
    name: str, when: Condition, emit: Callable[[], None], right: Condition | None = None
) -> Variant:
    return Version(name, when, None, lambda _: emit(), when if right is None else right)
