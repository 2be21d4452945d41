"""The plan of a recursion over structures: its definitions, cases and calls.

A call is a definition applied to a node of its first structure. It runs one of the definition's
cases, which makes calls of its own. Calls whose definition may call itself have a level: one more
than the highest level of such calls that they make. All calls of a level and a case can be computed
at once, after those of lower levels.

The nodes of a type are numbered constructor after constructor. `plan`, a JSON text, has indices of
the routine's inputs, and these records:

    types        [[first constructor, number of constructors]] of `counts`
    definitions  {"types", "decision", "cycle"}: the types of its structures; which case a call
                 runs; the number of its cycle of definitions that call each other
    cases        {"definition", "constructor", "calls", "fields", "nodes", "loop"}: the constructor
                 of the first structure, or -1 for any; whether it calls its own cycle
    cycles       {"first", "passed"}: the lowest level of a case that calls its own cycle; whether
                 calls get values of their own from their callers, so that no two calls are one
    roots        the inputs with the roots; the first definition is called for each of them

A node is a path: [structure, [field, constructor]...], where each step reads an input at the node's
number within its constructor. A decision is a case, or {"path", "type", "cases"}: decisions by
constructor. A call is {"definition", "paths", "offsets"}; with offsets, it calls the definition for
each node in a range of the first path's last field. A field is the node that owns it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.kernels.routines.routine import Attributes, Types
from anydim.sizes import Size, as_size

NAME = "call_levels"
CYCLE, OUTSIDE, SHARED = 1, 2, 3  # faults in the data: the first element of the sizes, or 0
AT, FIRST, COUNT = range(3)  # columns of a case in the table of a cycle
EDGE, EDGES = range(2)  # columns of a call with offsets
DOWN, DOWNS = range(2)  # columns of a case in the table of depths of a cycle
PASSED = ("site", "row", "down_call", "down_site", "down_row")

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

    # ---- values from callers -------------------------------------------------------------------

    def gets_values(self, definition: int) -> bool:
        """Whether calls of a definition get values of their own."""
        return bool(self.plan["cycles"][self.plan["definitions"][definition]["cycle"]]["passed"])

    def sites(self, definition: int) -> list[tuple[int, int]]:
        """The calls in cases that call a definition."""
        cases = enumerate(self.cases)
        return [
            (number, call) for number, case in cases for call, record in enumerate(case["calls"])
            if record["definition"] == definition
        ]  # fmt: skip

    def going_down(self, cycle: int) -> list[int]:
        """The cases of a cycle that pass values to calls in it, if it has any."""
        return self.in_loop(cycle) if self.plan["cycles"][cycle]["passed"] else []

    @property
    def downs(self) -> list[int]:
        """The cycles with a loop over depths."""
        return [n for n in range(len(self.plan["cycles"])) if self.going_down(n)]

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

    def sizes(self) -> list[tuple[Any, ...]]:
        """What each element of the first result is.

        ("fault",); ("levels", cycle); ("depths", cycle) and
        ("broadest", case); ("calls", case) and ("widest", case); ("edges", case, call) and
        ("widest", case, call).
        """
        found: list[tuple[Any, ...]] = [("fault",)]
        found += [("levels", cycle) for cycle in self.loops]
        for cycle in self.downs:
            found.append(("depths", cycle))
            found += [("broadest", case) for case in self.going_down(cycle)]
        for case in range(len(self.cases)):
            parts = [(case,), *((case, call) for call in self.spread(case))]
            for part in parts:
                found.append(("calls" if len(part) == 1 else "edges", *part))
                if self.cases[case]["loop"]:
                    found.append(("widest", *part))
        return found

    def results(self) -> list[tuple[Any, ...]]:
        """What each result is.

        ("sizes",); ("table", cycle) of levels; ("down", cycle), the table of depths; ("called",
        case, call), and with offsets before it ("offsets", case, call) and after it ("owner", case,
        call); ("field", case, field); ("node", case, node); ("roots",). Of cases that get values:
        ("site", case) and ("row", case), the call in a case that makes each call, and the number of
        the caller in its case; ("down_call", case), ("down_site", case) and ("down_row", case): the
        calls in the order of depths, and the same for them.
        """
        found: list[tuple[Any, ...]] = [("sizes",), *(("table", cycle) for cycle in self.loops)]
        found += [("down", cycle) for cycle in self.downs]
        for number, case in enumerate(self.cases):
            for call, record in enumerate(case["calls"]):
                words: tuple[str, ...] = ("called",)
                if record["offsets"] is not None:
                    words = ("offsets", "called", "owner")
                found += [(word, number, call) for word in words]
            found += [("field", number, field) for field in range(len(case["fields"]))]
            found += [("node", number, node) for node in range(len(case["nodes"]))]
            words = ("site", "row") if self.gets_values(case["definition"]) else ()
            if number in self.going_down(self.cycle_of(number)):
                words = ("site", "row", "down_call", "down_site", "down_row")
            found += [(word, number) for word in words]
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
        """Whether nodes do not identify a call: it has several structures, or gets values."""
        kinds = self.layout.plan["definitions"][number]["types"]
        return len(kinds) > 1 or self.layout.gets_values(number)

    def definition(self, number: int) -> Size:
        """The number of calls of a definition.

        One with several structures, or with values, is called at most once for each node by each
        call in a case, unless structures share nodes.
        """
        kinds = self.layout.plan["definitions"][number]["types"]
        if not self.several(number):
            return self.nodes(kinds[0])
        calls = [
            c for case in self.layout.cases for c in case["calls"] if c["definition"] == number
        ]
        nodes = sum(
            (self.nodes(kind) for kind in range(len(self.layout.plan["types"]))), as_size(0)
        )
        return (self.roots + nodes) * max(1, len(calls)) + self.roots

    def case(self, number: int) -> Size:
        case = self.layout.cases[number]
        if case["constructor"] < 0 or self.several(case["definition"]):
            return self.definition(case["definition"])
        kind = self.layout.plan["definitions"][case["definition"]]["types"][0]
        return self.counts[self.layout.plan["types"][kind][0] + case["constructor"]]

    def edges(self, case: int, call: int) -> Size:
        """The number of calls that all calls of a case make by one with offsets."""
        record = self.layout.cases[case]["calls"][call]
        children = self.types[record["paths"][0][-1][0]].shape[0]
        own = self.layout.cases[case]["definition"]
        return children + self.definition(own) if self.several(own) else children

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
        """Capacity of the stack of waiting calls."""
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
        if word == "down":
            return self.all + 1, as_size(2 * len(self.layout.going_down(parts[0])))
        if word == "roots":
            return (self.roots,)
        if word in ("field", "node", *PASSED) or (word == "called" and not self._spread(*parts)):
            return (self.case(parts[0]),)
        if word == "offsets":
            return (self.case(parts[0]) + 1,)
        return (self.edges(*parts),)

    def _spread(self, case: int, call: int) -> bool:
        return self.layout.cases[case]["calls"][call]["offsets"] is not None


def bounds_of(types: Types, attributes: Attributes) -> Bounds:
    """The bounds for inputs of these types and a node's plan."""
    return Bounds(Layout.of(attributes), tuple(map(as_size, attributes["counts"])), types)
