"""The template of matrix products with constant weights of 4 or 8 bits, scaled in blocks.

A step of a decoder is bound by the memory traffic of weights: they are read at their own width and
decoded in registers. `quant_form.py` reads the group, `quant_loops.py` writes the loops, and
`quant_micro_kernels.py` holds the shape-independent functions.
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Launch, Machine, known_parts
from anydim.compiler.kernels.matmul.weight_only_quant.quant_form import (
    FIELDS,
    QuantForm,
    quant_form_of,
)
from anydim.compiler.kernels.matmul.weight_only_quant.quant_loops import QuantWriter
from anydim.compiler.kernels.matmul.weight_only_quant.quant_micro_kernels import QuantTile
from anydim.compiler.kernels.template import Task, form_template
from anydim.runtime.panels import NarrowPanels, Packing, Panels

_VECTORS = 4  # vectors per panel, so that the sums of one row are independent
_BYTE_STEP = 32  # steps of k at a time by rows of bytes: a block of most files


@dataclass(frozen=True)
class QuantProduct:
    """The widest panel: `vectors` of `lanes`."""

    vectors: int
    lanes: int


def _form(task: Task) -> QuantForm | None:
    lanes = _lanes(task.machine)
    return None if lanes < FIELDS or lanes % FIELDS else quant_form_of(task.group, task.constants)


def _lanes(machine: Machine) -> int:
    """Return the lanes of a vector; in WebAssembly, where few registers remain, of two."""
    lanes = machine.lanes(float32)
    return lanes * 2 if machine.registers < 16 else lanes


def _propose(form: QuantForm, task: Task) -> QuantProduct:
    vectors = _VECTORS if task.machine.registers >= 16 else 1
    if form.has_bytes:  # sums of a block and of all blocks are in registers
        vectors = 3 if task.machine.registers >= 32 else min(vectors, 2)
    return QuantProduct(vectors, _lanes(task.machine))


def _tile(form: QuantForm, schedule: QuantProduct, machine: Machine) -> QuantTile:
    """Return row tiles of the maximum height that fits the registers."""
    whole = form.groups == 1 or form.block % 4 == 0
    step = FIELDS if form.bits == 4 else 4 if whole else 1
    large = machine.registers >= 32
    heights: tuple[int, ...] = (1, 2, 4, 6) if large else (1, 2)
    wide: tuple[int, ...] = (4, 5, 6) if large else (1, 2)
    if form.has_bytes:
        heights, wide = (1, 2, 3, 4) if large else (1, 2), ()
        step = _BYTE_STEP if form.block % _BYTE_STEP == 0 and form.groups > 1 else FIELDS
    return QuantTile(
        form.bits, schedule.vectors, schedule.lanes, step, heights, wide, form.has_bytes
    )


def _lower(form: QuantForm, schedule: QuantProduct, task: Task) -> Launch:
    tile = _tile(form, schedule, task.machine)
    writer = QuantWriter(task.group, form, tile, task.machine)
    reason = f"a matrix product with weights of {form.bits} bits, decoded in registers"
    return writer.launch(schedule, _packings(form, tile, writer.padded), form.product.work, reason)


def _packings(form: QuantForm, tile: QuantTile, depth: int) -> dict[str, Packing]:
    """Return the load-time packings of weights and scales."""
    _, k, n = (known_parts(part) for part in form.product.b_parts)
    scales = ((form.groups, form.scale_k),), ((form.columns, form.scale_n),)
    return {
        "w": NarrowPanels(tile.width, tile.bits, k[0], n[0], depth),
        "s": Panels(tile.width, (), *scales),
    }


TEMPLATE = form_template(
    "weight_only_quant", QuantProduct, _form, _propose, _lower, least_lanes=2, reads_codes=True
)
