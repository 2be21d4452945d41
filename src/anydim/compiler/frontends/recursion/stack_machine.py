"""Data-dependent recursion as a stack machine in native code.

    def fib(int64 n; size depth = 100) -> (f) {
      if n < 2 { f = n } else { a = fib(n - 1)  b = fib(n - 2)  f = a + b }
    }

The graph has one loop; an iteration runs the state of the innermost call. Values that live across
states are rows of tables, one row for each call that is open: `depth` is the most of them. Row 0
takes what a state does not write. A result is passed in carried values.
"""

from __future__ import annotations

from anydim.base.dtypes import boolean, int64
from anydim.compiler.frontends.recursion.emission import Values, emit_sections
from anydim.compiler.frontends.recursion.variables import Key, Variables
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.regions import BranchRegion, LoopRegion, Scan, Sizes
from anydim.lang.surface.linking import DEPTH
from anydim.lang.tree import TensorType
from anydim.sizes import Dim, Size, as_size

SOURCE = "recursion"


class StackMachine:
    """Emits a definition that calls itself, or loops `while`; `given` are values of parameters."""

    def __init__(self, variables: Variables, emitter: Emitter, given: dict[str, str]) -> None:
        self.variables, self.outer, self.given = variables, emitter, given
        self.types, self.memories = variables.types, variables.stored
        self.states = variables.states
        self.depth = variables.depth
        self.name = variables.definition.name

    def run(self) -> list[str]:
        """Emit the loop; returns the results."""
        variables, outer = self.variables, self.outer
        outer.source = SOURCE
        depth = as_size(self.depth + 1)
        initials = [self._initial(key) for key in self.memories]
        returns = outer.emit("fill", shape=(depth,), value=0.0, dtype=int64)
        first_row = outer.emit("fill", shape=(), value=1.0, dtype=int64)
        entry = outer.emit("fill", shape=(), value=float(variables.entries[0]), dtype=int64)
        registers = [
            outer.emit("fill", shape=kind.shape, value=0.0, dtype=kind.dtype)
            for kind in variables.registers
        ]
        going = outer.emit("fill", shape=(), value=1.0, dtype=boolean)
        body = self._body()
        scans = tuple(
            Scan(Size.symbol(position), depth, history=True, initial=True)
            for position in self.positions
        )
        counter = self._free(f"{self.name}.step")
        region = LoopRegion(body, counter, None, True, 2 + len(registers), scans)
        names = [outer.fresh(f"{self.name}.end.{n}") for n in range(2 + len(registers))]
        names += [outer.fresh(f"{self.name}.rows.{n}") for n in range(len(scans))]
        kinds = [TensorType(int64, ())] * 2 + variables.registers
        kinds += [outer.types[each] for each in (returns, *initials)]
        shared = [self.given[name] for name in self.shared]
        given = (going, first_row, entry, *registers, returns, *initials, *shared)
        outer.region(region, given, names, kinds)
        return names[2 : 2 + len(variables.definition.results)]

    def _initial(self, key: Key) -> str:
        """The table of a variable before the first state."""
        outer, (function, name) = self.outer, key
        kind, depth = self.types[key], as_size(self.depth + 1)
        if function or name not in self.given:
            return outer.emit("fill", shape=(depth, *kind.shape), value=0.0, dtype=kind.dtype)
        first = outer.emit("reshape", self.given[name], shape=(as_size(1), *kind.shape))
        zero, rest = (
            outer.emit("fill", shape=(count, *kind.shape), value=0.0, dtype=kind.dtype)
            for count in (as_size(1), depth - 2)
        )
        return outer.concatenate([zero, first, rest])

    @property
    def shared(self) -> list[str]:
        """The parameters of the program that states read."""
        return sorted(set(self.variables.shared.values()))

    def _free(self, name: str) -> str:
        return name if name not in self.outer.box.names else self._free(f"{name}_")

    # ---- an iteration ----------------------------------------------------------------------------

    def _body(self) -> Graph:
        """An iteration: the state `pc` of the call in row `sp`."""
        stem = self._free(f"{self.name}.{DEPTH}")
        self.positions = [stem, *(f"{stem}.{n + 1}" for n in range(len(self.memories)))]
        dims = [Dim(name, 0, self.depth) for name in self.positions]
        box = self.outer.box.also(Dim(self._free(f"{self.name}.step")), *dims)
        inner = Emitter(box, SOURCE)
        scalar, depth = TensorType(int64, ()), as_size(self.depth + 1)
        inner.types.update({"sp": scalar, "pc": scalar})
        registers = self.variables.registers
        self.register_names = [f"register.{n}" for n in range(len(registers))]
        inner.types.update(zip(self.register_names, registers))
        self.row_names = ["returns", *(f"rows.{f}.{n}" for f, n in self.memories)]
        inner.types["returns"] = TensorType(int64, (depth,))
        for name, key in zip(self.row_names[1:], self.memories):
            kind = self.types[key]
            inner.types[name] = TensorType(kind.dtype, (depth, *kind.shape))
        inner.types.update({
            f"given.{name}": self.outer.types[self.given[name]] for name in self.shared
        })  # fmt: skip
        inputs = ["sp", "pc", *self.register_names, *self.row_names]
        inputs += [f"given.{name}" for name in self.shared]
        made = self._dispatch(inner, inputs, list(range(len(self.states))))
        inner.region(Sizes(tuple(self.positions)), (made[-1],))
        return inner.graph(f"{self.name}.steps", inputs, made[:-1])

    def _dispatch(self, emitter: Emitter, inputs: list[str], states: list[int]) -> list[str]:
        """Emit the branches to the state that `pc` names; returns the results of the state."""
        if len(states) == 1:
            return _StateCode(self, emitter, states[0]).run()
        half = len(states) // 2
        low, high = states[:half], states[half:]
        condition = _against(emitter, "less", "pc", high[0])
        graphs = []
        for part in (low, high):
            inner = Emitter(emitter.box, SOURCE)
            inner.types.update({name: emitter.types[name] for name in inputs})
            made = self._dispatch(inner, inputs, part)
            graphs.append(inner.graph(f"states.{part[0]}", inputs, made))
        kinds = [graphs[0].types[name] for name in graphs[0].outputs]
        names = [emitter.fresh(f"state.{n}") for n in range(len(kinds))]
        emitter.region(BranchRegion(graphs[0], graphs[1]), (condition, *inputs), names, kinds)
        return names


def _number(emitter: Emitter, number: int) -> str:
    return emitter.emit("fill", shape=(), value=float(number), dtype=int64)


def _against(emitter: Emitter, operator: str, left: str, right: int) -> str:
    """A comparison or sum of an int64 scalar and a number."""
    return emitter.emit(operator, left, _number(emitter, right))


class _StateCode:
    """Emits a state: (going, sp, pc, registers, returns, memories, positions)."""

    def __init__(self, machine: StackMachine, emitter: Emitter, number: int) -> None:
        self.machine, self.emitter, self.number = machine, emitter, number
        self.variables = machine.variables
        self.state = machine.states[number]
        self.values: Values = {
            name: machine.register_names[register]
            for name, register in self.variables.bound_registers(self.state).items()
        }
        self.writes: dict[Key, tuple[str, str]] = {}  # a value, and its row

    def value(self, name: str) -> str:
        """The value of a variable: of the program, of the state, or of the innermost call."""
        if name not in self.values:
            machine, key = self.machine, (self.state.function, name)
            if key in self.variables.shared:
                self.values[name] = f"given.{self.variables.shared[key]}"
            else:
                rows = machine.row_names[1 + machine.memories.index(key)]
                self.values[name] = self.emitter.emit("gather", rows, "sp", called=f"{name}.here")
        return self.values[name]

    def run(self) -> list[str]:
        emitter, state = self.emitter, self.state
        emit_sections(emitter, self.variables.sections[self.number], self.value, self.values)
        self.registers = list(self.machine.register_names)
        self.going = emitter.emit("fill", shape=(), value=1.0, dtype=boolean)
        self.sp, self.away = "sp", _number(emitter, 0)
        self.returned, self.return_to = self.away, self.away
        for name in sorted(state.written):
            if (state.function, name) in self.machine.memories:
                self.write((state.function, name), self.value(name), "sp")
        pc = self.next_state()
        rows, positions = [self.returned], [self.return_to]
        for key in self.machine.memories:
            value, row = self.writes.get(key) or (self.nothing(key), self.away)
            rows.append(value)
            positions.append(row)
        parts = [emitter.emit("reshape", each, shape=(as_size(1),)) for each in positions]
        results = [self.going, self.sp, pc, *self.registers, *rows, emitter.concatenate(parts)]
        return self.own(results)

    def write(self, key: Key, value: str, row: str) -> None:
        """Write a value to the table of a variable."""
        self.writes[key] = self.emitter.convert(value, self.machine.types[key]), row

    def nothing(self, key: Key) -> str:
        kind = self.machine.types[key]
        return self.emitter.emit("fill", shape=kind.shape, value=0.0, dtype=kind.dtype)

    def next_state(self) -> str:
        """Emit what ends the state; returns the number of the next one."""
        state = self.state
        if state.callee >= 0:
            return self.call()
        if state.condition:
            return self.choose_next()
        if state.following:
            return _number(self.emitter, state.following[0])
        return self.return_results()

    def call(self) -> str:
        state, variables, emitter = self.state, self.variables, self.emitter
        if not state.tail:
            self.sp = _against(emitter, "add", "sp", 1)
            self.returned, self.return_to = _number(emitter, state.following[0]), "sp"
        for parameter, name in zip(variables.family[state.callee].parameters, state.given):
            key = state.callee, parameter.name
            if key in self.machine.memories:
                self.write(key, self.value(name), self.sp)
        return _number(emitter, variables.entries[state.callee])

    def choose_next(self) -> str:
        """The next state by a condition."""
        emitter, condition = self.emitter, self.value(self.state.condition)
        yes, no = (_number(emitter, each) for each in self.state.following)
        if emitter.types[condition].dtype != boolean:
            zero = emitter.emit("fill", shape=(), value=0.0, dtype=emitter.types[condition].dtype)
            condition = emitter.emit("not_equal", condition, zero)
        return emitter.emit("where", condition, yes, no)

    def return_results(self) -> str:
        """Return: write results to registers, pop the stack, continue after the call."""
        variables, own, emitter = self.variables, self.state.function, self.emitter
        start = variables.register(own)
        for position, name in enumerate(variables.family[own].results):
            kind = variables.results[own][position]
            self.registers[start + position] = emitter.convert(self.value(name), kind)
        self.sp = _against(emitter, "sub", "sp", 1)
        self.going = _against(emitter, "greater", self.sp, 0)
        return emitter.emit("gather", "returns", self.sp)

    def own(self, results: list[str]) -> list[str]:
        """Copies results that are inputs or repeats: outputs of a graph are distinct values."""
        made_here = {name for node in self.emitter.nodes for name in node.outputs}
        seen: set[str] = set()
        for position, name in enumerate(results):
            if name not in made_here or name in seen:
                results[position] = self.emitter.emit("identity", name)
            seen.add(results[position])
        return results
