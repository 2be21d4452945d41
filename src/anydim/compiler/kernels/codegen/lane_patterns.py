"""Index patterns that repeat from vector to vector: o // 2, o % 8, min(o % 8, 3) along lanes o.

In vectors that start at a multiple of their lane count, such an index is a fixed pattern of lanes
plus a start. For o // 3, vectors start at multiples of 15, and 15 of 16 lanes are used. A read at a
sum of such indices loads a few short contiguous runs and selects its lanes from them by shuffles,
where a gather would load element by element.

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
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import Name, index_sum, lane_indices, near
from anydim.compiler.kernels.inference import Linear, free_axes
from anydim.compiler.kernels.ir import (
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
from anydim.compiler.kernels.launch import Machine
from anydim.lang.tree import Apply, Expr, Index, Literal, Read, SizeTerm
from anydim.lang.tree.affine import parts
from anydim.lang.tree.bounds_checks import is_inside
from anydim.sizes import Size

_PERMUTED = (128, 256, 512)  # bits of vectors with a permute; bytes count as 16-bit elements
_MOST_STEPS = {1: 4, 2: 4, 4: 4, 8: 2}  # largest stride of shuffled loads, by bytes of elements
_SMALL = 1 << 10  # numbers below it are divided by a multiplication
_SHIFT = _SMALL.bit_length() * 2  # and a shift


@dataclass(frozen=True)
class Pattern:
    """Lane l of the vector that starts at v is slope * v + lanes[l], a whole number.

    Vectors start at multiples of `step`; 0 stands for their number of lanes.
    """

    slope: Fraction
    lanes: tuple[int, ...]
    step: int = 0

    def repeats(self, by: int) -> bool:
        """Whether remainders by `by` are the same in every vector."""
        return by >= 1 and not (self.slope * (self.step or len(self.lanes))) % by


@dataclass(frozen=True)
class Run:
    """A contiguous run of elements that lanes read: `count` of them, starting at `steps` and `low`.

    `steps` are multiples of sizes; `picks` holds (lane, position in the run) pairs.
    """

    steps: tuple[tuple[Size, int], ...]
    low: int
    count: int
    picks: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Runs:
    """The reads of a vector that starts at v: runs, all offset by v times the sum of `slopes`."""

    slopes: tuple[tuple[Size, Fraction], ...]
    runs: tuple[Run, ...]


def runs_of(form: Linear, lane: str, lanes: int, step: int = 0) -> Runs | None:
    """The runs that an index reads; None when it has no pattern, or a gather is as good."""
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
    for lane_index, steps in enumerate(far):
        groups.setdefault(steps, []).append(lane_index)
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
    by = _constant_of(expr.arguments[1])
    function, slope, holds = _RULES[expr.function]
    if inner is None or by is None or not holds(inner, by):
        return None
    lanes_of = tuple(function(value, by) for value in inner.lanes)
    return replace(inner, slope=slope(inner.slope, by), lanes=lanes_of)


def _constant_of(expr: Expr) -> int | None:
    if isinstance(expr, SizeTerm):
        return expr.size.constant
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return int(expr.value)
    return None


# function of a pattern and a number: effect on lanes, resulting slope, condition for a pattern
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
    """Distance between the starts of vectors: the lanes, or slightly less to fit a divisor."""
    every = 1
    for part in (part for expr in exprs for part in parts(expr)):
        if isinstance(part, Apply) and part.function in ("floordiv", "mod"):
            by = _constant_of(part.arguments[1])
            if by is not None and by > 0 and pattern(part.arguments[0], lane, lanes):
                every = lcm(every, by)
    # At most a quarter of the lanes may stay unused.
    step = lanes // every * every
    return step if 4 * step >= 3 * lanes else lanes


# ---- code --------------------------------------------------------------------------------------


def repeat_pattern(
    expr: Apply, lane: str, lanes: int, first: ir.Value, step: int
) -> ir.Value | None:
    """A quotient or remainder of the lane axis as a start plus known lanes; None without a pattern.

    The axis is `first` in lane 0, a multiple of `step`.
    """
    found = pattern(expr, lane, lanes, step) if expr.function in ("floordiv", "mod") else None
    if found is None:
        return None
    same = _of_first_vector(expr, lanes)
    return same if found.slope == 0 else _times(first, found.slope) + same


def uniform_divisor(by: Expr) -> tuple[Expr, Expr]:
    """A size as a divisor, and the multiplier that replaces it for small numbers."""
    divisor = Apply("max", (by, Literal(1, int64)))
    above = Apply("add", (divisor, Literal((1 << _SHIFT) - 1, int64)))
    return divisor, Apply("floordiv", (above, divisor))


def quotient_by(
    function: str, first: ir.Value, by: ir.Value, magic: ir.Value, lanes: int, name: Name
) -> ir.Value:
    """Quotients or remainders of first, first + 1, ... by a divisor with its `uniform_divisor`
    multiplier.

    With first = q * by + r, lane l has the quotient q + (r + l) // by; either r + l is small, or by
    is so large that (r + l) // by is at most 1.
    """
    small = name(name(first % by) + iota(lanes))
    wide = name(splat(by, lanes))
    few = name((small * magic) >> _SHIFT)
    once = name(select(small < wide, constant(0, lanes=lanes), 1))
    quotient = name(select(constant(_SMALL - lanes) < by, once, few))
    return small - quotient * wide if function == "mod" else name(first // by) + quotient


SWAPPED = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less",
    "greater_equal": "less_equal", "equal": "equal", "not_equal": "not_equal",
}  # fmt: skip
"""Comparisons, and their equivalents with operands swapped."""


def compared_lanes(function: str, first: ir.Value, lanes: int) -> ir.Value:
    """Whether first, first + 1, ... compares to 0 as `function` says.

    Lane indices are compared instead of indices, in a type whose vector fits one register.
    """
    return operate(function, *lane_indices(least(greatest(-first, -1), lanes), lanes))


def _of_first_vector(expr: Expr, lanes: int) -> ir.Value:
    """An expression with a pattern, evaluated in the vector that starts at 0."""
    if not isinstance(expr, Apply):
        known = _constant_of(expr)
        return iota(lanes) if known is None else constant(known, lanes=lanes)
    return operate(expr.function, *(_of_first_vector(part, lanes) for part in expr.arguments))


def _times(first: ir.Value, slope: Fraction) -> ir.Value:
    return first * slope.numerator // slope.denominator


def start_of(found: Runs, first: ir.Value, size: Callable[[Size], ir.Value]) -> ir.Value:
    """The offset between the runs of the vector that starts at `first` and those of the first
    vector."""
    return index_sum(*(_times(first, slope) * size(by) for by, slope in found.slopes if slope != 0))


def load_runs(
    vector: ir.Type, buffer: str, at: ir.Value, found: Runs, mask: ir.Value | None,
    size: Callable[[Size], ir.Value], name: Name,
) -> ir.Value:  # fmt: skip
    """The lanes of a vector, selected from its runs; `at` is the common start of the runs."""
    value: ir.Value | None = None
    for run in found.runs:
        begin = index_sum(at, run.low, *(size(by) * count for by, count in run.steps))
        loaded = name(_load_run(vector, buffer, name(begin), run, mask, name))
        if value is None:
            position_of = dict(run.picks)
            picks = tuple(position_of.get(lane, 0) for lane in range(vector.lanes))
            value = name(shuffle(loaded, loaded, picks))
            continue
        spread = tuple(lane % loaded.type.lanes for lane in range(vector.lanes))
        wide = name(shuffle(loaded, loaded, spread))
        position_of = {lane: vector.lanes + position for lane, position in run.picks}
        picks = tuple(position_of.get(lane, lane) for lane in range(vector.lanes))
        value = name(shuffle(value, wide, picks))
    assert value is not None
    return value


def contiguous_gather(
    gathered: ir.Gather, name: Name, register: str
) -> tuple[list[ir.Step], ir.Value]:
    """A gather, replaced by a vector load where the lanes turn out to be contiguous at run time.

    With remainders, clamps and mirrored indices (repeat, padding, cyclic reads) they nearly always
    are.
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


def table_index(form: Linear, lane: str, vector: ir.Type, machine: Machine) -> Expr | None:
    """The index along a row that varies over the lanes, if it is read from a table shared by all
    rows.

    Resampling grids have such tables: the lanes read elements near each other, and
    `permuted_gather` applies.
    """
    kind = vector.dtype
    bits = 8 * max(2, kind.bytes) * vector.lanes
    varying = [(atom, by) for atom, by in form.atoms if lane in free_axes(atom)]
    if not machine.permutes or bits not in _PERMUTED or kind.bits % 8 or len(varying) != 1:
        return None
    ((index, by),) = varying
    table = index.arguments[0] if isinstance(index, Apply) and is_inside(index) else index
    rows = {*form.affine.indices}.union(*(free_axes(a) for a, _ in form.atoms if a != index))
    alone = by == 1 and form.affine.stride(lane) == 0
    return index if alone and isinstance(table, Read) and rows - free_axes(table) else None


def permuted_gather(
    gathered: ir.Gather, rest: ir.Value, offsets: ir.Value, size: ir.Value,
    name: Name, register: str,
) -> tuple[list[ir.Step], ir.Value]:  # fmt: skip
    """A gather at `rest` + `offsets`, replaced by a permute where its elements are close together.

    The lanes are then selected from two vectors of a tensor of `size` elements; a gather takes time
    for every lane.
    """
    vector, mask = gathered.type, gathered.mask
    lanes = vector.lanes
    lowest = name(offsets.extract(0))
    far = name(offsets - lowest)
    apart = name(far.bits(uint64) >= 2 * lanes)
    if mask is not None:
        apart = name(apart & mask)
    at = name(rest + lowest)
    # Both vectors are read whole, so they must lie in the tensor.
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


def has_strided_load(dtype: DType, stride: int) -> bool:
    """Whether elements at this stride are shuffled out of whole vectors; otherwise they are
    gathered."""
    return stride == 1 or 2 <= stride <= _MOST_STEPS.get(dtype.bytes, 0)


def load_steps(
    vector: ir.Type, buffer: str, at: ir.Value, stride: int, mask: ir.Value | None,
    name: Name, guard: ir.Value | None = None,
) -> ir.Value:  # fmt: skip
    """Elements at a stride from `at`, shuffled out of whole vectors; reads nothing past the last
    one.

    With a `guard`, `at` may be far out of bounds where the guard is off (in every lane).
    """
    if guard is not None:
        at = name(near(at, guard))
    if stride == 1:
        return ir.Load(vector, buffer, at, mask)
    lanes, last = vector.lanes, stride * (vector.lanes - 1)
    value: ir.Value | None = None
    for part in range(stride):
        # The last vector begins earlier, to end at the last element that lanes read.
        first = min(part * lanes, last + 1 - lanes)
        own = {lane: stride * lane - first for lane in range(lanes)
               if part * lanes <= stride * lane < (part + 1) * lanes}  # fmt: skip
        wanted: ir.Value | None = None
        if mask is not None:
            lane_of = {position: lane for lane, position in own.items()}
            picks = tuple(lane_of.get(position, lanes) for position in range(lanes))
            wanted = name(shuffle(mask, number(boolean, False, lanes), picks))
        loaded = name(ir.Load(vector, buffer, name(at + first), wanted))
        picks = tuple(lanes + own[lane] if lane in own else lane for lane in range(lanes))
        value = name(shuffle(loaded if value is None else value, loaded, picks))
    assert value is not None
    return value


def _load_run(
    vector: ir.Type, buffer: str, begin: ir.Value, run: Run, mask: ir.Value | None, name: Name
) -> ir.Value:
    """The elements of a run in one vector of the next power of two of lanes; unused ones are not
    read."""
    kind = ir.Type(vector.dtype, max(2, 1 << (run.count - 1).bit_length()))
    wanted = iota(kind.lanes) < run.count if run.count < kind.lanes else None
    if mask is not None:
        lanes_at = [
            [lane for lane, at in run.picks if at == position] for position in range(run.count)
        ]
        lanes_at += [[0]] * (kind.lanes - run.count)
        rounds = range(max(map(len, lanes_at)))
        picks = [
            tuple(own[min(each_round, len(own) - 1)] for own in lanes_at) for each_round in rounds
        ]
        any_of = reduce(or_, (shuffle(mask, mask, each) for each in picks))
        wanted = any_of if wanted is None else wanted & any_of
    return ir.Load(kind, buffer, begin, None if wanted is None else name(wanted))
