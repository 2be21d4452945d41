"""Steps in numpy: loops and branches in Python, each statement over all its axes at once."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Protocol

import numpy

from anydim.base.records import dataclass
from anydim.lang.functions import FUNCTIONS
from anydim.lang.meaning.gather import outside_error
from anydim.lang.tree import Branch, Expr, Loop, OrderedStep, Statement, TensorType, Write

Array = numpy.ndarray[Any, Any]
Sizes = Mapping[str, int]


class Compute(Protocol):
    """Computes the whole target of a statement; `tensor`: the tensor that the values index."""

    def __call__(self, statement: Statement, sizes: Sizes, tensor: str = "") -> Array:
        """Return the values."""


@dataclass
class StepRunner:
    """Runs steps on `values`, which holds every tensor."""

    types: Mapping[str, TensorType]
    values: MutableMapping[str, Array]
    compute: Compute

    def run(self, steps: Sequence[OrderedStep], sizes: Sizes) -> None:
        """Run steps in order."""
        for step in steps:
            if isinstance(step, (Statement, Write)):
                self.assign(step, sizes)
            elif isinstance(step, Branch):
                holds = bool(self._scalar(step.condition, sizes))
                self.run(step.then if holds else step.otherwise, sizes)
            else:
                self._loop(step, sizes)

    def assign(self, step: Statement | Write, sizes: Sizes) -> None:
        """Run one statement."""
        if isinstance(step, Statement):
            self.values[step.target] = self.compute(step, sizes)
        else:
            self._write(step, sizes)

    def _loop(self, loop: Loop, sizes: Sizes) -> None:
        start, stop = (int(self._scalar(end, sizes)) for end in (loop.start, loop.stop))
        for iteration in range(start, stop, loop.step):
            self.run(loop.body, {**sizes, loop.variable: iteration})

    def _scalar(self, expr: Expr, sizes: Sizes) -> Any:
        return self.compute(Statement("", (), expr), sizes)[()]

    def _write(self, step: Write, sizes: Sizes) -> None:
        target = self.values[step.target]
        positions = tuple(self.position(step, axis, sizes) for axis in range(target.ndim))
        combine = step.combine if step.reduced else ""
        whole = Statement(step.target, step.axes, step.body, combine, step.reduced)
        body = self.compute(whole, sizes)
        body = body.astype(target.dtype, copy=False)
        if not step.combine or step.fresh:
            target[positions] = body  # for repeated indices, numpy keeps the last value
        elif not positions:
            target[...] = FUNCTIONS[step.combine].numpy(target, body)
        else:
            ufunc: Any = FUNCTIONS[step.combine].numpy
            ufunc.at(target, positions, body)

    def position(self, step: Write, axis: int, sizes: Sizes) -> Array:
        """Index of each element along one dimension; raises InputError if out of bounds."""
        index = Statement(step.target, step.axes, step.indices[axis])
        found = self.compute(index, sizes, step.target)
        length = self.values[step.target].shape[axis]
        wrong = (found < 0) | (found >= length)
        if wrong.any():
            where = int(found[wrong].flat[0])
            raise outside_error(step.target, where, self.values[step.target].shape, "written")
        return found
