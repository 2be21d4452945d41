"""The template of pooling and depthwise convolution: reductions over windows, vectors along rows.

for every row of the result, a block of vectors at a time
    for the reduced axes (small windows are unrolled)
        load the window, masked where it is out of bounds; strides are resolved by shuffles
    epilogue, in registers
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from anydim.base.records import dataclass
from anydim.kernels.launch import Launch, Machine, halved_lanes
from anydim.kernels.matmul.convolution.convolution_form import windows_of
from anydim.kernels.matmul.multiversion import multiversion_launch
from anydim.kernels.operands import Operands, assemble
from anydim.kernels.rows.fusion_plan import cost, work
from anydim.kernels.rows.row_form import grain_size
from anydim.kernels.schedule import print_schedule
from anydim.kernels.template import Template
from anydim.kernels.window_reduction.channel_vectors import planes_of
from anydim.kernels.window_reduction.channels_last import (
    VECTORS_PER_BLOCK,
    AcrossWriter,
    positions_of,
    walks,
)
from anydim.kernels.window_reduction.transposed_strips import PlanesWriter
from anydim.kernels.window_reduction.window_form import UNROLLED_BELOW, Sliding, sliding_of
from anydim.kernels.window_reduction.window_vectors import SlidingWriter
from anydim.lang.tree import Group, Tensor
from anydim.sizes import Box, Size, as_size, minimum, product

_MOST_VECTORS, _MOST_BELOW = 4, 8


@dataclass(frozen=True)
class Slide:
    """Vectors of `lanes`, `vectors` of them per block: along rows, or over positions of a row."""

    lanes: int
    vectors: int


def match(group: Group, box: Box, machine: Machine, constants: frozenset[str]) -> Slide | None:
    """The schedule of a reduction over windows with an epilogue; None for other groups."""
    form = _form(group, box)
    if form is None or _hides_convolution(group, box, constants):
        return None
    lanes = machine.lanes(form.dtype)
    if walks(form, lanes):
        return Slide(lanes, _MOST_VECTORS if machine.registers >= 32 else _MOST_VECTORS // 2)
    extent = form.lane.extent.constant
    lanes = halved_lanes(lanes, extent, least=4)
    if form.share:
        free = machine.registers - len(
            _below(group, box).bodies
        )  # registers for values shared by taps
        return Slide(lanes, _MOST_BELOW if free > _MOST_BELOW else _MOST_VECTORS)
    wanted = -(-extent // lanes) if extent is not None else _MOST_VECTORS
    return Slide(lanes, max(1, min(_MOST_VECTORS, wanted)))


def lower(
    group: Group, schedule: Slide, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a matched group."""
    form = _form(group, box)
    assert form is not None
    touched = Operands.of(group, (statement.body for statement in group.statements))
    lanes, vectors = schedule.lanes, schedule.vectors
    forms = form, _below(group, box), _below(group, box, False)
    writer = SlidingWriter(*forms, lanes, vectors, machine, touched, box)
    if walks(form, schedule.lanes):
        walk = AcrossWriter(form, schedule.lanes, schedule.vectors, writer.context, machine)
        body, positions = walk.body(), positions_of(form, schedule.lanes)
        block_channels = minimum(form.lane.extent, schedule.lanes * VECTORS_PER_BLOCK)
        elements, direction = form.outer[-1].extent * block_channels, "channels"
    else:
        body, positions = writer.body(), product(axis.extent for axis in form.outer)
        elements, direction = form.lane.extent, "the rows of the result"
    flops, moved = work(group)
    rows = Launch(
        kernel=assemble("sliding", touched.operands, writer.sizes.names, body),
        arguments=touched.arguments,
        sizes=writer.sizes.sizes,
        parallel=positions,
        grain=_grain(group, form, elements),
        scratch=as_size(0),
        flops=flops,
        moved=moved,
        schedule=print_schedule(schedule),
        reason=f"a reduction over windows, vectors along {direction}",
    )
    lanes = machine.lanes(form.dtype)
    planes = None if direction == "channels" else planes_of(group, box, lanes)
    if planes is None:
        return rows
    grain = _grain(group, planes.form, lanes * planes.width)
    small = replace(PlanesWriter(planes, machine, touched).launch(rows), grain=grain)
    if planes.pays.constant is not None:
        return small
    return multiversion_launch(
        planes.pays, small, rows, f"{rows.reason}; narrow images: {small.reason}"
    )


TEMPLATE = Template("sliding", Slide, match, lower, keeps=True)


@lru_cache(maxsize=512)
def _form(group: Group, box: Box) -> Sliding | None:
    return sliding_of(group, box)


@lru_cache(maxsize=512)
def _below(group: Group, box: Box, below: bool = True) -> Sliding:
    found = sliding_of(group, box, UNROLLED_BELOW, below)
    assert found is not None
    return found


def _hides_convolution(group: Group, box: Box, constants: frozenset[str]) -> bool:
    """Whether the sum alone is a convolution over channels: then the epilogue is better a separate
    kernel.

    This happens with 16-bit floats: the sum is float32, the result is not.
    """
    if len(group.statements) == 1:
        return False
    total = next(s for s in group.statements if s.combine)
    result = Tensor(total.target, group.type_of(total.target))
    alone = replace(group, statements=(total,), outputs=(result,), temporaries=())
    return windows_of(alone, box, constants) is not None


def _grain(group: Group, form: Sliding, elements: Size) -> Size:
    """Parallel indices of `elements` each that make a part worth a thread."""
    each = sum(cost(s.body) + 1 for s in group.statements)
    each = max(each, form.dtype.bytes) * len(form.bodies)
    return grain_size(each, elements * product(axis.extent for axis in form.loops))
