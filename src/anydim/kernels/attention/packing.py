"""Keys as panels [ceil(keys / lanes)][depth][lanes], and values as whole vectors side by side.

Rows of keys are loaded four elements at a time, gathered to vectors and transposed in groups of
four lanes. A panel that has fewer keys repeats the last one: what becomes of those lanes is
masked later.
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.ir import constant, least, variable
from anydim.kernels.write.arithmetic import first_lanes
from anydim.kernels.write.squares import side_by_side, transposed
from anydim.kernels.write.writer import Buffer, Writer

GROUP = 4  # elements of a row that are loaded, and lanes that are transposed, at once


def pack_keys(
    keys: str, start: ir.Value, stride: ir.Value, count: ir.Value, depth: int, lanes: int
) -> tuple[ir.Step, ...]:
    """Steps that fill buffer "packed_keys" from rows of `depth` neighbours, `stride` apart."""
    code = Writer("keys_")
    source, held = Buffer(code, keys, float32), count
    with code.range(0, variable("panels")) as panel:
        first = code.let(panel * lanes)
        target = Buffer(code, "packed_keys", float32).part(code.let(first * depth))
        whole = code.let(first + lanes <= held)
        for last in (None, held - 1):
            with code.when(whole) if last is None else code.otherwise():
                numbers = (first + i for i in range(lanes))  # those above the last are the last
                own = numbers if last is None else (least(n, last) for n in numbers)
                rows = [source.part(code.let(n * stride + start)) for n in own]
                _panel(code, rows, target, depth)
    return code.written


def _panel(code: Writer, rows: list[Buffer], target: Buffer, depth: int) -> None:
    """A panel of rows: four elements of each at a time, then what is left."""
    whole = depth // GROUP * GROUP
    if whole:
        with code.range(0, whole, GROUP) as column:
            _columns(code, rows, column, GROUP, target)
    if whole < depth:
        _columns(code, rows, constant(whole), depth - whole, target)


def _columns(
    code: Writer, rows: list[Buffer], column: ir.Value, count: int, target: Buffer
) -> None:
    """`count` <= 4 elements of every row as `count` vectors of the panel."""
    mask = None if count == GROUP else first_lanes(constant(count), GROUP)
    loads = [row.load(column, GROUP, mask) for row in rows]
    gathered = [side_by_side(loads[i::GROUP]) for i in range(GROUP)]
    vector = ir.Type(float32, len(rows))
    for d, value in enumerate(transposed(vector, gathered, code.let)[:count]):
        target.store((column + d) * len(rows), value)


def copy_keys(
    keys: str, start: ir.Value, stride: ir.Value, count: ir.Value, depth: int, lanes: int
) -> tuple[ir.Step, ...]:
    """Steps that fill buffer "packed_keys" from columns, `stride` apart, of neighbouring keys."""
    code = Writer("keys_")
    source, target = (Buffer(code, name, float32) for name in (keys, "packed_keys"))
    with code.range(0, variable("panels")) as panel:
        first = code.let(panel * lanes)
        inside = code.let(first_lanes((count - first), lanes))
        with code.range(0, depth) as row:
            vector = source.load(start + row * stride + first, lanes, inside)
            target.store((panel * depth + row) * lanes, vector)
    return code.written


def copy_values(
    values: str, start: ir.Value, stride: ir.Value, count: ir.Value, width: int, lanes: int
) -> tuple[ir.Step, ...]:
    """Steps that fill buffer "packed_values" with rows of `width`, zeros to whole vectors."""
    code = Writer("values_")
    source, target = (Buffer(code, name, float32) for name in (values, "packed_values"))
    with code.range(0, count) as row:
        own = source.part(code.let(row * stride + start))
        packed = target.part(code.let(row * (-(-width // lanes) * lanes)))
        for column in range(0, width, lanes):
            left = width - column
            mask = None if left >= lanes else first_lanes(constant(left), lanes)
            packed.store(column, own.load(column, lanes, mask))
    return code.written
