"""Passes arguments from callers to calls: a loop over the depths of a cycle.

Each call in a case has a table for each value that it passes, with a row for each call of the case:
in the order of depths if caller and callee are in one cycle. A call finds its values in the table
of its site, in the row of its caller.
"""

from __future__ import annotations

from anydim.compiler.frontends.structures.cycles import Outside, Values, argument_tables, outside_of
from anydim.compiler.frontends.structures.emitter import BodyEmitter
from anydim.compiler.frontends.structures.recursion import Recursion
from anydim.compiler.graph.regions import Scan, Sizes
from anydim.compiler.kernels.routines.level_plan import DOWN, DOWNS
from anydim.lang.tree import TensorType
from anydim.sizes import Dim, Size

Site = tuple[int, int, str]  # a case, a call in it, a parameter of the callee


class Down:
    """Emits the arguments that calls of a cycle get, in a loop over depths."""

    def __init__(self, recursion: Recursion, number: int) -> None:
        self.recursion, self.number = recursion, number
        self.outer = recursion.emitter

    def run(self) -> None:
        recursion = self.recursion
        inner: list[tuple[Site, str]] = []
        for definition in recursion.cycles[self.number]:
            for case, call in recursion.layout.sites(definition):
                for parameter, tensor in recursion.cases[case].calls[call].passed:
                    key = recursion.cases[case].calls[call].callee
                    if recursion.layout.cycle_of(case) == self.number:
                        inner.append(((case, call, parameter), tensor))
                        continue
                    held = outside_of(recursion, case, tensor).export(tensor)
                    kind = recursion.passed[key, parameter]
                    recursion.arguments[case, call, parameter] = self.outer.convert(held, kind)
        if inner:
            self.loop(inner)

    def loop(self, sites: list[tuple[Site, str]]) -> None:
        """Emit the loop over depths."""
        recursion, layout, outer = self.recursion, self.recursion.layout, self.outer
        depths = Size.symbol(recursion.dims["depths", self.number])
        table = outer.part(recursion.results_of_levels["down", self.number], 0, depths)
        self.cases = layout.going_down(self.number)
        self.counter = recursion.free(f"{recursion.definition.name}.depth")
        self.columns = [
            recursion.free(f"{recursion.cases[case].name}.down.{word}")
            for case in self.cases for word in ("first", "count")
        ]  # fmt: skip
        dims = [Dim(self.counter), *map(Dim, self.columns)]
        constraints = [depths - Size.symbol(self.counter) - 1]
        for case in self.cases:
            first, count = self.column(case, DOWN), self.column(case, DOWNS)
            total = recursion.calls(case)
            most = Size.symbol(recursion.dims["broadest", case])
            constraints += [total - first - count, total - first, most - count]
        box = outer.box.also(*dims).also(constraints=tuple(constraints))
        self.inner = BodyEmitter(box, outer)
        histories = []
        for (case, call, parameter), _ in sites:
            kind = recursion.passed[recursion.cases[case].calls[call].callee, parameter]
            name = self.inner.fresh(f"{recursion.cases[case].name}.{call}.{parameter}.passed")
            shape = (recursion.calls(case), *kind.shape)
            self.inner.types[name] = TensorType(kind.dtype, shape)
            recursion.arguments[case, call, parameter] = name
            histories.append(name)
        region = Sizes(tuple(self.columns), Size.symbol(self.counter))
        self.inner.region(region, (self.capture(table),))
        outside = {
            (case, tensor): outside_of(recursion, case, tensor) for (case, *_), tensor in sites
        }
        depths_of = {each: _Depth(self, each) for each in outside.values()}
        results, scans, kinds = [], [], []
        for (case, call, parameter), tensor in sites:
            kind = recursion.passed[recursion.cases[case].calls[call].callee, parameter]
            held = self.inner.convert(depths_of[outside[case, tensor]].export(tensor), kind)
            results.append(self.inner.emit("identity", held))
            whole = recursion.calls(case)
            scans.append(Scan(self.column(case, DOWN), whole, history=True, joined=True))
            kinds.append(TensorType(kind.dtype, (whole, *kind.shape)))
        loop_name = f"{recursion.definition.name}.depths"
        held_loop = self.inner.loop(loop_name, self.counter, depths, histories, results, scans)
        names = [outer.fresh(name) for name in histories]
        outer.region(held_loop, self.inner.given, names, kinds)
        for ((case, call, parameter), _), name in zip(sites, names):
            recursion.arguments[case, call, parameter] = name

    def column(self, case: int, offset: int) -> Size:
        """A size of a case in a depth."""
        return Size.symbol(self.columns[2 * self.cases.index(case) + offset])

    def capture(self, value: str) -> str:
        """The name inside of a value outside, or of a table in the loop."""
        if value in self.inner.captured.values() or value not in self.outer.types:
            return value
        return self.inner.capture(value)


class _Depth(Values):
    """Values over the calls of a depth."""

    def __init__(self, down: Down, outside: Outside) -> None:
        case = outside.computed.number
        self.down, self.outside = down, outside
        self.first, count = down.column(case, DOWN), down.column(case, DOWNS)
        super().__init__(down.recursion, outside.computed, down.inner, count, {})

    def argument(self, tensor: str) -> str:
        down, recursion, number = self.down, self.recursion, self.computed.number
        origin = self.computed.arguments.get(tensor, "")
        if origin in self.passed:
            sites, rows = (
                self.part(recursion.results_of_levels[word, number])
                for word in ("down_site", "down_row")
            )
            tables = [down.capture(t) for t in argument_tables(recursion, self.case, origin)]
            return self.choose(tensor, origin, tables, sites, rows)
        value = down.capture(self.outside.name(tensor))
        if tensor not in self.batch.tensors:
            return value
        rows = self.part(recursion.results_of_levels["down_call", number])
        return self.emitter.emit("gather", value, rows, called=f"{self.case.name}/{tensor}")

    def part(self, value: str) -> str:
        """The part of a vector over all calls, by depth, that belongs to the depth."""
        return self.emitter.part(self.down.capture(value), self.first, self.batch.count)
