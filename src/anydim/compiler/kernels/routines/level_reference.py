"""Numbers the calls of a recursion level by level, in Python: the reference of `levels.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from anydim.base.dtypes import int64
from anydim.compiler.kernels.routines.level_plan import CYCLE, OUTSIDE, SHARED, Bounds, Layout, Path
from anydim.compiler.kernels.routines.routine import Arrays, Attributes, Dims, Results
from anydim.lang.tree import TensorType
from anydim.sizes import as_size


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    """The reference in plain Python, call by call."""
    layout = Layout.of(attributes)
    counts = [as_size(count).evaluate(sizes) for count in attributes["counts"]]
    types = [TensorType(int64, tuple(map(as_size, a.shape))) for a in arrays]
    bounds = Bounds(layout, [as_size(count) for count in counts], types)
    made: dict[tuple[Any, ...], numpy.ndarray] = {}
    for result in layout.results():
        shape = [size.evaluate({}) for size in bounds.shape(result)]
        made[result] = numpy.zeros(shape, numpy.int64)
    _Numbering(layout, counts, [a.tolist() for a in arrays], made, bounds).run()
    return tuple(made.values())


class _Outside(Exception):
    """A field that refers to no node."""


class _Numbering:
    """The reference: calls as tuples, levels by dictionaries."""

    def __init__(
        self, layout: Layout, counts: Sequence[int], arrays: list[list[int]],
        made: dict[tuple[Any, ...], numpy.ndarray], bounds: Bounds,
    ) -> None:  # fmt: skip
        self.layout, self.plan, self.counts = layout, layout.plan, counts
        self.arrays, self.made = arrays, made
        self.level: dict[tuple[int, ...], int] = {}  # -1: open
        self.case: dict[tuple[int, ...], int] = {}
        self.inner: dict[tuple[int, ...], list[tuple[int, tuple[int, ...]]]] = {}  # calls by call
        self.caller: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = {}
        self.depth: dict[tuple[int, ...], int] = {}
        self.fault = 0
        self.bounds = bounds
        count = len(self.plan["definitions"])
        self.free = [bounds.definition(number).evaluate({}) for number in range(count)]  # calls

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

    def decide(self, definition: int, nodes: Sequence[int]) -> int:
        decision = self.plan["definitions"][definition]["decision"]
        while not isinstance(decision, int):
            node = self.at(decision["path"], nodes)
            decision = decision["cases"][self.constructor(decision["type"], node)[0]]
        return int(decision)

    def open_call(self, key: tuple[int, ...]) -> None:
        """Find the calls that a call makes: the number in its case, and their keys.

        A key is a definition and nodes, and a number of its own for a call that gets values.
        """
        nodes = key[1:]
        found: list[tuple[int, tuple[int, ...]]] = []
        for number, call in enumerate(self.layout.cases[self.case[key]]["calls"]):
            if call["offsets"] is None:
                given = [self.at(path, nodes) for path in call["paths"]]
                found.append((number, (call["definition"], *given)))
                continue
            for child in self.children(call, nodes):
                found.append((number, (call["definition"], child)))
        for position in reversed(range(len(found))):
            number, inner = found[position]
            if self.layout.gets_values(inner[0]):
                inner = (*inner, len(self.caller))
                found[position] = number, inner
                self.caller[inner] = number, key
                same = self.plan["definitions"][key[0]]["cycle"] == self._cycle(inner)
                self.depth[inner] = self.depth.get(key, 0) + 1 if same else 0
        self.inner[key] = found

    def _cycle(self, key: tuple[int, ...]) -> int:
        return int(self.plan["definitions"][key[0]]["cycle"])

    def calls(self, key: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
        """The calls that a call makes."""
        return self.inner[key]

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
            order = self.order_calls()
        except _Outside:
            self.fault = OUTSIDE
            order = []
        if not self.fault and self.has_more_edges():
            self.fault = SHARED
        self.made["sizes",][0] = self.fault
        if self.fault:
            return
        self.number(order)

    def has_more_edges(self) -> bool:
        """Whether calls with offsets are more than their bound."""
        found: dict[tuple[int, int], int] = {}
        for key, inner in self.inner.items():
            for number, _ in inner:
                where = self.case[key], number
                found[where] = found.get(where, 0) + 1
        return any(
            number in self.layout.spread(case)
            and count > self.bounds.edges(case, number).evaluate({})
            for (case, number), count in found.items()
        )

    def order_calls(self) -> list[tuple[int, ...]]:
        """All calls in postorder: callees before their caller."""
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
            self.free[key[0]] -= 1
            if self.free[key[0]] < 0:
                self.fault = SHARED
                return []
            self.level[key] = -1
            self.case[key] = self.decide(key[0], key[1:])
            self.open_call(key)
            for _, inner in reversed(list(self.calls(key))):
                if self.level.get(inner, 0) == -1:
                    self.fault = CYCLE
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
        downs = self.down(order, found)
        for case, count in numbered.items():
            found["calls", case] = count
            self.callers(case, members, index, downs)
            self.case_results(case, members, index, position, found)
        for cycle in layout.loops:
            self.table(cycle, place, found)
        for number, size in enumerate(layout.sizes()):
            self.made["sizes",][number] = found.get(size, 0)
        roots = zip(*(self.arrays[number] for number in self.plan["roots"]))
        self.made["roots",][:] = [position[(0, *nodes)] for nodes in roots]

    def down(
        self, order: list[tuple[int, ...]], found: dict[tuple[Any, ...], int]
    ) -> dict[tuple[int, ...], int]:
        """The numbers of calls in the order of depths, within their cases; tables of depths."""
        numbers: dict[tuple[int, ...], int] = {}
        for cycle in self.layout.downs:
            cases = self.layout.going_down(cycle)
            own = [key for key in order if self.case[key] in cases]
            depths = max((self.depth.get(key, 0) for key in own), default=-1) + 1
            found["depths", cycle] = depths
            for column, case in enumerate(cases):
                ordered = [key for key in own if self.case[key] == case]
                ordered.sort(key=lambda key: self.depth.get(key, 0))
                numbers.update((key, number) for number, key in enumerate(ordered))
                for depth in range(depths):
                    count = sum(self.depth.get(key, 0) == depth for key in ordered)
                    first = sum(self.depth.get(key, 0) < depth for key in ordered)
                    self.made["down", cycle][depth, 2 * column : 2 * column + 2] = first, count
                    key = ("broadest", case)
                    found[key] = max(found.get(key, 0), count)
        return numbers

    def callers(
        self, case: int, members: Mapping[tuple[int, int], list[tuple[int, ...]]],
        index: Mapping[tuple[int, ...], int], downs: Mapping[tuple[int, ...], int],
    ) -> None:  # fmt: skip
        """Which call in a case makes each call of a case."""
        definition = self.layout.cases[case]["definition"]
        if not self.layout.gets_values(definition):
            return
        sites, made = self.layout.sites(definition), self.made
        for key in (k for (c, _), keys in members.items() if c == case for k in keys):
            site, row = -1, 0
            if key in self.caller:
                number, caller = self.caller[key]
                site = sites.index((self.case[caller], number))
                same = self._cycle(caller) == self._cycle(key)
                row = downs[caller] if same else index[caller]
            made["site", case][index[key]], made["row", case][index[key]] = site, row
            if key in downs:
                at = downs[key]
                made["down_call", case][at] = index[key]
                made["down_site", case][at], made["down_row", case][at] = site, row

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
