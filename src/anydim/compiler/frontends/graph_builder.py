"""A graph under construction: values, constants and nodes, with types and sizes checked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy
from numpy.typing import DTypeLike

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import DType, boolean, dtype_of
from anydim.base.errors import GraphError, UserError
from anydim.base.frozen import FrozenMapping
from anydim.base.keywords import public
from anydim.base.reports import report_unexpected
from anydim.base.user_values import short_repr, text_of
from anydim.compiler.frontends.familiar_names import suggest_operator
from anydim.compiler.frontends.promotion import number
from anydim.compiler.frontends.values import Operand, Value
from anydim.compiler.graph.derivations import Weight
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.graph.operator import OPERATORS, operator
from anydim.lang.tree import TensorType
from anydim.runtime.devices.device import HOSTS
from anydim.sizes import Box, Dim, Guard, Size, as_size, divisor_guard, product

DIVISIONS = ("div", "floor_div", "mod", "fmod")


@report_unexpected
@public
class GraphBuilder:
    """Builds a graph; `graph()` returns it."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._box = Box()
        self._reserved: set[str] = set()  # names of the dims of all graphs
        self._types: dict[str, TensorType] = {}
        self._inputs: list[str] = []
        self._outputs: dict[str, str] = {}
        self._constants: dict[str, Constant] = {}
        self._nodes: list[Node] = []
        self._guards: list[Guard] = []
        self._lists: dict[str, Any] = {}  # inputs and outputs that users see as structures
        self._sizes_in: dict[str, tuple[Size, ...]] = {}  # by name, of values that hold sizes
        self._parent: GraphBuilder | None = None  # of the enclosing graph of a branch or body
        self._captured: dict[str, str] = {}  # outer value -> own input
        self._stacks: list[str] = []
        self._going: str | None = None
        self._device = ""  # of new nodes
        self._label = ""  # in the names of new nodes and their results

    def dim(self, name: str, lo: int = 0, hi: int | None = None) -> Size:
        """Declare a dim.

        Args:
            name: Its name; a second declaration must have the same bounds.
            lo: Lower bound.
            hi: Upper bound; None: none.

        Returns:
            The dim as a size expression.
        """
        dim = Dim(name, lo, hi)
        name = dim.name
        if name not in self._box.names:
            self._box = self._box.also(dim)
            self._reserved.add(name)
        elif self._box.dim(name) != dim:
            raise GraphError(f"dim '{name}' is declared as {self._box.dim(name)} and as {dim}")
        return dim.size

    def input(
        self, name: str, dtype: DType | DTypeLike,
        shape: Sequence[Size | int | str],
    ) -> Value:  # fmt: skip
        """Declare an input of the graph.

        Args:
            name: Its name.
            dtype: Element type, by value (`ad.float32`), by name, or as numpy's.
            shape: Sizes: numbers, size expressions, or names of dims; an undeclared name becomes a
                dim without upper bound.
        """
        try:
            dtype = dtype_of(dtype)
        except UserError as error:
            raise GraphError(f"input {short_repr(name)}: {error.problem}", error.hint) from None
        sizes = self._shape(name, shape)
        for size in sizes:
            for symbol in sorted(size.symbols - set(self._box.names)):
                raise GraphError(
                    f"input '{name}': '{symbol}' is not a dim of '{self.name}'",
                    f"declare it: g.dim('{symbol}', 0, 128)",
                )
        self._claim(name)
        self._types[name] = TensorType(dtype, sizes)
        self._inputs.append(name)
        return Value(self, name)

    def _shape(self, name: str, shape: Any) -> tuple[Size, ...]:
        try:
            if isinstance(shape, str):
                raise TypeError
            return tuple(self._size(size) for size in shape)
        except UserError:
            raise
        except Exception:  # an arbitrary object may raise anything
            hint = "give sizes: g.input('x', ad.float32, ('n', 4))"
            raise GraphError(
                f"input {short_repr(name)}: {short_repr(shape)} is no shape", hint
            ) from None

    def _size(self, size: Any) -> Size:
        if not isinstance(size, str):
            return as_size(size)
        return self._box.dim(size).size if size in self._box.names else self.dim(size)

    def constant(self, array: Any, name: str = "") -> Value:
        """A constant of the graph.

        Args:
            array: A numpy array, or a value that numpy converts.
            name: Its name; empty: a generated one. Those with a name are weights, which
                `Model.load_weights` replaces.
        """
        try:
            held = array if isinstance(array, Constant) else Constant(numpy.asarray(array))
            if isinstance(name, str) and name:
                held.origin = Weight(0, name, held.elements)
        except UserError:
            raise
        except Exception as error:  # an arbitrary object may raise anything
            raise GraphError(f"{short_repr(array)} is no constant: {short_repr(error)}") from None
        name = self._fresh("constant") if isinstance(name, str) and not name else name
        self._claim(name)
        self._types[name] = held.type
        self._constants[name] = held
        return Value(self, name)

    def output(self, name: str, value: Value) -> None:
        """Declare an output of the graph.

        Args:
            name: Its name.
            value: A value of this builder, or structures that a definition makes.
        """
        if text_of("the name of an output", name) in (*self._outputs, *self._lists):
            raise GraphError(f"output '{name}' is declared twice")
        port = getattr(value, "port", None)
        if port is not None and getattr(value, "builder", None) is self:
            self._lists[name] = port
            self._outputs.update({each: each for each in (port.roots, *port.hidden)})
            return
        self._outputs[name] = self._own(value).name

    def graph(self) -> Graph:
        """The graph as built so far, without nodes that no output uses."""
        if not self._outputs:
            raise GraphError(f"'{self.name}' has no outputs", "declare one: g.output('y', value)")
        nodes, types = list(self._nodes), dict(self._types)
        for name, value in self._outputs.items():
            if name == value:
                continue
            if name in types:
                raise GraphError(f"output '{name}' has the name of another value")
            types[name] = types[value]
            nodes.append(Node("identity", (value,), (name,), FrozenMapping(), f"output {name}"))
        return Graph(
            self.name, self._box, FrozenMapping(types), tuple(self._inputs), tuple(self._outputs),
            FrozenMapping(self._constants), tuple(nodes), tuple(self._guards),
            FrozenMapping(self._lists),
        ).pruned()  # fmt: skip

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in OPERATORS:
            hint = suggest_operator(name)
            raise AttributeError(f"there is no operator '{name}'" + (f"; {hint}" if hint else ""))

        def call(*inputs: Operand | Sequence[Operand], **attributes: Any) -> Any:
            return self._apply(name, _spread(inputs), attributes)

        call.__name__ = name
        call.__doc__ = OPERATORS[name].doc
        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *OPERATORS})

    def _check_divisor(self, divisor: str, result: TensorType, source: str) -> None:
        """Add a guard that rejects integer division by a size of 0."""
        sizes = self._sizes_of(divisor) if result.dtype.is_integer else ()
        for size in dict.fromkeys(sizes):
            guard = divisor_guard(size, product(result.shape), self._box, source)
            if guard is not None:
                self._need(guard)

    def _sizes_of(self, name: str) -> tuple[Size, ...]:
        """The sizes that a value of this graph, or of an enclosing one, holds."""
        outer = {own: value for value, own in self._captured.items()}
        if self._parent is not None and name in outer:
            return self._parent._sizes_of(outer[name])
        return self._sizes_in.get(name, ())

    def _need(self, guard: Guard) -> None:
        """Add a guard that every call checks."""
        if guard not in self._guards:
            self._guards.append(guard)

    # ---- nodes ----

    @contextmanager
    def on(self, device: str) -> Iterator[None]:
        """Place new nodes on a device: `with g.on("accel"): y = g.matmul(x, w)`.

        Nodes with subgraphs and nodes that determine sizes stay on the host; nodes in branches and
        bodies that are built within start on the device.

        Args:
            device: A name of the program, which `devices={"accel": ...}` maps to a device when it
                is compiled. `""`, `"cpu"` and `"host"` are the host.
        """
        name = text_of("the name of a device", device)
        before, self._device = self._device, "" if name in HOSTS else name
        try:
            yield
        finally:
            self._device = before

    @contextmanager
    def labelled(self, label: str) -> Iterator[None]:
        """Name new nodes: `with g.labelled("encoder/attention"): ...`, for reports and patterns.

        Args:
            label: The name in the source of the graph.
        """
        before, self._label = self._label, text_of("a label", label)
        try:
            yield
        finally:
            self._label = before

    def _source(self, name: str) -> str:
        """The source of a new node: its label, else the name of its operator."""
        return f"{self.name}: {self._label or name}"

    @report_unexpected
    def _apply(self, name: str, inputs: Sequence[Operand], attributes: dict[str, Any]) -> Any:
        """Add a node and return its value, or tuple of values."""
        inner = self._innermost(inputs)
        if inner is not self:
            return inner._apply(name, inputs, attributes)
        values = self._values(name, inputs)
        try:
            record = operator(name)
            frozen = record.check(attributes)
            kinds = record.infer([value.type for value in values], frozen, self._box)
        except UserError as error:
            raise self._refused(name, inputs, values, error) from None
        outputs = tuple(self._declared(name, kind) for kind in kinds)
        names, source = tuple(v.name for v in values), self._source(name)
        if name in DIVISIONS:
            self._check_divisor(names[1], kinds[0], source)
        elif name == "size_tensor":
            self._sizes_in[outputs[0]] = tuple(map(as_size, frozen["values"]))
        self._nodes.append(Node(name, names, outputs, frozen, source, self._device))
        made = tuple(Value(self, output) for output in outputs)
        return made[0] if len(made) == 1 else made

    def _refused(
        self, name: str, inputs: Sequence[Operand], values: Sequence[Value], error: UserError
    ) -> GraphError:
        """The error of an operator that does not take these values, with their names."""
        if "(T), but the argument is" in error.problem:
            kinds = {value.name: value.type for value in values if value.dtype != boolean}
            given = " and ".join(f"'{value}' is {kind}" for value, kind in kinds.items())
            return GraphError(
                f"'{self.name}': '{name}' takes values of one type, and {given}",
                "Python's operators and numpy's functions convert as numpy does; or "
                f"convert one: g.cast(x, to='{next(iter(kinds.values())).dtype}')",
            )
        named = any(isinstance(item, (bool, int, float)) for item in inputs)
        hint = error.hint or (_attributes_of(name) if named else "")
        types = ", ".join(str(value.type) for value in values)
        given = ", ".join(f"'{value.name}' {value.type}" for value in values)
        return GraphError(f"'{self.name}': {error.problem.replace(types, given, 1)}", hint)

    def _values(self, name: str, inputs: Sequence[Operand]) -> list[Value]:
        """Convert operands to values; numbers become constants of the other operands' type."""
        dtypes = [value.dtype for value in inputs if isinstance(value, Value)]
        values = []
        for item in inputs:
            if isinstance(item, Value):
                values.append(self._own(item))
            elif isinstance(item, (bool, int, float)) and dtypes:
                values.append(self.constant(number(item, dtypes[-1])))
            elif isinstance(item, (numpy.ndarray, numpy.generic)):
                values.append(self.constant(item))
            else:
                raise GraphError(
                    f"operator '{name}' cannot take {type(item).__name__}",
                    _attributes_of(name)
                    or "it takes values of a Builder, arrays and, next to a value, numbers",
                )
        return values

    def _one(self, value: Operand, dtype: DType) -> Value:
        """A value of one element; a number becomes a constant of the given type."""
        if isinstance(value, Value):
            return self._own(value)
        array = number(value, dtype) if isinstance(value, (bool, int, float)) else value
        return self.constant(numpy.asarray(array, dtype.numpy).reshape(1))

    def _value(self, name: str) -> Value:
        return Value(self, name)

    def _own(self, value: Value) -> Value:
        """Resolve a value in this graph; an outer value becomes an input or a constant."""
        if isinstance(value, Value) and value.builder is self:
            return value
        if self._parent is None or not isinstance(value, Value):
            raise GraphError(f"{short_repr(value)} is no value of the graph '{self.name}'")
        outer = self._parent._own(value)
        if outer.name in self._captured:
            return Value(self, self._captured[outer.name])
        own = self._declared(outer.name, outer.type)
        if outer.name in self._parent._constants:
            self._constants[own] = self._parent._constants[outer.name]
        else:
            self._captured[outer.name] = own
        return Value(self, own)

    def _inside(self, stem: str) -> GraphBuilder:
        """The builder of a graph nested in this one."""
        inner = type(self)(f"{self.name}/{stem}")
        inner._parent, inner._box, inner._reserved = self, self._box, self._reserved
        inner._device, inner._label = self._device, self._label
        return inner

    def _innermost(self, values: Iterable[Any]) -> GraphBuilder:
        """The builder of the innermost graph that owns one of the values."""
        found = self
        for value in values:
            around = value.builder if isinstance(value, Value) else None
            while around is not None and around is not found:
                around = around._parent
            if around is found and isinstance(value, Value):
                found = value.builder
        return found

    def _claim(self, name: str) -> None:
        if not text_of("the name of a value", name) or type(name).__hash__ is None:
            raise GraphError(f"a value of '{self.name}' has no name")
        if name in self._types:
            raise GraphError(f"'{name}' is declared twice in '{self.name}'")

    def _declared(self, stem: str, kind: TensorType) -> str:
        name = self._fresh(f"{self._label}/{stem}" if self._label else stem)
        self._types[name] = kind
        return name

    def _fresh(self, stem: str) -> str:
        number = len(self._types)
        while f"{stem}_{number}" in self._types:
            number += 1
        return f"{stem}_{number}"


def _attributes_of(name: str) -> str:
    """How the attributes of an operator are given, if it has any."""
    attributes = OPERATORS[name].attributes if name in OPERATORS else ()
    known = ", ".join(f"{key}=..." for key in attributes)
    return f"its attributes are given by name: {known}" if known else ""


def _spread(inputs: Sequence[Operand | Sequence[Operand]]) -> Sequence[Operand]:
    """The operands of a call; one list of operands is unpacked, as for numpy.concatenate."""
    match inputs:
        case [[*operands]] if any(isinstance(each, Value) for each in operands):
            return operands
    return cast("Sequence[Operand]", inputs)
