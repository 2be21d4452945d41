"""Definitions as several nodes in order: comprehensions, algorithms, and calls.

A definition is compiled so if it, or one that it calls outside of loops and branches, calls an
algorithm (`sort`), recursion with a bound, a definition with `while`, or a definition for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anydim.base.errors import UserError
from anydim.base.text import count_of, quote_list
from anydim.compiler.frontends import data_sized
from anydim.compiler.frontends.recursion.emission import Several, emit_sections
from anydim.compiler.frontends.recursion.frontier import Frontier
from anydim.compiler.frontends.recursion.sections import (
    Scope,
    check_sizes,
    read_before,
    sections_of,
    setting_value,
)
from anydim.compiler.frontends.recursion.stack_machine import StackMachine
from anydim.compiler.frontends.recursion.variables import Variables
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.frontends.structures.item_names import names_of
from anydim.compiler.graph.nodes import Graph
from anydim.lang.surface.operator_names import DATA_SIZED
from anydim.lang.surface.sequences import is_sequence
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    CallTerm,
    Convert,
    Definition,
    Invoke,
    Item,
    Name,
    Parameter,
    Term,
    items,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, Size, as_size

if TYPE_CHECKING:
    from anydim.compiler.frontends.graph_builder import GraphBuilder


def sequence_graph(
    definition: Definition, types: Sequence[TensorType], box: Box, attributes: Mapping[str, Any]
) -> Graph:
    """The graph of a definition as several nodes; raises LanguageError."""
    emitter = Emitter(box, f"{definition.file}:{definition.line}: {definition.name}")
    names = [parameter.name for parameter in definition.parameters]
    emitter.types.update(zip(names, types))
    made = InOrder(emitter, definition, dict(zip(names, names)), attributes)
    results = made.run()
    outputs = [
        emitter.emit("identity", value, called=result)
        for result, value in zip(definition.results, results)
    ]
    return emitter.graph(definition.name, names, outputs, guards=tuple(made.guards)).pruned()


def emit_call_in_order(
    builder: GraphBuilder, definition: Definition, inputs: Sequence[Any],
    attributes: Mapping[str, Any],
) -> list[str]:  # fmt: skip
    """Emit a call into the graph of a builder; returns the names of its results."""
    if len(inputs) != len(definition.parameters):
        takes = quote_list(parameter.name for parameter in definition.parameters)
        raise definition.error(definition.position, f"takes {takes}; got {len(inputs)} arguments")
    values = builder._values(definition.name, inputs)
    emitter = Emitter(builder._box)
    emitter.types, emitter.nodes = builder._types, builder._nodes
    given = dict(zip((p.name for p in definition.parameters), (value.name for value in values)))
    made = InOrder(emitter, definition, given, attributes)
    kinds = {name: emitter.types[value] for name, value in given.items()}
    scope = made.scope
    check_sizes(definition, kinds, scope)
    made.need(scope.guards)
    results = made.run()
    builder._box = emitter.box
    builder._reserved.update(emitter.box.names)
    builder._guards += [guard for guard in made.guards if guard not in builder._guards]
    return results


class InOrder:
    """Emits a definition in order; `given` are the values of its parameters."""

    def __init__(
        self, emitter: Emitter, definition: Definition, given: Mapping[str, str],
        attributes: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.emitter, self.definition, self.attributes = emitter, definition, attributes
        self.values = dict(given)
        self.known = {each.name: each for each in definition.callees}
        self.guards: list[Guard] = []

    def run(self) -> list[str]:
        """Emit all statements; returns the values of the results."""
        if self.definition.has_states:
            return self.with_states(self.definition, dict(self.values), self.attributes)
        waiting: list[Item] = []
        block = self.definition.statements
        for number, item in enumerate(block):
            if not self.is_call(item):
                waiting.append(item)
                continue
            self.compute(waiting, block[number:])
            assert isinstance(item, Invoke)
            self.call(item)
            waiting = []
        self.compute(waiting, ())
        return [self.values[name] for name in self.definition.results]

    def is_call(self, item: Item) -> bool:
        """Whether an item calls a definition that is no comprehension, or has results of a size
        that data decides."""
        if self.is_data_sized(item):
            return True
        if isinstance(item, Invoke) and (callee := self.known.get(item.call.name)) is not None:
            return bool(item.rows) or is_sequence(callee)
        for inner in items((item,)):
            callee = self.known.get(inner.call.name) if isinstance(inner, Invoke) else None
            if inner is not item and callee is not None and is_sequence(callee):
                raise self.definition.error(
                    inner.position, f"'{callee.name}' is called in a loop or a branch, and data "
                    "decides what it runs", "call it before, or write the loop as 'while'",
                )  # fmt: skip
        return False

    def is_data_sized(self, item: Item) -> bool:
        named = isinstance(item, Invoke) and not item.type and item.call.name not in self.known
        return named and isinstance(item, Invoke) and item.call.name in DATA_SIZED

    @property
    def scope(self) -> Scope:
        kinds = {name: self.emitter.types[value] for name, value in self.values.items()}
        return Scope(self.definition, self.known, self.attributes, self.emitter.box, kinds)

    def compute(self, statements: Sequence[Item], rest: Sequence[Item]) -> None:
        """Emit comprehensions and algorithms; `rest` are the statements after them."""
        kept = {*self.definition.results, *read_before(rest, self.definition)}
        kept.update(name for each in items(tuple(rest)) for name in names_of(each))
        self.emit(statements, kept)

    def emit(self, statements: Sequence[Item], kept: Collection[str]) -> None:
        scope = self.scope
        sections = sections_of(statements, scope, kept)
        self.need(scope.guards)
        emit_sections(self.emitter, sections, lambda name: self.values[name], self.values)

    def need(self, guards: Sequence[Guard]) -> None:
        self.guards += [guard for guard in guards if guard not in self.guards]

    # ---- calls -----------------------------------------------------------------------------------

    def call(self, item: Invoke) -> None:
        if self.is_data_sized(item):
            self.data_sized(item)
            return
        callee = self.known[item.call.name]
        given: dict[str, str] = {}
        rowwise: list[str] = []
        for parameter, term in zip(callee.parameters, item.call.arguments):
            if item.rows and isinstance(term, CallTerm) and term.arguments == (Name(item.rows),):
                given[parameter.name] = self.values[term.name]
                rowwise.append(parameter.name)
            else:
                given[parameter.name] = self.argument(item, parameter, term)
        attributes = self.settings(item)
        scope = self.scope
        kinds = {name: self.emitter.types[value] for name, value in given.items()}
        for name in rowwise:
            kinds[name] = TensorType(kinds[name].dtype, kinds[name].shape[1:])
        check_sizes(callee, kinds, scope)
        self.need(scope.guards)
        if not item.rows:
            inner = InOrder(self.emitter, callee, given, attributes)
            results = inner.run()
            self.need(inner.guards)
        else:
            results = self.for_rows(item, callee, given, kinds, rowwise, attributes)
        self.values.update(zip(item.targets, results))

    def data_sized(self, item: Invoke) -> None:
        """Emit a call whose results have a size that data decides."""
        name, scope = item.call.name, self.scope
        for term in item.call.arguments:
            if not isinstance(term, Name) or term.name not in self.values:
                problem = f"an argument of '{name}' is a tensor"
                raise self.definition.error(term.position, problem, "assign it to a name first")
        given = [self.values[term.name] for term in item.call.arguments if isinstance(term, Name)]
        attributes = {each.name: setting_value(each, scope) for each in item.call.settings}
        self.emitter.stem = f"{self.definition.name}.{item.targets[0]}"
        try:
            results = list(_DATA_SIZED[name](self.emitter, *given, **attributes))
        except TypeError:
            raise self.definition.error(
                item.call.position, f"'{name}' does not take {count_of(len(given), 'argument')} "
                f"with the attributes {quote_list(attributes) or 'none'}",
            ) from None  # fmt: skip
        except UserError as error:
            problem = f"in this call of '{name}': {error.problem}"
            raise self.definition.error(item.call.position, problem, error.hint) from None
        if len(results) != len(item.targets):
            has = f"'{name}' has {count_of(len(results), 'result')}"
            problem = f"{has}, but {len(item.targets)} are assigned"
            raise self.definition.error(item.position, problem, "name each result")
        self.values.update(zip(item.targets, results))

    def argument(self, item: Invoke, parameter: Parameter, term: Term) -> str:
        """The value of an argument; an expression is computed with the type of the parameter."""
        if isinstance(term, Name) and term.name in self.values:
            return self.values[term.name]
        if parameter.type in TYPE_NAMES:
            term = Convert(parameter.type, term, term.position)
        name = f"{item.targets[0]}.{parameter.name}"
        self.emit([Assignment(name, (), "", False, term, position=term.position)], [name])
        return self.values[name]

    def settings(self, item: Invoke) -> dict[str, Any]:
        """The attributes of a call."""
        values = {each.name: setting_value(each, self.scope) for each in item.call.settings}
        return {
            name: value.constant
            if isinstance(value, Size) and value.constant is not None
            else value
            for name, value in values.items()
        }

    def with_states(
        self, callee: Definition, given: dict[str, str], attributes: Mapping[str, Any]
    ) -> list[str]:
        """The results of a definition whose calls and iterations data decides."""
        kinds = [self.emitter.types[given[p.name]] for p in callee.parameters]
        variables = Variables(callee, kinds, self.emitter.box, attributes)
        self.need(variables.guards)
        tensors = any(variables.types[key].rank for key in variables.stored)
        if callee.family or not tensors:
            return StackMachine(variables, self.emitter, given).run()
        made = Frontier(variables, self.emitter, given, as_size(1), ()).run()
        return [
            self.emitter.emit("reshape", value, shape=self.emitter.types[value].shape[1:])
            for value in made
        ]

    def for_rows(
        self, item: Invoke, callee: Definition, given: dict[str, str],
        kinds: Mapping[str, TensorType], rowwise: Sequence[str], attributes: Mapping[str, Any],
    ) -> list[str]:  # fmt: skip
        """The results of a call for each row."""
        count = self.rows(item, given, rowwise)
        types = [kinds[p.name] for p in callee.parameters]
        if callee.has_states:
            variables = Variables(callee, types, self.emitter.box, attributes)
            self.need(variables.guards)
            return Frontier(variables, self.emitter, given, count, rowwise).run()
        known = {each.name: each for each in callee.callees}
        if any(isinstance(i, Invoke) and (i.rows or self.calls_sequence(i, known))
               for i in items(callee.statements)):  # fmt: skip
            problem = f"'{callee.name}' is called for each row, and calls what data decides"
            raise self.definition.error(item.position, problem, "call that for each row instead")
        scope = Scope(callee, known, attributes, self.emitter.box, dict(kinds))
        sections = sections_of(callee.statements, scope, callee.results)
        self.need(scope.guards)
        held = {name: (given[name], "") for name in rowwise}
        several = Several(self.emitter, callee, count, held, lambda name: given[name])
        several.emit(sections)
        return [several.value(name) for name in callee.results]

    def calls_sequence(self, item: Invoke, known: Mapping[str, Definition]) -> bool:
        callee = known.get(item.call.name)
        return callee is not None and is_sequence(callee)

    def rows(self, item: Invoke, given: Mapping[str, str], rowwise: Sequence[str]) -> Size:
        """The number of rows; adds guards for arguments that may have other numbers of them."""
        first, *others = (self.emitter.types[given[name]].shape[0] for name in rowwise)
        for number, other in zip(rowwise[1:], others):
            if other != first:
                message = (
                    f"'{item.call.name}' is called for {first} rows, and '{number}' has {other}"
                )
                self.need([Guard(first, "==", other, message)])
        return first


def _compress(
    emitter: Emitter, x: str, condition: str, *, axis: int | None = None
) -> Sequence[str]:
    return [data_sized.compress(emitter, x, condition, axis)]


def _unique(
    emitter: Emitter, x: str, *, axis: int | None = None, sorted: bool = True
) -> Sequence[str]:
    return data_sized.unique(emitter, x, axis, sorted)


_DATA_SIZED: Mapping[str, Callable[..., Sequence[str]]] = {
    "nonzero": lambda emitter, x: [data_sized.nonzero(emitter, x)],
    "compress": _compress, "unique": _unique,
}  # fmt: skip
"""Operators whose results have a size that data decides; TypeError for other arguments."""
