"""Makes the graph over rows: nodes over all rows or tokens, and loops over rows between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from anydim.base.dtypes import int64
from anydim.base.errors import ModelError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.dims import symbols_of
from anydim.compiler.graph.nodes import FUSED, Constant, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import (
    LOOP,
    PART,
    REGION,
    SIZES,
    LoopRegion,
    PartRegion,
    Scan,
    Sizes,
)
from anydim.compiler.passes.flow import unique_name
from anydim.compiler.passes.ragged.groups import over, over_tokens, with_values
from anydim.compiler.passes.ragged.placement import INSIDE, ROW, SHARED, TOKEN, Placement
from anydim.lang.tree import TensorType
from anydim.runtime.lists import RaggedPort, RowTable
from anydim.sizes import Box, Dim, Size, as_size, product


class _Graph:
    """A graph that is being made: types are inferred."""

    def __init__(self, box: Box, names: Callable[[str], str]) -> None:
        self.box, self.fresh = box, names
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []

    def node(self, node: Node, kinds: Iterable[TensorType]) -> None:
        self.nodes.append(node)
        self.types.update(zip(node.outputs, kinds))

    def emit(self, operator_name: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one result; returns the result."""
        name = name or self.fresh(operator_name)
        given = [self.types[each] for each in inputs]
        kinds = operator(operator_name).infer(given, FrozenMapping(attributes), self.box)
        self.node(Node(operator_name, inputs, (name,), FrozenMapping(attributes), "rows"), kinds)
        return name


class RowGraph:
    """Emits the graph of ragged rows."""

    def __init__(self, work: Placement) -> None:
        self.work, self.one, self.whole = work, work.one, work.graph
        box = self.whole.box
        own = work.ragged
        kept = [dim for dim in box.dims if dim.name not in own]
        outer = tuple(c for c in box.constraints if not c.symbols & own)
        self.inner_constraints = tuple(
            c.substitute({work.rows: 1}) for c in box.constraints if c.symbols & own
        )
        self.outer = _Graph(Box(tuple(kept), outer), work.name)
        self.inputs: list[str] = []
        self.ports: dict[str, RaggedPort] = {}
        self.made: dict[str, str] = {}  # value -> its name outside
        self.guards_left = [g for g in self.one.guards if symbols_of(g) & own]

    def run(self) -> Graph:
        work, outer = self.work, self.outer
        self.table, self.sums = work.name("rows"), work.name("sums")
        self._units()
        self._inputs()
        self._sizes()
        self.outer_numbers = self._outer_numbers()
        stages = [s for names in (work.within, self._outer_stages()) for s in names]
        for stage in range(max(stages, default=0) + 1):
            if stage % 2:
                self._loop(stage)
            else:
                self._outer_nodes(stage)
        outputs = [self._output(name) for name in self.whole.outputs]
        guards = tuple(g for g in self.whole.guards if not symbols_of(g) & work.ragged)
        made = Graph(
            self.whole.name, outer.box, FrozenMapping(outer.types), tuple(self.inputs),
            tuple(outputs), FrozenMapping(outer.constants), tuple(outer.nodes), guards,
            FrozenMapping(self.ports),
        )  # fmt: skip
        return made.pruned()

    def _outer_stages(self) -> set[int]:
        work = self.work
        return {work.stage[name] for name in work.outside if name in work.stage}

    # ---- sizes of rows -------------------------------------------------------------------------

    def _units(self) -> None:
        """Declare a total for each unit that values outside are counted in."""
        work = self.work
        crossing = {n for names in work.exports.values() for n in names} | work.outside
        for name in (*self.one.inputs, *self.one.outputs, *sorted(crossing)):
            form = work.form(name)
            if form.kind in (TOKEN, "block") and form.unit not in work.totals:
                stem = str(form.unit) if form.unit in map(Size.symbol, work.dims) else "rows"
                work.totals[form.unit] = work.name(f"{stem}.total")
                work.starts[form.unit] = work.name(f"{stem}.start")
        dims = [Dim(name) for name in work.totals.values()]
        dims += [self.whole.box.dim(name).named(work.longest[name]) for name in work.dims]
        self.outer.box = self.outer.box.also(*dims)
        given = {work.form(name).unit for name in self.one.inputs if name not in work.masks}
        self.row_table = RowTable(
            self.table, self.sums, tuple(self.whole.box.dim(name) for name in work.dims),
            tuple(work.longest.values()), tuple(work.totals), tuple(work.totals.values()),
            tuple(total for unit, total in work.totals.items() if unit not in given),
        )  # fmt: skip

    def _inputs(self) -> None:
        """Declare inputs: ragged ones by all their rows."""
        work, outer = self.work, self.outer
        for name in self.one.inputs:
            kind, form = self.one.types[name], work.form(name)
            row = self.work.row_shape(name)
            if name in work.masks:
                counted = kind.shape[form.axis] if form.kind == TOKEN else product(kind.shape)
                self.ports[name] = self._port(name, row, counted, form.kind != TOKEN, ones=True)
                continue
            if form.kind in (SHARED, ROW):
                self.inputs.append(name)
                outer.types[name] = self.whole.types[name]
                self.made[name] = name
                continue
            total = Size.symbol(work.totals[form.unit]) * form.count
            self.inputs.append(name)
            if form.kind == TOKEN:
                outer.types[name] = TensorType(kind.dtype, (total, *row[1:]))
                shape = (*kind.shape[: form.axis], total, *kind.shape[form.axis + 1 :])
                self.made[name] = outer.emit("reshape", name, shape=shape)
                self.ports[name] = self._port(name, row, kind.shape[form.axis], False)
            else:
                outer.types[name] = TensorType(kind.dtype, (total,))
                self.made[name] = name
                self.ports[name] = self._port(name, row, product(kind.shape), True)

    def _port(
        self, name: str, shape: tuple[Size, ...], counted: Size, flat: bool, ones: bool = False
    ) -> RaggedPort:
        return RaggedPort(name, self.row_table, shape, counted, flat, ones)

    def _sizes(self) -> None:
        """Declare the inputs that describe rows, and find the dims in them."""
        work, outer, table = self.work, self.outer, self.row_table
        columns = as_size(len(table.units) + len(table.dims))
        outer.types[self.table] = TensorType(int64, (work.batch, columns))
        found = (*table.summed, *table.longest)
        outer.types[self.sums] = TensorType(int64, (as_size(len(found)),))
        self.inputs += [self.table, self.sums]
        region = FrozenMapping({REGION: Sizes(found)})
        outer.node(Node(SIZES, (self.sums,), (), region, "rows"), ())

    # ---- nodes outside -------------------------------------------------------------------------

    def _outer_numbers(self) -> dict[int, list[int]]:
        """The numbers of the nodes outside, by their stage."""
        work, numbers = self.work, dict[int, list[int]]()
        for number, node in enumerate(self.one.nodes):
            found = bool(self.one.origins.found[number])
            needed = found or any(name in work.outside for name in node.outputs)
            if needed and work.kinds[number] != INSIDE:
                stage = 0 if found else work.stage[node.outputs[0]]
                numbers.setdefault(stage, []).append(number)
        return numbers

    def _outer_nodes(self, stage: int) -> None:
        work, outer = self.work, self.outer
        for number in self.outer_numbers.get(stage, ()):
            node, kind = self.one.nodes[number], work.kinds[number]
            given = tuple(None if n is None else self.outside(n) for n in node.inputs)
            if kind == TOKEN:
                unit = next(work.form(n).unit for n in node.outputs if work.form(n).kind == TOKEN)
                total = Size.symbol(work.totals[unit])
                made = with_values(over_tokens(node, unit, total, work.ragged), given, node.outputs)
                kinds = self._kinds(made)
            else:
                made = with_values(self.whole.nodes[number], given, node.outputs)
                kinds = tuple(self.whole.types[n] for n in node.outputs)
            names = tuple(self._own_name(n) for n in node.outputs)
            outer.node(with_values(made, made.inputs, names), kinds)
            self.made.update(zip(node.outputs, names))

    def _kinds(self, node: Node) -> tuple[TensorType, ...]:
        """The types of a node's results."""
        if node.operator == FUSED:
            return tuple(tensor.type for tensor in node.group.outputs)
        given = [self.outer.types[name] for name in node.given]
        return operator(node.operator).infer(given, node.attributes, self.outer.box)

    def _own_name(self, name: str) -> str:
        return name if name not in self.outer.types else self.work.name(name)

    def outside(self, name: str) -> str:
        """The name outside of a value of the graph of one row."""
        if name in self.made:
            return self.made[name]
        if name in self.one.constants:
            self.outer.types[name] = self.one.types[name]
            self.outer.constants[name] = self.one.constants[name]
            self.made[name] = name
            return name
        if name in self.work.masks:
            form = self.work.form(name)
            total = Size.symbol(self.work.totals[form.unit])
            kind = self.one.types[name]
            shape = tuple(over(s, form.unit, total, self.work.ragged) for s in kind.shape)
            self.made[name] = self.outer.emit(
                "fill", name=self._own_name(name), shape=shape, value=1.0, dtype=kind.dtype
            )
            return self.made[name]
        raise AssertionError(name)

    # ---- loops over rows -----------------------------------------------------------------------

    def _loop(self, stage: int) -> None:
        exports = list(dict.fromkeys(self.work.exports.get(stage, ())))
        if exports:
            _Body(self, stage, exports).emit()

    # ---- results -------------------------------------------------------------------------------

    def _output(self, name: str) -> str:
        work, outer = self.work, self.outer
        form, held = work.form(name), self.outside(name)
        kind = self.one.types[name]
        if form.kind == TOKEN:
            total = Size.symbol(work.totals[form.unit]) * form.count
            made = outer.emit("reshape", held, shape=(total, *work.row_shape(name)[1:]))
            self.ports[name] = self._port(name, work.row_shape(name), kind.shape[form.axis], False)
        elif form.kind == "block":
            made = held
            self.ports[name] = self._port(name, work.row_shape(name), product(kind.shape), True)
        else:
            made = held
        if made == name:
            return name
        if name in outer.types:  # the name of the value outside, which is another one
            self._rename(name)
            made = self.made.get(name, made) if made == name else made
        return outer.emit("identity", made, name=name)

    def _rename(self, name: str) -> None:
        """Free the name of a value outside for a result."""
        outer, other = self.outer, self.work.name(f"{name}.rows")
        outer.types[other] = outer.types.pop(name)
        outer.nodes = [
            with_values(
                node, [other if n == name else n for n in node.inputs],
                [other if n == name else n for n in node.outputs],
            )
            for node in outer.nodes
        ]  # fmt: skip
        if name in outer.constants:
            outer.constants[other] = outer.constants.pop(name)
        if name in self.inputs:
            raise ModelError(f"ragged: '{name}' is an input and a result")


class _Body:
    """A loop over rows."""

    def __init__(self, emit: RowGraph, stage: int, exports: list[str]) -> None:
        self.emit_, self.work, self.one = emit, emit.work, emit.one
        self.stage, self.exports = stage, exports
        work, outer = self.work, emit.outer
        self.counter = work.counter
        ragged = [emit.whole.box.dim(name) for name in work.dims]
        starts = [Dim(name) for name in work.starts.values()]
        box = outer.box.also(Dim(self.counter), *ragged, *starts)
        ends = [
            Size.symbol(work.totals[unit]) - Size.symbol(start) - unit
            for unit, start in work.starts.items()
        ]
        ends += [  # `region_plan.py` counts memory with them
            Size.symbol(work.totals[unit]) - Size.symbol(start)
            for unit, start in work.starts.items()
        ]
        ends += [Size.symbol(most) - Size.symbol(name) for name, most in work.longest.items()]
        ends.append(work.batch - Size.symbol(self.counter) - 1)
        box = box.also(constraints=(*emit.inner_constraints, *ends))
        self.body = _Graph(box, partial(self._fresh))
        self.names: set[str] = set(self.one.types)
        self.given: list[str] = []  # names outside
        self.inputs: list[str] = []
        self.made: dict[str, str] = {}
        self.histories = {  # inputs that all rows update, in the order of their results
            work.updates[name]: self._fresh(name) for name in exports if name in work.updates
        }
        for name, own in self.histories.items():
            self.body.types[own] = outer.types[emit.outside(name)]

    def _fresh(self, stem: str) -> str:
        name = unique_name(stem, self.names)
        self.names.add(name)
        return name

    def capture(self, name: str) -> str:
        """The name inside of a value outside."""
        if name in self.given:
            return self.inputs[self.given.index(name)]
        own = self._fresh(name)
        self.given.append(name)
        self.inputs.append(own)
        self.body.types[own] = self.emit_.outer.types[name]
        return own

    def emit(self) -> None:
        body, work, emit = self.body, self.work, self.emit_
        table = self.capture(emit.table)
        found = Sizes((*work.starts.values(), *work.dims), Size.symbol(self.counter))
        body.node(Node(SIZES, (table,), (), FrozenMapping({REGION: found}), "rows"), ())
        wanted = work.within[self.stage]
        for number in sorted({work.where[name] for name in wanted if name in work.where}):
            node = self.one.nodes[number]
            if not any(n in wanted and work.inner(n, self.stage) for n in node.outputs):
                continue
            given = tuple(None if n is None else self.value(n) for n in node.inputs)
            kinds = [self.one.types[name] for name in node.outputs]
            body.node(with_values(node, given, node.outputs), kinds)
            self.made.update(zip(node.outputs, node.outputs))
        results, scans, kinds = self.results()
        guards = tuple(g for g in self.one.guards if symbols_of(g) & work.ragged)
        initials = map(emit.outside, self.histories)
        inside = Graph(
            f"{emit.whole.name}.rows", body.box, FrozenMapping(body.types),
            (*self.histories.values(), *self.inputs), tuple(results), FrozenMapping(body.constants),
            tuple(body.nodes), guards,
        )  # fmt: skip
        region = FrozenMapping({
            REGION: LoopRegion(inside, self.counter, work.batch, False, 0, scans)
        })  # fmt: skip
        names = [work.name(f"{name}.all") for name in self.exports]
        emit.outer.node(Node(LOOP, (*initials, *self.given), tuple(names), region, "rows"), kinds)
        for name, stacked in zip(self.exports, names):
            emit.made[name] = self.outside(name, stacked)

    def value(self, name: str) -> str:
        """The name inside of a value of the graph of one row."""
        if name in self.made:
            return self.made[name]
        body, one, work = self.body, self.one, self.work
        if name in one.constants:
            body.types[name], body.constants[name] = one.types[name], one.constants[name]
            made = name
        elif name in work.masks:
            kind = one.types[name]
            made = body.emit("fill", name=name, shape=kind.shape, value=1.0, dtype=kind.dtype)
        else:
            made = self.imported(name)
        self.made[name] = made
        return made

    def imported(self, name: str) -> str:
        """The part of a value outside that belongs to the row."""
        work, body = self.work, self.body
        form = work.form(name)
        if name in self.histories:
            first = Size.symbol(work.starts[form.unit]) * form.count
            return self.part(self.histories[name], first, self.one.types[name])
        held = self.capture(self.emit_.outside(name))
        if form.kind == SHARED:
            return held
        if form.kind == ROW:
            first = Size.symbol(self.counter) * form.count
            return body.emit(
                "slice", held, starts=(first,), ends=(first + form.count,), axes=(form.axis,)
            )
        first = Size.symbol(work.starts[form.unit]) * form.count
        last = first + form.unit * form.count
        axis = form.axis if form.kind == TOKEN else 0
        part = body.emit("slice", held, starts=(first,), ends=(last,), axes=(axis,))
        if form.kind == TOKEN:
            return part
        return body.emit("reshape", part, shape=self.one.types[name].shape)

    def part(self, held: str, first: Size, kind: TensorType) -> str:
        """Elements of a value from `first` on, in the same memory."""
        made = self._fresh(f"{held}.part")
        region = FrozenMapping({REGION: PartRegion(first)})
        self.body.node(Node(PART, (held,), (made,), region, "rows"), (kind,))
        return made

    def results(self) -> tuple[list[str], tuple[Scan, ...], list[TensorType]]:
        """The results of the body, how they are stored, and the types of all rows."""
        results, scans, kinds = [], [], []
        work, body = self.work, self.body
        for name in self.exports:
            form, kind = work.form(name), self.one.types[name]
            held = self.value(name)
            if form.kind not in (TOKEN, "block"):
                results.append(body.emit("identity", held))
                scans.append(Scan(Size.symbol(self.counter), work.batch))
                kinds.append(TensorType(kind.dtype, (work.batch, *kind.shape)))
                continue
            total = Size.symbol(work.totals[form.unit]) * form.count
            first = Size.symbol(work.starts[form.unit]) * form.count
            if form.kind == TOKEN:
                rest = (*kind.shape[: form.axis], *kind.shape[form.axis + 1 :])
                if product(kind.shape[: form.axis]).constant != 1:
                    axes = range(len(kind.shape))
                    perm = (form.axis, *(axis for axis in axes if axis != form.axis))
                    held = body.emit("transpose", held, perm=perm)
                shape = (kind.shape[form.axis], *rest)
            else:
                rest, shape = (), (product(kind.shape),)
            updates = name in work.updates
            if updates:
                results.append(self.part(held, as_size(0), TensorType(kind.dtype, shape)))
            else:
                results.append(body.emit("reshape", held, shape=shape))
            scans.append(Scan(first, total, history=updates, initial=updates, joined=True))
            kinds.append(TensorType(kind.dtype, (total, *rest)))
        return results, tuple(scans), kinds

    def outside(self, name: str, stacked: str) -> str:
        """Emit the outer form of a stacked result."""
        work, outer = self.work, self.emit_.outer
        form, kind = work.form(name), self.one.types[name]
        if form.kind == "block":
            return stacked
        if form.kind == TOKEN:
            before = kind.shape[: form.axis]
            total = Size.symbol(work.totals[form.unit]) * form.count
            if product(before).constant == 1:
                return outer.emit(
                    "reshape", stacked, shape=(*before, total, *kind.shape[form.axis + 1 :])
                )
            perm = (*range(1, form.axis + 1), 0, *range(form.axis + 1, len(kind.shape)))
            return outer.emit("transpose", stacked, perm=perm)
        if form.kind == ROW:
            if form.axis:
                rank = len(kind.shape)
                perm = (*range(1, form.axis + 1), 0, *range(form.axis + 1, rank + 1))
                stacked = outer.emit("transpose", stacked, perm=perm)
            return outer.emit("reshape", stacked, shape=self.emit_.whole.types[name].shape)
        raise ModelError(
            f"ragged: '{name}' of '{self.emit_.whole.name}' differs between rows, "
            f"and has no axis '{work.rows}'"
        )
