"""One assignment in one iteration: computes all values, then writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.lang.surface.syntax import Assignment, Name, Spread, Term
from tests.interpreter import numbers
from tests.interpreter.kinds import NotCovered
from tests.interpreter.ranges import Ranges, ends_of, indices_in, linear
from tests.interpreter.terms import Env, Evaluated, Stored, Terms


@dataclass
class Statement:
    """One assignment in one iteration."""

    terms: Terms
    item: Assignment
    loops: Mapping[str, int]
    ranges: Ranges

    def run(self) -> None:
        """Compute all values from the current tensors, then write them."""
        item, frame = self.item, self.terms.frame
        target = self.terms.stored[item.target]
        names = (name for term in item.indices for name in indices_in(term, frame, self.loops))
        left_indices = list(dict.fromkeys(names))
        scatter = item.initial and not self._one_to_one(left_indices)
        made = list(self._updates(left_indices, target, scatter))
        if scatter:
            for at in self._filled(target):
                target.data[at] = numbers.IDENTITY[item.combine](target.kind)
        adds = bool(item.combine) and (scatter or not item.initial)
        combine = numbers.function_of(item.combine, target.kind) if adds else None
        for at, value in made:
            if combine is not None and target.data[at] is None:
                raise NotCovered(f"'{item.target}' is combined before it is written")
            target.data[at] = value if combine is None else combine(target.data[at], value)

    def _updates(
        self, left_indices: Sequence[str], target: Stored, scatter: bool
    ) -> Iterator[tuple[int, Any]]:
        """Yield (offset, value); with `scatter`, each term of a reduction by itself."""
        item, positions, masks = self.item, self._positions(), self._masks()
        value = self.terms.number(item.value, target.kind)
        right = [
            name for name in self.ranges.extents if name not in left_indices and self._used(name)
        ]
        start = numbers.IDENTITY[item.combine](target.kind) if item.combine else None
        first = (item.target, item.position) in self.terms.frame.firsts
        outside = 0 if first and self._whole(left_indices) and not item.combine else start
        combine = numbers.function_of(item.combine or "add", target.kind)
        for env in self._points(left_indices, dict(self.loops)):
            if right and not scatter:
                total = start
                for inner in self._points(right, env):
                    if all(mask(inner) for mask in masks):
                        total = combine(total, value(inner))
                yield self._at(positions, env), total
                continue
            for inner in self._points(right, env):
                if all(mask(inner) for mask in masks):
                    yield self._at(positions, inner), value(inner)
                elif outside is not None and not scatter:
                    yield self._at(positions, inner), outside

    def _used(self, name: str) -> bool:
        """Whether an index with a range appears in this statement."""
        terms = [self.item.value, *(end for clause in self.item.where for end in ends_of(clause))]
        frame = self.terms.frame
        inside = any(name in indices_in(term, frame, self.loops) for term in terms)
        return inside or any(getattr(clause, "index", "") == name for clause in self.item.where)

    def _points(self, names: Sequence[str], outer: Env) -> Iterator[Env]:
        """Yield the values of indices in row-major order, in one environment that is updated."""
        lows = [self.ranges.lows.get(name, 0) for name in names]
        spans = [range(low, low + self.ranges.extents[name]) for name, low in zip(names, lows)]
        env = dict(outer)
        for point in product(*spans):
            env.update(zip(names, point))
            yield env

    def _positions(self) -> list[tuple[Evaluated, int, int]]:
        """Functions of the position along each axis of the target, with its size and stride."""
        item, frame = self.item, self.terms.frame
        based = item is frame.definers.get(item.target)
        made: list[Evaluated] = []
        for term in item.indices:
            if isinstance(term, Spread):
                made += [_indexed(name, 0) for name in frame.indices(term.name)]
            elif based and isinstance(term, Name):
                made.append(_indexed(term.name, self.ranges.lows.get(term.name, 0)))
            else:
                made.append(self.terms.position(term))
        target = self.terms.stored[item.target]
        return list(zip(made, target.shape, target.strides))

    def _at(self, positions: Sequence[tuple[Evaluated, int, int]], env: Env) -> int:
        at = 0
        for position, size, stride in positions:
            index = position(env)
            if not 0 <= index < size:
                raise InputError(f"index {index} is outside 0..{size - 1} of '{self.item.target}'")
            at += index * stride
        return at

    def _masks(self) -> list[Evaluated]:
        """Conditions that an index is in a range that depends on others, or on data."""
        made: list[Evaluated] = []
        for clause in self.ranges.masks:
            low, high = map(self.terms.position, ends_of(clause))
            limit = self.ranges.extents[clause.index]
            ragged = [self._reads(end) for end in ends_of(clause)]
            made.append(_within(clause.index, low, high, limit, ragged))
        return made

    def _reads(self, term: Term) -> bool:
        return linear(term, self.terms.frame, self.loops) is None and self.terms.by_data(term)

    def _whole(self, left_indices: Sequence[str]) -> bool:
        """Whether the positions cover all of the target, each by an index of its own."""
        item, frame = self.item, self.terms.frame
        names: list[str] = []
        for term in item.indices:
            if isinstance(term, Spread):
                names += frame.indices(term.name)
            elif isinstance(term, Name) and term.name in left_indices:
                names.append(term.name)
            else:
                return False
        if len(set(names)) < len(names) or set(names) < set(left_indices):
            return False
        based = item is frame.definers.get(item.target)
        if not based and any(self.ranges.lows.get(name, 0) for name in names):
            return False
        shape = self.terms.stored[item.target].shape
        return all(self.ranges.extents[name] == size for name, size in zip(names, shape))

    def _one_to_one(self, left_indices: Sequence[str]) -> bool:
        """Whether different values of the indices on the left are different elements."""
        frame, found = self.terms.frame, set()
        for term in self.item.indices:
            if isinstance(term, Spread):
                found.update(frame.indices(term.name))
                continue
            form = linear(term, frame, self.loops) or {}
            names = [name for name, factor in form.items() if name and factor]
            found.update(names if len(names) == 1 else [])
        return found >= set(left_indices) and not any(
            self.terms.by_data(t) for t in self.item.indices
            if not isinstance(t, Spread)
        )  # fmt: skip

    def _filled(self, target: Stored) -> Iterator[int]:
        """Offsets of all elements that a write at data-dependent positions may reach."""
        spans: list[Any] = []
        for term in self.item.indices:
            form = None if isinstance(term, Spread) else linear(term, self.terms.frame, self.loops)
            if isinstance(term, Spread):
                spans += [None] * len(self.terms.frame.indices(term.name))
            else:
                fixed = form is not None and not any(f for name, f in form.items() if name)
                spans.append([form[""]] if fixed and form is not None else None)
        axes = [span or range(size) for span, size in zip(spans, target.shape)]
        for point in product(*axes):
            yield sum(index * stride for index, stride in zip(point, target.strides))


def _indexed(name: str, low: int) -> Evaluated:
    return lambda env: env[name] - low


def _within(
    name: str, low: Evaluated, high: Evaluated, limit: int, ragged: Sequence[bool]
) -> Evaluated:
    def inside(env: Env) -> bool:
        ends = low(env), high(env)
        for end, by_data in zip(ends, ragged):
            if by_data and not 0 <= end <= limit:
                raise InputError(f"index {end} is outside 0..{limit} of the range of '{name}'")
        return bool(ends[0] <= env[name] < ends[1])

    return inside
