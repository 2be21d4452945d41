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
