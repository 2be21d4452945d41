"""Numbers the calls of a recursion over structures level by level.

A call is a definition applied to a node of its first structure. It runs one of the definition's
cases, which makes calls of its own. Calls whose definition may call itself have a level: one more
than the highest level of such calls that they make. All calls of a level and a case can be computed
at once, after those of lower levels.

The nodes of a type are numbered constructor after constructor. `plan`, a JSON text, has indices of
the routine's inputs, and these records:

    types        [[first constructor, number of constructors]] of `counts`
    definitions  {"types", "decision", "cycle"}: the types of its structures; which case a call
                 runs; the number of its cycle of definitions that call each other
    cases        {"definition", "constructor", "calls", "fields", "nodes", "loop"}: the constructor of the
                 first structure, or -1 for any; whether it calls its own cycle
    cycles       {"first"}: the lowest level of a case that calls its own cycle
    roots        the inputs with the roots; the first definition is called for each of them

A node is a path: [structure, [field, constructor]...], where each step reads an input at the node's
number within its constructor. A decision is a case, or {"path", "type", "cases"}: decisions by
constructor. A call is {"definition", "paths", "offsets"}; with offsets, it calls the definition for
each node in a range of the first path's last field. A field is the node that owns it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import int64
from anydim.base.errors import GraphError
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.codegen.writer import Buffer, Variable
from anydim.kernels.ir import constant
from anydim.kernels.launch import Machine
from anydim.kernels.routines.ir_builder import Code
from anydim.kernels.routines.routine import Arrays, Attributes, Dims, Results, Routine, Steps, Types
from anydim.lang.tree import Tensor, TensorType
from anydim.sizes import Box, Size, as_size

NAME = "call_levels"
FLAGS = ("cycles", "outside", "shared")  # of faults in the data: 0, or 1
AT, FIRST, COUNT = range(3)  # columns of a case in the table of a cycle
EDGE, EDGES = range(2)  # columns of a call with offsets
_NEW, _OPEN = -2, -1  # states of a call without a level
_MIX, _LOW = 0x9E3779B1, (1 << 31) - 1  # of hashes

Path = list[Any]


@dataclass(frozen=True)
class Layout:
    """What the sizes, the tables and the results of a plan contain, in order."""

    plan: Mapping[str, Any]

    @staticmethod
    def of(attributes: Attributes) -> Layout:
        """The layout of a node's plan."""
        return Layout(json.loads(attributes["plan"]))

    @property
    def cases(self) -> list[dict[str, Any]]:
        return list(self.plan["cases"])

    def cycle_of(self, case: int) -> int:
        """The cycle of a case's definition."""
        return int(self.plan["definitions"][self.cases[case]["definition"]]["cycle"])

    def in_loop(self, cycle: int) -> list[int]:
        """The cases of a cycle that call it."""
        return [n for n, c in enumerate(self.cases) if c["loop"] and self.cycle_of(n) == cycle]

    def before_loop(self, definition: int) -> list[int]:
        """The cases of a definition that do not call its cycle."""
        cases = enumerate(self.cases)
        return [n for n, c in cases if not c["loop"] and c["definition"] == definition]

    def spread(self, case: int) -> list[int]:
        """The calls of a case that have offsets."""
        calls = enumerate(self.cases[case]["calls"])
        return [n for n, call in calls if call["offsets"] is not None]

    @property
    def loops(self) -> list[int]:
        """The cycles with a loop over levels."""
        return [n for n in range(len(self.plan["cycles"])) if self.in_loop(n)]

    def columns(self, cycle: int) -> tuple[dict[int, int], dict[tuple[int, int], int], int]:
        """The first column of each case, and of each call with offsets; the number of columns."""
        width, cases, calls = 0, {}, {}
        for case in self.in_loop(cycle):
            cases[case] = width
            width += 3
            for call in self.spread(case):
                calls[case, call] = width
                width += 2
        return cases, calls, width

    def sizes(self) -> list[tuple[str, ...]]:
        """What each element of the first result is.

        ("cycles",), ("outside",), ("shared",); ("levels", cycle); ("calls", case) and ("widest",
        case); ("edges", case, call) and ("widest", case, call).
        """
        found: list[tuple[Any, ...]] = [(flag,) for flag in FLAGS]
        found += [("levels", cycle) for cycle in self.loops]
        for case in range(len(self.cases)):
            parts = [(case,), *((case, call) for call in self.spread(case))]
            for part in parts:
                found.append(("calls" if len(part) == 1 else "edges", *part))
                if self.cases[case]["loop"]:
                    found.append(("widest", *part))
        return found

    def results(self) -> list[tuple[Any, ...]]:
        """What each result is.

        ("sizes",); ("table", cycle); ("called", case, call), and with offsets before it ("offsets",
        case, call) and after it ("owner", case, call); ("field", case, field); ("node", case, node); ("roots",).
        """
        found: list[tuple[Any, ...]] = [("sizes",), *(("table", cycle) for cycle in self.loops)]
        for number, case in enumerate(self.cases):
            for call, record in enumerate(case["calls"]):
                words = ("called",)
                if record["offsets"] is not None:
                    words = ("offsets", "called", "owner")
                found += [(word, number, call) for word in words]
            found += [("field", number, field) for field in range(len(case["fields"]))]
            found += [("node", number, node) for node in range(len(case["nodes"]))]
        return [*found, ("roots",)]


@dataclass(frozen=True)
class Bounds:
    """The largest numbers of calls, over the sizes of the inputs."""

    layout: Layout
    counts: Sequence[Size]
    types: Types

    def nodes(self, kind: int) -> Size:
        """The number of nodes of a type."""
        first, number = self.layout.plan["types"][kind]
        return sum(self.counts[first : first + number], as_size(0))

    def several(self, number: int) -> bool:
        """Whether a definition has several structures."""
        return len(self.layout.plan["definitions"][number]["types"]) > 1

    def definition(self, number: int) -> Size:
        """The number of calls of a definition.

        One with several structures is called at most once for each node of one of them by each call
        in a case, unless structures share nodes.
        """
        kinds = self.layout.plan["definitions"][number]["types"]
        if not self.several(number):
            return self.nodes(kinds[0])
        calls = [c for case in self.layout.cases for c in case["calls"] if c["definition"] == number]
        nodes = sum((self.nodes(kind) for kind in range(len(self.layout.plan["types"]))), as_size(0))
        return (self.roots + nodes) * max(1, len(calls)) + self.roots

    def case(self, number: int) -> Size:
        case = self.layout.cases[number]
        if case["constructor"] < 0 or self.several(case["definition"]):
            return self.definition(case["definition"])
        kind = self.layout.plan["definitions"][case["definition"]]["types"][0]
        return self.counts[self.layout.plan["types"][kind][0] + case["constructor"]]

    def edges(self, case: int, call: int) -> Size:
        return self.types[self.layout.cases[case]["calls"][call]["paths"][0][-1][0]].shape[0]

    @property
    def all(self) -> Size:
        """The number of all calls."""
        count = len(self.layout.plan["definitions"])
        return sum((self.definition(n) for n in range(count)), as_size(0))

    def base(self, definition: int) -> Size:
        """The number of the first call of a definition."""
        return sum((self.definition(n) for n in range(definition)), as_size(0))

    @property
    def roots(self) -> Size:
        """The number of roots."""
        return self.types[self.layout.plan["roots"][0]].shape[0]

    @property
    def slots(self) -> Size:
        """The size of the hash table of calls with several structures."""
        numbers = filter(self.several, range(len(self.layout.plan["definitions"])))
        return 2 * sum((self.definition(n) for n in numbers), as_size(0)) + 1

    @property
    def stack(self) -> Size:
        """The number of calls that wait at most."""
        total = self.roots
        for number, case in enumerate(self.layout.cases):
            for call, record in enumerate(case["calls"]):
                spread = record["offsets"] is not None
                total = total + (self.edges(number, call) if spread else self.case(number))
        return total

    def shape(self, result: tuple[Any, ...]) -> tuple[Size, ...]:
        """The shape of a result."""
        word, *parts = result
        if word == "sizes":
            return (as_size(len(self.layout.sizes())),)
        if word == "table":
            return self.all + 1, as_size(self.layout.columns(parts[0])[2])
        if word == "roots":
            return (self.roots,)
        if word in ("field", "node") or (word == "called" and not self._spread(*parts)):
            return (self.case(parts[0]),)
        if word == "offsets":
            return (self.case(parts[0]) + 1,)
        return (self.edges(*parts),)

    def _spread(self, case: int, call: int) -> bool:
        return self.layout.cases[case]["calls"][call]["offsets"] is not None


def bounds_of(types: Types, attributes: Attributes) -> Bounds:
    return Bounds(Layout.of(attributes), tuple(map(as_size, attributes["counts"])), types)


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    for number, kind in enumerate(types):
        if kind.dtype != int64 or kind.rank != 1:
            raise GraphError(
                f"operator '{NAME}': input {number} is {kind}, not int64 with one axis"
            )
    bounds = bounds_of(types, attributes)
    return tuple(TensorType(int64, bounds.shape(result)) for result in bounds.layout.results())


# ---- meaning -----------------------------------------------------------------------------------


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    """By Python, one call after another."""
    layout = Layout.of(attributes)
    counts = [as_size(count).evaluate(sizes) for count in attributes["counts"]]
    types = [TensorType(int64, tuple(map(as_size, a.shape))) for a in arrays]
    bounds = Bounds(layout, [as_size(count) for count in counts], types)
    made: dict[tuple[Any, ...], numpy.ndarray] = {}
    for result in layout.results():
        shape = [size.evaluate({}) for size in bounds.shape(result)]
        made[result] = numpy.zeros(shape, numpy.int64)
    _Numbering(layout, counts, [a.tolist() for a in arrays], made).run()
    return tuple(made.values())


class _Outside(Exception):
    """A field that refers to no node."""


class _Numbering:
    """The reference: calls as tuples, levels by dictionaries."""

    def __init__(
        self, layout: Layout, counts: Sequence[int], arrays: list[list[int]],
        made: dict[tuple[Any, ...], numpy.ndarray],
    ) -> None:  # fmt: skip
        self.layout, self.plan, self.counts = layout, layout.plan, counts
        self.arrays, self.made = arrays, made
        self.level: dict[tuple[int, ...], int] = {}  # -1: open
        self.case: dict[tuple[int, ...], int] = {}
        self.flags = dict.fromkeys(FLAGS, 0)

    def constructor(self, kind: int, node: int) -> tuple[int, int]:
        """The constructor of a node, and its number there; raises _Outside."""
        first, number = self.plan["types"][kind]
        rest = node
        for position in range(number):
            if 0 <= rest < self.counts[first + position]:
                return position, rest
            rest -= self.counts[first + position]
        raise _Outside

    def at(self, path: Path, nodes: Sequence[int]) -> int:
        """The node at a path."""
        node = nodes[path[0]]
        for step in path[1:]:
            node = self.arrays[step[0]][node - self.base(*step[1])]
        return node

    def base(self, kind: int, constructor: int) -> int:
        """The first node of a constructor."""
        first = self.plan["types"][kind][0]
        return sum(self.counts[first : first + constructor])

    def decided(self, definition: int, nodes: Sequence[int]) -> int:
        decision = self.plan["definitions"][definition]["decision"]
        while not isinstance(decision, int):
            node = self.at(decision["path"], nodes)
            decision = decision["cases"][self.constructor(decision["type"], node)[0]]
        return int(decision)

    def calls(self, key: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the number of a call that a call makes, and its key: definition and nodes."""
        nodes = key[1:]
        for number, call in enumerate(self.layout.cases[self.case[key]]["calls"]):
            if call["offsets"] is None:
                given = [self.at(path, nodes) for path in call["paths"]]
                yield number, (call["definition"], *given)
                continue
            for child in self.children(call, nodes):
                yield number, (call["definition"], child)

    def children(self, call: Mapping[str, Any], nodes: Sequence[int]) -> list[int]:
        *before, (field, owner) = call["paths"][0]
        row = self.at(before, nodes) - self.base(*owner)
        offsets = self.arrays[call["offsets"]]
        low, high = offsets[row], offsets[row + 1]
        if not 0 <= low <= high <= len(self.arrays[field]):
            raise _Outside
        return self.arrays[field][low:high]

    def run(self) -> None:
        try:
            order = self.ordered()
        except _Outside:
            self.flags["outside"] = 1
            order = []
        if any(self.flags.values()):
            self.made["sizes",][: len(FLAGS)] = [self.flags[flag] for flag in FLAGS]
            return
        self.number(order)

    def ordered(self) -> list[tuple[int, ...]]:
        """All calls, those that a call makes before it."""
        order = []
        roots = list(zip(*(self.arrays[number] for number in self.plan["roots"])))
        stack: list[tuple[int, ...]] = [(0, *nodes) for nodes in reversed(roots)]
        while stack:
            key = stack[-1]
            if key in self.level:
                stack.pop()
                if self.level[key] < 0:
                    self.level[key] = self.level_of(key)
                    order.append(key)
                continue
            for kind, node in zip(self.plan["definitions"][key[0]]["types"], key[1:]):
                self.constructor(kind, node)
            self.level[key] = -1
            self.case[key] = self.decided(key[0], key[1:])
            for _, inner in reversed(list(self.calls(key))):
                if self.level.get(inner, 0) == -1:
                    self.flags["cycles"] = 1
                    return []
                if inner not in self.level:
                    stack.append(inner)
        return order

    def level_of(self, key: tuple[int, ...]) -> int:
        cycle = self.layout.cycle_of(self.case[key])
        definitions = self.plan["definitions"]
        inner = [i for _, i in self.calls(key) if definitions[i[0]]["cycle"] == cycle]
        return max((self.level[i] + 1 for i in inner), default=0)

    def number(self, order: list[tuple[int, ...]]) -> None:
        """The positions of calls, and all results."""
        layout, position, index = self.layout, {}, {}
        members: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for key in order:
            case = self.case[key]
            level = self.level[key] if layout.cases[case]["loop"] else -1
            members.setdefault((case, level), []).append(key)
        ends = dict.fromkeys(range(len(self.plan["definitions"])), 0)
        numbered = dict.fromkeys(range(len(layout.cases)), 0)
        found: dict[tuple[Any, ...], int] = {}
        place: dict[tuple[int, int], tuple[int, int, int]] = {}

        def put(case: int, level: int) -> None:
            own, definition = members.get((case, level), []), layout.cases[case]["definition"]
            place[case, level] = ends[definition], numbered[case], len(own)
            for key in own:
                position[key], index[key] = ends[definition], numbered[case]
                ends[definition] += 1
                numbered[case] += 1

        for case in range(len(layout.cases)):
            if not layout.cases[case]["loop"]:
                put(case, -1)
        for cycle in layout.loops:
            own, first = layout.in_loop(cycle), self.plan["cycles"][cycle]["first"]
            last = max((level for case, level in members if case in own), default=first - 1)
            found["levels", cycle] = last + 1 - first
            for level in range(first, last + 1):
                for case in own:
                    put(case, level)
        for case, count in numbered.items():
            found["calls", case] = count
            self.case_results(case, members, index, position, found)
        for cycle in layout.loops:
            self.table(cycle, place, found)
        for number, size in enumerate(layout.sizes()):
            self.made["sizes",][number] = found.get(size, 0)
        roots = zip(*(self.arrays[number] for number in self.plan["roots"]))
        self.made["roots",][:] = [position[0, *nodes] for nodes in roots]

    def case_results(
        self, case: int, members: Mapping[tuple[int, int], list[tuple[int, ...]]],
        index: Mapping[tuple[int, ...], int], position: Mapping[tuple[int, ...], int],
        found: dict[tuple[Any, ...], int],
    ) -> None:  # fmt: skip
        own = sorted((k for (c, _), keys in members.items() if c == case for k in keys),
                     key=index.__getitem__)  # fmt: skip
        record, made = self.layout.cases[case], self.made
        edges = dict.fromkeys(self.layout.spread(case), 0)
        for row, key in enumerate(own):
            for number, inner in self.calls(key):
                if number not in edges:
                    made["called", case, number][row] = position[inner]
                    continue
                made["called", case, number][edges[number]] = position[inner]
                made["owner", case, number][edges[number]] = row
                edges[number] += 1
            for number, path in enumerate(record["nodes"]):
                made["node", case, number][row] = self.at(path, key[1:])
            for number in edges:
                made["offsets", case, number][row + 1] = edges[number]
            for number, (path, (kind, constructor)) in enumerate(record["fields"]):
                node = self.at(path, key[1:])
                made["field", case, number][row] = node - self.base(kind, constructor)
        for number, count in edges.items():
            made["offsets", case, number][len(own) + 1 :] = count
            found["edges", case, number] = count

    def table(
        self, cycle: int, place: Mapping[tuple[int, int], tuple[int, int, int]],
        found: dict[tuple[Any, ...], int],
    ) -> None:  # fmt: skip
        cases, calls, _ = self.layout.columns(cycle)
        table, first = self.made["table", cycle], self.plan["cycles"][cycle]["first"]
        for level in range(found["levels", cycle]):
            for case, column in cases.items():
                at, row, count = place[case, level + first]
                table[level, column : column + 3] = at, row, count
                found["widest", case] = max(found.get(("widest", case), 0), count)
                for call in self.layout.spread(case):
                    offsets = self.made["offsets", case, call]
                    low, high = int(offsets[row]), int(offsets[row + count])
                    edge = calls[case, call]
                    table[level, edge : edge + 2] = low, high - low
                    key = ("widest", case, call)
                    found[key] = max(found.get(key, 0), high - low)


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
    that wait; the further structures of each call."""
    most = max(len(each["types"]) for each in bounds.layout.plan["definitions"])
    names = ["level", "case", "index", "position", "order"]
    if most > 1:
        names += [f"node{n}" for n in range(most)]
        yield Tensor("slots", TensorType(int64, (bounds.slots,)))
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
        self.flags = {flag: code.variable(0) for flag in FLAGS}
        self.highest = {
            cycle: code.variable(self.plan["cycles"][cycle]["first"] - 1)
            for cycle in self.layout.loops
        }
        self.count = code.variable(0)  # of calls in order
        self.several = [bounds.several(n) for n in range(len(self.plan["definitions"]))]
        self.known = {n: code.variable(0) for n, each in enumerate(self.several) if each}
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
        for number, flag in enumerate(FLAGS):
            sizes[number] = self.flags[flag]()
        with code.when(self._faults().equals(0)):
            self._number()

    def _faults(self) -> ir.Value:
        found = constant(0)
        for flag in self.flags.values():
            found = found | flag()
        return found

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

    def call_of(
        self, definition: int, nodes: Sequence[ir.Value], adds: bool = False
    ) -> ir.Value:
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
                same = (held > start) & (held <= start + code.size(self.bounds.definition(definition)))
                for number, node in enumerate(nodes):
                    same = same & self.own[f"node{number}"][held - 1].equals(node)
                with code.when(same):
                    found.set(held - 1)
                    looking.set(0)
                with code.otherwise():
                    following = slot() + 1
                    slot.set(ir.select(following.equals(count), constant(0), following))
        if adds:
            self._add(definition, nodes, slot, found)
        return code.let(found())

    def _add(
        self, definition: int, nodes: Sequence[ir.Value], slot: Variable, found: Variable
    ) -> None:
        """Number a call that has none."""
        code, known = self.code, self.known[definition]
        with code.when(found() < 0):
            with code.when(known() < code.size(self.bounds.definition(definition))):
                call = code.let(self.starts[definition] + known())
                known += 1
                self.own["slots"][slot()] = call + 1
                for number, node in enumerate(nodes):
                    self.own[f"node{number}"][call] = node
                found.set(call)
            with code.otherwise():
                self.flags["shared"].set(1)

    def decide(self, decision: Any, nodes: Sequence[ir.Value], body: Callable[[int], None]) -> None:
        """Emit `body` for each case, where a call runs it."""
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
            self.flags["outside"].set(1)

    def children(self, record: Mapping[str, Any], nodes: Sequence[ir.Value]) -> tuple[Any, ...]:
        """The nodes of a call with offsets: where they lie, their first and last number."""
        *before, (field, owner) = record["paths"][0]
        row = self.code.let(self.at(before, nodes) - self.base(*owner))
        offsets = self.inputs[record["offsets"]]
        return self.inputs[field], offsets[row], offsets[row + 1]

    def each_call(
        self, case: int, nodes: Sequence[ir.Value],
        body: Callable[[int, int, list[ir.Value], ir.Value | None], None], backwards: bool = False,
    ) -> None:  # fmt: skip
        """Emit `body(number, definition, nodes, position)` for each call of a case; `position` is
        that within a call with offsets."""
        code, calls = self.code, list(enumerate(self.layout.cases[case]["calls"]))
        for number, record in reversed(calls) if backwards else calls:
            definition = record["definition"]
            if record["offsets"] is None:
                given = [code.let(self.at(path, nodes)) for path in record["paths"]]
                body(number, definition, given, None)
                continue
            values, low, high = self.children(record, nodes)
            length = self.bounds.edges(case, number)
            legal = (low >= 0) & (low <= high) & (high <= code.size(length))
            with code.when(legal), code.range(0, high - low) as position:
                where = high - 1 - position if backwards else low + position
                body(number, definition, [values[where]], position)
            with code.otherwise():
                self.flags["outside"].set(1)

    def inside(self, definition: int, nodes: Sequence[ir.Value]) -> ir.Value:
        """Whether these are nodes of the definition's types."""
        found = constant(True)
        for kind, node in zip(self.plan["definitions"][definition]["types"], nodes):
            most = self.code.size(self.bounds.nodes(kind))
            found = found & (node >= 0) & (node < most)
        return found

    # ---- the order of calls --------------------------------------------------------------------

    def _root(self, row: ir.Value) -> None:
        code = self.code
        self._push(0, [nodes[row] for nodes in self.roots])
        with code.loop(lambda: (self.waiting() > 0) & self._faults().equals(0)):
            call = self.own["stack"][self.waiting() - 1]
            level = self.own["level"][call]
            with code.when(level >= 0):
                self.waiting += -1
            with code.otherwise():
                self._visit(call, code.let(level.equals(_NEW)))

    def _push(self, definition: int, nodes: Sequence[ir.Value]) -> None:
        """Let a call wait if it is new."""
        code = self.code
        with code.when(self.inside(definition, nodes)):
            call = self.call_of(definition, nodes, adds=True)
            with code.when(call >= 0):
                level = self.own["level"][call]
                with code.when(level.equals(_OPEN)):
                    self.flags["cycles"].set(1)
                with code.when(level.equals(_NEW)):
                    self.own["stack"][self.waiting()] = call
                    self.waiting += 1
        with code.otherwise():
            self.flags["outside"].set(1)

    def _visit(self, call: ir.Value, is_new: ir.Value) -> None:
        """Open a call and let those that it makes wait, or close it: all they have levels."""
        code, level = self.code, self.code.variable(0)
        for definition, record in enumerate(self.plan["definitions"]):
            end = self.starts[definition] + code.size(self.bounds.definition(definition))
            with code.when((call >= self.starts[definition]) & (call < end)):
                nodes = self.nodes_of(call, definition)

                def opened(case: int, nodes: Sequence[ir.Value] = nodes) -> None:
                    self.own["case"][call] = case
                    self.each_call(case, nodes, lambda _, d, n, __: self._push(d, n), True)

                def closed(case: int, nodes: Sequence[ir.Value] = nodes) -> None:
                    self._close(case, nodes, level)

                with code.when(is_new):
                    self.own["level"][call] = _OPEN
                    self.decide(record["decision"], nodes, opened)
                with code.otherwise():
                    self.decide(record["decision"], nodes, closed)
        with code.when(~is_new):
            self.own["level"][call] = level()
            self.own["order"][self.count()] = call
            self.count += 1
            self.waiting += -1

    def _close(self, case: int, nodes: Sequence[ir.Value], level: Variable) -> None:
        code, cycle = self.code, self.layout.cycle_of(case)

        def look(_: int, definition: int, given: list[ir.Value], __: ir.Value | None) -> None:
            if self.plan["definitions"][definition]["cycle"] == cycle:
                call = self.call_of(definition, given)
                level.set(ir.greatest(level(), self.own["level"][call] + 1))

        self.each_call(case, nodes, look)
        if self.layout.cases[case]["loop"]:
            highest = self.highest[cycle]
            highest.set(ir.greatest(highest(), level()))

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
        self._each(self._counted)
        self._places()
        self._each(self._placed)
        for case in range(len(layout.cases)):
            for call in layout.spread(case):
                self._sum_offsets(case, call)
        self._each(self._written)
        for cycle in layout.loops:
            self._edges(cycle)
        sizes = self.results["sizes",]
        for number, size in enumerate(layout.sizes()):
            if size[0] == "levels":
                sizes[number] = self.levels[int(size[1])]
            elif size[0] == "calls":
                sizes[number] = self.counts[int(size[1])]()
            elif size[0] == "edges":
                case, call = map(int, size[1:])
                sizes[number] = self.results["offsets", case, call][self.counts[case]()]
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

    def _counted(self, call: ir.Value, case: int) -> None:
        if not self.layout.cases[case]["loop"]:
            self.counts[case] += 1
            return
        table, at = self._column(call, case)
        table[at + COUNT] = table[at + COUNT] + 1

    def _places(self) -> None:
        """Where the calls of each case and level begin; counts begin at 0 again."""
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
                    end, widest = (
                        ends[layout.cases[case]["definition"]],
                        self.widest["widest", case],
                    )
                    count = table[at + COUNT]
                    table[at + AT] = end()
                    table[at + FIRST] = self.counts[case]()
                    table[at + COUNT] = 0
                    end += count
                    self.counts[case] += count
                    widest.set(ir.greatest(widest(), count))

    def _placed(self, call: ir.Value, case: int) -> None:
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

    def _written(self, call: ir.Value, case: int) -> None:
        """The calls and fields of a call."""
        code, index, nodes = self.code, self.own["index"][call], self._nodes(call, case)

        def called(
            number: int, definition: int, given: list[ir.Value], within: ir.Value | None
        ) -> None:
            position = self.own["position"][self.call_of(definition, given)]
            if within is None:
                self.results["called", case, number][index] = position
                return
            edge = code.let(self.results["offsets", case, number][index] + within)
            self.results["called", case, number][edge] = position
            self.results["owner", case, number][edge] = index

        self.each_call(case, nodes, called)
        for number, (path, owner) in enumerate(self.layout.cases[case]["fields"]):
            row = self.at(path, nodes) - self.base(*owner)
            self.results["field", case, number][index] = row
        for number, path in enumerate(self.layout.cases[case]["nodes"]):
            self.results["node", case, number][index] = self.at(path, nodes)

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
