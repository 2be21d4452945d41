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
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.knobs import VERSIONS, between, power_of_two
from anydim.compiler.kernels.launch import Launch, Machine, halved_lanes
from anydim.compiler.kernels.matmul.convolution_form import convolution_form_of
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.schedule import ANY, any_version
from anydim.compiler.kernels.template import Template
from anydim.compiler.kernels.versions import (
    Version,
    listed_versions,
    usable_versions,
    versioned_launch,
)
from anydim.compiler.kernels.window_reduction.channel_vectors import ChannelPlanes, planes_of
from anydim.compiler.kernels.window_reduction.channels_last import (
    VECTORS_PER_BLOCK,
    AcrossWriter,
    positions_of,
    walks,
)
from anydim.compiler.kernels.window_reduction.transposed_strips import StripWriter
from anydim.compiler.kernels.window_reduction.window_form import (
    UNROLLED_BELOW,
    WindowForm,
    window_form_of,
)
from anydim.compiler.kernels.window_reduction.window_vectors import WindowWriter
from anydim.compiler.kernels.work_estimate import cost, grain_size, work
from anydim.lang.tree import Group, Tensor
from anydim.sizes import ALWAYS, Box, Size, minimum, product

_MOST_VECTORS, _MOST_BELOW = 4, 8
OF_ROWS = ("merged_rows", "single_rows")  # versions inside the launch along rows


@dataclass(frozen=True)
class WindowReduction:
    """Vectors of `lanes`, `vectors` of them per block: along rows, or over positions of a row."""

    lanes: int
    vectors: int
    version: str = any_version()


def match(
    group: Group, box: Box, machine: Machine, constants: frozenset[str]
) -> WindowReduction | None:
    """The schedule of a reduction over windows with an epilogue; None for other groups."""
    form = _form(group, box)
    if form is None or _hides_convolution(group, box, constants):
        return None
    lanes = machine.lanes(form.dtype)
    if walks(form, lanes):
        return WindowReduction(
            lanes, _MOST_VECTORS if machine.registers >= 32 else _MOST_VECTORS // 2
        )
    extent = form.lane.extent.constant
    lanes = halved_lanes(lanes, extent, least=4)
    # Eight rows of 25 taps would spill: their weights stay in registers, too.
    if form.share:
        free = machine.registers - len(
            _below(group, box).bodies
        )  # registers for values shared by taps
        return WindowReduction(lanes, _MOST_BELOW if free > _MOST_BELOW else _MOST_VECTORS)
    wanted = -(-extent // lanes) if extent is not None else _MOST_VECTORS
    return WindowReduction(lanes, max(1, min(_MOST_VECTORS, wanted)))


def lower(
    group: Group, schedule: WindowReduction, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a matched group."""
    return versioned_launch(_versions(group, schedule, box, machine), schedule)


def _versions(
    group: Group, schedule: WindowReduction, box: Box, machine: Machine
) -> tuple[Version, ...]:
    """The ways to compute a group: along channels, along transposed strips, along rows."""
    form = _form(group, box)
    assert form is not None
    touched = Operands.of(group, (statement.body for statement in group.statements))
    common = group, form, box, machine, touched
    if walks(form, schedule.lanes):
        return (Version("channels", ALWAYS, schedule, lambda own: _along_channels(own, *common)),)
    rows = Version(
        "rows", ALWAYS, schedule, lambda own: _along_rows(own, *common),
        inside=OF_ROWS,
    )  # fmt: skip
    planes = planes_of(group, box, machine.lanes(form.dtype))
    if planes is None:
        return (rows,)
    strips = Version(
        "strips", planes.pays, schedule,
        lambda own: _along_strips(own, group, planes, machine, touched), planes.fits,
    )  # fmt: skip
    return strips, rows


def _writer(
    schedule: WindowReduction,
    group: Group,
    form: WindowForm,
    box: Box,
    machine: Machine,
    touched: Operands,
) -> WindowWriter:
    forms = form, _below(group, box), _below(group, box, False)
    return WindowWriter(*forms, schedule.lanes, schedule.vectors, machine, touched, box)


def _along_channels(
    schedule: WindowReduction,
    group: Group,
    form: WindowForm,
    box: Box,
    machine: Machine,
    touched: Operands,
) -> Launch:
    writer = _writer(schedule, group, form, box, machine, touched)
    walk = AcrossWriter(form, schedule.lanes, schedule.vectors, writer.context, machine)
    block_channels = minimum(form.lane.extent, schedule.lanes * VECTORS_PER_BLOCK)
    grain = _grain(group, form, form.outer[-1].extent * block_channels)
    positions = positions_of(form, schedule.lanes)
    return _launch(group, touched, schedule, writer, walk.body(), positions, grain, "channels")


def _along_rows(
    schedule: WindowReduction,
    group: Group,
    form: WindowForm,
    box: Box,
    machine: Machine,
    touched: Operands,
) -> Launch:
    writer = _writer(schedule, group, form, box, machine, touched)
    grain = _grain(group, form, form.lane.extent)
    positions, along = product(axis.extent for axis in form.outer), "the rows of the result"
    forced = schedule.version if schedule.version in (*OF_ROWS, "rows") else ANY
    versions = usable_versions(writer.versions(schedule), forced)
    body = writer.body(versions)
    launch = _launch(group, touched, schedule, writer, body, positions, grain, along)
    return replace(launch, versions=listed_versions(versions))


def _along_strips(
    schedule: WindowReduction,
    group: Group,
    planes: ChannelPlanes,
    machine: Machine,
    touched: Operands,
) -> Launch:
    grain = _grain(group, planes.form, planes.lanes * planes.width)
    return StripWriter(planes, machine, touched).launch(schedule, grain, work(group))


def _launch(
    group: Group, touched: Operands, schedule: WindowReduction, writer: WindowWriter,
    body: tuple[ir.Step, ...], parallel: Size, grain: Size | int, along: str,
) -> Launch:  # fmt: skip
    return touched.launch(
        "window_reduction", writer.sizes, body, schedule,
        f"a reduction over windows, vectors along {along}",
        parallel=parallel, work=work(group), grain=grain,
    )  # fmt: skip


_KNOBS = {
    "lanes": power_of_two(64, 2).with_tries(4, 8, 16, everywhere=(4, 8, 16)),
    "vectors": between(1, 8).with_tries(1, 2, 3, 4, everywhere=(1, 2, 3, 4)),
    "version": VERSIONS,
}
TEMPLATE = Template("window_reduction", WindowReduction, match, lower, keeps=True, knobs=_KNOBS)


@lru_cache(maxsize=512)
def _form(group: Group, box: Box) -> WindowForm | None:
    return window_form_of(group, box)


@lru_cache(maxsize=512)
def _below(group: Group, box: Box, below: bool = True) -> WindowForm:
    found = window_form_of(group, box, UNROLLED_BELOW, below)
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
    return convolution_form_of(alone, box, constants) is not None


def _grain(group: Group, form: WindowForm, elements: Size) -> Size:
    """Parallel indices of `elements` each that make a part worth a thread."""
    each = sum(cost(s.body) + 1 for s in group.statements)
    each = max(each, form.dtype.bytes) * len(form.bodies)
    return grain_size(each, elements * product(axis.extent for axis in form.loops))
