"""Squares in vectors transposed in registers: rows become columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from anydim.kernels import ir

PIECE = 16  # bytes within which processors bring elements together in one step


def transposed(
    vector: ir.Type, rows: Sequence[ir.Value], prefix: str
) -> tuple[list[ir.Step], list[ir.Value]]:
    """Steps, and the columns of a square of vectors; names of its values start with `prefix`.

    At each stage, off-diagonal halves of pairs swap places (log2 of the rows stages). Vectors that
    have more lanes than there are rows hold a square after the other: each is transposed.
    """
    lanes, side = vector.lanes, len(rows)
    assert lanes % side == 0
    steps: list[ir.Step] = [
        ir.Let(f"{prefix}{side}_{number}", row) for number, row in enumerate(rows)
    ]
    previous, half = side, side // 2
    while half:
        for i in range(side):
            first, second = (i, i + half) if not i & half else (i - half, i)
            low = bool(i & half)
            pick = tuple(
                (p + half if low else p) if not p & half else lanes + (p if low else p - half)
                for p in range(lanes)
            )
            left = ir.Var(vector, f"{prefix}{previous}_{first}")
            right = ir.Var(vector, f"{prefix}{previous}_{second}")
            steps.append(ir.Let(f"{prefix}{half}_{i}", ir.Shuffle(vector, left, right, pick)))
        previous, half = half, half // 2
    return steps, [ir.Var(vector, f"{prefix}{previous}_{number}") for number in range(side)]


def columns_of(
    wide: ir.Type, side: int, piece: Callable[[int], ir.Value], prefix: str
) -> tuple[list[ir.Step], list[ir.Value]]:
    """Steps, and the columns of `side` rows of which `piece` gives as many as PIECE holds.

    A register, `wide`, has pieces of several rows side by side, so that each step works for all of
    them: row `i * count + j` is piece `i` of register `j`.
    """
    first = piece(0)
    few, steps = first.type.lanes, list[ir.Step]()
    parts = wide.lanes // few
    count = side // parts
    assert parts * few == wide.lanes and parts * count == side and count <= few
    for j in range(count):
        rows = [first if i + j == 0 else piece(i * count + j) for i in range(parts)]
        steps.append(ir.Let(f"{prefix}0_{j}", side_by_side(rows)))
    stages = count.bit_length() - 1
    for stage in range(stages):
        unit = 1 << stage
        for j in range(count):
            a, b = (ir.Var(wide, f"{prefix}{stage}_{n}") for n in (j & ~unit, j | unit))
            pick = _interleaved(wide.lanes, few, unit, upper=bool(j & unit))
            steps.append(ir.Let(f"{prefix}{stage + 1}_{j}", ir.Shuffle(wide, a, b, pick)))
    found: list[tuple[int, ir.Value]] = []
    each = few // count  # columns that a register has now
    for j in range(count):
        value: ir.Value = ir.Var(wide, f"{prefix}{stages}_{j}")
        if each > 1 and parts > 1:
            pick = tuple(
                i * few + q * count + r
                for q, i, r in product(range(each), range(parts), range(count))
            )
            steps.append(ir.Let(f"{prefix}whole_{j}", ir.Shuffle(wide, value, value, pick)))
            value = ir.Var(wide, f"{prefix}whole_{j}")
        top = sum(1 << (stages - 1 - bit) for bit in range(stages) if j >> bit & 1)
        for q in range(each):
            own = tuple(range(q * side, (q + 1) * side))
            column = (
                value if each == 1 else ir.Shuffle(ir.Type(wide.dtype, side), value, value, own)
            )
            found.append((top * each + q, column))
    return steps, [column for _, column in sorted(found, key=lambda pair: pair[0])]


def side_by_side(parts: Sequence[ir.Value]) -> ir.Value:
    """One vector of vectors."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left, right = side_by_side(parts[:half]), side_by_side(parts[half:])
    both = ir.Type(left.type.dtype, 2 * left.type.lanes)
    return ir.Shuffle(both, left, right, tuple(range(both.lanes)))


def _interleaved(lanes: int, few: int, unit: int, upper: bool) -> tuple[int, ...]:
    """Units of the lower or upper half of each piece of two vectors, in turns."""
    pick: list[int] = []
    for start in range(0, lanes, few):
        half = start + (few // 2 if upper else 0)
        for at in range(half, half + few // 2, unit):
            pick += [*range(at, at + unit), *range(lanes + at, lanes + at + unit)]
    return tuple(pick)


def zipped(
    vector: ir.Type, columns: Sequence[ir.Value], prefix: str
) -> tuple[list[ir.Step], list[ir.Value]]:
    """Steps, and one vector with an element of each column in turn, as many as it holds.

    Columns with no more elements than that are put side by side, and brought into order at once.
    """
    lanes, count = vector.lanes, len(columns)
    if columns[0].type.lanes * count == lanes:
        whole = ir.Var(vector, f"{prefix}0")
        order = tuple(lane % count * (lanes // count) + lane // count for lane in range(lanes))
        return [ir.Let(f"{prefix}0", side_by_side(columns))], [
            ir.Shuffle(vector, whole, whole, order)
        ]
    steps: list[ir.Step] = [ir.Let(f"{prefix}0", columns[0])]
    value: ir.Value = ir.Var(vector, f"{prefix}0")
    for number, column in enumerate(columns[1:], 1):
        own = {lane for lane in range(lanes) if lane % count == number}
        kept = tuple(lane // count if number == 1 else lane for lane in range(lanes))
        picks = tuple(lanes + lane // count if lane in own else kept[lane] for lane in range(lanes))
        steps.append(ir.Let(f"{prefix}{number}", ir.Shuffle(vector, value, column, picks)))
        value = ir.Var(vector, f"{prefix}{number}")
    return steps, [value]


def unzipped(
    vector: ir.Type, parts: Sequence[ir.Value], prefix: str
) -> tuple[list[ir.Step], list[ir.Value]]:
    """Steps, and the columns whose elements lie together, in turn, in neighbouring vectors."""
    lanes, count = vector.lanes, len(parts)
    steps: list[ir.Step] = [ir.Let(f"{prefix}{n}", part) for n, part in enumerate(parts)]
    columns: list[ir.Value] = []
    for number in range(count):
        value: ir.Value = ir.Var(vector, f"{prefix}0")
        for part in range(1, count):
            places = [lane * count + number for lane in range(lanes)]
            kept = [at % lanes if part == 1 else lane for lane, at in enumerate(places)]
            picks = tuple(
                lanes + at % lanes if at // lanes == part else kept[lane]
                for lane, at in enumerate(places)
            )
            right = ir.Var(vector, f"{prefix}{part}")
            name = f"{prefix}{number}_{part}"
            steps.append(ir.Let(name, ir.Shuffle(vector, value, right, picks)))
            value = ir.Var(vector, name)
        columns.append(value)
    return steps, columns
