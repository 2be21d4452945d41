"""Steps of a cycle of definitions that call each other: over all calls, and in a loop over levels.

A value of a case is computed outside the loop, over all calls of the case, unless it depends on
results of calls in the same cycle. Values that cross into the loop are sliced: the calls of a case
are in the order of levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from anydim.compiler.frontends.structures.batching import (
    Batch,
    CannotBatch,
    Children,
    batch_statement,
    batch_steps,
    varying_tensors,
)
from anydim.compiler.frontends.structures.emitter import BodyEmitter, Emitter
from anydim.compiler.frontends.structures.records import Case, Instance, Key
from anydim.compiler.frontends.structures.recursion import Computed, Recursion
from anydim.compiler.graph.regions import Scan, Sizes
from anydim.compiler.kernels.routines.level_plan import AT, COUNT, EDGE, EDGES, FIRST
from anydim.lang.tree import (
    Apply,
    Axis,
    Expr,
    Group,
    Index,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
)
from anydim.lang.tree.affine import reads
from anydim.lang.tree.renaming import rename_steps
from anydim.lang.tree.typing import identity
from anydim.sizes import Box, Dim, Size, as_size


class Values:
    """Lazily emitted values of a case, batched over some of its calls."""

    def __init__(
        self, recursion: Recursion, computed: Computed, emitter: Emitter, count: Size,
        children: Mapping[str, Children],
    ) -> None:  # fmt: skip
        self.recursion, self.computed, self.emitter = recursion, computed, emitter
        self.group, self.case = computed.group, computed.case
        self.sites = {site.target: number for number, site in enumerate(self.case.sites)}
        self.passed = {each.name for each in self.case.instance.passed}
        given = {*self.case.fields, *computed.calls, *self.sites, *self.case.nodes, *self.passed}
        arguments = {name for name, origin in computed.arguments.items() if origin in given}
        self.batch = Batch(count, varying_tensors(self.group, arguments), children)
        tensors = (*self.group.inputs, *self.group.outputs, *self.group.temporaries)
        self.kinds = {tensor.name: tensor.type for tensor in tensors}
        self.made: dict[str, str] = {}

    def kind(self, name: str) -> TensorType:
        """The type of a tensor of the case over these calls."""
        own = self.kinds[name]
        return self.batch.type(own) if name in self.batch.tensors else own

    def run(self, step: Any) -> None:
        """Emit a statement, or all ordered steps, once."""
        targets = [step.target] if isinstance(step, Statement) else [t.name for t in step.outputs]
        if targets[0] in self.made:
            return
        error = self.case.instance.error
        try:
            if isinstance(step, Statement):
                self.statement(batch_statement(step, self.kinds, self.batch))
            else:
                self.steps()
        except CannotBatch as found:
            raise error(
                self.case.instance.definition.position, f"{self.case.name}: {found}, which has no "
                "form over all calls of a level", "compute it in another definition",
            ) from None  # fmt: skip

    def statement(self, statement: Statement) -> None:
        names = {read.tensor: self.name(read.tensor) for read in reads(statement.body)}
        target = self.emitter.fresh(f"{self.case.name}/{statement.target}")
        self.made[statement.target] = target
        (own,) = rename_steps((statement,), {**names, statement.target: target})
        assert isinstance(own, Statement)
        self.emitter.statement(own, self.kind(statement.target))

    def steps(self) -> None:
        group = self.group
        names = {tensor.name: self.name(tensor.name) for tensor in group.inputs}
        inputs, outputs, temporaries = (
            tuple(Tensor(t.name, self.kind(t.name)) for t in old)
            for old in (group.inputs, group.outputs, group.temporaries)
        )
        steps = batch_steps(group.steps, self.kinds, self.batch)
        made = Group(inputs, outputs, (), temporaries, steps=steps)
        self.emitter.instance(made, names, f"{self.case.name}/{{}}")
        self.made.update({tensor.name: names[tensor.name] for tensor in group.outputs})

    def name(self, tensor: str) -> str:
        """The value of a tensor of the case, or of children."""
        known = {each.offsets for each in self.batch.children.values()}
        known |= {each.owner for each in self.batch.children.values()}
        if tensor in known:
            return tensor
        if tensor not in self.made:
            step = self.steps_by_target.get(tensor)
            if step is None:
                self.made[tensor] = self.argument(tensor)
            else:
                self.run(step)
        return self.made[tensor]

    @cached_property
    def steps_by_target(self) -> dict[str, Any]:
        """The statement, or the whole group, that computes each tensor."""
        if self.group.steps:
            return {tensor.name: self.group for tensor in self.group.outputs}
        return {statement.target: statement for statement in self.group.statements}

    def argument(self, tensor: str) -> str:
        raise NotImplementedError

    def tensor(self, name: str) -> str:
        """The tensor of the group for a name of the case."""
        origins = {origin: tensor for tensor, origin in self.computed.arguments.items()}
        return self.computed.outputs.get(name) or origins[name]

    def choose(self, tensor: str, origin: str, tables: Sequence[str], sites: str, rows: str) -> str:
        """The value that each call gets from its caller: a row of the table of its site."""
        target, kind = self.emitter.fresh(f"{self.case.name}/{origin}"), self.kind(tensor)
        return self.emitter.statement(choose_rows(target, kind, tables, sites, rows), kind)

    def export(self, name: str) -> str:
        """A field of the nodes that these calls make, with an axis of calls."""
        tensor = self.tensor(name)
        held = self.name(tensor)
        if tensor in self.batch.tensors:
            return held
        return self.emitter.repeat(held, self.batch.count, f"{self.case.name}/{name}")


class Outside(Values):
    """Values over all calls of a case, outside of the loop over levels."""

    def __init__(self, recursion: Recursion, computed: Computed) -> None:
        number, layout = computed.number, recursion.layout
        emitter = recursion.emitter
        count = recursion.calls(number)
        children: dict[str, Children] = {}
        for call in layout.spread(number):
            name = computed.case.calls[call].several
            total = Size.symbol(recursion.dims["edges", number, call])
            offsets = emitter.part(
                recursion.results_of_levels["offsets", number, call], 0, count + 1
            )
            owner = emitter.part(recursion.results_of_levels["owner", number, call], 0, total)
            children.setdefault(name, Children(total, offsets, owner))
        super().__init__(recursion, computed, emitter, count, children)

    def argument(self, tensor: str) -> str:
        recursion, computed, emitter = self.recursion, self.computed, self.emitter
        origin = computed.arguments[tensor]
        number = computed.number
        if origin in computed.calls:
            call, result = computed.calls[origin]
            table = recursion.tables[computed.case.calls[call].callee, result]
            return emitter.emit(
                "gather", table, self.call_positions(call), called=f"{self.case.name}/{origin}"
            )
        if origin in self.case.fields:
            position = list(self.case.fields).index(origin)
            rows = recursion.results_of_levels["field", number, position]
            values = recursion.field_input(self.case, origin)
            rows = emitter.part(rows, 0, self.batch.count)
            return emitter.emit("gather", values, rows, called=f"{self.case.name}/{origin}")
        if origin in self.sites:
            target = emitter.fresh(f"{self.case.name}/{origin}")
            made = recursion.new.of_site(number, self.sites[origin], self.batch.count, target)
            return emitter.statement(made, self.kind(tensor))
        if origin in self.case.nodes:
            return self.node(origin, self.kind(tensor))
        if origin in self.passed:
            sites, rows = (
                emitter.part(recursion.results_of_levels[word, number], 0, self.batch.count)
                for word in ("site", "row")
            )
            tables = argument_tables(recursion, self.case, origin)
            return self.choose(tensor, origin, tables, sites, rows)
        return self.case.instance.tensors[origin]

    def node(self, origin: str, kind: TensorType) -> str:
        """The numbers of program nodes that are used as values."""
        recursion, number = self.recursion, self.computed.number
        position = list(self.case.nodes).index(origin)
        held = recursion.results_of_levels["node", number, position]
        nodes = self.emitter.part(held, 0, self.batch.count)
        place = self.case.nodes[origin]
        source = self.case.instance.held[place.parameter]
        body = recursion.new.of_source(source, place.type, Read(nodes, (Index("n"),)))
        target = self.emitter.fresh(f"{self.case.name}/{origin}")
        return self.emitter.statement(Statement(target, (Axis("n", self.batch.count),), body), kind)

    def call_positions(self, call: int) -> str:
        """The rows of the results of a call in the callee's table."""
        positions = self.recursion.results_of_levels["called", self.computed.number, call]
        return self.emitter.part(positions, 0, self.call_count(call))

    def call_count(self, call: int) -> Size:
        """The number of calls that all calls of the case make by one of its calls."""
        if not self.case.calls[call].several:
            return self.batch.count
        return Size.symbol(self.recursion.dims["edges", self.computed.number, call])


def outside_of(recursion: Recursion, case: int, passed: str = "") -> Outside:
    """The values over all calls of a case, cached; with `passed`, those that it depends on."""
    computed = recursion.computed[case]
    computed = recursion.computed_before_calls(case, passed) if passed else computed
    key = (case, "") if computed is recursion.computed[case] else (case, passed)
    if key not in recursion.outside:
        recursion.outside[key] = Outside(recursion, computed)
    return recursion.outside[key]


def argument_tables(recursion: Recursion, case: Case, parameter: str) -> list[str]:
    """The table of a parameter's values at each call site."""
    definition = recursion.instances.index(case.instance)
    return [
        recursion.arguments[site, call, parameter]
        for site, call in recursion.layout.sites(definition)
    ]


def choose_rows(
    target: str, kind: TensorType, tables: Sequence[str], sites: str, rows: str
) -> Statement:
    """For each call, its row in the table of its call site."""
    axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(kind.shape))
    call, *rest = (Index(axis.name) for axis in axes)
    body: Expr = identity("add", kind.dtype)
    for number, table in reversed(list(enumerate(tables))):
        read = Read(table, (Read(rows, (call,)), *rest), default=identity("add", kind.dtype))
        here = Apply("equal", (Read(sites, (call,)), SizeTerm(as_size(number))))
        body = Apply("select", (here, read, body))
    return Statement(target, axes, body)


class Cycle:
    """Emits the steps of a cycle, and the loop over its levels."""

    def __init__(self, recursion: Recursion, number: int) -> None:
        self.recursion, self.number = recursion, number
        self.layout, self.emitter = recursion.layout, recursion.emitter
        self.numbers = recursion.cycles[number]
        self.instances = [recursion.instances[each] for each in self.numbers]
        self.loop = self.layout.in_loop(number)

    def run(self) -> None:
        recursion = self.recursion
        before: dict[tuple[Key, int], list[str]] = {}
        for definition, instance in zip(self.numbers, self.instances):
            kinds = recursion.results[instance.key]
            for case in self.layout.before_loop(definition):
                values = outside_of(recursion, case)
                for step in _steps(values.group):
                    values.run(step)
                for position, site in enumerate(values.case.sites):
                    for field, name in enumerate(site.arguments):
                        recursion.exports[case, position, field] = values.export(name)
                for result, tensor in enumerate(values.group.outputs[: len(kinds)]):
                    held = self.emitter.convert(values.name(tensor.name), kinds[result])
                    before.setdefault((instance.key, result), []).append(held)
        if self.loop:
            _Loop(self, before).run()
            return
        for key, values_before in before.items():
            recursion.tables[key] = self.emitter.concatenate(values_before)

    def calls_own(self, call_key: Key) -> bool:
        """Whether a callee is in this cycle."""
        return any(instance.key == call_key for instance in self.instances)


def _steps(group: Group) -> Sequence[Any]:
    return [group] if group.steps else group.statements


class _Loop:
    """The loop over the levels of a cycle."""

    def __init__(self, cycle: Cycle, before: Mapping[tuple[Key, int], list[str]]) -> None:
        self.cycle, self.before = cycle, before
        self.recursion, self.layout = cycle.recursion, cycle.layout
        self.outer = cycle.emitter
        self.computed = [self.recursion.computed[number] for number in cycle.loop]
        self.keys = [
            (instance, result)
            for instance in cycle.instances
            for result in range(len(self.recursion.results[instance.key]))
        ]
        self.depending: dict[int, set[str]] = {}  # by case: tensors that depend on the loop
        self.exports: dict[tuple[int, int, int], tuple[str, Scan, TensorType]] = {}

    def run(self) -> None:
        recursion, outer, number = self.recursion, self.outer, self.cycle.number
        levels = Size.symbol(recursion.dims["levels", number])
        table = outer.part(recursion.results_of_levels["table", number], 0, levels)
        outside = [outside_of(recursion, each.number) for each in self.computed]
        for values in outside:
            self.hoist(values)
        self.counter = recursion.free(f"{recursion.definition.name}.level")
        self.inner = BodyEmitter(self.box(levels), outer)
        self.histories()
        self.find(table)
        parts: dict[tuple[Key, int], list[str]] = {}
        for values in outside:
            inside = _Inside(self, values)
            for step in _steps(inside.group):
                if not self.is_outside(values, step):
                    inside.run(step)
            key = values.case.instance.key
            self.export(values, inside)
            outputs = inside.group.outputs[: len(recursion.results[key])]
            for result, tensor in enumerate(outputs):
                kind = recursion.results[key][result]
                held = self.inner.convert(inside.name(tensor.name), kind)
                parts.setdefault((key, result), []).append(held)
        self.emit(parts, levels)

    def export(self, values: Outside, inside: _Inside) -> None:
        """Fields of new nodes: those that depend on calls in the cycle are results of the loop."""
        case = values.computed.number
        for position, site in enumerate(values.case.sites):
            for field, name in enumerate(site.arguments):
                key = case, position, field
                if values.tensor(name) not in self.depending[case]:
                    self.recursion.exports[key] = values.export(name)
                    continue
                held = self.inner.emit("identity", inside.export(name))
                kind = self.inner.types[held]
                whole = self.recursion.calls(case)
                scan = Scan(self.column(case, FIRST), whole, joined=True)
                self.exports[key] = held, scan, TensorType(kind.dtype, (whole, *kind.shape[1:]))

    def is_outside(self, values: Outside, step: Any) -> bool:
        """Whether a step has been emitted outside of the loop."""
        targets = [step.target] if isinstance(step, Statement) else [t.name for t in step.outputs]
        return targets[0] in values.made

    def hoist(self, values: Outside) -> None:
        """Hoist what does not depend on calls in the cycle out of the loop."""
        computed = values.computed
        inner = {
            tensor for tensor, origin in computed.arguments.items()
            if origin in computed.calls
            and self.cycle.calls_own(computed.case.calls[computed.calls[origin][0]].callee)
        }  # fmt: skip
        for step in _steps(values.group):
            if isinstance(step, Statement):
                depends = any(read.tensor in inner for read in reads(step.body))
                targets = {step.target}
            else:
                depends = any(tensor.name in inner for tensor in step.inputs)
                targets = {t.name for t in step.outputs}
            if depends:
                inner |= targets
            else:
                values.run(step)
        self.depending[computed.number] = inner

    # ---- the body ------------------------------------------------------------------------------

    def box(self, levels: Size) -> Box:
        """The dims of a level, with their bounds."""
        recursion, layout, number = self.recursion, self.layout, self.cycle.number
        columns, calls, width = layout.columns(number)
        self.columns = [""] * width
        constraints = [levels - Size.symbol(self.counter) - 1]
        for case, column in columns.items():
            name = recursion.cases[case].name
            for offset, word in ((AT, "at"), (FIRST, "first"), (COUNT, "count")):
                self.columns[column + offset] = recursion.free(f"{name}.{word}")
            constraints += self.within(("calls", case), ("widest", case), column + FIRST)
        for (case, call), column in calls.items():
            name = f"{recursion.cases[case].name}.children"
            name = name if len(layout.spread(case)) == 1 else f"{name}.{call}"
            for offset, word in ((EDGE, "first"), (EDGES, "count")):
                self.columns[column + offset] = recursion.free(f"{name}.{word}")
            constraints += self.within(("edges", case, call), ("widest", case, call), column + EDGE)
        dims = [Dim(self.counter), *map(Dim, self.columns)]
        return self.outer.box.also(*dims).also(constraints=tuple(constraints))

    def within(self, whole: tuple[Any, ...], widest: tuple[Any, ...], column: int) -> list[Size]:
        """Constraints on the offset and size of a level: within the total, at most the widest."""
        dims = self.recursion.dims
        first, count = (Size.symbol(name) for name in self.columns[column : column + 2])
        total, most = (Size.symbol(dims[each]) for each in (whole, widest))
        return [total - first - count, total - first, most - count]

    def column(self, case: int, offset: int) -> Size:
        """A size of a case in a level."""
        first = self.layout.columns(self.cycle.number)[0][case]
        return Size.symbol(self.columns[first + offset])

    def edges(self, case: int, call: int, offset: int) -> Size:
        first = self.layout.columns(self.cycle.number)[1][case, call]
        return Size.symbol(self.columns[first + offset])

    def histories(self) -> None:
        """Declare the tables of results so far."""
        recursion = self.recursion
        self.history: dict[tuple[Key, int], str] = {}
        for instance, result in self.keys:
            kind = recursion.results[instance.key][result]
            name = self.inner.fresh(
                f"{instance.definition.name}.{instance.definition.results[result]}.table"
            )
            shape = (recursion.total(instance), *kind.shape)
            self.inner.types[name] = TensorType(kind.dtype, shape)
            self.history[instance.key, result] = name

    def find(self, table: str) -> None:
        """Bind the dims of a level from its row in the table."""
        region = Sizes(tuple(self.columns), Size.symbol(self.counter))
        self.inner.region(region, (self.inner.capture(table),))

    def emit(self, parts: Mapping[tuple[Key, int], list[str]], levels: Size) -> None:
        """Emit the loop."""
        recursion, outer, inner = self.recursion, self.outer, self.inner
        results, scans, initials, kinds = [], [], [], []
        for instance, result in self.keys:
            key = instance.key, result
            kind, total = recursion.results[instance.key][result], recursion.total(instance)
            held = inner.concatenate(parts[key])
            if held not in {name for node in inner.nodes for name in node.outputs}:
                held = inner.emit("identity", held)
            results.append(held)
            case = next(each.number for each in self.computed if each.case.instance is instance)
            kinds.append(TensorType(kind.dtype, (total, *kind.shape)))
            scans.append(Scan(self.column(case, AT), total, True, bool(self.before.get(key)), True))
            if self.before.get(key):
                initials.append(self.initial(key, instance, kind))
        for made, scan, kind in self.exports.values():
            results.append(made)
            scans.append(scan)
            kinds.append(kind)
        name, histories = f"{recursion.definition.name}.levels", self.history.values()
        region = inner.loop(name, self.counter, levels, histories, results, scans)
        names = [outer.fresh(self.history[i.key, r]) for i, r in self.keys]
        names += [
            outer.fresh(f"{recursion.cases[case].name}.made{site}.{number}")
            for case, site, number in self.exports
        ]
        outer.region(region, (*initials, *inner.given), names, kinds)
        for (instance, result), name in zip(self.keys, names):
            recursion.tables[instance.key, result] = name
        recursion.exports.update(zip(self.exports, names[len(self.keys) :]))

    def initial(self, key: tuple[Key, int], instance: Instance, kind: TensorType) -> str:
        """The initial table: results of cases without calls in the cycle, then zeros."""
        numbers = [each.number for each in self.computed if each.case.instance is instance]
        rest = sum((self.recursion.calls(number) for number in numbers), as_size(0))
        zero = self.outer.emit(
            "fill", shape=(rest, *kind.shape), value=0.0, dtype=kind.dtype, called="rest"
        )
        return self.outer.concatenate([*self.before[key], zero])


class _Inside(Values):
    """Values over the calls of a level."""

    def __init__(self, loop: _Loop, outside: Outside) -> None:
        self.loop, self.outside = loop, outside
        case = outside.computed.number
        self.first, count = loop.column(case, FIRST), loop.column(case, COUNT)
        children = {}
        for call in loop.layout.spread(case):
            name = outside.case.calls[call].several
            if name in children:
                continue
            whole = outside.batch.children[name]
            first, edges = loop.edges(case, call, EDGE), loop.edges(case, call, EDGES)
            offsets = loop.inner.part(loop.inner.capture(whole.offsets), self.first, count + 1)
            owner = loop.inner.part(loop.inner.capture(whole.owner), first, edges)
            children[name] = Children(
                edges, loop.inner.subtract(offsets, first, "offsets"),
                loop.inner.subtract(owner, self.first, "owner"),
            )  # fmt: skip
        super().__init__(loop.recursion, outside.computed, loop.inner, count, children)

    def argument(self, tensor: str) -> str:
        loop, computed = self.loop, self.computed
        origin = computed.arguments.get(tensor, "")
        if origin in computed.calls:
            call, result = computed.calls[origin]
            callee = self.case.calls[call].callee
            if loop.cycle.calls_own(callee):
                positions = self.part(self.outside.call_positions(call), call)
                table = loop.history[callee, result]
                return self.emitter.emit(
                    "gather", table, positions, called=f"{self.case.name}/{origin}"
                )
        value = self.outside.name(tensor)
        if tensor not in self.batch.tensors:
            return loop.inner.capture(value)
        name = self.batch.children_size(self.kinds[tensor].shape)
        if not name:
            return self.emitter.part(loop.inner.capture(value), self.first, self.batch.count)
        calls = loop.layout.spread(computed.number)
        own = next(each for each in calls if self.case.calls[each].several == name)
        first = loop.edges(computed.number, own, EDGE)
        return self.emitter.part(loop.inner.capture(value), first, self.batch.children[name].total)

    def part(self, value: str, call: int) -> str:
        """The part of a vector over all calls that belongs to the level."""
        number = self.computed.number
        if not self.case.calls[call].several:
            return self.emitter.part(self.loop.inner.capture(value), self.first, self.batch.count)
        first, count = (self.loop.edges(number, call, each) for each in (EDGE, EDGES))
        return self.emitter.part(self.loop.inner.capture(value), first, count)
