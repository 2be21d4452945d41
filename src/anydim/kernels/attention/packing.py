"""Keys as panels [ceil(keys / lanes)][depth][lanes], and values as whole vectors side by side.

Rows of keys are loaded four elements at a time, gathered to vectors and transposed in groups of
four lanes. A panel that has fewer keys repeats the last one: what becomes of those lanes is
masked later.
"""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import float32
from anydim.kernels import ir
from anydim.kernels.write.arithmetic import (
    compare,
    constant,
    first_lanes,
    least,
    loop,
    minus,
    minus_one,
    plus,
    times,
    variable,
)

GROUP = 4  # elements of a row that are loaded, and lanes that are transposed, at once


def pack_keys(
    keys: str, start: ir.Value, stride: ir.Value, count: ir.Value, depth: int, lanes: int
) -> list[ir.Step]:
    """Steps that fill buffer "packed_keys" from rows of `depth` neighbours, `stride` apart."""
    first = times(variable("panel"), lanes)
    whole = compare("less_equal", plus(first, lanes), count)
    steps = [
        ir.If(
            whole,
            tuple(_panel("w", keys, start, stride, None, depth, lanes)),
            tuple(_panel("c", keys, start, stride, minus_one(count), depth, lanes)),
        )
    ]
    return [loop("panel", 0, variable("panels"), 1, *steps)]


def _panel(
    name: str, keys: str, start: ir.Value, stride: ir.Value, last: ir.Value | None,
    depth: int, lanes: int,
) -> list[ir.Step]:  # fmt: skip
    """One panel; rows above `last` are the last one."""
    steps: list[ir.Step] = []
    for i in range(lanes):
        row = plus(times(variable("panel"), lanes), i)
        row = row if last is None else least(row, last)
        steps.append(ir.Let(f"{name}_row{i}", plus(start, times(row, stride))))
    steps.append(ir.Let(f"{name}_to", times(variable("panel"), depth * lanes)))
    whole = depth // GROUP * GROUP
    if whole:
        column = variable(f"{name}_d")
        body = _columns(name, keys, column, GROUP, lanes)
        steps.append(loop(column.name, 0, whole, GROUP, *body))
    if whole < depth:
        steps += _columns(f"{name}x", keys, constant(whole), depth - whole, lanes, name)
    return steps


def _columns(
    name: str, keys: str, column: ir.Value, count: int, lanes: int, rows: str = ""
) -> list[ir.Step]:
    """`count` <= 4 elements of every row as `count` vectors of the panel."""
    rows = rows or name
    quad = ir.Type(float32, GROUP)
    mask = None if count == GROUP else first_lanes(constant(count), GROUP)
    steps: list[ir.Step] = []

    def let(label: str, value: ir.Value) -> ir.Var:
        steps.append(ir.Let(f"{name}_{label}", value))
        return ir.Var(value.type, f"{name}_{label}")

    gathered = []
    for i in range(GROUP):
        parts = [
            let(f"x{i}_{g}", ir.Load(quad, keys, plus(variable(f"{rows}_row{g}"), column), mask))
            for g in range(i, lanes, GROUP)
        ]
        while len(parts) > 1:
            wide = ir.Type(float32, 2 * parts[0].type.lanes)
            pick = tuple(range(wide.lanes))
            parts = [
                let(f"y{i}_{wide.lanes}_{n}", ir.Shuffle(wide, parts[n], parts[n + 1], pick))
                for n in range(0, len(parts), 2)
            ]
        gathered.append(parts[0])
    for d, value in enumerate(_transposed(gathered, let)[:count]):
        at = plus(variable(f"{rows}_to"), times(plus(column, d), lanes))
        steps.append(ir.Store("packed_keys", at, value))
    return steps


def _transposed(rows: list[ir.Var], let: Callable[[str, ir.Value], ir.Var]) -> list[ir.Var]:
    """Four vectors with each group of four lanes, across the four, transposed."""
    vector = rows[0].type

    def mixed(label: str, left: ir.Var, right: ir.Var, pick: tuple[int, ...]) -> ir.Var:
        lanes = vector.lanes
        chosen = tuple(
            group + p if p < GROUP else lanes + group + p - GROUP
            for group in range(0, lanes, GROUP)
            for p in pick
        )
        return let(label, ir.Shuffle(vector, left, right, chosen))

    low, high = (0, 4, 1, 5), (2, 6, 3, 7)
    t0, t1 = mixed("t0", rows[0], rows[1], low), mixed("t1", rows[0], rows[1], high)
    t2, t3 = mixed("t2", rows[2], rows[3], low), mixed("t3", rows[2], rows[3], high)
    first, second = (0, 1, 4, 5), (2, 3, 6, 7)
    return [
        mixed("u0", t0, t2, first),
        mixed("u1", t0, t2, second),
        mixed("u2", t1, t3, first),
        mixed("u3", t1, t3, second),
    ]


def copy_keys(
    keys: str, start: ir.Value, stride: ir.Value, count: ir.Value, depth: int, lanes: int
) -> list[ir.Step]:
    """Steps that fill buffer "packed_keys" from columns, `stride` apart, of neighbouring keys."""
    vector = ir.Type(float32, lanes)
    first = times(variable("panel"), lanes)
    at = plus(start, times(variable("key_row"), stride), first)
    inside = ir.Var(ir.Type(ir.FLAG.dtype, lanes), "inside_panel")
    to = times(plus(times(variable("panel"), depth), variable("key_row")), lanes)
    store = ir.Store("packed_keys", to, ir.Load(vector, keys, at, inside))
    return [
        loop(
            "panel", 0, variable("panels"), 1,
            ir.Let("inside_panel", first_lanes(minus(count, first), lanes)),
            loop("key_row", 0, depth, 1, store),
        )
    ]  # fmt: skip


def copy_values(
    values: str, start: ir.Value, stride: ir.Value, count: ir.Value, width: int, lanes: int
) -> list[ir.Step]:
    """Steps that fill buffer "packed_values" with rows of `width`, zeros to whole vectors."""
    vector = ir.Type(float32, lanes)
    padded = -(-width // lanes) * lanes
    steps: list[ir.Step] = []
    for column in range(0, width, lanes):
        left = width - column
        mask = None if left >= lanes else first_lanes(constant(left), lanes)
        load = ir.Load(vector, values, plus(variable("value_at"), column), mask)
        steps.append(ir.Store("packed_values", plus(variable("value_to"), column), load))
    return [
        loop(
            "value", 0, count, 1,
            ir.Let("value_at", plus(start, times(variable("value"), stride))),
            ir.Let("value_to", times(variable("value"), padded)),
            *steps,
        )
    ]  # fmt: skip
