"""The loops of attention: work units, blocks of keys, tiles of queries.

    for unit in start:stop                      one batch position and one chunk of its queries
      for block of keys                         one pass when all keys fit
        pack keys (and values)                  unless the unit before packed the same
        for tile of queries
          scores = queries * keys               register tiles
          softmax of the tile's rows            the scores never leave the nearest cache
          mixed = powers * values               register tiles
          result rows
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.arithmetic import (
    compare,
    constant,
    first_lanes,
    greatest,
    least,
    loop,
    minus,
    plus,
    quotient,
    quotient_up,
    register,
    round_down,
    times,
    variable,
)
from anydim.kernels.attention_form import Factor, Form
from anydim.kernels.attention_packing import copy_keys, copy_values, pack_keys
from anydim.kernels.attention_rows import RowPlan, finish_rows, softmax_rows
from anydim.kernels.attention_tiles import multiply
from anydim.kernels.elements import Context, Elements, operate
from anydim.sizes import Size, align_up, as_size, ceil_div, minimum

LINE = 64


@dataclass(frozen=True)
class Part:
    """A part of the scratch memory: float32 elements, from a whole line on."""

    name: str
    elements: Size


@dataclass(frozen=True)
class Plan:
    """The decisions behind the code. `blocks`: the keys may take more than one block."""

    form: Form
    library: ir.Library
    rows: int
    lanes: int
    query_block: int
    key_block: int
    blocks: bool
    copies: bool

    @property
    def depth(self) -> int:
        return int(self.form.depth.extent.constant or 0)

    @property
    def stride(self) -> int:
        """Elements between rows of scores: a block and a line, so that rows spread over sets."""
        return self.key_block + self.lanes

    @property
    def row_plan(self) -> RowPlan:
        return RowPlan(self.form, self.lanes, self.stride, self.blocks)

    @property
    def chunks(self) -> Size:
        return ceil_div(self.form.query.extent, self.query_block)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The scratch memory of a thread."""
        keys = self.form.key.extent
        padded = self.row_plan.padded
        rows = self.query_block
        some = minimum(align_up(keys, self.lanes), as_size(self.key_block))
        found = [
            Part("scores", as_size(self.rows * self.stride)),
            Part("mixed", as_size(self.rows * padded)),
            Part("totals", as_size(rows)),
        ]
        if self.blocks:
            found += [
                Part("tops", as_size(rows)),
                Part("keeps", as_size(self.rows)),
                Part("sums", as_size(rows * padded)),
            ]
        found.append(Part("packed_keys", some * self.depth))
        if self.copies:
            found.append(Part("packed_values", some * padded))
        return tuple(found)

    def places(self) -> tuple[tuple[Part, Size], ...]:
        """Each part and the byte it begins at."""
        at = as_size(0)
        found = []
        for part in self.parts:
            found.append((part, at))
            at = at + align_up(part.elements * float32.bytes, LINE)
        return tuple(found)

    @property
    def scratch(self) -> Size:
        part, at = self.places()[-1]
        return at + align_up(part.elements * float32.bytes, LINE)


def attention_steps(plan: Plan, context: Context) -> tuple[ir.Step, ...]:
    """The body of the function that does units start:stop; parts of the scratch are pointers."""
    return _Body(plan, context).steps()


class _Body:
    def __init__(self, plan: Plan, context: Context) -> None:
        self.plan = plan
        self.form = plan.form
        self.context = context
        self.kernel = Elements(context)
        names = [axis.name for axis in self.form.batch]
        indices = {name: variable(f"batch{n}") for n, name in enumerate(names)}
        self.unit = self.kernel.inner(indices)

    def size(self, value: Size | int) -> ir.Value:
        return self.context.sizes.value(as_size(value))

    def steps(self) -> tuple[ir.Step, ...]:
        """All of it."""
        body = self._blocks()
        chunk_rows = quotient_up(self.size(self.form.query.extent), variable("chunks"))
        left = minus(self.size(self.form.query.extent), variable("chunk_start"))
        unit = loop(
            "unit", variable("start"), variable("stop"), 1,
            *self._position(),
            ir.Let("chunk_start", times(variable("chunk"), variable("chunk_rows"))),
            ir.Let("chunk_count", greatest(least(left, variable("chunk_rows")), 0)),
            *self.unit.steps,
            *body,
        )  # fmt: skip
        return (
            ir.Let("chunks", self.size(self.plan.chunks)),
            ir.Let("chunk_rows", chunk_rows),
            ir.Let("key_count", self.size(self.form.key.extent)),
            *self.kernel.steps,
            unit,
        )

    def _position(self) -> list[ir.Step]:
        """The chunk and the batch indices of a unit; the last batch axis runs fastest."""
        steps: list[ir.Step] = []
        rest: ir.Value = variable("unit")

        def split(name: str, left: str, extent: ir.Value) -> ir.Value:
            steps.append(ir.Let(left, quotient(rest, extent)))
            steps.append(ir.Let(name, minus(rest, times(variable(left), extent))))
            return variable(left)

        rest = split("chunk", "position", variable("chunks"))
        for number in range(len(self.form.batch) - 1, 0, -1):
            extent = self.size(self.form.batch[number].extent)
            rest = split(f"batch{number}", f"position{number}", extent)
        if self.form.batch:
            steps.append(ir.Let("batch0", rest))
        return steps

    # ---- blocks of keys ------------------------------------------------------------------------

    def _blocks(self) -> list[ir.Step]:
        lanes = self.plan.lanes
        tail = minus(variable("count"), variable("whole"))
        inside = [
            ir.Let("panels", quotient_up(variable("count"), lanes)),
            ir.Let("whole", round_down(variable("count"), lanes)),
            ir.Let("inside_keys", first_lanes(tail, lanes)),
            *self._pack(),
            *self._tiles(),
        ]
        if not self.plan.blocks:
            return [
                ir.Let("block", constant(0)),
                ir.Let("count", variable("key_count")),
                *inside,
            ]
        size = self.plan.key_block
        count = least(minus(variable("key_count"), variable("block")), size)
        stop = greatest(variable("key_count"), 1)
        return [loop("block", 0, stop, size, ir.Let("count", count), *inside)]

    def _pack(self) -> list[ir.Step]:
        """Pack a block of keys; the only block stays packed for all chunks of a batch position."""
        plan, form = self.plan, self.form
        steps: list[ir.Step] = []
        along_depth = form.keys.address.stride(form.depth.name).constant == 1
        pack, axis = (pack_keys, form.key) if along_depth else (copy_keys, form.depth)
        start = self._start(steps, "key_start", form.keys, form.key.name, form.depth.name)
        stride = self.size(form.keys.address.stride(axis.name))
        source = self.context.buffers[form.keys.tensor]
        steps += pack(source, start, stride, variable("count"), plan.depth, plan.lanes)
        if plan.copies:
            start = self._start(
                steps, "copy_start", form.values, form.key.name, form.width.name
            )
            width = int(form.width.extent.constant or 0)
            steps += copy_values(
                self.context.buffers[form.values.tensor],
                start,
                self.size(form.values.address.stride(form.key.name)),
                variable("count"),
                width,
                plan.lanes,
            )
        if plan.blocks:
            return steps
        new = operate(
            "or",
            compare("equal", variable("chunk"), 0),
            compare("equal", variable("unit"), variable("start")),
        )
        return [ir.If(new, tuple(steps))]

    def _start(
        self, steps: list[ir.Step], name: str, factor: Factor, *moving: str
    ) -> ir.Value:
        """The address of a factor at the first key of the block."""
        base = self.unit.offset(factor.at(*moving))
        step = self.size(factor.address.stride(self.form.key.name))
        steps.append(ir.Let(name, plus(base, times(variable("block"), step))))
        return variable(name)

    # ---- tiles of queries ----------------------------------------------------------------------

    def _tiles(self) -> list[ir.Step]:
        """Tiles of even height, as many as it takes."""
        taller = minus(variable("chunk_count"), times(variable("height"), variable("tiles")))
        extra = ir.Convert(ir.INDEX, compare("less", variable("number"), variable("taller")))
        return [
            ir.Let("tiles", quotient_up(variable("chunk_count"), self.plan.rows)),
            ir.Let("height", quotient(variable("chunk_count"), variable("tiles"))),
            ir.Let("taller", taller),
            ir.Declare("done", constant(0)),
            loop(
                "number", 0, variable("tiles"), 1,
                ir.Let("at", register("done")),
                ir.Let("tile", plus(variable("height"), extra)),
                ir.Let("first", plus(variable("chunk_start"), variable("at"))),
                *self._scores(),
                softmax_rows(self.plan.row_plan, self.unit),
                *self._mix(),
                finish_rows(self.plan.row_plan, self.unit),
                ir.Assign("done", plus(variable("at"), variable("tile"))),
            ),
        ]  # fmt: skip

    def _scores(self) -> list[ir.Step]:
        plan, form = self.plan, self.form
        base = self.unit.offset(form.queries.at(form.query.name, form.depth.name))
        stride = self.size(form.queries.address.stride(form.query.name))
        call = multiply(
            plan.library,
            variable("tile"),
            ir.Address(self.context.buffers[form.queries.tensor], variable("query_start")),
            ir.Address("packed_keys", constant(0)),
            ir.Address("scores", constant(0)),
            constant(plan.depth),
            stride,
            constant(plan.lanes),
            constant(plan.depth * plan.lanes),
            constant(plan.stride),
            variable("panels"),
        )
        return [ir.Let("query_start", plus(base, times(variable("first"), stride))), call]

    def _mix(self) -> list[ir.Step]:
        plan, form = self.plan, self.form
        padded = plan.row_plan.padded
        steps: list[ir.Step] = []
        if plan.copies:
            values = ir.Address("packed_values", constant(0))
            stride: ir.Value = constant(padded)
        else:
            start = self._start(
                steps, "value_start", form.values, form.key.name, form.width.name
            )
            values = ir.Address(self.context.buffers[form.values.tensor], start)
            stride = self.size(form.values.address.stride(form.key.name))
        call = multiply(
            plan.library,
            variable("tile"),
            ir.Address("scores", constant(0)),
            values,
            ir.Address("mixed", constant(0)),
            variable("count"),
            constant(plan.stride),
            stride,
            constant(plan.lanes),
            constant(padded),
            constant(padded // plan.lanes),
        )
        return [*steps, call]
