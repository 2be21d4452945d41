"""Imports a graph of torch.fx: each node is built by the row of its overload.

    imported = import_graph(Program("scorer", graph_module, constants, names, ranges))

`import_graph` is shared by exported programs and graphs that torch.compile hands over. A node
carries torch's own result (`meta["val"]`): its type is the type of the result here, and its
symbols name the sizes that data decide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import torch

from anydim.base.dtypes import float64, int64, uint8
from anydim.base.errors import GraphError, ModelError, UserError
from anydim.base.pages import OPERATORS_OF_TORCH
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch import control_flow
from anydim.compiler.frontends.torch.builder import TorchBuilder, is_known
from anydim.compiler.frontends.torch.called_definitions import definition_of
from anydim.compiler.frontends.torch.complex_values import (
    Complex,
    is_complex,
    join_parts,
    of_type,
    split,
)
from anydim.compiler.frontends.torch.promotion import dtype_of
from anydim.compiler.frontends.torch.refusal import Refused, UnsupportedNodes
from anydim.compiler.frontends.torch.rows import COMPLEX_OVERLOADS, OVERLOADS
from anydim.compiler.frontends.torch.sizes import RELATIONS, number_of, size_of
from anydim.compiler.frontends.torch.symbols import Naming
from anydim.compiler.graph.nodes import Graph
from anydim.runtime.arrays import shared_array
from anydim.runtime.program.adapter import NamedResult
from anydim.sizes import Dim, Size, as_size

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_MOST_SHOWN = 12


@dataclass(frozen=True)
class Program:
    """A graph module without mutation, and what its placeholders are.

    `constants` are tensors by placeholder, `names` the names of the other placeholders, `ranges`
    the bounds of symbols, `named` the names that the user gave to axes: (placeholder, axis).
    `results` are names of the results; results of `None` have none. With `shaped_numbers`, a number
    among the placeholders is the size of an input of bytes, so that it may be a size of others; 0
    if it is negative.
    """

    name: str
    module: torch.fx.GraphModule
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    results: Sequence[str | None] | None = None
    ranges: Mapping[Any, Any] = field(default_factory=dict)
    named: Mapping[tuple[str, int], str] = field(default_factory=dict)
    dims: Mapping[str, Dim] = field(default_factory=dict)
    shaped_numbers: bool = False


@dataclass(frozen=True)
class Imported:
    """A graph, the placeholders that its inputs are, and the results of the module.

    `placeholders` are positions among the module's placeholders, in the order of the inputs.
    A result is a `NamedResult`, or a plain value that the module returns as it is.
    `complex_names` are the inputs and outputs of complex types: real ones of the graph with a last
    axis of 2. `negated` are inputs of bytes whose size is the negated number, 0 for a positive one.
    """

    graph: Graph
    placeholders: tuple[int, ...]
    results: tuple[Any, ...]
    complex_names: frozenset[str] = frozenset()
    negated: frozenset[str] = frozenset()


def import_graph(program: Program) -> Imported:
    """The graph of a torch program. Raises ModelError that lists all nodes without a row."""
    return _Importing(program).run()


class _Importing:
    """The import of one graph module."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.g = TorchBuilder(program.name)
        self.environment: dict[Any, Any] = {}
        self.failures: list[str] = []
        self.refused: set[str] = set()  # nodes of this graph
        self.placeholders: list[int] = []
        self.complex_names: set[str] = set()
        self.negated: set[str] = set()
        self.is_of_data = False  # whether data decide sizes of the current node

    def run(self) -> Imported:
        nodes = list(self.program.module.graph.nodes)
        given = [node for node in nodes if node.op == "placeholder"]
        Naming(self.program, self.g).declare(given)
        for position in sorted(range(len(given)), key=partial(_import_order, given)):
            try:
                self.placeholder(given[position], position)
            except Refused as error:
                self.failures.append(f"the input {given[position].name}: {error}")
                self.refused.update(user.name for user in given[position].users)
                self.environment[given[position]] = _BROKEN
        skipped = _only_checked(nodes)
        for node in nodes:
            if node.op not in ("placeholder", "output") and node not in skipped:
                self.node(node)
        if self.failures:
            raise self.unsupported_error()
        results = self.outputs(nodes[-1].args[0])
        if self.failures:
            raise self.unsupported_error()
        try:
            graph = self.g.graph()
        except GraphError as error:
            raise ModelError(f"{self.program.name}: {error.problem}", error.hint) from None
        names = frozenset(self.complex_names), frozenset(self.negated)
        return Imported(graph, tuple(self.placeholders), results, *names)

    def unsupported_error(self) -> UnsupportedNodes:
        """The error that lists what failed."""
        unique = list(dict.fromkeys(self.failures))
        shown = unique[:_MOST_SHOWN]
        more = f"; and {len(unique) - len(shown)} more" if len(unique) > len(shown) else ""
        return UnsupportedNodes(
            f"{self.program.name}: these operators cannot be compiled: {'; '.join(shown)}{more}",
            str(OPERATORS_OF_TORCH), nodes=self.refused,
        )  # fmt: skip

    # ---- inputs and results ----

    def placeholder(self, node: Any, position: int) -> None:
        """An input, a constant, or a size that the shapes of inputs determine."""
        value = node.meta.get("val")
        name = self.program.names.get(node.name, node.name)
        if node.name in self.program.constants:
            self.environment[node] = self.constant(self.program.constants[node.name])
        elif isinstance(value, torch.SymInt):
            self.size_input(node, value, name, position)
        elif isinstance(value, torch.Tensor):
            self.environment[node] = self.tensor_input(name, value)
            self.placeholders.append(position)
        else:
            self.environment[node] = value

    def tensor_input(self, name: str, value: torch.Tensor) -> Value | Complex:
        shape = [self.size(size) for size in value.shape]
        if not value.dtype.is_complex:
            return self.g.input(name, dtype_of(value.dtype), shape)
        self.complex_names.add(name)
        return split(self.g, self.g.input(name, dtype_of(value.dtype), [*shape, as_size(2)]))

    def size_input(self, node: Any, value: Any, name: str, position: int) -> None:
        """Imports a SymInt placeholder: a size of a tensor's axis, or a number of its own."""
        symbol = value.node.expr
        if all(each.name in self.g.symbols for each in symbol.free_symbols):
            self.environment[node] = self.size(value)
            return
        if not symbol.is_Symbol:
            raise Refused(f"the number {symbol} of unknown sizes")
        if self.program.shaped_numbers:
            self.g.symbols[symbol.name] = self.environment[node] = self.shaped_number(
                name, symbol, position
            )
            return
        tensor = self.g.input(name, int64, ())
        self.placeholders.append(position)
        low, high = Naming(self.program, self.g).range_of(symbol)
        found = self.g.find_size(tensor, f"{name}.size", low, high)
        self.g.symbols[symbol.name] = self.environment[node] = found

    def shaped_number(self, name: str, symbol: Any, position: int) -> Size:
        """Encodes a number as the size of an input of bytes; a signed number takes two inputs."""
        naming = Naming(self.program, self.g)
        (low, _), (least, high) = naming.limits_of(symbol), naming.range_of(symbol)
        size = self.g.dim(f"{name}.size", max(least, 0), None if high is None else max(high, 0))
        self.g.input(name, uint8, (size,))
        self.placeholders.append(position)
        if low is not None and low >= 0:
            return size
        negative = self.g.dim(f"{name}.negative", 0, None if low is None else -low)
        self.g.input(f"{name}.negated", uint8, (negative,))
        self.placeholders.append(position)
        self.negated.add(f"{name}.negated")
        return size - negative

    def constant(self, tensor: torch.Tensor) -> Value | Complex:
        """A parameter, a buffer or a constant, whose memory is shared."""
        dtype_of(tensor.dtype)
        plain = tensor.detach()
        if plain.dtype.is_complex:
            return split(self.g, self.array(torch.view_as_real(plain.resolve_conj())))
        return self.array(plain)

    def array(self, plain: torch.Tensor) -> Value:
        if not plain.numel() or not plain.is_contiguous() or plain.device.type != "cpu":
            plain = plain.cpu().contiguous()
        return self.g.constant(shared_array(plain, "a constant"))

    def outputs(self, results: Any) -> tuple[Any, ...]:
        """Declare the results; one without a name is left out."""
        names = self.program.results or [f"output_{number}" for number in range(len(results))]
        return tuple(
            None if name is None else self.output(name, result)
            for name, result in zip(names, results)
        )

    def output(self, name: str, result: Any) -> Any:
        """Declare an output; a plain value is returned as it is."""
        value = self.value(result) if isinstance(result, torch.fx.Node) else result
        if isinstance(value, Size):
            value = self.g.scalar(value, int64)
        if not isinstance(value, (Value, Complex)):
            if isinstance(getattr(result, "meta", {}).get("val"), torch.Tensor):
                self.failures.append(f"a further result ({result.name}): not supported")
            return value
        while name in self.g._types:  # an input may have this name
            name += "_out"
        if isinstance(value, Complex):
            self.complex_names.add(name)
            value = join_parts(self.g, value)
        self.g.output(name, value)
        return NamedResult(name)

    # ---- nodes ----

    def node(self, node: Any) -> None:
        """Add the nodes of one node, or record why it cannot be imported."""
        if any(self.environment.get(each) is _BROKEN for each in node.all_input_nodes):
            self.environment[node] = _BROKEN
            return
        with self.g.labelled(label_of(node)):
            try:
                self.environment[node] = self.build(node)
            except (Refused, UserError, NotImplementedError) as error:
                reason = error.problem if isinstance(error, UserError) else str(error)
                self.failures.append(f"{_overload(node)} ({label_of(node)}): {reason}")
                self.refused.add(node.name)
                self.environment[node] = _BROKEN

    def build(self, node: Any) -> Any:
        value = node.meta.get("val")
        if node.op == "get_attr":
            return self.attribute(node)
        if node.target is operator.getitem:
            return self.part(self.value(node.args[0]), node.args[1])
        if isinstance(value, _SYMBOLIC) and not node.meta.get("unbacked_bindings"):
            quotient = self.signed_quotient(node)
            return self.symbolic(value) if quotient is None else quotient
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            self.set_node_facts(node, value)
            return self.finish(node, control_flow.build_higher_order(self, node))
        if not isinstance(node.target, torch._ops.OpOverload):
            return self.python(node)
        overload = _overload(node)
        if overload in _ASSERTIONS:
            return self.add_assertion(node)
        arguments, named = self.arguments(node)
        called = definition_of(overload)
        if called is not None:
            definition, attributes = called
            return self.finish(node, self.g.call(definition, *arguments, **attributes))
        self.set_node_facts(node, value)
        if self.g.is_complex or is_complex([*arguments, *named.values()]):
            row = COMPLEX_OVERLOADS.get(overload)
        else:
            row = OVERLOADS.get(overload)
        if row is None:
            known = overload in OVERLOADS
            raise Refused("not supported for complex numbers" if known else "not supported")
        return self.finish(node, self.call_row(node, row, arguments, named))

    def call_row(
        self, node: Any, row: Callable[..., Any], arguments: list[Any], named: dict[str, Any]
    ) -> Any:
        """Calls a row; Refused if it needs a constant where the program computes the number."""
        try:
            return row(self.g, *arguments, **named)
        except TypeError:
            computed = [formal.name for formal, value in zip(
                            node.target._schema.arguments, [*arguments, *named.values()])
                        if "Tensor" not in str(formal.type) and not is_known(value)]  # fmt: skip
            if not computed:
                raise
            raise Refused(f"its {quote_list(computed)} is computed, and has to be known") from None

    def part(self, values: Any, position: int) -> Any:
        """Selects one of several results."""
        if position >= len(values):
            raise Refused(f"its result {position} is not supported")
        return values[position]

    def python(self, node: Any) -> Any:
        """Evaluates a Python function of known numbers."""
        arguments = [self.value(each) for each in node.args]
        if any(isinstance(each, (Value, Size)) for each in arguments):
            raise Refused(f"{node.target} of tensors")
        return node.target(*arguments)

    def set_node_facts(self, node: Any, value: Any) -> None:
        """Set the builder's facts about the node: types of results, which are used."""
        many = isinstance(value, (list, tuple))
        self.g.parts = len(value) if many else 1
        self.g.traced = value if many else (value,)
        self.g.used = (
            {user.args[1] for user in node.users if user.target is operator.getitem}
            if many
            else {0}
        )
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        source = node.args[0] if node.args else None
        self.g.source = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
        self.g.is_complex = isinstance(first, torch.Tensor) and first.dtype.is_complex
        if isinstance(first, torch.Tensor):
            self.g.result, self.g.rank = dtype_of(first.dtype), first.dim()

    def arguments(self, node: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments by the schema, defaults included."""
        arguments: list[Any] = []
        named: dict[str, Any] = {}
        for position, formal in enumerate(node.target._schema.arguments):
            if position < len(node.args):
                given = node.args[position]
            else:
                given = node.kwargs.get(formal.name, formal.default_value)
            value = self.convert(given)
            if formal.kwarg_only:
                named[formal.name] = value
            else:
                arguments.append(value)
        return arguments, named

    def convert(self, given: Any) -> Any:
        """An argument of a row from one of torch.fx."""
        if isinstance(given, torch.fx.Node):
            return self.value(given)
        if isinstance(given, (list, tuple)):
            return [self.convert(each) for each in given]
        if isinstance(given, torch.dtype):
            return dtype_of(given)
        if isinstance(given, _SYMBOLIC):
            return self.symbolic(given)
        return given

    def value(self, node: Any) -> Any:
        return self.environment[node]

    def attribute(self, node: Any) -> Any:
        found = operator.attrgetter(node.target)(self.program.module)
        return self.constant(found) if isinstance(found, torch.Tensor) else found

    def finish(self, node: Any, results: Any) -> Any:
        """Converts results to torch's types, and binds the symbols that they define."""
        value = node.meta.get("val")
        self.is_of_data = bool(node.meta.get("unbacked_bindings"))
        if isinstance(value, (list, tuple)):
            if not isinstance(results, (list, tuple)):
                results = (results, *[None] * (len(value) - 1))
            return [self.result(fake, own) for fake, own in zip(value, results)]
        if isinstance(value, torch.Tensor) and isinstance(results, list):
            results = results[0]
        return self.result(value, results)

    def result(self, fake: Any, own: Any) -> Any:
        if isinstance(fake, torch.Tensor) and isinstance(own, (Value, Complex)):
            dtype = dtype_of(fake.dtype)
            own = (
                of_type(self.g, own, dtype)
                if isinstance(own, Complex)
                else self.g.as_type(own, dtype)
            )
            if len(own.shape) != len(fake.shape):
                raise Refused(f"its result has {len(own.shape)} axes here, {fake.dim()} in torch")
            for size, found in zip(fake.shape, own.shape):
                self.define(size, found)
        elif isinstance(fake, (int, *_SYMBOLIC)):
            self.define(fake, own)
        return own

    def define(self, symbolic: Any, found: Any) -> None:
        """Bind a symbol of torch that data decide to its size or value here.

        A size for which torch knows another expression, by an assertion, is checked to be that.
        """
        symbol = symbolic.node.expr if isinstance(symbolic, _SYMBOLIC) else None
        name = symbol.name if symbol is not None and symbol.is_Symbol else ""
        if isinstance(found, Value) and name:
            self.g.scalars.setdefault(name, self.g.as_type(found, float64))
        elif isinstance(found, Size) and name and name not in self.g.symbols:
            self.g.symbols[name] = found
        elif isinstance(found, Size) and self.is_of_data:
            known = self.size(symbolic)
            self.g.require(found, "==", known, f"the program asserts that this is {known}")

    def inline(self, g: TorchBuilder, module: Any, operands: Sequence[Any]) -> list[Any]:
        """Builds the graph of a higher-order operator inside `g`; returns its results."""
        inner = _Importing(self.program)
        inner.g, inner.failures = g, self.failures
        nodes = list(module.graph.nodes)
        given = [node for node in nodes if node.op == "placeholder"]
        inner.environment.update(zip(given, operands))
        for node in nodes:
            if node.op not in ("placeholder", "output"):
                inner.node(node)
        (returned,) = nodes[-1].args  # the condition of a loop may return one value, not in a tuple
        if isinstance(returned, torch.fx.Node):
            returned = (returned,)
        results = [inner.convert(each) for each in returned]
        if any(each is _BROKEN for each in results):
            raise Refused("an operator in its graph")
        return results

    # ---- sizes ----

    def size(self, size: Any) -> Size:
        if isinstance(size, torch.SymInt):
            return size_of(size.node.expr, self.g.symbols)
        return as_size(int(size))

    def symbolic(self, value: Any) -> Any:
        """A number of torch's shape arithmetic: an int, a size, or a scalar tensor."""
        expression = value.node.expr
        if isinstance(value, torch.SymInt):
            try:
                found = size_of(expression, self.g.symbols)
            except Refused:
                found = self.compute_size(value)
            return found if found.constant is None else found.constant
        if expression.is_number or expression in (True, False):
            return bool(expression) if isinstance(value, torch.SymBool) else float(expression)
        return number_of(self.g, expression)

    def signed_quotient(self, node: Any) -> Size | None:
        """A quotient by a divisor that may be negative; None for another node.

        torch's own expression is not used: it simplifies n // 2 // -2 to n // -4.
        """
        if node.target is not operator.floordiv:
            return None
        number, divisor = (self.convert(each) for each in node.args)
        if not isinstance(number, Size) or not isinstance(divisor, (int, Size)):
            return None
        if isinstance(divisor, int):
            return -number // -divisor if divisor < 0 else None
        return None if self.g.proved(1, "<=", divisor) else number // divisor

    def compute_size(self, value: Any) -> Size:
        """Binds a new size to an integer that the program computes."""
        number = number_of(self.g, value.node.expr)
        if number.dtype != int64:
            number = self.g.floor(number)
        bounds = value.node.shape_env.bound_sympy(value.node.expr)
        find = self.g.find_size if bounds.lower >= 0 else self.g.find_any_size
        return find(number, "size")

    def add_assertion(self, node: Any) -> None:
        """Turns an assertion about data or sizes into a check of every call."""
        condition = node.args[0]
        data = self.environment.get(condition)  # conditions of sizes are not built
        if isinstance(data, Value) and _overload(node) not in _OF_TENSORS:
            self.g.expect(data, *map(str, node.args[1:2]))
            return
        value = condition.meta.get("val") if isinstance(condition, torch.fx.Node) else condition
        expression = value.node.expr if isinstance(value, torch.SymBool) else None
        relation = RELATIONS.get(type(expression).__name__)
        if expression is None or relation is None:
            return
        try:
            left, right = (size_of(each, self.g.symbols) for each in expression.args)
        except Refused:
            return
        self.g.require(left, relation, right, f"the program asserts {expression}")


_BROKEN = object()
_ASSERTIONS = {
    "aten._assert_scalar.default", "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default", "aten._assert_async.msg",
    "aten._assert_tensor_metadata.default", "aten._assert_async.default",
}  # fmt: skip
_OF_TENSORS = {"aten._assert_tensor_metadata.default"}  # assertions about types and devices


def _import_order(given: Sequence[Any], position: int) -> int:
    """The import order of a placeholder: symbols, expressions of symbols, then tensors."""
    value = given[position].meta.get("val")
    if not isinstance(value, torch.SymInt):
        return 2
    return 0 if value.node.expr.is_Symbol else 1


def _only_checked(nodes: Sequence[Any]) -> set[Any]:
    """Nodes of sizes that only assertions use: these read torch's expressions instead."""
    found: set[Any] = set()
    for node in reversed(nodes):
        is_size = not isinstance(node.target, torch._ops.OpOverload) or (
            _overload(node).startswith("aten.sym_") and _overload(node) not in _ASSERTIONS
        )
        if (
            is_size and node.users and isinstance(node.meta.get("val"), _SYMBOLIC)
            and all(user in found or _overload(user) in _ASSERTIONS for user in node.users)
        ):  # fmt: skip
            found.add(node)
    return found


def _overload(node: Any) -> str:
    """The name of a node's overload: aten.add.Tensor."""
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    return str(getattr(node.target, "__name__", node.target))


def label_of(node: Any) -> str:
    """The name of a node by its module: encoder.layers.0/linear_1."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next((path for path, _ in reversed(stack.values()) if path), "")
    path = path.removeprefix("L['self'].").removeprefix("L__self__.")
    return f"{path}/{node.name}" if path and not path.startswith("_empty") else node.name
