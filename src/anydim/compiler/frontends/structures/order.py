"""Orders the steps of a recursion: arguments go down a cycle before results come up.

down(cycle)   after down of the cycles that call it, and up of what its values depend on
up(cycle)     after down of the cycle, and up of the cycles that it calls
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from anydim.compiler.frontends.structures.case_definitions import needed_statements
from anydim.compiler.frontends.structures.cycles import Cycle
from anydim.compiler.frontends.structures.down import Down
from anydim.compiler.frontends.structures.records import Call, Case, Key
from anydim.compiler.frontends.structures.recursion import Recursion

Task = tuple[str, int]


def order_steps(recursion: Recursion) -> list[Callable[[], None]]:
    """Topologically sorts the steps; LanguageError if an argument depends on a later result."""
    cycle_of = {
        recursion.instances[number].key: cycle
        for cycle, own in enumerate(recursion.cycles) for number in own
    }  # fmt: skip
    needs = {task: set[Task]() for task in _tasks(recursion)}
    for case in recursion.cases:
        cycle = cycle_of[case.instance.key]
        for call in case.calls:
            inner = cycle_of[call.callee]
            if inner != cycle:
                needs["up", cycle].add(("up", inner))
            if ("down", inner) in needs:
                if inner != cycle and ("down", cycle) in needs:
                    needs["down", inner].add(("down", cycle))
                for each in _results_in(case, call):
                    needs["down", inner].add(("up", cycle_of[each.callee]))
    for cycle in range(len(recursion.cycles)):
        if ("down", cycle) in needs:
            needs["up", cycle].add(("down", cycle))
    found: list[Task] = []
    while len(found) < len(needs):
        ready = [task for task, before in needs.items() if task not in found and before <= {*found}]
        if not ready:
            raise _late(recursion, cycle_of)
        found += ready
    return [
        partial(Down(recursion, cycle).run if word == "down" else Cycle(recursion, cycle).run)
        for word, cycle in found
    ]


def _tasks(recursion: Recursion) -> list[Task]:
    found: list[Task] = []
    for cycle, own in enumerate(recursion.cycles):
        if any(recursion.instances[number].passed for number in own):
            found.append(("down", cycle))
        found.append(("up", cycle))
    return found


def _results_in(case: Case, call: Call) -> list[Call]:
    """The calls whose results the values of a call depend on."""
    names = {name for _, tensor in call.passed for name in needed_statements(case, tensor)[1]}
    return [each for each in case.calls if names.intersection(each.targets)]


def _late(recursion: Recursion, cycle_of: dict[Key, int]) -> Exception:
    """The error for values that depend on results of the recursion that they are passed to."""
    for case in recursion.cases:
        for call in case.calls:
            for each in _results_in(case, call):
                if cycle_of[each.callee] == cycle_of[call.callee]:
                    return case.instance.error(
                        call.position,
                        f"an argument of '{call.callee[0]}' depends on a result of "
                        f"'{each.callee[0]}', which runs later",
                        "values that go down a structure depend on what is above",
                    )
    first = recursion.definition
    return first.error(first.position, "arguments of calls depend on results that come later")
