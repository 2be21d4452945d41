"""Emits sections of statements into a graph: for one call, or for several calls at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence

from anydim.base.errors import LanguageError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.recursion.sections import Computation, OperatorCall, Section
from anydim.compiler.frontends.structures.batching import (
    Batch,
    CannotBatch,
    batch_statement,
    batch_steps,
    varying_tensors,
)
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.graph.nodes import Node
from anydim.lang.surface.syntax import Definition
from anydim.lang.tree import Expr, Group, Index, Read, Statement, Tensor, TensorType
from anydim.lang.tree.affine import reads, rewrite
from anydim.lang.tree.bounds_checks import inside
from anydim.lang.tree.renaming import rename_steps
from anydim.lang.tree.stepping import expressions_of, with_expressions
from anydim.sizes import Size

Value = Callable[[str], str]  # the value of a variable
Values = MutableMapping[str, str]

WITH_AXIS = ("sort", "top_k", "cum_sum", "cum_prod")
"""Algorithms along an axis: they run for several calls with one more axis in front."""


def emit_sections(
    emitter: Emitter, sections: Sequence[Section], value: Value, values: Values
) -> None:
    """Emit sections for one call; `values` gets the variables that they write."""
    for section in sections:
        if isinstance(section, Computation):
            _emit_group(emitter, section, value, values)
            continue
        given = tuple(map(value, section.given))
        made = tuple(emitter.fresh(target) for target in section.targets)
        emitter.node(
            Node(section.name, given, made, section.attributes, emitter.source), section.kinds
        )
        values.update(zip(section.targets, made))


def _emit_group(emitter: Emitter, section: Computation, value: Value, values: Values) -> None:
    group = section.group
    names = {tensor.name: value(tensor.name) for tensor in group.inputs}
    emitter.instance(group, names)
    values.update({n: names[tensor.name] for n, tensor in zip(section.kept, group.outputs)})


# ---- several calls -------------------------------------------------------------------------------


class Several:
    """Emits sections for `count` calls at once; `value` gives variables that all calls share.

    `rows` are the variables that each call has for itself: a table, and the row of each call in it,
    or '' if the table has one row for each call in order.
    """

    def __init__(
        self, emitter: Emitter, definition: Definition, count: Size,
        rows: Mapping[str, tuple[str, str]], value: Value,
    ) -> None:  # fmt: skip
        self.emitter, self.definition, self.count = emitter, definition, count
        self.rows, self.shared = rows, value
        self.values: dict[str, str] = {}  # with an axis of calls
        self.gathered: dict[str, str] = {}

    def emit(self, sections: Sequence[Section]) -> None:
        """Emit sections; `values` gets the variables that they write."""
        for section in sections:
            if isinstance(section, Computation):
                self.group(section)
            else:
                self.call(section)

    def value(self, name: str) -> str:
        """A variable with one row per call."""
        if name in self.values:
            return self.values[name]
        if name in self.rows:
            table, rows = self.rows[name]
            if name not in self.gathered:
                made = table
                if rows:
                    made = self.emitter.emit("gather", table, rows, called=f"{name}.here")
                self.gathered[name] = made
            return self.gathered[name]
        value = self.shared(name)
        return self.emitter.repeat(value, self.count, f"{value}.rows")

    def call(self, section: OperatorCall) -> None:
        """Emit an algorithm along an axis."""
        axis = section.attributes.get("axis")
        if section.name not in WITH_AXIS or not isinstance(axis, int):
            raise self.error(f"'{section.name}' has no form for several calls at once")
        attributes = {**section.attributes, "axis": axis + 1 if axis >= 0 else axis}
        given = tuple(
            self.value(name) if number == 0 else self.shared(name)
            for number, name in enumerate(section.given)
        )
        if any(name in self.values or name in self.rows for name in section.given[1:]):
            raise self.error(f"the arguments of '{section.name}' differ from call to call")
        made = tuple(self.emitter.fresh(target) for target in section.targets)
        kinds = [TensorType(kind.dtype, (self.count, *kind.shape)) for kind in section.kinds]
        node = Node(section.name, given, made, FrozenMapping(attributes), self.emitter.source)
        self.emitter.node(node, kinds)
        self.values.update(zip(section.targets, made))

    def error(self, problem: str) -> LanguageError:
        definition = self.definition
        return definition.error(definition.position, problem, "compute it in another definition")

    def group(self, section: Computation) -> None:
        """Emit comprehensions: each statement with one more axis, or steps in a loop over calls."""
        group = section.group
        own = {t.name for t in group.inputs if t.name in self.values or t.name in self.rows}
        batch = Batch(self.count, varying_tensors(group, own), {})
        kinds = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
        fused = self.fused_rows(group, own)
        names = {name: self.rows[name][0] for name in fused}
        names.update({rows: rows for rows in fused.values()})
        for tensor in group.inputs:
            if tensor.name not in fused:
                names[tensor.name] = (
                    self.value(tensor.name) if tensor.name in own else self.shared(tensor.name)
                )
        made = {
            name: batch.type(kind) if name in batch.tensors else kind
            for name, kind in kinds.items()
        }  # fmt: skip
        try:
            if group.steps:
                self.steps(group, batch, kinds, made, names, fused)
            else:
                self.statements(group, batch, kinds, made, names, fused)
        except CannotBatch as found:
            raise self.error(f"{found}, which has no form for several calls at once") from None
        for name, tensor in zip(section.kept, group.outputs):
            self.values[name] = names[tensor.name]

    def statements(
        self, group: Group, batch: Batch, kinds: Mapping[str, TensorType],
        made: Mapping[str, TensorType], names: dict[str, str], fused: Mapping[str, str],
    ) -> None:  # fmt: skip
        for each in group.statements:
            names[each.target] = self.emitter.fresh(f"{each.target}.new")
            statement = batch_statement(each, kinds, batch)
            body = self.read_tables(statement.body, fused)
            (own,) = rename_steps((statement.with_body(body),), names)
            assert isinstance(own, Statement)
            self.emitter.statement(own, made[each.target])

    def steps(
        self, group: Group, batch: Batch, kinds: Mapping[str, TensorType],
        made: Mapping[str, TensorType], names: dict[str, str], fused: Mapping[str, str],
    ) -> None:  # fmt: skip
        steps = batch_steps(group.steps, kinds, batch)
        own = with_expressions(steps, lambda expr: self.read_tables(expr, fused))
        types = self.emitter.types
        inputs = [Tensor(t.name, types[names[t.name]]) for t in group.inputs]
        inputs += [Tensor(rows, types[rows]) for rows in fused.values() if rows]
        outputs, temporaries = (
            tuple(Tensor(t.name, made[t.name]) for t in old)
            for old in (group.outputs, group.temporaries)
        )
        self.emitter.instance(Group(tuple(inputs), outputs, (), temporaries, steps=own), names)

    # ---- rows of tables --------------------------------------------------------------------------

    def fused_rows(self, group: Group, own: set[str]) -> dict[str, str]:
        """Variables that statements read directly from their tables (fused gather), with the rows.

        Sums read gathered rows, as products need them in a dense tensor.
        """
        found = {name: rows for name in sorted(own - self.values.keys() - self.gathered.keys())
                 if (rows := self.rows[name][1])}  # fmt: skip
        for each in group.statements:
            for read in reads(each.body):
                if read.flat or (each.reduced and _is_whole(read, each)):
                    found.pop(read.tensor, None)
        for _, expr in expressions_of(group.steps):
            for read in reads(expr):
                if read.flat:
                    found.pop(read.tensor, None)
        written = {tensor.name for tensor in group.outputs}
        return {name: rows for name, rows in found.items() if name not in written}

    def read_tables(self, body: Expr, fused: Mapping[str, str]) -> Expr:
        return rewrite(body, lambda expr: self.change(expr, fused))

    def change(self, expr: Expr, fused: Mapping[str, str]) -> Expr | None:
        """Rewrites a read of a fused variable to a read of its table."""
        if not isinstance(expr, Read) or expr.tensor not in fused:
            return None
        table, rows = self.rows[expr.tensor]
        count = self.emitter.types[table].shape[0]
        at = inside(Read(rows, (expr.indices[0],)), count)
        return Read(expr.tensor, (at, *expr.indices[1:]), default=expr.default)


def _is_whole(read: Read, statement: Statement) -> bool:
    """Whether a read takes all elements of a tensor, one for each value of indices."""
    names = {axis.name for axis in (*statement.axes, *statement.reduced)}
    return all(isinstance(index, Index) and index.name in names for index in read.indices)
