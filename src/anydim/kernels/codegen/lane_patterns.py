"""Positions that repeat from vector to vector: o // 2, o % 8, min(o % 8, 3) along lanes o.

In vectors that begin at a multiple of their lanes, such an index is the same pattern of lanes
everywhere, plus a start. For o // 3 vectors begin at multiples of 15, and 15 of 16 lanes are
used. A read at a sum of them loads a few short runs of neighbours and picks
its lanes out of these, where a gather would load element by element.

    z(o % 2, o // 2) with 8 lanes   two runs of 4: from z(0, v // 2) and z(1, v // 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import lcm
from operator import add, floordiv, mod, mul, or_, sub

from anydim.base.dtypes import DType, boolean, int32, int64, uint64
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.arithmetic import Name, near, numbered, summed
from anydim.kernels.inference import Linear, free_axes
from anydim.kernels.ir import (
    constant,
    greatest,
    iota,
    least,
    number,
    operate,
    select,
    shuffle,
    splat,
)
from anydim.kernels.launch import Machine
from anydim.lang.tree import Apply, Expr, Index, Literal, Read, SizeTerm
from anydim.lang.tree.affine import parts
from anydim.lang.tree.bounds_checks import is_inside
from anydim.sizes import Size

_PERMUTED = (128, 256, 512)  # bits of vectors, of bytes as numbers of two
_MOST_STEPS = {1: 4, 2: 4, 4: 4, 8: 2}  # by bytes of elements
_SMALL = 1 << 10  # numbers below it are divided by a multiplication
_SHIFT = _SMALL.bit_length() * 2  # and a shift


@dataclass(frozen=True)
class Pattern:
    """Lane l of the vector that begins at v is slope * v + lanes[l], a whole number.

    Vectors begin at multiples of `step`, which is that of their lanes where it is 0.
    """

    slope: Fraction
    lanes: tuple[int, ...]
    step: int = 0

    def repeats(self, by: int) -> bool:
        """Whether rests by a number are the same in every vector."""
        return by >= 1 and not (self.slope * (self.step or len(self.lanes))) % by


@dataclass(frozen=True)
class Run:
    """Neighbours that lanes read: `count` of them, from `steps` and `low` on.

    `steps` are multiples of sizes; `picks` are the (lane, place in the run) that they give.
    """

    steps: tuple[tuple[Size, int], ...]
    low: int
    count: int
    picks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Runs:
    """What a vector that begins at v reads: runs, all from v times the sum of `slopes` on."""

    slopes: tuple[tuple[Size, Fraction], ...]
    runs: tuple[Run, ...]


def runs_of(form: Linear, lane: str, lanes: int, step: int = 0) -> Runs | None:
    """The runs that a position reads; None when it has no pattern, or gathering is as good."""
    atoms = [(Index(lane), form.affine.stride(lane)), *form.atoms]
    found_in = [(size, pattern(e, lane, lanes, step)) for e, size in atoms if lane in free_axes(e)]
    near = [0] * lanes
    far: list[tuple[tuple[Size, int], ...]] = [()] * lanes
    slopes = []
    for size, found in found_in:
        if size == 0:
            continue
        if found is None:
            return None
        slopes.append((size, found.slope))
        known = size.constant
        if known is not None:
            near = [n + known * p for n, p in zip(near, found.lanes)]
        elif any(found.lanes):
            far = [(*f, (size, p)) for f, p in zip(far, found.lanes)]
    groups: dict[tuple[tuple[Size, int], ...], list[int]] = {}
    for place, steps in enumerate(far):
        groups.setdefault(steps, []).append(place)
    runs = []
    for steps, members in groups.items():
        low = min(near[n] for n in members)
        count = max(near[n] for n in members) - low + 1
        if count > lanes or len({near[n] for n in members}) < count:
            return None
        runs.append(Run(steps, low, count, tuple((n, near[n] - low) for n in members)))
    return Runs(tuple(slopes), tuple(runs)) if len(runs) <= lanes // 2 else None


def pattern(expr: Expr, lane: str, lanes: int, step: int = 0) -> Pattern | None:
    """The pattern of an integer expression over the lane axis alone."""
    if isinstance(expr, Index):
        return Pattern(Fraction(1), tuple(range(lanes)), step) if expr.name == lane else None
    if not isinstance(expr, Apply) or expr.function not in _RULES or len(expr.arguments) != 2:
        return None
    inner = pattern(expr.arguments[0], lane, lanes, step)
    by = _known(expr.arguments[1])
    function, slope, holds = _RULES[expr.function]
    if inner is None or by is None or not holds(inner, by):
        return None
    lanes_of = tuple(function(value, by) for value in inner.lanes)
    return replace(inner, slope=slope(inner.slope, by), lanes=lanes_of)


def _known(expr: Expr) -> int | None:
    if isinstance(expr, SizeTerm):
        return expr.size.constant
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return int(expr.value)
    return None


# of a function by a number: what it does to lanes, the slope after it, where it has a pattern
_RULES: dict[str, tuple[Callable[..., int], Callable[..., Fraction], Callable[..., bool]]] = {
    "floordiv": (floordiv, lambda slope, by: slope / by, Pattern.repeats),
    "mod": (mod, lambda slope, by: Fraction(0), Pattern.repeats),
    "min": (min, lambda slope, by: slope, lambda part, by: part.slope == 0),
    "max": (max, lambda slope, by: slope, lambda part, by: part.slope == 0),
    "add": (add, lambda slope, by: slope, lambda part, by: True),
    "sub": (sub, lambda slope, by: slope, lambda part, by: True),
    "mul": (mul, lambda slope, by: slope * by, lambda part, by: True),
}


def step_for(exprs: Iterable[Expr], lane: str, lanes: int) -> int:
    """How far vectors are best apart: as far as they are long, or a little less for quotients."""
    every = 1
    for part in (part for expr in exprs for part in parts(expr)):
        if isinstance(part, Apply) and part.function in ("floordiv", "mod"):
            by = _known(part.arguments[1])
            if by is not None and by > 0 and pattern(part.arguments[0], lane, lanes):
                every = lcm(every, by)
    step = lanes // every * every
    return step if 4 * step >= 3 * lanes else lanes


# ---- code --------------------------------------------------------------------------------------


def repeated(expr: Apply, lane: str, lanes: int, first: ir.Value, step: int) -> ir.Value | None:
    """A quotient or rest of the lane axis that has a pattern: a start and lanes that are known.

    None where it has none. The axis is `first` in lane 0, a multiple of `step`.
    """
    found = pattern(expr, lane, lanes, step) if expr.function in ("floordiv", "mod") else None
    if found is None:
        return None
    same = _of_first_vector(expr, lanes)
    return same if found.slope == 0 else _times(first, found.slope) + same


def uniform_divisor(by: Expr) -> tuple[Expr, Expr]:
    """A size as a divisor, and the number by which small numbers are multiplied instead."""
    divisor = Apply("max", (by, Literal(1, int64)))
    above = Apply("add", (divisor, Literal((1 << _SHIFT) - 1, int64)))
    return divisor, Apply("floordiv", (above, divisor))


def quotient_by(
    function: str, first: ir.Value, by: ir.Value, magic: ir.Value, lanes: int, name: Name
) -> ir.Value:
    """Quotients or rests of first, first + 1, ... by a divisor with its `uniform_divisor` number.

    With first = q * by + r, lane l has the quotient q + (r + l) // by; r + l is small, or by is so
    large that it comes at most once.
    """
    small = name(name(first % by) + iota(lanes))
    wide = name(splat(by, lanes))
    few = name((small * magic) >> _SHIFT)
    once = name(select(small < wide, constant(0, lanes=lanes), 1))
    quotient = name(select(constant(_SMALL - lanes) < by, once, few))
    return small - quotient * wide if function == "mod" else name(first // by) + quotient


OPPOSITE = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less",
    "greater_equal": "less_equal", "equal": "equal", "not_equal": "not_equal",
}  # fmt: skip
"""Orders, and what they are where both sides change places."""


def lanes_beside(function: str, first: ir.Value, lanes: int) -> ir.Value:
    """Where first, first + 1, ... is less than 0, or greater, as `function` says.

    Positions are compared by lanes, as numbers of which one register holds all.
    """
    return operate(function, *numbered(least(greatest(-first, -1), lanes), lanes))


def _of_first_vector(expr: Expr, lanes: int) -> ir.Value:
    """What has a pattern, in the vector that begins at 0."""
    if not isinstance(expr, Apply):
        known = _known(expr)
        return iota(lanes) if known is None else constant(known, lanes=lanes)
    return operate(expr.function, *(_of_first_vector(part, lanes) for part in expr.arguments))


def _times(first: ir.Value, slope: Fraction) -> ir.Value:
    return first * slope.numerator // slope.denominator


def start_of(found: Runs, first: ir.Value, size: Callable[[Size], ir.Value]) -> ir.Value:
    """How far the runs of the vector from `first` on are from those of the first vector."""
    return summed(*(_times(first, slope) * size(by) for by, slope in found.slopes if slope != 0))


def load_runs(
    vector: ir.Type, buffer: str, at: ir.Value, found: Runs, mask: ir.Value | None,
    size: Callable[[Size], ir.Value], name: Name,
) -> ir.Value:  # fmt: skip
    """The lanes of a vector, out of its runs; `at` is where they all begin."""
    value: ir.Value | None = None
    for run in found.runs:
        begin = summed(at, run.low, *(size(by) * count for by, count in run.steps))
        loaded = name(_loaded(vector, buffer, name(begin), run, mask, name))
        if value is None:
            places = dict(run.picks)
            picks = tuple(places.get(lane, 0) for lane in range(vector.lanes))
            value = name(shuffle(loaded, loaded, picks))
            continue
        spread = tuple(lane % loaded.type.lanes for lane in range(vector.lanes))
        wide = name(shuffle(loaded, loaded, spread))
        places = {lane: vector.lanes + place for lane, place in run.picks}
        picks = tuple(places.get(lane, lane) for lane in range(vector.lanes))
        value = name(shuffle(value, wide, picks))
    assert value is not None
    return value


def neighbours(gathered: ir.Gather, name: Name, register: str) -> tuple[list[ir.Step], ir.Value]:
    """What is gathered, loaded as a vector where the lanes turn out to be neighbours.

    So they are nearly everywhere with remainders, limits and mirrors (repeats, padding, wheels).
    """
    vector, offsets = gathered.type, name(gathered.offsets)
    first = name(ir.Extract(ir.INDEX, offsets, 0))
    apart = name(offsets.differs(first + iota(vector.lanes)))
    if gathered.mask is not None:
        apart = name(apart & gathered.mask)
    at = first if gathered.mask is None else name(near(first, gathered.mask))
    loaded = ir.Load(vector, gathered.buffer, at, gathered.mask)
    steps: list[ir.Step] = [
        ir.Declare(register, number(vector.dtype, 0, vector.lanes)),
        ir.If(
            apart.any, (ir.Assign(register, gathered),), (ir.Assign(register, loaded),), rare=True
        ),
    ]
    return steps, ir.Get(vector, register)


def shared_place(form: Linear, lane: str, vector: ir.Type, machine: Machine) -> Expr | None:
    """The place along a row that varies from lane to lane, where it stands in a table for all rows.

    So places of a grid do: what lanes read is near each other, and `picked` where it can be.
    """
    kind = vector.dtype
    bits = 8 * max(2, kind.bytes) * vector.lanes
    varying = [(atom, by) for atom, by in form.atoms if lane in free_axes(atom)]
    if not machine.permutes or bits not in _PERMUTED or kind.bits % 8 or len(varying) != 1:
        return None
    ((place, by),) = varying
    table = place.arguments[0] if isinstance(place, Apply) and is_inside(place) else place
    rows = {*form.affine.indices}.union(*(free_axes(a) for a, _ in form.atoms if a != place))
    alone = by == 1 and form.affine.stride(lane) == 0
    return place if alone and isinstance(table, Read) and rows - free_axes(table) else None


def picked(
    gathered: ir.Gather, rest: ir.Value, places: ir.Value, size: ir.Value,
    name: Name, register: str,
) -> tuple[list[ir.Step], ir.Value]:  # fmt: skip
    """What is gathered at `rest` + `places`, where these turn out to be near each other.

    Then they are picked out of two vectors of a tensor of so many elements: a gather takes its time
    for each lane.
    """
    vector, mask = gathered.type, gathered.mask
    lanes = vector.lanes
    lowest = name(places.extract(0))
    far = name(places - lowest)
    apart = name(far.bits(uint64) >= 2 * lanes)
    if mask is not None:
        apart = name(apart & mask)
    at = name(rest + lowest)
    outside = (at < 0) | (at > size - 2 * lanes)
    left, right = (ir.Load(vector, gathered.buffer, at + start) for start in (0, lanes))
    chosen: ir.Value = ir.Permute(vector, left, right, far.as_(int32))
    if mask is not None:
        chosen = operate("select", mask, chosen, number(vector.dtype, 0, lanes))
    steps: list[ir.Step] = [
        ir.Declare(register, number(vector.dtype, 0, lanes)),
        ir.If(
            name(apart.any | outside), (ir.Assign(register, gathered),),
            (ir.Assign(register, chosen),), rare=True,
        ),
    ]  # fmt: skip
    return steps, ir.Get(vector, register)


def steps_over(dtype: DType, stride: int) -> bool:
    """Whether elements so far apart come out of whole vectors, or else are gathered."""
    return stride == 1 or 2 <= stride <= _MOST_STEPS.get(dtype.bytes, 0)


def load_steps(
    vector: ir.Type, buffer: str, at: ir.Value, stride: int, mask: ir.Value | None,
    name: Name, guard: ir.Value | None = None,
) -> ir.Value:  # fmt: skip
    """Elements `stride` apart from `at` on, out of whole vectors; nothing is read past the last.

    With a `guard`, `at` may lie far outside where that is off (in every lane).
    """
    if guard is not None:
        at = name(near(at, guard))
    if stride == 1:
        return ir.Load(vector, buffer, at, mask)
    lanes, last = vector.lanes, stride * (vector.lanes - 1)
    value: ir.Value | None = None
    for part in range(stride):
        first = min(part * lanes, last + 1 - lanes)
        own = {lane: stride * lane - first for lane in range(lanes)
               if part * lanes <= stride * lane < (part + 1) * lanes}  # fmt: skip
        wanted: ir.Value | None = None
        if mask is not None:
            lane_of = {place: lane for lane, place in own.items()}
            picks = tuple(lane_of.get(place, lanes) for place in range(lanes))
            wanted = name(shuffle(mask, number(boolean, False, lanes), picks))
        loaded = name(ir.Load(vector, buffer, name(at + first), wanted))
        picks = tuple(lanes + own[lane] if lane in own else lane for lane in range(lanes))
        value = name(shuffle(loaded if value is None else value, loaded, picks))
    assert value is not None
    return value


def _loaded(
    vector: ir.Type, buffer: str, begin: ir.Value, run: Run, mask: ir.Value | None, name: Name
) -> ir.Value:
    """The elements of a run in a vector just as long; those that no lane wants are not read."""
    kind = ir.Type(vector.dtype, max(2, 1 << (run.count - 1).bit_length()))
    wanted = iota(kind.lanes) < run.count if run.count < kind.lanes else None
    if mask is not None:
        places = [[lane for lane, at in run.picks if at == place] for place in range(run.count)]
        places += [[0]] * (kind.lanes - run.count)
        turns = range(max(map(len, places)))
        picks = [tuple(own[min(turn, len(own) - 1)] for own in places) for turn in turns]
        any_of = reduce(or_, (shuffle(mask, mask, each) for each in picks))
        wanted = any_of if wanted is None else wanted & any_of
    return ir.Load(kind, buffer, begin, None if wanted is None else name(wanted))
