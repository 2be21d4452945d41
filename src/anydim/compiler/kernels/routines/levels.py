"""Numbers the calls of a recursion over structures level by level.

A call is a definition applied to structures. Calls whose definition may call itself have a level:
one more than the highest level of such calls that they make. All calls of a level and a case can be
computed at once, after those of lower levels. `level_plan.py` describes the plan.

Calls are visited depth first with an explicit stack: a call is open until all calls that it makes
have levels, so a call of an open one is a cycle. Then calls are sorted by level and case, by
counting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anydim.base.dtypes import boolean, int64
from anydim.base.errors import GraphError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import constant
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.level_plan import (
    AT,
    COUNT,
    CYCLE,
    DOWN,
    DOWNS,
    EDGE,
    EDGES,
    FIRST,
    NAME,
    OUTSIDE,
    SHARED,
    Bounds,
    Path,
    bounds_of,
)
from anydim.compiler.kernels.routines.level_reference import evaluate
from anydim.compiler.kernels.routines.routine import Attributes, Routine, Steps, Types
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import Box, as_size

_NEW, _OPEN = -2, -1  # states of a call without a level
_MIX, _LOW = 0x9E3779B1, (1 << 31) - 1  # of hashes


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    for number, kind in enumerate(types):
        if kind.dtype != int64 or kind.rank != 1:
            raise GraphError(
                f"operator '{NAME}': input {number} is {kind}, not int64 with one axis"
            )
    bounds = bounds_of(types, attributes)
    return tuple(TensorType(int64, bounds.shape(result)) for result in bounds.layout.results())


# ---- native code -------------------------------------------------------------------------------


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    bounds = bounds_of(types, attributes)
    code = Code(NAME, machine, box)
    with code.range(code.start, code.stop):
        _Kernel(code, bounds, len(types)).run()
    launch = code.launch(1, bounds.all * 8, reason="calls in the order of a recursion")
    return Steps((launch,), tuple(_temporaries(bounds)))


def _temporaries(bounds: Bounds) -> Iterator[Tensor]:
    """By call: its level, case, number within its case and position; calls in order; the calls
    that wait; structures; by call that gets values: its depth, its caller, the number of the call
    in the caller's case, the number within its case by depth, and the calls that it makes."""
    layout = bounds.layout
    definitions = range(len(layout.plan["definitions"]))
    several = list(filter(bounds.several, definitions))
    names = ["level", "case", "index", "position", "order"]
    if several:
        most = max(len(layout.plan["definitions"][number]["types"]) for number in several)
        names += [f"node{n}" for n in range(most)]
        yield Tensor("slots", TensorType(int64, (bounds.slots,)))
    if any(map(layout.gets_values, definitions)):
        calls = max(len(case["calls"]) for case in layout.cases)
        names += ["depth", "caller", "number", "down", *(f"callee{n}" for n in range(calls))]
    for name in names:
        yield Tensor(name, TensorType(int64, (bounds.all,)))
    yield Tensor("stack", TensorType(int64, (bounds.stack,)))


class _Kernel:
    """The passes of the routine."""

    def __init__(self, code: Code, bounds: Bounds, inputs: int) -> None:
        self.code, self.bounds, self.layout = code, bounds, bounds.layout
        self.plan = bounds.layout.plan
        self.inputs = [code.input(f"x{number}", int64) for number in range(inputs)]
        self.results = {
            result: code.output(f"y{number}", int64)
            for number, result in enumerate(self.layout.results())
        }
        self.own = {t.name: code.output(t.name, int64) for t in _temporaries(bounds)}
        self.roots = [self.inputs[number] for number in self.plan["roots"]]
        self.starts = [code.size(bounds.base(n)) for n in range(len(self.plan["definitions"]))]
        self.fault = code.variable(0)
        self.highest = {
            cycle: code.variable(self.plan["cycles"][cycle]["first"] - 1)
            for cycle in self.layout.loops
        }
        self.count = code.variable(0)  # of calls in order
        self.several = [bounds.several(n) for n in range(len(self.plan["definitions"]))]
        self.known = {n: code.variable(0) for n, each in enumerate(self.several) if each}
        self.passed = [self.layout.gets_values(n) for n in range(len(self.several))]
        self.deepest = {cycle: code.variable(-1) for cycle in self.layout.downs}
        self.waiting = code.variable(0)

    def run(self) -> None:
        code, sizes = self.code, self.results["sizes",]
        with code.range(0, code.size(self.bounds.all)) as call:
            self.own["level"][call] = _NEW
        if self.known:
            with code.range(0, code.size(self.bounds.slots)) as slot:
                self.own["slots"][slot] = 0
        with code.range(0, code.size(self.bounds.roots)) as row:
            self._root(row)
        for number in range(len(self.layout.sizes())):
            sizes[number] = 0
        with code.when(self.fault().equals(0)):
            self._number()
        sizes[0] = self.fault()

    # ---- structures ----------------------------------------------------------------------------

    def base(self, kind: int, constructor: int) -> ir.Value:
        """The first node of a constructor."""
        first = self.plan["types"][kind][0]
        counts = self.bounds.counts[first : first + constructor]
        return self.code.size(sum(counts, as_size(0)))

    def at(self, path: Path, nodes: Sequence[ir.Value]) -> ir.Value:
        """The node at a path."""
        node = nodes[path[0]]
        for field, (kind, constructor) in path[1:]:
            node = self.inputs[field][node - self.base(kind, constructor)]
        return node

    def nodes_of(self, call: ir.Value, definition: int) -> list[ir.Value]:
        """The structures of a call."""
        if not self.several[definition]:
            return [self.code.let(call - self.starts[definition])]
        count = len(self.plan["definitions"][definition]["types"])
        return [self.own[f"node{n}"][call] for n in range(count)]

    def call_of(self, definition: int, nodes: Sequence[ir.Value], adds: bool = False) -> ir.Value:
        """The number of a call of structures of the right types.

        With several structures, the call is looked up in a hash table; a new one is added there if
        `adds`.
        """
        code, start = self.code, self.starts[definition]
        if not self.several[definition]:
            return code.let(start + nodes[0])
        slots, count = self.own["slots"], code.size(self.bounds.slots)
        mixed = constant(definition)
        for node in nodes:
            mixed = code.let((mixed * _MIX + node) & _LOW)
        slot, found = code.variable(mixed % count), code.variable(-1)
        looking = code.variable(1)
        with code.loop(lambda: looking().differs(0)):
            held = slots[slot()]
            with code.when(held.equals(0)):
                looking.set(0)
            with code.otherwise():
                same = (held > start) & (
                    held <= start + code.size(self.bounds.definition(definition))
                )
                for number, node in enumerate(nodes):
                    same = same & self.own[f"node{number}"][held - 1].equals(node)
                with code.when(same):
                    found.set(held - 1)
                    looking.set(0)
                with code.otherwise():
                    following = slot() + 1
                    slot.set(ir.select(following.equals(count), constant(0), following))
        if adds:
            with code.when(found() < 0):
                self._add(definition, nodes, found)
                with code.when(found() >= 0):
                    slots[slot()] = found() + 1
        return code.let(found())

    def _add(self, definition: int, nodes: Sequence[ir.Value], found: Variable) -> None:
        """Assigns a number to a new call."""
        code, known = self.code, self.known[definition]
        with code.when(known() < code.size(self.bounds.definition(definition))):
            call = code.let(self.starts[definition] + known())
            known += 1
            for number, node in enumerate(nodes):
                self.own[f"node{number}"][call] = node
            found.set(call)
        with code.otherwise():
            self.fault.set(SHARED)

    def callee(
        self, call: ir.Value, number: int, definition: int, nodes: Sequence[ir.Value],
        before: ir.Value | None,
    ) -> ir.Value:  # fmt: skip
        """The number of call `number` that `call` makes.

        Calls with offsets are numbered backwards, the last one first: `before` of them come later.
        """
        if not self.passed[definition]:
            return self.call_of(definition, nodes)
        first = self.own[f"callee{number}"][call]
        return first if before is None else self.code.let(first + before)

    def _pass(
        self, call: ir.Value, number: int, definition: int, nodes: Sequence[ir.Value],
        before: ir.Value | None, case: int,
    ) -> None:  # fmt: skip
        """Pushes a call that gets values from its caller."""
        code, own = self.code, self.own
        with code.when(self.inside(definition, nodes)):
            made = code.variable(-1)
            self._add(definition, nodes, made)
            with code.when(made() >= 0):
                if before is None:
                    own[f"callee{number}"][call] = made()
                else:
                    with code.when(before.equals(0)):
                        own[f"callee{number}"][call] = made()
                depth = constant(0)
                if self.plan["definitions"][definition]["cycle"] == self.layout.cycle_of(case):
                    depth = own["depth"][call] + 1
                own["depth"][made()] = depth
                own["caller"][made()] = call
                own["number"][made()] = number
                self._wait(made())
        with code.otherwise():
            self.fault.set(OUTSIDE)

    def decide(self, decision: Any, nodes: Sequence[ir.Value], body: Callable[[int], None]) -> None:
        """Emits a dispatch on the constructors of nodes: each case runs `body(case)`."""
        if isinstance(decision, int):
            body(decision)
            return
        code = self.code
        node, kind = code.let(self.at(decision["path"], nodes)), decision["type"]
        bounds = [self.base(kind, n) for n in range(len(decision["cases"]) + 1)]
        for inner, low, high in zip(decision["cases"], bounds, bounds[1:]):
            with code.when((node >= low) & (node < high)):
                self.decide(inner, nodes, body)
        with code.when((node < 0) | (node >= bounds[-1])):
            self.fault.set(OUTSIDE)

    def children(self, record: Mapping[str, Any], nodes: Sequence[ir.Value]) -> tuple[Any, ...]:
        """The nodes of a call with offsets: where they lie, their first and last number."""
        *before, (field, owner) = record["paths"][0]
        row = self.code.let(self.at(before, nodes) - self.base(*owner))
        offsets = self.inputs[record["offsets"]]
        return self.inputs[field], offsets[row], offsets[row + 1]

    def each_call(
        self, case: int, nodes: Sequence[ir.Value],
        body: Callable[[int, int, list[ir.Value], ir.Value | None], None],
    ) -> None:  # fmt: skip
        """Emit `body(number, definition, nodes, before)` for each call of a case, backwards.

        `before` counts the calls of one with offsets."""
        code, calls = self.code, list(enumerate(self.layout.cases[case]["calls"]))
        for number, record in reversed(calls):
            definition = record["definition"]
            if record["offsets"] is None:
                given = [code.let(self.at(path, nodes)) for path in record["paths"]]
                body(number, definition, given, None)
                continue
            values, low, high = self.children(record, nodes)
            length = self.bounds.edges(case, number)
            legal = (low >= 0) & (low <= high) & (high <= code.size(length))
            with code.when(legal), code.range(0, high - low) as position:
                body(number, definition, [values[high - 1 - position]], position)
            with code.otherwise():
                self.fault.set(OUTSIDE)

    def inside(self, definition: int, nodes: Sequence[ir.Value]) -> ir.Value:
        """Whether these are nodes of the definition's types."""
        found = constant(True, boolean)
        for kind, node in zip(self.plan["definitions"][definition]["types"], nodes):
            most = self.code.size(self.bounds.nodes(kind))
            found = found & (node >= 0) & (node < most)
        return found

    # ---- the order of calls --------------------------------------------------------------------

    def _root(self, row: ir.Value) -> None:
        code = self.code
        self._push(0, [nodes[row] for nodes in self.roots])
        with code.loop(lambda: (self.waiting() > 0) & self.fault().equals(0)):
            call = self.own["stack"][self.waiting() - 1]
            level = self.own["level"][call]
            with code.when(level >= 0):
                self.waiting += -1
            with code.otherwise():
                self._visit(call, code.let(level.equals(_NEW)))

    def _push(self, definition: int, nodes: Sequence[ir.Value]) -> None:
        """Pushes a call unless it has a level; an open one is a cycle."""
        code = self.code
        with code.when(self.inside(definition, nodes)):
            call = self.call_of(definition, nodes, adds=True)
            with code.when(call >= 0):
                level = self.own["level"][call]
                with code.when(level.equals(_OPEN)):
                    self.fault.set(CYCLE)
                with code.when(level.equals(_NEW)):
                    if self.passed[definition]:
                        self.own["depth"][call] = 0
                        self.own["caller"][call] = -1
                    self._wait(call)
        with code.otherwise():
            self.fault.set(OUTSIDE)

    def _wait(self, call: ir.Value) -> None:
        """Pushes a call; the stack overflows only if structures share nodes."""
        code = self.code
        with code.when(self.waiting() < code.size(self.bounds.stack)):
            self.own["stack"][self.waiting()] = call
            self.waiting += 1
        with code.otherwise():
            self.fault.set(SHARED)

    def _visit(self, call: ir.Value, is_new: ir.Value) -> None:
        """Opens a call and pushes those that it makes, or closes it if all of them have levels."""
        code, level = self.code, self.code.variable(0)
        for definition, record in enumerate(self.plan["definitions"]):
            end = self.starts[definition] + code.size(self.bounds.definition(definition))
            with code.when((call >= self.starts[definition]) & (call < end)):
                nodes = self.nodes_of(call, definition)

                def open_call(case: int, nodes: Sequence[ir.Value] = nodes) -> None:
                    self._open(call, case, nodes)

                def close_call(case: int, nodes: Sequence[ir.Value] = nodes) -> None:
                    self._close(call, case, nodes, level)

                with code.when(is_new):
                    self.own["level"][call] = _OPEN
                    self.decide(record["decision"], nodes, open_call)
                with code.otherwise():
                    self.decide(record["decision"], nodes, close_call)
        with code.when(~is_new):
            self.own["level"][call] = level()
            self.own["order"][self.count()] = call
            self.count += 1
            self.waiting += -1

    def _open(self, call: ir.Value, case: int, nodes: Sequence[ir.Value]) -> None:
        self.own["case"][call] = case

        def wait(
            number: int, definition: int, given: list[ir.Value], before: ir.Value | None
        ) -> None:
            if self.passed[definition]:
                self._pass(call, number, definition, given, before, case)
            else:
                self._push(definition, given)

        self.each_call(case, nodes, wait)

    def _close(self, call: ir.Value, case: int, nodes: Sequence[ir.Value], level: Variable) -> None:
        cycle = self.layout.cycle_of(case)

        def look(
            number: int, definition: int, given: list[ir.Value], before: ir.Value | None
        ) -> None:
            if self.plan["definitions"][definition]["cycle"] == cycle:
                inner = self.callee(call, number, definition, given, before)
                level.set(ir.greatest(level(), self.own["level"][inner] + 1))

        self.each_call(case, nodes, look)
        if self.layout.cases[case]["loop"]:
            highest = self.highest[cycle]
            highest.set(ir.greatest(highest(), level()))
        if case in self.layout.going_down(cycle):
            deepest = self.deepest[cycle]
            deepest.set(ir.greatest(deepest(), self.own["depth"][call]))

    # ---- numbers -------------------------------------------------------------------------------

    def _number(self) -> None:
        code, layout = self.code, self.layout
        self.levels = {
            cycle: code.let(self.highest[cycle]() - self.plan["cycles"][cycle]["first"] + 1)
            for cycle in layout.loops
        }
        for cycle in layout.loops:
            width = layout.columns(cycle)[2]
            with code.range(0, (self.levels[cycle] * width)) as at:
                self.results["table", cycle][at] = 0
        self.counts = [code.variable(0) for _ in layout.cases]
        self._each(self._count_call)
        self._places()
        self._each(self._place_call)
        for cycle in layout.downs:
            self._down(cycle)
        for case in range(len(layout.cases)):
            for call in layout.spread(case):
                self._sum_offsets(case, call)
        with code.when(self.fault().equals(0)):
            self._write()

    def _write(self) -> None:
        """The results that need the numbers of all calls."""
        code, layout = self.code, self.layout
        self._each(self._write_call)
        for cycle in layout.loops:
            self._edges(cycle)
        sizes = self.results["sizes",]
        for number, size in enumerate(layout.sizes()):
            if size[0] == "levels":
                sizes[number] = self.levels[int(size[1])]
            elif size[0] == "calls":
                sizes[number] = self.counts[int(size[1])]()
            elif size[0] == "edges":
                of_case, of_call = map(int, size[1:])
                offsets = self.results["offsets", of_case, of_call]
                sizes[number] = offsets[self.counts[of_case]()]
            elif size[0] == "depths":
                sizes[number] = self.deepest[int(size[1])]() + 1
            elif size in self.widest:
                sizes[number] = self.widest[size]()
        with code.range(0, code.size(self.bounds.roots)) as row:
            call = self.call_of(0, [nodes[row] for nodes in self.roots])
            self.results["roots",][row] = self.own["position"][call]

    def _each(self, body: Callable[[ir.Value, int], None]) -> None:
        """Emit `body(call, case)` for all calls in order."""
        code = self.code
        with code.range(0, self.count()) as at:
            call = self.own["order"][at]
            case = self.own["case"][call]
            for number in range(len(self.layout.cases)):
                with code.when(case.equals(number)):
                    body(call, number)

    def _column(self, call: ir.Value, case: int) -> tuple[Buffer, ir.Value]:
        """The table of a case's cycle, and the index of its first column in the call's level."""
        cycle = self.layout.cycle_of(case)
        columns, _, width = self.layout.columns(cycle)
        first = self.plan["cycles"][cycle]["first"]
        row = self.own["level"][call] - first
        return self.results["table", cycle], self.code.let(row * width + columns[case])

    def _count_call(self, call: ir.Value, case: int) -> None:
        if not self.layout.cases[case]["loop"]:
            self.counts[case] += 1
            return
        table, at = self._column(call, case)
        table[at + COUNT] = table[at + COUNT] + 1

    def _places(self) -> None:
        """Turns counts into first positions per case and level, and resets the counts."""
        code, layout = self.code, self.layout
        ends = [code.variable(0) for _ in self.plan["definitions"]]
        self.begins: dict[int, ir.Value] = {}
        self.widest: dict[tuple[Any, ...], Any] = {}
        for case, record in enumerate(layout.cases):
            if not record["loop"]:
                self.begins[case] = ends[record["definition"]]()
                ends[record["definition"]] += self.counts[case]()
                self.counts[case].set(0)
        for cycle in layout.loops:
            columns, _, width = layout.columns(cycle)
            table = self.results["table", cycle]
            for case in columns:
                self.widest["widest", case] = code.variable(0)
            with code.range(0, self.levels[cycle]) as level:
                for case, column in columns.items():
                    at = code.let(level * width + column)
                    end = ends[layout.cases[case]["definition"]]
                    widest = self.widest["widest", case]
                    count = table[at + COUNT]
                    table[at + AT] = end()
                    table[at + FIRST] = self.counts[case]()
                    table[at + COUNT] = 0
                    end += count
                    self.counts[case] += count
                    widest.set(ir.greatest(widest(), count))

    def _place_call(self, call: ir.Value, case: int) -> None:
        own = self.own
        if self.layout.cases[case]["loop"]:
            table, at = self._column(call, case)
            done = table[at + COUNT]
            own["index"][call] = table[at + FIRST] + done
            own["position"][call] = table[at + AT] + done
            table[at + COUNT] = done + 1
        else:
            done = self.counts[case]()
            own["index"][call] = done
            own["position"][call] = self.begins[case] + done
            self.counts[case] += 1
        spread = self.layout.spread(case)
        if spread:
            nodes, index = self._nodes(call, case), own["index"][call]
            for number in spread:
                record = self.layout.cases[case]["calls"][number]
                _, low, high = self.children(record, nodes)
                self.results["offsets", case, number][index + 1] = high - low

    def _nodes(self, call: ir.Value, case: int) -> list[ir.Value]:
        return self.nodes_of(call, self.layout.cases[case]["definition"])

    def _sum_offsets(self, case: int, call: int) -> None:
        offsets = self.results["offsets", case, call]
        offsets[0] = 0
        with self.code.range(0, self.counts[case]()) as row:
            offsets[row + 1] = offsets[row + 1] + offsets[row]
        end = offsets[self.counts[case]()]
        with self.code.when(end > self.code.size(self.bounds.edges(case, call))):
            self.fault.set(SHARED)

    def _write_call(self, call: ir.Value, case: int) -> None:
        """The calls and fields of a call."""
        code, index, nodes = self.code, self.own["index"][call], self._nodes(call, case)

        def emit_call(
            number: int, definition: int, given: list[ir.Value], before: ir.Value | None
        ) -> None:
            inner = self.callee(call, number, definition, given, before)
            position = self.own["position"][inner]
            if before is None:
                self.results["called", case, number][index] = position
                return
            end = self.results["offsets", case, number][index + 1]
            edge = code.let(end - 1 - before)
            self.results["called", case, number][edge] = position
            self.results["owner", case, number][edge] = index

        self.each_call(case, nodes, emit_call)
        for number, (path, owner) in enumerate(self.layout.cases[case]["fields"]):
            row = self.at(path, nodes) - self.base(*owner)
            self.results["field", case, number][index] = row
        for number, path in enumerate(self.layout.cases[case]["nodes"]):
            self.results["node", case, number][index] = self.at(path, nodes)
        if self.layout.gets_values(self.layout.cases[case]["definition"]):
            self._callers(call, case, index)

    def _callers(self, call: ir.Value, case: int, index: ir.Value) -> None:
        """Stores for each call its caller, and which call of the caller's case it is."""
        code, own, layout = self.code, self.own, self.layout
        caller = own["caller"][call]
        site, row = code.variable(-1), code.variable(0)
        cycle = layout.cycle_of(case)
        with code.when(caller >= 0):
            number, of = own["number"][call], own["case"][caller]
            for position, (other, own_call) in enumerate(
                layout.sites(layout.cases[case]["definition"])
            ):
                with code.when(of.equals(other) & number.equals(own_call)):
                    site.set(position)
                    same = layout.cycle_of(other) == cycle
                    row.set(own["down" if same else "index"][caller])
        self.results["site", case][index] = site()
        self.results["row", case][index] = row()
        if case in layout.going_down(cycle):
            at = own["down"][call]
            self.results["down_call", case][at] = index
            self.results["down_site", case][at] = site()
            self.results["down_row", case][at] = row()

    def _down(self, cycle: int) -> None:
        """Number the calls of each case by depth."""
        code, own, cases = self.code, self.own, self.layout.going_down(cycle)
        table, width = self.results["down", cycle], 2 * len(cases)
        depths = code.let(self.deepest[cycle]() + 1)
        with code.range(0, depths * width) as at:
            table[at] = 0
        places = {case: 2 * number for number, case in enumerate(cases)}

        def count(call: ir.Value, case: int) -> None:
            if case in places:
                at = code.let(own["depth"][call] * width + places[case] + DOWNS)
                table[at] = table[at] + 1

        def number(call: ir.Value, case: int) -> None:
            if case in places:
                at = code.let(own["depth"][call] * width + places[case])
                done = table[at + DOWNS]
                own["down"][call] = table[at + DOWN] + done
                table[at + DOWNS] = done + 1

        self._each(count)
        for case, column in places.items():
            end = code.variable(0)
            broadest = self.widest["broadest", case] = code.variable(0)
            with code.range(0, depths) as depth:
                at = code.let(depth * width + column)
                found = table[at + DOWNS]
                table[at + DOWN] = end()
                table[at + DOWNS] = 0
                end += found
                broadest.set(ir.greatest(broadest(), found))
        self._each(number)

    def _edges(self, cycle: int) -> None:
        """The edges of each level."""
        code = self.code
        columns, calls, width = self.layout.columns(cycle)
        table = self.results["table", cycle]
        for (case, call), column in calls.items():
            offsets = self.results["offsets", case, call]
            widest = self.widest["widest", case, call] = code.variable(0)
            with code.range(0, self.levels[cycle]) as level:
                row = code.let(level * width)
                first = table[row + columns[case] + FIRST]
                low = offsets[first]
                count = code.let(offsets[first + table[row + columns[case] + COUNT]] - low)
                table[row + column + EDGE] = low
                table[row + column + EDGES] = count
                widest.set(ir.greatest(widest(), count))


CALL_LEVELS = Routine((1, 1 << 16), infer, evaluate, lower)
