"""The template of products with chosen matrices: `chosen_form.py` reads the group,
`chosen_loops.py` writes the loops.
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.matmul.weight_only_quant.chosen_form import ChosenForm, chosen_form_of
from anydim.compiler.kernels.matmul.weight_only_quant.chosen_loops import ChosenWriter
from anydim.compiler.kernels.matmul.weight_only_quant.quant_form import FIELDS
from anydim.compiler.kernels.matmul.weight_only_quant.quant_micro_kernels import QuantTile
from anydim.compiler.kernels.template import Task, form_template
from anydim.runtime.panels import NarrowPanels, Packing, Panels

_MOST = 4  # vectors of a panel


@dataclass(frozen=True)
class ChosenProduct:
    """Panels of `vectors` of `lanes`."""

    vectors: int
    lanes: int


def _form(task: Task) -> ChosenForm | None:
    lanes = task.machine.lanes(float32)
    return None if lanes % FIELDS else chosen_form_of(task.group, task.constants)


def _propose(form: ChosenForm, task: Task) -> ChosenProduct | None:
    """Panels of whole vectors that columns fill."""
    lanes, most = task.machine.lanes(float32), _MOST if task.machine.registers >= 16 else 1
    fitting = [v for v in range(most, 0, -1) if form.columns % (v * lanes) == 0]
    return ChosenProduct(fitting[0], lanes) if fitting else None


def _tile(form: ChosenForm, schedule: ChosenProduct, task: Task) -> QuantTile:
    large, whole = task.machine.registers >= 32, form.block % 4 == 0
    step = FIELDS if form.bits == 4 else 4 if whole else 1
    heights = (1, 2, 4, 6) if large else (1, 2)
    wide = () if form.scales else tuple(range(1, heights[-1] + 1))
    bits = form.bits if form.scales else 8
    return QuantTile(bits, schedule.vectors, schedule.lanes, step, heights, wide)


def _lower(form: ChosenForm, schedule: ChosenProduct, task: Task) -> Launch:
    tile = _tile(form, schedule, task)
    writer = ChosenWriter(task.group, form, tile, task.machine)
    work = form.rows * (form.columns * form.depth)
    reason = "a product of each row with the matrix that data chooses, rows in their order"
    return writer.launch(schedule, _packings(form, tile), work, reason)


def _packings(form: ChosenForm, tile: QuantTile) -> dict[str, Packing | None]:
    """Return the load-time packings of weights and scales, one matrix after another."""
    n, k = form.count * form.columns, form.depth
    if not form.scales:
        return {"w": Panels(tile.width, (), ((k, 1),), ((n, k),))}
    return {
        "w": NarrowPanels(tile.width, tile.bits, (k, 1), (n, k), k),
        "s": Panels(tile.width, (), ((form.groups, 1),), ((n, form.groups),)),
    }


TEMPLATE = form_template(
    "chosen_matrices", ChosenProduct, _form, _propose, _lower, keeps=True, least_lanes=8
)
