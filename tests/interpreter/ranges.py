"""Inference of the range of every index of a statement at known sizes, from `where` and reads.

A read at an affine position gives the only unknown index in it the largest range that stays in
bounds; rounds infer one index after another (docs/language.md, "Ranges").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product
from math import prod

from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    FUNCTION_ALIASES,
    Assignment,
    CallTerm,
    Convert,
    Count,
    Dimension,
    Exists,
    Flat,
    Name,
    Number,
    Operation,
    Range,
    Spread,
    Term,
    children,
    walk,
)
from tests.interpreter.frame import SIZES, Frame, accumulates
from tests.interpreter.kinds import NotCovered

Loops = Mapping[str, int | None]  # values of loop variables; None: data-dependent
Linear = dict[str, int]  # factors by index; "" has the constant


class Open(Exception):
    """Raised for a size that is not known yet."""


class ByData(Exception):
    """Raised for a data-dependent number."""


@dataclass
class Ranges:
    """`extents` by index; an index counts from its `lows`, or 0.

    `masks` are ranges that depend on other indices or on data; iterations outside are skipped. The
    extents of `pending` indices depend on tensors whose sizes are not known yet.
    """

    extents: dict[str, int] = field(default_factory=dict)
    lows: dict[str, int] = field(default_factory=dict)
    masks: list[Range] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)


def linear(term: Term, frame: Frame, loops: Loops) -> Linear | None:
    """The affine form of a position; None if it is not affine.

    Raises Open or ByData where a number in it is not known.
    """
    if isinstance(term, Number):
        return {"": int(term.value)} if isinstance(term.value, int) else None
    if isinstance(term, Name):
        return _linear_name(term.name, frame, loops)
    if isinstance(term, Dimension):
        shape = frame.shapes.get(term.tensor)
        size = None if shape is None else shape[term.axis]
        if size is None:
            raise Open
        return {"": size}
    if isinstance(term, Count):
        return {"": frame.size(term.ellipsis)}
    if isinstance(term, Convert):
        whole = frame.dtype(term.type) == "int64"
        return linear(term.argument, frame, loops) if whole else None
    if isinstance(term, CallTerm) and term.name not in frame.kinds:
        if term.name in frame.types or FUNCTION_ALIASES.get(term.name, term.name) not in SIZES:
            cast = len(term.arguments) == 1 and term.name in ("int64",)
            return linear(term.arguments[0], frame, loops) if cast else None
        return _combined(FUNCTION_ALIASES.get(term.name, term.name), term, frame, loops)
    if isinstance(term, Operation):
        return _combined(term.function, term, frame, loops)
    return None


def _linear_name(name: str, frame: Frame, loops: Loops) -> Linear | None:
    if name in frame.constants:
        value = frame.constants[name]
        return {"": value} if isinstance(value, int) else None
    if name in loops:
        counted = loops[name]
        if counted is None:
            raise ByData
        return {"": counted}
    if name in frame.kinds:
        return None
    return {"": frame.sizes[name]} if name in frame.sizes else {name: 1, "": 0}


def _combined(name: str, term: Operation | CallTerm, frame: Frame, loops: Loops) -> Linear | None:
    forms = [linear(part, frame, loops) for part in term.arguments]
    known = [form for form in forms if form is not None]
    if len(known) < len(forms) or name not in SIZES:
        return None
    if all(form.keys() <= {""} for form in known):
        return {"": SIZES[name](*(form[""] for form in known))}
    if name == "neg":
        return {key: -factor for key, factor in known[0].items()}
    left, right = known if len(known) > 1 else (known[0], {})
    if name in ("add", "sub"):
        keys = left.keys() | right.keys()
        return {key: SIZES[name](left.get(key, 0), right.get(key, 0)) for key in keys}
    if name == "mul" and min(len(left), len(right)) == 1:
        factor, form = (left[""], right) if len(left) == 1 else (right[""], left)
        return {key: factor * each for key, each in form.items()}
    return None


def indices_in(term: Term, frame: Frame, loops: Loops) -> list[str]:
    """The indices of a term in textual order, including those of ellipses."""
    found: list[str] = []
    for part in walk(term):
        if isinstance(part, Spread):
            found += frame.indices(part.name)
        elif isinstance(part, Name):
            known = (frame.constants, loops, frame.kinds, frame.sizes)
            found += [] if any(part.name in names for names in known) else [part.name]
    return list(dict.fromkeys(found))


def reads_in(term: Term, frame: Frame) -> Iterator[CallTerm | Flat | Exists]:
    """Yield every read of a tensor in a term."""
    for part in walk(term):
        if isinstance(part, Flat) or (isinstance(part, CallTerm) and part.name in frame.kinds):
            yield part


def ranges_of(item: Assignment, frame: Frame, loops: Loops) -> Ranges:
    """The ranges of a statement's indices, as far as sizes are known."""
    whole = frame.definers.get(item.target)
    held = item.target in frame.parameters or whole is not None
    limited = item is not whole if held else accumulates(item)
    target = Exists(item.target, item.indices)
    rank = sum(len(frame.indices(t.name)) if isinstance(t, Spread) else 1 for t in item.indices)
    there = len(frame.shapes.get(item.target, ())) == rank and item.target in frame.shapes
    if there and not limited:
        found = _solved(item, frame, loops, ())
        return found if not found.missing else _solved(item, frame, loops, (target,))
    return _solved(item, frame, loops, (target,) if there else ())


def _solved(item: Assignment, frame: Frame, loops: Loops, more: tuple[Exists, ...]) -> Ranges:
    exists = [*(clause for clause in item.where if isinstance(clause, Exists)), *more]
    found, uneven = _given(item, frame, loops)
    by_data = [end for clause in uneven if _ragged(clause, frame) for end in ends_of(clause)]
    terms = (*item.indices, item.value, *by_data)
    reads = [*(read for term in terms for read in reads_in(term, frame)), *exists]
    found.pending |= set(_pending(reads, frame, loops)) - found.extents.keys()
    constraints = list(_constraints(reads, frame, loops))
    closed = {clause.index for clause in uneven if not _ragged(clause, frame)}
    for clause in uneven:
        if clause.index in closed:
            needed = [name for end in ends_of(clause) for name in indices_in(end, frame, loops)]
            _infer(found, [each for each in constraints if not closed & each[0].keys()], needed)
            if all(name in found.extents for name in needed):
                found.extents[clause.index] = max(0, _highest(clause.high, found, frame, loops))
                found.pending |= {clause.index} if found.pending & {*needed} else set()
    wanted = _wanted(item, exists, frame, loops)
    _infer(found, constraints, wanted)
    found.masks = uneven
    found.missing = [name for name in wanted if name not in found.extents]
    return found


def ends_of(clause: Range | Exists) -> tuple[Term, ...]:
    """The terms of a `where` clause."""
    return (clause.low, clause.high) if isinstance(clause, Range) else clause.indices


def _wanted(item: Assignment, exists: Sequence[Exists], frame: Frame, loops: Loops) -> list[str]:
    """The indices of a statement, in order of appearance."""
    clauses = [clause for clause in item.where if isinstance(clause, Range)]
    both: tuple[Range | Exists, ...] = (*exists, *clauses)
    inside = [term for clause in both for term in ends_of(clause)]
    terms = (*item.indices, item.value, *inside)
    names = [name for term in terms for name in indices_in(term, frame, loops)]
    return list(dict.fromkeys([*names, *(clause.index for clause in clauses)]))


def _given(item: Assignment, frame: Frame, loops: Loops) -> tuple[Ranges, list[Range]]:
    """Ranges from ellipses and clauses with constant ends, and the clauses with other ends."""
    found, uneven = Ranges(), []
    for spread, sizes in frame.ellipses.items():
        found.extents.update(zip(frame.indices(spread), sizes))
    for clause in item.where:
        if not isinstance(clause, Range):
            continue
        try:
            pair = [linear(end, frame, loops) for end in ends_of(clause)]
        except Open:
            found.pending.add(clause.index)
            continue
        except ByData:
            pair = [None, None]
        known = [form[""] for form in pair if form is not None and form.keys() <= {""}]
        if len(known) < len(pair):
            uneven.append(clause)
        else:
            found.extents[clause.index] = max(0, known[1] - known[0])
            found.lows[clause.index] = known[0]
    return found, uneven


def _ragged(clause: Range, frame: Frame) -> bool:
    """Whether the ends of a range depend on data."""
    return any(True for end in ends_of(clause) for _ in reads_in(end, frame))


def _constraints(
    reads: Sequence[CallTerm | Flat | Exists], frame: Frame, loops: Loops
) -> Iterator[tuple[Linear, int]]:
    """Yield the forms that must be in 0:size, with the size."""
    for read in reads:
        if not isinstance(read, Exists) and read.default is not None:
            continue
        for term, size in positions(read, frame):
            if isinstance(term, Spread) or size is None:
                continue
            try:
                form, limit = linear(term, frame, loops), size
                while form is None and isinstance(term, Operation) and term.function == "floordiv":
                    by = linear(term.arguments[1], frame, loops)
                    if by is None or by.keys() > {""} or by[""] <= 0:
                        break
                    term, limit = term.arguments[0], limit * by[""]
                    form = linear(term, frame, loops)
            except (Open, ByData):
                continue
            if form is not None and any(factor for name, factor in form.items() if name):
                yield {n: f for n, f in form.items() if f or not n}, limit


def _pending(
    reads: Sequence[CallTerm | Flat | Exists], frame: Frame, loops: Loops
) -> Iterator[str]:
    """Yield the indices of positions along axes whose sizes are not known yet."""
    for read in reads:
        if isinstance(read, Exists) or read.default is None:
            for term, size in positions(read, frame):
                if size is None and not isinstance(term, Spread):
                    yield from indices_in(term, frame, loops)


def positions(read: CallTerm | Flat | Exists, frame: Frame) -> list[tuple[Term, int | None]]:
    """The positions of a read, each with the size of its axis; an ellipsis stays one entry."""
    if isinstance(read, Flat):
        shape = frame.shapes.get(read.tensor, [None])
        sizes = [size for size in shape if size is not None]
        return [(read.offset, prod(sizes) if len(sizes) == len(shape) else None)]
    name, terms = (
        (read.tensor, read.indices) if isinstance(read, Exists) else (read.name, read.arguments)
    )
    found: list[tuple[Term, int | None]] = []
    axis, shape = 0, frame.shapes.get(name, [])
    for term in terms:
        if isinstance(term, Spread):
            own = frame.spreads.get((name, term.name))
            axis += own[1] if own and own[0] == axis else len(frame.ellipses[term.name])
            found.append((term, None))
        else:
            found.append((term, shape[axis] if axis < len(shape) else None))
            axis += 1
    return found


def _infer(found: Ranges, constraints: list[tuple[Linear, int]], wanted: list[str]) -> None:
    """Infer in rounds: an index that is the only unknown of some form gets its smallest range."""
    shifted = [(from_zero(form, found.lows), size) for form, size in constraints]
    while any(name not in found.extents for name in wanted):
        tops: dict[str, list[int]] = {}
        for form, size in shifted:
            unknown = [name for name in form if name and name not in found.extents]
            if len(unknown) != 1:
                continue
            low, high = span_of({**form, unknown[0]: 0}, found.extents)
            factor = form[unknown[0]]
            top = (size - 1 - high) // factor if factor > 0 else low // -factor
            tops.setdefault(unknown[0], []).append(top + 1)
            if found.pending & form.keys():
                found.pending.add(unknown[0])
        if not tops:
            return
        for name, ends in tops.items():
            found.extents[name] = max(0, min(ends))


def from_zero(form: Linear, lows: Mapping[str, int]) -> Linear:
    """Shift a form to indices that count from 0."""
    moved = sum(factor * lows.get(name, 0) for name, factor in form.items())
    return {**form, "": form.get("", 0) + moved}


def span_of(form: Linear, extents: Mapping[str, int]) -> tuple[int, int]:
    """Minimum and maximum; the last value of an empty range is -1."""
    ends = [factor * (extents[name] - 1) for name, factor in form.items() if name and factor]
    signs = [factor > 0 for name, factor in form.items() if name and factor]
    low, high = (sum(e for e, up in zip(ends, signs) if up == top) for top in (False, True))
    return form.get("", 0) + low, form.get("", 0) + high


def _highest(term: Term, found: Ranges, frame: Frame, loops: Loops) -> int:
    """The largest value of the end of a range over the indices in it."""
    form = linear(term, frame, loops)
    if form is not None:
        return span_of(from_zero(form, found.lows), found.extents)[1]
    names = indices_in(term, frame, loops)
    spans = [range(found.extents[name]) for name in names]
    values = []
    for point in product(*spans):
        at = {n: v + found.lows.get(n, 0) for n, v in zip(names, point)}
        values.append(whole_number(term, frame, {**loops, **at}))
    return max(values, default=0)


def whole_number(term: Term, frame: Frame, loops: Loops) -> int:
    """Evaluate a term of sizes, loop variables and numbers."""
    form = linear(term, frame, loops)
    if form is not None and form.keys() <= {""}:
        return form[""]
    if isinstance(term, Operation) and term.function in _CHOICES:
        values = [whole_number(part, frame, loops) for part in term.arguments]
        return int(_CHOICES[term.function](*values))
    if any(True for part in walk(term) for _ in children(part) if _is_read(part, frame)):
        raise ByData
    raise NotCovered(f"{type(term).__name__} as the end of a range")


def _is_read(term: Term, frame: Frame) -> bool:
    return isinstance(term, Flat) or (isinstance(term, CallTerm) and term.name in frame.kinds)


_CHOICES: dict[str, Callable[..., int]] = {
    "select": lambda c, a, b: a if c else b, "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b, "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b, "div": lambda a, b: int(a / b) if b else 0,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": lambda a: not a,
}  # fmt: skip
