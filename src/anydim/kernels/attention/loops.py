"""The loops of attention: work units, blocks of keys, tiles of queries.

for unit in start:stop                      one position of the batch, a few tiles of queries
  for block of keys                         one pass when all keys fit
    for tile of queries
      pack keys (and values)                unless it has been done
      scores = queries * keys               register tiles, without keys that a mask shuts out
      scores to powers                      they never leave the nearest cache
      mixed = powers * values               register tiles
      rows of the result
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.attention.form import Factor
from anydim.kernels.attention.masks import look, seen_keys
from anydim.kernels.attention.packing import copy_keys, copy_values, pack_keys
from anydim.kernels.attention.plan import LINE, Plan
from anydim.kernels.attention.rows import largest_scores, powers, result_rows
from anydim.kernels.attention.tiles import multiply
from anydim.kernels.ir import constant, greatest, least, register, select, variable
from anydim.kernels.write.arithmetic import first_lanes, loop, quotient_up, round_down, split_index
from anydim.kernels.write.elements import Context, Elements
from anydim.sizes import Size, as_size


def attention_steps(plan: Plan, context: Context) -> tuple[ir.Step, ...]:
    """The body of the function that does units start:stop; parts of the scratch are pointers."""
    return _Body(plan, context).steps()


class _Body:
    def __init__(self, plan: Plan, context: Context) -> None:
        self.plan = plan
        self.form = plan.form
        self.context = context
        names = [axis.name for axis in self.form.batch]
        self.kernel = Elements(context)
        self.here = self.kernel.inner({n: variable(f"batch{i}") for i, n in enumerate(names)})
        self.next = self.kernel.inner({n: variable(f"next{i}") for i, n in enumerate(names)})

    def size(self, value: Size | int) -> ir.Value:
        return self.context.sizes.value(as_size(value))

    def steps(self) -> tuple[ir.Step, ...]:
        """All of it. Heights of tiles are even: the first `taller` have one row more."""
        queries, tiles = self.size(self.form.query.extent), variable("tiles")
        blocks, moved = self._blocks(), self.size(self.plan.operand_bytes)
        unit = loop(
            "unit", variable("start"), variable("stop"), 1,
            *self._position(),
            *self._next_position(),
            *self.here.steps,
            *self.next.steps,
            ir.Let("tile_start", variable("chunk") * self.plan.tiles),
            ir.Let("tile_stop", least(variable("tile_start") + self.plan.tiles, tiles)),
            ir.Let("unit_first", _tile_row(variable("tile_start"))),
            *blocks,
        )  # fmt: skip
        return (
            ir.Let("chunks", self.size(self.plan.chunks)),
            ir.Let("tiles", quotient_up(queries, self.plan.rows)),
            ir.Let("height", queries / tiles),
            ir.Let("taller", queries - variable("height") * tiles),
            ir.Let("key_count", self.size(self.form.key.extent)),
            ir.Let("is_far", self.size(self.plan.l2_bytes) < moved),
            *self.kernel.steps,
            unit,
        )

    # ---- positions of the batch ----------------------------------------------------------------

    def _position(self) -> list[ir.Step]:
        """The chunk of queries and the batch indices of a unit; the last index runs fastest."""
        axes = [(f"batch{n}", self.size(a.extent)) for n, a in enumerate(self.form.batch)]
        steps = split_index("unit", ("chunk", variable("chunks")), *axes[:0:-1])
        return [*steps, ir.Let("batch0", variable(f"rest{len(axes) - 1}"))] if axes else steps

    def _next_position(self) -> list[ir.Step]:
        """The batch indices of the position after this one; after the last the first again."""
        steps: list[ir.Step] = []
        carry: ir.Value = constant(1)
        for number in range(len(self.form.batch) - 1, -1, -1):
            raised = variable(f"batch{number}") + carry
            extent = self.size(self.form.batch[number].extent)
            ends = raised >= extent
            steps.append(ir.Let(f"next{number}", select(ends, 0, raised)))
            carry = select(ends, 1, constant(0))
        return steps

    def _ahead(self) -> tuple[ir.Step, ...]:
        """Ask for what the next position reads in the row of this number, if it may be far away.

        Rows of one head lie apart in memory; no processor guesses them.
        """
        form = self.form
        steps: list[ir.Step] = []
        for name, factor, row, column in (
            ("queries", form.queries, form.query, form.depth),
            ("keys", form.keys, form.key, form.depth),
            ("values", form.values, form.key, form.width),
        ):
            if factor.address.stride(column.name).constant != 1:
                continue
            start = self.next.offset(factor.at(row.name, column.name))
            stride = self.size(factor.address.stride(row.name))
            at = start + variable("out_query") * stride
            steps.append(ir.Let(f"{name}_ahead", at))
            for first in range(0, int(column.extent.constant or 0), LINE // float32.bytes):
                line = variable(f"{name}_ahead") + first
                steps.append(ir.Prefetch(self.context.buffers[factor.tensor], line))
        return (ir.If(ir.Var(ir.FLAG, "is_far"), tuple(steps)),)

    # ---- blocks of keys ------------------------------------------------------------------------

    def _blocks(self) -> list[ir.Step]:
        lanes = self.plan.lanes
        first_chunk = variable("chunk").equals(0)
        first_unit = variable("unit").equals(variable("start"))
        first = ir.Convert(ir.INDEX, first_chunk | first_unit)
        inside: list[ir.Step] = [
            ir.Let("panels", quotient_up(variable("count"), lanes)),
            ir.Declare("packs", constant(1) if self.plan.blocks else first),
            *look(self.plan, self.here, alike=True),
            self._tiles(),
        ]
        if not self.plan.blocks:
            count = ir.Let("count", variable("key_count"))
            return [ir.Let("block", constant(0)), count, *inside]
        size = self.plan.key_block
        count = ir.Let("count", least(variable("key_count") - variable("block"), size))
        return [loop("block", 0, greatest(variable("key_count"), 1), size, count, *inside)]

    def _pack(self) -> ir.Step:
        """Pack a block of keys; the only block stays packed for all chunks of a position."""
        plan, form, count = self.plan, self.form, variable("count")
        source = self.context.buffers[form.keys.tensor]
        steps = [self._at("keys_at", form.keys, form.depth.name)]
        in_rows = form.keys.address.stride(form.depth.name).constant == 1
        pack, axis = (pack_keys, form.key) if in_rows else (copy_keys, form.depth)
        stride = self.size(form.keys.address.stride(axis.name))
        steps += pack(source, variable("keys_at"), stride, count, plan.depth, plan.lanes)
        if plan.copies:
            source = self.context.buffers[form.values.tensor]
            stride = self.size(form.values.address.stride(form.key.name))
            steps.append(self._at("copy_at", form.values, form.width.name))
            steps += copy_values(source, variable("copy_at"), stride, count, plan.width, plan.lanes)
        missing = constant(0) < register("packs") * variable("keys")
        return ir.If(missing, (*steps, ir.Assign("packs", constant(0))))

    def _at(self, name: str, factor: Factor, column: str) -> ir.Step:
        """Name the address of keys or values at the first key of the block."""
        base = self.here.offset(factor.at(self.form.key.name, column))
        stride = self.size(factor.address.stride(self.form.key.name))
        return ir.Let(name, base + variable("block") * stride)

    # ---- tiles of queries ----------------------------------------------------------------------

    def _tiles(self) -> ir.Step:
        number = variable("number")
        taller = ir.Convert(ir.INDEX, number < variable("taller"))
        return loop(
            "number", variable("tile_start"), variable("tile_stop"), 1,
            ir.Let("tile", variable("height") + taller),
            ir.Let("first", _tile_row(number)),
            ir.Let("at", variable("first") - variable("unit_first")),
            *seen_keys(self.plan, self.here, self._scored()),
            ir.Let("mixed_keys", least(variable("count"), register("seen"))),
            *powers(self.plan),
            *self._mix(),
            *result_rows(self.plan, self.here, self._ahead()),
        )  # fmt: skip

    def _scored(self) -> list[ir.Step]:
        """The scores of the keys that are seen, and the largest of each row."""
        tail = variable("keys") - variable("whole")
        return [
            ir.Let("whole", round_down(variable("keys"), self.plan.lanes)),
            ir.Let("inside_keys", first_lanes(tail, self.plan.lanes)),
            self._pack(),
            *self._scores(),
            *largest_scores(self.plan, self.here),
        ]

    def _scores(self) -> list[ir.Step]:
        plan, queries, query = self.plan, self.form.queries, self.form.query.name
        base = self.here.offset(queries.at(query, self.form.depth.name))
        stride = self.size(queries.address.stride(query))
        own = ir.Address(self.context.buffers[queries.tensor], variable("queries_at"))
        keys, panel = ir.Address("packed_keys", constant(0)), plan.depth * plan.lanes
        vectors = quotient_up(variable("keys"), plan.lanes)
        return [
            ir.Let("queries_at", base + variable("first") * stride),
            multiply(
                plan.library.name, plan.rows, variable("tile"), own, keys, "scores",
                plan.depth, stride, plan.lanes, panel, plan.stride, vectors,
            ),
        ]  # fmt: skip

    def _mix(self) -> list[ir.Step]:
        plan, values = self.plan, self.form.values
        if plan.copies:
            steps: list[ir.Step] = []
            source = ir.Address("packed_values", constant(0))
            stride: ir.Value = constant(plan.padded)
        else:
            steps = [self._at("values_at", values, self.form.width.name)]
            source = ir.Address(self.context.buffers[values.tensor], variable("values_at"))
            stride = self.size(values.address.stride(self.form.key.name))
        scores, vectors = ir.Address("scores", constant(0)), plan.padded // plan.lanes
        call = multiply(
            plan.library.name, plan.rows, variable("tile"), scores, source, "mixed",
            variable("mixed_keys"), plan.stride, stride, plan.lanes, plan.padded, vectors,
        )  # fmt: skip
        return [*steps, call]


def _tile_row(tile: ir.Value) -> ir.Value:
    """The first query of a tile."""
    return tile * variable("height") + least(tile, variable("taller"))
