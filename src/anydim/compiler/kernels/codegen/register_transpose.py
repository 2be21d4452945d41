"""In-register transpose of square blocks of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import Name
from anydim.compiler.kernels.ir import shuffle

PIECE = 16  # bytes of the lanes within which processors shuffle in one instruction


def transposed_block(vector: ir.Type, rows: Sequence[ir.Value], name: Name) -> list[ir.Value]:
    """The columns of a square block of vectors.

    Each of log2(rows) stages swaps off-diagonal halves of pairs. Vectors with more lanes than there
    are rows hold several blocks side by side: each is transposed.
    """
    lanes, side = vector.lanes, len(rows)
    assert lanes % side == 0
    values, half = [name(row) for row in rows], side // 2
    while half:
        upper = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
        lower = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
        values = [
            name(shuffle(values[i & ~half], values[i | half], tuple(lower if i & half else upper)))
            for i in range(side)
        ]
        half //= 2
    return values


def lane_sums(vector: ir.Type, rows: Sequence[ir.Value], name: Name) -> ir.Value:
    """The sum of the lanes of each row, with one row per lane; halves of lanes are added
    pairwise."""
    lanes, values, half = vector.lanes, list(rows), vector.lanes // 2
    while half:
        lower, upper = (
            tuple(at + first for at in range(0, 2 * lanes, 2 * half) for first in ends)
            for ends in (range(half), range(half, 2 * half))
        )
        values = [
            name(shuffle(one, other, lower) + shuffle(one, other, upper))
            for one, other in zip(values[::2], values[1::2])
        ]
        half //= 2
    return values[0]


def block_columns(
    wide: ir.Type, side: int, piece: Callable[[int], ir.Value], name: Name
) -> list[ir.Value]:
    """The columns of `side` rows; `piece` loads PIECE bytes of a row.

    A register of type `wide` holds pieces of several rows side by side, so that each shuffle works
    on all of them: row `i * count + j` is piece `i` of register `j`.
    """
    first = piece(0)
    few = first.type.lanes
    parts = wide.lanes // few
    count = side // parts
    assert parts * few == wide.lanes and parts * count == side and count <= few
    values = []
    for j in range(count):
        rows = [first if i + j == 0 else piece(i * count + j) for i in range(parts)]
        values.append(name(concatenated_vectors(rows)))
    stages = count.bit_length() - 1
    for unit in (1 << stage for stage in range(stages)):
        picks = [_interleave_lanes(wide.lanes, few, unit, upper) for upper in (False, True)]
        values = [
            name(shuffle(values[j & ~unit], values[j | unit], picks[bool(j & unit)]))
            for j in range(count)
        ]
    found: dict[int, ir.Value] = {}
    each = few // count  # columns per register
    for j, value in enumerate(values):
        if each > 1 and parts > 1:
            pick = (
                i * few + q * count + r
                for q, i, r in product(range(each), range(parts), range(count))
            )
            value = name(shuffle(value, value, tuple(pick)))
        top = sum(1 << (stages - 1 - bit) for bit in range(stages) if j >> bit & 1)
        for q in range(each):
            own = tuple(range(q * side, (q + 1) * side))
            found[top * each + q] = value if each == 1 else shuffle(value, value, own)
    return [found[number] for number in range(few)]


def concatenated_vectors(parts: Sequence[ir.Value]) -> ir.Value:
    """Concatenate vectors."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left, right = concatenated_vectors(parts[:half]), concatenated_vectors(parts[half:])
    return shuffle(left, right, tuple(range(2 * left.type.lanes)))


def _interleave_lanes(lanes: int, few: int, unit: int, upper: bool) -> tuple[int, ...]:
    """Lane indices that interleave units from one half (`upper` or lower) of each piece of two
    vectors."""
    pick: list[int] = []
    for start in range(0, lanes, few):
        half = start + (few // 2 if upper else 0)
        for at in range(half, half + few // 2, unit):
            pick += [*range(at, at + unit), *range(lanes + at, lanes + at + unit)]
    return tuple(pick)


def interleave_lanes(
    vector: ir.Type, columns: Sequence[ir.Value], name: Name, begin: int = 0
) -> ir.Value:  # fmt: skip
    """Interleave the elements of columns into one vector, starting at element `begin` of the
    result.

    Columns that fit one vector together are concatenated and permuted at once.
    """
    lanes, count = vector.lanes, len(columns)
    if columns[0].type.lanes * count == lanes:
        whole = name(concatenated_vectors(columns))
        order = tuple(lane % count * (lanes // count) + lane // count for lane in range(lanes))
        return shuffle(whole, whole, order)
    value = name(columns[0])
    for number, column in enumerate(columns[1:], 1):
        sources = [divmod(begin + lane, count) for lane in range(lanes)]
        picks = tuple(
            lanes + position if own == number else position if number == 1 else lane
            for lane, (position, own) in enumerate(sources)
        )
        value = name(shuffle(value, column, picks))
    return value


def deinterleave(vector: ir.Type, parts: Sequence[ir.Value], name: Name) -> list[ir.Value]:
    """Deinterleave adjacent vectors into columns."""
    lanes, count = vector.lanes, len(parts)
    parts, columns = [name(part) for part in parts], list[ir.Value]()
    for number in range(count):
        value = parts[0]
        for part in range(1, count):
            sources = [lane * count + number for lane in range(lanes)]
            kept = [at % lanes if part == 1 else lane for lane, at in enumerate(sources)]
            picks = tuple(
                lanes + at % lanes if at // lanes == part else kept[lane]
                for lane, at in enumerate(sources)
            )
            value = name(shuffle(value, parts[part], picks))
        columns.append(value)
    return columns


def strided_lanes(part: int, stride: int, lanes: int) -> tuple[int, ...]:
    """Return shuffle indices that merge one more loaded part into the lanes selected so far."""

    def source_lane(lane: int) -> int:
        own, offset = divmod(lane * stride, lanes)
        return lanes + offset if own == part else offset if part == 1 and own == 0 else lane

    return tuple(map(source_lane, range(lanes)))
