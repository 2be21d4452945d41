"""Graphs written in Python.

    g = Builder("scorer")
    n = g.dim("n", 0, 128)
    x = g.input("x", float32, (n, 4))
    w = g.constant(numpy.ones((4, 8), numpy.float32))
    g.output("y", g.softmax(g.matmul(x, w) * 0.5))
    graph = g.graph()

Every operator of the library is a method: `g.reduce_mean(x, axes=(1,), keepdims=True)`. Python's
operators and numpy's functions apply to values, with numpy's types: `numpy.where(x == 0, 1, x)`.
Types and sizes are checked as nodes are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydim.base.dtypes import float32, int64
from anydim.base.errors import GraphError, UserError
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.base.keywords import public
from anydim.base.reports import report_unexpected
from anydim.base.user_values import text_of
from anydim.compiler.frontends import data_sized
from anydim.compiler.frontends.definition import call_definition
from anydim.compiler.frontends.graph_builder import GraphBuilder, Operand, Value
from anydim.compiler.frontends.nesting import BuilderNode, branch, loop, size_of
from anydim.lang.surface.sequences import is_sequence
from anydim.lang.surface.syntax import Definition
from anydim.sizes import Guard, Size

if TYPE_CHECKING:
    from anydim.compiler.frontends.structures.building import StructureValue

__all__ = ["Builder", "Operand", "Value"]


@report_unexpected
@public
class Builder(GraphBuilder):
    """Builds a graph, with control flow and data-dependent sizes; `graph()` returns it."""

    def call(self, function: Any, *inputs: Operand, **attributes: Any) -> Any:
        """Call a definition: `g.call(lib.f, a, b, alpha=2.0)`, or `lib.f(a, b)`.

        Args:
            function: A function of `define`, or a parsed definition.
            *inputs: Its arguments.
            **attributes: Its attributes.

        Returns:
            Its result, or a tuple of results.

        Raises:
            GraphError: An argument does not fit the definition.
        """
        definition = getattr(function, "definition", function)
        if not isinstance(definition, Definition):
            raise GraphError(f"g.call takes a definition, not {type(function).__name__}")
        if definition.types:
            return self._over_structures(definition, inputs, attributes)
        if is_sequence(definition):
            sequence = import_module("anydim.compiler.frontends.recursion.sequence")
            return self._in_order(sequence, definition, inputs, attributes)
        values = self._values(definition.name, inputs)
        frozen = FrozenMapping({key: freeze_value(value) for key, value in attributes.items()})
        source = self._source(definition.name)
        try:
            node, group = call_definition(
                definition, [v.name for v in values], [v.type for v in values], frozen, self._box,
                lambda name, kind: self._declared(f"{definition.name}.{name}", kind), source,
            )  # fmt: skip
        except UserError as error:
            raise GraphError(f"'{self.name}': {error.problem}", error.hint) from None
        self._nodes.append(replace(node, device=self._device))
        self._guards += [guard for guard in group.guards if guard not in self._guards]
        made = tuple(Value(self, output) for output in node.outputs)
        return made[0] if len(made) == 1 else made

    def _in_order(
        self, sequence: Any, definition: Definition, inputs: Sequence[Operand],
        attributes: dict[str, Any],
    ) -> Any:  # fmt: skip
        """Call a definition that is several nodes."""
        try:
            names = sequence.emit_call_in_order(self, definition, inputs, attributes)
        except UserError as error:
            raise GraphError(f"'{self.name}': {error.problem}", error.hint) from None
        made = tuple(Value(self, name) for name in names)
        return made[0] if len(made) == 1 else made

    def structure(
        self, name: str, function: Any, parameter: str = "", **sizes: Size | int
    ) -> StructureValue:
        """Declare structures as an input: `t = g.structure("t", lib.tree_lstm, D=300)`.

        Args:
            name: Name of the input. A call takes nested tuples, lists of them, or `ad.Structure`.
            function: A function of `define`, or a parsed definition, that takes such structures.
            parameter: The name of its parameter; empty: its first structure.
            **sizes: Sizes of the fields. The others are dims of their names.

        Returns:
            The structures, for `call`.

        Raises:
            GraphError: The definition has no such parameter, or the name is taken.
        """
        definition = getattr(function, "definition", function)
        if not isinstance(definition, Definition):
            raise GraphError(f"g.structure takes a definition, not {type(function).__name__}")
        building = import_module("anydim.compiler.frontends.structures.building")
        made: StructureValue = building.structure_input(self, name, definition, parameter, sizes)
        self._lists[name] = made.port
        return made

    def _over_structures(
        self, definition: Definition, inputs: Sequence[Any], attributes: dict[str, Any]
    ) -> Any:
        building = import_module("anydim.compiler.frontends.structures.building")
        try:
            made = building.emit_structure_call(self, definition, inputs, attributes)
        except UserError as error:
            raise GraphError(f"'{self.name}': {error.problem}", error.hint) from None
        return made[0] if len(made) == 1 else made

    # ---- data-dependent sizes ----

    def find(
        self, value: Value, name: str, lo: int = 0, hi: int | None = None,
        most: Size | int | None = None,
    ) -> Size:  # fmt: skip
        """Make the element of an int64 value a dim; the size is known when the value is
        computed.

        Args:
            value: One element, int64.
            name: Name of the new dim.
            lo: Lower bound.
            hi: Upper bound; None: none.
            most: Largest size, which may depend on other dims.

        Returns:
            The dim as a size expression. A call with an element out of these bounds raises
            InputError.

        Raises:
            GraphError: The dim is already declared.
        """
        name = text_of("the name of a dim", name)
        if name in self._reserved:
            raise GraphError(f"dim '{name}' is declared already")
        made = BuilderNode(self, "", "find")
        dim = made.dim(name, lo, hi)
        if most is not None:
            made.constrain(size_of(self, most) - dim)
        made.find(self.reshape(value, shape=(1,)).name, (dim,))
        return dim

    def nonzero(self, x: Value) -> Value:
        """The indices of the nonzero elements: int64 [axes, count], in row-major order."""
        return Value(self, data_sized.nonzero(BuilderNode(self, "nonzero"), self._own(x).name))

    def compress(self, x: Value, condition: Value, axis: int | None = None) -> Value:
        """The slices along an axis where `condition` holds; without an axis, the elements.

        Args:
            x: Any dtype and shape.
            condition: bool [n].
            axis: The axis; None: `x` is flattened.
        """
        names = self._own(x).name, self._own(condition).name
        return Value(self, data_sized.compress(BuilderNode(self, "compress"), *names, axis))

    def unique(self, x: Value, axis: int | None = None, sorted: bool = True) -> tuple[Value, ...]:
        """The distinct elements of `x`, or its distinct slices along an axis.

        Args:
            x: Any dtype and shape.
            axis: The axis; None: `x` is flattened.
            sorted: Sort the result; otherwise in order of first occurrence.

        Returns:
            Distinct elements or slices, index of the first occurrence of each, index of each input
            in the result, and counts; the last three are int64 vectors.
        """
        made = data_sized.unique(BuilderNode(self, "unique"), self._own(x).name, axis, sorted)
        return tuple(Value(self, name) for name in made)

    def non_max_suppression(
        self, boxes: Value, scores: Value, most: Operand, overlap: Operand,
        least: Operand | None = None, center: bool = False,
    ) -> Value:  # fmt: skip
        """Rows (batch, class, box) of the boxes that overlap no better box of their class.

        Args:
            boxes: float32 [batch, n, 4].
            scores: float32 [batch, classes, n].
            most: Most boxes of a class, int64.
            overlap: Largest overlap with a better box, as intersection over union.
            least: Scores must be above it. None: no limit.
            center: Boxes are (center x, center y, width, height) instead of two corners.

        Returns:
            int64 [count, 3].
        """
        given = [self._own(boxes), self._own(scores), self._one(most, int64)]
        given += [self._one(value, float32) for value in (overlap, least) if value is not None]
        names = [value.name for value in given]
        node = BuilderNode(self, "non_max_suppression")
        return Value(self, data_sized.non_max_suppression(node, *names, center=center))

    # ---- control flow ----

    def branch(
        self, condition: Value | Guard, then: Callable[[Builder], Any],
        otherwise: Callable[[Builder], Any],
    ) -> Any:  # fmt: skip
        """Compute one of two branches.

        Args:
            condition: A bool scalar, or a relation between sizes.
            then: Called with the builder of its branch; returns its values.
            otherwise: As `then`. Both may use values from outside.

        Returns:
            The values of the branch. Sizes that differ between the branches become dims.
        """
        return self._made(branch(self, condition, then, otherwise))

    def loop(
        self, body: Callable[..., Any], *carried: Value, trips: Size | int | None = None,
        condition: Value | None = None,
    ) -> Any:  # fmt: skip
        """Compute a loop.

        Args:
            body: Called as `body(b, t, *carried)` with the builder of its graph, the iteration as
                a size and the carried values; returns the next ones. `b.stack(value)` stacks a
                value, `b.proceed(condition)` sets the condition of the next iteration. It may be
                called several times until the sizes of carried values are known.
            *carried: Initial values.
            trips: Most iterations; None: no limit.
            condition: Condition of the first iteration, a bool scalar.

        Returns:
            The carried values after the last iteration, then the stacked results.
        """
        return self._made(loop(self, body, carried, trips, condition))

    def stack(self, value: Value) -> None:
        """In the body of a loop: stack a value of each iteration in a result."""
        self._stacks.append(self._own(value).name)

    def proceed(self, condition: Value) -> None:
        """In the body of a loop: the condition of the next iteration, a bool scalar."""
        self._going = self._own(condition).name

    def _made(self, names: Sequence[str]) -> Any:
        values = tuple(Value(self, name) for name in names)
        return values[0] if len(values) == 1 else values
