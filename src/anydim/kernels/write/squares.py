"""Squares in vectors transposed in registers: rows become columns."""

from __future__ import annotations

from collections.abc import Sequence

from anydim.kernels import ir


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


def zipped(
    vector: ir.Type, columns: Sequence[ir.Value], prefix: str
) -> tuple[list[ir.Step], list[ir.Value]]:
    """Steps, and one vector with an element of each column in turn, as many as it holds."""
    lanes, count = vector.lanes, len(columns)
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
