"""Graphs written in Python.

    g = Builder("scorer")
    n = g.dim("n", 0, 128)
    x = g.input("x", float32, (n, 4))
    w = g.constant(numpy.ones((4, 8), numpy.float32))
    g.output("y", g.softmax(g.matmul(x, w) * 0.5))
    graph = g.graph()

Every operator of the library is a method: `g.reduce_mean(x, axes=(1,), keepdims=True)`. Python's
operators work on values. Types and sizes are checked as the graph grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anydim.base.dtypes import float32, int64
from anydim.base.errors import GraphError, UserError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.base.keywords import public
from anydim.base.reports import reported
from anydim.base.user_values import text_of
from anydim.frontends import data_sized
from anydim.frontends.definition import called
from anydim.frontends.graph_builder import Growing, Operand, Value
from anydim.frontends.nesting import Standing, branch, loop, size_of
from anydim.lang.surface.syntax import Definition
from anydim.sizes import Guard, Size

__all__ = ["Builder", "Operand", "Value"]


@reported
@public
class Builder(Growing):
    """Collects a graph, with control flow and sizes that data decides; `graph()` hands it over."""

    def call(self, function: Any, *inputs: Operand, **attributes: Any) -> Any:
        """The results of a definition: `g.call(lib.f, a, b, alpha=2.0)`, or `lib.f(a, b)`.

        `function` is one of `define`, or a parsed definition. Raises GraphError for values that do
        not fit it.
        """
        definition = getattr(function, "definition", function)
        if not isinstance(definition, Definition):
            raise GraphError(f"g.call takes a definition, not {type(function).__name__}")
        values = self._values(definition.name, inputs)
        frozen = FrozenMapping({key: freeze_value(value) for key, value in attributes.items()})
        source = f"{self.name}: {definition.name}"
        try:
            node, group = called(
                definition, [v.name for v in values], [v.type for v in values], frozen, self._box,
                lambda name, kind: self._declared(f"{definition.name}.{name}", kind), source,
            )  # fmt: skip
        except UserError as error:
            raise GraphError(f"'{self.name}': {error.problem}", error.hint) from None
        self._nodes.append(replace(node, device=self._device))
        self._guards += [guard for guard in group.guards if guard not in self._guards]
        made = tuple(Value(self, output) for output in node.outputs)
        return made[0] if len(made) == 1 else made

    # ---- sizes that data decides ----

    def find(
        self, value: Value, name: str, lo: int = 0, hi: int | None = None,
        most: Size | int | None = None,
    ) -> Size:  # fmt: skip
        """The one element of an int64 value as a new dim; a call where it is not from `lo` to
        `hi`, or is above `most`, is an InputError."""
        name = text_of("the name of a dim", name)
        if name in self._reserved:
            raise GraphError(f"dim '{name}' is declared already")
        made = Standing(self, "")
        dim = made.dim(name, lo, hi)
        if most is not None:
            made.constrain(size_of(self, most) - dim)
        made.find(self.reshape(value, shape=(1,)).name, (dim,))
        return dim

    def nonzero(self, x: Value) -> Value:
        """The indices [axes, count] of the elements that are not zero, in row-major order."""
        return Value(self, data_sized.nonzero(Standing(self, "nonzero"), self._own(x).name))

    def compress(self, x: Value, condition: Value, axis: int | None = None) -> Value:
        """The slices along an axis (elements, without one) where a bool vector holds."""
        names = self._own(x).name, self._own(condition).name
        return Value(self, data_sized.compress(Standing(self, "compress"), *names, axis))

    def unique(self, x: Value, axis: int | None = None, sorted: bool = True) -> tuple[Value, ...]:
        """(different elements or slices, first index, group of each index, counts)."""
        made = data_sized.unique(Standing(self, "unique"), self._own(x).name, axis, sorted)
        return tuple(Value(self, name) for name in made)

    def non_max_suppression(
        self, boxes: Value, scores: Value, most: Operand, overlap: Operand,
        least: Operand | None = None, center: bool = False,
    ) -> Value:  # fmt: skip
        """Rows (batch, class, box) of the boxes that overlap no better one of their class.

        boxes [batch, n, 4] and scores [batch, classes, n]; `most` boxes of a class at the most,
        whose overlap with a better one is not above `overlap` and whose score is above `least`:
        numbers or values of one element.
        """
        given = [self._own(boxes), self._own(scores), self._one(most, int64)]
        given += [self._one(value, float32) for value in (overlap, least) if value is not None]
        names = [value.name for value in given]
        standing = Standing(self, "non_max_suppression")
        return Value(self, data_sized.non_max_suppression(standing, *names, center=center))

    # ---- control flow ----

    def branch(
        self, condition: Value | Guard, then: Callable[[Builder], Any],
        otherwise: Callable[[Builder], Any],
    ) -> Any:  # fmt: skip
        """The values that one of two functions makes, each with the builder of its branch.

        The condition is a bool scalar, or a relation between sizes. Values from outside can be
        used in a branch; sizes that differ between the branches become dims.
        """
        return self._made(branch(self, condition, then, otherwise))

    def loop(
        self, body: Callable[..., Any], *carried: Value, trips: Size | int | None = None,
        condition: Value | None = None,
    ) -> Any:  # fmt: skip
        """The carried values after the last iteration, then the stacked results.

        `body(b, t, *carried)` gets the builder of its graph, the number of the iteration as a size
        and the carried values; it returns the next ones. `b.stack(value)` keeps a slice of a
        stacked result, `b.proceed(condition)` says whether there is a next iteration. `trips` is
        the most iterations, `condition` decides about the first. The body may be called several
        times while the sizes of the carried values are found.
        """
        return self._made(loop(self, body, carried, trips, condition))

    def stack(self, value: Value) -> None:
        """In the body of a loop: keep a value of every iteration as a slice of a result."""
        self._stacks.append(self._own(value).name)

    def proceed(self, condition: Value) -> None:
        """In the body of a loop: whether there is a next iteration."""
        self._going = self._own(condition).name

    def _made(self, names: Sequence[str]) -> Any:
        values = tuple(Value(self, name) for name in names)
        return values[0] if len(values) == 1 else values
