"""Attention with a running softmax: a work-group computes a tile of rows over blocks of keys.

`running_softmax.py` has the body of a tile. Few queries use a tile of fewer rows, whose work-items
share the keys of a block; one kernel has both tiles, and the number of queries selects one. Both
sum in the same order, so a row has the same bits with any number of other rows.
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention_form import AttentionForm, attention_form
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.gpu.group_indices import Work, plain
from anydim.compiler.kernels.gpu.running_softmax import Tile, TileWriter
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.template import Task, form_template
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Size, at_least, ceil_div, product

_LOCAL_BYTES = 32 * 1024  # of a work-group, on every device with work-groups
_LOCAL_BYTES_OF_WARPS = 48 * 1024
_SHAPES = ((64, 32), (32, 32), (32, 16))  # rows and keys, the fastest first
_DEPTH, _COLUMNS = 64, 128  # maximum elements of a part


@dataclass(frozen=True)
class Running:
    """A work-group of `items` work-items computes `rows` x `columns` results from blocks of `keys`.

    Work-items form a grid of `across` columns. Local memory holds `depth` elements of a query and
    of a key at a time. Below `few` queries the grid is as wide as a block, with fewer rows.
    """

    items: int = 128
    rows: int = 64
    keys: int = 32
    across: int = 8
    depth: int = 64
    columns: int = 64
    few: int = 16

    @property
    def tile(self) -> Tile:
        """The tile of many queries."""
        return Tile(self.items, self.rows, self.keys, self.across, self.depth, self.columns)

    @property
    def short_tile(self) -> Tile:
        """The tile of few queries: each work-item computes one score of a block."""
        rows = self.items // self.keys
        return Tile(self.items, rows, self.keys, self.keys, self.depth, self.columns)


def _form(group: Group) -> AttentionForm | None:
    form = attention_form(group) if plain(group) else None
    if form is None or form.nan_is_zero or form.masked_is_zero:
        return None
    return form if group.type_of(form.output.tensor).dtype == float32 else None


def _propose(form: AttentionForm, task: Task) -> Running | None:
    """Return the first shape that fits local memory, with whole queries or parts of them."""
    depth, width = form.depth.extent.constant, form.width.extent.constant
    assert depth is not None and width is not None  # guaranteed by the form
    columns = min(max(width, 1), _COLUMNS)
    limit = _LOCAL_BYTES_OF_WARPS if task.machine.warps else _LOCAL_BYTES
    for part in dict.fromkeys((max(depth, 1), min(max(depth, 1), _DEPTH))):
        for rows, keys in _SHAPES:
            found = Running(rows=rows, keys=keys, depth=part, columns=columns)
            if _bytes(form, found, task) <= limit:
                return found
    return None


def _bytes(form: AttentionForm, schedule: Running, task: Task) -> int:
    types = {tensor.name: tensor.type.dtype for tensor in task.group.inputs}
    factors = [types[f.tensor] for f in (form.queries, form.keys, form.values)]
    arrays = _arrays(schedule.tile.locals(*factors), schedule.short_tile.locals(*factors))
    return sum(array.count * array.dtype.bytes for array in arrays)


def _arrays(*needs: list[ir.Local]) -> list[ir.Local]:
    """Return arrays that are large enough for each of several variants."""
    found: dict[str, ir.Local] = {}
    for array in (array for arrays in needs for array in arrays):
        if array.name not in found or array.count > found[array.name].count:
            found[array.name] = array
    return list(found.values())


def _lower(form: AttentionForm, schedule: Running, task: Task) -> Launch:
    work = Work(task.group, task.machine, {form.raw: TensorType(float32, ())})
    outside = ScalarLowering(work.context)
    queries, width = form.query.extent, form.width.extent
    many = at_least(queries, schedule.few)
    tiles = (schedule.short_tile, schedule.tile)  # by `many`
    writers = [TileWriter(work, outside, form, tile) for tile in tiles]
    bodies: list[list[ir.Step]] = []
    for number, writer in enumerate(writers):
        with work.block() as steps:
            if many.constant in (None, bool(number)):
                writer.body()
        bodies.append(steps)
    short, tall = map(tuple, bodies)
    if many.constant is None:
        work.emit(ir.If(work.sizes.holds(many), tall, short))
    else:
        work.take(bodies[many.constant])
    batch = product(axis.extent for axis in form.batch)

    def groups(tile: Tile) -> Size:
        return batch * ceil_div(queries, tile.rows) * ceil_div(width, tile.columns)

    pairs = batch * queries * form.key.extent
    return work.launch(
        "running", [*outside.steps, *work.written], schedule.items,
        _arrays(*(writer.locals for writer in writers)),
        parallel=many.where(groups(schedule.tile), groups(schedule.short_tile)),
        flops=2 * pairs * (form.depth.extent + width), schedule=schedule,
        reason="an attention in tiles of queries, with a running softmax over blocks of keys",
    )  # fmt: skip


TEMPLATE = form_template(
    "running", Running, lambda task: _form(task.group), _propose, _lower, keeps=True, widens=True
)
