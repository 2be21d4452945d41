"""Cuts definitions into states at recursive calls, branches with such calls, and `while`.

    states of fib    0  n < 2 ?  -> 1 : 2            3  a = result, call fib(n - 2)  -> 4
                     1  f = n, return                4  b = result, f = a + b, return
                     2  call fib(n - 1)  -> 3

What follows a statement has a lower number than the statement, and the first state the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from anydim.base.records import dataclass
from anydim.compiler.frontends.structures.item_names import names_of
from anydim.lang.surface.syntax import (
    TYPE_NAMES,
    Assignment,
    BranchBlock,
    Convert,
    Definition,
    Invoke,
    Item,
    LoopBlock,
    Name,
    Parameter,
    Term,
    WhileBlock,
    items,
    targets,
)


@dataclass
class State:
    """Statements, and what happens then.

    `bound` are the names that the results of a call get first. Then a call (`callee`, `given`), a
    branch (`condition`) or a return; `following` are the next states. A `tail` call, of the same
    function, takes the place of the call that makes it.
    """

    function: int
    bound: tuple[str, ...] = ()
    result_of: int = -1
    statements: list[Item] = field(default_factory=list)
    callee: int = -1
    given: tuple[str, ...] = ()
    condition: str = ""
    following: tuple[int, ...] = ()
    tail: bool = False

    @property
    def returns(self) -> bool:
        """Whether the call ends here."""
        return self.callee < 0 and not self.following

    @property
    def written(self) -> set[str]:
        return {*targets(tuple(self.statements)), *self.bound}

    @property
    def names(self) -> set[str]:
        """All names that it uses."""
        found = set(self.bound) | set(self.given) | ({self.condition} if self.condition else set())
        for item in items(tuple(self.statements)):
            found |= set(names_of(item))
        return found


class States:
    """The states of definitions that call each other; `entries` are their first states."""

    def __init__(self, family: Sequence[Definition]) -> None:
        self.family = {each.name: number for number, each in enumerate(family)}
        self.definitions = family
        self.states: list[State] = []
        self.entries: list[int] = []
        for number, definition in enumerate(family):
            self.definition, self.number, self.temporaries = definition, number, 0
            self.entries.append(self.block(definition.statements, -1))

    def block(
        self, block: tuple[Item, ...], following: int, bound: tuple[str, ...] = (),
        result_of: int = -1,
    ) -> int:  # fmt: skip
        """The first state of a block; `following` is the state after it, -1 to return."""
        if not block and following >= 0 and not bound:
            return following
        state = State(self.number, bound, result_of)
        for position, item in enumerate(block):
            if not self.cuts(item):
                state.statements.append(item)
                continue
            rest = block[position + 1 :]
            if isinstance(item, Invoke):
                self.call(state, item, rest, following)
            elif isinstance(item, BranchBlock):
                after = self.block(rest, following) if rest else following
                state.condition = self.temporary(state, item.condition)
                state.following = (self.block(item.then, after), self.block(item.otherwise, after))
            else:
                assert isinstance(item, WhileBlock)
                state.following = (self.loop(item, rest, following),)
            return self.add(state)
        state.following = () if following < 0 else (following,)
        return self.add(state)

    def call(self, state: State, item: Invoke, rest: tuple[Item, ...], following: int) -> None:
        """End a state with a recursive call."""
        state.callee = self.family[item.call.name]
        callee = self.definitions[state.callee]
        pairs = zip(callee.parameters, item.call.arguments)
        state.given = tuple(self.argument(state, parameter, each) for parameter, each in pairs)
        last = not rest and following < 0 and item.targets == self.definition.results
        if last and state.callee == self.number:
            state.tail = True
            return
        state.following = (self.block(rest, following, item.targets, state.callee),)

    def loop(self, item: WhileBlock, rest: tuple[Item, ...], following: int) -> int:
        """The state that decides whether another iteration runs."""
        after = self.block(rest, following)
        head = State(self.number)
        head.condition = self.temporary(head, item.condition)
        number = self.add(head)
        head.following = (self.block(item.body, number), after)
        return number

    def add(self, state: State) -> int:
        self.states.append(state)
        return len(self.states) - 1

    def cuts(self, item: Item) -> bool:
        """Whether a state ends at an item: a branch with sums or calls, or what calls or loops.

        Sums over one call's elements are fast in a state of their own: over all its rows at once.
        """
        inner = [
            each for each in items((item,))
            if isinstance(each, WhileBlock)
            or (isinstance(each, Invoke) and each.call.name in self.family)
        ]  # fmt: skip
        if inner and isinstance(item, LoopBlock):
            raise self.definition.error(
                inner[0].position, "a recursive call cannot be inside a loop",
                "write the loop as recursion or as 'while', too",
            )  # fmt: skip
        return bool(inner) or (isinstance(item, BranchBlock) and any(map(_sums, items((item,)))))

    def argument(self, state: State, parameter: Parameter, given: Term) -> str:
        """The name of an argument; an expression gets one, with the type of the parameter."""
        if isinstance(given, Name) and given.name in self.variables:
            return given.name
        if parameter.type in TYPE_NAMES:
            given = Convert(parameter.type, given, given.position)
        return self.temporary(state, given)

    @property
    def variables(self) -> set[str]:
        return variables_of(self.definition)

    def temporary(self, state: State, term: Term) -> str:
        """Assign an expression to a name."""
        self.temporaries += 1
        name = f"value.{self.temporaries}"
        state.statements.append(Assignment(name, (), "", False, term, position=term.position))
        return name


def _sums(item: Item) -> bool:
    return isinstance(item, Invoke) or (isinstance(item, Assignment) and bool(item.combine))


def variables_of(definition: Definition) -> set[str]:
    """The tensors of a definition: its parameters, and what statements assign."""
    return {p.name for p in definition.parameters} | set(targets(definition.statements))
