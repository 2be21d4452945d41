"""Element types and shapes of what a definition writes, at the sizes of one call.

The type of a tensor is the narrowest common type of all that is assigned to it, found in rounds
that begin with no type at all. Its size is that of the statement that defines all of it, or of the
union of what its statements write. Sizes that depend on each other start from what all others
allow, and are corrected until a fixed point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product
from typing import Any

from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    BranchBlock,
    Exists,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Spread,
    Term,
    parts,
)
from tests.interpreter.frame import Frame, accumulates, framed
from tests.interpreter.kinds import NotCovered, joined, settled
from tests.interpreter.ranges import (
    ByData,
    Loops,
    Open,
    from_zero,
    indices_in,
    linear,
    positions,
    ranges_of,
    span_of,
    whole_number,
)
from tests.interpreter.terms import constant_truth, kind_of

_MAX_ROUNDS = 200
_MAX_ITERATIONS = 24  # examined per loop: the first and the last ones


def surveyed(frame: Frame) -> Frame:
    """Infer types and shapes of all tensors; raise NotCovered where they do not follow."""
    corrected: set[tuple[str, int]] = set()
    for _ in range(_MAX_ROUNDS):
        before = dict(frame.kinds), {name: list(shape) for name, shape in frame.shapes.items()}
        _types(frame)
        _shapes(frame, corrected)
        if before == (frame.kinds, frame.shapes):
            break
    for name in frame.definers:
        if frame.kinds.get(name) is None or None in frame.shapes.get(name, [None]):
            raise NotCovered(f"the type or the shape of '{name}' cannot be inferred")
    return frame


def statements(
    block: Sequence[Item], frame: Frame, loops: frozenset[str] = frozenset()
) -> Iterator[tuple[Assignment | Invoke, frozenset[str]]]:
    """Yield every statement that may run, with the variables of the loops around it."""
    for item in block:
        if isinstance(item, (Assignment, Invoke)):
            yield item, loops
        elif isinstance(item, LoopBlock):
            yield from statements(item.body, frame, loops | {item.variable})
        else:
            for inner in branches(item, frame):
                yield from statements(inner, frame, loops)


def branches(item: Item, frame: Frame) -> Sequence[tuple[Item, ...]]:
    """The blocks of a branch that attributes and constants do not exclude."""
    if not isinstance(item, BranchBlock):
        raise NotCovered("a match, outside of `structures.py`")
    holds = constant_truth(item.condition, frame)
    return parts(item) if holds is None else [item.then if holds else item.otherwise]


# ---- element types -----------------------------------------------------------------------------


def _types(frame: Frame) -> None:
    found: dict[str, list[str | None]] = {}
    for item, loops in statements(frame.definition.statements, frame):
        if isinstance(item, Assignment):
            found.setdefault(item.target, []).append(kind_of(item.value, frame, loops))
            continue
        inner = invoked(item, frame, loops)
        for number, target in enumerate(item.targets):
            results = None if inner is None else inner.kinds[inner.definition.results[number]]
            found.setdefault(target, []).append(results)
    for name, kinds in found.items():
        if name not in frame.parameters:
            kind = joined([*kinds, frame.wider.get(name)])
            frame.kinds[name] = kind if name in frame.adapting else settled(kind)


def invoked(
    item: Invoke, frame: Frame, loops: frozenset[str], values: Mapping[str, int] | None = None
) -> Frame | None:
    """The frame of a call of another definition; None while its arguments are unknown."""
    try:
        callee = frame.definition.callee(item.call.name)
    except KeyError:
        raise NotCovered(f"'{item.call.name}' is an operator of the library") from None
    given = []
    for term, parameter in zip(item.call.arguments, callee.parameters):
        tensor = isinstance(term, Name) and term.name in frame.kinds and term.name not in loops
        shape = frame.shapes.get(getattr(term, "name", ""), [None]) if tensor else []
        kind = settled(kind_of(term, frame, loops))
        if not tensor:
            kind = TYPE_NAMES.get(parameter.type, kind or "")
        if not kind or None in shape:
            return None
        given.append((kind, tuple(size or 0 for size in shape)))
    attributes = {each.name: setting(each.value, frame, values) for each in item.call.settings}
    return surveyed(framed(callee, given, attributes))


def setting(term: Term, frame: Frame, values: Mapping[str, int] | None) -> Any:
    """The value of an attribute in a call."""
    if isinstance(term, Name):
        if term.name in frame.types or term.name in TYPE_NAMES:
            return frame.dtype(term.name)
        if term.name in frame.constants:
            return frame.constants[term.name]
    value = getattr(term, "value", None)
    if isinstance(value, (int, float)):
        return value
    negated = getattr(term, "function", "") == "neg"
    if negated and isinstance(getattr(term.arguments[0], "value", None), float):  # type: ignore[union-attr]
        return -term.arguments[0].value  # type: ignore[union-attr]
    try:
        return whole_number(term, frame, values or {})
    except (Open, ByData):
        raise NotCovered("an attribute whose value is known only at run time") from None


# ---- shapes ------------------------------------------------------------------------------------


@dataclass
class _Covers:
    """Ends of the written range along each axis of a tensor; `open` where not known.

    `later` are tensors written by loops with unknown ends.
    """

    known: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    open: set[tuple[str, int]] = field(default_factory=set)
    later: set[str] = field(default_factory=set)


def _shapes(frame: Frame, corrected: set[tuple[str, int]]) -> None:
    covers = _Covers()
    _block(frame.definition.statements, frame, {}, covers)
    settling = [key for key in covers.known if _unknown(frame, *key)]
    closed = [key for key in settling if key not in covers.open and key[0] not in covers.later]
    corrected.update(() if closed else settling)
    for name, axis in {*closed, *(corrected & covers.known.keys())}:
        frame.shapes[name][axis] = max(0, *covers.known[name, axis])


def _unknown(frame: Frame, name: str, axis: int) -> bool:
    return name not in frame.parameters and frame.shapes[name][axis] is None


def _block(block: Sequence[Item], frame: Frame, loops: Loops, covers: _Covers) -> None:
    for item in block:
        if isinstance(item, Assignment):
            _assignment(item, frame, loops, covers)
        elif isinstance(item, Invoke):
            _invoke(item, frame, loops)
        elif isinstance(item, LoopBlock):
            try:
                values = _iterations(item, frame, loops)
            except Open:
                written = (each for each, _ in statements(item.body, frame))
                covers.later |= {e.target for e in written if isinstance(e, Assignment)}
                continue
            for value in values:
                _block(item.body, frame, {**loops, item.variable: value}, covers)
        else:
            for inner in branches(item, frame):
                _block(inner, frame, loops, covers)


def _iterations(loop: LoopBlock, frame: Frame, loops: Loops) -> Sequence[int | None]:
    """Values of a loop variable; of a loop without iterations, the last value before its start."""
    try:
        start, stop, step = (
            whole_number(end, frame, loops) for end in (loop.start, loop.stop, loop.step)
        )
    except (ByData, NotCovered):
        return [None]
    values = range(start, stop, step)
    if not values:
        return [stop - 1 if step > 0 else start]
    half = _MAX_ITERATIONS // 2
    return [*values] if len(values) <= _MAX_ITERATIONS else [*values[:half], *values[-half:]]


def _invoke(item: Invoke, frame: Frame, loops: Loops) -> None:
    known = {name: value for name, value in loops.items() if value is not None}
    inner = invoked(item, frame, frozenset(loops), known)
    if inner is not None:
        for target, result in zip(item.targets, inner.definition.results):
            if target not in frame.parameters:
                frame.shapes[target] = list(inner.shapes[result])


def _assignment(item: Assignment, frame: Frame, loops: Loops, covers: _Covers) -> None:
    target = item.target
    axes: list[Term | str] = []
    for term in item.indices:
        axes += frame.indices(term.name) if isinstance(term, Spread) else [term]
    if target not in frame.shapes:
        frame.shapes[target] = [None] * len(axes)
    definer = frame.definers.get(target)
    if target in frame.parameters or not (
        item is definer or (definer is None and not accumulates(item))
    ):
        return
    found = ranges_of(item, frame, loops)
    for axis, position in enumerate(axes):
        key = target, axis
        try:
            top = _top(position, item, frame, loops, found.extents, found.lows, item is definer)
        except (Open, KeyError):
            covers.open.add(key)
        except ByData:
            continue
        else:
            if top is not None:
                covers.known.setdefault(key, []).append(top)
            if not isinstance(position, str) and found.pending & {
                *indices_in(position, frame, loops)
            }:
                covers.open.add(key)


def _top(
    term: Term | str, item: Assignment, frame: Frame, loops: Loops, extents: Mapping[str, int],
    lows: Mapping[str, int], based: bool,
) -> int | None:  # fmt: skip
    """End of the written range of an axis; None if data-dependent."""
    if isinstance(term, str):
        return extents[term]
    for clause in item.where:
        if isinstance(clause, Exists) and clause.tensor != item.target:
            for position, size in positions(clause, frame):
                if position == term:
                    if size is None:
                        raise Open
                    return size
    if based and isinstance(term, Name):
        return extents[term.name]
    form = linear(term, frame, loops)
    names = indices_in(term, frame, loops)
    if form is not None:
        return span_of(from_zero(form, lows), extents)[1] + 1
    found = []
    for point in product(*(range(extents[name]) for name in names)):
        at = {n: v + lows.get(n, 0) for n, v in zip(names, point)}
        found.append(whole_number(term, frame, {**loops, **at}) + 1)
    return max(found, default=0)
