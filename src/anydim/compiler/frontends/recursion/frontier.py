"""Data-dependent control flow per batch row: rows in the same state run together.

    def parsed(float(B,T,D) words, int64(B) n, ...) -> (h) { h(b) = parse(words(b), n(b)) }

The graph has one loop. Each row has a state and a number of open calls. An iteration takes all rows
whose state is the lowest one, so that rows wait for each other where their states meet again:

    rows, sizes = frontier(state, open)        sizes: rows per state, all 0 but one
    of each state: values of its rows          gathered from tables, or read there
                   its comprehensions          over its rows
    tables, with the rows that states write    in place

Variables that live across states are rows of tables, `depth + 1` for each row of the batch: one for
each open call. Results of calls are rows of registers, one for each row of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.recursion.emission import Several
from anydim.compiler.frontends.recursion.states import State
from anydim.compiler.frontends.recursion.variables import Key, Variables
from anydim.compiler.frontends.structures.emitter import Emitter
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.regions import LoopRegion, PartRegion, Scan, Sizes
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.linking import DEPTH
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import (
    Apply,
    Axis,
    Expr,
    Group,
    Index,
    Literal,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    Tensor,
    TensorType,
    Write,
)
from anydim.lang.tree.bounds_checks import inside
from anydim.sizes import Dim, Size, as_size

SOURCE = "rows"  # of the nodes

_FRONTIER = """
def frontier(int64(B) state, int64(B) open; size states, size stride) -> (rows, at, sizes) {
  chosen min=! state(b) >= 0 ? state(b) : states
  deepest max=! state(b) >= 0 ? open(b) + 1 : 0
  count = 0
  rows(b) = 0 where exists state(b)
  for b in 0:B {
    if state(b) == chosen {
      rows(count) = b
      count += 1
    }
  }
  at(b) = rows(b) * stride + open(rows(b))
  sizes(s) = s < states ? (s == chosen ? count : 0) : max(deepest, 0) where s in 0:states + 1
}
"""
_GOING = "def going(int64(B) state) -> (more) { m max=! state(b)  more = m >= 0 }"


@dataclass
class _Writes:
    """Pending writes to a table: rows, and values for them."""

    rows: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)


class Frontier:
    """Emits the calls of a definition for `count` rows; `given` are the values of its parameters.

    `rowwise` are the parameters with one value for each row, an axis in front; all rows share the
    others.
    """

    def __init__(
        self, variables: Variables, emitter: Emitter, given: dict[str, str], count: Size,
        rowwise: Sequence[str],
    ) -> None:  # fmt: skip
        self.variables, self.outer, self.given = variables, emitter, given
        self.count, self.rowwise = count, rowwise
        self.stride = as_size(variables.depth + 1 if variables.definition.family else 1)
        self.name = variables.definition.name
        self.outside: dict[str, str] = {}  # values of the graph that iterations read

    # ---- the loop --------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """Emit the loop; returns the results, a row for each row of the batch."""
        variables, outer = self.variables, self.outer
        outer.source = SOURCE
        tables = {**self._initial_tables(), **self._initial_registers()}
        entry = outer.emit(
            "fill", shape=(self.count,), value=float(variables.entries[0]), dtype=int64
        )
        opened = outer.emit("fill", shape=(self.count,), value=0.0, dtype=int64)
        (going,) = _emit_definition(outer, _GOING, [entry])
        kinds = [outer.types[name] for name in tables.values()]
        body = self._body(kinds, list(tables))
        scans = tuple(
            Scan(as_size(0), kind.shape[0], history=True, initial=True, joined=True)
            for kind in kinds
        )
        region = LoopRegion(body, self.counter, None, True, 2, scans)
        names = [outer.fresh(f"{self.name}.{word}") for word in ("state", "open")]
        names += [outer.fresh(f"{self.name}.{table}") for table in tables]
        inputs = (going, entry, opened, *tables.values(), *self.outside)
        vector = TensorType(int64, (self.count,))
        outer.region(region, inputs, names, [vector, vector, *kinds])
        made = dict(zip(tables, names[2:]))
        first = variables.register(0)
        results = variables.definition.results
        return [made[f"register.{first + number}"] for number in range(len(results))]

    def _table_name(self, key: Key) -> str:
        function, name = key
        return f"{name}.rows" if not function else f"{name}.rows.{function}"

    def _initial_tables(self) -> dict[str, str]:
        """The tables of variables before the first iteration; parameters are in the first row."""
        made = {}
        total = self.count * self.stride
        for key in self.variables.stored:
            kind = self.variables.types[key]
            if key[0] == 0 and key[1] in self.given:
                made[self._table_name(key)] = self._first_rows(key[1], kind)
            else:
                made[self._table_name(key)] = self.outer.emit(
                    "fill", shape=(total, *kind.shape), value=0.0, dtype=kind.dtype
                )
        if self.variables.definition.family:
            made["returns"] = self.outer.emit("fill", shape=(total,), value=-1.0, dtype=int64)
        return made

    def _first_rows(self, parameter: str, kind: TensorType) -> str:
        value, stride = self.given[parameter], SizeTerm(self.stride)
        axes = tuple(Axis(f"i{number}", size) for number, size in enumerate(kind.shape))
        rest = tuple(Index(axis.name) for axis in axes)
        row = Apply("floordiv", (Index("n"), stride))
        if self.stride == as_size(1):
            row_index: Expr = Index("n")
        else:
            row_index = inside(row, self.count)
        body: Expr = Read(value, (row_index, *rest) if parameter in self.rowwise else rest)
        made = Statement(
            self.outer.fresh(f"{parameter}.first"),
            (Axis("n", self.count * self.stride), *axes), body,
        )  # fmt: skip
        return self.outer.statement(
            made, TensorType(kind.dtype, (self.count * self.stride, *kind.shape))
        )

    def _initial_registers(self) -> dict[str, str]:
        return {
            f"register.{number}": self.outer.emit(
                "fill", shape=(self.count, *kind.shape), value=0.0, dtype=kind.dtype
            )
            for number, kind in enumerate(self.variables.registers)
        }

    # ---- an iteration ----------------------------------------------------------------------------

    def _body(self, kinds: Sequence[TensorType], tables: Sequence[str]) -> Graph:
        variables = self.variables
        states = len(variables.states)
        self.counter = self._free(f"{self.name}.step")
        dims = [self._free(f"{self.name}.{number}.rows") for number in range(states)]
        bound = variables.depth if variables.definition.family else None
        deepest = Dim(self._free(f"{self.name}.{DEPTH}"), 0, bound)
        box = self.outer.box.also(Dim(self.counter), *map(Dim, dims), deepest)
        constraints = tuple(self.count - Size.symbol(name) for name in dims)
        inner = self.inner = Emitter(box.also(constraints=constraints), SOURCE)
        vector = TensorType(int64, (self.count,))
        inner.types.update({"state": vector, "open": vector})
        self.histories = [f"{table}.before" for table in tables]
        inner.types.update(zip(self.histories, kinds))
        self.writes = {table: _Writes() for table in tables}
        self.moves, self.opens = _Writes(), _Writes()
        self.frontier = _emit_definition(
            inner, _FRONTIER, ["state", "open"], states=as_size(states), stride=self.stride
        )
        inner.region(Sizes((*dims, deepest.name)), (self.frontier[2],))
        self.tables = {}
        for table, history in zip(tables, self.histories):
            self.tables[table] = self._part(history, f"{table}.old")
        for number, state in enumerate(variables.states):
            self._state(number, state, Size.symbol(dims[number]))
        results = self._results(tables)
        inputs = ("state", "open", *self.histories, *self.outside.values())
        return inner.graph(f"{self.name}.step", inputs, results)

    def _free(self, name: str) -> str:
        return name if name not in self.outer.box.names else self._free(f"{name}_")

    def _part(self, value: str, target: str) -> str:
        """An alias of a value, in the same memory."""
        made = self.inner.fresh(target)
        self.inner.region(PartRegion(as_size(0)), (value,), (made,), (self.inner.types[value],))
        return made

    def _results(self, tables: Sequence[str]) -> list[str]:
        state = self._write_rows("state", self.moves, "state.next")
        opened = self._write_rows("open", self.opens, "open.next")
        (going,) = _emit_definition(self.inner, _GOING, [state])
        new = [
            self._write_rows(self.tables[table], self.writes[table], f"{table}.new")
            for table in tables
        ]
        parts = [self._part(each, f"{table}.after") for each, table in zip(new, tables)]
        return [going, state, opened, *parts]

    def _write_rows(self, old: str, writes: _Writes, target: str) -> str:
        """Applies pending writes to a table."""
        inner = self.inner
        kind, made = inner.types[old], inner.fresh(target)
        whole = tuple(Axis(f"w{number}", size) for number, size in enumerate(kind.shape))
        places = tuple(Index(axis.name) for axis in whole)
        steps: list[OrderedStep] = [Write(made, places, whole, Read(old, places))]
        for rows, value in zip(writes.rows, writes.values):
            first = Axis("n", inner.types[rows].shape[0])
            rest = tuple(Axis(f"i{number}", size) for number, size in enumerate(kind.shape[1:]))
            own = tuple(Index(axis.name) for axis in rest)
            at = inside(Read(rows, (Index("n"),)), kind.shape[0])
            steps.append(Write(made, (at, *own), (first, *rest), Read(value, (Index("n"), *own))))
        names = dict.fromkeys((old, *writes.rows, *writes.values))
        inputs = tuple(Tensor(name, inner.types[name]) for name in names)
        inner.types[made] = kind
        inner.group(Group(inputs, (Tensor(made, kind),), (), steps=tuple(steps)))
        return made

    # ---- a state ---------------------------------------------------------------------------------

    def _state(self, number: int, state: State, count: Size) -> None:
        """Emit the computations and writes of a state, for the rows in it."""
        inner, variables = self.inner, self.variables
        rows, at = (inner.part(name, 0, count) for name in self.frontier[:2])
        held: dict[str, tuple[str, str]] = {}
        for (function, name), source in variables.shared.items():
            if function == state.function and source in self.rowwise:
                held[name] = self._outside(self.given[source]), rows
        for function, name in variables.stored:
            if function == state.function:
                held[name] = self.tables[self._table_name((function, name))], at
        for name, register in variables.bound_registers(state).items():
            held[name] = self.tables[f"register.{register}"], rows
        own = variables.family[state.function]
        several = Several(inner, own, count, held, self._shared_value(state.function))
        several.emit(variables.sections[number])
        for name in sorted(state.written):
            key = state.function, name
            if key in variables.stored:
                self._write(self._table_name(key), at, several.value(name))
        following = self._then(state, several, rows, at, count)
        self.moves.rows.append(rows)
        self.moves.values.append(following)

    def _shared_value(self, function: int) -> Callable[[str], str]:
        return lambda name: self._outside(self.given[self.variables.shared[function, name]])

    def _outside(self, value: str) -> str:
        """The name inside the loop of a value outside."""
        if value not in self.outside:
            self.outside[value] = f"given.{len(self.outside)}"
            self.inner.types[self.outside[value]] = self.outer.types[value]
        return self.outside[value]

    def _write(self, table: str, rows: str, value: str) -> None:
        kind = self.inner.types[self.tables[table]]
        self.writes[table].rows.append(rows)
        self.writes[table].values.append(self.inner.convert(value, kind))

    def _then(self, state: State, several: Several, rows: str, at: str, count: Size) -> str:
        """Emit the call, branch or return of a state; returns the next state of each row."""
        variables = self.variables
        if state.callee >= 0:
            return self._call(state, several, rows, at, count)
        if state.condition:
            yes, no = (Literal(each, int64) for each in state.following)
            condition: Expr = Read(several.value(state.condition), (Index("n"),))
            kind = self.inner.types[several.value(state.condition)].dtype
            if kind.name != "bool":
                condition = Apply("not_equal", (condition, Literal(0, kind)))
            return self._rows(Apply("select", (condition, yes, no)), count)
        if state.following:
            return self._rows(Literal(state.following[0], int64), count)
        first = variables.register(state.function)
        for position, name in enumerate(variables.family[state.function].results):
            self._write(f"register.{first + position}", rows, several.value(name))
        if not variables.definition.family:
            return self._rows(Literal(-1, int64), count)
        self._open(rows, -1, count)
        return self.inner.emit("gather", self.tables["returns"], at)

    def _call(self, state: State, several: Several, rows: str, at: str, count: Size) -> str:
        variables = self.variables
        there = at
        if not state.tail:
            one = Literal(1, int64)
            there = self._rows(Apply("add", (Read(at, (Index("n"),)), one)), count)
            self._open(rows, 1, count)
            back = self._rows(Literal(state.following[0], int64), count)
            self._write("returns", there, back)
        for parameter, name in zip(variables.family[state.callee].parameters, state.given):
            key = state.callee, parameter.name
            if key in variables.stored:
                self._write(self._table_name(key), there, several.value(name))
        return self._rows(Literal(variables.entries[state.callee], int64), count)

    def _open(self, rows: str, more: int, count: Size) -> None:
        """Change the number of open calls of rows."""
        at = inside(Read(rows, (Index("n"),)), self.count)
        body = Apply("add", (Read("open", (at,)), Literal(more, int64)))
        self.opens.rows.append(rows)
        self.opens.values.append(self._rows(body, count))

    def _rows(self, body: Expr, count: Size) -> str:
        """An int64 for each row `n`."""
        made = Statement(self.inner.fresh("next"), (Axis("n", count),), body)
        return self.inner.statement(made, TensorType(int64, (count,)))


def _emit_definition(emitter: Emitter, text: str, given: Sequence[str], **sizes: Size) -> list[str]:
    """Emit a definition of this file; returns its results."""
    definition = parse_definition(text)
    kinds = [emitter.types[name] for name in given]
    group = instantiate(definition, kinds, sizes, emitter.box)
    names = dict(zip((tensor.name for tensor in group.inputs), given))
    emitter.instance(group, names, f"{definition.name}.{{}}")
    return [names[tensor.name] for tensor in group.outputs]
