"""Ranges of indices implied by reads, and proofs that reads are in bounds.

A read constrains its indices when its position is affine in them: 0 <= position < size. In each
round every index that is the only unknown one of some read gets the largest range that is in
bounds, intersected over several reads; the next round uses the new ranges. Where a read depends on
a size that is not inferred yet, so does the extent of its index: it is a sum of such sizes until
they are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from anydim.base.errors import DimError
from anydim.base.records import dataclass
from anydim.lang.resolve.sized import index_type, span_in_type
from anydim.lang.tree import Apply, Cast, Expr, Index, Read
from anydim.lang.tree.affine import Affine, affine
from anydim.sizes import Box, Size, Truth, as_size, maximum, minimum, prove, simplify
from anydim.sizes.guard import Guard

Change = Callable[[Expr], Expr | None]
UNKNOWN = "unknown."  # prefix of the names of sizes not inferred yet


class RangeProblem(Exception):
    """Why an index has no range, or a read is unproved."""

    def __init__(self, text: str, hint: str = "") -> None:
        self.text, self.hint = text, hint
        super().__init__(text)


@dataclass(frozen=True)
class Constraint:
    """0 <= form < size, from an access of dimension `axis` of `tensor`."""

    form: Affine
    size: Size
    tensor: str
    axis: int

    def __str__(self) -> str:
        return f"the read of '{self.tensor}' in dimension {self.axis}"


def is_proved(left: Size, relation: str, right: Size | int, box: Box) -> bool:
    """Whether a relation holds all over the box."""
    return prove(left, relation, right, box) is Truth.PROVED


def running(extents: Iterable[Size], box: Box) -> Box:
    """The part of the box where all these ranges run: a dim that empties one at 0 is at least 1.

    Returns the same box object for the same dims, since boxes cache proofs.
    """
    emptying = frozenset(
        name for extent in extents for name in extent.symbols if _empty_at_zero(extent, name)
    )
    return _from_one(box, emptying) if emptying else box


@lru_cache(maxsize=256)
def _from_one(box: Box, emptying: frozenset[str]) -> Box:
    """The part of a box where these dims are at least 1."""
    raised = (
        replace(dim, lo=max(dim.lo, 1), hi=dim.hi if dim.hi is None else max(dim.hi, 1))
        if dim.name in emptying
        else dim
        for dim in box.dims
    )
    return Box.of(*raised, constraints=box.constraints)


@lru_cache(maxsize=1 << 12)
def _empty_at_zero(extent: Size, name: str) -> bool:
    """Whether an extent is 0 where a dim is; False where the dim divides something."""
    try:
        return extent.substitute({name: 0}).constant == 0
    except DimError:
        return False


def constraint(position: Expr, size: Size, tensor: str, axis: int, box: Box) -> Constraint | None:
    """The constraint of reading at `position` of a dimension of `size`; None if not affine.

    `e // f < size` implies `e < size * f`, for a positive f.
    """
    if isinstance(position, Apply) and position.function == "floordiv":
        divisor = affine(position.arguments[1])
        if divisor is None or divisor.terms or not is_proved(divisor.constant, ">", 0, box):
            return None
        return constraint(position.arguments[0], size * divisor.constant, tensor, axis, box)
    form = affine(position)
    return None if form is None or not form.terms else Constraint(form, size, tensor, axis)


# ---- inference ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bound:
    low: Size
    high: Size  # exclusive


def infer(
    constraints: list[Constraint], known: Mapping[str, Size], wanted: Iterable[str], box: Box
) -> tuple[dict[str, Size], set[Constraint]]:
    """The extents of the wanted indices, and the constraints that hold because of them.

    Raises RangeProblem for an index whose range cannot be inferred or does not start at 0.
    """
    extents, satisfied, missing = solve(constraints, known, wanted, box)
    if missing:
        raise open_range(missing[0], constraints, extents)
    return extents, satisfied


def open_range(
    name: str, constraints: Iterable[Constraint], extents: Mapping[str, Size]
) -> RangeProblem:
    """Why an index has no range: no read constrains it, or those that do leave others open, too."""
    for item in constraints:
        others = [n for n in item.form.indices if n not in extents and n != name]
        if name in item.form.indices and others:
            both = " and ".join(f"'{n}'" for n in (name, *others))
            alone = f"where {others[0]} in 0:..., or where {name} in 0:..."
            return RangeProblem(
                f"the range of '{name}' cannot be inferred: {item} leaves {both} open",
                f"give one of them a range: {alone}",
            )
    return RangeProblem(
        f"the range of '{name}' cannot be inferred from any read", f"add: where {name} in 0:..."
    )


def unknown_in(*sizes: Size) -> frozenset[str]:
    """The names of sizes that are not inferred yet."""
    return frozenset(n for size in sizes for n in size.symbols if n.startswith(UNKNOWN))


def is_known(size: Size) -> bool:
    """Whether a size depends on no size that is still to be inferred."""
    return not unknown_in(size)


def waiting_for(names: Iterable[str]) -> Size:
    """The placeholder extent until these sizes are known."""
    total = as_size(0)
    for name in sorted(names):
        total = total + Size.symbol(name)
    return total


def solve(
    constraints: list[Constraint], known: Mapping[str, Size], wanted: Iterable[str], box: Box
) -> tuple[dict[str, Size], set[Constraint], list[str]]:
    """As `infer`, also returning the indices whose range cannot be inferred."""
    extents = dict(known)
    missing = [name for name in wanted if name not in extents]
    satisfied: set[Constraint] = set()
    while missing:
        found: dict[str, list[_Bound]] = {}
        waits: dict[str, set[str]] = {}
        for item in constraints:
            unknown = [name for name in item.form.indices if name not in extents]
            if len(unknown) != 1:
                continue
            others = (extents[name] for name in item.form.indices if name in extents)
            open_sizes = unknown_in(item.size, *item.form.sizes, *others)
            if open_sizes:
                waits.setdefault(unknown[0], set()).update(open_sizes)
                continue
            bound = _index_bound(item, unknown[0], extents, box)
            if bound is not None:
                found.setdefault(unknown[0], []).append(bound)
                satisfied.add(item)
        if not found and not waits:
            break
        for name, bounds in found.items():
            if name not in waits:
                extents[name] = _intersect(name, bounds, box)
        extents.update((name, waiting_for(sizes)) for name, sizes in waits.items())
        missing = [name for name in missing if name not in extents]
    return extents, satisfied, missing


def _index_bound(
    item: Constraint, name: str, extents: Mapping[str, Size], box: Box
) -> _Bound | None:
    """The values of one index that satisfy a constraint, for all values of the known indices."""
    own = item.form.stride(name)
    others = Affine(item.form.constant, tuple(t for t in item.form.terms if t[0] != name))
    span = affine_range(others, extents, box)
    if span is None:
        return None
    low, high = span
    if is_proved(own, ">", 0, box):
        return _Bound(-(low // own), (item.size - 1 - high + own) // own)
    if is_proved(own, "<", 0, box):
        back = -own
        return _Bound(-((item.size - 1 - high) // back), low // back + 1)
    return None


def _intersect(name: str, bounds: list[_Bound], box: Box) -> Size:
    lows = [simplify(bound.low, box) for bound in bounds]
    starts_at_zero = any(is_proved(low, "==", 0, box) for low in lows)
    if not starts_at_zero or not all(is_proved(low, "<=", 0, box) for low in lows):
        wrong = dict.fromkeys(str(low) for low in lows if not is_proved(low, "==", 0, box))
        raise RangeProblem(
            f"the reads give '{name}' a range from {' and '.join(wrong)}, not from 0",
            f"add: where {name} in 0:..., or shift the index",
        )
    return smallest_extent([bound.high for bound in bounds], box)


def smallest_extent(sizes: list[Size], box: Box) -> Size:
    """The smallest of several extents, and 0 where it would be negative."""
    smallest = simplify(minimum(*sizes), box)
    return not_negative(smallest, box)


def not_negative(size: Size, box: Box) -> Size:
    """An extent: the size itself, or 0 where it may be negative."""
    if is_proved(size, ">=", 0, box):
        return size
    return simplify(maximum(0, size), box)


# ---- bounds ------------------------------------------------------------------------------------


def affine_range(form: Affine, extents: Mapping[str, Size], box: Box) -> tuple[Size, Size] | None:
    """Minimum and maximum of a form over its ranges; exact where no range is empty.

    None when the sign of a coefficient is not known.
    """
    low = high = form.constant
    for name, coefficient in form.terms:
        last = coefficient * (extents[name] - 1)
        if is_proved(coefficient, ">=", 0, box):
            high = high + last
        elif is_proved(coefficient, "<=", 0, box):
            low = low + last
        else:
            return None
    return low, high


def expression_range(
    expr: Expr, extents: Mapping[str, Size], box: Box
) -> tuple[Size, Size, bool] | None:
    """Bounds of an integer expression, and whether they are attained; None if data-dependent."""
    form = affine(expr)
    if form is not None:
        ends = affine_range(form, extents, box)
        return None if ends is None else (*ends, True)
    if isinstance(expr, Cast) and expr.dtype.is_integer:
        inner = expression_range(expr.argument, extents, box)
        return None if inner is None else span_in_type(inner, expr.dtype, box)
    if not isinstance(expr, Apply):
        return None
    skip = 1 if expr.function == "select" else 0
    parts = [expression_range(a, extents, box) for a in expr.arguments[skip:]]
    known = [part for part in parts if part is not None]
    if expr.function == "mod" and len(known) > 1 and known[1][0] == known[1][1]:
        return _mod_range(known[0], known[1][0], box)
    if len(known) < len(parts):
        return None
    combined = _combine_ranges(expr.function, known, box)
    return None if combined is None else span_in_type(combined, index_type(expr), box)


def _mod_range(
    part: tuple[Size, Size, bool], divisor: Size, box: Box
) -> tuple[Size, Size, bool] | None:
    low, high, exact = part
    if not is_proved(divisor, ">", 0, box):
        return None
    if is_proved(low, ">=", 0, box) and is_proved(high, "<", divisor, box):
        return low, high, exact
    return as_size(0), divisor - 1, False


def _combine_ranges(
    function: str, parts: list[tuple[Size, Size, bool]], box: Box
) -> tuple[Size, Size, bool] | None:
    lows = [low for low, _, _ in parts]
    highs = [high for _, high, _ in parts]
    if function == "add":
        return lows[0] + lows[1], highs[0] + highs[1], False
    if function == "sub":
        return lows[0] - highs[1], highs[0] - lows[1], False
    if function == "mul" and lows[1] == highs[1] and is_proved(lows[1], ">=", 0, box):
        return lows[0] * lows[1], highs[0] * lows[1], parts[0][2]
    if function == "floordiv" and lows[1] == highs[1] and is_proved(lows[1], ">", 0, box):
        return lows[0] // lows[1], highs[0] // lows[1], parts[0][2]
    if function == "min":
        return minimum(*lows), minimum(*highs), False
    if function == "max":
        return maximum(*lows), maximum(*highs), False
    if function == "select":
        return minimum(*lows), maximum(*highs), False
    return None


# ---- reads in bounds ---------------------------------------------------------------------------

INSIDE, OUTSIDE, UNDECIDED, BY_DATA = "inside", "outside", "undecided", "by data"


def read_status(
    position: Expr, size: Size, extents: Mapping[str, Size], box: Box
) -> tuple[str, tuple[Size, Size] | None]:
    """Whether a position is in 0:size while all ranges run, and its bounds if size-dependent."""
    active = running(extents.values(), box)
    span = expression_range(position, extents, active)
    if span is None:
        return BY_DATA, None
    low, high, exact = span
    status, ends = span_status(low, high, size, extents, box)
    return (status, ends) if exact or status == INSIDE else (BY_DATA, None)


def span_status(
    low: Size, high: Size, size: Size, extents: Mapping[str, Size], box: Box
) -> tuple[str, tuple[Size, Size] | None]:
    """Whether the bounds low and high of a position are in 0:size while all ranges run."""
    active = running(extents.values(), box)
    if is_proved(low, ">=", 0, active) and is_proved(high, "<", size, active):
        return INSIDE, None
    if any(is_proved(extent, "<=", 0, box) for extent in extents.values()):
        return INSIDE, None  # no element is read
    refuted = Truth.REFUTED
    if refuted in (prove(low, ">=", 0, active), prove(high, "<", size, active)):
        return OUTSIDE, (low, high)
    return UNDECIDED, (low, high)


def read_guards(
    low: Size, high: Size, size: Size, extents: Mapping[str, Size], box: Box, message: str
) -> list[Guard]:
    """Guards that keep low:high inside 0:size wherever all ranges run."""
    active = running(extents.values(), box)
    may_stop = [e for e in extents.values() if not is_proved(e, ">", 0, box)]
    runs = minimum(1, *may_stop) if may_stop else as_size(1)
    guards = []
    if not is_proved(low, ">=", 0, active):
        guards.append(Guard(-low * runs, "<=", as_size(0), message))
    if not is_proved(high, "<", size, active):
        guards.append(Guard((high - size + 1) * runs, "<=", as_size(0), message))
    return guards


def uses(expr: Expr, name: str) -> bool:
    """Whether an expression depends on an index."""
    if isinstance(expr, Index):
        return expr.name == name
    if isinstance(expr, Apply):
        return any(uses(argument, name) for argument in expr.arguments)
    if isinstance(expr, Cast):
        return uses(expr.argument, name)
    if isinstance(expr, Read):
        inner = any(uses(index, name) for index in expr.indices)
        return inner or (expr.default is not None and uses(expr.default, name))
    return False
