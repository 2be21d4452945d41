"""The convolution template: products of weights with windows of a tensor, and their epilogue.

`convolution_form.py` reads the group, `convolution_plan.py` partitions the work,
`convolution_loops.py` writes the loops, `tile_strips.py` the innermost ones;
`convolution_packing.py` packs windows into panels, and `convolution_micro_kernels.py` holds the
shape-independent functions. Constant weights are packed at load time. Every size is a run-time
argument.
"""

from __future__ import annotations

from anydim.base.dtypes import float32, float64, int32, int64
from anydim.base.errors import OptionError
from anydim.compiler.kernels.knobs import FLAG, VERSIONS, between, multiple
from anydim.compiler.kernels.launch import Launch, known_number, known_parts
from anydim.compiler.kernels.matmul.convolution.convolution_loops import ConvolutionWriter
from anydim.compiler.kernels.matmul.convolution.convolution_plan import plan_of
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm, convolution_form_of
from anydim.compiler.kernels.matmul.register_tile import TILE_KNOBS, Tile, tile_of
from anydim.compiler.kernels.matmul.schedules import Convolution
from anydim.compiler.kernels.template import Task, form_template
from anydim.runtime.panels import Panels

_DTYPES = (float32, float64, int32, int64)
_BLOCK_ROWS = 256  # weights of these rows and a chunk stay in the second-level cache
_DIRECT_ROWS = 64  # up to this many output channels, a copy of contiguous rows does not pay


def _form(task: Task) -> ConvolutionForm | None:
    form = convolution_form_of(task.group, task.box, task.constants)
    return form if form is not None and form.dtype in _DTYPES else None


def _propose(form: ConvolutionForm, task: Task) -> Convolution:
    machine = task.machine
    tile = tile_of(machine, form.dtype)
    row_bytes = (tile.width + tile.lanes) * form.dtype.bytes
    weights = machine.l2_bytes // 2 // (_BLOCK_ROWS * form.dtype.bytes)
    few = form.rows.constant is not None and form.rows.constant <= _DIRECT_ROWS
    return Convolution(
        *tile.options,
        chunk_k=max(8, min(machine.l1_bytes * 3 // row_bytes, weights) // 8 * 8),
        block_tiles=_BLOCK_ROWS // tile.rows,
        block_panels=4,
        direct=form.is_plain and few,
        packed=form.w in task.constants,
    )


def _lower(form: ConvolutionForm, schedule: Convolution, task: Task) -> Launch:
    """Return the launch of a group; OptionError for `direct` where windows are not rows of x."""
    if schedule.direct and not form.is_plain:
        raise OptionError(
            "'direct' reads rows of a matrix without a copy, and these windows are not rows of x",
            "choose it for a window of one element with a stride of one",
        )
    plan = plan_of(task.group, form, schedule, task.machine)
    writer = ConvolutionWriter(task.group, plan)
    packing = _panels(form, schedule.tile) if schedule.packed else None
    reason = _reason(schedule, plan.finished)
    return writer.launch(schedule, {"w": packing}, form.work, reason)


_KNOBS = {
    **TILE_KNOBS,
    "rows": TILE_KNOBS["rows"].with_tries(2, 4, 6, 8, 10, 12),
    "unroll": TILE_KNOBS["unroll"].with_tries(1, 2, 4),
    "chunk_k": multiple(8, 8, 1 << 20),
    "block_panels": between(1, 1 << 10).with_tries(everywhere=(1, 2, 3, 4, 6, 8)),
    "block_tiles": between(1, 1 << 10).with_tries(4, 16, 64, everywhere=(4, 8, 12, 16, 24, 32, 64)),
    "direct": FLAG.with_tries(everywhere=(False, True)),
    "version": VERSIONS,
}
TEMPLATE = form_template(
    "convolution", Convolution, _form, _propose, _lower, keeps=True, knobs=_KNOBS
)


def _panels(form: ConvolutionForm, tile: Tile) -> Panels:
    """Return the packing of constant weights: tiles of rows, the rows of a tile interleaved."""

    batch, k, rows = (known_parts(part) for part in form.w_parts)
    return Panels(tile.rows, batch, k, rows, known_number(form.w_start))


def _reason(schedule: Convolution, finished: bool) -> str:
    kind = "a matrix product" if schedule.direct else "windows packed into panels"
    epilogue = "its epilogue computed in registers" if finished else "its epilogue fused"
    weights = "constant weights packed at load time" if schedule.packed else "weights packed on use"
    return f"a convolution as {kind}, {epilogue}; {weights}"
