"""The template of pooling and depthwise convolution: reductions over windows, vectors along rows.

for every row of the result, a block of vectors at a time
    for the reduced axes (small windows are unrolled)
        load the window, masked where it is out of bounds; strides are resolved by shuffles
    epilogue, in registers
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.knobs import VERSIONS, between, power_of_two
from anydim.compiler.kernels.launch import Launch, halved_lanes
from anydim.compiler.kernels.matmul.convolution_form import convolution_form_of
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.schedule import ANY, any_version
from anydim.compiler.kernels.template import Task, form_template
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


def _form(task: Task) -> WindowForm | None:
    return window_form_of(task.group, task.box)


def _propose(form: WindowForm, task: Task) -> WindowReduction | None:
    """The schedule of a reduction over windows; None if another template is better."""
    machine, extent = task.machine, form.lane.extent.constant
    if _hides_convolution(task):
        return None
    lanes = machine.lanes(form.dtype)
    if walks(form, lanes):
        vectors = _MOST_VECTORS if machine.registers >= 32 else _MOST_VECTORS // 2
        return WindowReduction(lanes, vectors)
    lanes = halved_lanes(lanes, extent, least=4)
    if form.share:
        # Eight rows of 25 taps would spill: their weights stay in registers, too.
        free = machine.registers - len(_below(task.group, task.box).bodies)
        return WindowReduction(lanes, _MOST_BELOW if free > _MOST_BELOW else _MOST_VECTORS)
    wanted = -(-extent // lanes) if extent is not None else _MOST_VECTORS
    return WindowReduction(lanes, max(1, min(_MOST_VECTORS, wanted)))


def _lower(form: WindowForm, schedule: WindowReduction, task: Task) -> Launch:
    return versioned_launch(_Lowering(form, task).versions(schedule), schedule)


@dataclass(frozen=True)
class _Lowering:
    """The versions of a group, by the axis of their vectors."""

    form: WindowForm
    task: Task

    def versions(self, schedule: WindowReduction) -> tuple[Version, ...]:
        """Vectors along channels; or along transposed strips where that pays, else along rows."""
        form, task = self.form, self.task
        if walks(form, schedule.lanes):
            return (Version("channels", ALWAYS, schedule, self._along_channels),)
        rows = Version("rows", ALWAYS, schedule, self._along_rows, inside=OF_ROWS)
        planes = planes_of(task.group, task.box, task.machine.lanes(form.dtype))
        if planes is None:
            return (rows,)
        lower = partial(self._along_strips, planes)
        return Version("strips", planes.pays, schedule, lower, planes.fits), rows

    @property
    def _touched(self) -> Operands:
        return Operands.of(self.task.group, (s.body for s in self.task.group.statements))

    def _writer(self, schedule: WindowReduction) -> WindowWriter:
        group, box, machine = self.task.group, self.task.box, self.task.machine
        forms = self.form, _below(group, box), _below(group, box, False)
        lanes, vectors = schedule.lanes, schedule.vectors
        return WindowWriter(*forms, lanes, vectors, machine, self._touched, box)

    def _along_channels(self, schedule: WindowReduction) -> Launch:
        form, writer = self.form, self._writer(schedule)
        own = schedule.lanes, schedule.vectors, writer.context, self.task.machine
        body = AcrossWriter(form, *own).body()
        block_channels = minimum(form.lane.extent, schedule.lanes * VECTORS_PER_BLOCK)
        grain = _grain(self.task.group, form, form.outer[-1].extent * block_channels)
        positions = positions_of(form, schedule.lanes)
        return self._launch(schedule, writer, body, positions, grain, "channels")

    def _along_rows(self, schedule: WindowReduction) -> Launch:
        form, writer = self.form, self._writer(schedule)
        grain = _grain(self.task.group, form, form.lane.extent)
        positions, along = product(axis.extent for axis in form.outer), "the rows of the result"
        forced = schedule.version if schedule.version in (*OF_ROWS, "rows") else ANY
        versions = usable_versions(writer.versions(schedule), forced)
        launch = self._launch(schedule, writer, writer.body(versions), positions, grain, along)
        return replace(launch, versions=listed_versions(versions))

    def _along_strips(self, planes: ChannelPlanes, schedule: WindowReduction) -> Launch:
        group, machine = self.task.group, self.task.machine
        grain = _grain(group, planes.form, planes.lanes * planes.width)
        return StripWriter(planes, machine, self._touched).launch(schedule, grain, work(group))

    def _launch(
        self, schedule: WindowReduction, writer: WindowWriter, body: tuple[ir.Step, ...],
        parallel: Size, grain: Size | int, along: str,
    ) -> Launch:  # fmt: skip
        return self._touched.launch(
            "window_reduction", writer.sizes, body, schedule,
            f"a reduction over windows, vectors along {along}",
            parallel=parallel, work=work(self.task.group), grain=grain,
        )  # fmt: skip


_KNOBS = {
    "lanes": power_of_two(64, 2).with_tries(4, 8, 16, everywhere=(4, 8, 16)),
    "vectors": between(1, 8).with_tries(1, 2, 3, 4, everywhere=(1, 2, 3, 4)),
    "version": VERSIONS,
}
TEMPLATE = form_template(
    "window_reduction", WindowReduction, _form, _propose, _lower, keeps=True, knobs=_KNOBS
)


@lru_cache(maxsize=512)
def _below(group: Group, box: Box, below: bool = True) -> WindowForm:
    found = window_form_of(group, box, UNROLLED_BELOW, below)
    assert found is not None
    return found


def _hides_convolution(task: Task) -> bool:
    """Whether the sum alone is a convolution over channels: then the epilogue is better a separate
    kernel.

    This happens with 16-bit floats: the sum is float32, the result is not.
    """
    group = task.group
    if len(group.statements) == 1:
        return False
    total = next(s for s in group.statements if s.combine)
    result = Tensor(total.target, group.type_of(total.target))
    alone = replace(group, statements=(total,), outputs=(result,), temporaries=())
    return convolution_form_of(alone, task.box, task.constants) is not None


def _grain(group: Group, form: WindowForm, elements: Size) -> Size:
    """Parallel indices of `elements` each that make a part worth a thread."""
    each = sum(cost(s.body) + 1 for s in group.statements)
    each = max(each, form.dtype.bytes) * len(form.bodies)
    return grain_size(each, elements * product(axis.extent for axis in form.loops))
