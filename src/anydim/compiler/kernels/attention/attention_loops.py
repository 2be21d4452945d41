"""The loops of attention: work units, blocks of keys, tiles of queries.

for unit in start:stop                      one position of the batch, a few tiles of queries
  for block of keys                         a single block when all keys fit
    for head of a group                     grouped heads share keys and values
      for tile of queries                   of all heads of the group, if each has one query
        pack keys (and values)              unless already packed
        scores = queries * keys             register tiles; skips trailing masked keys
        scores to powers                    in the first-level cache
        mixed = powers * values             register tiles
        rows of the result
"""

from __future__ import annotations

from anydim.base.dtypes import float32, int64
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention.attention_plan import LINE, LOOP, SEEN, TURNED, Plan
from anydim.compiler.kernels.attention.attention_rows import largest_scores, powers, result_rows
from anydim.compiler.kernels.attention.key_masks import scan_mask, unmasked_keys
from anydim.compiler.kernels.attention.key_panels import (
    copy_keys,
    copy_values,
    multiply,
    pack_keys,
    pack_queries,
)
from anydim.compiler.kernels.codegen.arithmetic import (
    first_lanes,
    quotient_up,
    round_down,
    split_index,
)
from anydim.compiler.kernels.codegen.scalar_lowering import Context, ScalarLowering
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.ir import (
    START,
    STOP,
    Like,
    constant,
    greatest,
    least,
    select,
    variable,
)
from anydim.compiler.kernels.matmul.product_axes import Factor
from anydim.lang.tree import Axis
from anydim.lang.tree.affine import Affine
from anydim.sizes import Size, as_size


def attention_steps(plan: Plan, context: Context) -> tuple[ir.Step, ...]:
    """Return the body of the function of units start:stop; parts of the scratch are pointers."""
    return _Body(plan, context).steps()


class _Body:
    def __init__(self, plan: Plan, context: Context) -> None:
        self.plan, self.form, self.context = plan, plan.form, context
        self.code = Writer("unit_")
        names = [axis.name for axis in plan.batch]
        self.kernel = ScalarLowering(context)
        self.here = self.kernel.inner({n: variable(f"batch{i}") for i, n in enumerate(names)})
        self.next = self.kernel.inner({n: variable(f"next{i}") for i, n in enumerate(names)})

    def size(self, value: Size | int) -> ir.Value:
        return self.context.sizes.value(as_size(value))

    def steps(self) -> tuple[ir.Step, ...]:
        """Return all steps. Tiles have even heights: the first `taller` tiles have one more row."""
        code, plan, queries = self.code, self.plan, self.size(self.form.query.extent)
        code.let(self.size(plan.chunks), "chunks")
        if plan.group is not None:
            turned = code.let(queries.equals(1), TURNED.name)
            code.let(select(turned, 1, constant(plan.heads)), "heads")
            queries = code.let(select(turned, plan.heads, queries))
        tiles = code.let(quotient_up(queries, plan.rows), "tiles")
        height = code.let(queries / tiles, "height")
        code.let(queries - height * tiles, "taller")
        code.let(self.size(self.form.key.extent), LOOP.key_count.name)
        # Prefetches pay above the second-level cache only (+30 % at 32 x 128; -1 % within it).
        code.let(self.size(plan.l2_bytes) < self.size(plan.operand_bytes), "is_far")
        outside = code.here
        with code.range(START, STOP, name="unit"):
            self._position()
            self._next_position()
            inside = code.here
            start = code.let(variable("chunk") * plan.tiles)
            stop = least(start + plan.tiles, tiles)
            if plan.group is not None:
                stop = select(TURNED, tiles, stop)
            stop = code.let(stop)
            code.let(_tile_row(start), LOOP.unit_first.name)
            self._blocks(start, stop)
            code.take((*self.here.steps, *self.next.steps), inside)
        code.take(self.kernel.steps, outside)
        return code.written

    # ---- positions of the batch ----------------------------------------------------------------

    def _position(self) -> None:
        """Compute a unit's chunk of queries and its batch indices; the last index is fastest."""
        axes = [(f"batch{n}", self.size(a.extent)) for n, a in enumerate(self.plan.batch)]
        self.code.take(split_index("unit", ("chunk", variable("chunks")), *axes[:0:-1]))
        if axes:
            self.code.let(variable(f"rest{len(axes) - 1}"), "batch0")

    def _next_position(self) -> None:
        """Compute the batch indices of the next position, modulo the batch."""
        carry: ir.Value = constant(1)
        for number in range(len(self.plan.batch) - 1, -1, -1):
            raised = variable(f"batch{number}") + carry
            ends = raised >= self.size(self.plan.batch[number].extent)
            self.code.let(select(ends, 0, raised), f"next{number}")
            carry = select(ends, 1, constant(0))

    def _ahead(self) -> list[ir.Step]:
        """Prefetch the rows number "out_query" of the next position, if they may be far away.

        The rows of one head are not contiguous, so hardware prefetchers do not detect them.
        """
        form, code = self.form, self.code
        with code.block() as steps, code.when(ir.Var(ir.FLAG, "is_far")):
            for factor, row, column in (
                (form.queries, form.query, form.depth),
                (form.keys, form.key, form.depth),
                (form.values, form.key, form.width),
            ):
                if factor.address.stride(column.name).constant != 1:
                    continue
                start = self.next.offset(self._address(factor, row, column))
                stride = self.size(factor.address.stride(row.name))
                at = code.let(start + LOOP.out_query * stride)
                for first in range(0, int(column.extent.constant or 0), LINE // float32.bytes):
                    code.emit(ir.Prefetch(self.context.buffers[factor.tensor], at + first))
        return steps

    # ---- blocks of keys ------------------------------------------------------------------------

    def _blocks(self, start: ir.Value, stop: ir.Value) -> None:
        """Run the tiles from `start` to `stop` for each block of keys."""
        code, key_count, size = self.code, LOOP.key_count, self.plan.key_block
        if self.plan.blocks:
            with code.range(0, greatest(key_count, 1), size, name=LOOP.block.name) as block:
                code.let(least(key_count - block, size), LOOP.count.name)
                self._block(constant(1), start, stop)
            return
        code.let(constant(0), LOOP.block.name)
        code.let(key_count, LOOP.count.name)
        # Chunks of one position follow each other: its keys stay packed.
        first = variable("chunk").equals(0) | variable("unit").equals(START)
        self._block(first.as_(int64), start, stop)

    def _block(self, packs: ir.Value, start: ir.Value, stop: ir.Value) -> None:
        code = self.code
        code.let(quotient_up(LOOP.count, self.plan.lanes), LOOP.panels.name)
        self.packs = code.variable(packs)
        code.take(scan_mask(self.plan, self.here, alike=True))
        if self.plan.group is None:
            self._tiles(start, stop)
            return
        with code.range(0, variable("heads"), name=LOOP.head.name):
            self._tiles(start, stop)

    def _tiles(self, start: ir.Value, stop: ir.Value) -> None:
        with self.code.range(start, stop) as number:
            self._tile(number)

    def _address(self, factor: Factor, *left_out: Axis) -> Affine:
        """The address of a factor without some axes, nor that of a group of heads."""
        group = () if self.plan.group is None else (self.plan.group,)
        return factor.address.without(*(axis.name for axis in (*left_out, *group)))

    def _pack(self) -> None:
        """Pack a block of keys; the only block stays packed for all chunks of a position."""
        plan, form, code, count = self.plan, self.form, self.code, LOOP.count
        with code.when(constant(0) < self.packs() * LOOP.keys):
            in_rows = form.keys.address.stride(form.depth.name).constant == 1
            pack, axis = (pack_keys, form.key) if in_rows else (copy_keys, form.depth)
            stride = self.size(form.keys.address.stride(axis.name))
            source = self._source(form.keys, form.depth.name)
            own = source.buffer, source.offset, stride, count
            code.take(pack(*own, plan.depth, plan.lanes, plan.pairs, plan.is_narrow(form.keys)))
            if plan.copies:
                stride = self.size(form.values.address.stride(form.key.name))
                source = self._source(form.values, form.width.name)
                own = source.buffer, source.offset, stride, count
                narrow = plan.is_narrow(form.values)
                code.take(copy_values(*own, plan.width, plan.lanes, plan.pairs, narrow))
            self.packs.set(0)

    def _source(self, factor: Factor, column: str) -> ir.Address:
        """Return the address of keys or values at the first key of the block."""
        base = self.here.offset(factor.address.without(self.form.key.name, column))
        stride = self.size(factor.address.stride(self.form.key.name))
        offset = self.code.let(base + LOOP.block * stride)
        return ir.Address(self.context.buffers[factor.tensor], offset)

    # ---- tiles of queries ----------------------------------------------------------------------

    def _tile(self, number: ir.Value) -> None:
        code, plan = self.code, self.plan
        code.let(variable("height") + (number < variable("taller")).as_(int64), LOOP.tile.name)
        first = code.let(_tile_row(number), LOOP.first.name)
        at = first - LOOP.unit_first
        if plan.group is not None:
            at = at + LOOP.head * (plan.rows * plan.tiles)
        code.let(at, LOOP.at.name)
        with code.block() as scored:
            self._emit_scores()
        code.take(unmasked_keys(plan, self.here, scored))
        code.let(least(LOOP.count, SEEN), LOOP.mixed_keys.name)
        code.take(powers(plan))
        self._mix()
        code.take(result_rows(plan, self.here, tuple(self._ahead())))

    def _emit_scores(self) -> None:
        """Compute the scores of unmasked keys, and the maximum of each row."""
        plan, code, keys = self.plan, self.code, LOOP.keys
        whole = code.let(round_down(keys, plan.lanes), LOOP.whole.name)
        code.let(first_lanes(keys - whole, plan.lanes), plan.inside.name)
        self._pack()
        queries, query = self.form.queries, self.form.query.name
        base = self.here.offset(self._address(queries, self.form.query, self.form.depth))
        stride = self.size(queries.address.stride(query))
        if plan.group is not None:
            heads = self.size(queries.address.stride(plan.group.name))
            base = base + select(TURNED, 0, LOOP.head * heads)
            stride = code.let(select(TURNED, heads, stride))
        offset = code.let(base + LOOP.first * stride)
        own = ir.Address(self.context.buffers[queries.tensor], offset)
        if plan.has_words(queries):
            stride = stride / 2
        elif plan.pairs:
            narrow = plan.is_narrow(queries)
            code.take(pack_queries(own.buffer, offset, stride, plan.depth, plan.lanes, narrow))
            own, stride = ir.Address("packed_queries", constant(0)), constant(plan.words)
        packed, panel = ir.Address("packed_keys", constant(0)), plan.words * plan.lanes
        scalars = plan.words, stride, plan.lanes, panel, plan.stride, quotient_up(keys, plan.lanes)
        self._multiply(own, packed, "scores", *scalars)
        code.take(largest_scores(plan, self.here))

    def _mix(self) -> None:
        plan, values = self.plan, self.form.values
        source, stride = ir.Address("packed_values", constant(0)), constant(plan.padded)
        if not plan.copies:
            source = self._source(values, self.form.width.name)
            stride = self.size(values.address.stride(self.form.key.name))
        scores, vectors = ir.Address("scores", constant(0)), plan.padded // plan.lanes
        count = quotient_up(LOOP.mixed_keys, 2) if plan.pairs else LOOP.mixed_keys
        scalars = count, plan.stride, stride, plan.lanes, plan.padded, vectors
        self._multiply(scores, source, "mixed", *scalars)

    def _multiply(self, a: ir.Value, b: ir.Value, c: str, *scalars: Like) -> None:
        """Multiply a tile of queries or scores by keys or values."""
        name, rows = self.plan.library.name, self.plan.rows
        self.code.emit(multiply(name, rows, LOOP.tile, a, b, c, *scalars))


def _tile_row(tile: ir.Value) -> ir.Value:
    """Return the first query of a tile."""
    return tile * variable("height") + least(tile, variable("taller"))
