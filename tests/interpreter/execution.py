"""Runs the statements of a definition: loops and branches in order, each element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

import numpy

from anydim.base.records import dataclass
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Term,
)
from tests.interpreter import numbers
from tests.interpreter.frame import Frame
from tests.interpreter.kinds import NotCovered
from tests.interpreter.ranges import linear, ranges_of
from tests.interpreter.statement import Statement
from tests.interpreter.survey import branches, invoked
from tests.interpreter.terms import Stored, Terms

Array = numpy.ndarray[Any, Any]
Loops = dict[str, int]
_MAX_UPDATES = 50_000_000  # per call


def executed(frame: Frame, given: Mapping[str, Stored]) -> dict[str, Stored]:
    """Run the statements of a definition without matches; returns all its tensors.

    `given` are the parameters of a frame that is surveyed.
    """
    stored = dict(given)
    _Run.of(frame, stored).block(frame.definition.statements, {})
    return stored


@dataclass
class _Run:
    """State of a run; `compiled` caches compiled statements by statement and loop variables."""

    frame: Frame
    stored: dict[str, Stored]
    compiled: dict[Any, Any] = field(default_factory=dict)
    updates: int = 0

    @staticmethod
    def of(frame: Frame, stored: dict[str, Stored]) -> _Run:
        """A run with storage for all tensors that are written."""
        for name in frame.definers:
            if name not in stored:
                shape = tuple(size or 0 for size in frame.shapes[name])
                stored[name] = Stored(frame.kinds[name] or "", shape, [None] * prod(shape))
        return _Run(frame, stored)

    def block(self, block: Sequence[Item], loops: Loops) -> None:
        for item in block:
            if isinstance(item, Assignment):
                self._assign(item, loops)
            elif isinstance(item, Invoke):
                self._invoke(item, loops)
            elif isinstance(item, LoopBlock):
                self._loop(item, loops)
            else:
                sides = branches(item, self.frame)
                if isinstance(item, BranchBlock) and len(sides) > 1:
                    holds = self._terms(loops).truth(item.condition)(dict(loops))
                    sides = [item.then if holds else item.otherwise]
                self.block(sides[0], loops)

    def _terms(self, loops: Loops, masked: bool = False) -> Terms:
        key = frozenset(loops), masked
        if key not in self.compiled:
            self.compiled[key] = Terms(self.frame, self.stored, key[0], masked)
        made: Terms = self.compiled[key]
        return made

    def _loop(self, loop: LoopBlock, loops: Loops) -> None:
        terms, env = self._terms(loops), dict(loops)
        start, stop, step = (
            int(terms.position(end)(env)) for end in (loop.start, loop.stop, loop.step)
        )
        if step > 0 and start < 0 and self._by_data(loop.start, loops):
            start %= step
        if step < 0 and self._by_data(loop.stop, loops):
            stop = max(stop, -1)
        for value in range(start, stop, step):
            self.block(loop.body, {**loops, loop.variable: value})

    def _by_data(self, term: Term, loops: Loops) -> bool:
        return linear(term, self.frame, loops) is None

    # ---- calls ---------------------------------------------------------------------------------

    def _invoke(self, item: Invoke, loops: Loops) -> None:
        inner = invoked(item, self.frame, frozenset(loops), loops)
        assert inner is not None
        callee, terms = inner.definition, self._terms(loops)
        stored = {}
        for term, parameter in zip(item.call.arguments, callee.parameters):
            kind = inner.kinds[parameter.name] or ""
            if isinstance(term, Name) and term.name in self.stored and term.name not in loops:
                held = self.stored[term.name]
                stored[parameter.name] = Stored(kind, held.shape, list(held.data))
            else:
                stored[parameter.name] = Stored(kind, (), [terms.number(term, kind)(dict(loops))])
        _Run.of(inner, stored).block(callee.statements, {})
        for target, result in zip(item.targets, callee.results):
            made, held = stored[result], self.stored[target]
            if made.shape != held.shape:
                raise NotCovered(f"'{target}' changes its shape between iterations")
            convert = numbers.conversion(made.kind, held.kind)
            held.data[:] = [convert(value) for value in made.data]

    # ---- assignments ---------------------------------------------------------------------------

    def _assign(self, item: Assignment, loops: Loops) -> None:
        found = ranges_of(item, self.frame, loops)
        if found.missing:
            raise NotCovered(f"the range of '{found.missing[0]}' cannot be inferred")
        terms = self._terms(loops, bool(found.masks))
        updates = prod(found.extents.values())
        self.updates += updates
        if self.updates > _MAX_UPDATES:
            raise NotCovered("a call of this size")
        Statement(terms, item, loops, found).run()
