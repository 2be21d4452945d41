"""Recursion whose calls data decides: a stack machine in native code.

    def fib(int64 n; size depth = 100) -> (f) {
      if n < 2 { f = n } else { a = fib(n - 1)  b = fib(n - 2)  f = a + b }
    }

A definition is cut into states where it calls itself or branches to such calls. The graph has one
loop; an iteration runs the state of the innermost call. Values that live across states are rows of
tables, one row for each call that is open: `depth` is the most of them. Row 0 takes what a state
does not write. A result is passed in carried values.

    states of fib    0  n < 2 ?  -> 1 : 2            3  a = result, call fib(n - 2)  -> 4
                     1  f = n, return                4  b = result, f = a + b, return
                     2  call fib(n - 1)  -> 3
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import anydim.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import boolean, int64
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.frontends.structures.emitter import Emitter
from anydim.graph.nodes import Graph, Node
from anydim.graph.regions import BRANCH, LOOP, REGION, SIZES, BranchRegion, LoopRegion, Scan, Sizes
from anydim.lang.resolve.divisions import division_guards
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.linking import DEPTH
from anydim.lang.surface.syntax import (
    Assignment,
    BranchBlock,
    CallTerm,
    Definition,
    Invoke,
    Item,
    Name,
    Parameter,
    Term,
    items,
    targets,
    walk,
)
from anydim.lang.tree import Group, Statement, Tensor, TensorType
from anydim.lang.tree.renaming import renamed
from anydim.lang.tree.typing import promote
from anydim.sizes import Box, Dim, Guard, Size, as_size

SOURCE = "recursion"


@dataclass
class State:
    """Statements, and what happens then.

    `bound` are the names that the results of a call get first. Then a call (`callee`, `given`),
    a branch (`condition`) or a return; `following` are the next states.
    """

    function: int
    bound: tuple[str, ...] = ()
    result_of: int = -1
    statements: list[Item] = field(default_factory=list)
    callee: int = -1
    given: tuple[str, ...] = ()
    condition: str = ""
    following: tuple[int, ...] = ()

    @property
    def written(self) -> set[str]:
        return {*targets(tuple(self.statements)), *self.bound}

    @property
    def names(self) -> set[str]:
        """All names that it uses."""
        found = set(self.bound) | set(self.given) | ({self.condition} if self.condition else set())
        for item in items(tuple(self.statements)):
            found |= set(_names(item))
        return found


def _names(item: Item) -> Iterator[str]:
    terms: list[Term] = []
    if isinstance(item, Assignment):
        yield item.target
        terms = [*item.indices, item.value]
        for clause in item.where:
            terms += clause.indices if hasattr(clause, "indices") else (clause.low, clause.high)
    elif isinstance(item, Invoke):
        yield from item.targets
        terms = list(item.call.arguments)
    elif isinstance(item, BranchBlock):
        terms = [item.condition]
    for term in terms:
        for each in walk(term):
            if isinstance(each, (Name, CallTerm)):
                yield each.name
            else:
                yield getattr(each, "tensor", "")


class _States:
    """Cuts the definitions of a family into states."""

    def __init__(self, family: Sequence[Definition]) -> None:
        self.family = {each.name: number for number, each in enumerate(family)}
        self.states: list[State] = []
        self.entries = []
        for number, definition in enumerate(family):
            self.definition, self.number, self.temporaries = definition, number, 0
            self.entries.append(self.block(definition.statements, -1))

    def block(
        self, block: tuple[Item, ...], following: int, bound: tuple[str, ...] = (),
        result_of: int = -1,
    ) -> int:  # fmt: skip
        """The first state of a block; `following` is the state after it, -1 to return."""
        state = State(self.number, bound, result_of)
        for position, item in enumerate(block):
            rest = block[position + 1 :]
            if isinstance(item, Invoke) and item.call.name in self.family:
                state.callee = self.family[item.call.name]
                state.given = tuple(self.argument(state, each) for each in item.call.arguments)
                after = self.block(rest, following, item.targets, state.callee)
                state.following = (after,)
                return self.add(state)
            if not self.calls(item):
                state.statements.append(item)
                continue
            if not isinstance(item, BranchBlock):
                raise self.definition.error(
                    item.position, "a recursive call cannot be inside a loop",
                    "write the loop as recursion, too",
                )  # fmt: skip
            after = self.block(rest, following) if rest else following
            state.condition = self.temporary(state, item.condition)
            state.following = (self.block(item.then, after), self.block(item.otherwise, after))
            return self.add(state)
        state.following = () if following < 0 else (following,)
        return self.add(state)

    def add(self, state: State) -> int:
        self.states.append(state)
        return len(self.states) - 1

    def calls(self, item: Item) -> bool:
        """Whether an item contains recursive calls."""
        inner = (each for each in items((item,)) if isinstance(each, Invoke))
        return any(each.call.name in self.family for each in inner)

    def argument(self, state: State, given: Term) -> str:
        return given.name if isinstance(given, Name) else self.temporary(state, given)

    def temporary(self, state: State, term: Term) -> str:
        """Assign an expression to a name."""
        self.temporaries += 1
        name = f"value.{self.temporaries}"
        state.statements.append(Assignment(name, (), "", False, term, position=term.position))
        return name


def machine_graph(
    definition: Definition, types: Sequence[TensorType], box: Box, attributes: Mapping[str, Any]
) -> Graph:
    """The graph of a definition that calls itself; raises LanguageError."""
    return _Machine(definition, types, box, attributes).run()


class _Machine:
    def __init__(
        self, definition: Definition, types: Sequence[TensorType], box: Box,
        attributes: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.definition, self.box, self.attributes = definition, box, attributes
        self.family = [definition, *(d for d in definition.family if d.name != definition.name)]
        known = {each.name: each for each in definition.callees}
        for each in definition.family:
            known.update({callee.name: callee for callee in each.callees})
        self.known = known
        made = _States(self.family)
        self.states, self.entries = made.states, made.entries
        self.inputs = dict(zip((p.name for p in definition.parameters), types))
        bounds = {each.name: each.default for each in definition.attributes}
        self.depth = int({**bounds, **attributes}[DEPTH] or 0)
        if self.depth < 1:
            raise definition.error(definition.position, f"attribute '{DEPTH}' must be at least 1")
        self.types: dict[tuple[int, str], TensorType] = {}  # of variables, by function
        self.results: dict[int, list[TensorType]] = {}
        self.guards: list[Guard] = []
        self._shared()
        for name, kind in self.inputs.items():
            self.types[0, name] = kind
        self._infer()

    def _shared(self) -> None:
        """The parameters that all calls pass on: tensors of the program."""
        shared = {(0, name): name for name in self.inputs}
        for number, each in enumerate(self.family[1:], 1):
            shared.update({(number, parameter.name): "?" for parameter in each.parameters})
        changed = True
        while changed:
            changed = False
            for state in self.states:
                if state.callee < 0:
                    continue
                callee = self.family[state.callee]
                for parameter, name in zip(callee.parameters, state.given):
                    key = state.callee, parameter.name
                    own = shared.get((state.function, name), "")
                    if name in set(targets(self.family[state.function].statements)):
                        own = ""
                    if own == "?" or key not in shared:
                        continue
                    if shared[key] == "?":
                        shared[key], changed = own, True
                        if not own:
                            del shared[key]
                    elif shared[key] != own:
                        del shared[key]
                        changed = True
        self.shared = {key: name for key, name in shared.items() if name != "?"}

    # ---- types ---------------------------------------------------------------------------------

    def _infer(self) -> None:
        """The types of all variables, from the first states on."""
        for key, name in self.shared.items():
            self.types[key] = self.inputs[name]
        self.groups: dict[int, tuple[Group, list[str]] | None] = {}  # with the names of results
        changed = True
        while changed:
            changed = False
            for number, state in enumerate(self.states):
                changed |= self._types_of(number, state)
        missing = next((n for n in range(len(self.family)) if n not in self.results), None)
        if missing is not None or any(n not in self.groups for n in range(len(self.states))):
            raise self.definition.error(
                self.definition.position, "no branch ends the recursion", "add one without a call"
            )

    def _types_of(self, number: int, state: State) -> bool:
        """Infer the types of what a state writes; returns whether something is new."""
        own, changed = state.function, False
        if state.result_of >= 0:
            if state.result_of not in self.results:
                return False
            for name, kind in zip(state.bound, self.results[state.result_of]):
                changed |= self._set(own, name, kind, state)
        needed = self._reads(state)
        if any((own, name) not in self.types for name in needed):
            return changed
        if number not in self.groups:
            self.groups[number] = self._group(number, state, needed)
            changed = True
            made = self.groups[number]
            if made is not None:
                for tensor, name in zip(made[0].outputs, made[1]):
                    changed |= self._set(own, name, tensor.type, state)
        if state.callee >= 0:
            parameters = self.family[state.callee].parameters
            for parameter, name in zip(parameters, state.given):
                if (own, name) in self.types:
                    changed |= self._set(state.callee, parameter.name, self.types[own, name], state)
        if not state.following and state.callee < 0:
            results = self.family[own].results
            if all((own, name) in self.types for name in results):
                kinds = [self.types[own, name] for name in results]
                if own not in self.results:
                    self.results[own], changed = kinds, True
        return changed

    def _set(self, function: int, name: str, kind: TensorType, state: State) -> bool:
        key = function, name
        if key not in self.types:
            self.types[key] = kind
            return True
        known = self.types[key]
        if known.shape != kind.shape:
            definition = self.family[state.function]
            raise definition.error(
                definition.position, f"'{name}' has the sizes ({_shown(known)}) in one call or "
                f"branch and ({_shown(kind)}) in another"
            )  # fmt: skip
        if known.dtype != kind.dtype and promote([known.dtype, kind.dtype]) != known.dtype:
            definition = self.family[state.function]
            raise definition.error(
                definition.position, f"'{name}' is {known.dtype} in one call or branch and "
                f"{kind.dtype} in another", "convert one of them: float(...)"
            )  # fmt: skip
        return False

    def _reads(self, state: State) -> list[str]:
        """The variables that a state's statements read and do not write first."""
        declared = {p.name for p in self.family[state.function].parameters}
        variables = declared | set(targets(self.family[state.function].statements))
        written, found = set[str](), dict[str, None]()
        for item in state.statements:
            for inner in items((item,)):
                read = [n for n in _names(inner) if n in variables or n in state.bound]
                accumulates = isinstance(inner, Assignment) and inner.combine and not inner.initial
                own = set(targets((inner,)))
                for name in read:
                    if name not in written and (
                        name not in own or accumulates or _reads_own(inner)
                    ):
                        found[name] = None
            written |= set(targets((item,)))
        return list(found)

    def _group(
        self, number: int, state: State, needed: Sequence[str]
    ) -> tuple[Group, list[str]] | None:
        """The comprehensions of a state."""
        if not state.statements:
            return None
        own = self.family[state.function]
        kept = [name for name in dict.fromkeys(targets(tuple(state.statements)))
                if self._is_kept(number, state, name)]  # fmt: skip
        if not kept:
            return None
        parameters = tuple(
            Parameter(name, self.types[state.function, name].dtype.name, tuple(
                Name(f"{name}.{axis}") for axis in range(self.types[state.function, name].rank)
            ))
            for name in needed
        )  # fmt: skip
        made = replace(
            own, parameters=parameters, results=tuple(kept), statements=tuple(state.statements),
            family=(), callees=tuple(self.known.values()),
        )  # fmt: skip
        kinds = [self.types[state.function, name] for name in needed]
        names = {attribute.name for attribute in own.attributes}
        given = {name: held for name, held in self.attributes.items() if name in names}
        group = instantiate(made, kinds, given, self.box)
        source = f"{own.file}:{own.line}: {own.name}"
        group = replace(group, guards=division_guards(group, self.box, source))
        self.guards += [guard for guard in group.guards if guard not in self.guards]
        return group, kept

    def _is_kept(self, number: int, state: State, name: str) -> bool:
        """Whether a variable that a state writes is used after its statements."""
        if name in state.given or name == state.condition:
            return True
        if name in self.family[state.function].results:
            return True
        others = (s for n, s in enumerate(self.states) if n != number)
        return any(s.function == state.function and name in s.names for s in others)

    # ---- the graph -----------------------------------------------------------------------------

    def run(self) -> Graph:
        self.memories = self._memories()
        outer = Emitter(self.box)
        outer.types.update(self.inputs)
        depth = as_size(self.depth + 1)
        initials = []
        for function, name in self.memories:
            kind = self.types[function, name]
            rows = outer.emit("fill", shape=(depth, *kind.shape), value=0.0, dtype=kind.dtype)
            if function == 0 and name in self.inputs:
                first = outer.emit("reshape", name, shape=(as_size(1), *kind.shape))
                zero, rest = (
                    outer.emit("fill", shape=(count, *kind.shape), value=0.0, dtype=kind.dtype)
                    for count in (as_size(1), depth - 2)
                )
                rows = outer.joined([zero, first, rest])
            initials.append(rows)
        returns = outer.emit("fill", shape=(depth,), value=0.0, dtype=int64)
        first_row = outer.emit("fill", shape=(), value=1.0, dtype=int64)
        entry = outer.emit("fill", shape=(), value=float(self.entries[0]), dtype=int64)
        registers = [
            outer.emit("fill", shape=kind.shape, value=0.0, dtype=kind.dtype)
            for kind in self._registers()
        ]
        going = outer.emit("fill", shape=(), value=1.0, dtype=boolean)
        body = self._body()
        shared = sorted(set(self.shared.values()))
        scans = tuple(
            Scan(Size.symbol(position), depth, history=True, initial=True)
            for position in self.positions
        )
        region = LoopRegion(body, "step", None, True, 2 + len(registers), scans)
        names = [outer.fresh(f"end.{n}") for n in range(2 + len(registers))]
        names += [outer.fresh(f"rows.{n}") for n in range(len(scans))]
        kinds = [TensorType(int64, ())] * 2 + self._registers()
        kinds += [outer.types[each] for each in (returns, *initials)]
        given = (going, first_row, entry, *registers, returns, *initials, *shared)
        outer.node(Node(LOOP, given, tuple(names), FrozenMapping({REGION: region}), SOURCE), kinds)
        outputs = []
        for position, result in enumerate(self.definition.results):
            outputs.append(outer.emit("identity", names[2 + position], called=result))
        return Graph(
            self.definition.name, outer.box, FrozenMapping(outer.types), tuple(self.inputs),
            tuple(outputs), nodes=tuple(outer.nodes), guards=tuple(self.guards),
        ).pruned()  # fmt: skip

    def _registers(self) -> list[TensorType]:
        """The types of the results of all functions, in order."""
        return [kind for n in range(len(self.family)) for kind in self.results[n]]

    def _register(self, function: int) -> int:
        """The number of a function's first result."""
        return sum(len(self.results[n]) for n in range(function))

    def _memories(self) -> list[tuple[int, str]]:
        """The variables that live across states."""
        found: dict[tuple[int, str], None] = {}
        for number, each in enumerate(self.family):
            for parameter in each.parameters:
                if (number, parameter.name) not in self.shared:
                    found[number, parameter.name] = None
        for number, state in enumerate(self.states):
            for name in sorted(state.written):
                key = state.function, name
                if key in self.shared or key not in self.types:
                    continue
                readers = (
                    s for n, s in enumerate(self.states)
                    if n != number and s.function == state.function
                )  # fmt: skip
                results = self.family[state.function].results
                if any(name in s.names or (not s.following and name in results) for s in readers):
                    found[key] = None
        return list(found)

    def _body(self) -> Graph:
        """An iteration: the state `pc` of the call in row `sp`."""
        name = f"{self.definition.name}.{DEPTH}"
        self.positions = [f"{name}.{n}" for n in range(1 + len(self.memories))]
        dims = [Dim(name, 0, self.depth) for name in self.positions]
        inner = Emitter(self.box.also(Dim("step"), *dims))
        scalar = TensorType(int64, ())
        depth = as_size(self.depth + 1)
        inputs = ["sp", "pc"]
        inner.types.update({"sp": scalar, "pc": scalar})
        self.register_names = [f"register.{n}" for n in range(len(self._registers()))]
        inner.types.update(zip(self.register_names, self._registers()))
        inputs += self.register_names
        self.row_names = ["returns", *(f"rows.{f}.{n}" for f, n in self.memories)]
        inner.types["returns"] = TensorType(int64, (depth,))
        for name, key in zip(self.row_names[1:], self.memories):
            kind = self.types[key]
            inner.types[name] = TensorType(kind.dtype, (depth, *kind.shape))
        inputs += self.row_names
        shared = sorted(set(self.shared.values()))
        for name in shared:
            inner.types[f"given.{name}"] = self.inputs[name]
        inputs += [f"given.{name}" for name in shared]
        made = self._dispatch(inner, inputs, list(range(len(self.states))))
        inner.node(
            Node(SIZES, (made[-1],), (), FrozenMapping({REGION: Sizes(tuple(self.positions))}),
                 SOURCE), (),
        )  # fmt: skip
        return Graph(
            f"{self.definition.name}.steps", inner.box, FrozenMapping(inner.types), tuple(inputs),
            tuple(made[:-1]), nodes=tuple(inner.nodes),
        )  # fmt: skip

    def _dispatch(self, emitter: Emitter, inputs: list[str], states: list[int]) -> list[str]:
        """Emit the branches to the state that `pc` names; returns the results of the state."""
        if len(states) == 1:
            return self._state(emitter, states[0])
        half = len(states) // 2
        low, high = states[:half], states[half:]
        condition = self._scalar(emitter, "less", "pc", high[0])
        graphs = []
        for part in (low, high):
            inner = Emitter(self.box)
            inner.types.update({name: emitter.types[name] for name in inputs})
            made = self._dispatch(inner, inputs, part)
            graphs.append(Graph(
                f"states.{part[0]}", inner.box, FrozenMapping(inner.types), tuple(inputs),
                tuple(made), nodes=tuple(inner.nodes),
            ))  # fmt: skip
        kinds = [graphs[0].types[name] for name in graphs[0].outputs]
        names = tuple(emitter.fresh(f"state.{n}") for n in range(len(kinds)))
        region = BranchRegion(graphs[0], graphs[1])
        emitter.node(
            Node(BRANCH, (condition, *inputs), names, FrozenMapping({REGION: region}), SOURCE),
            kinds,
        )
        return list(names)

    def _number(self, emitter: Emitter, number: int) -> str:
        return emitter.emit("fill", shape=(), value=float(number), dtype=int64)

    def _scalar(self, emitter: Emitter, operator: str, left: str, right: int) -> str:
        """A comparison or sum of an int64 scalar and a number."""
        return emitter.emit(operator, left, self._number(emitter, right))

    def _state(self, emitter: Emitter, number: int) -> list[str]:
        """Emit a state: (going, sp, pc, registers, returns, memories, positions)."""
        state, own = self.states[number], self.states[number].function
        values: dict[str, str] = {}
        first = self._register(state.result_of) if state.result_of >= 0 else 0
        for position, name in enumerate(state.bound):
            values[name] = self.register_names[first + position]

        def value(name: str) -> str:
            if name not in values:
                key = own, name
                if key in self.shared:
                    values[name] = f"given.{self.shared[key]}"
                else:
                    rows = self.row_names[1 + self.memories.index(key)]
                    values[name] = emitter.emit("gather", rows, "sp", called=f"{name}.here")
            return values[name]

        made = self.groups[number]
        if made is not None:
            self._emit_group(emitter, *made, value, values)
        registers = list(self.register_names)
        going = emitter.emit("fill", shape=(), value=1.0, dtype=boolean)
        sp, here = "sp", "sp"
        away = emitter.emit("fill", shape=(), value=0.0, dtype=int64)
        returned, return_to = away, away
        writes: dict[tuple[int, str], tuple[str, str]] = {}
        for name in sorted(state.written):
            if (own, name) in self.memories:
                kind = self.types[own, name]
                writes[own, name] = emitter.converted(value(name), kind), here
        if state.callee >= 0:
            sp = self._scalar(emitter, "add", "sp", 1)
            pc = emitter.emit(
                "fill", shape=(), value=float(self.entries[state.callee]), dtype=int64
            )
            returned = self._number(emitter, state.following[0])
            return_to = "sp"
            for parameter, name in zip(self.family[state.callee].parameters, state.given):
                key = state.callee, parameter.name
                if key in self.memories:
                    writes[key] = emitter.converted(value(name), self.types[key]), sp
        elif state.condition:
            pc = self._chosen(emitter, value(state.condition), *state.following)
        elif state.following:
            pc = self._number(emitter, state.following[0])
        else:
            start = self._register(own)
            for position, name in enumerate(self.family[own].results):
                kind = self.results[own][position]
                registers[start + position] = emitter.converted(value(name), kind)
            sp = self._scalar(emitter, "sub", "sp", 1)
            pc = emitter.emit("gather", "returns", sp)
            going = self._scalar(emitter, "greater", sp, 0)
        rows, positions = [returned], [return_to]
        for key in self.memories:
            kind = self.types[key]
            if key in writes:
                rows.append(writes[key][0])
                positions.append(writes[key][1])
            else:
                rows.append(emitter.emit("fill", shape=kind.shape, value=0.0, dtype=kind.dtype))
                positions.append(away)
        parts = [emitter.emit("reshape", each, shape=(as_size(1),)) for each in positions]
        places = emitter.joined(parts)
        results = [going, sp, pc, *registers, *rows, places]
        made_here = {name for node in emitter.nodes for name in node.outputs}
        seen: set[str] = set()
        for position, name in enumerate(results):
            if name not in made_here or name in seen:
                results[position] = emitter.emit("identity", name)
            seen.add(results[position])
        return results

    def _chosen(self, emitter: Emitter, condition: str, then: int, otherwise: int) -> str:
        yes, no = (
            emitter.emit("fill", shape=(), value=float(each), dtype=int64)
            for each in (then, otherwise)
        )
        if emitter.types[condition].dtype != boolean:
            zero = emitter.emit("fill", shape=(), value=0.0, dtype=emitter.types[condition].dtype)
            condition = emitter.emit("not_equal", condition, zero)
        return emitter.emit("where", condition, yes, no)

    def _emit_group(
        self, emitter: Emitter, group: Group, kept: list[str], value: Any, values: dict[str, str]
    ) -> None:
        names = {tensor.name: value(tensor.name) for tensor in group.inputs}
        outer = dict(names)
        for tensor in (*group.outputs, *group.temporaries):
            outer[tensor.name] = emitter.fresh(f"{tensor.name}.new")

        def tensors(old: Sequence[Tensor]) -> tuple[Tensor, ...]:
            return tuple({outer[t.name]: Tensor(outer[t.name], t.type) for t in old}.values())

        emitter.group(Group(
            tensors(group.inputs), tensors(group.outputs),
            tuple(s for s in renamed(group.statements, outer) if isinstance(s, Statement)),
            tensors(group.temporaries),
            steps=renamed(group.steps, outer),
        ))  # fmt: skip
        values.update({name: outer[tensor.name] for name, tensor in zip(kept, group.outputs)})


def _reads_own(item: Item) -> bool:
    """Whether an assignment reads its target."""
    if not isinstance(item, Assignment):
        return False
    return any(
        isinstance(each, (Name, CallTerm)) and each.name == item.target for each in walk(item.value)
    )


def _shown(kind: TensorType) -> str:
    return ", ".join(map(str, kind.shape)) or "a number"
