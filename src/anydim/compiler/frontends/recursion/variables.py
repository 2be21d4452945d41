"""The variables of states: their types, what states compute, and which variables must be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anydim.base.errors import LanguageError
from anydim.compiler.frontends.recursion.sections import (
    Kinds,
    Scope,
    Section,
    read_before,
    sections_of,
)
from anydim.compiler.frontends.recursion.states import State, States
from anydim.lang.surface.linking import DEPTH
from anydim.lang.surface.syntax import Definition, targets
from anydim.lang.tree import TensorType
from anydim.lang.tree.typing import promote
from anydim.sizes import Box, Guard

Key = tuple[int, str]  # a function and the name of a variable


class Variables:
    """The variables of a definition that calls itself or loops `while`, and of its family.

    `types` has the type of each variable, `results` those of each function, `sections` what each
    state computes. `shared` are the parameters that all calls get from the program, with their
    names there; `stored` the other variables that live longer than a state. `depth` is the most
    calls that are open at once.
    """

    def __init__(
        self, definition: Definition, types: Sequence[TensorType], box: Box,
        attributes: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.definition, self.box, self.attributes = definition, box, attributes
        self.family = [definition, *(d for d in definition.family if d.name != definition.name)]
        made = States(self.family)
        self.states, self.entries = made.states, made.entries
        self.inputs: Kinds = dict(zip((p.name for p in definition.parameters), types))
        self.depth = self._depth()
        self.types: dict[Key, TensorType] = {}
        self.results: dict[int, list[TensorType]] = {}
        self.sections: dict[int, list[Section]] = {}
        self.guards: list[Guard] = []
        self._calls_known()
        self.shared = self._shared_parameters()
        self._infer()
        self._check_assigned()
        self.stored = self._stored_variables()

    def _depth(self) -> int:
        if not self.definition.family:
            return 1
        bounds = {each.name: each.default for each in self.definition.attributes}
        depth = int({**bounds, **self.attributes}[DEPTH] or 0)
        if depth < 1:
            problem = f"attribute '{DEPTH}' must be at least 1"
            raise self.definition.error(self.definition.position, problem)
        return depth

    def _calls_known(self) -> None:
        """The definitions that states call; none of them has states of its own."""
        self.known = {each.name: each for each in self.definition.callees}
        for own in self.definition.family:
            self.known.update({callee.name: callee for callee in own.callees})

    # ---- parameters of the program -------------------------------------------------------------

    def _shared_parameters(self) -> dict[Key, str]:
        """Parameters that all calls pass on unchanged, with their names in the program."""
        shared = {(0, name): name for name in self.inputs}
        for number, each in enumerate(self.family[1:], 1):
            shared.update({(number, parameter.name): "?" for parameter in each.parameters})
        for number, each in enumerate(self.family):
            for name in set(targets(each.statements)):
                shared.pop((number, name), None)
        while any(self._unshare(state, shared) for state in self.states):
            pass
        return {key: name for key, name in shared.items() if name != "?"}

    def _unshare(self, state: State, shared: dict[Key, str]) -> bool:
        """Unmark parameters that a call does not pass on unchanged; returns whether any."""
        changed = False
        if state.callee < 0:
            return False
        for parameter, name in zip(self.family[state.callee].parameters, state.given):
            key = state.callee, parameter.name
            own = shared.get((state.function, name), "")
            if own == "?" or key not in shared or shared[key] == own:
                continue
            changed = True
            if shared[key] == "?" and own:
                shared[key] = own
            else:
                del shared[key]
        return changed

    # ---- types ---------------------------------------------------------------------------------

    def _infer(self) -> None:
        """The types of all variables, from the first states on."""
        self.types.update({key: self.inputs[name] for key, name in self.shared.items()})
        self.types.update({(0, name): kind for name, kind in self.inputs.items()})
        self.reads = [self._reads(number, state) for number, state in enumerate(self.states)]
        changed = True
        while changed:
            changed = False
            for number, state in enumerate(self.states):
                changed |= self._types_of(number, state)
        missing = any(number not in self.results for number in range(len(self.family)))
        if missing or any(number not in self.sections for number in range(len(self.states))):
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
        if any((own, name) not in self.types for name in self.reads[number]):
            return changed
        if number not in self.sections:
            scope = self.scope(own)
            self.sections[number] = sections_of(
                state.statements, scope, self._used_after(number, state)
            )
            self.guards += [guard for guard in scope.guards if guard not in self.guards]
            for name in state.written & scope.kinds.keys():
                self._set(own, name, scope.kinds[name], state)
            changed = True
        if state.callee >= 0:
            parameters = self.family[state.callee].parameters
            for parameter, name in zip(parameters, state.given):
                if (own, name) in self.types:
                    changed |= self._set(state.callee, parameter.name, self.types[own, name], state)
        results = self.family[own].results
        if state.returns and own not in self.results:
            if all((own, name) in self.types for name in results):
                self.results[own] = [self.types[own, name] for name in results]
                changed = True
        return changed

    def scope(self, function: int) -> Scope:
        """The names of a function with the types that are known."""
        kinds = {name: kind for (number, name), kind in self.types.items() if number == function}
        return Scope(self.family[function], self.known, self.attributes, self.box, kinds)

    def _set(self, function: int, name: str, kind: TensorType, state: State) -> bool:
        key = function, name
        if key not in self.types:
            self.types[key] = kind
            return True
        known = self.types[key]
        where = "iteration" if not self.definition.family else "call"
        if known.shape != kind.shape:
            raise self._error(
                state, f"'{name}' has the sizes ({_sizes_text(known)}) in one {where} or branch "
                f"and ({_sizes_text(kind)}) in another",
            )  # fmt: skip
        if known.dtype != kind.dtype and promote([known.dtype, kind.dtype]) != known.dtype:
            raise self._error(
                state, f"'{name}' is {known.dtype} in one {where} or branch and {kind.dtype} in "
                "another", "convert one of them: float(...)",
            )  # fmt: skip
        return False

    def _error(self, state: State, problem: str, hint: str = "") -> LanguageError:
        definition = self.family[state.function]
        return definition.error(definition.position, problem, hint)

    def _reads(self, number: int, state: State) -> list[str]:
        """The variables that other states write, or parameters, and this one reads."""
        own = self.family[state.function]
        others = {p.name for p in own.parameters} | set(state.bound)
        for each, other in enumerate(self.states):
            if each != number and other.function == state.function:
                others |= other.written
        found = read_before(state.statements, own, state.bound)
        return [name for name in found if name in others]

    def _used_after(self, number: int, state: State) -> set[str]:
        """The variables that are used after the statements of a state."""
        kept = {*state.given, *self.family[state.function].results}
        kept |= {state.condition} if state.condition else set()
        for each, other in enumerate(self.states):
            if each != number and other.function == state.function:
                kept |= other.names
        return kept | set(self.reads[number])

    # ---- assignment before use -------------------------------------------------------------------

    def _check_assigned(self) -> None:
        """Raise LanguageError for a variable that may be read before it is assigned."""
        every = {number: {n for f, n in self.types if f == number}
                 for number in range(len(self.family))}  # fmt: skip
        before = [set(every[state.function]) for state in self.states]
        for number, entry in enumerate(self.entries):
            before[entry] = {parameter.name for parameter in self.family[number].parameters}
        changed = True
        while changed:
            changed = False
            for number, state in enumerate(self.states):
                after = before[number] | state.written
                for following in state.following:
                    if before[following] - after:
                        before[following] &= after
                        changed = True
        for number, state in enumerate(self.states):
            known = before[number] | set(state.bound)
            used = [name for name in self.reads[number] if name not in known]
            known |= state.written
            used += [name for name in (*state.given, state.condition) if name and name not in known]
            if state.returns:
                used += [n for n in self.family[state.function].results if n not in known]
            if used:
                raise self._error(
                    state, f"'{used[0]}' may be used before it is assigned",
                    f"assign it first, in all cases: {used[0]} = ...",
                )  # fmt: skip

    # ---- storage -------------------------------------------------------------------------------

    def _stored_variables(self) -> list[Key]:
        """Variables that live across states and need a table."""
        found: dict[Key, None] = {}
        for number, each in enumerate(self.family):
            for parameter in each.parameters:
                if (number, parameter.name) not in self.shared:
                    found[number, parameter.name] = None
        for number, state in enumerate(self.states):
            for name in sorted(state.written):
                key = state.function, name
                if key not in self.shared and key in self.types and self._used_later(number, name):
                    found[key] = None
        return list(found)

    def _used_later(self, number: int, name: str) -> bool:
        """Whether a state uses a variable that another one, or itself in a loop, writes."""
        function = self.states[number].function
        results = self.family[function].results
        return any(
            name in self.reads[n]
            or name in (*s.given, s.condition)
            or (s.returns and name in results)
            for n, s in enumerate(self.states)
            if s.function == function and (n != number or name in self.reads[n])
        )

    # ---- registers -----------------------------------------------------------------------------

    @property
    def registers(self) -> list[TensorType]:
        """The types of the results of all functions, in order."""
        return [kind for number in range(len(self.family)) for kind in self.results[number]]

    def register(self, function: int) -> int:
        """The number of a function's first result."""
        return sum(len(self.results[number]) for number in range(function))

    def bound_registers(self, state: State) -> dict[str, int]:
        """The registers of the names that get the results of a call."""
        first = self.register(state.result_of) if state.result_of >= 0 else 0
        return {name: first + position for position, name in enumerate(state.bound)}


def _sizes_text(kind: TensorType) -> str:
    return ", ".join(map(str, kind.shape)) or "a number"
