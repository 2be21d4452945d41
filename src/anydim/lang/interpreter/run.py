"""Runs a definition: loops and branches in order, each statement element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES, converted, from_numpy
from anydim.base.records import dataclass
from anydim.lang.interpreter import numbers
from anydim.lang.interpreter.frame import Frame, framed
from anydim.lang.interpreter.kinds import NotCovered
from anydim.lang.interpreter.ranges import linear, ranges_of
from anydim.lang.interpreter.statement import Statement
from anydim.lang.interpreter.survey import branches, invoked, surveyed
from anydim.lang.interpreter.terms import Stored, Terms
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Term,
)

Array = numpy.ndarray[Any, Any]
Loops = dict[str, int]
_MAX_UPDATES = 50_000_000  # per call


@dataclass(frozen=True)
class Result:
    """A result: its element type in the language, and its elements.

    Floats are float64, except for storage-only types.
    """

    kind: str
    values: Array


def run(
    definition: Definition, arrays: Sequence[Array], attributes: Mapping[str, Any] | None = None
) -> dict[str, Result]:
    """Run a definition and return its results by name.

    `attributes` gives values to attributes, and to "...p" the rank of an ellipsis. Raises
    InputError for sizes that do not fit and out-of-bounds positions, NotCovered for what this
    interpreter does not support.
    """
    given = [(from_numpy(array.dtype).name, array.shape) for array in arrays]
    frame = surveyed(framed(definition, given, attributes or {}))
    stored = {
        p.name: Stored(kind, array.shape, _elements(array))
        for p, (kind, _), array in zip(definition.parameters, given, arrays)
    }
    with numpy.errstate(all="ignore"):
        _Run.of(frame, stored).block(definition.statements, {})
    return {name: _result(name, stored[name]) for name in definition.results}


def _elements(array: Array) -> list[Any]:
    dtype = from_numpy(array.dtype)
    if dtype.is_float:
        return list(converted(array, numpy.dtype(numpy.float64)).ravel().tolist())
    if not dtype.is_native:
        array = array.astype(numpy.int64)
    return list(array.ravel().tolist())


def _result(name: str, stored: Stored) -> Result:
    dtype = DTYPES[stored.kind]
    if any(value is None for value in stored.data):
        raise NotCovered(f"an element of '{name}' is never written")
    wide = dtype.is_float and not dtype.stored
    held = numpy.array(stored.data, numpy.float64 if dtype.is_float else None)
    held = held.astype(numpy.int64) if held.size == 0 and not dtype.is_float else held
    values = held if wide else converted(held, dtype.numpy)
    return Result(stored.kind, values.reshape(stored.shape))


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
